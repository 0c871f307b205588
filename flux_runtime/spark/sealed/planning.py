"""Columns that a sealed unit needs of its inputs, found out by planning it on no rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.context import file_name
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.feed import COUNT, PRODUCER, Origin
from flux_runtime.spark.frames import Operator, columns_read, union
from flux_runtime.spark.key_columns import refusal
from flux_runtime.spark.units import SealUnit, in_channel, no_rows

KEEP_ALL: Final = "BLAZES_KEEP_ALL_COLUMNS"
"""Environment variable that, when set, has whole records buffered."""


def columns_needed(
    unit: SealUnit, session: SparkSession, folder: Storage, origin: Origin
) -> frozenset[str] | None:
    """The columns of an origin that the component reads; None: all, or it cannot be said.

    Args:
        unit: the unit.
        session: to plan with.
        folder: where files without rows are put.
        origin: one of those it waits for.
    """
    if os.environ.get(KEEP_ALL):
        return None
    files, paths = {}, {}
    for name, waiting in unit.waiting().items():
        schema = in_channel(waiting.schema(session))
        paths[name] = folder.uri(file_name(name))
        folder.write(f"{file_name(name)}/_no_rows", b"")  # Spark passes over such names
        files[name] = session.read.schema(schema).parquet(paths[name])

    def plan(frames: Mapping[str, DataFrame]) -> DataFrame:
        first = first_step(unit)
        if first is not None and not has_digest(origin) and not identity_of(origin):
            return first(frames[origin.name])
        waiting = {
            interface: union([f.apply(frames[f.origin.name].drop(PRODUCER, COUNT)) for f in feeds])
            for interface, feeds in unit.waits.items()
        }
        reading = {
            interface: union([no_rows(session, feed) for feed in feeds])
            for interface, feeds in unit.reads.items()
        }
        return unit.compute(unit.arranged(waiting) | reading)

    read = columns_read(plan, files, paths).get(origin.name)
    return None if read is None else (read | {*identity_of(origin)}) - {PRODUCER, COUNT}


def first_step(unit: SealUnit) -> Operator | None:
    """The first step of a partial aggregate, on the rows of the one waiting interface."""
    if unit.partial is None:
        return None
    (interface,), first = unit.waits, unit.partial[0]
    return lambda rows: first(**{interface: rows})


def has_digest(origin: Origin) -> bool:
    """Whether an origin's punctuations carry digests."""
    return (
        isinstance(origin, Source)
        and origin.punctuation is not None
        and origin.punctuation.digest is not None
    )


def identity_of(origin: Origin) -> tuple[str, ...]:
    """The columns that identify a record of an origin; none: each record is one of its own.

    Inside a job nothing comes twice: only sources can have them.
    """
    return origin.id if isinstance(origin, Source) else ()


def check_key(unit: SealUnit, name: str, key: Sequence[str], schema: StructType) -> None:
    """Return if an input has the key's attributes, with types that can be a key's.

    Raises:
        ValueError: naming the attribute.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for attribute in key:
        if attribute not in types:
            raise ValueError(f"{unit.name} is sealed on {attribute}, which {name} does not have")
        problem = refusal(types[attribute])
        if problem is not None:
            raise ValueError(f"{unit.name} is sealed on {attribute}, which in {name} {problem}")
