"""A component in SQL inside a Flux segment, evaluated by DuckDB.

A Flux site is a Python process beside Spark, so Spark cannot evaluate the component there. DuckDB
can: it runs in the process, reads Arrow tables where they lie, and starts no threads of its own
here. The compiler translates the query and refuses what is not known to mean the same in both.

Records of one batch are of one input interface, whose number is in the column `INTERFACE`. What is
kept of an interface is what the query still needs: nothing where new records say by themselves what
they add (`Delta`), the columns that later records are joined with, partial aggregates of groups
(`Summary`), what a watermark has not ended yet (`EventTime`), and where the compiler knows
no less, the records themselves. As Arrow tables, so that moving it copies no single value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flux_runtime.operators.evaluation import evaluate, quoted
from flux_runtime.operators.event_time import END, START, EventTime, RangeTime, WindowTime
from flux_runtime.operators.kept_rows import KeptRows
from flux_runtime.operators.rows import SN, Batch, ints, with_sn

INTERFACE: Final = "flux_interface"
"""int8: which input interface a row is for, by its place in `QueryPlan.inputs`."""
CLOCK: Final = "flux_clock"
"""int64, ms: the recorded time of a record, where the component is told the time."""
TAGS: Final = (INTERFACE, CLOCK)
"""Columns that stand beside those of the records."""
REPLICA: Final = "replica"
REPLICA_STEP: Final = 1 << 40
"""Rows that one batch makes in one replica; keeps the discriminators of replicas apart."""
COMBINE_ROWS_MIN: Final = 1024
"""Partial aggregates that may stand side by side before they are combined."""
FORGET_US_MIN: Final = 1_000_000
"""How far a watermark has to go on before rows are forgotten again."""
_PUT_OUT: Final = "flux_put_out"
_CAME: Final = "flux_came"
_KEPT: Final = "flux_kept_"
_WINDOW_FIELDS: Final = [pa.field(name, pa.timestamp("us")) for name in (START, END)]


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


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that new records of an interface add to the output, as DuckDB's SQL.

    Attributes:
        sql: over a table of the new records, under their interface's name, and what is kept of
            others.
        matches: another interface -> (columns of the new records, columns of it): its rows count
            only where these are equal. Of an interface that is not named here all rows do.
    """

    sql: str
    matches: Mapping[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)


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
        deltas: `Gives.NEW` and `Gives.DISTINCT`: interface -> what its records add, for every
            interface or for none; then only interfaces with a summary are kept.
        times: interface -> its event time. `Gives.CHANGES`: of the only one, a `WindowTime`; its
            records have the columns `START` and `END` besides, for `sql` and for the summary.
            With `deltas`: of the two that are joined, `RangeTime`s.
    """

    sql: str
    inputs: Mapping[str, Sequence[tuple[str, Any]]]
    output: Sequence[tuple[str, Any]]
    gives: Gives
    reads: Sequence[str] = ()
    gate: Sequence[str] = ()
    summaries: Mapping[str, Summary] = field(default_factory=dict)
    deltas: Mapping[str, Delta] = field(default_factory=dict)
    times: Mapping[str, EventTime] = field(default_factory=dict)

    def keeps(self, interface: str) -> bool:
        """Whether anything is kept of an interface's records."""
        if self.gives is Gives.RECORDS:
            return False
        if self.gives is Gives.ANSWERS and interface in self.reads:
            return False
        return not self.deltas or interface in self.summaries

    def schema(self, interface: str) -> Any:
        """The Arrow schema of an interface's records."""
        return pa.schema(self.inputs[interface])

    def nothing(self, interface: str) -> Any:
        """An empty table of what is kept of an interface."""
        schema = self.schema(interface)
        if isinstance(self.times.get(interface), WindowTime):
            schema = pa.schema([*schema, *_WINDOW_FIELDS])
        rows = schema.empty_table()
        summary = self.summaries.get(interface)
        return rows if summary is None else evaluate(summary.of_record, {interface: rows})


@dataclass(frozen=True)
class _State:
    """The memory of a query, never changed in place.

    Attributes:
        kept: of each interface.
        put_out: rows that must not be put out again.
        watermarks: of each interface with an event time that has come, in microseconds.
        limits: `RangeTime`: rows of an interface with a time before that have been forgotten.
    """

    kept: Mapping[str, KeptRows]
    put_out: KeptRows
    watermarks: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


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
        self._output_schema = pa.schema(plan.output)
        self._state = _State(
            {n: KeptRows.of(rows) for n, rows in self._nothing.items() if plan.keeps(n)},
            KeptRows(self._output_schema),
        )
        self._before = self._state
        self._query = _ordered(plan)

    def refusals(self, batch: Batch) -> list[tuple[int, Exception]]:
        """(place, why) of records that come too late."""
        if not self.plan.times or batch.num_rows == 0:
            return []
        name = self._names[batch.column(INTERFACE)[0].as_py()]
        return self.plan.times[name].late(batch, self._state.watermarks.get(name))

    def process(self, batch: Batch) -> Batch:
        """Records of one batch in, the rows that they lead to out.

        Raises:
            duckdb.Error, pa.ArrowInvalid: they cannot be evaluated; the state is as before.
        """
        self._before = self._state
        if batch.num_rows == 0:
            return put_out(self._output_schema.empty_table(), 0, 0, self.replica)
        name = self._names[batch.column(INTERFACE)[0].as_py()]
        came = pa.Table.from_batches([batch.select(list(self.plan.schema(name).names))])
        try:
            results = self._results(name, came)
        except Exception:
            self.undo()
            raise
        number, offset = ints(batch, SN[0])[-1], ints(batch, SN[1])[-1]
        return put_out(results, int(number), int(offset), self.replica)

    def undo(self) -> None:
        """Return to the state before the last batch."""
        self._state = self._before

    def is_of_record(self, error: Exception) -> bool:
        """Whether it is an error of the records, and so the same in every copy."""
        import duckdb

        of_records = (duckdb.DataError, duckdb.InvalidInputException, pa.ArrowInvalid)
        return isinstance(error, of_records)

    def _results(self, name: str, came: Any) -> Any:
        nothing, plan = self._nothing, self.plan
        match plan.gives:
            case Gives.RECORDS:
                return self._evaluate({**nothing, name: came})
            case Gives.ANSWERS if name in plan.reads:
                return self._evaluate({**nothing, **self._tables(), name: came})
            case Gives.ANSWERS:
                self._keep(name, came)
                return self._output_schema.empty_table()
            case Gives.CHANGES if isinstance(time := plan.times.get(name), WindowTime):
                return self._windows(name, time, came)
            case Gives.CHANGES:
                self._keep(name, came)
                return self._of_changed(came, plan.gate)
            case Gives.NEW | Gives.DISTINCT:
                return self._new(name, came)

    # ---- what is kept

    def _tables(self) -> dict[str, Any]:
        return {name: stored.table for name, stored in self._state.kept.items()}

    def _keep(self, name: str, came: Any) -> Any:
        """Add records to what is kept, and give what they have added.

        Partial aggregates are combined when they have doubled.
        """
        stored = self._state.kept.get(name)
        if stored is None:
            return came
        summary = self.plan.summaries.get(name)
        if summary is not None:
            came = self._combine(name, came, of=summary.of_record)
        stored = stored.added(came)
        if summary is not None and len(stored) > max(2 * stored.combined, COMBINE_ROWS_MIN):
            stored = self._combined(name, stored)
        self._replace(name, stored)
        return came

    def _replace(self, name: str, stored: KeptRows) -> None:
        self._state = replace(self._state, kept={**self._state.kept, name: stored})

    def _combined(self, name: str, stored: KeptRows) -> KeptRows:
        """One partial aggregate for each group."""
        rows = self._combine(name, stored.table)
        return KeptRows.of(rows, combined=rows.num_rows)

    def _combine(self, name: str, rows: Any, *, of: str | None = None) -> Any:
        """One partial aggregate for each group, of partial aggregates or, with `of`, of records."""
        again = self.plan.summaries[name].again or f"SELECT DISTINCT * FROM {quoted(name)}"
        if of is not None:
            again = f"WITH {quoted(name)} AS ({of}) {again}"
        return evaluate(again, {name: rows}).cast(self._nothing[name].schema)

    # ---- what is put out

    def _new(self, name: str, came: Any) -> Any:
        """The rows that follow anew: from the new records if known, else from all that is kept."""
        plan, state = self.plan, self._state
        delta = plan.deltas.get(name)
        if delta is None:
            self._keep(name, came)
            results = self._evaluate({**self._tables(), _PUT_OUT: state.put_out.table})
        else:
            tables = {**self._nothing, name: came}
            for other, stored in state.kept.items():
                if other != name and other in delta.matches:
                    mine, theirs = delta.matches[other]
                    tables[other] = stored.matching(theirs, came, mine)
                elif other != name:
                    tables[other] = stored.table
            sql = f"SELECT * FROM ({delta.sql}) ORDER BY ALL"
            results = evaluate(sql, tables).rename_columns(self._output_schema.names)
            results = results.cast(self._output_schema)
            self._keep(name, came)
            if name in plan.times:
                self._forget(name, came)
            if plan.gives is Gives.NEW:
                return results
            columns = self._output_schema.names
            known = state.put_out.matching(columns, results, columns)
            sql = f"(SELECT * FROM results EXCEPT SELECT * FROM {_PUT_OUT}) ORDER BY ALL"
            results = evaluate(sql, {"results": results, _PUT_OUT: known})
            results = results.cast(self._output_schema)
        self._state = replace(self._state, put_out=state.put_out.added(results))
        return results

    def _passed(self, name: str, watermark_us: int | None) -> None:
        if watermark_us is not None:
            marks = {**self._state.watermarks, name: watermark_us}
            self._state = replace(self._state, watermarks=marks)

    def _forget(self, name: str, came: Any) -> None:
        """Forget the rows that meet no more others, when the watermark has gone on by a range.

        So a row is looked at a few times only, and rows of at most two ranges are kept.
        """
        before = self._state.watermarks.get(name)
        self._passed(name, self.plan.times[name].watermark_us(came, before))
        for of, time in self.plan.times.items():
            assert isinstance(time, RangeTime)
            passed, last = self._state.watermarks.get(time.partner), self._state.limits.get(of)
            if passed is None:
                continue
            limit = passed - time.after_us
            if last is None or limit >= last + max(time.width_us, FORGET_US_MIN):
                left = self._state.kept[of].chosen(partial(time.since, limit_us=limit))
                self._replace(of, left)
                limits = {**self._state.limits, of: limit}
                self._state = replace(self._state, limits=limits)

    def _windows(self, name: str, time: WindowTime, came: Any) -> Any:
        """The windows that have changed, or those that have ended; what has ended is forgotten."""
        before = self._state.watermarks.get(name)
        after = time.watermark_us(came, before)
        added = self._keep(name, time.windowed(came, before))
        stored = self._state.kept[name]
        results = None
        if not time.final:
            results = self._of_changed(added, [*time.keys, START, END])
        if after is not None and after != before:
            if time.slide_us is None and self._ended(stored, after):
                stored = self._combined(name, stored)  # a session ends where its last part does
            ended = self._ended(stored, after)
            if ended:
                if time.final:
                    over = stored.chosen(lambda rows: _ends_by(rows, after))
                    results = self._evaluate({name: over.table})
                left = stored.chosen(lambda rows: pc.invert(_ends_by(rows, after)))
                if stored.combined == len(stored):
                    left = KeptRows(left.schema, left.pieces, combined=len(left))
                stored = left
            self._replace(name, stored)
        self._passed(name, after)
        return self._output_schema.empty_table() if results is None else results

    def _ended(self, stored: KeptRows, watermark_us: int) -> bool:
        """Whether anything that is kept ends by the watermark."""
        ends = [pc.min(piece.rows.column(END)).value for piece in stored.pieces]
        return bool(ends) and min(ends) <= watermark_us

    def _of_changed(self, came: Any, gate: Sequence[str]) -> Any:
        """The query over the kept rows of the gate partitions that some rows have changed."""
        if not gate:
            return self._evaluate(self._tables())
        alike = " AND ".join(f"k.{quoted(c)} IS NOT DISTINCT FROM c.{quoted(c)}" for c in gate)
        tables, changed = {_CAME: came.select(gate)}, []
        for name, stored in self._state.kept.items():
            tables[_KEPT + name] = stored.matching(gate, came, gate)
            changed.append(
                f"{quoted(name)} AS (SELECT k.* FROM {quoted(_KEPT + name)} k WHERE EXISTS "
                f"(SELECT 1 FROM {_CAME} c WHERE {alike}))"
            )
        return self._evaluate(tables, f"WITH {', '.join(changed)} {self._query}")

    def _evaluate(self, tables: Mapping[str, Any], query: str | None = None) -> Any:
        return evaluate(query or self._query, tables).cast(self._output_schema)

    def get_state(self) -> dict[str, Any]:
        """The kept rows, the results where they matter, watermarks, and limits."""
        state = self._state
        return {
            "kept": self._tables(),
            "combined": {name: stored.combined for name, stored in state.kept.items()},
            "put_out": state.put_out.table,
            "watermarks": dict(sorted(state.watermarks.items())),
            "limits": dict(sorted(state.limits.items())),
        }

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        stored = {
            name: KeptRows.of(rows, combined=state["combined"].get(name, 0))
            for name, rows in state["kept"].items()
        }
        put_out = KeptRows.of(state["put_out"])
        self._state = _State(stored, put_out, state["watermarks"], state["limits"])

    def state_size(self) -> int:
        """Bytes of the state."""
        state = self._state
        return sum(rows.size_bytes for rows in [*state.kept.values(), state.put_out])


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
                evaluate(summary.again, {name: tables[name]}).cast(tables[name].schema)
        for name, delta in plan.deltas.items():
            new = {**tables, name: plan.schema(name).empty_table()}
            output = pa.schema(plan.output)
            evaluate(delta.sql, new).rename_columns(output.names).cast(output)
        if not plan.deltas:
            evaluate(_ordered(plan), {**tables, **put_out}).cast(pa.schema(plan.output))
    except Exception as error:
        raise ValueError(f"a site cannot evaluate {plan.sql!r}: {error}") from error


def _ordered(plan: QueryPlan) -> str:
    """The query, its rows in an order that depends on nothing but the rows (DET-4)."""
    if plan.gives in (Gives.NEW, Gives.DISTINCT):
        without = "EXCEPT ALL" if plan.gives is Gives.NEW else "EXCEPT"
        return f"SELECT * FROM (({plan.sql}) {without} SELECT * FROM {_PUT_OUT}) ORDER BY ALL"
    return f"SELECT * FROM ({plan.sql}) ORDER BY ALL"


def _ends_by(rows: Any, watermark_us: int) -> Any:
    """Which rows are of windows that have ended."""
    return pc.less_equal(rows.column(END), pa.scalar(watermark_us, pa.timestamp("us")))


def put_out(results: Any, number: int, offset: int, replica: int | None) -> Batch:
    """Results of a batch, all in the place of its last row, in their order."""
    n = results.num_rows
    fields, columns = list(results.schema), [_flat(column) for column in results.columns]
    first = 0
    if replica is not None:
        fields.append(pa.field(REPLICA, pa.int32(), nullable=False))
        columns.append(pa.array(np.full(n, replica, np.int32)))
        first = (replica - 1) * REPLICA_STEP
    sn = [
        np.full(n, number, np.int64),
        np.full(n, offset, np.int64),
        np.arange(first, first + n, dtype=np.int64),
    ]
    return with_sn(columns, fields, sn)


def _flat(column: Any) -> Any:
    chunks = column.combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks


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
