"""Components as the stages of a Flux dataflow: what every site and controller makes for itself.

One component is one stage. Its partitions are buckets of the gate, once for each replica: all
replicas get all records in the same order, and partition `replica * buckets + bucket` belongs to
one of them. Spark can pickle everything here, and it decides the same in every process (DET-1 to
DET-4).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from flux_runtime.operators.query import INTERFACE, REPLICA, Query, QueryPlan, rehearse, tagged_as
from flux_runtime.operators.rows import SN, Batch, KeySplit, ints, merge, rows_size
from flux_runtime.operators.state_file import Restored, file_of
from flux_runtime.operators.unprocessable import (
    DeadLetters,
    OperatorError,
    Replayed,
    SettingAside,
    Undoable,
)
from flux_runtime.protocol.dataflow import Dataflow, InParts, Operator
from flux_runtime.protocol.vocabulary import Pair, Shape

if TYPE_CHECKING:
    from flux_runtime.operators.batch_function import FunctionPlan
    from flux_runtime.operators.processor import ProcessorPlan

ACK_EVERY: Final = 8
POOL_MIN: Final = 64
POOL_PER_PARTITION: Final = 16


@dataclass(frozen=True, kw_only=True)
class Component:
    """One stage.

    Attributes:
        name: of the component's output, for messages.
        buckets: partitions of one replica.
        gate: columns whose values are kept together; None: batches go round the partitions.
        plan: what it computes in SQL.
        operator: `module:function` that takes nothing and gives a Flux operator, in place of SQL.
            It is handed all columns of the input, and `flux_interface` before them.
        processor: a StatefulProcessor, in place of SQL.
        function: a Python function of batches, in place of SQL.
        interfaces: of the input, by number, where no SQL computes it.
        output: (column, Arrow type) of what is put out where no SQL computes it.
    """

    name: str
    buckets: int
    gate: tuple[str, ...] | None
    plan: QueryPlan | None = None
    operator: str | None = None
    processor: ProcessorPlan | None = None
    function: FunctionPlan | None = None
    interfaces: tuple[str, ...] = ()
    output: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        ways = (self.plan, self.operator, self.processor, self.function)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                f"{self.name}: SQL, an operator, a processor or a function computes it"
            )

    def rehearse(self) -> None:
        """Find out before records come whether a site can compute it.

        Raises:
            ValueError: it cannot; the message says why.
        """
        if self.plan is not None:
            rehearse(self.plan)
        elif self.processor is not None:
            from flux_runtime.operators.processor import initialized  # needs pandas and pyspark

            initialized(self.processor)
        else:
            self.instance(None)

    def instance(self, replica: int | None) -> Operator:
        """The operator of one partition, in its initial state."""
        if self.plan is not None:
            inner: Undoable = Query(self.plan, replica=replica)
            letters = self._letters(tuple(self.plan.inputs), self.plan.output, replica)
            return Entered(SettingAside(inner, letters))
        letters = self._letters(self.interfaces, self.output, replica)
        if self.processor is not None:
            from flux_runtime.operators.processor import Processor  # needs pandas and pyspark

            return Entered(Processor(self.processor, letters, replica=replica))
        if self.function is not None:
            from flux_runtime.operators.batch_function import BatchFunction  # needs pyspark

            return Entered(SettingAside(BatchFunction(self.function, replica=replica), letters))
        assert self.operator is not None
        declared = Declared(load_operator(self.operator), self.output, replica)
        return Entered(SettingAside(Replayed(declared), letters))

    def _letters(
        self, interfaces: tuple[str, ...], output: Sequence[tuple[str, Any]], replica: int | None
    ) -> DeadLetters:
        return DeadLetters(name=self.name, interfaces=interfaces, output=output, replica=replica)


@dataclass(frozen=True, kw_only=True)
class Components:
    """A Flux stage of the job: its components, first to last. Call it for the dataflow.

    Attributes:
        stages: each reads what the one before puts out.
        replicas: instances that put out the same.
        copies: 2 for partition pairs.
        begin_with: folder with the operators' states at the start; None: the initial ones.
    """

    stages: tuple[Component, ...]
    replicas: int = 1
    copies: int = 2
    begin_with: Path | None = None

    def __post_init__(self) -> None:
        if self.replicas > 1 and len(self.stages) > 1:
            raise ValueError(f"{self.stages[-1].name}: several components in one replicated stage")
        for later in self.stages[1:]:
            if later.processor is not None and later.processor.ticks:
                raise ValueError(f"{later.name}: a processor that is told the time comes first")

    def __call__(self) -> Dataflow:
        """The dataflow."""
        first, *others = self.stages
        widths = (self.replicas * first.buckets, *(other.buckets for other in others))
        shape = Shape(
            widths=widths,
            copies=self.copies,
            pool=max(POOL_MIN, POOL_PER_PARTITION * max(widths)),
            ack_every=ACK_EVERY,
            in_hand=4,
        )
        return Dataflow(
            shape=shape,
            operator=self.operator,
            split=self.split,
            merge=merge,
            rows_size=rows_size,
        )

    def operator(self, pair: Pair) -> Operator:
        """The operator of a partition."""
        stage = self.stages[pair.stage]
        operator = stage.instance(None if self.replicas == 1 else pair.part // stage.buckets + 1)
        if self.begin_with is None:
            return operator
        return Restored(operator, file_of(self.begin_with, pair))

    def pairs(self) -> list[Pair]:
        """All partitions of all stages."""
        widths = self().shape.widths
        return [Pair(stage, part) for stage, n in enumerate(widths) for part in range(n)]

    def split(self, stage: int, rows: Batch, width: int) -> Mapping[int, Batch]:
        """Rows per partition: every replica gets all of them."""
        if stage == len(self.stages):
            return {0: rows} if rows.num_rows else {}
        component = self.stages[stage]
        buckets = in_buckets(component, rows)
        parts = {
            replica * component.buckets + bucket: part
            for replica in range(width // component.buckets)
            for bucket, part in buckets.items()
        }
        if component.processor is None or not component.processor.ticks or not parts:
            return parts
        from flux_runtime.operators.processor import ticked  # needs pandas and pyspark

        return ticked(component.processor, rows, parts, range(width))


def in_buckets(component: Component, rows: Batch) -> Mapping[int, Batch]:
    """Rows per bucket of the gate; without a gate a batch goes into one of them as a whole."""
    if rows.num_rows == 0:
        return {}
    if component.buckets == 1 or component.gate == ():
        return {0: rows}
    if component.gate is None:
        return {int(ints(rows, SN[0])[0]) % component.buckets: rows}
    return KeySplit({0: component.gate})(0, rows, component.buckets)


def load_operator(named: str) -> Operator:
    """The operator that `module:function` gives.

    Raises:
        ValueError: it names none, or what it gives is none.
    """
    module, _, name = named.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{named!r} names no function: {error}") from error
    operator: Operator = function()
    missing = [
        m
        for m in ("process", "get_state", "install_state", "state_size")
        if not hasattr(operator, m)
    ]
    if missing:
        raise ValueError(
            f"{named!r} gives {type(operator).__name__}, which has no {', '.join(missing)}"
        )
    return operator


class Entered:
    """An operator that is told which interface its rows are of; later stages have only one."""

    def __init__(self, inner: Operator) -> None:
        self.inner = inner
        self.get_state = inner.get_state
        self.install_state = inner.install_state
        self.state_size = inner.state_size
        if isinstance(inner, InParts):
            self.parts = inner.parts
            self.rest = inner.rest
            self.reads = inner.reads
            self.install_part = inner.install_part

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        if INTERFACE not in batch.schema.names:
            batch = tagged_as(batch, 0)
        return self.inner.process(batch)


class Declared:
    """An operator's output with the declared columns only, and its replica."""

    def __init__(
        self, inner: Operator, output: tuple[tuple[str, Any], ...], replica: int | None
    ) -> None:
        self.inner = inner
        self.schema = pa.schema(output)
        self.replica = replica
        self.get_state = inner.get_state
        self.install_state = inner.install_state
        self.state_size = inner.state_size

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        result = self.inner.process(batch)
        fields, columns = list(self.schema), []
        for field in fields:
            if field.name not in result.schema.names:
                raise OperatorError(f"the operator puts out no column {field.name}")
            columns.append(result.column(field.name).cast(field.type))
        if self.replica is not None:
            fields.append(pa.field(REPLICA, pa.int32(), nullable=False))
            columns.append(pa.array(np.full(result.num_rows, self.replica, np.int32)))
        fields += [result.schema.field(name) for name in SN]
        columns += [result.column(name) for name in SN]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
