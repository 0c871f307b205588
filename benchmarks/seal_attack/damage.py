"""What can happen to the state and the results of a job while it is not running.

Each damage takes a job's folder and a source of chance, and says what it has done, to which file or
folder; None where there is nothing to be damaged.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

Done: TypeAlias = tuple[str, Path]
Damage: TypeAlias = Callable[["Place"], Done | None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where damage is done.

    Args:
        folder: of the job.
        rng: the source of chance.
        copy: of state and results, some steps ago.
    """

    folder: Path
    rng: random.Random
    copy: Path

    def pick(self, *patterns: str) -> Path | None:
        """A file or folder of the job that one of the patterns matches."""
        found = sorted(path for pattern in patterns for path in self.folder.glob(pattern))
        found = [path for path in found if not path.name.startswith((".", "_"))]
        return self.rng.choice(found) if found else None

    def say(self, done: str, path: Path) -> Done:
        """A line of the story, and what it is about."""
        return f"{done} {path.relative_to(self.folder)}", path


CHUNKS: Final = "state/units/*/buffer/*/*"
REQUESTS: Final = "state/units/*/requests/*/*"
UNDECIDED: Final = "state/units/*/undecided/*/*"
CHANNELS: Final = "state/channels/*/*"
LEDGERS: Final = "state/units/*/ledger"
CHECKPOINTS: Final = "state/units/*/checkpoint/*"


def deleted(*patterns: str) -> Damage:
    """A file or folder is deleted."""

    def damage(place: Place) -> Done | None:
        path = place.pick(*patterns)
        if path is None:
            return None
        delete(path)
        return place.say("deleted", path)

    return damage


def flipped(*patterns: str) -> Damage:
    """A bit of a file is flipped."""

    def damage(place: Place) -> Done | None:
        path = place.pick(*patterns)
        if path is None or not path.stat().st_size:
            return None
        content = bytearray(path.read_bytes())
        at = place.rng.randrange(len(content))
        content[at] ^= 1 << place.rng.randrange(8)
        path.write_bytes(content)
        return place.say(f"flipped a bit of byte {at} of {len(content)} in", path)

    return damage


def cut(*patterns: str) -> Damage:
    """The end of a file is missing."""

    def damage(place: Place) -> Done | None:
        path = place.pick(*patterns)
        if path is None or not path.stat().st_size:
            return None
        size = place.rng.choice([0, place.rng.randrange(path.stat().st_size)])
        with path.open("r+b") as file:
            file.truncate(size)
        return place.say(f"cut to {size} bytes", path)

    return damage


def added(*patterns: str) -> Damage:
    """A folder has one file more: one of its own once more."""

    def damage(place: Place) -> Done | None:
        path = place.pick(*patterns)
        if path is None:
            return None
        shutil.copy(path, path.with_name(f"part-copied-{path.name}"))
        return place.say("copied, beside itself,", path)

    return damage


def older(*patterns: str) -> Damage:
    """A file or folder is as it was some steps ago."""

    def damage(place: Place) -> Done | None:
        path = place.pick(*patterns)
        if path is None:
            return None
        then = place.copy / path.relative_to(place.folder)
        if not then.exists():
            return None
        delete(path)
        shutil.copytree(then, path)
        return place.say("put back an older copy of", path)

    return damage


def entries_deleted(place: Place) -> Done | None:
    """The newest entries of a checkpoint's logs are missing."""
    checkpoint = place.pick(CHECKPOINTS)
    if checkpoint is None:
        return None
    logs = place.rng.choice([("commits",), ("offsets",), ("commits", "offsets")])
    many = place.rng.randint(1, 3)
    for log in logs:
        for entry in _numbered(checkpoint / log)[-many:]:
            entry.unlink()
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    return place.say(f"deleted the newest {many} of {' and '.join(logs)} in", checkpoint)


def newest_commit_deleted(place: Place) -> Done | None:
    """The newest commit of a sink is missing."""
    sink = place.pick("results/*")
    commits = [] if sink is None else sorted(sink.glob("*-*"))
    if not commits:
        return None
    delete(commits[-1])
    return place.say("deleted", commits[-1])


DAMAGES: Final[dict[str, Damage]] = {
    "chunk: part deleted": deleted(f"{CHUNKS}/*.parquet"),
    "chunk: bit flipped": flipped(f"{CHUNKS}/*.parquet"),
    "chunk: part cut short": cut(f"{CHUNKS}/*.parquet"),
    "chunk: part added": added(f"{CHUNKS}/*.parquet"),
    "chunk: deleted": deleted(CHUNKS),
    "buffer deleted": deleted("state/units/*/buffer"),
    "requests: damaged": flipped(f"{REQUESTS}/*.parquet"),
    "requests: deleted": deleted(REQUESTS, f"{REQUESTS}/*.parquet"),
    "undecided: damaged": flipped(f"{UNDECIDED}/*.parquet"),
    "undecided: deleted": deleted(UNDECIDED, f"{UNDECIDED}/*.parquet"),
    "ledger: table, bit flipped": flipped(f"{LEDGERS}/*.sst"),
    "ledger: log, bit flipped": flipped(f"{LEDGERS}/*.log"),
    "ledger: log cut short": cut(f"{LEDGERS}/*.log"),
    "ledger: file deleted": deleted(f"{LEDGERS}/*"),
    "ledger: deleted": deleted(LEDGERS),
    "checkpoint: deleted": deleted(CHECKPOINTS),
    "checkpoint: part deleted": deleted(
        f"{CHECKPOINTS}/offsets", f"{CHECKPOINTS}/commits", f"{CHECKPOINTS}/sources"
    ),
    "checkpoint: metadata deleted": deleted(f"{CHECKPOINTS}/metadata"),
    "checkpoint: entries deleted": entries_deleted,
    "checkpoint: entry damaged": cut(f"{CHECKPOINTS}/offsets/*", f"{CHECKPOINTS}/sources/0/*"),
    "channel: part deleted": deleted(f"{CHANNELS}/*.parquet"),
    "channel: bit flipped": flipped(f"{CHANNELS}/*.parquet"),
    "channel: commit deleted": deleted(CHANNELS),
    "fingerprint deleted": deleted("state/fingerprint.json"),
    "fingerprint damaged": cut("state/fingerprint.json"),
    "description damaged": cut("state/units/*/gate.json"),
    "older state": older("state"),
    "older unit": older("state/units/*"),
    "older ledger": older(LEDGERS),
    "older checkpoint": older(CHECKPOINTS),
    "results deleted": deleted("results", "results/*"),
    "results: newest commit deleted": newest_commit_deleted,
}


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _numbered(folder: Path) -> Iterable[Path] | list[Path]:
    if not folder.is_dir():
        return []
    return sorted((f for f in folder.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
