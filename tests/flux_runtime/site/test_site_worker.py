"""What a site does about others that it cannot reach."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import site_flows

from flux_runtime.site import control_messages as control
from flux_runtime.site import site_steps as steps
from flux_runtime.site import worker as worker_module
from flux_runtime.site.config import SiteConfig
from flux_runtime.site.connection import listen
from flux_runtime.site.control_messages import SiteAddress
from flux_runtime.site.finding import finder
from flux_runtime.site.idle import IdleSelector
from flux_runtime.site.key import JobKey
from flux_runtime.site.worker import Worker

SITES = [SiteAddress(n, f"{n}.0", "127.0.0.1", 1) for n in range(3)]


async def eventually(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.01)


def seated(number: int, address: tuple[str, int], key: JobKey, *, session_s: float) -> Worker:
    """A site that has just heard that site 0 is at this address, and 1 somewhere."""
    config = SiteConfig(
        key=key,
        dataflow=site_flows.pairs,
        controller=("127.0.0.1", 1),
        session_timeout_s=session_s,
    )
    worker = Worker(config, finder(config), None, IdleSelector())
    worker.id = f"{number}.0"
    worker.state.number, worker.state.leader = number, "nobody"
    worker._become(number)
    view = control.Sites((SiteAddress(0, "0.0", *address), SITES[1]))
    worker.step(steps.LeaderSaid("nobody", view))
    return worker


async def over(*workers: Worker) -> None:
    for worker in workers:
        for task in worker.tasks:
            task.cancel()
        for connection in list(worker.open):
            connection.close("over")
    await asyncio.sleep(0)


def test_a_site_that_is_silent_for_less_than_its_session_is_tried_again_and_not_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "DIAL_TIMEOUT_S", 0.1)

    async def main() -> None:
        key = JobKey.fresh()
        with socket.create_server(("127.0.0.1", 0)) as paused:  # the kernel takes connections
            address = paused.getsockname()
            worker = seated(1, address, key, session_s=1000.0)
            paused.settimeout(120.0)
            loop = asyncio.get_running_loop()
            for _ in range(3):
                attempt, _ = await loop.run_in_executor(None, paused.accept)
                attempt.close()
            assert not worker.state.broken
        other = seated(0, address, key, session_s=1000.0)
        server, _ = await listen(other, key, port=address[1])  # it goes on
        await eventually(lambda: 0 in worker.links and 1 in other.links, "it is reached")
        assert not worker.state.broken
        server.close()
        await over(worker, other)

    asyncio.run(main())


def test_a_site_that_is_out_of_reach_for_a_session_is_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "DIAL_TIMEOUT_S", 0.1)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            worker = seated(1, silent.getsockname(), JobKey.fresh(), session_s=0.3)
            await eventually(lambda: 0 in worker.state.broken, "it is accused")
            assert worker.state.broken == {0: "no handshake in time"}
            await over(worker)

    asyncio.run(main())
