"""A unit whose records accumulate durably and are read again (`Job.stateful`).

One query reads the tagged union of all inputs, so that Spark's offset log fixes what a micro-batch
holds before it is processed: the recorded order (OR-8), with a total order inside the batch.

Cost. A micro-batch costs what it brings, and what that meets of what is kept; not how long the job
has been running. What it meets is worked out from the component's plan (`access`)
and looked up in what is kept (`records`):

- `monotone`: new records of an input meet those of the others that they join with, and where they
  join or group further, the whole partitions that they belong to. What follows is compared with
  what was put out before by its hash.
- `changed_by`: the gate partitions that a micro-batch changed, whole.
- reads that are answered once: what the writes hold under the keys of the reads.

Where the component is SQL that aggregates what was written, partial aggregates are kept and not
records, so that a key does not cost more the more records it has (`codegen.summaries`). More
expensive stay, because the answer needs it or nothing shows that it does not:

- a partition of which every record is looked at again, as `collect_list` does, costs its own
  length whenever it changes: a partition that changes in each micro-batch costs the square of it;
- a component in which inputs meet by no equality of columns (a comparison, a cross join, a global
  aggregate, a Python function on whole frames), or no gate in `changed_by`: everything is read each
  time, so n micro-batches cost n squared. So it is with columns of a type that only Spark can keep
  (VARIANT), and with keys of a type whose equal values differ (a collation, a floating-point
  number).

Every step is repeated after a crash from where the catalogue says (`catalogue`):
a micro-batch's records are written once, what it puts out is committed under its number, and it is
done when the catalogue says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.ordering.recorded import recorded
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context
from flux_runtime.spark.ends.commit import Folders, commit_name
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.frames import Operator, column, empty, nullable, union
from flux_runtime.spark.query import Query, SingleQuery, lag_of
from flux_runtime.spark.stateful import runs
from flux_runtime.spark.stateful.access import Reach, reach_of
from flux_runtime.spark.stateful.catalogue import CHECKPOINT, Begun, Catalogue, Part
from flux_runtime.spark.stateful.emitted import PUT_OUT, RESULTS, PutOut
from flux_runtime.spark.stateful.parts import STAGED, by_name
from flux_runtime.spark.stateful.records import BATCH, Arrived, Records
from flux_runtime.spark.stateful.relevance import Columns, LookUp
from flux_runtime.spark.stateful.runs import Hashes
from flux_runtime.spark.units import StatefulUnit, no_rows

Arrivals = Mapping[str, Arrived]


class Stateful(SingleQuery):
    """A `StatefulUnit` that runs."""

    def __init__(self, unit: StatefulUnit, context: Context) -> None:
        self.unit = unit
        self.name = unit.name
        self.context = context
        session = context.session
        self._state = context.unit_state(unit)
        self._watch = Watch(session, context.dead_letters(unit), unit.name)
        no_records = unit.summarized(unit.frames(lambda feed: no_rows(session, feed)))
        schemas = {name: nullable(frame.schema) for name, frame in no_records.items()}
        self._check_gate(schemas)
        self._catalogue = Catalogue(self._state)
        self._catalogue.check({at: _numbers(f, unit.name) for at, f in self._places()})
        combines = {
            name: DataFrame.distinct if again is None else partial(_called, again, name)
            for name, (_, again) in unit.summaries.items()
        }
        known = self._catalogue.now.reach
        if known is None:
            self._reach = reach_of(unit, session, schemas, self._state.at("plans"))
            self._catalogue.save(reach=self._reach.to_json())
        else:
            self._reach = Reach.from_json(known)
        self._records = Records(
            session, self._state, self._catalogue, self._reach, schemas, combines
        )
        self._put_out = PutOut(
            session, self._state, self._records.parts, self._catalogue, unit.schema(session)
        )
        self._rows_out = self._dead_letters = self._look_ups = 0
        frames = unit.frames(lambda feed: feed.apply(self._watch.stream(feed)))
        tagged = self._records.tagged(unit.summarized(frames))
        self._query = Query(unit.name, tagged, self._state.uri(CHECKPOINT), self._on_batch)

    def finish(self) -> None:
        """See `Running`."""
        if self.unit.summaries:
            self._query.take_progress()
        self._report()

    def stop(self) -> None:
        """See `Running`."""
        if self.unit.summaries:
            self._query.take_progress()
        self._query.stop()
        self._report()

    # ---- micro-batches

    def _on_batch(self, rows: DataFrame, batch: int) -> int | None:
        if self._catalogue.is_replay(batch):
            return 0
        begun = self._catalogue.now.begun or self._begin(rows, batch)
        arrived = self._records.arrived(begun)
        begun = self._evaluate(begun, arrived)
        faults.point("evaluated")
        parts = self._records.keep(arrived, begun)
        if begun.result is not None:
            parts = by_name(parts, PUT_OUT, *self._put_out.keep(begun))
        faults.point("rows-kept")
        name = commit_name(self.unit.name, batch)
        committed = {at: batch for at, folders in self._places() if folders.committed(name)}
        self._catalogue.save(
            done=batch,
            plan=begun.plan,
            begun=None,
            parts=parts,
            put_out={**self._catalogue.now.put_out, **committed},
        )
        faults.point("batch-done")
        self._sweep()
        self._records.parts.merge(self._merged)
        self._sweep()
        faults.point("merged")
        self._report()
        return None if self.unit.summaries else begun.chunk.rows  # None: ask Spark

    def _begin(self, rows: DataFrame, batch: int) -> Begun:
        """Write a micro-batch's records; whatever comes after reads these."""
        chunk = self._records.write(rows, batch)
        self._dead_letters += self._watch.keep(self._query, batch)
        faults.point("records-written")
        plan = self._catalogue.plan(batch)
        assert plan is not None
        begun = Begun(batch, plan, chunk)
        self._catalogue.save(begun=begun)
        faults.point("batch-begun")
        return begun

    def _evaluate(self, begun: Begun, arrived: Arrivals) -> Begun:
        """Compute and commit what the component puts out after a micro-batch."""
        unit, output = self.unit, None
        if unit.monotone:
            if begun.result is None:
                outputs = list(self._growing(arrived))
                if not outputs:
                    return begun
                result = self._put_out.write_new(union(outputs), begun.batch)
                begun = replace(begun, result=result)
                self._catalogue.save(begun=begun)
                faults.point("result-written")
            output = self._put_out.new(begun)
        elif unit.changed_by is not None:
            output = self._changed(arrived, unit.changed_by) if arrived else None
        elif arrived.keys() & unit.reads.keys():
            output = self._answers(arrived)
        if output is not None:
            places = self.context.outputs[unit.name]
            self._rows_out += places.commit(begun.batch, output, keep_empty=False)
        return begun

    # ---- what the component is handed

    def _growing(self, arrived: Arrivals) -> Iterator[DataFrame]:
        """Outputs that hold, together, all that is new, and maybe some that is not."""
        reach = self._reach
        came = [name for name in arrived if name not in reach.unused]
        alone = [name for name in came if name in reach.alone]
        others = [name for name in came if name not in reach.alone]
        if others and reach.apart is None:
            yield self._compute({name: self._all(name, arrived) for name in reach.interfaces})
            return
        for name in alone:
            new = {name: arrived[name]}
            frames = self._looked_up(reach.alone[name], new, arrived)
            yield self._compute({**frames, name: self._records.rows(arrived[name])})
        if others:
            assert reach.apart is not None
            touched = {name: arrived[name] for name in others}
            yield self._compute(self._partitions(reach.apart, touched, arrived))

    def _changed(self, arrived: Arrivals, gate: tuple[str, ...]) -> DataFrame:
        """The output of the gate partitions that a micro-batch changed."""
        if self._reach.apart is not None:
            frames = self._partitions(self._reach.apart, arrived, arrived)
        else:
            everything = {name: self._all(name, arrived) for name in self._reach.interfaces}
            frames = self._matching(everything, arrived, gate) if gate else everything
        return self.unit.compute(self._in_order(frames, gate), self.unit.on_kept)

    def _answers(self, arrived: Arrivals) -> DataFrame:
        """The output for the reads of a micro-batch."""
        unit, records = self.unit, self._records
        assert self._reach.asked is not None
        asking = {name: arrived[name] for name in unit.reads if name in arrived}
        frames = self._looked_up(self._reach.asked, asking, arrived)
        writes = {name: frames.get(name, self._none(name)) for name in unit.writes}
        asked = {
            name: records.rows(asking[name]).drop(BATCH) if name in asking else self._none(name)
            for name in unit.reads
        }
        return unit.compute(self._in_order(writes, ()) | asked, unit.on_kept)

    def _in_order(
        self, frames: Mapping[str, DataFrame], within: tuple[str, ...]
    ) -> dict[str, DataFrame]:
        """Records in recorded order; of summaries the order says nothing."""
        return {
            name: recorded(frame, self.unit.order_by, batch=BATCH, within=within)
            if BATCH in frame.columns
            else frame
            for name, frame in frames.items()
        }

    def _compute(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The component on sets of records."""
        unit = self.unit
        given = {
            name: frames.get(name, self._none(name)).drop(BATCH) for name in self._reach.interfaces
        }
        return unit.compute(given, unit.on_kept)

    def _looked_up(
        self,
        steps: tuple[LookUp, ...],
        drivers: Arrivals,
        arrived: Arrivals,
    ) -> dict[str, DataFrame]:
        """The rows of other inputs that rows of some need, one look-up after the other."""
        records = self._records
        hashes: dict[tuple[str, Columns], Hashes] = {}

        def asked(name: str, columns: Columns) -> Hashes:
            new = arrived if name in looked_up else drivers
            several = [records.hashes(new[name], columns)] if name in new else []
            if (name, columns) in hashes:
                several.append(hashes[name, columns])
            return runs.distinct(several)

        looked_up: dict[str, DataFrame] = {}
        for step in steps:
            if step.probe is None:
                looked_up[step.name] = self._all(step.name, arrived)
                continue
            wanted = runs.distinct(asked(*step_columns) for step_columns in sorted(step.probe.by))
            rows, of_columns = self._find(step.name, step.probe.columns, wanted)
            looked_up[step.name] = self._with_new(step.name, rows, arrived)
            hashes |= {(step.name, columns): of for columns, of in of_columns.items()}
        return looked_up

    def _partitions(
        self, apart: Mapping[str, Columns], touched: Arrivals, arrived: Arrivals
    ) -> dict[str, DataFrame]:
        """All rows of the partitions that some rows belong to."""
        wanted = runs.distinct(
            self._records.hashes(rows, apart[name]) for name, rows in touched.items()
        )
        return {
            name: self._with_new(name, self._find(name, columns, wanted)[0], arrived)
            for name, columns in apart.items()
        }

    def _find(
        self, name: str, columns: Columns, wanted: Hashes
    ) -> tuple[DataFrame | None, Mapping[Columns, Hashes]]:
        self._look_ups += 1
        return self._records.look_up(name, columns, wanted, f"rows-{self._look_ups}")

    def _all(self, name: str, arrived: Arrivals) -> DataFrame:
        return self._with_new(name, self._records.all_rows(name), arrived)

    def _with_new(self, name: str, rows: DataFrame | None, arrived: Arrivals) -> DataFrame:
        """Rows that were kept, and what the micro-batch brought."""
        frames = [] if rows is None else [rows]
        if name in arrived:
            frames.append(self._records.rows(arrived[name]))
        return union(frames) if frames else self._none(name)

    def _none(self, name: str) -> DataFrame:
        return empty(self.context.session, self._records.kept_schema(name))

    def _matching(
        self, frames: Mapping[str, DataFrame], arrived: Arrivals, gate: tuple[str, ...]
    ) -> dict[str, DataFrame]:
        """The rows that have the gate's values in common with what a micro-batch brought."""
        columns = [*map(column, gate)]
        touched = union([self._records.rows(rows).select(columns) for rows in arrived.values()])
        named = {name: f"__gate_{number}" for number, name in enumerate(gate)}
        keys = touched.distinct().withColumnsRenamed(named)
        same = [sf.col(column(name)).eqNullSafe(sf.col(as_)) for name, as_ in named.items()]
        condition = reduce(lambda one, other: one & other, same)
        return {
            name: frame.join(sf.broadcast(keys), condition, "left_semi")
            for name, frame in frames.items()
        }

    # ---- the rest

    def _merged(self, name: str, parts: Sequence[Part]) -> Part:
        if name == PUT_OUT:
            return self._put_out.merged(parts)
        return self._records.merged(name, parts)

    def _sweep(self) -> None:
        self._records.sweep()
        self._state.delete(STAGED)
        self._state.delete(RESULTS)

    def _places(self) -> Iterator[tuple[str, Folders]]:
        """Where results are committed exactly once: address, folders."""
        output = self.context.outputs[self.unit.name]
        folders = [sink.folders for sink, _ in output.sinks]
        for folder in (output.channel, *folders):
            if folder is not None:
                yield folder.uri(""), folder

    def _check_gate(self, schemas: Mapping[str, StructType]) -> None:
        for attribute in self.unit.changed_by or ():
            for interface, schema in schemas.items():
                if attribute not in schema.fieldNames():
                    raise ValueError(f"{self.name}: {interface} has no attribute {attribute}")

    def _report(self) -> None:
        self.context.run.metrics(
            self.name,
            batches=self._query.batches,
            rows_in=self._query.rows,
            rows_out=self._rows_out,
            rows_per_s=round(self._query.rows_per_s, 1),
            **lag_of(self.unit, [self._query]),
            dead_letters=self._dead_letters,
            **self.context.outputs[self.unit.name].metrics(),
        )


def _called(operator: Operator, name: str, rows: DataFrame) -> DataFrame:
    return operator(**{name: rows})


def _numbers(folders: Folders, unit: str) -> list[int]:
    """The micro-batches that a unit has committed results of."""
    return [int(name.rpartition("-")[2]) for name in folders.commits(unit)]
