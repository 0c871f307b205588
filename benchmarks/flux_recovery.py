"""EX-1 and EX-2: recovery of a running dataflow, and what partition pairs cost.

    python benchmarks/flux_recovery.py [ex1|ex2]

The protocol's own machines under the simulator's virtual clock, with the parameters of the papers'
cluster: four machines and a spare, 100 Mb/s, 110-byte tuples, two group-bys of four partitions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.simulation.bulk import Bulk, bulk_dataflow
from flux_runtime.simulation.costs import Costs, Trace
from flux_runtime.simulation.timed import Timed
from flux_runtime.simulation.world import Step, World

ROW_BYTES = 110
CRASH_AT = 4.0
BIN = 0.25


def recovery(*, batch_rows: int = 420, seconds: float = 8.0) -> tuple[Timed, float]:
    """EX-1: 42 K tuples/s; one of four machines is killed; a spare takes its four copies."""
    interval = batch_rows / 42_000
    shape = Shape(widths=(4, 4), pool=4096, in_hand=4)
    dataflow = bulk_dataflow(
        shape, selectivity=(0.5, 0.5), row_bytes=(60, 60), state=(3_400_000, 850_000)
    )
    n = int(seconds / interval)
    batches = [Bulk(batch_rows, ROW_BYTES, i * interval) for i in range(n)]
    world = World(dataflow, batches, sites=4, spares=1, link_capacity=16)
    costs = Costs(
        row=lambda stage: 8e-6 if stage < 2 else 0.0, bandwidth=10e6, rows=lambda bulk: bulk.rows
    )
    timed = Timed(world, costs, interval=interval, faults=((CRASH_AT, Step("crash", 1)),))
    timed.run(seconds + 2)
    world.finished()
    return timed, seconds


def bins(trace: Trace, end: float) -> list[tuple[float, float, float]]:
    """(time, rows per second, mean latency in ms) in bins of 250 ms."""
    found = []
    for i in range(int(end / BIN)):
        inside = [(r, t - p.born) for t, r, p in trace.emitted if i * BIN <= t < (i + 1) * BIN]
        rows = sum(r for r, _ in inside)
        latency = sum(r * d for r, d in inside) / rows if rows else 0.0
        found.append((i * BIN, rows / BIN, latency * 1e3))
    return found


def ex1() -> bool:
    """Print throughput and latency over time, and check the shape."""
    timed, end = recovery()
    trace = timed.trace
    series = bins(trace, end)
    before = trace.rate(CRASH_AT - 2, CRASH_AT)
    moved = sum(size for _, _, _, size, _ in trace.moves)
    first, last = trace.moves[0][0], max(t + took for t, _, _, _, took in trace.moves)
    print("time  rows/s  latency ms")
    for t, rate, latency in series:
        print(f"{t:5.2f} {rate:7.0f} {latency:8.1f} {'#' * int(30 * rate / before)}")
    after = trace.rate(end - 2, end)
    window = trace.rate(CRASH_AT - 0.25, end - 0.5)
    fed_before = sum(CRASH_AT - 2 <= t < CRASH_AT for t in trace.fed)
    fed_after = sum(CRASH_AT <= t < CRASH_AT + 2 for t in trace.fed)
    lowest = min(rate for t, rate, _ in series if CRASH_AT <= t < CRASH_AT + 2)
    lines = [
        ("state moved, MB", "8.5", moved / 1e6),
        ("time from first to last move, s", "0.941", last - first),
        ("input during / before", "1.0", fed_after / fed_before),
        ("steady output, K/s", "10.5", before / 1e3),
        ("lowest output / steady", "(drops)", lowest / before),
        ("output over the window / steady", "1.0", window / before),
        ("output after / before", "1.0", after / before),
    ]
    for what, paper, ours in lines:
        print(f"{what:34} paper {paper:>8}   ours {ours:8.3f}")
    return (
        abs(fed_after / fed_before - 1) < 0.02
        and abs(window / before - 1) < 0.05
        and abs(after / before - 1) < 0.05
        and lowest < 0.9 * before
    )


SINGLE_ROW = 45e-6
"""Processor seconds per tuple of the upstream group-by: 4 machines then take about 82 K/s."""


def sustained(shape: Shape, *, ack: float, batches: int = 160, batch_rows: int = 200) -> float:
    """Rows per second that the ingress can feed for ever."""
    dataflow = bulk_dataflow(shape, selectivity=(0.5, 0.5), row_bytes=(60, 60), state=(1000, 1000))
    work = [Bulk(batch_rows, ROW_BYTES, 0.0)] * batches
    world = World(dataflow, work, sites=4, link_capacity=8)
    costs = Costs(
        row=lambda stage: (SINGLE_ROW, 5e-6, 0.0)[stage],
        ack=ack,
        bandwidth=1e12,
        rows=lambda bulk: bulk.rows,
    )
    timed = Timed(world, costs)
    trace = timed.run(1e6)
    world.finished()
    middle = [t for t in trace.fed if trace.fed[40] <= t <= trace.fed[-40]]
    return batch_rows * (len(middle) - 1) / (middle[-1] - middle[0])


def ex2() -> bool:
    """Print the sustainable input of a single dataflow, cluster pairs and partition pairs."""
    widths, limits = (4, 4), {"pool": 64, "in_hand": 2}
    single = sustained(Shape(widths=widths, copies=1, **limits), ack=0.0)
    rows = [("single", 82.0, single)]
    for label, ack in (("every tuple acknowledged", 4e-6), ("every batch acknowledged", 0.0)):
        cluster = sustained(Shape(widths=widths, cluster_pairs=True, **limits), ack=ack / 2)
        pairs = sustained(Shape(widths=widths, **limits), ack=ack)
        rows += [(f"cluster pairs, {label}", 40.0, cluster), (f"Flux, {label}", 36.0, pairs)]
    for what, paper, ours in rows:
        print(f"{what:44} paper {paper:5.1f} K/s   ours {ours / 1e3:6.1f} K/s")
    ratio_cluster, ratio_flux = rows[1][2] / rows[0][2], rows[2][2] / rows[1][2]
    print(f"cluster pairs / single: paper 0.49, ours {ratio_cluster:.2f}")
    print(f"Flux / cluster pairs:   paper 0.90, ours {ratio_flux:.2f}")
    print(f"the same, every batch acknowledged: ours {rows[4][2] / rows[3][2]:.2f}")
    return 0.42 < ratio_cluster < 0.55 and 0.8 < ratio_flux < 1.0


def main(argv: Sequence[str]) -> int:
    """Run the experiments named, or both; the exit code says whether their shapes hold."""
    experiments = {"ex1": ex1, "ex2": ex2}
    held = [experiments[name]() for name in argv or experiments]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
