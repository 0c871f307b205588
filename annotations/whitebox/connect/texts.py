"""SQL inside of PySpark code, read by the SQL front end: `expr("...")`, `spark.sql("...")`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.scope import Built, Names
from annotations.whitebox.ir import Expression, Unknown


def select_list(
    text: str, over: Built, names: Names, at: Position | None
) -> list[tuple[str, Expression]]:
    """Names and values of the entries of a select list over the columns of a plan."""
    return [(text, Unknown(f"`{text}` is not read", (), at))]


def query(
    text: str,
    tables: Mapping[str, ir.Relation],
    at: Position | None,
    *,
    snapshot: bool = False,
) -> ir.Relation:
    """The plan of a query over these tables."""
    return ir.Opaque(tuple(tables.values()), (), "a query that is not read", position=at)


def words(text: str) -> Iterator[str]:
    """The names in a text of SQL, with the parts of a name together."""
    for found in re.findall(r"`[^`]+`(?:\.`[^`]+`)*|[A-Za-z_][\w.]*", text):
        yield found.replace("`", "")
