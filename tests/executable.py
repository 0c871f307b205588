"""Random dataflows that can be run: components whose true annotations are known by construction.

A tiny language of operators on records of three small numbers. Each operator is written once, as a
function, beside the annotation that it truly has; a component is one path, or a writer with a
reader. The analyser is judged by what happens when they run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from annotations.dataflow import Component, Dataflow, Endpoint, Path, Producers, Stream
from annotations.vocabulary import (
    STAR,
    Annotation,
    AnnotationKind,
    Gate,
    Within,
)
from blazes.analysis import Analysis
from blazes.coordination import Plan
from blazes.simulate.drive import Input
from blazes.simulate.network import Network, network_of
from blazes.verify.experiment import Engine
from blazes.verify.operators import Operator, Schema
from blazes.verify.records import Evaluated, Inputs, Output, Row

COLUMNS = ("a", "b", "c")
SCHEMA: Schema = dict.fromkeys(COLUMNS, "INT")
CR, CW, OR, OW = AnnotationKind
Rows = Sequence[Row]
Function = Callable[[Mapping[str, Rows]], Rows]


@dataclass(frozen=True)
class Verb:
    """An operator: its function, and the paths that are true of it."""

    name: str
    paths: tuple[Path, ...]
    function: Function


def copied(*names: str) -> dict[str, str]:
    """Lineage: these attributes leave as they came."""
    return {name: name for name in names}


def gate(names: str) -> Gate:
    return Gate(frozenset(names))


def keep(row: Row, names: str, *, last: int = 0) -> Row:
    """The row with what it is not told to keep replaced."""
    values = [value if name in names else 0 for name, value in zip(COLUMNS, row, strict=True)]
    return (*values[:2], last if last else values[2])


def alone(kind: AnnotationKind, over: Gate | None = None, **more: object) -> tuple[Path, ...]:
    return (Path("p", "x", Annotation(kind, over), **more),)  # type: ignore[arg-type]


def grouped(rows: Rows, names: str) -> Counter[Row]:
    return Counter(keep(row, names) for row in rows)


def counted(names: str) -> Verb:
    """How many records each group has: order-sensitive by group, and it writes."""

    def count(inputs: Mapping[str, Rows]) -> Rows:
        return [(*row[:2], n) for row, n in grouped(inputs["p"], names).items()]

    return Verb(f"count by {names}", alone(OW, gate(names), lineage=copied(*names)), count)


def first_of(names: str) -> Verb:
    """The first record of each group, which depends on the order inside it."""

    def first(inputs: Mapping[str, Rows]) -> Rows:
        found: dict[Row, Row] = {}
        for row in inputs["p"]:
            found.setdefault(keep(row, names), row)
        return list(found.values())

    paths = alone(OW, gate(names), within=Within.SEQUENCE)
    return Verb(f"first by {names}", paths, first)


def threshold(names: str) -> Verb:
    """Groups with two different records: more records never take one back."""

    def reached(inputs: Mapping[str, Rows]) -> Rows:
        return [row for row, n in grouped(list(set(inputs["p"])), names).items() if n > 1]

    return Verb(f"threshold by {names}", alone(CW, lineage=copied(*names)), reached)


def report(names: str, *, poor: bool) -> Verb:
    """Requests on `q` answered from the records on `p`: how many of the group, or whether few."""

    def answer(inputs: Mapping[str, Rows]) -> Rows:
        known = grouped(inputs["p"], names)
        if poor:
            return [row for row in inputs["q"] if known[keep(row, names)] < 2]
        return [(*row[:2], known[keep(row, names)]) for row in inputs["q"]]

    lineage = None if poor else copied("a", "b")
    paths = (
        Path("p", "x", Annotation(CW), lineage={}),
        Path("q", "x", Annotation(OR, gate(names)), lineage=lineage),
    )
    return Verb(f"{'poor' if poor else 'count'} of {names}", paths, answer)


def matched(names: str) -> Verb:
    """Requests on `q` that have a record of their group on `p`: answered sooner or later."""

    def answer(inputs: Mapping[str, Rows]) -> Rows:
        known = grouped(inputs["p"], names)
        return [row for row in inputs["q"] if known[keep(row, names)]]

    paths = (Path("p", "x", Annotation(CW), lineage={}), Path("q", "x", Annotation(CR)))
    return Verb(f"match on {names}", paths, answer)


def both(names: str) -> Verb:
    """Groups of two inputs counted together: both write, and both are order-sensitive."""

    def count(inputs: Mapping[str, Rows]) -> Rows:
        left, right = grouped(inputs["p"], names), grouped(inputs["q"], names)
        return [(*row[:2], left[row] + 3 * right[row]) for row in {**left, **right}]

    lineage = copied(*names)
    paths = tuple(Path(i, "x", Annotation(OW, gate(names)), lineage=lineage) for i in "pq")
    return Verb(f"counts of both by {names}", paths, count)


VERBS: tuple[Verb, ...] = (
    Verb("pass", alone(CR), lambda inputs: list(inputs["p"])),
    Verb("filter", alone(CR), lambda inputs: [row for row in inputs["p"] if row[2]]),
    Verb(
        "turn",
        alone(CR, lineage=copied("a", "b")),
        lambda inputs: [(a, b, (c + 1) % 3) for a, b, c in inputs["p"]],
    ),
    Verb("store", alone(CW), lambda inputs: list(dict.fromkeys(inputs["p"]))),
    threshold("a"),
    threshold("ab"),
    counted("a"),
    counted("ab"),
    first_of("a"),
    Verb(
        "very first",
        alone(OW, STAR, within=Within.SEQUENCE),
        lambda inputs: list(inputs["p"][:1]),
    ),
    report("a", poor=True),
    report("ab", poor=True),
    report("b", poor=False),
    matched("a"),
    matched("ab"),
    both("a"),
)


PRODUCERS = (Producers("one"), Producers("all", ("east", "west")), Producers("registered"))


@dataclass(frozen=True)
class Runnable:
    """A dataflow and what its components do."""

    dataflow: Dataflow
    verbs: Mapping[str, Verb]

    def network(self, analysis: Analysis, plan: Plan | None) -> Network:
        """What runs."""
        engine = Executor(self.verbs)
        operators = {
            Endpoint(name, "x"): Operator(
                name, "x", verb.paths, None, dict.fromkeys(sources(verb), SCHEMA)
            )
            for name, verb in self.verbs.items()
        }
        engines: dict[str, Engine] = {each.name: engine for each in operators.values()}
        schemas = dict.fromkeys(self.dataflow.streams, SCHEMA)
        return network_of(analysis, plan, operators=operators, schemas=schemas, engine=engines)


@dataclass(frozen=True)
class Executor:
    """Evaluates the little language."""

    verbs: Mapping[str, Verb]
    name: str = "Python"

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        function = self.verbs[operator.component].function
        return [Output(COLUMNS, tuple(function(dict(inputs)))) for inputs in many]

    def schema(self, operator: Operator) -> Schema:
        return SCHEMA


def sources(verb: Verb) -> list[str]:
    return list(dict.fromkeys(path.source for path in verb.paths))


def random_dataflow(rng: random.Random, *, components_max: int = 4) -> Runnable:
    """A dataflow of the little language: seals, replicas, several readers, now and then a cycle."""
    verbs = {f"C{n}": rng.choice(VERBS) for n in range(rng.randint(1, components_max))}
    streams = list(streams_of(verbs, rng))
    parts = {
        name: Component(name, verb.paths, rep=rng.choice((None, None, True, False)))
        for name, verb in verbs.items()
    }
    dataflow = Dataflow("random", parts, {stream.name: stream for stream in streams})
    return Runnable(dataflow, verbs)


def streams_of(verbs: Mapping[str, Verb], rng: random.Random) -> Iterator[Stream]:
    outputs = [Endpoint(name, "x") for name in verbs]
    read: set[Endpoint | None] = set()
    number = 0
    for at, (name, verb) in enumerate(verbs.items()):
        for source in sources(verb):
            cyclic = source == "p" and any(path.source == "q" for path in verb.paths)
            choices: list[Endpoint | None] = [None, None, *outputs[:at]]
            producers = {rng.choice(choices)}
            if rng.random() < 0.15:
                producers.add(rng.choice(outputs if cyclic else choices))
            for producer in sorted(producers, key=str):
                seals = rng.choice(((), (frozenset("a"),), (frozenset("ab"),), (frozenset("b"),)))
                yield Stream(
                    f"s{number}",
                    producer,
                    Endpoint(name, source),
                    seals=seals if producer is None else (),
                    producers=PRODUCERS[number % 3] if producer is None and seals else None,
                    rep=True if rng.random() < 0.1 else None,
                    schema=SCHEMA,
                )
                read.add(producer)
                number += 1
    for output in outputs:
        if output not in read or rng.random() < 0.2:
            yield Stream(f"s{number}", output, None, schema=SCHEMA)
            number += 1


class Numbers:
    """Inputs of two or three values for each attribute."""

    def __init__(self, network: Network) -> None:
        self._names = [wire.name for wire in network.sources]

    def __call__(self, rng: random.Random, size: int) -> Input:
        found: dict[str, dict[Row, int]] = {}
        for _ in range(size):
            row = (rng.randrange(1, 3), rng.randrange(1, 3), rng.randrange(2))
            bag = found.setdefault(rng.choice(self._names), {})
            bag[row] = bag.get(row, 0) + 1
        return found

    def complexity(self, given: Input) -> int:
        return 0

    def simpler(self, given: Input) -> Iterator[tuple[str, object, object]]:
        return iter(())
