"""The set of rows that a unit has put out, so that it puts out only what is new.

Rows are kept in sorted runs, by the hash of all their columns: a micro-batch reads those whose
hashes its own candidates have. Where two values can be equal with different hashes (texts under a
collation), all rows are compared with all.

What is new is written down before it is committed. A crash in between finds it written, so that
what is remembered and what was committed are the same rows even if the component, asked again, were
to answer something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    StructType,
)

from flux_runtime.sealing.manifest import Manifest, check
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.frames import column
from flux_runtime.spark.stateful import runs
from flux_runtime.spark.stateful.catalogue import Begun, Catalogue, Part
from flux_runtime.spark.stateful.logical_plan import comparable
from flux_runtime.spark.stateful.parts import STAGED, Parts, read_column, read_tables
from flux_runtime.spark.stateful.runs import HASH

PUT_OUT: Final = "put out"
"""What the rows are called in the catalogue."""
RESULTS: Final = "results"
"""Where new rows are, before they are committed."""
_HASH: Final = f"{HASH}_0"


class PutOut:
    """The rows that a unit has put out.

    Args:
        session: to read and write with.
        storage: the unit's folder.
        parts: of the unit.
        catalogue: of the unit.
        schema: of the rows.
    """

    def __init__(
        self,
        session: SparkSession,
        storage: Storage,
        parts: Parts,
        catalogue: Catalogue,
        schema: StructType,
    ) -> None:
        self._session = session
        self._storage = storage
        self._parts = parts
        self._remedy = catalogue.remedy
        self._schema = schema
        self._columns = [*map(column, schema.fieldNames())]
        self._hashed = all(_hashable(field.dataType) for field in schema.fields)

    def write_new(self, output: DataFrame, batch: int) -> Manifest:
        """Write down the rows, as a set, that have not been put out before."""
        candidates = output.select(self._columns).distinct()
        target = _result(batch)
        if not self._hashed:
            parts = self._parts.of(PUT_OUT)
            self._parts.check(parts)
            known = [part.name for part in parts]
            self._write(candidates.subtract(self._read(*known)) if known else candidates, target)
            return self._taken(target)
        staged = f"{STAGED}/candidates"
        self._write(candidates, staged)
        hashes = runs.distinct(read_column(self._parts.files(staged), _HASH))
        alike = self._parts.staged("known", self._parts.select(PUT_OUT, hashes))
        if alike is None:
            self._storage.delete(target)
            self._storage.move(staged, target)
        else:
            self._write(self._read(staged).subtract(self._read(alike)), target)
        return self._taken(target)

    def new(self, begun: Begun) -> DataFrame | None:
        """The rows of `write_new`; None: there are none."""
        assert begun.result is not None
        name = _result(begun.batch)
        check(self._storage, name, begun.result.files, remedy=self._remedy)
        return self._read(name) if begun.result.rows else None

    def keep(self, begun: Begun) -> list[Part]:
        """The new rows as parts, on the disk, and not in the catalogue yet."""
        assert begun.result is not None
        if not begun.result.rows:
            return []
        name = _result(begun.batch)
        if not self._hashed:
            return [self._parts.moved(name, 0)]
        tables = read_tables(self._parts.files(name), (), None)
        renamed = (table.rename_columns({_HASH: HASH}) for table in tables)
        return [self._parts.new_run([runs.sorted_by_hash(table)], 0) for table in renamed]

    def merged(self, parts: Sequence[Part]) -> Part:
        """One part that holds what some hold."""
        level = parts[0].level + 1
        if self._hashed:
            return self._parts.new_run(runs.merged([*map(self._parts.run, parts)]), level)
        self._parts.check(parts)
        rows = self._read(*(part.name for part in parts)).coalesce(1)
        return self._parts.new_folder(rows.write.mode("overwrite").parquet, level)

    def _write(self, rows: DataFrame, folder: str) -> None:
        if self._hashed:
            rows = rows.select("*", sf.xxhash64(*self._columns).alias(_HASH))
        writer = rows.write.mode("overwrite").option("compression", "lz4_raw")
        writer.parquet(self._parts.uri(folder))

    def _read(self, *names: str) -> DataFrame:
        return self._session.read.schema(self._schema).parquet(*map(self._parts.uri, names))

    def _taken(self, folder: str) -> Manifest:
        return self._parts.as_part(folder, 0).manifest


def _result(batch: int) -> str:
    return f"{RESULTS}/{batch:09d}"


def _hashable(of: DataType) -> bool:
    """Whether equal values have equal hashes."""
    match of:
        case ArrayType():
            return _hashable(of.elementType)
        case StructType():
            return all(_hashable(field.dataType) for field in of.fields)
        case FloatType() | DoubleType():
            return True  # -0.0 is hashed as 0.0, and one NaN as the other
        case _:
            return comparable(of)
