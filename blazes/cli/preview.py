"""The first rows of a sink's files, as lines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from blazes.document.plain import cells, printable
from blazes.report.progress import amount, cut

ROWS: Final = 5
WIDTH: Final = 28


@dataclass(frozen=True, slots=True)
class Preview:
    """What is in a folder of results."""

    size: str
    """How much, in words."""
    lines: tuple[str, ...]


def preview(folder: Path, format: str, *, rows: int = ROWS) -> Preview:
    """The first rows of the files in a folder and in the folders of its commits."""
    files = data_files(folder)
    if not files:
        return Preview("empty", ())
    size = sum(file.stat().st_size for file in files)
    number = f"{len(files)} file{'s' if len(files) > 1 else ''}"
    shown = list(itertools.islice(_rows(files, format), rows))
    return Preview(f"{number}, {amount(size)}B", tuple(as_table(shown)))


def data_files(folder: Path) -> list[Path]:
    """Files with records, in the order of their commits; none that are hidden or in the making."""
    found = [
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)
    ]
    return sorted(found)


def as_table(rows: list[Mapping[str, Any]]) -> list[str]:
    """Rows below their column names."""
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    table = [[cut(printable(text), WIDTH) for text in line] for line in table]
    widths = [max(cells(line[at]) for line in table) for at in range(len(names))]

    def padded(line: list[str]) -> str:
        both = zip(line, widths, strict=True)
        return "  ".join(text + " " * (wide - cells(text)) for text, wide in both).rstrip()

    return list(map(padded, table))


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
