"""An ordered, durable channel: contents in files, their order in ZooKeeper.

    channel = Channel("127.0.0.1:2181", "ads", storage_at("file:///..."))
    end = channel.ingress("clicks-1"); end.offer(0, rows); end.flush()
    offset, batches = channel.egress("report").read(0, timeout_s=1.0)

Each stream is a producer (OR-1), each offer a batch. A content is written before it is proposed,
and deleted when every reader has passed it (OR-5). All readers get the same batches in the same
order. Batches may share a place, so a batch is numbered by its place and its claim there, and the
offset of a reader is such a number.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

import pyarrow as pa

from flux_runtime.operators.rows import number as number_rows
from flux_runtime.ordering.places import (
    CLAIMS_MAX,
    Batch,
    Claims,
    Order,
    Verdicts,
    counting,
    decode,
)
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.ordering.scope import ALL, Scope, catch_up
from flux_runtime.sealing.storage import Storage
from flux_runtime.spark import faults
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.tail import Reader, Trimmed
from flux_runtime.zookeeper.znode_names import znode_name

READ_BYTES: Final = 8 << 20
CONTENT_S: Final = 60.0
"""So long a reader waits for a content whose place it knows, as shared folders may show it late."""
_POLL_S: Final = 0.02


class ContentMissing(RuntimeError):  # noqa: N818 - what happened
    """A batch has its place, but its content cannot be read (OR-4)."""


class Channel:
    """A channel; opens its ends.

    Args:
        zookeeper: host:port,...
        app: name of the application.
        storage: a folder for the contents, which both ends reach.
        scope: name of the order.
    """

    def __init__(
        self, zookeeper: str | Ensemble, app: str, storage: Storage, *, scope: str = ALL
    ) -> None:
        self._zookeeper = zookeeper
        self._app = app
        self._storage = storage
        self._scope = scope
        self._news = threading.Event()
        """Something has its place that an end of this process may not have read."""

    def ingress(self, stream: str) -> ChannelIngress:
        """Offers of one stream; another process under this name ends the one before."""
        client = connect(self._zookeeper)
        try:
            return ChannelIngress(client, self._app, stream, self._storage, self._scope, self._news)
        except BaseException:
            client.close()
            raise

    def egress(self, reader: str) -> ChannelEgress:
        """Results for a reader."""
        client = connect(self._zookeeper)
        try:
            return ChannelEgress(client, self._app, reader, self._storage, self._scope, self._news)
        except BaseException:
            client.close()
            raise


class ChannelIngress:
    """Takes the batches of one stream; one process at a time. `Channel.ingress` makes it."""

    def __init__(
        self,
        client: Client,
        app: str,
        stream: str,
        storage: Storage,
        scope: str,
        news: threading.Event,
    ) -> None:
        self._client = client
        self._news = news
        self._stream = stream
        self._storage = storage
        self._proposer = Proposer(client, app, stream, scope=scope)

    def offer(self, offset: int, rows: Any) -> None:
        """Hand over records. What was offered before, by this process or another, is dropped.

        Args:
            offset: of the first of them; it counts all records of the stream from 0 on.
            rows: a pyarrow.RecordBatch.

        Raises:
            ValueError: records between the last ones and these are missing.
        """
        after = self._proposer.next
        if offset > after:
            raise ValueError(f"records {after} to {offset - 1} of {self._stream} are missing")
        rows = rows.slice(after - offset)
        if rows.num_rows == 0:
            return
        self._storage.write(_content(self._stream, after), _encode(rows))
        faults.point("content-written")
        self._proposer.propose(after, after + rows.num_rows - 1)

    def flush(self) -> None:
        """Return when everything that was offered has its place: it will not be lost."""
        self._proposer.wait()
        self._news.set()

    def close(self) -> None:
        """End the session."""
        self._proposer.close()
        self._client.close()


class ChannelEgress:
    """Gives a reader the batches in their order. `Channel.egress` makes it."""

    def __init__(
        self,
        client: Client,
        app: str,
        reader: str,
        storage: Storage,
        scope: str,
        news: threading.Event,
    ) -> None:
        self._client = client
        self._news = news
        self._name = reader
        self._storage = storage
        self._scope = Scope(client, app, scope)
        self._scope.register(reader, 0)
        self._order = Order()
        self._at = 0
        """The offset that is read next."""
        self._pending: deque[tuple[int, Batch]] = deque()
        """Batches from there on whose places have been read, with their numbers."""
        self._counted: Order | None = None
        self._batches = 0
        self._reader = Reader(client, self._scope.places)

    def read(
        self,
        offset: int,
        *,
        timeout_s: float | None = None,
        max_bytes: int = READ_BYTES,
        content_s: float = CONTENT_S,
    ) -> tuple[int, list[tuple[int, Any]]]:
        """Batches from an offset on.

        Args:
            offset: where to begin.
            timeout_s: how long to wait for more than nothing; None: for ever.
            max_bytes: about how much to give at once.
            content_s: how long to wait for the content of a batch whose place is known (OR-4).

        Returns:
            The next offset; (number, rows) in order, numbers from `offset` up to below the next
            one. What lies between two offsets never changes.

        Raises:
            Trimmed: the offset was committed.
            ContentMissing: a content did not come within the time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._go_to(offset)
        parts: list[tuple[int, Any]] = []
        size = 0
        while True:
            self._news.clear()
            if not self._pending:
                self._read_places()
            while self._pending and size < max_bytes:
                number, batch = self._pending[0]
                rows = number_rows(self._fetch(batch, number, content_s), number)
                parts.append((number, rows))
                size += rows.nbytes
                self._pending.popleft()
                self._at = number + 1
            if not self._pending:
                self._at = max(self._at, _number(self._order.at))
            if self._at > offset or (deadline is not None and time.monotonic() >= deadline):
                return self._at, parts
            self._news.wait(_POLL_S)

    def batches(self, since: int = 0) -> int:
        """How many batches have their place by now, from an offset on; it is always the same one.

        Raises:
            Trimmed: places that would count have been forgotten.
        """
        order = self._counted or self._scope.base()
        if self._counted is None and _number(order.at) > since:
            raise Trimmed(order.at - 1)

        def seen(place: int, claims: Claims, verdicts: Verdicts) -> None:
            counted = counting(claims, verdicts)
            self._batches += sum(_number(place, claim) >= since for claim, _ in counted)

        catch_up(self._scope, order, seen=seen)
        self._counted = order
        return self._batches

    def commit(self, offset: int) -> None:
        """Notes that nothing below the offset is read again; what every reader has passed goes."""
        self._scope.passed(self._name, offset // CLAIMS_MAX)
        below = min(self._scope.consumers().values())
        old: list[Batch] = []

        def seen(_place: int, claims: Claims, verdicts: Verdicts) -> None:
            old.extend(batch for _, batch in counting(claims, verdicts))

        catch_up(self._scope, self._scope.base(), to=below, seen=seen)
        for batch in old:
            self._storage.delete(_content(batch.producer, batch.first))
        faults.point("contents-deleted")
        self._scope.trim()

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def _go_to(self, offset: int) -> None:
        if self._at == offset:
            return
        order = self._scope.base()
        place = offset // CLAIMS_MAX
        if order.at > place:
            raise Trimmed(place)
        catch_up(self._scope, order, to=place)
        self._order, self._at = order, offset
        self._reader.next = order.at
        self._pending.clear()

    def _read_places(self) -> None:
        for place, data in self._reader.read():
            claims = decode(data)
            for claim, batch in counting(claims, self._order.handle(place, claims)):
                if _number(place, claim) >= self._at:
                    self._pending.append((_number(place, claim), batch))

    def _fetch(self, batch: Batch, number: int, content_s: float) -> Any:
        deadline = time.monotonic() + content_s
        while True:
            data = self._storage.read(_content(batch.producer, batch.first))
            if data is not None:
                return _decode(data)
            if time.monotonic() > deadline:
                raise ContentMissing(
                    f"place {number // CLAIMS_MAX}: records {batch.first} to {batch.last} of "
                    f"{batch.producer} are not in {self._storage.uri()}"
                )
            time.sleep(_POLL_S)


def _number(place: int, claim: int = 0) -> int:
    """Of a claim: numbers grow along the order."""
    return place * CLAIMS_MAX + claim


def _content(stream: str, first: int) -> str:
    return f"{znode_name((stream,))}/{first:016d}.arrow"


def _encode(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decode(data: bytes) -> Any:
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    return table.combine_chunks().to_batches()[0]
