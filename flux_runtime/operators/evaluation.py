"""SQL over Arrow tables, evaluated by the process's DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NOT_AS_WRITTEN: Final = "expression_rewriter,reorder_filter"
"""DuckDB's optimizers that change which values overflow: `v * 2 > 8` would become `v > 4`."""

_connections: list[Any] = []


def evaluate(sql: str, tables: Mapping[str, Any]) -> Any:
    """The table that a query gives of these tables.

    Raises:
        duckdb.Error: it cannot be evaluated.
    """
    connection = _connection()
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            connection.unregister(name)


def _connection() -> Any:
    """One connection per process: a site runs its operators one after another."""
    if not _connections:
        import duckdb

        config: Any = {
            "threads": 1,
            "enable_external_access": "false",
            "disabled_optimizers": NOT_AS_WRITTEN,
        }
        _connections.append(duckdb.connect(":memory:", config=config))
    return _connections[0]


def quoted(name: str) -> str:
    """A name as DuckDB reads it.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'
