"""Spark SQL that DuckDB can evaluate: a query parsed, and what in it may mean something else there.

sqlglot parses the Spark SQL, and every node of the tree has to be in `SAME`. Flux sites and
`blazes verify` evaluate SQL in DuckDB; both ask here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlglot import exp

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
