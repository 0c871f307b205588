"""Site processes on loopback: whichever dies, is paused or comes back, the output stays exact."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import site_flows

from flux_lab.example import events
from flux_lab.local_sites import LocalSites
from flux_lab.reference import reference
from flux_runtime.operators.rows import SN
from flux_runtime.operators.state_file import size_of
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site.client import Client, DataLost
from flux_runtime.site.connection import HANDSHAKE_TIMEOUT_S
from flux_runtime.site.journal import END_KEY, Journal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BATCHES, ROWS, SITES = 120, 30, 4
DEADLINE_S = 300.0
FLOWS = "site_flows:pairs"


@pytest.fixture(scope="module")
def batches() -> list[Any]:
    return events(BATCHES, ROWS, keys=200, seed=3)


@pytest.fixture(scope="module")
def expected(batches: Sequence[Any]) -> list[tuple[int, Any]]:
    return reference(site_flows.pairs(), batches).output


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(here))


def eventually(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def run_through(
    job: LocalSites, batches: Sequence[Any], at: dict[int, Callable[[], None]]
) -> list[tuple[int, Any]]:
    """Feed everything, do what is to be done before certain batches, and read everything."""
    feeder, reader = job.feeder("events"), job.reader()
    errors: list[BaseException] = []

    def feed() -> None:
        try:
            for i, batch in enumerate(batches):
                at.get(i, lambda: None)()
                rows = batch.drop_columns(list(SN))
                feeder.offer(i, 0, rows)
                feeder.offer(i, 0, rows)  # a replay
            feeder.finish()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    found: list[tuple[int, Any]] = []
    offset, ended, end = 0, False, time.monotonic() + DEADLINE_S
    while not ended:
        assert not errors, errors
        assert time.monotonic() < end, f"stands at {offset}"
        offset, more, ended = reader.read(offset, timeout_s=1.0)
        found += more
        reader.commit(offset)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert not errors, errors
    return found


def failed(job: LocalSites) -> int:
    """How many sites have been removed."""
    return [event["kind"] for event in job.events()].count("site_failed")


def whole(client: Client) -> bool:
    """Whether every pair has both copies."""
    return bool(client.status()["whole"])


def same(found: Sequence[tuple[int, Any]], expected: Sequence[tuple[int, Any]]) -> None:
    assert [batch for batch, _ in found] == [batch for batch, _ in expected]
    assert all(a.equals(b) for (_, a), (_, b) in zip(found, expected, strict=True))


def test_or_5_sites_that_cannot_write_their_states_say_why_and_go_on(
    tmp_path: Path, on_path: None, batches: list[Any], expected: list[tuple[int, Any]]
) -> None:
    shape = site_flows.pairs().shape
    pairs = [Pair(stage, part) for stage, n in enumerate(shape.widths) for part in range(n)]
    full, kept = tmp_path / "full", tmp_path / "kept"
    full.write_text("no folder")
    with LocalSites(dataflow=FLOWS, sites=SITES, folder=tmp_path / "job") as job:
        client = job.reader()

        def keep() -> None:
            eventually(lambda: str(full) in client.keep(59, full), "a site has said why")
            eventually(
                lambda: not client.keep(59, kept) and size_of(kept, pairs) is not None, "kept"
            )

        same(run_through(job, batches, {60: keep}), expected)
        assert failed(job) == 0


@pytest.mark.parametrize("site", range(SITES))
def test_any_site_is_killed_under_load_and_a_new_incarnation_takes_standbys(
    site: int, tmp_path: Path, on_path: None, batches: list[Any], expected: list[tuple[int, Any]]
) -> None:
    with LocalSites(dataflow=FLOWS, sites=SITES, folder=tmp_path) as job:
        watcher = job.reader()

        def whole_again() -> bool:
            return failed(job) > 0 and whole(watcher) and len(watcher.status()["sites"]) == SITES

        def second() -> None:
            job.ready(job.start_site(site))
            eventually(whole_again, "the pairs are whole again")
            job.kill((site + 1) % SITES)

        found = run_through(job, batches, {40: lambda: job.kill(site), 80: second})
        same(found, expected)
        eventually(lambda: failed(job) >= 2 and whole(watcher), "recovered from both failures")
        assert not watcher.status()["losses"]
        kinds = [event["kind"] for event in job.events()]
        assert kinds.count("site_failed") == 2
        assert "recovered" in kinds


def test_a_second_failure_of_a_pair_is_reported_with_what_was_lost(
    tmp_path: Path, on_path: None, batches: list[Any]
) -> None:
    with LocalSites(dataflow=FLOWS, sites=2, folder=tmp_path) as job:

        def both() -> None:
            job.kill(0)
            job.kill(1)

        with pytest.raises((AssertionError, DataLost), match="lost both copies"):
            run_through(job, batches, {20: both})
        losses = [event for event in job.events() if event["kind"] == "data_loss"]
        assert losses
        assert "state of this partition" in losses[0]["lost"]
        with pytest.raises(DataLost, match="lost both copies"):
            job.reader().status()


@pytest.fixture
def elected(tmp_path: Path, on_path: None, zookeeper_hosts: str) -> Iterator[LocalSites]:
    """Two controllers, four sites, a real ZooKeeper."""
    with LocalSites(
        dataflow=FLOWS,
        sites=SITES,
        folder=tmp_path,
        zookeeper=zookeeper_hosts,
        controllers=2,
        app=f"sites-{tmp_path.name}",
        settings={"session_timeout_s": 12.0},
    ) as job:
        yield job


def leading(job: LocalSites) -> int:
    """The process id of the controller that leads."""
    reader = job.reader()
    reader.leader()
    address = reader.finder.leader()
    for process in job.controllers:
        if tuple(job.addresses[process.pid]) == address:
            return process.pid
    raise AssertionError(f"no controller at {address}")


@pytest.mark.zookeeper
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_leader_dies_or_is_paused_and_the_follower_goes_on(
    how: int, elected: LocalSites, batches: list[Any], expected: list[tuple[int, Any]]
) -> None:
    pid = leading(elected)
    found = run_through(elected, batches, {40: lambda: os.kill(pid, how)})
    same(found, expected)
    assert elected.reader().status()["epoch"] == 2
    if how == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)  # it finds that it leads no more, and follows
        assert elected.reader().status()["epoch"] == 2


@pytest.mark.zookeeper
def test_what_a_client_told_a_leader_that_dies_is_told_to_the_next(
    tmp_path: Path, on_path: None, zookeeper_hosts: str, batches: list[Any]
) -> None:
    with LocalSites(
        dataflow=FLOWS,
        sites=2,
        folder=tmp_path,
        zookeeper=zookeeper_hosts,
        controllers=2,
        app=f"told-{tmp_path.name}",
        settings={"session_timeout_s": 12.0},
        site_settings={"spill": tmp_path / "disk"},
    ) as job:
        feeder, reader, client = job.feeder("events"), job.reader(), job.reader()
        for i, batch in enumerate(batches[:40]):
            feeder.offer(i, 0, batch.drop_columns(list(SN)))
        feeder.flush()
        offset = 0
        while offset < 40:
            offset, _, _ = reader.read(offset, timeout_s=1.0)
        eventually(lambda: held(client) > 0, "results are held")
        pid = leading(job)
        os.kill(pid, signal.SIGSTOP)
        reader.commit(offset)
        limited: list[bool] = []
        limiting = threading.Thread(
            target=lambda: limited.append(client.limit_memory(0, 1 << 20)), daemon=True
        )
        limiting.start()
        os.kill(pid, signal.SIGKILL)
        limiting.join(DEADLINE_S)
        assert limited == [True]
        assert not client.limit_memory(99, None), "there is no such site"
        reader.read(offset, timeout_s=1.0)  # there is nothing: it looks for the leader
        eventually(lambda: held(client) == 0, "what is committed has been forgotten")
        eventually(lambda: memory_limit(client, 0) == 1 << 20, "the site knows its limit")


def held(client: Client) -> int:
    """Bytes that the copies of the collector hold, as far as is reported."""
    loads = client.status()["loads"].values()
    parts = [part for load in loads for part in load["parts"] if part["node"][0] == 2]
    return sum(part["state_bytes"] for part in parts)


def memory_limit(client: Client, site: int) -> int | None:
    """The limit of a site's memory, as far as it has reported one."""
    load = client.status()["loads"].get(str(site))
    limit: int | None = None if load is None else load["spill"]["memory_limit_bytes"]
    return limit


@pytest.mark.zookeeper
def test_a_site_that_is_paused_for_less_than_its_session_stays(
    tmp_path: Path,
    on_path: None,
    zookeeper_hosts: str,
    batches: list[Any],
    expected: list[tuple[int, Any]],
) -> None:
    with LocalSites(
        dataflow=FLOWS,
        sites=3,
        folder=tmp_path,
        zookeeper=zookeeper_hosts,
        app=f"paused-{tmp_path.name}",
        settings={"session_timeout_s": 36.0},
    ) as job:
        watcher = job.reader()

        def pause() -> None:
            """While one is paused, another one joins and dials it, for longer than it waits."""
            job.kill(1, signal.SIGSTOP)
            job.kill(0)
            job.ready(job.start_site(0))
            time.sleep(HANDSHAKE_TIMEOUT_S + 2.0)
            job.kill(1, signal.SIGCONT)

        found = run_through(job, batches, {40: pause})
        same(found, expected)
        eventually(lambda: whole(watcher), "the standbys have caught up, over the new link")
        assert failed(job) == 1
        assert len(watcher.status()["sites"]) == 3


@pytest.mark.zookeeper
def test_a_paused_site_is_removed_and_ends_itself_when_it_comes_back(
    elected: LocalSites, batches: list[Any], expected: list[tuple[int, Any]]
) -> None:
    found = run_through(elected, batches, {40: lambda: elected.kill(1, signal.SIGSTOP)})
    same(found, expected)
    elected.kill(1, signal.SIGCONT)
    assert elected.sites[1].wait(DEADLINE_S) == 3, "fenced"
    why = [e["why"] for e in elected.events() if e["kind"] == "site_failed"]
    assert why == ["its ZooKeeper session has ended"]


def test_the_end_of_the_input_is_safe_once_finish_returns(
    tmp_path: Path, on_path: None, batches: list[Any]
) -> None:
    with LocalSites(dataflow=FLOWS, sites=2, folder=tmp_path) as job:
        feeder = job.feeder("events")
        feeder.offer(0, 0, batches[0].drop_columns(list(SN)))
        feeder.finish()
        assert END_KEY in [record.key for record in Journal(tmp_path / "journal").read()]
        feeder.finish()  # again, as to a leader that knows it from the journal


def test_a_site_that_comes_to_the_only_survivor_gets_its_states(
    tmp_path: Path, on_path: None, batches: list[Any]
) -> None:
    """The survivor has a state for it before it has connected (CU-16)."""
    one_and_the_rest = {0: "a", 1: "b", 2: "b"}
    with LocalSites(dataflow=FLOWS, sites=3, folder=tmp_path, executors=one_and_the_rest) as job:
        feeder, reader = job.feeder("events"), job.reader()
        for i, batch in enumerate(batches[:20]):
            feeder.offer(i, 0, batch.drop_columns(list(SN)))
        feeder.flush()
        for site in (1, 2):
            job.kill(site)
        eventually(lambda: len(reader.status()["sites"]) == 1, "both are gone")
        assert not reader.status()["losses"]
        for site in (1, 2):
            job.ready(job.start_site(site))
        eventually(lambda: whole(reader), "all pairs are whole again")


def test_copies_that_share_an_executor_are_taken_apart_once_another_one_has_a_site(
    tmp_path: Path, on_path: None, batches: list[Any]
) -> None:
    executors = {0: "a", 1: "a", 2: "b"}
    with LocalSites(dataflow=FLOWS, sites=3, folder=tmp_path, executors=executors) as job:
        feeder, reader = job.feeder("events"), job.reader()
        for i, batch in enumerate(batches[:20]):
            feeder.offer(i, 0, batch.drop_columns(list(SN)))
        feeder.flush()
        job.kill(2)
        eventually(lambda: len(reader.status()["sites"]) == 2 and whole(reader), "both are in a")
        job.ready(job.start_site(2))

        def apart() -> bool:
            status = reader.status()
            of = {site["number"]: site["executor"] for site in status["sites"]}
            pairs: dict[tuple[int, int], set[str]] = {}
            for stage, part, _, _, site, _ in status["copies"]:
                pairs.setdefault((stage, part), set()).add(of[site])
            return status["whole"] and all(len(each) == 2 for each in pairs.values())

        eventually(apart, "every pair has a copy in either executor")
        for site in (0, 1):
            job.kill(site)
        eventually(lambda: len(reader.status()["sites"]) == 1, "that executor is gone")
        assert not reader.status()["losses"]
