"""Who contributes to a partition: producer sets in ZooKeeper (coordination rules 1.2, SE-1, SE-7).

`/blazes/APP/seals/STREAM/KEY` holds the set of one partition as JSON:
`{"key": [...], "producers": [...], "frozen": null or {"by": ..., "time": ...}}`. Whoever assigns
work registers the whole set. The first look-up freezes it, with a version check, so that of a
registration and a look-up that race exactly one wins and the other one learns of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
)

from flux_runtime.zookeeper.client import Client, refused, unreachable
from flux_runtime.zookeeper.errors import (
    RegistrationDiffers,
    RegistrationFrozen,
    RegistrationProblem,
)
from flux_runtime.zookeeper.znode_names import PartitionKey, key_of_name, znode_name

T = TypeVar("T")

ROOT: Final = "/blazes"
_IN_FLIGHT_MAX: Final = 1000
"""Requests sent before their answers are read; more gains nothing on loopback."""
_ANSWER_LOST: Final = (ConnectionLoss, OperationTimeoutError, SessionExpiredError)
"""The request may have been carried out or not; every request here can be repeated."""
_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Frozen:
    """The first look-up of a set."""

    by: str
    time: float
    """Seconds since the epoch, by the clock of whoever looked it up."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The producers of one partition."""

    key: PartitionKey
    producers: frozenset[str]
    frozen: Frozen | None = None

    def to_bytes(self) -> bytes:
        """The znode's data."""
        frozen = self.frozen and {"by": self.frozen.by, "time": self.frozen.time}
        data = {"key": self.key, "producers": sorted(self.producers), "frozen": frozen}
        return json.dumps(data, ensure_ascii=False).encode("utf-8", errors="surrogatepass")

    @staticmethod
    def from_bytes(data: bytes) -> Registration:
        """Reads the znode's data back."""
        read = json.loads(data.decode("utf-8", errors="surrogatepass"))
        frozen = read["frozen"] and Frozen(read["frozen"]["by"], read["frozen"]["time"])
        return Registration(tuple(read["key"]), frozenset(read["producers"]), frozen)


class ProducerRegistry:
    """The producer sets of one application.

    Args:
        client: a session; the registry waits while it is suspended and goes on after a loss, since
            all its requests can be repeated (nothing is decided without an answer, OR-7).
        app: name of the application, the same for producers and consumers.
        by: who looks up, for the record of the freeze.
        timeout_s: how long to wait for the ensemble before `EnsembleUnreachable`.
    """

    def __init__(
        self, client: Client, app: str, *, by: str | None = None, timeout_s: float = 30.0
    ) -> None:
        self._client = client
        self._by = by or f"{socket.gethostname()}:{os.getpid()}"
        self._timeout_s = timeout_s
        self._seals = f"{ROOT}/{znode_name((app,))}/seals"

    def path(self, stream: str, key: PartitionKey) -> str:
        """The znode of a partition."""
        return f"{self._stream_path(stream)}/{znode_name(key)}"

    def register(
        self, stream: str, key: PartitionKey, producers: Collection[str], *, replace: bool = False
    ) -> bool:
        """Register the whole set of one partition; see `register_many`."""
        return self.register_many(stream, {key: producers}, replace=replace) == 1

    def register_many(
        self,
        stream: str,
        registrations: Mapping[PartitionKey, Collection[str]],
        *,
        replace: bool = False,
    ) -> int:
        """Register the sets of many partitions, pipelined. Equal registrations may be repeated.

        Args:
            stream: name of the sealed stream.
            registrations: partition -> all of its producers.
            replace: overwrite a different set that nobody has looked up yet.

        Returns:
            How many were not registered like this before.

        Raises:
            ValueError: a set is empty: such a partition would be complete without a record.
            RegistrationFrozen: a set differs from one that has been looked up.
            RegistrationDiffers: a set differs from a registered one. In both cases all other
                registrations have been made, and the message names all that were refused.
            EnsembleUnreachable: no answer within the time limit.
        """
        empty = sorted(map(show_key, (key for key, who in registrations.items() if not who)))
        if empty:
            raise ValueError(f"no producers given for {stream} {', '.join(empty[:_SHOWN_MAX])}")
        wanted = {key: Registration(key, frozenset(who)) for key, who in registrations.items()}
        self._ask_one(lambda: self._client.kazoo.ensure_path_async(self._stream_path(stream)))
        present = [
            key
            for key, answer in self._ask_all(
                wanted,
                lambda key: self._client.kazoo.create_async(
                    self.path(stream, key), wanted[key].to_bytes()
                ),
                NodeExistsError,
            )
            if isinstance(answer, NodeExistsError)
        ]
        count = len(wanted) - len(present)
        refused = []
        while present:
            stale: list[PartitionKey] = []
            rewrite: dict[PartitionKey, int] = {}
            for key, registered, version in self._read(stream, present):
                if registered is None:
                    stale.append(key)  # deleted since: create it after all
                elif registered.producers == wanted[key].producers:
                    continue
                elif replace and registered.frozen is None:
                    rewrite[key] = version
                else:
                    refused.append((registered, wanted[key]))
            lost_race = self._write(stream, {k: (wanted[k], v) for k, v in rewrite.items()})
            count += len(rewrite) - len(lost_race)
            if stale:
                count += self.register_many(
                    stream, {key: wanted[key].producers for key in stale}, replace=replace
                )
            present = lost_race
        if refused:
            raise _refusal(stream, refused)
        return count

    def lookup(self, stream: str, key: PartitionKey) -> frozenset[str] | None:
        """The producers of one partition; see `lookup_many`."""
        return self.lookup_many(stream, [key])[key]

    def lookup_many(
        self, stream: str, keys: Iterable[PartitionKey]
    ) -> dict[PartitionKey, frozenset[str] | None]:
        """The producers of partitions, pipelined; freezes their sets.

        Returns:
            Every key with its set, or None where nothing has been registered: then nothing is
            frozen either, and a later look-up may find a set.

        Raises:
            EnsembleUnreachable: no answer within the time limit.
        """
        producers_of: dict[PartitionKey, frozenset[str] | None] = {}
        todo = list(dict.fromkeys(keys))
        while todo:
            freeze: dict[PartitionKey, tuple[Registration, int]] = {}
            for key, registered, version in self._read(stream, todo):
                if registered is None:
                    producers_of[key] = None
                elif registered.frozen is not None:
                    producers_of[key] = registered.producers
                else:
                    now = Frozen(self._by, time.time())
                    freeze[key] = (dataclasses.replace(registered, frozen=now), version)
            todo = self._write(stream, freeze)
            lost_race = set(todo)
            producers_of |= {k: r.producers for k, (r, _) in freeze.items() if k not in lost_race}
        return producers_of

    def registered(self, stream: str) -> tuple[Registration, ...]:
        """Every registration of a stream, sorted by key, without freezing any."""
        path = self._stream_path(stream)
        read = self._ask_all(
            self._children(path),
            lambda name: self._client.kazoo.get_async(f"{path}/{name}"),
            NoNodeError,
        )
        registrations = [
            Registration.from_bytes(a[0]) for _, a in read if not isinstance(a, Exception)
        ]
        return tuple(
            sorted(registrations, key=lambda r: tuple((v is not None, v or "") for v in r.key))
        )

    def names(self, stream: str) -> list[str]:
        """The names of a stream's registrations: see `znode_names`."""
        return self._children(self._stream_path(stream))

    def unchanged_since(
        self, stream: str, names: Iterable[str], time_s: float
    ) -> list[PartitionKey]:
        """The partitions among some names whose registrations are as old, by ZooKeeper's clock.

        Args:
            stream: name of the sealed stream.
            names: of registrations.
            time_s: seconds since 1970.
        """
        path = self._stream_path(stream)
        answers = self._ask_all(
            names, lambda name: self._client.kazoo.get_async(f"{path}/{name}"), NoNodeError
        )
        return [
            Registration.from_bytes(answer[0]).key
            for _, answer in answers
            if not isinstance(answer, Exception) and answer[1].mtime <= time_s * 1000
        ]

    def streams(self) -> tuple[str, ...]:
        """Streams that have registrations."""
        keys = (key_of_name(name) for name in self._children(self._seals))
        return tuple(sorted(key[0] for key in keys if key is not None and key[0] is not None))

    def forget(self, stream: str, keys: Iterable[PartitionKey]) -> None:
        """Delete registrations, of partitions that were released long ago for example."""
        self._delete([self.path(stream, key) for key in keys])

    def clear(self) -> None:
        """Delete every registration of the application: it starts from scratch."""
        for stream in self.streams():
            path = self._stream_path(stream)
            self._delete([f"{path}/{name}" for name in self._children(path)])
            self._delete([path])

    def _stream_path(self, stream: str) -> str:
        return f"{self._seals}/{znode_name((stream,))}"

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._ask_one(lambda: self._client.kazoo.get_children_async(path)))
        except NoNodeError:
            return []

    def _read(
        self, stream: str, keys: Iterable[PartitionKey]
    ) -> Iterator[tuple[PartitionKey, Registration | None, int]]:
        """(key, registration or None, version) for every key."""
        for key, answer in self._ask_all(
            keys, lambda key: self._client.kazoo.get_async(self.path(stream, key)), NoNodeError
        ):
            if isinstance(answer, Exception):
                yield key, None, -1
            else:
                yield key, Registration.from_bytes(answer[0]), answer[1].version

    def _write(
        self, stream: str, data: Mapping[PartitionKey, tuple[Registration, int]]
    ) -> list[PartitionKey]:
        """Set data whose version is still the given one; the keys that were changed meanwhile."""
        answers = self._ask_all(
            data,
            lambda key: self._client.kazoo.set_async(
                self.path(stream, key), data[key][0].to_bytes(), version=data[key][1]
            ),
            (BadVersionError, NoNodeError),
        )
        return [key for key, answer in answers if isinstance(answer, Exception)]

    def _delete(self, paths: Iterable[str]) -> None:
        for _ in self._ask_all(
            paths, self._client.kazoo.delete_async, (NoNodeError, NotEmptyError)
        ):
            pass

    def _ask_one(self, request: Callable[[], Any]) -> Any:
        ((_, answer),) = self._ask_all([None], lambda _: request(), ())
        return answer

    def _ask_all(
        self,
        items: Iterable[T],
        request: Callable[[T], Any],
        expected: type[KazooException] | tuple[type[KazooException], ...],
    ) -> Iterator[tuple[T, Any]]:
        """(item, answer or expected error), pipelined; lost answers are asked for again."""
        todo = list(items)
        deadline = time.monotonic() + self._timeout_s
        while todo:
            self._client.wait_for_session(max(0.0, deadline - time.monotonic()))
            sent = [(item, request(item)) for item in todo[:_IN_FLIGHT_MAX]]
            todo = todo[_IN_FLIGHT_MAX:]
            for item, future in sent:
                answer: Any
                try:
                    answer = future.get(timeout=self._timeout_s)
                except expected as error:
                    answer = error
                except _ANSWER_LOST:
                    todo.append(item)
                    continue
                except self._client.kazoo.handler.timeout_exception:
                    raise unreachable(self._client.hosts, self._timeout_s) from None
                except NoAuthError:
                    raise refused(self._client) from None
                deadline = time.monotonic() + self._timeout_s
                yield item, answer


def show_key(key: PartitionKey) -> str:
    """A key for people.

    >>> show_key(("7", None))
    '[7, null]'
    """
    return f"[{', '.join('null' if value is None else value for value in key)}]"


def _refusal(stream: str, refused: list[tuple[Registration, Registration]]) -> RegistrationProblem:
    frozen = [pair for pair in refused if pair[0].frozen]
    shown = frozen or refused
    lines = []
    for registered, wanted in shown[:_SHOWN_MAX]:
        late = sorted(wanted.producers - registered.producers)
        missing = sorted(registered.producers - wanted.producers)
        lines.append(
            f"{stream} {show_key(registered.key)} has the producers "
            f"{', '.join(sorted(registered.producers))}"
            + (f"; {', '.join(late)} would be new" if late else "")
            + (f"; {', '.join(missing)} would be gone" if missing else "")
            + (f"; frozen by {registered.frozen.by}" if registered.frozen else "")
        )
    if len(refused) > len(lines):
        lines.append(f"and {len(refused) - len(lines)} more")
    text = "\n    ".join(lines)
    if frozen:
        return RegistrationFrozen(
            f"a consumer counts on the registered producers already:\n    {text}",
            "A new producer can take part in partitions that nobody has looked up yet. Its records "
            "for these partitions become dead letters.",
        )
    return RegistrationDiffers(
        f"other producers are registered already:\n    {text}",
        "Register the whole set once, by whoever assigns the work; `replace` (on the command line "
        "--replace) overwrites a set that no consumer has looked up yet.",
    )
