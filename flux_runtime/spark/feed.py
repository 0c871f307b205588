"""Where records come from: sources, units and loops, and the feeds that lead away from them.

An *origin* opens as a streaming DataFrame of its records and punctuations in one *envelope*: the
records' own columns, and beside them `__producer`, `__count` BIGINT and `__digest` STRING. The type
of `__producer` is that of the producer's column. `__count` says what a row is: 0 or more, a
punctuation that promises so many records; `DATA`, a data record; `MALFORMED`, a punctuation without
a count; `UNREADABLE`, a record that its format could not parse, which stands in `__unreadable` as
text. It is never null: Spark aggregates by keys without nulls much faster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from flux_runtime.sealing.tracker import All, One, Registered, Set
from flux_runtime.spark.frames import Operator

PRODUCER: Final = "__producer"
COUNT: Final = "__count"
DIGEST: Final = "__digest"
UNREADABLE_TEXT: Final = "__unreadable"
ENVELOPE: Final = (PRODUCER, COUNT, DIGEST)

DATA: Final = -1
MALFORMED: Final = -2
UNREADABLE: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctuation:
    """How a punctuation is recognised; Spark SQL expressions over the source's columns."""

    when: str
    """True for the records that are punctuations."""
    count: str
    """How many records the producer sent for the key value."""
    digest: str | None = None
    """Sum of the records' digests modulo 2^64, in decimal (`flux_runtime.sealing.digest`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    """Who contributes to a partition of a source stream."""

    rule: Set
    stream: str | None = None
    """Name of the stream in the registry."""
    registrations: Path | None = None
    """A JSON file, key value -> producers, to register when the job starts."""

    @staticmethod
    def one() -> Producers:
        """Each partition has one producer: the first that is seen of it (SE-2)."""
        return Producers(rule=One())

    @staticmethod
    def all(members: Sequence[str]) -> Producers:
        """Every one of `members` contributes to every partition."""
        if not members:
            raise ValueError("all() needs the names of the producers")
        return Producers(rule=All(tuple(members)))

    @staticmethod
    def registered(stream: str, *, registrations: str | Path | None = None) -> Producers:
        """ZooKeeper knows; `registrations` is registered there when the job starts."""
        file = None if registrations is None else Path(registrations)
        return Producers(rule=Registered(), stream=stream, registrations=file)


class Origin(Protocol):
    """A source, a unit's output, or a loop."""

    @property
    def name(self) -> str:
        """Unique in the job."""

    def schema(self, session: SparkSession) -> StructType:
        """Of its records, without the envelope."""

    def producer_type(self, session: SparkSession) -> DataType:
        """Of the envelope's `__producer`."""

    def stream(self, session: SparkSession, columns: Collection[str] | None = None) -> DataFrame:
        """Its records and punctuations, as a streaming DataFrame in an envelope.

        Args:
            session: to open it in.
            columns: the records' columns that are needed; None: all. More may come where they
                cannot be read again by `of_files`.
        """

    def of_files(self, session: SparkSession, files: Sequence[str]) -> DataFrame | None:
        """The records and punctuations of some of its files, in an envelope, with all columns.

        None where the stream has all columns anyway.
        """


@dataclass(frozen=True, slots=True)
class Transform:
    """A confluent, record-wise component's output (CR): fused into whoever consumes it."""

    name: str
    apply: Operator


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """An origin's records after some record-wise transforms."""

    origin: Origin
    transforms: tuple[Transform, ...] = field(default=())

    def transform(self, name: str, fn: Operator) -> Feed:
        """The feed after a record-wise function of one DataFrame.

        Punctuations pass beside it: their counts speak of the origin's own records.
        """
        return replace(self, transforms=(*self.transforms, Transform(name, fn)))

    def apply(self, records: DataFrame) -> DataFrame:
        """The transforms, on the origin's records."""
        for transform in self.transforms:
            records = transform.apply(records)
        return records

    def __str__(self) -> str:
        return " -> ".join([self.origin.name, *(t.name for t in self.transforms)])
