"""Partial aggregates on sites: the answers of records, in state that does not grow with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.site_state import batches, plan
from codegen.site_sql import site_sql, site_summaries
from codegen.summaries import summarise
from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.query import (
    COMBINE_ROWS_MIN,
    Gives,
    Query,
    QueryPlan,
    Summary,
    rehearse,
    tagged,
)
from flux_runtime.operators.rows import SN, number

pytestmark = pytest.mark.slow

SCHEMAS = {
    "click": {"k": "INT", "v": "INT", "w": "STRING"},
    "request": {"id": "INT", "k": "INT"},
}
ARROW = {"INT": pa.int32(), "STRING": pa.string()}
GROUPED = (
    "SELECT k, count(*) AS n, count(v) AS c, sum(v) AS s, max(w) AS m, avg(v) AS a FROM click "
    "WHERE w IS NULL OR w <> 'b' GROUP BY k HAVING count(*) > 1"
)
DISTINCT = "SELECT k, count(DISTINCT w) AS n, min(v) AS m FROM click GROUP BY k"
POOR = (
    "SELECT r.id, r.k, count(c.v) AS n, sum(c.v) AS s, avg(c.v) AS a FROM request r "
    "LEFT JOIN click c ON r.k = c.k GROUP BY r.id, r.k HAVING count(c.v) < 4"
)
OUTPUTS = {
    GROUPED: [("k", "i"), ("n", "l"), ("c", "l"), ("s", "l"), ("m", "t"), ("a", "d")],
    DISTINCT: [("k", "i"), ("n", "l"), ("m", "i")],
    POOR: [("id", "i"), ("k", "i"), ("n", "l"), ("s", "l"), ("a", "d")],
}
TYPES = {"i": pa.int32(), "l": pa.int64(), "t": pa.string(), "d": pa.float64()}
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, -1, 0, 7, 2**31 - 1]),
        st.sampled_from([None, "a", "b", ""]),
    ),
    min_size=1,
    max_size=5,
)
ARRIVALS = st.lists(st.tuples(st.sampled_from(["click", "click", "request"]), ROWS), max_size=7)


def plans(sql: str) -> tuple[QueryPlan, QueryPlan]:
    """Over records, and over partial aggregates."""
    schemas = SCHEMAS if "request" in sql else {"click": SCHEMAS["click"]}
    requests = ["request"] if "request" in sql else []
    records = QueryPlan(
        sql=site_sql(sql),
        inputs={
            name: [(column, ARROW[kind]) for column, kind in columns.items()]
            for name, columns in schemas.items()
        },
        output=[(name, TYPES[kind]) for name, kind in OUTPUTS[sql]],
        gives=Gives.ANSWERS if requests else Gives.CHANGES,
        reads=requests,
        gate=["k"],
    )
    found = summarise(sql, schemas, inputs=["click"], beside=["k"], as_set=False)
    assert found is not None
    texts = site_summaries(found)
    assert texts is not None
    query, kept = texts
    summaries = {name: Summary(*steps) for name, steps in kept.items()}
    return records, replace(records, sql=query, summaries=summaries)


def batch(plan: QueryPlan, name: str, rows: Sequence[tuple[Any, ...]], place: int) -> Any:
    schema = plan.schema(name)
    columns: Mapping[str, Any] = {
        field.name: pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)
    }
    return number(tagged(pa.table(columns, schema), list(plan.inputs).index(name)), place)


def differing(records: QueryPlan, partial: QueryPlan, arrivals: Any, cut: int) -> bool:
    """Whether the two put out different rows; the second moves to another copy at `cut`."""
    one, other = Query(records), Query(partial)
    for place, (name, rows) in enumerate(arrivals):
        if name not in records.inputs:
            continue
        if place == cut:
            moved = Query(partial)
            moved.install_state(unpack(pack(other.get_state())))
            other = moved
        given = batch(records, name, [row[: len(records.inputs[name])] for row in rows], place)
        if not one.process(given).equals(other.process(given)):
            return True
    return False


@pytest.mark.parametrize("sql", [GROUPED, DISTINCT, POOR])
def test_partial_aggregates_give_the_answers_of_records(
    sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_runtime.operators.query.COMBINE_ROWS_MIN", 3)
    records, partial = plans(sql)
    rehearse(partial)

    @settings(max_examples=25, deadline=None)
    @given(ARRIVALS, st.integers(0, 6))
    def same(arrivals: Any, cut: int) -> None:
        assert not differing(records, partial, arrivals, cut)

    same()


def test_partial_aggregates_that_are_combined_otherwise_are_noticed() -> None:
    records, partial = plans(GROUPED)
    summary = partial.summaries["click"]
    assert summary.again is not None
    wrong = Summary(summary.of_record, summary.again.replace("SUM(", "MAX("))
    arrivals = [("click", [(1, 7, "a"), (1, 7, "a")])] * 2
    assert differing(records, replace(partial, summaries={"click": wrong}), arrivals, 9)


def test_state_grows_with_groups_and_not_with_records() -> None:
    keys, sizes = 500, []
    query = Query(plan("groups"))
    given_batches = [*batches(40_000, keys, 1000, come_back=True)]
    for given_batch in given_batches:
        last = query.process(given_batch)
        sizes.append(query.get_state()["kept"]["click"].num_rows)
    assert max(sizes) <= max(2 * keys, COMBINE_ROWS_MIN) + keys
    drawn = np.concatenate([b.column("key").to_numpy() for b in given_batches])
    counts = dict(zip(*(last.column(name).to_pylist() for name in ("key", "n")), strict=True))
    assert counts == {key: int((drawn == key).sum()) for key in counts}
    assert last.schema.names[-3:] == list(SN)


@pytest.mark.parametrize("form", ["each", "windows", "sessions"])
def test_state_is_as_large_at_the_end_of_a_day_as_in_its_first_hours(form: str) -> None:
    query, sizes = Query(plan(form)), []
    for given_batch in batches(48_000, 20, 500):
        query.process(given_batch)
        sizes.append(query.state_size())
    assert max(sizes[48:]) <= 1.5 * max(sizes[:48])
