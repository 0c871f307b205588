"""Runs a job's units: all at once until told to stop, or in order until nothing is new."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from flux_runtime.commits.fence import FencedStorage
from flux_runtime.commits.owner import Location, Ownership
from flux_runtime.observe.ending import Units, what_is_left
from flux_runtime.observe.gates import CHECKPOINT, UNITS
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.sealing.storage import Storage, local_path
from flux_runtime.secrets import redacted
from flux_runtime.spark.context import Context, LookUp, Running, file_name
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.kafka_source import FORMAT, began, begin, format_of
from flux_runtime.spark.ends.outputs import Output, Sink
from flux_runtime.spark.ends.retention import Retention, units_behind
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.flux.stage import Hosting
from flux_runtime.spark.job import Job
from flux_runtime.spark.native import Native
from flux_runtime.spark.sealed.gate import Gate
from flux_runtime.spark.stateful.unit import Stateful
from flux_runtime.spark.units import FluxUnit, NativeUnit, SealUnit, StatefulUnit, Unit
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.registration_sweep import RegistrationSweep

log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
CHANNELS: Final = "channels.json"
"""In the state folder: the columns of each channel that units read."""


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
                with _logged(running):
                    running.stop()
            raise

    def run(self, stop: threading.Event, *, available_now: bool) -> Mapping[str, Any]:
        """Run until `stop` is set, or with `available_now` until there is nothing new.

        Returns:
            What happened, for the summary.

        Raises:
            FencedError: a newer driver runs the job; everything has been stopped by then.
            BaseException: what made a unit fail; the same.
        """
        began = time.monotonic()
        with self._stopped_at_the_end():
            before = self._reported_so_far()
            if available_now:
                self._run_what_there_is(stop)
            else:
                self._run_on(stop)
        self._check(self._running.values())
        return {
            "stopped": stop.is_set(),
            "seconds": round(time.monotonic() - began, 3),
            "rows": {name: running.rows for name, running in self._running.items()},
            "left": what_is_left(
                before, self._context.run.values(), local_path(self._context.state.uri())
            ).to_json(),
        }

    def _reported_so_far(self) -> Units:
        """The units' metrics before anything is read: what earlier runs have counted."""
        for running in self._running.values():
            if isinstance(running, Gate):
                running.report()
        return self._context.run.values()

    @contextlib.contextmanager
    def _stopped_at_the_end(self) -> Iterator[None]:
        """Stop every unit, also where one cannot be stopped well; the first error counts."""
        try:
            yield
        except BaseException:
            for running in self._running.values():
                with _logged(running):
                    running.stop()
            raise
        with contextlib.ExitStack() as stack:
            for running in reversed(self._running.values()):
                stack.callback(running.stop)

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
        self._context.fence.watch()
        for running in members:
            running.active  # noqa: B018 - takes note of a query's failure
            if running.error is not None:
                self._context.fence.check_state()  # a failure may be the newer driver's doing
                self._context.run.event(
                    "unit_failed", running.name, error=redacted(str(running.error))[:2000]
                )
                raise running.error


@contextlib.contextmanager
def _logged(running: Running) -> Iterator[None]:
    """Note an error in the log and go on: another one is on its way."""
    try:
        yield
    except Exception:
        log.exception("%s could not be stopped well", running.name)


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
    zookeeper: Ensemble | None = None,
    ownership: Ownership | None = None,
    sweep: RegistrationSweep | None = None,
) -> Mapping[str, Any]:
    """Run a job in a session; see `Runner.run`.

    Args:
        ownership: claimed; None: it is claimed here.
    """
    job.check()
    assign_channels(job, state)
    if ownership is None:
        ownership = Ownership(app, state, locations(job))
        ownership.check()
        ownership.claim()
    fenced = FencedStorage(local_path(state.uri()), ownership.fence)
    check_channels(job, session, fenced)
    keep_starts(job, session, fenced)
    channels = owned_channels(job, ownership)
    retention = Retention(
        fenced,
        channels,
        {name: [unit.name for unit in readers] for name, readers in readers_of(job).items()},
        whole_channels=[unit.name for unit in job.units.values() if reads_itself(unit)],
    )
    context = Context(
        session=session,
        state=fenced,
        run=run,
        look_up=look_up,
        outputs=outputs(job, session, ownership, retention),
        fence=ownership.fence,
        retention=retention,
        sweep=sweep,
        app=app,
        zookeeper=zookeeper,
        sites=site_count(job),
    )
    return Runner(job, context, trigger=trigger).run(stop, available_now=available_now)


def check_channels(job: Job, session: SparkSession, state: Storage) -> None:
    """Compare the columns of channels that units read with those of the last start.

    Raises:
        ValueError: they are others, while commits with the old ones may not have been read.
    """
    now = {
        name: json.loads(job.units[name].schema(session).json())
        for name, readers in readers_of(job).items()
        if readers and job.units[name].channel is not None
    }
    known = state.read(CHANNELS)
    before = {} if known is None else json.loads(known)
    changed = [
        f"{name} put out {_columns(before[name])}, and puts out {_columns(of)} now"
        for name, of in now.items()
        if name in before and before[name] != of
    ]
    if changed:
        raise ValueError(
            f"other columns between units: {'; '.join(changed)}. Units that read them have not "
            "read all of the old ones, or keep them. Nothing was changed: go back to that plan, "
            "give the component another name, or start afresh with --fresh, which deletes the "
            "state and its results"
        )
    if before != now:
        state.write(CHANNELS, json.dumps(now, indent=1).encode())


def keep_starts(job: Job, session: SparkSession, state: Storage) -> None:
    """Keep where the job begins to read topics, unless it has begun without that."""
    for source in job.sources.values():
        if source.format != "kafka" or source.begins is not None or format_of(session) != FORMAT:
            continue
        readers = [unit for unit in job.units.values() if reads(unit, source)]
        have_begun = any(
            state.names(f"{UNITS}/{file_name(unit.name)}/{CHECKPOINT}") for unit in readers
        )
        if not have_begun or began(state, source.name) is not None:
            source.begins = begin(state, source.name, source.options)


def reads(unit: Unit, source: Source) -> bool:
    """Whether a unit reads a source itself."""
    return any(feed.origin is source for _, feed in unit.inputs())


def _columns(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{field['name']} {_type(field['type'])}" for field in schema["fields"])


def _type(of: Any) -> str:
    return of if isinstance(of, str) else str(of["type"])


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
    return [source for _, feed in unit.inputs() for source in units_behind(feed)]


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
    """Give each unit a channel whose output is read by other units, or goes to several sinks.

    Or to a sink that takes rows from a channel only, as they are the same each time.
    """
    read = readers_of(job)
    sinks = [(sink, feed.origin) for sink in job.sinks.values() for feed in sink.feeds]
    for unit in job.units.values():
        to = [sink for sink, origin in sinks if origin is unit]
        needed = any(sink.target.needs_channel for sink in to)
        if reads_itself(unit) or read[unit.name] or len(to) > 1 or needed:
            unit.channel = Folders(state.uri(f"channels/{file_name(unit.name)}"))


def readers_of(job: Job) -> Mapping[str, Sequence[Unit]]:
    """Unit -> the units that read its output."""
    units = job.units.values()
    return {unit.name: [other for other in units if unit in _fed_by(other)] for unit in units}


def reads_itself(unit: Unit) -> bool:
    """Whether a unit needs all that it has put out."""
    return isinstance(unit, StatefulUnit) and unit.monotone


def locations(job: Job) -> list[Location]:
    """Every folder of commits that a job writes; after `assign_channels`."""
    channels = [
        Location(
            name=f"channel {unit.name}",
            path=unit.channel.location,
            units=(unit.name,),
            outside=False,
        )
        for unit in job.units.values()
        if unit.channel is not None
    ]
    sinks = [
        Location(
            name=f"sink {sink.name}",
            path=sink.folders.location,
            units=tuple(feed.origin.name for feed in sink.feeds),
        )
        for sink in job.sinks.values()
        if sink.folders is not None
    ]
    return [*channels, *sinks]


def owned_channels(job: Job, ownership: Ownership) -> Mapping[str, Folders]:
    """Unit -> its channel, in the hands of this driver."""
    channels = {}
    for unit in job.units.values():
        if unit.channel is not None:
            owner = ownership.owner(unit.channel.location)
            unit.channel = replace(unit.channel, owner=owner)
            channels[unit.name] = unit.channel
    return channels


def outputs(
    job: Job, session: SparkSession, ownership: Ownership, retention: Retention
) -> Mapping[str, Output]:
    """Where each unit's output goes."""

    def owned(sink: Sink) -> Sink:
        units = [feed.origin.name for feed in sink.feeds]
        return replace(sink, target=sink.target.taken(session, ownership, units))

    owned_sinks = map(owned, job.sinks.values())
    sinks = [(sink, feed) for sink in owned_sinks for feed in sink.feeds]
    return {
        unit.name: Output(
            unit=unit.name,
            schema=unit.schema(session),
            channel=unit.channel,
            sinks=tuple((sink, feed) for sink, feed in sinks if feed.origin is unit),
            fence=ownership.fence,
            on_commit=partial(retention.committed, unit.name),
        )
        for unit in job.units.values()
    }
