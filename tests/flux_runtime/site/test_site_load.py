"""Real load and real disks: partitions leave a slowed site, or take turns; the output is exact."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import site_flows

from flux_lab.example import events
from flux_lab.local_sites import LocalSites
from flux_lab.reference import reference
from flux_runtime.operators.rows import SN
from flux_runtime.site.client import Client
from flux_runtime.site.config import Balance, SpillTo

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

FLOW, SITES, SLOW = "site_flows:many", 4, 0
DEADLINE_S = 240.0
AHEAD_MAX = 400
"""Batches fed and not read: whatever the machine is busy with, the input outlasts the test."""


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(here))


class Run:
    """Feeds batches until told to stop, and keeps the results."""

    def __init__(self, job: LocalSites, batches: Sequence[Any], *, pace_s: float = 0.0) -> None:
        self.job = job
        self.batches = batches
        self.pace_s = pace_s
        self.fed = 0
        self.read = 0
        self.found: list[tuple[int, Any]] = []
        self.errors: list[BaseException] = []
        self.enough = threading.Event()
        self.threads = [
            threading.Thread(target=self._guard, args=(work,), name=name, daemon=True)
            for name, work in (("feeding", self._feed), ("reading", self._read))
        ]
        for thread in self.threads:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def _feed(self) -> None:
        feeder = self.job.feeder("events")
        for n, batch in enumerate(self.batches):
            while n - self.read > AHEAD_MAX and not self.enough.is_set():
                time.sleep(0.01)
            if self.enough.is_set():
                break
            feeder.offer(n, 0, batch.drop_columns(list(SN)))
            self.fed = n + 1
            time.sleep(self.pace_s)
        feeder.finish()

    def _read(self) -> None:
        reader = self.job.reader()
        ended = False
        while not ended:
            self.read, more, ended = reader.read(self.read, timeout_s=1.0)
            self.found += more
            reader.commit(self.read)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert not self.errors, self.errors
            assert time.monotonic() < end, what
            assert self.fed < len(self.batches), f"the input has ended before {what}"
            time.sleep(0.1)

    def _standstill(self) -> str:
        alive = [thread.name for thread in self.threads if thread.is_alive()]
        status = Client(self.job.site_config).status()
        return f"{alive}: {self.read} of {self.fed} batches: {json.dumps(status)}"

    def finish(self) -> None:
        """End the input, and compare all results with those of a sequential run."""
        self.enough.set()
        end = time.monotonic() + DEADLINE_S
        while any(thread.is_alive() for thread in self.threads):
            assert not self.errors, self.errors  # whoever is left may wait for the one that failed
            assert time.monotonic() < end, self._standstill()
            time.sleep(0.1)
        assert not self.errors, self.errors
        expected = reference(site_flows.many(), self.batches[: self.fed]).output
        assert [batch for batch, _ in self.found] == [batch for batch, _ in expected]
        assert all(a.equals(b) for (_, a), (_, b) in zip(self.found, expected, strict=True))


@contextmanager
def slowed(pid: int, *, stopped_s: float, running_s: float) -> Iterator[None]:
    """A process gets only part of the time."""
    over = threading.Event()

    def cycle() -> None:
        while not over.wait(running_s):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(stopped_s)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=cycle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def held(client: Client, site: int) -> int:
    """Copies on the site that was started with this number."""
    status = client.status()
    numbers = [s["number"] for s in status["sites"] if s["id"].startswith(f"{site}.")]
    return sum(at in numbers for *_, at, _ in status["copies"])


def test_lb_partitions_leave_a_site_that_gets_little_processor_time(tmp_path: Path) -> None:
    batches = events(20_000, 64, keys=400, seed=5)
    balance = Balance(policy="load", delta_min_s=0.5, moves_max=3, quiet=0.05)
    settings = {"balance": balance}
    with LocalSites(
        dataflow=FLOW, sites=SITES, folder=tmp_path, controller_settings=settings
    ) as job:
        client = Client(job.site_config)
        before = held(client, SLOW)
        run = Run(job, batches)
        with slowed(job.sites[SLOW].pid, stopped_s=0.08, running_s=0.015):
            run.until(lambda: held(client, SLOW) <= before - 3, "three copies have left the site")
        run.finish()
        status = client.status()
        assert status["balance"]["moves"] >= 3
        moves = [event for event in job.events() if event["kind"] == "move"]
        assert {event["by"] for event in moves} == {"balancer"}
        load = status["loads"][next(iter(status["loads"]))]
        page = (Path(__file__).parents[3] / "docs/reference/flux-statistics.md").read_text("utf-8")
        assert all(f"`{key}`" in page for key in (*load, *load["parts"][0]) if key != "c")
        assert len(load["parts"]) > 0
        assert 0.0 <= load["utilisation"] <= 1.0
        assert sum(status["latency"]["counts"]) > 0
        client.close()


def test_sp_2_a_site_that_loses_memory_spills_and_the_output_is_the_same(tmp_path: Path) -> None:
    batches = events(20_000, 40, keys=2000, seed=6)
    disk = tmp_path / "disk"
    with LocalSites(
        dataflow=FLOW,
        sites=SITES,
        folder=tmp_path,
        site_settings={"spill": SpillTo(folder=disk, gap_s=0.02)},
    ) as job:
        client = Client(job.site_config)
        run = Run(job, batches, pace_s=0.005)
        run.until(lambda: len(run.found) > 100, "results come")
        for site in client.status()["sites"]:
            client.limit_memory(site["number"], 30_000)

        def spill(name: str) -> int:
            return sum(load["spill"][name] for load in client.status()["loads"].values())

        def recovered() -> bool:
            status = client.status()
            return status["failures"] > 0 and bool(status["whole"])

        run.until(lambda: spill("evictions") > 4, "states are written out")
        run.until(lambda: spill("activations") > 4, "they take turns")
        assert list(disk.glob("*/*.run"))
        run.until(lambda: len(run.found) > 250, "results still come")
        job.kill(1)  # its files are swept by the next incarnation
        job.ready(job.start_site(1))
        run.until(recovered, "the pairs are whole again")
        for site in client.status()["sites"]:
            client.limit_memory(site["number"], None)
        run.finish()
        client.stop()
        for process in job.sites.values():
            process.wait(DEADLINE_S)
        assert list(disk.iterdir()) == []
        client.close()
