"""A whole job in one simulation: controllers, sites and clients as they run in processes.

What runs is the product: `run_controller`'s coroutine, `Worker`, `Feeder`, `Reader`, with all that
is beneath them, from the election to the bytes of a frame. Replaced are the operating system
(`kernel`), asyncio's loop, sockets, kazoo and the journal's disk. Whoever ends is started again, as
Spark does it with its tasks.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any, Final, Literal, cast
from unittest.mock import patch

from flux_lab.checks import ViolationError, contents
from flux_lab.example import events, running_example
from flux_lab.papers import host as papers_host
from flux_lab.papers.hosting import PapersHosting
from flux_lab.papers.protocol.channels import Multiplexer
from flux_lab.papers.protocol.messages import Data, Message
from flux_lab.reference import reference
from flux_lab.shell import kernel as simulated
from flux_lab.shell.disk import Disk, Folder
from flux_lab.shell.kazoo_client import SimulatedKazoo
from flux_lab.shell.kernel import Kernel, Process, Thread
from flux_lab.shell.loop import SimulatedLoop, run
from flux_lab.shell.network import Network
from flux_lab.shell.zookeeper import Ensemble
from flux_runtime.operators import packing, processor_state
from flux_runtime.operators.rows import SN
from flux_runtime.operators.state_file import Restored, file_of, size_of, write_state
from flux_runtime.protocol.balancing import PlannedMove, SiteStatistics
from flux_runtime.protocol.dataflow import Dataflow, Operator
from flux_runtime.protocol.vocabulary import Node, Pair, Shape
from flux_runtime.protocol.worth import Worth
from flux_runtime.resume.flow import Units
from flux_runtime.resume.replica import Replica
from flux_runtime.site import (
    balance,
    controller,
    journal,
    keeping,
    leader_state,
    ledger,
    moving,
    record,
    resume_host,
    statistics,
)
from flux_runtime.site.client import Client, DataLost, Unreachable
from flux_runtime.site.config import Balance, ControllerConfig, Fenced, SiteConfig, SpillTo
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.finding import finder
from flux_runtime.site.hosting import Hosting
from flux_runtime.site.key import JobKey
from flux_runtime.site.leader import Leader
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.reader import Reader
from flux_runtime.site.steps import Step
from flux_runtime.site.worker import Worker
from flux_runtime.zookeeper import client, election, membership, tail, watcher
from flux_runtime.zookeeper.errors import ZooKeeperProblem

SESSION_S: Final = 2.0
PATIENCE_S: Final = 12.0
LATE_S: Final = 5.0
"""In which sites come that were not there at the beginning."""
MEMORY_BYTES: Final = 1 << 28
"""That every process is said to have."""
KEPT_FROM: Final = 4
"""Batch from which on states are written beforehand."""
STATE_PIECE_BYTES: Final = 200
"""So that the states of these jobs, too, take several turns to leave, some of it before them."""
WIDTHS: Final = ((1,), (2,), (1, 1), (2, 2), (1, 2), (3, 2))


DURABLE: Final[tuple[Literal["process", "machine"], ...]] = ("process", "machine")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One job, without its faults.

    Attributes:
        shape: of the dataflow, without the collector.
        batches, rows, keys: the input.
        gap_s: about how long the source waits between two batches.
        sites: how many the first layout waits for.
        executors: how many these are spread over.
        controllers: candidates.
        window: offers of the feeder that may be unacknowledged.
        snapshot_events, kept_entries, slack_entries: how much of the record, and of the view
            changes, is kept; a little more than the slack is read at once.
        journal_bytes: of one of its files.
        durable, balance: see `ControllerConfig`. Sites are as busy as a draw says, where copies
            move of their own accord: that may cost time, never results (UF-8).
        late_sites: that join a job which runs already.
        memory_bytes: of each site, beyond which partitions go to a disk; None: they need not.
        remembering: operators keep all rows, in pieces of which most are sent before a state.
        first: number of the first batch; the operators begin with what those before have led to.
        papers: the job runs the papers' protocol.
    """

    shape: Shape
    batches: int
    rows: int
    keys: int
    gap_s: float
    sites: int
    executors: int
    controllers: int
    window: int
    credits: int
    snapshot_events: int
    kept_entries: int
    slack_entries: int
    journal_bytes: int
    durable: Literal["process", "machine"]
    balance: Balance | bool = False
    late_sites: int = 0
    memory_bytes: int | None = None
    remembering: bool = False
    first: int = 0
    papers: bool = False

    @property
    def hosting(self) -> Hosting:
        """The protocol that the job runs."""
        return PapersHosting(credits=self.credits) if self.papers else Hosting()


def plan_of(rng: random.Random) -> Plan:
    """Draw a job."""
    ack_every = rng.choice((1, 1, 3))
    widths = rng.choice(WIDTHS)
    shape = Shape(
        widths=widths,
        ack_every=ack_every,
        in_hand=rng.choice((1, 1, 4)),
        pool=rng.choice((8, 16, 64)),
    )
    return Plan(
        shape=shape,
        batches=rng.choice((4, 8, 12, 16)),
        rows=rng.choice((1, 4, 8)),
        keys=rng.choice((3, 8)),
        gap_s=rng.choice((0.0, 0.2, 0.5)),
        sites=rng.choice((2, 3, 3, 4)),
        executors=rng.choice((1, 2, 4)),
        controllers=rng.choice((2, 2, 3)),
        window=rng.choice((1, 4, 16)),
        credits=rng.choice((1, 4)),
        snapshot_events=rng.choice((1000, 10, 30)),
        kept_entries=rng.choice((512, 4, 16)),
        slack_entries=rng.choice((256, 0, 2)),
        journal_bytes=rng.choice((64 << 20, 1500)),
        durable=rng.choice(DURABLE),
    )


@dataclass
class Outcome:
    """The job as seen from outside.

    Attributes:
        offset: how far the reader has come; it survives the reader.
        results: batches that it has read.
        fed: everything has been taken, and the end.
        ended: the reader has come to the end.
        lost: what clients were told of a loss.
        whole: every pair had two copies at the end.
        stopped: the job has been ended.
    """

    offset: int = 0
    results: int = 0
    fed: bool = False
    ended: bool = False
    lost: DataLost | None = None
    whole: bool = False
    stopped: bool = False


class Cluster:
    """A job under simulation.

    Args:
        kernel: runs it.
        plan: the job.
        seed: of the input.
        at_the_end: raises `ViolationError` if the job is not as it should be once all is read.

    Attributes:
        sites: number of the place -> its process.
        workers: process -> the site in it.
        leaders: all terms so far.
        before: folder with the states that the operators begin with; None: in their initial ones.
        expected, units: results, and the contents of all that is sent, of a run without failures.
        kept: folder in which operators' states are kept; None: they are not.
        struck: share of the faults that have struck; the source is not far ahead of it.
        errands: what the operator is to do next.
        calm: no more faults come.
        history: (time, what happened), for people.
    """

    def __init__(
        self,
        kernel: Kernel,
        plan: Plan,
        seed: int,
        at_the_end: Callable[[Cluster], None] = lambda _: None,
    ) -> None:
        self.kernel = kernel
        self.at_the_end = at_the_end
        self.plan = plan
        self.network = Network(kernel)
        self.ensemble = Ensemble(kernel, self.network.blocked_until)
        self.disk = Disk(kernel)
        factory = partial(running_example, plan.shape, slide=1, remembering=plan.remembering)
        batches = events(plan.batches, plan.rows, keys=plan.keys, seed=seed)
        due = reference(factory(), batches, states=plan.first > 0)
        self.before: Path | None = None
        if plan.first:
            self.before = Path(tempfile.mkdtemp(prefix="flux-lab-"))
            for pair in plan.shape.pairs():
                write_state(self.before, pair, due.state(pair, plan.first - 1))
            factory = partial(begun, factory, self.before)
        self.flow = factory()
        self.expected = {n: rows for n, rows in due.output if n >= plan.first}
        self.units = {
            (*pairs, batch): contents(rows)
            for pairs, units in due.units.items()
            for batch, rows in units.items()
        }
        names = [n for n in batches[0].schema.names if n not in SN]
        self.input = [batch.select(names) for batch in batches[plan.first :]]
        common: dict[str, Any] = {
            "key": JobKey(bytes(32)),
            "dataflow": factory,
            "zookeeper": "simulated",
            "session_timeout_s": SESSION_S,
            "patience_s": PATIENCE_S,
            "hosting": plan.hosting,
            "host": "host",
        }
        self.site_config = partial(SiteConfig, **common)
        self.controller_config = partial(
            ControllerConfig,
            **common,
            sites=plan.sites,
            folder=cast(Path, Folder(self.disk, "job")),
            durable=plan.durable,
            balance=plan.balance,
            first=plan.first,
        )
        self.spill: SpillTo | None = None
        if plan.memory_bytes is not None:
            folder = Path(tempfile.mkdtemp(prefix="flux-lab-"))
            self.spill = SpillTo(folder=folder, memory_bytes=plan.memory_bytes)
        self.kept: Path | None = None
        if plan.remembering:
            self.kept = Path(tempfile.mkdtemp(prefix="flux-lab-"))
        self.sites: dict[int, Process] = {}
        self.controllers: dict[int, Process] = {}
        self.driver: Process | None = None
        self.workers: dict[Process, Worker] = {}
        self.leaders: list[Leader] = []
        self.leader_process: dict[Leader, Process] = {}
        self.gone: set[Process] = set()
        self.outcome = Outcome(offset=plan.first)
        self.errands: list[Callable[[Client], None]] = []
        self.struck = 1.0
        self.calm = False
        self.history: list[tuple[float, str]] = []
        self.started = 0
        self.joined = 0

    # ---- processes

    def start(self) -> None:
        """Start everything."""
        for number in range(self.plan.controllers):
            self.start_controller(number)
        for number in range(self.plan.sites):
            self.start_site(number)
        for number in range(self.plan.sites, self.plan.sites + self.plan.late_sites):
            self.kernel.after(LATE_S * self.kernel.rng.random(), self.start_site, number)
        self.start_driver()

    @property
    def story(self) -> str:
        """Everything that has happened, for people."""
        return "\n".join(f"{when:10.3f}  {text}" for when, text in self.history)

    def note(self, text: str) -> None:
        """Note what has happened."""
        self.history.append((self.kernel.now, text))

    def start_controller(self, number: int) -> None:
        """Start a controller, or start it again."""
        self.started += 1
        machine = f"c{number}.{self.started}"
        config = self.controller_config(executor=machine, advertise=machine, bind=machine)
        process = Process(self.kernel, f"controller-{number}.{self.started}", machine)
        self.controllers[number] = process

        def main() -> None:
            run(self.network, lambda _: controller.control(config, None))

        def ended(process: Process) -> None:
            self.note(f"{process.name} ended: {process.status!r}")
            self._expect(process, OSError, ZooKeeperProblem)
            if not self.outcome.stopped:
                self.kernel.after(0.1 + self.kernel.rng.random(), self.start_controller, number)

        process.start(main, ended=ended)

    def start_site(self, number: int) -> None:
        """Start a site, or a new incarnation of it."""
        self.joined += 1
        machine = f"s{number}.{self.joined}"
        executor = f"e{number % self.plan.executors}"
        config = self.site_config(site=number, executor=executor, bind=machine, spill=self.spill)
        process = Process(self.kernel, f"site-{number}.{self.joined}", machine)
        self.sites[number] = process

        def main() -> None:
            async def host(loop: SimulatedLoop) -> None:
                with finder(config) as of_leader:
                    worker = ObservedWorker(config, of_leader, None, loop)  # type: ignore[arg-type]
                    self.adapt(worker.host)
                    if worker.spilling is not None:
                        worker.spilling.clock = self.kernel.monotonic
                    self.workers[process] = worker
                    await worker.run()

            run(self.network, host)

        def ended(process: Process) -> None:
            self.note(f"{process.name} ended: {process.status!r}")
            self.workers.pop(process, None)
            self.gone.discard(process)
            self._expect(process, Fenced, ZooKeeperProblem)
            if not self.outcome.stopped:
                self.kernel.after(0.05 + 2 * self.kernel.rng.random(), self.start_site, number)

        process.start(main, ended=ended)

    def adapt(self, host: Any) -> None:
        """Turns of any length, by a clock of the run's own."""
        ticks = [0.0]

        def clock() -> float:
            ticks[0] += self.kernel.rng.random() * 0.002
            return ticks[0]

        host.clock = host.cpu = clock

    def _expect(self, process: Process, *kinds: type[Exception]) -> None:
        """A process may end of what it cannot help; not of a mistake."""
        status = process.status
        if isinstance(status, BaseException) and not isinstance(status, kinds):
            self.kernel.faults.append((process, status))

    # ---- clients

    def start_driver(self) -> None:
        """Start the process with the clients, or start it again."""
        process = self.driver = Process(self.kernel, "driver", "driver")

        def main() -> None:
            feeding = Thread(target=self._feed, name="feeder", process=process)
            reading = Thread(target=self._read, name="reader", process=process)
            operating = Thread(target=self._operate, name="operator", process=process)
            for thread in (feeding, reading, operating):
                thread.start()
            for thread in (feeding, reading, operating):
                thread.join()
            self._finish()

        def ended(process: Process) -> None:
            self._expect(process)
            if not self.outcome.stopped:
                self.kernel.after(0.5, self.start_driver)

        process.start(main, ended=ended)

    def _config(self) -> Any:
        return self.site_config(bind="driver")

    def _feed(self) -> None:
        rng, outcome = self.kernel.rng, self.outcome
        while not outcome.fed and outcome.lost is None:
            try:
                with Feeder(self._config(), "events", window=self.plan.window) as feeder:
                    for number, rows in enumerate(self.input):
                        while number / len(self.input) > 1.5 * self.struck:
                            self.kernel.sleep(0.1)
                        feeder.offer(number // 3, number % 3, rows)
                        if self.kept is not None and number >= KEPT_FROM:
                            feeder.keep(None, self.kept)
                        self.kernel.sleep(rng.random() * 2 * self.plan.gap_s)
                    self._keep(feeder)
                    feeder.finish()
                    outcome.fed = True
            except DataLost as lost:
                outcome.lost = lost
            except (Unreachable, ZooKeeperProblem) as problem:
                self.note(f"the feeder begins again: {problem}")
                self.kernel.sleep(0.5)

    def _keep(self, feeder: Feeder) -> None:
        """Have the operators' states written; that may fail, and input goes on."""
        if self.kept is None:
            return
        for _ in range(40):
            if size_of(self.kept, self.plan.shape.pairs()) is not None:
                return
            self.note(f"states are kept: {feeder.keep(self.end_of_input - 1, self.kept)}")
            self.kernel.sleep(0.5)

    def _read(self) -> None:
        rng, outcome = self.kernel.rng, self.outcome
        while not outcome.ended and outcome.lost is None:
            try:
                with Reader(self._config()) as reader:
                    while not outcome.ended:
                        offset, batches, ended = reader.read(outcome.offset, timeout_s=1.0)
                        self._take(offset, batches, ended)
                        if rng.random() < 0.5:
                            reader.commit(outcome.offset)
                        if outcome.lost is not None:
                            return
            except DataLost as lost:
                outcome.lost = lost
            except (Unreachable, ZooKeeperProblem) as problem:
                self.note(f"the reader begins again: {problem}")
                self.kernel.sleep(0.5)

    def _operate(self) -> None:
        """Ask for what people ask for, until nothing strikes any more."""
        rng, outcome = self.kernel.rng, self.outcome
        while not self.calm and outcome.lost is None:
            try:
                with Client(self._config()) as client:
                    while not self.calm or self.errands:
                        self.kernel.sleep(rng.random())
                        if self.errands:
                            self.errands.pop(0)(client)
                        elif rng.random() < 0.3:
                            memory = self.plan.memory_bytes or 1 << 20
                            client.limit_memory(rng.randrange(self.joined), memory)
            except DataLost as lost:
                outcome.lost = lost
            except (Unreachable, ZooKeeperProblem) as problem:
                self.note(f"the operator begins again: {problem}")
                self.kernel.sleep(0.5)

    def _take(self, offset: int, batches: list[tuple[int, Any]], ended: bool) -> None:
        """Compare results with those of a run without failures.

        Raises:
            ViolationError: they are others.
        """
        outcome = self.outcome
        due = [n for n in self.expected if outcome.offset <= n < offset]
        if [n for n, _ in batches] != due:
            raise ViolationError(
                f"results of batches {[n for n, _ in batches]} from {outcome.offset} to {offset}, "
                f"due {due}"
            )
        for number, rows in batches:
            if not rows.equals(self.expected[number]):
                raise ViolationError(f"the results of batch {number} are wrong")
        if offset < outcome.offset:
            raise ViolationError(f"a reader at {outcome.offset} was sent to {offset}")
        outcome.results += len(batches)
        outcome.offset = offset
        if ended:
            if any(number >= offset for number in self.expected):
                raise ViolationError(f"the end at {offset} of {self.end_of_input} batches")
            outcome.ended = True

    def sent(self, producer: Pair, consumer: Pair, batch: int, rows: Any) -> None:
        """Compare a unit, None if it is empty, with that of a run of one copy alone.

        Raises:
            ViolationError: it is another.
        """
        due = self.units.get((producer, consumer, batch))
        if (None if rows is None else contents(rows)) != due:
            raise ViolationError(f"{producer} sends {consumer} another unit of batch {batch}")

    def consumers(self, pair: Pair) -> tuple[Pair, ...]:
        """Who reads the pair; nobody the collector."""
        shape = self.plan.shape
        return shape.downstream(pair.stage) if pair.stage < len(shape.widths) else ()

    def _finish(self) -> None:
        """Wait until everything is whole, then end the job."""
        outcome = self.outcome
        with Client(self._config()) as client:
            while not self.calm or (outcome.lost is None and not outcome.whole):
                try:
                    outcome.whole = bool(client.status()["whole"])
                except DataLost as lost:
                    outcome.lost = lost
                self.kernel.sleep(0.2)
            if outcome.lost is None:
                self._settle()
            outcome.stopped = True
            try:
                client.stop()
            except Unreachable:
                self.note("nobody has confirmed the stop")

    def _settle(self) -> None:
        """Wait until nothing is under way any more; then look whether all is as it should be."""
        for left in reversed(range(20)):
            self.kernel.sleep(0.5)
            try:
                self.at_the_end(self)
                return
            except ViolationError:
                if not left:
                    raise

    @property
    def leader(self) -> Leader | None:
        """Whoever knows of the most events."""
        return max(self.leaders, key=lambda leader: leader.state.ledger.events, default=None)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of the leader that knows most."""
        return None if self.leader is None else self.leader.state.ledger

    def end(self) -> None:
        """End all processes that are left, and what they have waiting."""
        self.outcome.stopped = True
        for process in [*self.sites.values(), *self.controllers.values(), self.driver]:
            if process is not None:
                process.kill()
        self.kernel.faults.clear()
        self.kernel.run(self.kernel.now)
        self.workers.clear()
        if self.spill is not None:
            shutil.rmtree(self.spill.folder)
        for folder in (self.kept, self.before):
            if folder is not None:
                shutil.rmtree(folder)

    @property
    def end_of_input(self) -> int:
        """The number behind that of the last batch."""
        return self.plan.first + len(self.input)

    @property
    def over(self) -> bool:
        """Whether all processes have come to their end."""
        processes = [*self.sites.values(), *self.controllers.values(), self.driver]
        return self.outcome.stopped and not any(p is not None and p.alive for p in processes)


class ObservedWorker(Worker):
    """A site of which, whatever happens, what is said of its state has to hold afterwards."""

    def step(self, event: Step) -> None:
        """As in the product."""
        super().step(event)
        self.state.validate()
        if self.state.laid_out and self.state.position != self.host.position:
            raise ViolationError(f"site {self.host.me} has not extended its log")
        if self.storage is not None:
            gone = {name for name, _ in self.storage.sizes} - {c.name for c in self.host.copies()}
            if gone:
                raise ViolationError(f"site {self.host.me} has states of {gone} on disk")


def begun(factory: Callable[[], Dataflow], folder: Path) -> Dataflow:
    """The dataflow whose operators begin with the states in a folder."""
    dataflow = factory()

    def operator(pair: Pair) -> Operator:
        return Restored(dataflow.operator(pair), file_of(folder, pair))

    return replace(dataflow, operator=operator)


class Unhesitating(Worth):
    """Moves everything that another policy would, worth it or not."""

    def weigh(
        self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]
    ) -> list[PlannedMove]:
        """All of them."""
        return list(moves)


def in_this_thread(simulated: Callable[..., Any], system: Callable[..., Any]) -> Callable[..., Any]:
    """The simulated function for the thread that calls this, the system's for all others."""
    simulating = get_ident()

    def function(*arguments: float) -> Any:
        return (simulated if get_ident() == simulating else system)(*arguments)

    return function


@contextmanager
def substituted(cluster: Cluster) -> Iterator[None]:
    """The product's modules see the simulation in place of the system."""
    kernel, plan = cluster.kernel, cluster.plan

    class ObservedLeader(Leader):
        """A term that the run knows of."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            cluster.adapt(self.host)
            cluster.leaders.append(self)
            cluster.leader_process[self] = kernel.process
            cluster.note(f"{kernel.process.name} leads")

        def step(self, event: Step) -> None:
            """Whatever happens, what is said of the state has to hold afterwards."""
            super().step(event)
            self.state.validate()

    def kazoo(**options: Any) -> SimulatedKazoo:
        return SimulatedKazoo(cluster.ensemble, **options)

    def fresh_uuid() -> uuid.UUID:
        return uuid.UUID(int=kernel.rng.getrandbits(128), version=4)

    send = Multiplexer.send

    def observed(mux: Multiplexer, src: Node, dst: Node, message: Message) -> None:
        if isinstance(message, Data):
            cluster.sent(src.pair, dst.pair, message.batch, message.rows)
        send(mux, src, dst, message)

    finish = Replica.finish

    def observed_finish(replica: Replica, units: Units, low: int) -> int:
        pair = replica.copy.pair
        for consumer, unit in zip(cluster.consumers(pair), units, strict=True):
            cluster.sent(pair, consumer, replica.done, unit)
        return finish(replica, units, low)

    ending = statistics.Phase.ending

    def busy(*arguments: Any) -> statistics.Phase:
        phase = ending(*arguments)
        return replace(phase, utilisation=kernel.rng.random()) if plan.balance else phase

    threaded = (client, election, membership, watcher)
    with ExitStack() as stack:
        for owner, name, value in (
            (time, "monotonic", in_this_thread(kernel.monotonic, time.monotonic)),
            (time, "time", in_this_thread(kernel.monotonic, time.time)),
            (time, "sleep", in_this_thread(kernel.sleep, time.sleep)),
            (uuid, "uuid4", fresh_uuid),
            (secrets, "token_bytes", kernel.rng.randbytes),
            (socket, "create_connection", cluster.network.connect),
            (os, "fsync", cluster.disk.sync),
            (journal, "sync_folder", cluster.disk.sync_folder),
            (client, "KazooClient", kazoo),
            (statistics, "_cpu_s", kernel.monotonic),
            (statistics.Phase, "ending", busy),
            (balance, "Worth", Unhesitating),
            (Multiplexer, "send", observed),
            (Replica, "finish", observed_finish),
            (statistics, "_resident_bytes", lambda: MEMORY_BYTES),
            (controller, "Leader", ObservedLeader),
            (leader_state, "SNAPSHOT_EVENTS", plan.snapshot_events),
            (ledger, "KEPT_ENTRIES", plan.kept_entries),
            (moving, "STATE_PIECE_BYTES", STATE_PIECE_BYTES),
            (packing, "PART_BYTES", STATE_PIECE_BYTES),
            (processor_state, "PART_BYTES", STATE_PIECE_BYTES),
            (papers_host, "BASE_MIN_BYTES", 0),
            (resume_host, "BASE_MIN_BYTES", 0),
            (keeping, "BASE_MIN_BYTES", 0),
            (record, "SLACK_ENTRIES", plan.slack_entries),
            (journal, "FILE_FULL_BYTES", plan.journal_bytes),
            (tail, "IN_FLIGHT_MAX", plan.slack_entries + 2),
            *((module, "threading", simulated.threading) for module in threaded),
        ):
            stack.enter_context(patch.object(owner, name, value))
        simulated._RUNNING.append(kernel)
        stack.callback(simulated._RUNNING.pop)
        yield
