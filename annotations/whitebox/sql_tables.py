"""Queries and the tables that they read: set operations, CTEs, FROM clauses, watermarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from sqlglot import exp

from annotations.dataflow import Position
from annotations.whitebox.datatypes import BIGINT, STRING
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Deduplicate,
    Expression,
    Generate,
    Limit,
    Project,
    Ref,
    Relation,
    Reuse,
    Role,
    Sample,
    SetKind,
    SetOperation,
    Sort,
    SortKey,
    Source,
    Union,
    Unknown,
    Watermark,
    nodes_of,
    references,
)
from annotations.whitebox.monotone import type_of
from annotations.whitebox.places import Place
from annotations.whitebox.result_types import common
from annotations.whitebox.sql_dialect import Delay, Parsed
from annotations.whitebox.sql_expressions import Expressions, NotUnderstood
from annotations.whitebox.sql_items import start_of
from annotations.whitebox.sql_scope import Named, Scope

SET_PARTS: Final = frozenset(
    {"this", "expression", "distinct", "by_name", "with_", "order", "limit", "offset", "with"}
    | {"side", "kind"}
)


@dataclass(slots=True)
class Ctes:
    """Named queries, each with those that it sees."""

    known: dict[str, tuple[Any, Ctes] | Source] = field(default_factory=dict)
    """A query that reads itself finds its rows so far as a table."""


_CONSTANTS: Final = (exp.Literal, exp.Boolean, exp.Null, exp.Neg)
"""Values that are written down."""
ReadSelect = Callable[["Builder", Any, Ctes, Scope | None], Relation]
"""Reads one SELECT (`sql_select.select`)."""


class Builder:
    """One statement on its way into a plan."""

    def __init__(
        self, parsed: Parsed, inputs: Mapping[str, Input], place: Place, select: ReadSelect
    ) -> None:
        self._select = select
        self.inputs = {name.lower(): (name, declared) for name, declared in inputs.items()}
        self.place = place
        self.delays = list(parsed.delays)
        self.open = False
        self.wanted = _wanted(parsed.tree)
        self._plans: dict[int, tuple[Any, Relation]] = {}

    def at(self, node: Any) -> Position | None:
        """Where a node stands, if the tree knows."""
        start = start_of(node) if node is not None else None
        return None if start is None else self.place(start)

    def own(self, node: Any) -> Position | None:
        """Where a node itself stands: not what is inside of it."""
        start = node.meta.get("start") if node is not None else None
        return None if start is None else self.place(start)

    def statement(self, tree: Any) -> Relation:
        """The plan of a query, or of what CREATE ... AS and INSERT ... SELECT compute."""
        if isinstance(tree, exp.Create | exp.Insert) and isinstance(tree.expression, exp.Query):
            tree = tree.expression
        if not isinstance(tree, exp.Query):
            raise NotUnderstood(f"{type(tree).__name__.upper()} is not a query", tree)
        return self.query(tree, Ctes(), None)

    # ---- queries

    def query(self, tree: Any, ctes: Ctes, outer: Scope | None) -> Relation:
        """A query; `outer` has the names of the query around it."""
        ctes = self.named(tree, ctes)
        match tree:
            case exp.Subquery():
                self.only(tree, {"this", "alias", "with_", "order", "limit", "offset"})
                inner = self.query(tree.this, ctes, outer)
                return self.limited(
                    tree, inner, dict(zip(lower(inner), inner.columns, strict=False))
                )
            case exp.SetOperation():
                return self._set_operation(tree, ctes, outer)
            case exp.Select():
                return self._select(self, tree, ctes, outer)
            case exp.Values():
                return self._values(tree)[1]
        raise NotUnderstood(f"{type(tree).__name__} is not understood", tree)

    def only(self, tree: Any, parts: Iterable[str]) -> None:
        """Refuse a clause that is not one of `parts`."""
        for key, value in tree.args.items():
            if value and key not in parts:
                name = key.rstrip("_").upper()
                node = value if isinstance(value, exp.Expression) else tree
                raise NotUnderstood(f"the clause {name} is not understood", node)

    def named(self, tree: Any, ctes: Ctes) -> Ctes:
        """The named queries that a query sees: those around it, and those of its own WITH."""
        clause = tree.args.get("with_") or tree.args.get("with")
        if clause is None:
            return ctes
        inner = Ctes(dict(ctes.known))
        for cte in clause.expressions:
            name, own = cte.alias.lower(), Ctes(dict(inner.known))
            if clause.args.get("recursive") and isinstance(cte.this, exp.Union):
                names = [column.name for column in cte.args["alias"].columns]
                columns = map(Column, names or cte.this.left.named_selects)
                own.known[name] = Source(name, tuple(columns), Role.TABLE)
            inner.known[name] = (cte, own)
        return inner

    def _set_operation(self, tree: Any, ctes: Ctes, outer: Scope | None) -> Relation:
        self.only(tree, SET_PARTS)
        left = self.query(tree.left, ctes, outer)
        right = self.query(tree.right, ctes, outer)
        if tree.args.get("by_name"):
            right = _reordered(left, right, tree)
        if len(left.columns) != len(right.columns):
            raise NotUnderstood("both sides must have the same number of columns", tree)
        columns = tuple(
            [
                Column(a.name, common((a.type, b.type)), a.nullable or b.nullable)
                for a, b in zip(left.columns, right.columns, strict=True)
            ]
        )
        position = self.at(tree.right)
        distinct = bool(tree.args.get("distinct"))
        plan: Relation
        if isinstance(tree, exp.Union):
            plan = Union((left, right), columns, position)
            if distinct:
                plan = Deduplicate(plan, columns, grouped=True, position=position)
        else:
            kind = SetKind.EXCEPT if isinstance(tree, exp.Except) else SetKind.INTERSECT
            plan = SetOperation(left, right, kind, columns, not distinct, position)
        return self.limited(tree, plan, dict(zip(lower(plan), columns, strict=True)))

    def limited(
        self,
        tree: Any,
        plan: Relation,
        names: Mapping[str, Column],
        express: Callable[[Any], Expression] | None = None,
    ) -> Relation:
        """ORDER BY decides what LIMIT or OFFSET keeps, and like any other sort or repartition the
        order in which rows come to what stands above."""
        moving = any(tree.args.get(key) for key in ("sort", "cluster", "distribute"))
        if moving or _repartitions(tree.args.get("hint")):
            plan = Sort(plan, (), self.at(tree))
        limits = [tree.args.get(key) for key in ("limit", "offset")]
        limit = next(
            (clause for clause in limits if clause is not None and not _of_all(clause)), None
        )
        if limit is None:
            return Sort(plan, (), self.at(tree)) if tree.args.get("order") else plan
        keys = self._order(tree.args.get("order"), plan, names, express)
        return Limit(plan, keys, self.at(limit), skips=tree.args.get("offset") is not None)

    def _order(
        self,
        order: Any,
        plan: Relation,
        names: Mapping[str, Column],
        express: Callable[[Any], Expression] | None,
    ) -> tuple[SortKey, ...]:
        """The sort keys: columns of the result, or expressions."""
        keys: list[SortKey] = []
        for key in order.expressions if order is not None else ():
            node = key.this if isinstance(key, exp.Ordered) else key
            if isinstance(node, exp.Column) and node.name.lower() in names:
                keys.append(SortKey(Ref(names[node.name.lower()]), bool(key.args.get("desc"))))
            elif isinstance(node, exp.Literal) and node.this.isdigit():
                at = int(node.this) - 1
                if at < len(plan.columns):
                    keys.append(SortKey(Ref(plan.columns[at]), bool(key.args.get("desc"))))
            else:
                desc = bool(key.args.get("desc"))
                keys.append(SortKey(self._sort_key(node, express), desc))
        return tuple(keys)

    def _sort_key(self, node: Any, express: Callable[[Any], Expression] | None) -> Expression:
        unknown = Unknown("what it is ordered by is not understood", (), self.at(node))
        if express is None:
            return unknown
        try:
            return express(node)
        except NotUnderstood:
            return unknown

    # ---- tables

    def table(
        self, node: Any, ctes: Ctes, scope: Scope, outer: Scope | None
    ) -> tuple[Named, Relation]:
        """The plan of an item of a FROM clause, under its name."""
        if node.args.get("pivots"):
            return self._pivoted(node, ctes, scope, outer)
        match node:
            case exp.Subquery():
                plan = self.query(node, ctes, outer)
                named = Named(node.alias, plan.columns)
            case exp.Values():
                named, plan = self._values(node)
            case exp.Table():
                named, plan = self._table(node, ctes)
            case exp.Lateral() | exp.Unnest():
                raise NotUnderstood("LATERAL is not understood here", node)
            case _:
                raise NotUnderstood(f"{type(node).__name__} is not understood here", node)
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            named, plan = _renamed(
                named, plan, [identifier.name for identifier in alias.columns], node
            )
        sample = node.args.get("sample")
        if sample is not None:  # so many ROWS are a LIMIT in Spark
            several = sample.args.get("size") is not None
            plan = (Limit if several else Sample)(plan, position=self.at(node))
        return named, self._delayed(node, named, plan)

    def _pivoted(
        self, node: Any, ctes: Ctes, scope: Scope, outer: Scope | None
    ) -> tuple[Named, Relation]:
        """PIVOT: groups by what it does not name. UNPIVOT: several rows of each."""
        pivots = node.args["pivots"]
        node.set("pivots", None)
        try:
            named, plan = self.table(node, ctes, scope, outer)
        finally:
            node.set("pivots", pivots)
        for pivot in pivots:
            fields: list[Any] = list(pivot.args.get("fields") or ())
            if named.open or len(fields) != 1 or not isinstance(fields[0], exp.In):
                raise NotUnderstood("this PIVOT is not understood", pivot)
            if pivot.args.get("unpivot"):
                plan = self._unpivot(pivot, fields[0], named, plan)
            else:
                plan = self._pivot(pivot, fields[0], named, plan)
            named = Named(pivot.alias or named.alias, plan.columns)
        return named, plan

    def _pivot(self, pivot: Any, field: Any, named: Named, plan: Relation) -> Relation:
        place = self.at(pivot)
        express = Expressions(lambda node: Scope([named]).resolve(node, self.at(node)), self.own)
        by = express(field.this)
        if not isinstance(by, Ref):
            raise NotUnderstood("PIVOT by several columns is not understood", pivot)
        calls = [express(expression) for expression in pivot.expressions]
        names = [identifier.name for identifier in pivot.args.get("columns") or ()]
        used = references(by).union(*map(references, calls))
        keys = tuple(column for column in plan.columns if column not in used)
        outputs: list[tuple[Column, Expression]] = [
            (Column(c.name, c.type, c.nullable), Ref(c)) for c in keys
        ]
        values = [(literal, call) for literal in field.expressions for call in calls]
        if len(values) != len(names):
            raise NotUnderstood("the columns of PIVOT are not known", pivot)
        for name, (literal, call) in zip(names, values, strict=True):
            value = express(literal.this if isinstance(literal, exp.PivotAlias) else literal)
            if not isinstance(call, Call) or call.condition is not None:
                raise NotUnderstood("PIVOT needs aggregates", pivot)
            chosen = replace(call, condition=Call("<=>", (by, value)))
            outputs.append((Column(name, call.type, True, place), chosen))
        return Aggregate(plan, tuple(map(Ref, keys)), tuple(outputs), None, place, pivots=True)

    def _unpivot(self, pivot: Any, field: Any, named: Named, plan: Relation) -> Relation:
        place = self.at(pivot)
        scope = Scope([named])
        chosen = [item.this if isinstance(item, exp.PivotAlias) else item
                  for item in field.expressions]  # fmt: skip
        columns = [scope.resolve(item, self.at(item)) for item in chosen
                   if isinstance(item, exp.Column)]  # fmt: skip
        if len(columns) != len(chosen) or len(pivot.expressions) != 1:
            raise NotUnderstood("this UNPIVOT is not understood", pivot)
        name = Column(field.this.name, STRING, False)
        value = Column(pivot.expressions[0].name, common([type_of(column) for column in columns]))
        generator = Call("explode", (Call("array", tuple(columns)),))
        plan = Generate(plan, generator, (name, value), place)
        used = frozenset[Column]().union(*map(references, columns))
        rest = tuple((Column(c.name, c.type, c.nullable), Ref(c)) for c in plan.columns
                     if c not in used)  # fmt: skip
        return Project(plan, rest, place)

    def _table(self, node: Any, ctes: Ctes) -> tuple[Named, Relation]:
        self.only(node, {"this", "alias", "db", "catalog", "sample", "joins", "hints"})
        alias = node.alias_or_name
        if not isinstance(node.this, exp.Identifier):
            if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
                column = Column("id", BIGINT, False)
                return Named(alias, (column,)), Source("range", (column,), Role.TABLE)
            raise NotUnderstood("a table function is not understood", node)
        if not node.db and node.name.lower() in ctes.known:
            known = ctes.known[node.name.lower()]
            if isinstance(known, Source):
                again = replace(known, columns=tuple(map(replace, known.columns)))
                return Named(alias, again.columns), again
            cte, inner = known
            plan = self._named_query(cte, inner)
            named = Named(alias, plan.columns)
            columns = cte.args["alias"].columns
            if columns:
                named, plan = _renamed(
                    named, plan, [identifier.name for identifier in columns], node
                )
            return named, plan
        name, declared = self.inputs.get(node.name.lower(), (node.name, None))
        if declared is None or node.db:
            full = ".".join(filter(None, [node.catalog, node.db, node.name]))
            declared = Input(role=Role.MUTABLE)
            name = full
        wanted = () if declared.schema is not None else self.wanted(alias)
        source = declared.source(name, self.at(node), wanted)
        return Named(alias, source.columns, not source.complete), source

    def _named_query(self, cte: Any, ctes: Ctes) -> Relation:
        """The plan of a CTE: read where it is first used, and used again everywhere else."""
        if id(cte) not in self._plans:
            plan = self.query(cte.this, ctes, None)
            itself = ctes.known.get(cte.alias.lower())
            if isinstance(itself, Source) and _grows(plan, itself.name):
                raise NotUnderstood("a recursive query is not understood", cte)
            self._plans[id(cte)] = cte, plan
            return plan
        _, plan = self._plans[id(cte)]
        columns = tuple([replace(column) for column in plan.columns])
        return Reuse(plan, columns, getattr(plan, "position", None))

    def _values(self, node: Any) -> tuple[Named, Relation]:
        """Values as a table that never changes; those that are computed may be left to chance."""
        rows = [item.expressions if isinstance(item, exp.Tuple) else [item]
                for item in node.expressions]  # fmt: skip
        columns = tuple([Column(f"col{at + 1}") for at in range(len(rows[0]))])
        named = Named(node.alias, columns)
        if all(isinstance(cell.unnest(), _CONSTANTS) for row in rows for cell in row):
            return named, Source("values", columns, Role.TABLE)
        express = Expressions(lambda name: Scope().resolve(name, self.at(name)), self.own)
        parts = [
            Project(
                Source("nothing", (), Role.TABLE),
                tuple((Column(c.name), express(v)) for c, v in zip(columns, row, strict=False)),
                self.at(node),
            )
            for row in rows
        ]
        return named, Union(tuple(parts), columns, self.at(node))

    def _delayed(self, node: Any, named: Named, plan: Relation) -> Relation:
        """The WATERMARK clause that stands right after the table."""
        ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
        if not ends or not self.delays:
            return plan
        following = [clause for clause in self.delays if clause.start >= min(ends)]
        if not following:
            return plan
        delay = min(following, key=lambda clause: clause.start)
        columns = named.find(delay.column)
        if not columns or self._nearer(node, delay):
            return plan
        self.delays.remove(delay)
        return Watermark(plan, columns[0], delay.delay_s, self.place(delay.start))

    def _nearer(self, node: Any, delay: Delay) -> bool:
        """True where another table stands between this one and the clause."""
        own = start_of(node) or 0
        root = node.root()
        starts = [start_of(table) for table in root.find_all(exp.Table)]
        return any(start is not None and own < start < delay.start for start in starts)


def _grows(plan: Relation, name: str) -> bool:
    """Whether a plan reads its own rows, and records that come in."""
    leaves = [node for node in nodes_of(plan) if isinstance(node, Source)]
    return any(leaf.name == name and leaf.role is Role.TABLE for leaf in leaves) and any(
        leaf.role in (Role.STREAM, Role.REQUEST) for leaf in leaves
    )


def lower(relation: Relation) -> list[str]:
    """The names of the columns in lower case."""
    return [column.name.lower() for column in relation.columns]


def _wanted(tree: Any) -> Callable[[str], tuple[str, ...]]:
    """Columns that a table without a schema must have: those that the text asks it for."""
    names: dict[str, dict[str, None]] = {}
    tables = {
        part.lower()
        for table in tree.find_all(exp.Table, exp.Subquery, exp.CTE, exp.Lateral, exp.Unnest)
        for part in (table.alias_or_name, table.text("db"), table.text("catalog"))
    }
    for column in tree.find_all(exp.Column):
        parts = [part.name for part in column.parts]
        if len(parts) == 1 or parts[0].lower() not in tables:  # of a struct, with a field
            names.setdefault("", {})[parts[0]] = None
        for table, name in pairwise(parts):
            if name != "*":
                names.setdefault(table.lower(), {})[name] = None

    def wanted(alias: str) -> tuple[str, ...]:
        columns = {**names.get(alias.lower(), {}), **names.get("", {})}
        return tuple({name.lower(): name for name in columns}.values())

    return wanted


def _renamed(named: Named, plan: Relation, names: list[str], node: Any) -> tuple[Named, Relation]:
    if len(names) != len(plan.columns):
        raise NotUnderstood("the list of columns does not fit the table", node)
    outputs = tuple(
        (Column(name, old.type, old.nullable), Ref(old))
        for name, old in zip(names, plan.columns, strict=True)
    )
    project = Project(plan, outputs, getattr(plan, "position", None))
    return Named(named.alias, project.columns), project


def _reordered(left: Relation, right: Relation, node: Any) -> Relation:
    """The right side of UNION BY NAME in the order of the left one's columns."""
    by_name = {column.name.lower(): column for column in right.columns}
    if set(by_name) != set(lower(left)):
        raise NotUnderstood("UNION BY NAME of other columns is not understood", node)
    outputs = tuple(
        (Column(old.name, old.type, old.nullable), Ref(old))
        for old in (by_name[name] for name in lower(left))
    )
    return Project(right, outputs)


def _of_all(clause: Any) -> bool:
    """Whether a clause is `LIMIT ALL`."""
    return isinstance(clause.expression, exp.Var) and clause.expression.name.upper() == "ALL"


def _repartitions(hint: Any) -> bool:
    """Whether a hint moves rows to other partitions."""
    names = [part.name.upper() for part in hint.expressions] if hint is not None else []
    return any(name.startswith(("REPARTITION", "REBALANCE")) for name in names)
