"""The epoch of a job in a real ZooKeeper: claimed once each, watched, kept over a fresh start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from zookeeper_wire import Wire
from zookeeper_world import Events, until

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.fence import Fence, FencedError
from flux_runtime.commits.owner import NotOwnerError
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.epoch import EpochNode
from flux_runtime.zookeeper.errors import EnsembleUnreachable
from flux_runtime.zookeeper.nodes import app_path, children, ensure
from flux_runtime.zookeeper.registry import ProducerRegistry


def test_every_driver_has_an_epoch_of_its_own(client: Client, app: str, zookeeper_hosts: str):
    """Twelve that start at the same time, in sessions of their own."""

    def claim(_: int) -> int:
        with connect(zookeeper_hosts) as session:
            return EpochNode(session, app).claim(Driver(epoch=1, state="s")).epoch

    with ThreadPoolExecutor(12) as pool:
        epochs = list(pool.map(claim, range(12)))
    assert sorted(epochs) == list(range(1, 13))
    newest = EpochNode(client, app).newest()
    assert newest is not None
    assert newest.epoch == 12


def test_an_epoch_that_the_state_knows_is_not_gone_back_from(client: Client, app: str):
    node = EpochNode(client, app)
    assert node.newest() is None
    assert node.claim(Driver(epoch=7, state="s")).epoch == 7
    again = node.claim(Driver(epoch=2, state="s"))
    assert again.epoch == 8
    assert node.claim(again) == again  # an answer that was lost: it asks again


def test_the_older_driver_hears_of_the_newer_one_by_itself(
    client: Client, app: str, remote: Client
):
    node = EpochNode(client, app)
    old = node.claim(Driver(epoch=1, state="s"))
    fence = Fence(old, places=[node])
    fence.check()
    heard = Events()
    with_watch = node.watch(lambda driver: (fence.notice(driver), heard(driver)))
    try:
        heard.wait(lambda driver: driver == old)
        fence.raise_noticed()
        new = EpochNode(remote, app).claim(Driver(epoch=1, state="s"))
        heard.wait(lambda driver: driver == new)
        with pytest.raises(FencedError, match=f"epoch 2, {new.host}:{new.pid} since "):
            fence.raise_noticed()
    finally:
        with_watch.close()


def test_without_an_answer_nothing_is_decided(app: str, remote: Client, wire: Wire):
    node = EpochNode(remote, app, timeout_s=120.0)
    fence = Fence(node.claim(Driver(epoch=1, state="s")), places=[node])
    fence.check()
    wire.stop()
    with pytest.raises(EnsembleUnreachable):
        Fence(fence.driver, places=[EpochNode(remote, app, timeout_s=1.0)]).check()
    wire.resume()
    until(lambda: remote.state.value == "connected")
    fence.check()


def test_a_job_of_the_same_name_with_another_state_is_refused(client: Client, app: str):
    node = EpochNode(client, app)
    first = node.claim(Driver(epoch=1, state="here"))
    with pytest.raises(NotOwnerError, match="belongs to another state, here") as refused:
        node.claim(Driver(epoch=1, state="there"))
    assert "--fresh" in refused.value.remedy
    assert node.newest() == first
    assert node.claim(Driver(epoch=1, state="there"), fresh=True).epoch == 2


def test_a_fresh_start_deletes_everything_but_the_epoch(client: Client, app: str):
    node = EpochNode(client, app)
    node.claim(Driver(epoch=1, state="s"))
    ProducerRegistry(client, app).register("clicks", ("7",), ["a"])
    ensure(client, app_path(app, "order", "all"))
    node.clear_others()
    assert children(client, app_path(app)) == ["epoch"]
    newest = node.newest()
    assert newest is not None
    assert newest.epoch == 1
