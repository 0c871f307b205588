"""Channels are checked when they are read, and lose what all their readers are done with.

A channel holds the commits of one unit for others to read. Every query that reads it says so before
anything starts (`watch`), and from then on:

- Before each of its micro-batches, the commits that it reads are compared with what they say of
  themselves (`flux_runtime.commits.record`).
- A commit is deleted once every query that reads the channel has committed, in Spark's sense, the
  micro-batch that read it: a later micro-batch of that query has begun. So a replay finds its
  files. The newest commit of a channel always stays.

What each query has read is kept in the state folder. Where that is lost, too little is deleted,
never too much. A unit that reads its own channel (`StatefulUnit.monotone`) needs all of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from flux_runtime.commits.record import check_commits_of, number_of, place_of, read_record
from flux_runtime.sealing.storage import Storage, local_path, storage_at
from flux_runtime.spark import faults
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.query import Query
from flux_runtime.spark.units import Unit

FOLDER: Final = "retention"
"""In the state folder: what each query has read, `QUERY.json`."""
TOGETHER: Final = 16
"""Commits that are deleted together: that so many are gone is written down once, and flushed."""


@dataclass(slots=True)
class _Reader:
    """The parts of channels that a query has read."""

    channels: set[str] = field(default_factory=set)
    """Units whose channels it reads."""
    batch: int = -1
    """Its newest micro-batch; those before it are committed."""
    read: dict[str, dict[int, int]] = field(default_factory=dict)
    """Unit -> number of a commit -> the micro-batch that read it."""

    def is_past(self, unit: str, number: int) -> bool:
        """Whether the micro-batch that read a commit is committed."""
        return self.read.get(unit, {}).get(number, self.batch) < self.batch

    def to_bytes(self) -> bytes:
        return json.dumps({"batch": self.batch, "read": self.read}).encode()

    @staticmethod
    def from_bytes(data: bytes | None) -> _Reader:
        """Nothing is known where the file is missing, or half of it."""
        try:
            entry = json.loads(data or b"")
            read = {unit: {int(n): b for n, b in of.items()} for unit, of in entry["read"].items()}
            return _Reader(batch=entry["batch"], read=read)
        except (ValueError, KeyError, TypeError, AttributeError):
            return _Reader()


class Retention:
    """The channels of a job; for any thread.

    Args:
        state: of the job.
        channels: unit -> its channel.
        readers: unit -> the units that read its channel; until each of them has said so with
            `watch`, nothing of the channel is deleted.
        whole_channels: units whose channels are needed whole.
    """

    def __init__(
        self,
        state: Storage,
        channels: Mapping[str, Folders],
        readers: Mapping[str, Collection[str]],
        *,
        whole_channels: Collection[str] = (),
    ) -> None:
        self._state = state.at(FOLDER)
        self._channels = dict(channels)
        self._expected = {name: set(readers.get(name, ())) for name in channels}
        self._kept = set(whole_channels)
        self._joined: dict[str, set[str]] = {name: set() for name in channels}
        self._readers: dict[str, _Reader] = {}
        self._by_path = {str(local_path(c.location)): name for name, c in channels.items()}
        self._lock = threading.Lock()

    def watch(self, query: Query, *, unit: str, feeds: Iterable[Feed]) -> None:
        """Check what a query reads of channels, and let go of what it is done with.

        Args:
            query: before it is started; nothing is done where it reads no channel.
            unit: whose query.
            feeds: what it reads.
        """
        names = {origin.name for feed in feeds for origin in units_behind(feed)}
        if self.joins(query.name, unit=unit, channels=names):
            query.begins = lambda batch: self.begins(query.name, batch, query.files())

    def joins(self, query: str, *, unit: str, channels: Collection[str]) -> bool:
        """A query reads the channels of these units; whether there are any."""
        known = set(channels) & self._channels.keys()
        if not known:
            return False
        with self._lock:
            reader = self._readers.get(query)
            if reader is None:
                reader = _Reader.from_bytes(self._state.read(_file(query)))
                self._readers[query] = reader
            reader.channels |= known
            for name in known:
                self._joined[name].add(unit)
        return True

    def begins(self, query: str, batch: int, files: Collection[str]) -> None:
        """A micro-batch of a query begins, on these files: those before it are committed.

        Raises:
            DamagedError: a commit is not what it was; nothing of it has been read.
        """
        mine = [file for file in files if self._unit_of(file) is not None]
        check_commits_of(mine)
        self.read(query, batch, mine)

    def read(self, consumer: str, batch: int, files: Collection[str]) -> None:
        """The same, without looking into the files; then delete what all readers are done with."""
        with self._lock:
            reader = self._readers[consumer]
            if batch < reader.batch:  # its checkpoint was deleted: what it has read, it reads again
                reader.read = {}
            reader.batch = batch
            for unit, number in self._whole_commits(files):
                reader.read.setdefault(unit, {})[number] = batch
            for unit in reader.channels:
                self._delete_done(unit)
            self._state.write(_file(consumer), reader.to_bytes(), flush=False)

    def committed(self, unit: str) -> None:
        """A unit has committed, in all its places: let go of what nobody reads."""
        if unit in self._channels and not self._expected[unit]:
            with self._lock:
                self._delete_done(unit)

    def _delete_done(self, unit: str) -> None:
        channel = self._channels[unit]
        if unit in self._kept or channel.owner is None or self._expected[unit] - self._joined[unit]:
            return
        readers = [reader for reader in self._readers.values() if unit in reader.channels]
        numbered = [(number_of(name, unit), name) for name in channel.commits(unit)[:-1]]
        done = [
            (number, name)
            for number, name in numbered
            if number is not None and all(reader.is_past(unit, number) for reader in readers)
        ]
        if len(done) < TOGETHER:
            return
        channel.owner.raise_floor(unit, max(number for number, _ in done))
        faults.point("floor-raised")
        for number, name in done:
            channel.drop(name)
            faults.point("commit-dropped")
            for reader in readers:
                reader.read[unit].pop(number, None)

    def _whole_commits(self, files: Iterable[str]) -> Iterator[tuple[str, int]]:
        """(unit, number) of the commits of which all files are among these."""
        by_commit: dict[str, set[str]] = {}
        for file in files:
            folder, _, name = file.rpartition("/")
            by_commit.setdefault(folder, set()).add(name)
        for commit, names in by_commit.items():
            folder, _, name = commit.rpartition("/")
            unit = self._unit_of(f"{commit}/")
            if unit is not None and names >= read_record(storage_at(folder), name).files.keys():
                number = number_of(name, unit)
                assert number is not None
                yield unit, number

    def _unit_of(self, file: str) -> str | None:
        """The unit whose channel a file is in."""
        folder = file.rpartition("/")[0].rpartition("/")[0]
        return self._by_path.get(str(local_path(folder))) if folder.startswith("file:") else None


def units_behind(feed: Feed) -> list[Unit]:
    """The units whose channels a feed reads, also through a loop."""
    if isinstance(feed.origin, Unit):
        return [feed.origin]
    inner: Iterable[Feed] = getattr(feed.origin, "feeds", ())  # of a loop
    return [unit for reader in inner for unit in units_behind(reader)]


def _file(query: str) -> str:
    return f"{place_of(query)}.json"
