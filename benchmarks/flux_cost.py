"""What the protocol itself costs per tuple, beside the group-by it protects.

    python benchmarks/flux_cost.py [--rows 1024]

Runs the papers' running example (two partition pairs per stage, Arrow batches) in one process and
takes the time inside operators, inside splitting and merging rows, and inside the state machines of
the segments (processor time). The simulated network is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flux_runtime.protocol.dataflow import Operator
from flux_runtime.protocol.segment import Segment
from flux_runtime.protocol.vocabulary import Pair, Shape
from flux_runtime.simulation.checks import Checks
from flux_runtime.simulation.example import events, running_example
from flux_runtime.simulation.world import World


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


def main() -> int:
    """Print seconds per tuple and copy; fail if the protocol takes a tenth of the operators."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=150)
    args = parser.parse_args()
    spent = {"operators": 0.0, "split and merge": 0.0, "state machines": 0.0}
    processed = 0

    def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal processed
            started = time.thread_time()
            made = function(*arguments)
            if not (kind == "split and merge" and arguments[0] == 0):  # the ingress is no segment
                spent[kind] += time.thread_time() - started
            if kind == "operators":
                processed += arguments[0].num_rows
            return made

        return run

    plain = running_example(Shape(widths=(2, 2)))

    def operator(pair: Pair) -> Operator:
        made = plain.operator(pair)
        made.process = timed("operators", made.process)  # type: ignore[method-assign]
        return made

    dataflow = replace(
        plain,
        operator=operator,
        split=timed("split and merge", plain.split),
        merge=timed("split and merge", plain.merge),
    )
    for name in ("receive", "work", "next_message"):
        setattr(Segment, name, timed("state machines", getattr(Segment, name)))
    batches = events(args.batches, 2 * args.rows, keys=20_000)
    world = World(dataflow, batches, sites=2, checks=Unchecked())
    while steps := world.steps():
        world.perform(steps[0])
        if world.position == 5:  # warm by now
            spent.update(dict.fromkeys(spent, 0.0))
            processed = 0
    spent["state machines"] -= spent["operators"] + spent["split and merge"]
    for what, seconds in spent.items():
        print(f"{what:20} {seconds / processed * 1e6:7.3f} us per tuple and operator copy")
    ratio = spent["state machines"] / spent["operators"]
    print(f"state machines / operators: {ratio:.3f} in batches of {args.rows} (to be below 0.1)")
    return 0 if ratio < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
