"""The Spark session of a job: where it runs, its defaults, its log.

An argument of spark-submit wins over the deployment section of the dataflow's file, and that over
spark-defaults.conf; whatever none of them sets has the defaults below.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JavaMember, JavaObject, is_magic_member
from py4j.protocol import REFERENCE_TYPE, register_output_converter
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Hadoop's FileContext starts processes (`readlink`, `chmod`) for every entry of a log
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.pollingDelay": "200ms",  # an idle file source lists its folder this often
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.variable.substitute": "false",  # `${x}` in a text is that text
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}
"""On top of `DEFAULTS` where driver and executors are one process."""

SITE_DEFAULTS: Final[Mapping[str, str]] = {"spark.sql.streaming.pollingDelay": "50ms"}
"""On top of `DEFAULTS` where sites answer within milliseconds."""

_LOG_CONFIG: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class Reference(JavaObject):  # type: ignore[misc]
    """A Java object that Java can free as soon as Python refers to it no longer.

    py4j's own objects keep the methods that were called on them, and these refer to the object: a
    circle that only Python's collector ends. It runs seldom where much lives long; until then Java
    holds the plans and broadcast tables of hundreds of micro-batches.
    """

    def __getattr__(self, name: str) -> Any:
        if is_magic_member(name):
            raise AttributeError(name)
        return JavaMember(name, self, self._target_id, self._gateway_client)


register_output_converter(REFERENCE_TYPE, Reference)


def start_session(
    name: str, *, master: str | None, conf: Mapping[str, str], log: Path, sites: int = 0
) -> SparkSession:
    """A session for a job.

    Args:
        name: of the application.
        master: see `master_of`.
        conf: settings of the deployment.
        log: where Spark and its Java process log to.
        sites: tasks that hold a slot for as long as the job runs; local masters get as many more.
    """
    given, submitted = _given()
    wanted = {**given, **conf, **submitted}
    master = master_of(master, conf)
    defaults = {**DEFAULTS, **(SITE_DEFAULTS if sites else {})}
    cores = local_cores(master)
    if cores is not None:
        defaults |= LOCAL_DEFAULTS
        defaults["spark.sql.shuffle.partitions"] = str(cores)
        if sites:
            master = with_slots(master, cores + sites)
            defaults["spark.default.parallelism"] = str(cores)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have what the job has
    config = log.with_name("log4j2.properties")
    config.write_text(_LOG_CONFIG.format(log=_property(str(log))), encoding="ascii")
    settings = {k: v for k, v in defaults.items() if k not in given}
    settings |= {k: v for k, v in conf.items() if k not in submitted and k != "spark.master"}
    options = wanted.get("spark.driver.extraJavaOptions", "")
    if "log4j" not in options:
        settings["spark.driver.extraJavaOptions"] = (
            f"{options} -Dlog4j2.configurationFile={config.as_uri()}".strip()
        )
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    running = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    with _stderr_to(log):
        session = builder.getOrCreate()
    if running:
        _log_to(session, config)
    return session


def master_of(master: str | None, conf: Mapping[str, str]) -> str:
    """The Spark master of a job.

    Args:
        master: its URL; None: `spark.master` of spark-submit, `conf` or spark-defaults.conf, else
            `local[*]`.
        conf: settings of the deployment.
    """
    given, submitted = _given()
    return master or {**given, **conf, **submitted}.get("spark.master") or "local[*]"


def local_cores(master: str) -> int | None:
    """How many cores a local master has; None for a cluster.

    >>> local_cores("local[3]"), local_cores("local[2, 4]"), local_cores("spark://h:7077")
    (3, 2, None)
    """
    match = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?", master)
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return int(match[1] or 1)


def with_slots(master: str, slots: int) -> str:
    """A local master with so many slots.

    >>> with_slots("local[*]", 5), with_slots("local[2, 4]", 5)
    ('local[5]', 'local[5,4]')
    """
    failures = re.search(r",\s*(\d+)", master)
    return f"local[{slots},{failures[1]}]" if failures else f"local[{slots}]"


def _property(text: str) -> str:
    r"""A text in a properties file of Java, which reads bytes as Latin-1.

    >>> print(_property("/jobs/é"))
    /jobs/\u00e9
    """
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def _given() -> tuple[dict[str, str], dict[str, str]]:
    """All that Spark was given before this; of it, what arguments of spark-submit say.

    spark-submit hands on both as one: an argument is what differs from spark-defaults.conf.
    """
    file = _defaults_file()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # else Python's SparkConf knows nothing of Java's
        given = dict(SparkConf().getAll())
        return given, {k: v for k, v in given.items() if file.get(k) != v}
    return dict(SparkConf().getAll()) if SparkContext._gateway is not None else file, {}


def _defaults_file() -> dict[str, str]:
    """The settings in spark-defaults.conf."""
    home = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    file = Path(home) / "spark-defaults.conf"
    if not file.is_file():
        return {}
    lines = (line.strip() for line in file.read_text().splitlines())
    pairs = (re.split(r"[\s=]+", line, maxsplit=1) for line in lines if line and line[0] != "#")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Let what starts now write its standard error to the log."""
    saved = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(target)


def _log_to(session: SparkSession, config: Path) -> None:
    """Point the log of a Java process that runs already to the run folder."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    configurator = jvm.org.apache.logging.log4j.core.config.Configurator
    configurator.reconfigure(jvm.java.net.URI(config.as_uri()))
