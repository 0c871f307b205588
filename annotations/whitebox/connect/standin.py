"""Stand-ins that let whole scripts run unmodified: their way to a session leads to ours.

A script builds its session itself, with a master and settings, and often reaches for the Spark
context. The settings are noted; of the context only what changes nothing can be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, Final

from annotations.whitebox.connect.answers import APPLICATION, Answers
from annotations.whitebox.connect.counts import Counted
from annotations.whitebox.following.outside import ASKED, Columns, Outside, Refused, of_user

_HARMLESS: Final = frozenset(
    {"setLogLevel", "setCheckpointDir", "setJobGroup", "setJobDescription", "setLocalProperty"}
    | {"addPyFile", "addFile", "addArchive", "setInterruptOnCancel"}
)
"""Methods of a Spark context that change nothing about what is computed."""


class _Context:
    """Stands for `spark.sparkContext`."""

    master = "none"
    version = "4"

    def __getattr__(self, name: str) -> Any:
        if name in ("applicationId", "applicationAttemptId", "startTime", "uiWebUrl"):
            return Outside(APPLICATION)
        if name in _HARMLESS:
            return lambda *_, **__: None
        if name == "broadcast":
            return lambda value: SimpleNamespace(value=value, destroy=_nothing, unpersist=_nothing)
        if name[:2] in ("_j", "_g"):  # the JVM behind it
            return Outside(f"$sparkContext.{name}")
        raise Refused(f"`sparkContext.{name}` needs a running Spark: RDDs are not read")


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is there to be done."""


def _itself(frame: Any, *_: Any, **__: Any) -> Any:
    """A copy of what it has."""
    return frame


def stand_in(spark: Any, answers: Answers, grows: Callable[[Any], bool]) -> None:
    """Make `SparkSession.builder...getOrCreate()` give this session, and keep it open.

    Args:
        grows: whether the DataFrame of a relation may have more columns than are known.
    """
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.functions import builtin
    from pyspark.sql.connect.group import GroupedData
    from pyspark.sql.connect.readwriter import DataFrameWriter
    from pyspark.sql.connect.session import SparkSession as Connected
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    def get(builder: Any) -> Any:
        for name, value in builder._options.items():
            answers.conf[str(name)] = str(value)
        return spark

    def hand_over(kind: str) -> Any:
        def handed(writer: Any, function: Any) -> Any:
            key = str(len(answers.bodies)).encode()
            answers.bodies[key] = function
            getattr(writer._write_proto, kind).python_function.command = key
            return writer

        return handed

    watermark = DataFrame.withWatermark

    @wraps(watermark)
    def watermarked(frame: Any, eventTime: Any, delayThreshold: Any) -> Any:  # noqa: N803
        # The client takes no other kind of text, as one by default is.
        texts = [str(v) if isinstance(v, str) else v for v in (eventTime, delayThreshold)]
        return watermark(frame, *texts)

    aggregate = GroupedData._numeric_agg

    def numeric(grouped: Any, function: str, columns: Any) -> Any:
        # Which columns are numbers is known here of those with a declared type only.
        if not columns or grouped._group_type != "groupby":
            return aggregate(grouped, function, columns)
        call = [builtin._invoke_function(function, builtin.col(c)) for c in columns]
        named = zip(call, columns, strict=True)
        return grouped.agg(*[column.alias(f"{function}({c})") for column, c in named])

    mode = DataFrameWriter.mode

    def set_mode(writer: Any, saveMode: Any) -> Any:  # noqa: N803
        # The client knows only the shorter of two names.
        fails = isinstance(saveMode, str) and saveMode.lower() in ("errorifexists", "default")
        return mode(writer, "error" if fails else saveMode)

    count = DataFrame.count

    def counted(frame: Any) -> int:
        return count(frame) if answers.counts is None else Counted(count(frame))

    def open_to_more(frame: Any) -> bool:
        return grows(frame._plan.to_proto(spark.client).root)

    columns: Any = DataFrame.columns
    schema: Any = DataFrame.schema

    def named(frame: Any) -> list[str]:
        names: list[str] = columns.fget(frame)
        return Columns(names) if open_to_more(frame) else names

    def described(frame: Any) -> Any:
        if of_user(sys._getframe(1)) and open_to_more(frame):
            ASKED["the schema of a table"] = None
        return schema.fget(frame)

    # Nothing is ever sent to a worker.
    _replace(DataFrameWriter, mode=set_mode)
    _replace(DataFrame, count=wraps(count)(counted), withWatermark=watermarked)
    _replace(DataFrame, columns=property(named), schema=property(described))
    _replace(DataFrame, checkpoint=_itself, localCheckpoint=_itself)
    _replace(GroupedData, _numeric_agg=numeric)
    _replace(CloudPickleSerializer, dumps=lambda _, value: answers.keep(value))
    handed = {"foreachBatch": "foreach_batch", "foreach": "foreach_writer"}
    _replace(DataStreamWriter, **{name: hand_over(kind) for name, kind in handed.items()})
    _replace(DataStreamWriter, table=DataStreamWriter.toTable)  # its name on a platform
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
