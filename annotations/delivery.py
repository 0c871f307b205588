"""How often a source delivers a record, and where a second delivery would be counted.

Order and number are different questions: a seal waits until all records of a partition are there,
and takes a record that comes twice for two of them, unless an `id` tells that it is one.
"""

from __future__ import annotations

from typing import Final

from annotations.dataflow import Stream

ONCE: Final = frozenset(
    {
        *("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"),
        *("delta", "iceberg", "table"),
        *("rate", "rate-micro-batch"),
    }
)
"""Formats whose streaming source delivers each record once. Others may hold a record twice: Spark
reads each offset of a topic once, but the topic may have got the record again."""


def may_repeat(stream: Stream) -> bool:
    """True for a source that may deliver a record again: as it is declared, else by its format."""
    if stream.producer is not None:
        return False
    if stream.delivery is not None:
        return stream.delivery == "may-repeat"
    return stream.source is not None and stream.source.format.lower() not in ONCE


def counts(stream: Stream) -> bool:
    """True where partitions are complete by the counts of punctuations.

    A stream that has only a promise of lateness is sealed by a watermark, which counts nothing.
    """
    return bool(stream.seals) and (stream.punctuation is not None or stream.lateness is None)
