"""The epoch of a job in ZooKeeper: `/blazes/APP/epoch` names the newest driver.

A driver that starts replaces the znode's data, and its epoch is greater than the one before; the
version check makes of two that start at the same time one after the other. Each watches the znode
from then on, and reads it before every commit, so that the older one stops. The znode outlives
`--fresh`: epochs never go back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.owner import NotOwnerError
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.nodes import (
    ANSWER_LOST,
    app_path,
    ask,
    children,
    delete_tree,
    ensure,
    read,
    sync,
)
from flux_runtime.zookeeper.watcher import Poke, Watcher, patience_s

EPOCH = "epoch"


class EpochNode:
    """The newest driver of an application, as the ensemble knows it; a place for a `Fence`.

    Args:
        client: a session.
        app: name of the application.
        timeout_s: how long to wait for the ensemble before `EnsembleUnreachable`.
    """

    def __init__(self, client: Client, app: str, *, timeout_s: float = 30.0) -> None:
        self.path = app_path(app, EPOCH)
        self._client = client
        self._app = app
        self._timeout_s = timeout_s

    def newest(self) -> Driver | None:
        """The newest driver; None where none has been here.

        Raises:
            EnsembleUnreachable: no answer; then nothing may be decided (OR-7).
        """
        try:
            data, _ = ask(
                self._client,
                lambda: self._client.kazoo.get_async(self.path),
                timeout_s=self._timeout_s,
            )
        except NoNodeError:
            return None
        return _driver(data)

    def claim(self, driver: Driver, *, fresh: bool = False) -> Driver:
        """Become the newest driver; it, with an epoch greater than every one before.

        Args:
            driver: this process; it keeps its epoch where that is great enough.
            fresh: take the application over from another state.

        Raises:
            NotOwnerError: the application belongs to another state.
            EnsembleUnreachable: no answer within the time limit.
        """
        ensure(self._client, self.path.rpartition("/")[0])
        while True:
            sync(self._client, self.path)
            current = read(self._client, self.path)
            before = None if current is None else _driver(current[0])
            if before is not None and before.run == driver.run and before.epoch == driver.epoch:
                return driver  # the answer was lost, and it had been carried out
            if before is not None and before.state != driver.state and not fresh:
                raise NotOwnerError(
                    f"ZooKeeper at {self._client.hosts}:",
                    f"{self._app} belongs to another state, {before.state} ({before})",
                    "a job of the same name runs there, or ran, or its state was deleted. Nothing "
                    "was changed. Go on with that state, give this job another name, or start "
                    "afresh with --fresh, which takes the name over and stops the other one",
                )
            if before is not None and before.run != driver.run:
                driver = replace(driver, epoch=max(driver.epoch, before.epoch + 1))
            try:
                self._write(driver.to_bytes(), None if current is None else current[1])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # another one was quicker
            except ANSWER_LOST:
                self._client.wait_for_session(self._timeout_s)
                continue
            return driver

    def watch(self, on_driver: Callable[[Driver | None], None]) -> Watcher:
        """Hand on the newest driver, now and after changes, until the watcher is closed."""

        def look(poke: Poke) -> None:
            answer = self._client.kazoo.get_async(self.path, watch=poke)
            try:
                data, _ = answer.get(timeout=patience_s(self._client))
            except NoNodeError:
                return
            on_driver(_driver(data))

        return Watcher(self._client, look, name="epoch").start()

    def clear_others(self) -> None:
        """Delete everything of the application but the epoch: it starts from scratch."""
        folder = self.path.rpartition("/")[0]
        for name in children(self._client, folder):
            if name != EPOCH:
                delete_tree(self._client, f"{folder}/{name}")

    def _write(self, data: bytes, version: int | None) -> None:
        kazoo = self._client.kazoo
        answer: Any = (
            kazoo.create_async(self.path, data)
            if version is None
            else kazoo.set_async(self.path, data, version=version)
        )
        answer.get(timeout=self._timeout_s)


def _driver(data: bytes) -> Driver | None:
    """The driver in a znode's data; None for something that is none."""
    try:
        return Driver.from_bytes(data)
    except ValueError:
        return None
