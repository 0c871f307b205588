"""SQL that Flux sites evaluate as Spark does: what of it they take, and its text for DuckDB.

A query is read as a plan, with the types of all columns (`annotations.whitebox`), and every
function in it has to be in `ON_SITES` with the types of its arguments, every relation in
`RELATIONS`. What is not there is refused with its name. `benchmarks/site_sql_on_spark.py` takes
each row of the table, and random queries, to real Spark.

Results are made as wide as Spark's where DuckDB has another type, so that what does not fit is an
error in both; of a site's error a dead letter is made (`flux_runtime.operators.unprocessable`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from annotations.whitebox.datatypes import BOOLEAN, DATE, NULL, STRING, UNKNOWN, DataType, Family
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Deduplicate,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Opaque,
    Project,
    Relation,
    Reuse,
    SetOperation,
    Sort,
    Source,
    Union,
    Unknown,
    Window,
    inputs_of,
    nodes_of,
    walk,
)
from annotations.whitebox.monotone import type_of
from annotations.whitebox.sql_dialect import UNITS
from annotations.whitebox.type_text import schema_text
from codegen.duckdb_sql import parsed, refusals

if TYPE_CHECKING:
    from sqlglot import exp

    from codegen.summaries import Summaries

RELATIONS: Final = (
    Aggregate,
    Deduplicate,
    Filter,
    Generate,
    Join,
    Project,
    Reuse,
    SetOperation,
    Sort,
    Source,
    Union,
    Window,
)
PLAIN_PATTERN: Final = re.compile(r"[A-Za-z0-9 ,;:_=/#@&%~!'\"<>-]+")
"""Regular expressions that stand for themselves, in Java and in RE2."""
DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_DURATION: Final = re.compile(
    r"INTERVAL '(\d{1,12})' (MICROSECOND|MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK)S?"
)
ARRAY_OF_TEXTS: Final = DataType(Family.ARRAY, element=STRING)
CARRIED: Final = frozenset(
    {Family.INTEGER, Family.DECIMAL, Family.FLOAT, Family.STRING, Family.BOOLEAN}
    | {Family.BINARY, Family.DATE, Family.TIMESTAMP}
)
"""Types whose values pass through a site as they are."""


def _integers(types: Sequence[DataType]) -> bool:
    return all(type_.family in (Family.INTEGER, Family.NULL) for type_ in types)


def _texts(types: Sequence[DataType]) -> bool:
    return all(type_ == STRING or type_.family is Family.NULL for type_ in types)


def duration_us(interval: object) -> int | None:
    """Microseconds of an interval of one unit, as sqlglot writes it; None of any other.

    >>> duration_us("INTERVAL '10' MINUTES"), duration_us("INTERVAL '1' MONTH")
    (600000000, None)
    """
    match = _DURATION.fullmatch(interval) if isinstance(interval, str) else None
    return None if match is None else int(match[1]) * round(UNITS[match[2].lower()] * 1_000_000)


def _shifted(call: Call, types: Sequence[DataType]) -> bool:
    """A sum or difference of integers, or of a time and a duration."""
    if _integers(types):
        return True
    by = call.arguments[-1]
    lasts = isinstance(by, Literal) and duration_us(by.value) is not None
    return lasts and len(types) == 2 and types[0].family is Family.TIMESTAMP


def _truths(types: Sequence[DataType]) -> bool:
    return all(type_ == BOOLEAN or type_.family is Family.NULL for type_ in types)


def _keys(types: Sequence[DataType]) -> bool:
    """Types whose equal values are the same, and ordered alike."""
    return all(
        type_.family in CARRIED - {Family.FLOAT, Family.BINARY} and type_.identical
        for type_ in types
        if type_.family is not Family.NULL
    )


def _alike(types: Sequence[DataType]) -> bool:
    """Of one type, or integers of any width."""
    known = [type_ for type_ in types if type_.family is not Family.NULL]
    return _keys(known) and (_integers(known) or len(set(known)) <= 1)


Accepts = Callable[[Call, Sequence[DataType]], bool]


def _of(holds: Callable[[Sequence[DataType]], bool]) -> Accepts:
    return lambda call, types: holds(types)


def _by_constant(call: Call, types: Sequence[DataType]) -> bool:
    divisor = call.arguments[1]
    number = isinstance(divisor, Literal) and isinstance(divisor.value, int) and divisor.value > 0
    return number and _integers(types)


def _case(call: Call, types: Sequence[DataType]) -> bool:
    return _truths(types[:-1:2]) and _alike([*types[1::2], types[-1]])


def _if(call: Call, types: Sequence[DataType]) -> bool:
    return _truths(types[:1]) and _alike(types[1:])


def _cast(call: Call, types: Sequence[DataType]) -> bool:
    (source,), (value,) = types, call.arguments
    if isinstance(value, Literal) and isinstance(value.value, str):
        return call.type == DATE and DAY.fullmatch(value.value) is not None
    if source.family is Family.INTEGER:
        return call.type.family is Family.INTEGER or call.type == STRING
    return source == call.type and _keys(types)


def _substring(call: Call, types: Sequence[DataType]) -> bool:
    numbers = [part.value if isinstance(part, Literal) else None for part in call.arguments[1:]]
    given = all(isinstance(n, int) and n >= 0 for n in numbers)
    return given and numbers[0] != 0 and _texts(types[:1]) and len(types) <= 3


def _one(holds: Callable[[Sequence[DataType]], bool]) -> Accepts:
    return lambda call, types: len(types) == 1 and holds(types)


def _average(call: Call, types: Sequence[DataType]) -> bool:
    narrow = all(type_.family is Family.INTEGER and type_.bits <= 32 for type_ in types)
    return narrow and call.condition is None


def _split(call: Call, types: Sequence[DataType]) -> bool:
    pattern = call.arguments[1]
    text = pattern.value if isinstance(pattern, Literal) else None
    plain = isinstance(text, str) and PLAIN_PATTERN.fullmatch(text) is not None
    return plain and len(types) == 2 and _texts(types[:1])


def _count(call: Call, types: Sequence[DataType]) -> bool:
    return not call.distinct or _keys(types)


def _anything(call: Call, types: Sequence[DataType]) -> bool:
    return True


ON_SITES: Final[Mapping[str, Accepts]] = {
    "=": _of(_alike),
    "<>": _of(_alike),
    "<=>": _of(_alike),
    "<": _of(_alike),
    "<=": _of(_alike),
    ">": _of(_alike),
    ">=": _of(_alike),
    "between": _of(_alike),
    "in": _of(_alike),
    "and": _of(_truths),
    "or": _of(_truths),
    "not": _of(_truths),
    "is null": _anything,
    "is not null": _anything,
    "+": _shifted,
    "-": _shifted,
    "*": _of(_integers),
    "negative": _of(_integers),
    "abs": _of(_integers),
    "%": _by_constant,
    "div": _by_constant,
    "case": _case,
    "if": _if,
    "coalesce": _of(_alike),
    "nvl": _of(_alike),
    "ifnull": _of(_alike),
    "nullif": _of(_alike),
    "greatest": _of(_alike),
    "least": _of(_alike),
    "cast": _cast,
    "length": _one(_texts),
    "char_length": _one(_texts),
    "trim": _one(_texts),
    "substring": _substring,
    "substr": _substring,
    "concat": _of(_texts),
    "||": _of(_texts),
    "split": _split,
    "explode": _one(lambda types: types[0] == ARRAY_OF_TEXTS),
    "count": _count,
    "count_if": _one(_truths),
    "sum": _one(_integers),
    "avg": _average,
    "min": _one(_keys),
    "max": _one(_keys),
    "bool_and": _one(_truths),
    "every": _one(_truths),
    "bool_or": _one(_truths),
    "some": _one(_truths),
    "any": _one(_truths),
    "collect_list": _one(_keys),
    "array_agg": _one(_keys),
    "row_number": _anything,
    "rank": _anything,
    "dense_rank": _anything,
}
"""Function of Spark -> whether a site gives the same for arguments of these types."""


def site_refusals(sql: str, plan: Relation) -> Iterator[str]:
    """Everything in a query that is not known to mean the same on a site.

    Args:
        sql: the query.
        plan: the same, as `annotations.whitebox.sql` reads it, with types.
    """
    try:
        tree = parsed(sql)
    except ValueError as unreadable:
        yield str(unreadable)
        return
    of_plan = [reason for node in nodes_of(plan) for reason in _of_relation(node)]
    yield from of_plan or refusals(_without_casts(tree))


def _of_relation(node: Relation) -> Iterator[str]:
    if isinstance(node, Opaque):
        yield node.reason
    elif not isinstance(node, RELATIONS):
        yield f"{type(node).__name__.lower()} is not known to mean the same"
    for expression in _expressions(node):
        for part in walk(expression):
            yield from _of_expression(part)
    for use, expressions in _compared(node):
        for expression in expressions:
            type_ = type_of(expression)
            if not _keys([type_]) and type_.family is not Family.UNKNOWN:
                yield f"{use} {schema_text(type_)} is not known to mean the same"
    if isinstance(node, Union | SetOperation):
        for columns in zip(*(source.columns for source in inputs_of(node)), strict=False):
            types = {column.type for column in columns} - {UNKNOWN, NULL}
            if len(types) > 1 and not _integers([*types]):
                shown = " and ".join(sorted(map(schema_text, types)))
                yield f"{shown} in one column is not known to mean the same"


def _expressions(node: Relation) -> Iterator[Expression]:
    match node:
        case Project(outputs=outputs) | Aggregate(outputs=outputs) | Window(outputs=outputs):
            yield from (expression for _, expression in outputs)
            if isinstance(node, Aggregate):
                yield from node.keys
            if isinstance(node, Window):
                yield from node.partition
                yield from (key.expression for key in node.order)
        case Filter(condition=condition):
            yield condition
        case Join(condition=condition) if condition is not None:
            yield condition
        case Generate(generator=generator):
            yield generator


def _compared(node: Relation) -> Iterator[tuple[str, Iterable[Expression]]]:
    """The values that a relation compares: those that are equal there have to be the same."""
    from annotations.whitebox.ir import Ref

    match node:
        case Aggregate(keys=keys):
            yield "grouping by", keys
        case Window(partition=partition, order=order):
            yield "a window over", (*partition, *(key.expression for key in order))
        case Deduplicate(keys=columns):
            yield "distinct rows of", [Ref(column) for column in columns]
        case SetOperation(columns=columns):
            yield "a set of", [Ref(column) for column in columns]


def _of_expression(part: Expression) -> Iterator[str]:
    from annotations.whitebox.ir import Ref

    match part:
        case Unknown(reason=reason):
            yield reason
        case Ref(column=column) if any(p.family is Family.INTERVAL for p in column.type.parts):
            yield f"`{column.name}`, {schema_text(column.type)}, is not known to mean the same"
        case Call(function=function, arguments=arguments):
            types = [type_of(argument) for argument in arguments]
            shown = f"{function}({', '.join(schema_text(type_) for type_ in types)})"
            accepts = ON_SITES.get(function)
            if accepts is None or part.order or part.user is not None:
                yield f"{function} is not known to mean the same"
            elif any(type_.family is Family.UNKNOWN for type_ in types):
                if accepts is not _anything:
                    yield f"{shown}: a type is not known; declare the schema"
            elif not accepts(part, types):
                yield f"{shown} is not known to mean the same"


# ---- the text for DuckDB


def site_sql(sql: str) -> str:
    """The query in DuckDB's dialect, its results as wide as Spark's.

    >>> site_sql("SELECT k, sum(v + 1) AS s FROM t WHERE v > 1 GROUP BY k")
    'SELECT k, CAST(SUM(v + CAST(1 AS INT)) AS BIGINT) AS s FROM t WHERE v > 1 GROUP BY k'
    """
    return _translated(sql, frozenset())


def site_summaries(
    summaries: Summaries,
) -> tuple[str, Mapping[str, tuple[str, str | None]]] | None:
    """The query over summaries, and interface -> (of a record, combined), in DuckDB's dialect.

    None where a column's name stands for sums of doubles in one input and of integers in another.
    """
    doubles: set[str] = set()
    others: set[str] = set()
    for summary in summaries.kept.values():
        for name, is_double in _partial_columns(summary.of_record):
            (doubles if is_double else others).add(name)
    if doubles & others:
        return None
    known = frozenset(doubles)
    texts = {
        name: (
            _translated(summary.of_record, known),
            None if summary.again is None else _translated(summary.again, known),
        )
        for name, summary in summaries.kept.items()
    }
    return _translated(summaries.query, known), texts


def _partial_columns(of_record: str) -> Iterator[tuple[str, bool]]:
    """(name, whether it is a DOUBLE) of each partial aggregate."""
    from sqlglot import exp

    for projection in parsed(of_record).find_all(exp.Alias):
        start = projection.this
        cast = isinstance(start, exp.Cast | exp.TryCast)
        yield projection.alias, cast and start.to.sql() == "DOUBLE"


def _translated(sql: str, doubles: frozenset[str]) -> str:
    """The query in DuckDB's dialect; sums of columns in `doubles` stay what they are."""
    return str(_widened(_with_durations(_with_casts(parsed(sql))), doubles).sql(dialect="duckdb"))


def _with_casts(tree: exp.Expr) -> exp.Expr:
    """Spark's CAST, which is an error where it fails, as that of DuckDB."""
    from sqlglot import exp

    def cast(node: exp.Expr) -> exp.Expr:
        if type(node) is exp.TryCast and not node.args.get("safe"):
            return exp.Cast(this=node.this, to=node.args["to"])
        return node

    return tree.transform(cast)


def _with_durations(tree: exp.Expr) -> exp.Expr:
    """Durations that are added to times, as those of DuckDB."""
    from sqlglot import exp

    def duration(node: exp.Expr) -> exp.Expr:
        us = duration_us(node.sql()) if isinstance(node, exp.Interval) else None
        return node if us is None else exp.func("TO_MICROSECONDS", exp.Literal.number(us))

    return tree.transform(duration)


def _without_casts(tree: exp.Expr) -> exp.Expr:
    """The query without casts and durations, which `ON_SITES` speaks of; TRY_CAST stays."""
    from sqlglot import exp

    def operand(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return exp.paren(node.this)
        return exp.paren(node.this) if type(node) is exp.Cast else node

    return _with_casts(tree).transform(operand)


def _widened(tree: Any, doubles: frozenset[str]) -> Any:
    """The tree with results as wide as Spark's, and numbers that are what Spark takes them for."""
    from sqlglot import exp

    node: Any
    widths: dict[Any, str] = {
        exp.Length: "INT",
        exp.RowNumber: "INT",
        exp.Rank: "INT",
        exp.DenseRank: "INT",
    }
    comparisons = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
    widths |= {exp.Sum: "BIGINT", exp.CountIf: "BIGINT"}
    for node in list(tree.find_all(exp.Avg)):
        node.replace(_average_of(node))
    for node in list(tree.find_all(exp.IntDiv)):
        wide = [exp.cast(part.copy(), "BIGINT") for part in (node.this, node.expression)]
        node.replace(exp.paren(exp.IntDiv(this=wide[0], expression=wide[1])))
    of_nothing = (exp.CountIf, exp.ArrayAgg)  # of NULLs alone, they are NULL in DuckDB
    for node in list(tree.find_all(*widths, exp.ArrayAgg)):
        if isinstance(node, exp.Sum) and node.this.name in doubles:
            continue
        outer: Any = node
        while isinstance(outer.parent, exp.Window | exp.Filter) and outer.arg_key == "this":
            outer = outer.parent
        result = outer.copy()
        if isinstance(node, of_nothing):
            nothing = exp.Literal.number(0) if isinstance(node, exp.CountIf) else exp.Array()
            result = exp.Coalesce(this=result, expressions=[nothing])
        outer.replace(exp.cast(result, widths[type(node)]) if type(node) in widths else result)
    for node in list(tree.find_all(exp.Literal)):
        if not node.is_string and _is_value(node):
            sign = isinstance(node.parent, exp.Neg)
            if isinstance((node.parent if sign else node).parent, comparisons):
                continue  # DuckDB takes it for as wide as what it is compared with
            fits = int(node.this) < 2**31 + sign
            signed: Any = node.parent if sign else node
            signed.replace(exp.cast(signed.copy(), "INT" if fits else "BIGINT"))
    return tree


def _average_of(node: Any) -> Any:
    """An average as Spark computes it: a sum of doubles by how many there are."""
    from sqlglot import exp

    argument, distinct = node.this, isinstance(node.this, exp.Distinct)
    values = argument.expressions if distinct else [argument]
    parts: list[Any] = [exp.cast(value.copy(), "DOUBLE") for value in values]
    counted: list[Any] = [value.copy() for value in values]
    if distinct:
        parts, counted = [exp.Distinct(expressions=parts)], [exp.Distinct(expressions=counted)]
    total = exp.Anonymous(this="SUM", expressions=parts)  # not widened to BIGINT
    number = exp.Nullif(this=exp.Count(this=counted[0]), expression=exp.Literal.number(0))
    return exp.paren(exp.Div(this=total, expression=number))


def _is_value(node: Any) -> bool:
    """Whether a number is a value, not a place, a length or a type's digits."""
    from sqlglot import exp

    lists = (exp.Paren, exp.Tuple, exp.Ordered, exp.Cube, exp.Rollup, exp.GroupingSets)
    places = (exp.Substring, exp.WindowSpec, exp.DataTypeParam, exp.DataType)
    parent, alone = node.parent, True
    while parent is not None and not isinstance(parent, exp.Query):
        if isinstance(parent, places) or (alone and isinstance(parent, exp.Group | exp.Order)):
            return False
        alone = alone and isinstance(parent, lists)
        parent = parent.parent
    return True
