"""Numbered znodes, read without gaps: what has come, what is trimmed, what has yet to come."""

from __future__ import annotations

import pytest
from zookeeper_world import Events

from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import app_path, ensure
from flux_runtime.zookeeper.tail import PREFIX, Reader, Trimmed, end_of, trim

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
