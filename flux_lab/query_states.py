"""Random runs of SQL components that keep less than their records, under deaths and moves.

    python -m flux_lab.query_states 0 300

Each run draws a component (distinct rows, a join of two inputs, one within a range of times, groups
by windows, sessions), input for it in batches whose times rise and fall back, and a schedule of the
simulator. The copies of a pair have to agree on what they keep and on watermarks (the checkers of
`flux_lab.checks`), and what is put out and set aside is compared with what a few lines of Python
make of the records.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from flux_lab.plans import Plan, plan_of
from flux_lab.reference import reference
from flux_lab.sweep import RunError, Totals, run
from flux_lab.world import World
from flux_runtime.operators.components import Component, Components
from flux_runtime.operators.event_time import END, START, RangeTime, WindowTime
from flux_runtime.operators.query import Delta, Gives, QueryPlan, Summary, tagged
from flux_runtime.operators.rows import Batch, number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.protocol.dataflow import Dataflow

MINUTE_US: Final = 60_000_000
LATENESS_US: Final = 5 * MINUTE_US
WINDOW_US: Final = 10 * MINUTE_US
SLIDE_US: Final = 4 * MINUTE_US
GAP_US: Final = 3 * MINUTE_US
BEFORE_US: Final = 2 * MINUTE_US
AFTER_US: Final = 7 * MINUTE_US
COLUMNS: Final = (("key", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us")))
PAIRS: Final = (("key", pa.int64()), ("v", pa.int64()))
COUNTS: Final = (
    *(("key", pa.int64()), ("begins", pa.timestamp("us")), ("ends", pa.timestamp("us"))),
    ("n", pa.int64()),
)
Found = Counter[tuple[Any, ...]]


def distinct(buckets: int) -> Component:
    """Each (key, v) once."""
    plan = QueryPlan(
        sql="SELECT DISTINCT key, v FROM a",
        inputs={"a": COLUMNS},
        output=PAIRS,
        gives=Gives.DISTINCT,
        deltas={"a": Delta("SELECT DISTINCT key, v FROM a")},
    )
    return Component(name="Distinct", buckets=buckets, gate=("key",), plan=plan)


def join(buckets: int) -> Component:
    """The records of two inputs with equal keys."""
    sql = "SELECT a.key, b.v FROM a JOIN b ON a.key = b.key"
    keys = (("key",), ("key",))
    plan = QueryPlan(
        sql=sql,
        inputs={"a": COLUMNS, "b": COLUMNS},
        output=PAIRS,
        gives=Gives.NEW,
        summaries={
            "a": Summary("SELECT key FROM a", "SELECT key FROM a"),
            "b": Summary("SELECT key, v FROM b", "SELECT key, v FROM b"),
        },
        deltas={"a": Delta(sql, {"b": keys}), "b": Delta(sql, {"a": keys})},
    )
    return Component(name="Join", buckets=buckets, gate=("key",), plan=plan)


def ranged(buckets: int) -> Component:
    """The same, of records that are near in time."""
    plan = join(buckets).plan
    assert plan is not None
    near = f"b.at - a.at BETWEEN to_microseconds(-{BEFORE_US}) AND to_microseconds({AFTER_US})"
    queries = {name: f'SELECT key, v, "at" FROM {name}' for name in ("a", "b")}
    width_us = BEFORE_US + AFTER_US
    return Component(
        name="Ranged",
        buckets=buckets,
        gate=("key",),
        plan=dataclasses.replace(
            plan,
            summaries={name: Summary(sql, sql) for name, sql in queries.items()},
            deltas={
                name: Delta(f"{delta.sql} AND {near}", delta.matches)
                for name, delta in plan.deltas.items()
            },
            times={
                name: RangeTime(
                    column="at",
                    lateness_us=LATENESS_US,
                    partner=partner,
                    after_us=after_us,
                    width_us=width_us,
                )
                for name, partner, after_us in (("a", "b", AFTER_US), ("b", "a", BEFORE_US))
            },
        ),
    )


def windows(buckets: int) -> Component:
    """How many records of a key a window has, once it has ended."""
    return _counted(buckets, "Windows", f"SELECT key, {START}, {END}, n FROM a", SLIDE_US)


def sessions(buckets: int) -> Component:
    """How many records of a key a session has, once it has ended."""
    opens = (
        f"SELECT *, CASE WHEN {START} <= max({END}) OVER (PARTITION BY key ORDER BY {START}, "
        f"{END} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 0 ELSE 1 END AS opens FROM a"
    )
    numbered = (
        f"SELECT *, sum(opens) OVER (PARTITION BY key ORDER BY {START}, {END} ROWS UNBOUNDED "
        f"PRECEDING) AS s FROM ({opens})"
    )
    clause = f"SELECT key, min({START}) AS {START}, max({END}) AS {END}, n, s"
    merged = f"{clause.replace(', n, s', ', sum(n) AS n')} FROM ({numbered}) GROUP BY key, s"
    return _counted(buckets, "Sessions", merged, None)


def _counted(buckets: int, name: str, parts: str, slide_us: int | None) -> Component:
    again = f"SELECT key, {START}, {END}, CAST(sum(n) AS BIGINT) AS n FROM ({parts}) GROUP BY ALL"
    plan = QueryPlan(
        sql=f"SELECT key, {START} AS begins, {END} AS ends, CAST(sum(n) AS BIGINT) AS n FROM a "
        "GROUP BY ALL",
        inputs={"a": COLUMNS},
        output=COUNTS,
        gives=Gives.CHANGES,
        gate=("key",),
        summaries={
            "a": Summary(f"SELECT key, {START}, {END}, CAST(1 AS BIGINT) AS n FROM a", again)
        },
        times={
            "a": WindowTime(
                column="at",
                lateness_us=LATENESS_US,
                duration_us=WINDOW_US if slide_us else GAP_US,
                slide_us=slide_us,
                keys=("key",),
            )
        },
    )
    return Component(name=name, buckets=buckets, gate=("key",), plan=plan)


FORMS: Final[Mapping[str, Callable[[int], Component]]] = {
    "distinct": distinct,
    "join": join,
    "ranged": ranged,
    "sessions": sessions,
    "windows": windows,
}


def drawn_input(rng: random.Random, kind: str, batches: int) -> list[Batch]:
    """Batches of (key, v, at), each of one input."""
    source = []
    for n in range(batches):
        interface = rng.randrange(2) if kind in ("join", "ranged") else 0
        rows = rng.choice((1, 2, 5, 9))
        behind = (0, 1, 4, 9, 30)
        times = [
            None if rng.random() < 0.05 else (6 * n - rng.choice(behind)) * MINUTE_US // 2
            for _ in range(rows)
        ]
        columns = [
            [rng.choice((None, 0, 1, 2, 3)) for _ in range(rows)],
            [rng.randrange(3) for _ in range(rows)],
            times,
        ]
        arrays = [pa.array(c, of) for c, (_, of) in zip(columns, COLUMNS, strict=True)]
        table = pa.table(arrays, pa.schema(COLUMNS))
        source.append(number(tagged(table, interface), n))
    return source


@dataclass
class Expected:
    """The rows that have to be put out and set aside.

    Attributes:
        rows: of the output, as often as they have to come.
        late: times of records that come behind the watermark.
    """

    rows: Found = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)


def expected(flow: Components, kind: str, source: Sequence[Batch]) -> Expected:
    """Worked out record by record; of the product's code only who gets which record."""
    due = Expected()
    by_part: dict[int, list[list[tuple[int, Any, int, int | None]]]] = {}
    for batch in source:
        for part, rows in flow.split(0, batch, flow.stages[0].buckets).items():
            at = rows.column("at").cast(pa.int64()).to_pylist()
            named = (rows.column(c).to_pylist() for c in ("flux_interface", "key", "v"))
            by_part.setdefault(part, []).append([*zip(*named, at, strict=True)])
    for batches in by_part.values():
        records = [record for rows in batches for record in rows]
        if kind == "distinct":
            due.rows.update({(key, v) for _, key, v, _ in records})
        elif kind == "join":
            left = Counter(key for of, key, _, _ in records if of == 0 and key is not None)
            for of, key, v, _ in records:
                due.rows[key, v] += left[key] if of == 1 else 0
        elif kind == "ranged":
            _meet_in_range(batches, due)
        else:
            _count_windows(batches, kind, due)
    due.rows = +due.rows
    return due


def _meet_in_range(
    batches: Iterable[Sequence[tuple[int, Any, int, int | None]]], due: Expected
) -> None:
    taken: tuple[list[tuple[Any, int, int]], ...] = ([], [])
    watermarks: dict[int, int] = {}
    for rows in batches:
        of = rows[0][0]
        before = watermarks.get(of)
        for _, key, v, at in rows:
            if at is None:
                continue
            if before is not None and at < before:
                due.late[at] += 1
                continue
            taken[of].append((key, v, at))
            watermarks[of] = max(watermarks.get(of, at - LATENESS_US), at - LATENESS_US)
    for key, _, at in taken[0]:
        for other, v, then in taken[1]:
            if key == other is not None and -BEFORE_US <= then - at <= AFTER_US:
                due.rows[key, v] += 1


def _count_windows(
    batches: Iterable[Sequence[tuple[int, Any, int, int | None]]], kind: str, due: Expected
) -> None:
    open_: Counter[tuple[Any, int, int]] = Counter()
    watermark = latest = None
    for rows in batches:
        for _, key, _, at in rows:
            if at is None:
                continue
            taken = [w for w in _windows_of(at, kind) if watermark is None or w[1] > watermark]
            due.late[at] += not taken
            for begins, ends in taken:
                open_[key, begins, ends] += 1
            latest = at if latest is None else max(latest, at)
        if latest is not None:
            watermark = latest - LATENESS_US
        if kind == "sessions":
            open_ = _merged(open_)
        for (key, begins, ends), n in [*open_.items()]:
            if watermark is not None and ends <= watermark:
                due.rows[key, begins, ends, n] += 1
                del open_[key, begins, ends]
    due.late = +due.late


def _windows_of(at: int, kind: str) -> list[tuple[int, int]]:
    if kind == "sessions":
        return [(at, at + GAP_US)]
    first = (at - WINDOW_US) // SLIDE_US + 1
    return [(n * SLIDE_US, n * SLIDE_US + WINDOW_US) for n in range(first, at // SLIDE_US + 1)]


def _merged(parts: Counter[tuple[Any, int, int]]) -> Counter[tuple[Any, int, int]]:
    merged: Counter[tuple[Any, int, int]] = Counter()
    last: tuple[Any, int, int] | None = None
    for key, begins, ends in sorted(parts, key=lambda part: (str(part[0]), *part[1:])):
        n = parts[key, begins, ends]
        if last is not None and last[0] == key and begins <= last[2]:
            n += merged.pop(last)
            begins, ends = last[1], max(last[2], ends)
        last = (key, begins, ends)
        merged[last] += n
    return merged


def observation(flow: Dataflow, source: Sequence[Batch]) -> Expected:
    """The rows that a run without failures puts out, and the late records that it sets aside."""
    seen = Expected()
    for _, rows in reference(flow, source).output:
        for letter in letters_of(rows):
            time_us = pa.scalar(letter["record"]["at"]).cast(pa.timestamp("us")).value
            seen.late[time_us] += letter["late"]
        results = results_of(rows)
        columns = [
            column.cast(pa.int64()).to_pylist()
            for name, column in zip(results.schema.names, results.columns, strict=True)
            if not name.startswith("sn_")
        ]
        seen.rows.update(zip(*columns, strict=True))
    return seen


@dataclass(frozen=True, kw_only=True)
class QueryStates(Plan):
    """A run of a component that keeps less than its records."""

    kind: str
    components: Components = field(repr=False)
    dataflow: Dataflow = field(repr=False)
    source: tuple[Batch, ...] = field(repr=False)

    @classmethod
    def of_seed(cls, seed: int) -> QueryStates:
        """As the sweep draws it, with one of the forms."""
        rng = random.Random(seed)
        plan, kind = plan_of(rng), rng.choice(sorted(FORMS))
        flow = Components(stages=(FORMS[kind](plan.shape.widths[0]),))
        dataflow = flow()
        shape = dataclasses.replace(plan.shape, widths=dataflow.shape.widths, ordered_egress=True)
        drawn = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)}
        return cls(
            **{**drawn, "shape": shape},
            kind=kind,
            components=flow,
            dataflow=dataclasses.replace(dataflow, shape=shape),
            source=tuple(drawn_input(rng, kind, plan.batches)),
        )

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        return self.made_of(self.dataflow, self.source, stories=stories, states=False)

    def check(self) -> Expected:
        """Compare a run without failures with what is due, and give that.

        Raises:
            AssertionError: they differ.
        """
        seen = observation(self.dataflow, self.source)
        due = expected(self.components, self.kind, self.source)
        if seen != due:
            raise AssertionError(f"{self.kind}: {seen} instead of {due}")
        return due


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.query_states")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed after the last")
    arguments = parser.parse_args(argv)
    runs, rows, late, failed = Totals(), 0, 0, 0
    began, busy = time.perf_counter(), time.process_time()
    for seed in range(arguments.first, arguments.last):
        plan = QueryStates.of_seed(seed)
        try:
            due = plan.check()
            rows, late = rows + due.rows.total(), late + due.late.total()
            runs.add(run(seed, plan=plan))
        except (RunError, AssertionError) as failure:
            failed += 1
            print(f"seed {seed}: {str(failure).partition(chr(10))[0]}")
    print(f"{rows} rows put out, {late} records late in {runs.runs} runs; {failed} runs failed")
    print(runs.text(time.perf_counter() - began, time.process_time() - busy))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
