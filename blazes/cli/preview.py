"""The first rows of a sink's files, as lines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from blazes.document.blocks import Document, Table
from blazes.document.plain import cut, printable
from blazes.document.terminal import Layout, text
from blazes.report.progress import amount

ROWS: Final = 5
WIDTH: Final = 28


@dataclass(frozen=True, slots=True)
class Preview:
    """The contents of a folder of results."""

    size: str
    """How much, in words."""
    lines: tuple[str, ...]


def preview(folder: Path, format: str) -> Preview:
    """The first rows of the files in a folder and in the folders of its commits."""
    files = data_files(folder)
    if not files:
        return Preview("empty", ())
    size = sum(file.stat().st_size for file in files)
    number = f"{len(files)} file{'s' if len(files) > 1 else ''}"
    shown = list(itertools.islice(_rows(files, format), ROWS))
    return Preview(f"{number}, {amount(size)}B", tuple(as_table(shown)))


def data_files(folder: Path) -> list[Path]:
    """Files with records, in the order of their commits; none that are hidden or in the making."""
    files = [
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)
    ]
    return sorted(files)


def as_table(rows: list[Mapping[str, Any]]) -> list[str]:
    """Rows below their column names."""
    if not rows:
        return []
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    heads = tuple(cut(printable(name), WIDTH) for name in names)
    cells = (tuple(cut(printable(_text(row.get(n))), WIDTH) for n in names) for row in rows)
    table = Table(heads, tuple(cells), wrap=False)
    return text(Document("", (table,)), Layout((WIDTH + 2) * len(names))).splitlines()


def _rows(files: list[Path], format: str) -> Iterator[Mapping[str, Any]]:
    for file in files:
        if format == "parquet":
            yield from _parquet(file)
        elif format == "json":
            yield from filter(None, map(_json, _lines(file)))
        elif format in ("csv", "text"):
            yield from ({"line": line} for line in _lines(file))


def _parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(file).iter_batches(batch_size=ROWS):
        yield from batch.to_pylist()


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as content:
        for line in content:
            yield line.rstrip("\n")


def _json(line: str) -> Mapping[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value)
