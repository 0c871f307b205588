#!/usr/bin/env python3
"""Run the examples from end to end: make data, analyze, compile and run, compare the results.

    python examples/run_all.py                    word count and the ad network
    python examples/run_all.py settlement         another one, or several

Everything that a step prints is what its own command prints; the commands are shown, to be tried
one by one. Exit status: that of the first step that fails.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
ROOT = EXAMPLES.parent
CHOSEN = {
    "wordcount": ("wordcount.yaml", [], "wordcount", "db", []),
    "ad_network": (
        "ad_network.yaml",
        ["--variant", "Report=CAMPAIGN"],
        "ad-network",
        "results",
        ["CAMPAIGN"],
    ),
    "settlement": ("settlement.yaml", [], "settlement", "", []),
}
"""Folder -> dataflow, its variant, its name, the sink to check, arguments of expected.py."""


def commands(example: str) -> Iterator[list[str]]:
    """What is run for an example, in order."""
    file, variant, name, sink, query = CHOSEN[example]
    folder = Path("examples") / example
    results = Path("target") / name / "results" / sink
    yield ["python", f"{folder}/generate.py"]
    yield ["blazes", "analyze", f"{folder}/{file}", *variant]
    yield ["blazes", "run", f"{folder}/{file}", *variant, "--available-now", "--fresh"]
    yield ["python", f"{folder}/expected.py", *query, "--check", str(results)]


def main() -> int:
    """Run the examples of the command line; the status of the first step that fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"of {', '.join(CHOSEN)}")
    chosen = parser.parse_args().examples or ["wordcount", "ad_network"]
    if unknown := set(chosen) - CHOSEN.keys():
        parser.error(f"no example {', '.join(sorted(unknown))}; there are {', '.join(CHOSEN)}")
    for example in chosen:
        print(f"\n━━ {example} ━━", flush=True)
        for command in commands(example):
            print(f"\n$ {' '.join(command)}", flush=True)
            program, *arguments = command
            start = [sys.executable] if program == "python" else [sys.executable, "-m", program]
            status = subprocess.run([*start, *arguments], cwd=ROOT).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
