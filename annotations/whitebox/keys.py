"""Expressions that tell rows apart as well as a column does, and columns with one value when equal.

The one home of both facts: gates (`context`), splitting by a key (`splitting`) and equalities of
joins (`joining`) ask here; what functions and casts keep apart is claimed in `functions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from annotations.whitebox.datatypes import DataType, Family
from annotations.whitebox.functions import FUNCTIONS, Cast, cast_of
from annotations.whitebox.ir import Call, Expression, Literal
from annotations.whitebox.monotone import constant_of, type_of


@dataclass(frozen=True, slots=True)
class Step:
    """A function whose results differ wherever one of its arguments does."""

    inner: Expression
    name: str
    """The function and its constants; empty where the text of the value stays the same."""


AGAIN: Final = "\0"
"""Stands for the argument itself in the name of a step."""


def step_of(call: Call) -> Step | None:
    """The argument that the call's results tell apart; None where that is not claimed.

    >>> from annotations.whitebox.datatypes import DOUBLE, INT
    >>> from annotations.whitebox.ir import Column, Ref
    >>> step_of(Call("hex", (Ref(Column("n", INT)),))).name
    'hex integer'
    >>> step_of(Call("hex", (Ref(Column("d", DOUBLE)),))) is None
    True
    """
    if call.user is not None:
        return None
    if call.function == "cast":
        return _cast(call)
    row = FUNCTIONS.get(call.function)
    keeps = None if row is None else row.keeps
    if keeps is None or keeps.all:
        return None
    places = range(len(call.arguments)) if keeps.place is None else (keeps.place,)
    for place in places:
        if place >= len(call.arguments) or (keeps.place is None and len(call.arguments) == 1):
            continue
        inner = call.arguments[place]
        others = [argument for at, argument in enumerate(call.arguments) if at != place]
        again = [keeps.repeated and argument == inner for argument in others]
        values = [AGAIN if same else constant_of(argument)
                  for argument, same in zip(others, again, strict=True)]  # fmt: skip
        constant = all(
            same or (value is not None and type_of(argument) in keeps.constants)
            for value, argument, same in zip(values, others, again, strict=True)
        )
        if type_of(inner) in keeps.of and constant and constant_of(inner) is None:
            written = " ".join(map(str, values))
            name = f"{call.function} {type_of(inner).family.value} {written}".rstrip()
            return Step(inner, name if keeps.place is not None else f"{place} {name}")
    return None


def _cast(call: Call) -> Step | None:
    source, target = type_of(call.arguments[0]), call.type
    cast: Cast = cast_of(source, target)
    if not cast.keeps:
        return None
    inner = call.arguments[0]
    if cast.same_text and target.family is source.family:
        return Step(inner, "")
    return Step(inner, f"{source.family.value} as {target.family.value}")


def parts_of(call: Call) -> tuple[Expression, ...]:
    """The arguments that the call's results tell apart all together: those of a struct, and of an
    array of values of one type, so that none is cast."""
    row = FUNCTIONS.get(call.function)
    if call.user is not None or row is None or row.keeps is None or not row.keeps.all:
        return ()
    if row.keeps.alike and len(set(map(type_of, call.arguments))) > 1:
        return ()
    return tuple(argument for argument in call.arguments if not isinstance(argument, Literal))


def same_value(one: DataType, other: DataType) -> bool:
    """True where equal values of the two types have the same text, so that they name one partition.

    The text is that of a key (`flux_runtime.spark.key_columns`): of -0.0 that of 0.0, and of every
    NaN the same. A comparison of other types casts one side: `'01' = 1`, `1.0 = 1`, and a FLOAT of
    0.1 is a DOUBLE of 0.10000000149011612.
    """
    if one == other and one.family is Family.FLOAT:
        return True
    if one.family is other.family is Family.INTEGER or Family.VALUE in (one.family, other.family):
        return True
    known = one.family is not Family.DECIMAL or one.digits_known
    return one == other and one.identical and known
