"""Checks the state of sealed units while nothing runs: ledgers, chunks, checkpoints.

A part of `flux_runtime.observe.audit`. What a job refuses when it comes to it, is found here at
once, and read to the last byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from flux_runtime.observe.gates import (
    BUFFER,
    CHECKPOINT,
    DESCRIPTION,
    LEDGER,
    REQUESTS,
    UNITS,
    read_rules,
)
from flux_runtime.sealing import manifest
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage, file_name
from flux_runtime.sealing.tracker import FRESH, Tracker


def damage_of_seals(state: Path) -> Iterator[DamagedError]:
    """Everything that is wrong with the sealed units of a state folder.

    Args:
        state: the folder; no job runs on it.
    """
    for folder in sorted((state / UNITS).glob("*")):
        if (folder / DESCRIPTION).exists():
            yield from damage_of_unit(folder)
        elif (folder / LEDGER).exists():
            yield _damaged(folder / DESCRIPTION, "it is missing, so that the ledger cannot be read")


def damage_of_unit(folder: Path) -> Iterator[DamagedError]:
    """Everything that is wrong with one sealed unit."""
    if not (folder / LEDGER).exists():
        if any(folder.glob(f"{CHECKPOINT}/*/commits/[0-9]*")):
            yield _damaged(folder / LEDGER, "it is missing, and micro-batches were taken")
        return
    try:
        rules = read_rules(folder)
    except (ValueError, KeyError, TypeError) as error:
        yield _damaged(folder / DESCRIPTION, f"it cannot be read: {error}")
        return
    try:
        with Ledger(folder / LEDGER, rules, read_only=True) as ledger:
            ledger.verify()
            tracker = ledger.tracker
    except DamagedError as damage:
        yield damage
        return
    yield from _damaged_chunks(folder, tracker)
    yield from _damaged_checkpoints(folder, tracker)


def _damaged_chunks(folder: Path, tracker: Tracker) -> Iterator[DamagedError]:
    """Chunks that are needed are there, file by file and byte by byte."""
    for name, chunks in tracker.chunks.items():
        kind = BUFFER if name in tracker.rules.inputs else REQUESTS
        storage = LocalStorage(folder / kind / file_name(name))
        for number, chunk in chunks.items():
            try:
                manifest.check(storage, chunk.name(number), chunk.files)
            except DamagedError as damage:
                yield damage


def _damaged_checkpoints(folder: Path, tracker: Tracker) -> Iterator[DamagedError]:
    """Spark's checkpoints are at the micro-batch that the ledger knows, or just before the next."""
    for name in (*tracker.rules.inputs, *tracker.rules.requests):
        place = folder / CHECKPOINT / file_name(name)
        last, coverage = tracker.ingested.get(name, (-1, None))
        newest = max(_numbers(place / "offsets"), default=-1)
        done = max(_numbers(place / "commits"), default=-1)
        if done > last:
            yield _damaged(
                place,
                f"micro-batches up to {done} were taken, and the ledger knows of {last}",
            )
        elif coverage is None:
            continue
        elif not (place / "metadata").exists():
            yield _damaged(place, "the checkpoint is missing, and the ledger goes on after it")
        elif _query(place) != coverage.query:
            yield _damaged(place, "it is not the checkpoint that the ledger goes with")
        elif newest < last:
            yield _damaged(place, f"it ends at micro-batch {newest}, the ledger took {last}")


def _numbers(folder: Path) -> list[int]:
    return [int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()]


def _query(checkpoint: Path) -> str | None:
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (ValueError, KeyError, OSError):
        return None


def _damaged(place: Path, problem: str) -> DamagedError:
    return DamagedError(
        str(place),
        problem,
        "what was put out is right. Put back a copy of the whole state folder of one moment, or "
        f"{FRESH}",
    )
