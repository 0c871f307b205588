"""A sealed unit at work: buffer, vote, release (specification 1.4).

Every waiting input has a streaming query of its own, which writes micro-batches to the buffer and
tells the tracker; so has every requesting input. In the background one thread releases what is
complete, while the next micro-batches are being buffered, and another keeps house.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from flux_runtime.observe import decisions
from flux_runtime.observe.decisions import Excuse
from flux_runtime.observe.gates import (
    BUFFER,
    CHECKPOINT,
    DESCRIPTION,
    LEDGER,
    REQUESTS,
    describe,
)
from flux_runtime.sealing import manifest, report
from flux_runtime.sealing.events import (
    Chunk,
    Compacted,
    Counted,
    Excused,
    Finding,
    Found,
    KeyText,
    Outsider,
    Quarantined,
    Reading,
    Release,
    ReleaseFinished,
    ReleaseStarted,
    Resolved,
    Unneeded,
)
from flux_runtime.sealing.keys import key_text, key_values
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import local_path, make_folder
from flux_runtime.sealing.tracker import FRESH, One, Registered, Rules
from flux_runtime.spark import faults
from flux_runtime.spark.context import Context, file_name
from flux_runtime.spark.ends.dead_letters import DISCARDED, dead_letter_rows
from flux_runtime.spark.ends.outputs import Seals
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.feed import Feed, Origin
from flux_runtime.spark.frames import empty, union
from flux_runtime.spark.query import Query, lag_of
from flux_runtime.spark.sealed.chunks import Buffer
from flux_runtime.spark.sealed.coverage import newest
from flux_runtime.spark.sealed.intake import RequestIntake, WaitIntake
from flux_runtime.spark.sealed.planning import (
    check_key,
    columns_needed,
    first_step,
    has_digest,
    identity_of,
)
from flux_runtime.spark.sealed.recounting import digested_columns, nothing, recount
from flux_runtime.spark.sealed.releases import Releaser
from flux_runtime.spark.sealed.requests import Requests
from flux_runtime.spark.sealed.undecided import Undecided
from flux_runtime.spark.units import SealUnit
from flux_runtime.zookeeper.znode_names import PartitionKey

AHEAD_MAX: Final = 16
"""Micro-batches that may be buffered while complete partitions wait for their release..."""
REST_AHEAD_MAX: Final = 8
"""... and those after which it rests no longer."""

SPARSE: Final = 0.25
"""Chunks of which at most this part of the partitions is still needed are written anew (SE-9)..."""
SPARSE_CHUNKS: Final = 8
"""... once there are so many of them, and again once there are so many of one size."""


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
            identified=frozenset(name for name, origin in origins.items() if identity_of(origin)),
            remember_s=unit.remember_s,
        )
        self._registered = {
            name: alphabetical(unit.key_of(name))
            for name, rule in rules.inputs.items()
            if isinstance(rule, Registered)
        }
        about = describe(unit.name, key=unit.key, rules=rules, seal_timeout_s=unit.seal_timeout_s)
        self._state.write(DESCRIPTION, about)
        folder = local_path(self._state.uri(LEDGER))
        self.ledger = Ledger(folder, rules, guard=context.fence.check_state)
        try:
            self._set_up(origins)
        except BaseException:
            self.ledger.close()
            raise

    def _set_up(self, origins: Mapping[str, Origin]) -> None:
        """A block that needs the ledger, which is closed where the block fails."""
        context = self.context
        self._check_results()
        self._compare_checkpoints()
        if context.sweep is not None:
            for name, order in self._registered.items():
                context.sweep.serve(
                    self._streams[name], self.name, partial(self._released_among, order)
                )
        self._make_folders()
        self._identity = {name: identity_of(origin) for name, origin in origins.items()}
        self._digested: dict[str, list[str]] = {}
        self.buffers = {name: self._buffer(origin) for name, origin in origins.items()}
        self.requests = {
            name: self._request_buffer(name, feed) for name, (_, feed) in self._reads.items()
        }
        self.undecided = {
            name: Undecided(
                self._state.at(f"undecided/{file_name(name)}"), name, self.buffers[name]
            )
            for name in origins
        }
        self._tidy()
        self.releaser = Releaser(f"release {self.name}", self._work, self._housekeeping, self._busy)
        self._house = threading.Lock()
        self._ahead = 0
        self._compacted = False
        self._released = threading.Condition()
        self._rows_out = 0
        self._warned: dict[KeyText, None] = {}
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
        """See `Running`; the ledger is closed also where something cannot be stopped well."""
        with contextlib.ExitStack() as last_first:
            last_first.callback(self.ledger.close)
            last_first.callback(self.report)
            last_first.callback(self.releaser.stop)
            for query in self._queries:
                last_first.callback(query.stop)

    # ---- what the intakes call

    def look_up(self, name: str, keys: list[str]) -> None:
        """Find the producer sets of partitions where they are registered; one look-up for each."""
        if not keys or self.context.look_up is None:
            return
        order = self._registered[name]
        asked: dict[PartitionKey, str] = {
            tuple(key_values(key)[i] for i in order): key for key in keys
        }
        answers = self.context.look_up(self._streams[name], list(asked))
        sets = {asked[k]: tuple(sorted(who)) for k, who in answers.items() if who is not None}
        if not sets:
            return
        answer = Found(name, time.time(), sets)
        with self.ledger.lock:
            tracker = self.ledger.tracker
            outsiders = {
                (key, producer): tracker.sent(name, key, producer)
                for key, producer in tracker.outsiders_of(answer)
            }
            if outsiders:
                self.undecided[name].to_letters(
                    self.context.session,
                    self.context.dead_letters(self.unit),
                    outsiders,
                    self._last(name),
                )
            faults.point("outsiders-kept")
            findings = self.ledger.record(answer)
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
        """A micro-batch is in the ledger: release what is complete, and do not run too far ahead.

        Raises:
            BaseException: what ended a background thread.
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
        with self.ledger.lock:
            values = report.metrics(self.ledger.tracker, time.time())
        self.context.run.metrics(
            self.unit.name,
            batches=sum(q.batches for q in self._queries),
            rows_in=self.rows,
            rows_out=self._rows_out,
            rows_per_s=round(max(q.rows_per_s for q in self._queries), 1),
            **lag_of(self.unit, self._queries),
            **self.context.outputs[self.unit.name].metrics(),
            **values,
        )

    # ---- the background threads

    def _work(self) -> bool:
        if self._recount():
            return True
        released = self._release()
        if released or not self._compacted:
            self._compact()
            self._compacted = True
        return released

    def _busy(self) -> bool:
        """Whether a micro-batch is being processed for which a release can wait."""
        waits = self._ahead < REST_AHEAD_MAX
        return waits and any(tuple(query.busy for query in self._queries))

    def _recount(self) -> bool:
        """Count again where only that keeps a partition from being complete (SE-1, D6)."""
        with self.ledger.lock:
            due = self.ledger.tracker.counts_due()
        for name, keys in due.items():
            with self.ledger.lock:
                rows = self.buffers[name].enveloped(
                    self.context.session, *self._reading(name, keys)
                )
            counted = recount(
                rows,
                self.buffers[name].key,
                identity=self._identity[name],
                digested=self._digested.get(name, ()),
            )
            none = nothing(name in self._digested)
            events = []
            for key, producers in keys.items():
                counts = {p: counted.get(key, {}).get(p, none) for p in producers}
                events.append(Counted(name, key, time.time(), counts))
            self.follow(self.ledger.record(*events))
        return bool(due)

    def _release(self) -> bool:
        with self.ledger.lock:
            tracker = self.ledger.tracker
            again = tracker.pending is not None
            release = tracker.next_release()
            if release is None:
                return False
            if not again:
                self.ledger.record(ReleaseStarted(release, time.time()))
        faults.point("release-logged")
        if release.process:
            self._rows_out += self._process(release)
        if release.discarded:
            self._discard(release)
        faults.point("release-processed")
        findings = self.ledger.record(ReleaseFinished(release.number, time.time()))
        self._let_go(release.keys)
        faults.point("release-finished")
        self.follow(findings)
        with self._released:
            self._ahead = 0
            self._released.notify_all()
        self.report()
        return True

    def _compact(self) -> None:
        """Write chunks anew that hold little of what is still needed (SE-9)."""
        for name, buffer in self.buffers.items():
            with self.ledger.lock:
                chunks = dict(self.ledger.tracker.chunks.get(name, {}))
                due = self.ledger.tracker.to_merge(name, SPARSE, SPARSE_CHUNKS)
            for old in due:
                with self.ledger.lock:
                    needed = self.ledger.tracker.needing(name, old)
                    reading = Reading(
                        {n: keys for n, keys in needed.keys.items() if n in old},
                        excluded=needed.excluded,
                    )
                    number = -1 - self.ledger.tracker.compactions
                chunk = buffer.compact(self.context.session, reading, chunks, number)
                faults.point("chunks-compacted")
                self.follow(self.ledger.record(Compacted(name, old, number, chunk)))

    def _discard(self, release: Release) -> None:
        """The records of partitions that a person discarded become dead letters (SE-6)."""
        session = self.context.session
        for name, buffer in self.buffers.items():
            with self.ledger.lock:
                reading = self._reading(name, release.discarded)
            rows = (
                buffer.partials(session, *reading)
                if self._in_partials()
                else buffer.enveloped(session, *reading)
            )
            self.context.dead_letters(self.unit).keep(
                f"{file_name(name)}-discarded-{release.number:09d}",
                name,
                None,
                dead_letter_rows(rows, sf.lit(DISCARDED)),
            )

    def _reading(self, name: str, keys: Iterable[KeyText]) -> tuple[Reading, Mapping[int, Chunk]]:
        tracker = self.ledger.tracker
        return tracker.reading(name, keys), dict(tracker.chunks.get(name, {}))

    def _process(self, release: Release) -> int:
        """Hand whole partitions, and the requests for them, to the component; commit its output."""
        frames = self._waiting_frames(release)
        session = self.context.session
        for interface, feeds in self.unit.reads.items():
            names = [n for n, (i, f) in self._reads.items() if i == interface and f in feeds]
            chunks = {n: dict(self.ledger.tracker.chunks.get(n, {})) for n in names}
            frames[interface] = union(
                [
                    self.requests[n].records(session, release.answers.get(n, {}), chunks[n])
                    for n in names
                ]
            )
        second = self.unit.partial[1] if self.unit.partial and self._in_partials() else None
        output = self.unit.compute(frames, second)
        seals = Seals(self.unit.forward, release.keys) if self.unit.forward else None
        keys = hashlib.sha256("\0".join(release.keys).encode(errors="surrogatepass")).hexdigest()
        covers = {"partitions": len(release.keys), "sha256": keys}
        return self.context.outputs[self.unit.name].commit(
            release.number, output, seals=seals, covers=covers
        )

    def _waiting_frames(self, release: Release) -> dict[str, DataFrame]:
        session = self.context.session

        def rows_of(feed: Feed) -> DataFrame:
            name = feed.origin.name
            buffer = self.buffers[name]
            read = buffer.partials if self._in_partials() else buffer.records
            with self.ledger.lock:
                reading = self._reading(name, release.process)
            return feed.apply(read(session, *reading))

        frames = {
            interface: union([rows_of(feed) for feed in feeds])
            for interface, feeds in self.unit.waits.items()
        }
        return self.unit.arranged(frames)

    def _in_partials(self) -> bool:
        """Whether the component works in two steps; ids and digests need the records themselves."""
        return (
            self.unit.partial is not None
            and not self._digested
            and not any(self._identity.values())
        )

    def _housekeeping(self) -> None:
        with self._house:
            self._keep_house()

    def _keep_house(self) -> None:
        with self.ledger.lock:
            tracker = self.ledger.tracker
            due = tracker.lookups_due()
            late = list(
                report.overdue(tracker, time.time(), self.unit.seal_timeout_s, self._warned)
            )
            missing = report.votes_missing(tracker)
            decided = {name: self._last(name) for name in self.undecided if name not in due}
        self._take_decisions()
        for name, keys in due.items():
            self.look_up(name, keys)
        for name, last in decided.items():
            self.undecided[name].delete(last)
        self.ledger.forget(time.time())
        self.releaser.wake()
        for key, age, reasons in late:  # SE-8
            self.context.run.event(
                "seal_timeout",
                self.unit.name,
                partition=list(key_values(key)),
                age_s=round(age, 1),
                waits_for=reasons,
                rule="SE-8",
            )
        self.context.run.metrics(self.unit.name, votes_missing=missing)
        self.report()

    def _last(self, name: str) -> int:
        """The last micro-batch of an input that is in the ledger."""
        with self.ledger.lock:
            last = self.ledger.tracker.ingested.get(name)
        return -1 if last is None else last[0]

    def _take_decisions(self) -> None:
        """Take up what people have decided (SE-6, SE-8)."""
        state = self.context.state
        for name, decision in decisions.pending(state, self.unit.name):
            key, why, by = key_text(decision.key), decision.reason, decision.by
            fields: dict[str, Any] = {"partition": list(decision.key), "by": by, "reason": why}
            if not isinstance(decision, Excuse):
                resolution = decision.resolution
                event = Resolved(key, resolution, why, by, decision.time)
                self.follow(self.ledger.record(event))
                self.context.run.event(
                    "quarantine_resolved",
                    self.unit.name,
                    resolution=resolution.value,
                    rule="SE-6",
                    **fields,
                )
            elif decision.stream in self.buffers:
                stream, producer = decision.stream, decision.producer
                self.follow(
                    self.ledger.record(Excused(stream, key, producer, why, by, decision.time))
                )
                self.context.run.event(
                    "producer_excused",
                    self.unit.name,
                    stream=stream,
                    producer=producer,
                    rule="SE-8",
                    **fields,
                )
            decisions.taken(state, self.unit.name, name)

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
        elif identity_of(origin):
            keep, first = columns_needed(unit, session, self._state.at("empty"), origin), None
        else:
            keep = columns_needed(unit, session, self._state.at("empty"), origin)
            first = first_step(unit)
        return Buffer(
            self._state.at(f"{BUFFER}/{file_name(origin.name)}"),
            schema,
            key=key,
            producer_type=origin.producer_type(session),
            keep=keep,
            digests=origin.name in self._digested,
            identity=identity_of(origin),
            partial=first,
        )

    def _request_buffer(self, name: str, feed: Feed) -> Requests:
        session = self.context.session
        schema = feed.apply(empty(session, feed.origin.schema(session))).schema
        key = self.unit.key_of(name)
        check_key(self.unit, name, key, schema)
        return Requests(self._state.at(f"{REQUESTS}/{file_name(name)}"), schema, key=key)

    def _wait_query(self, origin: Origin) -> Query:
        intake = WaitIntake(self, origin)
        stream = origin.stream(self.context.session, self.buffers[origin.name].columns)
        intake.query = self._query(origin.name, stream, intake)
        self.context.retention.watch(intake.query, unit=self.unit.name, feeds=[Feed(origin)])
        return intake.query

    def _request_query(self, name: str) -> Query:
        _, feed = self._reads[name]
        watch = Watch(self.context.session, self.context.dead_letters(self.unit), name)
        intake = RequestIntake(self, name, watch)
        intake.query = self._query(name, feed.apply(watch.stream(feed)), intake)
        self.context.retention.watch(intake.query, unit=self.unit.name, feeds=[feed])
        return intake.query

    def _query(self, name: str, stream: DataFrame, intake: Any) -> Query:
        checkpoint = self._state.uri(f"{CHECKPOINT}/{file_name(name)}")
        return Query(f"{self.unit.name} <- {name}", stream, checkpoint, intake)

    def _make_folders(self) -> None:
        """Make the folders that Spark writes into, durably: it flushes nothing."""
        inputs, requests = self.ledger.tracker.rules.inputs, self.ledger.tracker.rules.requests
        for kind, names in (
            ("buffer", inputs),
            ("undecided", inputs),
            ("requests", requests),
            (CHECKPOINT, (*inputs, *requests)),
        ):
            for name in names:
                make_folder(local_path(self._state.uri(f"{kind}/{file_name(name)}")))

    def _check_results(self) -> None:
        """Refuse a ledger that knows of fewer releases than have been committed.

        Raises:
            DamagedError: it is not the newest one, or has lost its end.
        """
        committed = self.context.outputs[self.unit.name].newest()
        known = self.ledger.tracker.releases
        if committed is not None and committed > known:
            raise DamagedError(
                str(self.ledger.path),
                f"the ledger of {self.name} knows of {known} releases, and {committed} were "
                "committed",
                "the results are right. Put back the newest state folder, with the checkpoints in "
                f"it, or {FRESH}",
            )

    def _let_go(self, keys: Iterable[KeyText]) -> None:
        """Lets registrations for released partitions leave ZooKeeper."""
        if self.context.sweep is not None:
            released = list(keys)
            for name, order in self._registered.items():
                self.context.sweep.released(
                    self._streams[name],
                    [tuple(key_values(key)[i] for i in order) for key in released],
                )

    def _released_among(
        self, order: Sequence[int], keys: Sequence[PartitionKey]
    ) -> list[PartitionKey]:
        """Those of the partitions, as the registry names them, that have been released."""
        result = []
        for registered in keys:
            values = dict(zip(order, registered, strict=False))
            texts = [values.get(i) for i in range(len(order))]
            if len(registered) == len(order) and None not in texts:
                key = key_text([text or "" for text in texts])
                with self.ledger.lock:
                    if not self.ledger.closed and self.ledger.tracker.released.get(key):
                        result.append(registered)
        return result

    def _compare_checkpoints(self) -> None:
        """Notice a checkpoint, or a ledger, that has lost something, before anything is done."""
        tracker = self.ledger.tracker
        for name in (*tracker.rules.inputs, *tracker.rules.requests):
            checkpoint = local_path(self._state.uri(f"{CHECKPOINT}/{file_name(name)}"))
            planned, committed = newest(checkpoint, "offsets"), newest(checkpoint, "commits")
            tracker.compare(name, planned=planned, committed=committed)

    def _tidy(self) -> None:
        """Delete chunks that a crash left behind after they had become unneeded.

        Raises:
            DamagedError: a file of a chunk that is needed is missing, was added or has another
                size. Contents are compared when a chunk is read.
        """
        tracker = self.ledger.tracker
        buffers: Mapping[str, Buffer | Requests] = {**self.buffers, **self.requests}
        for name, buffer in buffers.items():
            needed = tracker.references.get(name, {})
            kind = BUFFER if name in self.buffers else REQUESTS
            storage = self._state.at(f"{kind}/{file_name(name)}")
            for number in needed:
                chunk = tracker.chunks[name][number]
                manifest.check(storage, chunk.name(number), chunk.files, contents=False)
            for number in buffer.numbers():
                if number not in needed and number <= self._last(name):
                    buffer.delete(number)

    def _sealed_waiting(self) -> bool:
        with self.ledger.lock:
            tracker = self.ledger.tracker
            return bool(tracker.sealed) or tracker.pending is not None


def alphabetical(columns: Sequence[str]) -> list[int]:
    """The positions of columns in alphabetical order, in which the registry has a key."""
    return sorted(range(len(columns)), key=lambda i: columns[i])
