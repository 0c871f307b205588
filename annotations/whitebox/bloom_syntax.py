"""Bloom text as a syntax tree: `bloom.lark`, and the mistakes of a text that is not in it.

A statement that does not parse is reported and left out, and reading goes on after its line, so
that all mistakes of a file come out in one run. Nothing is known here about what names mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput

from annotations.dataflow import Position
from annotations.diagnostics import Findings

ERRORS_MAX: Final = 50
"""Statements that may be wrong before reading is given up."""
DEPTH_MAX: Final = 200
"""Levels of nesting of brackets and blocks."""


# ---- the tree; `at` is an offset in the text


@dataclass(frozen=True, slots=True)
class Name:
    """A word: a collection, the row of a block, or a method without a receiver."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Const:
    """A constant or instance variable, whose value is not known but does not change."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Value:
    """A literal: nil, true, false, a number or a text."""

    value: object
    at: int
    embeds: bool = False
    """True for a text in double quotes that has `#{...}` in it."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """`:name`; `@` of an address is left out."""

    text: str
    at: int
    address: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """`[a, b]`."""

    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Hash:
    """`{a => b}`."""

    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Pair:
    """`a => b`."""

    left: Expr
    right: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with its operands; `if` has condition, then and else."""

    operator: str
    operands: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Send:
    """A method that is called; `receiver` None: a function."""

    receiver: Expr | None
    method: str
    arguments: tuple[Expr, ...]
    at: int
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """`row[0]`."""

    receiver: Expr
    arguments: tuple[Expr, ...]
    at: int


Expr: TypeAlias = Name | Const | Value | Symbol | Array | Hash | Pair | Operation | Send | Index


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = expression` in a block."""

    name: str
    value: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Branch:
    """`if` in a block; without `otherwise` a row for which it is false gives nothing."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    at: int


Statement: TypeAlias = Expr | Assign | Branch


@dataclass(frozen=True, slots=True)
class Block:
    """`{|a, b| ...}`. A parameter in parentheses is a tuple of names."""

    parameters: tuple[tuple[str, ...] | str, ...]
    body: tuple[Statement, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """A line of a `state` block."""

    kind: str
    direction: str | None
    name: str
    arguments: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Rule:
    """`target operator source`; `temporary`: the rule declares its target."""

    target: str
    operator: str
    source: Expr
    at: int
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module or class, as it stands in the text."""

    name: str
    at: int
    includes: tuple[tuple[str, int], ...]
    imports: tuple[tuple[str, str, int], ...]
    """(module, the name it is known by here, offset)."""
    declarations: tuple[Declaration, ...]
    rules: tuple[Rule, ...]


# ---- parsing


Place: TypeAlias = Callable[[int], Position]
"""Where an offset of the text stands."""


def parse(text: str, out: Findings, place: Place) -> tuple[tuple[ModuleText, ...], tuple[str, ...]]:
    """The modules of a text, and the files that it requires.

    What is wrong with it is noted in `out` (BLZ090).
    """
    found = _Reading(text, out, place).items()
    modules = tuple(each for each in found if isinstance(each, ModuleText))
    return modules, tuple(each for each in found if isinstance(each, str))


def parts(expression: Statement) -> Iterator[Expr]:
    """An expression and everything inside of it, blocks included."""
    todo: list[Statement] = [expression]
    while todo:
        each = todo.pop()
        match each:
            case Assign(value=value):
                todo.append(value)
                continue
            case Branch(condition=condition, then=then, otherwise=otherwise):
                todo += [condition, *then, *otherwise]
                continue
            case Array(items=items) | Hash(items=items) | Operation(operands=items):
                todo += items
            case Pair(left=left, right=right):
                todo += [left, right]
            case Index(receiver=receiver, arguments=arguments):
                todo += [receiver, *arguments]
            case Send(receiver=receiver, arguments=arguments, block=block):
                todo += arguments if receiver is None else (receiver, *arguments)
                todo += block.body if block is not None else ()
        yield each


class _Reading:
    """A text on its way through the parser, which begins again after a wrong statement."""

    def __init__(self, text: str, out: Findings, place: Place) -> None:
        self.text, self.out, self.place = text, out, place
        self.parser: Any = cast("Any", _parser().parse_interactive(""))
        self.saved = self.parser.copy(deepcopy_values=False)
        """As the parser was before the statement."""
        self.statement = _Statement()
        self.errors = 0
        self.skipping = False

    def items(self) -> list[Any]:
        """Read everything."""
        stack: list[str] = []
        for token in tokens(self.text, stack):
            if self.errors and not self.statement.blocks and self._begins_line(token):
                # A bracket that nobody closed: what stands in the next line is a new statement.
                stack.clear()
                self._next(again=True)
            self.statement.add(token)
            if self.statement.depth > DEPTH_MAX or self.errors > ERRORS_MAX:
                self._report(None, token)
                return []
            if not self.skipping:
                self._feed(token, stack)
            if self.statement.ended:
                self._next(again=self.skipping)
        try:
            tree = self.parser.feed_eof()
        except UnexpectedInput as error:
            self._report(error, Token("$END", "", start_pos=len(self.text)))
            return []
        found: list[Any] = _Reader().transform(tree)
        return found

    def _feed(self, token: Token, stack: list[str]) -> None:
        try:
            self.parser.feed_token(token)
        except UnexpectedInput as error:
            self._report(error, token)
            self.skipping = True
            if not self.statement.blocks and self._begins_line(token):
                stack.clear()
                self._next(again=True)
                self.statement.add(token)
                self._feed_again(token)

    def _feed_again(self, token: Token) -> None:
        """The first token of a line, after what stood before it was given up."""
        try:
            self.parser.feed_token(token)
        except UnexpectedInput:
            self.skipping = True

    def _next(self, *, again: bool) -> None:
        """Begin a new statement, where the last one began if it was wrong."""
        if again:
            self.parser = self.saved
        self.saved = self.parser.copy(deepcopy_values=False)
        self.statement, self.skipping = _Statement(), False

    def _begins_line(self, token: Token) -> bool:
        """True for the first token of a line that is not the first line of its statement."""
        if not self.statement.depth or token.type == "_NL":
            return False
        at = token.start_pos or 0
        return not self.text[self.text.rfind("\n", 0, at) + 1 : at].strip()

    def _report(self, error: UnexpectedInput | None, token: Token) -> None:
        self.errors += 1
        where = self.place(token.start_pos or 0)
        if error is None:
            text = "nested too deeply" if self.errors <= ERRORS_MAX else "too many mistakes"
            self.out.add("BLZ090", text, where)
            return
        allowed: set[str] = set(getattr(error, "accepts", ()) or getattr(error, "expected", ()))
        words = sorted({_word(name) for name in allowed})
        found = "the end of the text" if token.type == "$END" else f"`{token}`"
        if token.type == "_NL":
            found = "the end of the line"
        names = [word.strip("`") for word in words if word.startswith("`")]
        near = self.out.suggest(str(token), names) if token.type == "NAME" else ""
        message = f"{found} does not belong here{near}"
        if 0 < len(words) <= _EXPECTED_MAX:
            message = f"expected {' or '.join(words)}, found {found}{near}"
        self.out.add("BLZ090", message, where)


@cache
def _parser() -> Lark:
    return Lark.open("bloom.lark", rel_to=__file__, parser="lalr", lexer="basic")


_OPENING: Final = frozenset({"_LPAR", "_LSQB", "_LBRACE", "_DO"})
_CLOSING: Final = frozenset({"_RPAR", "_RSQB", "_RBRACE", "END"})
_BODIES: Final = frozenset({"STATE", "BLOOM", "BOOTSTRAP"})


class _Statement:
    """The tokens of one line of a module, a `state` or a `bloom` block."""

    def __init__(self) -> None:
        self.depth = 0
        self.blocks = 0
        """Of the depth, what `do`, `{` and `if` make."""
        self.ended = False
        self._first = ""
        self._last = "_NL"

    def add(self, token: Token) -> None:
        """One more token; `ended` is True after the last one."""
        self._first = self._first or token.type
        conditional = token.type in ("IF", "UNLESS") and self._last in _BEGINS
        if token.type in ("_LBRACE", "_DO") and self._first in _BODIES and not self.depth:
            self.ended = True
        elif token.type in _OPENING or conditional:
            self.depth += 1
            self.blocks += token.type not in ("_LPAR", "_LSQB")
        elif token.type in _CLOSING:
            self.depth -= 1
            self.blocks -= token.type not in ("_RPAR", "_RSQB")
        elif token.type == "_NL" and self.depth <= 0:
            self.ended = True
        self._last = token.type


_BEGINS: Final = frozenset({"_NL", "_DO", "_LBRACE", "_BAR"})


_CONTINUES: Final = frozenset(
    {"_LPAR", "_LSQB", "_LBRACE", "_DO", "COMMA", "DOT", "STAR", "PLUS", "MINUS", "SLASH"}
    | {"PERCENT", "_NL", "_BAR", "EQUAL", "AND", "OR", "NOT", "THEN", "QMARK"}
)
"""Tokens after which a line goes on."""


def tokens(text: str, stack: list[str]) -> Iterator[Token]:
    """The tokens of a text, without line ends that end no statement.

    `stack` holds the brackets and blocks that are open; the reader may empty it.
    """
    found = [*_lexed(text), Token("_NL", "\n", start_pos=len(text))]
    before = Token("_NL", "\n", start_pos=0)
    dotted = _before_dots(found)
    for at, token in enumerate(found):
        if token.type == "_NL":
            inside = bool(stack) and stack[-1] in ("_LPAR", "_LSQB")
            goes_on = before.type in _CONTINUES or before.type.startswith("__ANON")
            if inside or goes_on or at in dotted:
                continue
        elif (before.type == "DOT" and token.isidentifier()) or (
            token.type in _BODIES and not (before.type == "_NL" and _opens(found, at))
        ):
            token.type = "NAME"
        elif token.type in _OPENING:
            stack.append(token.type)
        elif token.type in _CLOSING and stack:
            stack.pop()
        yield token
        before = token


def _opens(found: list[Token], at: int) -> bool:
    """True for `state`, `bloom` and `bootstrap` where a block follows."""
    after = found[at + 1].type if at + 1 < len(found) else ""
    return after in ("_DO", "_LBRACE", "SYMBOL")


def _lexed(text: str) -> Iterator[Token]:
    """Every token; a character that begins none is one by itself, of type BAD."""
    start = 0
    while True:
        try:
            for token in _parser().lex(text[start:]):
                token.start_pos = (token.start_pos or 0) + start
                yield token
            return
        except UnexpectedCharacters as error:
            at = start + (error.pos_in_stream or 0)
            yield Token("BAD", text[at], start_pos=at)
            start = at + 1


def _before_dots(found: list[Token]) -> frozenset[int]:
    """The line ends after which a line begins with a dot."""
    lines, dotted = list[int](), set[int]()
    for at, token in enumerate(found):
        if token.type == "_NL":
            lines.append(at)
            continue
        if token.type == "DOT":
            dotted.update(lines)
        lines.clear()
    return frozenset(dotted)


_SHOWN: Final[Mapping[str, str]] = {
    "NAME": "a name",
    "CONST": "the name of a module",
    "SYMBOL": "a symbol such as `:name`",
    "STRING": "a text",
    "NUMBER": "a number",
    "IVAR": "`@name`",
    "_NL": "the end of the line",
    "$END": "the end of the text",
}
_EXPECTED_MAX: Final = 6


def _word(terminal: str) -> str:
    if terminal in _SHOWN:
        return _SHOWN[terminal]
    found = _parser().get_terminal(terminal)
    return f"`{found.pattern.value}`"


# ---- the tree out of lark's


def _at(token: Any) -> int:
    return int(getattr(token, "start_pos", None) or getattr(token, "at", 0) or 0)


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "s": " "}


class _Reader(Transformer[Token, Any]):
    """One method for each rule of the grammar, by its name there."""

    def start(self, items: list[Any]) -> list[Any]:
        return items

    def required(self, items: list[Token]) -> str:
        return str(items[0])[1:-1]

    def skipped(self, items: list[Any]) -> None:
        return None

    def path(self, items: list[Token]) -> Const:
        return Const("::".join(map(str, items)), _at(items[0]))

    def superclass(self, items: list[Const]) -> tuple[str, str, int]:
        return ("include", items[0].text, items[0].at)

    include = superclass

    def imported(self, items: list[Any]) -> tuple[str, str, str, int]:
        return ("import", items[0].text, str(items[1]).lstrip(":"), items[0].at)

    def state(self, items: list[Any]) -> tuple[str, list[Declaration]]:
        return ("state", [each for each in items if isinstance(each, Declaration)])

    def rules(self, items: list[Any]) -> tuple[str, list[Rule]]:
        return ("rules", [each for each in items if isinstance(each, Rule)])

    def module(self, items: list[Any]) -> ModuleText:
        name, *members = items
        parts: dict[str, list[Any]] = {"include": [], "import": [], "state": [], "rules": []}
        for kind, *rest in filter(None, members):
            if kind in ("state", "rules"):
                parts[kind] += rest[0]
            else:
                parts[kind].append(tuple(rest))
        return ModuleText(
            str(name),
            _at(name),
            tuple(parts["include"]),
            tuple(parts["import"]),
            tuple(parts["state"]),
            tuple(parts["rules"]),
        )

    def declaration(self, items: list[Any]) -> Declaration:
        kind, direction, name, arguments = items
        return Declaration(
            str(kind),
            None if direction is None else str(direction),
            str(name).lstrip(":@"),
            tuple(arguments or ()),
            _at(kind),
        )

    def rule(self, items: list[Any]) -> Rule:
        (name, at, temporary), operator, source = items
        return Rule(name, operator, source, at, temporary)

    def target(self, items: list[Token]) -> tuple[str, int, bool]:
        return (".".join(map(str, items)), _at(items[0]), False)

    def temporary(self, items: list[Token]) -> tuple[str, int, bool]:
        return (str(items[0]).lstrip(":@"), _at(items[0]), True)

    def operator(self, items: list[Token]) -> str:
        return str(items[0])

    compare = plus = times = operator

    # blocks

    def block(self, items: list[Any]) -> Block:
        parameters, body = items[0], items[1]
        return Block(tuple(parameters or ()), tuple(body), _at(body[0]))

    def parameters(self, items: list[Any]) -> list[Any]:
        return items

    def parameter(self, items: list[Token]) -> str | tuple[str, ...]:
        return str(items[0]) if len(items) == 1 else tuple(map(str, items))

    def body(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def assign(self, items: list[Any]) -> Assign:
        return Assign(str(items[0]), items[1], _at(items[0]))

    def only_if(self, items: list[Any]) -> Branch:
        return Branch(items[1], (items[0],), (), _at(items[0]))

    def unless(self, items: list[Any]) -> Branch:
        condition = Operation("!", (items[1],), _at(items[1]))
        return Branch(condition, (items[0],), (), _at(items[0]))

    def branch(self, items: list[Any]) -> Branch:
        otherwise = items[2]
        if isinstance(otherwise, Branch):
            otherwise = (otherwise,)
        return Branch(items[0], items[1], otherwise, _at(items[0]))

    def branch_unless(self, items: list[Any]) -> Branch:
        condition = Operation("!", (items[0],), _at(items[0]))
        return Branch(condition, items[1], (), _at(items[0]))

    def nothing(self, items: list[Any]) -> tuple[Any, ...]:
        return ()

    def alternative(self, items: list[Any]) -> tuple[Any, ...]:
        found: tuple[Any, ...] = items[0]
        return found

    # expressions

    def ternary(self, items: list[Any]) -> Operation:
        return Operation("if", tuple(items), _at(items[0]))

    def either(self, items: list[Any]) -> Operation:
        return Operation("||", tuple(items), _at(items[0]))

    def both(self, items: list[Any]) -> Operation:
        return Operation("&&", tuple(items), _at(items[0]))

    def negation(self, items: list[Any]) -> Operation:
        return Operation("!", tuple(items), _at(items[0]))

    def negative(self, items: list[Any]) -> Operation:
        return Operation("negative", tuple(items), _at(items[0]))

    def binary(self, items: list[Any]) -> Operation:
        left, operator, right = items
        return Operation(operator, (left, right), _at(left))

    def send(self, items: list[Any]) -> Send:
        receiver, method, *rest = items
        arguments = rest[0] if rest else None
        return Send(receiver, str(method), tuple(arguments or ()), _at(receiver))

    def call(self, items: list[Any]) -> Send:
        name, arguments = items
        return Send(None, str(name), tuple(arguments or ()), _at(name))

    def index(self, items: list[Any]) -> Index:
        return Index(items[0], tuple(items[1]), _at(items[0]))

    def with_block(self, items: list[Any]) -> Send:
        receiver, block = items
        if isinstance(receiver, Send) and receiver.block is None:
            return Send(receiver.receiver, receiver.method, receiver.arguments, receiver.at, block)
        return Send(receiver, "map", (), _at(receiver), block)

    def name(self, items: list[Token]) -> Name:
        return Name(str(items[0]), _at(items[0]))

    def constant(self, items: list[Any]) -> Const:
        only = items[0]
        return only if isinstance(only, Const) else Const(str(only), _at(only))

    def symbol(self, items: list[Token]) -> Symbol:
        text = str(items[0])
        return Symbol(text.lstrip(":@"), _at(items[0]), "@" in text)

    def string(self, items: list[Token]) -> Value:
        text = str(items[0])
        double, inner = text[0] == '"', text[1:-1]
        if double:
            value = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner, flags=re.DOTALL)
        else:
            value = re.sub(r"\\([\\'])", r"\1", inner)
        return Value(value, _at(items[0]), double and "#{" in inner)

    def number(self, items: list[Token]) -> Value:
        text = str(items[0]).replace("_", "")
        return Value(float(text) if "." in text else int(text), _at(items[0]))

    def word(self, items: list[Token]) -> Value:
        value = {"nil": None, "true": True, "false": False}[str(items[0])]
        return Value(value, _at(items[0]))

    def array(self, items: list[Any]) -> Array:
        return Array(tuple(items[0] or ()), _at(items[0][0]) if items[0] else 0)

    def hash(self, items: list[Any]) -> Hash:
        return Hash(tuple(items[0] or ()), _at(items[0][0]) if items[0] else 0)

    def arguments(self, items: list[Any]) -> list[Any]:
        return items

    def pair(self, items: list[Any]) -> Pair:
        return Pair(items[0], items[1], _at(items[0]))
