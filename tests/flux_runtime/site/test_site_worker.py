"""What a site does about a broken link, without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import site_flows

from flux_runtime.site.config import SiteConfig
from flux_runtime.site.connection import Connection
from flux_runtime.site.finding import finder
from flux_runtime.site.host import LEADER
from flux_runtime.site.idle import IdleSelector
from flux_runtime.site.key import JobKey
from flux_runtime.site.shell import Link
from flux_runtime.site.worker import Worker

SITES: list[list[Any]] = [[n, f"{n}.0", "127.0.0.1", 1] for n in range(3)]


def test_a_broken_link_is_reported_to_every_leader_until_one_has_acted_on_it() -> None:
    async def main() -> None:
        key = JobKey.fresh()
        config = SiteConfig(key=key, dataflow=site_flows.pairs, controller=("127.0.0.1", 1))
        worker = Worker(config, finder(config), None, IdleSelector())

        def leader() -> Connection:
            connection = Connection(worker, key, dialing=True)
            connection.open = True
            worker.open[connection] = Link({})
            worker.links[LEADER] = connection
            return connection

        def told(connection: Connection) -> bytes:
            return b"".join(bytes(part) for part in connection.out.take())

        worker._sites(SITES)
        worker._lost_site(2, "cut")  # nobody leads just now
        first = leader()
        worker._sites(SITES)
        assert b'{"c":"lost","site":2,"why":"cut"}' in told(first)
        second = leader()  # the first one has died over it
        worker._sites(SITES)
        assert b'"lost","site":2' in told(second)
        worker._sites(SITES[:2])
        assert b'"lost"' not in told(second)
        worker._lost_site(2, "closed by the other end")
        assert b'"lost"' not in told(second), "it has been removed"

    asyncio.run(main())
