"""Rows after a block of a rule: what it makes of each of them, and which of them it keeps."""

from __future__ import annotations

from collections.abc import Iterator

from annotations.dataflow import Position
from annotations.whitebox.bloom.expressions import Clock, Environment, Result, Row
from annotations.whitebox.bloom.rows import Rows, all_of, any_of, empty, named
from annotations.whitebox.bloom.scope import Scope
from annotations.whitebox.bloom.tree import Block, Send
from annotations.whitebox.datatypes import BIGINT, BOOLEAN, VALUE
from annotations.whitebox.ir import (
    Call,
    Column,
    Expression,
    Filter,
    Generate,
    Literal,
    Output,
    Project,
    Ref,
    Relation,
)


class Blocks:
    """The blocks of one rule."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def results(self, rows: tuple[Row | Clock, ...], block: Block) -> Iterator[Result]:
        """The results of a block for these rows: one for each way through it."""
        return self.scope.reader.results(block.body, _environment(rows, block))

    def after(self, rows: Rows, block: Block | None, position: Position) -> Rows:
        """The rows after a block; a block with several ways through it makes a choice."""
        if block is None:
            return rows
        results = list(self.results(rows.rows, block))
        if len(results) == 1:
            return self._result(rows.relation, results[0], position)
        if not results:
            return self.constants(self.scope.width or 0, position)
        return self._ways(rows, results, position)

    def constants(self, width: int, position: Position) -> Rows:
        """Facts that stand in the text."""
        return Rows.of(empty("constants", [f"c{at}" for at in range(width)], position))

    def flat_map(self, call: Send, inner: Rows, position: Position) -> Rows:
        """A row for each element of what the block gives."""
        width = 1 if self.scope.width is None else self.scope.width
        typed = tuple([Column(f"c{at}", VALUE) for at in range(width)])
        values: tuple[Expression, ...] = tuple(map(Ref, inner.columns))
        if call.block is not None:
            results = self.results(inner.rows, call.block)
            values = tuple([part for result in results for part in result.parts])
        return Rows(Generate(inner.relation, Call("explode", values), typed, position), (typed,))

    def select(self, call: Send, inner: Rows, position: Position) -> Rows:
        """The rows for which the block is true, or is not (`reject`)."""
        block = call.block
        if block is None or len(block.body) != 1:
            return self.scope.opaque((inner,), f"`{call.method}` needs a condition", position)
        [statement] = block.body
        test = self.scope.reader.condition(statement, _environment(inner.rows, block))  # type: ignore[arg-type]
        if call.method == "reject":
            test = Call("not", (test,), BOOLEAN)
        return Rows(Filter(inner.relation, test, position), inner.rows)

    def _ways(self, rows: Rows, results: list[Result], position: Position) -> Rows:
        """Several ways: each fact takes one, so that a column is a choice between their values."""
        lists = [list(self._values(result)) for result in results]
        if len({len(item) for item in lists}) > 1:
            reason = "the ways through the block give different widths"
            return self.scope.opaque((rows,), reason, position)
        conditions = [all_of(result.conditions) for result in results]
        taken = any_of(conditions)
        relation = rows.relation if taken is None else Filter(rows.relation, taken, position)
        outputs: list[Output] = []
        for at, (name, value) in enumerate(lists[0]):
            values = [item[at][1] for item in lists]
            same = all(item == value for item in values)
            outputs.append(named(name, value if same else _choice(conditions, values)))
        return Rows.of(Project(relation, tuple(outputs), position))

    def _result(self, relation: Relation, result: Result, position: Position) -> Rows:
        condition = all_of(result.conditions)
        if condition is not None:
            relation = Filter(relation, condition, position)
        outputs = tuple([named(name, value) for name, value in self._values(result)])
        return Rows.of(Project(relation, outputs, position))

    def _values(self, result: Result) -> Iterator[tuple[str, Expression]]:
        if result.values is not None:
            yield from result.values
            return
        assert result.whole is not None
        if self.scope.width is None or self.scope.width == 1:
            yield "c0", result.whole
            return
        for at in range(self.scope.width):
            yield f"c{at}", Call("element_at", (result.whole, Literal(at, BIGINT)))


def _environment(rows: tuple[Row | Clock, ...], block: Block) -> Environment:
    """The values that the block's parameters stand for."""
    parameters = block.parameters
    if len(rows) == 1 and isinstance(rows[0], tuple) and len(parameters) > 1:
        # One row, taken apart.
        names = [argument for argument in parameters if isinstance(argument, str)]
        return {n: Ref(column) for n, column in zip(names, rows[0], strict=False)}
    if len(rows) > 1 and len(parameters) == 1 and isinstance(parameters[0], str):
        return {parameters[0]: tuple(c for row in rows if isinstance(row, tuple) for c in row)}
    result: dict[str, Row | Clock | Expression] = {}
    for parameter, row in zip(parameters, rows, strict=False):
        if isinstance(parameter, str):
            result[parameter] = row
        elif isinstance(row, tuple):
            result |= {n: Ref(column) for n, column in zip(parameter, row, strict=False)}
    return result


def _choice(conditions: list[Expression | None], values: list[Expression]) -> Call:
    parts = [
        part
        for condition, value in zip(conditions, values, strict=True)
        for part in (condition or Literal(True, BOOLEAN), value)
    ]
    return Call("case", (*parts, Literal(None)))
