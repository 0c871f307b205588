"""The rate of a stage is a mean of some seconds, and not 0 between two batches."""

from __future__ import annotations

import pytest

from flux_runtime.site import stage_log
from flux_runtime.site.stage_log import RATE_S, StageLog


def test_a_rate_is_the_mean_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stage_log.time, "monotonic", lambda: now)
    log = StageLog(None, "stage", lambda: pytest.fail("nothing is written"))
    rates, rows = [], 0
    for half in range(1, 81):
        rows += 2000 if half % 4 == 0 and half <= 60 else 0  # a batch every two seconds, for 30 s
        rates.append(log._rows_per_s(now + half / 2, rows))
    assert min(rates[4:60]) > 500
    assert 900 <= rates[55] <= 1100
    assert rates[-1] == 0.0
    assert len(log.rows) <= 2 * RATE_S + 2
