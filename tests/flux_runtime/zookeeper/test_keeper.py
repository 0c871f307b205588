"""An embedded server that dies is started again; what it knew, and sessions, survive."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from zookeeper_world import Events, until

from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.keeper import Keeper
from flux_runtime.zookeeper.nodes import app_path, children, delete_tree, ensure
from flux_runtime.zookeeper.registry import ROOT, ProducerRegistry

pytestmark = pytest.mark.zookeeper


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
