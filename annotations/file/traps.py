"""Words that YAML parsers do not read as words, and what is a name.

`on`, `12:30` and `2024-01-01` are strings to a person, and a truth value, a number and a date to a
parser of YAML 1.1; YAML 1.2 reads `0o17` and `1e3` as numbers. Where a name or a text is wanted,
such a word has to stand in quotes, so that every tool that reads the file reads the same.
"""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = {
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
_FIRST: Final = frozenset("+-.0123456789")
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.ASCII), reading)
    for pattern, reading in (
        (r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", "a number to the base 60"),
        (r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)", "a number"),
        (r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)([eE][-+]?[0-9]+)?", "a number"),
        (r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "a number"),
        (r"[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?([Tt \t].*)?", "a date"),
    )
)

NAME: Final = re.compile(r"\w+(-\w+)*")
ATTRIBUTE: Final = re.compile(r"\w+([-.]\w+)*")
ENDPOINT: Final = re.compile(r"(\w+(?:-\w+)*)\.(\w+(?:-\w+)*)")


def misread(word: str) -> str | None:
    """What a YAML parser makes of the unquoted word; None where it stays a word.

    >>> misread("on"), misread("12:30"), misread("clicks")
    ('the truth value true', 'a number to the base 60', None)
    """
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in _FIRST:
        return None
    return next((reading for pattern, reading in _PATTERNS if pattern.fullmatch(word)), None)
