"""What the protocol itself costs per tuple, beside the group-by it protects.

    python benchmarks/flux_cost.py [--rows 1024] [--times 5]

Runs the papers' running example (two partition pairs per stage, Arrow batches) in one process and
takes the time inside operators, inside splitting and merging rows, and inside the state machines of
the segments (processor time, medians over several runs). The simulated network is not counted, nor
is reading the clock itself, whose price is measured first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from flux_lab.checks import Checks
from flux_lab.example import events, running_example
from flux_lab.papers.protocol.segment import Segment
from flux_lab.world import World
from flux_runtime.protocol.dataflow import Dataflow, Operator
from flux_runtime.protocol.vocabulary import Pair, Shape

OPERATORS, ROWS, CORE = "operators", "split and merge", "state machines"
WARM = 5
"""Batches that are not counted."""
TENTH = 0.1


class Unchecked(Checks):
    """Checks nothing, so that only the protocol is measured."""

    def __init__(self) -> None:
        self.total = 0

    def listens(self, machine: Any, src: Any) -> bool:
        """Nothing counts."""
        return False

    def emitted(self, count: int, emit: Any) -> None:
        """Anything goes."""

    def placement(self, world: World) -> None:
        """Anything goes."""


@dataclass
class Stopwatch:
    """Processor time per kind of work; calls of one kind may enclose calls of another.

    Attributes:
        price: seconds that one reading of the clock takes.
        rows: rows that operators have processed.
    """

    price: float
    spent: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def timed(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, watched."""

        def run(*arguments: Any) -> Any:
            started = time.thread_time()
            made = function(*arguments)
            if not (kind == ROWS and arguments[0] == 0):  # the ingress is no segment
                self.spent[kind] += time.thread_time() - started
                self.calls[kind] += 1
            if kind == OPERATORS:
                self.rows += arguments[0].num_rows
            return made

        return run

    def reset(self) -> None:
        """Forget what has been counted."""
        self.spent.clear()
        self.calls.clear()
        self.rows = 0

    def per_tuple(self) -> dict[str, float]:
        """Seconds per row of every kind, without what it encloses and without the clock.

        A watched call contains one reading of the clock, and costs what encloses it another.
        """
        own = {kind: self.spent[kind] - self.calls[kind] * self.price for kind in self.spent}
        inside = (OPERATORS, ROWS)
        own[CORE] -= sum(self.spent[kind] + self.calls[kind] * self.price for kind in inside)
        return {kind: own[kind] / self.rows for kind in (OPERATORS, ROWS, CORE)}


def price_of_the_clock(readings: int = 100_000) -> float:
    """Seconds that one reading takes."""
    started = time.thread_time()
    for _ in range(readings):
        time.thread_time()
    return (time.thread_time() - started) / readings


def watched(watch: Stopwatch) -> Dataflow:
    """The running example, its operators and functions of rows watched."""
    plain = running_example(Shape(widths=(2, 2)))

    def operator(pair: Pair) -> Operator:
        made = plain.operator(pair)
        made.process = watch.timed(OPERATORS, made.process)  # type: ignore[method-assign]
        return made

    return replace(
        plain,
        operator=operator,
        split=watch.timed(ROWS, plain.split),
        merge=watch.timed(ROWS, plain.merge),
    )


def run(watch: Stopwatch, rows: int, batches: int) -> dict[str, float]:
    """One run: seconds per tuple and copy of every kind."""
    world = World(
        watched(watch), events(batches, 2 * rows, keys=20_000), sites=2, checks=Unchecked()
    )
    while steps := world.steps():
        world.perform(steps[0])
        if world.position == WARM:
            watch.reset()
    return watch.per_tuple()


def main() -> int:
    """Print seconds per tuple and copy; fail if the protocol takes a tenth of the operators."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    watch = Stopwatch(price_of_the_clock())
    for name in ("receive", "work", "next_message"):
        setattr(Segment, name, watch.timed(CORE, getattr(Segment, name)))
    runs = [run(watch, args.rows, args.batches) for _ in range(args.times)]
    for kind in (OPERATORS, ROWS, CORE):
        middle = median(seconds[kind] for seconds in runs) * 1e6
        print(f"{kind:20} {middle:7.3f} us per tuple and operator copy")
    ratios = sorted(seconds[CORE] / seconds[OPERATORS] for seconds in runs)
    print(
        f"state machines / operators: {median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) "
        f"in batches of {args.rows} (to be below {TENTH})"
    )
    return 0 if median(ratios) < TENTH else 1


if __name__ == "__main__":
    sys.exit(main())
