"""How the outside feeds the dataflow and reads its results: plain blocking sockets.

    feeder = Feeder(config, source="events")
    feeder.offer(batch_id, offset, rows)     # idempotent; waits where there is no room
    feeder.flush()                           # everything offered is safe

    reader = Reader(config)
    offset, batches, ended = reader.read(offset)
    reader.commit(offset)                    # what is below may be forgotten

Both follow the leader: when it changes, a feeder offers again whatever has not been acknowledged,
and a reader goes on at its offset with whichever copy of the results is there.
"""

from __future__ import annotations

import socket
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flux_runtime.site.codec import ROWS, RowsDecoder, RowsEncoder, from_json, to_json
from flux_runtime.site.config import Config
from flux_runtime.site.finding import finder
from flux_runtime.site.handshake import Handshake, Refused
from flux_runtime.site.journal import Key
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import LENGTH, Bundles, Kind, Malformed, bundle_length, frames

VERSION: Final = 1
CONNECT_TIMEOUT_S: Final = 5.0
READ_BYTES: Final = 8 << 20
AGAIN_S: Final = 0.02
SILENCE_S: Final = 0.5
"""After so much silence a client asks whether it still listens to the right process."""

Broken = (OSError, Refused, Malformed)


class Unreachable(Exception):  # noqa: N818 - what happened
    """Nobody has answered for too long."""


class DataLost(Exception):  # noqa: N818 - what happened
    """A partition has lost both copies, so the results cannot be completed.

    Attributes:
        stage: stage of the partition.
        part: its number.
        why: the last copy is gone.
    """

    def __init__(self, stage: int, part: int, why: str) -> None:
        self.stage = stage
        self.part = part
        self.why = why
        super().__init__(
            f"partition {part} of stage {stage} has lost both copies ({why}): its state, and what "
            "it had received and not passed on, are gone; start the job anew from its source"
        )


class Channel:
    """A blocking connection to a site or a controller."""

    def __init__(self, key: JobKey, address: tuple[str, int], greeting: dict[str, Any]) -> None:
        self.address = address
        self.asked = -1
        self.out = Bundles()
        self.decoder = RowsDecoder()
        self.encoder = RowsEncoder({})
        self.inbox: list[tuple[Kind, memoryview]] = []
        self._partial = b""
        self.socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake = Handshake(key, dialing=True)
            while not handshake.done:
                self.socket.sendall(handshake.receive(self._exactly(handshake.wants)))
            self.control({"v": VERSION, "role": "client", **greeting}, kind=Kind.GREETING)
            kind, body = self.frame(CONNECT_TIMEOUT_S)
            if kind is not Kind.GREETING:
                raise Malformed("no greeting")
            self.greeting = from_json(body)
        except BaseException:
            self.socket.close()
            raise

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        at = 0
        while at < size:
            n = self.socket.recv_into(memoryview(data)[at:])
            if not n:
                raise ConnectionResetError("closed by the other end")
            at += n
        return bytes(data)

    def control(self, message: dict[str, Any], *, kind: Kind = Kind.CONTROL) -> None:
        """Send a control message."""
        self.out.add(kind, to_json(message))
        self.flush()

    def flush(self) -> None:
        """Send what has been queued."""
        parts = self.out.take()
        if parts:
            self.socket.settimeout(None)
            self.socket.sendall(b"".join(parts))

    def frame(self, timeout_s: float | None) -> tuple[Kind, memoryview]:
        """The next frame.

        Raises:
            TimeoutError: there was none within the time.
        """
        while not self.inbox:
            self.socket.settimeout(timeout_s)
            first = self.socket.recv(1)
            if not first:
                raise ConnectionResetError("closed by the other end")
            self.socket.settimeout(CONNECT_TIMEOUT_S * 4)
            header = first + self._exactly(LENGTH.size - 1)
            bundle = self._exactly(bundle_length(header))
            for kind, body in frames(memoryview(bundle)):
                if kind is Kind.SCHEMA:
                    self.decoder.schema(body)
                else:
                    self.inbox.append((kind, body))
        return self.inbox.pop(0)

    def close(self) -> None:
        """Close."""
        self.socket.close()


class Client:
    """A client that finds the leader again when it changes.

    Args:
        config: how the job is reached.
        patience_s: how long to try.
    """

    def __init__(self, config: Config, *, patience_s: float = 60.0) -> None:
        self.config = config
        self.patience_s = patience_s
        self.finder = finder(config)
        self.channel: Channel | None = None

    def greeting(self) -> dict[str, Any]:
        """What the greeting says besides the role."""
        return {}

    def leader(self) -> Channel:
        """A connection to whoever leads.

        Raises:
            Unreachable: there was none for `patience_s` seconds.
        """
        if self.channel is not None:
            return self.channel
        end = time.monotonic() + self.patience_s
        while time.monotonic() < end:
            address = self.finder.leader()
            if address is not None:
                with suppress(*Broken):
                    channel = Channel(self.config.key, address, self.greeting())
                    if channel.greeting.get("ready"):
                        self.channel = channel
                        self.connected(channel)
                        return channel
                    channel.close()
            time.sleep(AGAIN_S)
        raise Unreachable(f"no controller has answered for {self.patience_s:g} s")

    def connected(self, channel: Channel) -> None:
        """A new connection to the leader is there."""

    def dropped(self) -> None:
        """The connection is of no use any more."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def frame(self, channel: Channel) -> tuple[Kind, memoryview]:
        """The next frame of the leader's, unless another one leads by now (it may be paused)."""
        end = time.monotonic() + self.patience_s
        while True:
            try:
                return channel.frame(SILENCE_S)
            except TimeoutError:
                if time.monotonic() > end or self.finder.leader() not in (None, channel.address):
                    raise ConnectionResetError("another controller leads") from None

    def ask(self, question: dict[str, Any], answer: str) -> dict[str, Any]:
        """Ask the leader, again if it changes meanwhile."""
        while True:
            channel = self.leader()
            try:
                channel.control(question)
                while True:
                    kind, body = self.frame(channel)
                    message = from_json(body) if kind is Kind.CONTROL else {}
                    if message.get("c") == answer:
                        return message
                    self.heard(message)
            except Broken:
                self.dropped()

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the leader."""
        while True:
            channel = self.leader()
            try:
                channel.control(message)
                return
            except Broken:
                self.dropped()

    def heard(self, message: dict[str, Any]) -> None:
        """Something came that was not asked for.

        Raises:
            DataLost: that a partition is lost.
        """
        if message.get("c") == "data_loss":
            raise DataLost(message["stage"], message["part"], message["why"])

    def status(self) -> dict[str, Any]:
        """What the job looks like to its controller."""
        return self.ask({"c": "status"}, "status")

    def move(self, stage: int, part: int, copy: int, site: int) -> None:
        """Have a copy move, if that is possible now; returns when that has been decided."""
        move = {"c": "move", "stage": stage, "part": part, "copy": copy, "site": site}
        self.ask(move, "moved")

    def limit_memory(self, site: int, size: int | None) -> bool:
        """From now on a site may use so many bytes for operators' states, if it has a disk.

        Returns:
            True once the site knows; False if there is no such site, or no more.
        """
        return self._errand({"c": "memory", "site": site, "bytes": size})

    def keep(self, batch: int, folder: Path) -> str:
        """Have the operators' states after a batch written, while nothing is fed after it.

        What has been written is seen in the folder; ask again if that takes long.

        Returns:
            Why a site could not when it was asked the last time; empty: none has said so.
        """
        answer = self.ask({"c": "keep", "batch": batch, "folder": str(folder)}, "keeping")
        return str(answer["why"])

    def cut(self, site: int, other: int) -> bool:
        """Close the connection between two sites, for a drill: one of them will be removed.

        Returns:
            True once the first has; False if it is not there, or no more.
        """
        return self._errand({"c": "cut", "site": site, "other": other})

    def _errand(self, errand: dict[str, Any]) -> bool:
        """Have a site do something that does no harm if it is done again by the next leader."""
        return bool(self.ask(errand, "did")["done"])

    def stop(self) -> None:
        """End the job: all sites and all controllers; returns when that is certain.

        Raises:
            Unreachable: no controller has answered; perhaps the job has ended before.
        """
        while True:
            channel = self.leader()
            try:
                channel.control({"c": "stop"})
                while True:
                    kind, body = self.frame(channel)
                    if kind is Kind.CONTROL and from_json(body).get("c") == "stopped":
                        return
            except Broken:
                self.dropped()

    def close(self) -> None:
        """Close the connection."""
        self.dropped()
        self.finder.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Feeder(Client):
    """Offers one source's batches.

    Args:
        config: how the job is reached.
        source: name of the source; its offers are numbered by (batch_id, offset).
        window: offers that may be unacknowledged before `offer` waits.
    """

    def __init__(
        self, config: Config, source: str, *, window: int = 64, patience_s: float = 60.0
    ) -> None:
        super().__init__(config, patience_s=patience_s)
        self.source = source
        self.window = window
        self.open: OrderedDict[Key, Any] = OrderedDict()
        self.taken: Key = (-1, -1)

    def greeting(self) -> dict[str, Any]:
        """The source."""
        return {"source": self.source}

    def connected(self, channel: Channel) -> None:
        """Offer again what has not been acknowledged."""
        if channel.greeting.get("taken"):
            self._taken(tuple(channel.greeting["taken"]))
        for key, rows in list(self.open.items()):
            self._put(channel, key, rows)
        channel.flush()

    def heard(self, message: dict[str, Any]) -> None:
        """Acknowledgements."""
        super().heard(message)
        if message.get("c") == "taken":
            self._taken(tuple(message["key"]))

    def _taken(self, key: Any) -> None:
        self.taken = max(self.taken, key)
        while self.open and next(iter(self.open)) <= self.taken:
            self.open.popitem(last=False)

    def _put(self, channel: Channel, key: Key, rows: Any) -> None:
        number = channel.encoder.schema_number(rows.schema, channel.out)
        head = key[0].to_bytes(8, "little") + ROWS.pack(key[1], number)
        channel.out.add(Kind.OFFER, head, channel.encoder.payload(rows, number))
        channel.encoder.forget()

    def offer(self, batch_id: int, offset: int, rows: Any) -> None:
        """Offer a batch (a pyarrow.RecordBatch); offers must come in order of (batch_id, offset).

        What was offered before, by whomever, is recognised and dropped. Waits while more than
        `window` offers are not safe yet.

        Raises:
            Unreachable: no controller answers.
            DataLost: the job cannot go on.
        """
        key = (batch_id, offset)
        if key <= self.taken or key in self.open:
            return
        channel = self.leader()
        self.open[key] = rows
        try:
            self._put(channel, key, rows)
            channel.flush()
        except Broken:
            self.dropped()
            self.leader()
        self._wait(self.window)

    def flush(self) -> None:
        """Wait until everything that was offered is safe."""
        self._wait(0)

    def _wait(self, left: int) -> None:
        while len(self.open) > left:
            channel = self.leader()
            try:
                kind, body = self.frame(channel)
                if kind is Kind.CONTROL:
                    self.heard(from_json(body))
            except Broken:
                self.dropped()

    def finish(self) -> None:
        """Nothing more comes, from any source; waits until everything is safe, the end as well."""
        self.flush()
        self.ask({"c": "finish"}, "finished")


class Reader(Client):
    """Reads results by offset, from either copy of the collector."""

    def __init__(self, config: Config, *, patience_s: float = 60.0) -> None:
        super().__init__(config, patience_s=patience_s)
        self.site: Channel | None = None
        self._committed = -1

    def connected(self, channel: Channel) -> None:
        """Say again what is committed: the leader before may have died over it."""
        if self._committed >= 0:
            channel.control({"c": "commit", "offset": self._committed})

    def read(
        self, offset: int, *, timeout_s: float | None = None, max_bytes: int = READ_BYTES
    ) -> tuple[int, list[tuple[int, Any]], bool]:
        """Results of batches from `offset` on, in order.

        Args:
            offset: number of batches of input whose results have been read.
            timeout_s: how long to wait for more; None waits for ever.
            max_bytes: about how much to give at once.

        Returns:
            The next offset, (batch, rows) of every batch that has results, whether the input has
            ended and nothing comes after these.

        Raises:
            DataLost: the job cannot go on; only noticed when there is nothing to read.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                if self.site is None:
                    self.site = self._collector()
                if self.site is not None:
                    found = self._read(self.site, offset, max_bytes, end)
                    if found is not None:
                        return found
            except TimeoutError:
                if self.site is not None and self.site.address not in self._collectors():
                    self._leave()
            except Broken:
                self._leave()
            if end is not None and time.monotonic() >= end:
                return offset, [], False
            if self.site is None:
                time.sleep(AGAIN_S)

    def _collectors(self) -> list[tuple[str, int]]:
        answer = self.ask({"c": "where"}, "where")
        return [(host, port) for host, port in answer["collectors"]]

    def _collector(self) -> Channel | None:
        for address in self._collectors():
            with suppress(*Broken):
                return Channel(self.config.key, address, {})
        return None

    def _leave(self) -> None:
        if self.site is not None:
            self.site.close()
            self.site = None

    def _read(
        self, site: Channel, offset: int, max_bytes: int, end: float | None
    ) -> tuple[int, list[tuple[int, Any]], bool] | None:
        if site.asked not in (-1, offset):
            raise ConnectionResetError("an answer that nobody waits for any more is under way")
        if site.asked == -1:
            site.control({"c": "read", "offset": offset, "max": max_bytes})
            site.asked = offset
        found: list[tuple[int, Any]] = []
        while True:
            left = SILENCE_S if end is None else max(0.001, end - time.monotonic())
            try:
                kind, body = site.frame(min(left, SILENCE_S) if not found else CONNECT_TIMEOUT_S)
            except TimeoutError:
                if found:
                    raise ConnectionResetError("half of an answer") from None
                raise
            if kind is Kind.RESULTS:
                batch, schema = ROWS.unpack_from(body)
                found.append((batch, site.decoder.rows(body[ROWS.size :], schema)))
                continue
            message = from_json(body)
            site.asked = -1
            if message.get("c") == "results":
                return message["offset"], found, message["ended"]
            self._leave()  # the collector is elsewhere by now
            return None

    def commit(self, offset: int) -> None:
        """The results of all batches below `offset` are not needed any more.

        Nobody answers: a new leader is told again, with the next read at the latest.
        """
        self._committed = max(self._committed, offset)
        self.tell({"c": "commit", "offset": offset})

    def close(self) -> None:
        """Close both connections."""
        self._leave()
        super().close()
