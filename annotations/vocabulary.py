"""The vocabulary of coordination analysis: annotations, gates, keys, labels, dependencies.

Blazes (ICDE 2014) section IV, figures 7 and 8. Severities are ordered enums, so that "worse" is
always `>`; nothing elsewhere compares labels by name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Key: TypeAlias = frozenset[str]
"""Attributes that a stream is sealed on, or that partition a component's work."""


class AnnotationKind(enum.IntEnum):
    """The kinds of a path, by severity (figure 7): what it does to its input."""

    CR = 1
    """confluent, read-only"""
    CW = 2
    """confluent, writes state"""
    OR = 3
    """order-sensitive, read-only"""
    OW = 4
    """order-sensitive, writes state"""

    @property
    def confluent(self) -> bool:
        """True where the set of outputs does not depend on the order of inputs."""
        return self <= AnnotationKind.CW

    @property
    def writes(self) -> bool:
        """True where an input record changes the component's state."""
        return self in (AnnotationKind.CW, AnnotationKind.OW)


def quoted(attribute: str) -> str:
    """An attribute as the compact language names it: with backticks where it has spaces.

    >>> quoted("word"), quoted("order id")
    ('word', '`order id`')
    """
    return f"`{attribute}`" if " " in attribute else attribute


@dataclass(frozen=True, slots=True)
class Gate:
    """The partitions that an order-sensitive path works on; `attributes` None is `*`, unknown."""

    attributes: Key | None

    @property
    def known(self) -> bool:
        """False for `*`: every record is its own partition, and no key is compatible."""
        return self.attributes is not None

    def __str__(self) -> str:
        return "*" if self.attributes is None else ",".join(map(quoted, sorted(self.attributes)))


STAR: Final = Gate(None)


@dataclass(frozen=True, slots=True)
class Annotation:
    """`CR`, `CW`, `OR[gate]` or `OW[gate]`. Confluent annotations have no gate."""

    kind: AnnotationKind
    gate: Gate | None = None

    def __post_init__(self) -> None:
        if self.kind.confluent == (self.gate is not None):
            raise ValueError(f"{self.kind.name}: a gate belongs to OR and OW, and only there")

    def __str__(self) -> str:
        return self.kind.name if self.gate is None else f"{self.kind.name}[{self.gate}]"


UNKNOWN: Final = Annotation(AnnotationKind.OW, STAR)
"""What is assumed of a path that nobody annotated: never less than the worst."""


class Label(enum.IntEnum):
    """The labels of a stream, by severity (figure 8): what its contents can do."""

    SEAL = 1
    ASYNC = 2
    RUN = 3
    INST = 4
    DIVERGE = 5

    def __str__(self) -> str:
        return self.name.capitalize()

    @classmethod
    def parse(cls, text: str) -> Label:
        """The label of that name in any case; ValueError for another word."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ValueError(f"{text!r} is not one of {', '.join(map(str, cls))}") from None


@dataclass(frozen=True, slots=True)
class StreamLabel:
    """The label of a stream; `keys` are what it is sealed on, and empty unless it is `Seal`."""

    label: Label
    keys: frozenset[Key] = frozenset()

    def __post_init__(self) -> None:
        if (self.label is Label.SEAL) != bool(self.keys):
            raise ValueError("a Seal has keys, and nothing else has")

    @property
    def sorted_keys(self) -> list[list[str]]:
        """The keys in the order every output uses: fewest attributes first, then alphabetical."""
        return sorted((sorted(key) for key in self.keys), key=lambda key: (len(key), key))

    def __str__(self) -> str:
        if not self.keys:
            return str(self.label)
        return " ".join(f"Seal[{','.join(map(quoted, key))}]" for key in self.sorted_keys)


def seal(*keys: frozenset[str] | set[str] | tuple[str, ...]) -> StreamLabel:
    """A `Seal` label on the given keys.

    >>> str(seal({"campaign"}))
    'Seal[campaign]'
    """
    return StreamLabel(Label.SEAL, frozenset(frozenset(key) for key in keys))


ASYNC: Final = StreamLabel(Label.ASYNC)
RUN: Final = StreamLabel(Label.RUN)
INST: Final = StreamLabel(Label.INST)
DIVERGE: Final = StreamLabel(Label.DIVERGE)


class Within(enum.Enum):
    """Whether a gate partition's result depends on the order inside the partition."""

    SET = "set"
    SEQUENCE = "sequence"


class Repeats(enum.Enum):
    """The effect of a repeat at a path's input on any output of the component."""

    ABSORB = "absorb"
    """nothing: the outputs are those of the input without later copies"""
    PASS = "pass"
    """the same rows, none fewer, some perhaps again"""
    MAKE = "make"
    """as `pass`, and a row may come again though nothing was repeated"""
    CORRUPT = "corrupt"
    """rows that are wrong, or rows that are missing"""


class Rows(enum.Enum):
    """How many rows a path makes of its records: whether an `id` survives it."""

    ONE = "one"
    """at most one row for a record, or for a partition that is put out once"""
    JOINED = "joined"
    """at most one row for one record of each input of the component"""
    MANY = "many"


class Delivery(enum.IntEnum):
    """How often a stream's records come, against a run in which each comes once; by severity."""

    ONCE = 1
    """some run in which every record comes once puts out the same rows"""
    REPEAT_ID = 2
    """the same after keeping one row for each `id`"""
    REPEAT = 3
    """the same set of rows, none fewer"""
    CORRUPT = 4
    """rows that no run has in which every record comes once, or rows missing"""

    def __str__(self) -> str:
        return "Repeat[id]" if self is Delivery.REPEAT_ID else self.name.capitalize()


@dataclass(frozen=True, slots=True)
class FunctionalDependency:
    """`determinant -> dependent`; an injective one, `<->`, holds in both directions."""

    determinant: Key
    dependent: Key
    injective: bool = field(default=False)

    def __str__(self) -> str:
        sides = (self.determinant, self.dependent)
        one, other = (", ".join(map(quoted, sorted(side))) for side in sides)
        return f"{one} {'<->' if self.injective else '->'} {other}"
