"""Records that cannot be processed are set aside alike by both copies, whatever dies meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flux_lab.bad_records import BadRecords
from flux_lab.sweep import RunError, run
from flux_runtime.operators import unprocessable

pytestmark = pytest.mark.slow

SEEDS = range(6)
"""More with `python -m flux_lab.bad_records 0 300`."""


def test_exactly_the_bad_records_are_set_aside_and_copies_agree() -> None:
    plans = {seed: BadRecords.of_seed(seed) for seed in SEEDS}
    assert sum(plan.check() for plan in plans.values()) > 20
    assert {plan.kind for plan in plans.values()} == {"sql", "partial", "python"}
    runs = [run(seed, plan=plan) for seed, plan in plans.items()]
    assert sum(run.recoveries for run in runs) > 5


def test_an_operator_whose_error_leaves_a_trace_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprocessable.Replayed, "_restore", lambda _: None)
    plans = [plan for plan in map(BadRecords.of_seed, SEEDS) if plan.kind == "python"]
    with pytest.raises((AssertionError, OverflowError)):
        _ = [plan.check() for plan in plans]


def test_a_copy_that_sets_aside_another_record_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made, aside = itertools.count(), unprocessable.SettingAside

    class Moody(aside):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.odd = next(made) % 2

        def _divide(self, records: Any, *arguments: Any) -> None:
            super()._divide(records, *arguments)
            *_, admitted, refused = arguments
            if self.odd and admitted:
                refused.append((admitted.pop(), ValueError("moody")))

    monkeypatch.setattr("flux_runtime.operators.components.SettingAside", Moody)
    with pytest.raises(RunError):
        _ = [run(seed, plan=BadRecords.of_seed(seed)) for seed in SEEDS]
