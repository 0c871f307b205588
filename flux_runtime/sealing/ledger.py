"""A tracker whose every change is on disk before anything follows from it (SE-10).

The state is in RocksDB, part by part, under these names:

    o KEY             a partition that is not released
    r KEY             what is remembered of a released one (SE-9)
    x NUMBER          where releases are forgotten in time: when a release ended, and its partitions
    c INPUT ID        what a chunk of the buffer must hold
    w INPUT KEY       requests that wait for a partition
    pending           the release that is logged and not finished
    meta              all that is small, the epoch of the writer among it

`record` applies events and writes what they changed as one synced batch, so a commit costs what is
new, however many partitions are open or remembered. What has been released is looked up in
RocksDB, whose filters answer for a partition that is new without reading. RocksDB checks every
block that it reads, and here its log, too: a damaged one is refused, and only a torn end, which a
crash leaves, is cut off. A ledger that has lost its end is found out by what stands outside of it:
the checkpoint's micro-batches (`Tracker.replayed`) and the commits of the results.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from flux_runtime.sealing.events import (
    Chunk,
    Coverage,
    Event,
    Finding,
    Forgotten,
    KeyText,
    Release,
    ReleaseFinished,
)
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.partition import Status, partition_from_json, partition_to_json
from flux_runtime.sealing.storage import make_folder
from flux_runtime.sealing.tracker import FRESH, All, Counters, Registered, Released, Rules, Tracker

FORMAT: Final = 4
CACHE_BYTES: Final = 32 << 20
WRITE_BUFFER_BYTES: Final = 16 << 20
FORGOTTEN_AT_ONCE: Final = 20_000
"""Partitions that one look at what is old enough to be forgotten takes at most, about."""

_UNWRITABLE: Final = tuple(
    map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS))
)
"""What RocksDB passes on of the operating system where nothing is damaged."""

_OPEN, _RELEASED, _EXPIRY, _CHUNK, _WANTED = b"o", b"r", b"x", b"c", b"w"
_META: Final = b"meta"
_PENDING: Final = b"pending"


class Ledger:
    """A tracker and its state on disk; safe for several threads, which take turns.

    Args:
        path: the folder; made if it is missing, else the tracker continues from there.
        rules: what the gate waits for.
        read_only: look at it while its job runs; `record` is not allowed.
        guard: called before anything is written; raises where another driver has taken over.

    Raises:
        DamagedError: what is there cannot be believed.
    """

    def __init__(
        self,
        path: Path,
        rules: Rules,
        *,
        read_only: bool = False,
        guard: Callable[[], object] | None = None,
    ) -> None:
        self.path = path
        self._guard = guard
        self.lock = threading.RLock()
        """Hold it while reading the tracker."""
        self.closed = False
        self._failed: BaseException | None = None
        self._pending_keys: tuple[KeyText, ...] = ()
        self._sets: dict[tuple[str, ...], int] = {}
        """Producer sets that many partitions have: `meta` has them, partitions their number."""
        if not read_only:
            make_folder(path)
        with self._believed():
            access = AccessType.read_only(False) if read_only else AccessType.read_write()
            self._db: Any = Rdict(str(path), _options(path), access_type=access)
            try:
                self._released = _ReleasedOnDisk(self._db, path)
                self.tracker = Tracker(rules, self._released)
                self._load()
                for rule in rules.inputs.values():
                    if isinstance(rule, All):
                        self._sets.setdefault(rule.members, len(self._sets))
            except BaseException:
                self._db.close()
                raise

    def record(self, *events: Event) -> list[Finding]:
        """Apply events and write what they changed; what follows from them, in order.

        Where it cannot be written, for a full disk, the tracker is ahead of the ledger: every later
        call fails, and the job has to start again from what is written.
        """
        with self.lock:
            if self._failed is not None:
                raise RuntimeError(f"{self.path} could not be written") from self._failed
            try:
                findings = [f for event in events for f in self.tracker.handle(event)]
                self._write(self._batch(events))
            except BaseException as error:
                self._failed = error
                raise
            return findings

    def forget(self, now: float) -> int:
        """Forget releases that are older than the rules say (SE-9); how many partitions."""
        seconds = self.tracker.rules.remember_s
        if seconds is None or self.tracker.rules.requests:
            return 0
        with self.lock, self._believed():
            due: list[bytes] = []
            keys: list[KeyText] = []
            for name, value in self._range(_EXPIRY):
                ended, of_release = json.loads(value)
                if ended > now - seconds or len(keys) >= FORGOTTEN_AT_ONCE:
                    break
                due.append(name)
                keys += of_release
            if due:
                event = Forgotten(tuple(keys))
                self.tracker.handle(event)
                batch = self._batch([event])
                for name in due:
                    batch.delete(name)
                self._write(batch)
            return len(keys)

    def verify(self) -> int:
        """Read everything, with its checksums; how many entries there are.

        Raises:
            DamagedError: some of it is damaged.
        """
        with self.lock, self._believed():
            return sum(1 for _ in self._range(b""))

    def close(self) -> None:
        """Close the files; where another driver has taken over, leave them as they are."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self._owned():
                # what could not be written was told when it failed, and RocksDB says it once more
                with self._undamaged() if self._failed is None else contextlib.suppress(Exception):
                    self._db.close()
            else:  # RocksDB writes when it is closed, even by the collector: it lives to the end
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _owned(self) -> bool:
        try:
            if self._guard is not None:
                self._guard()
        except Exception:
            return False
        return True

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing

    def _batch(self, events: tuple[Event, ...] | list[Event]) -> WriteBatch:
        tracker, batch = self.tracker, WriteBatch(raw_mode=True)
        changes = tracker.changes
        for key in changes.partitions:
            partition = tracker.partitions.get(key)
            name = b"o\0" + key.encode(errors="surrogatepass")
            if partition is None:
                batch.delete(name)
            else:
                batch.put(name, _encode(partition_to_json(partition, self._sets)))
        for source, number in changes.chunks:
            chunk = tracker.chunks[source].get(number)
            name = _name(_CHUNK, source, str(number))
            if chunk is None:
                batch.delete(name)
            else:
                batch.put(name, _encode([*_fields(chunk)]))
        for source, key in changes.wanted:
            rows = tracker.wanted[source].get(key)
            if rows:
                batch.put(_name(_WANTED, source, key), _encode(list(rows.items())))
            else:
                batch.delete(_name(_WANTED, source, key))
        if tracker.rules.remember_s is not None:
            for event in events:
                if isinstance(event, ReleaseFinished):
                    ended = _encode([event.time, self._pending_keys])
                    batch.put(_EXPIRY + event.number.to_bytes(8, "big"), ended)
        if changes.pending:
            pending = tracker.pending
            self._pending_keys = pending.keys if pending else ()
            if pending is None:
                batch.delete(_PENDING)
            else:
                batch.put(_PENDING, _encode([*_fields(pending)]))
        self._released.into(batch)
        batch.put(_META, _encode(self._meta()))
        return batch

    def _write(self, batch: WriteBatch) -> None:
        if self._guard is not None:
            self._guard()
        options = WriteOptions()
        options.sync = True
        with self._undamaged():
            self._db.write(batch, options)
        changes = self.tracker.changes
        changes.partitions.clear()
        changes.chunks.clear()
        changes.wanted.clear()
        changes.pending = False
        self._released.written()

    def _meta(self) -> dict[str, Any]:
        tracker = self.tracker
        return {
            "format": FORMAT,
            "ingested": {
                name: [batch, *asdict(coverage).values()]
                for name, (batch, coverage) in tracker.ingested.items()
            },
            "sets": list(self._sets),
            "releases": tracker.releases,
            "compactions": tracker.compactions,
            "counters": asdict(tracker.counters),
        }

    # ---- reading

    def _load(self) -> None:
        written = self._db.get(_META)
        if written is None:
            if any(True for _ in self._range(b"")):
                raise ValueError("the entry `meta` is missing")
            return
        meta = json.loads(written)
        if meta["format"] != FORMAT:
            raise ValueError(f"it was written in format {meta['format']}, this is {FORMAT}")
        tracker, rules = self.tracker, self.tracker.rules
        tracker.ingested = {n: (b, Coverage(*rest)) for n, (b, *rest) in meta["ingested"].items()}
        tracker.releases = meta["releases"]
        tracker.compactions = meta["compactions"]
        tracker.counters = Counters(**meta["counters"])
        for parts, value in self._parts(_CHUNK):
            form, rows, keys, rejected, files = json.loads(value)
            sizes = {n: (size, crc) for n, (size, crc) in files.items()}
            chunk = Chunk(form, rows, keys, rejected, sizes)
            tracker.chunks.setdefault(parts[0], {})[int(parts[1])] = chunk
        sets = [tuple(map(sys.intern, members)) for members in meta["sets"]]
        self._sets = {members: number for number, members in enumerate(sets)}
        seen: dict[tuple[str, ...], tuple[str, ...]] = {}
        partitions = [
            (parts[0], partition_from_json(json.loads(value), rules.identified, sets, seen))
            for parts, value in self._parts(_OPEN)
        ]
        tracker.partitions = dict(sorted(partitions, key=lambda entry: entry[1].opened))
        for parts, value in self._parts(_WANTED):
            tracker.wanted.setdefault(parts[0], {})[parts[1]] = dict(json.loads(value))
        pending = self._db.get(_PENDING)
        if pending is not None:
            tracker.pending = _release(json.loads(pending))
            self._pending_keys = tracker.pending.keys
            for key in tracker.pending.keys:
                tracker.partitions[key].status = Status.RELEASING
        if rules.requests:
            for _, value in self._parts(_RELEASED):
                for name, batches in _released(value).batches.items():
                    _count(tracker, name, batches)
        self._index()

    def _index(self) -> None:
        """Derive from the partitions what the tracker keeps beside them."""
        tracker = self.tracker
        for key, partition in tracker.partitions.items():
            if partition.status is Status.SEALED:
                tracker.sealed[key] = None
            elif partition.status is Status.QUARANTINED:
                tracker.quarantined[key] = None
            elif partition.status is Status.OPEN and any(partition.to_count()):
                tracker.counting[key] = None
            for name, share in partition.shares.items():
                _count(tracker, name, share.batches)
                registered = isinstance(tracker.rules.inputs[name], Registered)
                if registered and share.producers is None:
                    tracker.unknown_sets.setdefault(name, {})[key] = None
        for name, wanted in tracker.wanted.items():
            for rows in wanted.values():
                _count(tracker, name, rows)
        for name, needed in tracker.references.items():
            missing = needed.keys() - tracker.chunks.get(name, {}).keys()
            if missing:
                raise ValueError(f"chunks {sorted(missing)} of {name} are needed and not described")

    def _parts(self, kind: bytes) -> Iterator[tuple[list[str], bytes]]:
        for name, value in self._range(kind + b"\0"):
            yield [part.decode(errors="surrogatepass") for part in name.split(b"\0", 2)[1:]], value

    def _range(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_verify_checksums(True)
        for name, value in self._db.items(from_key=prefix or None, read_opt=options):
            if not name.startswith(prefix):
                return
            yield name, value

    @contextlib.contextmanager
    def _believed(self) -> Iterator[None]:
        """Report a refusal of RocksDB or the content as damage, unless something else is meant.

        Another process may have it, or there is no room or right to write, without any damage.
        """
        try:
            yield
        except DamagedError:
            raise
        except Exception as error:
            if "/LOCK:" in str(error):
                raise RuntimeError(f"{self.path}: another process has it open") from error
            if any(problem in str(error) for problem in _UNWRITABLE):
                raise
            raise _damaged(self.path, error) from error

    @contextlib.contextmanager
    def _undamaged(self) -> Iterator[None]:
        """RocksDB takes nothing any more once it has met a damaged block in the background."""
        try:
            yield
        except Exception as error:
            if str(error).startswith("Corruption"):
                raise _damaged(self.path, error) from error
            raise


class _ReleasedOnDisk(MutableMapping[KeyText, Released]):
    """The released partitions as remembered; changes wait for the ledger's next write."""

    def __init__(self, db: Any, path: Path) -> None:
        self._db = db
        self._path = path
        self._new: dict[KeyText, Released | None] = {}

    def get(self, key: KeyText, default: Any = None) -> Any:
        """The released partition as remembered, or the default."""
        if key in self._new:
            return self._new[key] or default
        try:
            value = self._db.get(_name(_RELEASED, key))
        except Exception as error:
            raise _damaged(self._path, error) from error
        return default if value is None else _released(value)

    def into(self, batch: WriteBatch) -> None:
        """Add the changes to a batch."""
        for key, released in self._new.items():
            if released is None:
                batch.delete(_name(_RELEASED, key))
                continue
            data: list[Any] = [released.number, sorted(released.votes)]
            if released.batches:
                data += [dict(released.batches), dict(released.outsiders)]
            batch.put(_name(_RELEASED, key), _encode(data))

    def written(self) -> None:
        """The changes are on disk."""
        self._new.clear()

    def __getitem__(self, key: KeyText) -> Released:
        released: Released | None = self.get(key)
        if released is None:
            raise KeyError(key)
        return released

    def __setitem__(self, key: KeyText, released: Released) -> None:
        self._new[key] = released

    def __delitem__(self, key: KeyText) -> None:
        self._new[key] = None

    def __iter__(self) -> Iterator[KeyText]:
        prefix = _RELEASED + b"\0"
        for name in self._db.keys(from_key=prefix):
            if not name.startswith(prefix):
                return
            yield name[2:].decode(errors="surrogatepass")

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _damaged(path: Path, error: Exception) -> DamagedError:
    return DamagedError(
        str(path),
        f"the ledger cannot be read: {error}",
        f"what was put out is right. Put back a copy of the whole state folder, or {FRESH}",
    )


def _options(path: Path) -> Options:
    options = Options(raw_mode=True)
    # else a ledger without its file CURRENT would be deleted, and begun anew
    options.create_if_missing(not any(path.glob("*.sst")) and not any(path.glob("*.log")))
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(2)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(CACHE_BYTES))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options


def _name(kind: bytes, *parts: str) -> bytes:
    return kind + "\0".join(("", *parts)).encode(errors="surrogatepass")


def _encode(data: object) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:  # a producer's name, as a person typed it, that is not UTF-8
        return json.dumps(data).encode()


def _released(value: bytes) -> Released:
    number, votes, *rest = json.loads(value)
    batches, outsiders = rest or ({}, {})
    return Released(
        number, frozenset(votes), batches, {name: tuple(who) for name, who in outsiders.items()}
    )


def _release(data: list[Any]) -> Release:
    number, keys, process, answers, discarded = data
    asked = {
        name: {key: tuple(batches) for key, batches in wanted.items()}
        for name, wanted in answers.items()
    }
    return Release(number, tuple(keys), tuple(process), asked, tuple(discarded))


def _fields(value: Any) -> Iterator[Any]:
    """The values of a dataclass's fields, not copied."""
    for field in dataclasses.fields(value):
        yield getattr(value, field.name)


def _count(tracker: Tracker, name: str, batches: Any) -> None:
    of_input = tracker.references.setdefault(name, {})
    for batch in batches:
        of_input[batch] = of_input.get(batch, 0) + 1
