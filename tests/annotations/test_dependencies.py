"""Closure, compatibility of gate and key (specification 2.5), minimal keys."""

from __future__ import annotations

import time
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.dependencies import closure, compatible, minimal_keys
from annotations.file.compact import parse_dependency
from annotations.vocabulary import STAR, FunctionalDependency, Gate, Key

SETS = st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3)
FDS = st.lists(st.builds(FunctionalDependency, SETS, SETS, st.booleans()), max_size=6).map(tuple)
RULES = st.sampled_from(["blazes", "icde14"])


def naive_closure(attributes: Key, fds: tuple[FunctionalDependency, ...]) -> Key:
    known, before = set(attributes), -1
    while len(known) != before:
        before = len(known)
        for fd in fds:
            if fd.determinant <= known:
                known |= fd.dependent
            if fd.injective and fd.dependent <= known:
                known |= fd.determinant
    return frozenset(known)


def naive_compatible(
    gate: Key, key: Key, fds: tuple[FunctionalDependency, ...], rules: str
) -> bool:
    """The definitions, word for word."""
    if rules == "blazes":
        return key <= naive_closure(gate, fds)
    parts = chain.from_iterable(combinations(gate, size) for size in range(1, len(gate) + 1))
    return any(
        frozenset(part) <= naive_closure(key, fds) and key <= naive_closure(frozenset(part), fds)
        for part in parts
    )


@given(SETS, FDS)
def test_closure_is_that_of_the_naive_algorithm(
    attributes: Key, fds: tuple[FunctionalDependency, ...]
) -> None:
    assert closure(attributes, fds) == naive_closure(attributes, fds)


@given(SETS, SETS, FDS)
def test_closure_obeys_armstrong(a: Key, b: Key, fds: tuple[FunctionalDependency, ...]) -> None:
    assert a <= closure(a, fds)
    assert closure(closure(a, fds), fds) == closure(a, fds)
    assert closure(a, fds) <= closure(a | b, fds)


@given(SETS, SETS, FDS, RULES)
def test_compatible_is_the_definition(
    gate: Key, key: Key, fds: tuple[FunctionalDependency, ...], rules: str
) -> None:
    assert compatible(Gate(gate), key, fds, rules=rules) == naive_compatible(gate, key, fds, rules)


@given(SETS, SETS, FDS)
def test_blazes_accepts_whatever_the_paper_accepts(
    gate: Key, key: Key, fds: tuple[FunctionalDependency, ...]
) -> None:
    if compatible(Gate(gate), key, fds, rules="icde14"):
        assert compatible(Gate(gate), key, fds, rules="blazes")


@pytest.mark.parametrize(
    ("gate", "key", "fds", "icde14", "blazes"),
    [
        ("symbol", "company", ["company <-> symbol"], True, True),
        ("city", "company", ["company -> city"], False, False),
        ("word", "word batch", [], False, False),
        ("word batch", "batch", [], True, True),
        ("id campaign", "campaign", [], True, True),
        ("id", "campaign", [], False, False),
        ("id", "campaign", ["id -> campaign"], False, True),
        ("hour", "day", ["hour -> day"], False, True),
        ("id window", "window", [], True, True),
    ],
)
def test_the_examples_of_the_specification(
    gate: str, key: str, fds: list[str], icde14: bool, blazes: bool
) -> None:
    parsed = [parse_dependency(fd) for fd in fds]
    for rules, expected in (("icde14", icde14), ("blazes", blazes)):
        fits = compatible(
            Gate(frozenset(gate.split())), frozenset(key.split()), parsed, rules=rules
        )
        assert fits == expected, rules


@pytest.mark.parametrize("rules", ["blazes", "icde14"])
def test_no_key_fits_an_unknown_gate_and_no_gate_fits_an_empty_key(rules: str) -> None:
    assert not compatible(STAR, frozenset({"id"}), (), rules=rules)
    assert not compatible(Gate(frozenset({"id"})), frozenset(), (), rules=rules)
    assert minimal_keys(STAR, {"id"}, (), rules=rules) == []


def test_another_rule_set_is_refused() -> None:
    with pytest.raises(ValueError, match="'vldb' is not one of blazes, icde14"):
        compatible(Gate(frozenset({"id"})), frozenset({"id"}), (), rules="vldb")


@given(SETS, st.frozensets(st.sampled_from("abcdef")), FDS, RULES)
def test_minimal_keys_are_all_of_them(
    gate: Key, candidates: Key, fds: tuple[FunctionalDependency, ...], rules: str
) -> None:
    found: list[Key] = []
    for size in range(1, len(candidates) + 1):
        for names in combinations(sorted(candidates), size):
            key = frozenset(names)
            minimal = not any(smaller <= key for smaller in found)
            if minimal and naive_compatible(gate, key, fds, rules):
                found.append(key)
    assert minimal_keys(Gate(gate), candidates, fds, rules=rules) == found


def test_closure_is_linear_in_a_chain_of_dependencies() -> None:
    """Backwards, so that an algorithm that goes over the list again and again is quadratic."""
    fds = tuple(
        FunctionalDependency(frozenset({f"a{i}"}), frozenset({f"a{i + 1}"}))
        for i in reversed(range(20_000))
    )
    started = time.process_time()
    assert len(closure({"a0"}, fds)) == 20_001
    assert time.process_time() - started < 2


def test_minimal_keys_end_where_there_are_too_many() -> None:
    """Any five of 60 attributes would do, and no fewer: more sets than can be looked at."""
    names = [f"a{i}" for i in range(60)]
    fds = [FunctionalDependency(frozenset(names), frozenset({"gate"}), injective=True)]
    started = time.process_time()
    assert minimal_keys(Gate(frozenset({"gate"})), names, fds, rules="icde14") == []
    assert time.process_time() - started < 5
    blazes = minimal_keys(Gate(frozenset({"gate"})), names, fds, rules="blazes")
    assert blazes == [frozenset({name}) for name in sorted(names)]
