"""What travels when the state of a segment moves, and how it becomes that of the other copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flux_runtime.protocol.back import Unit
from flux_runtime.protocol.consumer import ConsumerSide
from flux_runtime.protocol.inlet import Consumer
from flux_runtime.protocol.outlet import Producer
from flux_runtime.protocol.producer import ProducerSide
from flux_runtime.protocol.vocabulary import PRIM, Node


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
