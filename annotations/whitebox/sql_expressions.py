"""Expressions of Spark SQL, from sqlglot's tree to the representation, with types where known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sqlglot import exp

from annotations.dataflow import EMPTY, Position
from annotations.whitebox import datatypes
from annotations.whitebox.datatypes import UNKNOWN, Family, parse_type
from annotations.whitebox.functions import AGGREGATES
from annotations.whitebox.ir import (
    Call,
    Column,
    Expression,
    Lambda,
    Literal,
    Ref,
    SortKey,
    Unknown,
    children,
)
from annotations.whitebox.monotone import constant_of, field_of, type_of
from annotations.whitebox.result_types import gives_null, result_type


class NotUnderstood(Exception):  # noqa: N818
    """A part of a query that the front end does not know; `node` is where it stands."""

    def __init__(self, reason: str, node: Any = None) -> None:
        self.reason = reason
        self.node = node
        super().__init__(reason)


Resolve = Callable[[Any], Expression]
"""What a column reference means."""

BINARY: Final[Mapping[type, str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.NullSafeEQ: "<=>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "and",
    exp.Or: "or",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
UNARY: Final[Mapping[type, str]] = {exp.Neg: "negative", exp.BitwiseNot: "~"}
NAMED: Final[Mapping[type, str]] = {
    exp.Trim: "trim",
    exp.StrPosition: "position",
    exp.Substring: "substring",
    exp.Overlay: "overlay",
    exp.Transform: "transform",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentTime: "current_time",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.Localtimestamp: "localtimestamp",
    exp.AtTimeZone: "from_utc_timestamp",
    exp.Tuple: "struct",
    exp.Bracket: "element",
}
"""Functions with a syntax of their own. What is not in here or above is unknown."""
FIELDS: Final[Mapping[str, str]] = {
    **{name: name for name in ("year", "quarter", "month", "day", "dayofweek", "hour", "minute")},
    "week": "weekofyear",
    "dow": "dayofweek",
    "doy": "dayofyear",
}
"""Fields of dates and times -> functions that give them."""
QUALIFIERS: Final = frozenset(
    {"this", "expression", "expressions", "_type", "sql_names", "typed", "safe"}
)
"""Arguments of an operator's node that do not change what it means in Spark."""


class Expressions:
    """Turns expressions of one place of a query into the representation.

    `registered`: what a function of the user gives for its arguments, by name in lower case.
    """

    def __init__(
        self,
        resolve: Resolve,
        place: Callable[[Any], Position | None],
        registered: Mapping[str, Callable[[tuple[Expression, ...]], Expression]] = EMPTY,
    ) -> None:
        self._resolve = resolve
        self._place = place
        self._registered = registered
        self._parameters: list[dict[str, Column]] = []

    def __call__(self, node: Any) -> Expression:
        """The expression; raises `NotUnderstood` for a name that means nothing."""
        kind = type(node)
        if kind in BINARY:
            return self._operator(node, BINARY[kind], (node.this, node.expression))
        if kind in UNARY:
            return self._operator(node, UNARY[kind], (node.this,))
        method = _METHODS.get(kind)
        if method is not None:
            return method(self, node)
        if kind in NAMED:
            return self._special(node, NAMED[kind])
        if node.find(exp.Query) is not None:
            raise NotUnderstood("a subquery is used as a value", node)
        inner = tuple(self(child) for child in node.iter_expressions() if _is_value(child))
        return Unknown(f"`{_shown(node)}` is not understood", inner, self._place(node))

    def _operator(self, node: Any, name: str, parts: Sequence[Any]) -> Expression:
        arguments = tuple([self(part) for part in parts])
        call = self._call(name, arguments, node)
        extra = {key for key, value in node.args.items() if value} - QUALIFIERS - {"low", "high"}
        if extra == {"negate"}:
            return self._call("not", (call,), node)
        if extra:
            return Unknown(f"`{_shown(node)}` is not understood", arguments, self._place(node))
        return call

    def _call(self, name: str, arguments: tuple[Expression, ...], node: Any) -> Call:
        return Call(
            name,
            arguments,
            type=result_type(name, arguments),
            nullable=gives_null(name, arguments),
            position=self._place(node) or _first_place(arguments),
        )

    def _special(self, node: Any, name: str) -> Expression:
        inner = [self(child) for child in node.iter_expressions() if _is_value(child)]
        return self._call(name, tuple(inner), node)

    def _extract(self, node: Any) -> Expression:
        return self._field(node.this.name, self(node.expression), node)

    def _field(self, field: str, value: Expression, node: Any) -> Expression:
        """A field of a date or a time, which is what a function of its name gives; of an interval
        it may be negative."""
        of_time = type_of(value).family in (Family.DATE, Family.TIMESTAMP)
        name = FIELDS.get(field.lower()) if of_time else None
        return self._call(name or "extract", (value,), node)

    def order(self, node: Any) -> tuple[SortKey, ...]:
        """The keys of an ORDER BY."""
        return tuple(
            SortKey(self(key.this if isinstance(key, exp.Ordered) else key), bool(desc))
            for key in node.expressions
            for desc in [isinstance(key, exp.Ordered) and key.args.get("desc")]
        )

    # ---- kinds of nodes

    def _column(self, node: Any) -> Expression:
        if isinstance(node.this, exp.Star):
            raise NotUnderstood("a star stands for several columns here", node)
        if not node.table:
            parameter = self._parameter(node.name)
            if parameter is not None:
                return parameter
        return self._resolve(node)

    def _parameter(self, name: str) -> Expression | None:
        for names in reversed(self._parameters):
            if name.lower() in names:
                return Ref(names[name.lower()])
        return None

    def _identifier(self, node: Any) -> Expression:
        parameter = self._parameter(node.name)
        if parameter is None:
            raise NotUnderstood(f"`{node.name}` is not a name that is known here", node)
        return parameter

    def _unwrap(self, node: Any) -> Expression:
        return self(node.this)

    def _literal(self, node: Any) -> Expression:
        position = self._place(node)
        if node.is_string:
            return Literal(node.this, datatypes.STRING, position)
        text = str(node.this)
        try:
            if text.isdigit():
                integer_type = datatypes.INT if int(text) < 2**31 else datatypes.BIGINT
                return Literal(int(text), integer_type, position)
            if "e" in text.lower():
                return Literal(float(text), datatypes.DOUBLE, position)
            return Literal(Decimal(text), datatypes.decimal_of(Decimal(text)), position)
        except (ValueError, InvalidOperation):
            return Literal(text, UNKNOWN, position)

    def _boolean(self, node: Any) -> Expression:
        return Literal(bool(node.this), datatypes.BOOLEAN)

    def _null(self, node: Any) -> Expression:
        return Literal(None, datatypes.NULL)

    def _interval(self, node: Any) -> Expression:
        if node.find(exp.Column) is not None:
            return Unknown("an interval that is not constant", (), self._place(node))
        return Literal(node.sql(), datatypes.INTERVAL)

    def _constant(self, node: Any) -> Expression:
        return Literal(node.sql(), UNKNOWN, self._place(node))

    def _cast(self, node: Any) -> Expression:
        target, _ = parse_type(node.to.sql(dialect="spark"))
        inner = self(node.this)
        if isinstance(inner, Literal) and target.numeric and not isinstance(inner.value, str):
            return Literal(inner.value, target, inner.position)
        position = self._place(node) or _first_place((inner,))
        return Call("cast", (inner,), type=target, nullable=True, position=position)

    def _is(self, node: Any) -> Expression:
        operand = node.expression
        inner = self(node.this)
        words = {exp.Null: "is null", exp.Boolean: "is true" if operand.this else "is false"}
        name = words.get(type(operand))
        if name is None:
            return Unknown(f"`{_shown(node)}` is not understood", (inner,), self._place(node))
        position = _first_place((inner,))
        return Call(name, (inner,), type=datatypes.BOOLEAN, nullable=False, position=position)

    def _not(self, node: Any) -> Expression:
        inner = self(node.this)
        if isinstance(inner, Call) and inner.function == "is null":
            return _with(inner, function="is not null")
        return self._call("not", (inner,), node)

    def _collate(self, node: Any) -> Expression:
        name = node.expression.sql(dialect="spark").rpartition(".")[2].strip("`")
        return self._call("collate", (self(node.this), Literal(name, datatypes.STRING)), node)

    def _between(self, node: Any) -> Expression:
        return self._operator(node, "between", (node.this, node.args["low"], node.args["high"]))

    def _in(self, node: Any) -> Expression:
        if node.args.get("query") is not None:
            raise NotUnderstood("IN with a subquery is used as a value", node)
        return self._operator(node, "in", (node.this, *node.expressions))

    def _case(self, node: Any) -> Expression:
        subject = node.args.get("this")
        parts: list[Expression] = []
        for branch in node.args["ifs"]:
            condition = self(branch.this)
            if subject is not None:
                condition = self._call("=", (self(subject), condition), branch)
            parts += [condition, self(branch.args["true"])]
        default = node.args.get("default")
        parts.append(self(default) if default is not None else Literal(None, datatypes.NULL))
        return self._call("case", tuple(parts), node)

    def _if(self, node: Any) -> Expression:
        other = node.args.get("false")
        parts = (self(node.this), self(node.args["true"]))
        last = self(other) if other is not None else Literal(None, datatypes.NULL)
        return self._call("case", (*parts, last), node)

    def _dot(self, node: Any) -> Expression:
        if isinstance(node.expression, exp.Func):
            name = node.expression.name
            inner = tuple(
                self(argument) for argument in node.expression.expressions if _is_value(argument)
            )
            reason = f"`{_shown(node.this)}.{name}` is not a known function"
            return Unknown(reason, inner, self._place(node.expression), calls=True)
        return field_of(self(node.this), node.expression.name, self._place(node))

    def _lambda(self, node: Any) -> Expression:
        names = {parameter.name.lower(): Column(parameter.name) for parameter in node.expressions}
        self._parameters.append(names)
        try:
            return Lambda(tuple(names.values()), self(node.this))
        finally:
            self._parameters.pop()

    def _filter(self, node: Any) -> Expression:
        inner = self(node.this)
        condition = self(node.expression.this)
        if not isinstance(inner, Call):
            return Unknown(f"`{_shown(node)}` is not understood", (inner, condition))
        return _with(inner, condition=condition)

    def _within_group(self, node: Any) -> Expression:
        inner = self(node.this)
        order = self.order(node.expression)
        if not isinstance(inner, Call):
            return Unknown(f"`{_shown(node)}` is not understood", (inner,))
        if inner.function in ("percentile_cont", "percentile_disc", "mode") and order:
            arguments = (order[0].expression, *inner.arguments)
            return _with(inner, arguments=arguments, type=UNKNOWN)
        return _with(inner, order=order)

    def _function(self, node: Any) -> Expression:
        """A function under its written name; DISTINCT and ORDER BY inside of its parentheses."""
        name = node.name.lower()
        inner: list[Expression] = []
        distinct = False
        order: tuple[SortKey, ...] = ()
        for argument in node.expressions:
            if isinstance(argument, exp.Star):
                continue
            if isinstance(argument, exp.Distinct):
                distinct = True
                inner += [self(one) for one in argument.expressions]
            elif isinstance(argument, exp.Order):
                inner.append(self(argument.this))
                order = self.order(argument)
            elif name in UNIT_FIRST and not inner and isinstance(argument, exp.Column):
                inner.append(Literal(argument.name, datatypes.STRING))
            elif isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
                raise NotUnderstood("a star stands for several columns here", argument)
            elif _is_value(argument):
                inner.append(self(argument))
        if name in self._registered:
            return self._registered[name](tuple(inner))
        if name in ("date_part", "datepart") and len(inner) == 2:
            field = constant_of(inner[0])
            if isinstance(field, str) and field.lower() in FIELDS:
                return self._field(field, inner[1], node)
        call = self._call(name, tuple(inner), node)
        return _with(call, distinct=distinct, order=order)

    def _window(self, node: Any) -> Expression:
        raise NotUnderstood("a window function is used inside of an expression", node)


UNIT_FIRST: Final = frozenset(
    {"timestampadd", "timestampdiff", "dateadd", "datediff_unit", "timestamp_add", "timestamp_diff"}
)
"""Functions whose first argument is a unit of time, without quotes."""

_METHODS: Final[Mapping[type, Callable[[Expressions, Any], Expression]]] = {
    exp.Column: Expressions._column,
    exp.Identifier: Expressions._identifier,
    exp.Alias: Expressions._unwrap,
    exp.Paren: Expressions._unwrap,
    exp.IgnoreNulls: Expressions._unwrap,
    exp.RespectNulls: Expressions._unwrap,
    exp.Escape: Expressions._unwrap,
    exp.PropertyEQ: Expressions._unwrap,
    exp.Literal: Expressions._literal,
    exp.Boolean: Expressions._boolean,
    exp.Null: Expressions._null,
    exp.Interval: Expressions._interval,
    exp.HexString: Expressions._constant,
    exp.Var: Expressions._constant,
    exp.Cast: Expressions._cast,
    exp.TryCast: Expressions._cast,
    exp.Is: Expressions._is,
    exp.Not: Expressions._not,
    exp.Between: Expressions._between,
    exp.Collate: Expressions._collate,
    exp.In: Expressions._in,
    exp.Case: Expressions._case,
    exp.If: Expressions._if,
    exp.Dot: Expressions._dot,
    exp.Extract: Expressions._extract,
    exp.Lambda: Expressions._lambda,
    exp.Filter: Expressions._filter,
    exp.WithinGroup: Expressions._within_group,
    exp.Anonymous: Expressions._function,
    exp.Window: Expressions._window,
}


def aggregates(expression: Expression) -> bool:
    """True where a known aggregate function takes part."""
    if isinstance(expression, Call) and expression.function in AGGREGATES:
        return True
    return any(aggregates(part) for part in children(expression))


def _with(call: Call, **changes: Any) -> Call:
    return replace(call, **changes)


def _is_value(node: Any) -> bool:
    return not isinstance(node, exp.DataType | exp.Var)


def _shown(node: Any) -> str:
    text = " ".join(node.sql(dialect="spark").split())
    return text if len(text) <= 40 else text[:37] + "..."


def _first_place(expressions: Sequence[Expression]) -> Position | None:
    for expression in expressions:
        position = getattr(expression, "position", None) or _first_place(children(expression))
        if position is not None:
            return position
    return None
