"""The functions of Spark 4.3, and what is claimed of each: one row a function, for every front end.

A row claims only what holds whatever the values, the session's time zone, and with ANSI mode on and
off: that two runs which both give an answer give the same. What is not claimed is not believed. A
function without a row, or of kind `OPAQUE`, is unknown, and so is everything computed with it.

`benchmarks/functions_on_spark.py` takes every claim to real Spark and looks for a counterexample;
`docs/reference/functions.md` lists them. Names are Spark's, in lower case.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from annotations.whitebox.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DIGITS_MAX,
    DOUBLE,
    NAMES,
    STRING,
    TIMESTAMP,
    DataType,
    Family,
)


class Direction(enum.Enum):
    """How a value can change while more input arrives."""

    CONSTANT = "constant"
    """It does not."""
    UP = "up"
    """It only grows, a truth value from false to true; once true it stays true."""
    DOWN = "down"
    """It only shrinks, a truth value from true to false; once false it stays false."""
    COLLECTS = "collects"
    """A collection that only gains elements."""
    ANY = "any"
    """It may become anything."""


class Kind(enum.Enum):
    """The kind of a function: whether it computes values of rows or of groups, and how many."""

    SCALAR = "scalar"
    """One value of one row."""
    AGGREGATE = "aggregate"
    """One value of a group."""
    RANK = "rank"
    """A window function that gives rows of equal order the same result."""
    NUMBERING = "numbering"
    """A window function that tells rows of equal order apart."""
    GENERATOR = "generator"
    """Several rows of one."""
    CHANCE = "chance"
    """It is not a function of its arguments."""
    OPAQUE = "opaque"
    """Nothing is claimed."""


@dataclass(frozen=True, slots=True)
class Types:
    """The types of which a claim holds, by the words that a reader sees."""

    words: str
    holds: Callable[[DataType], bool]

    def __contains__(self, type_: DataType) -> bool:
        return self.holds(type_)


def _family(words: str, *families: Family) -> Types:
    return Types(words, lambda type_: type_.family in families)


def _one_of(words: str, *types: DataType) -> Types:
    return Types(words, frozenset(types).__contains__)


EVERY: Final = Types("every type", lambda _: True)
INTEGERS: Final = _family("integers", Family.INTEGER)
NARROW: Final = Types("integers up to INT", lambda t: t.family is Family.INTEGER and t.bits <= 32)
SHORT: Final = Types("integers up to SMALLINT", lambda t: t in NARROW and t.bits <= 16)
BOOLEANS: Final = _family("BOOLEAN", Family.BOOLEAN)
STRINGS: Final = _one_of("STRING", STRING)
TEXTS: Final = _one_of("STRING, BINARY", STRING, NAMES["binary"])
DATES: Final = _one_of("DATE", DATE)
INSTANTS: Final = _one_of("TIMESTAMP", TIMESTAMP)
IDENTICAL: Final = Types("types whose equal values are the same", lambda t: t.identical)
SUMMABLE: Final = Types(
    "integers, DECIMAL up to 28 digits",
    lambda t: t.family is Family.INTEGER or (t.digits_known and t.bits <= DIGITS_MAX - 10),
)
"""A sum has ten more digits than what is summed, and is NULL for good once these do not suffice."""
SUMMABLE_WHOLE: Final = Types(
    "integers up to INT, DECIMAL up to 28 digits",
    lambda t: t in SUMMABLE and t != BIGINT,
)
AVERAGED: Final = Types(
    "integers up to SMALLINT, DECIMAL up to 28 digits",
    lambda t: t in SHORT or (t in SUMMABLE and t.family is Family.DECIMAL),
)
"""An average of integers adds doubles, which are exact up to 2^53."""
COMPARED: Final = Types("types that compare as they are", lambda _: True)
NUMBERS: Final = Types(
    "integers, DECIMAL", lambda t: t.family is Family.INTEGER or t.family is Family.DECIMAL
)
NONE: Final = Types("no type", lambda _: False)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The claims about an aggregate function: its result for a group."""

    direction: Direction = Direction.ANY
    """How the result changes while the group gains rows."""
    of_the_set: Types = NONE
    """Argument types with which the result depends on the group's rows alone: not on their order,
    nor on how partial results are put together."""
    adds: bool = False
    """True where it is addition that makes the order matter."""
    assumed: Types = NONE
    """Argument types of which this holds as long as no sum leaves its type."""
    duplicates: bool = True
    """True where a record that comes twice counts twice."""
    of_never_negative: bool = False
    """True where it only grows if its argument is an exact number that is never negative."""
    bits_max: int | None = None
    """How many bits the result may need, if fewer than its type has."""


@dataclass(frozen=True, slots=True)
class Keeps:
    """Results differ wherever an argument does: grouping by them is grouping by it."""

    of: Types
    place: int | None = 0
    """Which argument; None: any one of them."""
    constants: Types = NONE
    """What the other arguments are: constants of these types, and not NULL."""
    all: bool = False
    """True where it is so of all arguments together."""
    alike: bool = False
    """True where these have to be of one type, to which others would be cast."""
    repeated: bool = False
    """True where the argument may come several times, as in `concat(k, '-', k)`."""


class Way(enum.Enum):
    """The effect of a moving argument on the result."""

    RISES = "rises"
    """The result moves with it."""
    FALLS = "falls"
    """The result moves against it."""
    FIXED = "fixed"
    """Nothing is claimed where it moves."""
    FREE = "free"
    """It does not matter."""
    TRUE = "true"
    """The result is true as soon as it is; where it falls nothing is claimed."""
    THERE = "there"
    """The result says that it is there."""
    ABSENT = "absent"
    """The result says that it is NULL."""
    GAINS = "gains"
    """The result grows with the collection that it is."""
    JOINS = "joins"
    """The result is a collection with its elements."""


class On(enum.Enum):
    """The condition on the arguments under which a claim about directions holds."""

    TRUTH = "truth values"
    ALIKE = "types that compare without a cast that changes the order"
    FITTING = "integers whose result is known to fit"
    SCALED = "integers, one of them a constant that is not zero"
    COLUMN = "a column of a type other than BOOLEAN"
    COLLECTION = "a collection"
    TRUTH_CONSTANT = "a truth value, and TRUE or FALSE"


class Present(enum.Enum):
    """Which arguments must never be NULL for a claim about directions."""

    ANY = "any may be NULL"
    FIRST = "the first is never NULL"
    ALL_IF_UP = "none is ever NULL where they grow"
    ALL_IF_DOWN = "none is ever NULL where they shrink"


@dataclass(frozen=True, slots=True)
class Moves:
    """How a result moves with its arguments; the last way is that of all further arguments."""

    ways: tuple[Way, ...]
    on: On
    present: Present = Present.ANY


class Null(enum.Enum):
    """When a function gives NULL."""

    PERHAPS = "perhaps"
    NEVER = "never"
    OF_NULL = "only if an argument is NULL"
    OF_ALL = "only if all arguments are NULL"


@dataclass(frozen=True, slots=True)
class Function:
    """The claims about a function."""

    name: str
    kind: Kind
    chance: str | None = None
    """Why it is not a function of its arguments."""
    clock: bool = False
    """True where it reads the clock if it is called without arguments."""
    aggregation: Aggregation | None = None
    keeps: Keeps | None = None
    moves: Moves | None = None
    rises_with_time: bool = False
    """True where it never decreases with an event time: a watermark closes its values."""
    merges: bool = False
    """True where its value for a row depends on the other rows, until a watermark closes it."""
    never_negative: Types = NONE
    """Argument types with which no result is below zero."""
    null: Null = Null.PERHAPS
    present: Types = NONE
    """Argument types of which `null` holds."""
    takes: Family | None = None
    """What a text as an argument is taken for, where that is a date or a time."""
    compares: bool = False
    """True where a constant text is taken for a date or a time if another argument is one."""
    in_spark: bool = True
    """False for what only the grammar or PySpark's client calls so."""


def _names(text: str) -> Iterator[str]:
    return iter(text.split())


_OPERATORS: Final = (
    "= == <=> <> != ! < <= > >= + - * % / || div and or not in like rlike case cast between & | ^ "
    "~ << >> >>> when"
)
_SCALARS: Final = """
    abs acos acosh add_months aes_decrypt aggregate array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean
    bround btrim cardinality cbrt ceil ceiling char char_length character_length chr coalesce
    collate collation concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc date
    date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees double e
    element_at elt encode endswith equal_null exists exp expm1 extract factorial filter find_in_set
    flatten float floor forall format_number format_string from_avro from_base32 from_csv from_json
    from_protobuf from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest
    grouping grouping_id hash hex hll_sketch_estimate hll_union hmac hour hypot if ifnull ilike
    initcap instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull
    jaro_winkler_similarity json_array_length json_object_keys last_day lcase least left len length
    levenshtein ln locate log log10 log1p log2 lower lpad ltrim luhn_check make_date
    make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask md5 minute mod month
    monthname months_between named_struct nanvl negative next_day nullif nullifzero nvl nvl2
    octet_length overlay parse_json parse_url pi pmod position positive pow power printf quarter
    quote radians raise_error reduce regexp regexp_count regexp_extract regexp_extract_all
    regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rint round
    rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_xml sec second sentences
    sequence sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice
    smallint sort_array soundex space split split_part sqrt startswith str_to_map string struct
    substr substring substring_index tan tanh time time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_avro
    to_base32 to_binary to_char to_csv to_date to_json to_number to_protobuf to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add
    try_aes_decrypt try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url
    try_subtract try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode
    try_validate_utf8 try_variant_get typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_nanos unix_seconds unix_timestamp upper url_decode url_encode validate_utf8 variant_get
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
    weekday weekofyear width_bucket window window_time xpath xpath_boolean xpath_double xpath_float
    xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
_SYNTAX: Final = """
    try_cast field element integer timestampadd timestampdiff create_map negate update_fields
    """
_SYNTAX_OF_NULL: Final = (
    "is null",
    "is not null",
    "is true",
    "is false",
    "is not true",
    "is not false",
)
_OPAQUE: Final = """
    approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate collations collect_union
    counter_diff kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float measure
    python_worker_logs range schema_of_avro sql_keywords st_asbinary st_geogfromwkb st_geomfromwkb
    st_setsrid st_srid theta_difference theta_intersection theta_sketch_estimate theta_union
    try_variant_array_append try_variant_insert try_variant_set tuple_difference_double
    tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double
    tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer
    tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_agg_double
    tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer variant_array_append variant_delete
    variant_insert variant_set variant_strip_nulls
    """
_CHANCE: Final = {
    "rand random randn randstr uniform uuid shuffle": "draws at random",
    "aes_encrypt": "encrypts with a random vector",
    "current_timestamp now current_date curdate localtimestamp current_time localtime": (
        "reads the clock"
    ),
    "monotonically_increasing_id spark_partition_id input_file_name input_file_block_start "
    "input_file_block_length": "depends on how Spark cuts its input",
    "current_user user session_user current_catalog current_database current_schema "
    "current_timezone current_path version": "depends on where and by whom the job is run",
    "java_method reflect try_reflect": "calls code outside",
}
_GENERATORS: Final = (
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple "
    "variant_explode variant_explode_outer"
)
_RANKS: Final = "rank dense_rank percent_rank cume_dist"
_NUMBERINGS: Final = "row_number ntile lead lag nth_value"


def _aggregates() -> Mapping[str, Aggregation]:
    up, down = Direction.UP, Direction.DOWN
    return {
        # No group has more than 2^32 rows, so that counts can be added without overflow.
        "count regr_count count_if": Aggregation(up, EVERY, bits_max=32),
        "bool_or some any": Aggregation(up, EVERY, duplicates=False),
        "bool_and every": Aggregation(down, EVERY, duplicates=False),
        # Of 0.0 and -0.0, which are equal, the one that came first; so of texts under a collation.
        "max": Aggregation(up, IDENTICAL, duplicates=False),
        "min": Aggregation(down, IDENTICAL, duplicates=False),
        # A negative number sets, or clears, the bit of the sign.
        "bit_or bit_and": Aggregation(of_the_set=EVERY, duplicates=False),
        "bit_xor": Aggregation(of_the_set=EVERY),
        # An estimate can shrink where the estimator changes its formula.
        "approx_count_distinct": Aggregation(of_the_set=EVERY, duplicates=False),
        "median percentile percentile_cont percentile_disc": Aggregation(of_the_set=NUMBERS),
        "bitmap_construct_agg bitmap_or_agg bitmap_and_agg": Aggregation(
            of_the_set=EVERY, duplicates=False
        ),
        # With ANSI mode on, a sum that leaves BIGINT on the way stops the query.
        "sum": Aggregation(
            of_the_set=SUMMABLE,
            adds=True,
            assumed=_one_of("BIGINT", BIGINT),
            of_never_negative=True,
        ),
        # It is NULL where a sum leaves BIGINT on the way.
        "try_sum": Aggregation(of_the_set=SUMMABLE_WHOLE, adds=True, of_never_negative=True),
        "avg mean try_avg": Aggregation(of_the_set=AVERAGED, adds=True),
        "stddev std stddev_samp stddev_pop variance var_samp var_pop skewness kurtosis corr "
        "covar_pop covar_samp regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx "
        "regr_sxy regr_syy vector_avg vector_sum": Aggregation(adds=True),
        # The set is determined, the order of its elements in the array is not.
        "collect_set": Aggregation(Direction.COLLECTS, duplicates=False),
        "collect_list array_agg": Aggregation(Direction.COLLECTS),
        # Of several records that qualify, the one that came first.
        "first first_value last last_value any_value max_by min_by mode": Aggregation(),
        "listagg string_agg": Aggregation(),
        # Sketches and histograms may depend on the order of insertion.
        "percentile_approx approx_percentile approx_top_k histogram_numeric count_min_sketch "
        "hll_sketch_agg hll_union_agg theta_sketch_agg theta_union_agg theta_intersection_agg "
        "kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint "
        "kll_merge_agg_double kll_merge_agg_float schema_of_variant_agg": Aggregation(),
    }


_DRAWING: Final = """
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float
    """
"""Sketches that choose by chance what they keep."""
_KEEPS: Final = {
    "negative positive": Keeps(INTEGERS),
    "+ -": Keeps(INTEGERS, place=None, constants=INTEGERS),
    "hex": Keeps(Types("integers, STRING, BINARY", lambda t: t in INTEGERS or t in TEXTS)),
    "concat ||": Keeps(STRINGS, place=None, constants=STRINGS, repeated=True),
    "base64 to_base32": Keeps(TEXTS),
    "date_add date_sub": Keeps(DATES, constants=NARROW),
    "unix_date": Keeps(DATES),
    "unix_micros": Keeps(INSTANTS),
    "date_from_unix_date": Keeps(NARROW),
    "timestamp_micros": Keeps(INTEGERS),
    "struct named_struct": Keeps(EVERY, all=True),
    "array": Keeps(EVERY, all=True, alike=True),
}
_RISES, _FALLS, _FIXED = (Way.RISES,), (Way.FALLS,), (Way.FIXED,)
_MOVES: Final = {
    "and or": Moves(_RISES, On.TRUTH),
    "not !": Moves(_FALLS, On.TRUTH),
    "= ==": Moves(_RISES, On.TRUTH_CONSTANT),
    "is true": Moves((Way.TRUE,), On.TRUTH),
    "> >=": Moves(_RISES + _FALLS, On.ALIKE),
    "< <=": Moves(_FALLS + _RISES, On.ALIKE),
    "between": Moves(_FIXED + _FALLS + _RISES, On.ALIKE),
    # NULL is skipped: another argument may raise the maximum, but nothing may lower it.
    "greatest": Moves(_RISES, On.ALIKE, Present.ALL_IF_DOWN),
    "least": Moves(_RISES, On.ALIKE, Present.ALL_IF_UP),
    # Of what cannot be null, itself; else the value falls back from the default.
    "coalesce nvl ifnull": Moves((Way.RISES, Way.FREE), On.ALIKE, Present.FIRST),
    "+": Moves(_RISES, On.FITTING),
    "-": Moves(_RISES + _FALLS, On.FITTING),
    "negative": Moves(_FALLS, On.FITTING),
    "*": Moves(_RISES, On.SCALED),
    "/": Moves(_RISES + _FIXED, On.SCALED),
    "isnotnull": Moves((Way.THERE,), On.COLUMN),
    "is not null": Moves((Way.THERE,), On.COLUMN),
    "isnull": Moves((Way.ABSENT,), On.COLUMN),
    "is null": Moves((Way.ABSENT,), On.COLUMN),
    "size cardinality array_size": Moves((Way.GAINS,), On.COLLECTION),
    "array_contains": Moves((Way.GAINS, Way.FIXED), On.COLLECTION),
    "array_sort": Moves((Way.JOINS, Way.FIXED), On.COLLECTION),
    "array_union": Moves((Way.JOINS,), On.COLLECTION),
}
_NOT_NEGATIVE: Final = {
    "length len char_length character_length octet_length bit_length bit_count": EVERY,
    "hour minute second day dayofmonth month quarter dayofweek dayofyear weekofyear weekday": EVERY,
}
_NEVER_NULL: Final = (
    "count count_if regr_count approx_count_distinct collect_list collect_set array_agg row_number "
    "rank dense_rank current_timestamp now uuid rand randn <=> equal_null struct named_struct "
    "array isnull isnotnull"
)
_OF_NULL: Final = {
    "= == <> != < <= > >= between": COMPARED,
    "and or not !": BOOLEANS,
    "+ - *": INTEGERS,
    "negative positive abs": _family("integers, FLOAT, DOUBLE", Family.INTEGER, Family.FLOAT),
    "lower upper ||": STRINGS,
    "like rlike ilike": STRINGS,
}
_OF_ALL: Final = "coalesce nvl ifnull greatest least"
_RISES_WITH_TIME: Final = "window window_time date_trunc time_bucket"
_TAKES_TIME: Final = """
    add_months convert_timezone date date_add date_diff date_format date_part date_sub date_trunc
    dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_utc_timestamp
    hour last_day minute month monthname months_between next_day quarter second sequence timestamp
    time time_bucket time_diff time_trunc timestampadd timestampdiff to_char to_date to_time
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    trunc try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_nanos
    unix_seconds unix_timestamp weekday weekofyear window window_time year make_timestamp
    make_timestamp_ltz make_timestamp_ntz try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_subtract try_add
    """
_TAKES_TIMESTAMP: Final = """
    convert_timezone date_format date_trunc dateadd datediff from_utc_timestamp hour minute
    months_between second time_bucket timestamp timestampadd timestampdiff to_timestamp
    to_timestamp_ltz to_utc_timestamp try_to_timestamp unix_micros unix_millis unix_seconds window
    """
_COMPARES: Final = """
    = == <=> <> != < <= > >= + - between in case when if coalesce nvl nvl2 ifnull nullif greatest
    least equal_null array array_append array_contains array_except array_insert array_intersect
    array_position array_prepend array_remove array_union arrays_overlap array_repeat map map_concat
    map_contains_key element_at try_element_at concat || zip_with lead lag sequence
    """


def _rows() -> dict[str, Function]:
    """The table."""
    rows: dict[str, Function] = {}

    def kind(names: str, kind: Kind, *, in_spark: bool = True) -> None:
        for name in _names(names):
            assert name not in rows, name
            rows[name] = Function(name, kind, in_spark=in_spark)

    def claim(names: str, **claims: object) -> None:
        for name in [names] if names in rows else _names(names):
            rows[name] = replace(rows[name], **claims)  # type: ignore[arg-type]

    kind(_OPERATORS, Kind.SCALAR)
    kind(_SCALARS, Kind.SCALAR)
    kind(_SYNTAX, Kind.SCALAR, in_spark=False)
    kind("session_window", Kind.SCALAR)
    for name in _SYNTAX_OF_NULL:
        rows[name] = Function(name, Kind.SCALAR, null=Null.NEVER, present=EVERY, in_spark=False)
    kind(_GENERATORS, Kind.GENERATOR)
    kind(_RANKS, Kind.RANK)
    kind(_NUMBERINGS, Kind.NUMBERING)
    kind(_OPAQUE, Kind.OPAQUE)
    for names, reason in _CHANCE.items():
        kind(names, Kind.CHANCE)
        claim(names, chance=reason)
    # How PySpark's front end writes a function that its author marks so.
    kind("udf.asNondeterministic udf.chance", Kind.CHANCE, in_spark=False)
    claim(
        "udf.chance", chance="asks the clock, the machine, a file or a service, or draws at random"
    )
    claim("udf.asNondeterministic", chance="is declared nondeterministic")
    for names, aggregation in _aggregates().items():
        kind(names, Kind.AGGREGATE)
        claim(names, aggregation=aggregation)
    kind("product", Kind.AGGREGATE, in_spark=False)
    claim("product", aggregation=Aggregation(adds=True))
    claim(_DRAWING, chance="draws at random")
    for names, keeps in _KEEPS.items():
        claim(names, keeps=keeps)
    for names, moves in _MOVES.items():
        claim(names, moves=moves)
    for names, types in _NOT_NEGATIVE.items():
        claim(names, never_negative=types)
    claim(_NEVER_NULL, null=Null.NEVER, present=EVERY)
    for names, types in _OF_NULL.items():
        claim(names, null=Null.OF_NULL, present=types)
    claim(_OF_ALL, null=Null.OF_ALL, present=EVERY)
    claim(_RISES_WITH_TIME, rises_with_time=True)
    claim("session_window", merges=True, takes=Family.TIMESTAMP)
    claim(_TAKES_TIME, takes=Family.DATE)
    claim(_TAKES_TIMESTAMP, takes=Family.TIMESTAMP)
    claim(_COMPARES, compares=True)
    claim("unix_timestamp", clock=True)
    return rows


FUNCTIONS: Final[dict[str, Function]] = _rows()
"""Every function of Spark 4.3, and what the grammar and PySpark's client add, by name."""


def _of_kind(kind: Kind) -> frozenset[str]:
    return frozenset(name for name, row in FUNCTIONS.items() if row.kind is kind)


AGGREGATES: Final = _of_kind(Kind.AGGREGATE)
GENERATORS: Final = _of_kind(Kind.GENERATOR)
RANKS: Final = _of_kind(Kind.RANK)
NUMBERINGS: Final = _of_kind(Kind.NUMBERING)

SPECIAL_TIMES: Final = frozenset(_names("now today yesterday tomorrow"))
"""Texts that a cast to a date or a time takes for one by the clock; a time zone may follow."""
TIME_OF_DAY: Final = re.compile(r"\s*t?\d{1,2}:", re.IGNORECASE)
"""The beginning of a text that a cast to a timestamp takes for a time of the day that it is."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The claims about a cast from one type to another."""

    keeps: bool = False
    """Different values stay different."""
    rises: bool = False
    """Of two values the greater one stays no less."""
    same_text: bool = False
    """The value's text stays what it is."""


def _casts() -> Mapping[tuple[DataType, DataType], Cast]:
    casts: dict[tuple[DataType, DataType], Cast] = {}
    integers = [NAMES[name] for name in ("tinyint", "smallint", "int", "bigint")]
    for source in integers:
        for to in integers:
            if source.bits <= to.bits:
                casts[source, to] = Cast(keeps=True, rises=True, same_text=True)
        for to in (NAMES["float"], DOUBLE):
            casts[source, to] = Cast(rises=True)
        casts[source, STRING] = Cast(keeps=True, same_text=True)
    casts[BOOLEAN, STRING] = casts[DATE, STRING] = Cast(keeps=True)
    return MappingProxyType(casts)


CASTS: Final = _casts()
"""What is claimed of casts; of a cast to the type that a value has already, all of it."""


def cast_of(source: DataType, target: DataType) -> Cast:
    """The claims about a cast."""
    if source == target and (source.identical or source.family is Family.FLOAT):
        known = source.family is not Family.DECIMAL or source.digits_known
        return Cast(known, known, known)
    return CASTS.get((source, target), Cast())


def known(function: str) -> bool:
    """True for a function of which anything is claimed."""
    row = FUNCTIONS.get(function)
    return row is not None and row.kind is not Kind.OPAQUE
