"""Outputs that are committed exactly once: one folder per commit, renamed into its place.

A commit is written to a staging folder beside the output and renamed in one step. Its name follows
from the unit and the number of the release or micro-batch, so that a commit that is repeated after
a crash finds the folder and does nothing (specification 3). `spark.read.parquet(path + "/*")`
reads an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from flux_runtime.sealing.storage import Storage, storage_at
from flux_runtime.spark import faults


@dataclass(frozen=True, slots=True)
class Folders:
    """An output: a folder that holds one folder for every commit of every unit that writes it."""

    location: str
    """A path or `file:` URI."""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    def committed(self, name: str) -> bool:
        """Whether a commit has been made."""
        return self._parent.exists(f"{self._name}/{name}")

    def commits(self, unit: str) -> list[str]:
        """The commits of a unit, oldest first."""
        return [n for n in self._parent.names(self._name) if n.rpartition("-")[0] == unit]

    def uri(self, name: str = "*") -> str:
        """Where a commit, or all of them, can be read."""
        return f"{self._parent.uri(self._name)}/{name}"

    def commit(
        self,
        name: str,
        frame: DataFrame,
        *,
        staged: Callable[[], object] | None = None,
        more: Callable[[str], None] | None = None,
        keep_empty: bool = True,
    ) -> int:
        """Write a commit in one step, unless it has been made; how many rows it holds.

        Args:
            name: see `commit_name`.
            frame: its rows.
            staged: called after the rows have been computed, before they are committed.
            more: adds files to the staging folder, whose address it is given.
            keep_empty: False: a commit without rows leaves no folder.
        """
        staging = f".{self._name}.staging/{name}"
        if self.committed(name):
            return 0
        uri = self._parent.uri(staging)
        frame.write.format(self.format).options(**self.options).mode("overwrite").save(uri)
        if staged is not None:
            staged()
        faults.point("output-staged")
        rows = count_rows(frame.sparkSession, uri, self.format)
        if more is not None:
            more(uri)
        if rows or keep_empty:
            self._parent.move(staging, f"{self._name}/{name}")
        else:
            self._parent.delete(staging)
        faults.point("output-committed")
        return rows

    def delete(self, unit: str) -> None:
        """Delete every commit of a unit."""
        for name in self.commits(unit):
            self._parent.delete(f"{self._name}/{name}")
        self._parent.delete(f".{self._name}.staging")

    @property
    def _parent(self) -> Storage:
        return storage_at(self.location.rstrip("/").rpartition("/")[0] or ".")

    @property
    def _name(self) -> str:
        return self.location.rstrip("/").rpartition("/")[2]


def commit_name(unit: str, number: int) -> str:
    """The name of a unit's commit.

    >>> commit_name("Count.counts", 7)
    'Count.counts-000000007'
    """
    return f"{unit}-{number:09d}"


def count_rows(session: SparkSession, uri: str, format: str) -> int:
    """Rows in a folder of files; from the files' own footers or lines where they are at hand."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return session.read.format(format).load(uri).count()
    files = [f for f in Path(unquote(parts.path)).iterdir() if f.name[0] not in "._"]
    if format == "parquet":
        return sum(pq.read_metadata(file).num_rows for file in files)
    if format in ("json", "text", "csv") and all(
        f.suffix in (".json", ".txt", ".csv") for f in files
    ):
        return sum(_lines(file) for file in files)
    return session.read.format(format).load(uri).count() if files else 0


def _lines(file: Path) -> int:
    count = 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            count += block.count(b"\n")
    return count
