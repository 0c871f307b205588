"""The buffer of a requesting input: requests that wait for the partitions they read (SE-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.keys import key_text, key_values
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.frames import among, column, empty, extended

_BATCH = "__batch"


class Requests:
    """The chunks of one requesting input; each is named after its micro-batch.

    Args:
        storage: the folder.
        schema: of the requests.
        key: their key columns, in the order of the unit's key.
    """

    def __init__(self, storage: Storage, schema: StructType, *, key: Sequence[str]) -> None:
        self._storage = storage
        self._schema = schema
        self._key = tuple(key)
        self._stored = extended(schema, **{_BATCH: "long"})

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the chunk of a micro-batch, in place of what a crash may have left."""
        names = map(column, self._schema.fieldNames())
        stored = rows.select(*names, sf.lit(batch).cast("bigint").alias(_BATCH))
        stored.write.mode("overwrite").parquet(self._storage.uri(f"{batch:09d}"))

    def census(self, session: SparkSession, batch: int) -> tuple[Mapping[KeyText, int], int]:
        """How many requests there are for each partition; how many have no key."""
        counted = (
            self._read(session, [batch])
            .groupBy(*map(column, self._key))
            .count()
            .select(*(sf.col(column(k)).cast("string") for k in self._key), "count")
        )
        keys: dict[KeyText, int] = {}
        rejected = 0
        for *values, rows in counted.collect():
            if None in values:
                rejected += rows
            else:
                keys[key_text(values)] = rows
        return keys, rejected

    def records(self, session: SparkSession, wanted: Mapping[KeyText, Sequence[int]]) -> DataFrame:
        """The requests for partitions that came in the given micro-batches of each."""
        pairs = [(str(b), *key_values(text)) for text, batches in wanted.items() for b in batches]
        if not pairs:
            return empty(session, self._schema)
        batches = sorted({int(batch) for batch, *_ in pairs})
        condition = among(self._stored, [_BATCH, *self._key], pairs)
        return self._read(session, batches).where(condition).drop(_BATCH)

    def delete(self, batch: int) -> None:
        """Delete a chunk; nothing if there is none."""
        self._storage.delete(f"{batch:09d}")

    def batches(self) -> list[int]:
        """The micro-batches that have a chunk."""
        return [int(name) for name in self._storage.names()]

    def _read(self, session: SparkSession, batches: Sequence[int]) -> DataFrame:
        paths = [self._storage.uri(f"{batch:09d}") for batch in batches]
        return session.read.schema(self._stored).parquet(*paths)
