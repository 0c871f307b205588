"""Large streams for the benchmarks: Parquet files in order of arrival, with punctuations in band.

Every producer takes part in every partition and has a speed of its own; a partition's records come
in a few steps, its punctuations with the last of them. The same arguments give the same files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blazes.demo.files import FIRST_ARRIVAL_S, empty, write_json

STEPS_OPEN: Final = 5
"""Steps in which a partition's records arrive, before what a slow producer adds."""
LAG: Final = 3
"""Steps that a slow producer may be behind, at most, exclusive."""
PRODUCERS: Final = tuple(f"producer-{number}" for number in range(1, 6))

RARE_CLICKS: Final = 50
"""Expected clicks on each of the rare ads, which are every other one."""

Columns: TypeAlias = Callable[[np.ndarray, np.ndarray, np.random.Generator], Mapping[str, pa.Array]]
"""(partition, number among the partition's records) of some records -> their data columns."""


@dataclass(frozen=True, kw_only=True)
class Clicks:
    """Clicks on ads of campaigns: few groups, many records. Sealed on `campaign`."""

    records: int
    campaigns: int
    ads: int
    """In each campaign."""
    steps: int
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Visits:
    """Views of pages, and clicks that each follow one of them. Both sealed on `campaign`."""

    records: int
    """Half of them views, half clicks."""
    campaigns: int
    steps: int
    seed: int = 3


@dataclass(frozen=True, kw_only=True)
class Tweets:
    """Tweets in batches: many groups, large state. Sealed on `batch`."""

    records: int
    steps: int
    batches: int = 150
    words: int = 8
    vocabulary: int = 20_000
    seed: int = 2


Size: TypeAlias = Clicks | Visits | Tweets


def partitions(keys: int, steps: int) -> int:
    """How many partitions make `keys` of them open in a step, on average."""
    return max(1, keys * steps // (STEPS_OPEN + LAG - 1))


def write_input(folder: Path, size: Size) -> None:
    """Write the input below `folder`, or leave it where it is already."""
    file = folder / "size.json"
    wanted = {"kind": type(size).__name__, **asdict(size)}
    if file.exists() and json.loads(file.read_text()) == wanted:
        return
    empty(folder)
    match size:
        case Clicks():
            _write_clicks(folder, size)
        case Visits():
            _write_visits(folder, size)
        case Tweets():
            _write_tweets(folder, size)
    write_json(file, wanted)


def _write_clicks(folder: Path, size: Clicks) -> None:
    rare = np.arange(size.ads) % 2 == 1
    share = min(0.5 / size.ads, RARE_CLICKS * size.campaigns / size.records)
    popularity = np.where(rare, share, 0.0)
    popularity[~rare] = (1 - popularity.sum()) / (~rare).sum()

    def columns(
        campaign: np.ndarray, _: np.ndarray, rng: np.random.Generator
    ) -> Mapping[str, pa.Array]:
        ad = rng.choice(size.ads, len(campaign), p=popularity)
        return {
            "campaign": pa.array(campaign, pa.int32()),
            "id": pa.array(campaign * size.ads + ad, pa.int32()),
        }

    of_each = size.records // size.campaigns
    _write_stream(folder, "data", "campaign", size.campaigns, of_each, size, columns)


def _write_visits(folder: Path, size: Visits) -> None:
    of_each = size.records // 2 // size.campaigns

    def view(
        campaign: np.ndarray, number: np.ndarray, rng: np.random.Generator
    ) -> Mapping[str, pa.Array]:
        return {
            "campaign": pa.array(campaign, pa.int32()),
            "view": pa.array(campaign * of_each + number, pa.int64()),
            "page": pa.array(rng.integers(0, 1000, len(campaign)), pa.int32()),
        }

    def click(
        campaign: np.ndarray, _: np.ndarray, rng: np.random.Generator
    ) -> Mapping[str, pa.Array]:
        followed = rng.integers(0, of_each // len(PRODUCERS) * len(PRODUCERS), len(campaign))
        return {
            "campaign": pa.array(campaign, pa.int32()),
            "view": pa.array(campaign * of_each + followed, pa.int64()),
            "ad": pa.array(rng.integers(0, 100, len(campaign)), pa.int32()),
        }

    for name, columns in (("views", view), ("clicks", click)):
        _write_stream(folder, name, "campaign", size.campaigns, of_each, size, columns)


def _write_tweets(folder: Path, size: Tweets) -> None:
    frequency = 1 / np.arange(1, size.vocabulary + 1)
    vocabulary = np.array([f"w{rank:05d}" for rank in range(size.vocabulary)], dtype=object)

    def columns(
        batch: np.ndarray, _: np.ndarray, rng: np.random.Generator
    ) -> Mapping[str, pa.Array]:
        chosen = rng.choice(
            size.vocabulary, (len(batch), size.words), p=frequency / frequency.sum()
        )
        texts = [" ".join(words) for words in vocabulary[chosen]]
        return {"batch": pa.array(batch, pa.int64()), "text": pa.array(texts, pa.string())}

    of_each = size.records // size.batches
    _write_stream(folder, "data", "batch", size.batches, of_each, size, columns)


def _write_stream(
    folder: Path, name: str, key: str, count: int, of_each: int, size: Size, columns: Columns
) -> None:
    """One file for each step and producer, its punctuations at the end; and the registrations."""
    rng = np.random.default_rng(size.seed)
    (folder / name).mkdir()
    write_json(folder / "producers.json", {str(value): PRODUCERS for value in range(count)})
    every = np.arange(count)
    first = (every * (size.steps - STEPS_OPEN - LAG) / count).astype(int)
    share = max(1, of_each // len(PRODUCERS))
    for position, producer in enumerate(PRODUCERS):
        start = first + rng.integers(0, LAG, count)
        arrives = np.repeat(start, share) + rng.integers(0, STEPS_OPEN, share * count)
        order = rng.permutation(share * count)
        order = order[np.argsort(arrives[order], kind="stable")]
        ends = np.searchsorted(arrives[order], np.arange(size.steps + 1))
        for step in range(size.steps):
            chosen = order[ends[step] : ends[step + 1]]
            values = columns(chosen // share, position * share + chosen % share, rng)
            write_step(
                folder / name / f"{step:04d}-{producer}.parquet",
                step,
                values,
                key=key,
                producer=producer,
                sealed=every[start + STEPS_OPEN - 1 == step],
                count=share,
            )


def write_step(
    file: Path,
    step: int,
    values: Mapping[str, pa.Array],
    *,
    key: str,
    producer: str,
    sealed: np.ndarray,
    count: int,
) -> None:
    """One file: a producer's records of a step, then its punctuations for partitions that end.

    Args:
        file: its path.
        step: its place in the order of arrival.
        values: the data columns.
        key: the column that the stream is sealed on.
        producer: who sends it.
        sealed: the partitions that end.
        count: how many records it sent for each of them.
    """
    length, ended = len(values[key]), len(sealed)
    table: dict[str, Any] = {
        name: pa.concat_arrays(
            [column, pa.array(sealed, column.type) if name == key else pa.nulls(ended, column.type)]
        )
        for name, column in values.items()
    }
    table["producer"] = pa.array([producer] * (length + ended), pa.string())
    table["sealed"] = pa.array(np.arange(length + ended) >= length)
    table["count"] = pa.array([None] * length + [count] * ended, pa.int64())
    pq.write_table(pa.table(table), file)
    os.utime(file, (FIRST_ARRIVAL_S + step, FIRST_ARRIVAL_S + step))
