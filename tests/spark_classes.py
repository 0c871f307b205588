"""The archives of Java classes that the tests' processes of Spark and ZooKeeper start with.

A Spark process spends half of the processor time of a short job on loading and verifying the same
classes. Java can keep them in an archive (class data sharing) and map it into every later process.
`python -m tests.spark_classes` makes it, once for a Spark and a Java, and one for ZooKeeper;
without them, or with another Java, the tests do the same, more slowly.
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
SPARK: Final = "spark"
ZOOKEEPER: Final = "zookeeper"

OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The jobs of tests are short: the second compiler and a collector of several threads cost them two
fifths more processor time than they gain."""


def archive(name: str) -> Path | None:
    """Where the archive for this Spark and this Java is; None without one of them."""
    spec, java = find_spec("pyspark"), _java()
    if spec is None or spec.origin is None or java is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    identity = f"{java} {java.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return ROOT / "target" / f"{name}-classes-{digest}.jsa"


def environment() -> dict[str, str]:
    """The variables with which drivers, executors, masters, workers and ZooKeeper start so."""
    spark = f"{OPTIONS}{_from(SPARK)}"
    return {
        "SPARK_SUBMIT_OPTS": f'{spark} -Dspark.executor.defaultJavaOptions="{spark}"',
        "SPARK_DAEMON_JAVA_OPTS": spark,
        "SERVER_JVMFLAGS": _from(ZOOKEEPER),
    }


def _from(name: str) -> str:
    """The options with which Java takes its classes from an archive, if that is there."""
    file = archive(name)
    there = file is not None and file.exists()
    return f" -XX:SharedArchiveFile={file} -Xlog:disable" if there else ""


def main() -> int:
    """Make the archives that are not there: Java keeps what it has loaded when it ends."""
    (ROOT / "target").mkdir(exist_ok=True)
    for name, run in ((SPARK, _small_job), (ZOOKEEPER, _small_server)):
        file = archive(name)
        if file is None or file.exists() or " " in str(file):  # Spark separates options by blanks
            continue
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            run(Path(folder), f"-XX:ArchiveClassesAtExit={made} -Xlog:disable")
            if made.exists():
                made.replace(file)
    return 0


def _small_job(folder: Path, options: str) -> None:
    sys.path.append(str(ROOT / "tests" / "flux_runtime" / "spark"))
    from ends_job import Project

    project = Project(folder)
    project.partition(1, 10, 20)
    subprocess.run(
        [sys.executable, "job.py", "--root", ".", "--available-now"],
        cwd=project.path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "BLAZES_MASTER": "local[2]",
            "SPARK_SUBMIT_OPTS": f"{OPTIONS} {options}",
        },
        stdout=subprocess.PIPE,  # read to the end, which Java's own end is
        check=True,
    )


def _small_server(folder: Path, options: str) -> None:
    from flux_runtime.zookeeper.client import connect
    from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper

    os.environ["SERVER_JVMFLAGS"] = options
    with EmbeddedZooKeeper(folder / "data", grace_s=60) as server:
        connect(server.hosts).close()


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


if __name__ == "__main__":
    sys.exit(main())
