"""Components that say only what they compute: which paths they may have, before the code is read.

The streams of the file say at which interfaces records come in and go out. Until the annotations
are derived (`annotations.whitebox.deriving`), every path between them is taken for the worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

from annotations.dataflow import Path
from annotations.diagnostics import Findings
from annotations.file.keys import has_implementation
from annotations.file.records import Fields
from annotations.file.shapes import BAD, ENDPOINT, Pairs
from annotations.positions import Map, Scalar
from annotations.vocabulary import UNKNOWN

COMPUTES: Final = dict.fromkeys(("sql", "python", "operator", "processor", "bloom")).keys()
"""Keys that say how a component's outputs are computed."""


@dataclass(slots=True)
class Declared:
    """A component as the file has it: its own keys, and variants from wherever they stand."""

    key: Scalar
    fields: Fields
    variants: dict[str, tuple[Scalar, Any]] = field(default_factory=dict)
    """Name -> (the name's node, a path or a list of paths or a variant or `BAD`)."""


class Ends(NamedTuple):
    """The interfaces of a component that streams name, in the order of the file."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def ends_of(streams: Pairs) -> Mapping[str, Ends]:
    """The interfaces that the streams of a file name, by component."""
    interfaces: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for _, fields in streams.values():
        for side, key in enumerate(("to", "from")):
            node = fields.get(key) if isinstance(fields, Fields) else None
            match = ENDPOINT.fullmatch(node.text) if node is not None else None
            if match is not None:
                component, interface = match.groups()
                interfaces.setdefault(component, ({}, {}))[side][interface] = None
    return {
        name: Ends(tuple(inputs), tuple(outputs)) for name, (inputs, outputs) in interfaces.items()
    }


def says_only_code(declared: Declared) -> bool:
    """True where the component, or one of its variants, has code and no annotation beside it."""
    fields = declared.fields
    return "annotation" not in fields.node.entries and any(
        not COMPUTES.isdisjoint(declaration.values) and "annotation" not in declaration.node.entries
        for declaration in _implementing(declared)
    )


def possible_paths(declared: Declared, ends: Ends, findings: Findings) -> list[tuple[Path, Fields]]:
    """Every path that the code may have, from each input to each output that it computes."""
    outputs: dict[str, None] = {}
    for fields in _implementing(declared):
        for key in COMPUTES:
            value = fields.get(key)
            if isinstance(value, str | Fields):
                outputs |= dict.fromkeys(ends.outputs)
            elif value is not None:
                outputs |= dict.fromkeys(value)
    mark = declared.key.mark
    return [
        (
            Path(source, target, UNKNOWN, derived=(), position=findings.position(mark)),
            Fields(Map(mark)),
        )
        for source, target in product(ends.inputs, outputs)
    ]


def _implementing(declared: Declared) -> Iterator[Fields]:
    """The component and its variants, as far as they may have code."""
    yield declared.fields
    values: Iterator[Any] = (value for _, value in declared.variants.values())
    for value in values:
        if value is not BAD and isinstance(value, Fields) and has_implementation(value.node):
            yield value
