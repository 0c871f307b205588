"""Random runs of components that are given records they cannot process, under deaths and moves.

    python -m flux_lab.bad_records 0 300

Each run draws a chain of components (SQL and a Python function that fail on some records, SQL whose
sums overflow once they have grown, a Python operator that fails with half of its state changed),
input with such records in it, and a schedule of the simulator. Three things have to hold: the
copies agree (the checkers of `flux_lab.checks`), exactly the records that cannot be processed are
set aside, and the results are those of the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from flux_lab.plans import Plan, plan_of
from flux_lab.reference import reference
from flux_lab.sweep import RunError, Totals, run
from flux_lab.world import World
from flux_runtime.operators.batch_function import FunctionPlan
from flux_runtime.operators.components import Component, Components
from flux_runtime.operators.query import Gives, QueryPlan, Summary, tagged
from flux_runtime.operators.rows import Batch, number, with_sn
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape

COLUMNS: Final = (("key", pa.int64()), ("v", pa.int64()))
TOTALS: Final = (("key", pa.int64()), ("total", pa.int64()))
DOUBLED_MAX: Final = 2**62
"""`v * 2` overflows from here on: such a record cannot be processed, whatever came before it."""
LARGE: Final = 2**61
"""Three of these fit into a sum, a fourth does not."""
REFUSED: Final = -1
"""`Refusing` raises an error of a value below zero."""


class Refusing:
    """Sums by key that fail on a record in the midst of a batch, when half of it is added."""

    def __init__(self) -> None:
        self.totals: dict[int, int] = {}

    def process(self, batch: Batch) -> Batch:
        """The total of each key that came."""
        for key, v in zip(*(batch.column(c).to_pylist() for c in ("key", "v")), strict=True):
            if v < 0:
                raise ValueError(f"{self!r} takes no {v}")
            self.totals[key] = self.totals.get(key, 0) + v
        keys = sorted(set(batch.column("key").to_pylist()))
        columns = [pa.array(keys, pa.int64()), pa.array([self.totals[k] for k in keys], pa.int64())]
        last = [batch.column(f"sn_{part}")[-1].as_py() for part in ("batch", "offset")]
        sn = [[at] * len(keys) for at in last]
        fields = [pa.field(*column) for column in TOTALS]
        return with_sn(columns, fields, [*map(pa.array, sn), pa.array(range(len(keys)))])

    def get_state(self) -> dict[int, int]:
        """Totals by key."""
        return self.totals

    def install_state(self, state: dict[int, int]) -> None:
        """Totals by key."""
        self.totals = dict(state)

    def state_size(self) -> int:
        """Two numbers for each key."""
        return 16 * len(self.totals)


def double(buckets: int) -> Component:
    """Each record with `v * 2`, which may overflow."""
    plan = QueryPlan(
        sql="SELECT key, v * 2 AS v FROM click",
        inputs={"click": COLUMNS},
        output=COLUMNS,
        gives=Gives.RECORDS,
    )
    return Component(name="Double", buckets=buckets, gate=None, plan=plan)


def doubled(batches: Iterator[Any]) -> Iterator[Any]:
    """Each record with `v * 2`, in Python, which is no BIGINT any more where it overflows."""
    for batch in batches:
        values = pa.array([v * 2 for v in batch.column("v").to_pylist()], pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("key"), values], names=["key", "v"])


def doubling(click: Any) -> Any:
    """The function of batches that doubles."""
    return click.mapInArrow(doubled, StructType().add("key", "long").add("v", "long"))


def double_in_python(buckets: int) -> Component:
    """The same as `double`, of a function of batches."""
    plan = FunctionPlan(function=f"{__name__}:doubling", columns=COLUMNS, output=COLUMNS)
    return Component(
        name="Double",
        buckets=buckets,
        gate=None,
        function=plan,
        interfaces=("click",),
        output=COLUMNS,
    )


def totals(buckets: int) -> Component:
    """The sum by key, which overflows once it has grown."""
    plan = QueryPlan(
        sql="SELECT key, sum(v) AS total FROM click GROUP BY key",
        inputs={"click": COLUMNS},
        output=TOTALS,
        gives=Gives.CHANGES,
        gate=("key",),
    )
    return Component(name="Totals", buckets=buckets, gate=("key",), plan=plan)


def partial_totals(buckets: int) -> Component:
    """The sum by key, of partial sums that are kept in place of records."""
    plan = QueryPlan(
        sql="SELECT key, CAST(sum(p) AS BIGINT) AS total FROM click GROUP BY key",
        inputs={"click": COLUMNS},
        output=TOTALS,
        gives=Gives.CHANGES,
        gate=("key",),
        summaries={
            "click": Summary(
                "SELECT key, v AS p FROM click",
                "SELECT key, CAST(sum(p) AS BIGINT) AS p FROM click GROUP BY key",
            )
        },
    )
    return Component(name="Totals", buckets=buckets, gate=("key",), plan=plan)


def refusing(buckets: int) -> Component:
    """The sum by key, of an operator that refuses records."""
    return Component(
        name="Refusing",
        buckets=buckets,
        gate=("key",),
        operator=f"{__name__}:Refusing",
        interfaces=("click",),
        output=TOTALS,
    )


SUMS: Final[Mapping[str, Callable[[int], Component]]] = {
    "sql": totals,
    "partial": partial_totals,
    "python": refusing,
}


def components(kind: str, widths: Sequence[int]) -> Components:
    """A chain whose last stage sums; before it, with two widths, one that doubles."""
    doubles = double_in_python if kind == "partial" else double
    before = [doubles(width) for width in widths[:-1][-1:]]
    return Components(stages=(*before, SUMS[kind](widths[-1])))


def chain() -> Dataflow:
    """The dataflow that the tests' site processes load by name."""
    return components("sql", (2, 2))()


def drawn_input(rng: random.Random, kind: str, batches: int) -> list[Batch]:
    """Batches of (key, v), some of them bad."""
    bad = (LARGE, DOUBLED_MAX, 2**63 - 1) if kind != "python" else (REFUSED, DOUBLED_MAX)
    share = rng.choice((0.0, 0.05, 0.3, 1.0))
    source = []
    for n in range(batches):
        rows = rng.choice((1, 2, 5, 9))
        keys = [rng.randrange(4) for _ in range(rows)]
        values = [
            rng.choice(bad) if rng.random() < share else rng.randrange(100) for _ in range(rows)
        ]
        table = pa.table([pa.array(keys), pa.array(values)], pa.schema(COLUMNS))
        source.append(number(tagged(table, 0), n))
    return source


@dataclass
class Expected:
    """The records that have to be set aside, and the totals of the rest.

    Attributes:
        refused: (component, key, v) -> how often.
        totals: of each key.
    """

    refused: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    totals: dict[int, int] = field(default_factory=dict)


def expected(flow: Components, kind: str, source: Sequence[Batch]) -> Expected:
    """Worked out record by record, without any of the product's code."""
    doubles, last = len(flow.stages) > 1, flow.stages[-1].name
    due = Expected()
    for batch in source:
        for row in batch.to_pylist():
            key, v = row["key"], row["v"]
            if doubles and v >= DOUBLED_MAX:
                due.refused["Double", key, v] += 1
                continue
            v = v * 2 if doubles else v
            total = due.totals.get(key, 0) + v
            if (kind == "python" and v < 0) or total >= 2**63:
                due.refused[last, key, v] += 1
            else:
                due.totals[key] = total
    return due


def observation(flow: Dataflow, source: Sequence[Batch]) -> Expected:
    """The records that a run without failures sets aside, and the last total of each key."""
    seen = Expected()
    for _, rows in reference(flow, source).output:
        for letter in letters_of(rows):
            record = letter["record"]
            seen.refused[letter["component"], record["key"], record["v"]] += 1
        for row in results_of(rows).to_pylist():
            seen.totals[row["key"]] = row["total"]
    return seen


@dataclass(frozen=True, kw_only=True)
class BadRecords(Plan):
    """A run of components on input with bad records in it."""

    WORKLOAD: ClassVar[str] = "bad-records"

    kind: str
    components: Components = field(repr=False)
    dataflow: Dataflow = field(repr=False)
    source: tuple[Batch, ...] = field(repr=False)

    @classmethod
    def of_seed(cls, seed: int) -> BadRecords:
        """As the sweep draws it, with these components."""
        rng = random.Random(seed)
        plan, kind = plan_of(rng), rng.choice(sorted(SUMS))
        flow = components(kind, plan.shape.widths[:2])
        dataflow = flow()
        shape: Shape = dataclasses.replace(
            plan.shape, widths=dataflow.shape.widths, ordered_egress=True
        )
        source = drawn_input(rng, kind, plan.batches)
        drawn = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)}
        return cls(
            **{**drawn, "shape": shape},
            kind=kind,
            components=flow,
            dataflow=dataclasses.replace(dataflow, shape=shape),
            source=tuple(source),
        )

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        return self.made_of(self.dataflow, self.source, stories=stories, states=False)

    def check(self) -> int:
        """Compare a run without failures with what is due; gives how many were set aside.

        Raises:
            AssertionError: they differ.
        """
        seen = observation(self.dataflow, self.source)
        due = expected(self.components, self.kind, self.source)
        if seen != due:
            raise AssertionError(f"{seen} instead of {due}")
        return due.refused.total()


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.bad_records")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed after the last")
    arguments = parser.parse_args(argv)
    runs, refused, failed = Totals(), 0, 0
    began, busy = time.perf_counter(), time.process_time()
    for seed in range(arguments.first, arguments.last):
        plan = BadRecords.of_seed(seed)
        try:
            refused += plan.check()
            runs.add(run(seed, plan=plan))
        except (RunError, AssertionError) as failure:
            failed += 1
            print(f"seed {seed}: {str(failure).partition(chr(10))[0]}")
    print(f"{refused} records set aside in {runs.runs} runs; {failed} runs failed")
    print(runs.text(time.perf_counter() - began, time.process_time() - busy))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
