"""Keys and names that are made to break things: generated, not a list."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Collection
from typing import Final

from flux_runtime.sealing.keys import KEY_BYTES_MAX

NAMES: Final = ("k", "v", "p", "n", "g", "d", "rid", "sealed", "col", "x", "__producer", "__chunk")
"""Columns of the attacked job, and names that its runtime uses."""
_REFERENCES: Final = (
    "${{{0}}}",
    "${{hiveconf:{0}}}",
    "${{env:HOME}}{0}",
    "${{system:user.dir}}{0}",
    "${{spark:spark.app.name}}{0}",
    "$${{{0}",
    "{{{0}}}",
    "{{{{{0}}}}}",
    "%({0})s",
    "%s{0}",
    ":{0}",
    "?{0}",
    "@{0}",
)
_SQL: Final = (
    "`{0}`",
    "' OR {0} = {0} --",
    "'; DROP TABLE item; --{0}",
    "CAST({0} AS STRING)",
    "{0} IS NOT NULL",
    '"{0}"',
    "'{0}'",
    "\\'{0}",
    "{0}\\",
    "/*{0}*/",
    "{0};",
    "lit({0})",
    "SELECT max({0}) FROM item",
)
_PATHS: Final = (
    "../{0}",
    "../../../../tmp/{0}",
    "/{0}",
    "{0}/",
    ".{0}",
    "_{0}",
    "%2e%2e%2f{0}",
    "{0}%",
    "%00{0}",
    "{0}=1",
    "~{0}",
    "file:///{0}",
    "{0}*",
    "{0}?[a]",
    "\\\\{0}\\",
)
_WORDS: Final = ("", " ", "null", "NULL", "None", "true", "0", "1", "-1", "01", "1.0", "1e3", "NaN")
_CHARACTERS: Final = (
    "\0\x01\t\n\r\x1f\x7f\x85\u2028'\"\\`$%,;|\U0001f600\U0010ffffé\u0301\ufeff\ufffd"
)


def text(rng: random.Random) -> str:
    """A hostile text of usual length."""
    name = rng.choice(NAMES)
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(_REFERENCES).format(name)
    if kind == 1:
        return rng.choice(_SQL).format(name)
    if kind == 2:
        return rng.choice(_PATHS).format(name)
    if kind == 3:
        return rng.choice(_WORDS)
    if kind == 4:
        return "".join(rng.choice(_CHARACTERS) for _ in range(rng.randint(1, 12)))
    if kind == 5:
        return "".join(text(rng) for _ in range(rng.randint(2, 3)))
    return "".join(map(_any_character, (rng for _ in range(rng.randint(1, 20)))))


def variant(rng: random.Random, of: str) -> str:
    """A text that is easily taken for another one."""
    changes = (
        str.upper,
        str.lower,
        str.swapcase,
        lambda t: unicodedata.normalize("NFD", t),
        lambda t: unicodedata.normalize("NFC", t),
        lambda t: f"{t} ",
        lambda t: f" {t}",
        lambda t: f"0{t}",
        lambda t: f"{t}\0",
        lambda t: f"{t}.0",
        lambda t: f'"{t}"',
        lambda t: t[:-1],
    )
    return rng.choice(changes)(of)


def key(rng: random.Random, others: Collection[str], size_max: int = KEY_BYTES_MAX) -> str:
    """A key that can be one: hostile, rarely as long as a key may be, or like another one."""
    if others and rng.random() < 0.3:
        made = variant(rng, rng.choice(sorted(others, key=len)[: len(others) // 2 + 1]))
        if len(made.encode()) <= size_max:
            return made
    if rng.random() < 0.04:
        return long(rng, size_max - rng.randrange(2))
    return text(rng)


def long(rng: random.Random, size: int) -> str:
    """A text of so many bytes."""
    start = f"{text(rng)[:50]}{rng.randrange(10**9)}"
    piece = rng.choice(["x", "é", "\U0001f600", "'"])
    left = size - len(start.encode())
    count = left // len(piece.encode())
    return start + piece * count + "y" * (left - count * len(piece.encode()))


def too_long(rng: random.Random) -> str:
    """A key above the limit, by a byte or by far."""
    return long(rng, rng.choice([KEY_BYTES_MAX + 1, 270_000]))


def not_text(rng: random.Random) -> bytes:
    """Bytes that are not valid UTF-8: cut short, surrogates, too long forms, any."""
    wrong = rng.choice(
        [
            b"\xff",
            b"\xc3",
            b"\xed\xa0\x80",
            b"\xc0\xaf",
            b"\xf4\x90\x80\x80",
            b"\xf0\x9f\x98",
            b"\x80",
        ]
    )
    return text(rng).encode() + wrong + rng.choice([b"", b"k", b"'"])


def name(rng: random.Random, number: int) -> str:
    """A hostile name, of a producer; the number makes it the only one."""
    return f"{text(rng)}{number}"


def _any_character(rng: random.Random) -> str:
    while True:
        code = rng.choice(
            [rng.randrange(0x20, 0x7F), rng.randrange(0x800), rng.randrange(0x110000)]
        )
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)
