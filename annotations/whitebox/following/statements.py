"""The SQL files of a Declarative Pipelines project: statements that define datasets and flows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`|\w+|\s+|.",
    re.DOTALL,
)
_NAME: Final = r"((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_KINDS: Final = {
    "STREAMING TABLE": "streaming table",
    "STREAMING LIVE TABLE": "streaming table",
    "LIVE TABLE": "materialized view",
    "LIVE VIEW": "temporary view",
    "STREAMING LIVE VIEW": "temporary view",
    "TEMPORARY LIVE TABLE": "temporary view",
    "TEMPORARY LIVE VIEW": "temporary view",
    "TEMPORARY STREAMING LIVE VIEW": "temporary view",
    "TEMPORARY STREAMING LIVE TABLE": "temporary view",
    "TEMPORARY STREAMING TABLE": "temporary view",
    "PRIVATE STREAMING TABLE": "temporary view",
    "PRIVATE MATERIALIZED VIEW": "temporary view",
    "TEMPORARY MATERIALIZED VIEW": "temporary view",
    "MATERIALIZED VIEW": "materialized view",
    "TEMPORARY VIEW": "temporary view",
    "TEMP VIEW": "temporary view",
}
_DATASET: Final = re.compile(
    r"CREATE\s+(?:OR\s+(?:REFRESH|REPLACE)\s+)?((?:(?:TEMPORARY|PRIVATE)\s+)?(?:STREAMING\s+"
    r"(?:LIVE\s+)?(?:TABLE|VIEW)|LIVE\s+(?:TABLE|VIEW)|MATERIALIZED\s+VIEW)|"
    rf"TEMP(?:ORARY)?\s+VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    re.IGNORECASE,
)
_FLOW: Final = re.compile(
    rf"CREATE\s+FLOW\s+{_NAME}(?:\s+COMMENT\s+'[^']*')?\s+AS\s+INSERT\s+INTO\s+(?:ONCE\s+)?{_NAME}"
    r"(?:\s+BY\s+NAME)?\s+",
    re.IGNORECASE,
)
_CDC: Final = re.compile(
    rf"(?:CREATE\s+FLOW\s+{_NAME}(?:\s+COMMENT\s+'[^']*')?\s+AS\s+)?"
    rf"(?:AUTO\s+CDC|APPLY\s+CHANGES)\s+(?:ONCE\s+)?INTO\s+{_NAME}"
    rf"\s+FROM\s+(?:STREAM\s*\(?\s*)?{_NAME}\s*\)?\s+KEYS\s*\(([^)]*)\)(.*)$",
    re.IGNORECASE | re.DOTALL,
)
_SETTING: Final = re.compile(r"(SET|USE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Statement:
    """One statement: a dataset, a flow, or both. `kind` None: a flow to what is made elsewhere."""

    name: str
    target: str
    kind: str | None
    query: str | None
    line: int
    """Of the file, where the statement begins."""
    query_line: int = 0
    """Of the file, where the query begins."""
    source: str | None = None
    """Of an AUTO CDC flow: what it reads; and its keys, and what orders the events of a key."""
    keys: tuple[str, ...] = ()
    sequence: str = ""
    history: bool = False
    """AUTO CDC that keeps every version (SCD type 2)."""


class NotUnderstood(ValueError):  # noqa: N818
    """A statement of a kind that is not known here."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        super().__init__(f"a statement that is not known here: {' '.join(text.split())[:60]}")


def statements(text: str) -> Iterator[Statement | NotUnderstood]:
    """The statements of a file, in order; settings are left out.

    >>> [s.target for s in statements("CREATE STREAMING TABLE t AS SELECT 1; SET a = b;")]
    ['t']
    """
    for part, line in pieces(text):
        if not _SETTING.match(part):
            yield _statement(part, line)


def pieces(text: str) -> Iterator[tuple[str, int]]:
    """Texts between semicolons with comments blanked out, and the lines where they begin."""
    parts: list[str] = []
    line = 1
    begin = None
    for token in _TOKEN.findall(text):
        if token == ";":
            if begin is not None:
                yield "".join(parts), begin
            parts, begin = [], None
        elif token.startswith(("--", "/*")):
            parts.append(re.sub(r"[^\n]", " ", token) if begin is not None else "")
        elif begin is not None or not token.isspace():
            begin = line if begin is None else begin
            parts.append(token)
        line += token.count("\n")
    if begin is not None:
        yield "".join(parts), begin


def _statement(text: str, line: int) -> Statement | NotUnderstood:
    if match := _CDC.match(text):
        flow, target, source, keys, rest = (_plain(group or "") for group in match.groups())
        sequence = re.search(
            r"SEQUENCE\s+BY\s+(.+?)(?:\s+(?:COLUMNS|STORED|TRACK)\b|$)", rest, re.I | re.S
        )
        names = tuple(_plain(key.strip()) for key in keys.split(","))
        history = bool(re.search(r"SCD\s+TYPE\s+2", rest, re.IGNORECASE))
        order = sequence[1].strip() if sequence else ""
        return Statement(
            flow or target, target, None, None, line, line, source, names, order, history
        )
    if match := _FLOW.match(text):
        query_line = line + text[: match.end()].count("\n")
        body = text[match.end() :]
        return Statement(_plain(match[1]), _plain(match[2]), None, body, line, query_line)
    if match := _DATASET.match(text):
        name = _plain(match[2])
        kind = _KINDS[" ".join(match[1].upper().split())]
        begin = _body(text, match.end())
        query = None if begin is None else text[begin:]
        return Statement(name, name, kind, query, line, line + text[: begin or 0].count("\n"))
    return NotUnderstood(text, line)


def _body(text: str, begin: int) -> int | None:
    """Where the query behind the first AS outside of parentheses begins."""
    depth, place = 0, begin
    for token in _TOKEN.findall(text[begin:]):
        place += len(token)
        depth += (token == "(") - (token == ")")
        if depth == 0 and token.upper() == "AS":
            return place + len(text[place:]) - len(text[place:].lstrip())
    return None


def _plain(name: str) -> str:
    """A name without its quotes, and without the prefix `LIVE` of this pipeline's own datasets."""
    if not re.fullmatch(_NAME, name):
        return name
    return re.sub(r"^LIVE\.", "", name.replace("`", ""), flags=re.IGNORECASE)
