"""State and time of components on a site, as a day of records passes in fast motion.

    python -m benchmarks.site_state [--rows 2000000] [--keys 1000] [--batch 10000] [--form FORM]

One partition of each component is given batches of records whose times cover a day; the records of
an hour have keys that do not come again, besides those that always do. Prints, at several places of
the way, the bytes of its state, the resident memory of the process and the processor time of a
batch (medians of the batches since); each component runs in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from codegen.site_sql import site_sql
from codegen.site_state import Keeping, kept_confluent, kept_groups, kept_windows
from codegen.windows import has_windows, windowed
from flux_runtime.operators.event_time import event_time
from flux_runtime.operators.query import Delta, Gives, Query, QueryPlan, Summary, tagged
from flux_runtime.operators.rows import number

SCHEMA: Final = {"key": "BIGINT", "v": "BIGINT", "at": "TIMESTAMP"}
COLUMNS: Final = [("key", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us"))]
LATENESS_S: Final = 600.0
DAY_US: Final = 86_400_000_000
HOUR_US: Final = DAY_US // 24


@dataclass(frozen=True, slots=True)
class Form:
    """A component.

    Attributes:
        sql: over `click` and, of a join, `known`, which has a row for each key.
        output: columns of the result.
        needed: what the state is proportional to.
    """

    sql: str
    output: tuple[str, ...]
    needed: str


GROUPS: Final = "SELECT key, count(*) AS n, sum(v) AS s FROM click GROUP BY key"
FORMS: Final[Mapping[str, Form]] = {
    "each": Form("SELECT key, v * 2 AS n FROM click WHERE v > 1", ("key", "n"), "nothing"),
    "groups": Form(GROUPS, ("key", "n", "s"), "keys"),
    "distinct": Form("SELECT DISTINCT key, v FROM click", ("key", "v"), "distinct rows"),
    "join": Form(
        "SELECT c.key, known.v FROM click c JOIN known ON c.key = known.key WHERE c.v = 7",
        ("key", "v"),
        "rows that may still meet another",
    ),
    "range": Form(
        "SELECT c.key, known.v FROM click c JOIN known ON c.key = known.key AND known.at BETWEEN "
        "c.at - INTERVAL 10 MINUTES AND c.at + INTERVAL 10 MINUTES",
        ("key", "v"),
        "rows that may still meet another",
    ),
    "windows": Form(
        "SELECT window(at, '10 minutes').end AS ends, key, count(*) AS n, sum(v) AS s FROM click "
        "GROUP BY window(at, '10 minutes'), key",
        ("ends", "key", "n", "s"),
        "groups of open windows",
    ),
    "sessions": Form(
        "SELECT session_window(at, '1 minute').end AS ends, key, count(*) AS n FROM click "
        "GROUP BY session_window(at, '1 minute'), key",
        ("ends", "key", "n"),
        "open sessions",
    ),
    "records": Form(GROUPS, ("key", "n", "s"), "records (groups, as they would be without)"),
}


class Measured(NamedTuple):
    """After so many rows: bytes of the state and of the process, and a batch's processor time."""

    rows: int
    state_bytes: int
    memory_bytes: int
    batch_ms: float


def plan(form: str) -> QueryPlan:
    """The component as a site is given it."""
    sql, output = FORMS[form].sql, FORMS[form].output
    schemas = {"click": SCHEMA, **({"known": SCHEMA} if " JOIN " in sql else {})}
    gives, gate = Gives.CHANGES, ["key"]
    if form == "records":
        keeping = Keeping(site_sql(sql))
    elif has_windows(sql):
        query = windowed(sql, schemas)
        keeping = kept_windows(query, SCHEMA, lateness_s=LATENESS_S, final=True, gate=("key",))
    elif form == "groups":
        keeping = kept_groups(sql, schemas, writes=("click",), gate=("key",))
    else:
        keeping = kept_confluent(
            sql, schemas, as_set=form == "distinct", lateness_s=lambda _: LATENESS_S
        )
        gives, gate = Gives.DISTINCT if form == "distinct" else Gives.NEW, []
    return QueryPlan(
        sql=keeping.query,
        inputs=dict.fromkeys(schemas, COLUMNS),
        output=[(c, pa.timestamp("us") if c == "ends" else pa.int64()) for c in output],
        gives=gives,
        gate=gate,
        summaries={name: Summary(*texts) for name, texts in keeping.summaries.items()},
        deltas={name: Delta(*delta) for name, delta in keeping.deltas.items()},
        times={name: event_time(spec) for name, spec in keeping.times.items()},
    )


def batches(
    rows: int, keys: int, batch: int, *, come_back: bool = False, inputs: int = 1
) -> Iterator[Any]:
    """Records of a day, for the inputs in turn.

    Half of a batch has keys of its hour, unless all keys come back.
    """
    draw, count = np.random.default_rng(1), rows // batch
    for place in range(count):
        began = place * DAY_US // count
        own = 0 if come_back else keys * (1 + began // HOUR_US)
        key = draw.integers(0, keys, batch) + own * draw.integers(0, 2, batch)
        at = began + draw.integers(-int(LATENESS_S) * 900_000, DAY_US // count, batch)
        table = pa.table(
            {
                "key": key,
                "v": draw.integers(0, 100, batch),
                "at": pa.array(at).cast(pa.timestamp("us")),
            }
        )
        yield number(tagged(table.cast(pa.schema(COLUMNS)), place % inputs), place + 1)


def measured(query: Query, given: Iterator[Any], *, every: int) -> Iterator[Measured]:
    """The state and a batch's time after every so many rows."""
    rows, times = 0, list[float]()
    for batch in given:
        began = time.process_time()
        query.process(batch)
        times.append((time.process_time() - began) * 1000)
        rows += batch.num_rows
        if rows % every < batch.num_rows:
            yield Measured(rows, query.state_size(), _resident(), statistics.median(times))
            times.clear()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def shown(form: str, rows: int, keys: int, batch: int) -> None:
    """Measure one component, and print it."""
    query = Query(plan(form))
    if form == "join":
        known = pa.table({"key": range(keys), "v": range(keys), "at": [None] * keys})
        query.process(number(tagged(known.cast(pa.schema(COLUMNS)), 1), 0))
    come_back = form in ("groups", "records", "distinct")
    inputs = 2 if form == "range" else 1
    given = batches(rows, keys, batch, come_back=come_back, inputs=inputs)
    for at in measured(query, given, every=rows // 4):
        state, memory = at.state_bytes / 1024, at.memory_bytes / 2**20
        print(
            f"{form:>10} {at.rows:>10,} {state:>9,.0f} KB {memory:>6,.0f} MB {at.batch_ms:>7.1f} ms"
            f"  {FORMS[form].needed}",
            flush=True,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_state")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--form", choices=FORMS, help="only this one")
    options = parser.parse_args(argv)
    print(f"{'component':>10} {'rows':>10} {'state':>12} {'process':>9} {'a batch':>10}  kept")
    for form in [options.form] if options.form else FORMS:
        arguments = (form, options.rows, options.keys, options.batch)
        process = multiprocessing.get_context("spawn").Process(target=shown, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
