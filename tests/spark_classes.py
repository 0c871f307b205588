"""The archive of Java classes that the tests' Spark processes start with.

A Spark process spends half of the processor time of a short job on loading and verifying the same
classes. Java can keep them in an archive (class data sharing) and map it into every later process.
`python -m tests.spark_classes` makes it, once for a Spark and a Java; without it, or with another
Java, the tests do the same, more slowly.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The jobs of tests are short: the second compiler and a collector of several threads cost them two
fifths more processor time than they gain."""


def archive() -> Path | None:
    """Where the archive for this Spark and this Java is; None without one of them."""
    spec, java = find_spec("pyspark"), _java()
    if spec is None or spec.origin is None or java is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    identity = f"{java} {java.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return ROOT / "target" / f"spark-classes-{digest}.jsa"


def environment() -> dict[str, str]:
    """The variables with which Spark starts drivers, executors, masters and workers so."""
    file = archive()
    options = OPTIONS
    if file is not None and file.exists():
        options += f" -XX:SharedArchiveFile={file} -Xlog:disable"
    return {
        "SPARK_SUBMIT_OPTS": f'{options} -Dspark.executor.defaultJavaOptions="{options}"',
        "SPARK_DAEMON_JAVA_OPTS": options,
    }


def main() -> int:
    """Make the archive, unless it is there: a small job runs, and Java keeps what it has loaded."""
    sys.path.append(str(ROOT / "tests" / "flux_runtime" / "spark"))
    from ends_job import Project

    file = archive()
    if file is None or file.exists() or " " in str(file):  # Spark separates options by blanks
        return 0
    file.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder) / file.name
        project = Project(Path(folder))
        project.partition(1, 10, 20)
        subprocess.run(
            [sys.executable, "job.py", "--root", ".", "--available-now"],
            cwd=project.path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "BLAZES_MASTER": "local[2]",
                "SPARK_SUBMIT_OPTS": f"{OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
            },
            stdout=subprocess.PIPE,  # read to the end, which Java's own end is
            check=True,
        )
        if made.exists():
            made.replace(file)
    return 0


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


if __name__ == "__main__":
    sys.exit(main())
