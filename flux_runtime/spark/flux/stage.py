"""A Flux stage that runs (`Job.flux`): inputs, one order, sites, and what they put out.

    inputs -- staged --> places in ZooKeeper --> sites (partition pairs) --> commits
              exactly once      one order            state is rebuilt       exactly once

Every input is a streaming query whose batches get places in one order (OR-1 to OR-5), together with
all other inputs. The order is kept, with its contents, up to where the operators' states are
(`kept`). Sites that begin anew, with the job, begin with these states and are handed the order
after them; they compute the same results then, in batches with the same numbers, and what has been
committed is passed over. Where a partition loses its last copy while the job runs, the same is done
with new sites, so that nothing is lost then either.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark import InheritableThread

from flux_runtime.operators.components import Components
from flux_runtime.operators.query import CLOCK, INTERFACE, tagged
from flux_runtime.site.client import DataLost
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.reader import Reader
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context, file_name
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.flux.components import arrow_columns, as_columns
from flux_runtime.spark.flux.order_checkpoint import Kept, KeptStates, NotKept, local_folder
from flux_runtime.spark.flux.ordered_channel import Channel, ChannelEgress
from flux_runtime.spark.flux.ordered_input import OrderedInput
from flux_runtime.spark.flux.site_results import Results
from flux_runtime.spark.flux.sites import PATIENCE_S, Sites, SitesFailed
from flux_runtime.spark.flux.warm_up import WarmUp
from flux_runtime.spark.units import FluxUnit
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import app_path, children, delete_tree
from flux_runtime.zookeeper.registry import ROOT
from flux_runtime.zookeeper.tail import Trimmed

READER: Final = "sites"
STOP_S: Final = 60.0
LOOK_S: Final = 0.2
LOSSES_MAX: Final = 3
"""So many losses with nothing committed in between end the job: something ends its sites again."""
REMEDY: Final = (
    "the job runs on, and the order and the time to start again grow; give the sites room in, and "
    "the right to write, the state folder, which has to be on storage that all of them share"
)


class Hosting:
    """A `FluxUnit` that runs."""

    def __init__(self, unit: FluxUnit, context: Context) -> None:
        if context.zookeeper is None:
            raise ValueError(f"{unit.name}: a Flux stage needs ZooKeeper")
        self.unit = unit
        self.name = unit.name
        self.context = context
        self.components: Components = unit.components(context.session)
        self._state = context.unit_state(unit)
        self._schemas = unit.stages(context.session)[0][0]
        clock = ((CLOCK, pa.int64()),) if unit.timed else ()
        self._columns = [(*arrow_columns(schema), *clock) for schema in self._schemas.values()]
        self._channel = Channel(
            context.zookeeper, context.app, self._state.at("order"), scope=unit.name
        )
        self._inputs = {
            True: self._ordered_inputs(unit.writes),
            False: self._ordered_inputs(unit.reads),
        }
        self._kept = KeptStates(self._state, self.components.pairs(), every=unit.keep_every)
        self._results = Results(unit, context, on_commit=self._report)
        self._gathered: Kept | None = None
        self._waited_s = 0.0
        self._said = ""
        self._places = self._kept.now.batches
        self._settled = 0
        self._available_now = False
        self._finished = False
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._over = threading.Event()
        """The present sites are of no use any more."""
        self._sites: Sites | None = None
        self._threads: list[threading.Thread] = []
        self._order: ChannelEgress | None = None

    # ---- as a unit that runs

    def start(self, *, available_now: bool, trigger: str | None) -> None:
        """See `Running`."""
        self._available_now = available_now
        self._finished = False
        if available_now:
            self._thread(self._run_what_there_is)
        else:
            for part in self._all():
                part.query.start(available_now=False, trigger=trigger)
        if self._order is None:
            self._order = self._channel.egress(READER)
            self._thread(self._host)
            self._thread(self._warm_up)

    @property
    def active(self) -> bool:
        """See `Running`."""
        if self._available_now:
            return not self._finished and self.error is None
        return all(tuple(part.query.active for part in self._all()))

    @property
    def error(self) -> BaseException | None:
        """See `Running`."""
        of_queries = [part.query.error for part in self._all() if part.query.error]
        of_sites = self._sites.error if self._sites is not None else None
        return next(iter(of_queries), None) or of_sites or self._error

    @property
    def rows(self) -> int:
        """See `Running`."""
        return sum(part.query.rows for part in self._all())

    @property
    def done(self) -> int:
        """Batches of the order whose results have been committed."""
        return self._results.done

    def finish(self) -> None:
        """See `Running`."""
        self._report()

    def stop(self) -> None:
        """See `Running`."""
        with contextlib.ExitStack() as last_first:
            last_first.callback(self._report)
            if self._order is not None:
                last_first.callback(self._order.close)
            last_first.callback(self._end_sites)
            for part in self._all():
                last_first.callback(part.close)

    def _end_sites(self) -> None:
        self._stopping.set()
        self._over.set()
        end = time.monotonic() + STOP_S
        for thread in self._threads:  # a commit that is being written is finished
            thread.join(max(0.0, end - time.monotonic()))
        if self._sites is not None:
            self._sites.stop()

    def _ordered_inputs(self, inputs: Any) -> list[OrderedInput]:
        """One for each feed of these interfaces."""
        result = []
        session = self.context.session
        letters = self.context.dead_letters(self.unit)
        for interface, feeds in inputs.items():
            for number, feed in enumerate(feeds, 1):
                name = f"{self.name}.{interface}.{number}"
                result.append(
                    OrderedInput(
                        name,
                        feed,
                        schema=self._schemas[interface],
                        watch=Watch(session, letters, name),
                        folder=self._state.at(f"inputs/{file_name(name)}"),
                        channel=self._channel,
                        interface=list(self._schemas).index(interface),
                        timed=self.unit.timed,
                    )
                )
        return result

    def _all(self) -> list[OrderedInput]:
        return [*self._inputs[True], *self._inputs[False]]

    def _thread(self, run: Callable[[], None]) -> threading.Thread:
        """Run in a thread of its own; what it fails of is the unit's error."""

        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                if not self._stopping.is_set():
                    self._failed(error)

        thread = InheritableThread(target=guarded, name=f"{self.name} {run.__name__}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DataLost):
            error = SitesFailed(self._of_loss(error))
        self._error = self._error or error

    def _of_loss(self, loss: DataLost) -> str:
        """The meaning of a lost partition to whoever runs the job, and what to do."""
        reason = self._sites.why_a_site_ended() if self._sites is not None else ""
        stages = [stage.name for stage in self.components.stages]
        of = f"{stages[loss.stage]}" if loss.stage < len(stages) else "the results"
        return (
            f"{self.name}: partition {loss.part} of {of} has lost its last copy ({loss.why}"
            f"{reason and f'; {reason}'}), {LOSSES_MAX} times and with nothing committed in between"
            ": a record or too little memory ends its sites whenever they come to it. The results "
            f"of the first {self.done} batches are committed, and the input after batch "
            f"{self._kept.now.batches} is recorded. If the reason is gone, start the job again, "
            "without --fresh: it goes on from there, and loses and repeats nothing. Else change "
            "the component or the deployment, and start with --fresh, which reads the sources from "
            "their beginning"
        )

    # ---- inputs

    def _run_what_there_is(self) -> None:
        """Until all that is there has been read, ordered, and its results committed.

        What is written comes before what asks, so that requests that are there already are answered
        from all of it.
        """
        for inputs in self._inputs.values():
            for part in inputs:
                part.query.start(available_now=True)
            while any(tuple(part.query.active for part in inputs)):
                if self._stopping.wait(LOOK_S):
                    return
        end = self._ordered()
        while self.done < end or (self._sites is not None and self._settled < end):
            if self._stopping.wait(LOOK_S):
                return
        self._finished = True

    def _ordered(self) -> int:
        """Batches that have their place by now."""
        while True:
            channel = self._channel.egress(READER)
            try:
                states = self._kept.now
                return states.batches + channel.batches(states.place)
            except Trimmed:  # meanwhile
                continue
            finally:
                channel.close()

    # ---- sites

    def _warm_up(self) -> None:
        """Make executors ready that come in the place of lost ones."""
        WarmUp(
            self.context.session.sparkContext,
            frames=lambda: [part.last for part in self._all() if part.last is not None],
            on_event=self._event,
            stopping=self._stopping,
        ).run()

    def _host(self) -> None:
        """Start sites once something is new, and others where a partition has no copy left."""
        assert self._order is not None
        states = self._kept.now
        while states.batches + self._order.batches(
            states.place
        ) <= self.done and not self._stopping.wait(LOOK_S):
            pass
        losses = 0
        while True:
            self._over, done = threading.Event(), self.done
            if self._stopping.is_set():
                return
            try:
                self._run_on_sites(self._over)
                return
            except DataLost as loss:
                losses = losses + 1 if self.done == done else 1
                if losses >= LOSSES_MAX or self._stopping.is_set():
                    raise
                self._begin_again(loss)

    def _run_on_sites(self, over: threading.Event) -> None:
        """Hand the order to new sites, from what is kept on, and commit what they put out.

        Raises:
            DataLost: a partition has no copy left.
        """
        self._places = self._settled = self._kept.now.batches
        self._gathered = None
        sites = self._sites = self._made_sites(over)
        sites.start()
        if not sites.there():
            return
        losses: list[DataLost] = []

        def commit_results() -> None:
            try:
                with Reader(sites.config, patience_s=PATIENCE_S) as reader:
                    self._results.commit_from(reader, stopping=over)
            except DataLost as loss:
                losses.append(loss)

        results = self._thread(commit_results)
        try:
            with Feeder(sites.config, READER, patience_s=PATIENCE_S) as feeder:
                self._feed(feeder, over, losses)
        finally:
            over.set()
            results.join()

    def _feed(self, feeder: Feeder, over: threading.Event, losses: list[DataLost]) -> None:
        """The order from what is kept on, until these sites are of no use any more."""
        assert self._order is not None
        at, size = self._kept.now.place, 0
        while not over.is_set():
            if losses:
                raise losses[0]
            at, entries = self._order.read(at, timeout_s=LOOK_S)
            self._places += len(entries)
            for place, rows in entries:
                if over.is_set():
                    return
                feeder.offer(place, 0, self._entered(rows))
                size += rows.nbytes
            due = self._gathered is None and self._kept.due(self._places, size)
            if due and self._kept.ready(self._places, feeder.keep):
                self._gather(feeder, at)
                size = 0
            self._note_gathered()
            if self._gathered is None and not due:
                self._settled = self._places

    def _begin_again(self, loss: DataLost) -> None:
        """Replaces sites that have ended: what they held is gone, their input is recorded."""
        assert self._sites is not None
        why = self._sites.why_a_site_ended()
        self._sites.stop()
        self._event(
            "sites_begin_again",
            stage=loss.stage,
            part=loss.part,
            why=f"{loss.why}{why and f'; {why}'}",
            batches=self._kept.now.batches,
            committed=self.done,
        )

    def _gather(self, feeder: Feeder, place: int) -> None:
        """Have the sites write their states after all that was fed; nothing is fed meanwhile."""
        began, batches = time.monotonic(), self._places
        try:
            self._gathered = self._kept.gather(
                batches,
                place,
                ask=feeder.keep,
                committed=lambda: self.done >= batches,
                stopping=self._over,
            )
        except NotKept as error:
            why = str(error)
            if why != self._said:  # what stands in the way is said once, until it changes
                self._said = why
                took = round(time.monotonic() - began, 3)
                self._event("state_not_kept", batches=batches, seconds=took, why=why, remedy=REMEDY)
        self._waited_s = time.monotonic() - began

    def _note_gathered(self) -> None:
        """Once the results before the states are committed too, trim the order (OR-5)."""
        assert self._order is not None
        states = self._gathered
        if states is None or self.done < states.batches:
            return
        self._kept.note(states)
        faults.point("state-kept")
        self._order.commit(states.place)
        self._gathered, self._said = None, ""
        took = round(self._waited_s, 3)
        self._event("state_kept", batches=states.batches, bytes=states.size, seconds=took)

    def _made_sites(self, over: threading.Event) -> Sites:
        zookeeper = self.context.zookeeper
        assert zookeeper is not None
        run = uuid.uuid4().hex[:12]
        for old in self._state.names("sites"):
            self._state.delete(f"sites/{old}")
        folder = self._kept.begin()
        if folder is not None:
            self._event("state_taken_up", batches=self._kept.now.batches)
        return Sites(
            self.context.session.sparkContext,
            name=self.name,
            components=replace(self.components, begin_with=folder),
            first=self._kept.now.batches,
            count=self.unit.sites,
            of_job=self.context.sites,
            balance=self.unit.balance,
            memory_bytes=self.unit.memory_bytes,
            app=membership(self.context.app, f"{file_name(self.name)} {run}"),
            zookeeper=zookeeper,
            folder=local_folder(self._state, f"sites/{run}"),
            run_folder=self.context.run.path,
            on_event=self._event,
            stopping=over,
        )

    def _entered(self, rows: Any) -> Any:
        """A batch as the sites take it: its interface's number, then its columns, in order."""
        number = rows.column(INTERFACE)[0].as_py()
        columns = self._columns[number]
        table = as_columns(rows, columns)
        names = [name for name, _ in columns]
        keys = [(name, "ascending") for name in self.unit.order_by if name in names]
        if keys:
            table = table.sort_by(keys)
        return tagged(table, number)

    # ---- reports

    def _event(self, kind: str, **fields: Any) -> None:
        self.context.run.event(kind, self.name, **fields)

    def _report(self) -> None:
        queries = [part.query for part in self._all()]
        self.context.run.metrics(
            self.name,
            batches=sum(query.batches for query in queries),
            rows_in=self.rows,
            rows_out=self._results.rows_out,
            order_places=self._places,
            order_lag=max(0, self._places - self.done),
            rows_per_s=round(sum(query.rows_per_s for query in queries), 1),
            dead_letters=self._results.dead_letters
            + sum(part.dead_letters for part in self._all()),
            dropped_by_watermark=self._results.late,
            **self.context.outputs[self.name].metrics(),
        )


def membership(app: str, stage: str) -> str:
    """The application in ZooKeeper that the sites of one run meet under."""
    return f"{app} flux {stage}"


def forget_memberships(client: Client, app: str) -> None:
    """Delete what the sites of earlier runs have left in ZooKeeper."""
    ours = app_path(membership(app, "")).rpartition("/")[2]
    for name in children(client, ROOT):
        if name.startswith(ours):
            delete_tree(client, f"{ROOT}/{name}")
