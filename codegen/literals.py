"""Python source for values that users wrote, in the form that `ruff format` leaves alone.

Everything fits `WIDTH` or is written one element a line with a trailing comma, which stays as it
is at any greater width too. (A tuple of one element has a comma anyway: a job uses lists.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

WIDTH: Final = 88
INDENT: Final = "    "


@dataclass(frozen=True, slots=True)
class Code:
    """Text that stands in the job as it is: a name, or an expression on one line."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call; `named` arguments come after the others."""

    function: str
    positional: Sequence[Any] = ()
    named: Sequence[tuple[str, Any]] = ()
    tall: bool = False
    """True: one argument a line, however short it is."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string over several lines, indented like the line it starts in, or one level deeper."""

    lines: tuple[str, ...]
    deeper: bool = False


def string(text: str) -> str:
    r"""A string literal in double quotes, or single ones where that takes fewer backslashes.

    >>> string('say "no"'), string("it's"), string("a\\b")
    ('\'say "no"\'', '"it\'s"', '"a\\\\b"')
    """
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + escaped(text, quote) + quote


def escaped(text: str, quote: str = "") -> str:
    """The inside of a literal: backslashes, that quote and what does not print escaped."""
    return "".join(
        f"\\{character}"
        if character in ("\\", quote)
        else character
        if character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def value(item: Any, *, depth: int = 0, before: int = 0, after: int = 1) -> str:
    """Source of a value whose first line starts `before` characters into a line.

    `depth` is the indentation level of that line, `after` what still has to fit behind.
    """
    flat = on_one_line(item)
    if flat is not None and before + _width(flat) + after <= WIDTH:
        return flat
    inner, outer = INDENT * (depth + 1), INDENT * depth
    items: list[tuple[str, Any]]
    match item:
        case Text(lines=lines, deeper=deeper):
            return triple_quoted(lines, INDENT * (depth + deeper), outer)
        case Call(function=function, positional=positional, named=named):
            items = [("", argument) for argument in positional] + [
                (f"{n}=", argument) for n, argument in named
            ]
            opening, closing = f"{function}(", ")"
        case Mapping():
            items = [(f"{string(name)}: ", entry) for name, entry in item.items()]
            opening, closing = "{", "}"
        case list() | tuple():
            items = [("", element) for element in item]
            opening, closing = "[]" if isinstance(item, list) else "()"
        case _:
            return flat if flat is not None else str(item)
    if not items:
        return opening + closing
    inside = "".join(
        f"{inner}{name}{value(element, depth=depth + 1, before=_width(inner + name))},\n"
        for name, element in items
    )
    return f"{opening}\n{inside}{outer}{closing}"


def _width(text: str) -> int:
    """How wide characters beyond ASCII are is not for us to say: what can be is broken there."""
    return len(text) if text.isascii() else WIDTH


def on_one_line(item: Any) -> str | None:
    """Source on one line; None where it has to take several."""
    parts: Iterable[str | None]
    match item:
        case Text() | Call(tall=True):
            return None
        case Code(text=text):
            return text
        case str():
            return string(item)
        case float():
            return repr(item).replace("e+", "e")
        case Call(function=function, positional=positional, named=named):
            parts = [*map(on_one_line, positional), *(labelled(f"{n}=", v) for n, v in named)]
            opening, closing = f"{function}(", ")"
        case Mapping():
            parts = [labelled(f"{string(n)}: ", v) for n, v in item.items()]
            opening, closing = "{", "}"
        case list():
            parts = map(on_one_line, item)
            opening, closing = "[", "]"
        case tuple():
            parts = map(on_one_line, item)
            opening, closing = "(", ",)" if len(item) == 1 else ")"
        case _:
            return repr(item)
    lines = list(parts)
    if None in lines:
        return None
    return opening + ", ".join(filter(None, lines)) + closing


def labelled(label: str, item: Any) -> str | None:
    """A value behind its name, on one line."""
    flat = on_one_line(item)
    return None if flat is None else label + flat


def triple_quoted(lines: Sequence[str], inner: str, outer: str) -> str:
    """A triple-quoted string with its lines behind `inner` and its end behind `outer`."""
    raw = any("\\" in line for line in lines) and all(is_raw(line) for line in lines)
    body = [line if raw else escaped(line).replace('"""', '\\"\\"\\"') for line in lines]
    text = "".join(f"{inner}{line}\n" if line else "\n" for line in body)
    return f'{"r" if raw else ""}"""\n{text}{outer}"""'


def is_raw(line: str) -> bool:
    """True where a raw triple-quoted string can hold the line."""
    return line.isprintable() and '"""' not in line
