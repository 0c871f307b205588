"""Which way a value can change while more input arrives.

The existence of a group never ends; only the values of its aggregates move, each in a direction
that its row of `functions.FUNCTIONS` tells. What is computed from such a value moves in a direction
of its own: `count(*) > 1000` can become true and never false again, so that a reader who waits for
it needs no coordination (Blazes, the query THRESH), and `count(*) < 100` cannot.

`UP` of a truth value means that once true it stays true, `DOWN` that once false it stays false;
NULL may come before both and in between, so that NOT turns one into the other. `UP` of any other
value means that NULL may come before it, and that it never shrinks and never becomes NULL again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.datatypes import DIGITS_MAX, UNKNOWN, DataType, Family
from annotations.whitebox.functions import (
    FUNCTIONS,
    Direction,
    Moves,
    On,
    Present,
    Way,
    cast_of,
)
from annotations.whitebox.ir import Call, Column, Expression, Lambda, Literal, Ref, Unknown

CONSTANT, UP, DOWN = Direction.CONSTANT, Direction.UP, Direction.DOWN
COLLECTS, ANY = Direction.COLLECTS, Direction.ANY

OPPOSITE: Final = {CONSTANT: CONSTANT, UP: DOWN, DOWN: UP, COLLECTS: ANY, ANY: ANY}
WAYS: Final[Mapping[Way, Mapping[Direction, Direction]]] = {
    Way.RISES: {UP: UP, DOWN: DOWN},
    Way.FALLS: {UP: DOWN, DOWN: UP},
    Way.FIXED: {},
    Way.FREE: dict.fromkeys(Direction, CONSTANT),
    Way.TRUE: {UP: UP},
    Way.THERE: {UP: UP, DOWN: UP, COLLECTS: UP},
    Way.ABSENT: {UP: DOWN, DOWN: DOWN, COLLECTS: DOWN},
    Way.GAINS: {COLLECTS: UP},
    Way.JOINS: {COLLECTS: COLLECTS},
}
"""The direction that an argument's direction gives the result; any other gives `ANY`."""


def together(directions: Iterable[Direction]) -> Direction:
    """The direction of what several directions act on alike."""
    moving = set(directions) - {CONSTANT}
    if not moving:
        return CONSTANT
    return moving.pop() if len(moving) == 1 else ANY


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
            inner = [direction(argument, moving) for argument in arguments]
            return CONSTANT if all(way is CONSTANT for way in inner) else ANY


def _call(call: Call, moving: Mapping[Column, Direction]) -> Direction:
    inner = [direction(argument, moving) for argument in call.arguments]
    if all(change is CONSTANT for change in inner) and call.condition is None:
        return CONSTANT
    if call.user is not None:
        return ANY
    if call.function == "cast":
        rises = cast_of(type_of(call.arguments[0]), call.type).rises
        return together(inner) if rises else ANY
    row = FUNCTIONS.get(call.function)
    if row is None or row.moves is None or not _fits(call, row.moves, inner):
        return ANY
    moves = row.moves
    ways = [moves.ways[min(at, len(moves.ways) - 1)] for at in range(len(inner))]
    turned = moves.on in (On.SCALED, On.TRUTH_CONSTANT) and _turned(call)
    result = together(
        CONSTANT if change is CONSTANT else WAYS[way].get(change, ANY)
        for way, change in zip(ways, inner, strict=True)
    )
    result = OPPOSITE[result] if turned else result
    return result if _present(call, moves, result) else ANY


_MAY_BE_TRUTHS: Final = (Family.BOOLEAN, Family.VALUE)


def _fits(call: Call, moves: Moves, inner: list[Direction]) -> bool:
    """Whether the arguments are such as the claim is made for."""
    types = [type_of(argument) for argument in call.arguments]
    match moves.on:
        case On.TRUTH:
            return all(
                type_.family in (Family.BOOLEAN, Family.VALUE, Family.UNKNOWN) for type_ in types
            )
        case On.ALIKE:
            return alike(call.arguments, inner, compared=call.function in COMPARISONS)
        case On.FITTING:
            return all(type_.family is Family.INTEGER for type_ in types) and _no_overflow(call)
        case On.SCALED:
            integral = all(type_.family is Family.INTEGER for type_ in types)
            constants = [constant_of(argument) for argument in call.arguments]
            scaled = len(types) == 2 and any(constants)
            return integral and scaled and (call.function == "/" or _no_overflow(call))
        case On.COLUMN:
            atomic = types[0].family not in (Family.BOOLEAN, Family.UNKNOWN)
            return atomic and isinstance(call.arguments[0], Ref)
        case On.COLLECTION:
            return COLLECTS in inner
        case On.TRUTH_CONSTANT:
            constant = any(isinstance(constant_of(argument), bool) for argument in call.arguments)
            return constant and all(type_.family in _MAY_BE_TRUTHS for type_ in types)


def _turned(call: Call) -> bool:
    """Whether a constant turns the direction: a negative factor, `= FALSE`."""
    for argument in call.arguments:
        value = constant_of(argument)
        if isinstance(value, bool):
            return not value
        if value is not None:
            return (sign_of(argument) or 0) < 0
    return False


def _present(call: Call, moves: Moves, result: Direction) -> bool:
    match moves.present:
        case Present.FIRST:
            return not may_be_null(call.arguments[0])
        case Present.ALL_IF_UP | Present.ALL_IF_DOWN:
            if result is (UP if moves.present is Present.ALL_IF_UP else DOWN):
                return not any(map(may_be_null, call.arguments))
    return True


COMPARISONS: Final = (">", ">=", "<", "<=", "between")


def alike(
    arguments: Iterable[Expression], inner: Iterable[Direction], *, compared: bool = True
) -> bool:
    """Whether the values are compared as they are, or after a cast that keeps their order.

    A constant text is taken for a date or a time where what it is compared with is one, and for a
    number where that is one; where the result is one of the values, only for a date or a time.
    """
    texts = [
        change is CONSTANT and isinstance(argument, Literal) and isinstance(argument.value, str)
        for argument, change in zip(arguments, inner, strict=True)
    ]
    types = [type_of(argument) for argument in arguments]
    rest = [type_ for type_, text in zip(types, texts, strict=True) if not text]
    times = all(type_.family in (Family.DATE, Family.TIMESTAMP) for type_ in rest)
    if any(texts) and rest and (times or (compared and all(type_.numeric for type_ in rest))):
        types = rest
    return all(_compared(types[0], type_) and _compared(type_, type_) for type_ in types)


_ORDERED: Final = (
    Family.INTEGER,
    Family.FLOAT,
    Family.STRING,
    Family.BINARY,
    Family.DATE,
    Family.TIMESTAMP,
)


def _compared(one: DataType, other: DataType) -> bool:
    families = {one.family, other.family}
    if Family.VALUE in families:
        return True
    if Family.FLOAT in families or families == {Family.INTEGER}:
        return all(type_.numeric for type_ in (one, other))
    if families <= {Family.INTEGER, Family.DECIMAL}:
        return _digits(one, other) <= DIGITS_MAX
    return one == other and one.family in _ORDERED and (one.identical or not one.bits)


def _digits(one: DataType, other: DataType) -> int:
    """How many digits the type has that both are cast to."""
    parts = [(type_.bits - type_.scale, type_.scale) for type_ in map(as_decimal, (one, other))]
    return max(integral for integral, _ in parts) + max(scale for _, scale in parts)


INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def as_decimal(type_: DataType) -> DataType:
    """The decimal type that an integer is cast to; a decimal itself."""
    if type_.family is Family.DECIMAL:
        return type_
    return DataType(Family.DECIMAL, INTEGER_DIGITS[type_.bits])


# ---- numbers that fit


def bits_of(expression: Expression) -> int:
    """How many bits the absolute value of an integer expression may need."""
    match expression:
        case Ref(column=Column(bits_max=int(bits))):
            return bits
        case Literal(value=int(value)):
            return abs(value).bit_length()
        case Call(function="+" | "-", arguments=(one, other)):
            return max(bits_of(one), bits_of(other)) + 1
        case Call(function="*", arguments=(one, other)):
            return bits_of(one) + bits_of(other)
        case Call(function="cast" | "negative" | "abs", arguments=(inner,)) if (
            type_of(inner).family is Family.INTEGER
        ):
            return bits_of(inner)
    # Of the smallest number of a type the absolute value needs as many bits as the type has.
    return type_of(expression).bits


def _no_overflow(call: Call) -> bool:
    """Whether the result of integer arithmetic is known to fit in its type."""
    inner = [argument for argument in call.arguments if isinstance(argument, Call)]
    parts = all(
        _no_overflow(argument) for argument in inner if argument.function in ("+", "-", "*")
    )
    return parts and bits_of(call) < call.type.bits


# ---- what is known of an expression


def type_of(expression: Expression) -> DataType:
    """The type that the front end found for an expression."""
    match expression:
        case Ref(column=column):
            return column.type
        case Literal(type=type_) | Call(type=type_):
            return type_
    return UNKNOWN


def constant_of(expression: Expression) -> object:
    """The value of a constant that is written down; None for NULL and for what is no constant."""
    match expression:
        case Literal(value=value):
            return value
        case Call(function="negative", arguments=(Literal(value=int() | Decimal() as value),)):
            return None if isinstance(value, bool) else -value
    return None


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


def field_of(value: Expression, name: str, position: Position | None) -> Expression:
    """A field of a struct, with the type that the struct says, or what a map holds under a key."""
    type_ = type_of(value)
    for field, kind, nullable in type_.fields:
        if field.lower() == name.lower():
            null = nullable or may_be_null(value)
            return Call("field", (value,), kind, null, position, detail=field)
    element = type_.element if type_.family in (Family.MAP, Family.ARRAY) else None
    if type_.family is Family.ARRAY and element is not None and element.fields:
        element = UNKNOWN
    return Call("field", (value,), element or UNKNOWN, True, position, detail=name)


def sign_of(expression: Expression) -> int | None:
    """1 for a number that is known not to be negative, -1 for a negative constant, else None.

    >>> from annotations.whitebox.datatypes import BIGINT, INT
    >>> size = Call("length", (Ref(Column("x", INT)),), INT)
    >>> sign_of(Call("*", (Literal(2, BIGINT), size), BIGINT))
    1
    """
    match expression:
        case Literal(value=bool()):
            return None
        case Literal(value=int() | float() | Decimal() as value):
            return -1 if value < 0 else 1 if value >= 0 else None
        case Call(function="negative", arguments=(Literal(value=int() | Decimal() as value),)):
            return 1 if value <= 0 else -1
        case Call(function="+" | "*", arguments=arguments):
            family = type_of(expression).family
            fits = family in (Family.FLOAT, Family.DECIMAL) or (
                family is Family.INTEGER and _no_overflow(expression)
            )
            return 1 if fits and all(sign_of(argument) == 1 for argument in arguments) else None
        case Call(function="/" | "greatest", arguments=arguments):
            return 1 if all(sign_of(argument) == 1 for argument in arguments) else None
        case Call(function="abs", arguments=(inner,), user=None):
            # The smallest integer of a type has no positive counterpart in it.
            family = type_of(inner).family
            fits = family is Family.INTEGER and bits_of(inner) < type_of(inner).bits
            return 1 if fits or family is Family.DECIMAL else None
        case Call(function="case", arguments=arguments):
            values = [*arguments[1::2], *(arguments[-1:] if len(arguments) % 2 else ())]
            signs = [sign_of(result) for result in values if not _is_null(result)]
            return 1 if signs and all(sign == 1 for sign in signs) else None
        case Call(function="coalesce", arguments=arguments):
            return 1 if all(sign_of(argument) == 1 for argument in arguments) else None
        case Call(function=function, arguments=arguments, user=None):
            row = FUNCTIONS.get(function)
            if row is None or not arguments:
                return None
            return (
                1
                if all(type_of(argument) in row.never_negative for argument in arguments)
                else None
            )
    return None


def _is_null(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.value is None
