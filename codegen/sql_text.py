"""SQL as a job shows it: the author's lines, long ones broken where that means nothing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from codegen.literals import INDENT, WIDTH, Text

CLAUSES: Final = re.compile(
    r"(SELECT|FROM|WHERE|GROUP\s+BY|HAVING|ORDER\s+BY|UNION|EXCEPT|INTERSECT|LATERAL|WINDOW"
    r"|((LEFT|RIGHT|FULL|INNER|CROSS)\s+)?((OUTER|SEMI|ANTI)\s+)?JOIN)\b",
    re.I,
)
"""A long line is broken before these, outside parentheses."""
CONDITIONS: Final = re.compile(r"(ON|AND|OR|WHEN|ELSE)\b", re.I)
"""A part between commas that is too long is broken before these, outside parentheses."""
JOIN_WORDS: Final = re.compile(r"\b(LEFT|RIGHT|FULL|INNER|CROSS|OUTER|SEMI|ANTI)$", re.I)
QUOTES: Final = "'\"`"
SQL_WIDTH: Final = WIDTH - 2 * len(INDENT)


def sql_lines(sql: str, width: int) -> tuple[str, ...] | None:
    """The lines of a query, none longer than `width` where it can be helped.

    None where the query cannot be laid out anew without changing it: a literal or a comment that
    goes over a line's end, or one that does not end.

    >>> sql_lines("SELECT a, count(*) AS n FROM b GROUP BY a", 26)
    ('SELECT a, count(*) AS n', 'FROM b', 'GROUP BY a')
    """
    text = textwrap.dedent(sql.expandtabs(4)).strip()
    if "\t" in sql and any("\t" in sql[start:end] for start, end in opaque(sql) or ()):
        return None
    spans = opaque(text)
    if spans is None or any("\n" in text[start:end].rstrip("\n") for start, end in spans):
        return None
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line.rstrip()] if len(line.rstrip()) <= width else broken(line.rstrip(), width)
    return tuple(lines)


def sql_value(sql: str, *, deeper: int = 0) -> str | Text:
    """A query as a string on one line, or over several; so many levels deeper than others."""
    lines = sql_lines(sql, SQL_WIDTH - 4 * deeper)
    if lines is None:
        return sql
    return lines[0] if len(lines) == 1 else Text(lines)


def opaque(sql: str) -> list[tuple[int, int]] | None:
    """Where literals, quoted names and comments stand; None where one does not end.

    >>> opaque("a 'b''c' -- d"), opaque("'")
    ([(2, 5), (5, 8), (9, 13)], None)
    """
    spans: list[tuple[int, int]] = []
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
            spans.append((at, end))
        at = end
    return spans


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
    """One long line as several; a line with a comment stays one."""
    if any(line.startswith(("--", "/*"), start) for start, _ in opaque(line) or ()):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    lines: list[str] = []
    for clause in clauses(line.strip()):
        first, *others = rows(clause, width - len(indent) - 2, [items, conditions, pieces])
        lines += [f"{indent}{first}", *(f"{indent}  {other}" for other in others)]
    return lines


def rows(text: str, width: int, ways: Sequence[Callable[[str], Iterable[str]]]) -> list[str]:
    """The parts of a text side by side as far as they fit; a longer part is cut in the next way."""
    if len(text) <= width or not ways:
        return [text]
    parts = list(ways[0](text))
    if len(parts) == 1:
        return rows(text, width, ways[1:])
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append("")
        if len(part) <= width:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
        else:
            first, *others = rows(part, width - 2, ways[1:])
            lines = [*lines[:-1], first, *(f"  {other}" for other in others)]
            if others:
                lines.append("")
    return [row for row in lines if row]


def clauses(line: str) -> Iterator[str]:
    """The line before each clause that stands outside parentheses."""
    return cut(
        line,
        (
            at
            for at, depth in plain(line)
            if line[at] == " "
            and depth == 0
            and CLAUSES.match(line, at + 1)
            and not JOIN_WORDS.search(line, 0, at)
        ),
    )


def items(clause: str) -> Iterator[str]:
    """The clause after each comma outside parentheses."""
    return cut(clause, (at + 1 for at, depth in plain(clause) if clause[at] == "," and depth == 0))


def conditions(item: str) -> Iterator[str]:
    """The item before each `CONDITIONS` outside parentheses."""
    spaces = (at for at, depth in plain(item) if item[at] == " " and depth == 0)
    return cut(item, (at for at in spaces if CONDITIONS.match(item, at + 1)))


def pieces(part: str) -> Iterator[str]:
    """The part at its spaces, literals and quoted names whole."""
    return cut(part, (at for at, _ in plain(part) if part[at] == " "))


def cut(text: str, places: Iterable[int]) -> Iterator[str]:
    """The text between some places, without the white space there."""
    start = 0
    for end in (*places, len(text)):
        if text[start:end].strip():
            yield text[start:end].strip()
        start = end


def plain(line: str) -> Iterator[tuple[int, int]]:
    """(place, depth of parentheses) of each character outside literals and quoted names."""
    spans = dict(opaque(line) or [])
    at = depth = 0
    while at < len(line):
        if at in spans:
            at = spans[at]
            continue
        depth += (line[at] == "(") - (line[at] == ")")
        yield at, depth
        at += 1
