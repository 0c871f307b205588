"""A client that stops a job stops all of it: sites, the leader, followers, and who comes late."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flux_lab.example import events
from flux_lab.local_sites import LocalSites
from flux_runtime.operators.rows import SN
from flux_runtime.site.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper, pytest.mark.timeout(900)]

DEADLINE_S = 120.0


def test_sites_leader_and_followers_end_and_nobody_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zookeeper_hosts: str
) -> None:
    here = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(here))
    with LocalSites(
        dataflow="site_flows:pairs",
        sites=3,
        folder=tmp_path,
        zookeeper=zookeeper_hosts,
        controllers=3,
        app=f"stop-{tmp_path.name}",
    ) as job:
        feeder = job.feeder("events")
        feeder.offer(0, 0, events(1, 8)[0].drop_columns(list(SN)))
        feeder.flush()
        with Client(job.site_config) as client:
            client.stop()
        ended = [p.wait(DEADLINE_S) for p in (*job.controllers, *job.sites.values())]
        assert ended == [0] * 6
        leaders = [e["epoch"] for e in job.events() if e["kind"] == "leading"]
        assert leaders == [1]
        late = job.start_controller()
        assert late.wait(DEADLINE_S) == 0, "the job has ended"
        assert [e["kind"] for e in job.events()].count("leading") == 1
