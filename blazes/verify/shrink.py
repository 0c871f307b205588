"""A refuting case made small: fewer records, fewer repeats, fewer batches, simpler values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from blazes.verify import values
from blazes.verify.experiment import Case

Refutes = Callable[[Sequence[Case]], list[bool]]
"""Which of some cases refute the claim; they are evaluated together."""


def shrunk(
    case: Case,
    refutes: Refutes,
    generator: values.Generator,
    *,
    until: float,
    alike: frozenset[str],
) -> Case:
    """The smallest case that steps of simplification lead to.

    Args:
        case: refutes the claim.
        refutes: tries other cases.
        generator: knows what values are simple, and what records have to keep.
        until: time (monotonic, seconds) to stop at.
        alike: attributes whose values are changed everywhere or nowhere.
    """
    passes = (fewer_records, fewer_repeats, fewer_batches)
    improved = True
    while improved and time.monotonic() < until:
        improved = False
        candidates = [candidate for smaller in passes for candidate in smaller(case)]
        candidates += simpler_values(case, generator, alike)
        candidates = [candidate for candidate in candidates if lawful(candidate, generator)]
        for start in range(0, len(candidates), 8):
            some = candidates[start : start + 8]
            better = [candidate for candidate, yes in zip(some, refutes(some), strict=True) if yes]
            if better:
                case, improved = better[0], True
                break
            if time.monotonic() > until:
                break
    return case


def lawful(case: Case, generator: values.Generator) -> bool:
    """Whether the records keep the dependencies, and requests come once."""
    return values.consistent(case.items, generator.operator, generator.fds) == list(case.items)


def fewer_records(case: Case) -> Iterator[Case]:
    """Without one of the records."""
    if len(case.items) > 1:
        for place in range(len(case.items)):
            yield case.without(place)


def fewer_repeats(case: Case) -> Iterator[Case]:
    """A record less often."""
    for place, item in enumerate(case.items):
        for times in dict.fromkeys((1, item.times // 2, item.times - 1)):
            if 0 < times < item.times:
                yield case.with_item(place, replace(item, times=times))


def fewer_batches(case: Case) -> Iterator[Case]:
    """Two batches as one, and batches in the order of the records."""
    for at in range(len(case.split) - 1):
        merged = case.split[at] + case.split[at + 1]
        yield Case(case.items, (*case.split[:at], merged, *case.split[at + 2 :]))
    for at, batch in enumerate(case.split):
        if tuple(sorted(batch)) != batch:
            ordered = (*case.split[:at], tuple(sorted(batch)), *case.split[at + 1 :])
            yield Case(case.items, ordered)


def simpler_values(
    case: Case, generator: values.Generator, alike: frozenset[str]
) -> Iterator[Case]:
    """A value, or null, replaced by a simpler one: everywhere, then in one record."""
    unset = generator.operator.unset
    schemas = {name: list(schema) for name, schema in generator.operator.schemas.items()}
    cells = [
        (place, column, schemas[item.interface][column], value)
        for place, item in enumerate(case.items)
        for column, value in enumerate(item.row)
        if schemas[item.interface][column] not in unset.get(item.interface, ())
    ]
    for name, value in dict.fromkeys((name, value) for _, _, name, value in cells):
        for simple in generator.simpler(name, value):
            simplified = case
            for place, column, attribute, old in cells:
                if (attribute, old) == (name, value):
                    simplified = simplified.with_item(
                        place, simplified.items[place].replaced(column, simple)
                    )
            yield simplified
    for place, column, name, value in cells:
        if name not in alike:
            for simple in generator.simpler(name, value)[:1]:
                yield case.with_item(place, case.items[place].replaced(column, simple))
