"""Python functions on batches, on a site and in Spark, over awkward values of all types.

`benchmarks.site_sql_on_spark` draws tables and calls this. A drawn function maps batches once to
three times, in Arrow and in pandas: it passes rows on, turns them round, drops some, repeats them,
tells the Python types and values that it was handed, and raises on some records. Where Spark, given
the records that a site has not set aside, puts out other rows, or takes one that was set aside,
that is a difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from flux_runtime.operators.batch_function import FunctionPlan
from flux_runtime.operators.components import Component
from flux_runtime.operators.query import tagged
from flux_runtime.operators.rows import number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.spark.flux.components import arrow_columns, to_arrow
from flux_runtime.spark.frames import parse_schema

Maps = Callable[[Any], Any]
DROPPED: Final = 3
RAISING: Final = 7


def passed(batches: Iterator[Any]) -> Iterator[Any]:
    """As it came."""
    yield from batches


def turned(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows the other way round, in batches of two, and one without rows."""
    for batch in batches:
        back = batch[::-1] if hasattr(batch, "iloc") else batch.take(pa.array(_places(batch)[::-1]))
        yield back[:0]
        yield from (back[at : at + 2] for at in range(0, len(back), 2))


def thinned(batches: Iterator[Any]) -> Iterator[Any]:
    """Some dropped, the others twice."""
    for batch in batches:
        if hasattr(batch, "iloc"):
            kept = batch[batch["i"] % DROPPED != 0]
            yield kept
            yield kept.rename(
                columns=dict(zip(kept.columns, range(len(kept.columns)), strict=True))
            )
        else:
            numbers = batch.column("i").to_pylist()
            yield batch.take(
                pa.array([p for p, i in enumerate(numbers) if i % DROPPED] * 2, "int32")
            )


def raising(batches: Iterator[Any]) -> Iterator[Any]:
    """An error in the midst of a batch, when something was put out."""
    for batch in batches:
        yield batch
        numbers = batch["i"].tolist() if hasattr(batch, "iloc") else batch.column("i").to_pylist()
        for i in numbers:
            if i % RAISING == 1:
                raise ValueError(f"{object()} takes no {i}")


def told(batches: Iterator[Any]) -> Iterator[Any]:
    """The type and value of what was handed over, as text."""
    for batch in batches:
        if hasattr(batch, "iloc"):
            columns = [c for c in batch.columns if c != "i"]
            batch = batch.copy()
            for name in columns:
                texts = [f"{type(v).__name__} {v!r} {batch[name].dtype}" for v in batch[name]]
                batch[name] = texts
            yield batch
        else:
            texts = [[repr(v) for v in column.to_pylist()] for column in batch.columns[1:]]
            arrays = [pa.array(column, pa.large_string()) for column in texts]
            yield pa.RecordBatch.from_arrays([batch.column(0), *arrays], names=batch.schema.names)


WAYS: Final = (passed, turned, thinned, raising)


def _places(batch: Any) -> list[int]:
    return list(range(batch.num_rows))


def drawn(rng: random.Random, schema: str, names: Sequence[str]) -> tuple[str, Maps]:
    """(how it reads, a function of DataFrames) over columns `i` and these."""
    texts = "i INT, " + ", ".join(f"{name} STRING" for name in names)
    calls = [(rng.choice(("mapInPandas", "mapInArrow")), rng.choice(WAYS), schema)]
    calls += [calls[0]] * (rng.random() < 0.2)
    if rng.random() < 0.7:
        calls.append((rng.choice(("mapInPandas", "mapInArrow")), told, texts))

    def function(records: Any) -> Any:
        for name, way, given in calls:
            records = getattr(records, name)(way, given)
        return records

    return "; ".join(f"{name}({way.__name__})" for name, way, _ in calls), function


function: Maps = passed
"""The function that is tried, which a plan names."""


def prove(prover: Any, rows: Any, functions: int) -> None:
    """Try functions over the table `v` that a `site_sql_on_spark.Prover` has made, and its rows."""
    global function
    frame = prover.spark.table("v").drop("g")
    schema = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema)
    rows = rows.drop_columns(["g"])
    for _ in range(functions):
        text, function = drawn(prover.rng, schema, frame.columns[1:])
        output = function(frame).schema
        plan = FunctionPlan(
            function=f"{__name__}:function",
            columns=tuple((f.name, f.type) for f in to_arrow(frame.schema)),
            output=arrow_columns(output),
            schemas=_Parsed(),
        )
        stage = Component(name="F", buckets=1, gate=None, function=plan, output=plan.output)
        made = stage.instance(None).process(number(tagged(rows, 0), 0))
        reasons = {letter["record"]["i"]: letter["why"] for letter in letters_of(made)}
        refused = list(reasons)
        prover.report.queries += 1
        prover.report.rows += rows.num_rows
        prover.report.failed += len(refused)
        results = results_of(made).select(output.names)
        title = f"{text} of {schema}"
        prover.same(title, results, _spark(frame, output, refused))
        if refused:
            one = prover.rng.choice(refused)
            later = [i for i in rows.column("i").to_pylist() if i > one]
            others = [i for i in refused if i != one]
            if _spark(frame, output, [*others, *later]) is not None:
                prover.differ(title, f"rows for i = {one}", reasons[one])


class _Parsed(dict[str, Any]):
    """Schema as text -> schema."""

    def __missing__(self, text: str) -> Any:
        return parse_schema(text)


def _spark(frame: Any, output: Any, without: Sequence[int]) -> Any:
    """Spark's rows of all records but some; None where it fails."""
    listed = ", ".join(map(str, without))
    chosen = frame.where(f"i NOT IN ({listed})") if without else frame
    try:
        table = function(chosen.coalesce(1)).toArrow()
    except Exception:
        return None
    return table.cast(pa.schema(arrow_columns(output)))
