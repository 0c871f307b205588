"""SQL as a job shows it: the author's lines, long ones broken where that means nothing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

CLAUSES: Final = re.compile(
    r"(SELECT|FROM|WHERE|GROUP\s+BY|HAVING|ORDER\s+BY|UNION|EXCEPT|INTERSECT|LATERAL|ON|WINDOW"
    r"|((LEFT|RIGHT|FULL|INNER|CROSS)\s+)?((OUTER|SEMI|ANTI)\s+)?JOIN)\b",
    re.I,
)
"""A long line is broken before these, outside parentheses."""
JOIN_WORDS: Final = re.compile(r"\b(LEFT|RIGHT|FULL|INNER|CROSS|OUTER|SEMI|ANTI)$", re.I)
QUOTES: Final = "'\"`"


def sql_lines(sql: str, width: int) -> tuple[str, ...] | None:
    """The lines of a query, none longer than `width` where it can be helped.

    None where the query cannot be laid out anew without changing it: a literal or a comment that
    goes over a line's end, or one that does not end.

    >>> sql_lines("SELECT a, count(*) AS n FROM b GROUP BY a", 24)
    ('SELECT a, count(*) AS n', 'FROM b', 'GROUP BY a')
    """
    text = textwrap.dedent(sql.expandtabs(4)).strip()
    if "\t" in sql and any("\t" in sql[start:end] for start, end in opaque(sql) or ()):
        return None
    spans = opaque(text)
    if spans is None or any("\n" in text[start:end].rstrip("\n") for start, end in spans):
        return None
    found: list[str] = []
    for line in text.split("\n"):
        found += [line.rstrip()] if len(line.rstrip()) <= width else broken(line.rstrip(), width)
    return tuple(found)


def opaque(sql: str) -> list[tuple[int, int]] | None:
    """Where literals, quoted names and comments stand; None where one does not end.

    >>> opaque("a 'b''c' -- d"), opaque("'")
    ([(2, 5), (5, 8), (9, 13)], None)
    """
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(sql):
        end = at + 1
        if sql[at] in QUOTES:
            end = quoted_end(sql, at)
        elif sql.startswith("--", at):
            line_end = sql.find("\n", at)
            end = len(sql) if line_end < 0 else line_end
        elif sql.startswith("/*", at):
            end = sql.find("*/", at) + 2
            if end < 2:
                return None
        if end < 0:
            return None
        if end > at + 1:
            found.append((at, end))
        at = end
    return found


def quoted_end(sql: str, start: int) -> int:
    """Behind the closing quote; -1 where there is none."""
    quote, at = sql[start], start + 1
    while at < len(sql):
        if sql[at] == "\\" and quote != "`":
            at += 1
        elif sql[at] == quote:
            return at + 1
        at += 1
    return -1


def broken(line: str, width: int) -> list[str]:
    """One long line as several: before clauses first, then at spaces."""
    indent = line[: len(line) - len(line.lstrip())]
    if "--" in line or "/*" in line:
        return [line]
    found: list[str] = []
    for clause in clauses(line.strip()):
        words = pieces(clause)
        now = indent + next(words)
        for word in words:
            if len(now) + 1 + len(word) > width:
                found.append(now)
                now = f"{indent}  {word}"
            else:
                now = f"{now} {word}"
        found.append(now)
    return found


def clauses(line: str) -> Iterator[str]:
    """The line in parts that start with a clause, as far as clauses stand outside parentheses."""
    spans = dict(opaque(line) or [])
    at = start = depth = 0
    while at < len(line):
        if at in spans:
            at = spans[at]
            continue
        depth += (line[at] == "(") - (line[at] == ")")
        clause = line[at] == " " and depth == 0 and CLAUSES.match(line, at + 1)
        if clause and not JOIN_WORDS.search(line, start, at):
            yield line[start:at].strip()
            start = at + 1
        at += 1
    yield line[start:].strip()


def pieces(line: str) -> Iterator[str]:
    """The line at its spaces, literals and quoted names whole."""
    spans = dict(opaque(line) or [])
    at = start = 0
    while at < len(line):
        if at in spans:
            at = spans[at]
            continue
        if line[at] == " ":
            if line[start:at]:
                yield line[start:at]
            start = at + 1
        at += 1
    yield line[start:]
