"""Costs under the virtual clock, and observations. Seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from flux_lab.papers.protocol.controller import DataLoss
from flux_lab.papers.protocol.messages import LogEntry, Message, Notice
from flux_runtime.protocol.vocabulary import Node


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of work, links and moves.

    Attributes:
        step: processor seconds to handle any message.
        row: stage -> processor seconds to process one row.
        ack: processor seconds to take or send one acknowledgement, per row it stands for.
        turn: bytes of a state that a site's scheduler lets its transport move per round. In a
            round every copy on the site that has work takes one row, so transport is the slower
            the more copies there are; 0 leaves it to the network.
        latency: seconds from one site to another.
        bandwidth: bytes per second of a site's network interface.
        detection: seconds from a crash to the controller's knowing.
        quantum: seconds that every external process of a site runs before a message to the site's
            scheduler is looked at.
        destination: seconds that the destination works on a result before it acknowledges it; one
            after the other, and only where it does acknowledge (`Shape.results_max`).
        rows: how many rows a payload has.
    """

    step: float = 20e-6
    row: Callable[[int], float]
    ack: float = 0.0
    turn: int = 0
    latency: float = 100e-6
    bandwidth: float = 12.5e6
    detection: float = 0.01
    quantum: float = 0.0
    destination: float = 0.0
    rows: Callable[[Any], float]


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk: seconds before every access, bytes per second, and the pages that memory is lent in.

    The defaults are the simulated disk of the papers (section 8.1).
    """

    seek: float = 5e-3
    bandwidth: float = 20e6
    page: int = 8192

    def access(self, size: float) -> float:
        """Seconds to read or write `size` bytes in one piece."""
        return self.seek + size / self.bandwidth


PAPERS_DISK: Final = Disk()


@dataclass(slots=True)
class Passed:
    """A message, when it was written, and when it was read; None if it never was."""

    src: Node
    dst: Node
    message: Message
    sent: float
    taken: float | None = None


@dataclass
class History:
    """The messages of a run, where somebody wants to know.

    Attributes:
        messages: all that was written to links.
        log: (time, entry) of every entry of the controller's log.
        read: (time, node, entry) of every entry that a node has handled.
        notices: (time sent, time taken, node, notice) of every report to the controller.
    """

    messages: list[Passed] = field(default_factory=list)
    log: list[tuple[float, LogEntry]] = field(default_factory=list)
    read: list[tuple[float, Node, LogEntry]] = field(default_factory=list)
    notices: list[tuple[float, float, Node, Notice]] = field(default_factory=list)


@dataclass
class Trace:
    """The observations of a run.

    Attributes:
        emitted: (time, rows, payload) of every result.
        batches: the batch that each of these belongs to.
        fed: time of every batch that the ingress took.
        moves: (time, from, to, bytes, seconds) of every state that moved.
        rounds: (start, end, moves) of every movement phase of the balancer.
        placed: (time, node, site) of every copy that was created after the start.
        ended: (time, node) of every copy that is gone.
        whole: (time, node) of every copy created after the start that was folded in everywhere.
        faults: (time, fault) of everything that was done to the cluster.
        spilled: (time, node, whether it left memory) of every state that has been written to disk
            or read back.
        losses: (time, loss) of every loss of data that the controller reported.
        steps: number of steps performed.
    """

    emitted: list[tuple[float, float, Any]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    fed: list[float] = field(default_factory=list)
    moves: list[tuple[float, Node, Node, int, float]] = field(default_factory=list)
    rounds: list[tuple[float, float, int]] = field(default_factory=list)
    placed: list[tuple[float, Node, int]] = field(default_factory=list)
    ended: list[tuple[float, Node]] = field(default_factory=list)
    whole: list[tuple[float, Node]] = field(default_factory=list)
    faults: list[tuple[float, Any]] = field(default_factory=list)
    spilled: list[tuple[float, Node, bool]] = field(default_factory=list)
    losses: list[tuple[float, DataLoss]] = field(default_factory=list)
    steps: int = 0

    def rate(self, start: float, end: float) -> float:
        """Rows per second that left between two times."""
        return sum(rows for t, rows, _ in self.emitted if start <= t < end) / (end - start)

    def rates(self, end: float, width: float) -> list[tuple[float, float]]:
        """(middle of the interval, rows per second that left in it), `width` seconds each."""
        held = [0.0] * int(end / width)
        for t, rows, _ in self.emitted:
            if (index := int(t / width)) < len(held):
                held[index] += rows
        return [((i + 0.5) * width, rows / width) for i, rows in enumerate(held)]
