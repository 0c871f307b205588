"""Each operator against a plain row-at-a-time one, however the rows are cut into batches."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_runtime.operators import (
    Answer,
    CountWindow,
    Filter,
    Map,
    Sessions,
    SymmetricHashJoin,
    TimeWindow,
)
from flux_runtime.operators.grouping import Slots
from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.rows import KeySplit, merge, number, stable_hash
from flux_runtime.protocol.dataflow import Operator

Row = tuple[int, int, int, int]  # key, value, time, kind

rows_of = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-50, 50), st.integers(0, 40), st.integers(0, 1)),
    max_size=60,
)
cuts_of = st.lists(st.integers(1, 20), min_size=1, max_size=30)


def batch(rows: Sequence[Row], at: int = 0, offset: int = 0) -> Any:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    made = pa.RecordBatch.from_arrays(
        [pa.array(c, pa.int64()) for c in columns], names=["key", "value", "time", "kind"]
    )
    numbered = number(made, at)
    offsets = pa.array(np.arange(offset, offset + len(rows)), pa.int64())
    return numbered.set_column(5, numbered.schema.field("sn_offset"), offsets)


def in_pieces(operator: Operator, rows: Sequence[Row], cuts: Sequence[int]) -> list[Any]:
    """All outputs as Python rows, the input cut into batches of these sizes, all numbered 0."""
    found: list[Any] = []
    at = 0
    for size in cuts * (len(rows) + 1):
        if at >= len(rows):
            break
        made = operator.process(batch(rows[at : at + size], offset=at))
        found += made.to_pylist()
        at += size
    return found


def windows(rows: Sequence[Row], history: int, slide: int) -> list[tuple[int, int, float, float]]:
    seen: dict[int, list[int]] = {}
    found = []
    for i, (key, value, _, _) in enumerate(rows):
        seen.setdefault(key, []).append(value)
        n = len(seen[key])
        if n >= history and (n - history) % slide == 0:
            last = seen[key][-history:]
            found.append((key, i, float(max(last)), sum(last) / history))
    return found


@given(rows_of, cuts_of, st.integers(1, 4), st.integers(1, 3))
@settings(deadline=None)
def test_count_window(rows: list[Row], cuts: list[int], history: int, slide: int) -> None:
    operator = CountWindow(["key"], "value", history=history, slide=slide)
    made = in_pieces(operator, rows, cuts)
    expected = windows(rows, history, slide)
    assert [(m["key"], m["sn_offset"], m["max_value"]) for m in made] == [e[:3] for e in expected]
    assert [m["avg_value"] for m in made] == pytest.approx([e[3] for e in expected])


def panes(rows: Sequence[Row], history: int, slide: int) -> list[tuple[int, int, float]]:
    held: dict[int, list[tuple[int, int]]] = {}
    now: dict[int, int] = {}
    found = []
    for i, (key, value, time, _) in enumerate(rows):
        pane = time // slide
        if key in now and pane > now[key]:
            covered = [v for p, v in held[key] if p > now[key] - history // slide]
            found.append((key, i, float(sum(covered))))
        now[key] = max(pane, now.get(key, pane))
        held.setdefault(key, []).append((now[key], value))
    return found


@given(rows_of, cuts_of, st.integers(1, 3), st.integers(1, 7))
@settings(deadline=None)
def test_det_2_time_window(rows: list[Row], cuts: list[int], panes_: int, slide: int) -> None:
    history = panes_ * slide
    operator = TimeWindow(["key"], "time", "value", history=history, slide=slide)
    made = in_pieces(operator, rows, cuts)
    assert [(m["key"], m["sn_offset"], m["sum_value"]) for m in made] == (
        panes(rows, history, slide)
    )


def sessions(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    began: dict[int, int] = {}
    found = []
    for i, (key, _, time, kind) in enumerate(rows):
        if kind == 0:
            began[key] = time
        elif key in began:
            found.append((key, i, time - began.pop(key)))
    return found


@given(rows_of, cuts_of)
@settings(deadline=None)
def test_sessions(rows: list[Row], cuts: list[int]) -> None:
    made = in_pieces(Sessions(["key"], "time", "kind"), rows, cuts)
    assert [(m["key"], m["sn_offset"], m["duration"]) for m in made] == sessions(rows)


def pairs(rows: Sequence[Row], history: int, both: bool) -> list[tuple[int, int, int]]:
    found = []
    for i, (key, _, time, kind) in enumerate(rows):
        for j, (other, _, before, side) in enumerate(rows[:i]):
            near = abs(before - time) <= history
            if other == key and side != kind and near and (both or kind == 1):
                found.append((i, *((i, j) if kind == 0 else (j, i))))
    return found


def with_place(rows: list[Row]) -> list[Row]:
    """Value is the row's place and time never goes back, so that nothing is forgotten too early."""
    times = sorted(r[2] for r in rows)
    return [(r[0], i, t, r[3]) for i, (r, t) in enumerate(zip(rows, times, strict=True))]


@given(rows_of, cuts_of, st.integers(0, 20))
@settings(deadline=None)
def test_symmetric_hash_join(rows: list[Row], cuts: list[int], history: int) -> None:
    rows = with_place(rows)
    operator = SymmetricHashJoin(
        ["key"], "kind", ["value"], ["value"], time="time", history=history
    )
    made = in_pieces_of_join(operator, rows, cuts)
    assert made == pairs(rows, history, both=True)


def in_pieces_of_join(
    operator: SymmetricHashJoin, rows: Sequence[Row], cuts: Sequence[int]
) -> list[tuple[int, int, int]]:
    found = []
    at = 0
    for size in cuts * (len(rows) + 1):
        if at >= len(rows):
            break
        made = operator.process(batch(rows[at : at + size], offset=at))
        left, right = made.column(0).to_pylist(), made.column(1).to_pylist()
        found += list(zip(made.column("sn_offset").to_pylist(), left, right, strict=True))
        at += size
    return found


@given(rows_of, cuts_of)
@settings(deadline=None)
def test_answers(rows: list[Row], cuts: list[int]) -> None:
    rows = with_place(rows)
    operator = Answer(["key"], "kind", ["value"], ["value"])
    made = in_pieces_of_join(operator, rows, cuts)
    assert made == pairs(rows, 10**9, both=False)
    assert not operator.stores[1].runs


def test_filter_and_map_keep_sequence_numbers() -> None:
    rows = batch([(1, 5, 0, 0), (2, 6, 0, 0), (3, 7, 0, 0)], at=4)
    kept = Filter(lambda b: b.column("value").to_numpy() % 2 == 1).process(rows)
    assert kept.column("sn_offset").to_pylist() == [0, 2]
    doubled = Map(lambda b: pa.record_batch({"twice": pa.array(b.column("key").to_numpy() * 2)}))
    assert doubled.process(kept).to_pylist() == [
        {"twice": 2, "sn_batch": 4, "sn_offset": 0, "sn_sub": 0},
        {"twice": 6, "sn_batch": 4, "sn_offset": 2, "sn_sub": 0},
    ]
    with pytest.raises(ValueError, match="2 rows for 3"):
        Map(lambda b: b.slice(0, 2)).process(rows)


MAKERS: list[Callable[[], Operator]] = [
    lambda: CountWindow(["key", "kind"], "value", history=3, slide=2),
    lambda: TimeWindow(["key"], "time", "value", history=6, slide=3),
    lambda: Sessions(["key"], "time", "kind", keep=["value"]),
    lambda: SymmetricHashJoin(["key"], "kind", ["value"], ["value"], time="time", history=5),
    lambda: Answer(["key"], "kind", ["value"], ["value"]),
]


def alike(a: Any, b: Any) -> bool:
    """Whether two states hold the same arrays."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


@pytest.mark.parametrize("make", MAKERS)
@given(rows=rows_of, cut=st.integers(0, 60))
@settings(deadline=None, max_examples=30)
def test_det_3_a_state_moved_in_the_middle_changes_nothing(
    make: Callable[[], Operator], rows: list[Row], cut: int
) -> None:
    stays, leaves, arrives = make(), make(), make()
    before, after = rows[:cut], rows[cut:]
    stays.process(batch(before))
    leaves.process(batch(before))
    moved = unpack(pack(leaves.get_state()))
    leaves.process(batch(rows))
    arrives.install_state(moved)
    assert 0 <= arrives.state_size() <= stays.state_size()
    assert alike(arrives.get_state(), stays.get_state())
    assert arrives.process(batch(after)).equals(stays.process(batch(after)))


@given(rows_of, st.integers(1, 5))
@settings(deadline=None)
def test_split_and_merge_are_inverse(rows: list[Row], width: int) -> None:
    whole = batch(rows)
    parts = KeySplit({1: ["key"]})(1, whole, width)
    if rows:
        assert merge(list(parts.values())).equals(whole)
    for part in parts.values():
        assert part.num_rows
    homes = [set(part.column("key").to_pylist()) for part in parts.values()]
    assert sum(map(len, homes)) == len(set().union(*homes))


def test_what_an_operator_is_given_holds_no_memory_but_its_own() -> None:
    parts = KeySplit({1: ["key"]})(1, batch([(n, n, n, 0) for n in range(800)]), 8)
    assert len(parts) == 8
    for part in parts.values():
        alone = merge([part])
        assert alone.equals(part)
        assert alone.get_total_buffer_size() < 2 * alone.nbytes < part.get_total_buffer_size()
        assert merge([alone]) is alone


@pytest.mark.parametrize(
    ("kind", "equal", "others"),
    [
        (pa.float64(), [[0.0, -0.0], [math.nan, -math.nan]], [0.5, -0.5]),
        (pa.float32(), [[0.0, -0.0], [math.nan, -math.nan]], [0.5, -0.5]),
        (pa.list_(pa.float64()), [[[0.0], [-0.0]], [[math.nan], [-math.nan]]], [[], [0.0, 0.0]]),
        (
            pa.struct({"a": pa.list_(pa.float64()), "b": pa.string()}),
            [[{"a": [-0.0], "b": "x"}, {"a": [0.0], "b": "x"}]],
            [{"a": [0.0], "b": None}, {"a": None, "b": "x"}],
        ),
    ],
)
def test_values_that_spark_groups_together_are_one_key(
    kind: Any, equal: list[list[Any]], others: list[Any]
) -> None:
    column = pa.array([*itertools.chain(*equal), *others, None], kind)
    rows = pa.record_batch({"key": column, "n": pa.array(range(len(column)))})
    hashes = stable_hash(rows, ["key"]).tolist()
    numbers = Slots(["key"]).of(rows).tolist()
    group = [i for i, values in enumerate(equal) for _ in values]
    group += range(len(equal), len(column) - len(group) + len(equal))
    assert len(set(zip(group, hashes, strict=True))) == len(set(group)) == len(set(hashes))
    assert len(set(zip(group, numbers, strict=True))) == len(set(group)) == len(set(numbers))


def test_det_1_the_partition_of_a_key_is_the_same_in_every_process() -> None:
    code = (
        "import pyarrow as pa\n"
        "from flux_runtime.operators.rows import stable_hash\n"
        "b = pa.record_batch({'a': ['x', None, 'yy'], 'n': [1, 2, None]})\n"
        "print(stable_hash(b, ['a', 'n']).tolist())"
    )
    here = stable_hash(pa.record_batch({"a": ["x", None, "yy"], "n": [1, 2, None]}), ["a", "n"])
    there = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert there[0] == there[1] == f"{here.tolist()}\n"


def test_mistakes_in_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of slide"):
        TimeWindow(["key"], "time", "value", history=5, slide=2)
    with pytest.raises(ValueError, match="unknown aggregates"):
        CountWindow(["key"], "value", ["median"])
    with pytest.raises(ValueError, match="positive"):
        CountWindow(["key"], "value", history=0)
