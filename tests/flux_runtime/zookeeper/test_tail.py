"""Numbered znodes, read without gaps; watchers; an embedded server that dies comes back."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from zookeeper_world import Events, until

from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.keeper import Keeper
from flux_runtime.zookeeper.nodes import app_path, children, delete_tree, ensure
from flux_runtime.zookeeper.registry import ROOT, ProducerRegistry
from flux_runtime.zookeeper.tail import PREFIX, Reader, Trimmed, end_of, trim
from flux_runtime.zookeeper.watcher import LOOKS_PER_SESSION, Watcher

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def parent(client: Client, app: str) -> str:
    path = app_path(app, "numbers")
    ensure(client, path)
    return path


def more(client: Client, parent: str, *data: bytes) -> None:
    for one in data:
        client.kazoo.create(f"{parent}/{PREFIX}", one, sequence=True)


def test_what_comes_is_read_once_and_told(client: Client, parent: str) -> None:
    reader = Reader(client, parent)
    told = Events()
    assert reader.read(told.__call__) == []
    more(client, parent, b"a")
    told.wait(lambda _: True)
    assert reader.read(told.__call__) == [(0, b"a")]
    assert reader.read() == []
    more(client, parent, b"b", b"c")
    assert reader.read(told.__call__) == [(1, b"b"), (2, b"c")]
    assert len(told) == 1, "it watches only where there is nothing"
    assert reader.read(told.__call__) == []
    more(client, parent, b"d")
    told.wait(lambda _: True, count=2)
    assert reader.read() == [(3, b"d")]
    reader.next = 1
    assert [number for number, _ in reader.read()] == [1, 2, 3]


def test_what_is_trimmed_is_told_and_what_is_left_is_read(client: Client, parent: str) -> None:
    more(client, parent, *(b"%d" % n for n in range(6)))
    behind, ahead = Reader(client, parent), Reader(client, parent, 2)
    assert len(behind.read()) == 6
    behind.next = 1
    assert trim(client, parent, 4) == 4
    with pytest.raises(Trimmed, match="number 1 "):
        behind.read()
    with pytest.raises(Trimmed, match="number 2 "):
        ahead.read()
    assert Reader(client, parent, 4).read() == [(4, b"4"), (5, b"5")]
    assert trim(client, parent, 9) == 2
    assert end_of(client, parent) == 6
    assert Reader(client, parent, 6).read() == []


def test_a_server_that_is_behind_is_waited_for(client: Client, parent: str) -> None:
    more(client, parent, b"a")
    reader = Reader(client, parent)
    reader._end = 3  # of a server that knows more
    assert reader.read() == [(0, b"a")]
    assert reader.read() == []
    more(client, parent, b"b", b"c")
    assert reader.read() == [(1, b"b"), (2, b"c")]


def test_nothing_is_called_before_the_start(client: Client) -> None:
    calls: list[str] = []
    watcher = Watcher(
        client, lambda _: calls.append("look"), name="late", tick=lambda: calls.append("tick")
    )
    watcher.poke()
    time.sleep(2 * client.session_timeout_s / LOOKS_PER_SESSION)
    assert calls == []
    watcher.start()
    until(lambda: calls[:2] == ["look", "tick"])
    watcher.close()


def test_an_error_of_a_tick_is_told(client: Client) -> None:
    failures: list[BaseException] = []
    told = threading.Event()

    def fail(error: BaseException) -> None:
        failures.append(error)
        told.set()

    def tick() -> None:
        raise KeyError("missing")

    watcher = Watcher(client, lambda _: None, name="wrong", tick=tick, failed=fail).start()
    assert told.wait(30.0)
    assert isinstance(failures[0], KeyError)
    watcher.close()


def test_a_server_that_is_killed_comes_back_with_its_data(tmp_path: Path) -> None:
    events = Events()
    server = EmbeddedZooKeeper(tmp_path).start()
    with (
        Keeper(server, lambda kind, why: events((kind, why))),
        connect(server.hosts, session_timeout_s=30.0) as client,
    ):
        registry = ProducerRegistry(client, "app", timeout_s=120.0)
        registry.register("clicks", ("1",), ["a"])
        for count in (1, 2):
            assert server.pid is not None
            before = server.pid
            os.kill(before, signal.SIGKILL)
            events.wait(lambda event: event[0] == "zookeeper_restarted", count=count)
            assert registry.lookup("clicks", ("1",)) == {"a"}
            assert server.pid != before
        assert client.session_losses == 0
    assert not server.running


def test_all_that_an_application_left_is_deleted(client: Client, app: str) -> None:
    ProducerRegistry(client, app).register("clicks", ("1",), ["a"])
    ensure(client, app_path(app, "order", "all", "places"))
    other = f"{app}-2"
    ensure(client, app_path(other))
    delete_tree(client, app_path(app))
    until(lambda: app not in children(client, ROOT))
    assert other in children(client, ROOT)
