"""Values that functions of Spark get wrong, of every type: extremes, NaN, texts that are numbers,
days that a time zone skipped."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from annotations.whitebox.datatypes import DataType, parse_type
from annotations.whitebox.ir import Column


@dataclass(frozen=True, slots=True)
class Sample:
    """A type with values of it, as SQL."""

    name: str
    """Of its columns and views."""
    sql: str
    values: tuple[str, ...]
    bits_max: int | None = None

    @property
    def type(self) -> DataType:
        """What the derivation knows of it."""
        return parse_type(self.sql)[0]

    def column(self, name: str, *, nullable: bool = True) -> Column:
        """A column of the type."""
        return Column(name, self.type, nullable, bits_max=self.bits_max)

    def some(self, rng: random.Random, count: int) -> list[str]:
        """A few of the values, always with some of the first, which are the worst."""
        first = list(self.values[: count // 2])
        rest = list(self.values[count // 2 :])
        return first + rng.sample(rest, min(count - len(first), len(rest)))


def _typed(sql: str, values: list[str]) -> tuple[str, ...]:
    return tuple(f"CAST({value} AS {sql})" for value in dict.fromkeys(values))


def _integers(bits: int) -> list[str]:
    top = 2 ** (bits - 1)
    near = [top - 1, -top + 1, 0, 1, -1, 2, 7, -7, 10, 100, 127, -127]
    wide = [2**53, 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1, 2**24 + 1, 2**15, 999_999_937]
    found = [f"({'-' if n < 0 else ''}{abs(n)}{'L' if bits == 64 else ''})"
             for n in [*near, *wide] if -top <= n < top]  # fmt: skip
    lowest = {8: "(-128)", 16: "(-32768)", 32: "(-2147483648)", 64: "(-9223372036854775807L - 1L)"}
    return [lowest[bits], *found]


_FLOATS: Final = [
    *("'-0.0'", "'0.0'", "'NaN'", "'Infinity'", "'-Infinity'", "'1e308'", "'-1e308'", "'1e-45'"),
    *("'0.1'", "'0.2'", "'0.3'", "'1e16'", "'1'", "'-1e16'", "'9007199254740993'", "'0.5'", "'-1'"),
    *("'16777217'", "'3.4e38'", "'2.5'", "'1.5'", "'-2.5'", "'65'", "'123456789'"),
]
_TEXTS: Final = [
    *("''", "' '", "'a'", "'A'", "'a '", "' a'", "'0'", "'00'", "'01'", "'1'", "'1.0'", "'-0'"),
    *("'+1'", "' 1'", "'1e0'", "'9'", "'10'", "'true'", "'t'", "'today'", "'2024-02-29'", "'i'"),
    *("'I'", "'\\u0131'", "'\\u0130'", "'\\u00e9'", "'e\\u0301'", "'\\u00df'", "'ss'", "'\\u1e9e'"),
    *("'\\u0000'", "'\\ud83d\\ude00'", "CAST(X'C3' AS STRING)", "CAST(X'C328' AS STRING)"),
    *("CAST(X'28C3' AS STRING)", "CAST(X'FF' AS STRING)", "CAST(X'FE' AS STRING)", "'\\ufffd'"),
    *("CAST(X'EDA080' AS STRING)", "CAST(X'F0' AS STRING)", "CAST(X'F041' AS STRING)", "'a+b'"),
    *("'a%20b'", "'a b'", "'NULL'", "'2024-2-29'", "'12:00'", "'1970-01-01 00:00:00'", "'-1'"),
]
_DAYS: Final = [
    *("DATE'2011-12-30'", "DATE'2011-12-31'", "DATE'2011-12-29'", "DATE'1970-01-01'"),
    *("DATE'2024-02-29'", "DATE'2024-03-01'", "DATE'2024-02-28'", "DATE'2023-02-28'"),
    *("DATE'0001-01-01'", "DATE'1582-10-04'", "DATE'1582-10-14'", "DATE'1582-10-15'"),
    *("DATE'9999-12-31'", "DATE'2018-11-04'", "DATE'2018-11-03'", "DATE'2024-12-30'"),
    *("date_from_unix_date(2147483647)", "date_from_unix_date(-2147483647)", "DATE'0000-12-31'"),
    *("DATE'1883-11-18'", "DATE'2024-01-31'", "DATE'2024-01-30'", "DATE'12000-01-01'"),
]
_MICROS: Final = [
    # Summer time ends and begins in Berlin and New York; Apia skips a day; clocks before 1900.
    *(1729987200000000, 1729990800000000, 1729989000000000, 1711846800000000, 1711846799999999),
    *(1730613600000000, 1730617200000000, 1710054000000000, 1325239199999999, 1325239200000000),
    *(1325152800000000, 0, -1, 1, 999999, 1000000, -62135596800000000, -12219292800000000),
    *(-12219292800000001, 253402300799999999, 1709164800000000, 1709251199999999),
    *(-2717650800000000, -2717640000000000, 1700000000123456, 1700000000123457, 86399999999),
    *(-62135596800000001, 4102444800000000, 1541300400000000, 1541296800000000),
]
_ZONELESS: Final = [
    f"TIMESTAMP_NTZ'{text}'"
    for text in (
        *(
            "2024-10-27 02:30:00",
            "2024-10-27 03:00:00",
            "2024-03-31 02:30:00",
            "2024-03-31 03:30:00",
        ),
        *(
            "2011-12-30 12:00:00",
            "2011-12-31 12:00:00",
            "1970-01-01 00:00:00",
            "0001-01-01 00:00:00",
        ),
        *("1582-10-10 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 23:59:59.999999"),
        *(
            "2024-11-03 01:30:00",
            "2024-03-10 02:30:00",
            "2024-03-10 03:30:00",
            "1883-11-18 12:01:00",
        ),
    )
]

SAMPLES: Final = tuple(
    Sample(name, sql, _typed(sql, values), bits)
    for name, sql, values, bits in (
        ("tinyint", "TINYINT", _integers(8), None),
        ("smallint", "SMALLINT", _integers(16), None),
        ("int", "INT", _integers(32), None),
        ("bigint", "BIGINT", _integers(64), None),
        ("number", "BIGINT", ["0L", "1L", "4294967295L", "2L", "3L", "1000L", "65536L", "7L"], 32),
        ("float", "FLOAT", _FLOATS, None),
        ("double", "DOUBLE", _FLOATS, None),
        ("price", "DECIMAL(9,2)",
         ["'9999999.99'", "'-9999999.99'", "0", "'0.01'", "'-0.01'", "'1.10'", "'2.50'", "'1'"],
         None),
        ("decimal28", "DECIMAL(28,3)",
         ["'9999999999999999999999999.999'", "'-9999999999999999999999999.999'", "0", "'0.001'",
          "'1.5'", "'-0.001'", "'2.345'"], None),
        ("decimal38", "DECIMAL(38,0)",
         ["'99999999999999999999999999999999999999'", "'-99999999999999999999999999999999999999'",
          "0", "1", "-1", "'60000000000000000000000000000000000000'",
          "'50000000000000000000000000000000000000'"], None),
        ("decimal18", "DECIMAL(38,18)",
         ["'99999999999999999999.999999999999999999'", "0", "'0.000000000000000001'", "1",
          "'-99999999999999999999.999999999999999999'", "'1.1'"], None),
        ("text", "STRING", _TEXTS, None),
        ("collated", "STRING COLLATE UTF8_LCASE", _TEXTS, None),
        ("bytes", "BINARY",
         ["X''", "X'00'", "X'0000'", "X'FF'", "X'C3'", "X'61'", "X'6100'", "X'80'", "X'7F'",
          "X'EFBFBD'", "X'01FF'"], None),
        ("truth", "BOOLEAN", ["true", "false"], None),
        ("day", "DATE", _DAYS, None),
        ("instant", "TIMESTAMP", [f"timestamp_micros({n}L)" for n in _MICROS], None),
        ("zoneless", "TIMESTAMP_NTZ", _ZONELESS, None),
        ("clock", "TIME", ["TIME'00:00:00'", "TIME'23:59:59.999999'", "TIME'12:00:00'",
                           "TIME'02:30:00'", "TIME'02:30:00.000001'"], None),
        ("span", "INTERVAL DAY TO SECOND", ["INTERVAL '1' DAY", "INTERVAL '24' HOUR",
                                            "INTERVAL '-1' SECOND", "INTERVAL '0' SECOND"], None),
        ("months", "INTERVAL YEAR TO MONTH", ["INTERVAL '1' YEAR", "INTERVAL '12' MONTH",
                                              "INTERVAL '-1' MONTH"], None),
        ("numbers", "ARRAY<INT>", ["array(1, 2)", "array(2, 1)", "array()", "array(1, NULL)",
                                   "array(NULL)", "array(1, 1)"], None),
        ("floats", "ARRAY<DOUBLE>", ["array(0.0D, 1D)", "array(-0.0D, 1D)", "array(double('NaN'))"],
         None),
        ("pair", "STRUCT<a:INT,b:STRING>", ["named_struct('a', 1, 'b', 'x')",
                                            "named_struct('a', 1, 'b', 'X')",
                                            "named_struct('a', NULL, 'b', '')"], None),
        ("spot", "STRUCT<a:DOUBLE>", ["named_struct('a', 0.0D)", "named_struct('a', -0.0D)"], None),
    )
)  # fmt: skip
BY_NAME: Final[Mapping[str, Sample]] = {sample.name: sample for sample in SAMPLES}
