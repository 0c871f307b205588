"""A sealed unit at work: buffer, vote, release (specification 1.4).

Every waiting input has a streaming query of its own, which writes micro-batches to the buffer and
tells the tracker; so has every requesting input. One background thread releases what is complete,
while the next micro-batches are being buffered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from flux_runtime.observe import excuses
from flux_runtime.observe.gates import DESCRIPTION, describe
from flux_runtime.sealing import report
from flux_runtime.sealing.events import (
    Digested,
    Excused,
    Finding,
    Found,
    Outsider,
    Quarantined,
    Release,
    ReleaseFinished,
    ReleaseStarted,
    Unneeded,
)
from flux_runtime.sealing.journal import Journal
from flux_runtime.sealing.keys import key_text, key_values
from flux_runtime.sealing.partition import Status
from flux_runtime.sealing.tracker import One, Rules
from flux_runtime.spark import faults
from flux_runtime.spark.chunks import Buffer
from flux_runtime.spark.context import Context, file_name
from flux_runtime.spark.digests import digested_columns, digests, due_by_input
from flux_runtime.spark.feed import Feed, Origin
from flux_runtime.spark.frames import empty, union
from flux_runtime.spark.intake import RequestIntake, WaitIntake
from flux_runtime.spark.outputs import Seals
from flux_runtime.spark.planning import check_key, columns_needed, first_step, has_digest
from flux_runtime.spark.query import Query
from flux_runtime.spark.releases import Releaser
from flux_runtime.spark.requests import Requests
from flux_runtime.spark.source import Source
from flux_runtime.spark.undecided import Undecided
from flux_runtime.spark.units import SealUnit
from flux_runtime.spark.unreadable import Watch
from flux_runtime.zookeeper.znode_names import PartitionKey

AHEAD_MAX: Final = 8
"""Micro-batches that may be buffered while complete partitions wait for their release."""


class Gate:
    """A `SealUnit` that runs."""

    def __init__(self, unit: SealUnit, context: Context) -> None:
        self.unit = unit
        self.name = unit.name
        self.context = context
        self._state = context.unit_state(unit)
        origins = unit.waiting()
        self._reads = {
            f"{interface}.{position}.{feed.origin.name}": (interface, feed)
            for interface, feeds in unit.reads.items()
            for position, feed in enumerate(feeds)
        }
        self._streams = {
            name: unit.producers[name].stream or name for name in origins if name in unit.producers
        }
        rules = Rules(
            inputs={
                name: unit.producers[name].rule if name in unit.producers else One()
                for name in origins
            },
            requests=tuple(self._reads),
        )
        about = describe(unit.name, key=unit.key, rules=rules, seal_timeout_s=unit.seal_timeout_s)
        self._state.write(DESCRIPTION, about)
        self.journal = Journal(self._state.at("journal"), rules)
        self._digested: dict[str, list[str]] = {}
        self.buffers = {name: self._buffer(origin) for name, origin in origins.items()}
        self.requests = {
            name: self._request_buffer(name, feed) for name, (_, feed) in self._reads.items()
        }
        self.undecided = {
            name: Undecided(self._state.at(f"undecided/{file_name(name)}"), name, unit.key_of(name))
            for name in origins
        }
        self._tidy()
        self.releaser = Releaser(f"release {unit.name}", self._work, self._housekeeping)
        self._ahead = 0
        self._released = threading.Condition()
        self._rows_out = 0
        self._warned: set[str] = set()
        self._queries = [*map(self._wait_query, origins.values())]
        self._queries += [self._request_query(name) for name in self._reads]

    # ---- running

    def start(self, *, available_now: bool, trigger: str | None) -> None:
        """See `Running`."""
        if not self.releaser.started:
            self.releaser.start()
        for query in self._queries:
            query.start(available_now=available_now, trigger=trigger)

    @property
    def active(self) -> bool:
        """See `Running`."""
        return any(tuple(query.active for query in self._queries))

    @property
    def error(self) -> BaseException | None:
        """See `Running`."""
        return self.releaser.error or next((q.error for q in self._queries if q.error), None)

    @property
    def rows(self) -> int:
        """See `Running`."""
        return sum(query.rows for query in self._queries)

    def finish(self) -> None:
        """See `Running`: release all that is complete."""
        self._housekeeping()
        self.releaser.wake()
        self.releaser.drain()
        self.report()

    def stop(self) -> None:
        """See `Running`."""
        for query in self._queries:
            query.stop()
        self.releaser.stop()
        self.journal.snapshot()
        self.report()

    # ---- what the intakes call

    def look_up(self, name: str, keys: list[str]) -> None:
        """Find the producer sets of partitions where they are registered; one look-up for each."""
        if not keys or self.context.look_up is None:
            return
        columns = self.unit.key_of(name)
        order = sorted(range(len(columns)), key=lambda i: columns[i])
        asked: dict[PartitionKey, str] = {
            tuple(key_values(key)[i] for i in order): key for key in keys
        }
        answers = self.context.look_up(self._streams[name], list(asked))
        sets = {asked[k]: tuple(sorted(who)) for k, who in answers.items() if who is not None}
        if not sets:
            return
        found = Found(name, time.time(), sets)
        with self.journal.lock:
            outsiders = self.journal.tracker.outsiders_of(found)
            if outsiders:
                self.undecided[name].to_letters(
                    self.context.session,
                    self.context.dead_letters(self.unit),
                    outsiders,
                    self.journal.tracker.ingested.get(name, -1),
                )
            faults.point("outsiders-kept")
            findings = self.journal.record(found)
        self.follow(findings)

    def follow(self, findings: list[Finding]) -> None:
        """Do what follows from the tracker's findings."""
        for finding in findings:
            match finding:
                case Quarantined():
                    self.context.run.event(
                        "partition_quarantined",
                        self.unit.name,
                        partition=list(key_values(finding.key)),
                        stream=finding.input,
                        producer=finding.producer,
                        reason=finding.why,
                        promised=finding.promised,
                        found=finding.found,
                        rule="SE-6",
                    )
                case Outsider():
                    self.context.run.event(
                        "unknown_producer",
                        self.unit.name,
                        stream=finding.input,
                        records=finding.rows,
                        partitions=[finding.key],
                        producers=[finding.producer],
                        rule="SE-7",
                    )
                case Unneeded():
                    self.delete_chunk(finding.input, finding.batch)
                case _:
                    pass

    def ingested(self) -> None:
        """A micro-batch is in the journal: release what is complete, and do not run too far ahead.

        Raises:
            BaseException: what ended the background thread.
        """
        self.releaser.wake()
        with self._released:
            self._ahead = self._ahead + 1 if self._sealed_waiting() else 0
            self._released.wait_for(
                lambda: self._ahead <= AHEAD_MAX or self.releaser.error is not None
            )
        self.releaser.check()
        self.report()

    def delete_chunk(self, name: str, batch: int) -> None:
        """SE-9: what nobody needs leaves the buffer."""
        if name in self.buffers:
            self.buffers[name].delete(batch)
        else:
            self.requests[name].delete(batch)

    def report(self) -> None:
        """Hand the metrics to the run folder."""
        with self.journal.lock:
            values = report.metrics(self.journal.tracker, time.time())
        self.context.run.metrics(
            self.unit.name,
            batches=sum(q.batches for q in self._queries),
            rows_in=self.rows,
            rows_out=self._rows_out,
            rows_per_s=round(max(q.rows_per_s for q in self._queries), 1),
            **values,
        )

    # ---- the background thread

    def _work(self) -> bool:
        return self._verify() or self._release()

    def _verify(self) -> bool:
        """Compare digests where only they keep a partition from being complete (SE-1)."""
        with self.journal.lock:
            due = due_by_input(self.journal.tracker.digests_due())
        for name, keys in due.items():
            batches = sorted({batch for _, of_key in keys.values() for batch in of_key})
            rows = self.buffers[name].digestible(self.context.session, batches, keys)
            key_columns = self.unit.key_of(name)
            found = digests(rows, key_columns, self._digested[name])
            events = [
                Digested(
                    name, key, time.time(), {p: found.get(key, {}).get(p, "0") for p in producers}
                )
                for key, (producers, _) in keys.items()
            ]
            self.follow(self.journal.record(*events))
        return bool(due)

    def _release(self) -> bool:
        with self.journal.lock:
            tracker = self.journal.tracker
            again = tracker.pending is not None
            release = tracker.next_release()
            if release is None:
                return False
            if not again:
                self.journal.record(ReleaseStarted(release, time.time()))
        faults.point("release-logged")
        if release.process:
            self._rows_out += self._process(release)
        faults.point("release-processed")
        findings = self.journal.record(ReleaseFinished(release.number, time.time()))
        faults.point("release-finished")
        self.follow(findings)
        with self._released:
            self._ahead = 0
            self._released.notify_all()
        self.report()
        return True

    def _process(self, release: Release) -> int:
        """Hand whole partitions, and the requests for them, to the component; commit its output."""
        frames = self._waiting_frames(release)
        session = self.context.session
        for interface, feeds in self.unit.reads.items():
            names = [n for n, (i, f) in self._reads.items() if i == interface and f in feeds]
            frames[interface] = union(
                [self.requests[n].records(session, release.answers.get(n, {})) for n in names]
            )
        second = self.unit.partial[1] if self.unit.partial and self._in_partials() else None
        output = self.unit.compute(frames, second)
        seals = Seals(self.unit.forward, release.keys) if self.unit.forward else None
        return self.context.outputs[self.unit.name].commit(release.number, output, seals=seals)

    def _waiting_frames(self, release: Release) -> dict[str, DataFrame]:
        session = self.context.session

        def rows_of(feed: Feed) -> DataFrame:
            name = feed.origin.name
            buffer = self.buffers[name]
            read = buffer.partials if self._in_partials() else buffer.records
            chunks, excluded = release.chunks.get(name, ()), release.excluded.get(name, ())
            return feed.apply(read(session, chunks, release.process, excluded))

        frames = {
            interface: union([rows_of(feed) for feed in feeds])
            for interface, feeds in self.unit.waits.items()
        }
        return self.unit.arranged(frames)

    def _in_partials(self) -> bool:
        """Whether the component works in two steps; a digest needs the records themselves."""
        return self.unit.partial is not None and not self._digested

    def _housekeeping(self) -> None:
        with self.journal.lock:
            tracker = self.journal.tracker
            due = tracker.lookups_due()
            late = list(report.overdue(tracker, time.time(), self.unit.seal_timeout_s))
            ingested = dict(tracker.ingested)
        self._take_excuses()
        for name, keys in due.items():
            self.look_up(name, keys)
        for name, undecided in self.undecided.items():
            if name not in due:
                undecided.delete(ingested.get(name, -1))
        self.releaser.wake()
        for key, age, reasons in late:
            if key not in self._warned:  # SE-8
                self._warned.add(key)
                self.context.run.event(
                    "seal_timeout",
                    self.unit.name,
                    partition=list(key_values(key)),
                    age_s=round(age, 1),
                    waits_for=reasons,
                    rule="SE-8",
                )
        self.report()

    def _take_excuses(self) -> None:
        """Take up what people have decided (SE-8)."""
        state = self.context.state
        for name, excuse in excuses.pending(state, self.unit.name):
            if excuse.stream in self.buffers:
                event = Excused(
                    excuse.stream,
                    key_text(excuse.key),
                    excuse.producer,
                    excuse.reason,
                    excuse.by,
                    excuse.time,
                )
                self.follow(self.journal.record(event))
                self.context.run.event(
                    "producer_excused",
                    self.unit.name,
                    stream=excuse.stream,
                    partition=list(excuse.key),
                    producer=excuse.producer,
                    by=excuse.by,
                    reason=excuse.reason,
                    rule="SE-8",
                )
            excuses.taken(state, self.unit.name, name)

    # ---- setting up

    def _buffer(self, origin: Origin) -> Buffer:
        unit, session = self.unit, self.context.session
        schema = origin.schema(session)
        key = unit.key_of(origin.name)
        check_key(unit, origin.name, key, schema)
        if has_digest(origin):
            assert isinstance(origin, Source)
            self._digested[origin.name] = digested_columns(session, origin)
            keep = first = None
        else:
            keep = columns_needed(unit, session, self._state.at("empty"), origin)
            first = first_step(unit)
        return Buffer(
            self._state.at(f"buffer/{file_name(origin.name)}"),
            schema,
            key=key,
            producer_type=origin.producer_type(session),
            keep=keep,
            digests=origin.name in self._digested,
            partial=first,
        )

    def _request_buffer(self, name: str, feed: Feed) -> Requests:
        session = self.context.session
        schema = feed.apply(empty(session, feed.origin.schema(session))).schema
        key = self.unit.key_of(name)
        check_key(self.unit, name, key, schema)
        return Requests(self._state.at(f"requests/{file_name(name)}"), schema, key=key)

    def _wait_query(self, origin: Origin) -> Query:
        intake = WaitIntake(self, origin)
        stream = origin.stream(self.context.session, self.buffers[origin.name].columns)
        intake.query = self._query(origin.name, stream, intake)
        return intake.query

    def _request_query(self, name: str) -> Query:
        _, feed = self._reads[name]
        watch = Watch(self.context.session, self.context.dead_letters(self.unit), name)
        intake = RequestIntake(self, name, watch)
        query = self._query(name, feed.apply(watch.stream(feed)), intake)
        intake.query = query
        return query

    def _query(self, name: str, stream: DataFrame, intake: Any) -> Query:
        checkpoint = self._state.uri(f"checkpoint/{file_name(name)}")
        return Query(f"{self.unit.name} <- {name}", stream, checkpoint, intake)

    def _tidy(self) -> None:
        """Delete chunks that a crash left behind after they had become unneeded."""
        tracker = self.journal.tracker
        buffers: Mapping[str, Buffer | Requests] = {**self.buffers, **self.requests}
        for name, buffer in buffers.items():
            needed = tracker.references.get(name, {})
            for batch in buffer.batches():
                if tracker.replayed(name, batch) and batch not in needed:
                    buffer.delete(batch)

    def _sealed_waiting(self) -> bool:
        with self.journal.lock:
            partitions = self.journal.tracker.partitions.values()
            return any(p.status in (Status.SEALED, Status.RELEASING) for p in partitions)
