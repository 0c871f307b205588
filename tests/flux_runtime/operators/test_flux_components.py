"""Components as stages: who gets which rows, and the same results whatever the partitions."""

from __future__ import annotations

import math
import pickle
import sys
import types
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_runtime.operators.components import Component, Components, in_buckets
from flux_runtime.operators.query import Gives, QueryPlan, tagged
from flux_runtime.operators.rows import SN, key_value, merge, number
from flux_runtime.operators.stateless import Filter
from flux_runtime.operators.unprocessable import DEAD_LETTER, results_of
from flux_runtime.protocol.vocabulary import Pair

CLICK = [("campaign", pa.string()), ("v", pa.int64())]
REQUEST = [("id", pa.int64()), ("campaign", pa.string())]
ANSWER = [("id", pa.int64()), ("n", pa.int64())]
MOST = [("campaign", pa.string()), ("most", pa.int64())]

BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", "c", None])),
            min_size=1,
            max_size=6,
        ),
    ),
    max_size=8,
)


def answers(buckets: int, replicas: int) -> Components:
    plan = QueryPlan(
        sql="SELECT r.id, count(c.v) AS n FROM request r LEFT JOIN click c "
        "ON r.campaign = c.campaign GROUP BY r.id, r.campaign",
        inputs={"click": CLICK, "request": REQUEST},
        output=ANSWER,
        gives=Gives.ANSWERS,
        reads=["request"],
    )
    stage = Component(name="Report", buckets=buckets, gate=("campaign",), plan=plan)
    return Components(stages=(stage,), replicas=replicas)


def chain(buckets: int) -> Components:
    clean = QueryPlan(
        sql="SELECT campaign, v FROM click WHERE v > 2",
        inputs={"click": CLICK},
        output=CLICK,
        gives=Gives.RECORDS,
    )
    most = QueryPlan(
        sql="SELECT campaign, max(v) AS most FROM clean GROUP BY campaign",
        inputs={"clean": CLICK},
        output=MOST,
        gives=Gives.CHANGES,
        gate=["campaign"],
    )
    return Components(
        stages=(
            Component(name="Clean", buckets=buckets, gate=None, plan=clean),
            Component(name="Most", buckets=buckets, gate=("campaign",), plan=most),
        )
    )


KEYS = {
    **VALUES,
    pa.list_(pa.float64()): [[], [0.0, None], [-0.0, None], [math.nan]],
    pa.struct([("a", pa.bool_()), ("b", pa.float64())]): [
        {"a": True, "b": -0.0},
        {"a": True, "b": 0.0},
    ],
}
"""Arrow type -> values of a key; those that Spark groups together are among them."""


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_records_of_one_group_go_to_one_bucket_whatever_the_type(kind: Any) -> None:
    values = [*KEYS[kind], None] * 3
    records = pa.table({"k": pa.array(values, kind), "v": pa.array(range(len(values)))})
    plan = QueryPlan(
        sql="SELECT v FROM a",
        inputs={"a": [*records.schema]},
        output=[("v", pa.int64())],
        gives=Gives.RECORDS,
    )
    stage = Component(name="Count", buckets=5, gate=("k",), plan=plan)
    buckets = in_buckets(stage, number(tagged(records, 0), 7))
    places = {v: bucket for bucket, rows in buckets.items() for v in rows.column("v").to_pylist()}
    assert places.keys() == set(range(len(values)))
    groups: dict[Any, set[int]] = {}
    for v, value in enumerate(values):
        groups.setdefault(repr(key_value(value)), set()).add(places[v])
    assert all(len(of_group) == 1 for of_group in groups.values())


class Flow:
    """The dataflow in this process, every partition once."""

    def __init__(self, components: Components) -> None:
        self.flow = pickle.loads(pickle.dumps(components))()
        widths = self.flow.shape.widths
        self.operators = {
            (stage, part): self.flow.operator(Pair(stage, part))
            for stage, width in enumerate(widths)
            for part in range(width)
        }

    def feed(self, rows: Any) -> list[dict[str, Any]]:
        parts: Mapping[int, Any] = {0: rows}
        for stage, width in enumerate(self.flow.shape.widths):
            parts = self.flow.split(stage, rows, width)
            made = [self.operators[stage, part].process(of) for part, of in parts.items()]
            filled = [each for each in made if each.num_rows]
            if not filled:
                return []
            rows = merge(filled)
        out: list[dict[str, Any]] = results_of(rows).to_pylist()
        numbers = [tuple(row.pop(name) for name in SN) for row in out]
        assert numbers == sorted(numbers)
        return out


def batch(place: int, interface: int, rows: list[tuple[int, str | None]]) -> Any:
    schema = pa.schema(REQUEST if interface else CLICK)
    values = rows if interface else [(campaign, v) for v, campaign in rows]
    columns = zip(*values, strict=True)
    arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
    return number(tagged(pa.table(arrays, schema), interface), place)


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items(), key=str)) for row in rows)


@settings(max_examples=15)
@given(BATCHES)
def test_replicas_and_partitions_answer_like_one_instance(batches: Any) -> None:
    one, many = Flow(answers(1, 1)), Flow(answers(3, 2))
    for place, (interface, rows) in enumerate(batches):
        wanted = one.feed(batch(place, interface, rows))
        found = many.feed(batch(place, interface, rows))
        for replica in (1, 2):
            mine = [row for row in found if row["replica"] == replica]
            assert canonical(mine) == canonical([{**row, "replica": replica} for row in wanted])


@settings(max_examples=12)
@given(BATCHES)
def test_a_chain_of_components_is_the_same_in_any_number_of_partitions(batches: Any) -> None:
    one, many = Flow(chain(1)), Flow(chain(4))
    for place, (_, rows) in enumerate(batches):
        rows_of = batch(place, 0, rows)
        assert canonical(many.feed(rows_of)) == canonical(one.feed(rows_of))


def test_an_operator_shows_what_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_operators")
    module.everything = lambda: Filter(lambda rows: rows.column("v").is_valid())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_operators", module)
    stage = Component(
        name="Sum",
        buckets=2,
        gate=None,
        operator="my_operators:everything",
        output=(("v", pa.int32()),),
    )
    made = stage.instance(2).process(batch(0, 0, [(1, "a"), (5, "b")]))
    assert made.schema.names == ["v", "replica", DEAD_LETTER, *SN]
    assert made.to_pydict()["v"] == [1, 5]
    assert made.to_pydict()["replica"] == [2, 2]


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("flux_runtime.nowhere:make", "names no function"),
        ("flux_runtime.operators.rows:SN_FIELDS.count", "names no function"),
        ("builtins:list", "gives list, which has no process"),
    ],
)
def test_what_is_no_operator_is_said(operator: str, message: str) -> None:
    stage = Component(name="X", buckets=1, gate=(), operator=operator)
    with pytest.raises(ValueError, match=message):
        stage.rehearse()


def test_sql_that_a_site_cannot_evaluate_is_said() -> None:
    plan = QueryPlan(
        sql="SELECT max(at) AS most FROM click",
        inputs={"click": CLICK},
        output=[("most", pa.int64())],
        gives=Gives.CHANGES,
    )
    with pytest.raises(ValueError, match="cannot evaluate"):
        Component(name="X", buckets=1, gate=(), plan=plan).rehearse()


def test_replicas_of_a_chain_are_refused() -> None:
    stages = chain(2).stages
    with pytest.raises(ValueError, match="several components"):
        Components(stages=stages, replicas=2)
