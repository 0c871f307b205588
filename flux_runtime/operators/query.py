"""A component in SQL inside a Flux segment, evaluated by DuckDB over what has accumulated.

A Flux site is a Python process beside Spark, so Spark cannot evaluate the component there. DuckDB
can: it runs in the process, reads Arrow tables where they lie, and starts no threads of its own
here. The compiler translates the query and refuses what is not known to mean the same in both.

Records of one batch are of one input interface, whose number is in the column `INTERFACE`. The
state is the records themselves, or partial aggregates of them where the compiler has split the
query (`Summary`); as Arrow tables, so that moving it copies no single value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from flux_runtime.operators.rows import SN, Batch, content_size, ints, with_sn

INTERFACE: Final = "flux_interface"
"""int8: which input interface a row is for, by its place in `QueryPlan.inputs`."""
CLOCK: Final = "flux_clock"
"""int64, ms: the recorded time of a record, where the component is told the time."""
TAGS: Final = (INTERFACE, CLOCK)
"""Columns that stand beside those of the records."""
REPLICA: Final = "replica"
REPLICA_STEP: Final = 1 << 40
"""Rows that one batch makes in one replica; keeps the discriminators of replicas apart."""
NOT_AS_WRITTEN: Final = "expression_rewriter,reorder_filter"
"""DuckDB's optimizers that change which values overflow: `v * 2 > 8` would become `v > 4`."""
COMBINE_ROWS_MIN: Final = 1024
"""Partial aggregates that may stand side by side before they are combined."""
_CHUNKS_MAX: Final = 64
_PUT_OUT: Final = "flux_put_out"


class Gives(enum.Enum):
    """When the component puts out what."""

    RECORDS = "records"
    """What it makes of each batch alone: nothing accumulates (CR)."""
    NEW = "new"
    """What follows from all records and has not been put out: it only ever grows (CW). A bag: a row
    that follows twice is put out twice."""
    DISTINCT = "distinct"
    """The same, of which only distinct rows matter."""
    ANSWERS = "answers"
    """An answer to each request, from all that was written before it (OR)."""
    CHANGES = "changes"
    """The gate partitions that a batch has changed, computed anew (OW)."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Partial aggregates that are kept in place of an input's records, as DuckDB's SQL over it.

    Attributes:
        of_record: makes one of each record.
        again: combines those of a group; None: of equal ones, one says as much as all.
    """

    of_record: str
    again: str | None


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """The computation of a component.

    Attributes:
        sql: in DuckDB's dialect, over tables named after the input interfaces.
        inputs: interface -> (column, Arrow type) of its records, in a fixed order.
        output: (column, Arrow type) of what it puts out.
        gives: when it puts out what.
        reads: interfaces whose records are requests: answered once and not kept.
        gate: `Gives.CHANGES`: the columns, on every input, that tell gate partitions apart; without
            any, a batch changes everything.
        summaries: interface -> what is kept in place of its records; `sql` is over that, over any
            number of partial aggregates of a group.
    """

    sql: str
    inputs: Mapping[str, Sequence[tuple[str, Any]]]
    output: Sequence[tuple[str, Any]]
    gives: Gives
    reads: Sequence[str] = ()
    gate: Sequence[str] = ()
    summaries: Mapping[str, Summary] = field(default_factory=dict)

    def schema(self, interface: str) -> Any:
        """The Arrow schema of an interface's records."""
        return pa.schema(self.inputs[interface])

    def nothing(self, interface: str) -> Any:
        """An empty table of what is kept of an interface."""
        rows = self.schema(interface).empty_table()
        summary = self.summaries.get(interface)
        return rows if summary is None else _run(summary.of_record, {interface: rows})


class Query:
    """One partition of a component.

    Args:
        plan: what it computes.
        replica: number of the replica, from 1; None where there is one instance only.
    """

    def __init__(self, plan: QueryPlan, *, replica: int | None = None) -> None:
        self.plan = plan
        self.replica = replica
        self._names = list(plan.inputs)
        self._nothing = {name: plan.nothing(name) for name in plan.inputs}
        self._kept: dict[str, Any] = {
            name: rows for name, rows in self._nothing.items() if self._keeps(name)
        }
        self._combined: dict[str, int] = {}
        """Interface -> how many rows of what is kept have been combined, at the beginning of it."""
        self._put_out = pa.schema(plan.output).empty_table()
        self._before = (self._kept, self._combined, self._put_out)
        self._query = _ordered(plan)

    def _keeps(self, name: str) -> bool:
        return self.plan.gives is not Gives.RECORDS and name not in self.plan.reads

    def process(self, batch: Batch) -> Batch:
        """Records of one batch in, the rows that they lead to out.

        Raises:
            duckdb.Error, pa.ArrowInvalid: they cannot be evaluated; the state is as before.
        """
        self._before = (self._kept, self._combined, self._put_out)
        if batch.num_rows == 0:
            return self._output(pa.schema(self.plan.output).empty_table(), 0, 0)
        name = self._names[batch.column(INTERFACE)[0].as_py()]
        came = pa.Table.from_batches([batch.select(list(self.plan.schema(name).names))])
        try:
            if name in self._kept:
                self._keep(name, came)
            results = self._results(name, came)
        except Exception:
            self.undo()
            raise
        number, offset = ints(batch, SN[0])[-1], ints(batch, SN[1])[-1]
        return self._output(results, int(number), int(offset))

    def _keep(self, name: str, came: Any) -> None:
        """Add records to what is kept; partial aggregates are combined when they have doubled."""
        summary = self.plan.summaries.get(name)
        if summary is None:
            self._kept = {**self._kept, name: _joined(self._kept[name], came)}
            return
        partial = self._combine(name, came, of=summary.of_record)
        rows, done = _joined(self._kept[name], partial), self._combined.get(name, 0)
        if rows.num_rows > max(2 * done, COMBINE_ROWS_MIN):
            rows = self._combine(name, rows)
            self._combined = {**self._combined, name: rows.num_rows}
        self._kept = {**self._kept, name: rows}

    def _combine(self, name: str, rows: Any, *, of: str | None = None) -> Any:
        """One partial aggregate for each group, of partial aggregates or, with `of`, of records."""
        again = self.plan.summaries[name].again or f"SELECT DISTINCT * FROM {_quoted(name)}"
        if of is not None:
            again = f"WITH {_quoted(name)} AS ({of}) {again}"
        return _run(again, {name: rows}).cast(self._nothing[name].schema)

    def undo(self) -> None:
        """Return to the state before the last batch."""
        self._kept, self._combined, self._put_out = self._before

    def is_of_record(self, error: Exception) -> bool:
        """Whether it is an error of the records, and so the same in every copy."""
        import duckdb

        of_records = (duckdb.DataError, duckdb.InvalidInputException, pa.ArrowInvalid)
        return isinstance(error, of_records)

    def _results(self, name: str, came: Any) -> Any:
        nothing = self._nothing
        match self.plan.gives:
            case Gives.RECORDS:
                return self._evaluate({**nothing, name: came})
            case Gives.ANSWERS if name in self.plan.reads:
                return self._evaluate({**nothing, **self._kept, name: came})
            case Gives.ANSWERS:
                return pa.schema(self.plan.output).empty_table()
            case Gives.CHANGES:
                return self._evaluate(
                    {interface: self._changed(rows, came) for interface, rows in self._kept.items()}
                )
            case Gives.NEW | Gives.DISTINCT:
                results = self._evaluate({**self._kept, _PUT_OUT: self._put_out})
                self._put_out = _joined(self._put_out, results)
                return results

    def _changed(self, rows: Any, came: Any) -> Any:
        """The kept rows of the gate partitions that have records among those that came."""
        gate = list(self.plan.gate)
        if not gate:
            return rows
        alike = " AND ".join(f"k.{_quoted(c)} IS NOT DISTINCT FROM c.{_quoted(c)}" for c in gate)
        sql = f"SELECT k.* FROM kept k WHERE EXISTS (SELECT 1 FROM came c WHERE {alike})"
        return _run(sql, {"kept": rows, "came": came.select(gate)}).cast(rows.schema)

    def _evaluate(self, tables: Mapping[str, Any]) -> Any:
        return _run(self._query, tables).cast(pa.schema(self.plan.output))

    def _output(self, results: Any, number: int, offset: int) -> Batch:
        n = results.num_rows
        fields, columns = list(results.schema), [_flat(column) for column in results.columns]
        first = 0
        if self.replica is not None:
            fields.append(pa.field(REPLICA, pa.int32(), nullable=False))
            columns.append(pa.array(np.full(n, self.replica, np.int32)))
            first = (self.replica - 1) * REPLICA_STEP
        sn = [
            np.full(n, number, np.int64),
            np.full(n, offset, np.int64),
            np.arange(first, first + n, dtype=np.int64),
        ]
        return with_sn(columns, fields, sn)

    def get_state(self) -> dict[str, Any]:
        """The records that have accumulated, and what has been put out where that matters."""
        return {
            "kept": dict(self._kept),
            "combined": dict(self._combined),
            "put_out": self._put_out,
        }

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self._kept, self._put_out = dict(state["kept"]), state["put_out"]
        self._combined = dict(state["combined"])

    def state_size(self) -> int:
        """Bytes of the state."""
        return sum(map(content_size, [*self._kept.values(), self._put_out]))


def rehearse(plan: QueryPlan) -> None:
    """Evaluate the query on no records, to learn before a site does whether it can be.

    Raises:
        ValueError: DuckDB refuses it, or gives other columns than the plan says.
    """
    put_out = {}
    if plan.gives in (Gives.NEW, Gives.DISTINCT):
        put_out = {_PUT_OUT: pa.schema(plan.output).empty_table()}
    try:
        tables = {name: plan.nothing(name) for name in plan.inputs}
        for name, summary in plan.summaries.items():
            if summary.again is not None:
                _run(summary.again, {name: tables[name]}).cast(tables[name].schema)
        _run(_ordered(plan), {**tables, **put_out}).cast(pa.schema(plan.output))
    except Exception as error:
        raise ValueError(f"a site cannot evaluate {plan.sql!r}: {error}") from error


def _ordered(plan: QueryPlan) -> str:
    """The query, its rows in an order that depends on nothing but the rows (DET-4)."""
    if plan.gives in (Gives.NEW, Gives.DISTINCT):
        without = "EXCEPT ALL" if plan.gives is Gives.NEW else "EXCEPT"
        return f"SELECT * FROM (({plan.sql}) {without} SELECT * FROM {_PUT_OUT}) ORDER BY ALL"
    return f"SELECT * FROM ({plan.sql}) ORDER BY ALL"


def _run(sql: str, tables: Mapping[str, Any]) -> Any:
    connection = _connection()
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            connection.unregister(name)


_connections: list[Any] = []


def _connection() -> Any:
    """One connection per process: a site runs its operators one after another."""
    if not _connections:
        import duckdb

        config: Any = {
            "threads": 1,
            "enable_external_access": "false",
            "disabled_optimizers": NOT_AS_WRITTEN,
        }
        _connections.append(duckdb.connect(":memory:", config=config))
    return _connections[0]


def _joined(rows: Any, more: Any) -> Any:
    table = pa.concat_tables([rows, more.cast(rows.schema)])
    if table.num_columns and table.column(0).num_chunks > _CHUNKS_MAX:
        table = table.combine_chunks()
    return table


def _flat(column: Any) -> Any:
    chunks = column.combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def tagged(rows: Any, interface: int) -> Batch:
    """Records of an interface as a batch that `Query` takes; without sequence numbers."""
    batches = rows.combine_chunks().to_batches()
    if not batches:
        raise ValueError("a batch without rows is nothing to send")
    (batch,) = batches
    return tagged_as(batch, interface)


def tagged_as(batch: Batch, interface: int) -> Batch:
    """The batch with the number of its interface in front."""
    number = pa.array(np.full(batch.num_rows, interface, np.int8))
    schema = pa.schema([pa.field(INTERFACE, pa.int8(), nullable=False), *batch.schema])
    return pa.RecordBatch.from_arrays([number, *batch.columns], schema=schema)
