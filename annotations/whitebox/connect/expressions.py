"""Expressions of the Connect client as expressions of the representation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.scope import Built, Names
from annotations.whitebox.datatypes import (
    BOOLEAN,
    NAMES,
    NULL,
    STRING,
    UNKNOWN,
    Family,
    decimal_of,
)
from annotations.whitebox.following.user_functions import shown_of
from annotations.whitebox.ir import Call, Column, Expression, Lambda, Literal, Ref, SortKey, Unknown
from annotations.whitebox.monotone import field_of, type_of
from annotations.whitebox.result_types import gives_null, result_type

RENAMED: Final = {
    "==": "=",
    "!=": "<>",
    "!": "not",
    "isnull": "is null",
    "isnotnull": "is not null",
    "when": "case",
    "pmod": "pmod",
    "&&": "and",
    "||": "or",
}
"""What the client calls an operator -> what the representation calls it."""

BATCHED: Final = frozenset({200, 204, 250, 251})
"""Evaluation types of Python functions that are given batches of values."""
AGGREGATING: Final = frozenset({202, 203, 216, 217, 252, 253, 254})
"""Evaluation types of Python functions that aggregate."""
_LITERALS: Final = {
    "boolean": BOOLEAN,
    "byte": NAMES["tinyint"],
    "short": NAMES["smallint"],
    "integer": NAMES["int"],
    "long": NAMES["bigint"],
    "float": NAMES["float"],
    "double": NAMES["double"],
    "string": STRING,
    "binary": NAMES["binary"],
    "date": NAMES["date"],
    "timestamp": NAMES["timestamp"],
    "timestamp_ntz": NAMES["timestamp_ntz"],
    "day_time_interval": NAMES["interval"],
    "year_month_interval": NAMES["interval"],
    "calendar_interval": NAMES["interval"],
}

Sql = Callable[[str, Built, Names, Position | None], list[tuple[str, Expression]]]
"""The text of a select list, what it stands over -> names and values."""


@dataclass
class Expressions:
    """Turns the client's expressions over one input into ours."""

    names: Names
    sql: Sql
    functions: dict[str, Any]
    """Registered functions of the user, by name in lower case."""
    windows: dict[bytes, Column] = field(default_factory=dict)
    """Window function, as the client sends it -> the column below that has its values."""

    def value(self, proto: Any, over: Built) -> Expression:
        """The expression over the columns of `over`."""
        return _Converter(self, over, {}).value(proto)

    def outputs(self, proto: Any, over: Built) -> list[tuple[str, Expression]]:
        """The columns that one entry of a select list puts out: a star is several."""
        at = position(proto)
        match proto.WhichOneof("expr_type"):
            case "unresolved_star":
                return self.names.star(proto.unresolved_star.unparsed_target, over, at)
            case "expression_string":
                return self.sql(proto.expression_string.expression, over, self.names, at)
            case "unresolved_regex":
                text = f"columns by pattern: {proto.unresolved_regex.col_name}"
                return [(proto.unresolved_regex.col_name, Unknown(text, (), at))]
            case "alias" if len(proto.alias.name) == 1:
                return [(proto.alias.name[0], self.value(proto.alias.expr, over))]
            case "alias":
                value = self.value(proto.alias.expr, over)
                return [(name, value) for name in proto.alias.name]
        return [(title(proto), self.value(proto, over))]


@dataclass
class _Converter:
    """One expression; `variables` are the parameters of the lambdas around."""

    home: Expressions
    over: Built
    variables: dict[str, Column]

    def value(self, proto: Any) -> Expression:
        kind = proto.WhichOneof("expr_type")
        at = position(proto)
        convert = getattr(self, f"_{kind}", None)
        if convert is None:
            return Unknown(f"an expression that is not known here (`{kind}`)", (), at)
        converted: Expression = convert(getattr(proto, kind), at)
        return converted

    def _all(self, protos: Sequence[Any]) -> tuple[Expression, ...]:
        stars = ("unresolved_star",)
        return tuple(self.value(e) for e in protos if e.WhichOneof("expr_type") not in stars)

    def _literal(self, literal: Any, at: Position | None) -> Expression:
        kind = literal.WhichOneof("literal_type")
        match kind:
            case "null":
                return Literal(None, NULL, at)
            case "decimal":
                number = Decimal(literal.decimal.value)
                return Literal(number, decimal_of(number), at)
            case "calendar_interval":
                return Literal(str(literal.calendar_interval), NAMES["interval"], at)
        if kind in _LITERALS:
            return Literal(getattr(literal, kind), _LITERALS[kind], at)
        type_ = from_proto(literal.data_type) if literal.HasField("data_type") else UNKNOWN
        return Literal(str(getattr(literal, kind)), type_, at)

    def _unresolved_attribute(self, proto: Any, at: Position | None) -> Expression:
        plan = proto.plan_id if proto.HasField("plan_id") else None
        return self.home.names.resolve(proto.unparsed_identifier, self.over, plan, at)

    def _alias(self, proto: Any, at: Position | None) -> Expression:
        return self.value(proto.expr)

    def _cast(self, proto: Any, at: Position | None) -> Expression:
        typed = proto.WhichOneof("cast_to_type") == "type"
        type_ = from_proto(proto.type) if typed else ddl_type(proto.type_str)
        return Call("cast", (self.value(proto.expr),), type_, True, at)

    def _unresolved_function(self, proto: Any, at: Position | None) -> Expression:
        name = proto.function_name.lower()
        if proto.is_user_defined_function or name in self.home.functions:
            return self._called(name, proto.arguments, at)
        arguments = self._all(proto.arguments)
        return _call(name, arguments, at, distinct=proto.is_distinct)

    def _call_function(self, proto: Any, at: Position | None) -> Expression:
        name = proto.function_name.lower()
        if name in self.home.functions:
            return self._called(name, proto.arguments, at)
        if name.endswith("spark_udf()"):
            model = (
                f"the model of `{name}` is taken to stay the same, and to score each record alone"
            )
            return Call("udf.model", self._all(proto.arguments), UNKNOWN, True, at, user=model)
        return _call(name, self._all(proto.arguments), at)

    def _called(self, name: str, arguments: Sequence[Any], at: Position | None) -> Expression:
        """A function that the user has registered."""
        if name not in self.home.functions:
            reason = f"the function `{name}` is defined elsewhere"
            return Unknown(reason, self._all(arguments), at, calls=True)
        return user_function(self.home.functions[name], self._all(arguments), at)

    def _common_inline_user_defined_function(self, proto: Any, at: Position | None) -> Expression:
        return user_function(proto, self._all(proto.arguments), at)

    def _expression_string(self, proto: Any, at: Position | None) -> Expression:
        outputs = self.home.sql(proto.expression, self.over, self.home.names, at)
        if len(outputs) != 1:
            return Unknown(f"`{proto.expression}` is not one expression", (), at)
        return outputs[0][1]

    def _sort_order(self, proto: Any, at: Position | None) -> Expression:
        return self.value(proto.child)

    def _window(self, proto: Any, at: Position | None) -> Expression:
        column = self.home.windows.get(proto.SerializeToString())
        if column is None:
            return Unknown("a window function outside of a select list", (), at)
        return Ref(column, at)

    def _unresolved_extract_value(self, proto: Any, at: Position | None) -> Expression:
        value, key = self.value(proto.child), self.value(proto.extraction)
        if isinstance(key, Literal) and isinstance(key.value, str):
            return field_of(value, key.value, at)
        inner = type_of(value)
        element = inner.element if inner.element is not None else UNKNOWN
        return Call("element_at", (value, key), element, True, at)

    def _update_fields(self, proto: Any, at: Position | None) -> Expression:
        values = [self.value(proto.struct_expression)]
        if proto.HasField("value_expression"):
            values.append(self.value(proto.value_expression))
        return Call("update_fields", tuple(values), UNKNOWN, True, at)

    def _named_argument_expression(self, proto: Any, at: Position | None) -> Expression:
        return self.value(proto.value)

    def _lambda_function(self, proto: Any, at: Position | None) -> Expression:
        names = [".".join(argument.name_parts) for argument in proto.arguments]
        parameters = tuple(Column(name) for name in names)
        variables = self.variables | dict(zip(names, parameters, strict=True))
        inner = _Converter(self.home, self.over, variables)
        return Lambda(parameters, inner.value(proto.function))

    def _unresolved_named_lambda_variable(self, proto: Any, at: Position | None) -> Expression:
        first, *rest = proto.name_parts
        if first not in self.variables:
            return Unknown(f"the lambda variable `{first}` is not bound", (), at)
        value: Expression = Ref(self.variables[first], at)
        for name in rest:
            value = field_of(value, name, at)
        return value

    def _subquery_expression(self, proto: Any, at: Position | None) -> Expression:
        return Unknown("a subquery made of DataFrames", self._all(proto.in_subquery_values), at)


def _call(
    name: str, arguments: tuple[Expression, ...], at: Position | None, *, distinct: bool = False
) -> Call:
    """A function of Spark, under the name that the representation gives it."""
    name = RENAMED.get(name, name)
    if name == "case" and len(arguments) % 2 == 0:
        arguments = (*arguments, Literal(None, NULL))
    type_ = result_type(name, arguments)
    return Call(name, arguments, type_, gives_null(name, arguments), at, distinct=distinct)


def sort_key(proto: Any, value: Callable[[Any], Expression]) -> SortKey:
    """A part of an order."""
    return SortKey(value(proto.child), proto.direction == 2)


def user_function(proto: Any, arguments: tuple[Expression, ...], at: Position | None) -> Expression:
    """A function of the user: a scalar one is taken at its word, that it is deterministic, where
    its text shows nothing else."""
    name = proto.function_name or "a function"
    if proto.WhichOneof("function") != "python_udf":
        return Unknown(f"`{name}` is compiled code, which is not read", arguments, at, calls=True)
    if proto.python_udf.eval_type in AGGREGATING:
        reason = f"`{name}` aggregates in Python, which is not read"
        return Unknown(reason, arguments, at, calls=not proto.deterministic)
    type_ = from_proto(proto.python_udf.output_type)
    if not proto.deterministic:
        return Call("udf.asNondeterministic", arguments, type_, True, at)
    text = shown_of(proto)
    if text.kept:
        reason = f"`{name}` changes `{text.kept}`, which its worker has for the next record"
        return Unknown(reason, arguments, at, calls=True)  # Spark starts and ends workers
    if text.batch and proto.python_udf.eval_type in BATCHED:
        reason = f"`{name}` sees how records are divided into batches (`{text.batch}`)"
        return Unknown(reason, arguments, at)
    if text.chance:
        return Call("udf.chance", arguments, type_, True, at)
    vouched = f"the Python function `{name}` is taken to depend on its arguments alone"
    if text.rests_on:
        vouched += f", and these to stay the same: {text.rests_on}"
    return Call(name, arguments, type_, True, at, user=vouched)


def position(proto: Any) -> Position | None:
    """Where the user wrote an expression, if the client has noted it."""
    if not proto.HasField("common") or not proto.common.HasField("origin"):
        return None
    site = proto.common.origin.python_origin.call_site.partition("\n")[0]
    file, _, line = site.rpartition(":")
    return Position(file, int(line), 1) if line.isdecimal() else None


_OPERATORS: Final = frozenset(
    ["==", "=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or", "<=>", "&", "|", "^"]
)


def title(proto: Any) -> str:
    """The name that Spark gives a column that the user did not name.

    A name that Spark writes otherwise is only a name that nobody can refer to here.
    """
    kind = proto.WhichOneof("expr_type")
    match kind:
        case "unresolved_attribute":
            written: str = proto.unresolved_attribute.unparsed_identifier
            return written.rpartition(".")[2].strip("`")
        case "alias":
            return ", ".join(proto.alias.name)
        case "cast":
            inner = title(proto.cast.expr)
            simple = proto.cast.expr.WhichOneof("expr_type") == "unresolved_attribute"
            return inner if simple else f"CAST({inner} AS {_type_text(proto.cast)})"
        case "literal":
            return _literal_text(proto.literal)
        case "unresolved_star":
            return "1"
        case "expression_string":
            return str(proto.expression_string.expression)
        case "unresolved_extract_value":
            return title(proto.unresolved_extract_value.extraction)
        case "common_inline_user_defined_function":
            function = proto.common_inline_user_defined_function
            return f"{function.function_name}({', '.join(map(title, function.arguments))})"
        case "unresolved_function" | "call_function":
            return _function_title(getattr(proto, kind))
    return str(kind)


def _function_title(function: Any) -> str:
    name: str = function.function_name.lower()
    parts = [title(argument) for argument in function.arguments]
    if name in ("window", "session_window", "window_time"):
        return name
    if name in ("explode", "explode_outer"):
        return "col"
    if name in _OPERATORS and len(parts) == 2:
        operator = {"==": "=", "and": "AND", "or": "OR"}.get(name, name)
        return f"({parts[0]} {operator} {parts[1]})"
    if name == "not":
        return f"(NOT {parts[0]})"
    distinct = "DISTINCT " if getattr(function, "is_distinct", False) else ""
    return f"{name}({distinct}{', '.join(parts)})"


def _type_text(cast: Any) -> str:
    if cast.WhichOneof("cast_to_type") == "type_str":
        return str(cast.type_str).upper()
    family = from_proto(cast.type)
    names = {Family.INTEGER: {64: "BIGINT", 32: "INT"}.get(family.bits, "INT")}
    return names.get(family.family, family.family.name)


def _literal_text(literal: Any) -> str:
    kind = literal.WhichOneof("literal_type")
    if kind == "null":
        return "NULL"
    value = getattr(literal, kind)
    return str(value).lower() if kind == "boolean" else str(value)
