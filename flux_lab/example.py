"""The running example of the papers: sessions per (src, dst), then max and avg of their durations.

source -> sessions by (src, dst) -> windowed group-by on (app, src), history 2, slide 1 -> output
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from flux_runtime.operators import CountWindow, Sessions
from flux_runtime.operators.kept_rows import KeptRows
from flux_runtime.operators.processor_state import KeyedState
from flux_runtime.operators.rows import Batch, KeySplit, merge, number, rows_size
from flux_runtime.protocol.dataflow import Dataflow, Operator
from flux_runtime.protocol.vocabulary import Pair, Shape


def running_example(shape: Shape, *, slide: int = 2, remembering: bool = False) -> Dataflow:
    """The dataflow; `slide` 2 gives every other update, as the papers measure (AMB-25).

    Args:
        shape: of the dataflow.
        slide: of the window.
        remembering: operators also keep rows, or counts by key, of what they have been given.
    """

    def operator(pair: Pair) -> Operator:
        if pair.stage == 0:
            sessions = Sessions(["src", "dst"], "time", "end", keep=["app", "src"])
            return Remembering(sessions) if remembering else sessions
        window = CountWindow(["app", "src"], "duration", history=2, slide=slide)
        return Counting(window, "src") if remembering else window

    split = KeySplit({0: ("src", "dst"), 1: ("app", "src")})
    return Dataflow(shape=shape, operator=operator, split=split, merge=merge, rows_size=rows_size)


class Remembering:
    """An operator that also keeps all rows it has been given, in pieces that stay where they are.

    Args:
        inner: does the work.
    """

    def __init__(self, inner: Operator) -> None:
        self._inner = inner
        self._rows: KeptRows | None = None

    def process(self, batch: Batch) -> Batch:
        """As the operator does."""
        rows = pa.table(batch)
        kept_rows = KeptRows(rows.schema) if self._rows is None else self._rows
        self._rows = kept_rows.added(rows)
        return self._inner.process(batch)

    def get_state(self) -> Any:
        """The operator's, and the rows."""
        rows = None if self._rows is None else self._rows.table
        return {"rows": rows, "inner": self._inner.get_state()}

    def install_state(self, state: Any) -> None:
        """Replace both."""
        rows = state["rows"]
        self._rows = None if rows is None else KeptRows.of(rows)
        self._inner.install_state(state["inner"])

    def state_size(self) -> int:
        """Bytes of both."""
        return self._inner.state_size() + (self._rows.size_bytes if self._rows else 0)


class Counting:
    """An operator that also counts the rows of every key, up to three, in a processor's state.

    Args:
        inner: does the work.
        key: a column.
    """

    def __init__(self, inner: Operator, key: str) -> None:
        self._inner = inner
        self._key = key
        self._state = KeyedState()

    def process(self, batch: Batch) -> Batch:
        """As the operator does."""
        self._state.begin(0)
        for value in batch.column(self._key).to_pylist():
            self._state.enter((value,))
            ((count,), _) = self._state.read("count") or ((0,), None)
            self._state.write("count", ((count + 1,), None) if count < 2 else None)
        return self._inner.process(batch)

    def get_state(self) -> Any:
        """The operator's, and the counts."""
        return {"by_key": self._state.get_state(), "inner": self._inner.get_state()}

    def install_state(self, state: Any) -> None:
        """Replace both."""
        self._state.install_state(state["by_key"])
        self._inner.install_state(state["inner"])

    def parts(self) -> Iterator[Any]:
        """The counts."""
        return self._state.parts()

    def rest(self) -> Any:
        """The operator's, and the counts that have changed."""
        return {"by_key": self._state.rest(), "inner": self._inner.get_state()}

    def reads(self, parts: Iterator[Any]) -> bool:
        """Whether `rest` would end this reading."""
        return self._state.reads(parts)

    def install_part(self, part: Any) -> None:
        """Add counts."""
        self._state.install_part(part)

    def state_size(self) -> int:
        """Bytes of both."""
        return self._inner.state_size() + self._state.bytes


def events(batches: int, rows: int, *, keys: int = 1000, seed: int = 0) -> list[Batch]:
    """Start and end events of `keys` (src, dst) pairs, in batches of `rows`, already numbered."""
    draw = np.random.default_rng(seed)
    n = batches * rows
    pair = draw.integers(0, keys, n)
    seen: dict[int, int] = {}
    end = np.empty(n, np.int8)
    for i, key in enumerate(pair.tolist()):
        seen[key] = seen.get(key, -1) + 1
        end[i] = seen[key] % 2
    columns = {
        "src": pair % max(1, keys // 20),
        "dst": pair // max(1, keys // 20),
        "app": pair % 2,
        "end": end,
        "time": np.arange(n, dtype=np.int64) * 3,
    }
    all_rows = pa.RecordBatch.from_pydict(
        {name: pa.array(values) for name, values in columns.items()}
    )
    return [number(all_rows.slice(b * rows, rows), b) for b in range(batches)]
