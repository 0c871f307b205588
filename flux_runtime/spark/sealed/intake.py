"""Micro-batches on their way into a gate: chunk, census, look-ups, dead letters, ledger.

Everything before the entry in the ledger is named after the micro-batch and done anew on a replay;
everything after it is recognised and skipped (SE-10).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from flux_runtime.sealing.events import Finding, Group, Ingested, KeyText, Requested
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.tracker import Verdict
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context, file_name
from flux_runtime.spark.ends.dead_letters import LATE, REASON, UNKNOWN, dead_letter_rows, reason_of
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.feed import COUNT, DATA, Origin
from flux_runtime.spark.frames import column
from flux_runtime.spark.query import Query
from flux_runtime.spark.sealed.chunks import Buffer
from flux_runtime.spark.sealed.coverage import coverage
from flux_runtime.spark.sealed.planning import KEEP_ALL
from flux_runtime.spark.sealed.requests import Requests
from flux_runtime.spark.sealed.undecided import Undecided
from flux_runtime.spark.units import SealUnit

REDUCTION_MIN: Final = 4.0
"""Partial aggregates are buffered while there are at least so many records for each of them..."""
TRIED_AGAIN: Final = 16
"""... and tried again after so many micro-batches that were buffered as records."""
ADAPTIVE: Final = "spark.sql.adaptive.enabled"
"""A chunk takes one shuffle of a known width; to replan it costs a second job and gains nothing."""
FILES_MAX: Final = 32
"""More files than that Spark lists by a job of its own
(`spark.sql.sources.parallelPartitionDiscovery.threshold`)."""
_COUNT_OF: Final = "__count_of"
_REASON_OF: Final = "__reason_of"
_JUDGED_FROM_ROWS: Final = 1000
"""A smaller chunk says nothing about the reduction."""


class LateDataError(Exception):
    """Records came after the release of their partition, and the stream says `late: fail`."""


class LostRecordError(Exception):
    """Records that belong into the dead letters cannot be read again whole."""


@dataclass(slots=True)
class Reduction:
    """Whether partial aggregates pay, judged by the newest chunk of them.

    >>> reduction = Reduction(pays=True)
    >>> reduction.judge(records=3000, rows=1000)
    >>> reduction.pays
    False
    >>> for _ in range(TRIED_AGAIN):
    ...     reduction.judge(records=9000, rows=9000)
    >>> reduction.pays
    True
    """

    pays: bool
    _as_records: int = 0
    """Micro-batches since they did not."""

    def judge(self, records: int, rows: int) -> None:
        """Take note of a chunk: how many records it has taken in how many rows."""
        if not self.pays:
            self._as_records += 1
            self.pays = self._as_records >= TRIED_AGAIN
        elif records >= _JUDGED_FROM_ROWS:
            self.pays = records >= REDUCTION_MIN * rows
            self._as_records = 0


class Gate(Protocol):
    """The gate (`gate.Gate`) as its intake sees it."""

    unit: SealUnit
    context: Context
    ledger: Ledger
    buffers: dict[str, Buffer]
    requests: dict[str, Requests]
    undecided: dict[str, Undecided]

    def look_up(self, name: str, keys: list[KeyText]) -> None:
        """Find the producer sets of partitions where they are registered."""

    def follow(self, findings: list[Finding]) -> None:
        """Do what follows from an event."""

    def ingested(self) -> None:
        """A micro-batch has been taken."""


class WaitIntake:
    """Takes the micro-batches of one waiting input."""

    query: Query
    """The query that calls it."""

    def __init__(self, gate: Gate, origin: Origin) -> None:
        self._gate = gate
        self._origin = origin
        self._name = origin.name
        self._buffer: Buffer = gate.buffers[origin.name]
        self._reduction = None if self._buffer.partial is None else Reduction(pays=True)

    def __call__(self, rows: DataFrame, batch: int) -> int:
        """Take a micro-batch; how many rows it had."""
        gate, name = self._gate, self._name
        covered = coverage(self.query, batch)
        if gate.ledger.tracker.replayed(name, batch, covered):  # SE-10
            return 0
        self._buffer.delete(batch)
        rows = self._from_files(rows)
        rows.sparkSession.conf.set(ADAPTIVE, "false")  # of this query alone
        partial = self._reduction is not None and self._reduction.pays
        form = self._buffer.write(rows, batch, partial=partial)
        faults.point("chunk-written")
        census = self._buffer.census(rows.sparkSession, batch, form)
        faults.point("chunk-counted")
        if self._reduction is not None:
            self._reduction.judge(census.rows, census.chunk.rows)
        event = Ingested(
            name, batch, time.time(), census.groups, census.rejected, covered, census.chunk
        )
        self._look_up(event)
        faults.point("looked-up")
        with gate.ledger.lock:  # nothing is released between the verdicts and the ledger
            self._sort_out(rows, event)
            faults.point("sorted-out")
            findings = gate.ledger.record(event)
        faults.point("ingested")
        gate.follow(findings)
        gate.ingested()
        return census.rows

    def _look_up(self, event: Ingested) -> None:
        gate = self._gate
        with gate.ledger.lock:
            keys = gate.ledger.tracker.sets_to_look_up(event)
        gate.look_up(self._name, keys)

    def _sort_out(self, rows: DataFrame, event: Ingested) -> None:
        """Dead letters for what cannot be taken."""
        verdicts = self._gate.ledger.tracker.assess(event)
        late = [group for group, verdict in verdicts if verdict is Verdict.LATE]
        unknown = [group for group, verdict in verdicts if verdict is Verdict.UNKNOWN]
        open_ = {(g.key, g.producer) for g, v in verdicts if v is Verdict.UNDECIDED}
        if not (late or unknown or event.rejected or open_):
            return
        if late and self._gate.unit.late_fails:  # SE-5
            raise LateDataError(self._refusal(late, event.batch))
        records = self._whole(rows)
        if open_:
            self._gate.undecided[self._name].write(records, event.batch, sorted(open_))
        self._keep_letters(records, event, late, unknown)

    def _from_files(self, rows: DataFrame) -> DataFrame:
        """The micro-batch with all columns, read from its files where it has some.

        A stream hands its rows over one by one, which costs as much as to aggregate them; a plan
        that begins with the files reads them in columns, and only those that are used.
        """
        files = self.query.files()
        if not 0 < len(files) <= FILES_MAX:
            return rows
        try:
            records = self._origin.of_files(rows.sparkSession, files)
        except AnalysisException:  # a file has gone: the stream knows whether that is allowed
            return rows
        return rows if records is None else records

    def _whole(self, rows: DataFrame) -> DataFrame:
        """The micro-batch with all columns, read again where only some of them were read."""
        if set(self._buffer.schema.fieldNames()) <= set(rows.columns):
            return rows
        records = self._origin.of_files(rows.sparkSession, self.query.files())
        return rows if records is None else records

    def _reasons(self, rows: DataFrame, late: list[Group], unknown: list[Group]) -> DataFrame:
        """The rows with the reason why they cannot be processed, in `__reason`."""
        missing: dict[tuple[KeyText, str, int], str] = {}
        for groups, reason in ((late, LATE), (unknown, UNKNOWN)):
            for group in groups:
                count = DATA if group.promised is None else group.promised
                missing[group.key, group.producer, count] = reason
        otherwise = None
        if missing:
            beside = {
                _COUNT_OF: pa.array([count for _, _, count in missing], pa.int64()),
                _REASON_OF: pa.array(list(missing.values()), pa.string()),
            }
            pairs = [(key, producer) for key, producer, _ in missing]
            listed = self._buffer.pairs(rows.sparkSession, pairs, beside=beside)
            same = self._buffer.same_pair() & (sf.col(COUNT) == sf.col(_COUNT_OF))
            rows = rows.join(listed, same, "left")
            otherwise = sf.col(_REASON_OF)
        return rows.withColumn(REASON, reason_of(self._buffer.key, otherwise=otherwise))

    def _keep_letters(
        self, rows: DataFrame, event: Ingested, late: list[Group], unknown: list[Group]
    ) -> None:
        gate, name = self._gate, self._name
        own = rows.columns
        marked = self._reasons(rows, late, unknown).select(*map(column, own), REASON)
        count = gate.context.dead_letters(gate.unit).keep(
            f"{file_name(name)}-{event.batch:09d}",
            name,
            event.batch,
            dead_letter_rows(marked, sf.col(REASON)),
        )
        expected = sum(g.rows for g in (*late, *unknown)) + event.rejected
        if count < expected:
            raise LostRecordError(
                f"{name}: found {count} of {expected} records that cannot be processed in "
                f"micro-batch {event.batch}; nothing of it was taken. {KEEP_ALL}=1 with --fresh "
                "buffers whole records"
            )
        if late:
            gate.context.run.event(
                "late_data",
                gate.unit.name,
                stream=name,
                batch=event.batch,
                records=sum(g.rows for g in late),
                partitions=_some(late),
                rule="SE-5",
            )
        if unknown:
            gate.context.run.event(
                "unknown_producer",
                gate.unit.name,
                stream=name,
                batch=event.batch,
                records=sum(g.rows for g in unknown),
                partitions=_some(unknown),
                producers=sorted({g.producer for g in unknown})[:5],
                rule="SE-7",
            )
        if count:
            gate.context.run.event(
                "dead_letters", gate.unit.name, stream=name, batch=event.batch, records=count
            )

    def _refusal(self, late: list[Group], batch: int) -> str:
        records = sum(group.rows for group in late)
        partitions = ", ".join(_some(late))
        return (
            f"{records} records or punctuations of {self._name} came after their partition was "
            f"complete: {partitions} (SE-5, late: fail). They are still in the source: nothing of "
            f"micro-batch {batch} was taken. To go on without them, set late: dead-letter"
        )


class RequestIntake:
    """Takes the micro-batches of one requesting input."""

    query: Query

    def __init__(self, gate: Gate, name: str, watch: Watch) -> None:
        self._gate = gate
        self._name = name
        self._watch = watch

    def __call__(self, rows: DataFrame, batch: int) -> int:
        """Take a micro-batch; how many rows it had."""
        gate, name = self._gate, self._name
        covered = coverage(self.query, batch)
        if gate.ledger.tracker.replayed(name, batch, covered):  # SE-10
            return 0
        requests = gate.requests[name]
        requests.write(rows, batch)
        unreadable = self._watch.keep(self.query, batch)
        faults.point("requests-written")
        keys, rejected, chunk = requests.census(rows.sparkSession, batch)
        if rejected:
            marked = rows.withColumn(COUNT, sf.lit(DATA).cast("bigint"))
            gate.context.dead_letters(gate.unit).keep(
                f"{file_name(name)}-{batch:09d}",
                name,
                batch,
                dead_letter_rows(marked, reason_of(requests.key, producer=False)),
            )
        event = Requested(name, batch, time.time(), keys, rejected + unreadable, covered, chunk)
        gate.follow(gate.ledger.record(event))
        faults.point("requested")
        gate.ingested()
        return sum(keys.values()) + rejected


def _some(groups: list[Group]) -> list[KeyText]:
    return sorted({group.key for group in groups})[:5]
