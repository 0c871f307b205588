"""Settings of Spark with which a query means something else than what is read of it."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

READ_WITH: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.analyzer.failAmbiguousSelfJoin": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.ansi.relationPrecedence": "false",
        "spark.sql.caseSensitive": "false",
        "spark.sql.groupByOrdinal": "true",
        "spark.sql.legacy.ctePrecedencePolicy": "CORRECTED",
        "spark.sql.legacy.parser.havingWithoutGroupByAsWhere": "false",
        "spark.sql.legacy.scalarSubqueryAllowGroupByNonEqualityCorrelatedPredicate": "false",
        "spark.sql.legacy.scalarSubqueryCountBugBehavior": "false",
        "spark.sql.legacy.setopsPrecedence.enabled": "false",
        "spark.sql.orderByOrdinal": "true",
        "spark.sql.parser.quotedRegexColumnNames": "false",
        "spark.sql.retainGroupColumns": "true",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        "spark.sql.streaming.statefulOperator.allowMultiple": "true",
        "spark.sql.streaming.statefulOperator.checkCorrectness.enabled": "true",
        "spark.sql.streaming.unsupportedOperationCheck": "true",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
    }
)
"""Setting -> its value where queries mean what is read of them; Spark's default.

With another value, names, groups and operators may be others, or rows may be dropped by another
watermark. What changes the value of a function for a single record does not stand here: claims
about functions are tried in every mode (`benchmarks/functions_on_spark.py`).
"""


def unread(conf: Mapping[str, object]) -> str | None:
    """The reason why queries under these settings are not read; None where they are.

    >>> unread({"spark.sql.groupByOrdinal": False})
    '`spark.sql.groupByOrdinal` is `false`, and queries are read with `true`'
    """
    for name, value, read_with in differing(conf, READ_WITH):
        return f"`{name}` is `{value.lower()}`, and queries are read with `{read_with}`"
    return None


def differing(
    conf: Mapping[str, object], values: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """(setting, its value, the value there) where these are not one."""
    for name, value in values.items():
        given = str(conf.get(name, value)).strip()
        if given.lower() != value.lower():
            yield name, given, value


class Settings(UserDict[str, str]):
    """The settings of a session.

    A query may run under any value that a setting has had by then or gets before the query starts,
    so one value under which queries are not read counts from then on.

    >>> settings = Settings({"spark.sql.caseSensitive": "true"})
    >>> settings["spark.sql.caseSensitive"] = "false"
    >>> settings.unread
    '`spark.sql.caseSensitive` is `true`, and queries are read with `false`'
    """

    unread: str | None = None
    """The reason why the session's queries are not read; None where they are."""

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self.unread = self.unread or unread({name: value})
