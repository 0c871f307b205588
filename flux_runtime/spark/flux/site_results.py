"""Commits what the sites of a Flux stage put out, in the order of its batches, exactly once.

A commit is logged with the batches it covers before it is written, and written again from the log
after a crash: what lies between two batches never changes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from flux_runtime.operators.query import REPLICA
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.site.reader import Reader
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context
from flux_runtime.spark.ends.dead_letters import BEHIND_WATERMARK, UNPROCESSABLE
from flux_runtime.spark.ends.driver_rows import DriverRows
from flux_runtime.spark.flux.components import to_arrow
from flux_runtime.spark.frames import nullable
from flux_runtime.spark.units import FluxUnit

COMMIT_BYTES: Final = 32 << 20
"""About what one commit holds at most."""
GATHER_S: Final = 0.002
"""A commit waits so long for more results, once there are some; more gather while it is made ..."""
GATHER_MAX_S: Final = 1.0
"""... and no longer than this in all."""
LOOK_S: Final = 0.2
_DONE: Final = "done.json"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of results: of the batches from `first` to below `end`."""

    number: int = -1
    first: int = 0
    end: int = 0
    done: bool = True


class Results:
    """The results of a stage.

    Args:
        unit: the stage.
        context: of the job.
        on_commit: called after every commit.

    Attributes:
        rows_out: rows that have been committed since the start.
        dead_letters: records that the sites have set aside since then.
        late: those of them whose windows had ended.
    """

    def __init__(self, unit: FluxUnit, context: Context, *, on_commit: Callable[[], None]) -> None:
        self.rows_out = 0
        self.dead_letters = 0
        self.late = 0
        self._unit = unit
        self._context = context
        self._state = context.unit_state(unit)
        self._letters = context.dead_letters(unit)
        self._on_commit = on_commit
        self._stopping = threading.Event()
        read = self._state.read(_DONE)
        self._commit = Commit() if read is None else Commit(**json.loads(read))

    @property
    def done(self) -> int:
        """Batches of the order whose results have been committed."""
        return self._commit.end if self._commit.done else self._commit.first

    def commit_from(self, reader: Reader, *, stopping: threading.Event) -> None:
        """Commit what comes until the stage ends.

        Raises:
            DataLost: a partition has lost both copies.
        """
        self._stopping = stopping
        if not self._commit.done:  # the process ended in the midst of it
            self._write(reader, self._commit)
        while not stopping.is_set():
            end, results = self._gathered(reader, self.done)
            if end > self.done:
                commit = Commit(self._commit.number + 1, self.done, end, done=False)
                self._note(commit)
                faults.point("results-logged")
                self._write(reader, commit, results)
            else:
                reader.commit(self.done)  # what the sites do again is not kept there

    def _gathered(
        self, reader: Reader, first: int, end: int | None = None
    ) -> tuple[int, list[Any]]:
        """The results from a batch on: up to an end, or what there is; (the next batch, rows)."""
        gathered: list[Any] = []
        at, size = first, 0
        latest = time.monotonic() + GATHER_MAX_S
        while not self._stopping.is_set() and (end is None or at < end):
            before = at
            wait = LOOK_S if end is not None or at == first else GATHER_S
            at, parts, _ = reader.read(at, timeout_s=wait)
            gathered += [rows for batch, rows in parts if end is None or batch < end]
            size += sum(rows.nbytes for _, rows in parts)
            if end is None and (at == before or size >= COMMIT_BYTES or time.monotonic() > latest):
                break
            if end is not None and at == before:
                reader.commit(first)
        return at, gathered

    def _write(self, reader: Reader, commit: Commit, gathered: list[Any] | None = None) -> None:
        """Write the results of a commit; without `gathered` they are read again."""
        if gathered is None:
            at, gathered = self._gathered(reader, commit.first, commit.end)
            if at < commit.end:
                return  # stopped
        self._keep_letters(commit, gathered)
        results = [rows for rows in map(results_of, gathered) if rows.num_rows]
        if results:
            output = self._context.outputs[self._unit.name]
            self.rows_out += output.commit(
                commit.number, self._of_driver(results), keep_empty=False
            )
        faults.point("results-committed")
        self._note(replace(commit, done=True))
        faults.point("results-noted")
        reader.commit(commit.end)
        self._on_commit()

    def _keep_letters(self, commit: Commit, results: list[Any]) -> None:
        """Write down what the sites have set aside: one file for each stream of a commit.

        Replicas set the same aside; what the first one has is kept.
        """
        by_stream: dict[str, list[tuple[str, Any, str]]] = {}
        for rows in results:
            if self._unit.replicas > 1:
                rows = rows.filter(pc.equal(rows.column(REPLICA), 1))
            for letter in letters_of(rows):
                stream = f"{letter['component']}.{letter['interface']}"
                reason = BEHIND_WATERMARK if letter["late"] else UNPROCESSABLE
                entry = (reason, letter["record"], letter["why"])
                by_stream.setdefault(stream, []).append(entry)
        for number, (stream, letters) in enumerate(sorted(by_stream.items())):
            name = f"unprocessable-{commit.number:09d}-{number}"
            self.dead_letters += self._letters.keep(name, stream, commit.first, letters)
            self.late += sum(reason == BEHIND_WATERMARK for reason, *_ in letters)

    def _note(self, commit: Commit) -> None:
        self._state.write(_DONE, json.dumps(asdict(commit)).encode())
        self._commit = commit

    def _of_driver(self, results: list[Any]) -> DriverRows:
        """Results in the types that Spark has for them."""
        session = self._context.session
        schema = self._unit.schema(session)
        names = schema.fieldNames()
        table = pa.concat_tables([pa.Table.from_batches([rows.select(names)]) for rows in results])
        return DriverRows(session, nullable(schema), table.cast(to_arrow(schema)))
