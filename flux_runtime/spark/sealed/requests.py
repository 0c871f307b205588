"""The buffer of a requesting input: requests that wait for the partitions they read (SE-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import Chunk, KeyText, chunk_name, chunk_number
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.frames import column, empty, extended
from flux_runtime.spark.key_columns import CHUNK, KeyColumns, number_of
from flux_runtime.spark.sealed.chunks import CODEC

REQUESTS: Final = "requests"
"""The form of these chunks."""


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
        self.key = KeyColumns(schema, key)
        self._stored = extended(schema, **{CHUNK: "string"})

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write the chunk of a micro-batch, in place of what a crash may have left."""
        names = map(column, self._schema.fieldNames())
        stored = rows.select(*names, sf.lit(number_of(batch)).alias(CHUNK))
        writer = stored.write.mode("overwrite").option("compression", CODEC)
        writer.parquet(self._storage.uri(chunk_name(batch, REQUESTS)))

    def census(self, session: SparkSession, batch: int) -> tuple[Mapping[KeyText, int], int, Chunk]:
        """How many requests there are for each partition; how many have no key; what was written.

        The chunk is flushed to the disk.
        """
        files = manifest.take(self._storage, chunk_name(batch, REQUESTS))
        texts = [sf.when(self.key.usable(), text) for text in self.key.texts()]
        named = [text.alias(f"__text_{i}") for i, text in enumerate(texts)]
        counted = self._read(session, {batch: files}).select(*named)
        keys: dict[KeyText, int] = {}
        rejected = 0
        for *values, rows in counted.groupBy(*counted.columns).count().collect():
            if None in values:
                rejected += rows
            else:
                keys[key_text(values)] = rows
        chunk = Chunk(REQUESTS, sum(keys.values()) + rejected, len(keys), rejected, files)
        return keys, rejected, chunk

    def records(
        self,
        session: SparkSession,
        wanted: Mapping[KeyText, Sequence[int]],
        chunks: Mapping[int, Chunk],
    ) -> DataFrame:
        """The requests for partitions that came in the given micro-batches of each."""
        if not wanted:
            return empty(session, self._schema)
        asked, here = self.key.places(session, wanted)
        files = {batch: chunks[batch].files for batches in wanted.values() for batch in batches}
        for batch, of_chunk in files.items():
            manifest.check(self._storage, chunk_name(batch, REQUESTS), of_chunk)
        return self._read(session, files).join(asked, here, "left_semi").drop(CHUNK)

    def delete(self, batch: int) -> None:
        """Delete a chunk; nothing if there is none."""
        self._storage.delete(chunk_name(batch, REQUESTS))

    def numbers(self) -> list[int]:
        """The micro-batches that have a chunk."""
        return sorted(map(chunk_number, self._storage.names()))

    def _read(self, session: SparkSession, files: Mapping[int, manifest.Files]) -> DataFrame:
        paths = [
            self._storage.uri(f"{chunk_name(batch, REQUESTS)}/{file}")
            for batch, of_chunk in files.items()
            for file in of_chunk
        ]
        return (
            session.read.schema(self._stored).parquet(*paths)
            if paths
            else empty(session, self._stored)
        )
