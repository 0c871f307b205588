"""Files as a streaming job meets them: written whole, one after the other; read back; compared.

A file source reads a folder in the order of modification times, so the order of arrival is a
property of the files. Everything here is standard library, but for reading Parquet results.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

Record: TypeAlias = Mapping[str, Any]
Line: TypeAlias = Record | str
"""A record, or a line as it stands: sources also send what is not JSON."""
Step: TypeAlias = Mapping[str, Sequence[Line]]
"""File name -> lines: what arrives together."""

FIRST_ARRIVAL_S: Final = 1_767_225_600
"""Modification time of the first file, in seconds since 1970: 2026-01-01. One step is a second."""


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A line on its way from a producer; `at` is when it arrives, on the generator's own clock."""

    at: float
    producer: str
    line: Line = field(compare=False)


def steps(messages: Iterable[Message], *, count: int) -> list[dict[str, list[Line]]]:
    """Cut the messages into `count` steps of equal length, a file for each producer in each.

    >>> steps([Message(0.0, "a", "x"), Message(1.0, "b", "y")], count=2)
    [{'00000-a.json': ['x']}, {'00001-b.json': ['y']}]
    """
    ordered = sorted(messages, key=lambda message: (message.at, message.producer))
    if not ordered:
        return []
    first, last = ordered[0].at, ordered[-1].at
    length = (last - first) / count or 1.0
    cut: list[dict[str, list[Line]]] = [{} for _ in range(count)]
    for message in ordered:
        index = min(int((message.at - first) / length), count - 1)
        name = f"{index:05d}-{message.producer}.json"
        cut[index].setdefault(name, []).append(message.line)
    return cut


def land(folder: Path, arriving: Iterable[Step], *, follow_s: float | None = None) -> int:
    """Write every step's files below `folder`, in order; the number of lines written.

    A file appears whole (it is written aside and renamed) and later than every file before it.
    With `follow_s` the steps are that many seconds apart and the times are those of the clock, so
    that a running job can be watched; without, all are written at once with times of their own.
    Names may contain folders (`clicks/00001-ads-2.json`).
    """
    written = 0
    for index, step in enumerate(arriving):
        if follow_s is not None and index:
            time.sleep(follow_s)
        for place, (name, lines) in enumerate(step.items()):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_name(f".{file.name}.writing")
            aside.write_text("".join(f"{as_json(line)}\n" for line in lines), encoding="utf-8")
            if follow_s is None:
                time_ns = (FIRST_ARRIVAL_S + index) * 1_000_000_000 + place * 1_000_000
                os.utime(aside, ns=(time_ns, time_ns))
            aside.replace(file)
            written += len(lines)
    return written


def as_json(line: Line) -> str:
    """The line as it stands in a file.

    >>> as_json({"id": 7, "sealed": False})
    '{"id":7,"sealed":false}'
    """
    if isinstance(line, str):
        return line
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def write_json(file: Path, value: object) -> None:
    """Write one JSON value, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.writing")
    aside.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    aside.replace(file)


def empty(folder: Path) -> None:
    """Remove what an earlier generator left in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in the files below a source's folder, in the order of their arrival.

    Hidden files are none of the source's.
    """
    files = [file for file in folder.rglob("*.json") if _visible(file, folder)]
    for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name)):
        yield from lines(file)


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line; lines that are none are left out."""
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            yield record


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The rows in the Parquet or JSON files that a job committed below `folder`, in no order."""
    rows = list(read_records(folder))
    parquet = [file for file in folder.rglob("*.parquet") if _visible(file, folder)]
    if parquet:
        import pyarrow.parquet as pq

        for file in parquet:
            rows.extend(pq.ParquetFile(file).read().to_pylist())
    return rows


def _visible(file: Path, folder: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


@dataclass(frozen=True)
class Difference:
    """What two multisets of rows do not have in common."""

    expected: int
    """How many rows there should be."""
    missing: tuple[Hashable, ...]
    unexpected: tuple[Hashable, ...]

    @property
    def equal(self) -> bool:
        """True where every row is there, as often as it should be, and no other."""
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        if self.equal:
            return f"exactly the expected {self.expected:,} rows"
        parts = []
        for name, rows in (("missing", self.missing), ("unexpected", self.unexpected)):
            if rows:
                shown = ", ".join(map(str, rows[:2])) + (", ..." if len(rows) > 2 else "")
                parts.append(f"{len(rows):,} {name}: {shown}")
        return f"not the expected {self.expected:,} rows; " + "; ".join(parts)


def difference(expected: Iterable[Hashable], got: Iterable[Hashable]) -> Difference:
    """How `got` differs from `expected`, as multisets.

    >>> print(difference([("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("b", 2)]))
    not the expected 2 rows; 1 unexpected: ('b', 2)
    """
    should, did = Counter(expected), Counter(got)
    return Difference(
        expected=should.total(),
        missing=tuple(sorted((should - did).elements(), key=repr)),
        unexpected=tuple(sorted((did - should).elements(), key=repr)),
    )
