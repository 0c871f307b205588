"""A segment: consumer side, operator, producer side of one copy of one pair; the unit of recovery.

Catch-up (thesis 3.2.4 and 3.3.4) brings a standby up to date: the active copy quiesces its inputs
(CU-9 to CU-14), its state moves (CU-16, CU-17), and both copies announce the new version to all
neighbours (CU-18, CU-20). It may be given up at any point and tried again (AB-1 to AB-9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flux_lab.papers.protocol.back import Back
from flux_lab.papers.protocol.boundary import Boundary
from flux_lab.papers.protocol.consumer import ConsumerSide
from flux_lab.papers.protocol.inlet import Consumer
from flux_lab.papers.protocol.messages import (
    Avail,
    CatchUpCommit,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Csync,
    Fail,
    Instruction,
    LogEntry,
    Message,
    Move,
    Pause,
    PauseAck,
    Psync,
    Send,
    Tell,
)
from flux_lab.papers.protocol.outlet import Producer
from flux_lab.papers.protocol.producer import ProducerSide
from flux_runtime.protocol.dataflow import Dataflow, Operator, Rows
from flux_runtime.protocol.spill import Storage, Unit
from flux_runtime.protocol.vocabulary import (
    ACK,
    LABELS,
    PAUSED,
    PRIM,
    RECV,
    SEC,
    Node,
    ProtocolError,
    Status,
)


@dataclass(frozen=True, slots=True)
class SegmentState:
    """All that must travel (AMB-6): operator, every queue, buffers, versions, place in the log."""

    consumer: ConsumerSide
    producer: ProducerSide
    operator: Any
    waiting: tuple[Unit, ...]
    version: int
    log_position: int
    failures: int

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (
            self.consumer.freeze(),
            self.producer.freeze(),
            self.operator,
            self.waiting,
            self.version,
            self.log_position,
            self.failures,
        )


def take_the_place_of_the_dead(
    node: Node, consumer: ConsumerSide, producer: ProducerSide, *, cluster: bool
) -> None:
    """CU-17: what the survivor calls PRIM is SEC here; in cluster pairs, one of the new set.

    Args:
        node: the new copy.
        consumer: its consumer side, as the survivor's was.
        producer: its producer side, as the survivor's was.
        cluster: whether the dataflow runs as cluster pairs.
    """
    if consumer.kind is Consumer.F:
        for j, inlet in enumerate(consumer.inlets):
            if cluster:
                inlet.peers[PRIM] = Node(node.stage - 1, j, node.copy, node.life)
            else:
                inlet.swap()
    if producer.kind is Producer.F:
        for i, outlet in enumerate(producer.outlets):
            if cluster:
                outlet.peers[PRIM] = Node(node.stage + 1, i, node.copy, node.life)
            else:
                outlet.swap()


__all__ = ["Segment", "SegmentState"]

ACTIVE, STANDBY, PAUSE = Status.ACTIVE, Status.STANDBY, Status.PAUSE


class Segment:
    """One copy of one partition pair.

    Attributes:
        back: the operator, and what waits for it while it is on disk.
        status: ACTIVE; STANDBY until the state arrives; PAUSE while it moves.
        version: attempt number of the last state movement (`my_ver`).
        p_fail: my replica has failed and is not replaced yet (TO-4).
        standby: the node that is to replace it, if announced.
        ready_sent: number of failures that the last `cu-ready` knew of (CU-9).
        to_start: attempt that the controller told to start and that waits for the take-over.
        sending: attempt whose standby is being sent what the state will refer to; it waits, too.
        in_parts: attempt whose standby is sent the state in parts; what they lack follows.
    """

    __slots__ = (
        "back",
        "boundary",
        "consumer",
        "dataflow",
        "in_parts",
        "node",
        "p_fail",
        "producer",
        "ready_sent",
        "sending",
        "standby",
        "status",
        "to_start",
        "version",
    )

    def __init__(
        self,
        dataflow: Dataflow,
        node: Node,
        *,
        standby: bool = False,
        story: list[str] | None = None,
        storage: Storage | None = None,
    ) -> None:
        self.dataflow = dataflow
        self.node = node
        self.boundary = Boundary(dataflow.shape, node, story=story)
        assert self.boundary.consumer is not None
        assert self.boundary.producer is not None
        self.consumer: ConsumerSide = self.boundary.consumer
        self.producer: ProducerSide = self.boundary.producer
        self.back = Back(dataflow, node, storage)
        self.status = STANDBY if standby else ACTIVE
        self.version = 0
        self.p_fail = False
        self.standby: Node | None = None
        self.ready_sent = -1
        self.to_start = 0
        self.sending = 0
        self.in_parts = 0

    def clone(self) -> Segment:
        """An independent copy, without the story."""
        new = Segment.__new__(Segment)
        new.dataflow, new.node = self.dataflow, self.node
        new.boundary = self.boundary.clone()
        assert new.boundary.consumer is not None
        assert new.boundary.producer is not None
        new.consumer, new.producer = new.boundary.consumer, new.boundary.producer
        new.back = self.back.clone()
        new.status, new.version, new.p_fail = self.status, self.version, self.p_fail
        new.standby, new.ready_sent = self.standby, self.ready_sent
        new.to_start, new.sending, new.in_parts = self.to_start, self.sending, self.in_parts
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (
            self.boundary.freeze(),
            self.back.freeze(),
            self.status,
            self.version,
            self.p_fail,
            self.standby,
            self.ready_sent,
            self.to_start,
            self.sending,
            self.in_parts,
        )

    # ---- normal case

    def accepts(self, peer: Node, message: Message) -> bool:
        """Whether the head of the link from this node can be handled now; nothing is in PAUSE."""
        return self.status is ACTIVE and self.boundary.accepts(peer, message)

    def receive(self, peer: Node, message: Message) -> list[Instruction]:
        """Handle the head of a link."""
        return self._then(self.boundary.receive(peer, message))

    def next_message(self, to: Node) -> Message | None:
        """NC-2: the next rows or progress for a link that has room, if any."""
        return self.boundary.next_message(to) if self.status is ACTIVE else None

    def has_message(self, to: Node) -> bool:
        """Whether `next_message` would give one."""
        return self.status is ACTIVE and self.boundary.has_message(to)

    def can_work(self) -> bool:
        """Whether `work` would change anything."""
        if self.status is not ACTIVE:
            return False
        if self.producer.pending:
            i, batch, _ = self.producer.pending[0]
            if not self.producer.outlets[i].buffer.needs_room(batch) or self.producer.room(i):
                return True
            return not self.back.resident and self.consumer.ready()
        if self.back.resident and self.back.waiting:
            return True
        return self.consumer.ready() or self.complete() > self.producer.progress

    def work(self) -> list[Instruction]:
        """Admit what waits for room (NC-1); if nothing waits any more, process one batch."""
        if self.status is not ACTIVE:
            return []
        if self.producer.pending:
            self.producer.admit()
        if not self.back.resident:
            taken = self._merged()
            if taken is not None:
                self.back.wait(*taken)
                self.boundary.did("SP-3", f"batch {taken.batch} waits")
            self._advance()
        elif not self.producer.pending:
            unit = self.next_input()
            if unit is None:
                self._advance()
            else:
                self.produced(unit.batch, self.operator.process(unit.rows))
        return []

    def next_input(self) -> Unit | None:
        """The batch that the operator is to process next, if any; `produced` must follow."""
        if self.status is not ACTIVE or not self.back.resident or self.producer.pending:
            return None
        return self.back.next() if self.back.waiting else self._merged()

    def produced(self, batch: int, output: Rows) -> None:
        """NC-1: the operator has made these rows of the batch; they go to their partitions."""
        dataflow, producer = self.dataflow, self.producer
        if dataflow.units is None:
            parts = dataflow.split(self.node.stage + 1, output, len(producer.outlets))
            producer.offer(batch, parts)
        else:
            for key, rows in dataflow.units(output).items():
                producer.offer(key, {0: rows})
        if self.boundary.story is not None:
            self.boundary.did("work", f"batch {batch}")
        self._advance()

    def _advance(self) -> None:
        self.producer.complete(self.complete())
        self.producer.admit()

    def _merged(self) -> Unit | None:
        """XM-1: the next batch of the merge, if it can release one."""
        taken = self.consumer.take()
        if taken is None:
            return None
        batch, parts = taken
        return Unit(batch, self.dataflow.merge(parts))

    def complete(self) -> int:
        """The batch up to which all input has been processed (XM-2): not what only waits."""
        return self.back.first_batch - 1 if self.back.waiting else self.consumer.complete()

    @property
    def operator(self) -> Operator:
        """The operator; in its initial state while the state is on disk."""
        return self.back.operator

    # ---- memory

    def evict(self) -> None:
        """SP-2: the site is short of memory; the front goes on receiving and acknowledging."""
        if self.status is ACTIVE and self.back.resident:
            self.boundary.did("SP-2", "state written out")
            self.in_parts = 0
            self.back.evict()

    def activate(self) -> None:
        """SP-4, SP-5: it is this partition's turn; `work` first processes what has waited."""
        self.boundary.did("SP-4", "state read in")
        self.back.activate()

    # ---- the controller's log

    @property
    def reads_log(self) -> bool:
        """AB-9: a standby leaves the log alone until its state tells where to go on."""
        return self.status is not STANDBY

    def log(self, entry: LogEntry) -> list[Instruction]:
        """Handle the next entry of the controller's log."""
        out = self.boundary.log(entry)
        if entry.pair == self.node.pair:
            self.boundary.did("log", entry)
            match entry:
                case Fail():
                    self.p_fail = True  # TO-4
                    self.standby = None
                    self.to_start = 0
                    if self.consumer.window or self.status is PAUSE:
                        out += self._abort()
                case Avail(_, copy, attempt):
                    self.standby = Node(*self.node.pair, copy, attempt)
                case CatchUpStart(_, attempt):
                    if self.standby is not None and self.standby.life == attempt:  # AB-7
                        self.to_start = attempt
                case CatchUpCommit(_, attempt):
                    if self.status is PAUSE and self.consumer.window == attempt:
                        out += self._go_on(standby=self.node.life == attempt)
        return self._then(out)

    def _then(self, out: list[Instruction]) -> list[Instruction]:
        """Takes the steps that any event may enable: window (CU-10), snapshot, `cu-ready` (CU-9).

        So standby, start and take-over may come in any order (CU-1). A fold-in downstream may have
        finished since `cu-ready`, and its consumer's reverse may still be on the way: the window
        waits until take-over is complete (again).
        """
        if self.to_start and not self.sending and self.tk_done():
            attempt, self.to_start = self.to_start, 0
            out += self._open_window(attempt)
        if self.consumer.window and self.status is ACTIVE and self.consumer.quiet():
            out += self._snapshot()
        ready = self.p_fail and not self.consumer.window and self.consumer.is_whole()
        if ready and self.ready_sent != self.boundary.failures and self.tk_done():
            self.ready_sent = self.boundary.failures
            self.boundary.did("CU-9", f"ready, {self.ready_sent} failures known")
            out.append(Tell(CatchUpReady(self.node.pair, self.ready_sent)))
        return out

    def tk_done(self) -> bool:
        """TO-9, TO-9F: take-over is complete downstream."""
        return self.p_fail and all(outlet.taken_over() for outlet in self.producer.outlets)

    # ---- catch-up, active copy

    def _open_window(self, attempt: int) -> list[Instruction]:
        """CU-10, CU-11: pause the live primaries, in order with their data."""
        self.consumer.open_window(attempt)
        self.boundary.did("CU-10", f"attempt {attempt}")
        if self.consumer.kind is Consumer.S:
            for inlet in self.consumer.inlets:
                inlet.conn[PRIM] = PAUSED  # CU-2: the ingress keeps what is not acknowledged
            return []
        out: list[Instruction] = []
        if self.dataflow.shape.cluster_pairs:
            return out  # the producers pause too, and say so
        for inlet in self.consumer.inlets:
            peer = inlet.peers[PRIM]
            if inlet.status[PRIM] is ACTIVE and peer is not None:
                out.append(Send(peer, Pause(attempt)))
        return out

    def _snapshot(self) -> list[Instruction]:
        """CU-16 (CU-2, CU-4): nothing is in flight towards me; quiesce and hand over the state.

        In cluster pairs the consumers learn that nothing comes behind what has been sent; so the
        states of a replica set, source to destination, are one cut through its dataflow.
        """
        if self.standby is None:
            raise ProtocolError(f"nobody to move the state to\n{self.boundary.tale()}")
        self.status = PAUSE  # CU-3
        version = self.consumer.window
        state = SegmentState(
            self.consumer.clone(),
            self.producer.clone(),
            *self.back.snapshot(rest=self.in_parts == version),
            version,
            self.boundary.log_position,
            self.boundary.failures,
        )
        self.boundary.did("CU-16", f"state of attempt {version} to {self.standby}")
        quiet: list[Instruction] = []
        if self.dataflow.shape.cluster_pairs and self.producer.kind is Producer.F:
            quiet = [
                Send(peer, PauseAck(version))
                for outlet in self.producer.outlets
                if (peer := outlet.peers[PRIM]) is not None
            ]
        return [*quiet, Move(self.standby, state, self.size())]

    def size(self) -> int:
        """Bytes that a move of this segment carries."""
        held = sum(
            self.dataflow.rows_size(entry.rows)
            for outlet in self.producer.outlets
            for entry in outlet.buffer.entries.values()
        )
        queued = sum(
            self.dataflow.rows_size(unit.rows)
            for inlet in self.consumer.inlets
            for unit in inlet.queue
        )
        return self.back.state_size() + self.back.waiting_size() + held + queued

    def full_state(self, state: SegmentState) -> SegmentState | None:
        """The state that is to move, for a standby that has no parts of it; None: given up."""
        if self.in_parts != state.version:
            return state
        if self.status is not PAUSE or self.consumer.window != state.version:
            return None
        return replace(state, operator=self.operator.get_state())

    def sent(self, attempt: int) -> list[Instruction]:
        """The standby of this attempt has been sent what the state will refer to."""
        if self.sending != attempt:
            return []
        self.sending = 0
        return self._then([])

    def moved(self, attempt: int) -> list[Instruction]:
        """CU-18 (CU-5): the standby has the state; go on with the new version."""
        if self.status is not PAUSE or self.consumer.window != attempt:
            return []
        done = Tell(CatchUpDone(self.node.pair, attempt))
        if self.dataflow.shape.cluster_pairs:
            return [done]  # goes on when the whole replica set has moved
        return self._then([*self._go_on(standby=False), done])

    def _go_on(self, *, standby: bool) -> list[Instruction]:
        self.status = ACTIVE
        self.version = self.consumer.window
        return self._sync(standby=standby)

    def _sync(self, *, standby: bool) -> list[Instruction]:
        """CU-5, CU-7, CU-18, CU-20: markers to all neighbours, then postponed reverses (CU-15)."""
        out: list[Instruction] = []
        self.p_fail = False
        for outlet in self.producer.outlets:
            outlet.sync(standby)
            out += [
                Send(peer, Psync(self.version))
                for d in LABELS
                if (peer := outlet.peers[d]) is not None
                and outlet.status[d] is ACTIVE
                and self._coordinates(peer)
            ]
        out += self._close_window(self.version)
        self.boundary.did("CU-18", f"version {self.version}")
        return out

    def _coordinates(self, peer: Node) -> bool:
        """Whether the neighbour knows both copies; in cluster pairs only ingress and egress do."""
        shape = self.dataflow.shape
        return not shape.cluster_pairs or shape.outside(peer.stage)

    def _close_window(self, attempt: int) -> list[Instruction]:
        """Un-pause, send `csync` behind all acknowledgements, then the reverses owed (CU-15)."""
        out: list[Instruction] = []
        self.consumer.window = 0
        for inlet in self.consumer.inlets:
            if inlet.status[PRIM] is ACTIVE:
                s_cons = self.consumer.kind is Consumer.S
                inlet.conn[PRIM] = RECV | ACK if s_cons else RECV
            out += inlet.flush()
            out += [
                Send(peer, Csync(attempt))
                for d in LABELS
                if (peer := inlet.peers[d]) is not None
                and inlet.status[d] is ACTIVE
                and self._coordinates(peer)
            ]
            if inlet.rev_owed:
                out += inlet.reverse_to(SEC)
        return out

    def _abort(self) -> list[Instruction]:
        """The standby died: let the producers go on; `p_fail` stays (AB-6)."""
        attempt = self.consumer.window
        self.status = ACTIVE
        self.boundary.did("AB-6", f"attempt {attempt} is given up")
        return self._close_window(attempt)

    # ---- catch-up, standby

    def install(self, state: SegmentState) -> list[Instruction]:
        """CU-17, CU-18 (CU-4, CU-5): become the copy that the state describes."""
        if self.status is not STANDBY:
            raise ProtocolError(f"{self.node} has a state already\n{self.boundary.tale()}")
        self.consumer = self.boundary.consumer = state.consumer.clone()
        self.producer = self.boundary.producer = state.producer.clone()
        self.producer.copy = self.node.copy
        for inlet in self.consumer.inlets:
            inlet.owed = 0  # the copy that moved acknowledges what it received before its csync
        cluster = self.dataflow.shape.cluster_pairs
        take_the_place_of_the_dead(self.node, self.consumer, self.producer, cluster=cluster)
        self.back.install(state.operator, state.waiting)
        self.version = state.version
        self.boundary.log_position = state.log_position
        self.boundary.failures = state.failures
        self.boundary.did("CU-17", f"installed version {self.version}")
        if cluster:
            self.status = PAUSE  # until the whole replica set has moved
            return []
        return self._then(self._go_on(standby=True))

    def validate(self) -> None:
        """Check the invariants of the segment's parts."""
        self.boundary.validate()
