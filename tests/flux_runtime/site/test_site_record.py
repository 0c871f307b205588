"""The controller's events in a real ZooKeeper: kept as a state now and then, and trimmed."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
import site_flows
from site_ledgers import joined, recovered

from flux_runtime.site.collector import collected
from flux_runtime.site.config import ControllerConfig
from flux_runtime.site.hosting import flow_of
from flux_runtime.site.key import JobKey
from flux_runtime.site.leader import Leader
from flux_runtime.site.ledger import Event, Ledger
from flux_runtime.site.record import ZooKeeperRecord, control_log, decoded, kept_state
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.snapshot import restore, snapshot
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.election import Candidate, Elected, Leadership, NotLeading
from flux_runtime.zookeeper.nodes import children
from flux_runtime.zookeeper.tail import Trimmed


def new() -> Ledger:
    return ResumeLedger(flow_of(collected(site_flows.pairs())), wanted=4)


def lead(client: Client, app: str) -> Leadership:
    found: list[Leadership] = []
    elected = threading.Event()

    def on_event(event: object) -> None:
        if isinstance(event, Elected):
            found.append(event.leadership)
            elected.set()

    Candidate(client, app, "me", on_event=on_event)
    assert elected.wait(60.0)
    return found[0]


@pytest.mark.zookeeper
def test_the_log_of_a_long_lived_job_does_not_grow(zookeeper_hosts: str) -> None:
    app = f"trimmed-{uuid.uuid4()}"
    with connect(zookeeper_hosts, session_timeout_s=30.0) as client:
        log, kept = control_log(client, app)
        record = ZooKeeperRecord(log, kept, lead(client, app))
        ledger = new()

        def happen(*events: Event) -> None:
            record.append(events)
            for event in events:
                ledger.apply(event)

        happen({"e": "leader", "id": "l"}, *map(joined, range(4)))
        sizes = []
        for failure in range(250):
            happen({"e": "failed", "site": failure, "why": ""}, joined(failure + 4))
            while not ledger.is_whole:
                happen(*recovered(ledger))
            if failure % 10 == 9:
                record.keep(snapshot(ledger))
                sizes.append(len(children(client, log.path)))
        assert max(sizes) <= 256
        assert log.end() > 400, "more than is kept"

        found = kept_state(kept)
        assert found is not None
        follower = new()
        restore(follower, found[1])
        for _, entry in log.read(found[0]):
            for event in decoded(entry):
                follower.apply(event)
        assert snapshot(follower) == snapshot(ledger)
        with pytest.raises(Trimmed):
            log.read(0)


class Replaced:
    """The record of a leader that has been replaced without knowing it."""

    def append(self, events: list[Event]) -> None:
        if any(event["e"] == "failed" for event in events):
            raise NotLeading("replaced", "")

    def keep(self, state: bytes) -> None:
        raise NotLeading("replaced", "")


def test_a_leader_that_has_been_replaced_fences_nobody(tmp_path: Path) -> None:
    removed: list[str] = []

    async def main() -> None:
        config = ControllerConfig(
            key=JobKey.fresh(),
            dataflow=site_flows.pairs,
            controller=("127.0.0.1", 1),
            sites=4,
            folder=tmp_path,
            run_folder=tmp_path,
        )
        ledger = new()
        leader = Leader(config, ledger, Replaced(), remove=removed.append)
        for n in range(4):
            ledger.apply(joined(n))
        asyncio.get_running_loop().call_later(0.05, leader.member_left, ledger.sites[0].id)
        async with asyncio.timeout(60):
            await leader.run()

    with pytest.raises(NotLeading):
        asyncio.run(main())
    assert removed == []
    events: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    ]
    assert all(event["kind"] != "site_failed" for event in events)
