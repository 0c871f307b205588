"""Units: outputs of components that have streaming queries of their own.

What a unit is, as the job declares it; `gate`, `native`, `stateful` and `hosting` run them.
Each is also an origin: its output can be read as a stream from its channel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType, StructType

from flux_runtime.operators.components import Components
from flux_runtime.ordering.recorded import canonical
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER, Feed, Origin, Producers
from flux_runtime.spark.flux.components import Step
from flux_runtime.spark.flux.order_checkpoint import KEEP_EVERY
from flux_runtime.spark.frames import (
    ARRIVED,
    OWN_COLUMNS,
    Operator,
    check_own,
    column,
    empty,
    extended,
    nullable,
    union,
)

Inputs = Mapping[str, Sequence[Feed]]
"""Input interface -> the feeds that enter it."""

REPLICA = "replica"
"""The column that tells the outputs of replicas apart."""


@dataclass(eq=False, kw_only=True)
class Unit:
    """The attributes of every unit."""

    name: str
    fn: Operator
    replica: int | None = None
    channel: Folders | None = None
    """Where the output is read from by other units; set when the job starts."""
    _schema: StructType | None = field(default=None, repr=False)

    def inputs(self) -> Iterator[tuple[str, Feed]]:
        """(input interface, feed), all of them."""
        raise NotImplementedError

    @property
    def reads_kafka(self) -> bool:
        """Whether one of its inputs comes from topics directly."""
        origins = (feed.origin for _, feed in self.inputs())
        return any(isinstance(origin, Source) and origin.format == "kafka" for origin in origins)

    def compute(self, frames: Mapping[str, DataFrame], fn: Operator | None = None) -> DataFrame:
        """The component's output, tagged with the replica."""
        return self._told_apart((fn or self.fn)(**frames))

    def _told_apart(self, output: DataFrame) -> DataFrame:
        return output if self.replica is None else output.withColumn(REPLICA, sf.lit(self.replica))

    def check_replica_free(self, names: Iterable[str]) -> None:
        """Return if no column of the output has the name that tells replicas apart.

        One that may come from a replicated output before this one is replaced.

        Raises:
            ValueError: one has, and all inputs are sources.
        """
        taken = [name for name in names if name.lower() == REPLICA]
        if taken and all(isinstance(feed.origin, Source) for _, feed in self.inputs()):
            raise ValueError(
                f"{self.name} puts out a column `{taken[0]}`, and outputs of replicas are told "
                "apart by one of that name: give it another name"
            )

    def schema(self, session: SparkSession) -> StructType:
        """Of the output: the component's function, run on frames without rows."""
        if self._schema is None:
            output = self.fn(**self.frames(lambda feed: no_rows(session, feed)))
            check_own(self.name, (name for name in output.columns if name != ARRIVED))
            if self.replica is not None:
                self.check_replica_free(output.columns)
            self._schema = nullable(self._told_apart(output).schema)
        return self._schema

    def frames(self, rows_of: Callable[[Feed], DataFrame]) -> dict[str, DataFrame]:
        """Input interface -> the rows of its feeds."""
        by_interface: dict[str, list[DataFrame]] = {}
        for interface, feed in self.inputs():
            by_interface.setdefault(interface, []).append(rows_of(feed))
        return {interface: union(parts) for interface, parts in by_interface.items()}

    def producer_type(self, session: SparkSession) -> DataType:
        """See `flux_runtime.spark.feed`."""
        return StringType()

    def stream(self, session: SparkSession, columns: Collection[str] | None = None) -> DataFrame:
        """See `flux_runtime.spark.feed`."""
        assert self.channel is not None
        schema = in_channel(self.schema(session))
        reader = session.readStream.schema(schema).option("maxFileAge", "10000d")
        wanted = {*schema.fieldNames()} if columns is None else {*columns, PRODUCER, COUNT}
        columns_read = [column(name) for name in schema.fieldNames() if name in wanted]
        return reader.parquet(self.channel.uri()).select(columns_read)

    def of_files(self, session: SparkSession, files: Sequence[str]) -> DataFrame | None:
        """See `flux_runtime.spark.feed`."""
        return session.read.schema(in_channel(self.schema(session))).parquet(*files)


@dataclass(eq=False, kw_only=True)
class SealUnit(Unit):
    """Whole partitions only (SE-1 to SE-12); see `Job.seal`."""

    waits: Inputs
    reads: Inputs
    key: tuple[str, ...]
    renamed: Mapping[str, tuple[str, ...]]
    producers: Mapping[str, Producers]
    in_sequence: bool
    """Release in canonical order (SE-11)."""
    order_by: tuple[str, ...]
    late_fails: bool
    """SE-5: stop the job instead of writing a dead letter."""
    seal_timeout_s: float
    forward: tuple[str, ...]
    partial: tuple[Operator, Operator] | None
    remember_s: float | None
    """How long released partitions are remembered (SE-9); None: for ever."""

    def inputs(self) -> Iterator[tuple[str, Feed]]:
        """(input interface, feed), all of them."""
        for interface, feeds in (*self.waits.items(), *self.reads.items()):
            for feed in feeds:
                yield interface, feed

    def waiting(self) -> Mapping[str, Origin]:
        """The origins whose partitions have to be complete, by name."""
        return {feed.origin.name: feed.origin for fs in self.waits.values() for feed in fs}

    def arranged(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """The rows of waiting interfaces as they are released: in order where it matters."""
        if not self.in_sequence:
            return dict(frames)
        return {
            interface: canonical(frame, self.order_by, within=self.key)  # SE-11
            for interface, frame in frames.items()
        }

    def key_of(self, origin: str) -> tuple[str, ...]:
        """Names that the key's attributes have in an origin."""
        return self.renamed.get(origin, self.key)


@dataclass(eq=False, kw_only=True)
class NativeUnit(Unit):
    """A streaming query with Spark's own state; see `Job.native`."""

    feeds: Inputs
    output_mode: str
    ordered: bool
    watermark: tuple[str, str] | None
    stateless: bool = False
    """True where the output for a record depends on no other record."""

    def inputs(self) -> Iterator[tuple[str, Feed]]:
        """(input interface, feed), all of them."""
        for interface, feeds in self.feeds.items():
            for feed in feeds:
                yield interface, feed


@dataclass(eq=False, kw_only=True)
class StatefulUnit(Unit):
    """Records accumulate durably and are read again; see `Job.stateful`."""

    writes: Inputs
    reads: Inputs
    monotone: bool
    ordered: bool
    order_by: tuple[str, ...]
    changed_by: tuple[str, ...] | None
    summaries: Mapping[str, tuple[Operator, Operator | None]] = field(default_factory=dict)
    """Interface -> (record to partial aggregates, these to fewer); kept in place of records."""
    on_kept: Operator | None = None
    """The component on what is kept, where that is not records."""

    def summarized(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """The columns that are kept of the records of each interface."""
        return {
            name: self.summaries[name][0](**{name: frame}) if name in self.summaries else frame
            for name, frame in frames.items()
        }

    def inputs(self) -> Iterator[tuple[str, Feed]]:
        """(input interface, feed), all of them."""
        for interface, feeds in (*self.writes.items(), *self.reads.items()):
            for feed in feeds:
                yield interface, feed


@dataclass(eq=False, kw_only=True)
class FluxUnit(Unit):
    """Components that run as partition pairs on sites; see `Job.flux`."""

    steps: tuple[Step, ...]
    writes: Inputs
    reads: Inputs
    order_by: tuple[str, ...]
    replicas: int
    sites: int
    copies: int
    partitions: int
    balance: str = "none"
    memory_bytes: int | None = None
    """State that a site keeps in memory; None: all of it."""
    keep_every: int = KEEP_EVERY
    """Batches of the order after which the operators' states are kept."""

    def inputs(self) -> Iterator[tuple[str, Feed]]:
        """(input interface, feed), all of them."""
        for interface, feeds in (*self.writes.items(), *self.reads.items()):
            for feed in feeds:
                yield interface, feed

    @property
    def timed(self) -> bool:
        """Whether the sites are told when Spark read the records."""
        processors = (step.processor for step in self.steps if step.processor is not None)
        return any(one.time != "none" or one.event_time is not None for one in processors)

    def schema(self, session: SparkSession) -> StructType:
        """Of the output; replicas are told apart by a column."""
        if self._schema is None:
            *_, (_, tagged) = self.stages(session)
            check_own(self.name, tagged.fieldNames())
            if self.replicas > 1:
                self.check_replica_free(tagged.fieldNames())
                tagged = extended(tagged, **{REPLICA: "integer"})
            self._schema = nullable(tagged)
        return self._schema

    def stages(self, session: SparkSession) -> list[tuple[dict[str, StructType], StructType]]:
        """(schema of each input, schema of the output) of every step."""
        result: list[tuple[dict[str, StructType], StructType]] = []
        frames = self.frames(lambda feed: no_rows(session, feed))
        for step in self.steps:
            if result:
                names = step.parameters() if step.schema is None else ("rows",)
                if len(names) != 1:
                    raise ValueError(f"{step.name} does not take the output of one other component")
                frames = {names[0]: frames[""]}
            output = step.frame(session, frames)
            inputs = {name: nullable(frame.schema) for name, frame in frames.items()}
            result.append((inputs, nullable(output.schema)))
            frames = {"": output}
        return result

    def components(self, session: SparkSession) -> Components:
        """The description that the sites get."""
        outputs = [
            step.component(
                inputs, output, reads=() if number else [*self.reads], partitions=self.partitions
            )
            for number, (step, (inputs, output)) in enumerate(
                zip(self.steps, self.stages(session), strict=True)
            )
        ]
        copies = min(self.copies, self.sites)
        return Components(stages=tuple(outputs), replicas=self.replicas, copies=copies)


def no_rows(session: SparkSession, feed: Feed) -> DataFrame:
    """A feed's frame without rows."""
    return feed.apply(empty(session, feed.origin.schema(session)))


def data_of(stream: DataFrame) -> DataFrame:
    """The data records of an origin's stream, without the envelope."""
    names = [c for c in stream.columns if not OWN_COLUMNS.fullmatch(c) or c == ARRIVED]
    return stream.where(sf.col(COUNT) == DATA).select(*map(column, names))


def in_channel(schema: StructType) -> StructType:
    """The columns of a channel: the records' own, producer and count."""
    return extended(schema, **{PRODUCER: "string", COUNT: "long"})
