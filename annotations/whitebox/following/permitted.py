"""The part of Python and PySpark that a script may use which is read without being run.

PySpark's interface describes queries and reaches nothing here. Everything else of it and of Python
is left alone: what loads objects or modules by name, and every name that begins with `_`.
"""

from __future__ import annotations

import importlib
import posixpath
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final

from annotations.whitebox.following.configuration import opened

_MODULES: Final = frozenset(
    {
        "argparse",
        "pyspark.pipelines",
        "pyspark.sql",
        "pyspark.sql.avro.functions",
        "pyspark.sql.column",
        "pyspark.sql.connect.functions",
        "pyspark.sql.connect.session",
        "pyspark.sql.dataframe",
        "pyspark.sql.functions",
        "pyspark.sql.functions.builtin",
        "pyspark.sql.group",
        "pyspark.sql.pandas.functions",
        "pyspark.sql.protobuf.functions",
        "pyspark.sql.readwriter",
        "pyspark.sql.session",
        "pyspark.sql.streaming",
        "pyspark.sql.streaming.listener",
        "pyspark.sql.streaming.query",
        "pyspark.sql.streaming.readwriter",
        "pyspark.sql.streaming.state",
        "pyspark.sql.streaming.stateful_processor",
        "pyspark.sql.types",
        "pyspark.sql.udf",
        "pyspark.sql.window",
    }
)
PANDAS_UDF: Final = frozenset({"pyspark.sql.functions", "pyspark.sql.pandas.functions"})
"""Modules that have `pandas_udf`."""
_OWNERS: Final = (
    "argparse.",
    "pyspark.sql.",
    "pyspark.pipelines.",
    "annotations.whitebox.connect.",
    "annotations.whitebox.following.",
)
"""Modules whose objects may be used."""
_FOLLOWING: Final = tuple(
    f"annotations.whitebox.following.{name}."
    for name in ("branches", "calls", "evaluation", "interpreter", "script_functions")
)
"""Modules whose objects stand for what a script has itself."""
_NOT: Final = frozenset(
    {"addArtifact", "addArtifacts", "deserialize", "fromDDL", "fromJson", "loads", "serialize"}
    | {"client", "copyFromLocalToFs", "dataSource", "pandas_udf", "register_dataframe_accessor"}
)
"""Members that load or send something, or say less of a function than its text does."""
PLAIN: Final = (str, int, float, bool, bytes, list, tuple, dict, set, range, slice)
_VALUES: Final = (*PLAIN, type(None))
_HARMLESS: Final = frozenset(
    {"alias", "repartition", "coalesce", "persist", "cache", "hint"}
    | {"createTempView", "createOrReplaceTempView", "createGlobalTempView"}
    | {"createOrReplaceGlobalTempView"}
)
_GROUPING: Final = frozenset({"groupBy", "groupby", "groupingSets", "rollup", "cube", "pivot"})


def shown(*_: Any, **__: Any) -> None:
    """Stands for what is only shown."""


def join(first: str, *rest: str) -> str:
    """The path of several parts: `os.path.join`."""
    return posixpath.join(str(first), *map(str, rest))


BUILT_IN: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **{kind.__name__: kind for kind in (str, int, float, bool, bytes, list, tuple, dict, set)},
        **{f.__name__: f for f in (len, range, zip, enumerate, sorted, reversed, min, max, sum)},
        **{f.__name__: f for f in (abs, round, all, any)},
        "open": opened,
        "print": shown,
    }
)


def wall(script: Path) -> None:
    """Let this process run no code but that of Python and of its installed packages.

    The names and calls that a script may use keep to this by themselves; whatever they overlook
    ends here, at Python's own audit events.
    """
    installed = {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    own = str(Path(__file__).parents[3])
    roots = (*(str(Path(folder).resolve()) for folder in installed), *installed, own)
    inside = str(script.resolve().parent)

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec":
            file = getattr(arguments[0], "co_filename", "")
            foreign = not file.startswith((*roots, "<frozen", "<string>"))
            if foreign or (file.startswith(inside) and not inside.startswith(own)):
                raise PermissionError(f"{file} would be run")
        elif event in _WALLED:
            raise PermissionError(event)

    sys.addaudithook(check)


_WALLED: Final = frozenset(
    {"pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"}
    | {"os.fork", "socket.connect"}
)
"""Audit events that reading a script without running it has no use for."""


def module(name: str) -> Any:
    """A module of PySpark that may be used; None for any other."""
    if name == "pyspark":
        importlib.import_module("pyspark.sql")
        return sys.modules["pyspark"]
    if name not in _MODULES:
        return None
    return importlib.import_module(name)


def all_of(source: Any) -> dict[str, Any]:
    """The names that `from module import *` gives."""
    if not isinstance(source, ModuleType):
        return dict(getattr(source, "names", {}))
    public = [name for name in vars(source) if name[0] != "_"]
    older = [n for n in public if not n.islower() and of_functions(getattr(source, n))]
    names = [*getattr(source, "__all__", public), *older]  # `countDistinct`, of Spark 3
    return {name: getattr(source, name) for name in names if attribute(source, name)}


def attribute(owner: Any, name: str) -> bool:
    """Whether a member of an object may be looked at."""
    if name.startswith("_") or name in _NOT:
        return False
    if isinstance(owner, ModuleType):
        member = getattr(owner, name, None)
        if isinstance(member, ModuleType):
            return member.__name__ in _MODULES
        return callable_(member) or value(member)
    return value(owner) or _owned(type(owner)) or (isinstance(owner, type) and _owned(owner))


def value(candidate: Any) -> bool:
    """Whether an object is a plain value, or one of PySpark."""
    return (
        isinstance(candidate, _VALUES)
        or _owned(type(candidate))
        or isinstance(candidate, ModuleType)
    )


def callable_(candidate: Any) -> bool:
    """Whether an object may be called."""
    if any(candidate is function for function in (*BUILT_IN.values(), join)):
        return True
    owner = getattr(candidate, "__self__", None)
    if isinstance(owner, _VALUES) and owner is not None:
        return True
    if isinstance(candidate, type):
        return _owned(candidate)
    if owner is not None and not isinstance(owner, ModuleType):
        return _owned(type(owner)) or (isinstance(owner, type) and _owned(owner))
    return _owned(candidate)


def _owned(candidate: Any) -> bool:
    name = str(getattr(candidate, "__module__", "") or "") + "."
    return name.startswith(_OWNERS) and not name.startswith(_FOLLOWING)


def _is(candidate: Any, *names: str) -> bool:
    return _owned(type(candidate)) and type(candidate).__name__ in names


def frame(candidate: Any) -> bool:
    """Whether an object is a DataFrame."""
    return _is(candidate, "DataFrame")


def essence(result: Any) -> Any:
    """The plan of a DataFrame or of a query that would start, without numbers that are other ones
    each time, and what else makes it what it is; anything else as it is."""
    if frame(result):
        return plain(result._plan.to_proto(result._session.client))
    if _is(result, "Started"):
        views = {name: plain(view) for name, view in result.views.items()}
        return plain(result.command), views, result.position, id(result.body)
    return result


def plain(message: Any) -> bytes:
    """The bytes of a message but for numbers that are other ones each time."""
    copy = type(message)()
    copy.CopyFrom(message)
    todo = [copy]
    while todo:
        part = todo.pop()
        if part.DESCRIPTOR.name == "RelationCommon":
            part.ClearField("plan_id")
        for field, value in part.ListFields():
            if field.message_type is None:
                continue
            several = value if field.is_repeated else [value]
            if field.message_type.GetOptions().map_entry:
                several = [item for item in value.values() if hasattr(item, "ListFields")]
            todo += several
    return bytes(copy.SerializeToString(deterministic=True))


def of_frames(candidate: Any) -> bool:
    """Whether an object is a function of the class of DataFrames: `DataFrame.union`."""
    named = str(getattr(candidate, "__qualname__", "")).startswith("DataFrame.")
    return named and isinstance(candidate, FunctionType) and callable_(candidate)


def of_functions(candidate: Any) -> bool:
    """Whether an object is one of PySpark's functions of columns."""
    name = str(getattr(candidate, "__module__", ""))
    return callable(candidate) and name.startswith(
        ("pyspark.sql.functions", "pyspark.sql.connect.functions")
    )


def frame_of(candidate: Any) -> Any:
    """The DataFrame that an object is, or that it groups; None of any other."""
    return (
        candidate if frame(candidate) else candidate._df if _is(candidate, "GroupedData") else None
    )


def as_given(method: str, result: Any) -> Any:
    """A DataFrame as a method would give it: grouped, or as it is."""
    return result.groupBy() if method in _GROUPING else result


def setting(owner: Any, name: str) -> bool:
    """Whether a member of an object tells of the place where the script runs: its configuration,
    its tables, its version."""
    if _is(owner, "Catalog"):
        return name.startswith(("current", "get", "is", "list")) or name.endswith("Exists")
    return (name == "get" and _is(owner, "RuntimeConf")) or (
        name == "version" and _is(owner, "SparkSession")
    )


def column(candidate: Any) -> bool:
    """Whether an object is a column."""
    return _is(candidate, "Column")


def reader(candidate: Any) -> bool:
    """Whether an object reads from outside."""
    return _is(candidate, "DataFrameReader", "DataStreamReader")


def writer(candidate: Any) -> bool:
    """Whether an object writes a stream."""
    return _is(candidate, "DataStreamWriter")


def harmless(method: str) -> bool:
    """Whether a method of a DataFrame changes none of its rows, whatever its arguments are."""
    return method in _HARMLESS
