"""Types of columns whose values have rules of their own, and what random queries do with them.

Dates, times, decimals, intervals and collated texts: their literals, expressions, aggregates and
values, those around a change of the clocks, of other scales and in other letters among them.
`benchmarks/random_queries.py` makes queries of them where it is asked to.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any, Final

DATE: Final = "DATE"
TIMESTAMP: Final = "TIMESTAMP"
LOCAL: Final = "TIMESTAMP_NTZ"
DECIMAL: Final = "DECIMAL(9,2)"
INTERVAL: Final = "INTERVAL DAY TO SECOND"
COLLATED: Final = "STRING COLLATE UTF8_LCASE"


@dataclass(frozen=True, slots=True)
class Type:
    """A type: SQL with `{0}` and `{1}` for values of it, and Python values.

    `calls` are expressions with the type that they are used as, which need not be the one that
    they have: then something is cast. `groups` are keys of a GROUP BY, `ranges` frames.
    """

    column: str
    duckdb: str
    literals: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]
    pool: tuple[Any, ...]
    extremes: tuple[Any, ...]
    aggregates: tuple[tuple[str, str], ...]
    groups: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


def _day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


WINDOWS: Final = (
    "window({0}, '30 minutes')",
    "window({0}, '1 hour', '30 minutes')",
    "window({0}, '1 day')",
    "session_window({0}, '45 minutes')",
    "date_trunc('hour', {0})",
    "CAST({0} AS DATE)",
)
TIME_RANGES: Final = (
    "RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND INTERVAL 1 DAY FOLLOWING",
)
TIMES: Final = tuple(
    map(
        _time,
        (
            *("2024-03-31 00:30:00", "2024-03-31 01:00:00", "2024-03-31 01:30:00"),
            *("2024-10-27 00:30:00", "2024-10-27 01:30:00", "2024-10-27 02:00:00"),
        ),
    )
)
"""Around the changes of the clocks of Berlin."""
TYPES: Final = {
    DATE: Type(
        "e",
        "DATE",
        ("DATE'2024-01-31'", "DATE'2024-02-29'"),
        (
            *(("date_add({0}, 1)", DATE), ("add_months({0}, 1)", DATE), ("last_day({0})", DATE)),
            *(("{0} + INTERVAL 1 MONTH", DATE), ("CAST(trunc({0}, 'MONTH') AS DATE)", DATE)),
            *(("{0} + INTERVAL 12 HOUR", TIMESTAMP), ("CAST({0} AS TIMESTAMP)", TIMESTAMP)),
            *(("CAST({0} AS TIMESTAMP)", DATE), ("CAST({0} AS TIMESTAMP_NTZ)", LOCAL)),
            *(("CAST({0} AS STRING)", "STRING"), ("datediff({0}, {1})", "INT")),
            *(("month({0})", "INT"), ("weekday({0})", "INT"), ("unix_date({0})", "INT")),
            *(("{0} - {1}", INTERVAL), ("greatest({0}, {1})", DATE), ("coalesce({0}, {1})", DATE)),
        ),
        tuple(map(_day, ("2024-01-30", "2024-01-31", "2024-02-28", "2024-02-29", "2023-12-31"))),
        tuple(map(_day, ("0001-01-01", "9999-12-31"))),
        (
            *(("max({0}) - min({0})", INTERVAL), ("datediff(max({0}), min({0}))", "INT")),
            *(
                ("min({0})", DATE),
                ("count(DISTINCT {0})", "INT"),
                ("add_months(max({0}), 1)", DATE),
            ),
        ),
    ),
    TIMESTAMP: Type(
        "t",
        "TIMESTAMP",
        ("TIMESTAMP'2024-03-31 01:30:00'", "TIMESTAMP'2024-10-27 02:30:00'"),
        (
            *(("{0} + INTERVAL 1 HOUR", TIMESTAMP), ("{0} + INTERVAL 1 DAY", TIMESTAMP)),
            *(("{0} + INTERVAL 1 MONTH", TIMESTAMP), ("date_trunc('hour', {0})", TIMESTAMP)),
            *(("CAST({0} AS TIMESTAMP_NTZ)", LOCAL), ("CAST({0} AS TIMESTAMP_NTZ)", TIMESTAMP)),
            *(("CAST({0} AS DATE)", DATE), ("CAST({0} AS STRING)", "STRING")),
            *(("unix_seconds({0})", "INT"), ("unix_micros({0})", "INT"), ("hour({0})", "INT")),
            *(("{0} - {1}", INTERVAL), ("date_format({0}, 'HH:mm')", "STRING")),
            *(("from_utc_timestamp({0}, 'Europe/Berlin')", TIMESTAMP), ("year({0})", "INT")),
            *(("to_utc_timestamp({0}, 'Europe/Berlin')", TIMESTAMP),),
        ),
        TIMES,
        tuple(map(_time, ("1900-01-01 00:00:00", "2262-01-01 00:00:00.000001"))),
        (
            *(("max({0}) - min({0})", INTERVAL), ("date_trunc('hour', max({0}))", TIMESTAMP)),
            *(("max({0})", TIMESTAMP), ("min(CAST({0} AS DATE))", DATE)),
            *(("max({0}) + INTERVAL 1 DAY", TIMESTAMP), ("count(DISTINCT {0})", "INT")),
        ),
        WINDOWS,
        TIME_RANGES,
    ),
    LOCAL: Type(
        "u",
        "TIMESTAMP",
        ("TIMESTAMP_NTZ'2024-03-31 01:30:00'",),
        (
            *(("{0} + INTERVAL 1 HOUR", LOCAL), ("{0} + INTERVAL 1 MONTH", LOCAL)),
            *(("CAST({0} AS TIMESTAMP)", TIMESTAMP), ("CAST({0} AS TIMESTAMP)", LOCAL)),
            *(("CAST({0} AS DATE)", DATE), ("CAST({0} AS STRING)", "STRING")),
            *(("{0} - {1}", INTERVAL), ("minute({0})", "INT"), ("least({0}, {1})", LOCAL)),
        ),
        TIMES,
        tuple(map(_time, ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"))),
        (("max({0}) - min({0})", INTERVAL), ("max({0})", LOCAL), ("max(hour({0}))", "INT")),
        WINDOWS,
        TIME_RANGES,
    ),
    DECIMAL: Type(
        "p",
        DECIMAL,
        ("1.50", "0.1", "-2.00", "1"),
        (
            *(("{0} + 1", DECIMAL), ("{0} + {1}", DECIMAL), ("{0} * {1}", DECIMAL)),
            *(("{0} / 3", DECIMAL), ("-{0}", DECIMAL), ("abs({0})", DECIMAL)),
            *(("round({0}, 1)", DECIMAL), ("CAST({0} AS DECIMAL(20,5))", DECIMAL)),
            *(("CAST({0} AS DECIMAL(38,18))", DECIMAL), ("CAST({0} AS INT)", "INT")),
            *(("CAST({0} AS DECIMAL(10,1))", DECIMAL), ("CAST({0} AS DOUBLE)", "DOUBLE")),
            *(("CAST({0} AS STRING)", "STRING"), ("floor({0})", DECIMAL)),
            *(("CAST({0} AS DOUBLE)", DECIMAL), ("greatest({0}, {1})", DECIMAL)),
        ),
        tuple(map(decimal.Decimal, ("0.10", "0.00", "1.50", "-2.00", "0.01"))),
        tuple(map(decimal.Decimal, ("9999999.99", "-9999999.99"))),
        (
            *(("sum({0})", DECIMAL), ("avg({0})", DECIMAL), ("sum(abs({0}))", DECIMAL)),
            *(("sum(CAST({0} AS DECIMAL(38,18)))", DECIMAL), ("sum({0} * {0})", DECIMAL)),
            *(("sum(CAST({0} AS DOUBLE))", "DOUBLE"), ("sum(DISTINCT {0})", DECIMAL)),
            *(("max({0}) - min({0})", DECIMAL), ("round(max({0}), 1)", DECIMAL)),
        ),
        (),
        ("RANGE BETWEEN 0.5 PRECEDING AND 0.5 FOLLOWING",),
    ),
    INTERVAL: Type(
        "i",
        "INTERVAL",
        ("INTERVAL '1' HOUR", "INTERVAL '0' SECOND"),
        (
            *(("{0} + {1}", INTERVAL), ("-{0}", INTERVAL), ("{0} * 2", INTERVAL)),
            *(("{0} / 2", INTERVAL), ("abs({0})", INTERVAL), ("coalesce({0}, {1})", INTERVAL)),
            *(("TIMESTAMP_NTZ'2024-01-01 00:00:00' + {0}", LOCAL), ("{0} * 0.1D", INTERVAL)),
            *(("extract(HOUR FROM {0})", "INT"),),
        ),
        tuple(datetime.timedelta(minutes=n) for n in (0, 30, 60, -60, 1440)),
        (datetime.timedelta(days=90000000), datetime.timedelta(microseconds=1)),
        (
            *(("sum({0})", INTERVAL), ("avg({0})", INTERVAL), ("sum(abs({0}))", INTERVAL)),
            *(("max({0}) - min({0})", INTERVAL),),
        ),
    ),
    COLLATED: Type(
        "c",
        "VARCHAR COLLATE NOCASE",
        ("'a' COLLATE UTF8_LCASE", "'B' COLLATE UTF8_LCASE"),
        (
            *(("upper({0})", COLLATED), ("concat({0}, {1})", COLLATED)),
            *(("substr({0}, 1, 1)", COLLATED), ("CAST({0} AS STRING)", COLLATED)),
            *(("{0} COLLATE UTF8_BINARY", "STRING"), ("length({0})", "INT")),
            *(("coalesce({0}, {1})", COLLATED), ("nullif({0}, 'a')", COLLATED)),
            *(("instr({0}, 'a')", "INT"), ("replace({0}, 'a', 'b')", COLLATED)),
            *(("hex({0})", "STRING"), ("trim({0})", COLLATED), ("lower({0})", COLLATED)),
            *(("CASE {0} WHEN 'a' THEN 1 ELSE 2 END", "INT"), ("greatest({0}, {1})", COLLATED)),
        ),
        ("a", "A", "b", "B", ""),
        ("ß", "SS", "ä", "Ä"),
        (
            *(("upper(max({0}))", COLLATED), ("count(DISTINCT {0})", "INT")),
            *(("listagg({0}, ',')", COLLATED), ("mode({0})", COLLATED)),
            *(("listagg({0}, ',') WITHIN GROUP (ORDER BY {0})", COLLATED),),
            *(("count(DISTINCT {0} COLLATE UTF8_BINARY)", "INT"),),
            *(("array_sort(collect_set({0}))", "?"), ("length(max({0}))", "INT")),
        ),
    ),
}
"""Type -> what there is of it."""
