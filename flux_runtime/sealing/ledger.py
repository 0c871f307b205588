"""A tracker whose every change is on disk before anything follows from it (SE-10).

The state is in RocksDB, part by part, under these names:

    o KEY             a partition that is not released
    r KEY             what is remembered of a released one (SE-9)
    x NUMBER          where releases are forgotten in time: when a release ended, and its partitions
    c INPUT ID        what a chunk of the buffer must hold
    w INPUT KEY       requests that wait for a partition
    pending           the release that is logged and not finished
    meta              all that is small, the number of the journal's first entry among it
    j NUMBER          the journal: events since those parts were written

`record` applies events and writes them as one synced entry of the journal, in columns, which costs
a small part of writing what they changed: a partition is changed by many micro-batches. When the
journal is full, all that has changed is written and the journal is emptied, in one synced batch. So
a commit costs what is new, however many partitions are open or remembered. Who opens the ledger
reads the parts and applies the journal to them; because the tracker depends on nothing but its
events and rules, that is the state that was. Rules that have changed hold for what comes next: the
journal is applied under those that it was written under.

What has been released is looked up in RocksDB, whose filters answer for a partition that is new
without reading. RocksDB checks every block that it reads, and here its log, too: a damaged one is
refused, and only a torn end, which a crash leaves, is cut off. A ledger that has lost its end is
found out by what stands outside of it: the checkpoint's micro-batches (`Tracker.replayed`) and the
commits of the results.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
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
    WriteOptions,
)

from flux_runtime.sealing.batch_log import BASE, LOG, Batch, BatchLog, make_ledger
from flux_runtime.sealing.events import (
    Coverage,
    Event,
    Finding,
    Forgotten,
    KeyText,
    ReleaseFinished,
    chunk_from_json,
    event_from_json,
    release_from_json,
)
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.partition import Status, partition_from_json, partition_to_json
from flux_runtime.sealing.storage import keeper_of, make_folder
from flux_runtime.sealing.tracker import (
    FRESH,
    All,
    Counters,
    Registered,
    Released,
    Rules,
    Tracker,
    rules_from_json,
    rules_to_json,
)

FORMAT: Final = 5
"""Another one where entries are written otherwise, or the tracker does another thing with events
that may stand in a journal."""
_WITHOUT_JOURNAL: Final = 4
"""The same but for the journal."""
JOURNAL_MAX: Final = 16
"""Entries of a full journal..."""
CHANGED_MAX: Final = 25_000
"""... which is also full when so many partitions have changed, for the sake of memory."""
CACHE_BYTES: Final = 32 << 20
WRITE_BUFFER_BYTES: Final = 16 << 20
FORGOTTEN_AT_ONCE: Final = 20_000
"""Partitions that one look at what is old enough to be forgotten takes at most, about."""

_UNWRITABLE: Final = tuple(
    map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS))
)
"""What RocksDB passes on of the operating system where nothing is damaged."""

_OPEN, _RELEASED, _EXPIRY, _CHUNK, _WANTED, _JOURNAL = b"o", b"r", b"x", b"c", b"w", b"j"
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
        self._first = 0
        """Number of the journal's first entry..."""
        self._entries = JOURNAL_MAX
        """... and how many there are; one that is empty at the start counts as full, so that `meta`
        has the rules before the first entry is written under them."""
        self._ended: dict[int, tuple[float, Sequence[KeyText]]] = {}
        """Releases whose end stands in the journal: when, and their partitions."""
        self._sets: dict[tuple[str, ...], int] = {}
        """Producer sets that many partitions have: `meta` has them, partitions their number."""
        if not read_only:
            make_folder(path)
        keeper = None if read_only else keeper_of(path)
        self._log = None if keeper is None else BatchLog(path, keeper)
        with self._believed():
            access = AccessType.read_only(False) if read_only else AccessType.read_write()
            self._db: Any = Rdict(str(path), _options(path), access_type=access)
        try:
            with self._believed():
                self._load(rules)
            if self.tracker.rules != rules and not read_only:
                self._write_parts()
                with self._believed():
                    self._load(rules)
        except BaseException as error:
            self._failed = error
            self.close()
            raise

    def record(self, *events: Event) -> list[Finding]:
        """Apply events and write them down; what follows from them, in order.

        Where that cannot be written, for a full disk, the tracker is ahead of the ledger: every
        later call fails, and the job has to start again from what is written.
        """
        return self._record(events)

    def _record(self, events: Sequence[Event], beside: Batch | None = None) -> list[Finding]:
        """The same, written as parts where something else is to be written beside them."""
        with self.lock:
            if self._failed is not None:
                raise RuntimeError(f"{self.path} could not be written") from self._failed
            try:
                findings = [finding for event in events for finding in self._apply(event)]
                full = self._entries >= JOURNAL_MAX
                if full or beside or len(self.tracker.changes.partitions) >= CHANGED_MAX:
                    self._write_parts(beside)
                else:
                    self._write_entry(events)
            except BaseException as error:
                self._failed = error
                raise
            return findings

    def forget(self, now: float) -> int:
        """Forget releases that are older than the rules say (SE-9); how many partitions."""
        seconds = self.tracker.rules.remember_s
        if seconds is None or self.tracker.rules.requests:
            return 0
        with self.lock:
            due: list[KeyText] = []
            forgotten = Batch()
            with self._believed():
                for number, ended, keys in self._releases_that_ended():
                    if ended > now - seconds or len(due) >= FORGOTTEN_AT_ONCE:
                        break
                    due += keys
                    self._ended.pop(number, None)
                    forgotten.delete(_EXPIRY + _numbered(number))
            if due:
                self._record([Forgotten(tuple(due))], forgotten)
            return len(due)

    def _releases_that_ended(self) -> Iterator[tuple[int, float, Sequence[KeyText]]]:
        """(number, when it ended, partitions), the oldest first, of what is forgotten in time."""
        for name, value in self._range(_EXPIRY):
            yield int.from_bytes(name[1:], "big"), *json.loads(value)
        for number, (ended, keys) in [*self._ended.items()]:
            yield number, ended, keys

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

    def _apply(self, event: Event) -> list[Finding]:
        pending = self.tracker.pending
        if isinstance(event, ReleaseFinished) and self.tracker.rules.remember_s is not None:
            self._ended[event.number] = event.time, pending.keys if pending else ()
        return self.tracker.handle(event)

    def _write_entry(self, events: Sequence[Event]) -> None:
        batch = Batch()
        written = _encode([[type(event).__name__, event] for event in events])
        batch.put(_JOURNAL + _numbered(self._first + self._entries), written)
        self._write(batch)
        self._entries += 1

    def _write_parts(self, beside: Batch | None = None) -> None:
        """Write what has changed since it was written last, and empty the journal."""
        tracker, batch = self.tracker, beside or Batch()
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
        for number, ended in self._ended.items():
            batch.put(_EXPIRY + _numbered(number), _encode(ended))
        if changes.pending:
            if tracker.pending is None:
                batch.delete(_PENDING)
            else:
                batch.put(_PENDING, _encode([*_fields(tracker.pending)]))
        self._released.into(batch)
        end = self._first + self._entries
        for number in range(self._first, end):
            batch.delete(_JOURNAL + _numbered(number))
        batch.put(_META, _encode({**self._meta(), "journal": end}))
        self._write(batch)
        changes.partitions.clear()
        changes.chunks.clear()
        changes.wanted.clear()
        changes.pending = False
        self._released.written()
        self._ended.clear()
        self._first, self._entries = end, 0

    def _write(self, batch: Batch) -> None:
        if self._guard is not None:
            self._guard()
        options = WriteOptions()
        options.sync = self._log is None
        if self._log is not None:
            self._log.keep(batch)
        with self._undamaged():
            self._db.write(batch.for_rocksdb(), options)
            if self._log is not None:
                self._log.shorten(self._db)

    def _meta(self) -> dict[str, Any]:
        tracker = self.tracker
        return {
            "format": FORMAT,
            "rules": rules_to_json(tracker.rules),
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

    def _load(self, rules: Rules) -> None:
        """Read the parts and apply the journal, under the rules that it was written under."""
        self._released = _ReleasedOnDisk(self._db, self.path)
        written = self._db.get(_META)
        if written is None:
            if any(True for _ in self._range(b"")):
                raise ValueError("the entry `meta` is missing")
            self.tracker = Tracker(rules, self._released)
            self._number_sets()
            return
        meta = json.loads(written)
        if meta["format"] not in (FORMAT, _WITHOUT_JOURNAL):
            raise ValueError(f"it was written in format {meta['format']}, this is {FORMAT}")
        journal = [name for name, _ in self._range(_JOURNAL)]
        self._first, self._entries = meta.get("journal", 0), len(journal) or JOURNAL_MAX
        for number, name in enumerate(journal, self._first):
            if name != _JOURNAL + _numbered(number):
                raise ValueError(f"entry {number} of the journal is missing")
        self._load_parts(rules_from_json(meta["rules"]) if journal else rules, meta)
        self._number_sets()
        for _, entry in self._range(_JOURNAL):
            for kind, fields in json.loads(entry):
                self._apply(event_from_json(kind, fields))

    def _number_sets(self) -> None:
        for rule in self.tracker.rules.inputs.values():
            if isinstance(rule, All):
                self._sets.setdefault(rule.members, len(self._sets))

    def _load_parts(self, rules: Rules, meta: Mapping[str, Any]) -> None:
        tracker = self.tracker = Tracker(rules, self._released)
        tracker.ingested = {n: (b, Coverage(*rest)) for n, (b, *rest) in meta["ingested"].items()}
        tracker.releases = meta["releases"]
        tracker.compactions = meta["compactions"]
        tracker.counters = Counters(**meta["counters"])
        for parts, value in self._parts(_CHUNK):
            chunk = chunk_from_json(*json.loads(value))
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
            tracker.pending = release_from_json(json.loads(pending))
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

    def into(self, batch: Batch) -> None:
        """Add the changes to a batch."""
        for key, released in self._new.items():
            if released is None:
                batch.delete(_name(_RELEASED, key))
                continue
            data: list[Any] = [released.number, released.votes]
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
        yield from [key for key, released in self._new.items() if released is not None]
        prefix = _RELEASED + b"\0"
        for name in self._db.keys(from_key=prefix):
            if not name.startswith(prefix):
                return
            key = name[2:].decode(errors="surrogatepass")
            if key not in self._new:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _damaged(path: Path, error: Exception) -> DamagedError:
    return DamagedError(
        str(path),
        f"the ledger cannot be read: {error}",
        f"what was put out is right. Put back a copy of the whole state folder, or {FRESH}",
    )


def make_ledgers(state: Path) -> None:
    """Make every ledger of a state folder from the batches that were kept of it (`batch_log`)."""
    for ledger in {
        log.with_suffix("") for of in (LOG, BASE) for log in state.glob(f"units/*/{of}")
    }:
        shutil.rmtree(ledger, ignore_errors=True)
        make_ledger(ledger, _options(ledger))


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
        return json.dumps(data, default=_fields_by_name).encode()


def _released(value: bytes) -> Released:
    number, votes, *rest = json.loads(value)
    batches, outsiders = rest or ({}, {})
    return Released(
        number, tuple(votes), batches, {name: tuple(who) for name, who in outsiders.items()}
    )


def _fields(value: Any) -> Iterator[Any]:
    """The values of a dataclass's fields, not copied."""
    for field in dataclasses.fields(value):
        yield getattr(value, field.name)


def _fields_by_name(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _numbered(number: int) -> bytes:
    """A number that sorts as it counts."""
    return number.to_bytes(8, "big")


def _count(tracker: Tracker, name: str, batches: Any) -> None:
    of_input = tracker.references.setdefault(name, {})
    for batch in batches:
        of_input[batch] = of_input.get(batch, 0) + 1
