"""Spark SQL text to sqlglot's tree, with the traps of its Spark dialect disarmed.

`window` is a function and a column here, not a keyword; every function is kept under the name that
was written; `FROM STREAM t`, `STREAM(t)` and `WATERMARK c DELAY OF INTERVAL ...`, which sqlglot
misreads or refuses, are blanked out and remembered, so that positions stay those of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

SYNTAX_OF_THEIR_OWN: Final = frozenset(
    {"CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY"}
)
"""Functions with keywords between their arguments."""


class _Named(Spark):
    """Spark's dialect where functions keep the names that were written."""

    class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
        SUPPORTS_TABLE_QUERY: ClassVar[bool] = True  # TABLE t
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in Spark.Parser.FUNCTION_PARSERS.items()
            if name in SYNTAX_OF_THEIR_OWN
        }


class _Windows(_Named):
    """The same where `window` is a name like every other; costs the clause `WINDOW w AS (...)`."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }


@dataclass(frozen=True, slots=True)
class Delay:
    """A WATERMARK clause."""

    column: str
    delay_s: float | None
    start: int
    """Its place in the text."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement's tree, and what had to be taken out of its text."""

    tree: Any
    delays: tuple[Delay, ...]


class NotParsed(Exception):  # noqa: N818
    """The text is not a query that sqlglot can read; `start` is where, from 0, if it says."""

    def __init__(self, reason: str, start: int | None = None) -> None:
        self.reason = reason
        self.start = start
        super().__init__(reason)


@lru_cache(maxsize=2)
def _dialect(windows: bool) -> Any:
    return _Windows() if windows else _Named()


def tokens_of(text: str) -> list[Token]:
    """The words of a text, each with its place; raises `NotParsed`."""
    try:
        tokens: list[Token] = _dialect(windows=True).tokenize(text)
    except sqlglot.errors.SqlglotError as error:
        raise NotParsed(f"not SQL: {_first_line(error)}") from None
    return tokens


def parse(text: str) -> Parsed:
    """The tree of the one statement in the text; raises `NotParsed`."""
    tokens = tokens_of(text)
    cleaned, delays = _without_streams(text, tokens)
    failed: sqlglot.errors.ParseError | None = None
    for windows in (True, False):
        try:
            trees = sqlglot.parse(cleaned, dialect=_dialect(windows))
        except sqlglot.errors.ParseError as error:
            failed = failed or error
        except sqlglot.errors.SqlglotError as error:
            raise NotParsed(f"not SQL: {_first_line(error)}") from None
        except RecursionError:
            raise NotParsed("the query is nested too deeply") from None
        else:
            statements = [tree for tree in trees if tree is not None]
            if len(statements) != 1:
                raise NotParsed("not one statement" if statements else "there is no statement")
            return Parsed(statements[0], delays)
    assert failed is not None
    raise NotParsed(*_reason(failed, cleaned))


def without_streams(text: str) -> str:
    """A query without the word of pipelines that says that a table is read as a stream.

    >>> without_streams("SELECT 1 FROM STREAM a JOIN STREAM(b.c) ON x")
    'SELECT 1 FROM a JOIN b.c ON x'
    """
    text = re.sub(r"\bSTREAM\s*\(\s*([\w.`]+)\s*\)", r"\1", text, flags=re.IGNORECASE)
    pattern = r"\b(FROM|JOIN|,)(\s+)STREAM\s+(?=[\w`])"
    return re.sub(pattern, r"\1\2", text, flags=re.IGNORECASE)


def _reason(error: Any, text: str) -> tuple[str, int | None]:
    """The reason and offset of a parser's error; it counts lines and the ends of words from 1."""
    details = error.errors[0] if error.errors else {}
    description = str(details.get("description") or _first_line(error)).rstrip(".")
    line, column = details.get("line"), details.get("col")
    if not line or not column:
        return f"not understood: {description}", None
    lines = text.split("\n")
    start = sum(len(row) + 1 for row in lines[: line - 1]) + column
    start -= len(str(details.get("highlight") or " "))
    return f"not understood: {description}", max(0, start)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["?"])[0].rstrip(".")


BEFORE_A_TABLE: Final = frozenset({"FROM", "JOIN", ","})
NO_TABLE: Final = frozenset({"WHERE", "JOIN", "GROUP", "ON", "AS", "ORDER", "LIMIT", "HAVING"})


def _without_streams(text: str, tokens: list[Token]) -> tuple[str, tuple[Delay, ...]]:
    """The text with STREAM and WATERMARK blanked out."""
    letters = list(text)
    delays: list[Delay] = []
    for at, token in enumerate(tokens):
        word = token.text.upper()
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if quoted or at + 1 == len(tokens):
            continue
        before = tokens[at - 1].text.upper() if at else ""
        if word == "STREAM" and before in BEFORE_A_TABLE:
            for blanked in _stream(tokens, at):
                _blank(letters, blanked, blanked)
        elif word == "WATERMARK" and (end := _watermark_end(tokens, at)) is not None:
            column, last = end
            delay = " ".join(piece.text for piece in tokens[column + 3 : last + 1])
            name = tokens[column].text
            delays.append(Delay(name, seconds_of(delay), token.start))
            _blank(letters, token, tokens[last])
    return "".join(letters), tuple(delays)


def _stream(tokens: list[Token], at: int) -> list[Token]:
    """The tokens that only say that the table after STREAM is read as a stream."""
    following = tokens[at + 1]
    if following.token_type is TokenType.L_PAREN:
        for end in range(at + 2, len(tokens)):
            if tokens[end].token_type is TokenType.R_PAREN:
                return [tokens[at], following, tokens[end]]
        return []
    named = following.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return [tokens[at]] if named and following.text.upper() not in NO_TABLE else []


def _watermark_end(tokens: list[Token], at: int) -> tuple[int, int] | None:
    """Places of the column and of the last token of `WATERMARK c DELAY OF INTERVAL 10 SECONDS`."""
    for delay in range(at + 2, min(at + 12, len(tokens) - 2)):
        if tokens[delay].text.upper() != "DELAY" or tokens[delay + 1].text.upper() != "OF":
            continue
        last = delay + 2
        if tokens[last].text.upper() == "INTERVAL":
            last += 1
            while last + 1 < len(tokens) and _in_interval(tokens[last + 1].text):
                last += 1
        return (delay - 1, last) if last < len(tokens) else None
    return None


def _in_interval(word: str) -> bool:
    return word.lower().rstrip("s") in UNITS or word.replace(".", "").isdigit()


def _blank(letters: list[str], first: Token, last: Token) -> None:
    for at in range(first.start, last.end + 1):
        if letters[at] != "\n":
            letters[at] = " "


UNITS: Final = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}


def seconds_of(interval: str) -> float | None:
    """How many seconds an interval has; None where the text is not one of a fixed length.

    >>> seconds_of("INTERVAL 10 SECONDS"), seconds_of("1 hour 30 minutes"), seconds_of("1 month")
    (10.0, 5400.0, None)
    """
    words = re.findall(r"[a-z]+|[0-9.]+", interval.lower())
    words = [word for word in words if word != "interval"]
    total = 0.0
    for number, unit in zip(words[::2], words[1::2], strict=False):
        length = UNITS.get(unit.rstrip("s"))
        if length is None or not number.replace(".", "", 1).isdigit():
            return None
        total += float(number) * length
    return total if words and len(words) % 2 == 0 else None
