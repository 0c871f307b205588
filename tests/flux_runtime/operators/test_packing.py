"""States as bytes: whatever is data comes back; nothing else gets in, and no bytes run code."""

from __future__ import annotations

import datetime
import os
import pickle
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_lab.example import events
from flux_runtime.operators import CountWindow, Sessions
from flux_runtime.operators.packing import Base, Packed, Unpackable, Unreadable, pack, unpack
from flux_runtime.operators.state_file import Restored, file_of, write_state
from flux_runtime.protocol.vocabulary import Pair

ROOT = Path(__file__).parents[3]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=50),
    st.decimals(allow_nan=False),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])),
    st.timedeltas(),
)
keys = st.one_of(scalars, st.tuples(scalars, scalars))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
    ),
    max_leaves=20,
)


def alike(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(alike, a, b)) and all(alike(a[k], b[k]) for k in a)
    return bool(a == b)


@given(values)
def test_data_comes_back_with_its_types_and_order(value: Any) -> None:
    assert alike(unpack(pack(value)), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array(["a", "ü" * 9]),
        np.array(["2020-01-01", "NaT"], "datetime64[us]"),
        np.array(7.5),
    ],
)
def test_arrays_come_back_and_can_be_written(array: Any) -> None:
    found = unpack(pack({"x": array, "y": array}))["y"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array, equal_nan=array.dtype.kind in "fM")
    assert found.flags.writeable
    assert type(unpack(pack(np.int32(5)))) is np.int32


def test_tables_come_back() -> None:
    batch = pa.record_batch(
        {
            "n": [1, None, 3],
            "text": ["a", None, "ü"],
            "nested": [{"a": [1]}, None, {"a": []}],
            "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
        }
    )
    table = pa.Table.from_batches([batch, batch.slice(1, 1)])
    batches, found = unpack(pack(((batch.slice(1, 2), batch.slice(0, 0)), table)))
    assert batches[0].equals(batch.slice(1, 2))
    assert batches[1].equals(batch.slice(0, 0))
    assert found.equals(table)


class Custom:
    """Not data."""


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, Custom()]}, r"the state\['a'\]\[1\]: .*Custom is not data; give numbers"),
        ((len,), r"the state\[0\]: builtins.builtin_function_or_method is not data"),
        ({Pair(0, 0): 1}, r"a key of the state: .*Pair is not data"),
        (np.array([Custom()]), "an array of object"),
    ],
)
def test_what_is_no_data_is_named_with_its_place_and_a_remedy(value: Any, where: str) -> None:
    with pytest.raises(Unpackable, match=where):
        pack(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Unpackable, match="levels"):
        pack(value)


class Bomb:
    """Runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_kept_state_that_somebody_has_pickled_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    mark.rmdir()  # it would
    file_of(tmp_path, Pair(0, 0)).write_bytes(bomb)
    operator = Restored(Sessions(["src"], "time", "end", keep=[]), file_of(tmp_path, Pair(0, 0)))
    with pytest.raises(Unreadable, match=r"0-0: .*--fresh"):
        operator.get_state()
    assert not mark.exists()


def test_changed_bytes_are_other_data_or_unreadable_and_nothing_else(tmp_path: Path) -> None:
    operator = CountWindow(["app", "src"], "time", history=2)
    operator.process(events(1, 50)[0])
    write_state(tmp_path, Pair(0, 0), {"s": operator.get_state(), "t": (1, "x", Decimal(3))})
    data = file_of(tmp_path, Pair(0, 0)).read_bytes()
    unreadable = 0
    for seed in range(500):
        draw = random.Random(seed)
        changed = bytearray(data[: draw.choice((len(data), draw.randrange(len(data))))])
        for _ in range(draw.randint(1, 4)):
            if changed:
                changed[draw.randrange(min(len(changed), 300))] = draw.randrange(256)
        try:
            unpack(bytes(changed))
        except Unreadable:
            unreadable += 1
    assert unreadable > 250


def test_pickle_is_imported_only_for_what_no_connection_carries_and_no_folder_keeps() -> None:
    imports = re.compile(r"^\s*(from|import) .*\b(cloudpickle|marshal|pickle|shelve)\b", re.M)
    found = {
        str(file.relative_to(ROOT / "flux_runtime"))
        for file in (ROOT / "flux_runtime").rglob("*.py")
        if imports.search(file.read_text(encoding="utf-8"))
    }
    assert found == {
        "site/process.py",  # the configuration that a parent hands to its child
        "spark/flux/sites.py",  # that parent
        "spark/main.py",  # how classes of the job reach Spark's workers
        "site/together.py",  # whether two operators are made alike; the bytes go nowhere
    }


@given(
    st.lists(st.integers(0, 40), max_size=6),
    st.lists(st.integers(0, 6), max_size=6),
    st.lists(st.integers(0, 40), max_size=3),
    st.integers(0, 20),
)
def test_what_has_been_sent_before_need_not_be_sent_again(
    sizes: list[int], stay: list[int], new: list[int], first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flux_runtime.operators.packing.PART_BYTES", 100)
        tables = [_table(size, i) for i, size in enumerate(sizes)]
        base = Base({"rows": pa.concat_tables([_table(1, 9), *tables])})
        sent = [bytes(message.written()) for message in base.messages]
        kept = [tables[i].slice(first % 3) for i in stay if i < len(tables)]
        more = [_table(size, 7) for size in new]
        state = {"rows": pa.concat_tables([_table(0, 0), *kept, *more]), "n": first}
        packed = Packed(state, base=base)
        assert packed.size == len(bytes(packed)) <= len(pack(state))
        assert unpack(bytes(packed), base=sent) == state == unpack(pack(state))
        if len(bytes(packed)) < len(pack(state)):
            with pytest.raises(Unreadable, match="has not been sent before"):
                unpack(bytes(packed))


def _table(rows: int, value: int) -> Any:
    return pa.table({"n": np.arange(rows) + value, "s": pa.array([f"{value}"] * rows, pa.string())})
