"""A site: all copies in one process, what it knows of others, what it has for other sites.

The state machine of the resume protocol; no socket, clock, thread or chance. Events are entries of
the controller's log, frames, snapshots, loaded states and processed batches; every event gives
instructions to whoever runs the site, and `flush` gives the frames. The one idea: consumers
acknowledge to *all* copies of their producers, so any of them can serve them, and both take-over
and catch-up are the request "resume after what I have".

What a site sends carries its position in the log, and others read it once they have read the log as
far (RS-10). Therefore a copy that is not known has failed; no frame of an earlier start is mistaken
for one of this; and an acknowledgement that a donor gives after its snapshot counts nowhere before
the new copy is known there, with what it needs pinned (RS-8).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from operator import itemgetter
from typing import Any, cast

from flux_runtime.protocol.dataflow import InParts, Operator
from flux_runtime.protocol.vocabulary import END, Pair, ProtocolError
from flux_runtime.resume.flow import Flow, Units
from flux_runtime.resume.messages import (
    Ack,
    Avail,
    Copy,
    Fail,
    Frame,
    Installed,
    Instruction,
    Load,
    LogEntry,
    Lost,
    Notice,
    Owed,
    Resume,
    Snapshot,
    Start,
    Transfer,
    UnitRow,
    Void,
    Work,
)
from flux_runtime.resume.replica import Replica, Route


class Site:
    """One site.

    Args:
        flow: the dataflow.
        number: of the site; never used again for another process.
        story: filled with what happens, if given.

    Attributes:
        position: entries of the log that have been read.
        started: position just after the last `Start`.
        members: pair -> its announced copies that have not failed, oldest first -> their sites.
        acked: stage -> the same copies -> batch up to which each is known to be done.
        low: stage -> batch up to which all copies of all its consumers are known to be done.
        replicas: the installed copies here.
        standbys: announced copies here that have no state yet -> their donors.
        donors: every announced copy of a pair but the first ones -> its donor.
        begun: such a copy -> its operator, where parts of the state have come ahead of the rest.
        early: such a copy -> consumers that already want to receive from it -> after which batch.
        ahead: what came from sites that have read more of the log.
    """

    def __init__(self, flow: Flow, number: int, *, story: list[str] | None = None) -> None:
        self.flow = flow
        self.number = number
        self.story = story
        self.position = 0
        self.started = 0
        self.members: dict[Pair, dict[Copy, int]] = {}
        self.acked: dict[int, dict[Copy, int]] = {}
        self.low: dict[int, int] = {}
        self.replicas: dict[Copy, Replica] = {}
        self.standbys: dict[Copy, Copy | None] = {}
        self.donors: dict[Copy, Copy] = {}
        self.begun: dict[Copy, Operator] = {}
        self.early: dict[Copy, dict[Copy, int]] = {}
        self.ahead: list[Frame | Snapshot] = []
        self._begin()

    def _begin(self) -> None:
        """Nothing is known but the dataflow."""
        stages = self.flow.stages
        self.members = {pair: {} for stage in stages for pair in self.flow.pairs(stage)}
        self.acked = {stage: {} for stage in stages}
        self.low = self._lowest(0)
        self.replicas, self.standbys, self.early = {}, {}, {}
        self.donors = {}
        self._ready: dict[Copy, None] = {}
        self._changed: dict[int, None] = {}
        self._units: dict[int, list[UnitRow]] = defaultdict(list)
        self._resumes: dict[int, list[Resume]] = defaultdict(list)
        self._batches = 0
        self._told: dict[int, tuple[tuple[Ack, ...], int]] = {}
        self._forget_views()

    def _lowest(self, at: int) -> dict[int, int]:
        """Stage -> batch that all its consumers have done; the egress has none that want any."""
        return {stage: at if self.flow.downstream[stage] else END for stage in self.flow.stages}

    def _forget_views(self) -> None:
        """Views that are derived from copies and their places have to be made anew."""
        self._acks: tuple[Ack, ...] | None = None
        self._audience: dict[int, None] | None = None
        self._here: dict[int, list[Replica | None]] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Everything; what holds a replica a second time is made anew."""
        return {**self.__dict__, "_here": None}

    def did(self, rule: str, text: object) -> None:
        """Note what happened, if anybody wants to know."""
        if self.story is not None:
            self.story.append(f"{rule} at site {self.number}, position {self.position}: {text}")

    # ---- the log

    def log(self, entry: LogEntry) -> list[Instruction]:
        """Read the next entry of the controller's log, then what others sent who have read it."""
        self.did("log", entry)
        self.position += 1
        out: list[Instruction] = []
        match entry:
            case Start():
                out += self._start(entry)
            case Avail():
                out += self._avail(entry)
            case Fail():
                out += self._fail(entry.copy)
            case Lost():
                pass
        waiting, self.ahead = self.ahead, []
        for sent in waiting:
            out += self.receive(sent)
        return out

    def _start(self, entry: Start) -> list[Instruction]:
        """RS-20: all begins anew; nothing that was sent before is read any more."""
        self._begin()
        self.started = self.position
        for copy, site in entry.copies:
            self.members[copy.pair][copy] = site
            self.acked[copy.stage][copy] = entry.at
        self.low = self._lowest(entry.at)
        here = [copy for copy, site in entry.copies if site == self.number]
        self.standbys = dict.fromkeys(here)
        return [Load(copy, entry.at) for copy in here]

    def _avail(self, entry: Avail) -> list[Instruction]:
        """RS-8, RS-9: a copy is announced."""
        copy, donor = entry.copy, entry.donor
        known = self.acked[copy.stage]
        known[copy] = known[donor]  # RS-8, the pin
        self.members[copy.pair][copy] = entry.site
        self.donors[copy] = donor
        self._forget_views()  # RS-9: its site is told what copies here have done
        if entry.site == self.number:
            self.standbys[copy] = donor
            return [Load(copy, known[copy])] if self.flow.is_end(copy.stage) else []  # RS-21
        replica = self.replicas.get(donor)
        if replica is None or self.flow.is_end(copy.stage):
            return []
        replica.owed[copy] = False
        return [Owed(entry.site, copy, donor)]

    def _fail(self, copy: Copy) -> list[Instruction]:
        """RS-14 to RS-17: a copy is gone, here or elsewhere."""
        self.members[copy.pair].pop(copy, None)
        if self.acked[copy.stage].pop(copy, None) is not None:  # RS-15
            self._changed[copy.stage] = None
        self.replicas.pop(copy, None)  # RS-17
        self.standbys.pop(copy, None)
        for held in (self.early, self.donors, self.begun):
            held.pop(copy, None)
        self._ready.pop(copy, None)
        for waiting in self.early.values():
            waiting.pop(copy, None)
        self._forget_views()
        out: list[Instruction] = []
        for standby, donor in list(self.standbys.items()):
            if donor == copy and not self.flow.is_end(copy.stage):  # RS-14
                del self.standbys[standby]
                self.early.pop(standby, None)
                out.append(Void(standby))
        for replica in self.replicas.values():
            replica.owed.pop(copy, None)
            if copy in replica.subscribers:
                del replica.subscribers[copy]
                replica.routes = None
            slot = self.flow.slots[replica.copy.stage].get(copy.pair)
            if slot is not None and replica.sources[slot] == copy:  # RS-16
                self._choose(replica, slot)
        return out

    # ---- state moves

    def take_state(self, copy: Copy, *, rest: bool = False) -> list[Instruction]:
        """RS-24: from now on the state that a copy waits for may be taken.

        Args:
            copy: announced elsewhere, with its donor here; nothing happens if it has gone.
            rest: of the state only what its parts lack, which have gone ahead.
        """
        for replica in self.replicas.values():
            if copy in replica.owed:
                replica.owed[copy] = True
                return self._snapshots(replica, rest=rest)
        return []

    def _snapshots(self, replica: Replica, *, rest: bool = False) -> list[Instruction]:
        """RS-12: between two batches, the state for those that wait for it."""
        if replica.busy or not replica.owed:
            return []
        waiting = [copy for copy, due in replica.owed.items() if due]
        self._settle()
        self._acks = None
        operator = replica.operator
        assert operator is not None
        consumers = self.flow.read_by[replica.copy.stage]
        out: list[Instruction] = []
        for copy in waiting:
            del replica.owed[copy]
            self.did("RS-12", f"state of {replica.copy} after {replica.done} for {copy}")
            snapshot = Snapshot(
                copy=copy,
                position=self.position,
                done=replica.done,
                state=cast(InParts, operator).rest() if rest else operator.get_state(),
                held=tuple(replica.held),
                acked=tuple(Ack(*known) for t in consumers for known in self.acked[t].items()),
                rest=rest,
            )
            out.append(Transfer(self.members[copy.pair][copy], snapshot))
        return out

    def load(self, copy: Copy, done: int, state: Any = None) -> list[Instruction]:
        """RS-20, RS-21: the state of a copy has come from outside; the initial one, if None."""
        if copy not in self.standbys:
            return []
        return self._install(copy, done, state)

    def _install(
        self, copy: Copy, done: int, state: Any, held: tuple[Units, ...] = ()
    ) -> list[Instruction]:
        """RS-13: from now on the copy takes part."""
        del self.standbys[copy]
        end = self.flow.is_end(copy.stage)
        operator = self.begun.pop(copy, None)
        if operator is None and not end:
            operator = self.flow.dataflow.operator(copy.pair)
        if operator is not None and state is not None:
            operator.install_state(state)
        replica = Replica(copy, operator, len(self.flow.upstream[copy.stage]), done)
        replica.held.extend(held)
        replica.release(self.low[copy.stage])
        self.replicas[copy] = replica
        self.acked[copy.stage][copy] = max(done, self.acked[copy.stage][copy])
        self._changed[copy.stage] = None
        self._forget_views()
        self.did("RS-13", f"{copy} after {done}")
        for slot in range(len(replica.sources)):
            self._choose(replica, slot)
        for consumer, after in self.early.pop(copy, {}).items():
            self._serve(replica, consumer, after)
        return [] if end else [Installed(copy)]

    # ---- what other sites send

    def receive(self, sent: Frame | Snapshot) -> list[Instruction]:
        """Read what another site sent, at once or when the log has been read as far."""
        if sent.position > self.position:
            self.ahead.append(sent)
            return []
        if sent.position < self.started:  # RS-20
            return []
        if isinstance(sent, Snapshot):
            if sent.copy not in self.standbys:
                return []
            self._take_acks(sent.acked)
            return self._install(sent.copy, sent.done, sent.state, sent.held)
        for row in sent.units:
            self._take(row)
        self._take_acks(sent.acks)
        for resume in sent.resumes:
            self._resume(resume)
        return []

    def _take(self, row: UnitRow) -> None:
        """RS-3: units for copies here."""
        stage, slot, batch, parts, units = row
        copies = self._copies(stage)
        for part, unit in zip(parts, units, strict=True):
            replica = copies[part]
            if replica is not None and replica.take(slot, batch, unit) and replica.ready():
                self._ready[replica.copy] = None

    def replica(self, stage: int, part: int) -> Replica | None:
        """The copy of a pair that works here."""
        return self._copies(stage)[part]

    def _copies(self, stage: int) -> list[Replica | None]:
        if self._here is None:
            self._here = self._places()
        return self._here[stage]

    def _places(self) -> dict[int, list[Replica | None]]:
        """Stage -> partition -> the copy here."""
        here: dict[int, list[Replica | None]] = {
            stage: [None] * len(self.flow.pairs(stage)) for stage in self.flow.stages
        }
        for copy, replica in self.replicas.items():
            here[copy.stage][copy.part] = replica
        return here

    def _take_acks(self, acks: tuple[Ack, ...]) -> None:
        """RS-5: what copies elsewhere have done; those that are not known have failed."""
        acked = self.acked
        for copy, done in acks:
            known = acked[copy.stage]
            if done > known.get(copy, done):
                known[copy] = done
                self._changed[copy.stage] = None

    def _resume(self, resume: Resume) -> None:
        """RS-7: a consumer wants to receive from a copy here, or no longer."""
        consumer, producer, after = resume
        if consumer not in self.acked[consumer.stage]:
            return
        replica = self.replicas.get(producer)
        if replica is not None and after is not None:
            self._serve(replica, consumer, after)
        elif replica is not None:
            replica.subscribers.pop(consumer, None)
            replica.routes = None
        elif producer in self.standbys:
            waiting = self.early.setdefault(producer, {})
            waiting.pop(consumer, None)
            if after is not None:
                waiting[consumer] = after

    def _serve(self, replica: Replica, consumer: Copy, after: int) -> None:
        """RS-2: what comes after that batch, and from now on everything."""
        replica.subscribers[consumer] = None
        replica.routes = None
        after = max(after, self.acked[consumer.stage][consumer])
        site, pair = self.members[consumer.pair][consumer], replica.copy.pair
        slot = self.flow.slots[consumer.stage][pair]
        column = self.flow.columns[pair.stage][consumer.pair]
        self.did("RS-7", f"{replica.copy} serves {consumer} after {after}")
        try:
            wanted = replica.after(after)
        except LookupError as released:
            raise ProtocolError(f"resume below what is released: {released}") from released
        for batch, units in wanted:
            self._send(
                site, UnitRow(consumer.stage, slot, batch, (consumer.part,), (units[column],))
            )

    def _send(self, site: int, row: UnitRow) -> None:
        if site == self.number:
            self._take(row)
        else:
            self._units[site].append(row)

    # ---- sources

    def _choose(self, replica: Replica, slot: int) -> None:
        """RS-6: a source, another one for every copy of a pair where that can be.

        It is the one on this site, or else one on a site whose number leaves the same remainder as
        this one's: so all that work here receive from few sites, and each frame carries much. Where
        remainders do not tell the copies apart, they take turns.
        """
        pair = self.flow.upstream[replica.copy.stage][slot]
        members, mine = self.members[pair], self.members[replica.copy.pair]
        if not members:
            replica.sources[slot] = None
            return
        here = {site: copy for copy, site in members.items()}
        count = len(members)
        alike = {site % count: copy for copy, site in members.items()}
        if self.number in here:
            source = here[self.number]
        elif len(alike) == count == len({site % count for site in mine.values()}):
            source = alike[self.number % count]
        else:
            source = [*members][[*mine].index(replica.copy) % count]
        self.subscribe(replica.copy, source)

    def subscribe(self, consumer: Copy, producer: Copy) -> None:
        """RS-6: receive from this copy from now on, and from the one before no longer.

        May be called at any time, for load's sake or after a connection was made anew.
        """
        replica = self.replicas[consumer]
        slot = self.flow.slots[consumer.stage][producer.pair]
        before = replica.sources[slot]
        replica.sources[slot] = producer
        self.did("RS-6", f"{consumer} from {producer} after {replica.heads[slot]}")
        if before is not None and before != producer:
            self._ask(Resume(consumer, before, None))
        self._ask(Resume(consumer, producer, replica.heads[slot]))

    def _ask(self, resume: Resume) -> None:
        site = self.members[resume.producer.pair].get(resume.producer)
        if site == self.number:
            self._resume(resume)
        elif site is not None:
            self._resumes[site].append(resume)

    def reconnect(self, there: int) -> None:
        """RS-22: what was under way to and from that site may be lost; ask and tell again."""
        self._told.pop(there, None)
        for replica in self.replicas.values():
            for source in replica.sources:
                if source is not None and self.members[source.pair].get(source) == there:
                    self.subscribe(replica.copy, source)

    # ---- batches

    def has_room(self, copy: Copy) -> bool:
        """RS-1: whether consumers are near enough for the next batch of a copy that works here."""
        replica = self.replicas.get(copy)
        return replica is not None and self._room(replica)

    def _room(self, replica: Replica) -> bool:
        """RS-1: whether consumers are near enough; the egress has none."""
        due = replica.done + 1 - self.flow.window
        if due > self.low[replica.copy.stage] and self._changed:
            self._settle()
        return due <= self.low[replica.copy.stage]

    def next_input(self, full: Container[Copy] = ()) -> Work | None:
        """RS-1: the next batch of some copy, if its inputs are there and its consumers near.

        Args:
            full: copies that take no more for now.
        """
        for copy in self._ready:
            replica = self.replicas[copy]
            if copy not in full and self._room(replica):
                del self._ready[copy]
                return Work(copy, replica.done + 1, replica.begin())
        return None

    def produced(self, copy: Copy, units: Units) -> list[Instruction]:
        """RS-1, RS-2: a copy has made these units, one per column, of its next batch."""
        replica = self.replicas.get(copy)
        if replica is None:
            return []  # it has failed meanwhile
        stage = copy.stage
        low = self.low[stage]
        batch = replica.finish(units, low)
        if batch > low:
            outbox = self._units
            for site, to, slot, parts, pick in replica.routes or self._route(replica):
                row = UnitRow(to, slot, batch, parts, pick(units))
                if site == self.number:
                    self._take(row)
                else:
                    outbox[site].append(row)
        self.acked[stage] |= dict.fromkeys((copy, *replica.owed), batch)  # RS-24
        self._changed[stage] = None
        self._acks = None
        self._batches += 1
        if replica.ready():
            self._ready[copy] = None
        return self._snapshots(replica) if replica.owed else []

    def _route(self, replica: Replica) -> tuple[Route, ...]:
        """The subscribers of a copy by site and stage."""
        groups: dict[tuple[int, int], list[Copy]] = {}
        for consumer in replica.subscribers:
            site = self.members[consumer.pair][consumer]
            groups.setdefault((site, consumer.stage), []).append(consumer)
        pair = replica.copy.pair
        columns = self.flow.columns[pair.stage]
        replica.routes = tuple(
            Route(
                site,
                stage,
                self.flow.slots[stage][pair],
                tuple(consumer.part for consumer in consumers),
                _picker([columns[consumer.pair] for consumer in consumers]),
            )
            for (site, stage), consumers in groups.items()
        )
        return replica.routes

    def _settle(self) -> None:
        """RS-5: let go what all copies of all consumers have done."""
        flow, acked, changed, self._changed = self.flow, self.acked, self._changed, {}
        for stage in dict.fromkeys(
            read for changed_stage in changed for read in flow.reads(changed_stage)
        ):
            consumers = flow.read_by[stage]
            if not all(acked[consumer] for consumer in consumers):
                continue
            low = min(min(acked[consumer].values()) for consumer in consumers)
            if low > self.low[stage]:
                self.low[stage] = low
                for replica in self.replicas.values():
                    if replica.copy.stage == stage:
                        replica.release(low)

    # ---- frames

    def flush(self, idle: bool = True) -> list[tuple[int, Frame]]:
        """RS-4: what there is for other sites.

        Args:
            idle: nothing else is to be done; else acknowledgements alone wait for `ack_every`
                batches of every copy, and travel along with units before.
        """
        if self._changed:
            self._settle()
        acks = self._acks
        if acks is None:
            working = [(c, r) for c, r in self.replicas.items() if c.stage >= 0]
            acks = self._acks = (
                *(Ack(copy, replica.done) for copy, replica in working),
                *(
                    Ack(new, replica.done) for _, replica in working for new in replica.owed
                ),  # RS-24
            )
        audience = self._audience
        if audience is None:
            audience = self._audience = dict.fromkeys(self._producer_sites())
        answered, batches, units, resumes = self._told, self._batches, self._units, self._resumes
        enough = self.flow.ack_every * len(self.replicas)
        frames = []
        for there in {**dict.fromkeys(units), **dict.fromkeys(resumes), **audience}:
            last, when = answered.get(there, ((), -enough))
            news = acks if there in audience and last != acks else ()
            rows, wants = units.get(there, ()), resumes.get(there, ())
            if rows or wants or (news and (idle or batches - when >= enough)):
                if news:
                    answered[there] = (acks, batches)
                frames.append((there, Frame(self.position, tuple(rows), news, tuple(wants))))
        units.clear()
        resumes.clear()
        return frames

    def _producer_sites(self) -> Iterator[int]:
        """Other sites with copies of pairs that copies here read."""
        for stage in dict.fromkeys(copy.stage for copy in self.replicas):
            for pair in self.flow.upstream[stage]:
                yield from (site for site in self.members[pair].values() if site != self.number)

    # ---- the controller, and checks

    def tidy(self) -> None:
        """Forget in which order and how long ago things happened, where it does not matter."""
        self._batches = 0
        self._told = {site: (acks, 0) for site, (acks, _) in sorted(self._told.items())}
        for replica in self.replicas.values():
            replica.subscribers = dict.fromkeys(sorted(replica.subscribers))
            replica.routes = None

    def standing(self) -> list[Notice]:
        """RS-23: for a new controller: what became of the copies announced here."""
        here = [c for m in self.members.values() for c, site in m.items() if site == self.number]
        segments = [copy for copy in here if not self.flow.is_end(copy.stage)]
        known = [Installed(copy) for copy in segments if copy in self.replicas]
        gone = [c for c in segments if c not in self.replicas and c not in self.standbys]
        return [*known, *map(Void, gone)]

    def validate(self) -> None:
        """Bounds and invariants.

        Raises:
            ProtocolError: one is broken.
        """
        window = self.flow.window
        for copy, replica in self.replicas.items():
            outside = [batch for batch in replica.rows if not 0 < batch - replica.done <= window]
            if outside or len(replica.held) > window:
                raise ProtocolError(f"over the bound: {copy} after {replica.done}: {outside}, "
                                    f"holds {len(replica.held)}")  # fmt: skip
            if replica.held and replica.done - len(replica.held) < self.low[copy.stage]:
                raise ProtocolError(f"{copy} holds what nobody wants")
            if strangers := [c for c in replica.subscribers if c not in self.acked[c.stage]]:
                raise ProtocolError(f"{copy} serves {strangers}, which have failed")


def _picker(columns: list[int]) -> Any:
    """Takes these columns of a row, always as a sequence."""
    if len(columns) > 1:
        return itemgetter(*columns)
    return itemgetter(slice(columns[0], columns[0] + 1))
