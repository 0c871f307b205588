"""Site processes with a StatefulProcessor, timers and records that raise, while one is killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_site_processes import failed, run_through, same

from flux_lab.local_sites import LocalSites
from flux_lab.processors import chain, drawn_input
from flux_lab.reference import reference
from flux_runtime.operators.unprocessable import letters_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

IN_PARTS = """
from flux_lab.processors import chain
from flux_runtime.site import resume_host

resume_host.BASE_MIN_BYTES = 0
"""
"""Also the state of these few keys travels in parts."""


def test_state_and_timers_outlive_the_site_that_held_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.py").write_text(IN_PARTS)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}:{tmp_path}")
    batches = drawn_input(random.Random(8), "FramesByEventTime", 80)
    expected = reference(chain(), batches).output
    letters = [letter["why"] for _, rows in expected for letter in letters_of(rows)]
    for part in ("the record is late", "the timer at", "are withdrawn"):
        assert any(part in why for why in letters), part
    with LocalSites(dataflow="small:chain", sites=3, folder=tmp_path) as job:
        found = run_through(job, batches, {30: lambda: job.kill(1)})
        same(found, expected)
        assert failed(job) == 1
