"""Expressions as an author would write them, for reasons and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from annotations.whitebox.ir import Call, Expression, Lambda, Literal, Ref, Unknown

INFIX: Final = frozenset(
    {"=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "div"}
    | {"and", "or", "like", "rlike"}
)
LONGEST: Final = 60
"""Characters of an expression in a message."""


def text_of(expression: Expression) -> str:
    """The expression in SQL's notation, shortened in the middle of nowhere if it is long.

    >>> from annotations.whitebox.ir import Column
    >>> text_of(Call("<", (Call("count"), Literal(100)))), text_of(Ref(Column("id")))
    ('count(*) < 100', 'id')
    """
    text = _text(expression, 6)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def listed(expressions: Iterable[Expression]) -> str:
    """Several expressions, by commas."""
    return ", ".join(map(text_of, expressions))


def _text(expression: Expression, depth: int) -> str:
    if not depth:
        return "..."
    match expression:
        case Ref(column=column):
            return column.name
        case Literal(value=value):
            return _literal(value)
        case Lambda(body=body):
            return f"x -> {_text(body, depth - 1)}"
        case Unknown(reason=reason):
            return reason
        case Call():
            return _call(
                expression, [_text(argument, depth - 1) for argument in expression.arguments]
            )


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return repr(value) if isinstance(value, str) else str(value)


def _call(call: Call, inner: list[str]) -> str:
    name = call.function
    if name in INFIX and len(inner) > 1:
        return f" {name.upper()} ".join(inner)
    if name.startswith("is ") and inner:
        return f"{inner[0]} {name.upper()}"
    if name == "not" and inner:
        return f"NOT ({inner[0]})"
    if name == "field" and inner:
        return f"{inner[0]}.{call.detail}"
    if name == "case":
        return "CASE ... END"
    if name.startswith("udf."):
        return f"a Python function of {', '.join(inner)}" if inner else "a value of the code"
    if name == "count" and not inner:
        inner = ["*"]
    return f"{name}({'DISTINCT ' if call.distinct else ''}{', '.join(inner)})"
