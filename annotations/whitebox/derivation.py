"""The result of a plan's derivation: `derive.annotate(plan) -> Derivation`.

A `Derivation` says for each source what it does to the output (a `DerivedPath`, which is what an
author would have written as a path), which constructs at which places made it so (`Evidence`), and
what had to be assumed (`Assumption`). Everything is frozen, and the same plan gives the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Position
from annotations.vocabulary import STAR, Annotation, AnnotationKind, Gate, Repeats, Rows, Within
from annotations.whitebox.ir import Column


@dataclass(frozen=True, slots=True)
class Evidence:
    """A construct that decided something about a path."""

    construct: str
    """Id of a row of `constructs.CONSTRUCTS`."""
    text: str
    """What it does here, in a sentence without a full stop."""
    position: Position | None = None
    gate: Gate | None = None
    """The partitions that it needs complete; None where it leaves the path confluent."""
    within: Within = Within.SET

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position else ""
        return f"{where}{self.text}"


@dataclass(frozen=True, slots=True)
class DerivedPath:
    """The path from one source to the output."""

    source: str
    writes: bool
    gates: tuple[Gate, ...]
    """Of each order-sensitive operator on the path, without repetition; empty: confluent."""
    within: Within
    nondeterministic: str | None
    lineage: Mapping[str, str]
    """Output attribute -> the source's attribute that it is an unchanged copy of."""
    evidence: tuple[Evidence, ...]
    """In the order of the text."""
    repeats: Repeats = Repeats.CORRUPT
    """What a record that comes again does to the output."""
    rows: Rows = Rows.MANY

    @property
    def gate(self) -> Gate | None:
        """The attributes that all gates share: a seal compatible with them fits all operators.

        None: confluent. An empty set stands for one partition, the whole stream.
        """
        if not self.gates:
            return None
        common: frozenset[str] | None = None
        for gate in self.gates:
            if gate.attributes is None:
                return STAR
            common = gate.attributes if common is None else common & gate.attributes
        return Gate(common)

    @property
    def annotation(self) -> Annotation:
        """As an author would write it. A whole stream as one partition is `*`: no key seals it."""
        gate = self.gate
        if gate is None:
            return Annotation(AnnotationKind.CW if self.writes else AnnotationKind.CR)
        kind = AnnotationKind.OW if self.writes else AnnotationKind.OR
        return Annotation(kind, gate if gate.attributes else STAR)


SETTINGS: Final = "the settings in"
"""How the assumption begins that a configuration file stays as it is."""
ORDER: Final = "the order of"
"""How the assumption begins that the order of a set does not matter."""
TAKEN: Final = (SETTINGS, ORDER)
"""How notes begin that are assumptions, and nothing that could not be followed."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that cannot be read off the code, and that the derivation relies on."""

    text: str
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """The result of the derivation for one output."""

    paths: Mapping[str, DerivedPath]
    """By source, in the order of the text; tables that never change have no path."""
    columns: tuple[Column, ...]
    """The output's columns, with types: the schema of the stream that leaves."""
    repeats: str | None = None
    """Why the same record may leave more than once (a *set-only* stream); None where it cannot."""
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[Evidence, ...] = ()
    """What does not change a label, but a reader should know."""
