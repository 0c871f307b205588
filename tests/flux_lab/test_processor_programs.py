"""StatefulProcessors on sites do what they do in Spark's tester, also under deaths and moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from flux_lab.processors import Programs
from flux_lab.sweep import RunError, run
from flux_runtime.operators.processor import Processor
from flux_runtime.operators.processor_state import KeyedState

pytestmark = pytest.mark.slow

SEEDS = range(10)


def test_random_programs_do_what_they_do_in_sparks_tester() -> None:
    kinds, refused = set(), 0
    for seed in SEEDS:
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
def test_a_planted_mistake_is_found(
    of: type, name: str, mistake: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of, name, mistake)
    with pytest.raises((AssertionError, RunError)):
        _ = [_tried(seed) for seed in range(first, first + 20)]


def _tried(seed: int) -> None:
    plan = Programs.of_seed(seed)
    plan.check()
    run(seed, plan=plan)
