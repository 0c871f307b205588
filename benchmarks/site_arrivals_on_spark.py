"""State on Flux sites against Spark's answers: random queries, records and orders of arrival.

    python -m benchmarks.site_arrivals_on_spark [--seed N] [--queries N] [--ranges N] [--windows N]

What a site keeps in place of records (`codegen.site_state`) may not change what it puts out.

- Confluent queries (joins, unions, distinct rows, groups with a threshold): a site is given the
  records of all inputs in random batches and in a random order, and its state moves to another copy
  now and then. All that it has put out together is what Spark makes of all records: the same bag,
  or each row of the set once.
- Joins of records within a range of times: the same, of those records that are not behind the
  watermark of their input when they come; these the site sets aside.
- Windows and sessions: Spark reads the same batches as a stream, with a watermark. The site puts
  out the same rows after every batch, and sets those records aside whose windows have all ended by
  the watermark, which is worked out here from the records alone.

Prints each difference, and then exits with 1. `site_sql_on_spark` runs this, too.
"""

from __future__ import annotations

import argparse
import datetime
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from annotations.whitebox.inputs import Input
from annotations.whitebox.sql import read
from benchmarks.site_sql_on_spark import bag
from codegen.site_sql import site_refusals
from codegen.site_state import Keeping, kept_confluent, kept_windows
from codegen.windows import END, START, Refused, windowed
from flux_runtime.operators.components import Component
from flux_runtime.operators.event_time import event_time
from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.query import Delta, Gives, QueryPlan, Summary, rehearse, tagged
from flux_runtime.operators.rows import number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.spark.flux.components import arrow_columns, as_columns
from flux_runtime.spark.frames import nullable

KEYS: Final[dict[str, Sequence[Any]]] = {
    "INT": (0, 1, 2, -(2**31)),
    "BIGINT": (0, 1, 2**53, 2**53 + 1, -(2**63)),
    "STRING": ("", "a", "A", "ß", "a "),
    "DATE": (datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)),
    "TIMESTAMP_NTZ": (
        datetime.datetime(1582, 10, 4, 0, 0, 0, 1),
        datetime.datetime(1970, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ),
    "BOOLEAN": (True, False),
}
"""Types of keys, with few values of each, so that rows meet."""
CONDITIONS: Final = ("a.n > 1", "b.n < a.n", "a.n IS NOT NULL OR b.n = 2", "b.n <> 3", "b.n <=> 1")
THRESHOLDS: Final = ("count(*) >= 3", "max(n) > 2", "count(n) >= 2")
FINAL_WINDOWS: Final = (
    "SELECT {w} AS w, k, count(*) AS c, sum(n) AS s FROM a GROUP BY {w}, k",
    "SELECT {name}.start AS f, {name}.end AS t, max(n) AS m, avg(n) AS g FROM a GROUP BY {w}",
    "SELECT k, {name}.end, min(k) AS m, count(n) AS c FROM a WHERE n IS NULL OR n > 1 "
    "GROUP BY k, {w} HAVING count(*) > 1",
)
LISTS: Final = "SELECT {w} AS w, k, collect_list(n) AS l FROM a GROUP BY {w}, k"
LENGTHS: Final = (
    ("window(at, '10 minutes')",),
    ("window(at, '10 minutes', '4 minutes')",),
    ("window(at, '1 hour', '20 minutes', '90 seconds')",),
    ("session_window(at, '5 minutes')",),
)
RANGES: Final = (
    "b.ts BETWEEN a.at - INTERVAL {0} MINUTES AND a.at + INTERVAL {1} MINUTES",
    "b.ts >= a.at AND b.ts <= a.at + INTERVAL {1} MINUTES",
    "a.at > b.ts - INTERVAL {0} SECONDS AND a.at - INTERVAL {1} HOURS < b.ts",
    "b.ts - INTERVAL {0} MINUTES > a.at AND b.ts < a.at + INTERVAL 2 HOURS",
    "a.at + INTERVAL {1} MINUTES >= b.ts AND a.at <= b.ts AND a.n >= b.n",
)
LATENESS_S: Final = 600
BEGAN: Final = datetime.datetime(2024, 2, 28, 23, 0)


@dataclass
class Arrivals:
    """What was tried."""

    queries: int = 0
    rows: int = 0
    late: int = 0
    """Records that a watermark kept out."""
    refused: int = 0
    differences: list[tuple[str, object, object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Confluent:
    """A random confluent query."""

    sql: str
    as_set: bool
    ddl: dict[str, dict[str, str]]


def confluent(rng: random.Random) -> Confluent:
    """A query of which all results only ever grow."""
    kind = rng.choice([*KEYS])
    ddl = {name: {"i": "INT", "k": kind, "n": "INT"} for name in ("a", "b")}
    where = f" WHERE {rng.choice(CONDITIONS)}" if rng.random() < 0.7 else ""
    on = rng.choice(("a.k = b.k", "a.k = b.k AND a.n = b.n", "a.k = b.k AND a.i < b.i"))
    join = rng.choice(
        (
            f"SELECT a.k, a.i, b.n FROM a JOIN b ON {on}{where}",
            f"SELECT * FROM a CROSS JOIN (SELECT k AS q, i AS j FROM b WHERE n > 0) x "
            f"WHERE a.k = x.q{' AND a.n > 1' if where else ''}",
            f"SELECT k, a.i + b.i AS i, a.n FROM a JOIN b USING (k){where}",
            "SELECT a.k, b.i, c.n FROM a JOIN b ON a.k = b.k JOIN c ON b.n = c.n WHERE c.i > 1",
        )
    )
    if " c " in join:
        ddl["c"] = {"i": "INT", "n": "INT"}
    alone = "SELECT k, i, n FROM a WHERE n > 0 OR k IS NULL"
    union = f"{alone} UNION ALL SELECT k, i + 1, n FROM b"
    mixed = f"SELECT a.k, a.i, b.n FROM a JOIN b ON {on} UNION ALL SELECT k, i, n FROM b"
    sql = rng.choice((join, join, alone, union, mixed))
    as_set = rng.random() < 0.5
    if as_set:
        sql = rng.choice(
            (
                sql.replace("SELECT", "SELECT DISTINCT", 1) if " UNION " not in sql else sql,
                f"SELECT DISTINCT k FROM ({sql}) q",
                union.replace("UNION ALL", "UNION"),
                f"SELECT k, n FROM a GROUP BY k, n HAVING {rng.choice(THRESHOLDS)}",
                "SELECT DISTINCT k, n FROM a WHERE k IN (SELECT k FROM b WHERE n > 0)",
            )
        )
        as_set = "UNION ALL" not in sql or "DISTINCT" in sql
    used = {name: columns for name, columns in ddl.items() if _reads(sql, name)}
    return Confluent(sql, as_set, used)


def _reads(sql: str, name: str) -> bool:
    return any(f"{word} {name}" in f"{sql} " for word in ("FROM", "JOIN"))


class Arriving:
    """Spark, and sites that are given the same records."""

    def __init__(self, spark: Any, seed: int) -> None:
        self.spark = spark
        self.rng = random.Random(seed)
        self.report = Arrivals()
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: dict[str, str]) -> Any:
        """The rows as Spark has them."""
        ddl = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return self.spark.createDataFrame([*rows], ddl)

    def plan(
        self, keeping: Keeping, frames: dict[str, Any], output: Any, gives: Gives
    ) -> QueryPlan:
        """As a job's stage hands it to sites."""
        plan = QueryPlan(
            sql=keeping.query,
            inputs={name: arrow_columns(nullable(frame.schema)) for name, frame in frames.items()},
            output=arrow_columns(nullable(output)),
            gives=gives,
            summaries={name: Summary(*texts) for name, texts in keeping.summaries.items()},
            deltas={name: Delta(*delta) for name, delta in keeping.deltas.items()},
            times={name: event_time(spec) for name, spec in keeping.times.items()},
        )
        rehearse(plan)
        return plan

    # ---- what only grows

    def confluent(self) -> None:
        """One random query over random arrivals."""
        rng, query = self.rng, confluent(self.rng)
        inputs = {name: Input(columns) for name, columns in query.ddl.items()}
        if list(site_refusals(query.sql, read(query.sql, inputs=inputs).plan)):
            self.report.refused += 1
            return
        pools = {kind: (*values, None) for kind, values in KEYS.items()}
        pools["INT"] = (*range(5), None)
        frames = {}
        for name, columns in query.ddl.items():
            pool = [KEYS["INT"] if c != "k" else pools[k] for c, k in columns.items()]
            pool = [pools["INT"] if c == "n" else p for c, p in zip(columns, pool, strict=True)]
            count = rng.randrange(1, 40)
            rows = [tuple(rng.choice(values) for values in pool) for _ in range(count)]
            if "i" in columns:
                rows = [(n % 7, *row[1:]) for n, row in enumerate(rows)]
            frames[name] = self.frame(rows, query.ddl[name])
            frames[name].createOrReplaceTempView(name)
        theirs = self.spark.sql(query.sql)
        keeping = kept_confluent(query.sql, query.ddl, as_set=query.as_set, lateness_s=_unpromised)
        gives = Gives.DISTINCT if query.as_set else Gives.NEW
        plan = self.plan(keeping, frames, theirs.schema, gives)
        mine = self.at_site(plan, frames)
        due = bag(theirs.toArrow().cast(pa.schema(plan.output)))
        self.report.queries += 1
        self.compare(query.sql, Counter(dict.fromkeys(due, 1)) if query.as_set else due, mine)

    def at_site(self, plan: QueryPlan, frames: dict[str, Any]) -> Counter[str]:
        """All that a site puts out, given the records in a random order."""
        rng, arrivals = self.rng, list[tuple[int, Any]]()
        for place, (name, frame) in enumerate(frames.items()):
            batches = frame.toArrow().combine_chunks().to_batches()
            rows = as_columns(batches[0], plan.inputs[name])
            self.report.rows += rows.num_rows
            order = rng.sample(range(rows.num_rows), rows.num_rows)
            while order:
                size = rng.choice((1, 2, 5, 20))
                arrivals.append((place, rows.take(pa.array(order[:size]))))
                order = order[size:]
        rng.shuffle(arrivals)
        component = Component(name="C", buckets=1, gate=(), plan=plan)
        operator, found = component.instance(None), Counter[str]()
        for n, (place, rows) in enumerate(arrivals):
            if rng.random() < 0.2:
                state = unpack(pack(operator.get_state()))
                operator = component.instance(None)
                operator.install_state(state)
            made = operator.process(number(tagged(rows, place), n))
            found += bag(results_of(made).select([name for name, _ in plan.output]))
        return found

    # ---- joins within a range of times

    def ranges(self) -> None:
        """One join of records that are near in time, over random arrivals."""
        rng, kind = self.rng, self.rng.choice([*KEYS])
        within = rng.choice(RANGES).format(rng.choice((0, 1, 7, 20)), rng.choice((1, 3, 11)))
        equal = rng.choice(("a.k = b.k AND ", "a.k <=> b.k AND ", ""))
        as_set = rng.random() < 0.3
        columns = rng.choice(("a.k, a.at, b.n", "a.at, b.ts", "a.i AS one, b.i AS other"))
        sql = f"SELECT {'DISTINCT ' if as_set else ''}{columns} FROM a JOIN b ON {equal}{within}"
        time = rng.choice(("TIMESTAMP", "TIMESTAMP_NTZ"))
        ddl = {
            name: {"k": kind, "n": "INT", at: time, "i": "INT"}
            for name, at in (("a", "at"), ("b", "ts"))
        }
        inputs = {name: Input(columns) for name, columns in ddl.items()}
        assert not list(site_refusals(sql, read(sql, inputs=inputs).plan)), sql
        arrivals = self._arriving(KEYS[kind])
        frames = {name: self.frame(arrivals[0][1], columns) for name, columns in ddl.items()}
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        keeping = kept_confluent(sql, ddl, as_set=as_set, lateness_s=lambda _: LATENESS_S)
        assert keeping.times
        gives = Gives.DISTINCT if as_set else Gives.NEW
        plan = self.plan(keeping, frames, self.spark.sql(sql).schema, gives)
        operator = Component(name="C", buckets=1, gate=(), plan=plan).instance(None)
        admitted: dict[str, list[Any]] = {name: [] for name in ddl}
        latest: dict[str, datetime.datetime | None] = {}
        due, mine = Counter[str](), Counter[str]()
        for place, (name, records) in enumerate(arrivals):
            late = [row for row in records if _behind(row[2], latest.get(name))]
            due.update(row[2].isoformat(" ", "microseconds") for row in late)
            admitted[name] += [row for row in records if row not in late]
            times = [row[2] for row in records if row[2] is not None]
            latest[name] = max([*times, *filter(None, [latest.get(name)])], default=None)
            rows = self.frame(records, ddl[name]).toArrow().combine_chunks().to_batches()[0]
            rows = as_columns(rows, plan.inputs[name])
            self.report.rows += rows.num_rows
            made = operator.process(number(tagged(rows, [*ddl].index(name)), place))
            letters = letters_of(made)
            at = [*ddl[name]][2]
            due.subtract(str(letter["record"][at])[:26] for letter in letters)
            self.report.late += len(letters)
            mine += bag(results_of(made).select([name for name, _ in plan.output]))
            if rng.random() < 0.2:
                state = unpack(pack(operator.get_state()))
                operator = Component(name="C", buckets=1, gate=(), plan=plan).instance(None)
                operator.install_state(state)
        self.compare(f"late of {sql}", +due, -due)
        for name, rows in admitted.items():
            self.frame(rows, ddl[name]).createOrReplaceTempView(name)
        theirs = bag(self.spark.sql(sql).toArrow().cast(pa.schema(plan.output)))
        self.compare(sql, Counter(dict.fromkeys(theirs, 1)) if as_set else theirs, mine)
        self.report.queries += 1

    def _arriving(self, keys: Sequence[Any]) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Batches of one input or the other, for hours, sometimes one of them alone for long."""
        rng, name, number = self.rng, "a", 0
        arrivals = []
        for place in range(rng.randrange(8, 25)):
            name = rng.choice((name, "a", "b"))
            rows = []
            for row in self._timed(place, keys)[: rng.choice((1, 3, 9))]:
                number += 1
                rows.append((*row, number))
            arrivals.append((name, rows))
        return arrivals

    # ---- windows

    def windows(self, call: str, text: str, *, update: bool) -> None:
        """One query over a stream of records with times, in Spark and at a site."""
        sql = text.format(w=call, name=call.partition("(")[0])
        kind = self.rng.choice([*KEYS])
        columns = {"k": kind, "n": "INT", "at": "TIMESTAMP"}
        query = windowed(sql, {"a": columns})
        inner = Input({**columns, START: "TIMESTAMP", END: "TIMESTAMP"})
        assert not list(site_refusals(query.sql, read(query.sql, inputs={"a": inner}).plan))
        keeping = kept_windows(query, columns, lateness_s=LATENESS_S, final=not update, gate=("k",))
        batches = [self._timed(place, KEYS[kind]) for place in range(self.rng.randrange(6, 10))]
        frames = [self.frame(rows, columns) for rows in batches]
        frames[0].createOrReplaceTempView("a")
        output = self.spark.sql(sql).schema
        plan = self.plan(keeping, {"a": frames[0]}, output, Gives.CHANGES)
        component = Component(name="C", buckets=1, gate=(), plan=plan)
        operator = component.instance(None)
        latest: datetime.datetime | None = None
        with _Stream(self.spark, sql, frames[0].schema, "update" if update else "append") as stream:
            for n, frame in enumerate(frames):
                arrow = frame.toArrow()
                rows = as_columns(arrow.combine_chunks().to_batches()[0], plan.inputs["a"])
                self.report.rows += rows.num_rows
                made = operator.process(number(tagged(rows, 0), n))
                theirs = stream.answer(arrow, pa.schema(plan.output))
                mine = bag(results_of(made).select([name for name, _ in plan.output]))
                self.compare(f"{sql} -- batch {n}, update: {update}", theirs, mine)
                due = _late(batches[n], latest, query.duration_us, query.slide_us, query.start_us)
                letters = letters_of(made)
                set_aside = Counter(str(letter["record"]["at"])[:26] for letter in letters)
                self.compare(f"late of {sql} -- batch {n}", due, set_aside)
                self.report.late += len(letters)
                times = [at for _, _, at in batches[n] if at is not None]
                latest = max([*times, *([latest] if latest else [])], default=None)
                state = unpack(pack(operator.get_state()))
                operator = component.instance(None)
                operator.install_state(state)
        self.report.queries += 1

    def _timed(self, place: int, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Records whose times rise with the batches, some far behind and some ahead."""
        rng, rows = self.rng, list[tuple[Any, ...]]()
        for _ in range(rng.randrange(1, 25)):
            behind_s = rng.choice((0, 30, 120, 590, 1200, 4000))
            at: datetime.datetime | None = BEGAN + datetime.timedelta(
                minutes=7 * place, seconds=-behind_s, microseconds=rng.randrange(10**9)
            )
            if rng.random() < 0.3 and at is not None:
                at = at.replace(second=0, microsecond=0)  # where windows begin and end
            if rng.random() < 0.05:
                at = None
            rows.append((rng.choice((*keys, None)), rng.choice((*range(5), None)), at))
        return rows

    def compare(self, what: str, due: Counter[str], mine: Counter[str]) -> None:
        """Take note of a difference."""
        if due != mine:
            shown = [*(due - mine)][:3], [*(mine - due)][:3]
            self.report.differences.append((what, *shown))
            print(f"DIFFERS {what}\n  Spark: {shown[0]}\n  site:  {shown[1]}", flush=True)


class _Stream:
    """A streaming query of Spark's that is given one batch after the other."""

    def __init__(self, spark: Any, sql: str, schema: Any, mode: str) -> None:
        self.spark = spark
        self.folder = Path(tempfile.mkdtemp(prefix="arrivals-"))
        (self.folder / "in").mkdir()
        records = spark.readStream.schema(schema).parquet(str(self.folder / "in"))
        records.withWatermark("at", f"{LATENESS_S} seconds").createOrReplaceTempView("a")
        self.answers: list[Any] = []
        self.query = (
            spark.sql(sql)
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(lambda frame, _: self.answers.append(frame.toArrow()))
            .start()
        )
        self.files = 0

    def __enter__(self) -> _Stream:
        return self

    def answer(self, rows: Any, output: Any) -> Counter[str]:
        """What Spark puts out for these rows, and for the watermark that they raise."""
        self.answers.clear()
        self.files += 1
        written = self.folder / f"{self.files}.parquet"
        pq.write_table(rows, written)
        written.rename(self.folder / "in" / written.name)
        self.query.processAllAvailable()
        return sum((bag(answer.cast(output)) for answer in self.answers), Counter())

    def __exit__(self, *_: object) -> None:
        self.query.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _unpromised(interface: str) -> float:
    raise Refused(interface)


def _behind(at: datetime.datetime | None, latest: datetime.datetime | None) -> bool:
    """Whether a time is behind the watermark, in words of its own."""
    if at is None or latest is None:
        return False
    watermark = latest.replace(microsecond=latest.microsecond // 1000 * 1000)
    return at < watermark - datetime.timedelta(seconds=LATENESS_S)


def _late(
    rows: Sequence[tuple[Any, ...]],
    latest: datetime.datetime | None,
    duration_us: int,
    slide_us: int | None,
    start_us: int,
) -> Counter[str]:
    """The times of records all of whose windows have ended, in words of their own."""
    if latest is None:
        return Counter()
    watermark = latest.replace(microsecond=latest.microsecond // 1000 * 1000)
    watermark -= datetime.timedelta(seconds=LATENESS_S)
    late = Counter[str]()
    for _, _, at in rows:
        if at is None:
            continue
        first = at
        if slide_us is not None:
            since = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=start_us)
            first = at - (at - since) % datetime.timedelta(microseconds=slide_us)
        if first + datetime.timedelta(microseconds=duration_us) <= watermark:
            late[at.isoformat(" ", "microseconds")] += 1
    return late


def prove(
    spark: Any, *, seed: int = 0, queries: int = 60, ranges: int = 12, windows: int = 8
) -> Arrivals:
    """Try so many confluent queries, joins within ranges of times, and queries over windows."""
    arriving = Arriving(spark, seed)
    for _ in range(queries):
        arriving.confluent()
    for _ in range(ranges):
        arriving.ranges()
    forms = [
        (call, text, update)
        for (call,) in LENGTHS
        for text in (*FINAL_WINDOWS, *(() if call.startswith("session") else (LISTS,)))
        for update in ((False,) if call.startswith("session") else (False, True))
    ]
    for call, text, update in arriving.rng.sample(forms, min(windows, len(forms))):
        arriving.windows(call, text, update=update)
    return arriving.report


def summary(report: Arrivals) -> str:
    """One line."""
    return (
        f"{report.queries:,} queries over {report.rows:,} arriving records, {report.late:,} behind "
        f"the watermark, {len(report.differences)} differences, {report.refused:,} queries that "
        "sites do not take"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Try everything, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_arrivals_on_spark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=200, help="random confluent queries")
    parser.add_argument("--ranges", type=int, default=60, help="joins within a range of times")
    parser.add_argument("--windows", type=int, default=30, help="queries over windows")
    options = parser.parse_args(arguments)
    from benchmarks.functions_on_spark import session

    spark, begun = session(), time.monotonic()
    try:
        report = prove(
            spark,
            seed=options.seed,
            queries=options.queries,
            ranges=options.ranges,
            windows=options.windows,
        )
    finally:
        spark.stop()
    print(f"{summary(report)}; {time.monotonic() - begun:.0f} s")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
