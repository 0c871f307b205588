"""What the derivation claims of functions, as conditions over rows that no row may meet.

Every claim is asked of the code that derives annotations, over columns of every type, so that what
is tried on Spark is what the derivation believes (`benchmarks/functions_on_spark.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from annotations.whitebox.datatypes import (
    BIGINT,
    BOOLEAN,
    INT,
    STRING,
    DataType,
    Family,
)
from annotations.whitebox.functions import FUNCTIONS, NONE, Direction, Kind, Null, On
from annotations.whitebox.grouping import (
    OF_THE_SET,
    aggregation_of,
    collected_by,
    direction_of,
    of_the_set,
)
from annotations.whitebox.ir import Call, Column, Expression, Literal, Ref
from annotations.whitebox.keys import parts_of, same_value, step_of
from annotations.whitebox.monotone import direction, sign_of
from annotations.whitebox.result_types import RULES, gives_null, result_type
from benchmarks.function_values import SAMPLES, Sample

CONSTANT, UP, DOWN, COLLECTS = (
    Direction.CONSTANT,
    Direction.UP,
    Direction.DOWN,
    Direction.COLLECTS,
)
LETTERS: Final = {CONSTANT: "C", UP: "U", DOWN: "D"}


@dataclass(frozen=True, slots=True)
class View:
    """Rows over which claims are tried: `pairs` of values, `moves` of values, `gains` of arrays."""

    kind: str
    one: Sample
    other: Sample


@dataclass(frozen=True, slots=True)
class Claim:
    """A condition that no row of a view may meet."""

    function: str
    says: str
    view: View
    violated: str
    """The condition."""
    shown: tuple[str, ...]
    """Expressions whose values are the counterexample."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What is claimed of an aggregate of a column `x`."""

    function: str
    sample: Sample
    sql: str
    condition: str = ""
    set_only: bool = False
    """The result does not depend on the order of rows, nor on how they are put together."""
    direction: Direction = Direction.ANY
    counts_once: bool = False
    never_null: bool = False
    assumed: bool = False
    """It holds as long as no sum leaves its type."""


# ---- SQL of expressions

_OPERATORS: Final = "= == <=> <> != < <= > >= + - * / % || div and or like rlike ilike & | ^"
INFIX: Final = frozenset(_OPERATORS.split())


def sql_of(expression: Expression, names: Mapping[str, str] | None = None) -> str:
    """The expression as Spark reads it; `names` stand in place of columns."""
    match expression:
        case Ref(column=column):
            return (names or {}).get(column.name, column.name)
        case Literal(value=None, type=type_):
            return f"CAST(NULL AS {'INT' if type_ == INT else 'STRING'})"
        case Literal(value=bool(value)):
            return str(value).upper()
        case Literal(value=int(value), type=type_):
            return f"({value}{'L' if type_ == BIGINT else ''})"
        case Literal(value=value):
            return "'" + str(value).replace("'", "\\'") + "'"
        case Call(function=name, arguments=arguments, detail=detail):
            inner = [sql_of(each, names) for each in arguments]
            if name == "cast":
                return f"CAST({inner[0]} AS {detail})"
            if name.startswith("is "):
                return f"({inner[0]} {name.upper()})"
            if name == "between" and len(inner) == 3:
                return f"({inner[0]} BETWEEN {inner[1]} AND {inner[2]})"
            if name in ("not", "!"):
                return f"({name.upper()} {inner[0]})"
            if name in INFIX and len(inner) == 2:
                return f"({inner[0]} {name.upper()} {inner[1]})"
            return f"{name}({', '.join(inner)})"
    raise ValueError(f"no SQL for {expression}")


def called(name: str, *arguments: Expression, to: Sample | None = None) -> Call:
    """A call as a front end makes it."""
    if to is not None:
        return Call("cast", arguments, to.type, True, detail=to.sql)
    type_ = result_type(name, arguments)
    return Call(name, arguments, type_, gives_null(name, arguments))


# ---- keeping values distinct

CONSTANTS: Final = (
    Literal(1, INT),
    Literal(-1, INT),
    Literal(2147483647, INT),
    Literal(9007199254740993, BIGINT),
    Literal("a", STRING),
    Literal(None, INT),
)


def distinct_claims() -> Iterator[Claim]:
    """Different values give different results; equal values have the same text."""
    for sample in SAMPLES:
        x = Ref(sample.column("x"))
        calls: list[tuple[str, Call]] = []
        for name, row in FUNCTIONS.items():
            if row.keeps is not None:
                calls += [(name, called(name, x)), (name, called(name, x, x))]
                for constant in CONSTANTS:
                    calls += [(name, called(name, x, constant)), (name, called(name, constant, x))]
        calls += [("cast", called("cast", x, to=target)) for target in SAMPLES]
        for name, call in calls:
            step = step_of(call)
            parts = parts_of(call)
            inner = step.inner if step is not None else parts[0] if parts else None
            if inner != x:
                continue
            one, other = sql_of(call), sql_of(call, {"x": "y"})
            says = f"{one} tells values of {sample.sql} apart"
            view = View("pairs", sample, sample)
            violated = f"NOT (x <=> y) AND x IS NOT NULL AND y IS NOT NULL AND {one} <=> {other}"
            yield Claim(name, says, view, violated, ("x", "y", one, other))
            if step is not None and not step.name:
                text, before = f"CAST({one} AS STRING)", "CAST(x AS STRING)"
                says = f"{one} leaves the text of {sample.sql} as it is"
                yield Claim(name, says, view, f"NOT ({text} <=> {before})", ("x", one))
    for one_of, other_of in itertools.product(SAMPLES, repeat=2):
        if same_value(one_of.type, other_of.type):
            says = f"equal values of {one_of.sql} and {other_of.sql} have the same text"
            x, y = (_key_text(each, one_of.type) for each in "xy")
            violated = f"x = y AND NOT ({x} COLLATE UTF8_BINARY <=> {y})"
            yield Claim("=", says, View("pairs", one_of, other_of), violated, ("x", "y", "x = y"))


def _key_text(value: str, type_: DataType) -> str:
    """The text of a key, as `flux_runtime.spark.key_columns` gives it."""
    if type_.family is Family.FLOAT:
        value = f"CASE WHEN {value} = 0 THEN abs({value}) ELSE {value} END"
    return f"CAST({value} AS STRING)"


# ---- directions


def _moved(result: str, later: str, way: Direction, type_: DataType) -> str:
    """That the later result is not where the direction says."""
    if type_ == BOOLEAN:
        if way is UP:
            return f"{result} AND NOT coalesce({later}, FALSE)"
        return f"NOT {result} AND coalesce({later}, TRUE)"
    sign = ">" if way is UP else "<"
    return f"{result} IS NOT NULL AND ({later} IS NULL OR {result} {sign} {later})"


ALIKE_NUMBERS: Final = frozenset({"tinyint", "smallint", "number", "decimal28"})
"""Samples that are tried with themselves and constants only: others are like them."""


MIRRORED: Final = frozenset(("<", "<=", "nvl", "ifnull", "least"))
"""Functions that are another one the other way round: tried with columns of one type only."""


def _places(name: str, on: On, arity: int) -> Iterator[tuple[Sample, Sample, list[Expression]]]:
    """Samples of the columns `a` and `b`, and arguments of a call."""
    extra: list[Literal] = []
    if on is On.TRUTH_CONSTANT:
        extra = [Literal(True, BOOLEAN), Literal(False, BOOLEAN), Literal(1, INT)]
    elif on in (On.SCALED, On.FITTING):
        extra = [Literal(n, INT) for n in (3, -3, 0, 1)] + [Literal(2**62, BIGINT)]
    elif on is On.ALIKE:
        extra = [Literal("2020-01-01", STRING), Literal(2, INT), Literal("5", STRING)]
    for one in SAMPLES:
        a, c = one.column("a"), one.column("c")
        firm = one.column("a", nullable=False)
        if arity == 1:
            yield one, one, [Ref(a)]
            yield one, one, [Ref(firm)]
            continue
        if arity == 3:
            yield one, one, [Ref(c), Ref(a), Ref(one.column("b"))]
            yield one, one, [Ref(a), Ref(c), Ref(one.column("b"))]
            continue
        for literal in extra:
            yield one, one, [Ref(a), literal]
            yield one, one, [literal, Ref(a)]
        for other in SAMPLES:
            if one is not other and (name in MIRRORED or ALIKE_NUMBERS & {one.name, other.name}):
                continue
            yield one, other, [Ref(a), Ref(other.column("b"))]
            if name in ("greatest", "least", "coalesce", "nvl", "ifnull"):
                yield one, other, [Ref(firm), Ref(other.column("b", nullable=False))]
                yield one, other, [Ref(firm), Ref(other.column("b"))]


def direction_claims() -> Iterator[Claim]:
    """Which way results move with their arguments."""
    for name, row in FUNCTIONS.items():
        if row.moves is None or row.moves.on is On.COLLECTION:
            continue
        several = name in OF_SEVERAL or len(row.moves.ways) > 1
        arity = len(row.moves.ways) if len(row.moves.ways) > 2 else 2 if several else 1
        for one, other, arguments in _places(name, row.moves.on, arity):
            yield from _directions(name, one, other, called(name, *arguments))
    for one, target in itertools.product(SAMPLES, repeat=2):
        call = called("cast", Ref(one.column("a")), to=target)
        yield from _directions("cast", one, one, call)


def _directions(name: str, one: Sample, other: Sample, call: Call) -> Iterator[Claim]:
    columns = {each.column.name: each.column for each in call.arguments if isinstance(each, Ref)}
    ways = (CONSTANT, UP, DOWN)
    for a, b in itertools.product(ways, ways if "b" in columns else (CONSTANT,)):
        if a is b is CONSTANT or (one is not other and CONSTANT not in (a, b)):
            continue
        moving = {columns["a"]: a} | ({columns["b"]: b} if "b" in columns else {})
        found = direction(call, {c: way for c, way in moving.items() if way is not CONSTANT})
        if found not in (UP, DOWN):
            continue
        before, after = sql_of(call), sql_of(call, {"a": "a2", "b": "b2"})
        firm = [f"{c} IS NOT NULL AND {c}2 IS NOT NULL AND " for c in ("a", "b")
                if c in columns and not columns[c].nullable]  # fmt: skip
        chosen = f"wa = '{LETTERS[a]}' AND " + (
            f"wb = '{LETTERS[b]}' AND " if "b" in columns else ""
        )
        violated = chosen + "".join(firm) + f"({_moved(before, after, found, call.type)})"
        moves = f"a {one.sql} {a.value}" + (f", b {other.sql} {b.value}" if "b" in columns else "")
        shown = ("a", "a2", *(("b", "b2") if "b" in columns else ()), before, after)
        says = f"{before} is {found.value} with {moves}"
        yield Claim(name, says, View("moves", one, other), violated, shown)


def gain_claims() -> Iterator[Claim]:
    """What functions of a collection do while it gains elements (`a` becomes `a2`)."""
    for sample in SAMPLES:
        if sample.type.family in (Family.ARRAY, Family.STRUCT, Family.INTERVAL):
            continue
        array = Column("a", DataType(Family.ARRAY, element=sample.type), nullable=False)
        rest: dict[str, tuple[Expression, ...]] = {
            "array_contains": (Ref(sample.column("c")),),
            "array_union": (Ref(array),),
        }
        for name, row in FUNCTIONS.items():
            if row.moves is None or row.moves.on not in (On.COLLECTION, On.COLUMN):
                continue
            call = called(name, Ref(array), *rest.get(name, ()))
            found = direction(call, {array: COLLECTS})
            before, after = sql_of(call), sql_of(call, {"a": "a2"})
            says = f"{before} is {found.value} with a collection of {sample.sql}"
            view = View("gains", sample, sample)
            if found is COLLECTS:
                violated = f"size(array_except({before}, {after})) > 0"
                yield Claim(name, says, view, violated, ("a", "a2", before, after))
            elif found in (UP, DOWN):
                violated = _moved(before, after, found, _kind(name))
                yield Claim(name, says, view, violated, ("a", "a2", before, after))


def _kind(name: str) -> DataType:
    return INT if name in ("size", "cardinality", "array_size") else BOOLEAN


# ---- signs, NULL, time


OF_SEVERAL: Final = frozenset(("and", "or", "=", "==", "greatest", "least", "+", "*"))
"""Functions whose one way is that of all arguments."""
UNARY: Final = frozenset(
    ("not", "!", "negative", "positive", "abs", "lower", "upper", "isnull", "isnotnull")
)


TIMES: Final = frozenset(
    ("hour", "minute", "second", "day", "dayofmonth", "month", "quarter", "dayofweek")
) | {"dayofyear", "weekofyear", "weekday"}


def _takes(name: str, sample: Sample) -> bool:
    """False for what Spark refuses, or casts first."""
    family = sample.type.family
    if name in TIMES:
        return family in (Family.DATE, Family.TIMESTAMP)
    if name.startswith("is ") and not name.endswith("null"):
        return family is Family.BOOLEAN
    if "length" in name or name == "len":
        return family in (Family.STRING, Family.BINARY)
    if name == "bit_count":
        return family in (Family.INTEGER, Family.BOOLEAN)
    return name != "named_struct"


def value_claims() -> Iterator[Claim]:
    """What is never negative, and what is not NULL."""
    for sample in SAMPLES:
        view = View("pairs", sample, sample)
        for nullable in (True, False):
            x = Ref(sample.column("x", nullable=nullable))
            y = Ref(sample.column("y", nullable=nullable))
            firm = "" if nullable else "x IS NOT NULL AND y IS NOT NULL AND "
            for name, row in FUNCTIONS.items():
                if row.kind is not Kind.SCALAR:
                    continue
                if not _takes(name, sample):
                    continue
                unary = name in UNARY or name.startswith("is ") or row.never_negative is not NONE
                arguments = (x,) if unary else (x, y, x) if name == "between" else (x, y)
                call = called(name, *arguments)
                one = sql_of(call)
                if nullable and unary and sign_of(call) == 1:
                    says = f"{one} of {sample.sql} is never negative"
                    yield Claim(name, says, view, f"{one} < 0", ("x", one))
                if row.null is not Null.PERHAPS and not call.nullable:
                    says = f"{one} of {sample.sql} is not NULL"
                    if not nullable:
                        says += " where its arguments are not"
                    yield Claim(name, says, view, f"{firm}{one} IS NULL", ("x", "y", one))
        wide = called("abs", Call("cast", (Ref(sample.column("x")),), BIGINT, detail="BIGINT"))
        if sign_of(wide) == 1:
            one = sql_of(wide)
            yield Claim("abs", f"{one} of {sample.sql} is never negative", view, f"{one} < 0",
                        ("x", one))  # fmt: skip


TIME_CALLS: Final = {
    "window": [f"window(x, '{text}').{part}" for part in ("start", "end")
               for text in ("1 hour", "7 minutes", "1 day")],
    "window_time": ["window_time(window(x, '1 hour'))"],
    "date_trunc": [f"date_trunc('{unit}', x)" for unit in (
        "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")],
    "time_bucket": [f"time_bucket({size}, x)" for size in (
        "INTERVAL '1' HOUR", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "INTERVAL '7' MINUTE")],
}  # fmt: skip


def time_claims() -> Iterator[Claim]:
    """What never decreases with an event time."""
    for name, row in FUNCTIONS.items():
        if not row.rises_with_time:
            continue
        for sample in SAMPLES:
            if sample.name not in ("instant", "zoneless"):
                continue
            for text in TIME_CALLS.get(name, [f"{name}(x)"]):
                later = text.replace("(x", "(y").replace(" x)", " y)")
                says = f"{text} never decreases with x {sample.sql}"
                shown = ("x", "y", text, later)
                view = View("pairs", sample, sample)
                yield Claim(name, says, view, f"x <= y AND {text} > {later}", shown)


# ---- aggregates

SPECIAL: Final[Mapping[str, Sequence[str]]] = {
    "percentile": ("percentile(x, 0.3)",),
    "percentile_cont": ("percentile_cont(0.3) WITHIN GROUP (ORDER BY x)",),
    "percentile_disc": ("percentile_disc(0.3) WITHIN GROUP (ORDER BY x)",),
    "regr_count": ("regr_count(x, x)",),
    "bitmap_construct_agg": ("bitmap_construct_agg(bitmap_bit_position(x))",),
    "count": ("count(x)", "count(*)", "count(DISTINCT x)"),
    "max_by": ("max_by(x, x)",),
    "min_by": ("min_by(x, x)",),
    "sum": ("sum(x)", "sum(DISTINCT x)"),
    "max": ("max(x)", "max(x) FILTER (WHERE x IS NOT NULL)"),
    "listagg": ("listagg(x, ',')",),
    "string_agg": ("string_agg(x, ',')",),
}


def aggregate_claims() -> Iterator[Grouped]:
    """What is claimed of aggregates of a column `x`, of every type that Spark may take."""
    for name, row in FUNCTIONS.items():
        aggregation = row.aggregation
        if aggregation is None:
            continue
        for sample in SAMPLES:
            call = called(name, Ref(sample.column("x")))
            for sql in SPECIAL.get(name, (f"{name}(x)",)):
                yield Grouped(
                    name,
                    sample,
                    sql,
                    set_only=of_the_set(call, aggregation),
                    direction=direction_of(call, aggregation),
                    counts_once=not aggregation.duplicates or "DISTINCT" in sql,
                    never_null=row.null is Null.NEVER,
                    assumed=sample.type in aggregation.assumed,
                )
    for sample in SAMPLES:
        x = Ref(sample.column("x"))
        for outer in sorted(OF_THE_SET):
            for inner in ("collect_list", "collect_set"):
                arguments = (called(inner, x), *([x] if outer == "array_contains" else []))
                if collected_by(called(outer, *arguments)) is not None:
                    constant = ", max(x)" if outer == "array_contains" else ""
                    sql = f"{outer}({inner}(x){constant})"
                    yield Grouped(outer, sample, sql, set_only=True)
        wide = Call("cast", (x,), BIGINT, detail="BIGINT")
        inside = {"abs(x)": called("abs", x), "length(x)": called("length", x),
                  "abs(CAST(x AS BIGINT))": called("abs", wide),
                  "bit_count(x)": called("bit_count", x)}  # fmt: skip
        for name in ("sum", "try_sum"):
            for text, argument in inside.items():
                call = called(name, argument)
                aggregation = aggregation_of(call)
                assert aggregation is not None
                way = direction_of(call, aggregation)
                yield Grouped(name, sample, f"{name}({text})", direction=way,
                              set_only=of_the_set(call, aggregation) and way is UP)  # fmt: skip


def typed_calls() -> Iterator[tuple[Call, tuple[Sample, ...]]]:
    """Calls whose result type is claimed, of one or two columns."""
    chosen = [s for s in SAMPLES if s.type.family is not Family.INTERVAL]
    for name in RULES:
        if name not in FUNCTIONS or FUNCTIONS[name].kind not in (Kind.SCALAR, Kind.AGGREGATE):
            continue
        for one in chosen:
            yield called(name, Ref(one.column("x"))), (one,)
            for other in chosen if name in OF_TWO else ():
                yield called(name, Ref(one.column("x")), Ref(other.column("y"))), (one, other)


OF_TWO: Final = frozenset(
    ("+", "-", "*", "/", "%", "div", "coalesce", "greatest", "nvl", "concat", "||", "nullif", "mod")
)
