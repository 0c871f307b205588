"""Which keys would do: the smallest seals that fit a gate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from annotations.dependencies import closure, compatible
from annotations.vocabulary import FunctionalDependency, Gate, Key

CANDIDATES_MAX: Final = 12
"""With more attributes left to combine, only keys of one or two attributes are looked for."""


def minimal_keys(
    gate: Gate, attributes: Key, fds: tuple[FunctionalDependency, ...], *, rules: str
) -> tuple[Key, ...]:
    """Every minimal key out of the attributes that is compatible with the gate.

    Fewest attributes first, then by the alphabet. Under `blazes` these are single attributes,
    because every part of a compatible key is compatible; under `icde14` they need not be.
    In both rule sets the gate determines its keys.
    """
    if gate.attributes is None:
        return ()
    names = sorted(attributes & closure(gate.attributes, fds))
    found = [key for key in _keys(names, 1) if compatible(gate, key, fds, rules=rules)]
    rest = [name for name in names if frozenset({name}) not in found]
    most = len(rest) if len(rest) <= CANDIDATES_MAX else 2
    for size in range(2, most + 1):
        for key in _keys(rest, size):
            minimal = not any(smaller <= key for smaller in found)
            if minimal and compatible(gate, key, fds, rules=rules):
                found.append(key)
    return tuple(found)


def _keys(names: list[str], size: int) -> Iterator[Key]:
    return map(frozenset, combinations(names, size))
