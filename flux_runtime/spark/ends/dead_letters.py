"""Dead letters, kept whole with the reason: `state/dead_letters/UNIT/*.jsonl`.

One file for each micro-batch that had any, written in one step and written anew when the
micro-batch is replayed, so that nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.feed import (
    COUNT,
    ENVELOPE,
    MALFORMED,
    PRODUCER,
    UNREADABLE,
    UNREADABLE_TEXT,
)
from flux_runtime.spark.frames import column
from flux_runtime.spark.key_columns import KeyColumns, usable

REASON: Final = "__reason"
"""A column that says why a row cannot be processed."""

UNREADABLE_RECORD: Final = "unreadable"
LATE: Final = "late"
UNKNOWN: Final = "unknown_producer"
NO_KEY: Final = "no_key"
BAD_KEY: Final = "bad_key"
"""Not valid UTF-8, or longer than a key may be."""
NO_PRODUCER: Final = "no_producer"
BAD_PRODUCER: Final = "bad_producer"
NO_COUNT: Final = "no_count"
DISCARDED: Final = "discarded"
"""A person discarded the partition."""
BEHIND_WATERMARK: Final = "behind_watermark"
UNPROCESSABLE: Final = "unprocessable"
"""A component on Flux sites cannot process it."""

RULES: Final[Mapping[str, str | None]] = {
    UNREADABLE_RECORD: None,
    NO_KEY: None,
    BAD_KEY: None,
    NO_PRODUCER: None,
    BAD_PRODUCER: None,
    NO_COUNT: "SE-1",
    BEHIND_WATERMARK: None,
    UNPROCESSABLE: None,
    LATE: "SE-5",
    UNKNOWN: "SE-7",
    DISCARDED: "SE-6",
}
"""Reason -> the rule it follows from."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of one unit."""

    storage: Storage
    unit: str

    def keep(
        self,
        name: str,
        stream: str,
        batch: int | None,
        letters: Iterable[tuple[str, Any] | tuple[str, Any, str]],
    ) -> int:
        """Write (reason, record), or (reason, record, why), to the file of that name.

        Returns:
            How many there were.
        """
        lines = [
            json.dumps(
                {
                    "stream": stream,
                    "unit": self.unit,
                    "reason": reason,
                    "rule": RULES[reason],
                    "batch": batch,
                    "time": round(time.time(), 3),
                    **dict(zip(("why",), why, strict=False)),
                    "record": record,
                },
                ensure_ascii=False,
            )
            for reason, record, *why in letters
        ]
        if lines:
            self.storage.write(f"{name}.jsonl", ("\n".join(lines) + "\n").encode())
        return len(lines)


def dead_letter_rows(rows: DataFrame, reason: Column) -> Iterable[tuple[str, Any]]:
    """(reason, record) of the rows whose reason is not null; records are whole."""
    own = [c for c in rows.columns if c not in (*ENVELOPE, UNREADABLE_TEXT, REASON)]
    text = sf.col(UNREADABLE_TEXT) if UNREADABLE_TEXT in rows.columns else sf.lit(None)
    chosen = rows.select(
        reason.alias("reason"),
        sf.to_json(sf.struct(*map(column, own)), {"ignoreNullFields": "false"}).alias("record"),
        text.cast("string").alias("text"),
    ).where("reason IS NOT NULL")
    for row in chosen.toLocalIterator():
        yield row.reason, json.loads(row.record) if row.text is None else row.text


def reason_of(key: KeyColumns, *, otherwise: Column | None = None, producer: bool = True) -> Column:
    """Why a row cannot be processed; null where it can.

    Args:
        key: the key columns.
        otherwise: the reason, or null, of rows that have nothing wrong in themselves.
        producer: rows have a producer.
    """
    count = sf.col(COUNT)
    reason = sf.when(count == UNREADABLE, UNREADABLE_RECORD)
    reason = reason.when(~key.present(), NO_KEY).when(~key.usable(), BAD_KEY)
    if producer:
        name = sf.col(PRODUCER).cast("string")
        reason = reason.when(name.isNull(), NO_PRODUCER).when(~usable(name), BAD_PRODUCER)
    reason = reason.when(count == MALFORMED, NO_COUNT)
    return reason.otherwise(sf.lit(None).cast("string") if otherwise is None else otherwise)
