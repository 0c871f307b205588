"""SQL components evaluated by DuckDB, in a millisecond instead of a Spark job.

Only what is known to mean the same in both is accepted: sqlglot parses the Spark SQL, every node
of the tree has to be in `SAME` and every column type in `TYPES`; anything else is refused with the
reason. Beyond that nobody has to trust it: `blazes verify` compares it with Spark on a sample of
every component's inputs before it is used, and asks Spark to confirm every refutation.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from blazes.verify.operators import Operator, Schema, Unknown
from blazes.verify.records import Evaluated, Failure, Inputs, Output, canonical

if TYPE_CHECKING:
    from sqlglot import exp

TYPES: Final[Mapping[str, str]] = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INTEGER",
    "INTEGER": "INTEGER",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "DOUBLE": "DOUBLE",
    "STRING": "VARCHAR",
    "DATE": "DATE",
}
"""Spark SQL type -> DuckDB's. Timestamps (time zones), decimals (scales) and FLOAT are left out."""
SPARK_TYPES: Final[Mapping[str, str]] = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "HUGEINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING",
    "DATE": "DATE",
}
"""DuckDB type of a result -> Spark's. A sum of integers is HUGEINT there, BIGINT in Spark."""
_SAME: Final = """
Select From Table TableAlias Identifier Column Alias Star Paren Tuple Literal Boolean Null
Where Group Having Distinct Order Ordered Join Subquery CTE With Union Intersect Except Exists
In Between Is Not And Or EQ NEQ LT LTE GT GTE NullSafeEQ Add Sub Mul Neg Mod IntDiv
Case If Coalesce Nullif Greatest Least Abs Cast DataType
Count CountIf Sum Min Max Avg ArrayAgg First LogicalAnd LogicalOr Window RowNumber Rank DenseRank
Explode RegexpExtractAll RegexpSplit Lower Upper Length Trim Substring Concat DPipe
"""
SAME: Final = frozenset(_SAME.split())
"""Names of sqlglot's nodes that mean the same in both, within the limits that `refusals` sets."""
BIGINT_MAX: Final = 2**63 - 1
CACHED: Final = 50_000


def installed() -> bool:
    """Whether DuckDB is there."""
    return importlib.util.find_spec("duckdb") is not None


def refusal(operator: Operator) -> str | None:
    """Why DuckDB may not stand in for Spark here; None where it may."""
    if operator.code is None or operator.code.sql is None:
        return "it is not SQL"
    if not installed():
        return "duckdb is not installed"
    for interface, schema in operator.schemas.items():
        for name, kind in schema.items():
            if kind.strip().upper() not in TYPES:
                return f"{interface}.{name} is of type {kind}"
    try:
        tree = parsed(operator.code.sql)
    except ValueError as unreadable:
        return str(unreadable)
    return next(refusals(tree), None)


def parsed(sql: str) -> exp.Expr:
    """The tree of a Spark SQL query; ValueError where sqlglot cannot read it."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(sql, read="spark")
    except SqlglotError as error:
        raise ValueError(f"sqlglot cannot read it: {str(error).splitlines()[0]}") from None
    if len(trees) != 1 or trees[0] is None:
        raise ValueError("it is not one query")
    return trees[0]


def refusals(tree: exp.Expr) -> Iterator[str]:
    """Everything in a query that is not known to mean the same in DuckDB."""
    from sqlglot import exp

    for node in tree.walk():
        name = type(node).__name__
        if name not in SAME:
            yield f"{node.sql(dialect='spark')[:40]} ({name}) is not known to mean the same"
        match node:
            case exp.Literal() if not node.is_string and not node.is_int:
                yield f"{node.this} is a decimal"
            case exp.Mod() | exp.IntDiv():
                divisor = node.expression
                if not (isinstance(divisor, exp.Literal) and divisor.is_int and int(divisor.this)):
                    yield "division by what may be zero is an error in Spark"
            case exp.Cast() if not isinstance(node.this, exp.Literal):
                yield "casts of columns differ"
            case exp.Substring():
                start = node.args.get("start")
                if not (isinstance(start, exp.Literal) and int(start.this) > 0):
                    yield "substring from a place that is not a positive number"
            case exp.RegexpExtractAll() | exp.RegexpSplit():
                pattern = node.expression
                if not (isinstance(pattern, exp.Literal) and "\\" not in pattern.this):
                    yield "a regular expression that is not plain"
    if isinstance(tree, exp.Query) and not all(tree.named_selects):
        yield "an output column has no name"


class DuckDBEngine:
    """Evaluates SQL components in memory, one thread, nothing outside."""

    name: Final = "DuckDB"

    def __init__(self) -> None:
        self._plans: dict[str, _Plan] = {}

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        """The output for each of the inputs."""
        plan = self._plan(operator)
        return [plan.evaluate(inputs) for inputs in many]

    def schema(self, operator: Operator) -> Schema:
        """The columns of the output with their Spark types; Unknown where one is not known."""
        found = self._plan(operator).columns()
        unknown = [name for name, kind in found.items() if not kind]
        if unknown:
            raise Unknown(f"the type of {operator.name}.{unknown[0]} is not known")
        return found

    def _plan(self, operator: Operator) -> _Plan:
        plan = self._plans.get(operator.name)
        if plan is None or plan.operator is not operator:
            plan = self._plans[operator.name] = _Plan(operator)
        return plan


class _Plan:
    """One component's query and its tables."""

    def __init__(self, operator: Operator) -> None:
        import duckdb

        self.operator = operator
        assert operator.code is not None
        assert operator.code.sql is not None
        self.query = parsed(operator.code.sql).sql(dialect="duckdb", identify=True)
        config: Any = {"threads": 1, "enable_external_access": "false"}
        self._connection = duckdb.connect(":memory:", config=config)
        self._fills: dict[str, str] = {}
        for interface, schema in operator.schemas.items():
            table = _quoted(interface)
            kinds = [TYPES[kind.strip().upper()] for kind in schema.values()]
            columns = zip(map(_quoted, schema), kinds, strict=True)
            self._connection.execute(
                f"CREATE TABLE {table} ({', '.join(f'{n} {k}' for n, k in columns)})"
            )
            lists = ", ".join(f"unnest(?::{kind}[])" for kind in kinds)
            self._fills[interface] = f"INSERT INTO {table} SELECT {lists}"
        self.evaluate = functools.lru_cache(CACHED)(self._evaluate)

    def columns(self) -> dict[str, str]:
        """Column -> Spark type, empty where there is none."""
        rows = self._connection.execute(f"DESCRIBE {self.query}").fetchall()
        return {name: SPARK_TYPES.get(kind, "") for name, kind, *_ in rows}

    def _evaluate(self, inputs: Inputs) -> Evaluated:
        import duckdb

        try:
            for interface, rows in inputs:
                self._connection.execute(f"DELETE FROM {_quoted(interface)}")
                if rows:
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    self._connection.execute(self._fills[interface], columns)
            result = self._connection.execute(self.query)
            names = tuple(column[0] for column in result.description or ())
            rows_out = tuple(tuple(map(canonical, row)) for row in result.fetchall())
        except duckdb.Error as error:
            return Failure(str(error).splitlines()[0])
        for row in rows_out:
            for value in row:
                if isinstance(value, int) and abs(value) > BIGINT_MAX:
                    return Failure("a sum does not fit into a BIGINT")
        return Output(names, rows_out)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
