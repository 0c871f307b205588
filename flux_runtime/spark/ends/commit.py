"""Outputs that are committed exactly once: one folder per commit, renamed into its place.

A commit is written to a staging folder beside the output and renamed in one step. Its name follows
from the unit and the number of the release or micro-batch, so that a commit that is repeated after
a crash finds the folder and does nothing (specification 3). `spark.read.parquet(path + "/*")`
reads an output.

What a commit holds and covers stands in it (`flux_runtime.commits.record`). The order of flushing:
the staged files, the staged folder, the rename, the folder of the output; then `commit` returns,
and its caller may record that it is done. A repeated commit is compared with what was asked for:
one that covers something else is damage, not a repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.commits.owner import Owner, Ownership, gone_of, staging_of
from flux_runtime.commits.record import (
    RECORD,
    CommitRecord,
    check_commit,
    check_commits_of,
    commit_name,
    number_of,
    same,
)
from flux_runtime.sealing import manifest
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import Storage, local_path, storage_at
from flux_runtime.spark import faults
from flux_runtime.spark.ends.driver_rows import DriverRows

__all__ = ["Folders", "check_commits_of", "commit_name"]


@dataclass(frozen=True, slots=True)
class Folders:
    """An output: a folder that holds one folder for every commit of every unit that writes it."""

    exact: ClassVar[bool] = True
    needs_channel: ClassVar[bool] = False
    location: str
    """A path or `file:` address."""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    owner: Owner | None = None
    """The driver that commits; None: nobody else can."""

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """See `flux_runtime.spark.ends.sinks.CommitSink`."""
        return replace(self, owner=ownership.owner(self.location))

    def committed(self, name: str) -> bool:
        """Whether a commit has been made, and is still there."""
        return self._parent.exists(f"{self._name}/{name}")

    def commits(self, unit: str) -> list[str]:
        """The commits of a unit that are there, oldest first."""
        numbered = [(number_of(name, unit), name) for name in self._parent.names(self._name)]
        return [name for _, name in sorted((n, name) for n, name in numbered if n is not None)]

    def newest(self, unit: str) -> int | None:
        """The number of a unit's newest commit that is there."""
        commits = self.commits(unit)
        return number_of(commits[-1], unit) if commits else None

    def takes(self, rows: DriverRows) -> bool:
        """Whether rows of the driver can be written without Spark."""
        return self.format == "parquet" and not self.options and rows.writable

    def check(self, name: str) -> CommitRecord:
        """The comparison of what a commit says of itself with what it holds.

        Raises:
            DamagedError: a file is missing, was added or changed; or it says nothing.
        """
        return check_commit(self._folder, name)

    def uri(self, name: str = "*") -> str:
        """Where a commit, or all of them, can be read."""
        return f"{self._parent.uri(self._name)}/{name}"

    def commit(
        self,
        unit: str,
        number: int,
        rows: DataFrame | DriverRows,
        *,
        staged: Callable[[], object] | None = None,
        more: Callable[[str], None] | None = None,
        keep_empty: bool = True,
        covers: Any = None,
    ) -> int:
        """Write a commit in one step, unless it has been made; how many rows it holds.

        Args:
            unit: whose commit.
            number: of the commit.
            rows: of the commit; those that the driver holds are `writable`.
            staged: called after the rows have been computed, before they are committed.
            more: adds files to the staging folder, whose address it is given.
            keep_empty: False: a commit without rows leaves no folder.
            covers: what the rows are made of, as JSON data; a repetition covers the same.

        Raises:
            FencedError: a newer driver runs the job; nothing was committed.
            DamagedError: the commit has been made, and is damaged or covers something else.
        """
        name = commit_name(unit, number)
        if self.owner is not None:
            self.owner.check()
            if number <= self.owner.floor(unit):  # all who read it have, and it was deleted
                return 0
        if self.committed(name):
            self._check_repeated(name, covers)
            self._note(unit, number)
            return 0
        staging = f"{self._staging}/{name}"
        uri = self._parent.uri(staging)
        count = self._write(rows, uri)
        if staged is not None:
            staged()
        faults.point("output-staged")
        if more is not None:
            more(uri)
        if not count and not keep_empty:
            self._parent.delete(staging)
        else:
            self._record(staging, unit, number, count, covers)
            self._put(staging, name)
            self._note(unit, number)
        faults.point("output-committed")
        return count

    def _write(self, rows: DataFrame | DriverRows, uri: str) -> int:
        """Write rows into a folder; how many there are."""
        if isinstance(rows, DriverRows):
            rows.write(uri)
            return int(rows.table.num_rows)
        counted = None if self.format == "parquet" else Observation()  # its files say it
        if counted is not None:
            rows = rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        rows.write.format(self.format).options(**self.options).mode("overwrite").save(uri)
        if counted is not None:
            return int(counted.get["rows"])
        files = [file for file in local_path(uri).iterdir() if file.name[0] not in "._"]
        return sum(pq.read_metadata(file).num_rows for file in files)

    def delete(self, unit: str) -> None:
        """Delete every commit of a unit."""
        for name in self.commits(unit):
            self._parent.delete(f"{self._name}/{name}")
        self._parent.delete(self._staging)

    def drop(self, name: str) -> None:
        """Delete a commit; readers see all of it or nothing."""
        gone = f"{gone_of(self._name)}/{name}"
        self._parent.delete(gone)
        self._parent.move(f"{self._name}/{name}", gone)
        self._parent.delete(gone)

    def _record(self, staging: str, unit: str, number: int, rows: int, covers: Any) -> None:
        """Write into what was staged what it is."""
        owner = self.owner
        record = CommitRecord(
            unit=unit,
            number=number,
            previous=self.newest(unit) if owner is None else owner.newest(unit),
            epoch=0 if owner is None else owner.driver.epoch,
            state=None if owner is None else owner.state_id,
            rows=rows,
            files=manifest.take(self._parent, staging),
            covers=covers,
        )
        self._parent.write(f"{staging}/{RECORD}", record.to_bytes())

    def _put(self, staging: str, name: str) -> None:
        """Rename what was staged into its place, if this is still the newest driver."""
        if self.owner is not None:
            self.owner.check()
        faults.point("output-checked")
        try:
            self._parent.move(staging, f"{self._name}/{name}")
        except OSError:  # a newer driver has taken it away, or has made this commit
            if self.owner is not None:
                self.owner.check()
            raise

    def _note(self, unit: str, number: int) -> None:
        if self.owner is not None:
            self.owner.committed(unit, number)

    def _check_repeated(self, name: str, covers: Any) -> None:
        """Check a commit that has been made, and flush its rename: a crash may have come first."""
        record = self.check(name)
        state_id = None if self.owner is None else self.owner.state_id
        if state_id is not None and record.state != state_id:
            raise DamagedError(
                self.uri(name),
                f"this commit was made from another state ({record.state}, epoch {record.epoch})",
                f"this job's is {state_id}. The commit is safe, and nothing was changed. Put the "
                "results where they belong, or start afresh with --fresh, which deletes them",
            )
        if covers is not None and not same(record.covers, covers):
            raise DamagedError(
                self.uri(name),
                "this commit covers something else than the one that the job is about to make "
                "under its number: the state has lost entries, or its checkpoint was deleted",
                "the results are safe, and nothing was changed. Restore the state folder from a "
                "copy of the same moment, or start afresh with --fresh, which deletes state and "
                "results",
            )
        self._parent.sync(self._name)

    @property
    def _staging(self) -> str:
        """The folder beside the output in which commits are made."""
        return staging_of(self._name) if self.owner is None else self.owner.staging

    @property
    def _parent(self) -> Storage:
        return storage_at(self.location.rstrip("/").rpartition("/")[0] or ".")

    @property
    def _folder(self) -> Storage:
        return self._parent.at(self._name)

    @property
    def _name(self) -> str:
        return self.location.rstrip("/").rpartition("/")[2]
