"""Decisions of people about partitions: `state/decisions/UNIT/*.json`.

A decision is a file, so that it can be made while the job runs or before it starts. The unit takes
it up, writes it down in its ledger, and moves the file to `taken/`, where it stays as a record.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

from flux_runtime.commits.kept_folder import leave
from flux_runtime.sealing.events import Resolution
from flux_runtime.sealing.storage import Storage, storage_at

FOLDER: Final = "decisions"
TAKEN: Final = "taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """One partition need not wait for one producer any more (SE-8)."""

    stream: str
    """The waiting input of the unit."""
    key: tuple[str, ...]
    """Values of the key attributes, in the order of the unit's key."""
    producer: str
    by: str
    reason: str
    time: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """The end of a quarantine, decided by a person (SE-6)."""

    key: tuple[str, ...]
    resolution: Resolution
    by: str
    reason: str
    time: float


Decision: TypeAlias = Excuse | Resolve


def request(state: Path | str, unit: str, decision: Decision) -> str:
    """Write a decision for a unit; its name.

    Args:
        state: its folder, or the address in an object store where it is kept.
        unit: that is to take it up.
        decision: of a person.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}.json"
    content = json.dumps(asdict(decision), ensure_ascii=False, indent=2).encode()
    if isinstance(state, str):
        leave(state, f"{_place(unit)}/{name}", content)
    else:
        _folder(storage_at(state), unit).write(name, content)
    return name


def pending(state: Storage, unit: str) -> Iterator[tuple[str, Decision]]:
    """(name, decision) of those that the unit has not taken up, oldest first.

    A file that is no decision is left where it is.
    """
    folder = _folder(state, unit)
    for name in folder.names():
        data = folder.read(name) if name.endswith(".json") else None
        if data is None:
            continue
        try:
            yield name, _decision(json.loads(data))
        except (ValueError, TypeError, KeyError):
            continue


def taken(state: Storage, unit: str, name: str) -> None:
    """Keep a decision as a record; to be called when it stands in the ledger."""
    folder = _folder(state, unit)
    if folder.exists(name):
        folder.move(name, f"{TAKEN}/{name}")


def _decision(fields: dict[str, object]) -> Decision:
    key = fields["key"]
    if not isinstance(key, list):
        raise TypeError("key")
    known: dict[str, object] = fields | {"key": tuple(key)}
    if "resolution" in fields:
        return Resolve(**known | {"resolution": Resolution(fields["resolution"])})  # type: ignore[arg-type]
    return Excuse(**known)  # type: ignore[arg-type]


def _folder(state: Storage, unit: str) -> Storage:
    return state.at(_place(unit))


def _place(unit: str) -> str:
    return f"{FOLDER}/{quote(unit, safe='._-')}"
