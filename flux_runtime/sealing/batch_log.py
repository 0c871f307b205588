"""The batches of a ledger as files, from which it is made anew where its state is kept elsewhere.

RocksDB changes its own files at times of its own choosing, so that no keeper (`storage.Keeper`) can
follow them. In a kept folder the ledger is therefore a working copy, and these stand for it:

    ledger.log/N      the batch that was written as the Nth
    ledger.base/N     a checkpoint of RocksDB: what all batches below N have made

A batch is kept before RocksDB gets it. After `BATCHES_MAX` of them, or `BYTES_MAX`, a new
checkpoint takes their place; files that it has in common with RocksDB are hard links.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any, Final

from rocksdict import AccessType, Checkpoint, Options, Rdict, WriteBatch

from flux_runtime.sealing.storage import Keeper, LocalStorage, make_folder, sync_folder

LOG: Final = "ledger.log"
BASE: Final = "ledger.base"
BATCHES_MAX: Final = 64
BYTES_MAX: Final = 8 << 20

_SIZES: Final = struct.Struct("<Iq")
_DELETED: Final = -1
"""In place of the size of a value."""


class Batch:
    """Changes of entries that RocksDB gets in one step."""

    def __init__(self) -> None:
        self.operations: list[tuple[bytes, bytes | None]] = []
        """Names and values, in order; without a value: deletions."""

    def put(self, name: bytes, value: bytes) -> None:
        """Set an entry."""
        self.operations.append((name, value))

    def delete(self, name: bytes) -> None:
        """Delete an entry."""
        self.operations.append((name, None))

    def for_rocksdb(self) -> WriteBatch:
        """As RocksDB takes it."""
        batch = WriteBatch(raw_mode=True)
        for name, value in self.operations:
            if value is None:
                batch.delete(name)
            else:
                batch.put(name, value)
        return batch

    def to_bytes(self) -> bytes:
        """The operations, each with the sizes of name and value before it."""
        parts: list[bytes] = []
        for name, value in self.operations:
            size = _DELETED if value is None else len(value)
            parts += (_SIZES.pack(len(name), size), name, value or b"")
        return b"".join(parts)

    @staticmethod
    def from_bytes(data: bytes) -> Batch:
        """The reverse of `to_bytes`.

        >>> batch = Batch()
        >>> batch.put(b"a", b"one"), batch.delete(b"b"), batch.put(b"c", b"")
        (None, None, None)
        >>> Batch.from_bytes(batch.to_bytes()).operations
        [(b'a', b'one'), (b'b', None), (b'c', b'')]
        """
        batch, at = Batch(), 0
        while at < len(data):
            length, size = _SIZES.unpack_from(data, at)
            at += _SIZES.size
            name, at = data[at : at + length], at + length
            if size == _DELETED:
                batch.delete(name)
            else:
                batch.put(name, data[at : at + size])
                at += size
        return batch


class BatchLog:
    """The batches of one ledger.

    Args:
        ledger: its folder; log and base are beside it.
        keeper: of the folder.
    """

    def __init__(self, ledger: Path, keeper: Keeper) -> None:
        self._folder = LocalStorage(ledger.parent)
        self._keeper = keeper
        numbers = _numbers(ledger.with_name(LOG))
        self._base = max(_numbers(ledger.with_name(BASE)), default=0)
        self._next = max([*numbers, self._base - 1], default=-1) + 1
        self._bytes = 0

    def keep(self, batch: Batch) -> None:
        """Keep a batch; it is safe when this returns."""
        data = batch.to_bytes()
        self._folder.write(f"{LOG}/{self._next:012d}", data, flush=False)
        self._keeper.commit()
        self._next += 1
        self._bytes += len(data)

    def shorten(self, db: Any) -> None:
        """Put a checkpoint in the place of the batches, all of which RocksDB has, if many."""
        if self._next - self._base < BATCHES_MAX and self._bytes < BYTES_MAX:
            return
        make_folder(self._folder.root / BASE)
        base = self._folder.root / BASE / f"{self._next:012d}"
        Checkpoint(db).create_checkpoint(str(base))
        sync_folder(base)
        for number in _numbers(self._folder.root / LOG):
            self._folder.delete(f"{LOG}/{number:012d}")
        if self._base:
            self._folder.delete(f"{BASE}/{self._base:012d}")
        self._keeper.commit()
        self._base, self._bytes = self._next, 0


def make_ledger(ledger: Path, options: Options) -> None:
    """Make a ledger from its newest checkpoint and the batches since, which stay where they are.

    There is none yet.
    """
    base = max(_numbers(ledger.with_name(BASE)), default=0)
    if base:
        ledger.mkdir()
        for file in (ledger.with_name(BASE) / f"{base:012d}").iterdir():
            if file.suffix == ".sst":
                os.link(file, ledger / file.name)
            else:
                shutil.copy(file, ledger)
    db = Rdict(str(ledger), options, access_type=AccessType.read_write())
    for number in _numbers(ledger.with_name(LOG)):
        if number >= base:
            content = (ledger.with_name(LOG) / f"{number:012d}").read_bytes()
            db.write(Batch.from_bytes(content).for_rocksdb())
    db.close()


def _numbers(folder: Path) -> list[int]:
    """The numbers of what is in a folder of numbered entries, in order."""
    return sorted(map(int, LocalStorage(folder).names()))
