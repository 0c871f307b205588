"""Requests to ZooKeeper that may be repeated, and the paths of an application.

A request whose answer is lost may have been carried out or not. Everything the runtime asks for is
made so that asking again does no harm; `ask` does so until there is an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kazoo.exceptions import (
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)

from flux_runtime.zookeeper.client import Client, refused, unreachable
from flux_runtime.zookeeper.registry import ROOT
from flux_runtime.zookeeper.znode_names import znode_name

ANSWER_LOST: Final = (
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
"""The request may have been carried out or not."""

DATA_BYTES_MAX: Final = 900_000
"""A znode holds a megabyte, with its path and the request around it (jute.maxbuffer)."""

IN_FLIGHT_MAX: Final = 1000
"""Requests sent before their answers are read; more gains nothing on loopback."""

_Found = TypeVar("_Found")

Event = Any
"""kazoo's WatchedEvent; nobody looks into it: whatever happened, the state is read anew."""


def app_path(app: str, *parts: str) -> str:
    """The path of something of an application's.

    >>> app_path("a/b", "order", "all")
    '/blazes/a%2Fb/order/all'
    """
    return "/".join((ROOT, znode_name((app,)), *parts))


def ask(client: Client, request: Callable[[], Any], *, timeout_s: float = 30.0) -> Any:
    """The answer to a request; it is asked again where the answer was lost.

    Args:
        client: a session.
        request: sends it (kazoo's `..._async`); called again after a loss.
        timeout_s: how long to try.

    Raises:
        EnsembleUnreachable: no answer within the time limit.
        KazooException: what the ensemble answered.
    """
    return again(client, lambda left_s: request().get(timeout=left_s), timeout_s=timeout_s)


def again(client: Client, work: Callable[[float], _Found], *, timeout_s: float = 30.0) -> _Found:
    """The result of some work; it is done again where an answer was lost.

    Args:
        client: a session.
        work: is given the seconds that are left.
        timeout_s: how long to try.

    Raises:
        EnsembleUnreachable: not done within the time limit.
        AccessRefused: a znode is somebody else's.
        KazooException: what the ensemble answered.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        client.wait_for_session(max(0.0, deadline - time.monotonic()))
        try:
            return work(max(0.001, deadline - time.monotonic()))
        except ANSWER_LOST:
            if time.monotonic() > deadline:
                raise unreachable(client.hosts, timeout_s) from None
        except client.kazoo.handler.timeout_exception:
            raise unreachable(client.hosts, timeout_s) from None
        except NoAuthError:
            raise refused(client) from None


def commit(client: Client, operations: Callable[[Any], None], *, timeout_s: float = 30.0) -> None:
    """Carry out several operations or none of them.

    kazoo hands the errors of a transaction back as its results; here the one that counts is raised.

    Args:
        client: a session.
        operations: adds them to the transaction it is given.
        timeout_s: how long to wait for the answer.

    Raises:
        ConnectionLoss: the answer was lost; it is up to the caller to find out.
        KazooException: the operation that was refused; none has been carried out.
    """
    transaction = client.kazoo.transaction()
    operations(transaction)
    try:
        results = transaction.commit_async().get(timeout=timeout_s)
    except client.kazoo.handler.timeout_exception:
        raise unreachable(client.hosts, timeout_s) from None
    errors = [result for result in results if isinstance(result, Exception)]
    bystander = (RolledBackError, RuntimeInconsistency)
    for error in sorted(errors, key=lambda e: isinstance(e, bystander)):
        raise error


def sync(client: Client, path: str, *, timeout_s: float = 30.0) -> None:
    """Wait until the server this session is with knows all that was written before this call.

    After a lost answer the session may be with another server, which need not have heard yet of
    what the first one has carried out.
    """
    ask(client, lambda: client.kazoo.sync_async(path), timeout_s=timeout_s)


def ensure(client: Client, path: str) -> None:
    """Make a znode, and all above it, unless it is there."""
    ask(client, lambda: client.kazoo.ensure_path_async(path))


def children(
    client: Client,
    path: str,
    watch: Callable[[Event], None] | None = None,
    *,
    timeout_s: float = 30.0,
) -> list[str]:
    """Names below a znode; none if there is no such znode (then nothing is watched either)."""

    def request() -> Any:
        return client.kazoo.get_children_async(path, watch=watch)

    try:
        return list(ask(client, request, timeout_s=timeout_s))
    except NoNodeError:
        return []


def read(client: Client, path: str) -> tuple[bytes, int] | None:
    """Data and version of a znode; None if there is no such znode."""
    try:
        data, stat = ask(client, lambda: client.kazoo.get_async(path))
    except NoNodeError:
        return None
    return data, stat.version


def delete(client: Client, paths: Iterable[str], *, timeout_s: float = 30.0) -> None:
    """Delete znodes, pipelined; those that are gone already do not matter."""
    todo = list(paths)
    while todo:
        client.wait_for_session(timeout_s)
        sent = [(path, client.kazoo.delete_async(path)) for path in todo[:IN_FLIGHT_MAX]]
        todo = todo[IN_FLIGHT_MAX:]
        for path, answer in sent:
            try:
                answer.get(timeout=timeout_s)
            except NoNodeError:
                continue
            except ANSWER_LOST:
                todo.append(path)
            except client.kazoo.handler.timeout_exception:
                raise unreachable(client.hosts, timeout_s) from None


def delete_tree(client: Client, path: str) -> int:
    """Delete a znode and all below it; how many there were."""
    count = 0
    below = children(client, path)
    for name in below:
        count += delete_tree(client, f"{path}/{name}")
    if below or read(client, path) is not None:
        delete(client, [path])
        count += 1
    return count
