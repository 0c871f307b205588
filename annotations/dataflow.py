"""The dataflow that every front end produces and every later stage reads.

One immutable value: components with paths, the streams between them, dependencies, and what the
compiler needs to run it. The analysis reads nothing below the line "for the compiler".
Specification: `docs/reference/file-format.md`; model: Blazes section II.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Final, Protocol

from annotations.vocabulary import (
    Annotation,
    FunctionalDependency,
    Key,
    Label,
    Repeats,
    Rows,
    Within,
)

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where something stands in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """An interface of a component, written `Component.interface`."""

    component: str
    interface: str

    def __str__(self) -> str:
        return f"{self.component}.{self.interface}"


@dataclass(frozen=True, slots=True)
class Reason:
    """A place in a component's code that a derived annotation follows from."""

    text: str
    """A sentence without a full stop."""
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a query does not split by a key, and where."""

    reason: str
    position: Position | None = None

    def __str__(self) -> str:
        where = f" ({self.position})" if self.position else ""
        return f"{self.reason}{where}"


class Splits(Protocol):
    """Whether the code of an output splits by a key (`annotations.file.splits`)."""

    def refusal(self, key: Key) -> Refusal | None:
        """Why a seal on this key is not enough; None: it is."""

    def under(self, fds: tuple[FunctionalDependency, ...]) -> Splits:
        """The same question under other dependencies."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path through a component, from an input interface to an output interface."""

    source: str
    target: str
    annotation: Annotation
    state: str | None = None
    """Name of the state group; None is the component's default group (`CR` is then in none)."""
    within: Within = Within.SET
    nondeterministic: str | None = None
    """Why the output is not a function of the input (rules N1, N2); None where it is one."""
    why: str | None = None
    """The author's reason for a claim that cannot be read off the code."""
    lineage: Mapping[str, str] | None = None
    """Output attribute -> the input attribute it is an unchanged copy of; None: by equal name."""
    repeats: Repeats | None = None
    """What a repeat at its input does; None: not said (`delivery.repeats_of`)."""
    rows: Rows = Rows.MANY
    annotated: bool = True
    """False where nobody annotated the path, and the worst is assumed."""
    variant: str | None = None
    """The variant that this path comes from, if any."""
    position: Position | None = field(default=None, compare=False)
    derived: tuple[Reason, ...] | None = field(default=None, compare=False)
    """Why the annotation is what it is, where it was derived from the code; None: written."""
    assumed: tuple[Reason, ...] = field(default=(), compare=False)
    """What a derived annotation relies on, and what cannot be read off the code."""
    splits: Splits | None = field(default=None, compare=False, repr=False)
    """Says whether a seal on a key is enough; None: the code is not known, the gate decides."""

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Processor:
    """A StatefulProcessor of PySpark, and how it is run."""

    make: str
    """`module:name` of the class, or of a function that takes nothing and gives a processor."""
    key: tuple[str, ...]
    """The columns that records are grouped by."""
    takes: str = "rows"
    """`rows` (transformWithState) or `pandas` (transformWithStateInPandas)."""
    time: str = "none"
    """Spark's time mode: `none`, `processing` or `event`."""
    event_time: str | None = None
    """With event time, the column that has it."""
    delay_s: float = 0.0
    """With event time, by how much the watermark is behind the newest record."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """How one output interface of a component is computed. Exactly one way is set."""

    sql: str | None = None
    """Spark SQL over the input interfaces, by their names."""
    python: str | None = None
    """`module:function`; takes one DataFrame for each input interface, by name; returns one."""
    bloom: str | None = None
    """`file#Module`, or the text of a Bloom module, for all outputs of the component. It gives
    the annotations, and is not executed."""
    operator: str | None = None
    """`module:function`; gives the Flux operator of one partition. For the engine flux."""
    processor: Processor | None = None
    """A StatefulProcessor. For the engine flux."""
    distinct: tuple[str, ...] = ()
    """The records of the only input, without those whose id, these attributes, came before. No
    file says this: the compiler adds such components."""
    repeat_within: str | None = None
    """Of `distinct`: the input's promise (`Stream.repeat_within`), by which ids are forgotten."""
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Component:
    """A unit of computation and storage. `paths` holds the paths of the active variant only."""

    name: str
    paths: tuple[Path, ...]
    rep: bool | None = None
    """As declared; None: replicated if a replicated stream enters it."""
    variants: tuple[str, ...] = ()
    variant: str | None = None
    requests: tuple[str, ...] | None = None
    """Inputs whose records ask and are not kept; None: not said."""
    # ---- for the compiler
    implementations: Mapping[str, Implementation] = field(default_factory=lambda: EMPTY)
    """By output interface. An output without one passes its only input through."""
    replicas: int = 1
    availability: str = "single"
    """`single` or `pairs`."""
    engine: str | None = None
    """`spark` or `flux`; None: the compiler chooses."""
    output_mode: str = "append"
    """Spark's output mode where the component runs uncoordinated: `append` or `update`."""
    appends: bool = False
    """The file itself says `output_mode: append`."""
    order_by: tuple[str, ...] = ()
    """A total key of its input records: the canonical order inside a partition or batch."""
    description: str | None = None
    position: Position | None = field(default=None, compare=False)

    @property
    def asks_for_sites(self) -> bool:
        """True where the file wants it on Flux sites, whatever coordination it needs."""
        return self.availability == "pairs" or self.engine == "flux"


@dataclass(frozen=True, slots=True)
class Avro:
    """Values of messages that are records in Avro's binary form."""

    schema: str | None = None
    """The reader's schema, as JSON; None: records are read as they were written."""
    registry: str | None = None
    """The address of the registry that has the schemas by which records were written; None: it is
    `schema`, and values do not name one."""


@dataclass(frozen=True, slots=True)
class External:
    """An external source or sink: a Spark format with its options."""

    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    key: tuple[str, ...] = ()
    """Of a sink: the row of equal key is replaced."""
    delivery: str | None = None
    """What the writer of a sink guarantees, `once` or `may-repeat`; None: by its format."""
    value: str | Avro | None = None
    """Of Kafka: what the values of messages are, `json` or Avro; None: of a source bytes, as Kafka
    has them, of a sink the column `value`, or JSON."""
    columns: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Of a Kafka source: attribute -> the part of a message that it is, outside the value."""
    function: str | None = None
    """Of a `foreachBatch` or `foreach` sink: `module:name` of what takes the rows."""
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Punctuation:
    """How a punctuation is recognised in the stream. All three are Spark SQL expressions."""

    when: str
    """True for the records that are punctuations."""
    count: str
    """How many records the producer sent for the key value."""
    digest: str | None = None
    """Sum of the records' 64-bit hashes modulo 2^64, as a decimal string."""


@dataclass(frozen=True, slots=True)
class Producers:
    """Who contributes to a partition (`docs/explanation/sealing.md`)."""

    rule: str
    """`one`: whoever punctuates; `all`: every one of `members`; `registered`: ZooKeeper knows."""
    members: tuple[str, ...] = ()
    registrations: str | None = None
    """With `registered`: a JSON file, key value -> producers, to register when the job starts."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream from an output interface, or from outside, to an input interface, or to outside."""

    name: str
    producer: Endpoint | None
    """None: an external source."""
    consumer: Endpoint | None
    """None: an external sink."""
    seals: tuple[Key, ...] = ()
    rep: bool | None = None
    label: Label | None = None
    """Declared nondeterminism of an external source: Run, Inst or Diverge."""
    schema: Mapping[str, str] | None = None
    """Attribute -> Spark SQL type, in order; None: not declared."""
    id: tuple[str, ...] = ()
    """What identifies a record of a source: two deliveries agree on these attributes exactly if
    they are the same record; empty: not declared."""
    delivery: str | None = None
    """Of a source its guarantee, `once` or `may-repeat` (None: by its format), of an inner stream
    `may-repeat` where it leaves the job, of a result `once` where no row may come again."""
    repeat_within: str | None = None
    """A promise of a source: a record comes again within this interval, or never."""
    # ---- for the compiler
    source: External | None = None
    sink: External | None = None
    producer_column: str | None = None
    punctuation: Punctuation | None = None
    producers: Producers | None = None
    late: str = "dead-letter"
    """What happens to a record after its seal (SE-5): `dead-letter` or `fail`."""
    seal_timeout_s: float = 600.0
    """Age at which an open partition is warned about (SE-8)."""
    remember_s: float | None = None
    """How long released partitions are remembered (SE-9); None: for ever."""
    lateness: str | None = None
    """A promise of the sources: no record is later than this behind the newest (an interval)."""
    description: str | None = None
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where and how a compiled job runs. Every field can be overridden from the environment."""

    master: str | None = None
    """Spark master URL; None: whatever spark-submit says, else local[*]."""
    zookeeper: str = "embedded"
    """`embedded`, or host:port,host:port of an ensemble."""
    zookeeper_access: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """How an ensemble lets the job in; values may be references to secrets."""
    trigger: str | None = None
    """Interval between micro-batches; None: as fast as possible."""
    conf: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    sites: int = 3
    """Spark tasks that host a Flux stage."""
    copies: int = 2
    """Of a Flux stage's state: 2 for partition pairs, or 1."""
    partitions: int = 4
    """Partitions of a Flux stage that has a gate."""
    balance: str = "none"
    """By which policy partitions move off busy sites: `load`, `memory`, `hybrid`, or `none`."""
    site_memory: str | None = None
    """State that a site keeps in memory, like 512m; None: all of it."""
    keep_every: int | None = None
    """Batches after which a Flux stage keeps its state in files; None: as many as it sees fit."""


def unused_name(name: str, taken: Container[str]) -> str:
    """The name, or with a number the first like it that is not taken.

    >>> unused_name("clicks", {"clicks", "clicks_2"})
    'clicks_3'
    """
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A whole dataflow, in the order of its file. Endpoints and attributes are checked."""

    name: str
    components: Mapping[str, Component]
    streams: Mapping[str, Stream]
    fds: tuple[FunctionalDependency, ...] = ()
    deployment: Deployment = Deployment()
    file: FilePath | None = None
    """The file it was read from; relative paths in it are relative to the file's folder."""
    sha256: str = ""
    """Of the input's text, as hexadecimal digits."""

    @property
    def has_sources(self) -> bool:
        """True where a stream says where its records come from."""
        return any(stream.source is not None for stream in self.streams.values())

    @property
    def has_code(self) -> bool:
        """True where a component has code that a job runs; rules in Bloom are only analysed."""
        return any(
            by.bloom is None
            for component in self.components.values()
            for by in component.implementations.values()
        )
