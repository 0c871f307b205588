"""Records that accumulate: one durable chunk per micro-batch, merged now and then.

A chunk is written anew when its micro-batch is replayed. Merged chunks are named after the range
of micro-batches they cover; a single one inside that range is superfluous.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.frames import empty, extended

BATCH: Final = "__batch"
MERGE_FROM: Final = 32
"""Chunks that are merged into one."""


class Records:
    """All records that a unit has received, in the order of micro-batches.

    Args:
        storage: the folder.
        schema: of the records.
    """

    def __init__(self, storage: Storage, schema: StructType) -> None:
        self._storage = storage
        self._schema = extended(schema, **{BATCH: "long"})

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the chunk of a micro-batch, in place of what a crash may have left."""
        stored = rows.withColumn(BATCH, sf.lit(batch).cast("bigint"))
        stored.write.mode("overwrite").parquet(self._storage.uri(_name(batch, batch)))

    def read(self, session: SparkSession, *, only: int | None = None) -> DataFrame:
        """All records, or those of one micro-batch, with their micro-batch in `__batch`."""
        names = [_name(only, only)] if only is not None else self._chunks()
        if not names:
            return empty(session, self._schema)
        paths = [self._storage.uri(name) for name in names]
        return session.read.schema(self._schema).parquet(*paths)

    def merge(self, session: SparkSession) -> None:
        """Merge the chunks if there are many; they must all be of finished micro-batches."""
        chunks = self._chunks()
        if len(chunks) >= MERGE_FROM:
            first, last = _range(chunks[0])[0], _range(chunks[-1])[1]
            merged = _name(first, last)
            staged = f".{merged}"
            self.read(session).write.mode("overwrite").parquet(self._storage.uri(staged))
            self._storage.move(staged, merged)
        live = set(self._chunks())
        for name in self._storage.names():
            if name not in live:
                self._storage.delete(name)

    def _chunks(self) -> list[str]:
        """The chunks without those inside a merged one, in order."""
        live: list[str] = []
        covered = -1
        names = sorted(self._storage.names(), key=lambda n: (_range(n)[0], -_range(n)[1]))
        for name in names:
            first, last = _range(name)
            if first > covered:
                live.append(name)
                covered = last
        return live


def _name(first: int, last: int) -> str:
    return f"{first:09d}-{last:09d}"


def _range(name: str) -> tuple[int, int]:
    first, _, last = name.partition("-")
    return int(first), int(last)
