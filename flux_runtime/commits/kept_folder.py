"""A state that is kept in an object store, while its driver works on a folder of its machine.

The driver works on files, as ever. What is flushed to the disk goes to the store, too, in the same
order (`flux_runtime.sealing.storage.Keeper`): so the store has at every moment what a power failure
would leave on a disk, and the rules for those hold. The working folder may be lost with the
machine; who starts next makes it anew from the store.

    head                  the state: which object holds which file, and whose the state is
    objects/TERM-RUN/N    a file, several small ones, or the tree of all files that a head builds on
    inbox/PATH            what somebody else has left for the driver: a file that it takes over

Objects are put under names that nobody else uses. A *commit* then replaces the head, on condition
that it is still the one that this driver has put or taken over. So a state is never a mixture of
two moments, and a commit takes two round trips, however many files it has. A put whose answer was
lost is known again by the head that is there.

Who starts brings the state here, while the driver before it may still work on it. When all else is
ready it takes over: it replaces the head by one in its own name, so that every later commit of the
driver before it fails, and brings what has changed meanwhile.

An object is deleted when a head that no longer names it has been put, by who put that. What drivers
have put and not committed is deleted by who takes over, among objects of earlier terms.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.fence import EPOCH, FencedError
from flux_runtime.commits.objects import RETRIES_S, ConflictError, Objects, StoreError, Version
from flux_runtime.commits.owner import INVENTORY
from flux_runtime.sealing.ledger import make_ledgers
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage

log = logging.getLogger(__name__)

HEAD: Final = "head"
OBJECTS: Final = "objects"
INBOX: Final = "inbox"
FORMAT: Final = 1
AT_ONCE: Final = 8
"""Objects that are put or read at the same time."""
CHANGES_MIN: Final = 256
CHANGES: Final = 1 / 16
"""A head has so many changes, and this part of the files, before the tree is written anew."""
SMALL: Final = 16 << 10
"""Files of at most so many bytes share an object with others of their commit."""
GARBAGE_MIN: Final = 64
"""Objects that are deleted together."""
FOLDER: Final = re.compile("blazes-[0-9a-f]{16}")
"""The name of a working folder."""
LOCK: Final = ".lock"
GONE: Final = ".gone"
"""In the working folder: what an earlier driver has left of it."""
LOOK_S: Final = 5.0
"""How often a driver looks for what others have left for it."""
REMEDY: Final = (
    "nothing was changed. Restore the object from a version or a copy of the same moment as the "
    "head, or begin anew with --fresh"
)


class Extent(NamedTuple):
    """Where the content of a file is."""

    object: str
    offset: int
    size: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Head:
    """The state as it is kept: what the object `head` says."""

    driver: Driver
    term: int
    """How many drivers there have been."""
    number: int
    """How many heads they have put."""
    folder: str
    """The working folder: the checkpoints of streams between units have paths in it."""
    tree: Mapping[str, Extent]
    """Path in the folder -> what it holds."""
    base: Extent | None = None
    """The object with the tree that the head builds on."""
    changed: frozenset[str] = field(default=frozenset())
    """The paths that are not as they are there."""

    def to_bytes(self) -> bytes:
        """Its checksum, and JSON with the changes alone."""
        data = {
            "format": FORMAT,
            "driver": json.loads(self.driver.to_bytes()),
            "term": self.term,
            "number": self.number,
            "folder": self.folder,
            "base": self.base,
            "changes": {path: self.tree.get(path) for path in sorted(self.changed)},
        }
        content = _json(data)
        return b"%08x %b" % (zlib.crc32(content), content)


def read_head(objects: Objects) -> tuple[Head, Version] | None:
    """The newest head and its version; None: nothing is kept there.

    Raises:
        DamagedError: it, or the tree that it builds on, cannot be believed.
    """
    while True:
        newest = objects.get(HEAD)
        try:
            return None if newest is None else (_head(objects, newest[0]), newest[1])
        except DamagedError:
            if newest is not None and objects.version(HEAD) == newest[1]:
                raise
        # a driver has gone on meanwhile, and has deleted the tree


def _head(objects: Objects, data: bytes) -> Head:
    try:
        checksum, _, content = data.partition(b" ")
        if int(checksum, 16) != zlib.crc32(content):
            raise ValueError("its checksum is wrong")
        head = json.loads(content)
        if head["format"] != FORMAT:
            raise ValueError(f"it was written in format {head['format']}, this is {FORMAT}")
        base = None if head["base"] is None else Extent(*head["base"])
        tree = {} if base is None else json.loads(_contents(objects, {"all files": base})[0])
        files = (tree | head["changes"]).items()
        if not all(_inside(path) for path, _ in files):
            raise ValueError("a file is outside of the folder")
        return Head(
            driver=Driver.from_json(head["driver"]),
            term=head["term"],
            number=head["number"],
            folder=head["folder"],
            tree={path: Extent(*extent) for path, extent in files if extent is not None},
            base=base,
            changed=frozenset(head["changes"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        problem = f"the head of the state is damaged ({error})"
        raise DamagedError(f"{objects.address}/{HEAD}", problem, REMEDY) from None


def folder_of(address: str, *, fresh: bool = False) -> Path:
    """The working folder of a state: the same on every machine, from its first start on.

    Raises:
        StoreError: the head names one that is not of a driver, which would delete what is there.
    """
    mark = hashlib.sha256(address.encode()).hexdigest()[:16]
    here = Path(tempfile.gettempdir()).resolve() / f"blazes-{mark}"
    newest = None if fresh else read_head(Objects(address))
    folder = here if newest is None else Path(newest[0].folder)
    if FOLDER.fullmatch(folder.name) is None:
        raise StoreError(
            f"{address}: its driver would work in {folder}, and delete what is there; the head of "
            "the state was not written by a driver. Take another address, or begin with --fresh"
        )
    return folder


def copy_of(address: str, folder: Path) -> None:
    """Make a copy of the newest state in an empty folder, to look at; nothing is taken over.

    Raises:
        StoreError: there is none.
        DamagedError: an object is not what was kept.
    """
    objects, here = Objects(address), dict[str, Extent]()
    while True:
        newest = read_head(objects)
        if newest is None:
            raise StoreError(f"{address}: there is no state")
        try:
            _bring(objects, newest[0].tree, folder, here)
            break
        except DamagedError:
            if objects.version(HEAD) == newest[1]:
                raise
        # a driver has gone on meanwhile, and has deleted an object
    make_ledgers(folder)
    inventory = folder / INVENTORY
    if inventory.exists():  # the channels are here now
        text = inventory.read_text("utf-8")
        inventory.write_text(text.replace(f'"{newest[0].folder}/', f'"{folder}/'), "utf-8")


def leave(address: str, path: str, data: bytes) -> None:
    """Leave a file for the driver of a state, under a name that no other has."""
    Objects(address).put(f"{INBOX}/{path}", data)


class KeptFolder:
    """A working folder whose state is kept in an object store; a `Keeper` and a `Store`.

    `restore` it, and `take_over` before anything else.

    Args:
        address: of the state in the store.
        folder: where the driver works.
        fresh: the state is going to be deleted, so that only its newest driver is needed.

    Raises:
        StoreError: the store cannot hold a state, or does not answer.
        DamagedError: the head is damaged; not where it is to be deleted.
    """

    def __init__(self, address: str, folder: Path, *, fresh: bool = False) -> None:
        self.address = address
        self.folder = folder
        self._objects = Objects(address)
        self._objects.check_conditions(f"{OBJECTS}/{0:08d}-{uuid.uuid4().hex}/probe")
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._failed: BaseException | None = None
        self._committed = True
        self._put = 0
        self._looked = -LOOK_S
        self._garbage: list[str] = []
        self._small: dict[str, bytes] = {}
        """Path -> content of files that are to be put with the next commit."""
        self._fresh = fresh
        self._run = uuid.uuid4().hex
        self._version: Version | None = None
        self._head: Head
        self._tree: dict[str, Extent] = {}
        self._here: dict[str, Extent] = {}
        """What of the state has been brought into the working folder."""
        self._in_folders: defaultdict[str, set[str]] = defaultdict(set)
        self._changed: set[str] = set()
        self._stamps: dict[str, tuple[int, ...]] = {}
        self._by_inode: dict[int, str] = {}
        self._read()

    # ---- starting

    @property
    def driver(self) -> Driver:
        """The driver that works here."""
        return self._head.driver

    def restore(self) -> None:
        """Make the working folder as the state is kept.

        Raises:
            DamagedError: an object is missing, or is not what was kept.
        """
        self.folder.chmod(0o700)  # it may be in a folder that others write to
        gone = self.folder / GONE  # a JVM that ends just now may still write there
        gone.mkdir(exist_ok=True)
        for path in [*self.folder.iterdir()]:
            if path.name not in (LOCK, GONE):
                path.replace(gone / f"{uuid.uuid4()}")
        shutil.rmtree(gone, ignore_errors=True)
        while True:
            try:
                _bring(self._objects, self._wanted(), self.folder, self._here)
                break
            except DamagedError:
                if self._objects.version(HEAD) == self._version:
                    raise
                self._read()  # a driver has gone on meanwhile, and has deleted an object
        self._restored()

    def take_over(self) -> None:
        """Become the driver of the state, and bring what has changed since it was restored.

        Raises:
            DamagedError: see `restore`.
        """
        while True:
            try:
                self._version = self._replace(self._head)
                break
            except FencedError:
                self._read()  # another one has taken over, or committed, just before
        if self._wanted() != self._here:
            _bring(self._objects, self._wanted(), self.folder, self._here)
            self._restored()
        used = self._used()
        self._objects.delete(
            name
            for name in [*self._objects.names(f"{OBJECTS}/")]
            if name not in used and _term(name) < self._head.term
        )

    def _read(self) -> None:
        """Read the newest head, and make the one by which this driver takes over."""
        try:
            known, self._version = read_head(self._objects) or (None, None)
        except DamagedError:
            if not self._fresh:
                raise
            known, self._version = None, self._objects.version(HEAD)
        self._head = Head(
            driver=Driver(
                epoch=1 if known is None else known.driver.epoch + 1, state="", run=self._run
            ),
            term=1 if known is None else known.term + 1,
            number=1 if known is None else known.number + 1,
            folder=str(self.folder),
            tree={} if known is None else known.tree,
            base=None if known is None else known.base,
            changed=frozenset() if known is None else known.changed,
        )
        self._tree = dict(self._head.tree)
        self._in_folders = defaultdict(set)
        for path in self._tree:
            self._in_folders[_folder(path)].add(path)
        self._changed = set(self._head.changed)

    def _wanted(self) -> Mapping[str, Extent]:
        """The kept files that are needed here."""
        return {p: extent for p, extent in self._tree.items() if not self._fresh or p == EPOCH}

    def _restored(self) -> None:
        self._stamps = {path: _stamp(self.folder / path) for path in self._wanted()}
        self._by_inode = {stamp[0]: path for path, stamp in self._stamps.items()}
        if not self._fresh:
            make_ledgers(self.folder)

    def clear(self) -> None:
        """Forget what is kept, but for the newest driver."""
        with self._lock:
            for path in [*self._tree]:
                if path != EPOCH and not (self.folder / path).exists():
                    self._drop(path)
            self.commit()
        self._objects.delete([*self._objects.names(f"{INBOX}/")])

    def close(self) -> None:
        """Commit what was flushed, and delete what is no longer needed."""
        with self._lock:
            try:
                if self._failed is None:
                    self.commit()
                    self._collect(least=1)
            finally:
                self._pool.shutdown()

    # ---- Keeper

    def written(self, file: Path) -> None:
        """See `Keeper`."""
        with self._lock, self._failing():
            self._keep([file])

    def flushed(self, folder: Path) -> None:
        """See `Keeper`; hidden files belong to file systems and writers."""
        with self._lock, self._failing():
            self._flushed(folder, [*self._in_folders[self._name(folder)]], folder.iterdir())

    def flushed_below(self, folder: Path) -> None:
        """The same for a folder and all below it."""
        with self._lock, self._failing():
            present = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
            self._flushed(folder, self._below(self._name(folder)), present)

    def _flushed(self, folder: Path, known: Iterable[str], present: Iterable[Path]) -> None:
        files = [file for file in present if file.name[0] != "." and file.is_file()]
        names = {self._name(file) for file in files}
        for path in known:
            if path not in names and path.rpartition("/")[2][0] != ".":
                self._drop(path)
        self._keep(files)

    def moved(self, source: Path, target: Path) -> None:
        """See `Keeper`."""
        with self._lock:
            before, after = self._name(source), self._name(target)
            for path in self._below(before):
                renamed = after + path.removeprefix(before)
                extent, stamp = self._tree[path], self._stamps.get(path)
                content = self._small.get(path)
                self._drop(path, garbage=False)
                self._set(renamed, extent, stamp)
                if content is not None:
                    self._small[renamed] = content

    def deleted(self, path: Path) -> None:
        """See `Keeper`."""
        with self._lock:
            for file in self._below(self._name(path)):
                self._drop(file)

    def commit(self) -> None:
        """See `Keeper`."""
        with self._lock, self._failing():
            if self._committed:
                return
            self._put_small()
            self._write_tree()
            self._head = replace(
                self._head,
                number=self._head.number + 1,
                tree=self._tree,
                changed=frozenset(self._changed),
            )
            self._version = self._replace(self._head)
            self._committed = True
            self._collect(least=GARBAGE_MIN)

    # ---- Place

    def newest(self) -> Driver:
        """See `flux_runtime.commits.fence.Place`: whose state it is."""
        with self._lock, self._failing():
            if self._objects.version(HEAD) != self._version:
                raise self._fenced(read_head(self._objects))
            return self._head.driver

    def look(self) -> Driver:
        """See `flux_runtime.commits.fence.Store`: decisions that people have left come here."""
        driver = self.newest()
        if time.monotonic() < self._looked + LOOK_S:
            return driver
        self._looked = time.monotonic()
        for name in [*self._objects.names(f"{INBOX}/")]:
            path = name.removeprefix(f"{INBOX}/")
            letter = self._objects.get(name)
            folder, _, file = path.rpartition("/")
            with self._lock:
                known = any(path.endswith(f"/{file}") for path in self._below(folder))
            if letter is not None and not known and _inside(path):
                LocalStorage(self.folder).write(path, letter[0])
            self._objects.delete([name])
        return driver

    # ---- parts

    def _replace(self, head: Head) -> Version:
        """Put a head in the place of the one before it; its version."""
        data = head.to_bytes()
        deadline = time.monotonic() + RETRIES_S
        while True:
            try:
                return self._objects.replace(HEAD, data, self._version)
            except (ConflictError, StoreError) as error:
                newest = self._objects.get(HEAD)  # was it put, and the answer lost?
                if newest is not None and newest[0] == data:
                    return newest[1]
                if (None if newest is None else newest[1]) != self._version:
                    raise self._fenced(read_head(self._objects)) from None
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.address}: the store has refused a commit for {RETRIES_S} s "
                        f"({error}). Nothing was committed after that; start the job again when "
                        "it answers"
                    ) from error
                time.sleep(self._objects.first_wait_s)

    def _fenced(self, newest: tuple[Head, Version] | None) -> FencedError:
        if newest is None:
            return FencedError(
                f"the state of this job, {self.address}, has been deleted while it ran; this "
                "driver stops, and nothing was committed after that"
            )
        return FencedError(
            f"a newer driver, {newest[0].driver}, runs this job; this one, epoch "
            f"{self._head.driver.epoch}, stops; nothing was committed after that"
        )

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """After one failure every call fails: nobody knows what has been kept."""
        if isinstance(self._failed, FencedError):
            raise self._failed
        if self._failed is not None:
            raise StoreError(f"{self.address} could not be written") from self._failed
        try:
            yield
        except BaseException as error:
            self._failed = error
            raise

    def _keep(self, files: Iterable[Path]) -> None:
        """Put the files that are new or have changed."""
        large = []
        for file in files:
            path = self._name(file)
            with contextlib.suppress(FileNotFoundError):  # replaced or deleted meanwhile
                stamp = _stamp(file)
                if self._stamps.get(path) == stamp:
                    continue
                linked = self._linked(stamp)
                if linked is not None:
                    self._set(path, linked, stamp)
                elif stamp[1] > SMALL:
                    large.append((path, file, stamp))
                else:
                    data = file.read_bytes()
                    self._set(path, Extent("", 0, len(data), zlib.crc32(data)), stamp)
                    self._small[path] = data
        names = [self._new_name() for _ in large]
        extents = self._pool.map(self._put_file, names, [file for _, file, _ in large])
        for (path, _, stamp), extent in zip(large, extents, strict=True):
            if extent is not None:
                self._set(path, extent, stamp)

    def _linked(self, stamp: tuple[int, ...]) -> Extent | None:
        """The content of a file that this one is a hard link to, as tables of RocksDB are."""
        path = self._by_inode.get(stamp[0], "")
        if path not in self._tree or path in self._small or self._stamps.get(path) != stamp:
            return None
        try:
            return self._tree[path] if _stamp(self.folder / path) == stamp else None
        except FileNotFoundError:
            return None

    def _put_file(self, name: str, file: Path) -> Extent | None:
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        self._objects.put(name, data)
        return Extent(name, 0, len(data), zlib.crc32(data))

    def _put_small(self) -> None:
        """Put the small files of a commit as one object."""
        if not self._small:
            return
        name, offset = self._new_name(), 0
        self._objects.put(name, b"".join(self._small.values()))
        for path, data in self._small.items():
            self._tree[path] = self._tree[path]._replace(object=name, offset=offset)
            offset += len(data)
        self._small.clear()

    def _new_name(self) -> str:
        self._put += 1
        return f"{OBJECTS}/{self._head.term:08d}-{self._head.driver.run[:12]}/{self._put:09d}"

    def _set(self, path: str, extent: Extent, stamp: tuple[int, ...] | None) -> None:
        self._drop(path)
        self._tree[path] = extent
        self._in_folders[_folder(path)].add(path)
        if stamp is not None:
            self._stamps[path] = stamp
            self._by_inode[stamp[0]] = path
        self._change(path)

    def _drop(self, path: str, *, garbage: bool = True) -> None:
        extent = self._tree.pop(path, None)
        self._stamps.pop(path, None)
        self._small.pop(path, None)
        if extent is not None:
            self._in_folders[_folder(path)].discard(path)
            if garbage:
                self._garbage.append(extent.object)
            self._change(path)

    def _change(self, path: str) -> None:
        self._changed.add(path)
        self._committed = False

    def _write_tree(self) -> None:
        """Write the tree as an object of its own where a head would have many changes."""
        if len(self._changed) <= CHANGES_MIN + CHANGES * len(self._tree):
            return
        name = self._new_name()
        tree = _json(self._tree)
        self._objects.put(name, tree)
        if self._head.base is not None:
            self._garbage.append(self._head.base.object)
        self._head = replace(self._head, base=Extent(name, 0, len(tree), zlib.crc32(tree)))
        self._changed = set()

    def _collect(self, *, least: int) -> None:
        """Delete objects that the head no longer names."""
        if not self._committed or len(self._garbage) < least:
            return
        unneeded, self._garbage = {*self._garbage} - self._used() - {""}, []
        try:
            self._objects.delete(unneeded)
        except StoreError:  # the next driver does it
            log.warning("objects could not be deleted", exc_info=True)

    def _used(self) -> set[str]:
        """The objects that the head names."""
        base = self._head.base
        return {extent.object for extent in (*self._tree.values(), *([base] if base else []))}

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.folder).as_posix()
        return "" if name == "." else name

    def _below(self, name: str) -> list[str]:
        """The kept files of that name, or in a folder of that name."""
        below = [
            path
            for folder, paths in self._in_folders.items()
            if folder == name or folder.startswith(f"{name}/")
            for path in paths
        ]
        return [*below, *([name] if name in self._tree else [])]


def _bring(
    objects: Objects, tree: Mapping[str, Extent], folder: Path, here: dict[str, Extent]
) -> None:
    """Make a folder hold just these kept files.

    Args:
        objects: of the store.
        tree: the files, by their paths.
        folder: where they are wanted.
        here: those that have been brought before; it is kept up to date, whatever happens.

    Raises:
        DamagedError: an object is missing, or is not what was kept.
    """
    for path, _ in here.items() - tree.items():
        del here[path]
        (folder / path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # folders that are empty now
            for parent in Path(path).parents[:-1]:
                (folder / parent).rmdir()

    def fetch(files: Mapping[str, Extent]) -> None:
        for path, content in zip(files, _contents(objects, files), strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        here.update(files)

    by_object: dict[str, dict[str, Extent]] = {}
    for path, extent in tree.items() - here.items():
        by_object.setdefault(extent.object, {})[path] = extent
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(fetch, by_object.values()))


def _contents(objects: Objects, files: Mapping[str, Extent]) -> list[bytes]:
    """The contents of files that one object holds.

    Raises:
        DamagedError: it is missing, or is not what was kept.
    """
    name = next(iter(files.values())).object
    answer = objects.get(name)
    place = f"{objects.address}/{name}"
    contents = []
    for path, extent in files.items():
        if answer is None:
            raise DamagedError(place, f"the object is missing; it holds {path}", REMEDY)
        content = answer[0][extent.offset : extent.offset + extent.size]
        if (len(content), zlib.crc32(content)) != (extent.size, extent.crc32):
            raise DamagedError(place, f"the object is not what was kept; it holds {path}", REMEDY)
        contents.append(content)
    return contents


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _inside(path: str) -> bool:
    """Whether a path stays in its folder.

    >>> _inside("a/b"), _inside("a/../../b"), _inside("/a")
    (True, False, False)
    """
    return ".." not in path.split("/") and not path.startswith("/")


def _term(name: str) -> int:
    """The term in the name of an object.

    >>> _term("objects/00000012-0123456789ab/000000007")
    12
    """
    return int(name.split("/")[1].partition("-")[0])


def _stamp(file: Path) -> tuple[int, ...]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
