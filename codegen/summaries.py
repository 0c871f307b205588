"""Partial aggregates in place of records, for a component that keeps records and reads them again.

`SELECT q.id FROM request q LEFT JOIN click c ON q.id = c.id GROUP BY q.id HAVING count(c.id) < 100`
looks at all clicks of an id for each request, but needs no more than how many there are. For an
input that occurs once in the query, three texts are made of it:

- one that makes a partial aggregate of each record: the columns that the query uses outside of
  aggregates, and what each aggregate starts with;
- one that combines partial aggregates of a group;
- the query over any number of partial aggregates for each group, in place of records.

An input of which only the distinct values of some columns matter is kept as these.

As in `codegen.partial`, this is done by a white list: a clause, function or type that is not on it
keeps the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from codegen.partial import AGGREGATES, INTEGERS, SCALARS

CLAUSES: Final = frozenset(
    {"distinct", "expressions", "from", "group", "having", "joins", "kind", "where"}
)
"""Parts of the SELECT that an input occurs in."""
EXACT: Final = INTEGERS | {"string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"}
"""Types, beside DECIMAL, whose equal values are the same."""
SIDES: Final = frozenset({"", "LEFT", "RIGHT", "FULL"})
PREFIX: Final = "partial_"
_LATTICE: Final = ("LogicalAnd", "LogicalOr", "Max", "Min")


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of an input, as SQL.

    Args:
        of_record: makes it of a record.
        again: combines what is kept; None: of equal rows, one says as much as all.
    """

    of_record: str
    again: str | None


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of inputs, and the query over them."""

    kept: Mapping[str, Summary]
    query: str


def is_exact(type_name: str) -> bool:
    """Whether equal values of a type are the same."""
    return type_name in EXACT or type_name.startswith("decimal")


class _Whole(Exception):  # noqa: N818 - not an error: the records are kept
    """The query is not on the white list."""


def summarise(
    sql: str,
    schemas: Mapping[str, Mapping[str, str]],
    *,
    inputs: Iterable[str],
    beside: Iterable[str] = (),
    as_set: bool,
) -> Summaries | None:
    """The summaries that can be kept in place of records; None where nothing can.

    Args:
        sql: the query.
        schemas: attributes and Spark SQL types of every input, the kept ones and the others.
        inputs: whose records are kept.
        beside: attributes that stay apart in what is kept, though the query may not use them.
        as_set: of the output, only distinct rows matter.

    >>> found = summarise(
    ...     "SELECT a.id, count(p.v) AS n FROM a LEFT JOIN p ON a.k = p.k GROUP BY a.id",
    ...     {"a": {"id": "INT", "k": "INT"}, "p": {"k": "INT", "v": "INT"}},
    ...     inputs=["p"],
    ...     as_set=False,
    ... )
    >>> print(found.query)
    SELECT a.id, COALESCE(SUM(p.partial_1), 0) AS n FROM a LEFT JOIN p ON a.k = p.k GROUP BY a.id
    >>> print(found.kept["p"].of_record)
    SELECT k, CAST(CASE WHEN v IS NULL THEN 0 ELSE 1 END AS BIGINT) AS partial_1 FROM p
    >>> print(found.kept["p"].again)
    SELECT k, SUM(partial_1) AS partial_1 FROM p GROUP BY k
    """
    import sqlglot

    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return None
    summaries: dict[str, Summary] = {}
    for name in inputs:
        changed = tree.copy()
        try:
            summaries[name] = _Summariser(changed, name, schemas, tuple(beside), as_set).result()
        except _Whole:
            continue
        if summaries[name].again is not None:
            tree, sql = changed, changed.sql(dialect="spark")
    return Summaries(summaries, sql) if summaries else None


class _Summariser:
    """One input of a query, and the SELECT it occurs in. Every method raises `_Whole` in doubt."""

    def __init__(
        self,
        tree: Any,
        name: str,
        schemas: Mapping[str, Mapping[str, str]],
        beside: tuple[str, ...],
        as_set: bool,
    ) -> None:
        from sqlglot import exp

        self._exp = exp
        self._name = name
        self._types = {column.lower(): of.strip().lower() for column, of in schemas[name].items()}
        self._named = {column.lower(): column for column in schemas[name]}
        self._beside = beside
        self._starts: dict[str, tuple[str, str]] = {}
        """Column of a partial aggregate -> (what it is of a record, what combines it)."""
        self._used: dict[str, None] = dict.fromkeys(attribute.lower() for attribute in beside)
        if not set(self._used) <= set(self._types):
            raise _Whole
        if any(attribute.startswith((PREFIX, "__")) for attribute in self._types):
            raise _Whole
        self._table = self._only_table(tree)
        self._select = self._table.find_ancestor(exp.Select)
        self._alias = self._table.alias_or_name
        self._others = dict(self._other_columns(schemas))
        self._joined = len(self._others) > 0
        self._check_clauses()
        self._by_set = as_set and self._is_branch(self._select)

    def result(self) -> Summary:
        """The two texts; the tree has become the third."""
        select = self._select
        clauses = [select.args.get(key) for key in ("group", "having")]
        grouped = any(clauses) or any(
            isinstance(node, self._exp.AggFunc) for node in self._own_nodes(select)
        )
        where = None
        if grouped:
            if not self._joined:
                where = self._taken_where()
            self._check_names()
            for key in ("expressions", "having"):
                for node in self._under(select, key):
                    self._replace_aggregates(node)
        elif not self._by_set and not select.args.get("distinct") and not self._is_tested():
            raise _Whole
        self._note_columns(select)
        columns = [*map(self._quoted, self._used)]
        starts = [f"{start} AS {name}" for name, (start, _) in self._starts.items()]
        if not columns and not starts:
            raise _Whole
        table = self._column(self._name)
        condition = f" WHERE {where}" if where else ""
        of_record = f"SELECT {', '.join([*columns, *starts])} FROM {table}{condition}"
        if not starts:
            return Summary(of_record, None)
        combined = [f"{how}({name}) AS {name}" for name, (_, how) in self._starts.items()]
        grouped_by = f" GROUP BY {', '.join(columns)}" if columns else ""
        again = f"SELECT {', '.join([*columns, *combined])} FROM {table}{grouped_by}"
        return Summary(of_record, again)

    # ---- where the input occurs

    def _only_table(self, tree: Any) -> Any:
        exp = self._exp
        tables = [t for t in tree.find_all(exp.Table) if t.name.lower() == self._name.lower()]
        named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        if len(tables) != 1 or self._name.lower() in named:
            raise _Whole
        (table,) = tables
        others = {key for key, value in table.args.items() if value} - {"this", "alias"}
        alias = table.args.get("alias")
        if others or (alias is not None and alias.args.get("columns")):
            raise _Whole
        if not isinstance(table.parent, exp.From | exp.Join):
            raise _Whole
        return table

    def _other_columns(
        self, schemas: Mapping[str, Mapping[str, str]]
    ) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Alias -> columns, and their types, of everything else that the SELECT reads."""
        exp = self._exp
        joins = self._select.args.get("joins") or []
        known = {name.lower(): of for name, of in schemas.items()}
        for table in (self._select.find(exp.From).this, *(join.this for join in joins)):
            if table is self._table:
                continue
            if isinstance(table, exp.Table) and table.name.lower() in known:
                of_table = known[table.name.lower()]
                columns = {column.lower(): of.strip().lower() for column, of in of_table.items()}
            elif isinstance(table, exp.Subquery) and isinstance(table.this, exp.Select):
                if any(column.is_star for column in table.this.selects):
                    raise _Whole
                columns = {column.alias_or_name.lower(): "" for column in table.this.selects}
            else:
                raise _Whole
            if not table.alias_or_name or table.args.get("joins") or table.args.get("laterals"):
                raise _Whole
            yield table.alias_or_name.lower(), columns

    def _check_clauses(self) -> None:
        exp, select = self._exp, self._select
        used = {key.rstrip("_") for key, value in select.args.items() if value}
        if not used <= CLAUSES or select.args.get("kind"):
            raise _Whole
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise _Whole
        group = select.args.get("group")
        if group is not None:
            others = {key for key, value in group.args.items() if value} - {"expressions"}
            if others or not all(isinstance(e, exp.Column) for e in group.expressions):
                raise _Whole
        for join in select.args.get("joins") or []:
            others = {k for k, v in join.args.items() if v} - {"this", "on", "side", "kind"}
            kinds = ("", "INNER", "OUTER", "CROSS")
            if others or join.side not in SIDES or join.kind not in kinds:
                raise _Whole
        for node in self._own_nodes(select):
            self._check_scalar(node)

    def _own_nodes(self, select: Any) -> Iterator[Any]:
        """Expressions of the SELECT, without what it reads."""
        for key in ("expressions", "where", "having", "group"):
            yield from (
                node for expression in self._under(select, key) for node in expression.walk()
            )
        for join in select.args.get("joins") or []:
            if join.args.get("on") is not None:
                yield from join.args["on"].walk()

    def _under(self, select: Any, key: str) -> list[Any]:
        value = select.args.get(key)
        if value is None:
            return []
        if isinstance(value, list):
            return list(value)
        return list(value.expressions) if key == "group" else [value.this]

    def _check_scalar(self, node: Any) -> None:
        exp = self._exp
        name = type(node).__name__
        if name in ("Star", "Distinct"):
            if not isinstance(node.parent, exp.Count):
                raise _Whole
        elif name not in SCALARS and name not in AGGREGATES:
            raise _Whole
        is_text = isinstance(node, exp.Literal) and node.is_string
        if is_text and ("\\" in node.this or not node.this.isprintable()):
            raise _Whole
        if isinstance(node, exp.Column) and (node.args.get("db") or not node.name):
            raise _Whole

    def _is_branch(self, select: Any) -> bool:
        """Whether the output is what the SELECT gives, and what other branches of a UNION do."""
        node = select
        while isinstance(node.parent, self._exp.Union | self._exp.Paren):
            node = node.parent
        return node.parent is None and not node.args.get("limit")

    def _is_tested(self) -> bool:
        """Whether the SELECT is only asked whether it has some row."""
        parent = self._select.parent
        if isinstance(parent, self._exp.Subquery):
            return isinstance(parent.parent, self._exp.In)
        return isinstance(parent, self._exp.Exists)

    # ---- columns

    def _is_own(self, column: Any) -> bool:
        """Whether a column of the SELECT is the input's."""
        name = column.name.lower()
        if column.table:
            return bool(column.table.lower() == self._alias.lower())
        own = name in self._types
        if own and any(name in table for table in self._others.values()):
            raise _Whole
        return own

    def _note_columns(self, select: Any) -> None:
        """Take note of the input's columns that are left outside of aggregates."""
        for node in self._own_nodes(select):
            if isinstance(node, self._exp.Column) and self._is_own(node):
                name = node.name.lower()
                if name.startswith(PREFIX):
                    continue
                if name not in self._types:
                    raise _Whole
                self._used.setdefault(name)
        if not all(is_exact(self._types[name]) for name in self._used):
            raise _Whole

    def _check_names(self) -> None:
        """Names that SELECT gives must not hide columns, and aggregates must have one."""
        exp = self._exp
        for expression in self._select.expressions:
            simple = isinstance(expression, exp.Column)
            renamed = isinstance(expression, exp.Alias) and isinstance(expression.this, exp.Column)
            if simple or (renamed and expression.alias.lower() == expression.this.name.lower()):
                continue
            if not isinstance(expression, exp.Alias):
                raise _Whole  # the name of the column would be another
            name = expression.alias.lower()
            if name in self._types or any(name in table for table in self._others.values()):
                raise _Whole

    def _taken_where(self) -> str | None:
        """The condition on single records, which leaves the query."""
        where = self._select.args.get("where")
        if where is None:
            return None
        for column in where.find_all(self._exp.Column):
            if not self._is_own(column) or column.name.lower() not in self._types:
                raise _Whole  # of an outer query
            column.set("table", None)
        self._select.set("where", None)
        sql: str = where.this.sql(dialect="spark")
        return sql

    # ---- aggregates

    def _replace_aggregates(self, node: Any) -> None:
        for aggregate in list(node.find_all(self._exp.AggFunc)):
            if aggregate.find_ancestor(self._exp.AggFunc) is not None:
                raise _Whole
            finished = self._finished(aggregate)
            if finished is not None:
                aggregate.replace(finished)

    def _finished(self, node: Any) -> Any:
        """The aggregate over partial aggregates that stands for an aggregate; None: the same."""
        exp = self._exp
        kind = type(node).__name__
        argument = node.this
        others = {key for key, value in node.args.items() if value} - {"this", "big_int"}
        if kind not in AGGREGATES or others or argument is None:
            raise _Whole
        if isinstance(argument, exp.Distinct):
            return None  # its columns stay apart
        star = isinstance(argument, exp.Star | exp.Literal)
        columns = [*argument.find_all(exp.Column)]
        own = [column for column in columns if self._is_own(column)]
        if not own and not star:
            if kind in _LATTICE and self._is_exact(argument):
                return None  # the same, however often a row of another input is met
            raise _Whole
        if len(own) < len(columns) or (star and kind != "Count"):
            raise _Whole
        if self._joined and not star and not isinstance(argument, exp.Column):
            raise _Whole  # it could fail on a record that meets nothing
        for column in own:
            if column.name.lower() not in self._types:
                raise _Whole
        if kind in ("Sum", "Avg") and not self._is_integer(argument):
            raise _Whole
        if kind in ("Max", "Min") and not self._is_exact(argument):
            raise _Whole
        bare = argument.copy()
        for column in bare.find_all(exp.Column):
            column.set("table", None)
        return self._over_partials(kind, "*" if star else bare.sql(dialect="spark"))

    def _over_partials(self, kind: str, argument: str) -> Any:
        match kind:
            case "Count" if argument == "*":
                weight = self._start("CAST(1 AS BIGINT)", "SUM")
                if self._joined:  # a row that meets none counts, too
                    return self._parsed(f"COALESCE(SUM(COALESCE({weight}, 1)), 0)")
                return self._parsed(self._total(weight))
            case "Count":
                one = f"CAST(CASE WHEN {argument} IS NULL THEN 0 ELSE 1 END AS BIGINT)"
                return self._parsed(self._total(self._start(one, "SUM")))
            case "CountIf":
                one = f"CAST(CASE WHEN {argument} THEN 1 ELSE 0 END AS BIGINT)"
                return self._parsed(self._total(self._start(one, "SUM")))
            case "Sum":
                return self._parsed(f"SUM({self._start(f'CAST({argument} AS BIGINT)', 'SUM')})")
            case "Avg":
                total = self._start(f"CAST({argument} AS DOUBLE)", "SUM")
                one = f"CAST(CASE WHEN {argument} IS NULL THEN 0 ELSE 1 END AS BIGINT)"
                number = self._start(one, "SUM")
                return self._exp.paren(self._parsed(f"SUM({total}) / NULLIF(SUM({number}), 0)"))
            case "LogicalAnd" | "LogicalOr":
                function = "BOOL_AND" if kind == "LogicalAnd" else "BOOL_OR"
            case _:
                function = kind.upper()
        return self._parsed(f"{function}({self._start(argument, function)})")

    def _total(self, column: str) -> str:
        """A count: 0 where there is nothing to count."""
        grouped = self._select.args.get("group") is not None
        return f"SUM({column})" if grouped and not self._joined else f"COALESCE(SUM({column}), 0)"

    def _start(self, of_record: str, combined_by: str) -> str:
        """The column of a partial aggregate, as the query calls it."""
        known = {start: name for name, start in self._starts.items()}
        name = known.get((of_record, combined_by), f"{PREFIX}{len(known) + 1}")
        self._starts[name] = (of_record, combined_by)
        return f"{self._column(self._alias)}.{name}" if self._joined else name

    def _parsed(self, sql: str) -> Any:
        import sqlglot

        return sqlglot.parse_one(sql, dialect="spark")

    def _is_integer(self, node: Any) -> bool:
        return self._type(node) in INTEGERS

    def _is_exact(self, node: Any) -> bool:
        """Whether equal values are the same; of 0.0 and -0.0, either may be the greatest."""
        return is_exact(self._type(node))

    def _type(self, node: Any) -> str:
        """Of a column; empty where it is none, or its type is not known."""
        if not isinstance(node, self._exp.Column):
            return ""
        name = node.name.lower()
        if self._is_own(node):
            return self._types.get(name, "")
        tables = [self._others.get(node.table.lower(), {})] if node.table else self._others.values()
        return next((table[name] for table in tables if name in table), "")

    def _quoted(self, name: str) -> str:
        return self._column(self._named[name])

    def _column(self, name: str) -> str:
        sql: str = self._exp.to_identifier(name).sql(dialect="spark")
        return sql
