"""A PySpark `StatefulProcessor` as an operator: the class that Spark takes, unchanged.

What Spark does in a micro-batch is done in a batch of the order. A new processor is made and
`init` is called; each key's records are handed to `handleInputRows`, keys in the order in which
they first come; the time moves on; what has expired is handed to `handleExpiredTimer`; `close` is
called. What it keeps in its state lasts, what it keeps in itself does not.

Time is recorded, so both copies see the same. Every partition is told of every batch by a row of
its own, the *tick* (`ticked`). It has the newest event time of the batch, which the watermark
follows by the delay, and the time of the micro-batch in which Spark read the records, which is the
processing time. A timer therefore fires with the first batch whose time has reached it.

A record whose processing raises is set aside, with what it has changed undone; so is a record that
is not later than the watermark, and a timer whose handling raises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    TimerValues,
)
from pyspark.sql.types import Row, StructType

from flux_runtime.operators.processor_handle import Handle, TimeMode
from flux_runtime.operators.processor_state import Key, KeyedState, Savepoint
from flux_runtime.operators.processor_values import identity
from flux_runtime.operators.query import CLOCK, INTERFACE, REPLICA, REPLICA_STEP
from flux_runtime.operators.rows import SN, Batch, data_fields, ints, with_sn
from flux_runtime.operators.unprocessable import MACHINE, DeadLetters, OperatorError, reason_of

TICK: Final = -1
"""Number of the interface of a tick."""
FRAME_ROWS: Final = 10_000
"""Rows of a pandas frame, as Spark's default."""
LATE: Final = "the record is late: its event time is not after the watermark, {} ms"


@dataclass(frozen=True, kw_only=True)
class ProcessorPlan:
    """A processor and how it is run.

    Attributes:
        make: `module:name` of the class, or of a function that takes nothing and gives a processor.
        key: columns whose values are the grouping key.
        columns: (column, Arrow type) of the records; TIMESTAMP is in UTC.
        output: (column, Arrow type) of what it puts out.
        frames: it takes and gives pandas frames (transformWithStateInPandas); else Rows.
        time: Spark's time mode.
        event_time: with event time, the column.
        delay_ms: by how much the watermark follows the newest event time.
        schemas: schema of a state as text -> schema.
    """

    make: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, Any], ...]
    output: tuple[tuple[str, Any], ...]
    frames: bool = False
    time: TimeMode = TimeMode.NONE
    event_time: str | None = None
    delay_ms: int = 0
    schemas: Mapping[str, StructType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.event_time is not None) != (self.time is TimeMode.EVENT):
            raise ValueError(f"{self.make}: a column of event time goes with time: event, and only")

    @property
    def ticks(self) -> bool:
        """Whether partitions are told of every batch."""
        return self.time is not TimeMode.NONE


class Processor:
    """The operator of one partition.

    Args:
        plan: what runs.
        letters: how records are set aside.
        replica: number of the replica, from 1; None where there is one instance only.
    """

    def __init__(
        self, plan: ProcessorPlan, letters: DeadLetters, *, replica: int | None = None
    ) -> None:
        self.plan = plan
        self.letters = letters
        self.replica = replica
        self.state = KeyedState()
        self.watermark = 0
        self._make = load(plan.make)
        self._rows_in = _frames_in if plan.frames else _rows_in
        self._rows_out = _of_frames if plan.frames else _of_rows
        self._schema = pa.schema(plan.output)

    def state_size(self) -> int:
        """Bytes of the state, about."""
        return self.state.bytes

    def get_state(self) -> dict[str, Any]:
        """Variables and timers of all keys, and the watermark."""
        return {**self.state.get_state(), "watermark": self.watermark}

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state by what `get_state` gave, or add what `rest` gave to the parts."""
        self.state.install_state(state)
        self.watermark = state["watermark"]

    def parts(self) -> Iterator[list[Any]]:
        """The state in parts of some keys (`dataflow.InParts`)."""
        return self.state.parts()

    def rest(self) -> dict[str, Any]:
        """Keys that have changed since they were read, those that are gone, and the watermark."""
        return {**self.state.rest(), "watermark": self.watermark}

    def reads(self, parts: Iterator[Any]) -> bool:
        """Whether `rest` would end this reading."""
        return self.state.reads(parts)

    def install_part(self, part: list[Any]) -> None:
        """Add the variables and timers of some keys."""
        self.state.install_part(part)

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out, and the dead letters."""
        rows, passed = self.letters.apart(batch)
        ticks = np.asarray(ints(rows, INTERFACE) == TICK)
        records, tick = rows.filter(pa.array(~ticks)), rows.filter(pa.array(ticks))
        letters = []
        if self.plan.time is TimeMode.EVENT:
            records, late = self._on_time(records)
            why = [LATE.format(self.watermark)] * late.num_rows
            letters.append(self.letters.of(late, why, late=[True] * late.num_rows))
        clocks = ints(rows, CLOCK) if self.plan.ticks and rows.num_rows else ()
        self.state.begin(int(max(clocks, default=0)))
        run = _Run(self, records, tick)
        run.run()
        self.state.evict()
        letters += run.letters()
        return self.letters.joined(batch, run.results(), [b for b in letters if b.num_rows], passed)

    def _on_time(self, records: Batch) -> tuple[Batch, Batch]:
        assert self.plan.event_time is not None
        at = records.column(self.plan.event_time).cast(pa.timestamp("us")).cast(pa.int64())
        is_late = pc.fill_null(pc.less_equal(at, self.watermark * 1000), False)
        return records.filter(pc.invert(is_late)), records.filter(is_late)

    def advance(self, tick: Batch) -> int:
        """Move the time on; until when timers expire."""
        if self.plan.time is TimeMode.PROCESSING:
            return self.state.now
        if self.plan.event_time is not None:
            newest = event_ms(tick.column(self.plan.event_time)).drop_null().to_pylist()
            self.watermark = max([self.watermark, *(at - self.plan.delay_ms for at in newest)])
        return self.watermark

    def new_processor(self) -> tuple[StatefulProcessor, Handle]:
        """A processor whose `init` was called, and its handle."""
        key = self.state.current
        self.state.leave()
        try:
            processor, handle = initialized(self.plan, self.state, self._make)
        except ValueError as error:
            raise OperatorError(str(error)) from error
        handle.watermark = self.watermark
        if key is not None:
            self.state.enter(key)
        return processor, handle

    def to_output(self, results: Sequence[Any]) -> Any:
        """The results of a processor, as columns of the output."""
        return self._rows_out(results, self._schema)

    def groups(self, records: Batch) -> Iterator[tuple[Key, list[int]]]:
        """(key, places of its records), keys in the order in which they first come."""
        columns = [_column(self.plan, records, name).to_pylist() for name in self.plan.key]
        groups: dict[bytes, tuple[Key, list[int]]] = {}
        met: dict[Key, list[int]] = {}
        hashable = not any(pa.types.is_nested(records.column(n).type) for n in self.plan.key)
        for place, key in enumerate(zip(*columns, strict=True)):
            places = met.get(key) if hashable else None
            if places is None:
                places = groups.setdefault(identity(key), (key, []))[1]
                if hashable:
                    met[key] = places
            places.append(place)
        yield from groups.values()

    def inputs(self, records: Batch) -> Callable[[Sequence[int]], Iterator[Any]]:
        """Gives the records at some places as a processor takes them."""
        return self._rows_in(self.plan, records)

    def times(self) -> TimerValues:
        """The times that a processor is told."""
        if self.plan.time is TimeMode.NONE:
            return TimerValues(-1, -1)
        return TimerValues(self.state.now, self.watermark)


@dataclass(slots=True)
class _Piece:
    """The outcome of one call: results, in the place of a row."""

    columns: Any
    place: tuple[int, int, int]
    """The sequence number of the record, or the tick."""
    sub: int = 0


class _Run:
    """One batch through a processor."""

    def __init__(self, operator: Processor, records: Batch, tick: Batch) -> None:
        self.operator = operator
        self.state = operator.state
        self.records = records
        self.tick = tick
        self.pieces: list[_Piece] = []
        self.refused: list[tuple[int, Exception]] = []
        self.failed: list[tuple[Key, int, Exception]] = []
        self._fired = 0
        self._processor: StatefulProcessor | None = None
        self._handle: Handle | None = None

    def run(self) -> None:
        """All records, then the timers."""
        operator = self.operator
        if self.records.num_rows:
            given = operator.inputs(self.records)
            for key, places in operator.groups(self.records):
                self.state.enter(key)
                self._admit(key, places, given)
        if self.tick.num_rows:
            self._timers()
        if self._processor is not None:
            self.state.leave()
            self._processor.close()

    # ---- records

    def _admit(self, key: Key, places: list[int], given: Callable[..., Iterator[Any]]) -> None:
        """The records of a key; those that cannot be processed after the others are set aside."""
        before = self.state.savepoint()
        columns = self._tried(before, lambda p: p.handleInputRows(key, given(places), self._now()))
        if not isinstance(columns, Exception):
            return self._put(columns, places[-1])
        admitted: list[int] = []

        def fails(more: Sequence[int]) -> Exception | None:
            tried = [*admitted, *more]
            outcome = self._tried(
                before, lambda p: p.handleInputRows(key, given(tried), self._now())
            )
            self.state.rollback(before)
            return outcome if isinstance(outcome, Exception) else None

        divide(places, columns, fails, admitted, self.refused)
        if admitted:
            columns = self._tried(
                before, lambda p: p.handleInputRows(key, given(admitted), self._now())
            )
            if isinstance(columns, Exception):
                raise OperatorError(
                    f"{self.operator.plan.make} raises of records that it took before: "
                    f"{reason_of(columns)}; look for clocks, random numbers and the order of sets"
                )
            self._put(columns, admitted[-1])
        return None

    def _put(self, columns: Any, place: int) -> None:
        if columns.num_rows:
            sn = (self.records.column(name)[place].as_py() for name in SN)
            self.pieces.append(_Piece(columns, tuple(sn)))

    def _now(self) -> TimerValues:
        return self.operator.times()

    def _tried(self, before: Savepoint, call: Callable[[StatefulProcessor], Iterable[Any]]) -> Any:
        """The results of a call; an error that is of the record, with its changes undone."""
        if self._processor is None:
            self._processor, self._handle = self.operator.new_processor()
        try:
            return self.operator.to_output(list(call(self._processor)))
        except MACHINE:
            raise
        except Exception as error:
            self.state.rollback(before)
            # It may have changed half of itself, too.
            self._processor, self._handle = self.operator.new_processor()
            return error

    # ---- timers

    def _timers(self) -> None:
        until = self.operator.advance(self.tick)
        if self._handle is not None:
            self._handle.watermark = self.operator.watermark
        sn = tuple(self.tick.column(name)[0].as_py() for name in SN)
        for expiry, key in self.state.due(until):
            self._fire(expiry, key, sn)

    def _fire(self, expiry: int, key: Key, sn: tuple[int, int, int]) -> None:
        self.state.enter(key)
        before = self.state.savepoint()
        columns = self._tried(
            before,
            lambda p: p.handleExpiredTimer(
                key=key, timerValues=self._now(), expiredTimerInfo=ExpiredTimerInfo(expiry)
            ),
        )
        self.state.enter(key)
        self.state.delete_timer(expiry)
        if isinstance(columns, Exception):
            self.failed.append((key, expiry, columns))
        elif columns.num_rows:
            self.pieces.append(_Piece(columns, sn, self._fired))
            self._fired += columns.num_rows

    # ---- what comes of it

    def results(self) -> Batch | None:
        """The rows that were put out, in the order of their sequence numbers."""
        if not self.pieces:
            return None
        replica = self.operator.replica
        pieces = sorted(self.pieces, key=lambda piece: (piece.place, piece.sub))
        sizes = np.array([piece.columns.num_rows for piece in pieces])
        table = pa.concat_batches([piece.columns for piece in pieces])
        batch, offset, sub = (
            np.repeat(np.array([piece.place[i] for piece in pieces], np.int64), sizes)
            for i in range(3)
        )
        first = np.array([piece.sub for piece in pieces], np.int64)
        within = np.arange(len(sub)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        sub = sub + np.repeat(first, sizes) + within
        fields, columns = list(table.schema), list(table.columns)
        if replica is not None:
            sub = sub + (replica - 1) * REPLICA_STEP
            fields.append(pa.field(REPLICA, pa.int32(), nullable=False))
            columns.append(pa.array(np.full(table.num_rows, replica, np.int32)))
        return with_sn(columns, fields, [batch, offset, sub])

    def letters(self) -> Iterator[Batch]:
        """The records and timers that were set aside."""
        if self.refused:
            rows = self.records.take(pa.array([place for place, _ in self.refused]))
            yield self.operator.letters.of(rows, [reason_of(error) for _, error in self.refused])
        for number, (key, expiry, error) in enumerate(self.failed):
            yield self.operator.letters.of(
                self._of_timer(key, number), [f"the timer at {expiry} ms: {reason_of(error)}"]
            )

    def _of_timer(self, key: Key, number: int) -> Batch:
        """A row with the columns of a timer's key, in the tick's place."""
        names = [f.name for f in data_fields(self.tick.schema) if f.name in self.operator.plan.key]
        values = dict(zip(self.operator.plan.key, key, strict=True))
        fields = [self.tick.schema.field(name) for name in names]
        columns = [pa.array([values[f.name]], _in_utc(f.type)).cast(f.type) for f in fields]
        batch, offset, sub = (ints(self.tick, name)[:1] for name in SN)
        interface = pa.array([0], pa.int8())
        return with_sn(
            [interface, *columns],
            [pa.field(INTERFACE, pa.int8(), nullable=False), *fields],
            [batch, offset, sub + number],
        )


def divide(
    places: Sequence[int],
    error: Exception,
    fails: Callable[[Sequence[int]], Exception | None],
    admitted: list[int],
    refused: list[tuple[int, Exception]],
) -> None:
    """Tell records apart into those that can be processed in turn, and the others.

    Args:
        places: of the records, which fail after the admitted ones.
        error: why they fail.
        fails: why some records cannot be processed after the admitted ones; None: they can.
        admitted: is added to.
        refused: is added to.
    """
    if len(places) == 1:
        refused.append((places[0], error))
        return
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        why = fails(half)
        if why is None:
            admitted += half
        else:
            divide(half, why, fails, admitted, refused)


def load(reference: str) -> Callable[[], StatefulProcessor]:
    """The function that makes the processor that `module:name` says.

    Raises:
        ValueError: there is none.
    """
    module, _, name = reference.partition(":")
    try:
        make: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{reference!r} names no processor: {error}") from error
    try:
        processor = make()
    except TypeError as error:
        raise ValueError(f"{reference!r} gives a processor without arguments: {error}") from error
    if not isinstance(processor, StatefulProcessor):
        raise ValueError(
            f"{reference!r} gives {type(processor).__name__}, which is no StatefulProcessor"
        )
    return make


def initialized(
    plan: ProcessorPlan,
    state: KeyedState | None = None,
    make: Callable[[], StatefulProcessor] | None = None,
) -> tuple[StatefulProcessor, Handle]:
    """A processor whose `init` was called, and its handle.

    Raises:
        ValueError: there is none, or `init` raises; the message says why.
    """
    handle = Handle(state or KeyedState(), plan.time, plan.schemas)
    processor = (make or load(plan.make))()
    try:
        processor.init(handle)
    except Exception as error:
        raise ValueError(f"init of {plan.make}: {reason_of(error)}") from error
    handle.initializing = False
    return processor, handle


# ---- time


def event_ms(column: Any) -> Any:
    """Event times in ms since 1970, rounded down, as Spark's watermark has them."""
    return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())


def ticked(
    plan: ProcessorPlan, rows: Batch, parts: Mapping[int, Batch], partitions: Iterable[int]
) -> dict[int, Batch]:
    """The parts of a batch, for every partition, each with a tick behind its records."""
    newest = {INTERFACE: TICK, CLOCK: int(ints(rows, CLOCK).max())}
    if plan.event_time is not None:
        newest[plan.event_time] = pc.max(rows.column(plan.event_time)).as_py()
    newest[SN[0]], newest[SN[2]] = int(ints(rows, SN[0])[-1]), 0
    offset = int(ints(rows, SN[1])[-1]) + 1
    batches = {}
    for number, partition in enumerate(partitions):
        newest[SN[1]] = offset + number
        columns = [pa.array([newest.get(field.name)], field.type) for field in rows.schema]
        tick = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        batches[partition] = pa.concat_batches([*filter(None, [parts.get(partition)]), tick])
    return batches


# ---- records in


def _column(plan: ProcessorPlan, records: Batch, name: str) -> Any:
    """A column as Spark hands it to Python: TIMESTAMP with its zone."""
    return records.column(name).cast(dict(plan.columns)[name])


def _in_utc(of: Any) -> Any:
    return pa.timestamp(of.unit, "UTC") if pa.types.is_timestamp(of) else of


def _rows_in(plan: ProcessorPlan, records: Batch) -> Callable[[Sequence[int]], Iterator[Any]]:
    """Rows, as `transformWithState` gives them."""
    names = [name for name, _ in plan.columns]
    row = Row(*names)
    columns = [_column(plan, records, name).to_pylist() for name in names]
    rows = list(zip(*columns, strict=True))
    return lambda places: (row(*rows[place]) for place in places)


def _frames_in(plan: ProcessorPlan, records: Batch) -> Callable[[Sequence[int]], Iterator[Any]]:
    """pandas frames, as `transformWithStateInPandas` gives them: made of rows, key by key."""
    import pandas as pd

    names = [name for name, _ in plan.columns]
    frame = records.select(names).to_pandas(
        date_as_object=True, coerce_temporal_nanoseconds=True, maps_as_pydicts="strict"
    )
    rows = list(frame.itertuples(index=False))

    def frames(places: Sequence[int]) -> Iterator[Any]:
        for at in range(0, len(places), FRAME_ROWS):
            yield pd.DataFrame([rows[place] for place in places[at : at + FRAME_ROWS]])

    return frames


# ---- rows out


def _of_rows(results: Sequence[Any], schema: Any) -> Any:
    """Rows by the names of their columns, as Spark takes them."""
    dicts = [row.asDict(True) for row in results]
    zoned = pa.schema([pa.field(f.name, _in_utc(f.type)) for f in schema])
    batch = pa.RecordBatch.from_pylist(dicts, schema=zoned)
    return _cast(batch.columns, schema)


def _of_frames(results: Sequence[Any], schema: Any) -> Any:
    """pandas frames: columns by name where all names are text, else by their places."""
    import pandas as pd

    batches = []
    for frame in results:
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"a pandas.DataFrame is due, and {type(frame).__name__} was put out")
        by_name = all(isinstance(name, str) for name in frame.columns)
        if by_name and (missing := [n for n in schema.names if n not in frame.columns]):
            raise ValueError(f"the frame that was put out has no column {', '.join(missing)}")
        series = [
            frame[f.name] if by_name else frame.iloc[:, place] for place, f in enumerate(schema)
        ]
        columns = [
            pa.Array.from_pandas(one, type=_in_utc(f.type))
            for one, f in zip(series, schema, strict=True)
        ]
        batches.append(_cast(columns, schema))
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return pa.concat_batches(batches)


def _cast(columns: Sequence[Any], schema: Any) -> Any:
    arrays = [column.cast(f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
