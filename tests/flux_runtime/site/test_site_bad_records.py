"""Site processes that are given bad records while one is killed: none ends of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from test_site_processes import failed, run_through, same

from flux_lab.bad_records import chain, drawn_input
from flux_lab.local_sites import LocalSites
from flux_lab.reference import reference
from flux_runtime.operators.unprocessable import letters_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_bad_records_are_set_aside_once_though_a_site_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    batches = drawn_input(random.Random(5), "sql", 60)
    expected = reference(chain(), batches).output
    assert sum(len(letters_of(rows)) for _, rows in expected) > 10
    with LocalSites(dataflow="flux_lab.bad_records:chain", sites=3, folder=tmp_path) as job:
        found = run_through(job, batches, {30: lambda: job.kill(1)})
        same(found, expected)
        assert failed(job) == 1, os.fspath(tmp_path)
