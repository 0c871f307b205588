"""What must come out, computed in plain Python, and compared record by record in order.

    python expected.py --batches 500 --rows 1000 --check RESULTS
    python expected.py --check target/sessions/runs/latest        a run says what its input was

RESULTS is a folder of parquet files, or a run folder of run.py. Exit status 1: they differ.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from packets import packets

Row = tuple[int, int, float, float]
COLUMNS = ("app", "src", "max_duration", "avg_duration")


def statistics(batches: int, rows: int, *, pairs: int, seed: int) -> Iterator[Row]:
    """(app, src, max, mean) of every second session of an app and source."""
    began: dict[tuple[int, int], int] = {}
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    for batch in islice(packets(rows, pairs=pairs, seed=seed), batches):
        columns = [column.to_pylist() for column in batch.columns]
        for src, dst, app, time, last in zip(*columns, strict=True):
            if not last:
                began[src, dst] = time
            elif (src, dst) in began:
                durations = seen[app, src]
                durations.append(time - began.pop((src, dst)))
                if len(durations) == 2:
                    yield app, src, float(max(durations)), sum(durations) / 2
                    durations.clear()


def found(results: Path) -> Iterator[Row]:
    """The rows of the files, in the order of their names."""
    for file in sorted(results.rglob("*.parquet")):
        table = pq.read_table(file).select(list(COLUMNS))
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def compare(expected: Iterator[Row], got: Iterator[Row], *, ordered: bool) -> str | None:
    """The first difference, in words; None: there is none."""
    if not ordered:
        expected, got = iter(sorted(expected)), iter(sorted(got))
    for number, (one, other) in enumerate(zip_longest(expected, got)):
        if one != other:
            return f"record {number}: expected {one}, found {other}"
    return None


def main() -> int:
    """Compare; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", type=Path, metavar="RESULTS", required=True)
    parser.add_argument("--batches", type=int)
    parser.add_argument("--rows", type=int, default=1000, help="of a batch")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--any-order", action="store_true", help="Spark's files have no order")
    args = parser.parse_args()
    given: dict[str, Any] = {name: getattr(args, name) for name in ("rows", "pairs", "seed")}
    batches, results = args.batches, args.check
    if (said := args.check / "input.json").exists():
        given = json.loads(said.read_text())
        batches, results = given.pop("batches"), args.check / "results"
    if batches is None:
        parser.error("how many --batches?")
    difference = compare(statistics(batches, **given), found(results), ordered=not args.any_order)
    print(difference or f"as expected: {sum(1 for _ in found(results)):,} records, in order")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
