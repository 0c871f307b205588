"""The step that commits need of a file system: to rename a folder of many files in one step.

Buckets that are mounted (s3fs, rclone, gcsfuse and the like) have no such step. They copy the files
one after the other, and a crash in between leaves a half of the folder under its new name, which
looks like a commit. From the machine itself that cannot be seen, since the kernel and FUSE hold
readers back until a rename has ended; but its time can be measured. In one step, a folder of many
files takes as long as a folder of one. File by file, it takes many times as long, always.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flux_runtime.sealing.storage import make_folder, sync_folder

FILES: Final = 64
"""In the larger folder."""
RATIO: Final = 4
"""A rename in one step takes less than so many times that of a folder of one file."""
PER_FILE_S: Final = 0.00005
"""Or less than this for each file, which nothing that copies a file can keep to."""
BASELINE: Final = 5
"""How often a folder of one file is renamed; the shortest time counts."""
ATTEMPTS: Final = 8
"""How often one of many files is, at most: one that shows a step is enough. A busy machine can be
slow in some of them, a mounted bucket is slow in all."""
NOT_THE_KIND: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS})
"""Errors that say nothing of the kind of a file system: it is full, or not this user's."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class UnfitMountError(Exception):
    """A folder on a file system that cannot hold state or results; the message says what to do."""


def check_mounts(folders: Iterable[Path]) -> None:
    """Return if commits can be made in all of the folders, which are made where they are missing.

    Raises:
        UnfitMountError: folders whose file systems cannot; all of them.
    """
    devices: dict[int, Path] = {}
    for folder in folders:
        make_folder(folder)
        devices.setdefault(folder.stat().st_dev, folder)
    problems = [problem for folder in devices.values() if (problem := problem_of(folder))]
    if problems:
        raise UnfitMountError("\n".join(problems))


def problem_of(folder: Path) -> str | None:
    """Why commits cannot be made in a folder that is there; None: they can.

    Raises:
        OSError: the disk is full, or the folder is not this user's to write to.
    """
    probe = folder / f".blazes-probe-{uuid.uuid4().hex[:12]}"
    try:
        probe.mkdir()
        one_s = min(_renamed_s(probe / f"one-{number}", 1) for number in range(BASELINE))
        many_s = float("inf")
        for number in range(ATTEMPTS):
            many_s = min(many_s, _renamed_s(probe / f"many-{number}", FILES))
            if many_s < max(RATIO * one_s, FILES * PER_FILE_S):
                return None
    except OSError as error:
        if error.errno in NOT_THE_KIND:
            raise
        return _sentence(folder, f"a folder cannot be renamed there ({error.strerror})")
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    return _sentence(
        folder,
        f"to rename a folder of {FILES} files takes {many_s / one_s:.0f} times as long there as "
        "one of a single file: it is done file by file, and a crash in between would leave a half "
        "of a commit",
    )


def _renamed_s(folder: Path, files: int) -> float:
    """Seconds that a folder's rename takes, from one folder into another, as a commit's does."""
    staged, target = folder / "staged" / "commit", folder / "output"
    staged.mkdir(parents=True)
    target.mkdir()
    for number in range(files):
        (staged / f"{number}").touch()
    sync_folder(staged)
    begun = time.perf_counter()
    staged.rename(target / "commit")
    took = time.perf_counter() - begun
    sync_folder(target)
    return took


def _sentence(folder: Path, problem: str) -> str:
    return (
        f"{folder} (file system {file_system(folder)}) cannot hold state or results: {problem}. "
        "Nothing was started. Put them on a disk or on a shared file system such as NFS "
        "(--state-dir, the sink's path); for results in an object store use a sink of "
        "`format: delta` with the store's address"
    )


def file_system(folder: Path) -> str:
    """The type of the file system that a folder is on, as the kernel calls it."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return "of an unknown type"
    best, type_ = "", "of an unknown type"
    path = os.path.realpath(folder)
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), before.split()[4])
        inside = path == mounted or path.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, type_ = mounted, after.split()[0]
    return type_
