"""Queries that are easily taken for harmless: what is in them decides, wherever it stands.

Each was once read as if a part of it were not there. What the parts do is tried by
`benchmarks/query_soundness.py`; here stands what they have to be taken for.
"""

from __future__ import annotations

from typing import Final

import pytest

from annotations.vocabulary import Within
from annotations.whitebox.components import Output, derive_output
from annotations.whitebox.datatypes import parse_type
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.splitting import splits
from annotations.whitebox.sql import read
from annotations.whitebox.type_text import schema_text

COLUMNS: Final = {
    "id": "INT NOT NULL",
    "k": "INT",
    "n": "INT",
    "m": "INT",
    "ts": "TIMESTAMP",
    "tags": "ARRAY<STRING>",
    "name": "STRING COLLATE UTF8_LCASE",
}
INPUTS: Final = {
    **{name: Input(COLUMNS) for name in "abc"},
    "variants": Input({"id": "INT", "v": "VARIANT"}),
    "measured": Input({"k": "INT", "d": "DOUBLE"}),
    "t": Input({"x": "INT", "y": "INT"}, Role.TABLE),
}


def derived(sql: str, *, output_mode: str = "update") -> Output:
    return derive_output("out", read(sql, inputs=INPUTS), output_mode=output_mode)


def labels(sql: str) -> dict[str, str]:
    return {path.source: str(path.annotation) for path in derived(sql).paths()}


@pytest.mark.parametrize(
    "sql",
    [
        # QUALIFY, LIMIT and groups of a subquery that names the row around it
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k QUALIFY max(n) OVER () < 3)",
        "SELECT k FROM a WHERE n IN (SELECT n FROM b WHERE b.k = a.k LIMIT 1)",
        "SELECT k FROM a WHERE k IN ((SELECT k FROM b) LIMIT 1)",
        "SELECT a.k FROM a, LATERAL (SELECT n FROM b WHERE b.k = a.k GROUP BY ROLLUP (n)) v",
        # joins inside of joins
        "SELECT a.k FROM a JOIN b LEFT ANTI JOIN c ON a.k = c.k ON a.k = b.k",
        "SELECT a.k FROM a JOIN (b LEFT ANTI JOIN c ON b.k = c.k) ON a.k = b.k",
        # what INTERSECT binds
        "SELECT x FROM t EXCEPT SELECT y FROM t INTERSECT SELECT k FROM b",
    ],
)
def test_no_part_of_a_query_is_left_out(sql: str) -> None:
    assert labels(sql)["b" if " b" in sql else "a"] == "OW[*]"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "SELECT a.k FROM a JOIN b LEFT ANTI JOIN c ON b.k = c.k ON a.k = b.k",
            {"a": "CW", "b": "OW[k]", "c": "OW[k]"},
        ),
        (
            "SELECT a.k FROM a LEFT JOIN b JOIN c ON b.k = c.k ON a.k = b.k",
            {"a": "OW[k]", "b": "OW[k]", "c": "OW[k]"},
        ),
        (
            "SELECT a.k FROM a LEFT SEMI JOIN b JOIN t ON b.k = t.x ON a.k = b.k",
            {"a": "CW", "b": "CW"},
        ),
        (
            "SELECT k FROM a WHERE n > 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
            {"a": "OW[k]", "b": "OW[k]"},
        ),
        ("SELECT k FROM a WHERE n > 1 OR k IN (SELECT x FROM t)", {"a": "CR"}),
    ],
)
def test_tables_that_are_joined_first_are_joined_as_one(sql: str, found: dict[str, str]) -> None:
    assert labels(sql) == found


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY b.m HAVING count(*) > 2)", "CW CW"),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY b.m HAVING count(*) < 2)", "CW OW[k]"),
        ("NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND m > 3 GROUP BY 1)", "OW[k] OW[k]"),
        ("n IN (SELECT max(n) FROM b WHERE b.k = a.k GROUP BY m)", "CW OW[k]"),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY ROLLUP (b.m))", "CW CW"),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY b.m WITH ROLLUP)", "OW[*] OW[*]"),
        ("EXISTS (SELECT 1 FROM b WHERE b.k > a.k GROUP BY b.m)", "OW[*] OW[*]"),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k + b.n GROUP BY b.m)", "OW[*] OW[*]"),
        (
            "EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY m HAVING count(*) > a.n)",
            "OW[*] OW[*]",
        ),
        ("EXISTS (SELECT max(n) FROM b WHERE b.k = a.k HAVING count(*) < 2)", "OW[*] OW[*]"),
        (
            "EXISTS (SELECT max(n) OVER () FROM b WHERE b.k = a.k GROUP BY n)",
            "OW[*] OW[*]",
        ),
    ],
)
def test_groups_of_a_correlated_subquery_are_apart_for_each_row_around(
    groups: str, found: str
) -> None:
    assert " ".join(labels(f"SELECT id FROM a WHERE {groups}").values()) == found


ROWS: Final = "WITH RECURSIVE r(x, y) AS ({} UNION ALL SELECT r.x, t.y FROM r JOIN t ON r.y = t.x)"


@pytest.mark.parametrize(
    ("begin", "query", "label", "chance"),
    [
        ("SELECT x, y FROM t", "SELECT k, r.y FROM a JOIN r ON a.n = r.x", "CR", False),
        ("SELECT x, y FROM t", "SELECT k FROM a WHERE n NOT IN (SELECT x FROM r)", "CR", False),
        ("SELECT x, y FROM t", "SELECT count(*) AS c FROM a JOIN r ON n = x", "OW[*]", False),
        ("SELECT 1, 2", "SELECT k FROM a, r, r AS s WHERE n = r.x AND m = s.y", "CR", False),
        ("SELECT x, rand() FROM t", "SELECT k FROM a JOIN r ON a.n = r.x", "CR", True),
        ("(SELECT x, y FROM t LIMIT 2)", "SELECT k FROM a JOIN r ON a.n = r.x", "CR", True),
        ("SELECT n, m FROM a", "SELECT x FROM r", "OW[*]", False),
        ("SELECT x, (SELECT max(n) FROM a) FROM t", "SELECT x FROM r", "OW[*]", False),
    ],
)
def test_a_recursive_query_over_tables_is_a_table(
    begin: str, query: str, label: str, chance: bool
) -> None:
    (path,) = derived(f"{ROWS.format(begin)} {query}").paths()
    assert str(path.annotation) == label
    assert (path.nondeterministic is not None) is chance


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("SELECT id, v FROM {wide} UNPIVOT (v FOR x IN (k, m))", "CR"),
        (
            "SELECT id, sum(v) s FROM {wide} UNPIVOT (v FOR x IN (k, d)) GROUP BY id",
            "OW[id] sequence",
        ),
        ("SELECT id, e.key FROM variants, LATERAL variant_explode(v) e", "CR"),
        (
            "SELECT id, key, count(*) c FROM variants, LATERAL variant_explode_outer(v) "
            "AS e(p, key, w) GROUP BY id, key",
            "OW[id]",
        ),
    ],
)
def test_rows_that_are_made_of_columns_are_made_record_by_record(sql: str, label: str) -> None:
    wide = "(SELECT id, k, CAST(n AS BIGINT) AS m, CAST(n AS DOUBLE) AS d FROM a)"
    (path,) = derived(sql.format(wide=wide)).paths()
    sequence = " sequence" if path.within is Within.SEQUENCE else ""
    assert f"{path.annotation}{sequence}" == label


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("SELECT explode(array(min(n), max(n))) AS e FROM a", "OW[*]"),
        ("SELECT inline(array(struct(count(*), 1))) FROM a", "OW[*]"),
        ("SELECT stack(2, min(n), max(n)) FROM a", "OW[*]"),
        ("SELECT k, explode(array(min(n), max(n))) AS e FROM a GROUP BY k", "OW[k]"),
        ("SELECT k, posexplode(collect_set(n)) AS (p, e) FROM a GROUP BY k", "OW[k]"),
        ("SELECT k, explode(tags) AS e FROM a GROUP BY k, tags", "CW"),
        ("SELECT k, explode(tags) AS e FROM a", "CR"),
    ],
)
def test_rows_that_are_made_of_groups_wait_for_the_groups(sql: str, label: str) -> None:
    assert labels(sql) == {"a": label}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("WITH p AS (SELECT current_date() AS d) SELECT k FROM a, p WHERE ts < p.d", "clock"),
        ("SELECT k FROM a JOIN (VALUES (1, now())) AS v(i, d) ON ts < v.d", "clock"),
        ("SELECT k FROM a JOIN (VALUES (DATE'today')) AS v(d) ON ts < v.d", "clock"),
        ("SELECT k FROM a WHERE n < (SELECT max(y) FROM t WHERE rand() < 0.5)", "random"),
        ("SELECT k FROM a JOIN t TABLESAMPLE (10 PERCENT) ON k = x", "random"),
        ("SELECT k FROM a JOIN (SELECT x FROM t LIMIT 1) q ON k = q.x", "come in any"),
        (
            "SELECT k FROM a JOIN (SELECT x, first(y) AS f FROM t GROUP BY x) q ON n = f",
            "come in any",
        ),
        ("SELECT k FROM a JOIN (SELECT x, max(y) AS f FROM t GROUP BY x) q ON n = f", None),
        ("SELECT k FROM a JOIN (SELECT x FROM t ORDER BY x LIMIT 1) q ON k = q.x", None),
        (
            "SELECT k FROM a JOIN (SELECT x, y FROM t ORDER BY y LIMIT 1) q ON k = q.x",
            "come in any",
        ),
        ("SELECT k FROM a JOIN (VALUES (1, 'x')) AS v(i, d) ON k = v.i", None),
    ],
)
def test_chance_in_what_is_read_of_tables_is_chance_of_the_stream(
    sql: str, reason: str | None
) -> None:
    (path,) = derived(sql).paths()
    assert (reason in path.nondeterministic) if reason else path.nondeterministic is None


@pytest.mark.parametrize(
    ("sql", "split"),
    [
        # GROUP BY k GROUPING SETS (...): the sets choose; with a comma k is in each of them.
        ("SELECT n, count(*) AS c FROM a GROUP BY n, k GROUPING SETS ((n))", False),
        ("SELECT k, count(*) AS c FROM a GROUP BY k WITH ROLLUP", False),
        ("SELECT k, n, count(*) AS c FROM a GROUP BY k, GROUPING SETS ((n), ())", True),
        ("SELECT k, n, count(*) AS c FROM a GROUP BY GROUPING SETS ((k, n), (k))", True),
        ("SELECT k, n, count(*) AS c FROM a GROUP BY GROUPING SETS ((k, n), (n))", False),
        ("SELECT k, n, count(*) AS c FROM a GROUP BY GROUPING SETS ((k)), ROLLUP (k)", False),
        # A NULL that an outer join puts in place of k empties NOT IN for every partition.
        (
            "SELECT k FROM c WHERE k = 5 AND 5 NOT IN (SELECT b.k FROM a LEFT JOIN b ON a.k = b.k)",
            False,
        ),
        ("SELECT k FROM a WHERE k = 5 AND k NOT IN (SELECT x FROM t)", True),
    ],
)
def test_a_query_splits_by_the_key_or_not(sql: str, split: bool) -> None:
    query = read(sql, inputs=INPUTS)
    keys = dict.fromkeys("abc", ("k",))
    assert (splits(query.plan, keys) is None) is split


def test_every_value_that_not_in_compares_may_be_the_null_that_empties_it() -> None:
    sql = "SELECT id FROM a WHERE (id, {0}) NOT IN (SELECT id, {0} FROM b)"
    assert labels(sql.format("n")) == {"a": "OW[*]", "b": "OW[*]"}
    assert labels(sql.format("id")) == {"a": "OW[id]", "b": "OW[id]"}


@pytest.mark.parametrize("call", ["coalesce(5, a.k, b.k)", "coalesce(a.k, b.k, 5)"])
def test_only_the_two_keys_of_a_full_join_together_are_its_key(call: str) -> None:
    for path in derived(f"SELECT {call} AS k FROM a FULL JOIN b ON a.k = b.k").paths():
        assert not path.lineage
    for path in derived("SELECT coalesce(a.k, b.k) AS k FROM a FULL JOIN b ON a.k = b.k").paths():
        assert path.lineage == {"k": "k"}


@pytest.mark.parametrize(
    ("sql", "within"),
    [
        ("SELECT k, row_number() OVER (PARTITION BY k ORDER BY d) AS r FROM measured", "sequence"),
        ("SELECT k, rank() OVER (PARTITION BY k ORDER BY d) AS r FROM measured", "set"),
        ("SELECT named_struct('x', name) AS s FROM a GROUP BY 1", "sequence"),
        ("SELECT DISTINCT array(name) AS s FROM a", "sequence"),
        ("SELECT DISTINCT named_struct('x', n) AS s FROM a", "set"),
    ],
)
def test_values_that_are_equal_and_differ_are_told_apart_by_who_comes_first(
    sql: str, within: str
) -> None:
    """0.0 and -0.0, and texts under a collation."""
    assert [path.within for path in derived(sql).paths()] == [Within(within)]


def test_a_record_is_in_several_windows_that_overlap() -> None:
    sql = "SELECT window(ts, '1 hour'{}) AS w, max(n) AS m FROM a GROUP BY 1"
    for slide, rows in (("", "one"), (", '10 minutes'", "many")):
        (path,) = derived(sql.format(slide), output_mode="append").paths()
        assert path.rows.value == rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, name FROM a INTERSECT SELECT k, name FROM b",
        "SELECT k, name FROM a EXCEPT SELECT k, name FROM b",
        "SELECT k, name FROM a EXCEPT ALL SELECT k, name FROM b",
        "SELECT DISTINCT k, collate(CAST(n AS STRING), 'UNICODE_CI') AS text FROM a",
        "SELECT DISTINCT k, split(name, ',') AS parts FROM a",
        "SELECT DISTINCT k, array_join(array(name), ',') AS text FROM a",
        "SELECT DISTINCT k, transform(array(name), t -> t || 'x') AS texts FROM a",
    ],
)
def test_of_equal_texts_under_a_collation_the_first_one_is_shown(sql: str) -> None:
    (path, *_) = derived(sql).paths()
    assert str(path.annotation) == "OW[k]"
    assert path.within is Within.SEQUENCE


@pytest.mark.parametrize(
    "text",
    [
        *(f"{name} COLLATE UNICODE_CI" for name in ("STRING", "ARRAY<STRING", "MAP<INT, STRING")),
        *("TIMESTAMP", "TIMESTAMP_NTZ", "TIME", "DECIMAL(9,2)", "FLOAT", "BINARY", "VARIANT"),
    ],
)
def test_another_component_reads_what_decides_of_a_type(text: str) -> None:
    """A collation that was forgotten on the way made `SELECT DISTINCT` confluent."""
    kind, _ = parse_type(text + ">" * text.count("<"))
    assert parse_type(schema_text(kind)) == (kind, True)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name AS x FROM a UNION SELECT CAST(id AS STRING) FROM b",
        "SELECT CAST(id AS STRING) AS x FROM a UNION SELECT name FROM b",
        "SELECT DISTINCT x FROM (SELECT name AS x FROM a UNION ALL SELECT 'b' FROM b)",
        "SELECT CAST(id AS STRING) COLLATE UTF8_LCASE AS x FROM a UNION SELECT 'b' FROM b",
        "SELECT CAST(id AS STRING) COLLATE UNICODE AS x FROM a GROUP BY 1",
        "SELECT k, sum(x) AS s FROM (SELECT k, n AS x FROM a UNION ALL SELECT k, d FROM measured) "
        "GROUP BY k",
    ],
)
def test_rows_of_several_types_have_one_that_holds_them_all(sql: str) -> None:
    assert {path.within for path in derived(sql).paths()} == {Within.SEQUENCE}


def test_a_text_under_the_collation_of_its_bytes_is_compared_as_it_is() -> None:
    sql = "SELECT DISTINCT CAST(id AS STRING) COLLATE UTF8_BINARY AS x FROM a"
    assert labels(sql) == {"a": "CW"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT k FROM a GROUP BY k HAVING count(*) > (SELECT max(x) FROM t)", {"a": "CW"}),
        ("SELECT k FROM a GROUP BY k HAVING count(*) < (SELECT max(x) FROM t)", {"a": "OW[k]"}),
        ("SELECT k, max(n) - (SELECT max(x) FROM t) FROM a GROUP BY k", {"a": "OW[k]"}),
        ("SELECT k FROM a GROUP BY k HAVING max(n) > 1 + (SELECT max(x) FROM t)", {"a": "CW"}),
        (
            "SELECT k FROM a GROUP BY k HAVING count(*) > (SELECT count(*) FROM b)",
            {"a": "OW[*]", "b": "OW[*]"},
        ),
        # not understood
        ("SELECT k FROM a GROUP BY k HAVING count(*) > (SELECT x, y FROM t)", {"a": "OW[*]"}),
        ("SELECT k, sum(1 + (SELECT max(x) FROM t)) FROM a GROUP BY k", {"a": "OW[*]"}),
        (
            "SELECT k FROM a GROUP BY k HAVING 1 < (SELECT max(x) FROM t WHERE y = a.k)",
            {"a": "OW[*]"},
        ),
        (
            "SELECT k, count(*) FILTER (WHERE n > (SELECT max(x) FROM t)) FROM a GROUP BY k",
            {"a": "OW[*]"},
        ),
    ],
)
def test_a_subquery_over_groups_stands_beside_each_of_them(
    query: str, found: dict[str, str]
) -> None:
    assert labels(query) == found


@pytest.mark.parametrize(
    ("having", "label"),
    [
        ("max(n) > '3'", "CW"),
        ("'3' < count(*)", "CW"),
        ("max(CAST(n AS STRING)) > 3", "OW[k]"),
        ("greatest(max(n), '3') > 5", "OW[k]"),
        ("sum(extract(HOUR FROM ts)) > 100", "CW"),
        ("sum(date_part('dow', ts)) > 100", "CW"),
        ("sum(extract(YEAR FROM ts)) > 100", "OW[k]"),
        ("sum(extract(DAY FROM ts - TIMESTAMP '2020-01-01')) > 100", "OW[k]"),
    ],
)
def test_a_threshold_is_compared_and_added_up_as_spark_does(having: str, label: str) -> None:
    (path,) = derived(f"SELECT k FROM a GROUP BY k HAVING {having}").paths()
    assert str(path.annotation) == label


def test_user_is_a_function_where_no_column_has_the_name() -> None:
    (path,) = derived("SELECT user, k FROM a").paths()
    assert path.nondeterministic is not None
    (path,) = derived("SELECT user, k FROM (SELECT n AS user, k FROM a)").paths()
    assert path.nondeterministic is None


BOTH: Final = "a FULL JOIN b ON a.k = b.k"


@pytest.mark.parametrize(
    ("sql", "label"),
    [
        ("SELECT k, count(*) c FROM a FULL JOIN b USING (k) GROUP BY k", "OW[k]"),
        (f"SELECT count(*) OVER (PARTITION BY coalesce(b.k, a.k)) c FROM {BOTH}", "OW[k]"),
        (f"SELECT count(*) c FROM {BOTH} GROUP BY coalesce(a.k, b.n)", "OW[*]"),
        (f"SELECT count(*) c FROM {BOTH} GROUP BY a.k", "OW[*]"),
        (f"SELECT count(*) c FROM {BOTH} GROUP BY ROLLUP (coalesce(a.k, b.k))", "OW[*]"),
        (
            f"SELECT count(*) c FROM c LEFT JOIN ({BOTH}) ON c.k = a.k GROUP BY coalesce(a.k, b.k)",
            "OW[*]",
        ),
        (
            f"SELECT count(*) c FROM {BOTH} FULL JOIN c ON c.k = a.k GROUP BY coalesce(a.k, b.k)",
            "OW[*]",
        ),
    ],
)
def test_a_full_join_is_grouped_by_the_key_that_either_side_has(sql: str, label: str) -> None:
    assert {str(path.annotation) for path in derived(sql).paths()} == {label}
