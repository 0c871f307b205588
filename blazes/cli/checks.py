"""The requirements of compiled jobs on a machine: a check for each thing that once went wrong.

`blazes doctor` runs all of them, `blazes run` the cheap ones first. A check never raises: whatever
goes wrong is its finding.
"""

from __future__ import annotations

import enum
import functools
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PYTHON_MINIMUM: Final = (3, 11)
MEMORY_WARN_MB: Final = 3000
MEMORY_FAIL_MB: Final = 1200
DISK_WARN_MB: Final = 3000
DISK_FAIL_MB: Final = 300
SPARK_LIMIT_S: Final = 180.0

_INSTALL: Final = "Install it: pip install 'blazes[run]'."
_JOB: Final = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").appName("blazes doctor")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.log.level", "ERROR")
    .getOrCreate())
rows = spark.range(1000).selectExpr("sum(id)").first()[0]
python = spark.sparkContext.parallelize([1, 2, 3], 1).map(lambda n: n + 1).sum()
spark.stop()
print("answers", rows, python)
"""


class Status(enum.IntEnum):
    """How a check ended; the greatest of all is the doctor's verdict."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check, and for WARN and FAIL the remedy."""

    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to check."""

    name: str
    why: str
    look: Callable[[Path], Finding]
    """Given the folder in which a job would write."""
    before_run: bool = True
    """Cheap enough to be done before every run."""
    starts: bool = False
    """Starts servers or jobs: left out with --quick."""


@dataclass(frozen=True, slots=True)
class Result:
    """A check that was done."""

    check: Check
    finding: Finding
    seconds: float


def run_checks(checks: tuple[Check, ...], folder: Path) -> tuple[Result, ...]:
    """Do the checks, in their order."""
    return tuple(run_check(check, folder) for check in checks)


def run_check(check: Check, folder: Path) -> Result:
    """Do one check; an unforeseen error is a failure of the check with that error."""
    started = time.monotonic()
    try:
        finding = check.look(folder)
    except Exception as unforeseen:
        finding = Finding(
            Status.FAIL, f"{type(unforeseen).__name__}: {unforeseen}", "See what the message says."
        )
    return Result(check, finding, time.monotonic() - started)


def python_version(_: Path) -> Finding:
    """The interpreter that runs this, which also runs the job."""
    version = f"Python {sys.version.split()[0]} ({sys.executable})"
    if sys.version_info < PYTHON_MINIMUM:
        return Finding(Status.FAIL, version, "Use Python 3.11 or newer.")
    return Finding(Status.OK, version)


def java(_: Path) -> Finding:
    """The Java that Spark would take."""
    from flux_runtime.zookeeper.errors import JavaProblem
    from flux_runtime.zookeeper.java import find_java

    try:
        java = find_java()
    except JavaProblem as problem:
        return Finding(Status.FAIL, problem.message, problem.remedy)
    return Finding(Status.OK, f"Java {java.version} ({java.executable}, from {java.origin})")


def requirements(extra: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Package -> its bounds, as this distribution's metadata has them for an extra."""
    versions = {}
    for line in importlib.metadata.requires("blazes") or ():
        text, _, marker = line.partition(";")
        if f'extra == "{extra}"' in marker.replace("'", '"'):
            name = re.split(r"[^\w.-]", text, maxsplit=1)[0]
            versions[name] = tuple(re.findall(r"(>=|<=|==|<|>)\s*([\w.]+)", text))
    return versions


def within(version: str, bounds: tuple[tuple[str, str], ...]) -> bool:
    """Whether a version is within bounds; what follows the numbers of a release is ignored.

    >>> within("2.3.3", ((">=", "2.2"), ("<", "3"))), within("3.0.0rc1", (("<", "3"),))
    (True, False)
    """

    def numbers(text: str) -> tuple[int, ...]:
        release = re.match(r"\d+(\.\d+)*", text)
        parts = [int(part) for part in release[0].split(".")] if release else [0]
        return tuple((parts + [0] * 4)[:4])

    tests: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
        ">=": lambda a, b: a >= b,
        "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
    }
    return all(tests[operator](numbers(version), numbers(bound)) for operator, bound in bounds)


def package(name: str, _: Path) -> Finding:
    """An installed package, within the bounds of this distribution."""
    bounds = requirements("run")[name]
    asked = ",".join(operator + version for operator, version in bounds)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(Status.FAIL, f"{name} is not installed", _INSTALL)
    if not within(version, bounds):
        return Finding(
            Status.FAIL,
            f"{name} {version} is installed, {asked} is needed",
            f"pip install '{name}{asked}'",
        )
    return Finding(Status.OK, f"{name} {version}")


def jars(_: Path) -> Finding:
    """Spark and ZooKeeper themselves."""
    from flux_runtime.zookeeper.errors import JarsMissing
    from flux_runtime.zookeeper.process import server_jars

    try:
        folder = server_jars()
    except JarsMissing as problem:
        return Finding(Status.FAIL, problem.message, problem.remedy)
    version = next(folder.glob("zookeeper-[0-9]*.jar")).stem.rpartition("-")[2]
    if not any(folder.glob("spark-core_*.jar")):
        return Finding(Status.FAIL, f"no spark-core jar in {folder}", "Reinstall pyspark.")
    home = os.environ.get("SPARK_HOME")
    if home and Path(home) / "jars" == folder and "site-packages" not in home:
        return Finding(
            Status.WARN,
            f"Spark is the one of SPARK_HOME ({home}), ZooKeeper {version}",
            "Unset SPARK_HOME where the installed pyspark should be used.",
        )
    return Finding(Status.OK, f"ZooKeeper {version} among the jars in {folder}")


def locked_versions(_: Path) -> Finding:
    """In a checkout: whether the versions are the ones that the tests pass with."""
    lock = Path(__file__).parents[2] / "constraints.txt"
    if not lock.exists():
        return Finding(Status.OK, "not a checkout: any version within the bounds")
    other = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        name, wanted = line.strip().partition("==")[::2]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a tool that is not needed to run
        if version != wanted:
            other.append(f"{name} {version} (locked: {wanted})")
    if other:
        return Finding(
            Status.WARN,
            f"other versions than the locked ones: {', '.join(other)}",
            f"pip install -c {lock} -e '{lock.parent}[dev]'",
        )
    return Finding(Status.OK, "all as in constraints.txt")


def memory(_: Path) -> Finding:
    """Memory that is free now, within the limit of a container."""
    available = memory_available_mb()
    if available is None:
        return Finding(Status.OK, "not known on this system")
    amount = f"{available:,.0f} MB available".replace(",", " ")
    remedy = "Close programs, or give the machine or container more; a small job takes about 2 GB."
    if available < MEMORY_FAIL_MB:
        return Finding(Status.FAIL, amount, remedy)
    return Finding(Status.WARN if available < MEMORY_WARN_MB else Status.OK, amount, remedy)


def memory_available_mb(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """Megabytes that can be had, of the machine and of the control group; None where unknown."""
    limits = []
    if meminfo.exists():
        free = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(encoding="ascii"), re.M)
        limits += [int(free[1]) / 1024] if free else []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most = (cgroup / limit).read_text(encoding="ascii").strip()
            now = (cgroup / used).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if most.isdigit() and int(most) < 1 << 60:
            limits.append((int(most) - int(now)) / 1024 / 1024)
    return min(limits, default=None)


def disk(folder: Path) -> Finding:
    """Space where the job writes, and that it may write there."""
    there = folder.resolve()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            Status.FAIL, f"{there} is not a folder that you may write to", "Use --target-dir."
        )
    free = shutil.disk_usage(there).free / 1024 / 1024
    amount = f"{free:,.0f} MB free in {there}".replace(",", " ")
    remedy = "Make room, or put the job elsewhere with --target-dir."
    if free < DISK_FAIL_MB:
        return Finding(Status.FAIL, amount, remedy)
    return Finding(Status.WARN if free < DISK_WARN_MB else Status.OK, amount, remedy)


def loopback(_: Path) -> Finding:
    """A port on 127.0.0.1 can be listened on and connected to, and the host's name is known."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 5):
            pass
    name = socket.gethostname()
    try:
        socket.gethostbyname(name)
    except OSError:
        return Finding(
            Status.WARN,
            f"127.0.0.1 works, but this machine's name {name} has no address",
            f"Add `127.0.0.1 {name}` to /etc/hosts, or export SPARK_LOCAL_IP=127.0.0.1.",
        )
    return Finding(Status.OK, f"port {port} on 127.0.0.1 was free and answers")


def zookeeper(_: Path) -> Finding:
    """The embedded server starts, and keeps what it is told."""
    from flux_runtime.zookeeper.client import connect
    from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
    from flux_runtime.zookeeper.errors import ZooKeeperProblem

    started = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="blazes-doctor-") as folder,
            EmbeddedZooKeeper(folder) as server,
        ):
            seconds = time.monotonic() - started
            with connect(server.hosts) as client:
                client.kazoo.create("/doctor", b"well")
                answer = client.kazoo.get("/doctor")[0]
    except ZooKeeperProblem as problem:
        return Finding(Status.FAIL, problem.message, problem.remedy)
    if answer != b"well":
        return Finding(Status.FAIL, f"it answered {answer!r}", "Report this: it cannot happen.")
    return Finding(Status.OK, f"started in {seconds:.1f} s and answers")


def spark(_: Path) -> Finding:
    """A small job, with one Python function in it, on local Spark."""
    with tempfile.TemporaryDirectory(prefix="blazes-doctor-") as folder:
        try:
            job = subprocess.run(
                [sys.executable, "-c", _JOB],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SPARK_LIMIT_S,
                cwd=folder,
                env={"PYSPARK_PYTHON": sys.executable, **os.environ},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Finding(
                Status.FAIL,
                f"a small Spark job did not end within {SPARK_LIMIT_S:.0f} s",
                "Look at the machine's load and memory; try again.",
            )
    if job.returncode == 0 and "answers 499500 9" in job.stdout:
        return Finding(Status.OK, "a small job gave the right answer")
    lines = map(str.strip, (job.stderr + job.stdout).splitlines())
    messages = list(dict.fromkeys(line for line in lines if line and not line.startswith("at ")))
    errors = [line for line in messages if re.search(r"error|exception|cannot|refused", line, re.I)]
    return Finding(
        Status.FAIL,
        f"a small Spark job failed (exit status {job.returncode}): "
        f"{' / '.join((errors or messages)[-3:])[:500]}",
        "Mend what fails above first; PYSPARK_PYTHON and SPARK_HOME must fit this Python "
        f"({sys.executable}).",
    )


CHECKS: Final = (
    Check("python", "jobs run on this Python", python_version),
    Check("java", "Spark and ZooKeeper run on Java", java),
    *(
        Check(name, why, functools.partial(package, name))
        for name, why in (
            ("pyspark", "jobs run on Spark"),
            ("pandas", "PySpark 4 does not accept pandas 3"),
            ("pyarrow", "partitions are kept as Parquet"),
            ("numpy", "digests are computed with it"),
            ("kazoo", "the client of ZooKeeper"),
        )
    ),
    Check("jars", "Spark's jars hold the ZooKeeper server", jars),
    Check("versions", "the tests pass with the locked versions", locked_versions, before_run=False),
    Check("memory", "Spark takes about 2 GB", memory),
    Check("disk", "buffers and results are kept on disk", disk),
    Check("loopback", "everything talks through 127.0.0.1", loopback),
    Check("zookeeper", "producers are registered there", zookeeper, before_run=False, starts=True),
    Check("spark", "a job runs", spark, before_run=False, starts=True),
)
"""Every check, in the order in which one failure explains the next."""
