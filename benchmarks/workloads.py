"""Large streams for the benchmarks: Parquet files in order of arrival, with punctuations in band.

Every producer takes part in every partition and has a speed of its own; a partition's records come
in a few steps, its punctuations with the last of them. The same arguments give the same files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blazes.demo.files import FIRST_ARRIVAL_S, empty, write_json

STEPS_OPEN = 5
"""Steps in which a partition's records arrive, before what a slow producer adds."""
LAG = 3
"""Steps that a slow producer may be behind, at most, exclusive."""


@dataclass(frozen=True, kw_only=True)
class Clicks:
    """Clicks on ads of campaigns: few groups, many records."""

    records: int = 30_000_000
    producers: int = 5
    campaigns: int = 240
    ads: int = 100
    """In each campaign; their popularity is skewed so that about half stay below 100 clicks."""
    steps: int = 28
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Tweets:
    """Tweets in batches: many groups, large state."""

    records: int = 1_000_000
    producers: int = 5
    batches: int = 150
    words: int = 8
    vocabulary: int = 20_000
    steps: int = 28
    seed: int = 2


def write_clicks(folder: Path, size: Clicks) -> None:
    """Write the clicks below `folder/data`, or leave them where they are already."""
    if _there(folder, size):
        return
    rng = np.random.default_rng(size.seed)
    partitions = np.arange(size.campaigns)
    popularity = 1 / np.arange(1, size.ads + 1) ** 1.6

    def columns(campaign: np.ndarray) -> dict[str, pa.Array]:
        ad = rng.choice(size.ads, len(campaign), p=popularity / popularity.sum())
        return {
            "campaign": pa.array(campaign, pa.int32()),
            "id": pa.array(campaign * size.ads + ad, pa.int32()),
        }

    schema = pa.schema([("campaign", pa.int32()), ("id", pa.int32())])
    _write(folder, size, partitions, "campaign", columns, schema, rng)


def write_tweets(folder: Path, size: Tweets) -> None:
    """Write the tweets below `folder/data`, or leave them where they are already."""
    if _there(folder, size):
        return
    rng = np.random.default_rng(size.seed)
    frequency = 1 / np.arange(1, size.vocabulary + 1)
    vocabulary = np.array([f"w{rank:05d}" for rank in range(size.vocabulary)], dtype=object)

    def columns(batch: np.ndarray) -> dict[str, pa.Array]:
        chosen = rng.choice(
            size.vocabulary, (len(batch), size.words), p=frequency / frequency.sum()
        )
        texts = [" ".join(words) for words in vocabulary[chosen]]
        return {"batch": pa.array(batch, pa.int64()), "text": pa.array(texts, pa.string())}

    schema = pa.schema([("batch", pa.int64()), ("text", pa.string())])
    _write(folder, size, np.arange(size.batches), "batch", columns, schema, rng)


def _there(folder: Path, size: Clicks | Tweets) -> bool:
    file = folder / "size.json"
    return file.exists() and json.loads(file.read_text()) == asdict(size)


def _write(
    folder: Path,
    size: Clicks | Tweets,
    partitions: np.ndarray,
    key: str,
    columns: object,
    schema: pa.Schema,
    rng: np.random.Generator,
) -> None:
    """One file for each step and producer, its punctuations at the end."""
    assert callable(columns)
    empty(folder)
    (folder / "data").mkdir()
    producers = [f"producer-{number}" for number in range(1, size.producers + 1)]
    write_json(folder / "producers.json", {str(value): producers for value in partitions})
    first = (partitions * (size.steps - STEPS_OPEN - LAG) / len(partitions)).astype(int)
    each = size.records // (len(partitions) * size.producers)
    full = pa.schema(
        [*schema, ("producer", pa.string()), ("sealed", pa.bool_()), ("count", pa.int64())]
    )
    for producer in producers:
        start = first + rng.integers(0, LAG, len(partitions))
        arrives = np.repeat(start, each) + rng.integers(0, STEPS_OPEN, each * len(partitions))
        of = np.repeat(partitions, each)
        for step in range(size.steps):
            values = of[arrives == step]
            rng.shuffle(values)
            ended = partitions[start + STEPS_OPEN - 1 == step]
            records = pa.table(
                {
                    **columns(values),
                    "producer": pa.array([producer] * len(values), pa.string()),
                    "sealed": pa.array(np.zeros(len(values), bool)),
                    "count": pa.nulls(len(values), pa.int64()),
                },
                full,
            )
            ends = pa.table(_punctuations(full, key, ended, producer, each), full)
            file = folder / "data" / f"{step:03d}-{producer}.parquet"
            pq.write_table(pa.concat_tables([records, ends]), file)
            os.utime(file, (FIRST_ARRIVAL_S + step, FIRST_ARRIVAL_S + step))
    write_json(folder / "size.json", asdict(size))


def _punctuations(
    schema: pa.Schema, key: str, ended: Sequence[int] | np.ndarray, producer: str, count: int
) -> dict[str, pa.Array]:
    """The columns of a punctuation for each partition that ended."""
    known = {
        key: ended,
        "producer": [producer] * len(ended),
        "sealed": [True] * len(ended),
        "count": [count] * len(ended),
    }
    return {
        field.name: pa.array(known[field.name], field.type)
        if field.name in known
        else pa.nulls(len(ended), field.type)
        for field in schema
    }
