"""Four machines under the virtual clock, on the protocol itself: one run of EX-12 to EX-16.

Segments, controller and balancer are the product's; moves are induced failures with all their
messages, so transfer, fold-in and rounds take what they take.
"""

from __future__ import annotations

from dataclasses import dataclass

from blazes.document.charts import Series
from flux_lab.bulk import Bulk, bulk_dataflow
from flux_lab.costs import Costs, Trace
from flux_lab.papers.protocol.controller import Controller, chained
from flux_lab.stage import fixed
from flux_lab.timed import Timed
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer
from flux_runtime.protocol.balancing import CLUSTER, Thresholds
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.vocabulary import Pair, Shape

from .recovery import LINK, ROW_BYTES

START = 4.0
"""When load begins or a machine fails, in seconds."""
TUPLE = 51e-6
"""Processor seconds per tuple and copy: four machines then give 19.4 K/s of output."""
TURN = 2 * 1460
"""Bytes of state per round of a site's scheduler: two packets. Then 145 MB take 68 s in EX-14."""
QUANTUM = 0.06
"""Seconds that Linux 2.4 lets a process run before the next has its turn."""
BYTES = 29.7e6
"""State of one copy of the operator: 32 partitions of 0.93 MB."""
ENTRIES = 16_384


class Preferring(Controller):
    """Recovers onto the first allowed site of a list, as the papers' implementation does."""

    order: tuple[int, ...] = ()

    def place(self, pair: Pair, c: int) -> int | None:
        """The target of a move, else the first site without the other copy."""
        if any((of, copy) == (pair, c) for of, copy, _ in self.targets):
            return super().place(pair, c)
        mate = self.pairs[pair].copies[1 - c]
        allowed = [s for s in self.order if s in self.sites and (mate is None or s != mate.site)]
        return allowed[0] if allowed else None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One run.

    Attributes:
        pairs: partition pairs of the operator.
        seconds: how long.
        processes: external processes on machine 0 from `START` on.
        crash: whether machine 3 fails at `START` instead.
        prefer: where lost copies are recovered, first choice first.
        ordered: in-order egress, else first come.
        balance: whether the balancer works.
        tuned: collection time tunes itself.
        at_once: most moves of a round, and most pairs that recover at once.
        state: bytes of one copy of the operator.
        batch: tuples of a batch.
    """

    pairs: int
    seconds: float
    processes: int = 0
    crash: bool = False
    prefer: tuple[int, ...] = ()
    ordered: bool = False
    balance: bool = True
    tuned: bool = False
    at_once: int = 1
    state: float = BYTES
    batch: int = 2048


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run gave: its trace, and copies per machine at the end."""

    trace: Trace
    copies: dict[int, int]
    end: float

    @property
    def unloaded(self) -> float:
        """Output before anything happens, in rows per second."""
        return self.trace.rate(1.0, START)

    @property
    def final(self) -> float:
        """Output at the end / before anything happens."""
        return self.trace.rate(self.end - 4, self.end) / self.unloaded

    @property
    def settled(self) -> float:
        """Seconds from the beginning of the load to the end of the last move."""
        return max((t + took for t, *_, took in self.trace.moves), default=START) - START

    @property
    def megabytes(self) -> float:
        """State moved."""
        return sum(size for *_, size, _ in self.trace.moves) / 1e6

    @property
    def transfer(self) -> float:
        """Seconds spent transferring state, added up."""
        return sum(took for *_, took in self.trace.moves)

    @property
    def phases(self) -> float:
        """Seconds in movement phases."""
        return sum(end - start for start, end, _ in self.trace.rounds)

    @property
    def moves(self) -> int:
        """Moves of the balancer."""
        return sum(n for *_, n in self.trace.rounds)

    def series(self, name: str, bin_: float = 1.0) -> Series:
        """Output over time."""
        return Series(name, tuple(self.trace.rates(self.end, bin_)))


def run(setup: Setup) -> Found:
    """Run one configuration."""
    unit = setup.batch / setup.pairs
    shape = Shape(
        widths=(setup.pairs,), pool=max(setup.pairs * 2, int(ENTRIES / unit)), in_hand=4,
        ordered_egress=setup.ordered,
    )  # fmt: skip
    dataflow = bulk_dataflow(
        shape, selectivity=(0.5,), row_bytes=(60,), state=(int(setup.state / setup.pairs),)
    )
    batches = [
        Bulk(setup.batch, ROW_BYTES, i) for i in range(int(setup.seconds * 42e3 / setup.batch))
    ]
    world = World(dataflow, batches, sites=4, link_capacity=4, parallel_max=setup.at_once)
    if setup.prefer:
        world.controller = Preferring(shape, chained(shape, 4), frozenset(range(4)))
        world.controller.order = setup.prefer
    thresholds = Thresholds(
        imbalance=CLUSTER.imbalance, utilisation=CLUSTER.utilisation, delta_min=CLUSTER.delta_min,
        moves_max=setup.at_once,
    )  # fmt: skip
    collection = CollectionTime(thresholds) if setup.tuned else fixed(thresholds)
    balancer = Balancer(world.controller, thresholds, collection=collection)

    def share(site: int, now: float) -> float:
        return 1 / (1 + setup.processes) if site == 0 and now >= START else 1.0

    timed = Timed(
        world,
        Costs(
            row=lambda stage: TUPLE if stage == 0 else 0.0, bandwidth=LINK, turn=TURN,
            quantum=QUANTUM, rows=lambda bulk: bulk.rows,
        ),
        load=share,
        faults=((START, Step("crash", 3)),) if setup.crash else (),
        balancer=balancer if setup.balance else None,
        balance_from=START - 1,
    )  # fmt: skip
    trace = timed.run(setup.seconds)
    if trace.losses:
        raise AssertionError(f"data was lost: {trace.losses}")
    copies = {s: len(nodes) for s, nodes in timed.hosted.items() if s >= 0}
    return Found(trace=trace, copies=copies, end=setup.seconds)
