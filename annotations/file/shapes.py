"""Shapes of single values of a file; `annotations.file.records` has those of whole structures.

A shape knows how to read a node, and the JSON Schema of what it accepts. The key tables
(`keys`) are built out of shapes, so that what the decoder accepts and what editors are
told are one fact. Reading never raises: a mistake goes to the findings, and the value is `BAD`, so
that one mistake is reported once.
"""

# ruff: noqa: D102  (the protocol `Shape` documents the methods of every shape)

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from annotations.diagnostics import Findings
from annotations.positions import Node, Scalar, describe, shorten

NAME: Final = re.compile(r"\w+(-\w+)*")
ATTRIBUTE: Final = re.compile(r"\w+([-. ]\w+)*")
ENDPOINT: Final = re.compile(r"(\w+(?:-\w+)*)\.(\w+(?:-\w+)*)")

_MISREAD_WORDS: Final = {
    **{
        spelling: f"the truth value {value}"
        for value, words in {"true": ("yes", "on", "true"), "false": ("no", "off", "false")}.items()
        for word in words
        for spelling in (word, word.capitalize(), word.upper())
    },
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), "nothing"),
    "=": "a default value",
    "<<": "a merge",
}
_MISREAD_FIRST: Final = frozenset("+-.0123456789")
_MISREAD_PATTERNS: Final = tuple(
    (re.compile(pattern, re.ASCII), reading)
    for pattern, reading in (
        (r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", "a number to the base 60"),
        (r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)", "a number"),
        (r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)([eE][-+]?[0-9]+)?", "a number"),
        (r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "a number"),
        (r"[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?([Tt \t].*)?", "a date"),
    )
)

Json: TypeAlias = dict[str, Any]


class Bad:
    """The value of what could not be read; the reason has been noted."""

    def __repr__(self) -> str:
        return "BAD"

    def __bool__(self) -> bool:
        return False


BAD: Final = Bad()


Pairs: TypeAlias = dict[str, tuple[Scalar, Any]]
"""A mapping as it was read: name -> (the name's node, value or `BAD`)."""


class Shape(Protocol):
    """The form that a value can have."""

    @property
    def expects(self) -> str:
        """The shape in words, as in "expected ..."."""

    def read(self, node: Node, findings: Findings) -> Any:
        """The value of `node`, or `BAD` with the reason in `out`."""

    def schema(self) -> Json:
        """JSON Schema (draft-07) of what `read` accepts."""


def refuse(shape: Shape, node: Node, findings: Findings, remedy: str | None = None) -> Bad:
    """Note that `node` is of another kind than the shape."""
    message = f"expected {shape.expects}, found {describe(node)}"
    findings.add_value("BLZ011", message, node.mark, remedy or None)
    return BAD


def is_word(shape: Shape, node: Node, findings: Findings) -> bool:
    """True for a non-empty string that every YAML parser reads as one."""
    if type(node) is not Scalar or not node.text.strip():
        refuse(shape, node, findings)
        return False
    if node.plain and (reading := misread(node.text)):
        message = f"expected {shape.expects}, but YAML reads `{node.text}` as {reading}"
        quoted = f'Put it in quotes: "{node.text}"'
        remedy = "Write a value, or leave the key out." if reading == "nothing" else quoted
        findings.add_value("BLZ007", message, node.mark, remedy)
        return False
    return True


@dataclass(frozen=True, slots=True)
class Name:
    """A name that matches a pattern; its value is the node itself, which knows its position."""

    expects: str
    pattern: re.Pattern[str] = NAME
    json_pattern: str | None = None
    remedy: str | None = None

    def read(self, node: Node, findings: Findings) -> Scalar | Bad:
        if not is_word(self, node, findings):
            return BAD
        assert type(node) is Scalar
        if self.pattern.fullmatch(node.text):
            return node
        text = shorten(node.text)
        reason = f"found `{text}`" if self.remedy else f"but `{text}` is not a name"
        findings.add_value("BLZ014", f"expected {self.expects}, {reason}", node.mark, self.remedy)
        return BAD

    def schema(self) -> Json:
        pattern = {"pattern": self.json_pattern} if self.json_pattern else {}
        return {"type": "string", "minLength": 1, **pattern}


ATTRIBUTE_NAME: Final = Name("an attribute", ATTRIBUTE)
ENDPOINT_NAME: Final = Name(
    "`Component.interface`",
    ENDPOINT,
    r"^[^\s.]+\.[^\s.]+$",
    "Write the name of a component, a dot, and the name of its interface.",
)


@dataclass(frozen=True, slots=True)
class Text:
    """A string that is not empty, of which nothing or only a pattern is required."""

    expects: str = "a text"
    pattern: str | None = None
    """Valid both in Python and in ECMAScript, and anchored."""

    def read(self, node: Node, findings: Findings) -> str | Bad:
        if not is_word(self, node, findings):
            return BAD
        assert type(node) is Scalar
        if self.pattern is not None and not re.search(self.pattern, node.text):
            message = f"expected {self.expects}, found `{shorten(node.text)}`"
            findings.add_value("BLZ013", message, node.mark)
            return BAD
        return node.text

    def schema(self) -> Json:
        pattern = {"pattern": self.pattern} if self.pattern else {}
        return {"type": "string", "minLength": 1, **pattern}


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`, in those words."""

    expects: str = "true or false"

    def read(self, node: Node, findings: Findings) -> bool | Bad:
        if type(node) is Scalar and node.plain and node.text.lower() in ("true", "false"):
            return node.text.lower() == "true"
        return refuse(self, node, findings, "Write true or false, without quotes.")

    def schema(self) -> Json:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]

    @property
    def expects(self) -> str:
        return alternatives(self.values)

    def read(self, node: Node, findings: Findings) -> str | Bad:
        if not is_word(self, node, findings):
            return BAD
        assert type(node) is Scalar
        if node.text in self.values:
            return node.text
        near = findings.suggest(node.text, self.values)
        message = f"expected {self.expects}, found `{shorten(node.text)}`{near}"
        findings.add_value("BLZ013", message, node.mark)
        return BAD

    def schema(self) -> Json:
        return {"enum": list(self.values)}


def alternatives(words: tuple[str, ...]) -> str:
    """The words as a person lists them.

    >>> alternatives(("Run", "Inst", "Diverge"))
    'Run, Inst or Diverge'
    """
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number from 1 to `most`."""

    expects: str = "a whole number, at least 1"
    most: int | None = None

    def read(self, node: Node, findings: Findings) -> int | Bad:
        if type(node) is Scalar and node.plain and re.fullmatch(r"[1-9][0-9]{0,8}", node.text):
            number = int(node.text)
            if self.most is None or number <= self.most:
                return number
        return refuse(self, node, findings)

    def schema(self) -> Json:
        limits = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": 1, **limits}


_NUMBER: Final = r"(0|[1-9][0-9]{0,14})(\.[0-9]{1,9})?"


@dataclass(frozen=True, slots=True)
class Option:
    """The value of an option that is passed on as text: a text, a number, true or false."""

    expects: str = "a text, a number, true or false"

    def read(self, node: Node, findings: Findings) -> str | Bad:
        if type(node) is Scalar:
            if not node.plain or re.fullmatch(f"-?{_NUMBER}|true|false", node.text):
                return node.text
            return node.text if is_word(self, node, findings) else BAD
        return refuse(self, node, findings)

    def schema(self) -> Json:
        return {"type": ["string", "number", "boolean"]}


_UNITS_S: Final = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_INTERVAL: Final = rf"^\s*([0-9]{{1,9}}\s+({'|'.join(_UNITS_S)})s?(\s+|$))+$"
_PART: Final = re.compile(r"([0-9]+)\s+([a-z]+?)s?(?:\s|$)")


def seconds(interval: str) -> float:
    """The length of an interval as Spark writes them.

    >>> seconds("1 hour 30 minutes")
    5400.0
    """
    return sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(interval))


INTERVAL: Final = Text('an interval such as "10 minutes" or "1 hour 30 seconds"', _INTERVAL)


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of seconds or an interval; the value is in seconds, and None where it is endless."""

    expects: str = 'a number of seconds, or an interval such as "10 minutes"'
    endless: str | None = None
    """The word for a time that does not end, where there may be one."""

    def read(self, node: Node, findings: Findings) -> float | Bad | None:
        if type(node) is Scalar and self.endless is not None and node.text == self.endless:
            return None
        if type(node) is Scalar and node.plain and re.fullmatch(_NUMBER, node.text):
            return float(node.text)
        interval = Text(self.expects, _INTERVAL).read(node, findings)
        return seconds(interval) if isinstance(interval, str) else BAD

    def schema(self) -> Json:
        words = [{"enum": [self.endless]}] if self.endless is not None else []
        return {"anyOf": [{"type": "number", "minimum": 0}, INTERVAL.schema(), *words]}


REMEMBERED: Final = Duration(
    'forever, a number of seconds, or an interval such as "7 days"', endless="forever"
)


def misread(word: str) -> str | None:
    """The reading of the unquoted word by a YAML parser; None where it stays a word.

    `on`, `12:30` and `2024-01-01` are strings to a person, and a truth value, a number and a date
    to a parser of YAML 1.1; YAML 1.2 reads `0o17` and `1e3` as numbers. Where a name or a text is
    wanted, such a word has to stand in quotes, so that every tool reads the same.

    >>> misread("on"), misread("12:30"), misread("clicks")
    ('the truth value true', 'a number to the base 60', None)
    """
    if word in _MISREAD_WORDS:
        return _MISREAD_WORDS[word]
    if word[0] not in _MISREAD_FIRST:
        return None
    return next(
        (reading for pattern, reading in _MISREAD_PATTERNS if pattern.fullmatch(word)), None
    )
