"""Bloom text as a syntax tree: `bloom.lark`, and the mistakes of a text that is not in it.

A statement that does not parse is reported and left out, and reading goes on after its line, so
that all mistakes of a file come out in one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from lark import Token, UnexpectedInput

from annotations.diagnostics import Findings
from annotations.whitebox.bloom.shaping import shaped
from annotations.whitebox.bloom.tokens import Statement, grammar, tokens
from annotations.whitebox.bloom.tree import ModuleText, Place

ERRORS_MAX: Final = 50
"""Statements that may be wrong before reading is given up."""
DEPTH_MAX: Final = 200
"""Levels of nesting of brackets and blocks."""
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
"""What the terminals of the grammar are called; others are shown as they are written."""
_EXPECTED_MAX: Final = 6
"""What may stand at a place is said if it is not more than this."""


def parse(text: str, out: Findings, place: Place) -> tuple[tuple[ModuleText, ...], tuple[str, ...]]:
    """The modules of a text, and the files that it requires.

    What is wrong with it is noted in `out` (BLZ090).
    """
    items = _Reading(text, out, place).items()
    modules = tuple(item for item in items if isinstance(item, ModuleText))
    return modules, tuple(item for item in items if isinstance(item, str))


class _Reading:
    """A text on its way through the parser, which begins again after a wrong statement."""

    def __init__(self, text: str, out: Findings, place: Place) -> None:
        self.text, self.out, self.place = text, out, place
        self.parser: Any = cast("Any", grammar().parse_interactive(""))
        self.saved = self.parser.copy(deepcopy_values=False)
        """As the parser was before the statement."""
        self.statement = Statement()
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
        return shaped(tree)

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
        self.statement, self.skipping = Statement(), False

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
        token_text = "the end of the text" if token.type == "$END" else f"`{token}`"
        if token.type == "_NL":
            token_text = "the end of the line"
        names = [word.strip("`") for word in words if word.startswith("`")]
        near = self.out.suggest(str(token), names) if token.type == "NAME" else ""
        message = f"{token_text} does not belong here{near}"
        if 0 < len(words) <= _EXPECTED_MAX:
            message = f"expected {' or '.join(words)}, found {token_text}{near}"
        self.out.add("BLZ090", message, where)


def _word(terminal: str) -> str:
    if terminal in _SHOWN:
        return _SHOWN[terminal]
    pattern = grammar().get_terminal(terminal)
    return f"`{pattern.pattern.value}`"
