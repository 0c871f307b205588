"""Whole records whose partition's producers are not known yet: they may turn out to be outsiders.

The buffer holds only what the component reads; a dead letter holds the whole record. So while a
partition's producer set is unknown, its records are kept whole as well (SE-7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.chunks import CODEC, Buffer
from flux_runtime.spark.context import file_name
from flux_runtime.spark.dead_letters import UNKNOWN, DeadLetters, letters


class Undecided:
    """The whole records of one waiting input that may be outsiders.

    Args:
        storage: the folder; one chunk per micro-batch that has any.
        name: of the input.
        buffer: of the input, which knows its keys.
    """

    def __init__(self, storage: Storage, name: str, buffer: Buffer) -> None:
        self._storage = storage
        self._name = name
        self._buffer = buffer

    def write(self, rows: DataFrame, batch: int, pairs: Sequence[tuple[KeyText, str]]) -> None:
        """Keep the rows of (key, producer) pairs of a micro-batch, in an envelope."""
        chosen = rows.join(
            self._buffer.pairs(rows.sparkSession, pairs), self._buffer.same_pair(), "left_semi"
        )
        name = f"{batch:09d}"
        writer = chosen.write.mode("overwrite").option("compression", CODEC)
        writer.parquet(self._storage.uri(name))
        manifest.take(self._storage, name)

    def to_letters(
        self,
        session: SparkSession,
        dead: DeadLetters,
        outsiders: Iterable[tuple[KeyText, str]],
        upto: int,
    ) -> int:
        """Write dead letters for producers who turned out not to belong; how many.

        Args:
            session: to read with.
            dead: where they go.
            outsiders: (key, producer) pairs.
            upto: the last micro-batch that has been ingested.
        """
        kept = 0
        paths = [self._storage.uri(n) for n in self._storage.names() if int(n) <= upto]
        if not paths:
            return 0
        rows = session.read.option("mergeSchema", "true").parquet(*paths)
        for pair in outsiders:
            pairs = self._buffer.pairs(session, [pair])
            mine = rows.join(pairs, self._buffer.same_pair(), "left_semi")
            mark = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:32]
            name = f"{file_name(self._name)}-outsider-{mark}"
            kept += dead.keep(name, self._name, None, letters(mine, sf.lit(UNKNOWN)))
        return kept

    def delete(self, upto: int) -> None:
        """Delete what was kept of micro-batches up to that one."""
        for name in self._storage.names():
            if int(name) <= upto:
                self._storage.delete(name)
