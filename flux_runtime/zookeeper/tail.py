"""Numbered znodes under one parent, read and followed without gaps.

    PARENT/n-0000000000, PARENT/n-0000000001, ...

Sequential znodes are numbered like this by the ensemble, densely as long as nothing else is made
under the parent. The parent's stat tells how many there have been, and the reader asks for what it
has not read, all at once, instead of listing the parent: its cost does not grow with what is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from kazoo.exceptions import NoNodeError

from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import IN_FLIGHT_MAX, again, ask, children, delete
from flux_runtime.zookeeper.watcher import Poke, Watcher

PREFIX: Final = "n-"
NUMBER_MAX: Final = 2**31 - 1
"""ZooKeeper numbers with 32 bits, and goes on with negative numbers after this one."""

Entry = tuple[int, bytes]
"""Number and data."""


class Trimmed(LookupError):  # noqa: N818 - what happened
    """A number that is asked for has been deleted: everybody had passed it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"number {number} has been deleted")


def numbered(parent: str, number: int) -> str:
    """The path of a number.

    >>> numbered("/a", 7)
    '/a/n-0000000007'
    """
    return f"{parent}/{PREFIX}{number:010d}"


def number_of(path: str) -> int:
    """The number in a path or name."""
    return int(path.rpartition(PREFIX)[2])


def end_of(client: Client, parent: str) -> int:
    """The number that comes next; what is deleted counts."""
    stat = ask(client, lambda: client.kazoo.exists_async(parent))
    return 0 if stat is None else (int(stat.cversion) + int(stat.numChildren)) // 2


class Reader:
    """Reads numbers in order, from `start`; not for several threads at once.

    Attributes:
        next: the number that is read next.
    """

    def __init__(self, client: Client, parent: str, start: int = 0) -> None:
        self.next = start
        self._client = client
        self._parent = parent
        self._end = 0

    def read(self, watch: Poke | None = None) -> list[Entry]:
        """The entries from `next` on, up to a thousand; `watch` is called when more comes.

        `watch` is set only if the result is empty. Where an answer is lost and nobody watches,
        who would look again anyway, it is asked for again.

        Raises:
            Trimmed: the next number has been there, and was deleted.
            EnsembleUnreachable: no answer within half a minute.
        """
        if watch is None:
            return again(self._client, lambda _: self._read(None))
        return self._read(watch)

    def _read(self, watch: Poke | None) -> list[Entry]:
        while True:
            fresh = self.next >= self._end
            if fresh:
                self._end = end_of(self._client, self._parent)
            if self.next < self._end:
                if entries := self._get():
                    self.next += len(entries)
                    return entries
                if fresh:
                    raise Trimmed(self.next)
                self._end = 0  # known from a server that was ahead of this one, or trimmed since
            elif watch is None or self._comes(watch):
                return []

    def _get(self) -> list[Entry]:
        """Numbers from `next` on, up to the first that is not there."""
        kazoo = self._client.kazoo
        numbers = range(self.next, min(self._end, self.next + IN_FLIGHT_MAX))
        sent = [kazoo.get_async(numbered(self._parent, number)) for number in numbers]
        entries: list[Entry] = []
        with contextlib.suppress(NoNodeError):
            for number, answer in zip(numbers, sent, strict=True):
                entries.append((number, answer.get(timeout=30.0)[0]))
        return entries

    def _comes(self, watch: Poke) -> bool:
        """Whether the next number has yet to come, and is watched; else it has come meanwhile."""
        path = numbered(self._parent, self.next)
        return self._client.kazoo.exists_async(path, watch=watch).get(timeout=30.0) is None


def follow(
    client: Client,
    parent: str,
    start: int,
    on_entries: Callable[[list[Entry]], None],
    *,
    name: str,
    failed: Callable[[BaseException], None] | None = None,
) -> Watcher:
    """Hand every number on, in order and once, in a thread, until the watcher is closed.

    Args:
        client: a session; nothing is handed on while it is not connected (OR-7).
        parent: where the numbers are.
        start: the first number.
        on_entries: given what has come; the next are read after it returns.
        name: of the thread.
        failed: called with an error that ends the thread: one of `on_entries`, or `Trimmed`.
    """
    reader = Reader(client, parent, start)

    def look(poke: Poke) -> None:
        while entries := reader.read(poke):
            on_entries(entries)

    return Watcher(client, look, name=name, failed=failed).start()


def trim(client: Client, parent: str, below: int) -> int:
    """Delete the numbers below a number; how many there were."""
    old = [number_of(name) for name in children(client, parent) if number_of(name) < below]
    delete(client, [numbered(parent, number) for number in sorted(old)])
    return len(old)
