"""Functional dependencies: what attributes determine, and which keys fit a gate.

Specification 2.5; Blazes section V-A1 (`compatible`, `injectivefd`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from annotations.dataflow import Component, Dataflow, Endpoint, Path
from annotations.vocabulary import FunctionalDependency, Gate, Key

RULES: Final = ("blazes", "icde14")
TESTS_MAX: Final = 5_000
"""Sets of several attributes that `minimal_keys` looks at, smallest first. It is complete wherever
up to 12 attributes are left to combine."""


class _Arrows(NamedTuple):
    """Dependencies in one direction each, ready for `closure`."""

    open: list[int]
    """Arrow -> how many attributes its determinant has."""
    gives: list[Key]
    """Arrow -> the attributes it determines."""
    starts: dict[str, list[int]]
    """Attribute -> the arrows whose determinant has it."""


@lru_cache(maxsize=64)
def _arrows(fds: tuple[FunctionalDependency, ...]) -> _Arrows:
    arrows = _Arrows([], [], {})
    for determinant, dependent in _directions(fds):
        for attribute in determinant:
            arrows.starts.setdefault(attribute, []).append(len(arrows.gives))
        arrows.open.append(len(determinant))
        arrows.gives.append(dependent)
    return arrows


def _directions(fds: Iterable[FunctionalDependency]) -> Iterator[tuple[Key, Key]]:
    """(determinant, dependent) of each; of an injective one also the other way around."""
    for fd in fds:
        yield fd.determinant, fd.dependent
        if fd.injective:
            yield fd.dependent, fd.determinant


def closure(attributes: Iterable[str], fds: Iterable[FunctionalDependency]) -> Key:
    """Everything that the attributes determine, by Armstrong's axioms; themselves included.

    In time linear in the dependencies: each counts the attributes of its determinant that are not
    known yet (Beeri and Bernstein 1979).

    >>> from annotations.file.compact import parse_dependency
    >>> sorted(closure({"id"}, [parse_dependency("id -> ad"), parse_dependency("ad -> campaign")]))
    ['ad', 'campaign', 'id']
    """
    fds = tuple(fds)
    if not fds:
        return frozenset(attributes)
    arrows = _arrows(fds)
    missing = list(arrows.open)
    todo = list(dict.fromkeys(attributes))
    known = set(todo)
    while todo:
        for arrow in arrows.starts.get(todo.pop(), ()):
            missing[arrow] -= 1
            if missing[arrow] == 0:
                new = arrows.gives[arrow] - known
                known |= new
                todo.extend(new)
    return frozenset(known)


def within(
    attributes: Collection[str], fds: Iterable[FunctionalDependency]
) -> Iterator[FunctionalDependency]:
    """The dependencies of records that have these attributes and no others.

    >>> from annotations.file.compact import parse_dependency
    >>> list(map(str, within({"id", "day"}, [parse_dependency("id -> ad, day")])))
    ['id -> day']
    >>> list(within({"id", "day"}, map(parse_dependency, ["id -> ad", "ad -> day"])))
    []
    """
    there = frozenset(attributes)
    for determinant, dependent in _directions(fds):
        known = dependent & there
        if known and determinant <= there:
            yield FunctionalDependency(determinant, known)


def within_schema(
    schema: Collection[str] | None, fds: tuple[FunctionalDependency, ...]
) -> tuple[FunctionalDependency, ...]:
    """The dependencies of a stream's records; all of them where its schema is not declared."""
    return fds if schema is None else tuple(within(schema, fds))


class PathDependencies:
    """The dependencies that hold over all records that meet on a path, whatever stream they are of.

    A dependency is promised over the streams that have all of its attributes. So it says something
    of records that meet only where all of their streams have them; a stream whose schema is not
    declared is taken to have every attribute.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._fds = dataflow.fds
        self._attributes: dict[Endpoint, Key] = {}
        """Input interface -> the attributes that all streams into it have."""
        self._within: dict[Key, tuple[FunctionalDependency, ...]] = {}
        for stream in dataflow.streams.values() if self._fds else ():
            if stream.consumer is not None and stream.schema is not None:
                names = frozenset(stream.schema)
                known = self._attributes.get(stream.consumer, names)
                self._attributes[stream.consumer] = known & names

    def of(self, component: Component, path: Path) -> tuple[FunctionalDependency, ...]:
        """Those of a path: its own records meet those that are written to its state."""
        if path.annotation.kind.confluent or not self._attributes:
            return self._fds
        writers = (
            other.source
            for other in component.paths
            if other.annotation.kind.writes and other.state == path.state
        )
        interfaces = (Endpoint(component.name, name) for name in {path.source, *writers})
        schemas = [self._attributes[end] for end in interfaces if end in self._attributes]
        if not schemas:
            return self._fds
        names = frozenset.intersection(*schemas)
        if names not in self._within:
            self._within[names] = within_schema(names, self._fds)
        return self._within[names]


def compatible(gate: Gate, key: Key, fds: Iterable[FunctionalDependency], *, rules: str) -> bool:
    """True where a stream sealed on the key makes the partitions of the gate complete.

    `blazes`: the gate determines the key, so that every gate partition lies inside one sealed
    partition. `icde14`: some non-empty part of the gate is injectively determined by the key; it
    suffices to test the largest part that the key determines. A gate `*` fits no key, and a key
    without attributes fits no gate. ValueError for another rule set.

    >>> from annotations.file.compact import parse_dependency
    >>> def fits(gate, key, *fds, rules="blazes"):
    ...     gate, key = (frozenset(names.split()) for names in (gate, key))
    ...     return compatible(Gate(gate), key, map(parse_dependency, fds), rules=rules)
    >>> fits("symbol", "company", "company <-> symbol")
    True
    >>> fits("city", "company", "company -> city")
    False
    >>> fits("word", "word batch")
    False
    >>> fits("word batch", "batch"), fits("id campaign", "campaign"), fits("id", "campaign")
    (True, True, False)
    >>> fits("id", "campaign", "id -> campaign")
    True
    >>> fits("id", "campaign", "id -> campaign", rules="icde14")
    False
    >>> fits("hour", "day", "hour -> day"), fits("hour", "day", "hour -> day", rules="icde14")
    (True, False)
    """
    if rules not in RULES:
        raise ValueError(f"{rules!r} is not one of {', '.join(RULES)}")
    if gate.attributes is None or not key:
        return False
    fds = tuple(fds)
    if rules == "blazes":
        return key <= closure(gate.attributes, fds)
    determined = gate.attributes & closure(key, fds)
    return bool(determined) and key <= closure(determined, fds)


def minimal_keys(
    gate: Gate,
    candidates: Collection[str],
    fds: Iterable[FunctionalDependency],
    *,
    rules: str,
) -> list[Key]:
    """Every minimal key out of the candidates that is compatible with the gate.

    Minimal: no smaller part of it is compatible. Fewest attributes first, then by the alphabet.
    Under `blazes` every part of a compatible key is compatible, so these are single attributes.
    Under `icde14` several attributes can be needed that only together determine a part of the
    gate; at most `TESTS_MAX` such sets are looked at, and keys past that are not listed.

    >>> from annotations.file.compact import parse_dependency
    >>> def keys(gate, candidates, *fds):
    ...     gate, fds = Gate(frozenset(gate.split())), map(parse_dependency, fds)
    ...     return list(map(sorted, minimal_keys(gate, candidates.split(), fds, rules="icde14")))
    >>> keys("id campaign", "window id campaign")
    [['campaign'], ['id']]
    >>> keys("zip", "street city", "street, city <-> zip")
    [['city', 'street']]
    """
    if gate.attributes is None:
        return []
    fds = tuple(fds)
    names = sorted(set(candidates) & closure(gate.attributes, fds))
    keys = [key for key in _sets(names, 1) if compatible(gate, key, fds, rules=rules)]
    if rules == "blazes":
        return keys
    # An attribute that no determinant has adds nothing to what a key determines but itself: a
    # compatible key with it has either the attribute alone as a compatible part, or the rest.
    determinants = _arrows(fds).starts
    rest = [name for name in names if name in determinants and frozenset({name}) not in keys]
    tests = 0
    for size in range(2, len(rest) + 1):
        for key in _sets(rest, size):
            tests += 1
            if tests > TESTS_MAX:
                return keys
            minimal = not any(smaller <= key for smaller in keys)
            if minimal and compatible(gate, key, fds, rules=rules):
                keys.append(key)
    return keys


def _sets(names: list[str], size: int) -> Iterator[Key]:
    return map(frozenset, combinations(names, size))
