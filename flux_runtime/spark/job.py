"""A job as its author declares it: sources, units, sinks, and the feeds between them.

Nothing here starts Spark; `flux_runtime.spark.runner` runs what was declared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType, StructType

from flux_runtime.past_range import absolute
from flux_runtime.secrets import resolved
from flux_runtime.spark.context import file_name
from flux_runtime.spark.ends.avro import Avro
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.delta import DeltaSink
from flux_runtime.spark.ends.outputs import Sink
from flux_runtime.spark.ends.sinks import Appended, Called, CommitSink, unreachable
from flux_runtime.spark.ends.source import FILE_FORMATS, Source
from flux_runtime.spark.ends.tables import Table
from flux_runtime.spark.ends.topics import Topic
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER, Feed, Producers, Punctuation
from flux_runtime.spark.flux.components import Step
from flux_runtime.spark.flux.order_checkpoint import KEEP_EVERY
from flux_runtime.spark.frames import ARRIVED, Operator, column, parse_schema, union
from flux_runtime.spark.units import (
    FluxUnit,
    Inputs,
    NativeUnit,
    SealUnit,
    StatefulUnit,
    Unit,
    data_of,
)

U = TypeVar("U", bound=Unit)

EXACT: Final = FILE_FORMATS | {"delta", "jdbc", "kafka"}
"""Formats whose sinks can take each commit once."""
CALLS: Final = ("foreach", "foreachbatch")
"""Formats whose sinks are functions."""


@dataclass(eq=False)
class Loop:
    """The origin of a feed that is declared before the units that feed it."""

    name: str
    ddl: str
    feeds: tuple[Feed, ...] = ()

    def schema(self, session: SparkSession) -> StructType:
        """Of its records."""
        return parse_schema(self.ddl)

    def producer_type(self, session: SparkSession) -> DataType:
        """See `flux_runtime.spark.feed`."""
        return StringType()

    def stream(self, session: SparkSession, columns: Collection[str] | None = None) -> DataFrame:
        """See `flux_runtime.spark.feed`."""
        parts = [feed.apply(data_of(feed.origin.stream(session))) for feed in self.feeds]
        names = self.schema(session).fieldNames()
        return union([part.select(*map(column, names)) for part in parts]).withColumns(
            {PRODUCER: sf.lit(None).cast("string"), COUNT: sf.lit(DATA).cast("bigint")}
        )

    def of_files(self, session: SparkSession, files: Sequence[str]) -> DataFrame | None:
        """See `flux_runtime.spark.feed`."""
        return None


@dataclass(kw_only=True)
class Job:
    """A job under construction, which `build` fills.

    Args:
        root: relative paths of sources, sinks and registrations are relative to it.
        results: where sinks without a path write.
        backfill: source -> where its past range is, of files in place of its own path; sinks of
            files write into `results` then, whatever their path. None: it is no such range.
    """

    root: Path
    results: Path
    backfill: Mapping[str, str] | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Mistakes in the options, for `check`."""
    own_paths: dict[str, str | None] = field(default_factory=dict)
    """Source -> its own path, also where it is read elsewhere."""

    def check(self) -> None:
        """Return if the job can be run as it is declared.

        Raises:
            ValueError: options refer to secrets that are not there, or sinks are at addresses
                that cannot hold them; all of them.
        """
        if self.problems:
            raise ValueError("\n".join(self.problems))

    def source(
        self,
        name: str,
        *,
        format: str,
        path: str | None = None,
        options: Mapping[str, str] | None = None,
        schema: str | None = None,
        producer: str | None = None,
        punctuation: Punctuation | None = None,
        id: Sequence[str] = (),
        value: str | Avro | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Feed:
        """An external source.

        Args:
            name: of the stream; producers are registered under it.
            format: any format that Spark can read as a stream.
            path: for formats that have one; a relative one is relative to the job's root.
            options: Spark's, for the format; `${env:NAME}` and `${file:PATH}` in them are secrets.
            schema: the columns, `name TYPE, ...`; None: what the format says.
            producer: the column that names a record's producer.
            punctuation: how punctuations are recognised; None: there are none.
            id: the columns that identify a record: two deliveries agree on them exactly if they
                are the same record. Sealed units drop what they know already before it counts.
            value: of `kafka`: what the values of messages are, `json` or Avro; the schema is that
                of the values then. None: the columns are those of Kafka.
            columns: of `kafka`, column -> the part of a message that it is: `key`, `topic`,
                `partition`, `offset`, `timestamp` or `headers.NAME`.
        """
        self._new(name)
        known = value == "json" or isinstance(value, Avro)
        if (value or columns) and (format != "kafka" or not known or schema is None):
            raise ValueError(f"source {name}: value is `json` or Avro, of kafka, and has a schema")
        self.own_paths[name] = self._resolved(path, format)
        source = Source(
            name=name,
            format=format,
            path=self._path(name, format),
            options=self._options(f"source {name}", options),
            declared=dict(options or {}),
            ddl=schema,
            producer=producer,
            punctuation=punctuation,
            id=tuple(id),
            value=self._value(f"source {name}", value),
            columns=dict(columns or {}),
        )
        self.sources[name] = source
        return Feed(source)

    def native(
        self,
        name: str,
        fn: Operator,
        *,
        inputs: Inputs,
        output_mode: str = "append",
        ordered: bool = False,
        watermark: tuple[str, str] | None = None,
        repeat_within: str | None = None,
        stateless: bool = False,
        replica: int | None = None,
    ) -> Feed:
        """A component on streaming DataFrames, with Spark's own state.

        Args:
            name: of the unit.
            fn: the component's function.
            inputs: input interface -> feeds; punctuations are left out.
            output_mode: `append` or `update`.
            ordered: the micro-batches are the recorded order (OR-8); runs the same.
            watermark: (column, delay): the sources promise that no record is later than that.
            repeat_within: of a component that is `deduplicated`, on sources of files: they promise
                that a copy comes no later than that after the record.
            replica: number of the replica, from 1.
        """
        if repeat_within is not None:
            watermark = (ARRIVED, repeat_within)
            for feed in (feed for feeds in _inputs(inputs).values() for feed in feeds):
                if not isinstance(feed.origin, Source) or feed.origin.format not in FILE_FORMATS:
                    raise ValueError(
                        f"{name}: repeat_within needs the time when each record came, which only "
                        f"sources of files tell; {feed.origin.name} is none"
                    )
        if output_mode not in ("append", "update"):
            raise ValueError(f"{name}: output_mode is append or update, not {output_mode!r}")
        unit = NativeUnit(
            name=_replica_name(name, replica),
            fn=fn,
            replica=replica,
            feeds=_inputs(inputs),
            output_mode=output_mode,
            ordered=ordered,
            watermark=watermark,
            stateless=stateless,
        )
        return self._add(unit)

    def stateful(
        self,
        name: str,
        fn: Operator,
        *,
        writes: Inputs,
        reads: Inputs | None = None,
        monotone: bool,
        ordered: bool = False,
        order_by: Sequence[str] = (),
        changed_by: Sequence[str] | None = None,
        partial: tuple[Mapping[str, tuple[Operator, Operator | None]], Operator] | None = None,
        replica: int | None = None,
    ) -> Feed:
        """A component whose records accumulate durably and are read again.

        Args:
            name: of the unit.
            fn: the component's function.
            writes: input interface -> feeds whose records are the state.
            reads: input interface -> feeds whose records ask.
            monotone: every path is confluent: reads wait, each batch emits what is new of
                `fn(all writes, all reads)` as a set; in a cycle that is its fixpoint. Else each
                read is answered once, with all writes up to and including its batch.
            ordered: the batches, and `order_by` inside them, are the recorded order (OR-8).
            order_by: a total key of the records.
            changed_by: gate attributes; without reads, after each batch `fn` is applied to all
                records of the gate partitions that changed, in recorded order.
            partial: what is kept in place of records, and the component on that. For an input
                interface, a function that makes a partial aggregate of each record, or leaves it
                out, and one that makes fewer of any partial aggregates, with the same columns;
                None: of equal rows, one is enough.
            replica: number of the replica, from 1.
        """
        summaries, on_kept = partial or ({}, None)
        unit = StatefulUnit(
            name=_replica_name(name, replica),
            fn=fn,
            replica=replica,
            writes=_inputs(writes),
            reads=_inputs(reads or {}),
            monotone=monotone,
            ordered=ordered,
            order_by=tuple(order_by),
            changed_by=None if changed_by is None else tuple(changed_by),
            summaries=dict(summaries),
            on_kept=on_kept,
        )
        return self._add(unit)

    def seal(
        self,
        name: str,
        fn: Operator,
        *,
        waits: Inputs,
        reads: Inputs | None = None,
        key: Sequence[str],
        renamed: Mapping[str, Sequence[str]] | None = None,
        producers: Mapping[str, Producers] | None = None,
        release: str = "whole",
        order_by: Sequence[str] = (),
        late: str = "dead-letter",
        seal_timeout_s: float = 600.0,
        forward: Sequence[str] = (),
        partial: tuple[Operator, Operator] | None = None,
        replica: int | None = None,
        remember_s: float | None = None,
    ) -> Feed:
        """A component that sees whole partitions only (SE-1 to SE-12).

        Args:
            name: of the unit.
            fn: the component's function.
            waits: input interface -> feeds that are sealed on `key`.
            reads: input interface -> feeds of requests, which wait for the partitions they read
                and are answered once (SE-12); `fn`'s output then has to come from requests. The
                partitions are kept for later requests.
            key: the seal key.
            renamed: origin -> what the key's attributes are called there, where that differs.
            producers: source stream -> who contributes to a partition. A unit's output has one
                producer, the unit.
            release: `whole`, or `sorted`: in canonical order (SE-11).
            order_by: a total key of the records, for `sorted`.
            late: `dead-letter` or `fail` (SE-5).
            seal_timeout_s: age at which an open partition is warned about (SE-8).
            forward: what the output calls the key's attributes, where its punctuations leave with
                a released partition (SE-3).
            partial: the component in two steps. The first is handed the records with
                `__producer` and `__count`, groups by the key, both of these and its own groups,
                keeps all of these columns and adds `COUNT(*) AS __rows`; it drops no rows, and
                punctuations (`__count` is 0 or more) are among them. The
                second is called in `fn`'s place, on partial aggregates.
            replica: number of the replica, from 1.
            remember_s: how long released partitions are remembered (SE-9); None: for ever.
        """
        waiting = _inputs(waits)
        _one_of(name, "release", release, ("whole", "sorted"))
        _one_of(name, "late", late, ("dead-letter", "fail"))
        if remember_s is not None and remember_s < 0:
            raise ValueError(f"{name}: remember_s is at least 0, not {remember_s}")
        if forward and reads:
            raise ValueError(f"{name}: requests can come at any time, so no seal can be forwarded")
        if forward and len(forward) != len(key):
            raise ValueError(f"{name}: forward must name all attributes of the key, in its order")
        feeds = [feed for of_interface in waiting.values() for feed in of_interface]
        if not feeds:
            raise ValueError(f"{name}: a sealed unit waits for at least one feed")
        if partial is not None and (len(feeds) != 1 or feeds[0].transforms):
            raise ValueError(f"{name}: partial aggregates need one feed without transforms")
        unit = SealUnit(
            name=_replica_name(name, replica),
            fn=fn,
            replica=replica,
            waits=waiting,
            reads=_inputs(reads or {}),
            key=tuple(key),
            renamed={origin: tuple(names) for origin, names in (renamed or {}).items()},
            producers=dict(producers or {}),
            in_sequence=release == "sorted",
            order_by=tuple(order_by),
            late_fails=late == "fail",
            seal_timeout_s=seal_timeout_s,
            forward=tuple(forward),
            partial=partial,
            remember_s=remember_s,
        )
        for origin in unit.waiting().values():
            self._check_waiting(unit, origin)
        return self._add(unit)

    def flux(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        writes: Inputs,
        reads: Inputs | None = None,
        order_by: Sequence[str] = (),
        replicas: int = 1,
        sites: int = 3,
        copies: int = 2,
        partitions: int = 4,
        balance: str = "none",
        site_memory: str | None = None,
        keep_every: int = KEEP_EVERY,
    ) -> Feed:
        """Components that run as partition pairs on sites, on one order from ZooKeeper (OR-1).

        Args:
            name: of the unit.
            steps: the components, each reading what the one before puts out.
            writes: input interface of the first -> feeds whose records are kept.
            reads: input interface of the first -> feeds whose records ask.
            order_by: columns that the records of a batch are sorted by.
            replicas: instances that put out the same, told apart by the column `replica`; for one
                step only.
            sites: Spark tasks that host the partitions, for as long as the job runs; with one only,
                there are no pairs.
            copies: of every partition, each on another site: 2, or 1, which takes half the work
                and begins again from the kept states where a site fails.
            partitions: of one replica, for the life of the job's state.
            balance: policy by which partitions move off busy sites: `load`, `memory`, `hybrid`, or
                `none`.
            site_memory: state that a site keeps in memory, like `512m`; the rest is on its disk.
                None: all of it.
            keep_every: batches of the order after which the operators' states are written, and the
                order before them is forgotten.
        """
        _one_of(name, "balance", balance, ("none", "load", "memory", "hybrid"))
        if not steps:
            raise ValueError(f"{name}: there is no step")
        if copies not in (1, 2):
            raise ValueError(f"{name}: copies is 1 or 2, not {copies}")
        if min(replicas, sites, partitions, keep_every) < 1:
            raise ValueError(f"{name}: replicas, sites, partitions, keep_every are at least 1")
        if replicas > 1 and len(steps) > 1:
            raise ValueError(f"{name}: several steps in one replicated stage")
        unit = FluxUnit(
            name=name,
            fn=steps[-1].fn,
            steps=tuple(steps),
            writes=_inputs(writes),
            reads=_inputs(reads or {}),
            order_by=tuple(order_by),
            replicas=replicas,
            sites=sites,
            copies=copies,
            partitions=partitions,
            balance=balance,
            memory_bytes=None if site_memory is None else bytes_of(site_memory),
            keep_every=keep_every,
        )
        return self._add(unit)

    def loop(self, name: str, *, schema: str) -> Feed:
        """A feed that is closed later: its records come from units declared after it."""
        self._new(name)
        self.loops[name] = Loop(name, schema)
        return Feed(self.loops[name])

    def close_loop(self, feed: Feed, feeds: Sequence[Feed]) -> None:
        """Say where a loop's records come from."""
        if not isinstance(feed.origin, Loop) or feed.transforms:
            raise ValueError(f"{feed} is not a loop")
        feed.origin.feeds = tuple(feeds)

    def sink(
        self,
        name: str,
        feeds: Sequence[Feed],
        *,
        format: str = "parquet",
        path: str | None = None,
        options: Mapping[str, str] | None = None,
        key: Sequence[str] = (),
        transaction: bool = False,
        function: Any = None,
        value: Avro | None = None,
    ) -> None:
        """An external sink.

        Args:
            name: of the stream.
            feeds: what it gets.
            format: any format that Spark can write. File formats are committed exactly once, one
                folder per commit; others are appended to, at least once.
            path: None: the job's results folder, for file formats.
            options: Spark's, for the format.
            key: columns by which rows of a table are replaced; for `jdbc`, and exactly once.
            transaction: each row exactly once: `jdbc` and `kafka` with this, files and `delta`
                anyhow, and `kafka` with a value in Avro.
            function: of `foreachbatch` and `foreach`, what takes the rows: see `Called`.
            value: of `kafka`: what the values of messages are; every column is a field of them but
                for `key`, `headers`, `partition` and `topic`.
        """
        if (format in CALLS) != (function is not None):
            raise ValueError(f"sink {name}: a function takes the rows of {', '.join(CALLS)}")
        if transaction and format not in EXACT:
            raise ValueError(
                f"sink {name}: rows of format {format} are appended, at least once; files and "
                f"{', '.join(sorted(EXACT - FILE_FORMATS))} take each once"
            )
        if key and format != "jdbc":
            raise ValueError(f"sink {name}: only rows of a jdbc sink are replaced by a key")
        if value is not None and (format != "kafka" or value.schema is None):
            raise ValueError(f"sink {name}: values in Avro are of kafka, and have a schema")
        if name in self.sinks:
            raise ValueError(f"there are two sinks named {name}")
        passed = tuple(self._of_unit(name, number, feed) for number, feed in enumerate(feeds, 1))
        given = self._options(f"sink {name}", options)
        location = self._resolved(path, format)
        if problem := unreachable(format, location):
            self.problems.append(f"sink {name}: {problem}")
            return
        if format in FILE_FORMATS and (location is None or self.backfill is not None):
            location = str(self.results / file_name(name))
        value = self._value(f"sink {name}", value)
        if function is not None:
            target: CommitSink = Called(function=function, by_row=format == "foreach")
        else:
            target = self._target(name, format, location, given, tuple(key), transaction, value)
        self.sinks[name] = Sink(
            name=name,
            feeds=passed,
            target=target,
            format=format,
            path=location,
            options=given,
        )

    # ---- parts

    def _target(
        self,
        name: str,
        format: str,
        location: str | None,
        options: Mapping[str, str],
        key: tuple[str, ...],
        transaction: bool,
        value: Avro | None,
    ) -> CommitSink:
        """The writer of the rows of a sink."""
        if location is not None and format in FILE_FORMATS:
            return Folders(location, format, options)
        if format == "delta":
            if location is None:
                raise ValueError(f"sink {name}: a delta sink needs a path")
            return DeltaSink(name=name, location=location, options=options)
        if format == "jdbc" and (key or transaction):
            return Table(name=name, options=options, key=key)
        if format == "kafka" and (transaction or value is not None):
            return Topic(name=name, options=options, value=value)
        return Appended(format=format, path=location, options=options)

    def _value(self, of: str, value: Any) -> Any:
        """The values, with a value in place of each reference to a secret."""
        if not isinstance(value, Avro) or value.registry is None:
            return value
        return replace(value, registry=self._options(of, {"registry": value.registry})["registry"])

    def _options(self, of: str, options: Mapping[str, str] | None) -> dict[str, str]:
        """Options, with a value in place of each reference to a secret."""
        try:
            return resolved(options or {}, self.root, of=of)
        except ValueError as error:
            self.problems.append(str(error))
            return dict(options or {})

    def _of_unit(self, sink: str, number: int, feed: Feed) -> Feed:
        """The feed, behind a unit that passes it on if it does not come from a unit."""
        if isinstance(feed.origin, Unit):
            return feed
        return self.native(f"{sink}.{number}", _pass_on, inputs={"records": [feed]}, stateless=True)

    def _add(self, unit: Unit) -> Feed:
        self._new(unit.name)
        self.units[unit.name] = unit
        return Feed(unit)

    def _new(self, name: str) -> None:
        if name in self.sources or name in self.units or name in self.loops:
            raise ValueError(f"there are two streams or units named {name}")

    def _path(self, name: str, format: str) -> str | None:
        """Where a source is read: at its own path, or where its past range is."""
        of_range = None if self.backfill is None else self.backfill.get(name)
        if of_range is None or format == "kafka":
            return self.own_paths[name]
        return absolute(of_range)

    def _resolved(self, path: str | None, format: str) -> str | None:
        named = format.lower() == "iceberg" and path is not None and "/" not in path
        if path is None or named or urlsplit(path).scheme:  # Iceberg asks its catalog for a name
            return path
        return str(self.root / path)

    def _check_waiting(self, unit: SealUnit, origin: Any) -> None:
        if isinstance(origin, Source):
            if origin.punctuation is None:
                raise ValueError(f"{unit.name} waits for {origin.name}, which has no punctuation")
            if origin.name not in unit.producers:
                raise ValueError(f"{unit.name}: who are the producers of {origin.name}?")
        elif isinstance(origin, Loop):
            raise ValueError(f"{unit.name}: no seal survives in the cycle {origin.name}")
        elif isinstance(origin, SealUnit) and not origin.forward:
            raise ValueError(f"{unit.name} waits for {origin.name}, which forwards no seals")
        elif not isinstance(origin, SealUnit):
            raise ValueError(f"{unit.name} waits for {origin.name}, whose output is not sealed")


def bytes_of(size: str) -> int:
    """A size as Spark writes it.

    >>> bytes_of("512m")
    536870912
    """
    number, unit = size[:-1], size[-1:].lower()
    if not number.isdecimal() or unit not in "kmg":
        raise ValueError(f"a size is like 512m or 2g, not {size!r}")
    return int(number) << 10 * ("kmg".index(unit) + 1)


def _inputs(inputs: Inputs) -> Inputs:
    return {interface: tuple(feeds) for interface, feeds in inputs.items() if feeds}


def _replica_name(name: str, replica: int | None) -> str:
    return name if replica is None else f"{name}-{replica}"


def _one_of(name: str, option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: {option} is {' or '.join(allowed)}, not {value!r}")


def _pass_on(records: DataFrame) -> DataFrame:
    return records
