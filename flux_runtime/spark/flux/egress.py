"""The egress: a streaming source that reads a far side's results in order, exactly once.

    session.dataSource.register(EgressSource)
    session.readStream.format("flux-egress").schema("sn_batch BIGINT, sn_offset BIGINT, ...")
        .options(**egress_options("report", far_side_options(...))).load()

Offsets are the far side's: what lies between two of them never changes, so a micro-batch that is
done again reads the same rows. They are committed to the far side, which may forget then, when
Spark has noted the micro-batch as done. Rows come in one partition, in the order of the far side;
`sn_batch` and `sn_offset` in the schema are their sequence numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
from pyspark.sql.types import StructType

from flux_runtime.spark import faults
from flux_runtime.spark.flux.far_side import EgressEnd, open_far_side

FORMAT: Final = "flux-egress"
BATCH_BYTES: Final = 16 << 20
"""About what a micro-batch reads at most."""
_POLL_S: Final = 0.05
_READ_S: Final = 60.0


def egress_options(
    reader: str, far_side: Mapping[str, str], *, batch_bytes: int = BATCH_BYTES
) -> dict[str, str]:
    """The source's options.

    Args:
        reader: name of the reader on the far side; it survives restarts.
        far_side: see `far_side_options`.
        batch_bytes: about what a micro-batch reads at most.
    """
    return {"reader": reader, "batchbytes": str(batch_bytes), **far_side}


class EgressSource(DataSource):
    """The streaming source `flux-egress`; options as `egress_options` gives them."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of a query."""
        return EgressReader(dict(self.options), schema)


@dataclass
class Stretch(InputPartition):
    """The results between two offsets."""

    start: int
    end: int


class EgressReader(DataSourceStreamReader):
    """Plans at the driver, reads in a task."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        if not options.get("reader"):
            raise ValueError("option reader is missing")
        self._options = dict(options)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._end: EgressEnd | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        return {"offset": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a micro-batch reads at most."""
        return ReadMaxBytes(int(self._options.get("batchbytes", BATCH_BYTES)))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends: after what the limit allows, or all there is."""
        end = start["offset"]
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else BATCH_BYTES
        while True:
            before = end
            end, _, _ = self._connection().read(before, timeout_s=_POLL_S, max_bytes=size)
            if end == before or not isinstance(limit, ReadAllAvailable):
                return {"offset": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One partition, so that the order is kept."""
        faults.point("egress-planned")
        if start["offset"] == end["offset"]:
            return []
        return [Stretch(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows between two offsets, as Arrow."""
        assert isinstance(partition, Stretch)
        far = open_far_side(self._options).egress(self._options["reader"])
        try:
            yield from self._between(far, partition)
        finally:
            far.close()
        faults.point("egress-read")

    def commit(self, end: dict[str, int]) -> None:
        """Spark has noted everything below as done."""
        faults.point("egress-commit-begins")
        self._connection().commit(end["offset"])
        faults.point("egress-committed")

    def stop(self) -> None:
        """The query ends."""
        if self._end is not None:
            self._end.close()
            self._end = None

    def _between(self, far: EgressEnd, wanted: Stretch) -> Iterator[Any]:
        at = wanted.start
        deadline = time.monotonic() + _READ_S
        while at < wanted.end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"results {at} to {wanted.end - 1} did not come back")
            at, found, _ = far.read(at, timeout_s=_READ_S)
            for number, rows in found:
                if number < wanted.end:
                    yield self._as_declared(rows)

    def _as_declared(self, rows: Any) -> Any:
        """The declared columns, in the declared types: Spark does not cast."""
        columns = [rows.column(field.name).cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _connection(self) -> EgressEnd:
        if self._end is None:
            self._end = open_far_side(self._options).egress(self._options["reader"])
        return self._end

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_end": None}
