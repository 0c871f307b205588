"""The parts of a SELECT: conditions, generators, names, window functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from annotations.dataflow import Position
from annotations.whitebox.datatypes import INT, STRING, UNKNOWN, Family
from annotations.whitebox.functions import AGGREGATES
from annotations.whitebox.ir import Call, Column, Expression, JoinKind, Ref
from annotations.whitebox.monotone import may_be_null, type_of
from annotations.whitebox.sql_expressions import NotUnderstood

STANDS: Final = "__window_"
"""What the column of a window function, or of a subquery, is called while the expression around it
is read."""


def start_of(node: Any) -> int | None:
    """The offset of the first character that the tree knows of a node."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def replaced(item: Any, parts: list[Any]) -> Any:
    """A copy of the item where names stand for parts of it: window functions, or subqueries."""
    if item is parts[0]:
        return exp.column(f"{STANDS}0")
    places = {id(node): at for at, node in enumerate(parts)}
    at = [places.get(id(node)) for node in item.walk()]
    result = item.copy()
    for node, place in list(zip(result.walk(), at, strict=True)):
        if place is not None:
            node.replace(exp.column(f"{STANDS}{place}"))
    return result


def join_kind(node: Any) -> tuple[JoinKind, bool]:
    """The kind of a join, and whether its sides are swapped (a right join)."""
    side = (node.args.get("side") or "").upper()
    kind = (node.args.get("kind") or "").upper()
    method = (node.args.get("method") or "").upper()
    if method not in ("", "NATURAL"):
        raise NotUnderstood(f"{method} JOIN is not understood", node)
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return (JoinKind.SEMI if kind == "SEMI" else JoinKind.ANTI), False
    if kind in ("", "OUTER", "INNER", "CROSS"):
        sides = {
            "": (JoinKind.INNER, False),
            "LEFT": (JoinKind.LEFT, False),
            "RIGHT": (JoinKind.LEFT, True),
            "FULL": (JoinKind.FULL, False),
        }
        if side in sides:
            return sides[side]
    raise NotUnderstood(f"{side} {kind} JOIN is not understood".replace("  ", " "), node)


def conjuncts(node: Any) -> Iterator[Any]:
    """The parts of a condition that AND joins."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def scalars(node: Any) -> list[Any]:
    """The subqueries that stand for one value in an expression, the outermost."""
    if not isinstance(node, exp.Expression):
        return []
    return [
        subquery
        for subquery in node.find_all(exp.Subquery)
        if isinstance(subquery.this, exp.Query)
        and not isinstance(subquery.parent, exp.In | exp.Exists | exp.Any | exp.All)
        and subquery.find_ancestor(exp.Query, exp.In) is node.find_ancestor(exp.Query, exp.In)
    ]


def existences(node: Any) -> list[Any]:
    """EXISTS, and IN and NOT IN with a subquery of which is asked only whether they hold.

    Those that do not hold may be NULL; below AND and OR alone, in a condition or behind WHEN, that
    is the same.
    """
    subqueries = []
    for part in node.find_all(exp.Exists, exp.In):
        if part.find_ancestor(exp.Query) is not node.find_ancestor(exp.Query):
            continue
        if isinstance(part, exp.Exists):
            subqueries.append(part)
        elif part.args.get("query") is not None:
            while part is not node and isinstance(part.parent, exp.Paren):
                part = part.parent
            negated = part is not node and isinstance(part.parent, exp.Not)
            part = part.parent if negated else part
            if _decides(part, node):
                subqueries.append(part)
    return subqueries


def _decides(part: Any, node: Any) -> bool:
    """Whether only the truth of a part of a condition matters, not whether it is false or NULL."""
    while part is not node and isinstance(part.parent, exp.And | exp.Or | exp.Paren):
        part = part.parent
    above = part.parent
    if part is node:
        return isinstance(above, exp.Where | exp.And | exp.Paren)
    when = isinstance(above, exp.If) and part.arg_key == "this"
    return when and not (isinstance(above.parent, exp.Case) and above.parent.this)


def refuse_subqueries(node: Any) -> None:
    """Raise `NotUnderstood` where a subquery stands for a value."""
    query = node.find(exp.Query)
    if query is not None:
        raise NotUnderstood("a subquery is used as a value", query)


def has_aggregate(node: Any) -> bool:
    """True where an aggregate function takes part that is not one over a window."""
    if not isinstance(node, exp.Expression):
        return False
    own = None if isinstance(node, exp.Query) else node.find_ancestor(exp.Query)
    return any(
        call.name.lower() in AGGREGATES and call.find_ancestor(exp.Window, exp.Query) is own
        for call in node.find_all(exp.Anonymous)
    )


def in_aggregate(node: Any) -> bool:
    """True for a name that an aggregate function is applied to."""
    function = node.find_ancestor(exp.Anonymous)
    return function is not None and function.name.lower() in AGGREGATES


def generated(generator: Call, names: list[str]) -> tuple[Column, ...]:
    """The columns that a generator makes, under the given names or Spark's own."""
    kind = type_of(generator.arguments[0]) if generator.arguments else UNKNOWN
    by_place = generator.function.startswith("pos")
    types = [kind.element or UNKNOWN]
    own = ["col"]
    if generator.function.startswith("inline"):
        fields = kind.element.fields if kind.element is not None else ()
        own, types = [name for name, *_ in fields], [type_ for _, type_, _ in fields]
    elif kind.family is Family.MAP:
        own, types = ["key", "value"], [kind.key or UNKNOWN, kind.element or UNKNOWN]
    elif generator.function.startswith("variant"):
        own, types = ["pos", "key", "value"], [INT, STRING, UNKNOWN]
    if by_place:
        own, types = ["pos", *own], [INT, *types]
    if names and len(names) == len(types):
        own = names
    elif names:
        own, types = names, [UNKNOWN] * len(names)
    return tuple([Column(name, type_) for name, type_ in zip(own, types, strict=True)])


def column_of(name: str, value: Expression, position: Position | None) -> Column:
    """The column that holds the value."""
    return Column(name, type_of(value), may_be_null(value), position)


def name_of(node: Any) -> str:
    """The name that Spark gives an item: its alias, its column or field, else its text."""
    if isinstance(node, exp.Alias | exp.Column | exp.Dot):
        return str(node.output_name)
    return " ".join(str(node.sql(dialect="spark")).split()).lower()


def exchanged(expression: Expression, exchange: Mapping[Column, Column]) -> Expression:
    """The expression over renewed columns."""
    match expression:
        case Ref(column=column, position=position):
            return Ref(exchange.get(column, column), position)
        case Call(arguments=arguments):
            inner = tuple([exchanged(argument, exchange) for argument in arguments])
            return replace(expression, arguments=inner)
    return expression
