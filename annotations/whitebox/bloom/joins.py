"""Joins: `(a * b).pairs(:k => :k)` and the like, and `notin`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from annotations.dataflow import Position
from annotations.whitebox.bloom.blocks import Blocks
from annotations.whitebox.bloom.expressions import Clock
from annotations.whitebox.bloom.rows import Rows, all_of, assumption, equal
from annotations.whitebox.bloom.scope import Scope
from annotations.whitebox.bloom.tree import Array, Expr, Operation, Pair, Send, Symbol, Value
from annotations.whitebox.ir import Column, Filter, Join, JoinKind, Relation
from annotations.whitebox.traits import asks, keeps

JOINS = frozenset({"pairs", "combos", "matches", "lefts", "rights", "outer", "flatten"})

Pairs = list[tuple[Column, Column]]


class Joins:
    """The joins of one rule."""

    def __init__(self, scope: Scope, blocks: Blocks) -> None:
        self.scope, self.blocks = scope, blocks

    def join(
        self,
        several: Sequence[Rows],
        names: Sequence[str | None],
        method: str,
        arguments: tuple[Expr, ...],
        position: Position,
    ) -> Rows:
        """The rows of a join; `names` says which collections they are, if they are collections."""
        if len(several) < 2:
            return self.scope.opaque(several, f"`{method}` belongs to a join `(a * b)`", position)
        pairs = [*_natural(several)] if method == "matches" else []
        pairs += self._pairs(arguments, several, names)
        if any(side.timed for side in several):
            return self._with_timer(several, pairs, position)
        if method in ("lefts", "rights") and len(several) == 2:
            keep, other = several if method == "lefts" else several[::-1]
            return Rows(_joined(keep, other, JoinKind.SEMI, pairs, position), keep.rows)
        kind = JoinKind.LEFT if method == "outer" else JoinKind.INNER
        result = several[0]
        for other in several[1:]:
            mine = set(result.columns) | set(other.columns)
            here = [pair for pair in pairs if set(pair) <= mine]
            pairs = [pair for pair in pairs if pair not in here]
            relation = _joined(result, other, kind, here, position)
            result = Rows(relation, (*result.rows, *other.rows))
        return result

    def notin(
        self,
        call: Send,
        inner: Rows,
        other: Rows,
        names: Sequence[str | None],
        position: Position,
    ) -> Rows:
        """The rows that find no partner in the collection that is the first argument."""
        _, *rest = call.arguments
        pairs = list(self._pairs(tuple(rest), [inner, other], names))
        if not rest and call.block is None:
            if len(inner.columns) != len(other.columns):
                message = f"`notin` compares {len(inner.columns)} columns with {len(other.columns)}"
                self.scope.out.add("BLZ092", message, position, "Say which columns: `:a => :b`.")
            pairs = list(zip(inner.columns, other.columns, strict=False))
        conditions = equal(pairs)
        if call.block is not None:
            for result in self.blocks.results((*inner.rows, *other.rows), call.block):
                conditions += result.conditions
                conditions += [result.whole] if result.whole is not None else []
        condition = all_of(conditions)
        node = Join(inner.relation, other.relation, JoinKind.ANTI, condition, position=position)
        return Rows(node, inner.rows)

    def _with_timer(self, several: Sequence[Rows], pairs: Pairs, position: Position) -> Rows:
        """A timer fires for ever: what it is joined with is looked at again and again."""
        others = [side for side in several if not isinstance(side.rows[0], Clock)]
        if not others:
            return self.scope.opaque(several, "only a timer decides what is sent", position)
        relation, rows = others[0].relation, others[0].rows
        for other in others[1:]:
            relation = _joined(Rows(relation, rows), other, JoinKind.INNER, pairs, position)
            rows = (*rows, *other.rows)
        by_place = iter(rows)
        ordered = tuple(
            side.rows[0] if isinstance(side.rows[0], Clock) else next(by_place) for side in several
        )
        return Rows(relation, ordered)

    # ---- columns that a join makes equal

    def _pairs(
        self,
        arguments: tuple[Expr, ...],
        several: Sequence[Rows],
        names: Sequence[str | None],
    ) -> Iterator[tuple[Column, Column]]:
        for argument in _flat(arguments):
            if not isinstance(argument, Pair):
                where = self.scope.rule.place(argument.at)
                self.scope.out.add("BLZ092", "a join pairs columns: `:a => :b`", where)
                continue
            one = self._side(argument.left, several[0], several, names)
            other = self._side(argument.right, several[1], several, names)
            if one is not None and other is not None:
                yield one, other

    def _side(
        self, expression: Expr, own: Rows, several: Sequence[Rows], names: Sequence[str | None]
    ) -> Column | None:
        """One side of a pair: `:column` of the side's own collection, or `collection.column`."""
        match expression:
            case Symbol(text=text):
                return self.scope.column(own, text, expression.at)
            case Send(receiver=receiver, method=column, arguments=()) if receiver is not None:
                name = self.scope.named(receiver)
                if name is not None and name in names:
                    return self.scope.column(several[names.index(name)], column, expression.at)
        message = "expected `:column` or `collection.column` of one of the joined collections"
        self.scope.out.add("BLZ092", message, self.scope.rule.place(expression.at))
        return None


def is_product(expression: Expr) -> bool:
    """True for `a * b`, with or without methods of joins."""
    match expression:
        case Operation(operator="*"):
            return True
        case Send(receiver=receiver, method=method) if receiver is not None and method in JOINS:
            return is_product(receiver)
    return False


def factors(expression: Expr) -> Iterator[Expr]:
    """The rows that are joined."""
    match expression:
        case Operation(operator="*", operands=operands):
            for operand in operands:
                yield from factors(operand)
        case Send(receiver=receiver, method="matches" | "pairs", arguments=(), block=None) if (
            receiver is not None and is_product(receiver)
        ):
            yield from factors(receiver)
        case _:
            yield expression


def _natural(several: Sequence[Rows]) -> Iterator[tuple[Column, Column]]:
    """The columns of equal names."""
    for at, left in enumerate(several):
        for right in several[at + 1 :]:
            by_name = {c.name: c for c in right.columns}
            yield from ((c, by_name[c.name]) for c in left.columns if c.name in by_name)


def _flat(arguments: tuple[Expr, ...]) -> Iterator[Expr]:
    """Pairs also where they stand in `[...]`."""
    for argument in arguments:
        if isinstance(argument, Array):
            yield from argument.items
        elif not (isinstance(argument, Value) and argument.value is None):
            yield argument


def _joined(left: Rows, right: Rows, kind: JoinKind, pairs: Pairs, position: Position) -> Relation:
    """A join, with the assumption that makes asking what still grows confluent."""
    node = Join(left.relation, right.relation, kind, all_of(equal(pairs)), position=position)
    for one, other in ((left.relation, right.relation), (right.relation, left.relation)):
        if asks(one) and not asks(other) and keeps(other):
            who = " and ".join(sorted(asks(one)))
            claim = f"a fact of {who} that finds no partner yet is sent again, or waits"
            return Filter(node, assumption(claim, position), position)
    return node
