"""A query is run partition by partition only if that gives the answer of the whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from annotations.dataflow import Refusal
from annotations.file.compact import parse_dependency
from annotations.vocabulary import FunctionalDependency
from annotations.whitebox import splitting
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.splitting import Kind, Rows, splits
from annotations.whitebox.sql import read
from tests.annotations.whitebox.split_queries import Queries, disproof, verdict

SCHEMA: Final = {"id": "INT", "k": "INT", "n": "INT"}
INPUTS: Final = {
    "r": Input(SCHEMA),
    "s": Input(SCHEMA),
    "t": Input({"x": "INT", "y": "STRING"}, role=Role.TABLE),
    "other": Input(SCHEMA),
}
KEYS: Final = {"r": ("k",), "s": ("k",)}
BY_ID: Final = parse_dependency("id -> k")


def refusal(text: str, *fds: FunctionalDependency) -> Refusal | None:
    return splits(read(text, inputs=INPUTS).plan, KEYS, fds=fds)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT r.k, count(s.id) FROM r LEFT JOIN s ON r.k = s.k GROUP BY r.k",
        "SELECT coalesce(r.k, s.k), count(*) FROM r FULL JOIN s ON r.k = s.k "
        "GROUP BY coalesce(r.k, s.k)",
        "SELECT a.id, d.c FROM r a JOIN (SELECT x, count(b.id) AS c FROM t "
        "LEFT JOIN r b ON b.k = x GROUP BY x) d ON x = a.k",
        "SELECT n, count(*) AS c FROM r WHERE k = 1 GROUP BY n",
        "SELECT k + 1 AS m, count(*) AS c FROM r GROUP BY k + 1",
        "SELECT a.id FROM r a, r b WHERE a.k + 1 = b.k + 1 AND a.id < b.id",
        "SELECT * FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k)",
        "SELECT k, n, count(*) OVER (PARTITION BY k, n) AS c FROM r",
        "SELECT k, count(*) AS c FROM (SELECT k FROM r UNION ALL SELECT k FROM s) u GROUP BY k",
        "SELECT k, n, count(*) AS c FROM r GROUP BY k, ROLLUP (n)",
        "SELECT k FROM r INTERSECT SELECT k FROM s",
        "SELECT greatest(r.k, s.k) AS m, count(*) AS c FROM r LEFT JOIN s ON r.k = s.k GROUP BY 1",
        "SELECT * FROM r a WHERE a.n > 1 OR a.id IN (SELECT b.id FROM s b WHERE b.k = a.k)",
        "SELECT * FROM r a WHERE a.n > 1 OR NOT EXISTS (SELECT 1 FROM s WHERE s.k = a.k)",
        # Two columns that equal one of a row that is found are equal.
        "SELECT a.k, b.n FROM r a JOIN s b ON a.n = b.n "
        "WHERE EXISTS (SELECT 1 FROM r c WHERE c.k = a.k AND c.k = b.k)",
        "SELECT * FROM t JOIN r ON t.x = r.n JOIN s ON t.x = r.k AND t.x = s.k",
        # A record that looks for its own values finds itself.
        "SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n)",
        "SELECT * FROM r a WHERE NOT EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND b.id = a.id)",
        "SELECT coalesce(k, 0) AS g, count(*) AS c FROM r GROUP BY coalesce(k, 0)",
        # Equalities over several columns, also of an outer join.
        "SELECT a.id FROM r a FULL JOIN s b ON a.n = b.id AND b.id <=> b.k AND a.k <=> a.n",
        "SELECT * FROM (SELECT a.k, greatest(a.n, b.n) AS x FROM r a LEFT JOIN s b "
        "ON a.k = b.k AND a.n = b.n) f WHERE EXISTS (SELECT 1 FROM r c WHERE c.n = f.x)",
        # What is not used, and what no row can meet.
        "SELECT a.id FROM r a CROSS JOIN (SELECT count(*) AS c FROM s)",
        "SELECT a.id FROM (SELECT count(*) AS c FROM s) CROSS JOIN r a",
        "SELECT a.id FROM r a LEFT JOIN (SELECT n, count(*) AS c FROM s GROUP BY n) g ON g.n = a.n",
        "SELECT a.id FROM r a LEFT JOIN (SELECT DISTINCT n FROM s) g ON g.n = a.n",
        "SELECT id FROM (SELECT id, sum(n) OVER (PARTITION BY n) AS c FROM r)",
        "SELECT id, dense_rank() OVER (PARTITION BY n, id ORDER BY n) AS c FROM r",
        "SELECT DISTINCT a.id, a.k, b.n FROM r a JOIN r b ON a.n = b.n",
        "SELECT k FROM r WHERE n IN (SELECT n FROM (SELECT n, max(id) AS m FROM r GROUP BY n))",
        "SELECT * FROM r a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE b.n = a.n AND b.n < a.n)",
        "SELECT k FROM r UNION ALL SELECT x FROM t WHERE x BETWEEN 2 AND 0",
        "SELECT k FROM r UNION ALL SELECT x FROM t WHERE x = 1 AND x > 1",
        "SELECT k, n FROM r EXCEPT ALL SELECT id, n FROM s WHERE n <> n OR FALSE",
        "SELECT a.k, b.n FROM r a FULL JOIN s b ON a.n = b.n AND NOT (b.n <=> b.n)",
        "SELECT a.k, b.n FROM r a LEFT JOIN s b ON a.n = b.n AND b.n > b.n",
        "SELECT a.k, b.n FROM r a LEFT JOIN s b ON a.n = b.n + 1 AND a.n = b.n - 1",
        "SELECT a.k, b.n FROM r a FULL JOIN s b ON a.n = b.n AND a.id = 1 + b.n AND a.id = b.n",
        # No record lacks the key, so that NOT IN of it has no NULL to do with.
        "SELECT * FROM r WHERE k NOT IN (SELECT k FROM s)",
        "SELECT * FROM r a WHERE n > 1 OR NOT (a.n IN (SELECT s.n FROM s WHERE s.k = a.k))",
        "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM s WHERE s.k = r.k) THEN 1 END AS f FROM r",
        "SELECT id, CASE WHEN n NOT IN (SELECT n FROM s WHERE k = r.k) THEN 1 END AS f FROM r",
        "SELECT id, (SELECT count(*) FROM s WHERE s.k = r.k AND s.n < r.n) AS c FROM r",
        "SELECT id, (SELECT max(n) FROM s WHERE s.k <=> r.k) AS c FROM r",
        # Conditions that every row meets.
        "SELECT c FROM (SELECT n AS c, rank() OVER (ORDER BY id) AS q FROM r) WHERE q IS NOT NULL",
        "SELECT id FROM r WHERE n > 2 AND (n IN (SELECT n FROM s) OR n IS NOT NULL)",
        "SELECT id FROM r WHERE n IN (SELECT n FROM s) OR k = k",
        "SELECT k, max(a.n) AS m FROM r a LEFT JOIN (SELECT n FROM s) b ON b.n = a.n "
        "GROUP BY k HAVING count(*) >= 0",
        # Copies of a row do not change the greatest, and so on.
        "SELECT a.k, max(a.n) AS m, count(DISTINCT a.id) AS d FROM r a LEFT JOIN s b "
        "ON b.n = a.n GROUP BY a.k",
        "SELECT k, n, max(n) OVER (PARTITION BY n) AS c FROM r",
        "SELECT g, count(*) AS c FROM r LATERAL VIEW explode(array(k, k)) v AS g GROUP BY g",
        "SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND b.n > 3)",
        "SELECT DISTINCT a.k, a.n FROM r a CROSS JOIN r b",
        "SELECT n, k FROM r INTERSECT SELECT n, k FROM r",
    ],
)
def test_what_splits(text: str) -> None:
    assert refusal(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT a.id, g.c FROM r a JOIN (SELECT k, count(*) AS c FROM r GROUP BY k) g "
         "ON a.n = g.k", "n = k puts rows of different [k] partitions together"),
        ("SELECT count(*) AS c FROM r WHERE k = 1", "a row for the other partitions"),
        ("SELECT s.k, count(*) AS c FROM r LEFT JOIN s ON r.k = s.k GROUP BY s.k",
         "GROUP BY k puts rows of different [k] partitions into one group"),
        ("SELECT x, count(id) AS c FROM t LEFT JOIN r ON k = x GROUP BY x",
         "rows of a table come once for each partition"),
        # A column that a join may leave NULL is NULL there, whatever is declared of it.
        ("SELECT r.id FROM r LEFT JOIN (SELECT k, coalesce(k, 0) AS c FROM s) g ON r.k = g.k "
         "WHERE g.c NOT IN (SELECT coalesce(k, 0) FROM s)", "puts rows of different"),
        ("SELECT id FROM (SELECT r.id, s.k FROM r LEFT JOIN s ON r.k = s.k) q "
         "WHERE q.k NOT IN (SELECT k FROM s)", "puts rows of different"),
        ("SELECT * FROM r WHERE k NOT IN (SELECT n FROM s)", "puts rows of different"),
        ("SELECT count(*) AS c FROM r", "without GROUP BY gives a row for each partition"),
        ("SELECT a.id FROM r a JOIN r b ON a.k = b.k + 1", "k = k + 1 puts rows of different"),
        ("SELECT a.id FROM r a JOIN t ON a.k = t.x JOIN r b ON CAST(b.k AS STRING) = t.y",
         "puts rows of different"),
        ("SELECT k, count(*) AS c FROM r GROUP BY ROLLUP (k)", "without GROUP BY"),
        ("SELECT * FROM r ORDER BY id LIMIT 3", "LIMIT takes so many rows of each partition"),
        ("SELECT k FROM r TABLESAMPLE (10 ROWS)", "LIMIT takes so many rows"),
        ("SELECT k FROM r TABLESAMPLE (9 PERCENT) REPEATABLE (1)", "a sample takes other rows"),
        ("SELECT k FROM r TABLESAMPLE (BUCKET 1 OUT OF 4)", "a sample takes other rows"),
        ("SELECT r.id FROM r JOIN other ON r.k = other.k", "other is not sealed"),
        ("SELECT x FROM t", "does not read the sealed input"),
        ("SELECT id, (SELECT max(n) FROM s) AS m FROM r", "without GROUP BY gives a row"),
        ("SELECT * FROM r a WHERE n > 1 OR EXISTS (SELECT 1 FROM s WHERE s.n = a.n)",
         "one row for each n puts rows of different"),
        ("SELECT * FROM r a WHERE n > 1 OR NOT (a.n IN (SELECT s.n FROM s))", "n = n puts rows"),
        ("SELECT id, CASE WHEN n NOT IN (SELECT n FROM s) THEN 1 END AS f FROM r",
         "n = n puts rows"),
        ("SELECT id, CASE n IN (SELECT n FROM s) WHEN TRUE THEN 1 END AS f FROM r",
         "nothing is known of what it does"),
        ("SELECT id, (SELECT count(*) FROM s WHERE s.n < r.n) AS c FROM r", "puts rows"),
        # Conditions that some row does not meet.
        ("SELECT c FROM (SELECT n AS c, rank() OVER (ORDER BY id) AS q FROM r) WHERE q > 1",
         "without PARTITION"),
        ("SELECT c FROM (SELECT n AS c, lag(k) OVER (ORDER BY k) AS q FROM r) WHERE q IS NOT NULL",
         "without PARTITION"),
        ("SELECT id FROM r WHERE n > 2 AND (n IN (SELECT n FROM s) OR id IS NOT NULL)",
         "one row for each n"),
        ("SELECT k, max(a.n) AS m FROM r a LEFT JOIN (SELECT n FROM s) b ON b.n = a.n "
         "GROUP BY k HAVING count(*) >= 1", "n = n puts rows"),
        ("SELECT a.k, sum(a.n) AS m FROM r a LEFT JOIN s b ON b.n = a.n GROUP BY a.k",
         "n = n puts rows"),
        ("SELECT a.k, max(b.id) AS m FROM r a LEFT JOIN s b ON b.n = a.n GROUP BY a.k",
         "n = n puts rows"),
        ("SELECT a.k, b.n FROM r a LEFT JOIN s b ON a.n = b.n + 1 AND a.id = b.n", "puts rows"),
        ("SELECT a.k, b.n FROM r a LEFT JOIN s b ON a.n <=> b.n + 1 AND a.n <=> b.n", "puts rows"),
        ("SELECT a.k, b.n FROM r a LEFT JOIN s b ON a.n = b.n + 256 AND a.n = b.n", "puts rows"),
        ("SELECT k, n, sum(n) OVER (PARTITION BY n) AS c FROM r", "PARTITION BY n"),
        ("SELECT k, n, max(n) OVER (PARTITION BY n ORDER BY id ROWS 1 PRECEDING) AS c FROM r",
         "PARTITION BY n"),
        ("SELECT g, count(*) AS c FROM r LATERAL VIEW explode(array(k, n)) v AS g GROUP BY g",
         "GROUP BY g"),
        ("SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND b.id > 3)",
         "n = n puts rows"),
        ("SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND rand() > 0.5)",
         "puts rows"),
        ("SELECT DISTINCT a.n FROM r a CROSS JOIN s b", "puts rows of different"),
        ("SELECT n FROM r INTERSECT SELECT n FROM s", "puts rows of different"),
        ("SELECT n FROM r EXCEPT ALL SELECT n FROM r WHERE id = 1", "EXCEPT"),
        ("SELECT a.k, b.n FROM r a JOIN s b ON a.n = b.n "
         "WHERE NOT EXISTS (SELECT 1 FROM r c WHERE c.k = a.k AND c.k = b.k)",
         "puts rows of different"),
        ("SELECT id FROM r WHERE n = ANY (SELECT n FROM s)", "nothing is known of what it does"),
        ("SELECT coalesce(r.n, s.n) AS m, count(*) FROM r JOIN s ON r.k = s.k GROUP BY 1",
         "into one group"),
        ("SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND b.id < 3)",
         "n = n puts rows of different"),
        ("SELECT * FROM r a WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = a.n AND b.id = a.n)",
         "puts rows of different"),
        ("SELECT x FROM (SELECT coalesce(r.n, s.n) AS x FROM r FULL JOIN s ON r.k = s.k "
         "AND r.n = s.n) WHERE EXISTS (SELECT 1 FROM r b WHERE b.n = x)", "n = x puts rows"),
        ("SELECT coalesce(s.k, 0) AS g, count(*) AS c FROM r LEFT JOIN s ON r.k = s.k GROUP BY 1",
         "into one group"),
        ("SELECT coalesce(n, k) AS g, count(*) AS c FROM r GROUP BY 1", "into one group"),
        ("SELECT a.id FROM r a FULL JOIN s b ON a.n = b.id AND b.id <=> b.k AND a.k <=> a.id",
         "puts rows of different"),
        ("SELECT * FROM (SELECT a.k, greatest(a.n, b.n) AS x FROM r a FULL JOIN s b "
         "ON a.k = b.k AND a.n = b.n) f WHERE EXISTS (SELECT 1 FROM r c WHERE c.n = f.x)",
         "n = x puts rows"),
        ("SELECT * FROM (SELECT a.k, greatest(a.n, b.n) AS x FROM r a LEFT JOIN s b "
         "ON a.k = b.k) f WHERE EXISTS (SELECT 1 FROM r c WHERE c.n = f.x)", "n = x puts rows"),
        ("SELECT a.id, c FROM r a CROSS JOIN (SELECT count(*) AS c FROM s)", "without GROUP BY"),
        ("SELECT a.id FROM r a CROSS JOIN (SELECT n FROM s GROUP BY n)", "GROUP BY n"),
        ("SELECT a.id FROM r a JOIN (SELECT n, count(*) AS c FROM s GROUP BY n) g ON g.n = a.n",
         "GROUP BY n"),
        ("SELECT a.id FROM r a LEFT JOIN (SELECT n, k FROM s GROUP BY n, k) g ON g.n = a.n",
         "n = n puts rows"),
        ("SELECT a.id FROM r a LEFT JOIN s b ON b.n = a.n", "n = n puts rows"),
        ("SELECT c FROM (SELECT id, sum(n) OVER (PARTITION BY n) AS c FROM r)", "PARTITION BY n"),
        ("SELECT id, dense_rank() OVER (PARTITION BY n ORDER BY n, id) AS c FROM r",
         "PARTITION BY n"),
        ("SELECT id, row_number() OVER (PARTITION BY n ORDER BY n) AS c FROM r", "PARTITION BY n"),
        ("SELECT a.id, a.k, b.n FROM r a JOIN r b ON a.n = b.n", "n = n puts rows"),
        ("SELECT DISTINCT a.id, a.k, b.id AS i FROM r a JOIN r b ON a.n = b.n", "n = n puts rows"),
        ("SELECT k, count(*) AS c FROM (SELECT a.k, a.n FROM r a JOIN r b ON a.n = b.n) GROUP BY k",
         "n = n puts rows"),
        ("SELECT k FROM r WHERE n IN (SELECT m FROM (SELECT n, max(id) AS m FROM r GROUP BY n))",
         "GROUP BY n"),
        ("SELECT * FROM r a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE b.n = a.n AND b.n <= a.n)",
         "n = n puts rows"),
        ("SELECT k FROM r UNION ALL SELECT x FROM t WHERE x BETWEEN 0 AND 2", "rows of a table"),
        ("SELECT k FROM r UNION ALL SELECT x FROM t WHERE x = 1 OR x > 1", "rows of a table"),
        ("SELECT k FROM r UNION ALL SELECT x FROM t WHERE x >= 1 AND x <= 1", "rows of a table"),
        ("SELECT k FROM r UNION ALL SELECT x FROM t WHERE rand() <> rand()", "rows of a table"),
        ("SELECT k FROM r WHERE n NOT IN (SELECT s.n FROM s WHERE s.n <> s.n OR s.id = 1)",
         "puts rows of different"),
    ],
)  # fmt: skip
def test_what_does_not(text: str, reason: str) -> None:
    found = refusal(text)
    assert found is not None
    assert reason in found.reason
    assert found.position is not None


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT coalesce(r.k, s.k) AS x, s.n AS y FROM s LEFT JOIN r ON r.k = s.k AND r.n = s.n",
        "SELECT x, z AS y FROM t LEFT JOIN r ON t.x = r.k AND t.z = r.n GROUP BY x, z",
        "SELECT x, z AS y FROM t EXCEPT SELECT k, n FROM r",
        "SELECT x, z AS y FROM t UNION ALL SELECT k, n FROM r",
    ],
)
def test_a_value_that_no_record_of_the_stream_need_have_finds_none_for_certain(rows: str) -> None:
    inputs = INPUTS | {"t": Input({"x": "INT", "z": "INT"}, role=Role.TABLE)}
    keys = dict.fromkeys(("r", "s"), ("k", "n"))

    def joined(within: str) -> Refusal | None:
        text = f"SELECT s.id, q.x FROM s LEFT JOIN (SELECT * FROM ({rows}) f WHERE EXISTS (SELECT 1"
        text += f" FROM r b WHERE {within})) q ON s.k = q.x AND s.n = q.y"
        return splits(read(text, inputs=inputs).plan, keys)

    assert joined("b.k = f.x AND b.n = f.y") is None
    assert joined("b.k = f.x") is not None


def grouped_apart(group: str, inputs: dict[str, Input]) -> bool:
    """Whether groups by an expression split by `k`."""
    text = f"SELECT {group} AS g, count(*) AS c FROM r GROUP BY {group}"
    return splits(read(text, inputs=inputs).plan, {"r": ("k",)}) is None


def test_a_text_between_constants_is_grouped_by_as_itself() -> None:
    inputs = {"r": Input({"k": "STRING", "n": "STRING"})}
    for group, accepted in (
        ("concat('c-', k, '.')", True),
        ("k || 'x'", True),
        ("concat(k, '.', k)", True),
        ("concat(k, n)", False),
        ("concat(k, n, k)", False),
        ("concat_ws('-', k, 'x')", False),
        ("concat('c-', n)", False),
    ):
        assert grouped_apart(group, inputs) is accepted, group


def test_values_in_an_array_are_grouped_by_if_none_is_cast() -> None:
    inputs = {"r": Input({"k": "BIGINT", "n": "BIGINT", "d": "DOUBLE"})}
    for group, accepted in (
        ("array(n, k)", True),
        ("array(array(k), array(n))", True),
        ("struct(array(k), d)", True),
        ("array(k, d)", False),
        ("array(n, n)", False),
        ("array_distinct(array(k, n))", False),
    ):
        assert grouped_apart(group, inputs) is accepted, group


def test_a_dependency_holds_over_all_streams_together() -> None:
    text = "SELECT r.id, count(*) AS c FROM r JOIN s ON r.id = s.id GROUP BY r.id"
    assert refusal(text) is not None
    assert refusal(text, BY_ID) is None
    assert refusal("SELECT a.id FROM r a JOIN r b ON a.id = b.n", BY_ID) is not None
    assert refusal(text, parse_dependency("id -> k, region")) is None
    through = map(parse_dependency, ("id -> region", "region -> k"))
    assert refusal(text, *through) is not None  # no stream has a region


def test_a_dependency_counts_behind_a_union_for_attributes_of_one_record() -> None:
    dependency = parse_dependency("id, n -> k")

    def grouped(branch: str) -> str:
        other = "SELECT id, n FROM r"
        return f"SELECT id, n, count(*) FROM ({other} UNION ALL {branch}) GROUP BY id, n"

    assert refusal(grouped("SELECT id, n FROM s"), dependency) is None
    apart = "SELECT a.id, b.n FROM s a JOIN s b ON a.k = b.k"
    assert refusal(grouped(apart), dependency) is not None
    assert refusal(grouped(f"{apart} AND a.id = b.id"), dependency) is None


def test_no_random_query_is_believed_wrongly() -> None:
    accepted = 0
    for seed in range(60):
        rng = random.Random(seed)
        text, _ = Queries(rng).query(rng.randint(1, 3))
        dependency = rng.random() < 0.4
        if verdict(text, dependency=dependency) is None:
            accepted += 1
            assert disproof(text, rng, dependency=dependency) is None, text
    assert accepted > 10


def believing(kind: Kind) -> Callable[..., Rows]:
    """A rule that takes every join, or group, for one of one partition."""
    return lambda self, node, left, right, *_: Rows(kind, left.marks | right.marks)


MISTAKES: Final[dict[str, tuple[str, Any]]] = {
    "equal columns are of one partition": ("_same_partition", lambda *_: True),
    "every group is of one partition": ("_grouped", lambda *_: True),
    "every row finds the record that it is of": ("_of_itself", lambda *_: True),
    "a join that goes apart splits": ("_apart", believing(Kind.SPLIT)),
    "a dependency determines whatever it says": (
        "_determine",
        lambda self, marks, pins=(): any(True for _ in marks),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting._Splitting, *MISTAKES[mistake])
    for seed in range(1000):
        rng = random.Random(seed)
        text, _ = Queries(rng).query(rng.randint(1, 3))
        dependency = rng.random() < 0.4
        believed = verdict(text, dependency=dependency) is None
        if believed and disproof(text, rng, dependency=dependency) is not None:
            return
    pytest.fail("no query refutes it")
