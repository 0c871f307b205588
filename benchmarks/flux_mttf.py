"""Mean time to the loss of data: formulas of section 2.3 beside a Monte Carlo over the same
machines.

    python benchmarks/flux_mttf.py [--machines 16] [--mttf 100] [--mttr 1] [--runs 2000]

The published formulas count one machine of a pair as the first to fail; either may be, so they are
twice the exact values (AMB-16). The layout of copies matters as much as the scheme.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Callable


def simulate(
    machines: int, fatal: Callable[[set[int]], bool], *, mttf: float, mttr: float, runs: int
) -> float:
    """Mean time until the set of broken machines is fatal; failures and repairs are exponential."""
    draw = random.Random(1)
    total = 0.0
    for _ in range(runs):
        events = [(draw.expovariate(1 / mttf), m, True) for m in range(machines)]
        heapq.heapify(events)
        broken: set[int] = set()
        while True:
            now, machine, fails = heapq.heappop(events)
            if fails:
                broken.add(machine)
                if fatal(broken):
                    break
                heapq.heappush(events, (now + draw.expovariate(1 / mttr), machine, False))
            else:
                broken.discard(machine)
                heapq.heappush(events, (now + draw.expovariate(1 / mttf), machine, True))
        total += now
    return total / runs


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--mttf", type=float, default=100.0)
    parser.add_argument("--mttr", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    n, mttf, mttr = args.machines, args.mttf, args.mttr
    half = n // 2
    schemes: list[tuple[str, int, Callable[[set[int]], bool], float | None]] = [
        ("one machine", 1, lambda b: True, mttf),
        ("one pair", 2, lambda b: len(b) == 2, mttf**2 / mttr),
        ("unreplicated", n, lambda b: True, mttf / n),
        (
            "cluster pairs",
            n,
            lambda b: any(m < half for m in b) and any(m >= half for m in b),
            4 * mttf**2 / (n**2 * mttr),
        ),
        (
            "partition pairs on machine pairs",
            n,
            lambda b: any(m ^ 1 in b for m in b),
            2 * mttf**2 / (n * mttr),
        ),
        (
            "partition pairs, chained declustering",
            n,
            lambda b: any((m + 1) % n in b for m in b),
            None,
        ),
        ("partition pairs, copies anywhere", n, lambda b: len(b) > 1, None),
    ]
    print(f"{n} machines, MTTF {mttf:g}, MTTR {mttr:g}, {args.runs} runs")
    print(f"{'scheme':40} {'published':>10} {'exact':>10} {'simulated':>10}")
    for name, machines, fatal, formula in schemes:
        found = simulate(machines, fatal, mttf=mttf, mttr=mttr, runs=args.runs)
        published = "-" if formula is None else f"{formula:10.0f}"
        pairs = name not in ("one machine", "unreplicated")
        exact = "-" if formula is None else f"{formula / 2 if pairs else formula:10.0f}"
        print(f"{name:40} {published:>10} {exact:>10} {found:10.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
