"""The two ways of each kind of claim, and how cases for it are drawn."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from annotations.vocabulary import AnnotationKind
from blazes.verify.claims import Claim, Kind, claimed
from blazes.verify.experiment import Batches, Case, Way
from blazes.verify.operators import Operator
from blazes.verify.records import Item
from blazes.verify.values import Generator

NOTHING: frozenset[str] = frozenset()


def draw(claim: Claim, generator: Generator, rng: random.Random, size: int) -> Case | None:
    """A case of about that many records; None where this one came out useless.

    A gate with an attribute too many is refuted by partitions that differ in that attribute alone:
    half of a gate's cases are such. The order inside of a partition matters where it has several
    records: half of those cases are one partition.
    """
    alike, apart = [source for source, _ in claim.copies], None
    if claim.kind is Kind.SET and rng.random() < 0.5:
        alike = sorted(claim.gate)
    if claim.kind is Kind.GATE and claim.gate and rng.random() < 0.5:
        apart = rng.choice(sorted(claim.gate))
        alike = sorted(claim.gate - {apart})
    items = generator.items(rng, size, alike=alike, apart=apart)
    others = silent(claim)
    items = [item for item in items if item.interface not in others]
    if len(items) < (1 if claim.kind in (Kind.FUNCTION, Kind.KEY) else 2) and not any(
        item.times > 1 for item in items
    ):
        return None
    return Case(tuple(items), split(items, rng))


def split(items: Sequence[Item], rng: random.Random) -> Batches:
    """The records in some order and some micro-batches."""
    places = list(range(len(items)))
    rng.shuffle(places)
    if rng.random() < 0.5:
        return tuple((place,) for place in places)
    batches: list[list[int]] = [[]]
    for place in places:
        if batches[-1] and rng.random() < 0.5:
            batches.append([])
        batches[-1].append(place)
    return tuple(map(tuple, batches))


def silent(claim: Claim) -> frozenset[str]:
    """Interfaces that get no records: order-sensitive readers beside a confluent reader."""
    operator, path = claim.operator, claim.path
    if claim.kind not in (Kind.CONFLUENT, Kind.READ_ONLY) or operator is None or path is None:
        return NOTHING
    if path.annotation.kind is not AnnotationKind.CR:
        return NOTHING
    kinds = {path.source: path.annotation.kind for path in operator.own}
    return frozenset(n for n, kind in kinds.items() if kind is AnnotationKind.OR)


def ways(claim: Claim, case: Case) -> tuple[Way, Way]:
    """The two ways that have to come to one outcome, if the claim holds."""
    operator = claim.operator
    assert operator is not None
    everything = (tuple(range(len(case.items))),)
    everywhere = frozenset(operator.interfaces)
    match claim.kind:
        case Kind.CONFLUENT:
            return confluent(claim, case)
        case Kind.READ_ONLY:
            return read_only(claim, case)
        case Kind.GATE:
            parts = tuple(partitions(claim, case.items))
            return Way(everything, NOTHING), Way(parts, NOTHING)
        case Kind.SET:
            parts = tuple(partitions(claim, case.items))
            again = tuple(permuted(case, part, unordered(claim)) for part in parts)
            return Way(parts, NOTHING), Way(again, NOTHING)
        case _:
            return Way(everything, everywhere), Way(everything, everywhere)


def confluent(claim: Claim, case: Case) -> tuple[Way, Way]:
    """All at once against some order in some batches, with what the path meets held still.

    - A reader that keeps nothing meets what accumulates: everything comes in any order, but that
      order-sensitive writers have written before.
    - A writer beside readers: they ask when all has been written.
    - A writer beside order-sensitive writers: those have written before.
    """
    operator, path = claim.operator, claim.path
    assert operator is not None
    assert path is not None
    every = frozenset(operator.interfaces)
    confluent_all = all(declared.annotation.kind.confluent for declared in operator.paths)
    readers = operator.reads
    if not path.annotation.kind.writes or (confluent_all and not readers):
        kinds = {declared.source: declared.annotation.kind for declared in operator.paths}
        written = [kinds.get(item.interface) is AnnotationKind.OW for item in case.items]
        first = tuple(n for n, is_written in enumerate(written) if is_written)
        rest = tuple(n for n in range(len(written)) if not written[n])
        batches = (tuple(n for n in batch if not written[n]) for batch in case.split)
        together: Batches = tuple(batch for batch in (first, rest) if batch)
        apart: Batches = tuple(batch for batch in (first, *batches) if batch)
        return Way(together, every), Way(apart, every)
    own = [n for n, item in enumerate(case.items) if item.interface == path.source]
    asked = [n for n, item in enumerate(case.items) if item.interface in readers]
    before = [n for n in range(len(case.items)) if n not in own and n not in asked]
    scattered = [tuple(n for n in batch if n in own) for batch in case.split]
    at_once: Batches = tuple(b for b in (tuple(before), tuple(own), tuple(asked)) if b)
    as_came: Batches = tuple(b for b in (tuple(before), *scattered, tuple(asked)) if b)
    return Way(at_once, every - readers, readers), Way(as_came, every - readers, readers)


def read_only(claim: Claim, case: Case) -> tuple[Way, Way]:
    """Requests together against batch by batch, on state that is complete before.

    Where nothing keeps state, all interfaces are requests: a join of them needs somebody who
    remembers, as much as a count does.
    """
    operator, path = claim.operator, claim.path
    assert operator is not None
    assert path is not None
    every = tuple(range(len(case.items)))
    if not operator.writes:
        return Way((every,) if every else (), NOTHING), Way(case.split, NOTHING)
    mine = frozenset({path.source})
    others = [n for n in every if case.items[n].interface in operator.reads - mine]
    state = [n for n in every if case.items[n].interface in operator.writes]
    batches = [tuple(n for n in b if case.items[n].interface in mine) for b in case.split]
    asked = [batch for batch in batches if batch]
    together = ((*state, *others, *(n for batch in asked for n in batch)),)
    apart = [(*others, *batch) for batch in asked]
    if state:
        apart.insert(0, tuple(state))
    return Way(together, operator.writes, mine), Way(tuple(apart), operator.writes, mine)


def partitions(claim: Claim, items: Sequence[Item]) -> Iterable[tuple[int, ...]]:
    """The records by gate partition; those of interfaces that lack the gate go with each."""
    operator = claim.operator
    assert operator is not None
    groups: dict[tuple[Any, ...], list[int]] = {}
    shared: list[int] = []
    gate = sorted(claim.gate)
    for place, item in enumerate(items):
        columns = list(operator.schemas[item.interface])
        if not claim.gate <= set(columns):
            shared.append(place)
            continue
        value = tuple(item.row[columns.index(name)] for name in gate)
        groups.setdefault(value, []).append(place)
    return [tuple(sorted([*shared, *places])) for places in groups.values()] or [tuple(shared)]


def unordered(claim: Claim) -> frozenset[str]:
    """Interfaces whose order inside of a partition a path says does not matter.

    Its own, and those that write the state it reads, but where a path says of one of them that its
    order does matter, or has no gate that it could speak of.
    """
    operator, path = claim.operator, claim.path
    assert operator is not None
    assert path is not None
    others = {
        declared.source
        for declared in operator.paths
        if declared.annotation.kind.writes and (declared.state or "") == (path.state or "")
    }
    ordered = {
        declared.source
        for declared in operator.paths
        if not declared.annotation.kind.confluent and Kind.SET not in claimed(declared)
    }
    return frozenset({path.source} | (others - ordered))


def permuted(case: Case, part: Sequence[int], interfaces: frozenset[str]) -> tuple[int, ...]:
    """The places of a partition, those of some interfaces in the order of the split."""
    inside = set(part)
    order = [n for batch in case.split for n in batch if n in inside]
    order = [n for n in order if case.items[n].interface in interfaces]
    return (*order, *(n for n in part if case.items[n].interface not in interfaces))


def strangers(claim: Claim, operator: Operator, items: Sequence[Item]) -> dict[str, Any]:
    """Output attribute -> the one value that it may have, by the records that came."""
    values: dict[str, Any] = {}
    for source, out in claim.copies:
        for item in items:
            columns = list(operator.schemas[item.interface])
            if source in columns:
                values[out] = item.row[columns.index(source)]
    return values
