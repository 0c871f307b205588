"""Random dataflows, for every test that claims something of all dataflows.

One recipe, two cooks: Hypothesis, which makes a failing example small, and `random.Random`, which
is twenty times as fast and serves the sweeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from annotations.dataflow import Component, Dataflow, Endpoint, Path, Producers, Stream
from annotations.vocabulary import (
    STAR,
    Annotation,
    AnnotationKind,
    FunctionalDependency,
    Gate,
    Key,
    Label,
    Within,
)

T = TypeVar("T")
ATTRIBUTES = ("a", "b", "c")


@dataclass(frozen=True)
class Recipe:
    """Builds one dataflow out of choices.

    Several outputs, several writers and streams per interface, shared and named states, several
    seal keys, lineage, schemas, dependencies, replication, declared labels, nondeterministic paths
    and (unless `cyclic` is off) cycles. Every interface is connected somewhere. Keys and gates like
    to have attribute `a`, or seals would hardly ever fit.
    """

    below: Callable[[int], int]
    """A number from 0 up to, not including, the argument; 0 is the simplest."""
    components_max: int = 4
    paths_max: int = 4
    cyclic: bool = True

    def one(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, count: int) -> bool:
        """True about once in so many times."""
        return self.below(count) == count - 1

    def key(self) -> Key:
        return self.one([frozenset(k) for k in ("a", "a", "a", "ab", "b", "c", "bc")])

    def gate(self) -> Gate:
        return self.one([*(Gate(frozenset(k)) for k in ("a", "ab", "ac", "abc", "b", "c")), STAR])

    def keys(self) -> tuple[Key, ...]:
        return tuple(dict.fromkeys(self.key() for _ in range(self.below(3))))

    def annotation(self) -> Annotation:
        kind = self.one(list(AnnotationKind))
        return Annotation(kind) if kind.confluent else Annotation(kind, self.gate())

    def path(self, source: str, target: str) -> Path:
        lineage = None
        if self.chance(6):
            lineage = {self.one(ATTRIBUTES): self.one(ATTRIBUTES) for _ in ATTRIBUTES}
        return Path(
            source,
            target,
            self.annotation(),
            state=self.one((None, "s")),
            within=self.one((Within.SET, Within.SET, Within.SEQUENCE)),
            nondeterministic="asks the clock" if self.chance(16) else None,
            lineage=lineage,
        )

    def component(self, name: str) -> Component:
        count = 1 + self.below(self.paths_max)
        paths = [self.path(self.one("pqr"), self.one("xy")) for _ in range(count)]
        return Component(name, tuple(paths), rep=self.one((None, None, None, True, False)))

    def stream(self, name: str, producer: Endpoint | None, consumer: Endpoint | None) -> Stream:
        source = producer is None
        label = None
        if source and self.chance(5):
            label = self.one((Label.RUN, Label.RUN, Label.INST, Label.DIVERGE))
        schema = None
        if self.chance(5):
            schema = {name: "int" for name in ATTRIBUTES if not self.chance(4)}
        return Stream(
            name,
            producer,
            consumer,
            seals=self.keys() if source or self.chance(8) else (),
            rep=True if self.chance(10) else None,
            label=label,
            schema=schema,
            producers=Producers("one") if self.chance(3) else None,
            id=("a", "b") if source and self.chance(3) else (),
        )

    def dependency(self) -> FunctionalDependency:
        return FunctionalDependency(self.key(), self.key(), injective=self.chance(3))

    def dataflow(self) -> Dataflow:
        parts = [self.component(f"C{n}") for n in range(1 + self.below(self.components_max))]
        streams = list(self.streams(parts))
        return Dataflow(
            "random",
            {part.name: part for part in parts},
            {stream.name: stream for stream in streams},
            tuple(self.dependency() for _ in range(self.below(3))),
        )

    def streams(self, parts: Sequence[Component]) -> Iterator[Stream]:
        outputs = [
            [Endpoint(part.name, each) for each in dict.fromkeys(p.target for p in part.paths)]
            for part in parts
        ]
        count = 0
        consumed: set[Endpoint | None] = set()
        for number, part in enumerate(parts):
            before = [None, *(each for ends in outputs[:number] for each in ends)]
            anywhere = [each for ends in outputs for each in ends] if self.cyclic else before
            for name in dict.fromkeys(path.source for path in part.paths):
                feeds = [
                    self.one(anywhere if self.chance(8) else before)
                    for _ in range(self.one((1, 1, 2)))
                ]
                for producer in dict.fromkeys(feeds):
                    yield self.stream(f"s{count}", producer, Endpoint(part.name, name))
                    consumed.add(producer)
                    count += 1
        for end in (end for ends in outputs for end in ends):
            if end not in consumed or self.chance(3):
                yield self.stream(f"s{count}", end, None)
                count += 1


@st.composite
def dataflows(
    draw: st.DrawFn, *, components_max: int = 4, paths_max: int = 4, cyclic: bool = True
) -> Dataflow:
    """A dataflow by Hypothesis."""

    def below(count: int) -> int:
        return draw(st.integers(0, count - 1)) if count > 1 else 0

    return Recipe(below, components_max, paths_max, cyclic).dataflow()


def many_dataflows(
    count: int,
    *,
    seed: int = 0,
    components_max: int = 4,
    paths_max: int = 4,
    cyclic: bool = True,
) -> Iterator[Dataflow]:
    """So many dataflows from a seed."""
    source = random.Random(seed)
    recipe = Recipe(source.randrange, components_max, paths_max, cyclic)
    return (recipe.dataflow() for _ in range(count))
