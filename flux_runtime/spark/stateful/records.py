"""Records that a unit keeps of its inputs, for micro-batches that depend on earlier ones.

A micro-batch arrives as a *chunk*: one Parquet folder with the rows of all inputs, written in one
Spark job. When it is done, its rows become part of what is kept of each input:

- rows that are looked up go into sorted runs (`runs`), once for each list of
  columns they are looked up by. The driver finds them there and hands them to Spark in a file;
- rows of which all are needed stay in Parquet, for Spark to read.

Parts of one level are merged when there are many, so a row is rewritten as often as the number of
micro-batches has digits. Where partial aggregates take the place of records, those of one group are
combined whenever parts are merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from flux_runtime.sealing.manifest import Manifest, check, take
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.frames import column, extended, nullable, union
from flux_runtime.spark.stateful import runs
from flux_runtime.spark.stateful.access import Reach
from flux_runtime.spark.stateful.catalogue import Begun, Catalogue, Part
from flux_runtime.spark.stateful.logical_plan import key
from flux_runtime.spark.stateful.parts import (
    STAGED,
    Parts,
    by_name,
    covered,
    read_column,
    read_tables,
)
from flux_runtime.spark.stateful.relevance import Columns
from flux_runtime.spark.stateful.runs import HASH, Hashes

BATCH: Final = "__batch"
INPUT: Final = "input"
"""Partitions a chunk; the names of such folders must not begin like hidden ones."""
CHUNKS: Final = "chunks"
COMPRESSION: Final = "lz4_raw"
"""Of Parquet that Spark writes and pyarrow reads; Hadoop's `lz4` is not for both."""
FILE_BYTES: Final = 1 << 27
"""Size of the files of merged Parquet, about."""


Combine: TypeAlias = Callable[[DataFrame], DataFrame]
"""Partial aggregates -> fewer that say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Rows that a micro-batch brought of one interface.

    Args:
        interface: its name.
        folder: name of a folder of Parquet files.
    """

    interface: str
    folder: str


class Records:
    """The records that are kept of a unit's inputs.

    Args:
        session: to read and write with.
        storage: the unit's folder.
        catalogue: of the unit.
        reach: what micro-batches need.
        schemas: of the rows of every interface, also of those that are not kept.
        combines: the interfaces whose rows are partial aggregates.
    """

    def __init__(
        self,
        session: SparkSession,
        storage: Storage,
        catalogue: Catalogue,
        reach: Reach,
        schemas: Mapping[str, StructType],
        combines: Mapping[str, Combine],
    ) -> None:
        self.parts = Parts(storage, catalogue)
        self._session = session
        self._storage = storage
        self._catalogue = catalogue
        self._reach = reach
        self._schemas = {name: nullable(schema) for name, schema in schemas.items()}
        self._combines = combines
        self._slots = {name: f"__row_{number}" for number, name in enumerate(schemas)}
        width = max(len(reach.hashed(name)) for name in schemas)
        self._hashes = [*map(_hash_name, range(width))]
        fields = [StructField(self._slots[name], of, True) for name, of in self._schemas.items()]
        fields += [StructField(name, LongType(), True) for name in self._hashes]
        self._chunk = extended(StructType(fields), **{BATCH: "long"})

    # ---- the chunk of a micro-batch

    def tagged(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of all interfaces in one frame, as `write` takes it."""
        tagged = []
        for number, (name, schema) in enumerate(self._schemas.items()):
            own = sf.struct(*map(column, schema.fieldNames()))
            slots = [
                (own if other == name else sf.lit(None)).cast(self._schemas[other]).alias(slot)
                for other, slot in self._slots.items()
            ]
            hashed = self._reach.hashed(name)
            hashes = [*_hash_columns(schema, hashed)]
            hashes += [sf.lit(None).cast(LongType()).alias(h) for h in self._hashes[len(hashed) :]]
            tag = sf.lit(number).cast(IntegerType()).alias(INPUT)
            tagged.append(frames[name].select(tag, *slots, *hashes))
        return reduce(DataFrame.unionByName, tagged)

    def write(self, rows: DataFrame, batch: int) -> Manifest:
        """Write the chunk of a micro-batch, in place of what a crash may have left."""
        name = _chunk(batch)
        stored = rows.withColumn(BATCH, sf.lit(batch).cast(LongType()))
        writer = stored.write.mode("overwrite").partitionBy(INPUT)
        writer.option("compression", COMPRESSION).parquet(self.parts.uri(name))
        files = take(self._storage, name)
        rows_in = sum(
            pq.read_metadata(file).num_rows
            for number in range(len(self._schemas))
            for file in self.parts.files(f"{name}/{INPUT}={number}")
        )
        return Manifest(rows_in, files, {"batch": batch})

    def arrived(self, begun: Begun) -> dict[str, Arrived]:
        """The contents of the chunk, for each interface that it has rows of."""
        chunk = _chunk(begun.batch)
        check(self._storage, chunk, begun.chunk.files, remedy=self._catalogue.remedy)
        below = {name: f"{INPUT}={number}" for number, name in enumerate(self._schemas)}
        return {
            name: Arrived(interface=name, folder=f"{chunk}/{folder}")
            for name, folder in below.items()
            if covered(begun.chunk, folder).files
        }

    # ---- rows, as Spark sees them

    def rows(self, arrived: Arrived) -> DataFrame:
        """The records of a micro-batch, which have their batch in `__batch`."""
        return self._in_chunks(arrived.interface, arrived.folder)

    def all_rows(self, name: str) -> DataFrame | None:
        """All that was kept of an interface; None: nothing was."""
        parts = self.parts.of(_all(name))
        self.parts.check(parts)
        return self._in_parts(name, parts) if parts else None

    def look_up(
        self, name: str, columns: Columns, wanted: Hashes, place: str
    ) -> tuple[DataFrame | None, Mapping[Columns, Hashes]]:
        """The records kept of an interface with some hashes.

        Args:
            name: of the interface.
            columns: what the hashes are of.
            wanted: the hashes.
            place: name of the file that the rows are handed to Spark in.

        Returns:
            The rows, None if there are none; and the hashes of all columns of theirs that are
            hashed.
        """
        others = [of for of in self._reach.hashed(name) if of != columns]
        hashes_of: dict[Columns, list[Hashes]] = {of: [] for of in others}

        def tables() -> Iterator[Any]:
            for table in self.parts.select(_by(name, columns), wanted):
                for of, hashes in hashes_of.items():
                    hashes.append(table.column(self._hash(name, of)).to_numpy())
                yield table

        file = self.parts.staged(place, tables())
        rows = None
        if file is not None:
            read = self._session.read.schema(self.kept_schema(name))
            rows = read.parquet(self.parts.uri(file))
        return rows, {columns: wanted} | {
            of: runs.distinct(hashes) for of, hashes in hashes_of.items()
        }

    def hashes(self, arrived: Arrived, columns: Columns) -> Hashes:
        """The distinct hashes of some columns of what a micro-batch brought."""
        name = self._hash(arrived.interface, columns)
        return runs.distinct(read_column(self.parts.files(arrived.folder), name))

    def kept_schema(self, name: str) -> StructType:
        """Of what is kept of an interface."""
        if name in self._combines:
            return self._schemas[name]
        return extended(self._schemas[name], **{BATCH: "long"})

    def _in_parts(self, name: str, parts: Sequence[Part]) -> DataFrame:
        chunks = [part.name for part in parts if part.name.startswith(f"{CHUNKS}/")]
        others = [part.name for part in parts if part.name not in chunks]
        frames = [self._in_chunks(name, *chunks)] if chunks else []
        if others:
            read = self._session.read.schema(self.kept_schema(name))
            frames.append(read.parquet(*map(self.parts.uri, others)))
        return union(frames)

    def _in_chunks(self, name: str, *folders: str) -> DataFrame:
        rows = self._session.read.schema(self._chunk).parquet(*map(self.parts.uri, folders))
        batch = () if name in self._combines else (BATCH,)
        return rows.select(f"{self._slots[name]}.*", *batch)

    # ---- what is kept

    def keep(self, arrived: Mapping[str, Arrived], begun: Begun) -> Mapping[str, tuple[Part, ...]]:
        """The records to keep after a micro-batch: on the disk, not in the catalogue yet."""
        parts: Mapping[str, tuple[Part, ...]] = self._catalogue.now.parts
        for name in self._reach.interfaces:
            rows = arrived.get(name)
            if rows is None:
                continue
            for columns in self._reach.found_by(name):
                tables = self._tables(rows, columns)
                new = [self.parts.new_run([runs.sorted_by_hash(t)], 0) for t in tables]
                parts = by_name(parts, _by(name, columns), *new)
            if self._reach.needs_all(name):
                parts = by_name(parts, _all(name), self._whole(rows, begun))
        return parts

    def merged(self, name: str, parts: Sequence[Part]) -> Part:
        """One part that holds what some hold."""
        interface, *by = json.loads(name)
        level = parts[0].level + 1
        combine = self._combines.get(interface)
        if by:
            joint = None if combine is None else self._joint(interface, tuple(by), combine)
            return self.parts.new_run(runs.merged([*map(self.parts.run, parts)], joint), level)
        self.parts.check(parts)
        rows = self._in_parts(interface, parts)
        if combine is not None:
            rows = combine(rows).select(*map(column, self._schemas[interface].fieldNames()))
        size = sum(size for part in parts for size, _ in part.manifest.files.values())
        written = rows.coalesce(max(size // FILE_BYTES, 1)).write.mode("overwrite")
        return self.parts.new_folder(written.option("compression", COMPRESSION).parquet, level)

    def sweep(self) -> None:
        """Delete what is not needed any more."""
        self.parts.sweep(CHUNKS)

    def _whole(self, arrived: Arrived, begun: Begun) -> Part:
        return Part(arrived.folder, 0, covered(begun.chunk, arrived.folder.rpartition("/")[2]))

    def _tables(self, arrived: Arrived, columns: Columns) -> Iterator[Any]:
        """Rows to be kept, with the hash of some columns."""
        name = arrived.interface
        wanted = [*self._hashes[: len(self._reach.hashed(name))]]
        wanted += [] if name in self._combines else [BATCH]
        files = self.parts.files(arrived.folder)
        return self._with_hash(read_tables(files, wanted, self._slots[name]), name, columns)

    def _with_hash(self, tables: Iterable[Any], name: str, columns: Columns) -> Iterator[Any]:
        own = self._hash(name, columns)
        for table in tables:
            yield table.drop_columns([own]).append_column(HASH, table.column(own))

    def _joint(self, name: str, columns: Columns, combine: Combine) -> runs.Combine:
        """The function that combines tables of partial aggregates, in Spark."""
        schema, target = self._schemas[name], f"{STAGED}/combined"

        def combined(table: Any) -> Any:
            file = self.parts.staged("to-combine", [table])
            assert file is not None
            rows = combine(self._session.read.schema(schema).parquet(self.parts.uri(file)))
            own = map(column, schema.fieldNames())
            hashed = rows.select(*own, *_hash_columns(schema, self._reach.hashed(name)))
            written = hashed.coalesce(1).write.mode("overwrite")
            written.option("compression", COMPRESSION).parquet(self.parts.uri(target))
            tables = read_tables(self.parts.files(target), (), None)
            return pa.concat_tables(self._with_hash(tables, name, columns))

        return combined

    def _hash(self, name: str, columns: Columns) -> str:
        """The column that holds the hash of some columns."""
        return _hash_name(self._reach.hashed(name).index(columns))


def _hash_name(number: int) -> str:
    return f"{HASH}_{number}"


def _hash_columns(schema: StructType, hashed: Sequence[Columns]) -> Iterator[Column]:
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    for number, columns in enumerate(hashed):
        yield key(types, columns).alias(_hash_name(number))


def _chunk(batch: int) -> str:
    return f"{CHUNKS}/{batch:09d}"


def _by(name: str, columns: Columns) -> str:
    """The name of rows of an interface that are looked up by some columns."""
    return json.dumps([name, *columns])


def _all(name: str) -> str:
    return json.dumps([name])
