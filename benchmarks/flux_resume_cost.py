"""What the resume protocol costs beside the group-by it protects, and the papers' protocol too.

    python benchmarks/flux_resume_cost.py [--partitions 2 4 8 16] [--rows 1024 8192] [--times 3]
                                          [--saturated] [--keep-rows]

The papers' running example (Arrow batches) runs in one process in n x n partitions on n sites,
under both protocols in turn. Printed are processor seconds inside the state machines per second
inside the operators (medians; the ends of the dataflow are not counted, nor is reading the clock,
nor splitting and merging rows), and messages per batch between sites of segments: for the papers'
protocol those that links carry, for the resume protocol frames.

A round brings one batch; with `--saturated` as many as the window of the resume protocol lets in,
so that frames carry several. With `--keep-rows` its rows are freed after the run: the time that
the allocator takes for it would otherwise count as that of the state machines.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from flux_cost import CORE, OPERATORS, ROWS, Stopwatch, Unchecked, price_of_the_clock

from flux_lab.example import events, running_example
from flux_lab.papers.protocol.ends import Ingress
from flux_lab.papers.protocol.segment import Segment
from flux_lab.world import World
from flux_runtime.protocol.dataflow import Dataflow, Operator
from flux_runtime.protocol.vocabulary import THE_INGRESS, Pair, Shape
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import Frame, LogEntry
from flux_runtime.resume.site import Site

WARM = 3
"""Batches that are not counted."""


class Cost(NamedTuple):
    """Of one run: core beside operators, and messages per batch."""

    ratio: float
    messages: float


def watched(watch: Stopwatch, shape: Shape) -> Dataflow:
    """The running example, its operators watched."""
    plain = running_example(shape)

    def operator(pair: Pair) -> Operator:
        made = plain.operator(pair)
        made.process = watch.timed(OPERATORS, made.process)  # type: ignore[method-assign]
        return made

    return replace(plain, operator=operator)


def papers(watch: Stopwatch, parts: int, rows: int, batches: int) -> Cost:
    """The papers' protocol; acknowledgements stand for four units, as in the product."""
    plain = watched(watch, Shape(widths=(parts, parts), ack_every=4, pool=8 * parts))
    dataflow = replace(
        plain, split=watch.timed(ROWS, plain.split), merge=watch.timed(ROWS, plain.merge)
    )
    world = World(dataflow, events(batches, rows, keys=20_000), sites=parts, checks=Unchecked(),
                  link_capacity=16)  # fmt: skip
    count = _count(world)
    kept: dict[str, Callable[..., Any]] = {}
    for name in ("receive", "work", "next_message"):
        kept[name] = getattr(Segment, name)
        setattr(Segment, name, watch.timed(CORE, kept[name]))
    try:
        _run(world, watch, count)
    finally:
        for name, method in kept.items():
            setattr(Segment, name, method)
    price = watch.price
    inside = sum(watch.spent[kind] + watch.calls[kind] * price for kind in (OPERATORS, ROWS))
    core = watch.spent[CORE] - watch.calls[CORE] * price - inside
    operators = watch.spent[OPERATORS] - watch.calls[OPERATORS] * price
    return Cost(core / operators, count[0] / (batches - WARM))


def _count(world: World) -> list[int]:
    """Counts the messages between segments on different sites from now on."""
    count, send = [0], world.network.send

    def counted(src: Any, dst: Any, message: Any) -> None:
        inner = min(src.stage, dst.stage) >= 0 and max(src.stage, dst.stage) < 2
        count[0] += inner and world.site[src] != world.site[dst]
        send(src, dst, message)

    world.network.send = counted  # type: ignore[method-assign]
    return count


def _run(world: World, watch: Stopwatch, count: list[int]) -> None:
    """All steps of a state, then those of the next."""
    ingress = world.nodes[THE_INGRESS]
    assert isinstance(ingress, Ingress)
    warm = False
    while steps := world.steps():
        for step in steps:
            if step.kind == "deliver":
                line = world.links.get((step.peer, step.at))
                if not line or not world.nodes[step.at].accepts(step.peer, line[0]):
                    continue
            elif step.kind == "source" and not ingress.wants_input:
                continue
            world.perform(step)
        if not warm and world.position > WARM:
            warm = True
            watch.reset()
            count[0] = 0


def resume(
    watch: Stopwatch,
    parts: int,
    rows: int,
    batches: int,
    *,
    saturated: bool = False,
    keep_rows: bool = False,
) -> Cost:
    """The resume protocol: in every round each site reads, works, and flushes once."""
    flow = Flow(dataflow=watched(watch, Shape(widths=(parts, parts))), window=8, ack_every=4)
    log: list[LogEntry] = []
    Controller(flow, log, range(1, parts + 1), ends=0)
    sites = [Site(flow, number) for number in range(parts + 1)]
    for site in sites:
        for load in site.log(log[0]):
            site.load(load.copy, 0)
    source = events(batches, rows, keys=20_000)
    inboxes: list[list[Frame]] = [[] for _ in sites]
    (ingress,) = [copy for copy in sites[0].replicas if copy.stage < 0]
    for site in sites[1:]:
        for name in ("receive", "next_input", "produced", "flush"):
            setattr(site, name, watch.timed(CORE, getattr(site, name)))
    sent = fed = 0
    kept: list[Any] = []
    busy = True
    while busy or fed < batches:
        busy = False
        due = batches if saturated else min(batches, fed + 1)
        while fed < due and sites[0].has_room(ingress):
            sites[0].produced(ingress, flow.split(-1, source[fed]))
            fed += 1
            if fed == WARM + 1:
                watch.reset()
                sent = 0
        for site in sites:
            inbox, inboxes[site.number] = inboxes[site.number], []
            for frame in inbox:
                site.receive(frame)
            while (work := site.next_input()) is not None:
                taken, operator = flow.merged(work.units), site.replicas[work.copy].operator
                made = None if taken is None or operator is None else operator.process(taken)
                units = flow.split(work.copy.stage, made)
                if keep_rows:
                    kept.append((work.units, taken, units))
                site.produced(work.copy, units)
            for there, frame in site.flush(fed == batches):
                busy = True
                inboxes[there].append(frame)
                sent += site.number > 0 and there > 0
    done = {replica.done for site in sites for replica in site.replicas.values()}
    assert done == {batches}, done
    core = watch.spent[CORE] - watch.calls[CORE] * watch.price
    operators = watch.spent[OPERATORS] - watch.calls[OPERATORS] * watch.price
    return Cost(core / operators, sent / (batches - WARM))


def main() -> int:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--batches", type=int, default=23)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=("papers", "resume"))
    parser.add_argument("--saturated", action="store_true")
    parser.add_argument("--keep-rows", action="store_true")
    args = parser.parse_args()
    price = price_of_the_clock()
    options = {"saturated": args.saturated, "keep_rows": args.keep_rows}
    kinds = {"papers": papers, "resume": partial(resume, **options)}
    print("rows a batch  partitions  protocol  core / operators              messages a batch")
    for rows in args.rows:
        for parts in args.partitions:
            found: dict[str, list[Cost]] = {name: [] for name in kinds if args.only in (None, name)}
            for _ in range(args.times):
                for name, costs in found.items():
                    costs.append(kinds[name](Stopwatch(price), parts, rows, args.batches))
            for name, costs in found.items():
                ratios = sorted(cost.ratio for cost in costs)
                print(
                    f"{rows:>12}  {f'{parts}x{parts}':>10}  {name:8}  {median(ratios):.3f} "
                    f"({ratios[0]:.3f} to {ratios[-1]:.3f})  "
                    f"{median(cost.messages for cost in costs):>12.1f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    started = time.process_time()
    code = main()
    print(f"{time.process_time() - started:.0f} s of a processor")
    sys.exit(code)
