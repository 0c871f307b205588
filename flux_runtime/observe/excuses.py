"""Requests of people to go on without a producer (SE-8): `state/excuses/UNIT/*.json`.

A request is a file, so that it can be made while the job runs or before it starts. The unit takes
it up, writes it down in its journal, and moves the file to `taken/`, where it stays as a record.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from flux_runtime.sealing.storage import Storage, storage_at

FOLDER: Final = "excuses"
TAKEN: Final = "taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """One partition need not wait for one producer any more."""

    stream: str
    """The waiting input of the unit."""
    key: tuple[str, ...]
    """Values of the key attributes, in the order of the unit's key."""
    producer: str
    by: str
    reason: str
    time: float
    """Seconds since the epoch."""


def request(state: Path, unit: str, excuse: Excuse) -> str:
    """Write a request for a unit; its name."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}.json"
    content = json.dumps(asdict(excuse), ensure_ascii=False, indent=2).encode()
    _folder(storage_at(state), unit).write(name, content)
    return name


def pending(state: Storage, unit: str) -> Iterator[tuple[str, Excuse]]:
    """(name, request) of those that the unit has not taken up, oldest first.

    A file that is no request is left where it is.
    """
    folder = _folder(state, unit)
    for name in folder.names():
        data = folder.read(name) if name.endswith(".json") else None
        if data is None:
            continue
        try:
            fields = json.loads(data)
            yield name, Excuse(**fields | {"key": tuple(fields["key"])})
        except (ValueError, TypeError, KeyError):
            continue


def taken(state: Storage, unit: str, name: str) -> None:
    """Keep a request as a record; to be called when it stands in the journal."""
    folder = _folder(state, unit)
    if folder.exists(name):
        folder.move(name, f"{TAKEN}/{name}")


def _folder(state: Storage, unit: str) -> Storage:
    return state.at(f"{FOLDER}/{quote(unit, safe='._-')}")
