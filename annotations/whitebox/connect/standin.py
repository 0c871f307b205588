"""What lets whole scripts run unmodified: their way to a session leads to ours.

A script builds its session itself, with a master and settings, and often reaches for the Spark
context. The settings are noted; of the context only what changes nothing can be called.
"""

from __future__ import annotations

from typing import Any, Final

from annotations.whitebox.connect.answers import Answers, Refused

_HARMLESS: Final = frozenset(
    {"setLogLevel", "setCheckpointDir", "setJobGroup", "setJobDescription", "setLocalProperty"}
    | {"addPyFile", "addFile", "addArchive", "setInterruptOnCancel"}
)
"""Methods of a Spark context that change nothing about what is computed."""


class _Context:
    """Stands for `spark.sparkContext`."""

    applicationId = "reading"  # noqa: N815 - Spark's name
    master = "none"
    version = "4"

    def __getattr__(self, name: str) -> Any:
        if name in _HARMLESS:
            return lambda *_, **__: None
        raise Refused(f"`sparkContext.{name}` needs a running Spark: RDDs are not read")


def stand_in(spark: Any, answers: Answers) -> None:
    """Make `SparkSession.builder...getOrCreate()` give this session, and keep it open."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as Connected

    def get(builder: Any) -> Any:
        for name, value in builder._options.items():
            answers.conf[str(name)] = str(value)
        return spark

    _replace(SparkSession.Builder, _validate_startup_urls=lambda _: None)
    for builder in (SparkSession.Builder, Connected.Builder):
        _replace(builder, getOrCreate=get, create=get)
    _replace(
        Connected,
        sparkContext=property(lambda _: _Context()),
        stop=lambda _: None,
        newSession=lambda session: session,
    )


def _replace(owner: type, **members: Any) -> None:
    for name, member in members.items():
        setattr(owner, name, member)
