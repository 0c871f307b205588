"""Queries that keep less than their records: copies agree, and the answers are those of records."""

from __future__ import annotations

from typing import Any

import pytest

from flux_lab.query_states import FORMS, QueryStates
from flux_lab.sweep import RunError, run
from flux_runtime.operators.event_time import WindowTime
from flux_runtime.operators.query import Query

pytestmark = pytest.mark.slow

SEEDS = (0, 3, 4, 13, 17, 21)
"""More with `python -m flux_lab.query_states 0 300`."""


def test_copies_agree_on_what_is_kept_and_put_out_what_the_records_say() -> None:
    plans = {seed: QueryStates.of_seed(seed) for seed in SEEDS}
    assert {plan.kind for plan in plans.values()} == set(FORMS)
    due = [plan.check() for plan in plans.values()]
    assert sum(one.late.total() for one in due) > 5
    assert sum(one.rows.total() for one in due) > 100
    runs = [run(seed, plan=plan) for seed, plan in plans.items()]
    assert sum(one.recoveries for one in runs) > 3


def test_a_copy_that_begins_with_another_watermark_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install = Query.install_state

    def forgetful(self: Query, state: dict[str, Any]) -> None:
        install(self, {**state, "watermarks": {}})

    monkeypatch.setattr(Query, "install_state", forgetful)
    with pytest.raises(RunError):
        _ = [run(seed, plan=QueryStates.of_seed(seed)) for seed in (3, 7, 15, 17)]


def test_a_window_that_takes_what_comes_at_its_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windowed = WindowTime.windowed

    def generous(self: WindowTime, rows: Any, watermark_us: int | None) -> Any:
        return windowed(self, rows, None if watermark_us is None else watermark_us - 1)

    monkeypatch.setattr(WindowTime, "windowed", generous)
    with pytest.raises(AssertionError):
        _ = [QueryStates.of_seed(seed).check() for seed in (0, 25, 34)]
