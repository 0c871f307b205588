"""The buffer of a sealed input: one durable chunk per micro-batch, its census, its records.

A chunk holds data records and punctuations, reduced to the columns that the component reads, or
their partial aggregates. It is named after its micro-batch and written anew when that is replayed
(SE-10). One small job over the chunk then says who sent how many records for which key and what was
promised: exact whatever tasks were retried, and cheaper than observing the pairs while writing.
Where the chunk is at hand and of usual size, Arrow counts it without a Spark job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from flux_runtime.sealing.events import Group, KeyText
from flux_runtime.sealing.keys import key_text, key_values
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.counting import Counted, count_here, count_on_spark
from flux_runtime.spark.feed import COUNT, DATA, DIGEST, MALFORMED, PRODUCER, UNREADABLE
from flux_runtime.spark.frames import (
    Operator,
    among,
    column,
    empty,
    extended,
    literal,
    pruned,
    union,
)

ROWS: Final = "__rows"
"""In partial aggregates: how many records stand behind one of them."""

RECORDS: Final = "records"
PARTIALS: Final = "partials"
"""The two forms of a chunk, and the ends of its name."""


@dataclass(frozen=True, slots=True)
class Census:
    """What a chunk holds."""

    groups: tuple[Group, ...]
    rejected: int
    """Records without key or producer, unreadable ones, punctuations without a count."""
    rows: int
    size: int
    """Rows of the chunk itself; fewer than `rows` where it holds partial aggregates."""


class Buffer:
    """The chunks of one waiting input.

    Args:
        storage: the folder.
        schema: of the input's records.
        key: its key columns, in the order of the unit's key.
        producer_type: of its producers.
        keep: the columns that the component reads; None: all.
        digests: whether punctuations carry digests.
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
        partial: Operator | None = None,
    ) -> None:
        self._storage = storage
        self.schema = schema
        self._key = tuple(key)
        self._producer_type = producer_type
        wanted = set(schema.fieldNames()) if keep is None else {*keep, *key}
        self.columns: Sequence[str] = [f.name for f in schema.fields if f.name in wanted]
        self._envelope = [PRODUCER, COUNT, *([DIGEST] if digests else [])]
        self.partial = partial
        self._forms = dict(_parse(name) for name in storage.names())
        self._read_as: dict[str, StructType] = {}

    def write(self, rows: DataFrame, batch: int, *, partial: bool = False) -> None:
        """Write the chunk of a micro-batch, in place of what a crash may have left."""
        self.delete(batch)
        kept = rows.select([sf.col(column(c)) for c in (*self.columns, *self._envelope)])
        if partial:
            kept = self._aggregated(pruned(kept, self._enveloped(self.schema)))
        self._write(kept, batch, partial)

    def without(
        self, session: SparkSession, batch: int, pairs: Iterable[tuple[KeyText, str]]
    ) -> None:
        """Write the chunk anew without some (key, producer) pairs."""
        form = self._forms[batch]
        rest = self._read(session, [batch], form).where(f"NOT ({self._pairs(pairs)})")
        staged = self._storage.uri(f".{_name(batch, form)}")
        rest.write.mode("overwrite").parquet(staged)
        self.delete(batch)
        self._storage.move(f".{_name(batch, form)}", _name(batch, form))
        self._forms[batch] = form

    def census(self, session: SparkSession, batch: int) -> Census:
        """Who sent how many records for which key, and what was promised."""
        form = self._forms[batch]
        weight = ROWS if form == PARTIALS else None
        columns = [*self._key, *self._envelope]
        path = self._storage.uri(_name(batch, form))
        types = [*(self.schema[name].dataType for name in self._key), self._producer_type]
        counted = count_here(path, columns, weight, types)
        if counted is None:
            counted = count_on_spark(
                self._read(session, [batch], form), columns, weight, len(types)
            )
        return _census(counted, len(self._key))

    def records(
        self,
        session: SparkSession,
        batches: Iterable[int],
        keys: Iterable[KeyText],
        excluded: Iterable[tuple[KeyText, str]] = (),
    ) -> DataFrame:
        """The data records of partitions, with the input's schema; no partial aggregates."""
        chosen = self._data(session, batches, RECORDS, keys, excluded)
        return pruned(chosen, self.schema)

    def digestible(
        self, session: SparkSession, batches: Iterable[int], keys: Iterable[KeyText]
    ) -> DataFrame:
        """The data records of partitions, whole, with their producer."""
        return self._data(session, batches, RECORDS, keys, ())

    def partials(
        self,
        session: SparkSession,
        batches: Iterable[int],
        keys: Iterable[KeyText],
        excluded: Iterable[tuple[KeyText, str]] = (),
    ) -> DataFrame:
        """The partial aggregates of partitions, made now for chunks that hold records."""
        batches, keys, excluded = list(batches), list(keys), list(excluded)
        parts = []
        if any(self._forms[b] == PARTIALS for b in batches):
            parts.append(self._data(session, batches, PARTIALS, keys, excluded))
        if any(self._forms[b] == RECORDS for b in batches) or not parts:
            raw = self._data(session, batches, RECORDS, keys, excluded)
            parts.append(self._aggregated(pruned(raw, self._enveloped(self.schema))))
        return union(parts)

    def delete(self, batch: int) -> None:
        """Delete a chunk, whatever its form; nothing if there is none."""
        for form in (RECORDS, PARTIALS):
            self._storage.delete(_name(batch, form))
        self._forms.pop(batch, None)

    def batches(self) -> list[int]:
        """The micro-batches that have a chunk."""
        return sorted(self._forms)

    # ---- parts

    def _aggregated(self, rows: DataFrame) -> DataFrame:
        assert self.partial is not None
        return self.partial(rows)

    def _write(self, rows: DataFrame, batch: int, partial: bool) -> None:
        form = PARTIALS if partial else RECORDS
        self._read_as[form] = rows.schema
        (
            rows.write.mode("overwrite")
            .option("compression", "lz4")
            .parquet(self._storage.uri(_name(batch, form)))
        )
        self._forms[batch] = form

    def _read(self, session: SparkSession, batches: Iterable[int], form: str) -> DataFrame:
        paths = [self._storage.uri(_name(b, form)) for b in batches if self._forms[b] == form]
        if form not in self._read_as:
            self._read_as[form] = self._form_schema(session, form)
        reader = session.read.schema(self._read_as[form])
        return reader.parquet(*paths) if paths else empty(session, self._read_as[form])

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
        self,
        session: SparkSession,
        batches: Iterable[int],
        form: str,
        keys: Iterable[KeyText],
        excluded: Iterable[tuple[KeyText, str]],
    ) -> DataFrame:
        among_keys = among(self.schema, self._key, map(key_values, keys))
        condition = f"{COUNT} = {DATA} AND {PRODUCER} IS NOT NULL AND ({among_keys})"
        pairs = list(excluded)
        if pairs:
            condition += f" AND NOT ({self._pairs(pairs)})"
        return self._read(session, batches, form).where(condition)

    def _pairs(self, pairs: Iterable[tuple[KeyText, str]]) -> str:
        return pair_condition(self._enveloped(self.schema), self._key, pairs)


def pair_condition(
    schema: StructType, key: Sequence[str], pairs: Iterable[tuple[KeyText, str]]
) -> str:
    """The SQL condition that a row's key and producer are one of the given pairs; never null."""
    by_producer: dict[str, list[KeyText]] = {}
    for text, producer in pairs:
        by_producer.setdefault(producer, []).append(text)

    conditions = [
        f"({PRODUCER} = {literal(producer, schema[PRODUCER].dataType)}"
        f" AND {among(schema, key, map(key_values, keys))})"
        for producer, keys in by_producer.items()
    ]
    return f"coalesce({' OR '.join(conditions)}, false)" if conditions else "false"


def _census(counted: Iterable[Counted], key_length: int) -> Census:
    groups: list[Group] = []
    rejected = total = size = 0
    for values, rows, of_chunk in counted:
        key, (producer, count, *digest) = values[:key_length], values[key_length:]
        total += rows
        size += of_chunk
        if None in key or producer is None or count in (MALFORMED, UNREADABLE):
            rejected += rows
        else:
            groups.append(
                Group(
                    key_text(key),
                    producer,
                    None if count == DATA else count,
                    digest[0] if digest else None,
                    rows,
                )
            )
    groups.sort(key=lambda g: (g.key, g.producer, g.count is not None, g.count or 0))
    return Census(tuple(groups), rejected, total, size)


def _name(batch: int, form: str) -> str:
    return f"{batch:09d}.{form}"


def _parse(name: str) -> tuple[int, str]:
    batch, _, form = name.partition(".")
    return int(batch), form
