"""Mistakes to be planted in the job, to show that the attack finds them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flux_runtime.commits import kept_folder
from flux_runtime.commits.kept_folder import KeptFolder
from flux_runtime.commits.objects import Objects, Version
from flux_runtime.sealing import manifest
from flux_runtime.sealing.batch_log import Batch, BatchLog
from flux_runtime.sealing.tracker import Tracker, Verdict
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.dead_letters import LATE, DeadLetters

VARIABLE: Final = "SEAL_FAULTS_PLANT"
"""Environment variable: the name of the mistake."""


@dataclass(frozen=True)
class Plant:
    """A mistake."""

    make: Callable[[], None]
    found_by: str
    """The name of a fault that shows it, or a part of the name."""
    store: bool = False
    """Whether it is in keeping a state in an object store."""


def plant() -> None:
    """Plant the mistake that the environment names, if it names one."""
    name = os.environ.get(VARIABLE)
    if name:
        PLANTS[name].make()


def _chunks_are_believed() -> None:
    manifest.check = lambda *_, **__: None


def _nothing_is_flushed() -> None:
    os.fsync = lambda _: None


def _late_records_are_taken() -> None:
    right = Tracker._exceptions

    def wrong(self: Tracker, event: Any) -> dict[int, Verdict]:
        return {i: v for i, v in right(self, event).items() if v is not Verdict.LATE}

    Tracker._exceptions = wrong  # type: ignore[method-assign]


def _late_records_are_lost() -> None:
    right = DeadLetters.keep

    def wrong(self: DeadLetters, name: str, stream: str, batch: int | None, letters: Any) -> int:
        told = list(letters)
        right(self, name, stream, batch, [each for each in told if each[0] != LATE])
        return len(told)

    DeadLetters.keep = wrong  # type: ignore[method-assign]


def _a_micro_batch_is_known_by_its_number() -> None:
    def wrong(self: Tracker, name: str, batch: int, _: object) -> bool:
        return name in self.ingested and batch <= self.ingested[name][0]

    Tracker.replayed = wrong  # type: ignore[method-assign]
    Tracker.compare = lambda *_, **__: None  # type: ignore[method-assign]


def _commits_are_made_again() -> None:
    right = Folders.commit

    def wrong(self: Folders, name: str, *arguments: Any, **more: Any) -> int:
        again = f"{name[:-1]}{int(name[-1]) ^ 1}" if self.committed(name) else name
        return right(self, again, *arguments, **more)

    Folders.commit = wrong  # type: ignore[method-assign]


def _objects_are_believed() -> None:
    kept_folder._contents = lambda objects, files: [
        (objects.get(extent.object) or (b"", ""))[0][extent.offset : extent.offset + extent.size]
        for extent in files.values()
    ]


def _objects_are_put_after_the_head() -> None:
    put, replace = Objects.put, Objects.replace
    late: list[tuple[str, bytes]] = []

    def wrong_put(_: Objects, name: str, data: bytes) -> None:
        late.append((name, data))

    def wrong_replace(self: Objects, name: str, data: bytes, version: Version | None) -> Version:
        done = replace(self, name, data, version)
        while late:
            put(self, *late.pop())
        return done

    Objects.put = wrong_put  # type: ignore[method-assign]
    Objects.replace = wrong_replace  # type: ignore[method-assign]


def _objects_are_deleted_before_the_commit() -> None:
    right = KeptFolder._drop

    def wrong(self: KeptFolder, path: str, *, garbage: bool = True) -> None:
        if garbage and path in self._tree and self._tree[path].object:
            self._objects.delete([self._tree[path].object])
        right(self, path, garbage=garbage)

    KeptFolder._drop = wrong  # type: ignore[method-assign]


def _ends_of_releases_are_not_kept() -> None:
    right = BatchLog.keep

    def wrong(self: BatchLog, batch: Batch) -> None:
        right(self, Batch() if b"ReleaseFinished" in batch.to_bytes() else batch)

    BatchLog.keep = wrong  # type: ignore[method-assign]


PLANTS: Final = {
    "chunks are believed": Plant(_chunks_are_believed, "chunk: part deleted"),
    "nothing is flushed": Plant(_nothing_is_flushed, "power cut"),
    "late records are taken": Plant(_late_records_are_taken, "hostile input"),
    "late records are lost": Plant(_late_records_are_lost, "hostile input"),
    "a micro-batch is known by its number": Plant(
        _a_micro_batch_is_known_by_its_number, "checkpoint: deleted"
    ),
    "objects are believed": Plant(_objects_are_believed, "object damaged", store=True),
    "objects are put after the head": Plant(
        _objects_are_put_after_the_head, "driver killed at a request", store=True
    ),
    "objects are deleted before the commit": Plant(
        _objects_are_deleted_before_the_commit, "driver killed at a request", store=True
    ),
    "ends of releases are not kept": Plant(_ends_of_releases_are_not_kept, "killed at", store=True),
    "commits are made again": Plant(_commits_are_made_again, "driver killed at a point"),
}
