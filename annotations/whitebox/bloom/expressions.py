"""The block of a rule: rows in, tuples out, as expressions of the representation.

Ruby's methods are understood by `METHODS` and `OPERATORS`; anything else is `Unknown`, with its
name and place, so that the path is taken for the worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.tree import (
    Array,
    Assign,
    Block,
    Branch,
    Const,
    Expr,
    Hash,
    Index,
    Name,
    Operation,
    Pair,
    Send,
    Statement,
    Symbol,
    Value,
)
from annotations.whitebox.datatypes import BIGINT, BOOLEAN, DOUBLE, STRING, VALUE, DataType
from annotations.whitebox.ir import Call, Column, Expression, Lambda, Literal, Ref, Unknown
from annotations.whitebox.monotone import type_of

Row: TypeAlias = tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """The row of a timer: each of its columns is a reading of the clock."""

    columns: tuple[str, ...]


Environment: TypeAlias = Mapping[str, Row | Clock | Expression]
"""What the names of a block stand for: rows and values."""


@dataclass(frozen=True, slots=True)
class Result:
    """One way through a block: a tuple, for the rows for which all conditions hold."""

    conditions: tuple[Expression, ...]
    values: tuple[tuple[str, Expression], ...] | None
    """Name and value of each column; None: one value that is a tuple itself, in `whole`."""
    whole: Expression | None = None

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Everything in it."""
        values = tuple([value for _, value in self.values or ()])
        return (*self.conditions, *([] if self.whole is None else [self.whole]), *values)


class Reader:
    """Expressions of one rule."""

    def __init__(
        self,
        out: Findings,
        place: Callable[[int], Position],
        is_collection: Callable[[Expr], bool],
    ) -> None:
        self.out, self.place, self.is_collection = out, place, is_collection

    # ---- blocks

    def results(self, body: tuple[Statement, ...], environment: Environment) -> Iterator[Result]:
        """The results of a block for a row: one for each way through it."""
        yield from self._run(list(body), environment, ())

    def _run(
        self, body: list[Statement], environment: Environment, conditions: tuple[Expression, ...]
    ) -> Iterator[Result]:
        last = len(body) - 1
        for at, statement in enumerate(body):
            match statement:
                case Assign(name=name, value=value):
                    environment = {**environment, name: self.value(value, environment)}
                case Branch(condition=condition, then=then, otherwise=otherwise) if at == last:
                    test = self.condition(condition, environment)
                    yield from self._run(list(then), environment, (*conditions, test))
                    if otherwise:
                        failed = Call("not", (test,), BOOLEAN)
                        yield from self._run(list(otherwise), environment, (*conditions, failed))
                case Branch(at=where):
                    # Only the last value of a block counts; this one changes names at most.
                    environment = {**environment, **self._maybe(statement, environment, where)}
                case _ if at == last:
                    yield from self._tuple(statement, environment, conditions)

    def _maybe(self, branch: Branch, environment: Environment, at: int) -> Mapping[str, Expression]:
        """Names that a branch in the middle of a block may give a value."""
        names = {
            statement.name
            for statement in (*branch.then, *branch.otherwise)
            if isinstance(statement, Assign)
        }
        reason = "a value that only one branch of a block gives"
        columns = tuple(
            Ref(column) for row in environment.values() if isinstance(row, tuple) for column in row
        )
        return {name: Unknown(reason, columns, self.place(at)) for name in names}

    def _tuple(
        self, expression: Expr, environment: Environment, conditions: tuple[Expression, ...]
    ) -> Iterator[Result]:
        match expression:
            case Value(value=None):
                return
            case Array(items=items):
                yield Result(conditions, tuple(self._columns(items, environment)))
                return
            case Name(text=name) if isinstance(environment.get(name), tuple):
                row = environment[name]
                assert isinstance(row, tuple)
                yield Result(conditions, tuple((column.name, Ref(column)) for column in row))
                return
            case Operation(operator="if", operands=(test, then, otherwise)):
                holds = self.condition(test, environment)
                yield from self._tuple(then, environment, (*conditions, holds))
                fails = Call("not", (holds,), BOOLEAN)
                yield from self._tuple(otherwise, environment, (*conditions, fails))
                return
        yield Result(conditions, None, self.value(expression, environment))

    def _columns(
        self, items: tuple[Expr, ...], environment: Environment
    ) -> Iterator[tuple[str, Expression]]:
        for at, item in enumerate(items):
            value = self.value(item, environment)
            match item:
                case Send(method=name, arguments=(), block=None) | Name(text=name):
                    yield name, value
                case _:
                    yield f"c{at}", value

    # ---- expressions

    def condition(self, expression: Expr, environment: Environment) -> Expression:
        """A truth value; `||` is OR there, not a default."""
        match expression:
            case Operation(operator="||", operands=operands):
                parts = tuple([self.condition(operand, environment) for operand in operands])
                return Call("or", parts, BOOLEAN)
            case Operation(operator="&&" | "!" as operator, operands=operands):
                parts = tuple([self.condition(operand, environment) for operand in operands])
                return Call(OPERATORS[operator], parts, BOOLEAN)
        return self.value(expression, environment)

    def value(self, expression: Expr, environment: Environment) -> Expression:
        """A value."""
        match expression:
            case Value(value=value, embeds=False):
                return Literal(value, _literal(value), self.place(expression.at))
            case Value():
                return Call("concat", self._everything(environment), STRING)
            case Symbol(text=text) | Const(text=text):
                return Literal(text, STRING, self.place(expression.at))
            case Name():
                return self._name(expression, environment)
            case Operation():
                return self._operation(expression, environment)
            case Array(items=items):
                return Call("struct", tuple([self.value(item, environment) for item in items]))
            case Hash(items=items):
                return Call("map", tuple([self.value(item, environment) for item in items]))
            case Pair(left=left, right=right):
                return Call(
                    "struct", (self.value(left, environment), self.value(right, environment))
                )
            case Index():
                return self._index(expression, environment)
            case Send():
                return self._send(expression, environment)

    def _everything(self, environment: Environment) -> tuple[Expression, ...]:
        columns: list[Expression] = []
        for value in environment.values():
            if isinstance(value, tuple):
                columns += [Ref(column) for column in value]
            elif isinstance(value, Clock):
                columns.append(Call("current_timestamp"))
            else:
                columns.append(value)
        return tuple(columns)

    def _name(self, name: Name, environment: Environment) -> Expression:
        result = environment.get(name.text)
        if isinstance(result, tuple):
            return Call("struct", tuple([Ref(column) for column in result]))
        if isinstance(result, Clock):
            return Call("current_timestamp", position=self.place(name.at))
        if result is not None:
            return result
        if name.text in CHANCE:
            return Call(CHANCE[name.text], position=self.place(name.at))
        if name.text in OWN:
            return Literal(name.text, STRING, self.place(name.at))
        if self.is_collection(name):
            return self._peeks(name, environment)
        reason = f"`{name.text}` is neither a row of the block nor a value of it"
        return Unknown(reason, self._everything(environment), self.place(name.at))

    def _peeks(self, expression: Expr, environment: Environment) -> Expression:
        name = expression.text if isinstance(expression, Name) else "a collection"
        reason = f"the block looks into `{name}`, which only a join or `notin` may do"
        return Unknown(reason, self._everything(environment), self.place(expression.at))

    def _operation(self, expression: Operation, environment: Environment) -> Expression:
        position, operands = self.place(expression.at), expression.operands
        match expression.operator:
            case "if":
                test = self.condition(operands[0], environment)
                values = [self.value(operand, environment) for operand in operands[1:]]
                return Call("case", (test, *values), type_of(values[0]), position=position)
            case "||":
                # Of a value that may be absent, the default.
                parts = tuple([self.value(operand, environment) for operand in operands])
                return Call("coalesce", parts, type_of(parts[0]), position=position)
        values = [self.value(operand, environment) for operand in operands]
        name = OPERATORS[expression.operator]
        if name not in ARITHMETIC:
            return Call(name, tuple(values), BOOLEAN, position=position)
        numbers = [type_of(value) for value in values]
        if not all(number.numeric for number in numbers):
            # Of texts, `+` and `*` put together and repeat, which keeps no order.
            return Call("concat", tuple(values), VALUE, position=position)
        kind = DOUBLE if DOUBLE in numbers or name == "/" else numbers[0]
        return Call(name, tuple(values), kind, position=position)

    def _index(self, expression: Index, environment: Environment) -> Expression:
        receiver, arguments = expression.receiver, expression.arguments
        row = environment.get(receiver.text) if isinstance(receiver, Name) else None
        if isinstance(row, tuple) and len(arguments) == 1:
            match arguments[0]:
                case Value(value=int() as at) if -len(row) <= at < len(row):
                    return Ref(row[at], self.place(expression.at))
                case Symbol(text=name):
                    return self._column(row, name, expression.at)
        values = [self.value(operand, environment) for operand in (receiver, *arguments)]
        return Call("element_at", tuple(values), position=self.place(expression.at))

    def _column(self, row: Row, name: str, at: int) -> Expression:
        for column in row:
            if column.name == name:
                return Ref(column, self.place(at))
        near = self.out.suggest(name, [column.name for column in row])
        known = ", ".join(column.name for column in row)
        message = f"there is no column `{name}`{near}"
        self.out.add("BLZ091", message, self.place(at), f"The columns are {known}.")
        return Unknown(f"there is no column `{name}`", (), self.place(at))

    def _send(self, expression: Send, environment: Environment) -> Expression:
        receiver, method, position = (
            expression.receiver,
            expression.method,
            self.place(expression.at),
        )
        row = environment.get(receiver.text) if isinstance(receiver, Name) else None
        if isinstance(row, Clock):
            return Call("current_timestamp", position=position)
        if isinstance(row, tuple) and expression.block is None:
            result = self._of_row(row, expression)
            if result is not None:
                return result
        if method in CHANCE and (receiver is None or isinstance(receiver, Const)):
            return Call(CHANCE[method], position=position)
        if receiver is None and method in OWN:
            return Literal(method, STRING, position)
        own = isinstance(receiver, Name) and receiver.text in environment
        if receiver is not None and not own and self.is_collection(receiver):
            return self._peeks(receiver, environment)
        if receiver is None or method not in METHODS:
            values = [] if receiver is None else [self.value(receiver, environment)]
            values += [self.value(argument, environment) for argument in expression.arguments]
            near = self.out.suggest(method, METHODS) if receiver is not None else ""
            reason = f"`{method}` is no method whose meaning is known{near}"
            return Unknown(reason, tuple(values), position)
        if method == "nil?":
            return Call("isnull", (self.value(receiver, environment),), BOOLEAN, position=position)
        return self._method(expression, receiver, environment, position)

    def _of_row(self, row: Row, expression: Send) -> Expression | None:
        """A column of a row, by its name or its place; None for a method of rows."""
        name, at = expression.method, expression.at
        if expression.arguments:
            return None
        if any(column.name == name for column in row):
            return self._column(row, name, at)
        if name in ("last", "first") and row:
            return Ref(row[-1 if name == "last" else 0], self.place(at))
        if name in ("to_a", "values", "inspect", "to_s", "hash", "to_list"):
            return Call("struct", tuple([Ref(column) for column in row]), position=self.place(at))
        return self._column(row, name, at)

    def _method(
        self, expression: Send, receiver: Expr, environment: Environment, position: Position
    ) -> Expression:
        values = [self.value(receiver, environment)]
        values += [self.value(argument, environment) for argument in expression.arguments]
        if expression.block is not None:
            values.append(self._function(expression.block, environment))
        name = METHODS[expression.method]
        kind = {"size": BIGINT, "int": BIGINT, "double": DOUBLE, "string": STRING}.get(name, VALUE)
        return Call(name, tuple(values), kind, position=position)

    def _function(self, block: Block, environment: Environment) -> Lambda | Unknown:
        """A block of a method of a value."""
        names = [
            name
            for parameter in block.parameters
            for name in (parameter if isinstance(parameter, tuple) else (parameter,))
        ]
        columns = tuple([Column(name, VALUE) for name in names])
        inner = {**environment, **{c.name: Ref(c) for c in columns}}
        parts = [part for result in self.results(block.body, inner) for part in result.parts]
        return Lambda(columns, parts[0] if len(parts) == 1 else Call("struct", tuple(parts)))


def _literal(value: object) -> DataType:
    if isinstance(value, bool):
        return BOOLEAN
    return {int: BIGINT, float: DOUBLE, str: STRING}.get(type(value), VALUE)


METHODS: Final[Mapping[str, str]] = {
    ruby: spark
    for spark, names in {
        "upper": "upcase",
        "lower": "downcase",
        "initcap": "capitalize",
        "size": "size length count",
        "string": "to_s to_sym inspect",
        "int": "to_i",
        "double": "to_f",
        "abs": "abs",
        "ceil": "ceil",
        "floor": "floor",
        "round": "round",
        "trim": "strip chomp",
        "ltrim": "lstrip",
        "rtrim": "rstrip",
        "reverse": "reverse",
        "isnull": "nil?",
        "array_sort": "sort sort_by",
        "array_distinct": "uniq",
        "array_min": "min",
        "array_max": "max",
        "flatten": "flatten",
        "array_contains": "include? member? contains?",
        "map_contains_key": "key? has_key?",
        "map_keys": "keys",
        "map_values": "values",
        "map_concat": "merge",
        "map_entries": "to_a",
        "element_at": "fetch at",
        "startswith": "start_with?",
        "endswith": "end_with?",
        "regexp_replace": "gsub sub tr",
        "split": "split",
        "array_join": "join",
        "substring": "slice",
        "filter": "select reject find_all",
        "transform": "map collect flat_map",
        "aggregate": "reduce inject",
        "exists": "any?",
        "forall": "all?",
        "array_union": "union",
        "array_except": "difference",
        "hash": "hash",
        "between": "between?",
        "mod": "even? odd? zero?",
    }.items()
    for ruby in names.split()
}
"""Methods of values, with the function that is determined by its arguments in the same way."""

OPERATORS: Final[Mapping[str, str]] = {
    "==": "=",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "&&": "and",
    "!": "not",
    "-": "-",
    "/": "/",
    "%": "%",
    "+": "+",
    "*": "*",
    "**": "power",
    "negative": "negative",
}
ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%", "negative"})
CHANCE: Final = {"rand": "rand", "budtime": "current_timestamp", "now": "current_timestamp"}
"""What a program can ask that is another answer each time."""
OWN: Final = frozenset({"ip_port", "ip", "port", "tabs", "int_ip_port"})
"""What a program can ask about itself; it does not change."""
