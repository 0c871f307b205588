"""The SQL front end: the text of a query over named inputs becomes a plan, without a JVM.

    read(text, inputs={"clicks": Input(schema={"id": "INT"})}) -> Query

Anything that is not understood becomes `Opaque` over every input that the text names, with the
reason and the place; a query is never half understood. Names are resolved as Spark does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.functions import FUNCTIONS, SPECIAL_TIMES, TIME_OF_DAY
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Opaque, Relation
from annotations.whitebox.places import Place
from annotations.whitebox.sql_dialect import NotParsed, parse
from annotations.whitebox.sql_expressions import NotUnderstood
from annotations.whitebox.sql_items import start_of
from annotations.whitebox.sql_select import select
from annotations.whitebox.sql_tables import Builder


@dataclass(frozen=True, slots=True)
class Query:
    """A query as a plan."""

    plan: Relation
    open: bool = False
    """True where `*` may stand for columns that nobody declared."""
    problem: str | None = None
    """Why the query could not be understood; then `plan` is opaque."""
    remedy: str | None = None
    """What to do about the problem, where that is known."""
    code: str = "BLZ082"
    """What kind of problem it is: the code of its diagnostic."""


def read(text: str, *, inputs: Mapping[str, Input], place: Place | None = None) -> Query:
    """The plan of a query over `inputs`; names of inputs are found in any case.

    >>> query = read("SELECT DISTINCT id FROM clicks", inputs={"clicks": Input()})
    >>> type(query.plan).__name__, [column.name for column in query.plan.columns]
    ('Deduplicate', ['id'])
    """
    where = place or _lines(text)
    try:
        parsed = parse(text)
        builder = Builder(parsed, inputs, where, select)
        plan = builder.statement(parsed.tree)
        return Query(plan, builder.open)
    except NotParsed as failed:
        position = where(failed.start or 0)
        return _opaque(failed.reason, position, text, inputs)
    except NotUnderstood as failed:
        start = start_of(failed.node) if failed.node is not None else None
        return _opaque(failed.reason, where(start or 0), text, inputs)
    except RecursionError:
        reason = "the query is nested too deeply"
        return _opaque(reason, where(0), text, inputs)


def mentioned(text: str, inputs: Iterable[str]) -> list[str]:
    """The inputs that the text may read; all of them where none is named."""
    words = {word.lower() for word in re.findall(r"\w+(?:-\w+)*", text)}
    words |= {word.strip("`").lower() for word in re.findall(r"`[^`]*`", text)}
    names = list(inputs)
    return [name for name in names if name.lower() in words] or names


def _opaque(
    reason: str, position: Position | None, text: str, inputs: Mapping[str, Input]
) -> Query:
    sources = tuple(inputs[name].source(name, position) for name in mentioned(text, inputs))
    chance = _CHANCE.search(text)
    message = f"{reason}, and `{chance[0].strip()}` stands in it" if chance is not None else reason
    by_chance = chance is not None
    opaque = Opaque(sources, (), message, True, by_chance, position, left_open="text")
    return Query(opaque, problem=reason)


_CHANCE: Final = re.compile(
    r"\b(?:"
    + "|".join(sorted(re.escape(name) for name, row in FUNCTIONS.items() if row.chance is not None))
    + r")\s*\(|\b(?:"
    + "|".join(sorted(re.escape(name) for name, row in FUNCTIONS.items() if row.clock))
    + r")\s*\(\s*\)|\b(?:current_\w+|localtime\w*|session_user|tablesample)\b|\.\s*\w+\s*\("
    + rf"|'\s*(?:{'|'.join(sorted(SPECIAL_TIMES))})\b|'{TIME_OF_DAY.pattern}",
    re.IGNORECASE,
)
"""Whatever leaves a result to chance, as it stands in a text: functions, some without brackets, the
user's own, names of times."""


def _lines(text: str) -> Place:
    def place(offset: int) -> Position:
        before = text[:offset]
        return Position("<sql>", before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    return place
