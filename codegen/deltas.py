"""Queries for what new records of an input add to the output of confluent SQL.

The output of projections, filters, inner joins and unions is a sum over its inputs' records: what a
record of `a` adds to `a JOIN b` are its matches in `b`. So for each input there is a query over its
new records and what is kept of the others, in which only those branches of a UNION are left that
read it. Of an input that is joined with others the columns are kept that the query uses, of those
records that its own conditions let through; of any other input nothing is.

As in `codegen.summaries` this is done by a white list: what is not on it is evaluated over all
records again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from codegen.site_sql import duration_us
from codegen.summaries import is_exact
from codegen.windows import TIMES

CLAUSES: Final = frozenset({"distinct", "expressions", "from", "joins", "where"})
"""Parts of a SELECT whose output is a sum over records."""
JOINS: Final = frozenset({"", "INNER", "CROSS"})

Matches = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""Another input -> (columns, its columns) that are equal where rows of both meet."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The part of an input that is kept, as SQL.

    Attributes:
        of_record: makes it of a record.
        again: what is kept of it: all of it, or None: of equal rows one says as much as all.
    """

    of_record: str
    again: str | None


@dataclass(frozen=True, slots=True)
class Range:
    """The times of another input's records that a record meets.

    Attributes:
        column: the time of a record.
        partner: the other input.
        after_us: how much later those are at most.
        width_us: from the first to the last of them.
    """

    column: str
    partner: str
    after_us: int
    width_us: int


@dataclass(frozen=True, slots=True)
class Deltas:
    """A query by its inputs.

    Attributes:
        queries: input -> what its new records add.
        matches: input -> which rows of others can matter.
        kept: input -> what is kept of it; others are not kept.
        ranges: the two inputs of a join whose records meet within a range of times -> that.
    """

    queries: Mapping[str, str]
    matches: Mapping[str, Matches]
    kept: Mapping[str, Kept]
    ranges: Mapping[str, Range]


class _Whole(Exception):  # noqa: N818 - not an error: everything is evaluated again
    """The query is not on the white list."""


def deltas(sql: str, schemas: Mapping[str, Mapping[str, str]], *, as_set: bool) -> Deltas | None:
    """The query by its inputs; None where it is not a sum over their records.

    Args:
        sql: the query.
        schemas: input -> attributes and Spark SQL types.
        as_set: of the output, only distinct rows matter.

    >>> found = deltas(
    ...     "SELECT a.k, b.v FROM a JOIN b ON a.k = b.k WHERE b.v > 1",
    ...     {"a": {"k": "INT", "w": "INT"}, "b": {"k": "INT", "v": "INT"}},
    ...     as_set=False,
    ... )
    >>> print(found.queries["a"])
    SELECT a.k, b.v FROM a JOIN b ON a.k = b.k WHERE b.v > 1
    >>> found.kept["a"].of_record, found.kept["b"].of_record
    ('SELECT k FROM a', 'SELECT k, v FROM b WHERE (v > 1)')
    >>> found.matches["a"]
    {'b': (('k',), ('k',))}
    """
    import sqlglot

    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
        branches = [_Branch(select, schemas, as_set) for select in _branches(tree, as_set)]
    except (sqlglot.errors.SqlglotError, _Whole):
        return None
    queries: dict[str, str] = {}
    matches: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    stored: dict[str, Kept] = {}
    for name, schema in schemas.items():
        reading = [branch for branch in branches if name in branch.tables]
        if not reading:
            return None
        queries[name] = " UNION ALL ".join(branch.sql for branch in reading)
        matches[name] = {}
        for other in schemas:
            met = [branch for branch in reading if other != name and other in branch.tables]
            pairs = met[0].equal(name, other) if len(met) == 1 else ()
            if pairs:
                mine, theirs = zip(*pairs, strict=True)
                matches[name][other] = mine, theirs
        joined = [branch for branch in reading if len(branch.tables) > 1]
        if joined:
            used = {column for branch in joined for column in branch.used(name)}
            columns = [column for column in schema if column in used] or [*schema][:1]
            condition = joined[0].condition(name) if len(joined) == 1 else None
            exact = all(is_exact(schema[column].strip().lower()) for column in columns)
            stored[name] = _kept(name, columns, condition, distinct=as_set and exact)
    ranges: dict[str, Range] = {}
    if len(branches) == 1 and len(schemas) == 2:
        first, second = schemas
        ranges = branches[0].ranges(first, second)
    return Deltas(queries, matches, stored, ranges)


def _kept(name: str, columns: list[str], condition: str | None, *, distinct: bool) -> Kept:
    listed, table = ", ".join(map(_quoted, columns)), _quoted(name)
    where = f" WHERE {condition}" if condition else ""
    of_record = f"SELECT {listed} FROM {table}{where}"
    return Kept(of_record, None if distinct else f"SELECT {listed} FROM {table}")


def _quoted(name: str) -> str:
    from sqlglot import exp

    sql: str = exp.to_identifier(name).sql(dialect="spark")
    return sql


def _branches(tree: Any, as_set: bool) -> Iterator[Any]:
    """The SELECTs that a UNION puts together."""
    from sqlglot import exp

    match tree:
        case exp.Union():
            others = {key for key, value in tree.args.items() if value}
            if others - {"this", "expression", "distinct"} or tree.args.get("by_name"):
                raise _Whole
            if tree.args.get("distinct") and not as_set:
                raise _Whole
            yield from _branches(tree.this, as_set)
            yield from _branches(tree.expression, as_set)
        case exp.Subquery() if not tree.args.get("alias"):
            yield from _branches(tree.this, as_set)
        case exp.Select():
            yield tree
        case _:
            raise _Whole


@dataclass(slots=True)
class _Branch:
    """One SELECT whose output is a sum over its tables' records; raises `_Whole` otherwise."""

    select: Any
    schemas: Mapping[str, Mapping[str, str]]
    as_set: bool
    tables: dict[str, Any] = field(default_factory=dict)
    """Input -> where it stands."""

    def __post_init__(self) -> None:
        self._check(self.select)

    @property
    def sql(self) -> str:
        """Its text."""
        text: str = self.select.sql(dialect="spark")
        return text

    def _check(self, select: Any) -> None:
        from sqlglot import exp

        clauses = {key.rstrip("_") for key, value in select.args.items() if value}
        if not clauses <= CLAUSES or (select.args.get("distinct") and not self.as_set):
            raise _Whole
        if select.args.get("distinct") and select.args["distinct"].args.get("on"):
            raise _Whole
        start = select.find(exp.From)
        if start is None or start.parent is not select:
            raise _Whole
        sources = [start.this]
        for join in select.args.get("joins") or []:
            others = {key for key, value in join.args.items() if value}
            if others - {"this", "on", "using", "kind"} or join.kind not in JOINS:
                raise _Whole
            sources.append(join.this)
        for source in sources:
            self._check_source(source)
        for node in self._own_nodes(select):
            if isinstance(node, exp.Query | exp.AggFunc | exp.Window | exp.Subquery):
                raise _Whole

    def _check_source(self, source: Any) -> None:
        from sqlglot import exp

        others = {key for key, value in source.args.items() if value} - {"this", "alias"}
        alias = source.args.get("alias")
        if others or (alias is not None and alias.args.get("columns")):
            raise _Whole
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
            self._check(source.this)
            return
        names = {name.lower(): name for name in self.schemas}
        if not isinstance(source, exp.Table) or source.name.lower() not in names:
            raise _Whole
        name = names[source.name.lower()]
        if name in self.tables:
            raise _Whole  # joined with itself
        self.tables[name] = source

    def _own_nodes(self, select: Any) -> Iterator[Any]:
        """Expressions of the SELECT, without what it reads."""
        for expression in select.expressions:
            yield from expression.walk()
        if select.args.get("where"):
            yield from select.args["where"].this.walk()
        for join in select.args.get("joins") or []:
            if join.args.get("on") is not None:
                yield from join.args["on"].walk()

    def used(self, name: str) -> set[str]:
        """The columns of an input that the branch may use."""
        from sqlglot import exp

        schema = {column.lower(): column for column in self.schemas[name]}
        alias = self.tables[name].alias_or_name.lower()
        if any(star.find_ancestor(exp.Count) is None for star in self.select.find_all(exp.Star)):
            return set(schema.values())
        words = {
            column.name.lower()
            for column in self.select.find_all(exp.Column)
            if not column.table or column.table.lower() == alias
        }
        for join in self.select.find_all(exp.Join):
            words |= {column.name.lower() for column in join.args.get("using") or []}
        return {column for word, column in schema.items() if word in words}

    def _owner(self, column: Any, select: Any) -> str | None:
        """The input, read by this SELECT, that a column is of; None where that is not plain."""
        direct = {n: t for n, t in self.tables.items() if t.find_ancestor(type(select)) is select}
        if column.table:
            alias = column.table.lower()
            owners = [n for n, table in direct.items() if table.alias_or_name.lower() == alias]
        else:
            if len(direct) < 1 + len(select.args.get("joins") or []):
                return None  # a subquery may have a column of that name
            word = column.name.lower()
            owners = [n for n in direct if word in {c.lower() for c in self.schemas[n]}]
        return owners[0] if len(owners) == 1 else None

    def _conditions(self, select: Any) -> Iterator[Any]:
        """The conditions on a row, one after the other."""
        wheres = [select.args["where"].this] if select.args.get("where") else []
        joins = select.args.get("joins") or []
        for condition in [*wheres, *(join.args["on"] for join in joins if join.args.get("on"))]:
            yield from _conjuncts(condition)

    def condition(self, name: str) -> str | None:
        """The condition on a record of the input, whatever it meets."""
        from sqlglot import exp

        select = self.tables[name].find_ancestor(exp.Select)
        own = []
        for condition in self._conditions(select):
            columns = [*condition.find_all(exp.Column)]
            if columns and all(self._owner(column, select) == name for column in columns):
                bare = condition.copy()
                for column in bare.find_all(exp.Column):
                    column.set("table", None)
                own.append(exp.paren(bare).sql(dialect="spark"))
        return " AND ".join(own) or None

    def equal(self, name: str, other: str) -> tuple[tuple[str, str], ...]:
        """(column, column of the other) pairs that are equal where both inputs' records meet."""
        from sqlglot import exp

        select = self.tables[name].find_ancestor(exp.Select)
        if self.tables[other].find_ancestor(exp.Select) is not select:
            return ()
        pairs = []
        for condition in self._conditions(select):
            sides = [condition.left, condition.right] if isinstance(condition, exp.EQ) else []
            if len(sides) == 2 and all(isinstance(side, exp.Column) for side in sides):
                by_owner = {self._owner(side, select): side.name for side in sides}
                if by_owner.keys() == {name, other}:
                    pairs.append((self._named(name, by_owner), self._named(other, by_owner)))
        for join in select.args.get("joins") or []:
            for column in join.args.get("using") or []:
                both: dict[str | None, str] = {name: column.name, other: column.name}
                if len(self.tables) == 2:
                    pairs.append((self._named(name, both), self._named(other, both)))
        return tuple(pairs)

    def ranges(self, name: str, other: str) -> dict[str, Range]:
        """The range of times in which records of both meet, from either side.

        None without one, and where several pairs of times are bounded: which of them the promise
        of a `lateness:` speaks of is not known then.
        """
        from sqlglot import exp

        select = self.tables[name].find_ancestor(exp.Select)
        if self.tables[other].find_ancestor(exp.Select) is not select:
            return {}
        lows: dict[tuple[str, str], int] = {}
        highs: dict[tuple[str, str], int] = {}
        for condition in self._conditions(select):
            for less, more in _at_most(condition):
                left, right = self._moment(less, select), self._moment(more, select)
                if left is None or right is None or {left[0], right[0]} != {name, other}:
                    continue
                slack = right[2] - left[2]  # left's column is at most right's and this
                if left[0] == other:
                    pair = right[1], left[1]
                    highs[pair] = min(slack, highs.get(pair, slack))
                else:
                    pair = left[1], right[1]
                    lows[pair] = max(-slack, lows.get(pair, -slack))
        bounded = [pair for pair in lows if pair in highs]
        if len(bounded) != 1:
            return {}
        ((mine, theirs),) = bounded
        low, high = lows[mine, theirs], highs[mine, theirs]
        width = max(0, high - low)
        return {name: Range(mine, other, high, width), other: Range(theirs, name, -low, width)}

    def _moment(self, side: Any, select: Any) -> tuple[str, str, int] | None:
        """(input, its time, microseconds that are added to it) of a moment by an input's time."""
        from sqlglot import exp

        side, shift = side.unnest(), 0
        if isinstance(side, exp.Add | exp.Sub):
            by = duration_us(side.expression.unnest().sql())
            if by is None:
                return None
            side, shift = side.this.unnest(), by if isinstance(side, exp.Add) else -by
        if not isinstance(side, exp.Column):
            return None
        owner = self._owner(side, select)
        if owner is None:
            return None
        column = self._named(owner, {owner: side.name})
        if self.schemas[owner][column].strip().lower() not in TIMES:
            return None
        return owner, column, shift

    def _named(self, name: str, by_owner: Mapping[str | None, str]) -> str:
        """The column as the schema spells it."""
        word = by_owner[name].lower()
        return next(column for column in self.schemas[name] if column.lower() == word)


def _at_most(condition: Any) -> Iterator[tuple[Any, Any]]:
    """(what is not more, what is not less) of sides that the condition compares.

    Not of equal ones: those are keys, which may be times too.
    """
    from sqlglot import exp

    match condition:
        case exp.LT() | exp.LTE():
            yield condition.left, condition.right
        case exp.GT() | exp.GTE():
            yield condition.right, condition.left
        case exp.Between() if not condition.args.get("symmetric"):
            yield condition.args["low"], condition.this
            yield condition.this, condition.args["high"]


def _conjuncts(condition: Any) -> Iterator[Any]:
    from sqlglot import exp

    match condition:
        case exp.And():
            yield from _conjuncts(condition.left)
            yield from _conjuncts(condition.right)
        case exp.Paren():
            yield from _conjuncts(condition.this)
        case _:
            yield condition
