"""What could not be processed, kept whole with the reason: `state/dead_letters/UNIT/*.jsonl`.

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
from flux_runtime.spark.feed import COUNT, ENVELOPE, MALFORMED, UNREADABLE, UNREADABLE_TEXT
from flux_runtime.spark.frames import column

UNREADABLE_RECORD: Final = "unreadable"
LATE: Final = "late"
UNKNOWN: Final = "unknown_producer"
NO_KEY: Final = "no_key"
NO_PRODUCER: Final = "no_producer"
NO_COUNT: Final = "no_count"
BEHIND_WATERMARK: Final = "behind_watermark"

RULES: Final[Mapping[str, str | None]] = {
    UNREADABLE_RECORD: None,
    NO_KEY: None,
    NO_PRODUCER: None,
    NO_COUNT: "SE-1",
    BEHIND_WATERMARK: None,
    LATE: "SE-5",
    UNKNOWN: "SE-7",
}
"""Reason -> the rule it follows from."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of one unit."""

    storage: Storage
    unit: str

    def keep(
        self, name: str, stream: str, batch: int | None, letters: Iterable[tuple[str, Any]]
    ) -> int:
        """Write (reason, record) pairs to the file of that name; how many there were."""
        lines = [
            json.dumps(
                {
                    "stream": stream,
                    "unit": self.unit,
                    "reason": reason,
                    "rule": RULES[reason],
                    "batch": batch,
                    "time": round(time.time(), 3),
                    "record": record,
                },
                ensure_ascii=False,
            )
            for reason, record in letters
        ]
        if lines:
            self.storage.write(f"{name}.jsonl", ("\n".join(lines) + "\n").encode())
        return len(lines)


def letters(rows: DataFrame, reason: Column) -> Iterable[tuple[str, Any]]:
    """(reason, record) of the rows whose reason is not null; records are whole."""
    own = [c for c in rows.columns if c not in (*ENVELOPE, UNREADABLE_TEXT)]
    text = sf.col(UNREADABLE_TEXT) if UNREADABLE_TEXT in rows.columns else sf.lit(None)
    chosen = rows.select(
        reason.alias("reason"),
        sf.to_json(sf.struct(*map(column, own)), {"ignoreNullFields": "false"}).alias("record"),
        text.cast("string").alias("text"),
    ).where("reason IS NOT NULL")
    for row in chosen.toLocalIterator():
        yield row.reason, json.loads(row.record) if row.text is None else row.text


def reason_of(key: Iterable[str], producer: str, *, late: str, unknown: str) -> Column:
    """Why a row cannot be processed; null where it can.

    Args:
        key: the key columns.
        producer: the producer column.
        late: SQL condition of late rows.
        unknown: SQL condition of rows of unknown producers.
    """
    no_key = " OR ".join(f"{column(k)} IS NULL" for k in key)
    return sf.expr(
        f"CASE WHEN {COUNT} = {UNREADABLE} THEN '{UNREADABLE_RECORD}'"
        f" WHEN {no_key} THEN '{NO_KEY}'"
        f" WHEN {producer} IS NULL THEN '{NO_PRODUCER}'"
        f" WHEN {COUNT} = {MALFORMED} THEN '{NO_COUNT}'"
        f" WHEN {late} THEN '{LATE}'"
        f" WHEN {unknown} THEN '{UNKNOWN}' END"
    )
