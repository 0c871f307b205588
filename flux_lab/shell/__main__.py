"""`python -m flux_lab.shell sweep LAST [FIRST]`: jobs with the seeds FIRST to LAST - 1.

`explore`: small jobs, with faults at every moment.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from flux_lab.shell.explore import CONFIGURATIONS, explore
from flux_lab.shell.mistakes import HARMLESS, MISTAKES, found_at
from flux_lab.shell.mutations import drawn, noticed
from flux_lab.shell.sweep import SETTINGS, run, sweep


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, and print what became of them; 1 if something promised did not hold."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.shell")
    commands = parser.add_subparsers(dest="command", required=True)
    sweeping = commands.add_parser("sweep", help="random jobs under random faults")
    sweeping.add_argument("last", type=int, help="the seed after the last")
    sweeping.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    sweeping.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    story = commands.add_parser("story", help="what happened in one run")
    story.add_argument("seed", type=int)
    exploring = commands.add_parser("explore", help="every moment of a fault in small jobs")
    exploring.add_argument("names", nargs="*", default=list(CONFIGURATIONS), metavar="NAME")
    exploring.add_argument("--list", action="store_true", help="list the jobs and what strikes")
    exploring.add_argument("--full", action="store_true", help="the same in equal states, too")
    exploring.add_argument("--seconds", type=float, help="stop each after this long")
    planting = commands.add_parser("mistakes", help="does the sweep find planted mistakes?")
    planting.add_argument("--seeds", type=int, default=200, help="how many runs each is given")
    planting.add_argument("--only", default="", help="those with this in their name")
    mutating = commands.add_parser("mutations", help="random mutations: which survive?")
    mutating.add_argument("count", type=int)
    mutating.add_argument("--seed", type=int, default=0, help="decides which are drawn")
    mutating.add_argument("--seeds", type=int, default=40, help="how many runs each is given")
    for command in (sweeping, story):
        command.add_argument("--setting", choices=SETTINGS, default="any", help="what is drawn")
    args = parser.parse_args(argv)
    if args.command == "story":
        done = run(args.seed, args.setting)
        print(done.story, done.problem or "nothing was wrong", sep="\n")
        return 1 if done.problem else 0
    if args.command == "explore":
        if unknown := [name for name in args.names if name not in CONFIGURATIONS]:
            parser.error(f"no job {', '.join(unknown)}: there are {', '.join(CONFIGURATIONS)}")
        return _explore(args.names, args.seconds, full=args.full, listing=args.list)
    if args.command == "mistakes":
        return _mistakes(args.only, args.seeds)
    if args.command == "mutations":
        return _mutations(args.count, args.seed, args.seeds)
    if not 0 <= args.first < args.last:
        parser.error(f"there are no seeds from {args.first} to {args.last}: give LAST, then FIRST")
    totals, text = sweep(range(args.first, args.last), args.processes, args.setting)
    print(text)
    return 1 if totals.failed else 0


def _explore(names: Sequence[str], seconds: float | None, *, full: bool, listing: bool) -> int:
    """Print how much was tried of each; 1 if something promised did not hold."""
    for name in names:
        if listing:
            print(f"{name:20} {CONFIGURATIONS[name]}")
            continue
        began = time.process_time()
        explored = explore(CONFIGURATIONS[name], full=full, seconds_max=seconds)
        spent = f"{time.process_time() - began:.1f} s of a processor"
        print(f"{name:20} {explored}, {spent}, {explored.problem or 'no violation'}", flush=True)
        if explored.problem:
            return 1
    return 0


def _mistakes(only: str, seeds: int) -> int:
    """Print at which seed each mistake is found; 1 if one is not, and nothing says why."""
    missed = 0
    for mistake in (m for m in MISTAKES if only in m.name):
        notice = found_at(mistake, range(seeds))
        if notice is None:
            why = HARMLESS.get(mistake.name, "")
            missed += not why
            print(f"not found in {seeds} runs: {mistake.name}: {why or 'UNEXPLAINED'}", flush=True)
        else:
            where = f"{mistake.setting} {notice[0]}"
            print(f"{where:>12}: {mistake.name}: {notice[1].splitlines()[0]}", flush=True)
    return 1 if missed else 0


def _mutations(count: int, seed: int, seeds: int) -> int:
    """Print at which seed each mutation is noticed; survivors are for people to judge."""
    survivors = 0
    for mutation in drawn(count, seed):
        notice = noticed(mutation, range(seeds))
        survivors += notice is None
        where = "survives" if notice is None else f"{notice[0]:>12}"
        why = "" if notice is None else f": {notice[1].splitlines()[0][:100]}"
        print(f"{where}: {mutation}{why}", flush=True)
    print(f"{survivors} of {count} survive {seeds} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
