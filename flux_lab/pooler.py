"""FluxPooler: runs the copies of one site in turn, and reports on them (thesis 5.1; UF-5, UF-6).

One per site. It knows nothing of rows but their number, and nothing of the protocol but the orders
to end a copy and to create one; take-over and catch-up are between the copies and the controller's
log. All operators of a copy move together, so a copy is what it schedules, creates and ends.

Idle time is estimated, not measured (UF-6): a call that finds a copy unable to do anything takes
about the same time whenever it happens, so counting such calls is enough. What one costs is found
out beforehand (`price_of_an_idle_call`). A site that is loaded from outside makes fewer of them in
the same time, so the share of the processor that others take counts as used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from flux_runtime.protocol.balancer import RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import SiteStatistics
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.messages import Instruction, Rows
from flux_runtime.protocol.orders import DataLoss, Destroy, Instantiate, Order
from flux_runtime.protocol.segment import Segment
from flux_runtime.protocol.storage import Storage
from flux_runtime.protocol.vocabulary import Node, Pair, ProtocolError

IDLE_CALLS: Final = 10_000
"""Calls over which the price of one is averaged."""


@dataclass(frozen=True, slots=True)
class Report:
    """UF-9, a pooler's answer to `RequestStatistics`, with the round it was asked in (UF-8)."""

    round: int
    statistics: SiteStatistics


@dataclass(frozen=True, slots=True)
class Turn:
    """What one call of a copy did.

    Attributes:
        node: the copy.
        rows: rows that its operator processed.
        idle: whether it could do nothing.
        instructions: for whoever runs the pooler.
    """

    node: Node
    rows: int
    idle: bool
    instructions: Sequence[Instruction]


class Pooler:
    """The copies that one site hosts.

    Args:
        dataflow: what runs.
        site: this site's number.
        idle_call_s: seconds that an idle call takes (c of UF-6).
        rows: number of rows in what an operator is given.
        storage: where partitions spill to.
        now: when it starts.

    Attributes:
        segments: the copies.
        order: the copies in the order of their turns.
        memory: bytes that there are for states.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        site: int,
        *,
        idle_call_s: float,
        rows: Callable[[Rows], int] = len,
        storage: Storage | None = None,
        now: float = 0.0,
    ) -> None:
        if idle_call_s <= 0:
            raise ValueError(f"a call takes time, not {idle_call_s} s")
        self.dataflow = dataflow
        self.site = site
        self.idle_call_s = idle_call_s
        self.rows = rows
        self.storage = storage
        self.memory = float("inf")
        self.segments: dict[Node, Segment] = {}
        self.order: deque[Node] = deque()
        self.round = 0
        self.counted_from = now
        self.idle_calls = 0
        self.processed: dict[tuple[Pair, int], float] = {}

    # ---- copies come and go

    def host(self, segment: Segment) -> None:
        """Take up a copy; it is called last in turn.

        Raises:
            ProtocolError: another copy of the pair is here (UF-10).
        """
        node = segment.node
        if any(here.pair == node.pair for here in self.segments):
            raise ProtocolError(f"site {self.site} has a copy of {node.pair}, and gets {node}")
        self.segments[node] = segment
        self.order.append(node)

    def obey(self, order: Order) -> None:
        """UF-5: end a copy, or create a standby; orders to other sites are none of its business."""
        match order:
            case Destroy(node):
                if self.segments.pop(node, None) is not None:
                    self.order.remove(node)
            case Instantiate(node, site) if site == self.site:
                self.host(Segment(self.dataflow, node, standby=True, storage=self.storage))
            case Instantiate() | DataLoss():
                pass

    # ---- turns

    def turn(self) -> Turn | None:
        """UF-5: let the next copy in turn process a unit, or what else it can; None without copies.

        A standby and a copy whose state moves can do nothing: that is idle time too.
        """
        if not self.order:
            return None
        node = self.order[0]
        self.order.rotate(-1)
        segment = self.segments[node]
        unit = segment.next_input()
        if unit is not None:
            rows = self.rows(unit.rows)
            part = (node.pair, node.copy)
            self.processed[part] = self.processed.get(part, 0.0) + rows
            segment.produced(unit.batch, segment.operator.process(unit.rows))
            return Turn(node, rows, False, ())
        if segment.can_work():
            return Turn(node, 0, False, segment.work())
        self.idle_calls += 1  # UF-6
        return Turn(node, 0, True, ())

    # ---- statistics

    def reset(self, order: ResetStatistics, now: float) -> None:
        """UF-9: count from here on; an order of an earlier round comes too late (UF-8)."""
        if order.round < self.round:
            return
        self.round = order.round
        self.counted_from = now
        self.idle_calls = 0
        self.processed.clear()

    def report(self, request: RequestStatistics, now: float) -> Report:
        """UF-9: what has been counted since the last reset, however long ago that was."""
        covered = now - self.counted_from
        idle = self.idle_call_s * self.idle_calls
        parts = {(node.pair, node.copy): segment for node, segment in self.segments.items()}
        return Report(
            request.round,
            SiteStatistics(
                site=self.site,
                utilisation=min(1.0, max(0.0, 1.0 - idle / covered)) if covered > 0 else 0.0,
                processed={part: self.processed.get(part, 0.0) for part in parts},
                state={part: float(s.back.state_size()) for part, s in parts.items()},
                memory=self.memory,
                on_disk=frozenset(p for p, s in parts.items() if not s.back.resident),
                pending={part: float(s.back.waiting_size()) for part, s in parts.items()},
            ),
        )


def price_of_an_idle_call(
    dataflow: Dataflow, clock: Callable[[], float], *, calls: int = IDLE_CALLS
) -> float:
    """UF-6: seconds that a call takes when there is no input, averaged over many.

    Args:
        dataflow: whose first pair is called; nothing is fed to it.
        clock: seconds.
        calls: how many.
    """
    node = Node(*dataflow.shape.pairs()[0], 0, 0)
    pooler = Pooler(dataflow, 0, idle_call_s=1.0)
    pooler.host(Segment(dataflow, node))
    began = clock()
    for _ in range(calls):
        pooler.turn()
    return (clock() - began) / calls
