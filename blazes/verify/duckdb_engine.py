"""SQL components evaluated by DuckDB, in a millisecond instead of a Spark job.

Only what is known to mean the same in both is accepted: queries that `codegen.duckdb_sql` does not
refuse, with columns whose types are in `TYPES`; anything else is refused with the reason. Beyond
that nobody has to trust it: `blazes verify` compares it with Spark on a sample of every component's
inputs before it is used, and asks Spark to confirm every refutation.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Final

from blazes.verify.operators import Operator, Schema, Unknown
from blazes.verify.records import Evaluated, Failure, Inputs, Output, canonical
from codegen.duckdb_sql import parsed, refusals

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
        columns = self._plan(operator).columns()
        unknown = [name for name, kind in columns.items() if not kind]
        if unknown:
            raise Unknown(f"the type of {operator.name}.{unknown[0]} is not known")
        return columns

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
