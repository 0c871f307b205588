"""Aggregates in two steps: partial results are buffered instead of records.

A sealed component whose SQL aggregates one stream by (at least) the seal key is split in a query
over the records of a micro-batch and a query over what that gives; the buffer holds a row for each
group instead of one for each record.

Splitting is by a white list: a clause, function or type that is not on it keeps the query whole.
Sums and averages of floating-point numbers stay whole: their last digits depend on the order of
addition, and two steps would add in another order than one. Averages of integers are sums of
doubles in Spark too, exact up to 2^53.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

INTEGERS: Final = frozenset(
    {"tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"}
)
"""Types whose sums do not depend on the order of addition."""
CLAUSES: Final = frozenset({"expressions", "from", "where", "group", "having"})
"""Parts of a SELECT that a split query may have."""
SCALARS: Final = frozenset(
    {"Alias", "Boolean", "Case", "Cast", "Coalesce", "Column", "DataType", "Identifier", "If"}
    | {"Literal", "Lower", "Null", "Paren", "TryCast", "Upper"}
    | {"Add", "Div", "Mod", "Mul", "Neg", "Sub"}
    | {"And", "Between", "EQ", "GT", "GTE", "In", "Is", "LT", "LTE", "NEQ", "Not", "NullSafeEQ"}
    | {"Or"}
)
"""Expressions of single records that mean the same wherever they are evaluated."""
AGGREGATES: Final = frozenset(
    {"Avg", "Count", "CountIf", "LogicalAnd", "LogicalOr", "Max", "Min", "Sum"}
)
"""Aggregates that can be finished from their own results (an average: from sum and count)."""


ENVELOPE: Final = ("__producer", "__count")
ROWS: Final = "__rows"
"""What the runtime calls a record's producer, a punctuation's count, a partial's weight."""
KEPT: Final = "partial_kept"


@dataclass(frozen=True, slots=True)
class Steps:
    """A query in two steps, as SQL: over records, and over what that gives."""

    first: str
    second: str


class _Whole(Exception):  # noqa: N818 - not an error: the query is kept as it is
    """The query is not on the white list."""


def split(sql: str, *, view: str, key: Iterable[str], schema: Mapping[str, str]) -> Steps | None:
    """The query in two steps, or None where it has to stay whole.

    `view` is the input interface; `schema` its attributes and Spark SQL types. The first step is
    what `Job.seal` asks of one: it drops no rows, keeps `__producer` and `__count` apart (so that
    punctuations, which have a count, stay what they are) and says how many rows it stands for.

    >>> found = split(
    ...     "SELECT day, count(*) AS n FROM clicks GROUP BY day",
    ...     view="clicks", key=["day"], schema={"day": "INT"},
    ... )
    >>> found.second
    'SELECT day, SUM(__rows) AS n FROM clicks GROUP BY day'
    >>> found.first.partition(" FROM ")[0]
    'SELECT day, __producer, __count, COUNT(*) AS __rows'
    """
    import sqlglot

    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return None
    try:
        return _Splitter(tree, view=view, key=key, schema=schema).result()
    except _Whole:
        return None


class _Splitter:
    """One query on its way into two. Every method raises `_Whole` where it is in doubt."""

    def __init__(
        self,
        tree: Any,
        *,
        view: str,
        key: Iterable[str],
        schema: Mapping[str, str],
    ) -> None:
        from sqlglot import exp

        self._exp = exp
        self._types = {name.lower(): type.strip().lower() for name, type in schema.items()}
        self._view = view
        self._tree = tree
        self._steps: dict[str, str] = {}
        """SQL of a partial aggregate -> its column."""
        self._guarded = bool(tree.args.get("where"))
        """True where an aggregate must not look at rows that the query leaves out."""
        self._check_clauses()
        self._strip_qualifiers()
        self._groups = self._group_columns()
        missing = {name.lower() for name in key} - set(self._groups)
        if missing or any(name.startswith(("partial_", "__")) for name in self._types):
            raise _Whole

    def result(self) -> Steps:
        """Both queries."""
        exp, tree = self._exp, self._tree
        second = exp.select(*[self._projection(expression) for expression in tree.expressions])
        having = tree.args.get("having")
        if having is not None:
            second = second.having(self._finished(self._without_aliases(having.this)))
        table = self._table().sql(dialect="spark")
        by = [column.sql(dialect="spark") for column in self._groups.values()]
        second = second.from_(table, dialect="spark").group_by(*by, dialect="spark")
        states = [KEPT] if self._guarded else []
        if states:
            second = second.where(KEPT, dialect="spark")
            table = f"(SELECT *, {self._kept()} AS {KEPT} FROM {table})"
        by += [*ENVELOPE, *states]
        only = f" FILTER(WHERE {KEPT})" if states else ""
        steps = [f"{step}{only} AS {name}" for step, name in self._steps.items()]
        first = exp.select(*by, f"COUNT(*) AS {ROWS}", *steps, dialect="spark")
        first = first.from_(table, dialect="spark").group_by(*by, dialect="spark")
        return Steps(first.sql(dialect="spark"), second.sql(dialect="spark"))

    def _kept(self) -> str:
        """True for the records that the query takes, false for punctuations."""
        where = self._tree.args.get("where")
        condition = "TRUE"
        if where is not None:
            self._check_scalar(where.this)
            condition = f"COALESCE({where.this.sql(dialect='spark')}, FALSE)"
        return f"CASE WHEN {ENVELOPE[1]} < 0 THEN {condition} ELSE FALSE END"

    def _check_clauses(self) -> None:
        exp, tree = self._exp, self._tree
        if not isinstance(tree, exp.Select):
            raise _Whole
        used = {name.rstrip("_") for name, value in tree.args.items() if value}
        if not used <= CLAUSES or not {"from", "group"} <= used:
            raise _Whole
        table = tree.find(exp.From).this
        plain = isinstance(table, exp.Table) and not table.args.get("db")
        others = {name for name, value in table.args.items() if value} - {"this", "alias"}
        if not plain or others or table.name.lower() != self._view.lower():
            raise _Whole
        self._qualifiers = {"", table.alias_or_name.lower()}

    def _strip_qualifiers(self) -> None:
        for column in self._tree.find_all(self._exp.Column):
            if column.table.lower() not in self._qualifiers or column.args.get("db"):
                raise _Whole
            column.set("table", None)

    def _group_columns(self) -> dict[str, Any]:
        """Grouping columns by their lower-case name; anything but a column of the schema is out."""
        group = self._tree.args["group"]
        if {name for name, value in group.args.items() if value} != {"expressions"}:
            raise _Whole
        columns: dict[str, Any] = {}
        for column in group.expressions:
            if not isinstance(column, self._exp.Column) or column.name.lower() not in self._types:
                raise _Whole
            columns[column.name.lower()] = column
        return columns

    def _projection(self, node: Any) -> Any:
        exp = self._exp
        if isinstance(node, exp.Alias):
            return exp.alias_(self._finished(node.this).unnest(), node.args["alias"].copy())
        if not isinstance(node, exp.Column):
            raise _Whole
        return self._finished(node)

    def _finished(self, node: Any) -> Any:
        """An expression of the query over partial results instead of records."""
        name = type(node).__name__
        if isinstance(node, self._exp.AggFunc):
            return self._aggregate(node)
        if isinstance(node, self._exp.Column):
            if node.name.lower() not in self._groups:
                raise _Whole
            return node.copy()
        if name not in SCALARS or self._escaped(node):
            raise _Whole
        done = node.copy()
        for child in list(node.iter_expressions()):
            place = child.arg_key
            value = self._finished(child)
            if child.index is None:
                done.set(place, value)
            else:
                done.args[place][child.index].replace(value)
        return done

    def _aggregate(self, node: Any) -> Any:
        name = type(node).__name__
        if name not in AGGREGATES:
            raise _Whole
        argument = node.this
        others = {key for key, value in node.args.items() if value} - {"this", "big_int"}
        if others or argument is None:
            raise _Whole
        star = isinstance(argument, self._exp.Star) and name == "Count"
        if not star:
            self._check_scalar(argument)
            # An expression can fail on a record that WHERE leaves out, or on a punctuation.
            self._guarded |= not isinstance(argument, self._exp.Column | self._exp.Literal)
        if name in ("Sum", "Avg") and not self._is_integer(argument):
            raise _Whole
        return self._finish(name, "*" if star else argument.sql(dialect="spark"))

    def _finish(self, name: str, argument: str) -> Any:
        """The aggregate of the second step, after noting what the first has to compute."""
        match name:
            case "Avg":
                total = self._step(f"SUM(CAST({argument} AS DOUBLE))")
                number = self._step(f"COUNT({argument})")
                return self._parsed(f"SUM({total}) / NULLIF(SUM({number}), 0)", wrap=True)
            case "Count":
                rows = ROWS if argument == "*" else self._step(f"COUNT({argument})")
                return self._parsed(f"SUM({rows})")
            case "CountIf":
                return self._parsed(f"SUM({self._step(f'COUNT_IF({argument})')})")
            case "LogicalAnd" | "LogicalOr":
                function = "BOOL_AND" if name == "LogicalAnd" else "BOOL_OR"
            case _:
                function = name.upper()
        return self._parsed(f"{function}({self._step(f'{function}({argument})')})")

    def _step(self, sql: str) -> str:
        return self._steps.setdefault(sql, f"partial_{len(self._steps) + 1}")

    def _parsed(self, sql: str, *, wrap: bool = False) -> Any:
        import sqlglot

        query = sqlglot.parse_one(sql, dialect="spark")
        return self._exp.paren(query) if wrap else query

    def _without_aliases(self, node: Any) -> Any:
        """HAVING with the names that SELECT gives replaced by what they stand for."""
        named = {
            expression.alias.lower(): expression.this
            for expression in self._tree.expressions
            if isinstance(expression, self._exp.Alias)
        }

        def replaced(node: Any) -> Any:
            is_column = isinstance(node, self._exp.Column)
            if is_column and node.name.lower() not in self._types and node.name.lower() in named:
                meant = named[node.name.lower()].copy()
                simple = isinstance(meant, self._exp.AggFunc | self._exp.Column)
                return meant if simple else self._exp.paren(meant)
            return node

        return node.transform(replaced)

    def _check_scalar(self, node: Any) -> None:
        for descendant in node.walk():
            unknown = (
                isinstance(descendant, self._exp.Column)
                and descendant.name.lower() not in self._types
            )
            if type(descendant).__name__ not in SCALARS or unknown or self._escaped(descendant):
                raise _Whole

    def _escaped(self, node: Any) -> bool:
        """True for a string that would have to be written with escapes."""
        is_string = isinstance(node, self._exp.Literal) and node.is_string
        return is_string and ("\\" in node.this or not node.this.isprintable())

    def _is_integer(self, node: Any) -> bool:
        exp = self._exp
        match node:
            case exp.Column():
                return self._types[node.name.lower()] in INTEGERS
            case exp.Literal():
                return not node.is_string and node.this.isdigit() and len(node.this) < 19
            case exp.Paren() | exp.Neg():
                return self._is_integer(node.this)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._is_integer(node.left) and self._is_integer(node.right)
            case exp.Cast():
                return node.to.sql(dialect="spark").lower() in INTEGERS
            case exp.Case(args=args):
                results = [arg.args["true"] for arg in args["ifs"]]
                return self._are_integers([*results, args.get("default")])
            case exp.If(args=args):
                return self._are_integers([args["true"], args.get("false")])
            case exp.Coalesce():
                return self._are_integers([node.this, *node.expressions])
        return False

    def _are_integers(self, branches: Iterable[Any]) -> bool:
        """True where all branches are integers, nulls aside, and not all are nulls."""
        typed = [b for b in branches if b is not None and not isinstance(b, self._exp.Null)]
        return bool(typed) and all(map(self._is_integer, typed))

    def _table(self) -> Any:
        table = self._tree.find(self._exp.From).this.copy()
        table.set("alias", None)
        return table
