"""State and time of a component on a site, with partial aggregates and with records, side by side.

    python -m benchmarks.site_state [--rows 4000000] [--keys 1000] [--batch 10000]

One partition of `SELECT key, count(*), sum(v) GROUP BY key` is given batches of records. Prints, at
several places of the way, the bytes of its state and the processor time of a batch (medians of the
batches since), for both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from codegen.site_sql import site_sql, site_summaries
from codegen.summaries import summarise
from flux_runtime.operators.query import Gives, Query, QueryPlan, Summary, tagged
from flux_runtime.operators.rows import number

SQL = "SELECT key, count(*) AS n, sum(v) AS s FROM click GROUP BY key"
COLUMNS = [("key", pa.int64()), ("v", pa.int64())]
OUTPUT = [("key", pa.int64()), ("n", pa.int64()), ("s", pa.int64())]


class Measured(NamedTuple):
    """After so many rows: the state's bytes, and milliseconds of processor time of a batch."""

    rows: int
    state_bytes: int
    batch_ms: float


def plan(*, summarised: bool) -> QueryPlan:
    """The component, over partial aggregates or over records."""
    query, summaries = site_sql(SQL), {}
    if summarised:
        schemas = {"click": {"key": "BIGINT", "v": "BIGINT"}}
        found = summarise(SQL, schemas, inputs=["click"], beside=["key"], as_set=False)
        assert found is not None
        texts = site_summaries(found)
        assert texts is not None
        query = texts[0]
        summaries = {name: Summary(*steps) for name, steps in texts[1].items()}
    return QueryPlan(
        sql=query,
        inputs={"click": COLUMNS},
        output=OUTPUT,
        gives=Gives.CHANGES,
        gate=["key"],
        summaries=summaries,
    )


def batches(rows: int, keys: int, batch: int) -> Iterator[Any]:
    """Records with keys at random."""
    draw = np.random.default_rng(1)
    for place in range(rows // batch):
        table = pa.table({"key": draw.integers(0, keys, batch), "v": draw.integers(0, 100, batch)})
        yield number(tagged(table.cast(pa.schema(COLUMNS)), 0), place)


def measured(query: Query, given: Iterator[Any], *, every: int) -> Iterator[Measured]:
    """The state and a batch's time after every so many rows."""
    rows, times = 0, list[float]()
    for batch in given:
        began = time.process_time()
        query.process(batch)
        times.append((time.process_time() - began) * 1000)
        rows += batch.num_rows
        if rows % every < batch.num_rows:
            yield Measured(rows, query.state_size(), statistics.median(times))
            times.clear()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_state")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=10_000)
    options = parser.parse_args(argv)
    print(f"{'kept':>20} {'rows':>10} {'state':>12} {'a batch':>10}")
    for name in ("partial aggregates", "records"):
        query = Query(plan(summarised=name != "records"))
        given = batches(options.rows, options.keys, options.batch)
        for at in measured(query, given, every=options.rows // 4):
            kilobytes = at.state_bytes / 1024
            print(f"{name:>20} {at.rows:>10,} {kilobytes:>9,.0f} KB {at.batch_ms:>7.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
