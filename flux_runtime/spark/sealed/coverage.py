"""The input of the running micro-batch, read off Spark's own logs and flushed to the disk (SE-10).

Spark writes the offsets of a micro-batch into `offsets/N` of the checkpoint before it runs, but
does not flush them. They are flushed here, before anything that follows from the micro-batch is
written down: after a power failure the same micro-batch comes again, with the same records.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from flux_runtime.sealing.events import Coverage
from flux_runtime.sealing.storage import local_path, sync_folder
from flux_runtime.spark.query import Query


def coverage(query: Query, batch: int) -> Coverage:
    """The input that the running micro-batch of a query covers; it is inside its `on_batch`."""
    checkpoint = local_path(query.checkpoint)
    end = _offsets(checkpoint, batch)
    _flush(checkpoint, batch, end)
    return Coverage(
        query=str(json.loads((checkpoint / "metadata").read_text())["id"]),
        start="\n".join(_offsets(checkpoint, batch - 1)) if batch else "",
        end="\n".join(end),
        files=_files(query),
    )


def newest(checkpoint: Path, log: str) -> int:
    """The newest entry of a log of a checkpoint, `offsets` or `commits`; -1: there is none."""
    folder = checkpoint / log
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _offsets(checkpoint: Path, batch: int) -> list[str]:
    """One line for each source, behind the lines of version and settings."""
    return (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]


def _files(query: Query) -> str:
    """A digest of the files that the micro-batch reads; empty where its source is not of files."""
    files = query.files()
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:32] if files else ""


def _flush(checkpoint: Path, batch: int, offsets: list[str]) -> None:
    files = [checkpoint / "metadata", checkpoint / "offsets" / str(batch)]
    for number, line in enumerate(offsets):
        log = _log_offset(line)
        if log is not None:  # what a source of files has found
            source = checkpoint / "sources" / str(number)
            files += [source / f"{log}", source / f"{log}.compact"]
    folders = {checkpoint}
    for file in files:
        if file.exists():
            _sync(file)
            folders |= {folder for folder in file.parents if checkpoint in folder.parents}
    for folder in sorted(folders, reverse=True):
        sync_folder(folder)


def _log_offset(line: str) -> int | None:
    try:
        data: Any = json.loads(line)
        return int(data["logOffset"])
    except (ValueError, KeyError, TypeError):
        return None


def _sync(file: Path) -> None:
    with file.open("rb") as content:
        os.fsync(content.fileno())
