"""A segment of the papers' protocol as a copy that a site reports on, keeps and spills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flux_lab.papers.protocol.segment import Segment
from flux_runtime.protocol.dataflow import Operator
from flux_runtime.protocol.vocabulary import END, Node, Status


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment, and how many messages wait for it on channels."""

    segment: Segment
    unread: int

    @property
    def name(self) -> Node:
        """See `HostedCopy`."""
        return self.segment.node

    @property
    def place(self) -> int:
        """See `HostedCopy`."""
        return self.segment.node.copy

    @property
    def operator(self) -> Operator:
        """See `HostedCopy`."""
        return self.segment.operator

    @property
    def works(self) -> bool:
        """See `HostedCopy`."""
        return self.segment.status is Status.ACTIVE

    @property
    def done(self) -> int:
        """See `HostedCopy`."""
        return self.segment.complete()

    @property
    def resident(self) -> bool:
        """See `HostedCopy`."""
        return self.segment.back.resident

    @property
    def sends_parts(self) -> bool:
        """See `HostedCopy`."""
        segment = self.segment
        return segment.standby is not None and segment.in_parts == segment.standby.life

    @property
    def waiting(self) -> bool:
        """See `HostedCopy`."""
        return self.segment.back.waiting

    def can_work(self) -> bool:
        """See `HostedCopy`."""
        return self.segment.can_work()

    def evict(self) -> None:
        """See `HostedCopy`."""
        self.segment.evict()

    def activate(self) -> None:
        """See `HostedCopy`."""
        self.segment.activate()

    def state(self) -> Any:
        """See `HostedCopy`."""
        return self.segment.back.snapshot()[0]

    def state_size(self) -> int:
        """See `HostedCopy`."""
        return int(self.segment.back.state_size())  # an operator may say 1e6

    def waiting_size(self) -> int:
        """See `HostedCopy`."""
        return int(self.segment.back.waiting_size())

    def queued(self) -> int:
        """See `HostedCopy`."""
        return self.unread + sum(len(inlet.queue) for inlet in self.segment.consumer.inlets)

    def buffered(self) -> int:
        """See `HostedCopy`."""
        return sum(len(outlet.buffer) for outlet in self.segment.producer.outlets)


def next_offset(segment: Any) -> tuple[int, bool]:
    """The offset that a copy of the collector has reached, and whether the input has ended."""
    progress: int = segment.producer.progress
    if progress >= END:
        return segment.operator.last + 1, True
    return progress + 1, False
