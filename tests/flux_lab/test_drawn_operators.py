"""Drawn operators under deaths and moves: bad records, SQL with states, StatefulProcessors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from flux_lab.bad_records import BadRecords
from flux_lab.processors import Programs
from flux_lab.query_states import FORMS, QueryStates
from flux_lab.sweep import RunError, run
from flux_runtime.operators import unprocessable
from flux_runtime.operators.event_time import WindowTime
from flux_runtime.operators.processor import Processor
from flux_runtime.operators.processor_state import KeyedState
from flux_runtime.operators.query import Query

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


QUERY_SEEDS = (0, 3, 4, 13, 17, 21)
"""More with `python -m flux_lab.query_states 0 300`."""


def test_copies_agree_on_what_is_kept_and_put_out_what_the_records_say() -> None:
    plans = {seed: QueryStates.of_seed(seed) for seed in QUERY_SEEDS}
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


PROGRAM_SEEDS = range(10)


def test_random_programs_do_what_they_do_in_sparks_tester() -> None:
    kinds, refused = set(), 0
    for seed in PROGRAM_SEEDS:
        plan = Programs.of_seed(seed)
        refused += plan.check().refused.total()
        kinds.add(plan.kind)
        run(seed, plan=plan)
    assert len(kinds) == 5
    assert refused > 60


def _without_undoing(_: KeyedState, __: Any) -> None:
    """What a record that raises has changed stays."""


def _in_place(self: KeyedState, name: str, copied: Any, empty: Callable[[], Any]) -> Any:
    """What was logged is changed, too."""
    held = self.read(name)
    variable = empty() if held is None else held
    self.write(name, variable)
    return variable


due = KeyedState.due


def _later(self: KeyedState, until: int) -> Any:
    """A timer fires once the time is past it."""
    return due(self, until - 1)


def _forgetful(self: Processor, state: dict[str, Any]) -> None:
    """The watermark does not move with the state."""
    self.state.install_state(state)


def _by_the_clock(self: Processor, _: Any) -> int:
    """The watermark is the site's own time."""
    self.watermark = time.perf_counter_ns() // 100
    return self.watermark


@pytest.mark.parametrize(
    ("of", "name", "mistake", "first"),
    [
        (KeyedState, "rollback", _without_undoing, 0),
        (KeyedState, "to_change", _in_place, 0),
        (KeyedState, "due", _later, 10),
        (Processor, "install_state", _forgetful, 3),
        (Processor, "advance", _by_the_clock, 3),
    ],
)
def test_a_planted_mistake_in_a_processor_is_found(
    of: type, name: str, mistake: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, mistake)
    with pytest.raises((AssertionError, RunError)):
        _ = [_tried(seed) for seed in range(first, first + 20)]


def _tried(seed: int) -> None:
    plan = Programs.of_seed(seed)
    plan.check()
    run(seed, plan=plan)
