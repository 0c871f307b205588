"""MTTF: formulas of section 2.3 beside a Monte Carlo over the same machines.

The published formulas count one machine of a pair as the first to fail; either may be, so they are
twice the exact values (AMB-16). The layout of copies matters as much as the scheme.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from blazes.document.charts import Chart, Series

from .experiment import Experiment, Result, Row

MTTF, MTTR = 100.0, 1.0


def simulate(
    machines: int,
    fatal: Callable[[int, set[int]], bool],
    *,
    runs: int,
    mttf: float = MTTF,
    mttr: float = MTTR,
) -> float:
    """Mean time to a fatal failure; failures and repairs are exponential.

    Args:
        machines: how many there are.
        fatal: (machine that failed now, all broken ones with it) -> whether data is lost.
        runs: how many times.
        mttf: mean hours from repair to failure of one machine.
        mttr: mean hours of a repair.
    """
    draw = random.Random(1)
    total = 0.0
    for _ in range(runs):
        events = [(draw.expovariate(1 / mttf), m, True) for m in range(machines)]
        heapq.heapify(events)
        broken: set[int] = set()
        while True:
            now, machine, fails = heapq.heappop(events)
            if not fails:
                broken.discard(machine)
                heapq.heappush(events, (now + draw.expovariate(1 / mttf), machine, True))
                continue
            broken.add(machine)
            if fatal(machine, broken):
                break
            heapq.heappush(events, (now + draw.expovariate(1 / mttr), machine, False))
        total += now
    return total / runs


def schemes(n: int) -> dict[str, tuple[int, Callable[[int, set[int]], bool], float]]:
    """Name -> machines, what is fatal, and the exact value to first order in MTTR / MTTF."""
    half = n // 2
    pair = MTTF**2 / (2 * MTTR)
    return {
        "one machine": (1, lambda m, b: True, MTTF),
        "process pair": (2, lambda m, b: len(b) == 2, pair),
        "no replication": (n, lambda m, b: True, MTTF / n),
        "cluster pairs": (
            n,
            lambda m, b: any((m < half) != (other < half) for other in b),
            2 * MTTF**2 / (n**2 * MTTR),
        ),
        "partition pairs on pairs of machines": (n, lambda m, b: m ^ 1 in b, 2 * pair / n),
        "partition pairs, chained": (
            n,
            lambda m, b: (m + 1) % n in b or (m - 1) % n in b,
            pair / n,
        ),
        "partition pairs, copies anywhere": (n, lambda m, b: len(b) > 1, 2 * pair / (n * (n - 1))),
    }


def worked_example(quick: bool) -> list[Row]:
    """The thesis' own numbers: 100 machines, a failure in 1,000 hours each, 6 minutes of repair."""
    runs = 12 if quick else 300
    spread = 4 / runs**0.5
    hours = {"mttf": 1000.0, "mttr": 0.1}
    rows = []
    for name, formula in (
        ("no replication", 10.0), ("cluster pairs", 4_000.0),
        ("partition pairs on pairs of machines", 200_000.0),
    ):  # fmt: skip
        found = simulate(100, schemes(100)[name][1], runs=runs, **hours)
        exact = formula if name == "no replication" else formula / 2
        rows.append(
            Row(what=f"100 machines, 1000 h, 0.1 h; {name}, h (exact {exact:,.0f})", paper=formula,
                ours=found, within=(exact * (0.9 - spread), exact * (1.12 + spread)))
        )  # fmt: skip
    return rows


def measure(quick: bool) -> Result:
    """Every scheme at 16 machines, and how it falls with their number."""
    runs = 150 if quick else 1500
    spread = 4 / runs**0.5
    paper: dict[str, float | str] = {
        "one machine": MTTF, "process pair": 10_000, "no replication": MTTF / 16,
        "cluster pairs": 156, "partition pairs on pairs of machines": 1250,
    }  # fmt: skip
    model: dict[str, float] = {
        "process pair": 5370, "cluster pairs": 92, "partition pairs on pairs of machines": 670,
        "partition pairs, chained": 328, "partition pairs, copies anywhere": 48,
    }  # fmt: skip
    rows = []
    found: dict[str, float] = {}
    for name, (machines, fatal, exact) in schemes(16).items():
        found[name] = simulate(machines, fatal, runs=runs)
        checked = model.get(name, exact)
        rows.append(
            Row(
                what=f"{name}: simulated (formula {exact:.0f})",
                paper=paper.get(name, "-"),
                ours=found[name],
                within=(checked * (0.9 - spread), checked * (1.12 + spread)),
                differs="",
            )
        )
    pairs = "partition pairs on pairs of machines"
    rows.append(
        Row(what="partition pairs / cluster pairs, 16 machines", paper="8 to 128",
            ours=found[pairs] / found["cluster pairs"], within=(4.0, 128.0))
    )  # fmt: skip
    sizes = (4, 8, 16, 32, 64)
    names = ("no replication", "cluster pairs", pairs, "partition pairs, chained",
             "partition pairs, copies anywhere")  # fmt: skip
    curves = {
        name: [simulate(n, schemes(n)[name][1], runs=max(60, runs // 4)) for n in sizes]
        for name in names
    }
    falls = {name: values[1] / values[-1] for name, values in curves.items()}
    rows += [
        Row(what="fall from 8 to 64 machines, pairs of machines (linear: 8)", paper="linear",
            ours=falls[pairs], within=(5.0, 13.0)),
        Row(what="the same for cluster pairs (quadratic: 64)", paper="quadratic",
            ours=falls["cluster pairs"], within=(20.0, 90.0), quick=False,
            differs=""),
    ]  # fmt: skip
    rows += worked_example(quick)
    formula = {
        "cluster pairs, exact formula": "cluster pairs",
        "pairs on pairs of machines, exact formula": pairs,
    }
    return Result(
        rows=tuple(rows),
        charts=(
            Chart(
                title=f"MTTF  machines with MTTF {MTTF:g} h, MTTR {MTTR:g} h",
                x="machines (log)",
                y="hours to the loss of data (log)",
                log_x=True,
                log_y=True,
                series=(
                    *(
                        Series(name.replace("partition pairs", "pairs"),
                               tuple(zip(map(float, sizes), values, strict=True)), True)
                        for name, values in curves.items()
                    ),
                    *(
                        Series(name, tuple((float(n), schemes(n)[of][2]) for n in sizes))
                        for name, of in formula.items()
                    ),
                ),
            ),
        ),
        remarks=(
            "The published formulas for replicated schemes are twice the exact ones (AMB-16): "
            "checks are against the exact ones, or the specification's own simulation.",
        ),
    )  # fmt: skip


EXPERIMENTS = (
    Experiment(
        id="MTTF",
        title="Mean time to the loss of data, by formula and by Monte Carlo",
        source="[T] 3.1, 3.3; specification 2.3, AMB-16",
        setup="16 machines, MTTF 100, MTTR 1, exponential",
        run=measure,
    ),
)
