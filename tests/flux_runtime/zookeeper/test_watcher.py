"""What drives a watcher: nothing before it is started, and no error without a word."""

from __future__ import annotations

import threading
import time

import pytest
from zookeeper_world import until

from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.watcher import LOOKS_PER_SESSION, Watcher

pytestmark = pytest.mark.zookeeper


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
