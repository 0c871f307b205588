"""The ingress's journal on disk: what it has taken and not yet handed over to both copies.

Once a batch has reached one copy of a partition, the other copy must get the very same rows, even
if the ingress dies in between and the source offers something else the next time. So a batch is
written here before it is sent; when every live copy has acknowledged it, it is not needed any more.

    folder/EPOCH-FIRST     records of one leader, from batch FIRST on
    record                 length, CRC-32, batch, key of the offer, name of the source, rows

A leader that was paused may write on after another one has taken over, into files of its own epoch.
So a new leader begins with a file of all that is needed of older ones, and only files of the newest
epoch are read (the sites refuse the older leader as well, so that it never acknowledges any of it).
A torn record at the end of a file is one that was never sent.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa

from flux_runtime.sealing.storage import sync_folder

HEAD: Final = struct.Struct("<II")
RECORD: Final = struct.Struct("<qqqH")
FILE_FULL_BYTES: Final = 64 << 20
END_KEY: Final = (-1, -1)
"""In place of an offer's key: the source has ended."""

BEGUN: Final = ".begun"
"""Ending of a file that does not yet say what has been taken before it, and does not count."""

Key = tuple[int, int]
"""A source's batch and offset; a source's offers come in this order."""


class Record(NamedTuple):
    """One batch as it was offered."""

    number: int
    source: str
    key: Key
    rows: Any


class JournalDamaged(Exception):  # noqa: N818 - what happened
    """Batches that are needed are not there."""


class Journal:
    """The ingress's records.

    Args:
        folder: where the files are; one per job.
        fsync: whether a batch survives the loss of the machine, not only of the process.

    Attributes:
        first: batches below this number had been written when the newest file was begun.
        last: source -> key of its last batch.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder = folder
        self.fsync = fsync
        self.epoch = 0
        self.first = 0
        self.last: dict[str, Key] = {}
        self._file: BinaryIO | None = None
        self._size = 0
        self._needed: dict[Path, int] = {}
        self._now = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> list[Record]:
        """All records that count, in order of their numbers.

        Raises:
            JournalDamaged: some are missing.
        """
        files = sorted(self._files())
        newest = max((_epoch(path) for path in files), default=0)
        result: list[Record] = []
        for path in files:
            if _epoch(path) == newest:
                self.first = int(path.name.split("-")[1])
                result += _records(path)
        self._check(result)
        for record in result:
            self.last[record.source] = max(record.key, self.last.get(record.source, record.key))
        return result

    def _check(self, records: Sequence[Record]) -> None:
        numbers = [record.number for record in records if record.rows is not None]
        for number, after in pairwise(numbers):
            if after != number + 1:
                raise JournalDamaged(
                    f"batches {number + 1} to {after - 1} are missing from {self.folder}: the "
                    "machine has lost them, or somebody has changed the folder. Start the job anew "
                    'from its source; durable="machine" writes every batch to the disk'
                )

    def _files(self) -> Iterator[Path]:
        return (p for p in self.folder.iterdir() if p.name.replace("-", "").isdigit())

    def begin(self, epoch: int, first: int, records: Sequence[Record] = ()) -> None:
        """Write from here on as the leader of this epoch.

        Args:
            epoch: of the leader.
            first: the batch to come.
            records: batches before it that are needed.
        """
        self.epoch = epoch
        for path in [p for p in self.folder.iterdir() if p.name.endswith(BEGUN)]:
            path.unlink(missing_ok=True)
        self._open(records[0].number if records else first, records)
        for path in [p for p in self._files() if _epoch(p) < epoch]:
            path.unlink(missing_ok=True)

    def _open(self, first: int, records: Sequence[Record] = ()) -> None:
        if self._file is not None:
            self._file.close()
        self._now = self.folder / f"{self.epoch:06d}-{first:012d}"
        begun = self.folder / f"{self._now.name}{BEGUN}"
        self._file = begun.open("wb")
        self._size = 0
        taken = (Record(first - 1, source, key, None) for source, key in self.last.items())
        for record in (*taken, *records):
            self._put(record)
        self._flush()
        if records:
            self._needed[self._now] = records[-1].number
        begun.replace(self._now)  # only now does it stand in the place of older ones
        if self.fsync:
            sync_folder(self.folder)

    def append(self, record: Record) -> None:
        """Write a batch; it is read again unless it is trimmed."""
        if self._size > FILE_FULL_BYTES:
            self._open(record.number)
        self.last[record.source] = record.key
        self._put(record)
        self._flush()
        self._needed[self._now] = record.number

    def _put(self, record: Record) -> None:
        assert self._file is not None
        payload = b""
        if record.rows is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, record.rows.schema) as stream:
                stream.write_batch(record.rows)
            payload = sink.getvalue()
        name = record.source.encode()
        head = RECORD.pack(record.number, *record.key, len(name)) + name
        size = len(head) + len(payload)
        check = zlib.crc32(payload, zlib.crc32(head))
        self._file.write(b"".join((HEAD.pack(size, check), head, payload)))
        self._size += HEAD.size + size

    def _flush(self) -> None:
        assert self._file is not None
        self._file.flush()
        if self.fsync:
            os.fsync(self._file.fileno())

    def trim(self, below: int) -> None:
        """Batches below this number are not needed any more."""
        for path in [p for p, last in self._needed.items() if last < below and p != self._now]:
            del self._needed[path]
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _epoch(path: Path) -> int:
    return int(path.name.split("-")[0])


def _records(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    at = 0
    while at + HEAD.size <= len(data):
        size, check = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + size]
        if len(body) < size or size < RECORD.size or zlib.crc32(body) != check:
            return
        at += HEAD.size + size
        number, batch, offset, length = RECORD.unpack_from(body)
        source = body[RECORD.size : RECORD.size + length].decode()
        payload = body[RECORD.size + length :]
        rows = None
        if payload:
            with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
                rows = stream.read_next_batch()
        yield Record(number, source, (batch, offset), rows)
