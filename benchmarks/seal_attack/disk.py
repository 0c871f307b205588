"""A disk that can be full: a small file system of the job's own, or else a limit on its files."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.seal_attack.driver import descendants

SIZE: Final = 2 << 30
_OWN_MOUNTS: Final = "SEAL_FAULTS_OWN_MOUNTS"


def in_mounts_of_its_own() -> None:
    """Begin this process anew where file systems can be mounted that nobody else sees."""
    if os.environ.get(_OWN_MOUNTS) is not None or shutil.which("unshare") is None:
        return
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    possible = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    if possible:
        os.environ[_OWN_MOUNTS] = "yes"
        os.execvp(command[0], [*command, sys.executable, *sys.argv])


class Disk:
    """The file system of a job's folder.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
        self.mounted = (
            os.environ.get(_OWN_MOUNTS) is not None
            and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )

    @contextlib.contextmanager
    def full(self, rng: random.Random, pid: int) -> Iterator[str]:
        """Little can be written meanwhile; says what was done.

        Args:
            rng: says how little.
            pid: of the driver, which runs already.
        """
        left = int(10 ** rng.uniform(3.5, 6.0))
        if self.mounted:
            ballast = self.folder / "ballast"
            usage = os.statvfs(self.folder)
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, usage.f_bavail * usage.f_frsize - left)
            try:
                yield f"{left} bytes left on the disk (ENOSPC)"
            finally:
                ballast.unlink()
            return
        limit = left // 10
        pids = [pid, *(child for child, _ in descendants(pid))]
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        for each in pids:
            resource.prlimit(each, resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            yield f"no file above {limit} bytes (EFBIG)"
        finally:
            for each in [pid, *(child for child, _ in descendants(pid))]:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(each, resource.RLIMIT_FSIZE, before)

    def leave(self, folder: Path) -> None:
        """Leave what there is in a folder of a file system that stays."""
        if self.mounted and folder.exists():
            shutil.copytree(
                self.folder, folder / "left", dirs_exist_ok=True, ignore_dangling_symlinks=True
            )
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
