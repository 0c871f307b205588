"""Sinks: what takes the rows of a commit, named by the unit that makes it and its number.

A sink that is *exact* decides by itself, in a transaction of its own, whether it has got a commit
already: folders of files (`commit`), tables of databases (`tables`), Delta tables (`delta`) and
topics of Kafka (`topics`). Any other format of Spark's is appended to (`Appended`): after a crash
the rows of the newest commit may come again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.commits.owner import Ownership


class SinkError(Exception):
    """A sink that cannot be written to as it should be; the message says what to do."""


class CommitSink(Protocol):
    """Takes commits, each named by its unit and number."""

    @property
    def exact(self) -> bool:
        """Whether a commit that is repeated adds nothing."""

    @property
    def needs_channel(self) -> bool:
        """Whether rows come from a channel only: the same, however often they are read."""

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """The sink in the hands of this driver, taken over from those before.

        Args:
            session: of the job.
            ownership: claimed.
            units: who commits to it.

        Raises:
            NotOwnerError: it holds the rows of another state.
            FencedError: a newer driver has taken it over.
            DamagedError: it has fewer commits than the state knows of.
            SinkError: it cannot do what is needed.
        """

    def newest(self, unit: str) -> int | None:
        """The number of the unit's newest commit that it has; None: it has none."""

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """Take the rows, unless it has got this commit; how many have come.

        Args:
            unit: who commits.
            number: of the commit; those of a unit rise.
            rows: of the commit.
            covers: what the rows are made of, as JSON data; a repetition covers the same.

        Raises:
            FencedError: a newer driver runs the job; nothing was changed.
            DamagedError: the commit was made, and covers something else.
            SinkError: it does not take the rows.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Any format that Spark can write: rows are appended, at least once."""

    exact: ClassVar[bool] = False
    needs_channel: ClassVar[bool] = False
    format: str
    path: str | None
    """Absolute, or a URI; None for formats that need none."""
    options: Mapping[str, str] = field(repr=False)

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """See `CommitSink`; it belongs to nobody."""
        return self

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`; it does not know."""
        return None

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`."""
        counted = Observation()
        frame = rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        frame.write.format(self.format).options(**self.options).mode("append").save(self.path)
        return int(counted.get["rows"])


def covers_digest(covers: Any) -> str:
    """What tells whether two commits cover the same; empty where nobody said."""
    if covers is None:
        return ""
    return hashlib.sha256(json.dumps(covers, sort_keys=True).encode()).hexdigest()
