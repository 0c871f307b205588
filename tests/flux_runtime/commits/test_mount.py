"""File systems that rename a folder in one step, and one that does it file by file.

The second is this machine's own, with a library below `rename` that moves the files of a folder one
after the other, each as slowly as a store answers (`LD_PRELOAD`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flux_runtime.commits.mount import UnfitMountError, check_mounts, file_system, problem_of

FILE_BY_FILE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int rename(const char *from, const char *to) {
    int (*one_step)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    struct stat is;
    if (lstat(from, &is) || !S_ISDIR(is.st_mode)) return one_step(from, to);
    if (mkdir(to, 0777)) return -1;
    DIR *folder = opendir(from);
    struct dirent *entry;
    char source[4096], target[4096];
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        snprintf(target, sizeof target, "%s/%s", to, entry->d_name);
        usleep(3000);
        one_step(source, target);
    }
    closedir(folder);
    return rmdir(from);
}
"""
JOB = """
from pathlib import Path
from flux_runtime.spark import main

def build(job):
    items = job.source("items", format="json", path="items", schema="k INT")
    job.sink("out", [items], format="json", path="results/out")

main(build, name="unfit", folder=Path(__file__).parent)
"""


def test_a_disk_is_fit_and_nothing_is_left_of_the_probe(tmp_path: Path) -> None:
    check_mounts([tmp_path, tmp_path / "made" / "below"])
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "below"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_job_on_a_mount_that_renames_file_by_file_is_refused_before_spark_starts(
    tmp_path: Path,
) -> None:
    source, library = tmp_path / "rename.c", tmp_path / "rename.so"
    source.write_text(FILE_BY_FILE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    (tmp_path / "job.py").write_text(JOB)
    done = subprocess.run(
        [sys.executable, "job.py", "--available-now", "--root", "."],
        cwd=tmp_path,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "cannot hold state or results: to rename a folder of 64 files takes" in done.stderr
    assert "--state-dir" in done.stderr
    log = (tmp_path / "runs" / "latest" / "log.txt").read_text()
    assert "UnfitMountError" in log
    assert "SparkContext" not in log
    assert not list((tmp_path / "state").glob(".blazes-probe*"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs a /proc")
def test_a_folder_in_which_nothing_can_be_made_is_refused_with_its_file_system() -> None:
    problem = problem_of(Path("/proc/self"))
    assert problem is not None
    assert problem.startswith("/proc/self (file system proc) cannot hold state or results: ")
    assert file_system(Path("/proc/self")) == "proc"
    with pytest.raises(UnfitMountError, match="format: delta"):
        check_mounts([Path("/proc/self")])
