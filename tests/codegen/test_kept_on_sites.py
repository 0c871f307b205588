"""What sites keep of SQL: what new records add, windows as columns, and what is refused."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import site_arrivals_on_spark as arriving
from benchmarks.site_arrivals_on_spark import prove
from codegen.deltas import deltas
from codegen.site_sql import site_sql
from codegen.site_state import Keeping, kept_confluent, kept_windows, unbounded
from codegen.windows import END, START, Refused, windowed
from flux_runtime.operators.evaluation import evaluate
from flux_runtime.operators.event_time import event_time
from flux_runtime.operators.query import Delta, Gives, Query, QueryPlan, Summary, rehearse, tagged
from flux_runtime.operators.rows import number

A = {"k": "INT", "n": "INT"}
SCHEMAS = {"a": A, "b": A}
ARROW = [("k", pa.int32()), ("n", pa.int32())]


def plan(sql: str, names: str, *, as_set: bool, columns: int) -> QueryPlan:
    keeping = kept_confluent(sql, dict.fromkeys(names, A), as_set=as_set, lateness_s=lambda _: 60.0)
    made = QueryPlan(
        sql=keeping.query,
        inputs=dict.fromkeys(names, ARROW),
        output=[(f"c{n}", pa.int32()) for n in range(columns)],
        gives=Gives.DISTINCT if as_set else Gives.NEW,
        summaries={name: Summary(*texts) for name, texts in keeping.summaries.items()},
        deltas={name: Delta(*delta) for name, delta in keeping.deltas.items()},
    )
    rehearse(made)
    return made


ROWS = st.lists(
    st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, 0, 5])),
    min_size=1,
    max_size=4,
)
ARRIVALS = st.lists(st.tuples(st.sampled_from("ab"), ROWS), max_size=7)
CONFLUENT = [
    ("SELECT k AS c0, n + 1 AS c1 FROM a WHERE n > 0", "a", False, 2),
    ("SELECT a.k AS c0, b.n AS c1 FROM a JOIN b ON a.k = b.k WHERE a.n > 0", "ab", False, 2),
    ("SELECT a.n AS c0 FROM a, b WHERE a.k = b.k AND (a.n > b.n OR b.n = 0)", "ab", False, 1),
    ("SELECT k AS c0 FROM a UNION ALL SELECT k FROM b WHERE n = 5", "ab", False, 1),
    ("SELECT DISTINCT n AS c0 FROM a", "a", True, 1),
    ("SELECT a.k AS c0 FROM a JOIN b USING (k) UNION SELECT n FROM b", "ab", True, 1),
    ("SELECT k AS c0 FROM a GROUP BY k HAVING count(*) > 2", "a", True, 1),
]


@pytest.mark.parametrize(("sql", "names", "as_set", "columns"), CONFLUENT)
def test_what_new_records_add_is_in_all_what_the_query_gives_of_all(
    sql: str, names: str, as_set: bool, columns: int
) -> None:
    made = plan(sql, names, as_set=as_set, columns=columns)

    @settings(max_examples=12, deadline=None)
    @given(ARRIVALS)
    def same(arrivals: list[tuple[str, list[tuple[int | None, int | None]]]]) -> None:
        query, found = Query(made), Counter[tuple[Any, ...]]()
        records: dict[str, list[Any]] = {name: [] for name in names}
        for place, (name, rows) in enumerate(a for a in arrivals if a[0] in names):
            records[name] += rows
            out = query.process(batch(rows, names.index(name), place))
            found.update(zip(*(out.column(n).to_pylist() for n in range(columns)), strict=True))
        due = Counter(evaluated(sql, records))
        assert found == (Counter(dict.fromkeys(due, 1)) if as_set else due)

    same()


def batch(rows: list[Any], interface: int, place: int) -> Any:
    columns = [pa.array([row[n] for row in rows], pa.int32()) for n in range(2)]
    return number(tagged(pa.table(columns, pa.schema(ARROW)), interface), place)


def evaluated(sql: str, records: Mapping[str, list[Any]]) -> list[Any]:
    """What the whole query gives of all records at once."""
    tables = {
        name: pa.table(
            [pa.array([row[n] for row in rows], pa.int32()) for n in range(2)], pa.schema(ARROW)
        )
        for name, rows in records.items()
    }
    columns = [column.to_pylist() for column in evaluate(site_sql(sql), tables).columns]
    return [*zip(*columns, strict=True)]


def test_only_what_is_joined_is_kept() -> None:
    each = Query(plan("SELECT k AS c0 FROM a WHERE n > 0", "a", as_set=False, columns=1))
    keys = Query(plan("SELECT DISTINCT k AS c0 FROM a", "a", as_set=True, columns=1))
    pairs = Query(
        plan(
            "SELECT b.n AS c0 FROM a JOIN b ON a.k = b.k AND b.n = 5",
            "ab",
            as_set=False,
            columns=1,
        )
    )
    for place in range(3):
        rows = [(0, place), (1, place)]
        for query in (each, keys, pairs):
            query.process(batch(rows, 0, place))
    assert each.state_size() == 0
    assert keys.get_state()["put_out"].num_rows == 2
    assert keys.get_state()["kept"] == {}
    pairs.process(batch([(7, 4), (8, 5)], 1, 3))
    kept = pairs.get_state()["kept"]
    assert kept["a"].column_names == ["k"]
    assert kept["b"].to_pylist() == [{"k": 8, "n": 5}]
    assert pairs.get_state()["put_out"].num_rows == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k",
        "SELECT x.k FROM a x JOIN a y ON x.k = y.k",
        "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)",
        "SELECT k FROM a JOIN b USING (k) LIMIT 3",
        "SELECT DISTINCT k FROM a JOIN b USING (k)",
        "SELECT k FROM a JOIN b USING (k) UNION SELECT k FROM a",
        "SELECT q.k FROM (SELECT max(k) AS k FROM a) q JOIN b ON q.k = b.k",
    ],
)
def test_what_is_no_sum_over_records_is_evaluated_again(sql: str) -> None:
    assert deltas(sql, SCHEMAS, as_set=False) is None


MINUTE_US = 60_000_000
NEAR = "b.ts BETWEEN a.at - INTERVAL 2 MINUTES AND a.at + INTERVAL 3 MINUTES"
RANGED = {"a": {"k": "INT", "at": "TIMESTAMP"}, "b": {"k": "INT", "ts": "TIMESTAMP"}}
RANGED_SQL = f"SELECT a.k AS k, at, ts FROM a JOIN b ON a.k = b.k AND {NEAR}"
MOMENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(-9, 0)), min_size=1, max_size=3)
COMING = st.lists(st.tuples(st.sampled_from("ab"), MOMENTS, st.integers(0, 4)), max_size=12)


def ranged(**changed: int) -> Query:
    """A join of records that are near in time, which may be a minute late."""
    keeping = kept_confluent(RANGED_SQL, RANGED, as_set=False, lateness_s=lambda _: 60.0)
    schemas = {
        name: [(c, pa.int32() if c == "k" else pa.timestamp("us")) for c in columns]
        for name, columns in RANGED.items()
    }
    made = QueryPlan(
        sql=keeping.query,
        inputs=schemas,
        output=[("k", pa.int32()), *((c, pa.timestamp("us")) for c in ("at", "ts"))],
        gives=Gives.NEW,
        summaries={name: Summary(*texts) for name, texts in keeping.summaries.items()},
        deltas={name: Delta(*delta) for name, delta in keeping.deltas.items()},
        times={name: event_time({**time, **changed}) for name, time in keeping.times.items()},
    )
    return Query(made)


def meetings(query: Query, coming: list[tuple[str, list[tuple[int, int]], int]]) -> bool:
    """Whether all pairs come out that are due, of records that are not behind their watermark."""
    now, admitted = 0, {"a": list[Any](), "b": list[Any]()}
    latest: dict[str, int] = {}
    found = Counter[tuple[int, int, int]]()
    for place, (name, rows, later) in enumerate(coming):
        now += later
        told = [(k, now + back) for k, back in rows]
        due_late = [n for n, (_, at) in enumerate(told) if at < latest.get(name, at) - 1]
        schema = query.plan.schema(name)
        times = pa.array([at * MINUTE_US for _, at in told], pa.int64()).cast(pa.timestamp("us"))
        table = pa.table([pa.array([k for k, _ in told], pa.int32()), times], schema)
        batch = number(tagged(table, "ab".index(name)), place)
        assert [n for n, _ in query.refusals(batch)] == due_late
        left = [n for n in range(len(told)) if n not in due_late]
        out = query.process(batch.take(pa.array(left, pa.int64())))
        ks = out.column("k").to_pylist()
        ends = [out.column(c).cast(pa.int64()).to_numpy() // MINUTE_US for c in ("at", "ts")]
        found.update(zip(ks, *(map(int, end) for end in ends), strict=True))
        admitted[name] += [told[n] for n in left]
        latest[name] = max(latest.get(name, -99), *(at for _, at in told))
    due = Counter(
        (k, at, ts)
        for k, at in admitted["a"]
        for other, ts in admitted["b"]
        if k == other and -2 <= ts - at <= 3
    )
    return found == due


@settings(max_examples=12, deadline=None)
@given(COMING)
def test_a_join_within_a_range_of_times_is_whole(
    coming: list[tuple[str, list[tuple[int, int]], int]],
) -> None:
    assert meetings(ranged(), coming)


def test_rows_that_are_forgotten_too_soon_are_missed() -> None:
    coming = [("a", [(0, 0)], 0), ("b", [(0, 0)], 4), ("b", [(0, -1)], 0)]
    assert meetings(ranged(), coming)
    assert not meetings(ranged(after_us=2 * MINUTE_US), coming)


def test_a_join_within_a_range_of_times_forgets_what_has_passed() -> None:
    query = ranged()
    for minute in range(20):
        for name in "ab":
            columns = [pa.array(range(5), pa.int32()), pa.array([minute * MINUTE_US] * 5)]
            table = pa.table(columns, query.plan.schema(name).names).cast(query.plan.schema(name))
            query.process(number(tagged(table, "ab".index(name)), 2 * minute + "ab".index(name)))
    kept = query.get_state()["kept"]
    assert all(0 < rows.num_rows <= 5 * 12 for rows in kept.values())


@pytest.mark.parametrize(
    "condition",
    [
        "b.ts > a.at",
        "b.ts = a.at",
        "b.ts BETWEEN a.at AND a.at + INTERVAL '1' MONTH",
        f"({NEAR} OR a.k = 0)",
        "b.ts BETWEEN a.at - INTERVAL '1' DAY AND current_timestamp()",
    ],
)
def test_a_range_without_an_end_forgets_nothing(condition: str) -> None:
    sql = f"SELECT a.k, b.ts FROM a JOIN b ON a.k = b.k AND {condition}"
    summed = deltas(sql, RANGED, as_set=False)
    assert summed is not None
    assert summed.ranges == {}


def test_of_several_ranges_of_times_none_is_the_event_time() -> None:
    both = {"a": {**RANGED["a"], "t": "TIMESTAMP"}, "b": {**RANGED["b"], "t": "TIMESTAMP"}}
    for condition, ranges in (("a.t = b.t", 2), ("a.t <= b.t AND a.t >= b.t", 0)):
        summed = deltas(f"{RANGED_SQL} AND {condition}", both, as_set=False)
        assert summed is not None
        assert len(summed.ranges) == ranges


TIMED = {"t": {"at": "TIMESTAMP", "k": "INT", "day": "DATE"}}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT window(at, '1 month') AS w FROM t GROUP BY window(at, '1 month')",
            "window of '1 month' is not known",
        ),
        ("SELECT window(at, '1 hour').start AS s FROM t", "window outside of a plain GROUP BY"),
        (
            "SELECT k FROM t GROUP BY window(at, '1 hour'), session_window(at, '1 day')",
            "several windows",
        ),
        ("SELECT count(*) AS n FROM t GROUP BY window(day, '1 hour')", "window(DATE) is not known"),
        (
            "SELECT count(*) AS n FROM t x JOIN t y GROUP BY window(x.at, '1 hour')",
            "window of anything but one input",
        ),
        (
            "SELECT count(*) AS n FROM t GROUP BY window(at, '1 hour', '2 hours')",
            "window with such",
        ),
        (
            "SELECT max(window(at, '1 hour')) AS m FROM t GROUP BY window(at, '1 hour')",
            "window inside of an expression",
        ),
        ("SELECT count(*) AS n FROM t GROUP BY window(at, '1 hour'), k + 1", "window and k + 1 in"),
    ],
)
def test_windows_that_may_mean_something_else_are_refused(sql: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        windowed(sql, TIMED)
    assert str(refused.value).startswith(reason)


def test_a_session_is_put_out_once_and_of_sums_only() -> None:
    text = "SELECT {} AS x FROM t GROUP BY session_window(at, '5 minutes'), k"
    options: Any = {"lateness_s": 60.0, "gate": ("k",)}
    counted = windowed(text.format("count(*)"), TIMED)
    assert kept_windows(counted, TIMED["t"], final=True, **options).times
    with pytest.raises(Refused, match="update"):
        kept_windows(counted, TIMED["t"], final=False, **options)
    listed = windowed(text.format("collect_list(k)"), TIMED)
    with pytest.raises(Refused, match="over such aggregates"):
        kept_windows(listed, TIMED["t"], final=True, **options)


def kept_rows(keeping: Keeping, gives: Gives, ddl: Mapping[str, Mapping[str, str]]) -> list[int]:
    """How many rows a site keeps after 10, 20 and 30 batches of a steady stream with few keys."""
    types = {"INT": pa.int32(), "TIMESTAMP": pa.timestamp("us")}
    inputs = {n: [(c, types[t]) for c, t in columns.items()] for n, columns in ddl.items()}
    seen = {name: pa.schema(columns) for name, columns in inputs.items()}
    if gives is Gives.CHANGES:
        stamps = [(START, types["TIMESTAMP"]), (END, types["TIMESTAMP"])]
        seen = {name: pa.schema([*columns, *stamps]) for name, columns in inputs.items()}
    summaries = {name: Summary(*texts) for name, texts in keeping.summaries.items()}
    nothing = {name: schema.empty_table() for name, schema in seen.items()}
    if not keeping.deltas:
        nothing.update({n: evaluate(s.of_record, {n: nothing[n]}) for n, s in summaries.items()})
    operator = Query(
        QueryPlan(
            sql=keeping.query,
            inputs=inputs,
            output=[(f.name, f.type) for f in evaluate(keeping.query, nothing).schema],
            gives=gives,
            gate=("k",) if gives is Gives.CHANGES else (),
            summaries=summaries,
            deltas={name: Delta(*delta) for name, delta in keeping.deltas.items()},
            times={name: event_time(time) for name, time in keeping.times.items()},
        )
    )
    counts, rng = [], random.Random(0)
    for batch in range(30):
        for place, columns in enumerate(inputs.values()):
            rows = [
                {"k": rng.randrange(3), "n": rng.choice([None, 0, 3]), "i": 8 * batch + row}
                for row in range(8)
            ]
            for row in rows:
                at = dt.datetime(2024, 1, 1) + dt.timedelta(minutes=40 * batch + rng.randrange(20))
                row.update(at=at, ts=at if rng.random() < 0.9 else None)
            table = pa.Table.from_pylist(rows, pa.schema(columns))
            operator.process(number(tagged(table, place), len(inputs) * batch + place))
        if batch % 10 == 9:
            state = operator.get_state()
            counts.append(sum(len(t) for t in [*state["kept"].values(), state["put_out"]]))
    return counts


def grown(rng: random.Random) -> Iterator[tuple[str, str | None, list[int]]]:
    """(a random query, what it is said to keep for ever, how many rows it keeps)."""
    lateness = rng.choice([lambda _: 60.0, lambda _: 60.0, arriving._unpromised])
    query = arriving.confluent(rng)
    ddl = {n: dict.fromkeys(columns, "INT") for n, columns in query.ddl.items()}
    drawn = [(query.sql, query.as_set, ddl)]
    within = rng.choice(arriving.RANGES).format(rng.choice((0, 1, 7)), rng.choice((1, 3)))
    ranged = {n: {"k": "INT", "n": "INT", at: "TIMESTAMP"} for n, at in (("a", "at"), ("b", "ts"))}
    for distinct in ("", "DISTINCT "):
        sql = f"SELECT {distinct}a.k, a.at, b.n FROM a JOIN b ON a.k = b.k AND {within}"
        drawn.append((sql, bool(distinct), ranged))
    for sql, as_set, columns in drawn:
        keeping = kept_confluent(sql, columns, as_set=as_set, lateness_s=lateness)
        gives = Gives.DISTINCT if as_set else Gives.NEW
        said = unbounded(keeping, gives.value, columns)
        yield sql, said, kept_rows(keeping, gives, columns)
    (call,) = rng.choice(arriving.LENGTHS)
    sql = rng.choice(arriving.FINAL_WINDOWS).format(w=call, name=call.partition("(")[0])
    timed = {"k": "INT", "n": "INT", "at": "TIMESTAMP"}
    keeping = kept_windows(
        windowed(sql, {"a": timed}), timed, lateness_s=60.0, final=True, gate=("k",)
    )
    said = unbounded(keeping, "changes", ["a"])
    yield sql, said, kept_rows(keeping, Gives.CHANGES, {"a": timed})


def test_what_is_not_said_to_be_kept_for_ever_is_not() -> None:
    rng, growing = random.Random(4), 0
    for sql, said, (first, second, third) in grown(rng):
        growing += said is not None and third > 1.4 * second
        assert said is not None or third <= 1.2 * max(first, second) + 40, (sql, first, third)
    assert growing >= 1


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from benchmarks.functions_on_spark import session

    session = session()
    yield session
    session.stop()


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_what_is_kept_gives_the_answers_of_spark(spark: Any) -> None:
    """More with `python -m benchmarks.site_arrivals_on_spark`."""
    report = prove(spark, seed=1, queries=12, ranges=4, windows=2)
    assert report.differences == []
    assert report.queries >= 12
    assert report.late > 0


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_join_that_forgets_its_past_is_noticed(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Query, "_keep", lambda *_: None)
    assert prove(spark, seed=1, queries=6, ranges=0, windows=0).differences
