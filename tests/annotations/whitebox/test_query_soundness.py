"""What is derived of random queries is never refuted, and mistakes of the derivation are."""

from __future__ import annotations

from typing import Any, Final

import pytest

from annotations.whitebox import (
    datatypes,
    derive,
    grouping,
    joining,
    reducing,
    repeats,
    splitting,
    sql_select,
)
from annotations.whitebox.functions import Direction
from benchmarks.query_soundness import report, sweep

pytestmark = pytest.mark.slow

QUERIES: Final = 40


def test_nothing_that_is_derived_of_random_queries_is_refuted() -> None:
    found = sweep(range(QUERIES), seed=7)
    assert not found.refuted, "\n\n".join(found.refuted)
    assert found.queries == QUERIES
    assert found.claims.keys() >= {"gate", "set", "confluent", "splits", "lineage", "repeats"}
    assert any("refuted" in line for line in report(found))


def test_nothing_that_is_derived_of_queries_over_more_types_is_refuted() -> None:
    found = sweep(range(QUERIES // 2), seed=7, price=False, typed=True)
    assert not found.refuted, "\n\n".join(found.refuted)
    assert found.claims.keys() >= {"set", "confluent", "splits", "lineage", "repeats"}


def test_a_planted_mistake_about_collations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datatypes, "COLLATED", datatypes.STRING)
    found = sweep(range(QUERIES), seed=7, refuted_max=1, shrink_s=0.5, price=False, typed=True)
    assert found.refuted


def test_nothing_that_is_derived_of_many_random_queries_is_refuted() -> None:
    found = sweep(range(200), seed=8, price=False)
    assert not found.refuted, "\n\n".join(found.refuted)


MISTAKES: Final[dict[str, tuple[Any, str, Any]]] = {
    "a missing partner never comes": (joining, "_absence", lambda node, facts, *_: facts),
    "a group only grows": (grouping, "direction_of", lambda *_: Direction.UP),
    "no aggregate depends on the order": (grouping, "of_the_set", lambda *_: True),
    "partitions of a gate meet nowhere": (derive, "_apart", lambda plan, path, fds: path),
    "no aggregate counts a record twice": (repeats, "_counts_once", lambda *_: True),
    "equal columns are of one partition": (
        splitting._Splitting,
        "_same_partition",
        lambda *_: True,
    ),
    "a dependency holds where its attributes are not": (
        splitting._Splitting,
        "_promised",
        lambda self, streams: (dict(enumerate(self._keys[min(streams)])), self._fds),
    ),
    "a row has one partner at most": (reducing, "_one_each", lambda *_: True),
    "a row has one partner": (reducing, "single", lambda *_: True),
    "no aggregate changes with copies of a row": (reducing, "_counts", lambda *_: False),
    "every condition holds": (reducing._Reduction, "_holds", lambda *_: True),
    "a record that looks for another's values finds itself": (
        splitting._Splitting,
        "_of_itself",
        lambda *_: True,
    ),
    "what an outer join leaves out is there": (sql_select, "padded", lambda side: (side, {})),
    "a condition that may not hold never does": (reducing, "never", lambda several: any(several)),
}
"""Rules of the derivation that are switched off."""
FIRST: Final = {
    "a group only grows": 660,
    "partitions of a gate meet nowhere": 220,
    "a dependency holds where its attributes are not": 310,
}
"""The query at which to begin, where those that show a mistake are rare."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    first = FIRST.get(mistake, 0)
    found = sweep(range(first, first + 6000), seed=7, refuted_max=1, shrink_s=1, price=False)
    assert found.refuted
