"""The copies of one site under the resume protocol, and what lies between it and other sites.

It hosts a `Site`: frames in and out as bytes, turns in which operators
run, states that leave and arrive, results. What other sites say is read only as far as it is theirs
to say: units of producers, acknowledgements and resumes of consumers that stand there. What is not
is left alone; it may also come from a site that does not know yet that its copies are taken for
dead.

The first batch of the source is number 0; the protocol counts from 1. So the batches that a
collector has done are the offset of its readers.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from flux_runtime.operators.packing import Base, Classes, Packed, Unreadable, unpack
from flux_runtime.protocol.dataflow import InParts, Operator, Rows
from flux_runtime.protocol.spill import Storage
from flux_runtime.protocol.vocabulary import END, INGRESS, Node, Pair
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import (
    Ack,
    Copy,
    Frame,
    Instruction,
    Load,
    LogEntry,
    Notice,
    Owed,
    Resume,
    Snapshot,
    Start,
    Transfer,
    UnitRow,
    Work,
)
from flux_runtime.resume.replica import Replica
from flux_runtime.resume.site import Site
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.collector import Collector, HeldResults
from flux_runtime.site.copies import BASE_MIN_BYTES, LEADER, OnDisk, ReplicaCopy, name_of
from flux_runtime.site.copies import Load as Loaded
from flux_runtime.site.moving import OnLink, States
from flux_runtime.site.together import Part, Shared
from flux_runtime.site.units import POSITION_MAX, put_units, take_units
from flux_runtime.site.wire import Bundles, Kind, Malformed

AHEAD_MAX: Final = 1 << 12
"""Frames of one site that wait until this one has read as much of the log."""
SNAPSHOT: Final = Classes((Snapshot, Copy, Ack), {})


class ResumeHost:
    """The copies of one site.

    Args:
        flow: what runs, on all sites; it collects.
        me: this site's number.
        storage: where partitions spill to.
        clock: seconds that turns are limited by.
        cpu: seconds of processor time, for statistics only.

    Attributes:
        site: the machine; made anew when this site gets its number.
        sites: others that exist.
        busy: a turn has ended before everything was done.
        owing: nothing is left to be acknowledged later; acknowledgements leave with a turn.
        last: number of batches of the input, once it has ended.
        unfed: the ingress that is to be begun here, by `begin`.
        notices: for the controller.
        outbox: frames for other sites.
        ahead: frames of other sites that have read more of the log.
        leaving: states that are to leave, and those of which most is to leave before.
        reading: copy that waits for a state -> the operator, and the parts that are read of it.
    """

    def __init__(
        self,
        flow: Flow,
        me: int,
        *,
        storage: Storage | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.flow = flow
        self.dataflow = flow.dataflow
        self.storage = storage
        self.clock = clock
        self.cpu = cpu
        self.loads: dict[Copy, Loaded] = {}
        self.site = Site(flow, me)
        self.sites: set[int] = set()
        self.busy = False
        self.owing = False
        self.last: int | None = None
        self.unfed: Copy | None = None
        self.notices: list[Notice] = []
        self.outbox: dict[int, list[Frame]] = {}
        self.ahead: dict[int, deque[Frame]] = {}
        self.leaving: list[Owed | Transfer] = []
        self.reading: dict[Copy, tuple[Operator, Iterator[Any] | None]] = {}

    # ---- membership and the log

    @property
    def me(self) -> int:
        """This site's number."""
        return self.site.number

    def become(self, number: int) -> None:
        """This site's number is this one; it has read nothing yet."""
        self.site = Site(self.flow, number)

    def connect(self, site: int) -> None:
        """Another site exists."""
        self.sites.add(site)

    def disconnect(self, site: int) -> None:
        """A site is gone, with all that was under way to and from it."""
        self.sites.discard(site)
        self.outbox.pop(site, None)
        self.ahead.pop(site, None)

    def reconnect(self, site: int) -> None:
        """RS-22: a connection is new; what was under way before is lost."""
        self.disconnect(site)
        self.connect(site)
        self.site.reconnect(site)

    @property
    def position(self) -> int:
        """The position of the entry of the log that comes next."""
        return self.site.position

    def lay_out(
        self,
        placement: Mapping[tuple[Pair, int], int],
        lives: Mapping[tuple[Pair, int], int],
        *,
        base: int,
        ingress: int,
        done: int,
    ) -> None:
        """RS-20: where copies stand is read as a start; who comes later has none of them.

        Args:
            placement: site of each copy.
            lives: number of each copy.
            base: position behind it.
            ingress: number of the ingress.
            done: batches that all copies have done.
        """
        copies = ((Copy(*which[0], lives[which]), site) for which, site in placement.items())
        self.site.position = base - 1
        self.extend(Start(((Copy(INGRESS, 0, ingress), LEADER), *copies), done))

    def extend(self, entry: LogEntry) -> None:
        """Read the next entry of the log, and what has come from sites that had read it."""
        before = dict(self.site.replicas)
        self._carry_out(self.site.log(entry))
        for copy in before.keys() - self.site.replicas.keys():
            self.loads.pop(copy, None)
            if isinstance(operator := before[copy].operator, Part | OnDisk):
                operator.leave()
        for copy in [c for c in self.reading if c not in self.site.members[c.pair]]:
            del self.reading[copy]
        for sender, frames in self.ahead.items():
            while frames and frames[0].position <= self.position:
                self._read(sender, frames.popleft())

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Owed(_, copy, donor):
                    operator = self.site.replicas[donor].operator
                    assert operator is not None
                    if isinstance(operator, OnDisk) or operator.state_size() < BASE_MIN_BYTES:
                        self._carry_out(self.site.take_state(copy))
                    else:
                        self.leaving.append(instruction)
                case Transfer():
                    self.leaving.append(instruction)
                case Load(copy, at) if copy.stage == INGRESS:
                    self.unfed = copy
                case Load(copy, at):
                    self._carry_out(self.site.load(copy, at))
                case notice:
                    self.notices.append(notice)

    def gone_ahead(self, copy: Copy) -> None:
        """RS-24: all that can travel before the state of a copy is on its way."""
        operator, parts = self.reading.pop(copy, (None, None))
        rest = parts is not None and isinstance(operator, InParts) and operator.reads(parts)
        self._carry_out(self.site.take_state(copy, rest=rest))

    def take_notices(self) -> tuple[Notice, ...]:
        """Reports of copies since the last time."""
        notices, self.notices = tuple(self.notices), []
        return notices

    def trim(self, base: int) -> None:
        """The log is not kept here."""

    def resume_points(self) -> dict[Node, int]:
        """A leader need not know any."""
        return {}

    # ---- frames

    def hold(self, sites: set[int]) -> None:
        """The window limits what is sent to these sites, too."""

    def touch_all(self) -> None:
        """Something has changed that may concern every copy: a turn looks at all of them."""
        self.busy = True

    def take(self, site: int, kind: Kind, body: memoryview, decoder: RowsDecoder) -> None:
        """Take what another site has written.

        Raises:
            Malformed: it is no frame, or too many wait.
        """
        if kind is not Kind.UNITS:
            raise Malformed(f"unexpected {kind.name}")
        frame = take_units(body, decoder, self.flow)
        waiting = self.ahead.setdefault(site, deque())
        if not waiting and frame.position <= self.position:
            self._read(site, frame)
        elif len(waiting) < AHEAD_MAX:
            waiting.append(frame)  # RS-10
        else:
            raise Malformed(f"{len(waiting)} frames from ahead of the log")

    def _read(self, sender: int, frame: Frame) -> None:
        """Read what is the sender's to say."""
        self._carry_out(
            self.site.receive(
                Frame(
                    frame.position,
                    tuple(row for sent in frame.units for row in self._admitted(sender, sent)),
                    tuple(ack for ack in frame.acks if self._answers_for(sender, ack.copy)),
                    tuple(r for r in frame.resumes if self._asks(sender, r)),
                )
            )
        )

    def _answers_for(self, sender: int, copy: Copy) -> bool:
        """RS-24: for a copy there, or one that waits for the state of a copy there."""
        members = self.site.members[copy.pair]
        donor = self.site.donors.get(copy, copy)
        return copy in members and sender in (members[copy], members.get(donor))

    def _asks(self, sender: int, resume: Resume) -> bool:
        return self.site.members[resume.consumer.pair].get(resume.consumer) == sender

    def _admitted(self, sender: int, row: UnitRow) -> list[UnitRow]:
        """The row, if its producer stands there, without units that nobody can send yet (RS-1)."""
        stage, slot, batch, parts, units = row
        if sender not in self.site.members[self.flow.upstream[stage][slot]].values():
            return []
        near = [self._near(stage, part, batch) for part in parts]
        if all(near):
            return [row]
        chosen = [i for i, is_near in enumerate(near) if is_near]
        return [UnitRow(stage, slot, batch, (parts[i],), (units[i],)) for i in chosen]

    def _near(self, stage: int, part: int, batch: int) -> bool:
        replica = self.site.replica(stage, part)
        return replica is not None and batch <= replica.done + self.flow.window

    def put(self, site: int, encoder: RowsEncoder, out: Bundles) -> None:
        """Write what there is for another site."""
        for frame in self.outbox.pop(site, ()):
            put_units(frame, encoder, out)

    # ---- turns

    def turn(self, budget_s: float = 0.005) -> bool:
        """Let copies process what has come; gives whether there is more to do."""
        end = self.clock() + budget_s
        self.busy = False
        while not self.busy and (due := self._due()):
            self._process(due)
            self.busy = self.clock() > end
        for there, frame in self.site.flush(idle=not self.busy):
            if there in self.sites:
                self.outbox.setdefault(there, []).append(frame)
        return self.busy

    def _due(self) -> list[Work]:
        """One batch of every copy that can process one."""
        full = {
            copy
            for copy, replica in self.site.replicas.items()
            if getattr(replica.operator, "full", False)
        }
        due: list[Work] = []
        while (work := self.site.next_input(full)) is not None:
            due.append(work)
        return due

    def _process(self, due: list[Work]) -> None:
        """Run operators; those that copies share run once over all of it."""
        began = self.cpu()
        spent = dict.fromkeys((work.copy for work in due), 0.0)
        outputs: dict[Copy, Rows | None] = {}
        shared: dict[Shared, list[tuple[Copy, Rows]]] = {}
        for copy, _, units in due:
            rows = self.flow.merged(units)
            operator = self.site.replicas[copy].operator
            load = self.loads.setdefault(copy, Loaded())
            load.units += sum(unit is not None for unit in units)
            load.rows += 0 if rows is None else rows.num_rows
            assert operator is not None
            if rows is None:
                outputs[copy] = None
            elif isinstance(operator, Part):
                shared.setdefault(operator.shared, []).append((copy, rows))
            else:
                at = self.cpu()
                outputs[copy] = operator.process(rows)
                spent[copy] = self.cpu() - at
        for of, batches in shared.items():
            at = self.cpu()
            results = of.run([(copy.part, rows) for copy, rows in batches])
            outputs |= {copy: rows for (copy, _), rows in zip(batches, results, strict=True)}
            spent |= dict.fromkeys((copy for copy, _ in batches), (self.cpu() - at) / len(batches))
        for copy, rows in outputs.items():
            units = [] if copy.stage == self.flow.last else self.flow.split(copy.stage, rows)
            self._carry_out(self.site.produced(copy, units))
        beside = (self.cpu() - began - sum(spent.values())) / len(due)
        for copy, operator_s in spent.items():
            self.loads[copy].operator_s += operator_s
            self.loads[copy].cpu_s += operator_s + beside

    # ---- the two ends

    def begin(self, fed: int) -> None:
        """RS-21: the ingress goes on here, behind so many batches; no consumer lacks any of them.

        Raises:
            LookupError: no ingress is to be begun here.
        """
        if self.unfed is None:
            raise LookupError(f"no ingress is to be begun on site {self.me}")
        ingress, self.unfed = self.unfed, None
        self._carry_out(self.site.load(ingress, fed))

    @property
    def ingress(self) -> Replica | None:
        """The ingress, if it works here."""
        return self.site.replica(INGRESS, 0)

    @property
    def wants_input(self) -> bool:
        """Whether the next batch may be fed."""
        return self.ingress is not None and self.site.has_room(self.ingress.copy)

    def feed(self, rows: Rows) -> None:
        """Hand the next batch to the ingress, which wants it."""
        assert self.ingress is not None
        self._carry_out(
            self.site.produced(self.ingress.copy, self.flow.split(INGRESS, rows)),
        )

    def results(self) -> HeldResults | None:
        """The results that are held here; None: no copy of the collector works here."""
        replica = self.site.replica(self.flow.last, 0)
        if replica is None:
            return None
        assert isinstance(replica.operator, Collector)
        return HeldResults(replica.operator, replica.done, replica.done == self.last)

    def commit(self, offset: int) -> None:
        """NC-7: the results of all batches below this one are where they belong."""
        if (here := self.results()) is not None:
            here.collector.commit(offset)

    # ---- reports

    def copies(self) -> Iterator[ReplicaCopy]:
        """The copies here that work, without the ingress."""
        read = [operator for operator, parts in self.reading.values() if parts is not None]
        for copy, replica in self.site.replicas.items():
            if copy.stage != INGRESS:
                sends = any(operator is replica.operator for operator in read)
                yield ReplicaCopy(replica, self.site, sends, self.storage)

    def counts(self) -> dict[Node, Loaded]:
        """The work of every copy so far."""
        return {name_of(copy): dataclasses.replace(load) for copy, load in self.loads.items()}

    @property
    def nodes(self) -> Mapping[Copy, Replica]:
        """The copies here that work."""
        return self.site.replicas

    def buffered(self) -> int:
        """Units that copies here keep for consumers."""
        return sum(copy.buffered() for copy in self.copies())


class Snapshots(States):
    """The states of a host's copies.

    Args:
        host: hosts the copies.
    """

    def __init__(self, host: ResumeHost) -> None:
        super().__init__()
        self.host = host

    def ship(self, links: Mapping[int, OnLink]) -> None:
        """RS-12, RS-24: begin to send what the host has to send, over the links to other sites."""
        host = self.host
        leaving, host.leaving = host.leaving, []
        for state in leaving:
            link = links.get(state.site)
            if link is not None:
                self._ship(link, state)
            elif state.site in host.sites:
                host.leaving.append(state)  # it has not connected yet

    def _ship(self, link: OnLink, state: Owed | Transfer) -> None:
        if isinstance(state, Transfer):
            name = name_of(state.snapshot.copy)
            base = link.sent.pop(name, None)
            if state.snapshot.rest and base is None:
                return  # its parts went over a connection that is lost, as one of its ends is
            self._send(link, name, Packed(state.snapshot, classes=SNAPSHOT, base=base))
            return
        copy, site = state.copy, self.host.site
        replica = site.replicas.get(state.donor)
        if replica is None or replica.operator is None:
            return  # it has failed
        operator = replica.operator
        parts = operator.parts() if isinstance(operator, InParts) else None
        self.host.reading[copy] = operator, parts
        self._send_ahead(
            link,
            name_of(copy),
            Base(operator.get_state(), classes=SNAPSHOT) if parts is None else parts,
            wanted=lambda: copy in site.members[copy.pair],
            sent=partial(self.host.gone_ahead, copy),
        )

    def _takes(self, name: Node) -> bool:
        """Whether this may be a copy that is announced here, as far as this site has read."""
        copy = Copy(name.stage, name.part, name.life)
        here = self.host.site.members.get(copy.pair, {}).get(copy, self.host.me)
        return copy.pair in self.host.flow.segments() and here == self.host.me

    def _arrived(self, link: OnLink, kind: Kind, name: Node, data: bytearray) -> None:
        site = self.host.site
        copy = Copy(name.stage, name.part, name.life)
        if kind is Kind.PART:
            self._begun(copy).install_part(unpack(data))
            return
        snapshot = unpack(data, classes=SNAPSHOT, base=link.bases.pop(name, []))
        why = self._flaw(copy, snapshot)
        waiting = (sent for sent in site.ahead if isinstance(sent, Snapshot))
        if not why and any(sent.copy.pair == copy.pair for sent in waiting):
            why = "another of its pair waits for the log"
        if why:
            raise Unreadable(why)
        if snapshot.rest:
            self._begun(copy)  # it may have no parts
        else:
            site.begun.pop(copy, None)
        self.host._carry_out(site.receive(snapshot))

    def _begun(self, copy: Copy) -> InParts:
        """The operator of a copy that is announced here, or will be, whose state comes in parts."""
        begun = self.host.site.begun
        if copy not in begun:
            for old in [known for known in begun if known.pair == copy.pair]:
                del begun[old]  # a site has one copy of a pair at most
            begun[copy] = self.host.dataflow.operator(copy.pair)
        operator = begun[copy]
        if not isinstance(operator, InParts):
            raise Unreadable("a part of a state that has none")
        return operator

    def _flaw(self, copy: Copy, snapshot: Any) -> str:
        """Why this is no state of such a copy; empty: it is one."""
        flow = self.host.flow
        if not isinstance(snapshot, Snapshot) or snapshot.copy != copy:
            return "another one's"
        held, acked, width = snapshot.held, snapshot.acked, len(flow.downstream[copy.stage])
        if type(held) is not tuple or any(type(row) not in (tuple, list) for row in held):
            return "no rows of units"
        if len(held) > flow.window or any(len(row) != width for row in held):
            return "units for others, or more than anybody holds"
        if type(acked) is not tuple or not all(type(ack) is Ack for ack in acked):
            return "no acknowledgements"
        if any(type(ack.copy) is not Copy or ack.copy.stage not in flow.stages for ack in acked):
            return "acknowledgements of nobody"
        numbers = (snapshot.position, snapshot.done, *(done for _, done in acked))
        if not all(type(n) is int and 0 <= n < END for n in numbers):
            return "no numbers"
        return "" if snapshot.position <= POSITION_MAX else "a position beyond every log"
