"""One SELECT: joins and conditions, generators, window functions, groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from annotations.dataflow import Position
from annotations.whitebox.datatypes import BOOLEAN, INT
from annotations.whitebox.functions import AGGREGATES, GENERATORS
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
    Literal,
    Output,
    Project,
    Ref,
    Relation,
    Reuse,
    Role,
    SortKey,
    Source,
    Window,
    padded,
    references,
    single,
)
from annotations.whitebox.monotone import constant_of, field_of, may_be_null, type_of
from annotations.whitebox.sql_expressions import Expressions, NotUnderstood, aggregates
from annotations.whitebox.sql_items import (
    STANDS,
    column_of,
    conjuncts,
    exchanged,
    existences,
    generated,
    has_aggregate,
    in_aggregate,
    join_kind,
    name_of,
    refuse_subqueries,
    replaced,
    scalars,
)
from annotations.whitebox.sql_scope import Named, Scope, join_using
from annotations.whitebox.sql_tables import Builder, Ctes, lower
from annotations.whitebox.words import text_of


def _all(conditions: list[Expression]) -> Expression | None:
    """All of the conditions as one."""
    conjunction: Expression | None = None
    for condition in conditions:
        conjunction = condition if conjunction is None else Call("and", (conjunction, condition))
    return conjunction


def _of_no_rows(column: Column) -> Expression:
    """A value of rows that were put together by a join: of no rows it need not be NULL."""
    return Call("coalesce", (Ref(column), Literal(None, column.type)), column.type)


def _unordered(tree: Any) -> Any:
    """A query of which EXISTS asks for a row, without an order of its rows and `LIMIT 1`."""
    limit = tree.args.get("limit")
    some = limit is None or (limit.expression.is_int and int(limit.expression.name) > 0)
    tree = tree.copy()
    for clause in ("order", "limit") if some else ():
        tree.set(clause, None)
    return tree


def _named(node: Any, names: list[str], count: int) -> list[str]:
    """The names of the columns of a LATERAL: those that its alias lists, else its query's."""
    alias = node.args.get("alias")
    if alias is not None and alias.columns:
        names = [identifier.name for identifier in alias.columns]
    if len(names) != count:
        raise NotUnderstood("the list of columns does not fit the table", node)
    return names


def _tie(condition: Expression, inner: Relation) -> tuple[Expression, Expression, str] | None:
    """The values that a condition equates, of a subquery and of the query around it, and how."""
    match condition:
        case Call(function="=" | "==" | "<=>" as name, arguments=arguments, user=None):
            own = set(inner.columns)
            for one, other in (arguments, arguments[::-1]):
                if references(one) <= own and references(one) and not references(other) & own:
                    return one, other, name
    return None


def _unbounded(spec: Any) -> bool:
    """True for a frame that has all rows of the partition."""
    return all(spec.args.get(end) == "UNBOUNDED" for end in ("start", "end"))


SELECT_PARTS: Final = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "with_"}
    | {"order", "limit", "offset", "sort", "cluster", "distribute", "hint", "from", "with"}
    | {"windows", "qualify"}
)
"""Clauses of a SELECT that are understood; any other makes the query unknown."""
CORRELATED_PARTS: Final = SELECT_PARTS - {
    *("order", "limit", "offset", "qualify", "windows", "group", "having")
}
"""Those of a subquery that names the row around it, which is read as a join with its tables."""
WINDOWS: Final = ("window", "session_window")
"""Functions that group by time, whose result can be named like them."""


def select(builder: Builder, tree: Any, ctes: Ctes, outer: Scope | None) -> Relation:
    """The plan of one SELECT; `outer` has the names of the query around it."""
    return Select(builder, tree, ctes, outer).build()


def _stacked(plan: Relation, over: list[Window]) -> Relation:
    """The plan with window functions over it."""
    for window in over:
        plan = replace(window, input=plan)
    return plan


class _OverGroups:
    """Expressions over groups, which have a column for what is computed of each group."""

    def __init__(self, groups: list[Output], windows: list[Window], beside: list[Relation]) -> None:
        self.groups = groups
        computed = {column for window in windows for column, _ in window.outputs}
        self._columns = computed.union(*(row.columns for row in beside))

    def __call__(self, value: Expression) -> Expression:
        """The expression over the groups that has the value of one over their rows."""
        if not references(value) & self._columns:
            if constant_of(value) is not None:
                return value
            column = column_of(text_of(value), value, None)
            self.groups.append((column, value))
            return Ref(column)
        match value:
            case Ref():
                return value
            case Call(function=function) if function not in AGGREGATES:
                return replace(value, arguments=tuple(map(self, value.arguments)))
        raise NotUnderstood("this expression over groups is not understood", None)

    def output(self, column: Column, value: Expression) -> Output:
        """An item of the SELECT, over the groups."""
        if (column, value) not in self.groups:
            return column, self(value)
        return Column(column.name, column.type, column.nullable, column.position), Ref(column)

    def window(self, window: Window) -> Window:
        """A window function over the groups."""
        [(column, call)] = window.outputs
        assert isinstance(call, Call)
        call = replace(
            call,
            arguments=tuple(map(self, call.arguments)),
            condition=None if call.condition is None else self(call.condition),
            order=self._keys(call.order),
        )
        partition = tuple(map(self, window.partition))
        order = self._keys(window.order)
        return replace(window, outputs=((column, call),), partition=partition, order=order)

    def _keys(self, keys: tuple[SortKey, ...]) -> tuple[SortKey, ...]:
        return tuple(replace(key, expression=self(key.expression)) for key in keys)


class Select:
    """One SELECT on its way into a plan."""

    def __init__(self, builder: Builder, tree: Any, ctes: Ctes, outer: Scope | None) -> None:
        self.builder, self.tree, self.ctes = builder, tree, ctes
        self.scope = Scope(outer=outer)
        self.items: list[tuple[str, Any]] = []
        """What is selected: names and trees, stars aside."""
        self.express = Expressions(self._resolve, builder.own)
        self.aliases: dict[str, Expression] = {}
        self.keys: tuple[Expression, ...] = ()
        """What is grouped by."""
        self.windows = {window.name.lower(): window for window in tree.args.get("windows") or ()}
        self.having = False
        """True while HAVING is read."""

    def _resolve(self, node: Any) -> Expression:
        """A column of the tables, else what an item further left is called; in HAVING first."""
        named = self.aliases.get(node.name.lower()) if not node.table else None
        if self.having and named is not None and not in_aggregate(node):
            return named
        try:
            return self.scope.resolve(node, self.builder.at(node))
        except NotUnderstood:
            named = named or self._time_window(node)
            if named is None:
                raise
            return named

    def _time_window(self, node: Any) -> Expression | None:
        """The expression of `window`, `window.start` and the like in groups by a window."""
        name, *parts = [
            identifier.name for identifier in (node.args.get("table"), node.this) if identifier
        ]
        for key in self.keys:
            if isinstance(key, Call) and key.function == name.lower() and name.lower() in WINDOWS:
                value: Expression = key
                for part in parts:
                    value = field_of(value, part, self.builder.at(node))
                return value
        return None

    def build(self) -> Relation:
        """The plan of the SELECT."""
        tree, builder = self.tree, self.builder
        builder.only(tree, SELECT_PARTS)
        plan = self.body()
        group, having = tree.args.get("group"), tree.args.get("having")
        if group or having or any(map(has_aggregate, tree.expressions)):
            items, generators = self._items()
            for at, (bare, _) in generators.items():
                everything = group is not None and group.args.get("all")
                if len(generators) > 1 or len(bare.expressions) != 1 or everything:
                    raise NotUnderstood("this generator over groups", bare)
                items[at] = items[at][0], bare.expressions[0]
            plan = self._grouped(plan, items, group, having)
            plan = self._generated_of_groups(plan, generators)
        else:
            plan, items = self._generators(plan)
            plan = self._projected(plan, items)
        if tree.args.get("distinct"):
            if tree.args["distinct"].args.get("on"):
                raise NotUnderstood("DISTINCT ON is not understood", tree)
            plan = Deduplicate(plan, plan.columns, grouped=True, position=builder.at(tree))
        names = dict(zip(lower(plan), plan.columns, strict=True))
        return builder.limited(tree, plan, names, self.express)

    # ---- FROM, joins, WHERE

    def body(self) -> Relation:
        """FROM, joins, LATERAL VIEW and WHERE."""
        tree = self.tree
        clause = tree.args.get("from_") or tree.args.get("from")
        if clause is None:
            plan: Relation = Source("nothing", (), Role.TABLE)
        else:
            plan = self._first(clause.this)
            for join in clause.this.args.get("joins") or ():
                plan = self._join(plan, join)
        for join in tree.args.get("joins") or ():
            plan = self._join(plan, join)
        for lateral in tree.args.get("laterals") or ():
            plan = self._lateral(plan, lateral)
        where = tree.args.get("where")
        return plan if where is None else self._where(plan, where.this)

    def _first(self, node: Any) -> Relation:
        named, plan = self.builder.table(node, self.ctes, self.scope, self.scope.outer)
        self.scope.tables.append(named)
        return plan

    def _join(self, left: Relation, node: Any) -> Relation:
        if isinstance(node.this, exp.Lateral):
            return self._joined_lateral(left, node)
        self.builder.only(node, {"this", "on", "using", "kind", "side", "method", "global"})
        kind, swapped = join_kind(node)
        if node.this.args.get("joins"):
            return self._joined_first(left, node, kind, swapped)
        named, right = self.builder.table(node.this, self.ctes, self.scope, self.scope.outer)
        only_left = kind in (JoinKind.SEMI, JoinKind.ANTI)
        right_scope = Scope([named])
        left, right = self._padded(kind, swapped, left, (right, right_scope))
        (named,) = right_scope.tables
        condition: Expression | None = None
        names = [identifier.name for identifier in node.args.get("using") or ()]
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
            refuse_subqueries(node.args["on"])
            condition = self.express(node.args["on"])
        if only_left:
            self.scope.tables.remove(named)
        one, other = (right, left) if swapped else (left, right)
        return Join(one, other, kind, condition, position=self.builder.at(node))

    def _joined_first(self, left: Relation, node: Any, kind: JoinKind, swapped: bool) -> Relation:
        """A join with tables that are joined before, by conditions that see these alone."""
        around, self.scope = self.scope, Scope()
        right = self._first(node.this)
        for join in node.this.args["joins"]:
            right = self._join(right, join)
        inner, self.scope = self.scope, around
        if inner.merged or node.args.get("on") is None:
            raise NotUnderstood("USING beside a join inside of a join", node)
        left, right = self._padded(kind, swapped, left, (right, inner))
        joined = [*self.scope.tables]
        self.scope.tables += inner.tables
        refuse_subqueries(node.args["on"])
        condition = self.express(node.args["on"])
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            self.scope.tables = joined
        one, other = (right, left) if swapped else (left, right)
        return Join(one, other, kind, condition, position=self.builder.at(node))

    def _padded(
        self, kind: JoinKind, swapped: bool, left: Relation, right: tuple[Relation, Scope]
    ) -> tuple[Relation, Relation]:
        """Both sides of a join; what may be missing has columns that may be NULL."""
        sides = [(left, self.scope), right]
        for at in range(2):
            if kind is JoinKind.FULL or (kind is JoinKind.LEFT and at != swapped):
                side, scope = sides[at]
                side, exchange = padded(side)
                scope.exchange(exchange)
                sides[at] = side, scope
        return sides[0][0], sides[1][0]

    def _joined_lateral(self, left: Relation, node: Any) -> Relation:
        """LATERAL in FROM: a generator, or a query about each row."""
        self.builder.only(node, {"this", "on", "kind", "side"})
        kind, swapped = join_kind(node)
        on = node.args.get("on")
        always = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
        if kind not in (JoinKind.INNER, JoinKind.LEFT) or swapped or not always:
            raise NotUnderstood("LATERAL is not understood in this join", node)
        if isinstance(node.this.this, exp.Subquery):
            return self._queried(left, node.this, kind)
        return self._lateral(left, node.this)

    def _queried(self, left: Relation, node: Any, kind: JoinKind) -> Relation:
        """LATERAL with a query: a join by the conditions that tie it to the row."""
        self.builder.only(node.this, {"this", "alias"})
        tree = node.this.this
        if not isinstance(tree, exp.Select):
            raise NotUnderstood("LATERAL is not understood", node)
        if tree.args.get("from_") is None:
            return self._computed(left, node, kind)
        inner = Select(self.builder, tree, self.builder.named(tree, self.ctes), self.scope)
        conditions: list[Expression] = []
        where = tree.args.get("where")
        if where is not None and inner._reaches_out(where):
            limited = tree.args.get("limit") is not None
            tied = inner.first_of_each if limited else inner.grouped_by_ties
            right, conditions, members = tied(left)
            names = [name_of(item) for item in tree.expressions]
            if any(map(has_aggregate, tree.expressions)):
                kind = JoinKind.LEFT  # no rows are put together to one row
        else:
            right, _, members = inner.correlated()
            names = [column.name for column in right.columns]
        names = _named(node, names, len(members))
        # Each name is a column of its own, so that it hides none of the conditions'.
        retained = [(Column(c.name, c.type, c.nullable), Ref(c)) for c in right.columns]
        exchange = {ref.column: column for column, ref in retained}
        columns = tuple(
            Column(name, member.column.type, kind is JoinKind.LEFT or member.column.nullable)
            for name, member in zip(names, members, strict=True)
        )
        place = self.builder.at(node)
        project = Project(right, (*retained, *zip(columns, members, strict=True)), place)
        condition = _all([exchanged(term, exchange) for term in conditions])
        plan: Relation = Join(left, project, kind, condition, position=place)
        if kind is JoinKind.LEFT and conditions:
            shown = tuple(Column(column.name, column.type) for column in columns)
            values = zip(shown, map(_of_no_rows, columns), strict=True)
            rest = tuple((column, Ref(column)) for column in left.columns)
            plan, columns = Project(plan, (*rest, *values), place), shown
        self.scope.tables.append(Named(node.alias, columns))
        return plan

    def _computed(self, left: Relation, node: Any, kind: JoinKind) -> Relation:
        """LATERAL with a query that reads nothing: values of each row, and a condition of it."""
        tree, place = node.this.this, self.builder.at(node)
        self.builder.only(tree, {"expressions", "where"})
        for item in tree.expressions:
            bare = item.unalias()
            generator = isinstance(bare, exp.Anonymous) and bare.name.lower() in GENERATORS
            if generator or isinstance(item, exp.Aliases) or has_aggregate(item):
                raise NotUnderstood("rows that LATERAL makes without a table", item)
        values = [self.express(item.unalias()) for item in tree.expressions]
        names = _named(node, [name_of(item) for item in tree.expressions], len(values))
        where = tree.args.get("where")
        if where is not None:
            condition = self.express(where.this)
            if kind is JoinKind.LEFT:
                values = [Call("case", (condition, v), type_of(v), True, place) for v in values]
            else:
                left = Filter(left, condition, place)
        columns = tuple(
            Column(name, type_of(value), may_be_null(value))
            for name, value in zip(names, values, strict=True)
        )
        self.scope.tables.append(Named(node.alias, columns))
        rest = tuple((column, Ref(column)) for column in left.columns)
        return Project(left, (*rest, *zip(columns, values, strict=True)), place)

    def first_of_each(self, outer: Relation) -> tuple[Relation, list[Expression], tuple[Ref, ...]]:
        """As `correlated`, of a query with LIMIT: so many of the rows of each outer row."""
        limit, order = self.tree.args["limit"], self.tree.args.get("order")
        ordered = order.expressions if order is not None else []
        self.tree = self.tree.copy()
        for clause in ("limit", "order"):
            self.tree.set(clause, None)
        for key in ordered:
            self.tree.append("expressions", key.this.copy())
        plan, conditions, members = self.correlated()
        plan, ties = self._apart(plan, conditions, outer, limit)
        sorting = members[len(members) - len(ordered) :]
        keys = tuple(
            SortKey(member, bool(key.args.get("desc")))
            for member, key in zip(sorting, ordered, strict=True)
        )
        place, number = self.builder.at(limit), Column("row_number()", INT, False)
        numbered = ((number, Call("row_number", (), INT, False, place)),)
        rows = Window(plan, numbered, tuple(mine for mine, *_ in ties), keys, position=place)
        few = Call("<=", (Ref(number), self.express(limit.expression)), BOOLEAN)
        tied: list[Expression] = [Call(name, (mine, theirs)) for mine, theirs, name in ties]
        return Filter(rows, few, place), tied, members[: len(members) - len(ordered)]

    def grouped_by_ties(
        self, outer: Relation
    ) -> tuple[Relation, list[Expression], tuple[Ref, ...]]:
        """As `correlated`, of a query that puts the rows of each outer row together, if it does.

        They are put together by what tells those of different outer rows apart (`_apart`), before
        they are joined with the outer rows.
        """
        tree = self.tree
        self.builder.only(tree, {"expressions", "from_", "from", "joins", "laterals", "where"})
        if not any(map(has_aggregate, tree.expressions)):
            return self.correlated()
        where = tree.args["where"]
        self.tree = tree.copy()
        self.tree.set("where", None)
        plan = self.body()
        reaching: list[Expression] = []
        for term in conjuncts(where.this):
            refuse_subqueries(term)
            self.scope.reached = False
            condition = self.express(term)
            if self.scope.reached:
                reaching.append(condition)
            else:
                plan = Filter(plan, condition, self.builder.at(term))
        self.scope.reached = False
        items = [(name_of(item), item.unalias()) for item in tree.expressions]
        values = [self.express(item) for _, item in items]
        if self.scope.reached:
            raise NotUnderstood("a subquery selects a column of the outer query", tree)
        columns = [
            Column(name, type_of(value), True)
            for (name, _), value in zip(items, values, strict=True)
        ]
        plan, ties = self._apart(plan, reaching, outer, tree)
        keys = [key for key, *_ in ties]
        by = [Column(text_of(key), type_of(key), may_be_null(key)) for key in keys]
        outputs = (*zip(by, keys, strict=True), *zip(columns, values, strict=True))
        plan = Aggregate(plan, tuple(keys), outputs, None, self.builder.at(tree))
        conditions: list[Expression] = [
            Call(name, (Ref(column), theirs))
            for column, (_, theirs, name) in zip(by, ties, strict=True)
        ]
        return plan, conditions, tuple(map(Ref, columns))

    def _apart(
        self,
        inner: Relation,
        conditions: Sequence[Expression],
        outer: Relation,
        node: Any,
        null_aware: int = 0,
    ) -> tuple[Relation, list[tuple[Expression, Expression, str]]]:
        """The rows of a subquery that meet conditions about outer rows, with what tells those of
        different outer rows apart: values of them, what these equal in the outer row, and how.

        Where every condition is an equality, it is they. Else each of the different rows of the
        outer query stands beside those that meet the conditions with it; with `null_aware`, of
        NOT IN, alone if none does.
        """
        ties = [_tie(condition, inner) for condition in conditions]
        if None not in ties and not null_aware:
            return inner, [tie for tie in ties if tie is not None]
        copies = {column: replace(column) for column in outer.columns}
        copied = Reuse(outer, tuple(copies.values()))
        place = self.builder.at(node)
        asking = Deduplicate(copied, copied.columns, position=place)
        condition = _all([exchanged(condition, copies) for condition in conditions])
        known = {*asking.columns, *inner.columns}
        if condition is not None and not references(condition) <= known:
            raise NotUnderstood("this condition of a subquery is not understood", node)
        kind = JoinKind.ANTI if null_aware else JoinKind.INNER
        joined = Join(asking, inner, kind, condition, null_aware, place)
        return joined, [(Ref(copy), Ref(column), "<=>") for column, copy in copies.items()]

    def _valued(
        self, plan: Relation, node: Any, asked: Sequence[Any] = ()
    ) -> tuple[Relation, Any, Expressions]:
        """An expression with subqueries that stand for a value: each becomes a column below.

        Of those that are `asked` the value is whether they have a row.
        """
        parts = [*asked, *scalars(node)]
        if not parts:
            return plan, node, self.express
        columns: list[Column] = []
        for part in asked:
            plan, column = self._found(plan, part)
            columns.append(column)
        for part in parts[len(asked) :]:
            self.builder.only(part, {"this"})
            tree = part.this
            conditions: list[Expression] = []
            where = tree.args.get("where")
            inner = None
            if isinstance(tree, exp.Select):
                ctes = self.builder.named(tree, self.ctes)
                inner = Select(self.builder, tree, ctes, self.scope)
            if inner is not None and where is not None and inner._reaches_out(where):
                if not any(map(has_aggregate, tree.expressions)):
                    raise NotUnderstood("a subquery that may have several rows", part)
                right, conditions, members = inner.grouped_by_ties(plan)
            else:
                right = self._untied(tree)
                members = tuple(map(Ref, right.columns))
            if len(members) != 1:
                raise NotUnderstood("a subquery with several columns is used as a value", part)
            place = self.builder.at(part)
            column = members[0].column
            old = plan.columns
            plan = Join(plan, right, JoinKind.LEFT, _all(conditions), position=place)
            if conditions:
                value = Column(column.name, column.type)
                rest = tuple((unchanged, Ref(unchanged)) for unchanged in old)
                plan = Project(plan, (*rest, (value, _of_no_rows(column))), place)
                column = value
            columns.append(column)
        return plan, replaced(node, parts), self._standing(columns, node)

    def _untied(self, tree: Any) -> Relation:
        """The one row of a subquery that names no row around it."""
        plan = self.builder.query(tree, self.ctes, None)
        return plan if single(plan) else padded(plan)[0]

    def _beside(self, node: Any, beside: list[Relation]) -> Expression:
        """An expression over groups; subqueries in it are added to what is joined with these."""
        parts = scalars(node)
        rows = [self._untied(part.this) for part in parts]
        if any(len(row.columns) != 1 for row in rows):
            raise NotUnderstood("a subquery with several columns is used as a value", node)
        rest = replaced(node, parts) if parts else node
        refuse_subqueries(rest)
        beside += rows
        return self._standing([row.columns[0] for row in rows], node)(rest)

    def _found(self, plan: Relation, node: Any) -> tuple[Relation, Column]:
        """The plan with a column that tells whether an EXISTS, IN or NOT IN holds.

        The rows that it looks for are told apart only by what ties them to a row of the plan, so
        that each of these is joined with one of them, or with none.
        """
        asked = node
        while isinstance(asked, exp.Not | exp.Paren):
            asked = asked.this
        within = isinstance(asked, exp.In)
        tree, value = (asked.args["query"], asked.this) if within else (asked.this, None)
        right, conditions, compared = self._related(tree, value, asked)
        place = self.builder.at(node)
        null_aware = compared if asked is not node else 0
        right, ties = self._apart(right, conditions, plan, node, null_aware)
        values: list[Expression] = [key for key, *_ in ties] or [Literal(True, BOOLEAN)]
        keys = [column_of(text_of(value), value, place) for value in values]
        looked_for = Project(right, tuple(zip(keys, values, strict=True)), place)
        rows: Relation = Deduplicate(looked_for, tuple(keys), position=place)
        there = Column("found", BOOLEAN)
        outputs: list[Output] = [(key, Ref(key)) for key in keys]
        outputs.append((there, Literal(True, BOOLEAN)))
        rows = Project(rows, tuple(outputs), place)
        pairs = zip(keys, ties, strict=False)
        condition = _all([Call(name, (Ref(key), theirs)) for key, (_, theirs, name) in pairs])
        joined = Join(plan, rows, JoinKind.LEFT, condition, position=place)
        column = Column("found", BOOLEAN, False, place)
        rest = tuple((unchanged, Ref(unchanged)) for unchanged in plan.columns)
        held = Call("is not null", (Ref(there),), BOOLEAN)
        return Project(joined, (*rest, (column, held)), place), column

    def _standing(self, columns: list[Column], item: Any) -> Expressions:
        """Expressions in which names stand for columns (`replaced`)."""
        return Expressions(
            lambda node: (
                Ref(columns[int(node.name[len(STANDS) :])], self.builder.at(item))
                if node.name.startswith(STANDS)
                else self._resolve(node)
            ),
            self.builder.own,
        )

    def _lateral(self, plan: Relation, node: Any) -> Relation:
        """LATERAL VIEW: for each row those that a generator makes of it."""
        call = node.this
        if not isinstance(call, exp.Anonymous | exp.Explode):
            raise NotUnderstood("LATERAL is not understood", node)
        alias = node.args.get("alias")
        names = [identifier.name for identifier in alias.columns] if alias is not None else []
        generator = self.express(call)
        if not isinstance(generator, Call) or generator.function not in GENERATORS:
            raise NotUnderstood(f"`{text_of(generator)}` is not a known generator", node)
        columns = generated(generator, names)
        name = alias.name if alias is not None else ""
        self.scope.tables.append(Named(name, columns))
        return Generate(plan, generator, columns, self.builder.at(node))

    def _where(self, plan: Relation, condition: Any) -> Relation:
        for term in conjuncts(condition):
            plan = self._condition(plan, term)
        return plan

    def _condition(self, plan: Relation, node: Any) -> Relation:
        """A condition of WHERE: a subquery is a join, everything else a filter."""
        inner, negated = node, False
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            return self._subquery(plan, inner.args["query"], inner.this, negated, node)
        if isinstance(inner, exp.Exists):
            return self._subquery(plan, inner.this, None, negated, node)
        place = self.builder.at(node)
        plan, node, express = self._valued(plan, node, existences(node))
        refuse_subqueries(node)
        return Filter(plan, express(node), place)

    def _subquery(
        self, plan: Relation, tree: Any, value: Any, negated: bool, node: Any
    ) -> Relation:
        """IN and EXISTS as joins that keep the columns of the left side."""
        right, conditions, compared = self._related(tree, value, node)
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        null_aware = compared if negated and value is not None else 0
        place = self.builder.at(node)
        return Join(plan, right, kind, _all(conditions), null_aware, place)

    def _related(self, tree: Any, value: Any, node: Any) -> tuple[Relation, list[Expression], int]:
        """The rows that an IN or EXISTS looks for: their plan, the conditions that they meet, and
        how many columns IN compares, whose conditions come first."""
        while isinstance(tree, exp.Subquery):
            self.builder.only(tree, {"this"})
            tree = tree.this
        if value is None:
            tree = _unordered(tree)
        conditions: list[Expression] = []
        if isinstance(tree, exp.Select) and not tree.args.get("group"):
            inner = Select(self.builder, tree, self.builder.named(tree, self.ctes), self.scope)
            right, conditions, members = inner.correlated()
        else:
            tree, ties = self._grouped_apart(tree)
            right = self.builder.query(tree, self.ctes, None)
            columns = list(map(Ref, right.columns))
            tied = [columns.pop() for _ in ties][::-1]
            conditions = [
                Call("=", (mine, self.express(theirs)))
                for mine, theirs in zip(tied, ties, strict=True)
            ]
            members = tuple(columns)
        if value is not None:
            values = value.expressions if isinstance(value, exp.Tuple) else [value]
            if len(values) != len(members):
                raise NotUnderstood("IN compares another number of columns", node)
            pairs = zip(map(self.express, values), members, strict=True)
            conditions = [*(Call("=", pair) for pair in pairs), *conditions]
        return right, conditions, len(members)

    def _grouped_apart(self, tree: Any) -> tuple[Any, list[Any]]:
        """A subquery with groups, those of different outer rows apart: the values of it that its
        conditions equate with such of the outer row are selected last; and these values."""
        where, group = tree.args.get("where"), tree.args.get("group")
        if not isinstance(tree, exp.Select) or where is None:
            return tree, []
        inner = Select(self.builder, tree, self.builder.named(tree, self.ctes), self.scope)
        if not inner._reaches_out(where):
            return tree, []
        self.builder.only(tree, CORRELATED_PARTS | {"group", "having"})
        plain = all(key == "expressions" for key, value in group.args.items() if value)
        if not plain or tree.find(exp.Window) is not None:
            raise NotUnderstood("these groups in a correlated subquery", tree)
        rest, ties, theirs = list[Any](), list[Any](), list[Any]()
        for term in conjuncts(where.this):
            if not inner._reaches_out(term):
                rest.append(term)
                continue
            sides = [term.this, term.expression] if isinstance(term, exp.EQ) else []
            mine = [side for side in sides if not inner._reaches_out(side)]
            other = [side for side in sides if inner._names_only_outer(side)]
            if len(mine) != 1 or len(other) != 1:
                raise NotUnderstood("a condition of a subquery that is no equality", term)
            ties += mine
            theirs += other
        apart = tree.copy()
        apart.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
        for tie in ties:
            apart.append("expressions", tie.copy())
            apart.args["group"].append("expressions", tie.copy())
        return apart, theirs

    def _names_only_outer(self, part: Any) -> bool:
        columns = list(part.find_all(exp.Column))
        return bool(columns) and all(map(self._reaches_out, columns))

    def correlated(self) -> tuple[Relation, list[Expression], tuple[Ref, ...]]:
        """A subquery: its plan, the conditions that tie it to the outer query, what it selects."""
        tree, conditions = self.tree, list[Expression]()
        where = tree.args.get("where")
        plain = not (tree.args.get("having") or any(map(has_aggregate, tree.expressions)))
        apart = where is not None and self._reaches_out(where)
        if apart and not plain:
            raise NotUnderstood("an aggregate without GROUP BY in a correlated subquery", tree)
        if where is None or not apart:
            scope, self.scope.outer = self.scope.outer, None
            plan = self.build()
            self.scope.outer = scope
            return plan, [], tuple(map(Ref, plan.columns))
        self.builder.only(tree, CORRELATED_PARTS)
        tree = tree.copy()
        tree.set("where", None)
        self.tree = tree
        plan = self.body()
        for term in conjuncts(where.this):
            self.scope.reached = False
            if term.find(exp.Query) is not None:
                plan = self._condition(plan, term)
                if self.scope.reached:
                    raise NotUnderstood("a subquery in a correlated subquery", term)
                continue
            condition = self.express(term)
            if self.scope.reached:
                conditions.append(condition)
            else:
                plan = Filter(plan, condition, self.builder.at(term))
        self.scope.reached = False
        members = self._members()
        if self.scope.reached:
            raise NotUnderstood("a subquery selects a column of the outer query", tree)
        # What is selected joins the columns that the conditions need.
        outputs = [(column, Ref(column)) for column in plan.columns]
        added: list[Output] = [
            (Column(f"value{at}", type_of(member), may_be_null(member)), member)
            for at, member in enumerate(members)
            if not isinstance(member, Ref)
        ]
        if added:
            renewed = [(Column(c.name, c.type, c.nullable), ref) for c, ref in outputs]
            exchange = {ref.column: column for column, ref in renewed}
            plan = Project(plan, (*renewed, *added))
            conditions = [exchanged(term, exchange) for term in conditions]
            fresh = iter(column for column, _ in added)
            members = tuple(
                Ref(exchange[member.column]) if isinstance(member, Ref) else Ref(next(fresh))
                for member in members
            )
        return plan, conditions, tuple(member for member in members if isinstance(member, Ref))

    def _members(self) -> tuple[Expression, ...]:
        members: list[Expression] = []
        for item in self.tree.expressions:
            if isinstance(item, exp.Star):
                members += [inner for _, inner in self.scope.star()]
            else:
                members.append(self.express(item))
        return tuple(members)

    def _reaches_out(self, where: Any) -> bool:
        """True where a condition names a column that only the outer query has."""
        trial = Select(self.builder, self.tree, self.ctes, self.scope.outer)
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

    def _items(self) -> tuple[list[tuple[str, Any]], dict[int, tuple[Any, list[str]]]]:
        """The items by name; place of an item -> (generator, names that it gives)."""
        items: list[tuple[str, Any]] = []
        generators: dict[int, tuple[Any, list[str]]] = {}
        for node in self.tree.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                items += self._star(node)
                continue
            bare = node.unalias() if isinstance(node, exp.Alias) else node
            names = [node.alias] if isinstance(node, exp.Alias) else []
            if isinstance(node, exp.Aliases):
                bare, names = node.this, [alias.name for alias in node.expressions]
            if isinstance(bare, exp.Anonymous) and bare.name.lower() in GENERATORS:
                generators[len(items)] = bare, names
            items.append((name_of(node), bare))
        return items, generators

    def _generators(self, plan: Relation) -> tuple[Relation, list[tuple[str, Any]]]:
        """The items by name; EXPLODE among them makes rows before anything else is computed."""
        items, generators = self._items()
        selected: list[tuple[str, Any]] = []
        for at, item in enumerate(items):
            if at not in generators:
                selected.append(item)
                continue
            bare, names = generators[at]
            generator = self.express(bare)
            assert isinstance(generator, Call)
            columns = generated(generator, names)
            plan = Generate(plan, generator, columns, self.builder.at(bare))
            selected += [(column.name, Ref(column)) for column in columns]
        return plan, selected

    def _generated_of_groups(
        self, plan: Relation, generators: Mapping[int, tuple[Any, list[str]]]
    ) -> Relation:
        """EXPLODE of what is computed of groups: its rows are made of theirs."""
        for at, (bare, names) in generators.items():
            column, place = plan.columns[at], self.builder.at(bare)
            generator = Call(bare.name.lower(), (Ref(column),), position=place)
            columns = generated(generator, names)
            outputs = [(output, Ref(output)) for output in plan.columns]
            outputs[at : at + 1] = [(output, Ref(output)) for output in columns]
            plan = Project(Generate(plan, generator, columns, place), tuple(outputs), place)
        return plan

    def _star(self, node: Any) -> Iterator[tuple[str, Any]]:
        star = node if isinstance(node, exp.Star) else node.this
        alias = None if isinstance(node, exp.Star) else node.table
        self.builder.only(star, {"except_", "except"})
        excluded = star.args.get("except_") or star.args.get("except") or ()
        without = {identifier.name.lower() for identifier in excluded}
        tables = [t for t in self.scope.tables if alias is None or t.alias.lower() == alias.lower()]
        self.builder.open |= any(table.open for table in tables)
        if not tables and alias is not None:
            yield from self._fields(alias, node)
            return
        for name, expression in self.scope.star(alias):
            if name.lower() not in without:
                yield name, expression

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

    def _projected(self, plan: Relation, items: list[tuple[str, Any]]) -> Relation:
        outputs: list[Output] = []
        for name, item in items:
            if isinstance(item, exp.Expression) and item.find(exp.Window) is not None:
                over, value = self._over(plan, item)
                plan = _stacked(plan, over)
            elif isinstance(item, exp.Expression):
                plan, item, express = self._valued(plan, item, existences(item))
                value = express(item)
            else:
                value = item
            outputs.append((column_of(name, value, self._item_place(item)), value))
            self.aliases.setdefault(name.lower(), value)
        qualifying = self._qualifying(plan)
        for over, *_ in qualifying:
            plan = _stacked(plan, over)
        for _, condition, place in qualifying:
            plan = Filter(plan, condition, place)
        return Project(plan, tuple(outputs), self.builder.at(self.tree))

    def _qualifying(self, plan: Relation) -> list[tuple[list[Window], Expression, Any]]:
        """The terms of QUALIFY: a condition on the results of window functions."""
        qualify = self.tree.args.get("qualify")
        if qualify is None:
            return []
        for column in qualify.find_all(exp.Column):
            named = self.aliases.get(column.name.lower()) if not column.table else None
            if named is not None and self._resolve(column) != named:
                raise NotUnderstood(f"`{column.name}` is an item and a column", column)
        terms = list(conjuncts(qualify.this))
        for term in terms:
            refuse_subqueries(term)
        return [(*self._over(plan, term), self.builder.at(term)) for term in terms]

    def _item_place(self, item: Any) -> Position | None:
        return self.builder.at(item) if isinstance(item, exp.Expression) else None

    def _over(self, plan: Relation, item: Any) -> tuple[list[Window], Expression]:
        """The window functions of an item, each a column over the plan, and the rest of it."""
        windows = list(item.find_all(exp.Window)) if isinstance(item, exp.Expression) else []
        if not windows:
            return [], self._value(item)
        columns: list[Column] = []
        over: list[Window] = []
        for node in windows:
            if node.find_ancestor(exp.Window) is not None:
                raise NotUnderstood("a window function in a window function", node)
            self.builder.only(node, {"this", "partition_by", "order", "spec", "over", "alias"})
            call = self.express(node.this)
            position = self.builder.at(node.this)
            definition = self._named_window(node)
            by = definition.args.get("partition_by") or ()
            partition = tuple(self.express(key) for key in by)
            order = definition.args.get("order")
            keys = self.express.order(order) if order is not None else ()
            spec = definition.args.get("spec")
            rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
            rows = rows and not _unbounded(spec)
            column = Column(text_of(call), type_of(call), True)
            columns.append(column)
            over.append(Window(plan, ((column, call),), partition, keys, rows, position))
        return over, self._standing(columns, item)(replaced(item, windows))

    def _named_window(self, node: Any) -> Any:
        """The definition of a window: its own, or that of the name that it goes by."""
        seen: list[str] = []
        while node.args.get("alias") is not None:
            name = node.args["alias"].name.lower()
            own = any(node.args.get(part) for part in ("partition_by", "order", "spec"))
            if own or name in seen or name not in self.windows:
                raise NotUnderstood(f"the window `{name}` is not understood", node)
            seen.append(name)
            node = self.windows[name]
        return node

    def _grouped(
        self, plan: Relation, items: list[tuple[str, Any]], group: Any, having: Any
    ) -> Relation:
        """GROUP BY, aggregates and HAVING, then window functions over the groups."""
        keys, sets = self._keys(items, group)
        self.keys = keys
        groups: list[Output] = []
        shown: list[Output] = []
        windows: list[Window] = []
        beside: list[Relation] = []
        of_windows: dict[str, Expression] = {}
        for name, item in items:
            if scalars(item):
                over, value = list[Window](), self._beside(item, beside)
            else:
                over, value = self._over(plan, item)
            column = column_of(name, value, self._item_place(item))
            if sets is not None and not aggregates(value):  # a key is NULL where it is left out
                column = replace(column, nullable=True)
            shown.append((column, value))
            if over or scalars(item):
                windows += over
                of_windows.setdefault(name.lower(), value)
            else:
                groups.append((column, value))
                self.aliases.setdefault(name.lower(), value)
        conditions: list[tuple[Expression, Position | None]] = []
        self.having = True
        for term in conjuncts(having.this) if having is not None else ():
            conditions.append((self._beside(term, beside), self.builder.at(term)))
        self.having = False
        self.aliases = of_windows | self.aliases
        qualifying = self._qualifying(plan)
        windows += [window for over, *_ in qualifying for window in over]
        above = _OverGroups(groups, windows, beside)
        held = [(above(value), place) for value, place in conditions]
        stacked = [above.window(window) for window in windows]
        qualified = [(above(value), place) for _, value, place in qualifying]
        renewed = [above.output(*output) for output in shown]
        position = self.builder.at(group) if group is not None else self.builder.at(self.tree)
        plan = Aggregate(plan, keys, tuple(above.groups), sets, position)
        for row in beside:
            plan = Join(plan, row, JoinKind.LEFT, None, position=position)
        for condition, place in held:
            at = replace(condition, position=place) if isinstance(condition, Ref) else condition
            plan = Filter(plan, at, place)
        plan = _stacked(plan, stacked)
        for condition, place in qualified:
            plan = Filter(plan, condition, place)
        return Project(plan, tuple(renewed), position) if conditions or windows or beside else plan

    def _keys(
        self, items: list[tuple[str, Any]], group: Any
    ) -> tuple[tuple[Expression, ...], tuple[frozenset[int], ...] | None]:
        """The keys of the groups, and the grouping sets if there are any."""
        if group is None:
            return (), None
        self.builder.only(
            group, {"expressions", "all", "rollup", "cube", "grouping_sets", "totals"}
        )
        if group.args.get("totals"):
            raise NotUnderstood("WITH TOTALS is not understood", group)
        keys: list[Expression] = []
        optional: set[int] = set()
        several = False
        if group.args.get("all"):
            keys = [v for v in (self._value(item) for _, item in items) if not aggregates(v)]
            return tuple(keys), None
        for node in group.expressions:
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
                several = True
                self._add_sets(node, items, keys, optional)
            else:
                keys.append(self._key(node, items))
        for name in ("rollup", "cube", "grouping_sets"):
            for node in group.args.get(name) or ():
                # Without a comma before them the sets choose among the keys: GROUP BY a, b
                # GROUPING SETS ((a)), GROUP BY a, b WITH ROLLUP.
                several = True
                optional |= set(range(len(keys)))
                self._add_sets(node, items, keys, optional)
        if not several:
            return tuple(keys), None
        # Which sets there are does not matter, only which keys are in all of them.
        every = frozenset(range(len(keys)))
        return tuple(keys), (every, every - optional)

    def _add_sets(
        self, node: Any, items: list[tuple[str, Any]], keys: list[Expression], optional: set[int]
    ) -> None:
        """Add the keys of the sets; `optional`: places of those that are not in all of them."""
        sets: list[set[int]] = []
        for element in node.expressions:
            inner = element.this if isinstance(element, exp.Paren) else element
            parts = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
            places = set()
            for part in parts:
                key = self._key(part, items)
                if key not in keys:
                    keys.append(key)
                places.add(keys.index(key))
            sets.append(places)
        in_all = set.intersection(*sets) if isinstance(node, exp.GroupingSets) else set()
        optional |= set().union(*sets) - in_all

    def _key(self, node: Any, items: list[tuple[str, Any]]) -> Expression:
        """A grouping key: an expression, the place of an item, or its name."""
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            at = int(node.this) - 1
            if at >= len(items):
                raise NotUnderstood(f"there is no item {node.this} to group by", node)
            return self._value(items[at][1])
        refuse_subqueries(node)
        try:
            return self.express(node)
        except NotUnderstood:
            named = [item for name, item in items if name.lower() == node.name.lower()]
            if not isinstance(node, exp.Column) or node.table or not named:
                raise
            return self._value(named[0])
