"""Which way a value can change while more input arrives.

The existence of a group never ends; only the values of its aggregates move, each in a direction
that `functions.AGGREGATES` tells. What is computed from such a value moves in a direction of its
own: `count(*) > 1000` can become true and never false again, so that a reader who waits for it
needs no coordination (Blazes, the query THRESH), and `count(*) < 100` cannot.

`UP` of a truth value means that once true it stays true, `DOWN` that once false it stays false;
NULL may come before both, so that NOT turns one into the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final

from annotations.whitebox.datatypes import UNKNOWN, DataType, Family
from annotations.whitebox.functions import NEVER_NEGATIVE, Direction
from annotations.whitebox.ir import Call, Column, Expression, Lambda, Literal, Ref, Unknown

CONSTANT, UP, DOWN = Direction.CONSTANT, Direction.UP, Direction.DOWN
COLLECTS, ANY = Direction.COLLECTS, Direction.ANY

OPPOSITE: Final = {CONSTANT: CONSTANT, UP: DOWN, DOWN: UP, COLLECTS: ANY, ANY: ANY}


def together(directions: Iterable[Direction]) -> Direction:
    """The direction of a function that rises with each of its arguments."""
    moving = set(directions) - {CONSTANT}
    if not moving:
        return CONSTANT
    return moving.pop() if len(moving) == 1 and moving <= {UP, DOWN} else ANY


def direction(expression: Expression, moving: Mapping[Column, Direction]) -> Direction:
    """How the expression's value changes; columns that are not in `moving` are constant."""
    match expression:
        case Ref(column=column):
            return moving.get(column, CONSTANT)
        case Literal():
            return CONSTANT
        case Call():
            return _call(expression, moving)
        case Lambda(body=body):
            return CONSTANT if direction(body, moving) is CONSTANT else ANY
        case Unknown(arguments=arguments):
            inner = [direction(each, moving) for each in arguments]
            return CONSTANT if all(each is CONSTANT for each in inner) else ANY


def _call(call: Call, moving: Mapping[Column, Direction]) -> Direction:
    inner = [direction(each, moving) for each in call.arguments]
    if all(each is CONSTANT for each in inner) and call.condition is None:
        return CONSTANT
    rule = RULES.get(call.function)
    return ANY if rule is None or call.user else rule(call, inner)


_Rule = Callable[[Call, list[Direction]], Direction]


def _rising(call: Call, inner: list[Direction]) -> Direction:
    return together(inner)


def _first_rises(call: Call, inner: list[Direction]) -> Direction:
    return together([inner[0], OPPOSITE[inner[1]]]) if len(inner) == 2 else ANY


def _second_rises(call: Call, inner: list[Direction]) -> Direction:
    return together([OPPOSITE[inner[0]], inner[1]]) if len(inner) == 2 else ANY


def _falls(call: Call, inner: list[Direction]) -> Direction:
    return OPPOSITE[inner[0]]


def _not_null(call: Call, inner: list[Direction]) -> Direction:
    """A maximum or minimum that is there stays; what is computed from one may go away again."""
    there = isinstance(call.arguments[0], Ref) and inner[0] in (UP, DOWN, COLLECTS)
    return UP if there else ANY


def _cast(call: Call, inner: list[Direction]) -> Direction:
    """Only a cast to a wider number keeps the order: text sorts differently, fewer bits wrap."""
    source, target = type_of(call.arguments[0]), call.type
    if source == target and source.family is not Family.UNKNOWN:
        return inner[0]
    wider = source.family is Family.INTEGER and (
        target.family is Family.FLOAT
        or (target.family is Family.INTEGER and target.bits >= source.bits)
    )
    return together(inner) if wider else ANY


def _coalesce(call: Call, inner: list[Direction]) -> Direction:
    """Of what cannot be null, itself; else the value falls back from the default."""
    return ANY if may_be_null(call.arguments[0]) else inner[0]


def _greatest(call: Call, inner: list[Direction]) -> Direction:
    """NULL is skipped: another argument may raise the maximum, but nothing may lower it."""
    found = together(inner)
    return ANY if found is DOWN and any(map(may_be_null, call.arguments)) else found


def _least(call: Call, inner: list[Direction]) -> Direction:
    found = together(inner)
    return ANY if found is UP and any(map(may_be_null, call.arguments)) else found


def _scaled(call: Call, inner: list[Direction]) -> Direction:
    """A multiple, or a quotient by a constant."""
    if len(inner) != 2:
        return ANY
    (first, second), (a, b) = call.arguments, inner
    if a is CONSTANT and call.function == "*":
        first, a, second, b = second, b, first, a
    if b is not CONSTANT:
        return ANY
    sign = sign_of(second)
    return ANY if sign is None else together([a]) if sign >= 0 else together([OPPOSITE[a]])


def _equal(call: Call, inner: list[Direction]) -> Direction:
    """`x = true` is x, `x = false` its opposite; no other equality lasts."""
    for one, other in ((0, 1), (1, 0)):
        each = call.arguments[one] if len(call.arguments) == 2 else None
        if isinstance(each, Literal) and each.value is True:
            return together([inner[other]])
        if isinstance(each, Literal) and each.value is False:
            return together([OPPOSITE[inner[other]]])
    return ANY


def _is_true(call: Call, inner: list[Direction]) -> Direction:
    """NULL counts as false, so that a false that came from NULL need not stay."""
    return UP if inner[0] is UP else ANY


def _size(call: Call, inner: list[Direction]) -> Direction:
    return UP if inner[0] is COLLECTS else ANY


def _contains(call: Call, inner: list[Direction]) -> Direction:
    others = all(each is CONSTANT for each in inner[1:])
    return UP if inner[0] is COLLECTS and others else ANY


def _sorted(call: Call, inner: list[Direction]) -> Direction:
    return COLLECTS if inner == [COLLECTS] else ANY


def _united(call: Call, inner: list[Direction]) -> Direction:
    return COLLECTS if set(inner) <= {COLLECTS, CONSTANT} else ANY


def _between(call: Call, inner: list[Direction]) -> Direction:
    value, low, high = inner
    return together([value, OPPOSITE[low], OPPOSITE[value], high])


RULES: Final[Mapping[str, _Rule]] = {
    "and": _rising,
    "or": _rising,
    "+": _rising,
    "greatest": _greatest,
    "least": _least,
    "not": _falls,
    "negative": _falls,
    ">": _first_rises,
    ">=": _first_rises,
    "-": _first_rises,
    "<": _second_rises,
    "<=": _second_rises,
    "*": _scaled,
    "/": _scaled,
    "=": _equal,
    "==": _equal,
    "between": _between,
    "is not null": _not_null,
    "isnotnull": _not_null,
    "is true": _is_true,
    "cast": _cast,
    "coalesce": _coalesce,
    "nvl": _coalesce,
    "ifnull": _coalesce,
    "size": _size,
    "cardinality": _size,
    "array_size": _size,
    "array_contains": _contains,
    "array_sort": _sorted,
    "array_union": _united,
}
"""How functions pass a direction on; every other function may do anything with what it gets."""


def type_of(expression: Expression) -> DataType:
    """The type that the front end found for an expression."""
    match expression:
        case Ref(column=column):
            return column.type
        case Literal(type=found) | Call(type=found):
            return found
    return UNKNOWN


def may_be_null(expression: Expression) -> bool:
    """False only where the value is known to be there."""
    match expression:
        case Ref(column=column):
            return column.nullable
        case Literal(value=value):
            return value is None
        case Call(nullable=nullable):
            return nullable
    return True


def sign_of(expression: Expression) -> int | None:
    """0 or 1 for a number that is known not to be negative, -1 for a negative constant, else None.

    >>> sign_of(Call("*", (Literal(2), Call("abs", (Ref(Column("x")),)))))
    1
    """
    match expression:
        case Literal(value=bool()):
            return None
        case Literal(value=int() | float() | Decimal() as value):
            return -1 if value < 0 else 1 if value >= 0 else None
        case Call(function="negative", arguments=(Literal(value=int() | Decimal() as value),)):
            return 1 if value <= 0 else -1
        case Call(function="+" | "*" | "/" | "greatest", arguments=arguments):
            return 1 if all(sign_of(each) == 1 for each in arguments) else None
        case Call(function="case", arguments=arguments):
            values = [*arguments[1::2], *(arguments[-1:] if len(arguments) % 2 else ())]
            signs = [sign_of(each) for each in values if not _is_null(each)]
            return 1 if signs and all(sign == 1 for sign in signs) else None
        case Call(function="coalesce", arguments=arguments):
            return 1 if all(sign_of(each) == 1 for each in arguments) else None
        case Call(function=function, user=None) if function in NEVER_NEGATIVE:
            return 1
    return None


def _is_null(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is None
