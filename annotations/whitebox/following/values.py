"""Knowledge of a value of a script that is not run, and what becomes of what is not known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from annotations.whitebox.derivation import ORDER, SETTINGS
from annotations.whitebox.following import outside, permitted
from annotations.whitebox.following.classes import Class, Object, Super, parts
from annotations.whitebox.following.outside import (
    PLACE,
    UNREAD,
    Default,
    DefaultFloat,
    DefaultNumber,
    Held,
    Open,
    Outside,
    Setting,
)
from annotations.whitebox.python_chance import Chance, reason_of

UNSET: Final = object()
"""Stands for no value."""
_CONSTANTS: Final = {
    DefaultNumber: "bigint",
    DefaultFloat: "double",
    Default: "string",
}
HIDDEN: Final = "$setting"
"""Stands in a query for a value by default, of which there may be another one."""
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_BEFORE: Final = re.compile(
    r"([<>=+\-*/%]|\bBETWEEN|\bBETWEEN\s+\S+\s+AND|\bIN\s*\((\s*[^\s,()]+\s*,)*)\s*$", re.IGNORECASE
)
_BEHIND: Final = re.compile(r"\s*($|[),<>=+\-*/%]|(AND|OR|AS|THEN|ELSE|END)\b)", re.IGNORECASE)
"""What may stand before and behind a value in SQL."""
FIXED: Final = (date, timedelta, Decimal)
"""Classes of Python whose objects are constants of a query; what they tell of themselves is not
known."""
TEXT_MAX: Final = 2**20
"""Letters or items of a value that is worked out."""


def decides(value: Any) -> bool:
    """Whether what a condition gives is known: neither a value that is not, nor one by default."""
    return not isinstance(value, Outside | Open)


def defaulted(value: Any) -> Any:
    """A text, a number or what consists of such, as it is by default; `UNSET` of anything else."""
    if isinstance(value, list | tuple):
        parts = [defaulted(item) for item in value]
        if any(part is UNSET for part in parts):
            return UNSET
        return tuple(parts) if isinstance(value, tuple) else outside.by_default(parts, "items")
    if isinstance(value, dict):
        entries = {key: defaulted(item) for key, item in value.items()}
        unset = any(part is UNSET for part in entries.values())
        return UNSET if unset else outside.by_default(entries, "settings")
    if isinstance(value, Outside):
        return value
    if isinstance(value, str | int | float | bool | None):
        return outside.by_default(value, str(value))
    return UNSET


def open_up(holder: dict[Any, Any] | list[Any]) -> None:
    """Let unknown code have changed a dictionary or a list: texts and numbers are as by default,
    and anything else may be another one, or one more."""
    pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
    defaults = {key: defaulted(item) for key, item in pairs}
    changed = {k: outside.lost(holder[k], str(k)) if v is UNSET else v for k, v in defaults.items()}
    if isinstance(holder, dict):
        holder.update(changed)
    else:
        more = [Outside("$item")] if UNSET in defaults.values() else []
        holder[:] = [*changed.values(), *more]


def as_by_default(value: Any) -> Any:
    """A value of which there may be another one."""
    result = defaulted(value)
    return value if result is UNSET else result


def perhaps(value: Any) -> Any:
    """An item of a list that may not be there: a text, a number or a column is one that is not
    known; of anything else that it may be there is what can be said."""
    if permitted.column(value):
        return Outside("$item")(value)
    return as_unknown(value) if isinstance(value, str | int | float) else value


def as_unknown(value: Any) -> Any:
    """A value that is not known, which shows what this one is."""
    return value if isinstance(value, Outside) else Outside(f"${str(value)[:40]}")


def constant(value: Any) -> Any:
    """A column that has in every row what the place decides, which is not known here, or what each
    run has anew; None where a value is of neither kind."""
    from pyspark.sql.connect.functions import builtin

    if isinstance(value, str) and Chance.of(value) is not None:
        return builtin.lit(str(value))
    if isinstance(value, Setting):
        return builtin.lit(str(value)) if of_place(value) else None
    if holds_unknown(value):
        return builtin.lit(str(value)) if settled(f"'{value}'")[1] else as_unknown(value)
    for kind, type_ in _CONSTANTS.items():
        if isinstance(value, kind):
            return builtin.lit(HIDDEN).cast(type_)
    return None


def of_place(value: Setting) -> bool:
    """Whether the place decides a value: an argument, a variable of the environment, or, which is
    then said, a setting of a module that is not there."""
    if isinstance(value, Held) and value.setting:
        outside.note_once(f"{SETTINGS} `{value.without_last()[1:]}` stay as they are")
    return not isinstance(value, Held) or value.setting


def settled(text: str) -> tuple[str, bool]:
    """A text of SQL in which settings that stand where a value does are constants; whether all that
    is not known in it is such, or a part of one in quotes.

    >>> _ = Setting("$LEAST"), Outside("$condition")
    >>> settled("v > $LEAST AND k = 'a $LEAST'")
    ("v > '$LEAST' AND k = 'a $LEAST'", True)
    >>> settled("v > $LEAST AND $condition"), settled("$LEAST > v")
    (("v > '$LEAST' AND $condition", False), ('$LEAST > v', False))
    """
    names = sorted((name for name in outside.MADE if name in text), key=len, reverse=True)
    if not names:
        return text, True
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    known = True

    def written(match: re.Match[str]) -> str:
        nonlocal known
        kind = outside.MADE[match[0]]
        decided = issubclass(kind, Setting) and of_place(kind(match[0]))
        inside = any(begin < match.start() < end for begin, end in quoted)
        operand = _BEFORE.search(text[: match.start()]) and _BEHIND.match(text[match.end() :])
        known &= decided and (inside or bool(operand))
        return f"'{match[0]}'" if decided and operand and not inside else match[0]

    return re.sub("|".join(map(re.escape, names)), written, text), known


def beside_column(one: Any, other: Any) -> tuple[Any, Any]:
    """Two operands; what the place decides is a constant where the other one is a column."""
    if permitted.column(one):
        literal = constant(other)
        return one, other if literal is None else literal
    if permitted.column(other):
        literal = constant(one)
        return one if literal is None else literal, other
    return one, other


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are one for all that a script does with them."""
    if one is other:
        return True
    if permitted.frame(one) and permitted.frame(other):
        return bool(permitted.essence(one) == permitted.essence(other))
    if type(one) is not type(other) or not isinstance(one, str | int | float | bool | Outside):
        return False
    return str.__eq__(one, other) is True if isinstance(one, str) else bool(one == other)


def unknown_of(node: ast.AST) -> Outside:
    """The value of an expression that is not known."""
    return Outside(f"${ast.unparse(node)[:40]}")


def whether(test: ast.expr, value: Any) -> str:
    """The text that says which condition is not known."""
    return f"whether `{ast.unparse(test)[:60]}`{deciding(value)}"


def of_file(chance: Chance) -> bool:
    """Whether it is another one only where files are read anew."""
    return chance.of_file


def deciding(value: Any) -> str:
    """Of a value that decides a way, the chance that it depends on."""
    chance = Chance.of(value)
    return "" if chance is None else f" (`${chance.text}()`)"


def either_way(value: Any, test: str) -> Any:
    """A value that a function gives in one way: what decides the way is a part of it."""
    if Chance.of(test) is None:
        return value
    if permitted.frame(value):
        return value.hint(UNREAD, f"{test} is not known here", PLACE)
    return Outside(test) if isinstance(value, permitted.PLAIN) else value


def shown_text(value: Any) -> str:
    """A text for a value, as a part of one that is not known."""
    return value if isinstance(value, str) else f"${type(value).__name__}"


def chance_of(parts: Sequence[Any], value: Any) -> Any:
    """A value that was made of these parts: another one each time where one of them is."""
    chance = Chance.of(parts)
    return value if chance is None else Outside(f"${chance.text}()")


def draws(value: str) -> bool:
    """Whether a function that is not known, and was not called, gives another value each time."""
    return "." in value and reason_of(value[1:]) is not None


def one_of_many(values: Any, name: str) -> Outside:
    """One of values that are not known, in a loop over them."""
    if isinstance(values, Setting):
        return type(values)(f"{values}[]")
    return Outside(f"${name}")


def holds_unknown(value: Any) -> bool:
    """Whether a value is not known, or has such a part, a text that was made of one too."""
    if isinstance(value, str):
        return isinstance(value, Outside) or (
            "$" in value and any(name in value for name in outside.MADE)
        )
    return any(map(holds_unknown, _contents(value)))


def holds_open(value: Any) -> bool:
    """Whether a value is not known, or has such a part, or one by default."""
    return not decides(value) or any(map(holds_open, _contents(value)))


def _contents(value: Any) -> Iterable[Any]:
    """The items of a list, tuple or set, the keys and values of a dictionary; else nothing."""
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, list | tuple | set) else ()


def is_text(value: Any) -> bool:
    """Whether a value is a text, of which parts may not be known."""
    return isinstance(value, str) and not isinstance(value, Outside)


def holds_object(value: Any) -> bool:
    """Whether a value is an object or a class of the script, or has such a part."""
    if isinstance(value, list | tuple | set):
        return any(map(holds_object, value))
    if isinstance(value, dict):
        return any(map(holds_object, value.values()))
    return isinstance(value, Class | Object | Super)


def enumerated(*values: Any) -> bool:
    """Whether values are those of enumerations, of which each is equal to itself alone."""
    return all(
        isinstance(value, Object) and value.kind.enumerates and "__eq__" not in value.kind.names
        for value in values
    )


def of_open_length(values: Any) -> bool:
    """Whether a loop over values may have other turns; columns are those that the code names."""
    return isinstance(values, Open) and not isinstance(values, outside.Columns)


def is_unknown(value: Any) -> bool:
    """Whether nothing is known of a value."""
    return isinstance(value, Outside)


def in_order(values: Any) -> Any:
    """The values, of which one after the other is looked at; that the order of a set does not
    matter is taken for granted."""
    if isinstance(values, Class) and values.enumerates and not values.lost:
        return values.values
    values = parts(values)
    if isinstance(values, set) and len(values) > 1 and not all(type(v) is int for v in values):
        first = ", ".join(sorted(map(repr, values)))[:40]
        outside.note(f"{ORDER} the set of {first} does not matter, as each process has its own")
    return values


def small(one: Any, other: Any) -> bool:
    """Whether a product is no text or list of a size that nobody writes."""
    sizes = [len(v) if isinstance(v, str | list | tuple) else v for v in (one, other)]
    numbers = [size for size in sizes if isinstance(size, int | float)]
    return len(numbers) < 2 or abs(numbers[0] * numbers[1]) < TEXT_MAX


def are_lists(values: Sequence[Any]) -> bool:
    """Whether all of several values are lists that are known."""
    return bool(values) and all(isinstance(value, list | tuple | range) for value in values)
