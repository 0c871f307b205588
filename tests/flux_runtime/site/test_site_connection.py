"""Connections over loopback: a stranger, or any bytes, close one connection and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flux_runtime.site.connection import STRANGERS_MAX, Connection, dial, listen
from flux_runtime.site.handshake import MAGIC
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import ALLOCATED_BYTES, BUNDLE_MAX_BYTES, LENGTH, Kind

DEADLINE_S = 20.0


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.frames: list[tuple[Kind, bytes]] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()

    def opened(self, connection: Connection) -> None:
        self.connections.append(connection)
        self.changed.set()

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        self.frames.append((kind, bytes(body)))
        self.changed.set()

    def turn_over(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection, why: str) -> None:
        self.reasons.append(why)
        self.changed.set()

    def writable(self, connection: Connection) -> None: ...

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def run(made: Coroutine[Any, Any, None]) -> None:
    asyncio.run(made)


async def meet(key: JobKey) -> tuple[Listener, Listener, asyncio.Server, int]:
    here, there = Listener(), Listener()
    server, port = await listen(here, key)
    await dial(there, key, ("127.0.0.1", port), peer="x", timeout_s=DEADLINE_S)
    await there.until(lambda: there.connections)
    await here.until(lambda: here.connections)
    return here, there, server, port


def test_frames_of_one_turn_arrive_in_order_even_when_large() -> None:
    async def main() -> None:
        here, there, server, _ = await meet(JobKey.fresh())
        sent = [(Kind.CONTROL, b"small"), (Kind.STATE, os.urandom(3 << 20)), (Kind.CONTROL, b"")]
        for kind, body in sent:
            there.connections[0].send(kind, body)
        there.connections[0].flush()
        await here.until(lambda: len(here.frames) == 3)
        assert here.frames == sent
        server.close()

    run(main())


def test_a_connection_without_the_key_is_refused_and_the_key_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        caplog.set_level(logging.DEBUG)
        key = JobKey.fresh()
        here, there, server, port = await meet(key)
        stranger = Listener()
        await dial(stranger, JobKey.fresh(), ("127.0.0.1", port), peer="x", timeout_s=DEADLINE_S)
        await stranger.until(lambda: stranger.reasons)
        assert not stranger.connections
        assert len(here.connections) == 1
        there.connections[0].send(Kind.CONTROL, b"still here")
        there.connections[0].flush()
        await here.until(lambda: here.frames)
        assert "does not know the job's key" in caplog.text
        assert key.to_hex() not in caplog.text
        server.close()

    run(main())


BYTES = st.one_of(
    st.binary(max_size=200),
    st.binary(min_size=64, max_size=64).map(lambda b: MAGIC + b),
    st.binary(min_size=72, max_size=300),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(BYTES)
def test_any_bytes_of_a_stranger_only_close_its_connection(data: bytes) -> None:
    async def main() -> None:
        here, there, server, port = await meet(JobKey.fresh())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionResetError):
                assert len(await reader.read()) <= len(MAGIC) + 32
        writer.close()
        there.connections[0].send(Kind.CONTROL, b"still here")
        there.connections[0].flush()
        await here.until(lambda: here.frames)
        assert len(here.connections) == 1
        server.close()

    run(main())


MALFORMED = st.one_of(
    st.just(LENGTH.pack(BUNDLE_MAX_BYTES + 8)),
    st.just(LENGTH.pack(0)),
    st.just(LENGTH.pack(12)),
    st.binary(min_size=8, max_size=64)
    .map(lambda b: b[: len(b) // 8 * 8])
    .map(lambda b: LENGTH.pack(len(b)) + b"\xff\xff\xff\x7f" + b[4:]),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(MALFORMED)
def test_a_malformed_bundle_of_a_known_end_only_closes_its_connection(data: bytes) -> None:
    async def main() -> None:
        key = JobKey.fresh()
        here, there, server, port = await meet(key)
        other = Listener()
        await dial(other, key, ("127.0.0.1", port), peer="y", timeout_s=DEADLINE_S)
        await other.until(lambda: other.connections)
        transport = other.connections[0].transport
        assert transport is not None
        transport.write(data)
        await here.until(lambda: here.reasons)
        there.connections[0].send(Kind.CONTROL, b"still here")
        there.connections[0].flush()
        await here.until(lambda: here.frames)
        assert len(here.reasons) == 1
        server.close()

    run(main())


def test_memory_is_taken_as_bytes_arrive_and_not_as_they_are_announced() -> None:
    async def main() -> None:
        here, there, server, _ = await meet(JobKey.fresh())
        transport = there.connections[0].transport
        assert transport is not None
        taken: list[int] = []
        for arriving in (16, 3 << 20):
            head = LENGTH.pack(BUNDLE_MAX_BYTES) if not taken else b""
            transport.write(head + bytes(arriving))
            total = sum((16, 3 << 20)[: len(taken) + 1])
            connection = here.connections[0]
            async with asyncio.timeout(DEADLINE_S):
                while connection._size != BUNDLE_MAX_BYTES or connection._at < total:
                    await asyncio.sleep(0.01)
            taken.append(len(connection._buffer))
        assert taken[0] == ALLOCATED_BYTES
        assert taken[1] <= 2 * (3 << 20) + ALLOCATED_BYTES
        server.close()

    run(main())


def test_no_more_strangers_at_once_than_the_limit() -> None:
    async def main() -> None:
        here, _, server, port = await meet(JobKey.fresh())
        writers = []
        for _ in range(STRANGERS_MAX):
            writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
        async with asyncio.timeout(DEADLINE_S):
            while True:  # those before it may not all have been accepted yet
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                if not await reader.read(1):
                    break
        assert len(here.connections) == 1
        for writer in writers:
            writer.close()
        server.close()

    run(main())


def test_a_reader_that_does_not_read_pauses_rows_and_resumes_them() -> None:
    async def main() -> None:
        here, there, server, _ = await meet(JobKey.fresh())
        sender, receiver = there.connections[0], here.connections[0]
        receiver.reading(False)
        sent = 0
        async with asyncio.timeout(DEADLINE_S):
            while not sender.paused:
                sender.send(Kind.STATE, bytes(1 << 20))
                sender.flush()
                sent += 1
                await asyncio.sleep(0)
            receiver.reading(True)
            while sender.paused or len(here.frames) < sent:
                await asyncio.sleep(0.01)
        server.close()

    run(main())
