"""Random programs for Spark's StatefulProcessor, on a site's operator and in Spark's own tester.

    python -m flux_lab.processors 0 300

Each run draws a program (operations on value, list and map state and on timers, some of which raise
when half of what they do is done), and has `Scripted` carry it out, a processor that puts out all
that it sees. The same records go to Spark's `TwsTester` one by one, and where one raises it is put
back. What is put out for each key and what is set aside have to be the same, in every batch; the
last one shows what the states hold. Then the program runs in the simulator, under deaths and moves.
"""

# ruff: noqa: N802, N803  (the names are Spark's)

from __future__ import annotations

import argparse
import copy
import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from flux_lab.plans import Plan, plan_of
from flux_lab.reference import reference
from flux_lab.sweep import RunError, Totals, run
from flux_lab.world import World
from flux_runtime.operators.components import Component, Components
from flux_runtime.operators.processor import ProcessorPlan
from flux_runtime.operators.processor_handle import TimeMode
from flux_runtime.operators.query import CLOCK, tagged
from flux_runtime.operators.rows import Batch, number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape

COLUMNS: Final = (
    ("key", pa.int64()),
    ("op", pa.string()),
    ("n", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
)
OUTPUT: Final = (("key", pa.int64()), ("op", pa.string()), ("seen", pa.string()))
NUMBER: Final = StructType().add("n", LongType())
NESTED: Final = (
    StructType()
    .add("name", StringType())
    .add("several", ArrayType(LongType()))
    .add("by_name", MapType(StringType(), LongType()))
    .add("inner", NUMBER)
)
BALANCE_MIN: Final = 0
"""`withdraw` raises below it, when the list has been appended to already."""
OPERATIONS: Final = (
    "add",
    "withdraw",
    "nest",
    "clear",
    "append",
    "append two",
    "put",
    "clear list",
    "set",
    "remove",
    "clear map",
    "raise",
    "register",
    "delete timer",
)
WITHOUT_TIME: Final = OPERATIONS[:-2]


class Scripted(StatefulProcessor):
    """Carries out the operation of each record, and puts out all that it sees then."""

    time = TimeMode.NONE

    def init(self, handle: StatefulProcessorHandle) -> None:
        """A variable of each kind, and one with nested values."""
        self.handle = handle
        self.balance = handle.getValueState("balance", NUMBER)
        self.nested = handle.getValueState("nested", NESTED)
        self.history = handle.getListState("history", NUMBER)
        self.by_name = handle.getMapState("by_name", StructType().add("k", StringType()), NUMBER)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,
    ) -> Iterator[Any]:
        """One row for each record."""
        for row in rows:
            self.perform(row.op, row.n, timerValues)
            yield Row(key=key[0], op=row.op, seen=self.seen(timerValues))

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Any]:
        """Counts it; every third raises when it has been counted, and some register another."""
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        self.history.appendValue((expiry,))
        if expiry % 3 == 0:
            raise ValueError(f"no timer at {expiry}")
        if expiry % 5 == 0:
            self.handle.registerTimer(self.base(timerValues) + 7)
        yield Row(key=key[0], op=f"timer {expiry}", seen=self.seen(timerValues))

    def perform(self, op: str, n: int, times: TimerValues) -> None:
        """One operation."""
        balance = self.balance.get()
        held = balance[0] if balance is not None else 0
        match op:
            case "add":
                self.balance.update((held + n,))
            case "withdraw":
                self.history.appendValue((-n,))
                if held - n < BALANCE_MIN:
                    raise ValueError(f"{self!r} holds {held}, and {n} are withdrawn")
                self.balance.update((held - n,))
            case "nest":
                self.nested.update((f"n{n}", [n, n + 1], {"n": n}, Row(n=n)))
            case "clear":
                self.balance.clear()
                self.nested.clear()
            case "append":
                self.history.appendValue((n,))
            case "append two":
                self.history.appendList([(n,), (n + 1,)])
            case "put":
                self.history.put([(n,), (-n,)])
            case "clear list":
                self.history.clear()
            case "set":
                self.by_name.updateValue((f"k{n % 4}",), (n,))
            case "remove":
                self.by_name.removeKey((f"k{n % 4}",))
            case "clear map":
                self.by_name.clear()
            case "raise":
                self.by_name.updateValue(("raised",), (n,))
                self.balance.clear()
                raise ValueError(f"record {n}")
            case "register":
                self.handle.registerTimer(self.base(times) + n)
            case "delete timer":
                for expiry in list(self.handle.listTimers())[:1]:
                    self.handle.deleteTimer(expiry)

    def entries(self) -> Any:
        """The map's entries, and one of them."""
        one = self.by_name.getValue(("k1",))
        return list(self.by_name.iterator()), one and tuple(one)

    def base(self, times: TimerValues) -> int:
        """Where timers count from."""
        match self.time:
            case TimeMode.EVENT:
                return times.getCurrentWatermarkInMs()
            case TimeMode.PROCESSING:
                return times.getCurrentProcessingTimeInMs()
            case TimeMode.NONE:
                return 0

    def seen(self, times: TimerValues) -> str:
        """All that the state has of the key."""
        timers = [] if self.time is TimeMode.NONE else list(self.handle.listTimers())
        return repr(
            (
                self.balance.exists() and self.balance.get(),
                self.nested.get(),
                list(self.history.get()),
                self.entries(),
                [self.by_name.containsKey((f"k{i}",)) for i in range(4)],
                timers,
                self.base(times),
            )
        )


class ByEventTime(Scripted):
    """With timers of event time."""

    time = TimeMode.EVENT


class ByProcessingTime(Scripted):
    """With timers of processing time."""

    time = TimeMode.PROCESSING


class Frames(Scripted):
    """The same for pandas frames."""

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,
    ) -> Iterator[Any]:
        """A frame for each frame."""
        for frame in rows:
            results = Scripted.handleInputRows(self, key, frame.itertuples(), timerValues)
            yield pd.DataFrame([row.asDict() for row in results])

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Any]:
        """A frame for each timer."""
        for row in Scripted.handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


class FramesByEventTime(Frames):
    """Frames, with timers of event time."""

    time = TimeMode.EVENT


class Calm(Scripted):
    """A program that runs alike in Spark: no timer raises, and a map's entries are sorted."""

    def entries(self) -> Any:
        """Spark has them in the order of their bytes, a site in the order in which they came."""
        return sorted(self.by_name.iterator()), self.by_name.getValue(("k1",))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        """Counts it, and may register another."""
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        self.history.appendValue((expiry,))
        if expiry % 5 == 0:
            self.handle.registerTimer(self.base(timerValues) + 7)
        yield Row(key=key[0], op=f"timer {expiry}", seen=self.seen(timerValues))


class CalmByEventTime(Calm):
    """With timers of event time."""

    time = TimeMode.EVENT


class CalmFrames(Calm, Frames):
    """The same for pandas frames."""


KINDS: Final[Mapping[str, type[Scripted]]] = {
    kind.__name__: kind
    for kind in (Scripted, ByEventTime, ByProcessingTime, Frames, FramesByEventTime)
}
CALM: Final[Mapping[str, type[Scripted]]] = {
    kind.__name__: kind for kind in (Calm, CalmByEventTime, CalmFrames)
}
CALM_OPERATIONS: Final = tuple(op for op in OPERATIONS if op not in ("withdraw", "raise"))
DELAY_MS: Final = 20


def component(kind: str, buckets: int) -> Component:
    """A component that is one of these processors."""
    kind_class = {**KINDS, **CALM}[kind]
    time_mode = kind_class.time
    plan = ProcessorPlan(
        make=f"{__name__}:{kind}",
        key=("key",),
        columns=COLUMNS,
        output=OUTPUT,
        frames=issubclass(kind_class, Frames),
        time=time_mode,
        event_time="at" if time_mode is TimeMode.EVENT else None,
        delay_ms=DELAY_MS,
    )
    return Component(
        name="Scripted",
        buckets=buckets,
        gate=("key",),
        processor=plan,
        interfaces=("records",),
        output=OUTPUT,
    )


def components(kind: str, widths: Sequence[int]) -> Components:
    """A processor; of two widths one is of what passes its rows on or, without a time, its records.

    What is told the time comes first in a stage.
    """
    width, *others = widths
    if not others:
        return Components(stages=(component(kind, width),))
    if KINDS[kind].time is not TimeMode.NONE:
        return Components(stages=(component(kind, width), passing_on(OUTPUT, *others)))
    records = tuple((name, _without_zone(of)) for name, of in COLUMNS)
    return Components(stages=(passing_on(records, width), component(kind, *others)))


def passing_on(columns: Sequence[tuple[str, Any]], buckets: int) -> Component:
    """A component that passes its records on, in order, which SQL does not keep within a batch."""
    return Component(
        name="Pass",
        buckets=buckets,
        gate=None,
        operator=f"{__name__}:Passing",
        interfaces=("records",),
        output=tuple(columns),
    )


class Passing:
    """An operator that puts out what it gets."""

    def process(self, batch: Batch) -> Batch:
        """The same."""
        return batch

    def get_state(self) -> None:
        """There is none."""

    def install_state(self, state: None) -> None:
        """There is none."""

    def state_size(self) -> int:
        """There is none."""
        return 0


def _without_zone(of: Any) -> Any:
    return pa.timestamp(of.unit) if pa.types.is_timestamp(of) else of


def chain() -> Dataflow:
    """The dataflow that the tests' site processes load by name."""
    return components("FramesByEventTime", (2, 2))()


def drawn_input(rng: random.Random, kind: str, batches: int) -> list[Batch]:
    """Batches of records with operations; the last one has all keys put out what they have."""
    keys = rng.choice((1, 3, 6))
    kind_class = {**KINDS, **CALM}[kind]
    operations = [
        op
        for op in (CALM_OPERATIONS if kind in CALM else OPERATIONS)
        if kind_class.time is not TimeMode.NONE or op in WITHOUT_TIME
    ]
    source, clock = [], 1000
    for n in range(batches + 1):
        clock += rng.choice((0, 1, 10, 40))
        last = n == batches
        rows = keys if last else rng.choice((1, 2, 5, 9))
        table = pa.table(
            [
                pa.array([i if last else rng.randrange(keys) for i in range(rows)]),
                pa.array(["look" if last else rng.choice(operations) for _ in range(rows)]),
                pa.array([rng.randrange(1 if kind in CALM else -2, 30) for _ in range(rows)]),
                pa.array(
                    [
                        (clock + (60 if last else rng.randrange(-60, 20))) * 1000
                        + rng.choice((0, 0, 1, 999))
                        for _ in range(rows)
                    ]
                ).cast(pa.timestamp("us")),
                pa.array([clock] * rows),
            ],
            [*(name for name, _ in COLUMNS), CLOCK],
        )
        source.append(number(tagged(table, 0), n))
    return source


@dataclass
class Outcome:
    """The outcome of a program.

    Attributes:
        rows: (batch, key) -> (operation, what is seen), in order.
        refused: (batch, key, operation or timer, n or expiry) -> how often.
    """

    rows: dict[tuple[int, int], list[tuple[str, str]]] = field(default_factory=dict)
    refused: Counter[tuple[int, int, str, int]] = field(default_factory=Counter)


class Tester:
    """Spark's own tester, whose state is as before where a record or a timer raises."""

    def __init__(self, kind: str) -> None:
        self.kind = KINDS[kind]
        modes = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}
        self.tester = TwsTester(
            self.kind(),
            timeMode=modes[self.kind.time.value],
            eventTimeExtractor=lambda row: pd.Timestamp(row["at"]).value / 1e6,
        )
        self.outcome = Outcome()
        self.newest = 0.0

    def batch(self, number: int, rows: Sequence[dict[str, Any]]) -> None:
        """A batch, record by record, then its timers."""
        tester, event = self.tester, self.kind.time is TimeMode.EVENT
        if self.kind.time is TimeMode.PROCESSING:
            tester._currentProcessingTimeMs = rows[0][CLOCK]
        for row in sorted(rows, key=lambda row: list_of(rows).index(row["key"])):
            values = {name: row[name] for name, _ in COLUMNS}
            self._record(number, row["key"], values)
        if event:
            newest = max(pd.Timestamp(row["at"]).value // 10**6 for row in rows)
            tester._currentWatermarkMs = max(tester._currentWatermarkMs, newest - DELAY_MS)
            tester.handle.setWatermark(tester._currentWatermarkMs)
        until = tester._currentWatermarkMs if event else tester._currentProcessingTimeMs
        if self.kind.time is not TimeMode.NONE:
            self._timers(number, until)

    def _record(self, number: int, key: int, values: dict[str, Any]) -> None:
        late = self.kind.time is TimeMode.EVENT and (
            pd.Timestamp(values["at"]).value / 1e6 <= self.tester._currentWatermarkMs
        )
        before = self._state()
        try:
            if issubclass(self.kind, Frames):
                results: Any = self.tester.testInPandas(key, pd.DataFrame([values]))
                rows = list(results.itertuples())
            else:
                rows = self.tester.test(key, [Row(**values)])
        except Exception:
            self._restore(before)
            self.outcome.refused[number, key, values["op"], values["n"]] += 1
            return
        if late:
            self.outcome.refused[number, key, values["op"], values["n"]] += 1
        self._put(number, key, rows)

    def _timers(self, number: int, until: int) -> None:
        tester = self.tester
        for key in list(tester.handle._timers.getAllKeysWithTimers()):
            due = [at for at in tester.handle._timers.listTimers(key) if at <= until]
            for expiry in due:
                tester.handle.setGroupingKey(key)
                before = self._state()
                try:
                    results = tester.processor.handleExpiredTimer(
                        (key,), tester._getTimerValues(), ExpiredTimerInfo(expiry)
                    )
                    rows = [
                        row
                        for one in results
                        for row in (one.itertuples() if isinstance(one, pd.DataFrame) else [one])
                    ]
                    self._put(number, key, rows)
                except ValueError:
                    self._restore(before)
                    self.outcome.refused[number, key, "timer", expiry] += 1
                tester.handle._timers.deleteTimer(key, expiry)

    def _put(self, number: int, key: int, rows: Sequence[Any]) -> None:
        if rows:
            put = self.outcome.rows.setdefault((number, key), [])
            put += [(row.op, row.seen) for row in rows]

    def _state(self) -> Any:
        handle = self.tester.handle
        variables: list[Any] = [*handle.value_states.values(), *handle.list_states.values()]
        states = [variable.state for variable in (*variables, *handle.map_states.values())]
        return copy.deepcopy((states, handle._timers._key_to_timers))

    def _restore(self, saved: Any) -> None:
        handle = self.tester.handle
        states, timers = saved
        variables: list[Any] = [*handle.value_states.values(), *handle.list_states.values()]
        for variable, state in zip((*variables, *handle.map_states.values()), states, strict=True):
            variable.state = state
        handle._timers._key_to_timers = timers


def list_of(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The keys of some records, in the order in which they first come."""
    return list(dict.fromkeys(row["key"] for row in rows))


def expected(kind: str, source: Sequence[Batch]) -> Outcome:
    """As Spark's tester has it."""
    tester = Tester(kind)
    for n, batch in enumerate(source):
        tester.batch(n, batch.to_pylist())
    return tester.outcome


def observation(flow: Dataflow, source: Sequence[Batch]) -> Outcome:
    """As a dataflow without failures has it."""
    seen = Outcome()
    for n, rows in reference(flow, source).output:
        for letter in letters_of(rows):
            record, why = letter["record"], letter["why"]
            op, at = record.get("op", "timer"), record.get("n")
            if op == "timer":
                at = int(why.split(" ms: ")[0].rpartition(" ")[2])
            seen.refused[n, record["key"], op, at] += 1
        for row in results_of(rows).to_pylist():
            seen.rows.setdefault((n, row["key"]), []).append((row["op"], row["seen"]))
    return seen


@dataclass(frozen=True, kw_only=True)
class Programs(Plan):
    """A run of a random program."""

    WORKLOAD: ClassVar[str] = "processors"

    kind: str
    dataflow: Dataflow = field(repr=False)
    source: tuple[Batch, ...] = field(repr=False)

    @classmethod
    def of_seed(cls, seed: int) -> Programs:
        """As the sweep draws it, with a processor."""
        rng = random.Random(seed)
        plan, kind = plan_of(rng), rng.choice(sorted(KINDS))
        dataflow = components(kind, plan.shape.widths[:2])()
        shape: Shape = dataclasses.replace(
            plan.shape, widths=dataflow.shape.widths, ordered_egress=True
        )
        source = tuple(drawn_input(rng, kind, plan.batches))
        drawn = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)}
        drawn |= {"shape": shape, "batches": len(source)}
        return cls(
            **drawn, kind=kind, dataflow=dataclasses.replace(dataflow, shape=shape), source=source
        )

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        return self.made_of(self.dataflow, self.source, stories=stories, states=False)

    def check(self) -> Outcome:
        """Compare a run without failures with Spark's tester.

        Raises:
            AssertionError: they differ.
        """
        seen, due = observation(self.dataflow, self.source), expected(self.kind, self.source)
        for at in sorted({*seen.rows, *due.rows}):
            if seen.rows.get(at) != due.rows.get(at):
                raise AssertionError(
                    f"{self.kind}, batch {at[0]}, key {at[1]}: {seen.rows.get(at)} "
                    f"instead of {due.rows.get(at)}"
                )
        if seen.refused != due.refused:
            raise AssertionError(f"{self.kind}: set aside {seen.refused} instead of {due.refused}")
        return due


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.processors")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed after the last")
    arguments = parser.parse_args(argv)
    runs, rows, refused, failed = Totals(), 0, 0, 0
    began, busy = time.perf_counter(), time.process_time()
    for seed in range(arguments.first, arguments.last):
        plan = Programs.of_seed(seed)
        try:
            due = plan.check()
            rows += sum(map(len, due.rows.values()))
            refused += due.refused.total()
            runs.add(run(seed, plan=plan))
        except (RunError, AssertionError) as failure:
            failed += 1
            print(f"seed {seed}: {str(failure).partition(chr(10))[0]}")
    print(f"{rows} rows as in Spark's tester, {refused} set aside; {failed} runs failed")
    print(runs.text(time.perf_counter() - began, time.process_time() - busy))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
