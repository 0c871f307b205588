"""One operator over many partitions: as if each had its own; and the table of keys below it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_lab.checks import contents
from flux_runtime.operators import (
    Answer,
    CountWindow,
    Filter,
    Sessions,
    SymmetricHashJoin,
    TimeWindow,
    grouping,
    join,
    session,
)
from flux_runtime.operators.grouping import Groups, Slots
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.operators.rows import number

Row = tuple[int, int, int, int]  # key, value, time, kind

row_of = st.tuples(st.integers(0, 4), st.integers(-50, 50), st.integers(0, 40), st.integers(0, 1))
turns_of = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(row_of, max_size=12)),
        min_size=1,
        max_size=4,
        unique_by=lambda part: part[0],
    ),
    max_size=6,
)

MAKERS: list[Callable[[], Partitioned]] = [
    lambda: CountWindow(["key", "kind"], "value", ["max", "avg", "sum"], history=3, slide=2),
    lambda: CountWindow(["key"], "value", ["min", "count"], history=1, slide=1),
    lambda: TimeWindow(["key"], "time", "value", ["count", "sum", "min"], history=6, slide=3),
    lambda: TimeWindow(["key"], "time", "value", ["avg", "max"], history=20, slide=1),
    lambda: Sessions(["key"], "time", "kind", keep=["value", "name"]),
    lambda: SymmetricHashJoin(["key"], "kind", ["value"], ["value"], time="time", history=5),
    lambda: SymmetricHashJoin(["key"], "kind", ["value"], ["time"]),
    lambda: Answer(["key"], "kind", ["value"], ["value"]),
]


def batch(rows: Sequence[Row], at: int = 0) -> Any:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    arrays = [pa.array(c, pa.int64()) for c in columns]
    arrays.append(
        pa.array([None if value < 0 else value * "x" for value in columns[1]], pa.string())
    )
    names = ["key", "value", "time", "kind", "name"]
    return number(pa.RecordBatch.from_arrays(arrays, names=names), at)


@pytest.mark.parametrize("make", MAKERS)
@given(turns=turns_of)
@settings(deadline=None, max_examples=8)
def test_many_partitions_at_once_are_as_each_alone(
    make: Callable[[], Partitioned], turns: list[list[tuple[int, list[Row]]]]
) -> None:
    together, alone = make(), [make() for _ in range(4)]
    for at, turn in enumerate(turns):
        parts = [(partition, batch(rows, at)) for partition, rows in turn]
        made = together.process_parts(parts)
        assert len(made) == len(parts)
        for (partition, rows), found in zip(parts, made, strict=True):
            assert contents(found) == contents(alone[partition].process(rows))


@pytest.mark.parametrize("make", MAKERS)
@given(turns=turns_of, more=st.lists(row_of, max_size=12))
@settings(deadline=None, max_examples=8)
def test_a_partition_moves_alone(
    make: Callable[[], Partitioned], turns: list[list[tuple[int, list[Row]]]], more: list[Row]
) -> None:
    here, there, alone = make(), make(), [make() for _ in range(4)]
    for at, turn in enumerate(turns):
        for partition, rows in turn:
            here.process_parts([(partition, batch(rows, at))])
            alone[partition].process(batch(rows, at))
    there.process_parts([(2, batch(more)), (1, batch(more))])
    there.install_state(here.get_state(1), 1)  # replaces what was there
    here.drop(1)
    after = batch(more, 9)
    rest = here.process_parts([(0, after), (1, after), (2, after), (3, after)])
    assert there.process_parts([(1, after)])[0].equals(alone[1].process(after))
    for partition in (0, 2, 3):
        assert rest[partition].equals(alone[partition].process(after))
    assert rest[1].equals(make().process(after)), "nothing of it is left behind"


@pytest.mark.parametrize("make", MAKERS)
def test_a_state_is_a_copy_in_arrays(make: Callable[[], Partitioned]) -> None:
    operator = make()
    rows = batch([(k, k, k, 0) for k in range(4)])
    operator.process(rows)
    state = operator.get_state()
    before = repr(state)
    operator.process(rows)
    operator.process(batch([(9, 9, 9, 0)]))
    assert repr(state) == before
    assert all(isinstance(column, np.ndarray) for column in state["keys"])
    assert operator.state_size() > 0


def test_stateless_operators_take_part() -> None:
    keep = Filter(lambda b: b.column("kind").to_numpy() == 1)
    made = keep.process_parts([(3, batch([(0, 0, 0, 1)])), (0, batch([(0, 0, 0, 0)]))])
    assert [part.num_rows for part in made] == [1, 0]
    assert keep.get_state(3) is None


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, math.inf, math.nan]),
    pa.string(): st.sampled_from(["", "a", "b", "longer"]),
    pa.binary(): st.sampled_from([b"", b"a"]),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 2)),
    pa.date32(): st.dates(datetime.date(1970, 1, 1), datetime.date(1970, 1, 9)),
    pa.decimal128(5, 2): st.sampled_from([None]),
}


def same(value: Any) -> Any:
    """What a value is as part of a key: all NaNs are one, and zero has no sign."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_slots_number_keys_of_any_type_in_the_order_of_their_first_appearance(
    data: st.DataObject,
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    slots = Slots([f"k{i}" for i in range(len(kinds))])
    table: dict[Any, int] = {}
    for _ in range(3):
        n = data.draw(st.integers(0, 30))
        columns = [
            data.draw(st.lists(st.none() | VALUES[kind], min_size=n, max_size=n)) for kind in kinds
        ]
        partition = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), int)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, names=list(slots.names))
        found = slots.of(rows, partition.astype(np.int64))
        keys = zip(partition.tolist(), *columns, strict=True)
        assert found.tolist() == [
            table.setdefault(tuple(map(same, key)), len(table)) for key in keys
        ]
    chosen = slots.partition == 1
    copied = Slots(slots.names)
    assert copied.install_state(slots.get_state(chosen), 1).tolist() == list(range(chosen.sum()))
    if len(table):
        assert copied.of(rows, 1).max(initial=-1) <= len(slots)


def test_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys in one chain of the table, and in one group of a batch."""
    monkeypatch.setattr(grouping, "_hash", lambda columns: np.zeros(len(columns[0]), np.uint64))
    slots = Slots(["key"])
    values = [5, 3, 5, 9, 3, 1]
    rows = pa.record_batch({"key": pa.array(values)})
    assert slots.of(rows).tolist() == [0, 1, 0, 2, 1, 3]
    assert slots.of(pa.record_batch({"key": pa.array([1, 8, 3])})).tolist() == [3, 4, 1]
    slots.keep(np.array([False, True, True, False, True]))
    assert slots.of(pa.record_batch({"key": pa.array([9, 8, 3, 5])})).tolist() == [1, 2, 0, 3]


def test_a_table_grows_and_shrinks() -> None:
    slots = Slots(["key"])
    rows = pa.record_batch({"key": pa.array(range(10_000))})
    assert slots.of(rows).tolist() == list(range(10_000))
    assert slots.of(rows).tolist() == list(range(10_000))
    slots.keep(np.arange(10_000) % 100 == 0)
    assert len(slots) == 100
    assert slots.of(rows).tolist()[:201:100] == [0, 1, 2]
    assert len(slots) == 10_000


def test_too_many_key_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="7 are the most"):
        Slots(list("abcdefgh"))


@given(st.lists(st.integers(0, 5) | st.integers(70_000, 70_002), max_size=40))
def test_groups_keep_the_order_within_a_slot(values: list[int]) -> None:
    slots = np.array(values, np.int64)
    groups = Groups(slots)
    assert groups.order.tolist() == sorted(range(len(values)), key=lambda i: (values[i], i))
    expected = [values[:i].count(values[i]) for i in groups.order]
    assert groups.rank.tolist() == expected


@given(turns=turns_of)
@settings(deadline=None, max_examples=8)
def test_forgetting_keys_changes_nothing(turns: list[list[tuple[int, list[Row]]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "CLOSED_MAX", 1)
        patch.setattr(join, "KEYS_MAX", 1)
        makers = (MAKERS[4], MAKERS[5], MAKERS[7])
        small = [make() for make in makers]
    large = [make() for make in makers]
    for operator in small:
        operator.clear_at = 1  # type: ignore[attr-defined]
    for at, turn in enumerate(turns):
        parts = [(partition, batch(rows, at)) for partition, rows in turn]
        for a, b in zip(small, large, strict=True):
            for made, expected in zip(a.process_parts(parts), b.process_parts(parts), strict=True):
                assert made.equals(expected)
    assert len(small[0].slots) <= len(large[0].slots)  # type: ignore[attr-defined]


def test_sessions_do_not_keep_a_slot_for_ever() -> None:
    operator = Sessions(["key"], "time", "kind")
    for at in range(20):
        keys = range(at * 1000, at * 1000 + 1000)
        operator.process(batch([(k, 0, t, t % 2) for k in keys for t in (0, 1)], at))
    assert len(operator.slots) < 10_000
    assert operator.state_size() == 0


def test_a_time_window_bridges_times_that_no_span_of_64_bits_holds() -> None:
    rows = [(k, 1, t, 0) for k in range(3) for t in (-(2**62), 5, 2**62)]
    operator = TimeWindow(["key"], "time", "value", ["count"], history=2, slide=1)
    assert operator.process(batch(rows)).column("count_value").to_pylist() == [1.0] * 6
