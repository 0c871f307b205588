"""A `python:` component as an operator: a function of DataFrames that maps batches.

On Spark the function returns `mapInPandas` or `mapInArrow` of its input, one after another, and
Spark calls what is handed to these with an iterator of batches. A site calls the same function with
a `SiteFrame`, once, to learn what maps the batches, and then that with every batch. What comes of a
record depends on no other, so how records are divided into batches makes no difference, and nothing
is kept. pandas frames are made and read by PySpark's own code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from flux_runtime.operators.query import put_out
from flux_runtime.operators.rows import SN, Batch, ints
from flux_runtime.operators.unprocessable import MACHINE, reason_of

BATCH_ROWS: Final = 10_000
"""Rows of a batch that a function is handed, as Spark's default."""
Batches = Iterator[Any]


@dataclass(frozen=True, kw_only=True)
class FunctionPlan:
    """A function and what it is applied to.

    Attributes:
        function: `module:name`.
        columns: (column, Arrow type) of the records; TIMESTAMP is in UTC.
        output: (column, Arrow type) of what it puts out.
        schemas: schema as text -> schema, of all that it names.
    """

    function: str
    columns: tuple[tuple[str, Any], ...]
    output: tuple[tuple[str, Any], ...]
    schemas: Mapping[str, StructType] = field(default_factory=dict)


class SiteFrame:
    """The DataFrame that a site hands to a function: it can be mapped in batches, and no more.

    Args:
        schemas: schema as text -> schema.
        maps: what maps its batches, in turn, and the Arrow schema of what comes of it.
    """

    def __init__(
        self,
        schemas: Mapping[str, StructType],
        maps: tuple[tuple[Callable[[Batches], Batches], Any], ...] = (),
    ) -> None:
        self.schemas = schemas
        self.maps = maps

    def mapInArrow(self, func: Callable[..., Any], schema: StructType | str) -> SiteFrame:  # noqa: N802
        """See `pyspark.sql.DataFrame.mapInArrow`."""
        return self._with(_in_arrow, func, schema)

    def mapInPandas(self, func: Callable[..., Any], schema: StructType | str) -> SiteFrame:  # noqa: N802
        """See `pyspark.sql.DataFrame.mapInPandas`."""
        return self._with(_in_pandas, func, schema)

    def _with(
        self, way: Callable[..., Batches], func: Callable[..., Any], schema: StructType | str
    ) -> SiteFrame:
        of = self.schemas[schema] if isinstance(schema, str) else schema
        due = to_arrow_schema(of, timezone="UTC")
        return SiteFrame(self.schemas, (*self.maps, (partial(way, func, of, due), due)))


class BatchFunction:
    """The operator of one partition.

    Args:
        plan: what runs.
        replica: number of the replica, from 1; None where there is one instance only.
    """

    def __init__(self, plan: FunctionPlan, *, replica: int | None = None) -> None:
        self.replica = replica
        self._maps = mapped(plan).maps
        self._columns = pa.schema(plan.columns)
        self._output = pa.schema(plan.output)

    def refusals(self, batch: Batch) -> list[tuple[int, Exception]]:
        """None: it looks at every record."""
        return []

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        rows = pa.Table.from_batches([batch.select(self._columns.names)]).cast(self._columns)
        for function, columns in self._maps:
            # Spark's rows are batched anew before every function, too
            batches = rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
            given = (batch for batch in batches if batch.num_rows)
            rows = pa.Table.from_batches(function(given), columns)
        results = rows.rename_columns(self._output.names).cast(self._output)
        number, offset = (int(ints(batch, name)[-1]) if batch.num_rows else 0 for name in SN[:2])
        return put_out(results, number, offset, self.replica)

    def undo(self) -> None:
        """Nothing is kept."""

    def is_of_record(self, error: Exception) -> bool:
        """Everything but what the machine lacks."""
        return not isinstance(error, MACHINE)

    def get_state(self) -> None:
        """There is none."""

    def install_state(self, state: None) -> None:
        """There is none."""

    def state_size(self) -> int:
        """There is none."""
        return 0


def mapped(plan: FunctionPlan) -> SiteFrame:
    """The frame that the function gives for one of a site.

    Raises:
        ValueError: there is no such function, or it asks for more than sites have.
    """
    module, _, name = plan.function.partition(":")
    try:
        frame = getattr(importlib.import_module(module), name)(SiteFrame(plan.schemas))
    except Exception as error:
        raise ValueError(f"{plan.function}: {reason_of(error)}") from error
    if not isinstance(frame, SiteFrame):
        raise ValueError(f"{plan.function} returns {type(frame).__name__}, and no frame of a site")
    return frame


def _in_arrow(function: Callable[..., Any], _: StructType, due: Any, batches: Batches) -> Batches:
    """`mapInArrow`: Spark takes the columns by their places, whatever their names."""
    for batch in _iterator(function(batches)):
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"a pyarrow.RecordBatch is due, and {type(batch).__name__} was put out")
        if batch.num_columns < len(due):
            raise TypeError(f"{len(due)} columns are due, and {batch.num_columns} were put out")
        columns = [
            _as(column, wanted)
            for column, wanted in zip(batch.columns[: len(due)], due, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=due)


def _as(column: Any, wanted: Any) -> Any:
    """A column in the type of a field, where Spark takes it for one."""
    plain = pa.schema([pa.field("x", _plain(column.type))])
    if pa.types.is_null(column.type) or from_arrow_schema(plain) == from_arrow_schema(
        pa.schema([pa.field("x", _plain(wanted.type))])
    ):
        return column.cast(wanted.type)
    raise TypeError(f"{wanted.name} is {column.type}, and {wanted.type} is due")


def _plain(of: Any) -> Any:
    """The type without what Spark does not look at: a time zone's name, a decimal's precision."""
    if pa.types.is_timestamp(of) and of.unit == "us":
        return pa.timestamp("us", "UTC")
    return pa.decimal128(38, of.scale) if pa.types.is_decimal(of) else of


def _in_pandas(
    function: Callable[..., Any], schema: StructType, due: Any, batches: Batches
) -> Batches:
    """`mapInPandas`: columns by name where one has a name, else by their places."""
    import pandas as pd
    from pyspark.sql.conversion import PandasToArrowConversion

    for frame in _iterator(function(map(_frame, batches))):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"a pandas.DataFrame is due, and {type(frame).__name__} was put out")
        if frame.empty and not len(frame.columns):
            continue
        by_name = any(isinstance(name, str) for name in frame.columns)
        names = list(frame.columns[: len(due)])
        if set(names) != set(due.names) if by_name else len(names) != len(due):
            listed = ", ".join(map(str, names))
            raise TypeError(f"columns {', '.join(due.names)} are due, and {listed} were put out")
        batch = PandasToArrowConversion.convert(
            frame, schema, timezone="UTC", arrow_cast=True, assign_cols_by_name=True
        )
        yield pa.RecordBatch.from_arrays(batch.columns, schema=due)


def _frame(batch: Any) -> Any:
    """A batch as the pandas frame that `mapInPandas` hands over."""
    import pandas as pd
    from pyspark.sql.conversion import ArrowArrayToPandasConversion

    if not batch.num_columns:
        return pd.DataFrame(index=np.arange(batch.num_rows))
    # in one, as in Spark: the type of one column decides how the others are converted
    return ArrowArrayToPandasConversion.convert(
        batch.to_struct_array(),
        from_arrow_schema(batch.schema),
        timezone="UTC",
        struct_in_pandas="dict",
        df_for_struct=True,
    )


def _iterator(results: Any) -> Iterator[Any]:
    if not isinstance(results, Iterable):
        raise TypeError(f"an iterator is due, and {type(results).__name__} was returned")
    return iter(results)
