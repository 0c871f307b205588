"""A site whose memory is too small for all its partitions: they take turns (SP-1 to SP-6), on disk.

`Spill` decides, the copies write and read. A copy whose state is on disk goes on receiving. The
collector always stays in memory: readers look into it, and `held_max_bytes` limits it. An access
takes place between two turns, and nothing else happens on the site meanwhile.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from flux_runtime.operators.packing import Classes, pack, unpack
from flux_runtime.protocol.spill import PagePool, Spill, SpillAction, Unit, WriteOut
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.site.config import SpillTo
from flux_runtime.site.control_messages import SpillReport
from flux_runtime.site.copies import HostedCopy
from flux_runtime.site.hosting import AnyHost

RUNS: Final = Classes((Unit,), {})


def pack_run(value: Any) -> bytes:
    """An operator's state, or units that wait for it, as bytes."""
    return pack(value, classes=RUNS)


def unpack_run(data: bytes) -> Any:
    """The messages that `pack_run` was given."""
    return unpack(data, classes=RUNS)


class FileStorage:
    """One file per run in a folder of its own.

    What an earlier process left there is deleted: no copy is ever rebuilt from its disk.

    Args:
        folder: created if missing, emptied if not; no other process may use it.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder

    def _path(self, node: Node, run: int) -> Path:
        return self.folder / ("-".join(map(str, (*node, run))) + ".run")

    def put(self, node: Node, run: int, data: bytes) -> None:
        """Write a run; it need not survive a crash, so nothing is synchronised."""
        self._path(node, run).write_bytes(data)

    def get(self, node: Node, run: int) -> bytes:
        """Read a run that has been written and not dropped."""
        return self._path(node, run).read_bytes()

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a value; gives its size in bytes."""
        data = pack_run(value)
        self.put(node, run, data)
        return len(data)

    def read(self, node: Node, run: int) -> Any:
        """The value of a run."""
        return unpack_run(self.get(node, run))

    def drop(self, node: Node, run: int) -> None:
        """Delete a run."""
        self._path(node, run).unlink()


log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

PAGE_BYTES: Final = 4096
LOOK_S: Final = 0.05
TURNS_LOOK_S: Final = 0.002
"""While partitions take turns."""
UNLIMITED: Final = 1 << 50
"""Bytes; more than any site has."""


class SiteStorage:
    """A site's disk, with a limit. A run that does not fit stays in memory, so nothing is lost.

    Args:
        folder: of the job; this process gets a folder of its own in it, and those of processes
            that are gone are deleted.
        max_bytes: that may be on disk at once.

    Attributes:
        bytes: on disk now.
        written: bytes written so far.
        loaded: bytes read so far.
        held: runs that found no room, in memory.
    """

    def __init__(self, folder: Path, *, max_bytes: int = UNLIMITED) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        self.folder = folder / uuid.uuid4().hex
        self._lock = _locked(self.folder.with_suffix(".lock"))
        self.files = FileStorage(self.folder)
        self.max_bytes = max_bytes
        self.sizes: dict[tuple[Node, int], int] = {}
        self.held: dict[tuple[Node, int], bytes] = {}
        self.bytes = self.written = self.loaded = 0

    def room(self, size: int) -> bool:
        """Whether so many bytes more may be written."""
        return self.bytes + size <= self.max_bytes

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a value as a run; gives its size in bytes."""
        data = pack_run(value)
        if self.room(len(data)):
            try:
                self.files.put(node, run, data)
            except OSError as error:
                log.warning("a run stays in memory: %s", error)
                with suppress(OSError):
                    self.files.drop(node, run)
            else:
                self.sizes[node, run] = len(data)
                self.bytes += len(data)
                self.written += len(data)
                return len(data)
        self.held[node, run] = data
        return len(data)

    def read(self, node: Node, run: int) -> Any:
        """The value of a run that has been written and not dropped."""
        if (node, run) in self.held:
            return unpack_run(self.held[node, run])
        data = self.files.get(node, run)
        self.loaded += len(data)
        return unpack_run(data)

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        if self.held.pop((node, run), None) is None:
            self.files.drop(node, run)
            self.bytes -= self.sizes.pop((node, run))

    def forget(self, node: Node) -> None:
        """The node is gone, with all its runs."""
        for of, run in [key for key in (*self.sizes, *self.held) if key[0] == node]:
            self.drop(of, run)

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.close()


def _locked(path: Path) -> BinaryIO:
    """A file that is locked as long as this process lives."""
    file = path.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(b"locked")  # an empty one may be about to be locked
    file.flush()
    return file


def _sweep(folder: Path) -> None:
    """Delete what processes have left that were killed: nobody has their lock any more."""
    for left in folder.glob("*.lock"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.seek(0, os.SEEK_END):
                shutil.rmtree(left.with_suffix(""), ignore_errors=True)
                left.unlink()


class Spilling:
    """Keeps the partitions of a host within the memory that the site may use.

    Args:
        host: whose partitions; its storage is the disk.
        to: folder and limits.
        excluded: stage whose partitions always stay in memory.
        clock: seconds.

    Attributes:
        memory: bytes for operators' states.
        evictions: states written out so far.
    """

    def __init__(
        self,
        host: AnyHost,
        to: SpillTo,
        *,
        excluded: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        assert isinstance(host.storage, SiteStorage)
        self.storage: SiteStorage = host.storage
        self.excluded = excluded
        self.clock = clock
        self.memory: int | None = to.memory_bytes
        self.pages = self._pages()
        self.spill = Spill(PagePool(self.pages, page_bytes=PAGE_BYTES), {}, gap=to.gap_s)
        self.waiting: deque[SpillAction] = deque()
        self.looked_at = 0.0
        self.evictions = self.activations = self.refused = 0

    def _pages(self) -> int:
        return (UNLIMITED if self.memory is None else self.memory) // PAGE_BYTES

    def lend(self, memory: int | None) -> None:
        """From now on the site may use so many bytes; None: as many as it likes."""
        self.memory = memory
        pages, before = self._pages(), self.pages
        self.pages = pages
        if pages > before:
            given = min(self.spill.pool.wanted_back, pages - before)
            self.spill.pool.wanted_back -= given  # not to be given back after all
            self.spill.pool.donate(pages - before - given)
        else:
            self.spill.pool.post_relinquish(before - pages)
        self.looked_at = 0.0

    @property
    def every_s(self) -> float:
        """How often to call `due`."""
        return TURNS_LOOK_S if self.spill.inactive else LOOK_S

    def due(self) -> bool:
        """If it is time, compare memory with need and do one access; gives whether more is due."""
        now = self.clock()
        if not self.waiting and now - self.looked_at >= self.every_s:
            self.looked_at = now
            self._look(now)
        if self.waiting:
            self._access(self.waiting.popleft())
        return bool(self.waiting)

    def _look(self, now: float) -> None:
        spill = self.spill
        here = {copy.name: copy for copy in self.host.copies() if self._takes_part(copy)}
        for part in [part for part in spill.sizes if part not in here]:
            spill.remove(part)
        actions: list[SpillAction] = []
        for node, copy in here.items():
            size = copy.state_size()
            if node not in spill.sizes:
                actions += spill.add(node, size)
                if not copy.resident and node in spill.active:
                    spill.active.remove(node)
                    spill.inactive.append(node)
                    spill.pool.free_all(node)
            elif spill.sizes[node] != size:
                spill.sizes[node] = size
                if node in spill.active:
                    spill.pool.resize(node, size)
        if len(spill.active) > 1:  # one that is larger than all of memory has its turn, alone
            actions += spill.check()
        if not actions and not self._behind(here) and self._worth_a_turn(here):
            actions += spill.tick(now)
        self.waiting.extend(actions)

    def _worth_a_turn(self, here: dict[Node, HostedCopy]) -> bool:
        """Whether input waits for a partition on disk, which is then the next, or there is room."""
        inactive, pool = self.spill.inactive, self.spill.pool
        for _ in range(len(inactive)):
            node = inactive[0]
            assert isinstance(node, Node)
            if here[node].waiting:
                return True
            inactive.rotate(-1)
        return bool(inactive) and pool.free >= pool.pages_for(self.spill.sizes[inactive[0]])

    def _takes_part(self, copy: HostedCopy) -> bool:
        return copy.name.stage != self.excluded and copy.works

    def _behind(self, here: dict[Node, HostedCopy]) -> bool:
        """SP-4: a partition that has been read in first processes all that has waited for it.

        Unless its buffer is full: its consumers may wait for what a partition on disk would make.
        """
        return any(c.resident and c.waiting and c.can_work() for c in here.values())

    def _access(self, action: SpillAction) -> None:
        node = action.part
        copy = next((copy for copy in self.host.copies() if copy.name == node), None)
        if copy is None:
            return
        began = self.clock()
        if isinstance(action, WriteOut):
            if self.storage.room(int(action.size)):
                copy.evict()
            if copy.resident:  # it moves just now, or the disk is full
                self.refused += 1
                if node in self.spill.sizes:
                    self.spill.inactive.remove(node)
                    self.spill.active.append(node)
                    self.spill.pool.resize(node, action.size)
            else:
                self.evictions += 1
        elif not copy.resident:
            copy.activate()
            self.activations += 1
            self.spill.activated_at = self.clock()
            self.spill.took(self.spill.activated_at - began)
        self.host.touch_all()

    def report(self) -> SpillReport:
        """The part of the site's report on its disk."""
        storage = self.storage
        return SpillReport(
            memory_limit_bytes=self.memory,
            on_disk=len(self.spill.on_disk()),
            disk_bytes=storage.bytes,
            disk_limit_bytes=None if storage.max_bytes == UNLIMITED else storage.max_bytes,
            kept_in_memory_bytes=sum(map(len, storage.held.values())),
            written_bytes=storage.written,
            read_bytes=storage.loaded,
            evictions=self.evictions,
            activations=self.activations,
            refused=self.refused,
        )
