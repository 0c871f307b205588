"""A cluster that runs the resume protocol: real sites and controller over simulated surroundings.

Simulated are links (each in order, one not to another), moves of state, the moments at which sites
read the log, the source (a journal that is trimmed), the destination (it keeps its position), and
checkpoints. Source and destination obey the latest ingress and egress alone. Whoever drives a world
chooses among `steps`; faults are performed in the same way, but never offered.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from flux_lab.checks import ViolationError
from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import INGRESS, Pair
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow, Units
from flux_runtime.resume.messages import (
    Copy,
    Frame,
    Installed,
    Instruction,
    Load,
    LogEntry,
    Notice,
    Owed,
    Snapshot,
    Transfer,
    Void,
    Work,
)
from flux_runtime.resume.site import Site

FAULTS: Final = ("crash", "suspect", "move", "switch", "break", "depose", "join")
"""`crash` and `depose` take a site, or the leader's; `suspect` lets it live, for ever if `deaf`."""

SETTLING: Final = ("log", "load", "notice")
"""Steps before anything is fed."""


class Step(NamedTuple):
    """One step: its kind, where, and what else it needs."""

    kind: str
    at: int = 0
    to: Any = None

    def __str__(self) -> str:
        return f"{self.kind} {self.at}" + (f" {self.to}" if self.to is not None else "")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The constants of a run.

    Attributes:
        flow, batches: the dataflow and its input.
        sites: at first.
        expected: what a sequential run does.
        eager: a site does at once all that it can: only events from outside have an order.
        checkpoint_every: batches between two checkpoints.
        site, controller: the classes that are tried.
    """

    flow: Flow
    batches: Sequence[Rows]
    sites: int
    eager: bool = False
    checkpoint_every: int = 2
    site: type[Site] = Site
    controller: type[Controller] = Controller
    expected: Expected = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expected", Expected(self.flow, self.batches))


class World:
    """A cluster in some state.

    Attributes:
        sites: those that live, that of the leader among them.
        log: the controller's.
        links: (from, to) -> frames under way.
        transfers: states under way: copy -> (from, to, snapshot).
        owed: copies that wait for a state that has not been taken -> the site that has it.
        loads: states that are to come from outside: copy -> (site, instruction).
        notices: site -> what it has reported and the controller has not read.
        dead: crashed sites that the controller does not know of.
        deaf: sites that will never read the log again.
        busy: site -> copy, batch and output that it is about to hand over.
        restless: sites at which something has happened since they were last idle.
        emitted: batches that have left.
        trimmed: batches that the source has forgotten.
        fences: stage -> number of the one copy that the source, or the destination, still obeys.
        checkpoints: pair -> batch -> state.
        losses: pairs that were lost.
    """

    def __init__(self, setting: Setting, *, stories: bool = False) -> None:
        self.setting = setting
        self.stories: dict[int, list[str]] | None = {} if stories else None
        self.log: list[LogEntry] = []
        self.sites: dict[int, Site] = {}
        self.links: dict[tuple[int, int], list[Frame]] = {}
        self.transfers: dict[Copy, tuple[int, int, Snapshot]] = {}
        self.loads: dict[Copy, tuple[int, Load]] = {}
        self.owed: dict[Copy, int] = {}
        self.notices: dict[int, list[Notice]] = {}
        self.dead: dict[int, None] = {}
        self.deaf: dict[int, None] = {}
        self.busy: dict[int, tuple[Copy, int, Units]] = {}
        self.restless: dict[int, None] = {}
        self.emitted = 0
        self.trimmed = 0
        self.fences = {INGRESS: 0, setting.flow.egress: 0}
        self.checkpoints: dict[Pair, dict[int, Any]] = {p: {} for p in setting.flow.segments()}
        self.leader = 0
        self.next_site = 1
        for _ in range(setting.sites):
            self._new_site(self.next_site)
        self._new_site(0)
        self.leaderless = False
        self.controller = setting.controller(
            setting.flow, self.log, range(1, setting.sites + 1), ends=0
        )

    def _new_site(self, number: int) -> None:
        story = None
        if self.stories is not None:
            story = self.stories[number] = []
        self.sites[number] = self.setting.site(self.setting.flow, number, story=story)
        self.next_site = max(self.next_site, number + 1)

    @property
    def losses(self) -> int:
        """How often a pair was lost."""
        return sum(type(entry).__name__ == "Lost" for entry in self.log)

    # ---- copies of the whole

    def packed(self) -> bytes:
        """The state as bytes, the same for the same state: whatever came first, in one order."""
        for name in ("links", "notices", "transfers", "loads", "owed"):
            held: dict[Any, Any] = getattr(self, name)
            setattr(self, name, {key: held[key] for key in sorted(held) if held[key] != []})
        for site in self.sites.values():
            site.tidy()
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, 5)
        pickler.fast = True  # by value: what is shared does not matter
        pickler.constants = {id(self.setting): "setting", id(self.setting.flow): "flow"}
        pickler.dump(self)
        return buffer.getvalue()

    def unpacked(self, packed: bytes) -> World:
        """A world from bytes."""
        unpickler = _Unpickler(io.BytesIO(packed))
        unpickler.constants = {"setting": self.setting, "flow": self.setting.flow}
        world = unpickler.load()
        assert isinstance(world, World)
        world.controller.log = world.log
        return world

    def settle(self) -> None:
        """Every copy is installed and known to be, and nothing is fed yet."""
        for at in [*(site for site in self.sites if site != self.leader), self.leader]:
            while due := [s for s in self.steps() if s.at == at and s.kind in SETTLING]:
                self.perform(due[0])

    # ---- steps

    def steps(self) -> list[Step]:
        """Every step that is possible now, in a fixed order."""
        steps = [Step("frame", there, here) for (here, there), sent in self.links.items() if sent]
        end = len(self.log)
        steps += [
            Step("log", number)
            for number, site in self.sites.items()
            if site.position < end and number not in self.deaf
        ]
        steps += [Step("take", here, copy) for copy, here in self.owed.items()]
        steps += [Step("state", there, copy) for copy, (_, there, _) in self.transfers.items()]
        steps += [Step("load", there, copy) for copy, (there, _) in self.loads.items()]
        if not self.setting.eager:
            for number in self.restless:
                if number not in self.busy:
                    steps.append(Step("begin", number))
                steps.append(Step("flush", number))
            steps += [Step("finish", number) for number in self.busy]
            steps += [Step("feed", number) for number in self.sites if self._feeds(number)]
        if self.leaderless:
            steps.append(Step("lead"))
        else:
            steps += [Step("notice", number) for number, notices in self.notices.items() if notices]
            steps += [Step("detect", number) for number in self.dead]
        return steps

    def perform(self, step: Step) -> None:
        """Perform a step or a fault.

        Raises:
            ProtocolError: a machine or a checker found a violation.
        """
        kind, at, to = step
        method: Callable[[int, Any], None] = getattr(self, "_do_" + kind)
        method(at, to)
        if self.setting.eager:
            while self.restless:
                self._run(next(iter(self.restless)))

    def _run(self, number: int) -> None:
        """All that a site can do by itself."""
        del self.restless[number]
        while self._feeds(number):
            self._do_feed(number, None)
        while number in self.sites and (work := self.sites[number].next_input()) is not None:
            self._process(number, work)
            self._do_finish(number, None)
        self.restless.pop(number, None)
        self._flush(number, idle=True)

    def _event(self, number: int, instructions: Sequence[Instruction]) -> None:
        """Something has happened at a site; carry out what it says."""
        self.restless[number] = None
        for instruction in instructions:
            match instruction:
                case Owed(_, copy):
                    self.owed[copy] = number
                case Transfer(there, snapshot):
                    if there in self.sites:
                        self.transfers[snapshot.copy] = (number, there, snapshot)
                case Load(copy):
                    self.loads[copy] = (number, instruction)
                case Installed() | Void():
                    self.notices.setdefault(number, []).append(instruction)

    def _do_frame(self, at: int, here: int) -> None:
        link = self.links[here, at]
        frame = link.pop(0)
        if not link:
            del self.links[here, at]
        self._event(at, self.sites[at].receive(frame))

    def _do_log(self, at: int, _: None) -> None:
        site = self.sites[at]
        self._event(at, site.log(self.log[site.position]))
        for copy, (there, _load) in list(self.loads.items()):
            if there == at and copy not in site.standbys:
                del self.loads[copy]
        if at in self.busy and self.busy[at][0] not in site.replicas:
            del self.busy[at]

    def _do_take(self, at: int, copy: Copy) -> None:
        """RS-24: most of the state has gone ahead."""
        del self.owed[copy]
        self._event(at, self.sites[at].take_state(copy))

    def _do_state(self, at: int, copy: Copy) -> None:
        *_, snapshot = self.transfers.pop(copy)
        self._event(at, self.sites[at].receive(snapshot))

    def _do_load(self, at: int, copy: Copy) -> None:
        _, load = self.loads.pop(copy)
        state = None
        if copy.stage in self.fences:
            if copy.number < self.fences[copy.stage]:
                return  # source and destination have a later one
            self.fences[copy.stage] = copy.number
            done = max(self.trimmed, load.at) if copy.stage == INGRESS else self.emitted
        else:
            done = load.at
            state = self.checkpoints[copy.pair][done] if done else None
        self._event(at, self.sites[at].load(copy, done, state))

    def _do_begin(self, at: int, _: None) -> None:
        work = self.sites[at].next_input()
        if work is not None:
            self._process(at, work)
            return
        del self.restless[at]
        self._flush(at, idle=True)

    def _process(self, at: int, work: Work) -> None:
        """The operator of a copy works; that it is done is another step."""
        copy, batch, taken = work
        replica = self.sites[at].replicas[copy]
        expected, flow = self.setting.expected, self.setting.flow
        expected.taken(work, replica.done + 1)
        rows = flow.merged(taken)
        if copy.stage == flow.egress:
            self.busy[at] = copy, batch, (rows,)
            return
        operator = replica.operator
        assert operator is not None
        units = flow.split(copy.stage, None if rows is None else operator.process(rows))
        state = operator.get_state()
        expected.produced(copy, batch, units, state)
        if batch % self.setting.checkpoint_every == 0:
            self.checkpoints[copy.pair][batch] = state
        self.busy[at] = copy, batch, units

    def _do_flush(self, at: int, _: None) -> None:
        self._flush(at, idle=False)

    def _flush(self, at: int, *, idle: bool) -> None:
        site = self.sites[at]
        for there, frame in site.flush(idle=idle):
            if there in self.sites:
                self.links.setdefault((at, there), []).append(frame)
        for copy, replica in site.replicas.items():
            obeyed = copy.number == self.fences.get(copy.stage)
            if copy.stage == INGRESS and obeyed and copy in self.controller.members[copy.pair]:
                low = min(site.low[INGRESS], replica.done, self.checkpoint())
                self.trimmed = max(self.trimmed, low)

    def _do_finish(self, at: int, _: None) -> None:
        copy, batch, units = self.busy.pop(at)
        flow = self.setting.flow
        if copy.stage == flow.egress:
            if copy.number != self.fences[copy.stage]:
                return  # fenced: it never goes on
            self.setting.expected.emitted(self.emitted, batch, units[0])
            self.emitted += 1
            units = ()
        self._event(at, self.sites[at].produced(copy, units))

    def _feeds(self, number: int) -> bool:
        return self._ingress(number) is not None

    def _ingress(self, number: int) -> Copy | None:
        """The ingress at this site, if it may take the next batch."""
        site = self.sites[number]
        for copy, replica in site.replicas.items():
            if copy.stage == INGRESS and copy.number == self.fences[INGRESS]:
                more = replica.done < len(self.setting.batches)
                return copy if more and site.has_room(copy) else None
        return None

    def _do_feed(self, at: int, _: None) -> None:
        copy = self._ingress(at)
        assert copy is not None
        batch = self.sites[at].replicas[copy].done + 1
        if batch <= self.trimmed:
            raise ViolationError(f"batch {batch} is wanted, the source has forgotten it")
        units = self.setting.flow.split(INGRESS, self.setting.batches[batch - 1])
        self._event(at, self.sites[at].produced(copy, units))

    # ---- the controller

    def checkpoint(self) -> int:
        """The last batch that a new start could begin behind: all states, and its results left."""
        common = set.intersection(*(set(states) for states in self.checkpoints.values()))
        return max((batch for batch in common if batch <= self.emitted), default=0)

    def _do_notice(self, at: int, _: None) -> None:
        notice = self.notices[at].pop(0)
        self.controller.at = self.checkpoint()
        self.controller.notice(notice)
        self.controller.validate()

    def _do_detect(self, at: int, _: None) -> None:
        self.dead.pop(at)
        self.controller.at = self.checkpoint()
        self.controller.leave(at)
        self.controller.validate()

    def _do_lead(self, _at: int, _: None) -> None:
        """RS-21, RS-23: a new leader takes over, from the log and what sites tell it."""
        self.leaderless = False
        self.leader = self.next_site
        self._new_site(self.leader)
        self.notices.clear()
        for number, site in self.sites.items():
            self._event(number, site.standing())
        setting = self.setting
        self.controller = setting.controller(
            setting.flow, self.log, self.controller.sites, self.leader, self.checkpoint()
        )
        self.controller.validate()

    # ---- faults

    def _gone(self, at: int, *, keep: bool) -> None:
        """A site's process ends; what it had written may still arrive."""
        del self.sites[at]
        for held in (self.busy, self.restless, self.notices, self.deaf):
            held.pop(at, None)
        for here, there in list(self.links):
            if there == at or (here == at and not keep):
                del self.links[here, there]
        for copy, (here, there, _) in list(self.transfers.items()):
            if there == at or (here == at and not keep):
                del self.transfers[copy]
        for copy, (there, _) in list(self.loads.items()):
            if there == at:
                del self.loads[copy]
        self.owed = {copy: here for copy, here in self.owed.items() if here != at}

    def _do_crash(self, at: int, keep: bool) -> None:
        self._gone(at, keep=keep)
        self.dead[at] = None

    def _do_suspect(self, at: int, deaf: bool) -> None:
        """It is taken for dead and lives; if it is deaf it never learns of it."""
        if deaf:
            self.deaf[at] = None
        self.controller.at = self.checkpoint()
        self.controller.leave(at)
        self.controller.validate()

    def _do_depose(self, at: int, crash: bool) -> None:
        """The leader loses its office, with its process or without."""
        if crash:
            self._gone(self.leader, keep=bool(at))
        self.leaderless = True

    def _do_join(self, _at: int, _: None) -> None:
        number = self.next_site
        self._new_site(number)
        self.controller.at = self.checkpoint()
        self.controller.join(number)

    def _do_move(self, at: int, copy: Copy) -> None:
        self.controller.move(copy, at)
        self.controller.validate()

    def _do_switch(self, at: int, pair: tuple[Copy, Copy]) -> None:
        """RS-6: a consumer changes its source for no reason."""
        self.sites[at].subscribe(*pair)
        self._event(at, [])

    def _do_break(self, one: int, other: int) -> None:
        """A connection breaks with all that is on it, and is made anew."""
        for link in ((one, other), (other, one)):
            self.links.pop(link, None)
        for here, there in ((one, other), (other, one)):
            self.sites[here].reconnect(there)
            self._event(here, [])

    # ---- checks

    def validate(self) -> None:
        """Invariants of all machines."""
        for site in self.sites.values():
            site.validate()
        self.controller.validate()

    def finished(self) -> None:
        """Nothing can happen any more: all has left, nothing is held, all pairs are whole."""
        self.validate()
        view, last = self.controller, len(self.setting.batches)
        if not view.sites:
            return  # nobody is left
        if self.emitted != last:
            raise ViolationError(f"stuck: {self.emitted} of {last} batches have left")
        copies = min(view.flow.dataflow.shape.copies, len(view.sites))
        for pair in view.flow.segments():
            members = view.members[pair]
            if len(members) != copies or any(copy not in view.installed for copy in members):
                raise ViolationError(f"{pair} is not whole: {members}")
        for number, site in self.sites.items():
            if number not in self.deaf:
                self._quiescent(number, site, last)

    def _quiescent(self, number: int, site: Site, last: int) -> None:
        """A site waits for nothing and holds nothing, and only what has not failed lives there."""
        if site.ahead or site.standbys:
            raise ViolationError(f"site {number} waits: {site.ahead} {site.standbys}")
        for copy, replica in site.replicas.items():
            if copy not in self.controller.members[copy.pair]:
                raise ViolationError(f"{copy} has failed and lives")
            if replica.done != last or replica.rows or replica.held:
                raise ViolationError(
                    f"{copy} has done {replica.done} of {last}, has left {replica.rows} "
                    f"and holds {list(replica.held)}"
                )

    def tale(self, lines: int = 40) -> str:
        """The last lines of the sites' stories, if stories are kept."""
        stories = self.stories or {}
        return "\n".join(line for number in stories for line in stories[number][-lines:])


class _Pickler(pickle.Pickler):
    constants: dict[int, str]

    def persistent_id(self, obj: object) -> str | None:
        """The name of an object that is the same in all states."""
        return self.constants.get(id(obj))


class _Unpickler(pickle.Unpickler):
    constants: dict[str, object]

    def persistent_load(self, pid: str) -> object:
        """The object of this name, the same in all states."""
        return self.constants[pid]


class Expected:
    """A failure-free sequential run of a dataflow of any shape, which every run is held against.

    | promise | checker |
    |---|---|
    | loss-free, dup-free, in the order of every branch, same rows from all copies | `taken` |
    | copies agree: output and state are those of a sequential run | `produced` |
    | each result leaves once, in order, also across losses and changes of the leader | `emitted` |
    | bounds: queues and held outputs | `Site.validate`, `Controller.validate` |
    | no deadlock, no leak, pairs whole, the dead ended | `World.finished` |

    Attributes:
        units: (producer, consumer) -> the unit of every batch from 1.
        states: pair -> the operator's state before any batch, after the first, and so on.
        output: what leaves in every batch.
    """

    def __init__(self, flow: Flow, batches: Sequence[Rows]) -> None:
        self.flow = flow
        self.units: dict[tuple[Pair, Pair], list[Rows | None]] = {
            (pair, consumer): [None]
            for stage in flow.stages
            for pair in flow.pairs(stage)
            for consumer in flow.downstream[stage]
        }
        operators = {pair: flow.dataflow.operator(pair) for pair in flow.segments()}
        self.states: dict[Pair, list[Any]] = {p: [o.get_state()] for p, o in operators.items()}
        self.output: list[Rows | None] = []
        for rows in batches:
            self._route(Pair(INGRESS, 0), rows)
            for pair, operator in operators.items():
                taken = flow.merged(self.inputs(pair, -1))
                self._route(pair, None if taken is None else operator.process(taken))
                self.states[pair].append(operator.get_state())
            self.output.append(flow.merged(self.inputs(Pair(flow.egress, 0), -1)))

    def inputs(self, pair: Pair, batch: int) -> list[Rows | None]:
        """A unit from everybody that the pair reads."""
        return [self.units[read, pair][batch] for read in self.flow.upstream[pair.stage]]

    def _route(self, pair: Pair, rows: Rows | None) -> None:
        units = self.flow.split(pair.stage, rows)
        for consumer, unit in zip(self.flow.downstream[pair.stage], units, strict=True):
            self.units[pair, consumer].append(unit)

    # ---- during a run

    def taken(self, work: Work, due: int) -> None:
        """A copy gets the next batch, whole, as everybody else does."""
        copy, batch, units = work
        if batch != due:
            raise ViolationError(f"{copy} took batch {batch}, due {due}")
        if list(units) != (expected := self.inputs(copy.pair, batch)):
            raise ViolationError(f"{copy} took {units} in batch {batch}, due {expected}")

    def produced(self, copy: Copy, batch: int, units: Units, state: Any) -> None:
        """A copy gives what the sequential run gives, and is in its state."""
        consumers = self.flow.downstream[copy.stage]
        if list(units) != [self.units[copy.pair, consumer][batch] for consumer in consumers]:
            raise ViolationError(f"{copy} made other rows in batch {batch}")
        if copy.pair in self.states and state != self.states[copy.pair][batch]:
            raise ViolationError(f"{copy} is in another state after batch {batch}")

    def emitted(self, before: int, batch: int, rows: Rows | None) -> None:
        """Results leave once, in order."""
        if batch != before + 1:
            raise ViolationError(f"batch {batch} left after {before}")
        if rows != self.output[batch - 1]:
            raise ViolationError(f"other rows left in batch {batch}")
