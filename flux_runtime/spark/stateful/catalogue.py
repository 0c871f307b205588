"""The catalogue of a unit with records of its own: one small file that says what it has.

Everything else that the unit keeps is a folder, written once and named in the catalogue with its
manifest (`flux_runtime.sealing.manifest`). The order of writing is: a folder and its files are
flushed to the disk, then the catalogue names it, then what it replaces is deleted. So whatever is
in the catalogue is on the disk, and a folder that it does not name is of a step that did not end.

A micro-batch is recognised by Spark's plan of it, the file `offsets/N` in the checkpoint, and not
by its number. It is *begun* once its records are written, and *done* once everything that follows
from it is. Spark plans a micro-batch before it is processed and notes it as committed afterwards,
so when a job starts, checkpoint, catalogue and results can differ by one micro-batch, and only in
one direction; anything else is damage (`check`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flux_runtime.sealing.manifest import DamagedError, Manifest
from flux_runtime.sealing.storage import Storage

FILE: Final = "catalogue.json"
CHECKPOINT: Final = "checkpoint"
FANOUT: Final = 8
"""Parts of one level that are merged into one of the next."""

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of rows.

    Args:
        name: of the folder.
        level: how often its rows have been rewritten.
        manifest: what it holds.
    """

    name: str
    level: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Begun:
    """A micro-batch whose records are written, and which is not done.

    Args:
        batch: its number.
        plan: the digest of Spark's plan of it.
        chunk: its records.
        result: what it is going to put out, where that was written down first.
    """

    batch: int
    plan: str
    chunk: Manifest
    result: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a catalogue.

    Args:
        done: the last micro-batch that is done; -1: none.
        plan: the digest of Spark's plan of it.
        begun: the next one, as far as it has come.
        parts: what is kept -> its parts, oldest first.
        named: how many names of folders have been given.
        put_out: place -> the last micro-batch that had results there.
        reach: how rows are found: see `flux_runtime.spark.stateful.access`.
    """

    done: int = -1
    plan: str | None = None
    begun: Begun | None = None
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    named: int = 0
    put_out: Mapping[str, int] = field(default_factory=dict)
    reach: Mapping[str, Any] | None = None


class Catalogue:
    """A unit's catalogue.

    `remedy` is what to do about any damage to what the unit has kept.

    Args:
        storage: the unit's folder, with Spark's checkpoint in it.

    Raises:
        DamagedError: the file is not what was written.
    """

    remedy: Final = (
        "the results that are there are right, and nothing was changed. Restore state and results "
        "from copies of the same moment, or begin anew with --fresh, which computes everything "
        "again from the sources"
    )

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        data = storage.read(FILE)
        self.exists = data is not None
        self.now = Contents() if data is None else self._decoded(data)

    def save(self, **changes: Any) -> None:
        """Change the contents, durably and in one step."""
        self.now = replace(self.now, **changes)
        state = json.dumps(_to_json(self.now), separators=(",", ":"), ensure_ascii=False).encode()
        self._storage.write(FILE, b"%08x %b\n" % (zlib.crc32(state), state))
        self.exists = True

    def take_name(self) -> None:
        """Count a name of a folder; not saved before something else is."""
        self.now = replace(self.now, named=self.now.named + 1)

    def plan(self, batch: int) -> str | None:
        """The digest of Spark's plan of a micro-batch; None: Spark has none."""
        data = self._storage.read(f"{CHECKPOINT}/offsets/{batch}")
        return None if data is None else hashlib.sha256(data).hexdigest()

    def is_replay(self, batch: int) -> bool:
        """Whether a micro-batch that Spark processes is done already.

        Raises:
            DamagedError: it is neither the last one again nor the next.
        """
        now, plan = self.now, self.plan(batch)
        if plan is None:
            raise self._damaged(f"{CHECKPOINT}/offsets/{batch}", "the file is missing")
        if batch == now.done and plan == now.plan:
            return True
        known = now.begun.plan if now.begun is not None else plan
        if batch == now.done + 1 and plan == known:
            return False
        raise self._damaged(
            CHECKPOINT,
            f"Spark's micro-batch {batch} is not the one that followed on what has been done",
        )

    def check(self, results: Mapping[str, Iterable[int]]) -> None:
        """Return if checkpoint, catalogue and results fit together.

        Args:
            results: place -> numbers of the micro-batches whose results it has.

        Raises:
            DamagedError: they do not.
        """
        now = self.now
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        if not self.exists and (max(offsets, default=0) > 0 or commits):
            raise self._damaged(FILE, "the file is missing, and Spark has processed micro-batches")
        if max(commits, default=-1) > now.done:
            raise self._damaged(
                FILE,
                f"it ends with micro-batch {now.done}, and Spark has processed number "
                f"{max(commits)}: the state is older than the checkpoint",
            )
        if max(offsets, default=-1) > now.done + 1:
            raise self._damaged(
                FILE, f"it ends with micro-batch {now.done}, and Spark has planned {max(offsets)}"
            )
        for batch, plan in (
            (now.done, now.plan),
            *([] if now.begun is None else [(now.begun.batch, now.begun.plan)]),
        ):
            if plan is not None and self.plan(batch) != plan:
                raise self._damaged(
                    CHECKPOINT,
                    f"micro-batch {batch} is missing in it, or covers other records: it was "
                    "deleted, or is of another time",
                )
        possible = now.done if now.begun is None else now.begun.batch
        for place, numbers in results.items():
            newest = max(numbers, default=-1)
            if newest > possible:
                raise self._damaged(
                    FILE,
                    f"it ends with micro-batch {now.done}, and {place} has results of "
                    f"number {newest}: the state is older than the results",
                )
            if now.put_out.get(place, -1) > newest:
                raise DamagedError(
                    place,
                    f"the results of micro-batch {now.put_out[place]} are missing",
                    "the state is whole, and nothing was changed. Put the results back, or begin "
                    "anew with --fresh, which computes all of them again. Were they taken away on "
                    "purpose, keep the newest commit: new ones are numbered after it",
                )

    def _numbers(self, kind: str) -> list[int]:
        names = self._storage.names(f"{CHECKPOINT}/{kind}")
        return [int(name) for name in names if name.isdigit()]

    def _decoded(self, data: bytes) -> Contents:
        crc, _, state = data.removesuffix(b"\n").partition(b" ")
        if crc != b"%08x" % zlib.crc32(state):
            raise self._damaged(FILE, "the content is not what was written")
        content = json.loads(state)
        if content["format"] != _FORMAT:
            raise ValueError(f"{self._storage.uri(FILE)} was written by another version")
        return _from_json(content)

    def _damaged(self, name: str, problem: str) -> DamagedError:
        return DamagedError(self._storage.uri(name), problem, self.remedy)


def due(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that are to be merged: all of the lowest level that has too many; maybe none.

    Each row is rewritten once for each level, and there are as many levels as the number of parts
    that were ever added has digits in base `FANOUT`.
    """
    for level in sorted({part.level for part in parts}):
        same = tuple(part for part in parts if part.level == level)
        if len(same) >= FANOUT:
            return same
    return ()


def _to_json(now: Contents) -> dict[str, Any]:
    begun = now.begun and {
        "batch": now.begun.batch,
        "plan": now.begun.plan,
        "chunk": now.begun.chunk.to_json(),
        "result": now.begun.result and now.begun.result.to_json(),
    }
    parts = {
        name: [[part.name, part.level, part.manifest.to_json()] for part in of]
        for name, of in now.parts.items()
    }
    return {
        "format": _FORMAT,
        "done": now.done,
        "plan": now.plan,
        "begun": begun,
        "parts": parts,
        "named": now.named,
        "put_out": dict(now.put_out),
        "reach": now.reach,
    }


def _from_json(data: Mapping[str, Any]) -> Contents:
    begun = data["begun"] and Begun(
        data["begun"]["batch"],
        data["begun"]["plan"],
        Manifest.from_json(data["begun"]["chunk"]),
        data["begun"]["result"] and Manifest.from_json(data["begun"]["result"]),
    )
    parts = {
        name: tuple(Part(n, level, Manifest.from_json(manifest)) for n, level, manifest in of)
        for name, of in data["parts"].items()
    }
    return Contents(
        data["done"],
        data["plan"],
        begun,
        parts,
        data["named"],
        data["put_out"],
        data["reach"],
    )
