"""Ruby of blocks, run: rows in, tuples out.

A row is bound as a mapping from its columns, with all of it as a tuple under `*`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from annotations.whitebox.bloom import tree as ast

Row = tuple[Any, ...]
Relation = tuple[list[tuple[str, ...]], set[tuple[Row, ...]]]

NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def blocked(
    schemas: list[tuple[str, ...]], facts: set[tuple[Row, ...]], block: ast.Block | None
) -> Relation:
    """Facts after a block."""
    if block is None:
        return schemas, facts
    made = [run_block(block.body, bind(block, fact, schemas)) for fact in facts]
    rows = [row if isinstance(row, tuple) else (row,) for row in made if row is not None]
    return [()], {(row,) for row in rows}


def bind(block: ast.Block, fact: tuple[Row, ...], schemas: list[tuple[str, ...]]) -> dict[str, Any]:
    """What the parameters of a block stand for."""
    rows = [_named(s, row) for s, row in zip(schemas, fact, strict=True)]
    if len(fact) == 1 and len(block.parameters) > 1:
        return dict(zip(block.parameters, fact[0], strict=False))  # type: ignore[arg-type]
    return dict(zip(block.parameters, rows, strict=False))  # type: ignore[arg-type]


def _named(schema: tuple[str, ...], row: Row) -> Any:
    """A row by its columns; of a set, the element itself."""
    if schema == ("(element)",):
        return row[0]
    return dict(zip(schema, row, strict=False)) | {"*": row}


def run_block(body: tuple[ast.Statement, ...], bound: dict[str, Any]) -> Any:
    """What a block gives for one fact."""
    value: Any = None
    for statement in body:
        match statement:
            case ast.Assign(name=name, value=expression):
                bound = {**bound, name: evaluate(expression, bound)}
            case ast.Branch(condition=condition, then=then, otherwise=otherwise):
                value = run_block(then if evaluate(condition, bound) else otherwise, bound)
            case ast.Array(items=items):
                value = tuple(evaluate(each, bound) for each in items)
            case _:
                value = evaluate(statement, bound)
                value = value["*"] if isinstance(value, dict) else value
    return value


def evaluate(expression: ast.Expr, bound: Mapping[str, Any]) -> Any:
    """The value of an expression."""
    match expression:
        case ast.Value(value=value):
            return value
        case ast.Array(items=items):
            return tuple(evaluate(each, bound) for each in items)
        case ast.Name(text=name) if name in bound:
            return bound[name]
        case ast.Operation(operator="||", operands=(left, right)):
            found = evaluate(left, bound)
            return evaluate(right, bound) if found is None or found is False else found
        case ast.Operation(operator="!", operands=(inner,)):
            return not evaluate(inner, bound)
        case ast.Operation(operator="negative", operands=(inner,)):
            return -evaluate(inner, bound)
        case ast.Operation(operator="&&", operands=(left, right)):
            return evaluate(left, bound) and evaluate(right, bound)
        case ast.Operation(operator="if", operands=(test, then, otherwise)):
            return evaluate(then if evaluate(test, bound) else otherwise, bound)
        case ast.Index(receiver=receiver, arguments=(ast.Value(value=int() as at),)):
            return evaluate(receiver, bound)["*"][at]
        case ast.Operation(operator=operator, operands=(left, right)):
            return NUMBERS[operator](evaluate(left, bound), evaluate(right, bound))
        case ast.Send(receiver=receiver, method=method) if receiver is not None:
            inner = evaluate(receiver, bound)
            if method == "size":
                return len(inner)
            if isinstance(inner, dict) and method in inner:
                return inner[method]
    raise NotImplementedError(expression)
