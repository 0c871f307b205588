"""The machines of one site under the papers' protocol, and what lies on their channels.

Whoever runs a host hands in frames and view changes, lets it take turns, and writes what its
multiplexers have for other sites. A turn visits only nodes that something has happened to; each
reads what it may read, works batch by batch, and fills the channels that have credits.

Frames of another site are admitted as far as they are its business: whoever holds the job's key may
be mistaken, or of an older view, and what it says must not reach a machine that does not expect it.
Limits are those of the protocol, so that memory is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol

from flux_lab.papers.copies import SegmentCopy, next_offset
from flux_lab.papers.frames import put_frame, take_acks, take_credits, take_message
from flux_lab.papers.hosted import entry_of, notice_hosted
from flux_lab.papers.protocol.channels import Channel, Frame, Multiplexer, takes_credit
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import (
    Avail,
    Data,
    Emit,
    Fail,
    Instruction,
    LogEntry,
    Move,
    Notice,
    Send,
    Tell,
)
from flux_lab.papers.protocol.segment import Segment, SegmentState
from flux_runtime.protocol.dataflow import Dataflow, InParts, Rows
from flux_runtime.protocol.spill import Storage, Unit
from flux_runtime.protocol.vocabulary import (
    INGRESS,
    THE_INGRESS,
    Node,
    Pair,
    ProtocolError,
    Status,
)
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.collector import Collector, HeldResults
from flux_runtime.site.control_messages import Hosted
from flux_runtime.site.copies import BASE_MIN_BYTES, LEADER, Load, Placement
from flux_runtime.site.together import Part, Shared
from flux_runtime.site.wire import Bundles, Kind, Malformed

ROUNDS_MAX: Final = 8
"""How often a node goes through its work before the others have their turn."""

Machine = Ingress | Egress | Segment
NO_LIVES: Final[Placement] = MappingProxyType({})


@dataclass
class Outgoing:
    """Payloads for other sites besides frames, for whoever runs the host.

    Attributes:
        notices: for the controller.
        moves: (active node, standby, state).
        bases: (active node, standby, the operator's state, or its parts), to be sent before a move.
    """

    notices: list[Notice] = field(default_factory=list)
    moves: list[tuple[Node, Node, SegmentState]] = field(default_factory=list)
    bases: list[tuple[Node, Node, Any]] = field(default_factory=list)


class Host:
    """The machines of one site.

    Args:
        dataflow: what runs, on all sites.
        me: this site's number.
        credits: units under way per channel; the same on all sites.
        storage: where partitions spill to.
        clock: seconds that turns are limited by.
        cpu: seconds of processor time, for statistics only.

    Attributes:
        last: said by no leader of this protocol: the input ends with a row of its own.
        owing: nodes that may have received units without acknowledging them yet.
        acknowledging: some node has acknowledged in this turn; the others do so with it, since
            what costs is not an acknowledgement but a bundle of its own.
        patient: what may be owed to a producer takes at most half of its pool, so that
            acknowledgements can wait for `Shape.ack_every` units, or until nothing happens.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        me: int,
        *,
        credits: int = 4,
        storage: Storage | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.dataflow = dataflow
        self.me = me
        self.credits = credits
        self.storage = storage
        self.forget: Callable[[Node], None] | None = getattr(storage, "forget", None)
        self.clock = clock
        self.cpu = cpu
        self.last: int | None = None
        self.nodes: dict[Node, Machine] = {}
        self.where: dict[Node, int] = {
            THE_INGRESS: LEADER,
            dataflow.shape.egress: LEADER,
        }
        self.lives: dict[tuple[Pair, int], int] = {}
        self.log: list[LogEntry] = []
        self.base = 0
        self.local = Multiplexer(credits=credits)
        self.peers: dict[int, Multiplexer] = {me: self.local}
        self.blocked: set[int] = set()
        self.out = Outgoing()
        self.loads: dict[Node, Load] = {}
        self.early: dict[Node, list[Callable[[], None]]] = {}
        self.ready: dict[Node, None] = {}
        self.due: dict[Node, Segment] = {}
        self.owing: dict[Node, None] = {}
        self.acknowledging = False
        shape = dataflow.shape
        self.patient = shape.pool >= 2 * shape.ack_every * max(shape.widths)

    # ---- membership and layout

    def become(self, number: int) -> None:
        """This site's number is this one."""
        self.peers[number] = self.peers.pop(self.me)
        self.me = number

    def connect(self, site: int) -> None:
        """Another site exists; messages for it wait until somebody takes its frames."""
        self.peers.setdefault(site, Multiplexer(credits=self.credits))

    def disconnect(self, site: int) -> None:
        """A site is gone, with all that was under way to and from it."""
        self.peers.pop(site, None)
        self.blocked.discard(site)

    def reconnect(self, site: int) -> None:
        """A site begins anew, with nothing under way: ingress and egress have been rebuilt."""
        self.disconnect(site)
        self.connect(site)
        self.touch_all()

    def lay_out(
        self, placement: Placement, lives: Placement = NO_LIVES, *, base: int = 0, **_: int
    ) -> None:
        """All copies are whole.

        Args:
            placement: where they stand.
            lives: their incarnations, where they are not the first.
            base: position of the controller's log from which on entries will come.
        """
        self.base = base
        for (pair, copy), site in placement.items():
            node = Node(*pair, copy, lives.get((pair, copy), 0))
            self.where[node] = site
            self.lives[pair, copy] = node.life
            if site == self.me:
                if node.life:
                    raise ProtocolError(f"{node} is said to be on site {site}, which is new")
                self._host(node, Segment(self.dataflow, node, storage=self.storage))

    def extend(self, hosted: Hosted) -> None:
        """Take the next entry of the controller's log."""
        entry, site = entry_of(hosted, self.dataflow.shape.copies)
        self.log.append(entry)
        self._follow(entry, site)

    @property
    def position(self) -> int:
        """The position of the entry that comes next."""
        return self.base + len(self.log)

    def trim(self, base: int) -> None:
        """Forget entries below a position, which no catch-up will need, if all have read them."""
        reading = [m.boundary.log_position for m in self.nodes.values() if m.reads_log]
        below = min((*reading, base, self.position)) - self.base
        if below > 0:
            del self.log[:below]
            self.base += below

    def _follow(self, entry: LogEntry, site: int | None) -> None:
        if isinstance(entry, Fail):
            node = Node(*entry.pair, entry.copy, self.lives.get((entry.pair, entry.copy), 0))
            self._bury(node)
        elif isinstance(entry, Avail):
            node = Node(*entry.pair, entry.copy, entry.attempt)
            self.lives[entry.pair, entry.copy] = entry.attempt
            if site is None:
                raise ProtocolError(f"{entry} without a site")
            self.where[node] = site
            if site == self.me:
                standby = Segment(self.dataflow, node, standby=True, storage=self.storage)
                self._host(node, standby)
                for installation in self.early.pop(node, ()):
                    installation()
            self._send_base(node)
        self.touch_all()

    def _send_base(self, standby: Node) -> None:
        """A large state is sent while its copy works, which then waits only for what is new."""
        copy = 1 - standby.copy
        life = self.lives.get((standby.pair, copy), 0)
        machine = self.nodes.get(Node(*standby.pair, copy, life))
        if not isinstance(machine, Segment):
            return
        machine.sending = 0
        if (
            machine.status is Status.ACTIVE
            and machine.back.resident
            and machine.operator.state_size() >= BASE_MIN_BYTES
        ):
            machine.sending = standby.life
            operator = machine.operator
            if isinstance(operator, InParts):
                machine.in_parts = standby.life
                self.out.bases.append((machine.node, standby, operator.parts()))
            else:
                self.out.bases.append((machine.node, standby, operator.get_state()))

    def base_sent(self, node: Node, attempt: int) -> None:
        """Notes that all that the state of this attempt refers to is on its way."""
        machine = self.nodes.get(node)
        if isinstance(machine, Segment):
            self._carry_out(node, machine.sent(attempt))
            self.ready[node] = None

    def _host(self, node: Node, machine: Machine) -> None:
        self.nodes[node] = machine
        self.loads[node] = Load()
        self.ready[node] = None

    @property
    def busy(self) -> bool:
        """Whether a turn would let some node go on."""
        return bool(self.ready or self.due)

    def host_end(self, node: Node, machine: Ingress | Egress) -> None:
        """Take up the ingress or the egress."""
        self.where[node] = self.me
        self._host(node, machine)

    def _bury(self, node: Node) -> None:
        machine = self.nodes.pop(node, None)
        if isinstance(machine, Segment):
            if self.forget is not None:
                self.forget(node)
            if isinstance(machine.operator, Part):
                machine.operator.leave()
        self.due.pop(node, None)
        self.loads.pop(node, None)
        self.where.pop(node, None)
        self.ready.pop(node, None)
        self.early.pop(node, None)
        for mux in self.peers.values():
            mux.forget(node)

    def touch_all(self) -> None:
        """Something has changed that may concern every node."""
        self.ready.update(dict.fromkeys(self.nodes))

    def segments(self) -> Iterator[tuple[Node, Segment]]:
        """All copies that stand here."""
        for node, machine in self.nodes.items():
            if isinstance(machine, Segment):
                yield node, machine

    def resume_points(self) -> dict[Node, int]:
        """Positions that the copies of the first stage here have received from the ingress."""
        return {
            node: machine.consumer.inlets[0].hi
            for node, machine in self.segments()
            if node.stage == 0 and machine.status is not Status.STANDBY
        }

    # ---- what comes in

    def take(self, site: int, kind: Kind, body: memoryview, decoder: RowsDecoder) -> None:
        """Take what another site has written.

        Raises:
            Malformed: it is no message, or that site has no business saying so.
        """
        if kind is Kind.MESSAGE:
            frame = Frame((take_message(body, decoder),), ())
        elif kind is Kind.ACKS:
            frame = Frame(take_acks(body), ())
        elif kind is Kind.CREDITS:
            frame = Frame((), take_credits(body))
        else:
            raise Malformed(f"unexpected {kind.name}")
        self.receive(site, frame)

    def put(self, site: int, encoder: RowsEncoder, out: Bundles) -> None:
        """Write what there is for another site."""
        mux = self.peers.get(site)
        while mux is not None and (frame := mux.next_frame()) is not None:
            put_frame(frame, encoder, out)

    def hold(self, sites: set[int]) -> None:
        """These sites take no rows for now, and all others do."""
        if sites != self.blocked:
            self.blocked = sites
            self.touch_all()

    def receive(self, site: int, frame: Frame) -> None:
        """Take a frame of another site.

        Raises:
            Malformed: that site has no business saying so, or ignores its credits.
        """
        mux = self.peers.get(site)
        if mux is None:
            return
        for node in mux.receive(admitted(self, site, mux, frame)):
            if node in self.nodes:
                self.ready[node] = None

    def takes_state(self, node: Node) -> bool:
        """Whether this may be a standby here, as far as this site has heard."""
        return node.pair in self.dataflow.shape.pairs() and self.where.get(node, self.me) == self.me

    def install(self, node: Node, state: SegmentState) -> None:
        """CU-17: the state of a standby has arrived, perhaps before word of the standby has."""
        machine = self.nodes.get(node)
        if machine is None:
            self._install_later(node, partial(self.install, node, state))
            return
        assert isinstance(machine, Segment)
        if machine.status is Status.STANDBY and state.version == node.life:
            self._carry_out(node, machine.install(state))
            self.ready[node] = None

    def install_part(self, node: Node, part: Any) -> None:
        """A part of the state of a standby has arrived, perhaps before word of the standby has."""
        machine = self.nodes.get(node)
        if machine is None:
            self._install_later(node, partial(self.install_part, node, part))
        elif isinstance(machine, Segment) and machine.status is Status.STANDBY:
            if not isinstance(machine.operator, InParts):
                raise ProtocolError(f"a part of the state of {node}, whose state has none")
            machine.operator.install_part(part)

    def _install_later(self, node: Node, installation: Callable[[], None]) -> None:
        """Waits for word of the standby, if it can still come; forgets attempts given up."""
        if node.life <= self.lives.get((node.pair, node.copy), 0):
            return
        copies = [n for n in self.early if (n.pair, n.copy) == (node.pair, node.copy)]
        for old in copies:
            if old != node:
                del self.early[old]
        self.early.setdefault(node, []).append(installation)

    def full_state(self, node: Node, state: SegmentState) -> SegmentState | None:
        """The state that is to move, with all that may have travelled before; None: given up."""
        machine = self.nodes.get(node)
        return machine.full_state(state) if isinstance(machine, Segment) else None

    def feed(self, rows: Rows) -> None:
        """Hand the next batch to the ingress, which stands here."""
        ingress = self.nodes[THE_INGRESS]
        assert isinstance(ingress, Ingress)
        self._carry_out(THE_INGRESS, ingress.feed(rows))
        self.ready[THE_INGRESS] = None

    # ---- turns

    def turn(self, budget_s: float = 0.005) -> bool:
        """Let nodes that something happened to go on; gives whether there is more to do.

        Once there is nothing more and `owing` is not empty, another turn acknowledges.
        """
        end = self.clock() + budget_s
        idle = not self.busy
        while self.busy:
            if not self.ready:
                self._work_together()
            node = next(iter(self.ready))
            del self.ready[node]
            if node in self.nodes:
                began, load = self.cpu(), self.loads[node]
                if self._go_on(node):
                    self.ready[node] = None
                load.cpu_s += self.cpu() - began
            self._pass_on()
            if self.clock() > end:
                break
        if idle or self.acknowledging or not self.patient:
            self._acknowledge()
        return self.busy

    def _pass_on(self) -> None:
        """Messages between nodes of this site arrive at once."""
        while (frame := self.local.next_frame()) is not None:
            for node in self.local.receive(frame):
                if node in self.nodes:
                    self.ready[node] = None

    def _go_on(self, node: Node) -> bool:
        """Everything that the node can do now; gives whether it could do more."""
        machine = self.nodes[node]
        for again in range(ROUNDS_MAX):
            moved = self._read_log(node, machine)
            moved |= self._read(node, machine)
            moved |= self._work(node, machine)
            if moved or not again:  # else the last round has filled what could be filled
                moved |= self._fill(node, machine)
            if not moved:
                return False
        return True

    def _acknowledge(self) -> None:
        """BUF-C: acknowledge what has been read; one for all units of an inlet since the last."""
        owing, self.owing = self.owing, {}
        self.acknowledging = False
        for node in owing:
            machine = self.nodes.get(node)
            if machine is None or machine.boundary.consumer is None or not machine.reads_log:
                continue
            if isinstance(machine, Segment) and machine.status is Status.PAUSE:
                self.owing[node] = None  # CU-18: with its marker; until then nobody is told
                continue
            for inlet in machine.boundary.consumer.inlets:
                if inlet.owed:
                    self._carry_out(node, list(inlet.flush()))
        self._pass_on()

    def _read_log(self, node: Node, machine: Machine) -> bool:
        moved = False
        while machine.reads_log and machine.boundary.log_position < self.position:
            entry = self.log[machine.boundary.log_position - self.base]
            self._carry_out(node, machine.log(entry))
            moved = True
        return moved

    def _read(self, node: Node, machine: Machine) -> bool:
        moved = False
        load = self.loads[node]
        for mux in self.peers.values():
            held = mux.inbox.get(node)
            if not held:
                continue
            for src, queue in list(held.items()):
                while queue and machine.accepts(src, queue[0]):
                    message = mux.take(src, node)
                    answer = machine.receive(src, message)
                    if isinstance(message, Data):
                        load.units += 1
                        load.rows += message.rows.num_rows
                        self.owing[node] = None
                        self.acknowledging |= bool(answer)
                    self._carry_out(node, answer)
                    moved = True
        return moved

    def _work(self, node: Node, machine: Machine) -> bool:
        if not machine.can_work() or self._full(machine):
            return False
        if isinstance(machine, Segment) and isinstance(machine.operator, Part):
            self.due[node] = machine
            return False
        began = self.cpu()
        self._carry_out(node, machine.work())
        self.loads[node].operator_s += self.cpu() - began
        return True

    def _work_together(self) -> None:
        """Nothing more can be read: operators that copies share run once over what has come."""
        due, self.due = self.due, {}
        self.ready.update(dict.fromkeys(due))
        began = self.cpu()
        units: dict[Shared, list[tuple[Node, Segment, Unit]]] = {}
        for node, segment in due.items():
            unit = segment.next_input()
            if unit is None:
                self._carry_out(node, segment.work())
            else:
                assert isinstance(segment.operator, Part)
                units.setdefault(segment.operator.shared, []).append((node, segment, unit))
        for shared, its in units.items():
            outputs = shared.run([(node.part, unit.rows) for node, _, unit in its])
            for (_, segment, unit), rows in zip(its, outputs, strict=True):
                segment.produced(unit.batch, rows)
        took = self.cpu() - began
        for node in due:
            self.loads[node].operator_s += took / len(due)
            self.loads[node].cpu_s += took / len(due)

    def _full(self, machine: Machine) -> bool:
        """Whether the operator asks not to be given more for now."""
        return isinstance(machine, Segment) and bool(getattr(machine.operator, "full", False))

    def _fill(self, node: Node, machine: Machine) -> bool:
        if isinstance(machine, Egress):
            return False
        moved = False
        for to in list(machine.boundary.destinations()):
            site = self.where.get(to)
            mux = None if site is None or site in self.blocked else self.peers.get(site)
            while mux is not None and mux.room(node, to):
                message = machine.next_message(to)
                if message is None:
                    break
                mux.send(node, to, message)
                moved = True
        return moved

    def _carry_out(self, node: Node, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(to, message):
                    site = self.where.get(to)
                    mux = None if site is None else self.peers.get(site)
                    if mux is not None:
                        mux.send(node, to, message)
                case Tell(notice):
                    self.out.notices.append(notice)
                case Move(to, state, _):
                    self.out.moves.append((node, to, state))
                case Emit():
                    egress = self.nodes[node]
                    assert isinstance(egress, Egress)
                    egress.acknowledged(instruction)
                case _:
                    pass

    def moved(self, node: Node, attempt: int) -> None:
        """CU-18: the state of this attempt has been handed over for transport."""
        machine = self.nodes.get(node)
        if isinstance(machine, Segment):
            self._carry_out(node, machine.moved(attempt))
            self.ready[node] = None

    # ---- results

    def results(self) -> HeldResults | None:
        """The results that are held here; None: no copy of the collector works here."""
        for _, segment in self._collectors():
            if segment.status is not Status.STANDBY:
                assert isinstance(segment.operator, Collector)
                return HeldResults(segment.operator, *next_offset(segment))
        return None

    def commit(self, offset: int) -> None:
        """NC-7: the results of all batches below this one are where they belong."""
        for node, segment in self._collectors():
            assert isinstance(segment.operator, Collector)
            segment.operator.commit(offset)
            self.ready[node] = None

    def _collectors(self) -> Iterator[tuple[Node, Segment]]:
        last = len(self.dataflow.shape.widths) - 1
        return ((node, segment) for node, segment in self.segments() if node.stage == last)

    # ---- reports

    def take_notices(self) -> tuple[Hosted, ...]:
        """Reports of nodes since the last time."""
        notices, self.out.notices = self.out.notices, []
        return tuple(map(notice_hosted, notices))

    def counts(self) -> dict[Node, Load]:
        """The work of every node so far."""
        return {node: replace(load) for node, load in self.loads.items()}

    def copies(self) -> Iterator[SegmentCopy]:
        """All copies that stand here, with what waits on their channels."""
        for node, segment in self.segments():
            inboxes = (mux.inbox.get(node, {}) for mux in self.peers.values())
            yield SegmentCopy(segment, sum(len(q) for held in inboxes for q in held.values()))

    def buffered(self) -> int:
        """Units that producers here keep for consumers."""
        machines: list[Any] = [m for m in self.nodes.values() if m.boundary.producer is not None]
        return sum(len(o.buffer) for m in machines for o in m.boundary.producer.outlets)


CHANNEL_MAX: Final = 1 << 16
"""Unread messages of one channel; the protocol's own rules keep far below."""


class Receiver(Protocol):
    """The receiver of a frame: a `Host`."""

    dataflow: Dataflow
    me: int
    where: dict[Node, int]
    credits: int


def admitted(host: Receiver, site: int, mux: Multiplexer, frame: Frame) -> Frame:
    """The frame, without credits of channels that are no more.

    Args:
        host: the receiver.
        site: the sender.
        mux: the connection between them.
        frame: what it sent.

    Raises:
        Malformed: that site has no business saying so, or ignores its credits.
    """
    for channel, n in frame.credits:
        if not 0 < n <= mux.spent.get(channel, n):
            raise Malformed(f"{n} credits that have not been spent")
    if frame.credits:
        known = tuple((c, n) for c, n in frame.credits if c in mux.spent)
        frame = Frame(frame.envelopes, known)
    for src, dst, message in ((e.src, e.dst, e.message) for e in frame.envelopes):
        _check(host, site, mux, Channel(src, dst), takes_credit(message))
    return frame


def _check(host: Receiver, site: int, mux: Multiplexer, channel: Channel, credit: bool) -> None:
    src, dst = channel
    exist = _exists(host.dataflow, dst) and _exists(host.dataflow, src)
    if host.where.get(src, site) != site or not exist:
        raise Malformed(f"a message from {src} to {dst} by site {site}")
    if host.where.get(dst, host.me) != host.me or abs(src.stage - dst.stage) != 1:
        raise Malformed(f"a message to {dst}, which is not here")
    held = mux.inbox.get(dst, {}).get(src)
    if held is None:
        return
    if len(held) >= CHANNEL_MAX:
        raise Malformed(f"{len(held)} unread messages from {src}")
    if credit:
        unread = sum(map(takes_credit, held))
        if unread + mux.owed.get(channel, 0) >= host.credits:
            raise Malformed(f"rows without credit from {src}")


def _exists(dataflow: Dataflow, node: Node) -> bool:
    shape = dataflow.shape
    if not INGRESS <= node.stage <= len(shape.widths):
        return False
    width = 1 if shape.outside(node.stage) else shape.widths[node.stage]
    return node.part < width and node.copy < 2
