"""Delta tables: rows that are committed exactly once, by the table's own application transactions.

The executors write the rows of a commit as Parquet files into the table's folder, where nobody sees
them. Then the driver adds them to the table's log in one entry, together with the number of the
commit, the epoch of the driver and the id of the state (Delta's `txn` actions). An entry is refused
where another one of the same unit came in between, so that of two drivers that make the same commit
one gets it, and a driver that was replaced makes none.

Disk, `s3://`, `abfss://` and `gs://` are reached by the `deltalake` package, with its options.
Files that a killed job has left beside the log are taken away by a VACUUM of the table.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from flux_runtime.commits.owner import Ownership
from flux_runtime.spark import faults
from flux_runtime.spark.ends.sinks import Claim, Note, SinkError, covers_digest, package

ATTEMPTS: Final = 10
"""So often an entry is tried anew that others of the same table, or of its schema, came before."""
_DIGITS: Final = 15
"""Hexadecimal digits of an id that a transaction's version (63 bits) holds."""
_FILES: Final = "path STRING, size BIGINT, rows BIGINT"
FEATURES: Final = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors"}
    | {"generatedColumns", "invariants", "timestampNtz", "v2Checkpoint"}
)
"""Features of tables that ask nothing of one who adds rows, where `RULES` are not in the way."""
RULES: Final = {
    "delta.invariants": "has a condition (an invariant)",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity",
}
"""What the metadata of a column may ask of a writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """A Delta table that a sink adds rows to.

    Args:
        name: of the sink.
        location: a path, or an address that the `deltalake` package knows.
        options: of the store, as that package takes them; of no meaning on a disk.
        ownership: the driver's claim; without one nothing can be committed.
    """

    exact: ClassVar[bool] = True
    needs_channel: ClassVar[bool] = True
    name: str
    location: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    ownership: Ownership | None = None

    @property
    def place(self) -> str:
        """The name that messages have for it."""
        return f"Delta table {self.location}"

    # ---- taking over

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> DeltaSink:
        """See `CommitSink`."""
        mine = replace(self, ownership=ownership)
        for unit in units:
            mine._take(unit)
        return mine

    def _take(self, unit: str) -> None:
        for _ in range(ATTEMPTS):
            table = self._open()
            if table is not None:
                self._check(table)
            note = self._note(table, unit)
            begins = self._claim.begins(note, unit)
            if table is None:  # made with its first rows
                return
            newest = (-1, "") if begins or note is None else (note.number, note.covers)
            if self._add(table, [], unit, *newest):
                return
        raise SinkError(f"sink {self.name}: {self.place} could not be taken over; too busy")

    # ---- commits

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`."""
        note = self._note(self._open(), unit)
        return None if note is None or note.number < 0 else note.number

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`."""
        return self.commit_files(
            unit, number, rows.schema.json(), lambda table: self._written(table, rows), covers
        )

    def commit_files(
        self,
        unit: str,
        number: int,
        schema: str,
        write: Callable[[Any], list[tuple[str, int, int]]],
        covers: Any = None,
    ) -> int:
        """A commit of files that a function writes into the table's folder; see `CommitSink`.

        Args:
            unit: who commits.
            number: of the commit.
            schema: of a table that is not there yet; JSON, as Spark and Delta write it.
            write: is handed the table; path, size in bytes and rows of each file.
            covers: what the rows are made of.
        """
        digest = covers_digest(covers)[:_DIGITS]
        files: list[tuple[str, int, int]] | None = None
        for _ in range(ATTEMPTS):
            self._owner.fence.check()
            table = self._open() or self._make(unit, schema)
            self._check(table)
            note = self._note(table, unit)
            begins = note is None and self._claim.begins(note, unit)  # another one made the table
            if not begins and self._claim.is_made(note, unit, number, digest):
                self._claim.note_commit(unit, number)
                return 0
            if files is None:
                self._fits(table, schema)
                faults.point("delta-begun")
                files = write(table)
                faults.point("delta-written")
            if self._add(table, files, unit, number, digest):
                faults.point("delta-committed")
                self._claim.note_commit(unit, number)
                return sum(count for _, _, count in files)
        raise SinkError(
            f"sink {self.name}: {self.place} did not take commit {number} of {unit} in {ATTEMPTS} "
            "attempts, as others change it all the time; the rows are kept in the state"
        )

    def _written(self, table: Any, rows: DataFrame) -> list[tuple[str, int, int]]:
        """Write the rows into the table's folder: path, size and rows of each file."""
        schema = pa.schema(table.schema().to_arrow())
        names = rows.columns
        location, options = self.location, dict(self.options)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            named = (batch.rename_columns(names) for batch in batches)
            file = write_file(named, location, options, schema)
            if file is not None:
                columns = zip(("path", "size", "rows"), file, strict=True)
                yield pa.RecordBatch.from_pydict({name: [value] for name, value in columns})

        numbered = rows.toDF(*(f"c{at}" for at in range(len(names))))  # no dots in names
        return [tuple(file) for file in numbered.mapInArrow(write, _FILES).collect()]

    def _make(self, unit: str, schema: str) -> Any:
        """Make the table, in the hands of this driver."""
        deltalake = self._deltalake
        if _maps_local_times(json.loads(schema)):  # its table could not be opened again
            raise SinkError(
                f"sink {self.name}: the deltalake package makes no table with TIMESTAMP_NTZ in a "
                f"MAP. Make {self.place} with Spark, or CAST to TIMESTAMP in the component"
            )
        try:
            return deltalake.DeltaTable.create(
                self.location,
                self._columns(schema),
                mode="error",
                storage_options=dict(self.options),
                commit_properties=self._properties(unit, -1, ""),
            )
        except deltalake.exceptions.DeltaError:
            table = self._open()  # another one was quicker
            if table is None:
                raise
            return table

    def _add(
        self, table: Any, files: list[tuple[str, int, int]], unit: str, number: int, covers: str
    ) -> bool:
        """Add an entry to the log; False: something that it has to know came in between."""
        deltalake = self._deltalake
        now = int(time.time() * 1000)
        actions = [
            deltalake.transaction.AddAction(
                path, size, {}, now, True, json.dumps({"numRecords": count})
            )
            for path, size, count in files
        ]
        try:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                commit_properties=self._properties(unit, number, covers),
            )
        except deltalake.exceptions.CommitFailedError:
            return False
        return True

    # ---- what the table asks for

    def _check(self, table: Any) -> None:
        """Refuse a table that asks more of a writer than to add rows."""
        metadata, asks = table.metadata(), []
        if metadata.partition_columns:
            asks.append(f"is partitioned by {', '.join(metadata.partition_columns)}")
        features = {*(table.protocol().writer_features or ())} - FEATURES
        asks += [f"has the feature {feature}" for feature in sorted(features)]
        for name, value in sorted(metadata.configuration.items()):
            if name.startswith("delta.constraints."):
                asks.append(f"has the condition {value}")
            elif name == "delta.columnMapping.mode" and value != "none":
                asks.append("has other names of columns in its files (column mapping)")
        columns = json.loads(table.schema().to_json())
        asks += [f"has a column that {RULES[key]}" for key in _metadata(columns) if key in RULES]
        if asks:
            raise SinkError(
                f"sink {self.name}: {self.place} {', '.join(dict.fromkeys(asks))}, which this "
                "writer does not see to; write to a table without that"
            )

    def _fits(self, table: Any, schema: str) -> None:
        """Refuse rows that the table's columns would hold as something else.

        Args:
            table: that the rows are for.
            schema: of the rows.
        """
        has = pa.schema(table.schema().to_arrow())
        given = pa.schema(self._columns(schema).to_arrow())
        unknown = [name for name in given.names if name not in has.names]
        if unknown:
            raise SinkError(
                f"sink {self.name}: {self.place} has no column {', '.join(unknown)}; it has "
                f"{', '.join(has.names)}. Add the columns, or name them alike in the dataflow"
            )
        for of in given:
            column = has.field(of.name)
            if not _holds(column.type, of.type):
                raise SinkError(
                    f"sink {self.name}: column {of.name} of {self.place} is {column.type}, and the "
                    f"rows have {of.type}. CAST it in the component to what the table has"
                )

    def _columns(self, schema: str) -> Any:
        """The columns of rows, as Delta has them."""
        try:
            columns = self._deltalake.Schema.from_json(schema)
            if re.search(
                r'[tT]ype": ?"interval ', columns.to_json()
            ):  # this package has them, and others do not
                raise ValueError("Delta has no intervals")
        except ValueError as error:
            raise SinkError(f"sink {self.name}: {self.place} cannot hold rows: {error}") from None
        return columns

    # ---- notes

    def _properties(self, unit: str, number: int, covers: str) -> Any:
        deltalake, claim = self._deltalake, self._claim
        writer = claim.writer(unit)
        versions = {
            writer: number,
            f"{writer}#epoch": claim.epoch,
            f"{writer}#state": _as_version(claim.state),
            f"{writer}#covers": _as_version(covers),
        }
        transactions = [deltalake.Transaction(app, version) for app, version in versions.items()]
        return deltalake.CommitProperties(app_transactions=transactions)

    def _note(self, table: Any, unit: str) -> Note | None:
        if table is None:
            return None
        writer = self._claim.writer(unit)
        number = table.transaction_version(writer)
        if number is None:
            return None
        epoch, state, covers = (
            table.transaction_version(f"{writer}#{part}") for part in ("epoch", "state", "covers")
        )
        mine = self._claim.state
        named = mine if state == _as_version(mine) else f"{state:0{_DIGITS}x}..."
        return Note(named, epoch, number, f"{covers:0{_DIGITS}x}" if covers else "")

    # ---- parts

    def _open(self) -> Any:
        """The table as it is now; None: there is none."""
        deltalake = self._deltalake
        try:
            return deltalake.DeltaTable(self.location, storage_options=dict(self.options))
        except deltalake.exceptions.TableNotFoundError:
            return None

    @property
    def _deltalake(self) -> Any:
        return package("deltalake", "delta", sink=self.name)

    @property
    def _owner(self) -> Ownership:
        if self.ownership is None:
            raise ValueError(f"nobody owns {self.location}")
        return self.ownership

    @property
    def _claim(self) -> Claim:
        return Claim(self.name, self.place, self._owner)


def write_file(
    batches: Iterable[pa.RecordBatch],
    location: str,
    options: Mapping[str, str],
    schema: pa.Schema,
) -> tuple[str, int, int] | None:
    """Write what a task has of the rows as one file; its path, size in bytes and rows.

    Args:
        batches: the rows.
        location: of the table.
        options: of its store.
        schema: of the table.

    Returns:
        None where there are no rows, and so no file.
    """
    from deltalake.fs import DeltaStorageHandler  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import fs

    path, rows, writer = f"part-{uuid.uuid4()}.parquet", 0, None
    files = fs.PyFileSystem(DeltaStorageHandler(location, dict(options)))
    for batch in batches:
        if batch.num_rows:
            table = _cast(pa.Table.from_batches([batch]), schema)
            writer = writer or pq.ParquetWriter(path, schema, filesystem=files)
            writer.write_table(table)
            rows += batch.num_rows
    if writer is None:
        return None
    writer.close()
    if "://" not in location:
        _flush(os.path.join(location, path))  # noqa: PTH118
    return path, files.get_file_info(path).size, rows


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of the table; those that they lack are NULL."""
    columns = [
        table[of.name].cast(of.type) if of.name in table.column_names
        else pa.nulls(table.num_rows, of.type)
        for of in schema
    ]  # fmt: skip
    return pa.table(columns, schema=schema)


def _holds(column: pa.DataType, given: pa.DataType) -> bool:
    """Whether values of a type are the same ones in a column, or an error where it is too small.

    >>> _holds(pa.int32(), pa.int64()), _holds(pa.float32(), pa.float64())
    (True, False)
    >>> _holds(pa.timestamp("us"), pa.timestamp("us", "UTC")), _holds(pa.string(), pa.int64())
    (False, False)
    """
    of = pa.types
    if of.is_struct(column) and of.is_struct(given):
        has = {member.name: member.type for member in column}
        return all(member.name in has and _holds(has[member.name], member.type) for member in given)
    if of.is_map(column) and of.is_map(given):
        return _holds(column.key_type, given.key_type) and _holds(column.item_type, given.item_type)
    if of.is_list(column) and of.is_list(given):
        return _holds(column.value_type, given.value_type)
    if of.is_integer(given):
        return bool(of.is_integer(column) or of.is_decimal(column) or of.is_floating(column))
    if of.is_decimal(given):
        return bool(of.is_decimal(column))
    return bool(column == given or (column, given) == (pa.float64(), pa.float32()))


def _maps_local_times(part: Any) -> bool:
    """Whether a schema, as JSON data, has a TIMESTAMP_NTZ in a MAP."""
    if isinstance(part, dict):
        is_map = part.get("type") == "map" and "timestamp_ntz" in json.dumps(part)
        return is_map or any(map(_maps_local_times, part.values()))
    return isinstance(part, list) and any(map(_maps_local_times, part))


def _metadata(part: Any) -> Iterator[str]:
    """The keys of the metadata of all fields of a schema, as JSON data."""
    if isinstance(part, dict):
        yield from part.get("metadata", ())
        part = [*part.values()]
    for part_of in part if isinstance(part, list) else ():
        yield from _metadata(part_of)


def _flush(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _as_version(digits: str) -> int:
    """An id as the version of a transaction.

    >>> _as_version("00ff"), _as_version("")
    (255, 0)
    """
    return int(digits[:_DIGITS] or "0", 16)
