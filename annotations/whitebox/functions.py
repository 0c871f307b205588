"""What functions do, as data: one place for every front end.

Names are Spark's, in lower case. A function that stands in none of these tables is unknown, and so
is everything computed with it. Direction and order were checked against Spark 4.3; where a row is
more careful than Spark needs, the comment says so.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from annotations.whitebox.datatypes import (
    BIGINT,
    DATE,
    INT,
    NAMES,
    STRING,
    TIMESTAMP,
    DataType,
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


class Depends(enum.Enum):
    """What of a group an aggregate's result depends on."""

    SET = "set"
    """On its records alone."""
    ADDITION = "addition"
    """On their order too where the numbers are floating-point."""
    SEQUENCE = "sequence"
    """On their order."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What an aggregate function does."""

    direction: Direction
    depends: Depends
    duplicates: bool = True
    """True where a record that comes twice counts twice."""
    floating: bool = False
    """True where it computes with floating-point numbers whatever its argument is."""
    bits_max: int = 128
    """It computes with floating-point numbers where its argument is an integer of more bits."""
    nullable: bool = True


def _names(text: str) -> Iterator[str]:
    return iter(text.split())


def _aggregates() -> Mapping[str, Aggregation]:
    up, down, free = Direction.UP, Direction.DOWN, Direction.ANY
    rows = {
        "count count_if regr_count": Aggregation(up, Depends.SET, nullable=False),
        "max bool_or some any": Aggregation(up, Depends.SET, duplicates=False),
        "min bool_and every": Aggregation(down, Depends.SET, duplicates=False),
        # A negative number sets, or clears, the bit of the sign.
        "bit_or bit_and": Aggregation(free, Depends.SET, duplicates=False),
        # An estimate can shrink where the estimator changes its formula.
        "approx_count_distinct": Aggregation(free, Depends.SET, duplicates=False, nullable=False),
        "bit_xor median percentile percentile_cont percentile_disc": Aggregation(free, Depends.SET),
        "bitmap_construct_agg bitmap_or_agg bitmap_and_agg": Aggregation(
            free, Depends.SET, duplicates=False
        ),
        "sum try_sum": Aggregation(free, Depends.ADDITION),
        # The sum of integers is a floating-point number, exact up to 2^53.
        "avg mean try_avg": Aggregation(free, Depends.ADDITION, bits_max=16),
        "stddev std stddev_samp stddev_pop variance var_samp var_pop skewness kurtosis corr "
        "covar_pop covar_samp regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx "
        "regr_sxy regr_syy product vector_avg vector_sum": Aggregation(
            free, Depends.ADDITION, floating=True
        ),
        # The set is determined, the order of its elements in the array is not.
        "collect_set": Aggregation(
            Direction.COLLECTS, Depends.SEQUENCE, duplicates=False, nullable=False
        ),
        "collect_list array_agg": Aggregation(Direction.COLLECTS, Depends.SEQUENCE, nullable=False),
        # Of several records that qualify, the one that came first.
        "first first_value last last_value any_value max_by min_by mode": Aggregation(
            free, Depends.SEQUENCE
        ),
        "listagg string_agg": Aggregation(free, Depends.SEQUENCE),
        # Sketches and histograms may depend on the order of insertion.
        "percentile_approx approx_percentile approx_top_k histogram_numeric count_min_sketch "
        "hll_sketch_agg hll_union_agg theta_sketch_agg theta_union_agg theta_intersection_agg "
        "kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_merge_agg_bigint "
        "kll_merge_agg_double kll_merge_agg_float schema_of_variant_agg": Aggregation(
            free, Depends.SEQUENCE
        ),
    }
    return MappingProxyType({name: row for names, row in rows.items() for name in _names(names)})


AGGREGATES: Final = _aggregates()
"""Aggregate functions; one that is not here is unknown."""

RANKS: Final = frozenset(_names("rank dense_rank percent_rank cume_dist"))
"""Window functions that give rows of equal order the same result."""
NUMBERINGS: Final = frozenset(_names("row_number ntile lead lag nth_value"))
"""Window functions that tell rows of equal order apart."""

_NONDETERMINISTIC: Final = {
    "rand random randn randstr uniform uuid shuffle": "draws at random",
    "aes_encrypt": "encrypts with a random vector",
    "current_timestamp now current_date curdate localtimestamp current_time": "reads the clock",
    "monotonically_increasing_id spark_partition_id input_file_name input_file_block_start "
    "input_file_block_length": "depends on how Spark cuts its input",
    "current_user user session_user current_catalog current_database current_schema "
    "current_timezone current_path version": "depends on where and by whom the job is run",
    "java_method reflect try_reflect": "calls code outside",
    # How PySpark's front end writes a function that its author marks so.
    "udf.asNondeterministic": "calls a Python function that is declared nondeterministic",
}
NONDETERMINISTIC: Final[Mapping[str, str]] = MappingProxyType(
    {name: reason for names, reason in _NONDETERMINISTIC.items() for name in _names(names)}
)
"""Functions that are not functions of their arguments, with the reason. Spark's own `deterministic`
is true for the clock and for every order-sensitive aggregate, and does not help."""
CLOCKS_WITHOUT_ARGUMENTS: Final = frozenset(_names("unix_timestamp"))
"""Read the clock where they are called without arguments."""

GENERATORS: Final = frozenset(
    _names("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple")
)
"""Functions that make several rows of one."""

_INTEGER: Final = frozenset({BIGINT, INT, *(NAMES[name] for name in ("smallint", "tinyint"))})
_NARROW: Final = _INTEGER - {BIGINT}
_TEXT: Final = frozenset({STRING, NAMES["binary"]})
_KEEP_DISTINCT: Final = {
    "negative positive": _INTEGER,
    "hex": _INTEGER | _TEXT,
    "reverse url_encode": frozenset({STRING}),
    "base64 to_base32": _TEXT,
    "date_add date_sub": frozenset({DATE}),
    "unix_date": frozenset({DATE}),
    "unix_micros": frozenset({TIMESTAMP}),
    "date_from_unix_date": _NARROW,
    "timestamp_micros": _INTEGER,
}
KEEP_DISTINCT: Final[Mapping[str, frozenset[DataType]]] = MappingProxyType(
    {name: types for names, types in _KEEP_DISTINCT.items() for name in _names(names)}
)
"""Functions whose results differ wherever their first argument does, if that is of one of these
types and any other is constant: grouping by one is grouping by its argument. With other types they
cast first, and a cast may make different values equal."""
MAKE_OF_ALL: Final = frozenset(_names("struct named_struct"))
"""Functions whose results differ wherever any of their arguments does."""
TO_TIME: Final = frozenset(
    _names(
        "date timestamp to_date to_timestamp to_timestamp_ltz to_timestamp_ntz try_to_date "
        "try_to_timestamp"
    )
)
"""Functions that cast a text to a date or a time."""
SPECIAL_TIMES: Final = frozenset(_names("now today yesterday tomorrow"))
"""Texts that a cast to a date or a time takes for one by the clock; a time zone may follow."""

OPERATORS: Final = frozenset(
    _names(
        "= == <=> <> != < <= > >= + - * / % || div and or not in like rlike case cast try_cast "
        "field element between negative & | ^ ~"
    )
) | {"is null", "is not null", "is true", "is false", "is not true", "is not false"}
"""Operators of Spark SQL that compute with single rows."""

SCALARS: Final = frozenset(
    _names("""
    abs acos acosh add_months aes_decrypt aggregate array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count bitwise_not
    boolean bround btrim bucket cardinality cbrt ceil ceiling char char_length character_length
    charindex chr coalesce collate collation concat concat_ws contains conv convert_timezone cos
    cosh cot crc32 create_map csc date date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear days
    decimal decode degrees double e element_at elt encode endswith equal_null exists exp expm1
    extract factorial filter find_in_set flatten float floor forall format_number format_string
    from_base32 from_csv from_json from_unixtime from_utc_timestamp from_xml get get_json_object
    getbit greatest grouping grouping_id hash hex hll_sketch_estimate hll_union hmac hour hours
    hypot if iff ifnull ilike initcap instr int integer is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull jaro_winkler_similarity json_array_length
    json_object_keys last_day lcase least left length len levenshtein like ln locate log log10 log1p
    log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask md5 minute mod month monthname months months_between named_struct
    nanvl negate negative next_day nullif nullifzero nvl nvl2 octet_length overlay parse_json
    parse_url pi pmod position positive pow power printf quarter quote radians raise_error reduce
    regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr repeat replace reverse right rint rlike round rpad rtrim schema_of_csv
    schema_of_json schema_of_variant schema_of_xml sec second sentences sequence session_window sha
    sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint
    sort_array soundex space split split_part sqrt startswith str_to_map string struct substr
    substring substring_index tan tanh time_bucket time_diff time_trunc timestamp timestamp_add
    timestamp_diff timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds timestampadd
    timestampdiff tinyint to_base32 to_binary to_char to_csv to_date to_json to_number to_time
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add
    try_aes_decrypt try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url
    try_subtract try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode
    try_validate_utf8 try_variant_get typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_nanos unix_seconds unix_timestamp upper url_decode url_encode validate_utf8 variant_get
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
    weekday weekofyear width_bucket window window_time xpath xpath_boolean xpath_double xpath_float
    xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year years zeroifnull
    zip_with
    """)
)
"""Built-in functions whose result is determined by their arguments."""

TIME_WINDOWS: Final = frozenset(_names("window session_window window_time date_trunc time_bucket"))
"""Functions of an event time that never decrease with it: a watermark closes their values."""

NEVER_NEGATIVE: Final = frozenset(
    _names(
        "abs length char_length character_length octet_length bit_length "
        "hour minute second day month bit_count"
    )
)
"""Functions whose result is never below zero (`size` is not one of them: of NULL it can be -1)."""


def known(function: str) -> bool:
    """True for a function that one of the tables knows."""
    return any(
        function in table
        for table in (
            OPERATORS,
            SCALARS,
            AGGREGATES,
            GENERATORS,
            NONDETERMINISTIC,
            RANKS,
            NUMBERINGS,
        )
    )
