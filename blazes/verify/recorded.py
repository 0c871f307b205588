"""Records that the dataflow has seen: the data of its sources, and what components make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from annotations.dataflow import Dataflow, Stream
from annotations.vocabulary import FunctionalDependency
from blazes.verify.records import Item, Row, canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLE: Final = 300
"""Records of a source that serve as inputs; the dependencies are checked on all of them."""
FILES: Final = frozenset({"json", "csv", "parquet", "orc", "text"})


@dataclass(frozen=True, slots=True)
class Breach:
    """Two records of a stream that break a dependency."""

    stream: str
    columns: tuple[str, ...]
    rows: tuple[Row, Row]

    @property
    def items(self) -> tuple[Item, ...]:
        """The records."""
        return tuple(Item(self.stream, row) for row in self.rows)


def data_of(session: SparkSession, dataflow: Dataflow, stream: Stream) -> DataFrame | None:
    """The data records of a source, punctuations left out; None where there are no files."""
    source = stream.source
    if source is None or source.path is None or source.format not in FILES or not stream.schema:
        return None
    folder = dataflow.file.parent if dataflow.file else Path()
    path = folder / source.path
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in stream.schema.items())
    options = {k: v for k, v in source.options.items() if not k.lower().startswith("max")}
    frame = session.read.format(source.format).schema(ddl).options(**options).load(str(path))
    if stream.punctuation is not None:
        frame = frame.where(f"NOT coalesce({stream.punctuation.when}, false)")
    return frame


def sample(frame: DataFrame) -> list[Row]:
    """The first records, as rows."""
    return [tuple(map(canonical, row)) for row in frame.limit(SAMPLE).collect()]


def breach(frames: Mapping[str, DataFrame], fd: FunctionalDependency) -> tuple[Breach | None, int]:
    """Two records of one stream that break a dependency, and how many streams were checked."""
    from pyspark.sql import functions as sf

    checked = 0
    sides = [(fd.determinant, fd.dependent)]
    sides += [(fd.dependent, fd.determinant)] if fd.injective else []
    for name, frame in frames.items():
        if not fd.determinant | fd.dependent <= set(frame.columns):
            continue
        checked += 1
        for left, right in sides:
            columns = sorted(left) + sorted(right)
            pairs = frame.select(*(f"`{column}`" for column in columns)).distinct()
            several = (
                pairs.groupBy(*(sf.col(f"`{column}`") for column in sorted(left)))
                .agg(
                    sf.collect_list(sf.struct(*(f"`{column}`" for column in columns))).alias("them")
                )
                .where("size(them) > 1")
                .select("them")
                .head()
            )
            if several is not None:
                rows: Sequence[Any] = sorted(several["them"], key=repr)
                first, second = (tuple(map(canonical, row)) for row in rows[:2])
                return Breach(name, tuple(columns), (first, second)), checked
    return None, checked
