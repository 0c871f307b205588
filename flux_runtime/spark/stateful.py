"""A unit whose records accumulate durably and are read again (`Job.stateful`).

One query reads the tagged union of all inputs, so that Spark's offset log fixes what a micro-batch
holds before it is processed: the recorded order (OR-8), with a total order inside the batch.

Cost: every evaluation reads all records that have accumulated, so n micro-batches cost O(n^2) in
the records. A micro-batch is not evaluated where it cannot change anything: without new records,
without reads to answer, or without changed partitions.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StructField, StructType

from flux_runtime.ordering.recorded import recorded
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER, Feed
from flux_runtime.spark.frames import column, union
from flux_runtime.spark.query import Query
from flux_runtime.spark.records import BATCH, Records
from flux_runtime.spark.units import StatefulUnit, in_channel, no_rows
from flux_runtime.spark.unreadable import Watch

_INPUT: Final = "__input"
_DONE: Final = "done"


class Stateful:
    """A `StatefulUnit` that runs."""

    def __init__(self, unit: StatefulUnit, context: Context) -> None:
        self.unit = unit
        self.name = unit.name
        self.context = context
        self._state = context.unit_state(unit)
        self._watch = Watch(context.session, context.dead_letters(unit), unit.name)
        self._inputs = list(unit.inputs())
        self._schemas = [no_rows(context.session, feed).schema for _, feed in self._inputs]
        self._check_gate()
        tagged = [StructField(_INPUT, IntegerType(), True)]
        tagged += [StructField(_slot(i), schema, True) for i, schema in enumerate(self._schemas)]
        self._records = Records(self._state.at("records"), StructType(tagged))
        done = self._state.read(_DONE)
        self._done = -1 if done is None else int(done)
        self._rows_out = self._dead_letters = 0
        streams = [self._tagged(i, feed) for i, (_, feed) in enumerate(self._inputs)]
        frame = reduce(DataFrame.unionByName, streams)
        self._query = Query(unit.name, frame, self._state.uri("checkpoint"), self._on_batch)

    def start(self, *, available_now: bool, trigger: str | None) -> None:
        """See `Running`."""
        self._query.start(available_now=available_now, trigger=trigger)

    @property
    def active(self) -> bool:
        """See `Running`."""
        return self._query.active

    @property
    def error(self) -> BaseException | None:
        """See `Running`."""
        return self._query.error

    @property
    def rows(self) -> int:
        """See `Running`."""
        return self._query.rows

    def finish(self) -> None:
        """See `Running`."""
        self._report()

    def stop(self) -> None:
        """See `Running`."""
        self._query.stop()
        self._report()

    # ---- micro-batches

    def _on_batch(self, rows: DataFrame, batch: int) -> int:
        if batch <= self._done:
            return 0
        self._records.write(rows, batch)
        self._dead_letters += self._watch.keep(self._query, batch)
        faults.point("records-written")
        counts = {
            row[_INPUT]: row["count"]
            for row in self._records.read(self.context.session, only=batch)
            .groupBy(_INPUT)
            .count()
            .collect()
        }
        output = self._evaluate(batch, set(counts))
        if output is not None:
            places = self.context.outputs[self.unit.name]
            self._rows_out += places.commit(batch, output, keep_empty=False)
        faults.point("evaluated")
        self._state.write(_DONE, str(batch).encode())
        self._done = batch
        faults.point("batch-done")
        self._records.merge(self.context.session)
        self._report()
        return sum(counts.values())

    def _evaluate(self, batch: int, came: set[int]) -> DataFrame | None:
        """What the component puts out after a micro-batch that brought something for `came`."""
        unit = self.unit
        writes = [i for i, (interface, _) in enumerate(self._inputs) if interface in unit.writes]
        reads = [i for i in range(len(self._inputs)) if i not in writes]
        if not came:
            return None
        if unit.monotone:
            return self._new(unit.compute(self._frames(range(len(self._inputs)))))
        if unit.changed_by is not None:
            return unit.compute(self._changed(batch, unit.changed_by))
        if not came & set(reads):
            return None
        state = {
            interface: recorded(frame, unit.order_by, batch=BATCH)
            for interface, frame in self._frames_with_batch(writes).items()
        }
        asked = {
            interface: frame.where(sf.col(BATCH) == batch).drop(BATCH)
            for interface, frame in self._frames_with_batch(reads).items()
        }
        return unit.compute(state | asked)

    def _new(self, output: DataFrame) -> DataFrame:
        """The rows, as a set, that have not been put out before."""
        unit, session = self.unit, self.context.session
        assert unit.channel is not None
        schema = unit.schema(session)
        commits = unit.channel.commits(unit.name)
        rows = output.select(*map(column, schema.fieldNames()))
        if not commits:
            return rows.distinct()
        paths = [unit.channel.uri(name) for name in commits]
        before = session.read.schema(in_channel(schema)).parquet(*paths)
        return rows.subtract(before.where(sf.col(COUNT) == DATA).drop(PRODUCER, COUNT))

    def _changed(self, batch: int, gate: tuple[str, ...]) -> dict[str, DataFrame]:
        """All records of the gate partitions that a micro-batch changed, in recorded order."""
        frames = self._frames_with_batch(range(len(self._inputs)))
        touched = [
            frame.where(sf.col(BATCH) == batch).select(*map(column, gate))
            for frame in frames.values()
        ]
        keys = (
            union(touched)
            .distinct()
            .select(*(sf.col(column(name)).alias(f"__gate_{i}") for i, name in enumerate(gate)))
        )
        chosen = {}
        for interface, frame in frames.items():
            same = [
                sf.col(column(name)).eqNullSafe(sf.col(f"__gate_{i}"))
                for i, name in enumerate(gate)
            ]
            rows = frame.join(sf.broadcast(keys), reduce(lambda a, b: a & b, same), "left_semi")
            chosen[interface] = recorded(rows, self.unit.order_by, batch=BATCH, within=gate)
        return chosen

    # ---- frames

    def _frames(self, inputs: range) -> dict[str, DataFrame]:
        frames = self._frames_with_batch(inputs)
        return {interface: frame.drop(BATCH) for interface, frame in frames.items()}

    def _frames_with_batch(self, inputs: range | list[int]) -> dict[str, DataFrame]:
        """Input interface -> all its records, each with its micro-batch."""
        stored = self._records.read(self.context.session)
        by_interface: dict[str, list[DataFrame]] = {}
        for i in inputs:
            rows = stored.where(sf.col(_INPUT) == i).select(f"{_slot(i)}.*", BATCH)
            by_interface.setdefault(self._inputs[i][0], []).append(rows)
        return {interface: union(parts) for interface, parts in by_interface.items()}

    def _tagged(self, number: int, feed: Feed) -> DataFrame:
        rows = feed.apply(self._watch.stream(feed))
        own = sf.struct(*map(column, rows.columns))
        slots = [
            (own if i == number else sf.lit(None).cast(schema)).alias(_slot(i))
            for i, schema in enumerate(self._schemas)
        ]
        return rows.select(sf.lit(number).alias(_INPUT), *slots)

    def _check_gate(self) -> None:
        for attribute in self.unit.changed_by or ():
            for (interface, _), schema in zip(self._inputs, self._schemas, strict=True):
                if attribute not in schema.fieldNames():
                    raise ValueError(f"{self.name}: {interface} has no attribute {attribute}")

    def _report(self) -> None:
        self.context.run.metrics(
            self.name,
            batches=self._query.batches,
            rows_in=self._query.rows,
            rows_out=self._rows_out,
            rows_per_s=round(self._query.rows_per_s, 1),
            dead_letters=self._dead_letters,
        )


def _slot(number: int) -> str:
    return f"__input_{number}"
