"""One claim as an experiment: two ways of running the same records, with one outcome.

A way is a sequence of micro-batches. Records of the interfaces in `kept` stay visible in later
batches, others only in their own; what a component emits over time is the union of its output
after each batch, as a set (Blazes section III: confluence is over sets). This is how the runtime
runs a component uncoordinated: confluent ones and writers on all that has accumulated, readers of
state once with the state as it is then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from blazes.verify.operators import Operator, Schema
from blazes.verify.records import Evaluated, Failure, Inputs, Item, Output, Row, expanded

Batches: TypeAlias = tuple[tuple[int, ...], ...]
"""Micro-batches of places in a list of records."""


@dataclass(frozen=True, slots=True)
class Case:
    """Records, and how the second way splits or orders them."""

    items: tuple[Item, ...]
    split: Batches

    @property
    def records(self) -> int:
        """How many records, repeated ones counted each time."""
        return sum(item.times for item in self.items)

    def without(self, place: int) -> Case:
        """The case without a record."""
        items = self.items[:place] + self.items[place + 1 :]
        renumbered = (tuple(n - (n > place) for n in batch if n != place) for batch in self.split)
        return Case(items, tuple(batch for batch in renumbered if batch))

    def with_item(self, place: int, item: Item) -> Case:
        """The case with another record in a place."""
        return Case((*self.items[:place], item, *self.items[place + 1 :]), self.split)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running the records of a case."""

    batches: Batches
    kept: frozenset[str]
    """Interfaces whose records stay."""
    answers: frozenset[str] = frozenset()
    """Where not empty: a batch without a record of these interfaces is not computed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows emitted in one way, as a set."""

    columns: tuple[str, ...]
    rows: frozenset[Row]


Result: TypeAlias = Outcome | Failure


class Engine(Protocol):
    """Evaluates components."""

    @property
    def name(self) -> str:
        """For people."""

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        """The output for each of the inputs."""

    def schema(self, operator: Operator) -> Schema:
        """The columns of the output with their Spark types; Unknown where they are not known."""


def steps(operator: Operator, items: Sequence[Item], way: Way) -> list[Inputs]:
    """The inputs that the component is evaluated on, one for each batch that is computed."""
    evaluations: list[Inputs] = []
    before: list[Item] = []
    for batch in way.batches:
        came = [items[place] for place in batch]
        visible = [item for item in before if item.interface in way.kept] + came
        before += came
        if not way.answers or any(item.interface in way.answers for item in came):
            evaluations.append(expanded(visible, operator.interfaces))
    return evaluations


def run(
    engine: Engine, operator: Operator, tries: Iterable[tuple[Sequence[Item], Way]]
) -> list[Result]:
    """The outcome of each way on its records, all evaluated together."""
    plans = [steps(operator, items, way) for items, way in tries]
    evaluated = iter(engine.evaluate(operator, [inputs for plan in plans for inputs in plan]))
    return [united([next(evaluated) for _ in plan]) for plan in plans]


def united(parts: Sequence[Evaluated]) -> Result:
    """Everything emitted, as a set; the first failure where there is one."""
    rows: set[Row] = set()
    columns: tuple[str, ...] = ()
    for part in parts:
        if isinstance(part, Failure):
            return part
        assert isinstance(part, Output)
        columns = part.columns
        rows.update(part.rows)
    return Outcome(columns, frozenset(rows))
