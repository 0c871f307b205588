"""Sets of facts that are joined and grouped, for the machine that runs Bloom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from annotations.whitebox.bloom import tree as ast
from tests.annotations.whitebox.bloom_values import Relation, Row

REDUCE: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": sum,
    "min": min,
    "max": max,
    "accum": frozenset,
    "choose": lambda values: values[0],
}


def factors(expression: ast.Expr) -> list[ast.Expr]:
    """What is joined."""
    if isinstance(expression, ast.Operation) and expression.operator == "*":
        return [part for each in expression.operands for part in factors(each)]
    return [expression]


def equalities(
    arguments: Iterable[ast.Expr],
    schemas: list[tuple[str, ...]],
    names: list[str | None],
    *,
    natural: bool = False,
) -> list[Callable[[tuple[Row, ...]], bool]]:
    """The tests of a join, which say that columns are equal."""
    pairs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    if natural:
        shared = set(schemas[0]) & set(schemas[1])
        pairs += [((0, schemas[0].index(n)), (1, schemas[1].index(n))) for n in shared]
    for each in arguments:
        assert isinstance(each, ast.Pair)
        left, right = (
            _place(side, at, schemas, names) for at, side in enumerate((each.left, each.right))
        )
        pairs.append((left, right))
    return [_equal(left, right) for left, right in pairs]


def _equal(left: tuple[int, int], right: tuple[int, int]) -> Callable[[tuple[Row, ...]], bool]:
    return lambda fact: fact[left[0]][left[1]] == fact[right[0]][right[1]]


def _place(
    side: ast.Expr, at: int, schemas: list[tuple[str, ...]], names: list[str | None]
) -> tuple[int, int]:
    if isinstance(side, ast.Symbol):
        return at, schemas[at].index(side.text)
    assert isinstance(side, ast.Send)
    assert isinstance(side.receiver, ast.Name)
    which = names.index(side.receiver.text)
    return which, schemas[which].index(side.method)


def group(
    schema: tuple[str, ...], facts: set[tuple[Row, ...]], arguments: tuple[ast.Expr, ...]
) -> Relation:
    """A row for each group."""
    keys = [each.text for each in arguments[0].items]  # type: ignore[union-attr]
    groups: dict[Row, list[Row]] = {}
    for (row,) in sorted(facts, key=repr):
        groups.setdefault(tuple(row[schema.index(key)] for key in keys), []).append(row)
    names, made = list(keys), {key: list(key) for key in groups}
    for each in arguments[1:]:
        name = each.text if isinstance(each, ast.Name) else each.method  # type: ignore[union-attr]
        columns = [] if isinstance(each, ast.Name) else each.arguments  # type: ignore[union-attr]
        names.append(name)
        for key, rows in groups.items():
            at = schema.index(columns[0].text) if columns else 0
            made[key].append(REDUCE[name]([row[at] for row in rows]))
    return [tuple(names)], {(tuple(row),) for row in made.values()}


def extreme(
    schema: tuple[str, ...], facts: set[tuple[Row, ...]], expression: ast.Send
) -> set[tuple[Row, ...]]:
    """The facts of each group with the greatest or the least value."""
    keys = [schema.index(each.text) for each in expression.arguments[0].items]  # type: ignore[union-attr]
    by = schema.index(expression.arguments[1].text)  # type: ignore[union-attr]
    best: dict[Row, Any] = {}
    choose = max if expression.method == "argmax" else min
    for (row,) in facts:
        key = tuple(row[at] for at in keys)
        best[key] = choose(best.get(key, row[by]), row[by])
    return {(row,) for (row,) in facts if row[by] == best[tuple(row[at] for at in keys)]}
