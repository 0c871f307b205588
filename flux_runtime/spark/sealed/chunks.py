"""The buffer of a sealed input: one durable chunk per micro-batch, its census, its records.

A chunk holds data records and punctuations, reduced to the columns that the component reads, or
their partial aggregates. It is named after its micro-batch and written anew when that is replayed
(SE-10). One small job over the chunk then says who sent how many records for which key and what was
promised: exact whatever tasks were retried, and cheaper than observing the pairs while writing.
Where the chunk is at hand and of usual size, Arrow counts it without a Spark job.

A chunk is never changed. What must not be read of it, late records and those of strangers, is left
out when it is read: the tracker says which partitions to read of which chunk. Before it is read,
its files are compared with what was counted: names and sizes every time, the contents once in a
process and whenever a file was touched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import (
    Chunk,
    Groups,
    KeyText,
    Reading,
    chunk_name,
    chunk_number,
)
from flux_runtime.sealing.keys import KEY_BYTES_MAX, key_text
from flux_runtime.sealing.storage import Storage, local_path
from flux_runtime.spark.feed import COUNT, DATA, DIGEST, MALFORMED, PRODUCER, UNREADABLE
from flux_runtime.spark.frames import (
    Operator,
    column,
    completed,
    empty,
    extended,
    grouped_in_tasks,
    union,
)
from flux_runtime.spark.key_columns import CHUNK, KeyColumns, number_of, usable
from flux_runtime.spark.sealed.counting import RECORDS as COUNTED
from flux_runtime.spark.sealed.counting import SIZE, count_here, count_on_spark, texts

ROWS: Final = "__rows"
"""In partial aggregates: how many records stand behind one of them."""

RECORDS: Final = "records"
PARTIALS: Final = "partials"
"""The two forms of a chunk, and the ends of its name."""

CODEC: Final = "lz4_raw"
"""Of chunks. Spark's `lz4` is Hadoop's, in blocks that pyarrow does not read above 256 KB."""

_NO_GROUP: Final = (MALFORMED, UNREADABLE)
_PRODUCER_OF: Final = "__producer_of_key"


@dataclass(frozen=True, slots=True)
class Census:
    """The content of a chunk."""

    groups: Groups
    rejected: int
    """Records without a usable key or producer, unreadable ones, punctuations without a count."""
    rows: int
    chunk: Chunk


class Buffer:
    """The chunks of one waiting input.

    Args:
        storage: the folder.
        schema: of the input's records.
        key: its key columns, in the order of the unit's key.
        producer_type: of its producers.
        keep: the columns that the component reads; None: all.
        digests: whether punctuations carry digests.
        identity: columns that identify a record; without repeats of them it is put out (D6).
        partial: the first step of a partial aggregate, on the records with producer and count.
    """

    def __init__(
        self,
        storage: Storage,
        schema: StructType,
        *,
        key: Sequence[str],
        producer_type: DataType,
        keep: Iterable[str] | None = None,
        digests: bool = False,
        identity: Sequence[str] = (),
        partial: Operator | None = None,
    ) -> None:
        self._storage = storage
        self.schema = schema
        self.key = KeyColumns(schema, key)
        self._producer_type = producer_type
        wanted = set(schema.fieldNames()) if keep is None else {*keep, *key, *identity}
        self.columns: Sequence[str] = [f.name for f in schema.fields if f.name in wanted]
        self._envelope = [PRODUCER, COUNT, *([DIGEST] if digests else [])]
        self._identity = tuple(identity)
        self.partial = partial
        self._data_only = sf.col(COUNT) == DATA
        self._kept = [sf.col(column(c)) for c in (*self.columns, *self._envelope)]
        self._read_as: dict[str, StructType] = {}

    def write(self, rows: DataFrame, batch: int, *, partial: bool = False) -> str:
        """Write the chunk of a micro-batch, in place of what a crash may have left; its form."""
        form = PARTIALS if partial else RECORDS
        content = grouped_in_tasks(self._aggregated(rows)) if partial else rows.select(self._kept)
        self._write(content, batch, form)
        return form

    def census(self, session: SparkSession, batch: int, form: str) -> Census:
        """Who sent how many records for which key, and what was promised; the chunk is flushed."""
        weight = ROWS if form == PARTIALS else None
        columns = [*self.key.names, *self._envelope]
        name = chunk_name(batch, form)
        files = manifest.take(self._storage, name)
        types = [*self.key.types, self._producer_type]
        counted = count_here(local_path(self._storage.uri(name)), files, columns, weight, types)
        if counted is None:
            counted = count_on_spark(
                self._files(session, name, files, form),
                [*self.key.texts(), sf.col(PRODUCER).cast("string")],
                columns[len(types) :],
                weight,
            )
        return census_of(counted, len(self.key.names), form, files)

    def records(
        self, session: SparkSession, reading: Reading, chunks: Mapping[int, Chunk]
    ) -> DataFrame:
        """The data records of partitions, with the input's schema and without repeats of ids."""
        chosen = self._data(session, reading, chunks, RECORDS)
        return self._once(chosen).select(self._whole_records)

    def enveloped(
        self, session: SparkSession, reading: Reading, chunks: Mapping[int, Chunk]
    ) -> DataFrame:
        """The data records of partitions as they are buffered, with their producer."""
        return self._data(session, reading, chunks, RECORDS)

    def partials(
        self, session: SparkSession, reading: Reading, chunks: Mapping[int, Chunk]
    ) -> DataFrame:
        """The partial aggregates of partitions, made now for chunks that hold records."""
        forms = {chunks[number].form for number in reading.keys} or {RECORDS}
        parts = []
        if PARTIALS in forms:
            parts.append(self._data(session, reading, chunks, PARTIALS))
        if RECORDS in forms:
            raw = self._data(session, reading, chunks, RECORDS)
            parts.append(self._aggregated(raw))
        return union(parts)

    def compact(
        self, session: SparkSession, reading: Reading, chunks: Mapping[int, Chunk], number: int
    ) -> Chunk:
        """Write what is still needed of chunks, all of one form, as a new chunk (SE-9)."""
        form = chunks[next(iter(reading.keys))].form
        rows = self._data(session, reading, chunks, form)
        self._write(rows, number, form)
        return self.census(session, number, form).chunk

    def delete(self, number: int) -> None:
        """Delete a chunk, whatever its form; nothing if there is none."""
        for form in (RECORDS, PARTIALS):
            self._storage.delete(chunk_name(number, form))

    def numbers(self) -> list[int]:
        """The chunks that there are."""
        return sorted(map(chunk_number, self._storage.names()))

    # ---- parts

    def _aggregated(self, rows: DataFrame) -> DataFrame:
        assert self.partial is not None
        return self.partial(rows.select(self._whole_enveloped))

    @cached_property
    def _whole_records(self) -> list[Column]:
        """All columns of the records, on those that are buffered."""
        return completed(self.columns, self.schema)

    @cached_property
    def _whole_enveloped(self) -> list[Column]:
        """The same with the envelope."""
        return completed((*self.columns, *self._envelope), self._enveloped(self.schema))

    def _write(self, rows: DataFrame, number: int, form: str) -> None:
        if form not in self._read_as:
            self._read_as[form] = rows.schema
        (
            rows.withColumn(CHUNK, sf.lit(number_of(number)))
            .write.mode("overwrite")
            .option("compression", CODEC)
            .parquet(self._storage.uri(chunk_name(number, form)))
        )

    def _files(
        self, session: SparkSession, name: str, files: Iterable[str], form: str
    ) -> DataFrame:
        return self._read(session, [self._storage.uri(f"{name}/{file}") for file in files], form)

    def _read(self, session: SparkSession, paths: Sequence[str], form: str) -> DataFrame:
        if form not in self._read_as:
            self._read_as[form] = self._form_schema(session, form)
        stored = extended(self._read_as[form], **{CHUNK: "string"})
        return session.read.schema(stored).parquet(*paths) if paths else empty(session, stored)

    def _form_schema(self, session: SparkSession, form: str) -> StructType:
        if form == PARTIALS:
            return self._aggregated(empty(session, self._enveloped(self.schema))).schema
        return self._enveloped(StructType([self.schema[name] for name in self.columns]))

    def _enveloped(self, schema: StructType) -> StructType:
        types: dict[str, str | DataType] = {
            PRODUCER: self._producer_type,
            COUNT: "long",
            DIGEST: "string",
        }
        return extended(schema, **{name: types[name] for name in self._envelope})

    def _data(
        self, session: SparkSession, reading: Reading, chunks: Mapping[int, Chunk], form: str
    ) -> DataFrame:
        """The data records, or partial aggregates, of partitions; without the chunk's number."""
        complete: list[str] = []
        parts: list[str] = []
        chunks_of: dict[KeyText, list[int]] = {}
        rejected = False
        for number, keys in reading.keys.items():
            chunk = chunks[number]
            if chunk.form != form:
                continue
            name = chunk_name(number, form)
            manifest.check(self._storage, name, chunk.files)
            paths = [self._storage.uri(f"{name}/{file}") for file in chunk.files]
            if number in reading.whole:
                complete += paths
            else:
                parts += paths
                rejected |= chunk.rejected > 0
                for key in keys:
                    chunks_of.setdefault(key, []).append(number)
        frames = []
        if complete or not parts:
            frames.append(self._read(session, complete, form).where(self._data_only))
        if parts:
            wanted, here = self.key.places(session, chunks_of)
            rows = self._read(session, parts, form).where(self._data_only)
            if rejected:
                rows = rows.where(usable(sf.col(PRODUCER).cast("string")))
            frames.append(rows.join(wanted, here, "left_semi"))
        rows = union(frames)
        if reading.excluded:
            rows = rows.join(self.pairs(session, reading.excluded), self.same_pair(), "left_anti")
        return rows.drop(CHUNK)

    def _once(self, rows: DataFrame) -> DataFrame:
        """One record for each id of a partition; a record without an id is no repeat (D6)."""
        if not self._identity:
            return rows
        known = reduce(lambda a, b: a & b, (sf.col(column(c)).isNotNull() for c in self._identity))
        once = rows.where(known).dropDuplicates([*self.key.names, *self._identity])
        return once.unionByName(rows.where(~known))

    def pairs(
        self,
        session: SparkSession,
        pairs: Sequence[tuple[KeyText, str]],
        *,
        beside: Mapping[str, pa.Array] | None = None,
    ) -> DataFrame:
        """A table of keys and producers; `same_pair` is the condition."""
        producers = pa.array([producer for _, producer in pairs], pa.string())
        columns = {_PRODUCER_OF: producers, **(beside or {})}
        keys_table = self.key.table(session, [key for key, _ in pairs], beside=columns)
        return keys_table.withColumn(_PRODUCER_OF, sf.col(_PRODUCER_OF).cast(self._producer_type))

    def same_pair(self) -> Column:
        """That a record has key and producer of a row of `pairs`."""
        return self.key.matches() & (sf.col(PRODUCER) == sf.col(_PRODUCER_OF))


def census_of(counted: pa.Table, key_length: int, form: str, files: manifest.Files) -> Census:
    """Rows of a counted table: key columns, producer, count, digest if there is one.

    Python sees every key and every producer once; the rest is done in columns.
    """
    columns = [counted.column(i) for i in range(key_length + 2)]
    keys, key_of = _keys(columns[:key_length])
    producers, producer_of = _encoded(columns[key_length])
    producers = [p and (None if _too_long((p,)) else sys.intern(p)) for p in producers]
    count = columns[key_length + 1].to_numpy()
    records, size = counted.column(COUNTED).to_numpy(), counted.column(SIZE).to_numpy()
    usable_key = np.array([key is not None for key in keys], bool)[key_of]
    usable_producer = np.array([p is not None for p in producers], bool)[producer_of]
    taken = np.flatnonzero(usable_key & usable_producer & ~np.isin(count, _NO_GROUP))
    producer_rank = _ranks(producers)[producer_of]
    place = (2 * _ranks(keys)[key_of] + (count != DATA)) * len(producers) + producer_rank
    order = taken[np.lexsort((count[taken], place[taken]))]
    is_data, key_of = count[order] == DATA, key_of[order]
    starts = np.flatnonzero(np.diff(key_of, prepend=-1))
    middles = starts + np.add.reduceat(is_data, starts, dtype=np.int64)
    digests: Sequence[str | None] = [None] * len(order)
    if counted.column_names[key_length + 2] == DIGEST:
        digests = counted.column(DIGEST).take(order).to_pylist()
    groups = Groups(
        np.array(keys, object)[key_of[starts]].tolist(),
        [*starts.tolist(), len(order)],
        middles.tolist(),
        np.array(producers, object)[producer_of[order]].tolist(),
        [None if promised == DATA else promised for promised in count[order].tolist()],
        digests,
        records[order].tolist(),
    )
    total = int(records.sum())
    rejected = total - int(records[order].sum())
    with_data = int(np.count_nonzero(middles > starts))
    chunk = Chunk(form, int(size.sum()), with_data, rejected, files)
    return Census(groups, rejected, total, chunk)


def _keys(columns: Sequence[pa.ChunkedArray]) -> tuple[list[KeyText | None], np.ndarray]:
    """The texts of all keys, each once, None for what cannot be one; and whose row each is."""
    of_columns = [_encoded(column) for column in columns]
    key_of = of_columns[0][1]
    firsts = np.arange(len(of_columns[0][0]))[:, None]
    for values, value_of in of_columns[1:]:
        pairs, key_of = np.unique(key_of * len(values) + value_of, return_inverse=True)
        firsts = np.column_stack((firsts[pairs // len(values)], pairs % len(values)))
    chosen = (
        [v[i] for i in of_each]
        for (v, _), of_each in zip(of_columns, firsts.T.tolist(), strict=True)
    )
    name: Callable[[Any], KeyText | None] = _name
    longest = sum(max(map(len, filter(None, v)), default=0) for v, _ in of_columns)
    if 4 * longest <= KEY_BYTES_MAX and not any(None in v for v, _ in of_columns):
        name = key_text
    return list(map(name, zip(*chosen, strict=True))), key_of


def _encoded(values: pa.ChunkedArray) -> tuple[list[str | None], np.ndarray]:
    """The texts of a column, each once, and which of them each row has."""
    encoded = pc.dictionary_encode(values, null_encoding="encode").combine_chunks()
    return texts(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)


def _ranks(values: Sequence[str | None]) -> np.ndarray:
    """The place of each text in their order."""
    ranks = np.empty(len(values), np.int64)
    sortable = [value or "" for value in values]
    ranks[sorted(range(len(values)), key=sortable.__getitem__)] = np.arange(len(values))
    return ranks


def _name(values: tuple[str | None, ...]) -> KeyText | None:
    """The text of a key; None where it cannot be one."""
    if None in values or _too_long(values):
        return None
    return key_text(values)  # type: ignore[arg-type] # none of them is None


def _too_long(values: tuple[str | None, ...]) -> bool:
    if 4 * len("".join(filter(None, values))) <= KEY_BYTES_MAX:
        return False
    return sum(len(text.encode()) for text in values if text is not None) > KEY_BYTES_MAX
