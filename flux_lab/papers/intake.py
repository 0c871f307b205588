"""The ingress of the papers' protocol, rebuilt where it left off.

A new leader asks all copies of the first stage how far they have received, reads the journal, and
goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flux_lab.papers.host import Host
from flux_lab.papers.protocol.controller import Controller, PairView
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Reverse
from flux_runtime.operators.rows import number as number_rows
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import (
    ACK,
    END,
    LABELS,
    MARK_OF,
    NOTHING,
    PROD,
    RECV,
    SEND,
    THE_INGRESS,
    Node,
    Pair,
    Status,
    other,
)
from flux_runtime.site.intake import Intake
from flux_runtime.site.journal import END_KEY, Record


class PapersIntake(Intake):
    """Feeds the ingress of a host."""

    host: Host  # type: ignore[assignment]

    @property
    def ingress(self) -> Ingress:
        """The machine."""
        machine = self.host.nodes[THE_INGRESS]
        assert isinstance(machine, Ingress)
        return machine

    @property
    def last(self) -> int:
        """The batch that was fed last; END: and no more come."""
        return self.ingress.last

    def begin(
        self, epoch: int, controller: Controller, hi: Mapping[Node, int], *, position: int
    ) -> None:
        """Rebuild the ingress from the journal and what the copies have received."""
        records = self.journal.read()
        batches = [r for r in records if r.rows is not None]
        self.ended = any(r.key == END_KEY for r in records)
        first = max(self.first, self.journal.first)
        live = {node: number for node, number in hi.items() if node in self.host.where}
        ingress = rebuilt_ingress(
            self.host.dataflow, controller, live, batches, position=position, first=first
        )
        self.under_way.extend((r.number, r.source, r.key) for r in batches)
        self._take_journal(epoch, ingress.last + 1, batches)
        self.host.host_end(THE_INGRESS, ingress)
        if self.ended:
            self.batches = ingress.last + 1
            ingress.finish()
        rebuild_egress(self.host, controller, position=position)

    def pump(self) -> None:
        """Feed what may be fed, and acknowledge what has arrived everywhere."""
        ingress = self.ingress
        while self.waiting and ingress.wants_input and len(self.under_way) < self.window:
            source, key, rows = self.waiting.popleft()
            number = ingress.last + 1
            self.journal.append(Record(number, source, key, rows))
            if key == END_KEY:
                self.ended, self.batches = True, number
                self.waiting.clear()
                ingress.finish()
                self.host.ready[THE_INGRESS] = None
                break
            self.under_way.append((number, source, key))
            self.rows += rows.num_rows
            self.on_fed(number)
            self.host.feed(number_rows(rows, number))
        self._acknowledge(self._lowest())

    def _lowest(self) -> int:
        """The first batch that some live copy may not have."""
        producer = self.ingress.boundary.producer
        assert producer is not None
        held = [next(iter(o.buffer.entries), END) for o in producer.outlets]
        held += [batch for _, batch, _ in producer.pending[:1]]
        return min(held)


def rebuilt_ingress(
    dataflow: Dataflow,
    controller: Controller,
    hi: Mapping[Node, int],
    records: Sequence[Record],
    *,
    position: int,
    first: int = 0,
) -> Ingress:
    """An ingress as it would be, had it lived on.

    Args:
        dataflow: with the collector.
        controller: what is known of all copies; no catch-up has been started.
        hi: the last unit that each live copy of the first stage has received.
        records: at least all batches that some live copy lacks.
        position: in the controller's log.
        first: batches below this number have been fed, maybe to copies that are gone by now.
    """
    ingress = Ingress(dataflow)
    boundary, producer = ingress.boundary, ingress.boundary.producer
    assert producer is not None
    boundary.log_position, boundary.failures = position, controller.failures
    for part, outlet in enumerate(producer.outlets):
        view = controller.pairs[Pair(0, part)]
        _take_view(outlet, Pair(0, part), view)
        active = [d for d in LABELS if outlet.status[d] is Status.ACTIVE]
        outlet.conn = [SEND | ACK if d in active else 0 for d in LABELS]
        outlet.evict = PROD | sum(MARK_OF[d] for d in active)
        for d in active:
            outlet.told[d] = hi.get(_peer(outlet, d), NOTHING)
            if dataflow.shape.cumulative:
                outlet.buffer.hi[d] = outlet.told[d]
    last = max(first - 1, *hi.values(), NOTHING)
    for record in records:
        parts = dataflow.split(0, number_rows(record.rows, record.number), dataflow.shape.widths[0])
        for part in sorted(parts):
            outlet = producer.outlets[part]
            outlet.buffer.put(parts[part], record.number, outlet.evict)
            for d in LABELS:
                has = outlet.conn[d] and record.number <= hi.get(_peer(outlet, d), NOTHING)
                if has and record.number in outlet.buffer.entries:
                    outlet.buffer.ack(record.number, d, outlet.evict)
        last = max(last, record.number)
    ingress.last = last
    producer.complete(last)
    return ingress


def _peer(outlet: Any, d: int) -> Node:
    peer: Node = outlet.peers[d]
    return peer


def _take_view(side: Any, pair: Pair, view: PairView) -> None:
    """Peers, modes and attempt of an inlet or outlet, as the controller knows them."""
    for d, copy in enumerate(view.copies):
        if copy is not None:
            side.peers[d] = Node(*pair, d, copy.life)
            side.status[d] = copy.status
    side.exp = view.attempts


def rebuild_egress(host: Host, controller: Controller, *, position: int) -> None:
    """An egress as good as the one before: results never reach it, only markers of fold-ins.

    It need not know which copy of the collector it listened to: if one fails, it asks the other to
    send, which is never wrong. Where one has failed already, it asks at once.
    """
    shape = host.dataflow.shape
    egress = Egress(host.dataflow)
    boundary, consumer = egress.boundary, egress.boundary.consumer
    assert consumer is not None
    boundary.log_position, boundary.failures = position, controller.failures
    (inlet,) = consumer.inlets
    _take_view(
        inlet,
        shape.upstream(shape.egress.stage)[0],
        controller.pairs[Pair(shape.egress.stage - 1, 0)],
    )
    inlet.conn = [ACK if status is Status.ACTIVE else 0 for status in inlet.status]
    host.host_end(shape.egress, egress)
    for d in LABELS:
        peer = inlet.peers[d]
        alone = inlet.status[d] is Status.ACTIVE and inlet.status[other(d)] is not Status.ACTIVE
        if alone and peer is not None:
            inlet.conn[d] = RECV
            site = host.where[peer]
            host.peers[site].send(shape.egress, peer, Reverse())
