"""Every interleaving of a small configuration, with faults at any moment: no sampling, no seed.

    python -m flux_lab.explore dataflow-pair
    python -m flux_lab.explore --list
    python -m flux_lab.explore flux-2x2 --seconds 600 --state flux-2x2.search

The explorer drives the same machines, controller and checkers as the random sweeps, over `Product`
states. It goes depth first over all steps that are possible in a state, remembers the codes of the
states it has seen, and checks every step with the checkers and every final state with the leak
check. A violation is reported with the steps that lead to it and the story of the nodes concerned.

A step that leads to the same state before and after every other (`reduction`) is taken at once and
alone, and the states that such steps leave are only passed through: they are neither remembered nor
counted. With `--full`, nothing is left out.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import pickle
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from flux_lab.configurations import CONFIGURATIONS, Configuration
from flux_lab.search import ExplorationError, Explored, Left, Search
from flux_runtime.protocol.vocabulary import ProtocolError


def explore(
    configuration: Configuration,
    *,
    full: bool = False,
    prove: bool = False,
    states_max: int | None = None,
    seconds_max: float | None = None,
    resume: Path | None = None,
    searches: Sequence[Left] | None = None,
    progress: Callable[[Explored], None] = lambda explored: None,
) -> Explored:
    """Visit every state that the configuration can reach, for each choice of the pairs that fail.

    Args:
        configuration: the world and the faults.
        full: take every step in every state; else leave out what `reduction` proves redundant.
        prove: with `full`, check in every state the claims that the reduction rests on.
        states_max: give up (incomplete) after this many states.
        seconds_max: give up (incomplete) after this long.
        resume: a file that an incomplete search is written to and, if it exists, goes on from.
        searches: the choices of pairs; all by default.
        progress: called every ten thousand states.

    Raises:
        ExplorationError: a state or a step violates something, or breaks a claim.
    """
    started = time.perf_counter()
    explored, where = Explored(), None
    if resume is not None and resume.exists():
        explored, where = pickle.loads(resume.read_bytes())  # a file that this function has written
        explored.complete = True
    before = explored.seconds
    until = started + seconds_max if seconds_max else None
    choices = configuration.searches() if searches is None else tuple(searches)
    for due in choices[explored.searches :]:
        search = Search(configuration, due, explored, full=full or prove, prove=prove)
        search.enter(where)
        where = None
        if not search.run(states_max, until, progress):
            explored.complete = False
            explored.seconds = before + time.perf_counter() - started
            if resume is not None:
                resume.write_bytes(pickle.dumps((explored, search.leave()), protocol=5))
            break
        explored.searches += 1
    explored.seconds = before + time.perf_counter() - started
    return explored


def explore_in_parallel(
    configuration: Configuration, *, processes: int, prove: bool = False
) -> Explored:
    """The same, with a process for each of the searches, so many at a time.

    Raises:
        ProtocolError: a state or a step violates something; the message tells all.
    """
    started, total = time.perf_counter(), Explored()
    one = partial(_one_search, configuration, prove)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(one, configuration.searches()):
            total.states += part.states
            total.transitions += part.transitions
            total.finals += part.finals
            total.faults += part.faults
            total.ends |= part.ends
            total.searches += 1
    total.seconds = time.perf_counter() - started
    return total


def _one_search(configuration: Configuration, prove: bool, due: Left) -> Explored:
    return explore(configuration, searches=(due,), prove=prove)


def walk(configuration: Configuration, *, seed: int) -> int:
    """Check the claims of the reduction along one random run; gives the number of its states.

    For configurations whose every state is out of reach of a proof.

    Raises:
        ExplorationError: a step violates something, or breaks a claim.
    """
    rng = random.Random(seed)
    left = rng.choice(configuration.searches())
    search = Search(configuration, left, Explored(), full=True, prove=True)
    path: list[int] = []
    product, state = search.product, search.product.initial()
    try:
        while True:
            steps = product.steps(state.values)
            options = search.to_try(state, left, steps)
            if not steps:
                return len(path) + 1
            faults = options[len(steps) :]
            number = rng.choice(faults if faults and rng.random() < 0.05 else steps)
            first = search.reduction.first(state.values, steps, faults_left=bool(left))
            if seed % 2 and first is not None:
                number = first  # as a search would, so that it gets where nothing commutes
            path.append(number)
            left = search.left_after(number, left)
            state = product.after(state, number)
    except ProtocolError as cause:
        raise ExplorationError(configuration, search.named(path), str(cause)) from cause


def main(argv: Sequence[str] | None = None) -> int:
    """Explore and print the number of states."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.explore")
    parser.add_argument("name", nargs="?", choices=sorted(CONFIGURATIONS), default="dataflow-pair")
    parser.add_argument("--list", action="store_true", help="list the configurations")
    parser.add_argument("--full", action="store_true", help="leave out nothing")
    parser.add_argument(
        "--prove", action="store_true", help="leave out nothing, and check what is else left out"
    )
    parser.add_argument("--walks", type=int, help="check the same along so many random runs only")
    parser.add_argument("--processes", type=int, default=1, help="searches at the same time")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--state", type=Path, help="file that a stopped search goes on from")
    args = parser.parse_args(argv)
    if args.list:
        for name, configuration in CONFIGURATIONS.items():
            print(f"{name:24} {_text(configuration)}")
        return 0
    gc.disable()  # millions of numbers, no cycles
    configuration = CONFIGURATIONS[args.name]
    try:
        if args.walks:
            visited = sum(walk(configuration, seed=seed) for seed in range(args.walks))
            print(f"{args.name}: {visited:,} states of {args.walks} random runs, all claims hold")
            return 0
        if args.processes > 1:
            explored = explore_in_parallel(
                configuration, processes=args.processes, prove=args.prove
            )
            print(f"{args.name}: {explored}, no violation")
            return 0
        explored = explore(
            configuration,
            full=args.full,
            prove=args.prove,
            seconds_max=args.seconds,
            resume=args.state,
            progress=_show,
        )
    except ProtocolError as error:
        print(error)
        return 1
    print(f"{args.name}: {explored}, no violation")
    return 0


def _show(explored: Explored) -> None:
    if sys.stderr.isatty():
        line = f"{explored.states:,} states, {explored.transitions:,} transitions"
        print(f"\r{line}", end="", file=sys.stderr)


def _text(configuration: Configuration) -> str:
    values = [(f.name, getattr(configuration, f.name)) for f in fields(configuration)]
    return " ".join(f"{name}={value}" for name, value in values if name != "shape") + (
        f" widths={configuration.shape.widths}"
    )


if __name__ == "__main__":
    sys.exit(main())
