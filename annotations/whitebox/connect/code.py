"""Operations that hand rows to Python functions, of which nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.expressions import user_function
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.datatypes import DataType, Family
from annotations.whitebox.following.user_functions import shown_of

_FRAMES: Final = (205, 207)
"""The kinds of functions of `mapInPandas` and `mapInArrow`."""


_INTEGERS: Final = (
    "and whole numbers to come to it as such (to pandas those of a batch with a null are fractions)"
)


def _user_code(
    home: Relations,
    inside: Sequence[Built],
    function: Any,
    behaviour: str,
    at: Position | None,
    schema: DataType | None,
    *,
    writes: bool = True,
) -> Built:
    """The rows that a function makes: the same each time, unless its author or its text says no."""
    text = shown_of(function)
    other = text.chance or text.kept
    reason = f"`{function.function_name}` {behaviour}"
    if other:
        reason += f", and `{other}` in it is not the same each time"
    same = function.deterministic and not other
    return home.user_code(inside, reason, at, schema=schema, writes=writes, deterministic=same)


def _map_partitions(home: Relations, proto: Any, at: Position | None) -> Built:
    schema = from_proto(proto.func.python_udf.output_type)
    behaviour = "sees how records are divided into batches (mapInPandas, mapInArrow)"
    built = home.build(proto.input)
    python, text = proto.func.python_udf, shown_of(proto.func)
    complete = all(s.complete for s in ir.nodes_of(built.relation) if isinstance(s, ir.Source))
    if text.by_record and python.eval_type in _FRAMES and built.columns and complete:
        call = user_function(proto.func, tuple(map(ir.Ref, built.columns)), at)
        if isinstance(call, ir.Call):
            if any(c.nullable and c.type.family is Family.INTEGER for c in built.columns):
                call = replace(call, user=f"{call.user}, {_INTEGERS}")
            filtered = home.node(ir.Filter(built.relation, call, at), [built], built.columns)
            outputs = [(name, replace(call, type=type_)) for name, type_, _ in schema.fields]
            return home.project(filtered, outputs, at)
    return _user_code(home, [built], proto.func, behaviour, at, schema, writes=False)


_TIMES: Final = {
    "processingtime": "and is told the time of the machine",
    "eventtime": "and is told the time, which all records move on",
}
"""How a function can be called without records, and what it sees then."""


def _grouped(
    home: Relations,
    over: Built,
    by: Sequence[Any],
    function: Any,
    behaviour: str,
    at: Position | None,
    schema: DataType | None,
    *,
    time: str = "",
    state: Sequence[Built] = (),
) -> Built:
    """The rows that a function makes of those of each group and of the state that it keeps of that.

    Args:
        home: makes the plan.
        over: the rows.
        by: expressions by which they are grouped.
        function: in the plan.
        behaviour: of the function, as a reason says it.
        at: the place in the code.
        schema: of the rows that it gives.
        time: the mode of its timers or time-outs.
        state: what it begins with.
    """
    mode = time.lower().removesuffix("timeout")
    if mode in _TIMES:
        behaviour = f"{behaviour}, {_TIMES[mode]}"
    built = _user_code(home, [over, *state], function, behaviour, at, schema)
    node = built.relation
    assert isinstance(node, ir.Opaque)
    if mode == "processingtime":
        node = replace(node, nondeterministic=True)
    elif not (mode in _TIMES or node.nondeterministic or state):
        name = function.function_name
        vouched = f"`{name}` is taken to depend on one group alone, in any order in a micro-batch"
        keys = [v for key in by for _, v in home.expressions.outputs(key, over)]
        node = replace(node, keys=tuple(keys), assumes=vouched)
    return replace(built, relation=node)


def _group_map(home: Relations, proto: Any, at: Position | None) -> Built:
    over, by = home.build(proto.input), proto.grouping_expressions
    if not proto.HasField("transform_with_state_info"):
        schema = from_proto(proto.func.python_udf.output_type)
        return _user_code(home, [over], proto.func, "sees whole groups", at, schema)
    info = proto.transform_with_state_info
    behaviour = "keeps state of its own (transformWithState)"
    schema = from_proto(info.output_schema)
    state = [home.build(proto.initial_input)] if proto.HasField("initial_input") else []
    time = info.time_mode
    return _grouped(home, over, by, proto.func, behaviour, at, schema, time=time, state=state)


def _co_group_map(home: Relations, proto: Any, at: Position | None) -> Built:
    inside = [home.build(proto.input), home.build(proto.other)]
    schema = from_proto(proto.func.python_udf.output_type)
    return _user_code(home, inside, proto.func, "sees whole groups of two inputs", at, schema)


def _apply_in_pandas_with_state(home: Relations, proto: Any, at: Position | None) -> Built:
    behaviour = "keeps state of its own (applyInPandasWithState)"
    schema = ddl_type(proto.output_schema)
    over, by = home.build(proto.input), proto.grouping_expressions
    return _grouped(home, over, by, proto.func, behaviour, at, schema, time=proto.timeout_conf)


CONVERTERS: Final[dict[str, Converter]] = {
    "map_partitions": _map_partitions,
    "group_map": _group_map,
    "co_group_map": _co_group_map,
    "apply_in_pandas_with_state": _apply_in_pandas_with_state,
}
"""Kind of a relation -> what makes its plan."""
