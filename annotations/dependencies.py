"""Functional dependencies: what attributes determine, and which keys fit a gate.

Specification 2.5; Blazes section V-A1 (`compatible`, `injectivefd`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from annotations.vocabulary import FunctionalDependency, Gate, Key


def closure(attributes: Iterable[str], fds: Iterable[FunctionalDependency]) -> Key:
    """Everything that the attributes determine, by Armstrong's axioms; themselves included.

    >>> sorted(closure({"id"}, [FunctionalDependency(frozenset({"id"}), frozenset({"campaign"}))]))
    ['campaign', 'id']
    """
    known = set(attributes)
    waiting = list(_arrows(fds))
    while True:
        open_, waiting = waiting, []
        for determinant, dependent in open_:
            if determinant <= known:
                known |= dependent
            else:
                waiting.append((determinant, dependent))
        if len(waiting) == len(open_):
            return frozenset(known)


def _arrows(fds: Iterable[FunctionalDependency]) -> Iterator[tuple[Key, Key]]:
    for fd in fds:
        yield fd.determinant, fd.dependent
        if fd.injective:
            yield fd.dependent, fd.determinant


def compatible(gate: Gate, key: Key, fds: Iterable[FunctionalDependency], *, rules: str) -> bool:
    """True where a stream sealed on the key makes the partitions of the gate complete.

    `blazes`: the gate determines the key, so that every gate partition lies inside one sealed
    partition. `icde14`: some non-empty part of the gate is injectively determined by the key; it
    suffices to test the largest part that the key determines. A gate `*` fits no key.
    """
    if gate.attributes is None:
        return False
    fds = tuple(fds)
    if rules == "blazes":
        return key <= closure(gate.attributes, fds)
    determined = gate.attributes & closure(key, fds)
    return bool(determined) and key <= closure(determined, fds)
