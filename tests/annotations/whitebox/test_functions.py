"""What is believed of functions: directions, keys, sets, clocks, equal values of other types."""

from __future__ import annotations

import pytest

from annotations.vocabulary import Within
from annotations.whitebox.derivation import Derivation
from annotations.whitebox.derive import annotate
from annotations.whitebox.functions import FUNCTIONS, Direction, Kind
from annotations.whitebox.inputs import Input
from annotations.whitebox.splitting import splits
from annotations.whitebox.sql import read
from tests.annotations.whitebox import functions_page

R = {
    "k": "INT",
    "s": "STRING",
    "n": "BIGINT",
    "d": "DOUBLE",
    "p": "DECIMAL(10,2)",
    "wide": "DECIMAL(38,0)",
    "lower": "STRING COLLATE UTF8_LCASE",
    "b": "BOOLEAN",
    "day": "DATE",
    "t": "TIMESTAMP",
    "z": "TIMESTAMP_NTZ",
    "nn": "INT NOT NULL",
}
Q = {
    "s2": "STRING",
    "k2": "INT",
    "n2": "BIGINT",
    "d2": "DOUBLE",
    "p2": "DECIMAL(12,4)",
    "sn": "STRING NOT NULL",
    "day2": "DATE",
}
INPUTS = {"r": Input(R), "q": Input(Q)}
BOTH = "SELECT u, count(*) AS c FROM (SELECT {} AS u FROM r UNION ALL SELECT {} FROM q) GROUP BY u"


def derived(sql: str, **options: object) -> Derivation:
    return annotate(read(sql, inputs=INPUTS).plan, **options)  # type: ignore[arg-type]


def label(sql: str, **options: object) -> str:
    path = derived(sql, **options).paths["r"]
    return str(path.annotation) + (" sequence" if path.within is Within.SEQUENCE else "")


@pytest.mark.parametrize(
    ("condition", "lasts"),
    [
        ("count(*) > 3", True),
        ("count(*) + 1 > 3", True),
        ("count(*) - min(nn) > 3", True),
        ("max(n) - min(n) > 3", False),
        ("count(*) * 2 > 3", True),
        ("count(*) * -2 > -3", False),
        ("count(*) / 2 > 3", True),
        ("10 / count(*) > 3", False),
        ("count(*) = 1", False),
        ("(count(*) > 3) = TRUE", True),
        ("(count(*) > 3) = 1", False),
        ("max(k) + 1 > 3", False),
        ("max(CAST(k AS BIGINT)) > 3", True),
        ("count(*) + 9223372036854775807 > 0", False),
        ("max(s) > 'x'", True),
        ("max(s) > 5", False),
        ("max(lower) > 'x'", False),
        ("max(day) > '2024-01-01'", True),
        ("max(s) > DATE'2024-01-01'", False),
        ("max(d) > 1", True),
        ("max(d) * 0 >= 0", False),
        ("max(wide) > 1.5", False),
        ("max(p) > 1.5", True),
        ("bit_or(k) > 0", False),
        ("bool_or(b)", True),
        ("bool_or(b) >= FALSE", False),
        ("max(k) IS NOT NULL", True),
        ("NOT isnull(max(k))", True),
        ("isnull(max(k))", False),
        ("(max(k) > 3) = FALSE", False),
        ("max(k) = TRUE", False),
        ("(max(k) > 1 AND max(n) > 1) IS NOT NULL", False),
        ("sum(length(s)) > 3", True),
        ("sum(abs(n)) > 3", False),
        ("sum(abs(p)) > 3", True),
        ("sum(abs(wide)) > 3", False),
        ("sum(CASE WHEN b THEN 1 ELSE 0 END) > 3", True),
        ("size(collect_set(d)) > 3", True),
        ("greatest(max(k), 5) > 3", True),
        ("greatest(max(k), '5') > 3", False),
        ("least(max(k), 5) > 3", False),
    ],
)
def test_a_threshold_lasts_only_where_no_cast_and_no_overflow_breaks_it(
    condition: str, lasts: bool
) -> None:
    found = label(f"SELECT k FROM r GROUP BY k HAVING {condition}")
    assert (found == "CW") is lasts, found


@pytest.mark.parametrize(
    ("aggregate", "within"),
    [
        ("max(k)", "OW[k]"),
        ("max(d)", "OW[k] sequence"),
        ("min(lower)", "OW[k] sequence"),
        ("max(struct(k, s))", "OW[k]"),
        ("max(struct(k, d))", "OW[k] sequence"),
        ("sum(k)", "OW[k]"),
        ("sum(p)", "OW[k]"),
        ("sum(wide)", "OW[k] sequence"),
        ("sum(p * k)", "OW[k]"),
        ("try_sum(n)", "OW[k] sequence"),
        ("avg(n)", "OW[k] sequence"),
        ("avg(k)", "OW[k] sequence"),
        ("avg(p)", "OW[k]"),
        ("avg(wide)", "OW[k] sequence"),
        ("median(d)", "OW[k] sequence"),
        ("sort_array(collect_list(s))", "OW[k]"),
        ("sort_array(collect_list(d))", "OW[k] sequence"),
        ("size(collect_list(d))", "OW[k]"),
        ("count(DISTINCT d)", "OW[k]"),
        ("listagg(s) WITHIN GROUP (ORDER BY s)", "OW[k]"),
        ("listagg(d) WITHIN GROUP (ORDER BY d)", "OW[k] sequence"),
    ],
)
def test_an_aggregate_depends_on_the_order_where_equal_values_differ_or_sums_do_not_fit(
    aggregate: str, within: str
) -> None:
    assert label(f"SELECT k, {aggregate} AS v FROM r GROUP BY k") == within


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("avg(n) OVER (PARTITION BY k)", "OW[k] sequence"),
        ("sum(k) OVER (PARTITION BY k ORDER BY day)", "OW[k]"),
        ("sum(wide) OVER (PARTITION BY k ORDER BY day)", "OW[k] sequence"),
        ("count(*) OVER (PARTITION BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
         "OW[k] sequence"),
        ("max(n) OVER (PARTITION BY k)", "OW[k]"),
    ],
)  # fmt: skip
def test_a_frame_of_a_window_is_no_more_exact_than_a_group(call: str, expected: str) -> None:
    assert label(f"SELECT k, {call} AS v FROM r") == expected


def test_a_sum_of_bigint_is_told_to_assume_that_it_fits() -> None:
    (assumed,) = derived("SELECT k, sum(n) AS v FROM r GROUP BY k").assumptions
    assert "leaves BIGINT" in assumed.text
    assert not derived("SELECT k, sum(k) AS v FROM r GROUP BY k").assumptions


def test_what_is_sealed_by_a_watermark_may_still_depend_on_the_order() -> None:
    sql = (
        "SELECT window(t, '1 hour') w, {} AS v FROM r WATERMARK t DELAY OF INTERVAL 10 SECONDS "
        "GROUP BY window(t, '1 hour')"
    )
    promise = {"output_mode": "append", "lateness": {"r": 10.0}}
    assert label(sql.format("count(*)"), **promise) == "CW"
    assert label(sql.format("first(k)"), **promise) == "OW[*] sequence"


def test_a_session_grows_and_takes_the_place_of_others() -> None:
    sql = "SELECT k FROM r GROUP BY session_window(t, '5 minutes'), k HAVING count(*) > 3"
    assert label(sql) == "OW[k]"


def test_a_text_under_a_collation_is_no_key_and_is_shown_as_the_first_row_writes_it() -> None:
    assert label("SELECT lower, count(*) AS c FROM r GROUP BY lower") == "OW[*] sequence"
    assert label("SELECT DISTINCT lower FROM r") == "OW[*] sequence"
    assert label("SELECT upper(lower) AS u FROM r GROUP BY upper(lower)") == "OW[*] sequence"
    assert label("SELECT coalesce(lower, s) AS u FROM r GROUP BY 1") == "OW[*] sequence"
    # Without ANSI mode, what meets a text becomes one; and a text stays one in an array.
    assert label("SELECT DISTINCT coalesce(lower, k) AS u FROM r") == "OW[*] sequence"
    assert label("SELECT DISTINCT upper(coalesce(lower, k)) AS u FROM r") == "OW[*] sequence"
    assert label("SELECT DISTINCT array(lower, s) AS u FROM r") == "OW[*] sequence"
    assert label("SELECT DISTINCT s FROM r") == "CW"


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("date_add(day, 3)", True),
        ("date_add(day, CAST(NULL AS INT))", False),
        ("k + 1", True),
        ("k + -1", True),
        ("k + NULL", False),
        ("p + 1", False),
        ("1 - k", True),
        ("CAST(p AS DECIMAL(10,2))", True),
        ("CAST(p AS DECIMAL(10,1))", False),
        ("CAST(day AS STRING)", True),
        ("CAST(day AS TIMESTAMP)", False),
        ("CAST(n AS INT)", False),
        ("CAST(k AS DOUBLE)", False),
        ("CAST(b AS STRING)", True),
        ("CAST(s AS VARCHAR(3))", True),
    ],
)
def test_a_key_is_kept_distinct_by_what_is_claimed_of_its_types(key: str, kept: bool) -> None:
    found = derived(f"SELECT {key} AS g, count(*) AS c FROM r GROUP BY {key}").paths["r"].gate
    assert found is not None
    assert bool(found.attributes) is kept


@pytest.mark.parametrize(
    ("text", "chance"),
    [
        ("SELECT k FROM r WHERE t > 'now'", True),
        ("SELECT k FROM r WHERE day BETWEEN 'yesterday' AND 'today'", True),
        ("SELECT k FROM r WHERE day IN ('2024-01-01', 'today')", True),
        ("SELECT k FROM r WHERE datediff('today', day) > 3", True),
        ("SELECT coalesce(day, 'today') AS x FROM r", True),
        ("SELECT k FROM r WHERE coalesce(lower, t) > 'now'", True),
        ("SELECT sequence('today', t) AS x FROM r", True),
        ("SELECT array('today') || array(day) AS x FROM r", True),
        ("SELECT 'today' || day AS x FROM r", False),
        ("SELECT k FROM r WHERE t > '12:30'", True),
        ("SELECT CAST(' T9:05:00' AS TIMESTAMP) AS x FROM r", True),
        ("SELECT k FROM r WHERE t > '2024-01-01 12:30'", False),
        ("SELECT k FROM r WHERE s = '12:30'", False),
        ("SELECT t + INTERVAL '12:30' HOUR TO MINUTE AS x FROM r", False),
        ("SELECT k FROM r WHERE s = 'today'", False),
        ("SELECT concat(s, 'today') AS x FROM r", False),
        ("SELECT localtime() AS x FROM r", True),
        ("SELECT kll_sketch_agg_bigint(n) AS x FROM r", True),
    ],
)
def test_a_constant_text_is_a_clock_where_it_becomes_a_time(text: str, chance: bool) -> None:
    assert (derived(text).paths["r"].nondeterministic is not None) is chance


@pytest.mark.parametrize(
    ("text", "assumed"),
    [
        ("SELECT CAST(s AS TIMESTAMP) AS x FROM r", True),
        ("SELECT to_timestamp(s) AS x FROM r", True),
        ("SELECT to_timestamp(s, 'HH:mm') AS x FROM r", False),
        ("SELECT t > s AS x FROM r", True),
        ("SELECT coalesce(t, s) AS x FROM r", True),
        ("SELECT date_trunc('day', s) AS x FROM r", True),
        ("SELECT s + INTERVAL 1 HOUR AS x FROM r", True),
        ("SELECT from_json(s, 'a TIMESTAMP') AS x FROM r", True),
        ("SELECT CAST(array(s) AS ARRAY<TIMESTAMP>) AS x FROM r", True),
        ("SELECT t FROM r UNION ALL SELECT s FROM r", True),
        ("SELECT t FROM r INTERSECT SELECT s FROM r", True),
        ("SELECT concat(array(t), array(s)) AS x FROM r", True),
        ("SELECT CASE WHEN n > 1 THEN map(1, t) ELSE map(1, s) END AS x FROM r", True),
        ("SELECT array(t) FROM r UNION ALL SELECT array(s) FROM r", True),
        ("SELECT concat(t, s) AS x FROM r", False),
        ("SELECT if(n > 1, struct(t, s), struct(t, s)) AS x FROM r", False),
        ("SELECT from_json(s, 'a INT') AS x FROM r", False),
        ("SELECT date_add(s, 1) AS x FROM r", False),
        ("SELECT date_trunc('day', t) AS x FROM r", False),
        ("SELECT CAST(s AS TIMESTAMP_NTZ) AS x FROM r", False),
        ("SELECT CAST(n AS TIMESTAMP) AS x FROM r", False),
        ("SELECT CAST(s AS DATE) AS x FROM r", False),
        ("SELECT CAST('2024-01-01' AS TIMESTAMP) AS x FROM r", False),
    ],
)
def test_texts_that_become_timestamps_are_assumed_to_have_a_date(text: str, assumed: bool) -> None:
    found = [each.text for each in derived(text).assumptions]
    assert any("time of the day" in line for line in found) is assumed


@pytest.mark.parametrize(
    ("on", "gate"),
    [
        ("r.k = q.k2", {"k", "k2"}),
        ("r.k = q.n2", {"k", "n2"}),
        ("r.s = q.k2", set()),
        ("r.d = q.d2", {"d", "d2"}),
        ("r.p = q.p2", set()),
        ("r.s = q.s2", {"s", "s2"}),
        ("r.t = q.day2", set()),
        ("r.lower = q.s2", set()),
    ],
)
def test_columns_that_a_join_compares_are_one_key_only_where_equal_has_one_text(
    on: str, gate: set[str]
) -> None:
    found = derived(f"SELECT r.k FROM r LEFT ANTI JOIN q ON {on}").paths["r"].gate
    assert found is not None
    assert (found.attributes or set()) == gate


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k FROM r EXCEPT SELECT k2 FROM q", "OW[k,k2]"),
        ("SELECT s FROM r EXCEPT SELECT k2 FROM q", "OW[*]"),
        (BOTH.format("k", "n2"), "OW[k,n2]"),
        (BOTH.format("s", "k2"), "OW[*]"),
        ("SELECT nn FROM r WHERE nn NOT IN (SELECT sn FROM q)", "OW[*]"),
        ("SELECT k, count(*) AS c FROM r WHERE s = 1 GROUP BY k", "OW[k]"),
    ],
)  # fmt: skip
def test_set_operations_and_unions_of_other_types_lose_the_key(sql: str, expected: str) -> None:
    assert label(sql) == expected


def test_a_key_is_not_the_same_after_a_function_of_another_type() -> None:
    inputs = {"r": Input({"k": "STRING"}), "q": Input({"k": "INT"})}
    sql = "SELECT r.k FROM r JOIN q ON hex(r.k) = hex(q.k)"
    assert splits(read(sql, inputs=inputs).plan, {"r": ("k",), "q": ("k",)}) is not None


def test_a_set_operation_over_other_types_does_not_split_by_the_key() -> None:
    inputs = {"r": Input({"k": "BIGINT"}), "q": Input({"k": "DOUBLE"})}
    sql = "SELECT k FROM r INTERSECT SELECT k FROM q"
    assert splits(read(sql, inputs=inputs).plan, {"r": ("k",), "q": ("k",)}) is not None


def test_the_registry_claims_directions_of_known_aggregates_only() -> None:
    for row in FUNCTIONS.values():
        assert (row.aggregation is not None) is (row.kind is Kind.AGGREGATE), row.name
        if row.kind in (Kind.OPAQUE, Kind.CHANCE):
            assert row.keeps is row.moves is None, row.name
    up = {name for name, row in FUNCTIONS.items()
          if row.aggregation and row.aggregation.direction is Direction.UP}  # fmt: skip
    assert "bit_or" not in up
    assert "count" in up


def test_the_page_of_the_reference_is_current() -> None:
    assert functions_page.PAGE.read_text(encoding="utf-8") == functions_page.text()
