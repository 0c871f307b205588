"""The components of a Flux stage: as the job declares them, and as the sites are told.

A component is given twice: as the function of DataFrames that Spark could run, which is run on no
rows to learn the columns, and as the query that DuckDB evaluates on the sites. An operator is given
by the function that makes it, and the schema of what it puts out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from flux_runtime.operators.batch_function import FunctionPlan, mapped
from flux_runtime.operators.components import Component
from flux_runtime.operators.event_time import event_time
from flux_runtime.operators.processor import ProcessorPlan, initialized
from flux_runtime.operators.processor_handle import TimeMode
from flux_runtime.operators.query import Delta, Gives, QueryPlan, Summary
from flux_runtime.spark.frames import empty, nullable, parse_schema

Columns = tuple[tuple[str, Any], ...]
"""(name, Arrow type) of each column."""
Matches = Mapping[str, tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Processor:
    """How a StatefulProcessor is run.

    Args:
        key: columns that records are grouped by.
        takes: `rows` (transformWithState) or `pandas` (transformWithStateInPandas).
        time: `none` or `processing`; with a column of event time it is that.
        event_time: the column.
        delay_s: by how much the watermark is behind the newest event time.
    """

    key: Sequence[str]
    takes: str = "rows"
    time: str = "none"
    event_time: str | None = None
    delay_s: float = 0.0

    def plan(
        self, make: str, inputs: StructType, output: StructType, parse: Callable[[str], StructType]
    ) -> ProcessorPlan:
        """The description that the sites get; `init` is called to learn the schemas of the state.

        Raises:
            ValueError: `init` raises, or asks for what sites do not have.
        """
        zoned = to_arrow(inputs)
        names = [*self.key, *filter(None, [self.event_time])]
        if missing := [name for name in names if name not in zoned.names]:
            raise ValueError(f"{make}: there is no column {', '.join(missing)}")
        if self.event_time is not None and not isinstance(
            inputs[self.event_time].dataType, TimestampType | TimestampNTZType
        ):
            of = inputs[self.event_time].dataType.simpleString()
            raise ValueError(f"{make}: {self.event_time} is {of}, and no time of events")
        schemas = _Parsed(parse)
        plan = ProcessorPlan(
            make=make,
            key=tuple(self.key),
            columns=tuple((field.name, field.type) for field in zoned),
            output=arrow_columns(output),
            frames=self.takes == "pandas",
            time=TimeMode(self.time) if self.event_time is None else TimeMode.EVENT,
            event_time=self.event_time,
            delay_ms=round(self.delay_s * 1000),
            schemas=schemas,
        )
        initialized(plan)
        return replace(plan, schemas=dict(schemas))


class _Parsed(dict[str, StructType]):
    """Schema as text -> schema, of all that were asked for."""

    def __init__(self, parse: Callable[[str], StructType]) -> None:
        super().__init__()
        self.parse = parse

    def __missing__(self, text: str) -> StructType:
        self[text] = self.parse(text)
        return self[text]


@dataclass(frozen=True, eq=False)
class Step:
    """One component of a Flux stage.

    Args:
        name: of its output.
        fn: the component's function of DataFrames; with `schema`, a function that takes nothing and
            gives a Flux operator, or a StatefulProcessor if `processor` says how it is run.
        query: the function's SQL in DuckDB's dialect, over what is kept of each input.
        kept: input -> (SQL that makes a partial aggregate of each record, SQL that combines them,
            or None: equal ones are one), in place of the records themselves.
        deltas: input -> (SQL of what its new records add, other input -> (columns, its columns)
            that are equal where rows of both meet): then only inputs in `kept` are kept.
        times: input -> the attributes of its `flux_runtime.operators.event_time.EventTime`.
        batches: `fn` maps batches, and sites call it as it is.
        gives: when the output is put out: see `flux_runtime.operators.query.Gives`.
        gate: attributes by which the work is partitioned, as far as all inputs have them; none: all
            records are kept together. None: records need not be kept together.
        schema: columns that an operator or a processor puts out, `name TYPE, ...`.
        processor: `fn` is a StatefulProcessor, and this is how it is run.
        batches: `fn` is a function of DataFrames that maps batches, and sites call it themselves.
    """

    name: str
    fn: Callable[..., Any]
    query: str | None = None
    gives: str = Gives.CHANGES.value
    gate: Sequence[str] | None = None
    schema: str | None = None
    kept: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    processor: Processor | None = None
    deltas: Mapping[str, tuple[str, Matches]] = field(default_factory=dict)
    times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    batches: bool = False

    def __post_init__(self) -> None:
        ways = (self.query is not None, self.schema is not None, self.batches)
        if sum(ways) != 1:
            raise ValueError(
                f"{self.name}: `query` says what a site computes, or `schema` what an operator "
                "puts out, or `batches` that a function maps them"
            )
        Gives(self.gives)
        if self.query is None and self.fn.__module__ == "__main__":
            raise ValueError(
                f"{self.name}: sites cannot import {self.fn.__qualname__} from the job itself; put "
                "it into a module beside it"
            )

    def parameters(self) -> tuple[str, ...]:
        """The input interfaces of a component's function."""
        return tuple(inspect.signature(self.fn).parameters)

    def frame(self, session: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The result of these frames as Spark computes it; of an operator, a frame without rows."""
        if self.schema is not None:
            return empty(session, parse_schema(self.schema))
        result: DataFrame = self.fn(**frames)
        return result

    def component(
        self,
        inputs: Mapping[str, StructType],
        output: StructType,
        *,
        reads: Sequence[str],
        partitions: int,
    ) -> Component:
        """The description that the sites get.

        Args:
            inputs: interface -> columns of its records.
            output: columns of what it puts out.
            reads: the interfaces whose records are requests.
            partitions: how many there may be.
        """
        columns = {name: arrow_columns(schema) for name, schema in inputs.items()}
        gate = None if self.gate is None else common_gate(self.gate, columns)
        buckets = 1 if gate == () else partitions
        if self.query is None:
            named = f"{self.fn.__module__}:{self.fn.__qualname__}"
            plan_of = self.processor
            if (plan_of is not None or self.batches) and len(inputs) != 1:
                raise ValueError(f"{self.name}: a processor or a function takes one input")
            if self.batches:
                return self._of_batches(named, inputs, output, partitions)
            return Component(
                name=self.name,
                buckets=buckets,
                gate=gate,
                operator=named if plan_of is None else None,
                processor=None
                if plan_of is None
                else plan_of.plan(named, next(iter(inputs.values())), output, parse_schema),
                interfaces=tuple(inputs),
                output=arrow_columns(output),
            )
        gives = Gives(self.gives)
        if gate is None and gives is not Gives.RECORDS:
            raise ValueError(f"{self.name} gives {self.gives} and says no gate")
        plan = QueryPlan(
            sql=self.query,
            inputs=columns,
            output=arrow_columns(output),
            gives=gives,
            reads=tuple(reads),
            gate=gate or (),
            summaries={name: Summary(str(a), b) for name, (a, b) in self.kept.items()},
            deltas={name: Delta(*delta) for name, delta in self.deltas.items()},
            times={name: event_time(time) for name, time in self.times.items()},
        )
        return Component(name=self.name, buckets=buckets, gate=gate, plan=plan)

    def _of_batches(
        self, named: str, inputs: Mapping[str, StructType], output: StructType, partitions: int
    ) -> Component:
        schemas = _Parsed(parse_schema)
        (columns,) = map(to_arrow, inputs.values())
        function = FunctionPlan(
            function=named,
            columns=tuple((field.name, field.type) for field in columns),
            output=arrow_columns(output),
            schemas=schemas,
        )
        mapped(function)
        return Component(
            name=self.name,
            buckets=partitions,
            gate=None,
            function=replace(function, schemas=dict(schemas)),
            interfaces=tuple(inputs),
            output=function.output,
        )


def common_gate(gate: Sequence[str], inputs: Mapping[str, Columns]) -> tuple[str, ...]:
    """The attributes of the gate that all inputs have, in types whose values hash alike."""
    parts = []
    for name in gate:
        types = [dict(columns).get(name) for columns in inputs.values()]
        if None not in types and len({_hashed_as(type) for type in types}) == 1:
            parts.append(name)
    return tuple(parts)


def _hashed_as(type: Any) -> str:
    """Types that `stable_hash` takes for one."""
    return "integer" if pa.types.is_integer(type) or pa.types.is_boolean(type) else str(type)


def arrow_columns(schema: StructType) -> Columns:
    """The columns as sites see them: a TIMESTAMP is its time in UTC, as in the job's session."""
    return tuple((field.name, _without_zone(field.type)) for field in to_arrow(schema))


def to_arrow(schema: StructType) -> Any:
    """The columns as Spark sees them."""
    return to_arrow_schema(nullable(schema), timezone="UTC")


def _without_zone(type: Any) -> Any:
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in type])
    return pa.timestamp(type.unit) if pa.types.is_timestamp(type) and type.tz else type


def as_columns(rows: Any, columns: Columns) -> Any:
    """A batch with these columns only, in these types, as a table."""
    table = pa.Table.from_batches([rows.select([name for name, _ in columns])])
    return table.cast(pa.schema(columns))
