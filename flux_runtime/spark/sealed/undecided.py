"""Whole records whose partition's producers are not known yet: they may turn out to be outsiders.

The buffer holds only what the component reads; a dead letter holds the whole record. So while a
partition's producer set is unknown, its records are kept whole as well (SE-7). What a chunk holds
stands in it, and is compared before the chunk is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.context import file_name
from flux_runtime.spark.ends.dead_letters import UNKNOWN, DeadLetters, dead_letter_rows
from flux_runtime.spark.sealed.chunks import CODEC, Buffer

_MANIFEST: Final = "_manifest.json"


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
        files = manifest.take(self._storage, name)
        content = {file: list(size_and_crc) for file, size_and_crc in files.items()}
        self._storage.write(f"{name}/{_MANIFEST}", json.dumps(content).encode())

    def to_letters(
        self,
        session: SparkSession,
        dead: DeadLetters,
        outsiders: Mapping[tuple[KeyText, str], int],
        upto: int,
    ) -> int:
        """Write dead letters for producers who turned out not to belong; how many.

        Args:
            session: to read with.
            dead: where they go.
            outsiders: (key, producer) -> records and punctuations that came of it, at least.
            upto: the last micro-batch that has been ingested.

        Raises:
            DamagedError: not all of them are here.
        """
        count = 0
        names = [name for name in self._storage.names() if int(name) <= upto]
        for name in names:
            self._check(name)
        paths = [self._storage.uri(name) for name in names]
        if not paths:
            self._require(0, sum(outsiders.values()))
            return 0
        rows = session.read.option("mergeSchema", "true").parquet(*paths)
        for pair, expected in outsiders.items():
            pairs = self._buffer.pairs(session, [pair])
            mine = rows.join(pairs, self._buffer.same_pair(), "left_semi")
            mark = hashlib.sha256("\0".join(pair).encode()).hexdigest()[:32]
            name = f"{file_name(self._name)}-outsider-{mark}"
            of_pair = dead.keep(name, self._name, None, dead_letter_rows(mine, sf.lit(UNKNOWN)))
            self._require(of_pair, expected)
            count += of_pair
        return count

    def delete(self, upto: int) -> None:
        """Delete what was kept of micro-batches up to that one."""
        for name in self._storage.names():
            if int(name) <= upto:
                self._storage.delete(name)

    def _check(self, name: str) -> None:
        written = self._storage.read(f"{name}/{_MANIFEST}")
        try:
            content = json.loads(written or b"")
            files = {file: (size, crc) for file, (size, crc) in content.items()}
        except (ValueError, TypeError, AttributeError):
            problem = "the file is missing" if written is None else "the file cannot be read"
            place = self._storage.uri(f"{name}/{_MANIFEST}")
            raise DamagedError(place, problem, manifest.REMEDY) from None
        manifest.check(self._storage, name, files)

    def _require(self, count: int, expected: int) -> None:
        if count < expected:
            problem = f"{count} of {expected} records of producers who do not belong here are left"
            raise DamagedError(self._storage.uri(), problem, manifest.REMEDY)
