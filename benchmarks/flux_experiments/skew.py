"""EX-3 and EX-11: load that wanders over the machines, against the size and kind of buffer."""

# ruff: noqa: E501  (rows of tables stay on one line)

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blazes.document.charts import Chart
from flux_lab.bulk import Bulk, bulk_dataflow
from flux_lab.costs import Costs
from flux_lab.timed import Timed
from flux_lab.world import World
from flux_runtime.protocol.vocabulary import Shape

from .experiment import Experiment, Result, Row, curve, published

LEFT = 0.43
"""Share of a machine that the papers' external load leaves (it costs 57 % of throughput)."""
PER_MS = 1000 / 45.5
LINK = 2 * 1024 / 80
"""Tuples that a link's two packets hold."""


def short_skew(buffer: float, *, shared: bool, machines: int, burst_ms: int = 500) -> float:
    """Throughput relative to unloaded, with a load that visits each machine in turn.

    All producers are alike, so one is simulated, with its share of every consumer.

    Args:
        buffer: tuples that the producer can keep, besides what links hold.
        shared: one pool (the skew buffer), or an equal part per consumer (plain exchange).
        machines: how many there are.
        burst_ms: how long each machine is loaded.
    """
    held = np.zeros(machines)
    quota = buffer / machines + LINK
    sent, start = 0.0, machines * burst_ms // 2
    for ms in range(machines * burst_ms + start):
        if shared:
            fill = _fill(held, buffer - float(np.maximum(held - LINK, 0).sum()))
        else:
            fill = max(float((quota - held).min()), 0.0)  # the next may be for the fullest queue
        held += fill
        capacity = np.full(machines, PER_MS / machines)
        capacity[ms // burst_ms % machines] *= LEFT
        drained = np.minimum(held, capacity)
        held -= drained
        if ms >= start:
            sent += float(drained.sum())
    return sent / (machines * burst_ms * PER_MS)


def _fill(held: npt.NDArray[np.float64], free: float) -> float:
    """How much more of every destination fits: links take their part first, then the pool."""
    low, high = 0.0, free / len(held) + LINK
    before = np.maximum(held - LINK, 0).sum()
    for _ in range(20):
        middle = (low + high) / 2
        used = np.maximum(held + middle - LINK, 0).sum() - before
        low, high = (middle, high) if used <= free else (low, middle)
    return low


def reach(sizes: list[int], rates: list[float], plateau: float) -> float:
    """The smallest size that comes within 3 % of the plateau; infinite if none does."""
    return min((float(s) for s, r in zip(sizes, rates, strict=True) if r > 0.97 * plateau),
               default=float("inf"))  # fmt: skip


def ex3(quick: bool) -> Result:
    """The shared buffer reaches its plateau at a fraction of the size."""
    machines = 16 if quick else 32
    sizes = [0, 64, 256, 1024, 4096, 16384] if quick else [0, *(2**n for n in range(5, 16))]
    shared = [short_skew(size, shared=True, machines=machines) for size in sizes]
    split = [short_skew(size, shared=False, machines=machines) for size in sizes]
    plateau = (machines - 1 + LEFT) / machines
    at = [reach(sizes, rates, plateau) for rates in (shared, split)]
    return Result(
        rows=(
            Row(what="no buffer / unloaded", paper="0.43-0.55", ours=shared[0],
                within=(0.43, 0.55)),
            Row(what="plateau / unloaded", paper="<= 0.98", ours=shared[-1],
                within=(0.95, plateau + 0.005)),
            Row(what="worst of skew buffer - exchange, same size", paper=">= 0",
                ours=min(t - e for t, e in zip(shared, split, strict=True)), within=(-0.01, 1.0)),
            Row(what="size that reaches the plateau, tuples per producer", paper="small",
                ours=at[0]),
            Row(what="the same for exchange / for the skew buffer", paper="several",
                ours=at[1] / at[0], within=(3.0, float("inf"))),
        ),
        charts=(
            Chart(
                title=f"EX-3  load of 0.5 s on each of {machines} machines in turn",
                x="buffer per producer, tuples (log)",
                y="throughput / unloaded",
                log_x=True,
                series=(
                    curve("skew buffer", sizes[1:], shared[1:]),
                    curve("exchange", sizes[1:], split[1:]),
                ),
                marks=(published("plateau at most 0.98", 0.98), published("about half without buffer", 0.5)),
            ),
        ),
    )  # fmt: skip


ROW = 45e-6
ACK = 4e-6
BATCH = 512


def rotating(entries: int, *, pooled: bool, burst: float, load: bool = True) -> float:
    """Rows per second at the egress of the protocol's own dataflow, over one turn of the load.

    Args:
        entries: tuples in the buffers of every producer.
        pooled: one pool with a reserve of a unit per connection, or evenly divided.
        burst: seconds of load on each machine.
        load: whether there is any.
    """
    units = max(8, entries * 4 // BATCH)
    shape = Shape(widths=(4, 4), pool=units, reserve=1 if pooled else units // 8, in_hand=2)
    dataflow = bulk_dataflow(shape, selectivity=(0.5, 0.5), row_bytes=(60, 60), state=(1000, 1000))
    warm, turn = 1.0, 4 * burst
    end = warm + 1.5 * turn
    batches = [Bulk(BATCH, 110, 0.0)] * int(end * 42_000 / BATCH)
    world = World(dataflow, batches, sites=4, link_capacity=1)
    costs = Costs(
        row=lambda stage: (ROW, 5e-6, 0.0)[stage], ack=ACK, bandwidth=1e12, rows=lambda b: b.rows
    )

    def share(site: int, now: float) -> float:
        loaded = load and now >= warm and int((now - warm) / burst) % 4 == site
        return 0.5 if loaded else 1.0

    trace = Timed(world, costs, load=share).run(end)
    return trace.rate(end - turn, end)


SIZES = {0.5: [1024, 2048, 4096, 8192, 16384], 1.5: [2048, 4096, 8192, 16384, 32768, 65536]}
QUICK_SIZES = {0.5: [1024, 2048, 8192]}
"""Length of a burst in seconds -> entries to try."""


def ex11(quick: bool) -> Result:
    """Duplicate elimination over one pool, on four machines that lose half in turn."""
    rows: list[Row] = []
    charts: list[Chart] = []
    reached: dict[float, float] = {}
    for burst, sizes in (QUICK_SIZES if quick else SIZES).items():
        unloaded = rotating(sizes[-1], pooled=True, burst=burst, load=False)
        pooled, even = (
            [rotating(n, pooled=pool, burst=burst) / unloaded for n in sizes]
            for pool in (True, False)
        )
        reached[burst] = reach(sizes, pooled, pooled[-1])
        label = f"bursts of {burst} s"
        rows += [
            Row(what=f"plateau / unloaded, {label}", paper=0.875, ours=pooled[-1],
                within=(0.84, 0.90)),
            Row(what=f"plateau / unloaded, evenly divided, {label}", paper=0.875, ours=even[-1],
                within=(0.83, 0.90), quick=False),
            Row(what=f"worst of pool - evenly divided, {label}", paper=">= 0",
                ours=min(p - e for p, e in zip(pooled, even, strict=True)), within=(-0.015, 1.0)),
            Row(what=f"greatest of pool - evenly divided, {label}", paper="> 0",
                ours=max(p - e for p, e in zip(pooled, even, strict=True)), within=(0.01, 1.0)),
            Row(what=f"size of the plateau, entries, {label}", ours=reached[burst]),
        ]  # fmt: skip
        places = list(map(float, sizes))
        charts.append(
            Chart(
                title=f"EX-11  load of {burst} s on each of 4 machines in turn",
                x="buffer, entries per producer (log)",
                y="output / unloaded",
                log_x=True,
                series=(
                    curve("one pool (DTSB)", places, pooled),
                    curve("evenly divided", places, even),
                ),
                marks=(published("plateau 7/8", 0.875),),
            )
        )
    if len(reached) == 2:
        rows.append(
            Row(what="plateau size, bursts of 1.5 s / 0.5 s", paper="> 1",
                ours=reached[1.5] / reached[0.5], within=(1.1, 8.0))
        )  # fmt: skip
    return Result(rows=tuple(rows), charts=tuple(charts))


EXPERIMENTS = (
    Experiment(
        id="EX-3",
        title="Short-term skew: the transient skew buffer against plain exchange",
        source="[T] fig. 4.2; [I] fig. 3",
        setup="32 machines, 45.5 us per tuple, links of two 1 KB packets, load (100/50 us) for "
        "0.5 s on each machine in turn, 16 s after a warm-up",
        derived=("the load leaves 43 % of a machine (it costs 57 % of throughput)",),
        run=ex3,
    ),
    Experiment(
        id="EX-11",
        title="Short-term skew: one pool for duplicate elimination against divided buffers",
        source="[T] fig. 5.2",
        setup="4 machines, 2 group-bys in partition pairs, load of half a machine that wanders, "
        "0.5 s and 1.5 s each; the protocol itself under the virtual clock",
        derived=(
            "sizes are entries of every producer; in units of 128 rows, so not below 1,024",
            "one unit fits a link; 45 us per tuple and 4 us per acknowledgement as in EX-2",
            "six quarters of a turn instead of 60 s; the last full turn is measured",
            "evenly divided: the reserve per connection is its part of the whole pool",
        ),
        run=ex11,
    ),
)
