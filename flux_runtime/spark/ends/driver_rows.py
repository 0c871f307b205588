"""Rows that the driver holds: a few are written as Parquet right here, more become a DataFrame.

A job of Spark that writes a few thousand rows takes longer than sites take to make them, and has to
begin anew when an executor dies under it. What is written here is what Spark would have written:
the same types, compression and metadata, after the session's settings.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from flux_runtime.sealing.storage import local_path, make_folder

FEW_BYTES: Final = 8 << 20
"""What is smaller is one file."""
_INT96: Final = "INT96"
_CODECS: Final = {
    "snappy": ("snappy", ".snappy"),
    "zstd": ("zstd", ".zstd"),
    "gzip": ("gzip", ".gz"),
    "none": ("none", ""),
    "uncompressed": ("none", ""),
}
"""Spark's name of a codec -> Arrow's, and what a file's name says of it."""
_STAMPS: Final = (st.TimestampType, st.TimestampNTZType)
_PLAIN: Final = (
    st.BooleanType,
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.FloatType,
    st.DoubleType,
    st.DecimalType,
    st.StringType,
    st.BinaryType,
    st.DateType,
    *_STAMPS,
)


@dataclass(frozen=True, slots=True)
class DriverRows:
    """Rows in the driver's memory.

    Args:
        session: of the job.
        schema: of the rows; every column is nullable.
        table: the rows, in Arrow's types of that schema.
    """

    session: SparkSession
    schema: st.StructType
    table: pa.Table

    def frame(self) -> DataFrame:
        """As a DataFrame."""
        frame = self.session.createDataFrame(self.table, self.schema)
        return frame.coalesce(1) if self.few else frame

    @property
    def few(self) -> bool:
        """Whether they are one file."""
        return bool(self.table.nbytes < FEW_BYTES)

    @property
    def writable(self) -> bool:
        """Whether `write` does here what Spark would do."""
        stamps, kinds = self._setting("outputTimestampType"), self._stamps
        return (
            self.few
            and self._setting("compression.codec") in _CODECS
            and self._setting("writeLegacyFormat") == "false"
            and stamps in (_INT96, "TIMESTAMP_MICROS")
            and not (stamps == _INT96 and len(kinds) == len(_STAMPS))  # Arrow has one way for all
            and all(map(_plain, _parts(self.schema)))
        )

    def write(self, uri: str) -> None:
        """Write them into a folder, as one file of Parquet; the folder is emptied before."""
        codec, codec_name = _CODECS[self._setting("compression.codec")]
        zoned = st.TimestampType in self._stamps
        folder = local_path(uri)
        make_folder(folder)
        for old in folder.iterdir():
            old.unlink()
        options = {
            "compression": codec,
            "use_deprecated_int96_timestamps": zoned
            and self._setting("outputTimestampType") == _INT96,
            "store_decimal_as_integer": True,
            "store_schema": False,
        }
        file = folder / f"part-00000-{uuid.uuid4()}-c000{codec_name}.parquet"
        with pq.ParquetWriter(file, self.table.schema, **options) as writer:
            writer.write_table(self.table)
            writer.add_key_value_metadata(
                {
                    "org.apache.spark.version": self.session.version,
                    "org.apache.spark.sql.parquet.row.metadata": self.schema.json(),
                }
            )

    @property
    def _stamps(self) -> set[type]:
        """The kinds of timestamps among the columns and what they consist of."""
        return {type(of) for of in _parts(self.schema) if isinstance(of, _STAMPS)}

    def _setting(self, name: str) -> str:
        """The session's settings for Parquet."""
        return str(self.session.conf.get(f"spark.sql.parquet.{name}"))


def _parts(of: Any) -> list[Any]:
    """A type and all that it consists of."""
    inner: list[Any] = []
    if isinstance(of, st.StructType):
        inner = [field.dataType for field in of.fields]
    elif isinstance(of, st.ArrayType):
        inner = [of.elementType]
    elif isinstance(of, st.MapType):
        inner = [of.keyType, of.valueType]
    return [of, *(part for member in inner for part in _parts(member))]


def _plain(of: Any) -> bool:
    if isinstance(of, st.StringType):
        return bool(of == st.StringType())  # no collation, no length
    return isinstance(of, (*_PLAIN, st.StructType, st.ArrayType, st.MapType))
