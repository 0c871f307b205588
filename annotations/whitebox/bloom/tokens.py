"""The tokens of a Bloom text: where a line ends a statement, which words are only names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from lark import Lark, Token, UnexpectedCharacters


@cache
def grammar() -> Lark:
    """The parser of `bloom.lark`."""
    return Lark.open("bloom.lark", rel_to=__file__, parser="lalr", lexer="basic")


_OPENING: Final = frozenset({"_LPAR", "_LSQB", "_LBRACE", "_DO"})
_CLOSING: Final = frozenset({"_RPAR", "_RSQB", "_RBRACE", "END"})
_BODIES: Final = frozenset({"STATE", "BLOOM", "BOOTSTRAP"})
_BEGINS: Final = frozenset({"_NL", "_DO", "_LBRACE", "_BAR"})
"""Tokens after which an `if` begins a branch; after others it ends a statement."""
_CONTINUES: Final = frozenset(
    {"_LPAR", "_LSQB", "_LBRACE", "_DO", "COMMA", "DOT", "STAR", "PLUS", "MINUS", "SLASH"}
    | {"PERCENT", "_NL", "_BAR", "EQUAL", "AND", "OR", "NOT", "THEN", "QMARK"}
)
"""Tokens after which a line goes on."""


class Statement:
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


def tokens(text: str, stack: list[str]) -> Iterator[Token]:
    """The tokens of a text, without line ends that end no statement.

    `stack` holds the brackets and blocks that are open; the reader may empty it.
    """
    tokens = [*_lexed(text), Token("_NL", "\n", start_pos=len(text))]
    before = Token("_NL", "\n", start_pos=0)
    dotted = _before_dots(tokens)
    for at, token in enumerate(tokens):
        if token.type == "_NL":
            inside = bool(stack) and stack[-1] in ("_LPAR", "_LSQB")
            goes_on = before.type in _CONTINUES or before.type.startswith("__ANON")
            if inside or goes_on or at in dotted:
                continue
        elif (before.type == "DOT" and token.isidentifier()) or (
            token.type in _BODIES and not (before.type == "_NL" and _opens(tokens, at))
        ):
            token.type = "NAME"
        elif token.type in _OPENING:
            stack.append(token.type)
        elif token.type in _CLOSING and stack:
            stack.pop()
        yield token
        before = token


def _opens(tokens: list[Token], at: int) -> bool:
    """True for `state`, `bloom` and `bootstrap` where a block follows."""
    after = tokens[at + 1].type if at + 1 < len(tokens) else ""
    return after in ("_DO", "_LBRACE", "SYMBOL")


def _lexed(text: str) -> Iterator[Token]:
    """Every token; a character that begins none is one by itself, of type BAD."""
    start = 0
    while True:
        try:
            for token in grammar().lex(text[start:]):
                token.start_pos = (token.start_pos or 0) + start
                yield token
            return
        except UnexpectedCharacters as error:
            at = start + (error.pos_in_stream or 0)
            yield Token("BAD", text[at], start_pos=at)
            start = at + 1


def _before_dots(tokens: list[Token]) -> frozenset[int]:
    """The line ends after which a line begins with a dot."""
    lines, dotted = list[int](), set[int]()
    for at, token in enumerate(tokens):
        if token.type == "_NL":
            lines.append(at)
            continue
        if token.type == "DOT":
            dotted.update(lines)
        lines.clear()
    return frozenset(dotted)
