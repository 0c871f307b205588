"""Operations that hand rows to Python functions, of which nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.connect.user_functions import shown_of
from annotations.whitebox.datatypes import DataType


def _user_code(
    home: Relations,
    inside: Sequence[Built],
    function: Any,
    what: str,
    at: Position | None,
    schema: DataType | None,
    *,
    writes: bool = True,
) -> Built:
    """What a function makes of rows: the same each time, unless its author or its text says no."""
    text = shown_of(function)
    other = text.chance or text.kept
    reason = f"`{function.function_name}` {what}"
    if other:
        reason += f", and `{other}` in it is not the same each time"
    same = function.deterministic and not other
    return home.user_code(inside, reason, at, schema=schema, writes=writes, deterministic=same)


def _map_partitions(home: Relations, proto: Any, at: Position | None) -> Built:
    schema = from_proto(proto.func.python_udf.output_type)
    what = "sees how records are divided into batches (mapInPandas, mapInArrow)"
    return _user_code(home, [home.build(proto.input)], proto.func, what, at, schema, writes=False)


def _group_map(home: Relations, proto: Any, at: Position | None) -> Built:
    stateful = proto.HasField("transform_with_state_info")
    schema = proto.func.python_udf.output_type
    if stateful:
        schema = proto.transform_with_state_info.output_schema
    what = "keeps state of its own (transformWithState)" if stateful else "sees whole groups"
    inside = [home.build(proto.input)]
    if proto.HasField("initial_input"):
        inside.append(home.build(proto.initial_input))
    return _user_code(home, inside, proto.func, what, at, from_proto(schema))


def _co_group_map(home: Relations, proto: Any, at: Position | None) -> Built:
    inside = [home.build(proto.input), home.build(proto.other)]
    schema = from_proto(proto.func.python_udf.output_type)
    return _user_code(home, inside, proto.func, "sees whole groups of two inputs", at, schema)


def _apply_in_pandas_with_state(home: Relations, proto: Any, at: Position | None) -> Built:
    what = "keeps state of its own (applyInPandasWithState)"
    schema = ddl_type(proto.output_schema)
    return _user_code(home, [home.build(proto.input)], proto.func, what, at, schema)


CONVERTERS: Final[dict[str, Converter]] = {
    "map_partitions": _map_partitions,
    "group_map": _group_map,
    "co_group_map": _co_group_map,
    "apply_in_pandas_with_state": _apply_in_pandas_with_state,
}
"""Kind of a relation -> what makes its plan."""
