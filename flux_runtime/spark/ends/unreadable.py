"""Unreadable records of inputs that are not buffered: noticed in the same pass, kept as letters.

A gate finds them in its buffer. Other units see only what could be read; here the texts of the rest
are collected while the micro-batch runs, and read off its execution before anything is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.spark.context import file_name
from flux_runtime.spark.ends.dead_letters import UNREADABLE_RECORD, DeadLetters
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.feed import COUNT, UNREADABLE, UNREADABLE_TEXT, Feed
from flux_runtime.spark.query import Query
from flux_runtime.spark.units import data_of


class Watch:
    """The streams of one query's feeds, with their unreadable records watched.

    Args:
        session: to open the streams in.
        letters: where the records go.
        name: of the query.
    """

    def __init__(self, session: SparkSession, letters: DeadLetters, name: str) -> None:
        self._session = session
        self._name = name
        self._letters = letters
        self._watched: list[str] = []

    def stream(self, feed: Feed, *, arriving: bool = False) -> DataFrame:
        """The data records of a feed's origin; with the time of their arrival, of a source."""
        rows = _arriving(feed, self._session) if arriving else feed.origin.stream(self._session)
        name = feed.origin.name
        if UNREADABLE_TEXT in rows.columns and name not in self._watched:
            texts = sf.when(sf.col(COUNT) == UNREADABLE, sf.col(UNREADABLE_TEXT))
            rows = rows.observe(_metric(name), sf.collect_list(texts).alias("texts"))
            self._watched.append(name)
        return data_of(rows)

    def keep(self, query: Query, batch: int) -> int:
        """Write the unreadable records of the running micro-batch down; how many there were."""
        count = 0
        for name in self._watched:
            texts = _observed(query, _metric(name))
            letters = ((UNREADABLE_RECORD, text) for text in texts)
            count += self._letters.keep(
                f"unreadable-{file_name(self._name)}-{file_name(name)}-{batch:09d}",
                name,
                batch,
                letters,
            )
        return count


def _arriving(feed: Feed, session: SparkSession) -> DataFrame:
    assert isinstance(feed.origin, Source)
    return feed.origin.arriving(session)


def _metric(name: str) -> str:
    return f"unreadable records of {name}"


def _observed(query: Query, metric: str) -> Iterable[str]:
    execution: Any = query.running._jsq.streamingQuery().lastExecution()
    row = execution.observedMetrics().get(metric)
    if row.isEmpty():
        return []
    return list(row.get().getList(0))
