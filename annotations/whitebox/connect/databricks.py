"""Stand-ins for what a platform puts in place: sessions, `dbutils`, `dlt`, Delta's `DeltaTable`.

`dlt` is the older name of Declarative Pipelines: its datasets and flows are noted as those of
`pyspark.pipelines`. A merge into a Delta table is sent as Connect's own command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from annotations.whitebox.connect.project import Flow, Project
from annotations.whitebox.following.outside import Outside, by_default
from annotations.whitebox.following.places import caller, definitions


class _Widgets:
    """Parameters of a notebook: those with a default have it."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def _declare(self, name: str, defaultValue: Any = "", *_: Any, **__: Any) -> None:  # noqa: N803
        self._given[name] = defaultValue

    text = dropdown = combobox = multiselect = _declare

    def get(self, name: str, *default: Any) -> Any:
        if name in self._given:
            return by_default(self._given[name], name)
        return default[0] if default else Outside(f"${name}")

    getArgument = get  # noqa: N815

    def getAll(self) -> Mapping[str, Any]:  # noqa: N802
        return dict(self._given)

    def remove(self, name: str) -> None:
        self._given.pop(name, None)

    def removeAll(self) -> None:  # noqa: N802
        self._given.clear()


class DBUtils:
    """Stands for `dbutils`."""

    def __init__(self, *_: Any) -> None:
        self.widgets = _Widgets()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Outside(f"$dbutils.{name}")


def dbutils_module() -> ModuleType:
    """Stands for `pyspark.dbutils`."""
    result = ModuleType("pyspark.dbutils")
    result.DBUtils = DBUtils  # type: ignore[attr-defined]
    return result


def connect_module() -> ModuleType:
    """Stands for `databricks.connect`, whose sessions are Spark's."""
    from pyspark.sql.connect.session import SparkSession

    class Builder(SparkSession.Builder):
        def _of_cluster(self, *_: Any, **__: Any) -> Builder:
            return self

        clusterId = headers = host = profile = sdkConfig = _of_cluster  # noqa: N815
        serverless = token = userAgent = validateSession = _of_cluster  # noqa: N815

    class DatabricksSession(SparkSession):
        builder = Builder()

    result = ModuleType("databricks.connect")
    result.DatabricksSession = DatabricksSession  # type: ignore[attr-defined]
    return result


# ---- dlt


class Pipeline:
    """The datasets and flows that a script defines with `dlt`; flows are asked at its end."""

    def __init__(self, spark: Any) -> None:
        self.project = Project()
        self.functions: list[tuple[Flow, Callable[[], Any]]] = []
        self.spark = spark

    def module(self) -> ModuleType:
        """Stands for `dlt`."""
        result = ModuleType("dlt")
        names = {
            "table": self._dataset("table"),
            "create_table": self._dataset("table"),
            "view": self._dataset("temporary view"),
            "create_view": self._dataset("temporary view"),
            "temporary_view": self._dataset("temporary view"),
            "materialized_view": self._dataset("materialized view"),
            "append_flow": self._append_flow,
            "create_streaming_table": self._streaming_table,
            "create_streaming_live_table": self._streaming_table,
            "create_target_table": self._streaming_table,
            "create_sink": self._sink,
            "create_auto_cdc_flow": self._changes,
        }
        for name, member in (names | self._added()).items():
            setattr(result, name, member)
        result.__getattr__ = lambda name: Outside(f"$dlt.{name}")  # type: ignore[method-assign]
        return result

    def extend(self) -> None:
        """Put into `pyspark.pipelines` what the platform has in it besides."""
        extend_pipelines(self._added())

    def _added(self) -> dict[str, Callable[..., Any]]:
        return {
            **harmless(self.spark),
            "apply_changes": self._changes,
            "apply_changes_from_snapshot": self._snapshots,
            "foreach_batch_sink": self._batch_sink,
            "create_auto_cdc_from_snapshot_flow": self._snapshots,
        }

    def _note(self, name: str, kind: str, comment: Any = None, **details: Any) -> None:
        at = caller()
        assert at is not None
        place = [at.file, at.line, at.column]
        self.project.datasets[name] = {
            "kind": kind,
            "comment": comment or "",
            "position": place,
            **details,
        }

    def _dataset(self, kind: str) -> Callable[..., Any]:
        def define(
            function: Any = None, *, name: str | None = None, comment: Any = None, **_: Any
        ) -> Any:
            def outer(inner: Callable[[], Any]) -> Callable[[], Any]:
                called = (name or inner.__name__).rpartition(".")[2]
                self._note(called, kind, comment)
                self._flow(called, called, inner)
                return inner

            return outer if function is None else outer(function)

        return define

    def _append_flow(
        self, function: Any = None, *, target: str, name: str | None = None, **_: Any
    ) -> Any:
        def outer(inner: Callable[[], Any]) -> Callable[[], Any]:
            self._flow(name or inner.__name__, target.rpartition(".")[2], inner)
            return inner

        return outer if function is None else outer(function)

    def _flow(self, name: str, target: str, function: Callable[[], Any]) -> None:
        at = caller()
        assert at is not None
        flow = Flow(name, target, at)
        self.project.flows.append(flow)
        self.functions.append((flow, function))

    def _streaming_table(self, name: str, comment: Any = None, **_: Any) -> None:
        self._note(name.rpartition(".")[2], "streaming table", comment)

    def _sink(self, name: str, format: str, options: Any = None) -> None:
        texts = {str(key): str(value) for key, value in (options or {}).items()}
        self._note(name, "sink", format=format, options=texts)

    def _batch_sink(self, function: Any = None, *, name: str | None = None, **_: Any) -> Any:
        def outer(inner: Any) -> Any:
            self._note(name or inner.__name__, "sink", format="foreachBatch", options={})
            return inner

        return outer if function is None else outer(function)

    def _changes(
        self,
        target: str,
        source: str,
        keys: Any,
        sequence_by: Any = None,
        *_: Any,
        name: str | None = None,
        stored_as_scd_type: Any = 1,
        **__: Any,
    ) -> None:
        at = caller()
        assert at is not None
        columns = tuple(key if isinstance(key, str) else _column_name(key) for key in keys)
        history = str(stored_as_scd_type) == "2"
        short = target.rpartition(".")[2]
        self.project.flows.append(
            Flow(name or short, short, at, source=source, keys=columns, history=history)
        )

    def _snapshots(self, target: str, source: Any = None, *_: Any, **__: Any) -> None:
        at = caller()
        assert at is not None
        short = target.rpartition(".")[2]
        name = source if isinstance(source, str) else f"{short}_snapshots"
        self.project.flows.append(Flow(short, short, at, source=name, snapshots=True))


def _column_name(column: Any) -> str:
    return str(column._expr.name()) if hasattr(column, "_expr") else str(column)


def _kept(*_: Any) -> Callable[[Any], Any]:
    """An expectation that lets every row through, or stops everything."""
    return lambda function: function


def _filtered(conditions: tuple[str, ...]) -> Callable[[Any], Any]:
    """An expectation that drops the rows that do not meet it."""

    def outer(function: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(function)
        def filtered() -> Any:
            frame = function()
            for condition in conditions:
                frame = frame.where(condition)
            return frame

        return filtered

    return outer


def harmless(spark: Any) -> dict[str, Callable[..., Any]]:
    """The members that the platform has in `pyspark.pipelines` besides and that define nothing:
    expectations, and datasets that are read."""
    return {
        "expect": _kept,
        "expect_all": _kept,
        "expect_or_fail": _kept,
        "expect_all_or_fail": _kept,
        "expect_or_drop": lambda _, condition: _filtered((condition,)),
        "expect_all_or_drop": lambda conditions: _filtered(tuple(conditions.values())),
        "read": lambda name: spark.read.table(name),
        "read_stream": lambda name: spark.readStream.table(name),
        "readStream": lambda name: spark.readStream.table(name),
    }


def extend_pipelines(names: Mapping[str, Callable[..., Any]]) -> None:
    """Put into `pyspark.pipelines` what it does not have, parameters of its functions too."""
    from pyspark import pipelines

    definitions()
    for name, member in vars(pipelines).copy().items():
        if inspect.isfunction(member):
            setattr(pipelines, name, _tolerant(member))
    for name, member in names.items():
        if not hasattr(pipelines, name):
            setattr(pipelines, name, member)


def _plain(value: Any) -> Any:
    """The same text where the client takes no other kind of text."""
    return str.__str__(value) if isinstance(value, str) else value


_STORED: Final = frozenset({"spark_conf", "table_properties", "partition_cols", "cluster_by"})
"""Parameters that say how a dataset is stored, and nothing of its rows."""


def _tolerant(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves out what it is given and has no parameter for, and what is not known
    of a dataset but its name."""
    parameters = inspect.signature(function).parameters
    taken = parameters.keys() - _STORED
    required = {"name"} | {n for n in taken if parameters[n].default is inspect.Parameter.empty}

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        given = {
            n: _plain(value)
            for n, value in named.items()
            if n in taken and (n in required or not isinstance(value, Outside))
        }
        return function(*map(_plain, arguments), **given)

    return called


# ---- Delta


def delta_modules(spark: Any) -> dict[str, Callable[[], ModuleType]]:
    """Stand for `delta` and `delta.tables`."""

    class DeltaTable:
        """Stands for `delta.tables.DeltaTable`: a table that can be read and merged into."""

        def __init__(self, name: str) -> None:
            self.name = name
            self.called = name

        @classmethod
        def forPath(cls, _: Any, path: str, *__: Any) -> DeltaTable:  # noqa: N802
            return cls(str(path))

        @classmethod
        def forName(cls, _: Any, name: str) -> DeltaTable:  # noqa: N802
            return cls(str(name))

        @staticmethod
        def isDeltaTable(*_: Any) -> bool:  # noqa: N802
            return True

        def toDF(self) -> Any:  # noqa: N802
            if "/" in self.name:
                return spark.read.format("delta").load(self.name)
            return spark.read.table(self.name)

        def alias(self, name: str) -> DeltaTable:
            return self

        def merge(self, source: Any, condition: Any) -> Any:
            return _Merge(self.name, source, condition, spark)

        def delete(self, *_: Any, **__: Any) -> None:
            spark.sql(f"DELETE FROM {self.name}")

        def update(self, *_: Any, **__: Any) -> None:
            spark.sql(f"UPDATE {self.name}")

        def restoreToVersion(self, *_: Any) -> None:  # noqa: N802
            spark.sql(f"RESTORE {self.name}")

        updateExpr, restoreToTimestamp = update, restoreToVersion  # noqa: N815

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Outside(f"$DeltaTable.{name}")

    def package() -> ModuleType:
        result = ModuleType("delta")
        result.__path__ = []
        result.DeltaTable = DeltaTable  # type: ignore[attr-defined]
        result.__getattr__ = lambda name: Outside(f"$delta.{name}")  # type: ignore[method-assign]
        result.configure_spark_with_delta_pip = lambda builder, **_: builder  # type: ignore[attr-defined]
        return result

    return {"delta": package, "delta.tables": package}


class _Merge:
    """A merge under construction; `execute` sends it."""

    def __init__(self, target: str, source: Any, condition: Any, spark: Any) -> None:
        import pyspark.sql.connect.proto as pb

        self._client = spark.client
        self._command = pb.Command()
        merge = self._command.merge_into_table_command
        merge.target_table_name = target
        merge.source_table_plan.CopyFrom(source._plan.to_proto(self._client).root)
        if isinstance(condition, str):
            merge.merge_condition.expression_string.expression = condition
        else:
            merge.merge_condition.CopyFrom(condition.to_plan(self._client))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def noted(*given: Any, **named: Any) -> _Merge:
            from annotations.whitebox.connect.answers import INSERTING

            merge = self._command.merge_into_table_command
            if name.startswith("when"):
                inserts = name.startswith("whenNotMatchedInsert")
                actions = merge.not_matched_actions if inserts else merge.match_actions
                all_columns = name.endswith("InsertAll") and not (given or named)
                actions.add().merge_action.action_type = INSERTING if all_columns else 0
            return self

        return noted

    def execute(self) -> None:
        self._client.execute_command(self._command)
