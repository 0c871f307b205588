"""Runs a job's units: all at once until told to stop, or in order until nothing is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.commit import Folders
from flux_runtime.spark.context import Context, LookUp, Running, file_name
from flux_runtime.spark.feed import Feed, Origin
from flux_runtime.spark.gate import Gate
from flux_runtime.spark.hosting import Hosting
from flux_runtime.spark.job import Job, Loop
from flux_runtime.spark.native import Native
from flux_runtime.spark.outputs import Output
from flux_runtime.spark.stateful import Stateful
from flux_runtime.spark.units import FluxUnit, NativeUnit, SealUnit, StatefulUnit, Unit

_POLL_S: Final = 0.1


class Runner:
    """A job that runs in this process.

    Args:
        job: what to run.
        context: what its units share; its outputs are those of `outputs`.
        trigger: interval between micro-batches; None: as fast as possible.
    """

    def __init__(self, job: Job, context: Context, *, trigger: str | None = None) -> None:
        self._trigger = trigger
        self._groups = groups_in_order(job)
        self._context = context
        self._running: dict[str, Running] = {}
        try:
            for unit in (unit for group in self._groups for unit in group):
                self._running[unit.name] = _run(unit, context)
        except BaseException:
            for running in self._running.values():
                running.stop()
            raise

    def run(self, stop: threading.Event, *, available_now: bool) -> Mapping[str, Any]:
        """Run until `stop` is set, or with `available_now` until there is nothing new.

        Returns:
            What happened, for the summary.

        Raises:
            BaseException: what made a unit fail; everything has been stopped by then.
        """
        began = time.monotonic()
        try:
            if available_now:
                self._run_what_there_is(stop)
            else:
                self._run_on(stop)
        finally:
            for running in self._running.values():
                running.stop()
        self._check(self._running.values())
        return {
            "stopped": stop.is_set(),
            "seconds": round(time.monotonic() - began, 3),
            "rows": {name: running.rows for name, running in self._running.items()},
        }

    def _run_on(self, stop: threading.Event) -> None:
        for running in self._running.values():
            self._start(running, available_now=False)
        while not stop.wait(_POLL_S):
            self._check(self._running.values())

    def _run_what_there_is(self, stop: threading.Event) -> None:
        for group in self._groups:
            members = [self._running[unit.name] for unit in group]
            while not stop.is_set():
                before = sum(running.rows for running in members)
                self._once(members, stop)
                cyclic = len(group) > 1 or group[0] in _fed_by(group[0])
                if not cyclic or sum(running.rows for running in members) == before:
                    break

    def _once(self, members: Sequence[Running], stop: threading.Event) -> None:
        for running in members:
            self._start(running, available_now=True)
        while any(tuple(running.active for running in members)) and not stop.wait(_POLL_S):
            self._check(members)
        self._check(members)
        if not stop.is_set():
            for running in members:
                running.finish()
        self._check(members)

    def _start(self, running: Running, *, available_now: bool) -> None:
        self._context.run.event("unit_started", running.name)
        running.start(available_now=available_now, trigger=self._trigger)

    def _check(self, members: Iterable[Running]) -> None:
        for running in members:
            running.active  # noqa: B018 - takes note of a query's failure
            if running.error is not None:
                self._context.run.event(
                    "unit_failed", running.name, error=str(running.error)[:2000]
                )
                raise running.error


def run_job(
    job: Job,
    *,
    session: SparkSession,
    state: Storage,
    run: RunFolder,
    look_up: LookUp | None,
    stop: threading.Event,
    available_now: bool,
    trigger: str | None = None,
    app: str = "job",
    zookeeper: str | None = None,
) -> Mapping[str, Any]:
    """Run a job in a session; see `Runner.run`."""
    assign_channels(job, state)
    context = Context(
        session=session,
        state=state,
        run=run,
        look_up=look_up,
        outputs=outputs(job, session),
        app=app,
        zookeeper=zookeeper,
        sites=site_count(job),
    )
    return Runner(job, context, trigger=trigger).run(stop, available_now=available_now)


def site_count(job: Job) -> int:
    """Task slots that the sites of a job hold for as long as it runs."""
    return sum(unit.sites for unit in job.units.values() if isinstance(unit, FluxUnit))


def groups_in_order(job: Job) -> list[list[Unit]]:
    """The units, those that feed each other in one group, every group after what feeds it."""
    index: dict[Unit, int] = {}
    low: dict[Unit, int] = {}
    stack: list[Unit] = []
    groups: list[list[Unit]] = []

    def visit(unit: Unit) -> None:  # Tarjan's algorithm; jobs have few units
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for source in _fed_by(unit):
            if source not in index:
                visit(source)
                low[unit] = min(low[unit], low[source])
            elif source in stack:
                low[unit] = min(low[unit], index[source])
        if low[unit] == index[unit]:
            start = stack.index(unit)
            groups.append(stack[start:])
            del stack[start:]

    for unit in job.units.values():
        if unit not in index:
            visit(unit)
    return groups


def _fed_by(unit: Unit) -> list[Unit]:
    return [source for _, feed in unit.inputs() for source in _units_behind(feed)]


def _units_behind(feed: Feed) -> list[Unit]:
    origin: Origin = feed.origin
    if isinstance(origin, Unit):
        return [origin]
    if isinstance(origin, Loop):
        return [unit for inner in origin.feeds for unit in _units_behind(inner)]
    return []


def _run(unit: Unit, context: Context) -> Running:
    match unit:
        case SealUnit():
            return Gate(unit, context)
        case NativeUnit():
            return Native(unit, context)
        case StatefulUnit():
            return Stateful(unit, context)
        case FluxUnit():
            return Hosting(unit, context)
        case _:
            raise TypeError(f"{unit.name} is no unit")


def assign_channels(job: Job, state: Storage) -> None:
    """Give each unit a channel whose output is read by other units, or goes to several sinks."""
    readers = [source for unit in job.units.values() for source in _fed_by(unit)]
    sunk = [feed.origin for sink in job.sinks.values() for feed in sink.feeds]
    for unit in job.units.values():
        reads_itself = isinstance(unit, StatefulUnit) and unit.monotone
        if reads_itself or unit in readers or sunk.count(unit) > 1:
            unit.channel = Folders(state.uri(f"channels/{file_name(unit.name)}"))


def outputs(job: Job, session: SparkSession) -> Mapping[str, Output]:
    """Where each unit's output goes."""
    return {
        unit.name: Output(
            unit=unit.name,
            schema=unit.schema(session),
            channel=unit.channel,
            sinks=tuple(
                (sink, feed)
                for sink in job.sinks.values()
                for feed in sink.feeds
                if feed.origin is unit
            ),
        )
        for unit in job.units.values()
    }
