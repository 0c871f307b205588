"""Types of what functions give, by the types of their arguments.

Only what decides something is known: whether a sum is exact, which fields a struct has, what a cast
starts from. Everything else is the unknown type, of which nothing good is assumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from annotations.whitebox.connect.datatypes import ddl_type
from annotations.whitebox.datatypes import (
    BIGINT,
    BOOLEAN,
    COLLATED,
    DATE,
    DECIMAL,
    DIGITS_MAX,
    DOUBLE,
    INT,
    INTERVAL,
    MAYBE_COLLATED,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    DataType,
    Family,
    decimal,
)
from annotations.whitebox.functions import COMPARED, FUNCTIONS, Null
from annotations.whitebox.ir import Expression, Lambda, Literal, Ref
from annotations.whitebox.monotone import as_decimal, may_be_null, type_of

Rule = Callable[[Sequence[DataType]], DataType]

_SPAN: Final = DataType(
    Family.STRUCT, fields=(("start", TIMESTAMP, True), ("end", TIMESTAMP, True))
)


def _first(types: Sequence[DataType]) -> DataType:
    return types[0] if types else UNKNOWN


def _array(types: Sequence[DataType]) -> DataType:
    return DataType(Family.ARRAY, element=common(types))


def _element(types: Sequence[DataType]) -> DataType:
    return (types[0].element if types else None) or UNKNOWN


def _arithmetic(types: Sequence[DataType]) -> DataType:
    families = {type_.family for type_ in types}
    if Family.INTERVAL in families:
        others = {type_ for type_ in types if type_.family is not Family.INTERVAL}
        if len(others) != 1:
            return INTERVAL
        (other,) = others
        if other.family in (Family.TIMESTAMP, Family.UNKNOWN):
            return other
        return TIMESTAMP if other.family is Family.DATE else INTERVAL
    if families == {Family.DATE, Family.INTEGER}:
        return DATE
    return common(types) if all(type_.numeric for type_ in types) else UNKNOWN


def _quotient(types: Sequence[DataType]) -> DataType:
    if not all(type_.numeric for type_ in types):
        return UNKNOWN
    decimals = any(type_.family is Family.DECIMAL for type_ in types)
    return DECIMAL if decimals and all(type_.exact for type_ in types) else DOUBLE


def _sum(types: Sequence[DataType]) -> DataType:
    type_ = _first(types)
    if type_.family is Family.DECIMAL:
        digits = min(type_.bits + 10, DIGITS_MAX)
        return decimal(digits, type_.scale) if type_.digits_known else DECIMAL
    if type_.family is Family.FLOAT:
        return DOUBLE
    return BIGINT if type_.family is Family.INTEGER else type_ if type_.numeric else UNKNOWN


def _average(types: Sequence[DataType]) -> DataType:
    type_ = _first(types)
    if type_.family is Family.DECIMAL:
        return decimal(type_.bits + 4, type_.scale + 4)
    return DOUBLE if type_.numeric else UNKNOWN


def _whole(types: Sequence[DataType]) -> DataType:
    """Of rounding: what a decimal keeps of its digits is not worked out."""
    if len(types) > 1 or not types[0].numeric:
        return UNKNOWN
    return DECIMAL if types[0].family is Family.DECIMAL else BIGINT


def _double(types: Sequence[DataType]) -> DataType:
    """Of numbers; of times and intervals it is something else."""
    return DOUBLE if types and types[0].numeric else UNKNOWN


def _one_share(types: Sequence[DataType]) -> bool:
    """True where one percentile is asked for, not an array of them."""
    return len(types) > 1 and types[1].numeric


def _joined(types: Sequence[DataType]) -> DataType:
    """Of what puts texts, bytes or arrays together: anything else is made a text first."""
    if any(type_.family in (Family.UNKNOWN, Family.NULL) for type_ in types):
        return UNKNOWN
    if all(type_.family is Family.ARRAY for type_ in types):
        return common(types)
    if all(type_.family is Family.BINARY for type_ in types):
        return _first(types)
    return STRING


def _rounded(types: Sequence[DataType]) -> DataType:
    type_ = _first(types)
    return DECIMAL if type_.family is Family.DECIMAL else type_ if type_.numeric else UNKNOWN


def _number(types: Sequence[DataType]) -> DataType:
    """Of functions of a number that give one of its type; of a text they make a number first."""
    return _first(types) if _first(types).numeric else UNKNOWN


def common(types: Sequence[DataType]) -> DataType:
    """The type that can hold values of all of these; the unknown type where none is known."""
    known = [type_ for type_ in types if type_.family is not Family.NULL]
    if not known:
        return UNKNOWN
    if all(type_ == known[0] for type_ in known):
        return known[0]
    if any(type_.collated for type_ in known):  # in ANSI mode a text becomes what the other is
        texts = all(type_.family is Family.STRING for type_ in known)
        return COLLATED if texts else MAYBE_COLLATED
    if not all(type_.numeric for type_ in known):
        return UNKNOWN
    families = {type_.family for type_ in known}
    if Family.FLOAT in families:
        return known[0] if len(set(known)) == 1 else DOUBLE
    if Family.DECIMAL in families:
        scale = max(type_.scale for type_ in known)
        integral = max(type_.bits - type_.scale for type_ in map(as_decimal, known))
        return decimal(integral + scale, scale)
    return max(known, key=lambda type_: type_.bits)


def _constant(type_: DataType) -> Rule:
    return lambda _: type_


def _array_of(element: DataType) -> Rule:
    return _constant(DataType(Family.ARRAY, element=element))


def _map(types: Sequence[DataType]) -> DataType:
    return DataType(Family.MAP, key=common(types[::2]), element=common(types[1::2]))


def _keys(types: Sequence[DataType]) -> DataType:
    return DataType(Family.ARRAY, element=types[0].key or UNKNOWN)


def _values(types: Sequence[DataType]) -> DataType:
    return DataType(Family.ARRAY, element=_element(types))


def _rules() -> Mapping[str, Rule]:
    rows: dict[str, Rule] = {
        "= == <=> <> != ! < <= > >=": _constant(BOOLEAN),
        "and or not in like rlike ilike contains startswith endswith isnan "
        "between array_contains exists forall bool_and bool_or every some any isnull isnotnull "
        "arrays_overlap regexp_like": _constant(BOOLEAN),
        "count count_if approx_count_distinct div xxhash64 unix_timestamp "
        "monotonically_increasing_id unix_millis unix_micros unix_seconds regr_count bigint crc32 "
        "unix_date": _constant(BIGINT),
        "row_number rank dense_rank ntile length char_length year month day hour minute second "
        "dayofweek dayofmonth dayofyear weekofyear weekday quarter datediff date_diff size "
        "cardinality hash "
        "extract date_part instr locate position ascii levenshtein int bit_count": _constant(INT),
        "stddev std stddev_samp stddev_pop variance var_samp var_pop skewness kurtosis corr "
        "covar_pop covar_samp percent_rank cume_dist rand randn sqrt exp ln log log10 log2 pow "
        "power double": _constant(DOUBLE),
        "median sign": _double,
        "percentile": lambda types: _double(types) if _one_share(types) else UNKNOWN,
        "percentile_approx approx_percentile": (
            lambda types: types[0] if _one_share(types) else UNKNOWN
        ),
        "upper lower ucase lcase trim ltrim rtrim concat_ws substring substr left right "
        "date_format regexp_replace regexp_extract lpad rpad initcap uuid sha1 sha2 md5 "
        "get_json_object translate format_string format_number to_json replace hex base64 "
        "split_part string from_unixtime repeat array_join": _constant(STRING),
        "to_date date current_date date_add date_sub last_day next_day trunc add_months "
        "make_date": _constant(DATE),
        "to_timestamp timestamp current_timestamp now date_trunc window_time timestamp_seconds "
        "timestamp_millis timestamp_micros from_utc_timestamp to_utc_timestamp": _constant(
            TIMESTAMP
        ),
        "window session_window": _constant(_SPAN),
        "split regexp_extract_all": _array_of(STRING),
        "min max first first_value last last_value any_value mode max_by min_by lag lead nth_value "
        "array_distinct array_sort sort_array filter slice "
        "shuffle bit_and bit_or bit_xor array_union "
        "array_intersect array_except array_remove array_repeat ~ shiftleft "
        "shiftright": _first,
        "round bround": _rounded,
        "negative positive abs": _number,
        "+ - * % mod pmod & | ^ try_add try_subtract try_multiply": _arithmetic,
        "/": _quotient,
        "sum try_sum": _sum,
        "avg mean try_avg": _average,
        "floor ceil ceiling": _whole,
        "coalesce greatest least nvl ifnull": common,
        "concat || reverse listagg string_agg": _joined,
        "if nvl2": lambda types: common(types[1:]),
        "nullif": _first,
        "collect_list collect_set array_agg": lambda types: _array(types[:1]),
        "array": _array,
        "map": _map,
        "map_keys": _keys,
        "map_values": _values,
        "element element_at get try_element_at explode explode_outer array_max array_min "
        "flatten": _element,
        "aggregate reduce": lambda types: types[1] if len(types) > 1 else UNKNOWN,
        "sequence": lambda types: _array(types[:1]),
        "case": lambda types: common((*types[1:-1:2], types[-1])),
    }
    return {name: rule for names, rule in rows.items() for name in names.split()}


RULES: Final = _rules()
_OF_NUMBERS: Final = frozenset(
    {_arithmetic, _quotient, _sum, _average, _number, _whole, _rounded, _double}
)
_PLAIN_TEXTS: Final = frozenset(
    {"to_json", "to_xml", "format_string", "printf", "md5", "sha2", "get_json_object", "soundex"}
    | {"quote", "url_encode", "base64", "string", "collate"}
)
"""Functions whose texts are compared by their bytes, whatever the texts that they are made of."""
_TRUTHS: Final = frozenset({"is null", "is not null", "is true", "is false"})


def result_type(function: str, arguments: Sequence[Expression]) -> DataType:
    """The type of what the function gives for these arguments.

    >>> result_type("sum", [Literal(1, INT)]).bits
    64
    """
    type_ = _result_type(function, arguments)
    types = [type_of(argument) for argument in arguments]
    plain = function in _PLAIN_TEXTS or RULES.get(function) in _OF_NUMBERS
    if plain or not any(type_.collated for type_ in types):
        return type_
    if type_.family is Family.STRING or type_ == UNKNOWN:
        return COLLATED
    built = all(kind.family not in (Family.ARRAY, Family.MAP, Family.STRUCT) for kind in types)
    built |= any(isinstance(argument, Lambda) for argument in arguments)
    texts = type_.family is Family.ARRAY and type_.element in (STRING, UNKNOWN, None)
    return _array([COLLATED]) if built and texts else type_


def _result_type(function: str, arguments: Sequence[Expression]) -> DataType:
    if function in _TRUTHS:
        return BOOLEAN
    if function == "collate" and len(arguments) > 1:
        name = arguments[1]
        binary = isinstance(name, Literal) and str(name.value).upper() == "UTF8_BINARY"
        return STRING if binary else COLLATED
    if function in ("from_json", "from_csv", "from_xml") and len(arguments) > 1:
        return _declared(arguments[1])
    if function == "struct":
        fields = [
            (_name(argument, place), type_of(argument), True)
            for place, argument in enumerate(arguments)
        ]
        return DataType(Family.STRUCT, fields=tuple(fields))
    if function == "named_struct":
        pairs = zip(arguments[::2], arguments[1::2], strict=False)
        named = [(str(n.value), type_of(v), True) for n, v in pairs if isinstance(n, Literal)]
        return DataType(Family.STRUCT, fields=tuple(named))
    if function == "transform" and len(arguments) == 2 and isinstance(arguments[1], Lambda):
        return DataType(Family.ARRAY, element=type_of(arguments[1].body))
    rule = RULES.get(function)
    types = [type_of(argument) for argument in arguments]
    if rule is _arithmetic and any(type_.family is Family.DECIMAL for type_ in types):
        return _of_decimals(function, list(map(_written, arguments)))
    return UNKNOWN if rule is None else rule(types)


def _written(argument: Expression) -> DataType:
    """The type of an argument; of a whole number that is written down, as many digits as it has."""
    if isinstance(argument, Literal) and type(argument.value) is int:
        return decimal(len(str(abs(argument.value))), 0)
    return type_of(argument)


def _of_decimals(function: str, types: Sequence[DataType]) -> DataType:
    """The type of arithmetic with decimals; with more digits than there can be, some are lost."""
    if not all(type_.numeric for type_ in types):
        return UNKNOWN
    if any(type_.family is Family.FLOAT for type_ in types):
        return DOUBLE
    if len(types) != 2 or function not in ("+", "-", "*"):
        return DECIMAL
    (a, s), (b, t) = ((type_.bits, type_.scale) for type_ in map(as_decimal, types))
    if function == "*":
        return decimal(a + b + 1, s + t)
    return decimal(max(a - s, b - t) + max(s, t) + 1, max(s, t))


def gives_null(function: str, arguments: Sequence[Expression]) -> bool:
    """True unless it is claimed that a function gives something for these arguments."""
    row = FUNCTIONS.get(function)
    if row is None or row.null is Null.PERHAPS:
        return True
    if row.null is Null.NEVER:
        return False
    types = [type_of(argument) for argument in arguments]
    if not all(type_ in row.present for type_ in types):
        return True
    if row.null is Null.OF_ALL:
        alike = all(type_ == types[0] for type_ in types)
        return not alike or all(map(may_be_null, arguments))
    compared = row.present is not COMPARED or all(
        types[0] == type_ or {types[0].family, type_.family} <= {Family.INTEGER, Family.FLOAT}
        for type_ in types
    )
    return not compared or any(map(may_be_null, arguments))


def _declared(schema: Expression) -> DataType:
    """The type that a schema written as a constant stands for."""
    if not isinstance(schema, Literal) or not isinstance(schema.value, str):
        return UNKNOWN
    return declared_type(schema.value)


def declared_type(text: str) -> DataType:
    """The type that a schema stands for, which is written as DDL or as Spark's JSON."""
    text = text.strip()
    if not text.startswith("{"):
        return ddl_type(text)
    from pyspark.sql.connect.types import pyspark_types_to_proto_types
    from pyspark.sql.types import StructType

    from annotations.whitebox.connect.datatypes import from_proto

    return from_proto(pyspark_types_to_proto_types(StructType.fromJson(json.loads(text))))


def _name(value: Expression, place: int) -> str:
    return value.column.name if isinstance(value, Ref) else f"col{place + 1}"
