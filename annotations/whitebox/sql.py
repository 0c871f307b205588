"""The SQL front end: the text of a query over named inputs becomes a plan, without a JVM.

    read(text, inputs={"clicks": Input(schema={"id": "INT"})}) -> Query

Anything that is not understood becomes `Opaque` over every input that the text names, with the
reason and the place; a query is never half understood. Names are resolved as Spark does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlglot import exp

from annotations.dataflow import Position
from annotations.whitebox.datatypes import BIGINT, INT, UNKNOWN, Family
from annotations.whitebox.functions import AGGREGATES, GENERATORS
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Deduplicate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Literal,
    Opaque,
    Output,
    Project,
    Ref,
    Relation,
    Role,
    Sample,
    SetKind,
    SetOperation,
    SortKey,
    Source,
    Union,
    Watermark,
    Window,
)
from annotations.whitebox.monotone import may_be_null, type_of
from annotations.whitebox.sql_dialect import Delay, NotParsed, Parsed, parse
from annotations.whitebox.sql_expressions import Expressions, NotUnderstood, aggregates, field_of
from annotations.whitebox.sql_scope import Named, Scope, join_using
from annotations.whitebox.words import text_of

Place = Callable[[int], Position | None]
"""Turns an offset in the query's text into a position in the file."""


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


def read(text: str, *, inputs: Mapping[str, Input], place: Place | None = None) -> Query:
    """The plan of a query over `inputs`; names of inputs are found in any case.

    >>> query = read("SELECT DISTINCT id FROM clicks", inputs={"clicks": Input()})
    >>> type(query.plan).__name__, [column.name for column in query.plan.columns]
    ('Deduplicate', ['id'])
    """
    where = place or _lines(text)
    try:
        parsed = parse(text)
        builder = _Builder(parsed, inputs, where)
        plan = builder.statement(parsed.tree)
        return Query(plan, builder.open)
    except NotParsed as failed:
        position = where(failed.start or 0)
        return _opaque(failed.reason, position, mentioned(text, inputs), inputs)
    except NotUnderstood as failed:
        start = start_of(failed.node) if failed.node is not None else None
        return _opaque(failed.reason, where(start or 0), mentioned(text, inputs), inputs)
    except RecursionError:
        reason = "the query is nested too deeply"
        return _opaque(reason, where(0), mentioned(text, inputs), inputs)


def mentioned(text: str, inputs: Iterable[str]) -> list[str]:
    """The inputs that the text may read; all of them where none is named."""
    words = {word.lower() for word in re.findall(r"\w+(?:-\w+)*", text)}
    words |= {word.strip("`").lower() for word in re.findall(r"`[^`]*`", text)}
    names = list(inputs)
    return [name for name in names if name.lower() in words] or names


def _opaque(
    reason: str, position: Position | None, names: Iterable[str], inputs: Mapping[str, Input]
) -> Query:
    sources = tuple(inputs[name].source(name, position) for name in names)
    return Query(Opaque(sources, (), reason, position=position), problem=reason)


def _lines(text: str) -> Place:
    def place(offset: int) -> Position:
        before = text[:offset]
        return Position("<sql>", before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    return place


def start_of(node: Any) -> int | None:
    """The offset of the first character that the tree knows of a node."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=None)


SELECT_PARTS: Final = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "with_"}
    | {"order", "limit", "offset", "sort", "cluster", "distribute", "hint", "from", "with"}
)
"""Clauses of a SELECT that are understood; any other makes the query unknown."""
SET_PARTS: Final = frozenset(
    {"this", "expression", "distinct", "by_name", "with_", "order", "limit", "offset", "with"}
    | {"side", "kind"}
)


@dataclass(slots=True)
class _Ctes:
    """Named queries, built anew wherever they are used."""

    known: dict[str, tuple[Any, _Ctes]] = field(default_factory=dict)


class _Builder:
    """One statement on its way into a plan."""

    def __init__(self, parsed: Parsed, inputs: Mapping[str, Input], place: Place) -> None:
        self.inputs = {name.lower(): (name, each) for name, each in inputs.items()}
        self.place = place
        self.delays = list(parsed.delays)
        self.open = False
        self.wanted = _wanted(parsed.tree)

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
        return self.query(tree, _Ctes(), None)

    # ---- queries

    def query(self, tree: Any, ctes: _Ctes, outer: Scope | None) -> Relation:
        """A query; `outer` has the names of the query around it."""
        ctes = self._named(tree, ctes)
        match tree:
            case exp.Subquery():
                self._only(tree, {"this", "alias", "with_", "order", "limit", "offset"})
                inner = self.query(tree.this, ctes, outer)
                return self._limited(
                    tree, inner, dict(zip(_lower(inner), inner.columns, strict=False))
                )
            case exp.SetOperation():
                return self._set_operation(tree, ctes, outer)
            case exp.Select():
                return _Select(self, tree, ctes, outer).build()
            case exp.Values():
                return self._values(tree)[1]
        raise NotUnderstood(f"{type(tree).__name__} is not understood", tree)

    def _only(self, tree: Any, parts: Iterable[str]) -> None:
        """Refuse a clause that is not one of `parts`."""
        for key, value in tree.args.items():
            if value and key not in parts:
                name = key.rstrip("_").upper()
                node = value if isinstance(value, exp.Expression) else tree
                raise NotUnderstood(f"the clause {name} is not understood", node)

    def _named(self, tree: Any, ctes: _Ctes) -> _Ctes:
        clause = tree.args.get("with_") or tree.args.get("with")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise NotUnderstood("a recursive query is not understood", clause)
        found = _Ctes(dict(ctes.known))
        for cte in clause.expressions:
            found.known[cte.alias.lower()] = (cte, _Ctes(dict(found.known)))
        return found

    def _set_operation(self, tree: Any, ctes: _Ctes, outer: Scope | None) -> Relation:
        self._only(tree, SET_PARTS)
        left = self.query(tree.left, ctes, outer)
        right = self.query(tree.right, ctes, outer)
        if tree.args.get("by_name"):
            right = _reordered(left, right, tree)
        if len(left.columns) != len(right.columns):
            raise NotUnderstood("both sides must have the same number of columns", tree)
        columns = tuple(
            [
                Column(a.name, a.type if a.type == b.type else UNKNOWN, a.nullable or b.nullable)
                for a, b in zip(left.columns, right.columns, strict=True)
            ]
        )
        position = self.at(tree.right)
        distinct = bool(tree.args.get("distinct"))
        found: Relation
        if isinstance(tree, exp.Union):
            found = Union((left, right), columns, position)
            if distinct:
                found = Deduplicate(found, columns, position=position)
        else:
            kind = SetKind.EXCEPT if isinstance(tree, exp.Except) else SetKind.INTERSECT
            found = SetOperation(left, right, kind, columns, not distinct, position)
        return self._limited(tree, found, dict(zip(_lower(found), columns, strict=True)))

    def _limited(self, tree: Any, found: Relation, names: Mapping[str, Column]) -> Relation:
        """ORDER BY matters only where it decides what LIMIT or OFFSET keeps."""
        limits = [tree.args.get(key) for key in ("limit", "offset")]
        limit = next((each for each in limits if each is not None), None)
        if limit is None:
            return found
        keys = self._order(tree.args.get("order"), found, names)
        return Limit(found, keys, self.at(limit))

    def _order(
        self, order: Any, found: Relation, names: Mapping[str, Column]
    ) -> tuple[SortKey, ...]:
        """The sort keys that are columns of the result; none where another comes first."""
        keys: list[SortKey] = []
        for each in order.expressions if order is not None else ():
            node = each.this if isinstance(each, exp.Ordered) else each
            if isinstance(node, exp.Column) and node.name.lower() in names:
                keys.append(SortKey(Ref(names[node.name.lower()]), bool(each.args.get("desc"))))
            elif isinstance(node, exp.Literal) and node.this.isdigit():
                at = int(node.this) - 1
                if at < len(found.columns):
                    keys.append(SortKey(Ref(found.columns[at]), bool(each.args.get("desc"))))
        if order is not None and not keys:
            keys.append(SortKey(Literal(None)))
        return tuple(keys)

    # ---- tables

    def table(
        self, node: Any, ctes: _Ctes, scope: Scope, outer: Scope | None
    ) -> tuple[Named, Relation]:
        """What stands in a FROM clause, under its name."""
        match node:
            case exp.Subquery():
                found = self.query(node, ctes, outer)
                named = Named(node.alias, found.columns)
            case exp.Values():
                named, found = self._values(node)
            case exp.Table():
                named, found = self._table(node, ctes)
            case exp.Lateral() | exp.Unnest():
                raise NotUnderstood("LATERAL is not understood here", node)
            case _:
                raise NotUnderstood(f"{type(node).__name__} is not understood here", node)
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            named, found = _renamed(named, found, [each.name for each in alias.columns], node)
        if node.args.get("sample"):
            found = Sample(found, self.at(node))
        return named, self._delayed(node, named, found)

    def _table(self, node: Any, ctes: _Ctes) -> tuple[Named, Relation]:
        self._only(node, {"this", "alias", "db", "catalog", "sample", "joins", "hints"})
        alias = node.alias_or_name
        if not isinstance(node.this, exp.Identifier):
            if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
                column = Column("id", BIGINT, False)
                return Named(alias, (column,)), Source("range", (column,), Role.TABLE)
            raise NotUnderstood("a table function is not understood", node)
        if not node.db and node.name.lower() in ctes.known:
            cte, inner = ctes.known[node.name.lower()]
            found = self.query(cte.this, inner, None)
            named = Named(alias, found.columns)
            columns = cte.args["alias"].columns
            if columns:
                named, found = _renamed(named, found, [each.name for each in columns], node)
            return named, found
        name, declared = self.inputs.get(node.name.lower(), (node.name, None))
        if declared is None or node.db:
            full = ".".join(filter(None, [node.catalog, node.db, node.name]))
            declared = Input(role=Role.MUTABLE)
            name = full
        wanted = () if declared.schema is not None else self.wanted(alias)
        source = declared.source(name, self.at(node), wanted)
        return Named(alias, source.columns, not source.complete), source

    def _values(self, node: Any) -> tuple[Named, Relation]:
        """Constants, as a table that never changes."""
        first = node.expressions[0]
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        columns = tuple([Column(f"col{at + 1}") for at in range(width)])
        return Named(node.alias, columns), Source("values", columns, Role.TABLE)

    def _delayed(self, node: Any, named: Named, found: Relation) -> Relation:
        """The WATERMARK clause that stands right after the table."""
        ends = [each.meta["end"] for each in node.walk() if "end" in each.meta]
        if not ends or not self.delays:
            return found
        following = [each for each in self.delays if each.start >= min(ends)]
        if not following:
            return found
        delay = min(following, key=lambda each: each.start)
        columns = named.find(delay.column)
        if not columns or self._nearer(node, delay):
            return found
        self.delays.remove(delay)
        return Watermark(found, columns[0], delay.delay_s, self.place(delay.start))

    def _nearer(self, node: Any, delay: Delay) -> bool:
        """True where another table stands between this one and the clause."""
        own = start_of(node) or 0
        root = node.root()
        starts = [start_of(each) for each in root.find_all(exp.Table)]
        return any(start is not None and own < start < delay.start for start in starts)


def _lower(relation: Relation) -> list[str]:
    return [column.name.lower() for column in relation.columns]


def _wanted(tree: Any) -> Callable[[str], tuple[str, ...]]:
    """Columns that a table without a schema must have: those that the text asks it for."""
    names: dict[str, dict[str, None]] = {}
    for column in tree.find_all(exp.Column):
        if not isinstance(column.this, exp.Star):
            names.setdefault(column.table.lower(), {})[column.name] = None

    def wanted(alias: str) -> tuple[str, ...]:
        found = {**names.get(alias.lower(), {}), **names.get("", {})}
        return tuple({name.lower(): name for name in found}.values())

    return wanted


def _renamed(named: Named, found: Relation, names: list[str], node: Any) -> tuple[Named, Relation]:
    if len(names) != len(found.columns):
        raise NotUnderstood("the list of columns does not fit the table", node)
    outputs = tuple(
        (Column(name, old.type, old.nullable), Ref(old))
        for name, old in zip(names, found.columns, strict=True)
    )
    project = Project(found, outputs, getattr(found, "position", None))
    return Named(named.alias, project.columns), project


def _reordered(left: Relation, right: Relation, node: Any) -> Relation:
    """The right side of UNION BY NAME in the order of the left one's columns."""
    by_name = {column.name.lower(): column for column in right.columns}
    if set(by_name) != set(_lower(left)):
        raise NotUnderstood("UNION BY NAME of other columns is not understood", node)
    outputs = tuple(
        (Column(old.name, old.type, old.nullable), Ref(old))
        for old in (by_name[name] for name in _lower(left))
    )
    return Project(right, outputs)


class _Select:
    """One SELECT on its way into a plan."""

    def __init__(self, builder: _Builder, tree: Any, ctes: _Ctes, outer: Scope | None) -> None:
        self.builder, self.tree, self.ctes = builder, tree, ctes
        self.scope = Scope(outer=outer)
        self.items: list[tuple[str, Any]] = []
        """What is selected: names and trees, stars aside."""
        self.express = Expressions(self._resolve, builder.own)
        self.aliases: dict[str, Expression] = {}
        self.keys: tuple[Expression, ...] = ()
        """What is grouped by."""
        self.having = False
        """True while HAVING is read."""

    def _resolve(self, node: Any) -> Expression:
        """A column of the tables, else what an item further left is called; in HAVING first."""
        named = self.aliases.get(node.name.lower()) if not node.table else None
        if self.having and named is not None and not _in_aggregate(node):
            return named
        try:
            return self.scope.resolve(node, self.builder.at(node))
        except NotUnderstood:
            named = named or self._time_window(node)
            if named is None:
                raise
            return named

    def _time_window(self, node: Any) -> Expression | None:
        """What `window`, `window.start` and the like mean where rows are grouped by a window."""
        name, *parts = [each.name for each in (node.args.get("table"), node.this) if each]
        for key in self.keys:
            if isinstance(key, Call) and key.function == name.lower() and name.lower() in WINDOWS:
                found: Expression = key
                for part in parts:
                    found = field_of(found, part, self.builder.at(node))
                return found
        return None

    def build(self) -> Relation:
        """The plan of the SELECT."""
        tree, builder = self.tree, self.builder
        builder._only(tree, SELECT_PARTS)
        found = self.body()
        found, items = self._generators(found)
        group, having = tree.args.get("group"), tree.args.get("having")
        if group or having or any(_has_aggregate(each) for _, each in items):
            found = self._grouped(found, items, group, having)
        else:
            found = self._projected(found, items)
        if tree.args.get("distinct"):
            if tree.args["distinct"].args.get("on"):
                raise NotUnderstood("DISTINCT ON is not understood", tree)
            found = Deduplicate(found, found.columns, position=builder.at(tree))
        names = dict(zip(_lower(found), found.columns, strict=True))
        return builder._limited(tree, found, names)

    # ---- FROM, joins, WHERE

    def body(self) -> Relation:
        """FROM, joins, LATERAL VIEW and WHERE."""
        tree = self.tree
        clause = tree.args.get("from_") or tree.args.get("from")
        if clause is None:
            found: Relation = Source("nothing", (), Role.TABLE)
        else:
            found = self._first(clause.this)
            for join in clause.this.args.get("joins") or ():
                found = self._join(found, join)
        for join in tree.args.get("joins") or ():
            found = self._join(found, join)
        for lateral in tree.args.get("laterals") or ():
            found = self._lateral(found, lateral)
        where = tree.args.get("where")
        return found if where is None else self._where(found, where.this)

    def _first(self, node: Any) -> Relation:
        named, found = self.builder.table(node, self.ctes, self.scope, self.scope.outer)
        self.scope.tables.append(named)
        return found

    def _join(self, left: Relation, node: Any) -> Relation:
        if isinstance(node.this, exp.Lateral):
            return self._lateral(left, node.this)
        self.builder._only(node, {"this", "on", "using", "kind", "side", "method", "global"})
        named, right = self.builder.table(node.this, self.ctes, self.scope, self.scope.outer)
        kind, swapped = _join_kind(node)
        only_left = kind in (JoinKind.SEMI, JoinKind.ANTI)
        condition: Expression | None = None
        names = [each.name for each in node.args.get("using") or ()]
        if (node.args.get("method") or "").upper() == "NATURAL":
            known = {name.lower() for name, _ in self.scope.star()}
            names = [column.name for column in named.columns if column.name.lower() in known]
            if named.open or self.scope.open:
                raise NotUnderstood("NATURAL JOIN needs the schemas of both sides", node)
        if names:
            target = (
                Scope([*self.scope.tables], dict(self.scope.merged)) if only_left else self.scope
            )
            condition = join_using(
                target, named, names, full=kind is JoinKind.FULL, swapped=swapped
            )
        self.scope.tables.append(named)
        if node.args.get("on") is not None:
            _refuse_subqueries(node.args["on"])
            condition = self.express(node.args["on"])
        if only_left:
            self.scope.tables.remove(named)
        one, other = (right, left) if swapped else (left, right)
        return Join(one, other, kind, condition, position=self.builder.at(node))

    def _lateral(self, found: Relation, node: Any) -> Relation:
        """LATERAL VIEW: for each row those that a generator makes of it."""
        call = node.this
        if not isinstance(call, exp.Anonymous | exp.Explode) or not node.args.get("view"):
            raise NotUnderstood("LATERAL is not understood", node)
        alias = node.args.get("alias")
        names = [each.name for each in alias.columns] if alias is not None else []
        generator = self.express(call)
        if not isinstance(generator, Call) or generator.function not in GENERATORS:
            raise NotUnderstood(f"`{text_of(generator)}` is not a known generator", node)
        columns = _generated(generator, names)
        name = alias.name if alias is not None else ""
        self.scope.tables.append(Named(name, columns))
        return Generate(found, generator, columns, self.builder.at(node))

    def _where(self, found: Relation, condition: Any) -> Relation:
        for each in _conjuncts(condition):
            found = self._condition(found, each)
        return found

    def _condition(self, found: Relation, node: Any) -> Relation:
        """A condition of WHERE: a subquery is a join, everything else a filter."""
        inner, negated = node, False
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            return self._subquery(found, inner.args["query"], inner.this, negated, node)
        if isinstance(inner, exp.Exists):
            return self._subquery(found, inner.this, None, negated, node)
        _refuse_subqueries(node)
        return Filter(found, self.express(node), self.builder.at(node))

    def _subquery(
        self, found: Relation, tree: Any, value: Any, negated: bool, node: Any
    ) -> Relation:
        """IN and EXISTS as joins that keep the columns of the left side."""
        while isinstance(tree, exp.Subquery):
            tree = tree.this
        conditions: list[Expression] = []
        if isinstance(tree, exp.Select) and not tree.args.get("group"):
            inner = _Select(self.builder, tree, self.builder._named(tree, self.ctes), self.scope)
            right, conditions, members = inner.correlated()
        else:
            right = self.builder.query(tree, self.ctes, None)
            members = tuple(map(Ref, right.columns))
        if value is not None:
            values = value.expressions if isinstance(value, exp.Tuple) else [value]
            if len(values) != len(members):
                raise NotUnderstood("IN compares another number of columns", node)
            pairs = zip(map(self.express, values), members, strict=True)
            conditions = [*(Call("=", pair) for pair in pairs), *conditions]
        condition: Expression | None = None
        for each in conditions:
            condition = each if condition is None else Call("and", (condition, each))
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        null_aware = negated and value is not None
        return Join(found, right, kind, condition, null_aware, self.builder.at(node))

    def correlated(self) -> tuple[Relation, list[Expression], tuple[Ref, ...]]:
        """A subquery: its plan, the conditions that tie it to the outer query, what it selects."""
        tree, conditions = self.tree, list[Expression]()
        where = tree.args.get("where")
        plain = not (tree.args.get("having") or any(map(_has_aggregate, tree.expressions)))
        if not plain or where is None or not self._reaches_out(where):
            scope, self.scope.outer = self.scope.outer, None
            found = self.build()
            self.scope.outer = scope
            return found, [], tuple(map(Ref, found.columns))
        self.builder._only(tree, SELECT_PARTS - {"order", "limit", "offset"})
        tree = tree.copy()
        tree.set("where", None)
        self.tree = tree
        found = self.body()
        for each in _conjuncts(where.this):
            self.scope.reached = False
            if each.find(exp.Query) is not None:
                found = self._condition(found, each)
                if self.scope.reached:
                    raise NotUnderstood("a subquery in a correlated subquery", each)
                continue
            condition = self.express(each)
            if self.scope.reached:
                conditions.append(condition)
            else:
                found = Filter(found, condition, self.builder.at(each))
        self.scope.reached = False
        members = self._members()
        if self.scope.reached:
            raise NotUnderstood("a subquery selects a column of the outer query", tree)
        # What is selected joins the columns that the conditions need.
        outputs = [(column, Ref(column)) for column in found.columns]
        added: list[Output] = [
            (Column(f"value{at}", type_of(each), may_be_null(each)), each)
            for at, each in enumerate(members)
            if not isinstance(each, Ref)
        ]
        if added:
            renewed = [(Column(c.name, c.type, c.nullable), ref) for c, ref in outputs]
            exchange = {ref.column: column for column, ref in renewed}
            found = Project(found, (*renewed, *added))
            conditions = [_exchanged(each, exchange) for each in conditions]
            fresh = iter(column for column, _ in added)
            members = tuple(
                Ref(exchange[each.column]) if isinstance(each, Ref) else Ref(next(fresh))
                for each in members
            )
        return found, conditions, tuple(each for each in members if isinstance(each, Ref))

    def _members(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        for each in self.tree.expressions:
            if isinstance(each, exp.Star):
                found += [inner for _, inner in self.scope.star()]
            else:
                found.append(self.express(each))
        return tuple(found)

    def _reaches_out(self, where: Any) -> bool:
        """True where a condition names a column that only the outer query has."""
        trial = _Select(self.builder, self.tree, self.ctes, self.scope.outer)
        delays, opened = list(self.builder.delays), self.builder.open
        copy = self.tree.copy()
        copy.set("where", None)
        trial.tree = copy
        trial.body()
        self.builder.delays, self.builder.open = delays, opened
        for column in where.find_all(exp.Column):
            if column.find_ancestor(exp.Query) is not self.tree:
                continue
            trial.scope.reached = False
            trial._resolve(column)
            if trial.scope.reached:
                return True
        return False

    # ---- what is selected

    def _generators(self, found: Relation) -> tuple[Relation, list[tuple[str, Any]]]:
        """The items by name; EXPLODE among them makes rows before anything else is computed."""
        items: list[tuple[str, Any]] = []
        for node in self.tree.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                items += self._star(node)
                continue
            bare = node.unalias() if isinstance(node, exp.Alias) else node
            names = [node.alias] if isinstance(node, exp.Alias) else []
            if isinstance(node, exp.Aliases):
                bare, names = node.this, [each.name for each in node.expressions]
            if isinstance(bare, exp.Anonymous) and bare.name.lower() in GENERATORS:
                generator = self.express(bare)
                assert isinstance(generator, Call)
                columns = _generated(generator, names)
                found = Generate(found, generator, columns, self.builder.at(bare))
                items += [(column.name, Ref(column)) for column in columns]
            else:
                items.append((_name(node), bare))
        return found, items

    def _star(self, node: Any) -> Iterator[tuple[str, Any]]:
        star = node if isinstance(node, exp.Star) else node.this
        alias = None if isinstance(node, exp.Star) else node.table
        self.builder._only(star, {"except_", "except"})
        excluded = star.args.get("except_") or star.args.get("except") or ()
        without = {each.name.lower() for each in excluded}
        tables = [t for t in self.scope.tables if alias is None or t.alias.lower() == alias.lower()]
        self.builder.open |= any(table.open for table in tables)
        if not tables and alias is not None:
            yield from self._fields(alias, node)
            return
        for name, each in self.scope.star(alias):
            if name.lower() not in without:
                yield name, each

    def _fields(self, name: str, node: Any) -> Iterator[tuple[str, Any]]:
        """`column.*`: the fields of a struct."""
        column = exp.column(name)
        inner = self._resolve(column)
        fields = type_of(inner).fields
        if not fields:
            raise NotUnderstood(f"the fields of `{name}` are not known", node)
        for field_name, *_ in fields:
            yield field_name, field_of(inner, field_name, self.builder.at(node))

    def _value(self, item: Any) -> Expression:
        """An item; those of stars and generators are expressions already."""
        return item if not isinstance(item, exp.Expression) else self.express(item)

    def _projected(self, found: Relation, items: list[tuple[str, Any]]) -> Relation:
        outputs: list[Output] = []
        for name, item in items:
            windows = list(item.find_all(exp.Window)) if isinstance(item, exp.Expression) else []
            if windows:
                found, value = self._windowed(found, item, windows)
            else:
                value = self._value(item)
            outputs.append((_column(name, value, self._item_place(item)), value))
            self.aliases.setdefault(name.lower(), value)
        return Project(found, tuple(outputs), self.builder.at(self.tree))

    def _item_place(self, item: Any) -> Position | None:
        return self.builder.at(item) if isinstance(item, exp.Expression) else None

    def _windowed(
        self, found: Relation, item: Any, windows: list[Any]
    ) -> tuple[Relation, Expression]:
        """An item with window functions: each becomes a column below, the rest is computed."""
        columns: list[Column] = []
        for node in windows:
            if node.find_ancestor(exp.Window) is not None:
                raise NotUnderstood("a window function in a window function", node)
            self.builder._only(node, {"this", "partition_by", "order", "spec", "over"})
            call = self.express(node.this)
            position = self.builder.at(node.this)
            partition = tuple(self.express(each) for each in node.args.get("partition_by") or ())
            order = node.args.get("order")
            keys = self.express.order(order) if order is not None else ()
            spec = node.args.get("spec")
            rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
            rows = rows and bool(keys)
            column = Column(text_of(call), type_of(call), True)
            columns.append(column)
            found = Window(found, ((column, call),), partition, keys, rows, position)
        copied = _replaced(item, windows)
        inner = Expressions(
            lambda node: (
                Ref(columns[int(node.name[len(STANDS) :])], self.builder.at(item))
                if node.name.startswith(STANDS)
                else self._resolve(node)
            ),
            self.builder.own,
        )
        return found, inner(copied)

    def _grouped(
        self, found: Relation, items: list[tuple[str, Any]], group: Any, having: Any
    ) -> Relation:
        """GROUP BY, aggregates and HAVING."""
        for _, item in items:
            if isinstance(item, exp.Expression) and item.find(exp.Window) is not None:
                raise NotUnderstood("a window function over groups", item)
        keys, sets = self._keys(items, group)
        self.keys = keys
        outputs: list[Output] = []
        for name, item in items:
            value = self._value(item)
            outputs.append((_column(name, value, self._item_place(item)), value))
            self.aliases.setdefault(name.lower(), value)
        visible = [column for column, _ in outputs]
        conditions: list[Column] = []
        self.having = True
        for each in _conjuncts(having.this) if having is not None else ():
            _refuse_subqueries(each)
            value = self.express(each)
            column = Column(text_of(value), type_of(value), True, self.builder.at(each))
            conditions.append(column)
            outputs.append((column, value))
        position = self.builder.at(group) if group is not None else self.builder.at(self.tree)
        found = Aggregate(found, keys, tuple(outputs), sets, position)
        if not conditions:
            return found
        for column in conditions:
            found = Filter(found, Ref(column, column.position), column.position)
        renewed = [(Column(c.name, c.type, c.nullable, c.position), Ref(c)) for c in visible]
        return Project(found, tuple(renewed), position)

    def _keys(
        self, items: list[tuple[str, Any]], group: Any
    ) -> tuple[tuple[Expression, ...], tuple[frozenset[int], ...] | None]:
        """What is grouped by, and the grouping sets if there are any."""
        if group is None:
            return (), None
        self.builder._only(
            group, {"expressions", "all", "rollup", "cube", "grouping_sets", "totals"}
        )
        if group.args.get("totals"):
            raise NotUnderstood("WITH TOTALS is not understood", group)
        keys: list[Expression] = []
        optional: set[int] = set()
        if group.args.get("all"):
            keys = [v for v in (self._value(item) for _, item in items) if not aggregates(v)]
            return tuple(keys), None
        for node in group.expressions:
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                self._add_sets(node, items, keys, optional)
            else:
                keys.append(self._key(node, items))
        for name in ("rollup", "cube", "grouping_sets"):
            for node in group.args.get(name) or ():
                if node.expressions:
                    self._add_sets(node, items, keys, optional)
                else:  # GROUP BY a, b WITH ROLLUP
                    optional |= set(range(len(keys)))
        if not optional:
            return tuple(keys), None
        # Which sets there are does not matter, only which keys are in all of them.
        whole = frozenset(range(len(keys)))
        return tuple(keys), (whole, whole - optional)

    def _add_sets(
        self, node: Any, items: list[tuple[str, Any]], keys: list[Expression], optional: set[int]
    ) -> None:
        for each in node.expressions:
            inner = each.this if isinstance(each, exp.Paren) else each
            parts = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
            for part in parts:
                key = self._key(part, items)
                if key not in keys:
                    keys.append(key)
                optional.add(keys.index(key))

    def _key(self, node: Any, items: list[tuple[str, Any]]) -> Expression:
        """A grouping key: an expression, the place of an item, or its name."""
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            at = int(node.this) - 1
            if at >= len(items):
                raise NotUnderstood(f"there is no item {node.this} to group by", node)
            return self._value(items[at][1])
        _refuse_subqueries(node)
        try:
            return self.express(node)
        except NotUnderstood:
            named = [item for name, item in items if name.lower() == node.name.lower()]
            if not isinstance(node, exp.Column) or node.table or not named:
                raise
            return self._value(named[0])


WINDOWS: Final = ("window", "session_window")
"""Functions that group by time, whose result can be named like them."""
STANDS: Final = "__window_"
"""What a window function's column is called while the expression around it is read."""


def _replaced(item: Any, windows: list[Any]) -> Any:
    """A copy of the item where names stand for its window functions."""
    if item is windows[0]:
        return exp.column(f"{STANDS}0")
    for at, node in enumerate(windows):
        node.meta["stands"] = at
    found = item.copy()
    for node in list(found.find_all(exp.Window)):
        node.replace(exp.column(f"{STANDS}{node.meta['stands']}"))
    return found


def _join_kind(node: Any) -> tuple[JoinKind, bool]:
    """The kind of a join, and whether its sides are swapped (a right join)."""
    side = (node.args.get("side") or "").upper()
    kind = (node.args.get("kind") or "").upper()
    method = (node.args.get("method") or "").upper()
    if method not in ("", "NATURAL"):
        raise NotUnderstood(f"{method} JOIN is not understood", node)
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return (JoinKind.SEMI if kind == "SEMI" else JoinKind.ANTI), False
    if kind in ("", "OUTER", "INNER", "CROSS"):
        sides = {
            "": (JoinKind.INNER, False),
            "LEFT": (JoinKind.LEFT, False),
            "RIGHT": (JoinKind.LEFT, True),
            "FULL": (JoinKind.FULL, False),
        }
        if side in sides:
            return sides[side]
    raise NotUnderstood(f"{side} {kind} JOIN is not understood".replace("  ", " "), node)


def _conjuncts(node: Any) -> Iterator[Any]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _refuse_subqueries(node: Any) -> None:
    found = node.find(exp.Query)
    if found is not None:
        raise NotUnderstood("a subquery is used as a value", found)


def _has_aggregate(node: Any) -> bool:
    """True where an aggregate function takes part that is not one over a window."""
    if not isinstance(node, exp.Expression):
        return False
    return any(
        each.name.lower() in AGGREGATES
        and not isinstance(each.find_ancestor(exp.Window, exp.Query), exp.Window)
        for each in node.find_all(exp.Anonymous)
    )


def _in_aggregate(node: Any) -> bool:
    function = node.find_ancestor(exp.Anonymous)
    return function is not None and function.name.lower() in AGGREGATES


def _generated(generator: Call, names: list[str]) -> tuple[Column, ...]:
    """The columns that a generator makes, under the given names or Spark's own."""
    kind = type_of(generator.arguments[0]) if generator.arguments else UNKNOWN
    by_place = generator.function.startswith("pos")
    types = [kind.element or UNKNOWN]
    own = ["col"]
    if generator.function.startswith("inline"):
        fields = kind.element.fields if kind.element is not None else ()
        own, types = [name for name, *_ in fields], [each for _, each, _ in fields]
    elif kind.family is Family.MAP:
        own, types = ["key", "value"], [kind.key or UNKNOWN, kind.element or UNKNOWN]
    if by_place:
        own, types = ["pos", *own], [INT, *types]
    if names and len(names) == len(types):
        own = names
    elif names:
        own, types = names, [UNKNOWN] * len(names)
    return tuple([Column(name, each) for name, each in zip(own, types, strict=True)])


def _column(name: str, value: Expression, position: Position | None) -> Column:
    return Column(name, type_of(value), may_be_null(value), position)


def _name(node: Any) -> str:
    """What Spark calls an item: its alias, its column or field, else its text."""
    if isinstance(node, exp.Alias | exp.Column | exp.Dot):
        return str(node.output_name)
    return " ".join(str(node.sql(dialect="spark")).split()).lower()


def _exchanged(expression: Expression, exchange: Mapping[Column, Column]) -> Expression:
    """The expression over renewed columns."""
    match expression:
        case Ref(column=column, position=position):
            return Ref(exchange.get(column, column), position)
        case Call(arguments=arguments):
            inner = tuple([_exchanged(each, exchange) for each in arguments])
            return replace(expression, arguments=inner)
    return expression
