"""Operations that hand rows to Python functions, of which nothing is known."""

from __future__ import annotations

from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built


def _map_partitions(home: Relations, found: Any, at: Position | None) -> Built:
    function = found.func
    name = function.function_name
    return home.user_code(
        [home.build(found.input)],
        f"`{name}` sees how records are divided into batches (mapInPandas, mapInArrow)",
        at,
        schema=from_proto(function.python_udf.output_type),
        writes=False,
        deterministic=function.deterministic,
    )


def _group_map(home: Relations, found: Any, at: Position | None) -> Built:
    function = found.func
    stateful = found.HasField("transform_with_state_info")
    schema = function.python_udf.output_type
    if stateful:
        schema = found.transform_with_state_info.output_schema
    what = "keeps state of its own (transformWithState)" if stateful else "sees whole groups"
    inside = [home.build(found.input)]
    if found.HasField("initial_input"):
        inside.append(home.build(found.initial_input))
    reason = f"`{function.function_name}` {what}"
    return home.user_code(inside, reason, at, schema=from_proto(schema))


def _co_group_map(home: Relations, found: Any, at: Position | None) -> Built:
    inside = [home.build(found.input), home.build(found.other)]
    reason = f"`{found.func.function_name}` sees whole groups of two inputs"
    schema = from_proto(found.func.python_udf.output_type)
    return home.user_code(inside, reason, at, schema=schema)


def _apply_in_pandas_with_state(home: Relations, found: Any, at: Position | None) -> Built:
    reason = f"`{found.func.function_name}` keeps state of its own (applyInPandasWithState)"
    schema = ddl_type(found.output_schema)
    return home.user_code([home.build(found.input)], reason, at, schema=schema)


CONVERTERS: Final[dict[str, Converter]] = {
    "map_partitions": _map_partitions,
    "group_map": _group_map,
    "co_group_map": _co_group_map,
    "apply_in_pandas_with_state": _apply_in_pandas_with_state,
}
"""Kind of a relation -> what makes its plan."""
