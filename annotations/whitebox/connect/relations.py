"""Relations of the Connect client as plans of the representation.

The client sends what was written: names, stars, aliases and USING are resolved here. A relation
that is not known becomes `Opaque` with a reason; nothing is left out and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.expressions import Expressions, Sql
from annotations.whitebox.connect.scope import Built, Names
from annotations.whitebox.datatypes import DataType
from annotations.whitebox.file_metadata import hidden
from annotations.whitebox.ir import Column, Expression, Ref, Relation
from annotations.whitebox.monotone import may_be_null, type_of

SourceOf: TypeAlias = Callable[[Any, Position | None], Relation | None]
"""A `Read` -> what it reads; None where it is not known."""
QueryOf: TypeAlias = Callable[
    [str, Mapping[str, Callable[[], Relation]], Position | None], Relation
]
"""SQL text, what makes an occurrence of each relation that it may read -> its plan."""


@dataclass
class Relations:
    """Turns relations into plans. One conversion: views and names belong to one DataFrame."""

    converters: Mapping[str, Converter]
    """Kind of a relation -> what makes its plan."""
    source_of: SourceOf
    query_of: QueryOf
    sql: Sql
    places: Callable[[int], Position | None]
    views: Mapping[str, Any] = field(default_factory=dict)
    """Temporary views: name -> Relation."""
    functions: dict[str, Any] = field(default_factory=dict)
    mentioned: Mapping[str, str] = field(default_factory=dict)
    """Names of columns that plans use, in lower case and as written."""
    names: Names = field(default_factory=Names)
    references: dict[str, Any] = field(default_factory=dict)
    """Relations that the SQL of the query at hand may read, by name."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.names, self.sql, self.functions)

    def plan(self, relation: Any) -> Relation:
        """The plan, which puts out exactly the columns that the DataFrame has."""
        return self.shown(self.build(relation)).relation

    def build(self, relation: Any) -> Built:
        """The plan of a relation, with what names mean in it."""
        kind = relation.WhichOneof("rel_type")
        plan_id = relation.common.plan_id if relation.common.HasField("plan_id") else None
        at = self.places(plan_id) if plan_id is not None else None
        convert = self.converters.get(kind)
        if convert is None:
            built = self.opaque(getattr(relation, kind), f"`{kind}` is not known here", at)
        else:
            built = convert(self, getattr(relation, kind), at)
        if plan_id is None:
            return built
        known = dict(built.plans)
        known[plan_id] = ((0, built.columns), *known.get(plan_id, ()))
        return replace(built, plans=known)

    # ---- parts that many converters share

    def node(
        self, relation: Relation, inputs: Sequence[Built], columns: tuple[Column, ...] | None = None
    ) -> Built:
        """A node over these inputs; `columns` are what `*` stands for, if not all of them."""
        plans: dict[int, tuple[tuple[int, tuple[Column, ...]], ...]] = {}
        for built in inputs:
            for plan, occurrences in built.plans.items():
                deeper = tuple((depth + 1, there) for depth, there in occurrences)
                plans[plan] = (*plans.get(plan, ()), *deeper)
        return Built(relation, relation.columns if columns is None else columns, plans)

    def project(
        self, over: Built, outputs: Iterable[tuple[str, Expression]], at: Position | None
    ) -> Built:
        """New columns over a plan; behind them, what files have besides."""
        pairs = [self.output(name, value) for name, value in outputs]
        behind = [c for c in over.relation.columns if hidden(c) and c not in over.columns]
        rest = [self.output(column.name, Ref(column)) for column in behind]
        columns = tuple(column for column, _ in pairs)
        return self.node(ir.Project(over.relation, (*pairs, *rest), at), [over], columns)

    def output(self, name: str, value: Expression) -> ir.Output:
        """A new column of that value; where it is an unchanged copy, this is kept in mind."""
        column = Column(name, type_of(value), may_be_null(value), getattr(value, "position", None))
        if isinstance(value, Ref):
            self.names.copy(column, value.column)
        return column, value

    def opaque(self, relation: Any, reason: str, at: Position | None) -> Built:
        """Whatever lies inside of a relation that is not known, and nothing is known of it."""
        inside = [self.build(child) for child in _children(relation)]
        return self.user_code(inside, reason, at)

    def user_code(
        self,
        inside: Sequence[Built],
        reason: str,
        at: Position | None,
        *,
        schema: DataType | None = None,
        writes: bool = True,
        deterministic: bool = True,
        left_open: str = "",
    ) -> Built:
        """Something of which nothing is known but what it reads and which columns it has."""
        columns = () if schema is None else tuple(Column(n, t, m) for n, t, m in schema.fields)
        inputs = tuple(built.relation for built in inside)
        opaque = ir.Opaque(
            inputs, columns, reason, writes, not deterministic, at, left_open=left_open
        )
        return self.node(opaque, ())

    def called(self, built: Built, name: str, at: Position | None) -> Built:
        """The same rows, whose columns can be called `name.column`."""
        outputs = [self.output(column.name, Ref(column)) for column in built.columns]
        short = name.rpartition(".")[2].strip("`").lower()
        for column, _ in outputs:
            self.names.qualifiers[column] = frozenset({short})
        return self.node(ir.Project(built.relation, tuple(outputs), at), [built])

    def one_row(self) -> Built:
        """The one row that a select list without a FROM stands over."""
        return self.node(ir.Source("(one row)", (), ir.Role.TABLE), [])

    def shown(self, built: Built) -> Built:
        """The same, without the columns that `*` does not stand for."""
        if built.relation.columns == built.columns:
            return built
        outputs = tuple(self.output(c.name, Ref(c)) for c in built.columns)
        return self.node(ir.Project(built.relation, outputs), [built])


Converter: TypeAlias = Callable[[Relations, Any, Position | None], Built]
"""Makes the plan of one kind of relation, whose message it is given."""


def _children(message: Any) -> Iterator[Any]:
    """The relations directly inside of a message."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.full_name == "spark.connect.Relation":
            yield from value if descriptor.is_repeated else (value,)


def passes_all(relation: Any) -> bool:
    """Whether a relation, as the client describes it, has all columns of something below it."""
    kind = relation.WhichOneof("rel_type")
    inner = getattr(relation, kind)
    if kind in ("aggregate", "to_df", "local_relation", "range"):
        return False
    if kind == "sql":
        return "*" in inner.query
    if kind == "project":
        stars = (e.WhichOneof("expr_type") == "unresolved_star" for e in inner.expressions)
        if not any(stars):
            return False
    below = list(_children(inner))
    return not below or any(map(passes_all, below))
