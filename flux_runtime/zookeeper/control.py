"""Decisions of the leader, kept so that a follower can take over: a log, and the layout.

`/blazes/APP/control/log/n-NUMBER` is one total order of controller messages (CT-1). Only the leader
appends, in transactions that check its token, so its numbers have no gaps and an entry whose answer
was lost is found under the number it was given. `Versioned` is a value with compare-and-set, for
the layout and its version.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from flux_runtime.zookeeper import tail
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.election import ROLE, Leadership, NotLeading
from flux_runtime.zookeeper.nodes import (
    ANSWER_LOST,
    DATA_BYTES_MAX,
    app_path,
    commit,
    delete,
    ensure,
    read,
    sync,
)
from flux_runtime.zookeeper.watcher import Poke, Watcher

_ID_BYTES = 16


class Conflict(LookupError):  # noqa: N818 - what happened
    """The value has another version by now; read it again and decide anew."""


class ControlLog:
    """The controller messages of an application, in one total order.

    Args:
        client: a session.
        app: name of the application.
    """

    def __init__(self, client: Client, app: str) -> None:
        self._client = client
        self.path = app_path(app, ROLE, "log")
        ensure(client, self.path)

    def end(self) -> int:
        """The number of the entry that comes next."""
        sync(self._client, self.path)
        return tail.end_of(self._client, self.path)

    def append(self, leadership: Leadership, *entries: bytes) -> int:
        """Append entries, all of them or none; the number of the first.

        Raises:
            NotLeading: another leader has been elected; nothing was appended.
            EnsembleUnreachable: no answer; whether it was appended is seen by reading.
            ValueError: the entries are too large for one request.
        """
        if sum(map(len, entries)) > DATA_BYTES_MAX:
            raise ValueError(f"entries of more than {DATA_BYTES_MAX} bytes at once")
        mark = uuid.uuid4().bytes
        data = [mark + entry for entry in entries]
        while True:
            leadership.require()
            first = self.end()

            def operations(transaction: Any, first: int = first) -> None:
                leadership.check(transaction)
                for number, value in enumerate(data, first):
                    transaction.create(tail.numbered(self.path, number), value)

            try:
                commit(self._client, operations)
                return first
            except NodeExistsError:
                continue  # another thread of the leader's took the number
            except BadVersionError:
                raise _deposed(leadership) from None
            except ANSWER_LOST:
                self._client.wait_for_session(30.0)
                sync(self._client, self.path)
                if self._at(first)[:_ID_BYTES] == mark:
                    return first

    def read(self, start: int = 0) -> list[tail.Entry]:
        """All entries from a number on.

        Raises:
            Trimmed: that number has been deleted.
        """
        sync(self._client, self.path)
        reader = tail.Reader(self._client, self.path, start)
        current: list[tail.Entry] = []
        while more := reader.read():
            current += more
        return [(number, data[_ID_BYTES:]) for number, data in current]

    def follow(
        self,
        start: int,
        on_entry: Callable[[int, bytes], None],
        *,
        failed: Callable[[BaseException], None] | None = None,
    ) -> Watcher:
        """Hand on every entry from a number on, as they come, until the watcher is closed.

        Args:
            start: the first number.
            on_entry: called with number and entry, in a thread; once each, in order.
            failed: called with an error that ends it: one of `on_entry`, or `Trimmed`.
        """

        def on_entries(entries: list[tail.Entry]) -> None:
            for number, data in entries:
                on_entry(number, data[_ID_BYTES:])

        return tail.follow(
            self._client, self.path, start, on_entries, name="control-log", failed=failed
        )

    def trim(self, leadership: Leadership, below: int) -> int:
        """Delete the entries below a number, which a kept layout makes superfluous; how many."""
        leadership.require()
        return tail.trim(self._client, self.path, below)

    def _at(self, number: int) -> bytes:
        node = read(self._client, tail.numbered(self.path, number))
        return b"" if node is None else node[0]


class Versioned:
    """One value that is replaced as a whole, by whoever knows the present one.

    Args:
        client: a session.
        path: its znode, such as `app_path(app, "control", "layout")`.
    """

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self.path = path
        ensure(client, path.rpartition("/")[0])

    def read(self) -> tuple[bytes, int] | None:
        """Value and version; None if there is none yet."""
        sync(self._client, self.path)
        current = read(self._client, self.path)
        return None if current is None else (current[0][_ID_BYTES:], current[1])

    def write(self, leadership: Leadership, value: bytes, *, version: int | None) -> int:
        """Replace the value if it has still this version (None: if there is none); the new version.

        Raises:
            Conflict: it has another version.
            NotLeading: another leader has been elected. In both cases nothing was written.
            ValueError: the value is too large.
        """
        if len(value) > DATA_BYTES_MAX:
            raise ValueError(f"{len(value)} bytes, more than {DATA_BYTES_MAX}, in {self.path}")
        data = uuid.uuid4().bytes + value

        def operations(transaction: Any) -> None:
            leadership.check(transaction)
            if version is None:
                transaction.create(self.path, data)
            else:
                transaction.set_data(self.path, data, version=version)

        while True:
            leadership.require()
            try:
                commit(self._client, operations)
                return 0 if version is None else version + 1
            except (NodeExistsError, NoNodeError):
                raise Conflict(f"{self.path} is not at version {version}") from None
            except BadVersionError:
                if self._leads_still(leadership):
                    raise Conflict(f"{self.path} is not at version {version}") from None
                raise _deposed(leadership) from None
            except ANSWER_LOST:
                self._client.wait_for_session(30.0)
                sync(self._client, self.path)
                current = read(self._client, self.path)
                if current is not None and current[0] == data:
                    return current[1]

    def follow(self, on_value: Callable[[bytes, int], None]) -> Watcher:
        """Hand on value and version now and after changes, until the watcher is closed.

        Of versions that follow each other quickly, only the last is certain to be seen.
        """
        seen: list[int] = []

        def look(poke: Poke) -> None:
            if self._client.kazoo.exists_async(self.path, watch=poke).get(timeout=30.0) is None:
                return
            current = read(self._client, self.path)
            if current is not None and [current[1]] != seen:
                seen[:] = [current[1]]
                on_value(current[0][_ID_BYTES:], current[1])

        return Watcher(self._client, look, name=self.path).start()

    def delete(self) -> None:
        """Delete the value."""
        delete(self._client, [self.path])

    def _leads_still(self, leadership: Leadership) -> bool:
        transaction_error: type[Exception] = BadVersionError
        try:
            commit(self._client, leadership.check)
        except transaction_error:
            return False
        return True


def _deposed(leadership: Leadership) -> NotLeading:
    return NotLeading(
        f"the leader with token {leadership.token} has been replaced",
        "Nothing was written; the new leader decides.",
    )
