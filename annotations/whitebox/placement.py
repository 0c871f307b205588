"""Functions and queries that stand where Spark allows none, of a query that sqlglot has read.

Aggregates in WHERE or in aggregates, rankings without an order, and queries that are put together
though they have different numbers of columns. Names are not resolved here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sqlglot import exp

from annotations.whitebox.functions import AGGREGATES, FUNCTIONS, GENERATORS

OVER_ONLY: Final = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"}
)
"""Functions that need a window, and an order in it."""
AROUND_A_TABLE: Final = (exp.From, exp.Join, exp.CTE, exp.With, exp.Subquery, exp.SetOperation)
"""What stands between a query and one that reads it as a table."""


class Misplaced(NamedTuple):
    """A mistake, at a node of the tree."""

    code: str
    message: str
    node: Any


def misplaced(tree: Any) -> Iterator[Misplaced]:
    """The mistakes of all queries in a tree (BLZ057, BLZ058)."""
    for node in tree.walk():
        match node:
            case exp.Where() if _is_of_a_table(node.parent):
                yield from _in_where(node)
            case exp.Anonymous():
                yield from _function(node)
            case exp.SetOperation():
                yield from _widths(node)
            case exp.In():
                yield from _membership(node)
            case exp.Select():
                yield from _values(node)
            case _:
                pass


def _is_of_a_table(query: Any) -> bool:
    """False for a query inside of an expression, whose aggregates may be those around it."""
    above = query
    while above.parent is not None:
        in_items = isinstance(above.parent, exp.Select) and above.arg_key == "expressions"
        if in_items or not isinstance(above.parent, (*AROUND_A_TABLE, exp.Select)):
            return False
        above = above.parent
    return True


def _parts(node: Any) -> Iterator[Any]:
    """The nodes of an expression, without those of queries inside of it."""
    todo = [node]
    while todo:
        part = todo.pop()
        if not isinstance(part, exp.Query):
            yield part
            todo += reversed(list(part.iter_expressions()))


def _is_aggregate(node: Any) -> bool:
    """True for an aggregate that is none over a window."""
    return (
        isinstance(node, exp.Anonymous)
        and node.name.lower() in AGGREGATES
        and not isinstance(node.find_ancestor(exp.Window, exp.Query), exp.Window)
    )


def _in_where(where: Any) -> Iterator[Misplaced]:
    for node in _parts(where.this):
        if isinstance(node, exp.Window):
            name = node.this.name or "a window function"
            yield Misplaced("BLZ057", f"`{name}` over a window stands in WHERE", node.this)
        elif _is_aggregate(node):
            yield Misplaced("BLZ057", f"the aggregate `{node.name}` stands in WHERE", node)


def _function(node: Any) -> Iterator[Misplaced]:
    name = node.name.lower()
    if _is_aggregate(node):
        for part in _parts(node):
            if part is not node and _is_aggregate(part):
                message = f"the aggregate `{part.name}` stands inside of `{node.name}`"
                yield Misplaced("BLZ057", message, part)
    elif name in OVER_ONLY:
        window = node.find_ancestor(exp.Window, exp.Query)
        if not isinstance(window, exp.Window):
            yield Misplaced("BLZ057", f"`{node.name}` has no window: OVER is missing", node)
        elif not any(window.args.get(key) for key in ("order", "alias")):
            yield Misplaced("BLZ057", f"`{node.name}` needs an ORDER BY in its window", node)


# ---- numbers of columns


def _width(query: Any) -> int | None:
    """How many columns a query has; None where that is not known."""
    match query:
        case exp.Subquery():
            return _width(query.this)
        case exp.SetOperation():
            return None if query.args.get("by_name") else _width(query.left)
        case exp.Select() if not query.args.get("kind"):
            items = query.expressions
            return None if any(map(_may_be_several, items)) else len(items)
    return None


def _may_be_several(item: Any) -> bool:
    """True for an item that may give any number of columns."""
    return isinstance(item, exp.Aliases) or any(
        isinstance(node, exp.Star)
        or (
            isinstance(node, exp.Anonymous)
            and (node.name.lower() in GENERATORS or node.name.lower() not in FUNCTIONS)
        )
        for node in _parts(item)
    )


def _widths(node: Any) -> Iterator[Misplaced]:
    if node.args.get("by_name"):
        return
    first, second = _width(node.left), _width(node.right)
    if first is not None and second is not None and first != second:
        kind = node.key.upper()
        message = f"{kind} of queries with {first} and {second} columns"
        yield Misplaced("BLZ058", message, _begin(node.right))


def _membership(node: Any) -> Iterator[Misplaced]:
    query = node.args.get("query")
    width = None if query is None else _width(query)
    asked = len(node.this.expressions) if isinstance(node.this, exp.Tuple) else 1
    if width is not None and width != asked:
        message = f"IN asks for {asked} of the {width} columns of a query"
        yield Misplaced("BLZ058", message, _begin(query))


def _values(node: Any) -> Iterator[Misplaced]:
    for item in node.expressions:
        inner = item.unalias()
        width = _width(inner) if isinstance(inner, exp.Subquery) else None
        if width is not None and width > 1:
            message = f"a query of {width} columns stands for one value"
            yield Misplaced("BLZ058", message, _begin(inner))


def _begin(query: Any) -> Any:
    """The first item of a query: queries themselves have no place."""
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    return query.expressions[0] if query.expressions else query
