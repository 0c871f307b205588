"""An operator of one's own is tried, and what Flux cannot use is refused with the reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flux_lab.testing import OperatorError, check_operator
from flux_runtime.operators import CountWindow
from flux_runtime.operators.rows import SN

ROOT = Path(__file__).parents[2]
DRAW = np.random.default_rng(1)
BATCHES = [
    pa.RecordBatch.from_pydict({"key": DRAW.integers(0, 6, 12), "value": DRAW.integers(0, 9, 12)})
    for _ in range(10)
]
CALLS = itertools.count()


class Window:
    """A window of three rows; the base of those with a mistake."""

    def __init__(self) -> None:
        self.window = CountWindow(["key"], "value", ["sum"], history=3, slide=2)
        self.seen: list[int] = []

    def process(self, batch: Any) -> Any:
        self.seen += batch.column("key").to_pylist()
        return self.window.process(batch)

    def with_sum(self, batch: Any, value: Callable[[int, float], float]) -> Any:
        rows = Window.process(self, batch)
        columns = (rows.column(name).to_pylist() for name in ("key", "sum_value"))
        pairs = zip(*columns, strict=True)
        at = rows.schema.get_field_index("sum_value")
        made = pa.array([value(key, total) for key, total in pairs], pa.float64())
        return rows.set_column(at, "sum_value", made)

    def get_state(self) -> Any:
        return self.window.get_state(), list(self.seen)

    def install_state(self, state: Any) -> None:
        window, self.seen = state
        self.window.install_state(window)

    def state_size(self) -> int:
        return self.window.state_size()


class AnotherEachTime(Window):
    def process(self, batch: Any) -> Any:
        return self.with_sum(batch, lambda _, total: total + next(CALLS))


class AnotherSignOfZero(Window):
    def process(self, batch: Any) -> Any:
        sign = (-1) ** next(CALLS)
        return self.with_sum(batch, lambda *_: sign * 0.0)


class NotANumber(Window):
    def process(self, batch: Any) -> Any:
        return self.with_sum(batch, lambda *_: float("nan"))


class Forgets(Window):
    def get_state(self) -> Any:
        return Window().get_state()


class CountsAcrossKeys(Window):
    def process(self, batch: Any) -> Any:
        return self.with_sum(batch, lambda *_: float(len(self.seen)))


class AddsToItsState(Window):
    def process(self, batch: Any) -> Any:
        return self.with_sum(batch, lambda key, _: float(self.seen.count(key)))

    def install_state(self, state: Any) -> None:
        self.window.install_state(state[0])
        self.seen += state[1]


class DropsNumbers(Window):
    def process(self, batch: Any) -> Any:
        return super().process(batch).drop_columns(list(SN))


class Backwards(Window):
    def process(self, batch: Any) -> Any:
        rows = super().process(batch)
        return rows.take(pa.array(np.arange(rows.num_rows)[::-1].copy()))


class CannotMove(Window):
    def get_state(self) -> Any:
        return lambda: None


def test_a_right_operator_passes_schedules_with_deaths() -> None:
    totals = check_operator(Window, BATCHES, gate=["key"], schedules=20)
    assert totals.runs == 20
    assert totals.struck["kill"] > 10
    assert totals.recoveries > 10


def test_rows_that_are_no_numbers_are_the_same_rows() -> None:
    assert check_operator(NotANumber, BATCHES, gate=["key"], schedules=5).runs == 5


def test_the_example_of_the_guide_works() -> None:
    guide = (ROOT / "docs" / "how-to" / "test-an-operator.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_totals"]()


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        (AnotherEachTime, "two runs on the same input"),
        (AnotherSignOfZero, "two runs on the same input"),
        (Forgets, "all that is remembered"),
        (CountsAcrossKeys, "depends on rows of another"),
        (AddsToItsState, "to replace it"),
        (DropsNumbers, "the last columns"),
        (Backwards, "have to grow"),
        (CannotMove, r"the state cannot move: .*function is not data"),
    ],
)
def test_a_mistake_is_named(operator: type[Window], why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        check_operator(operator, BATCHES, gate=["key"], schedules=1)


def test_what_only_a_schedule_shows_says_how_to_try_it_again() -> None:
    class Moody(Window):
        """Wrong in a copy that began with another's state and got no first batch."""

        def install_state(self, state: Any) -> None:
            super().install_state(state)
            self.moved = bool(self.seen)

        def process(self, batch: Any) -> Any:
            late = getattr(self, "moved", False) and next(tries) > len(BATCHES) * 2
            return self.with_sum(batch, lambda _, total: total + late)

    tries = itertools.count()
    with pytest.raises(OperatorError, match=r"try it again with schedules=1, seed=\d+"):
        check_operator(Moody, BATCHES, gate=["key"], schedules=40)


def test_a_gate_that_is_not_there_and_no_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="no column campaign"):
        check_operator(Window, BATCHES, gate=["campaign"])
    with pytest.raises(ValueError, match="no batches"):
        check_operator(Window, [])
