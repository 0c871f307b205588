"""Shapes of what is special to this file: labels, gates, seals and functional dependencies.

Each can be written as YAML or in the compact language (`compact`, which imports lark
and is therefore imported only where such a string is met). Either way the attributes come out as
scalars that know where they stand.
"""

# ruff: noqa: D102  (the protocol `Shape` documents the methods of every shape)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from annotations.diagnostics import Findings
from annotations.file.shapes import ATTRIBUTE_NAME, BAD, Bad, Json, Text, is_word, refuse
from annotations.positions import List, Map, Node, Scalar, place_inside, shorten
from annotations.type_names import TYPES, bounded_text, unknown_type
from annotations.vocabulary import AnnotationKind, Key

if TYPE_CHECKING:
    from annotations.file.compact import Attribute, CompactError

_PLAIN_LABELS: Final = dict(AnnotationKind.__members__)
_COMPACT_LABEL: Final = r"^\s*(CR|CW|((OR|OW)\s*(\[[^\[\]]+\])?))\s*$"
_COMPACT_SEALS: Final = r"^\s*(Seal\s*\[[^\[\]]+\]\s*)+$"


class LabelValue(NamedTuple):
    """The value of `label`: `gate` is None where it names none, and empty for `*`."""

    kind: AnnotationKind
    gate: tuple[Scalar, ...] | None = None
    gate_mark: Scalar | None = None


class DependencyValue(NamedTuple):
    """The value of an item of `fds`."""

    determinant: tuple[Scalar, ...]
    dependent: tuple[Scalar, ...]
    injective: bool


def key_of(attributes: Iterable[Scalar]) -> Key:
    """The names of the attributes."""
    return frozenset(attribute.text for attribute in attributes)


def _scalars(
    attributes: Iterable[Attribute], node: Scalar, findings: Findings
) -> tuple[Scalar, ...]:
    """The attributes of a compact string, at their places in the file."""
    return tuple(
        Scalar(name, place_inside(node, offset, findings.text)) for name, offset in attributes
    )


def _refuse_compact(error: CompactError, node: Scalar, findings: Findings, remedy: str) -> Bad:
    findings.add_value(
        "BLZ020", error.message, place_inside(node, error.offset, findings.text), remedy
    )
    return BAD


@dataclass(frozen=True, slots=True)
class Label:
    """`CR`, `CW`, `OR`, `OW`, or compactly with the gate: `OW[word, batch]`, `OR[*]`."""

    expects: str = "CR, CW, OR or OW"

    def read(self, node: Node, findings: Findings) -> LabelValue | Bad:
        if type(node) is Scalar and node.text in _PLAIN_LABELS:
            return LabelValue(_PLAIN_LABELS[node.text])
        if not is_word(self, node, findings):
            return BAD
        assert type(node) is Scalar
        from annotations.file.compact import CompactError, read_annotation

        try:
            kind, gate, offset = read_annotation(node.text)
        except CompactError as error:
            return _refuse_compact(
                error, node, findings, "Write for example CR, CW, OW[word, batch] or OR[*]."
            )
        if gate is None:
            return LabelValue(kind)
        if kind.confluent:
            message = f"{kind.name} is confluent and has no gate"
            findings.add_value("BLZ021", message, place_inside(node, offset, findings.text))
            return BAD
        return LabelValue(kind, _scalars(gate, node, findings))

    def schema(self) -> Json:
        compact = {"type": "string", "pattern": _COMPACT_LABEL}
        return {"anyOf": [{"enum": list(_PLAIN_LABELS)}, compact]}


@dataclass(frozen=True, slots=True)
class Attributes:
    """A list of different attributes, or one attribute."""

    expects: str = "an attribute or a list of attributes"

    def read(self, node: Node, findings: Findings) -> tuple[Scalar, ...] | Bad:
        items = node.items if type(node) is List else [node]
        if type(node) is Map or not items:
            return refuse(self, node, findings)
        attributes: dict[str, Scalar] = {}
        for item in items:
            attribute = ATTRIBUTE_NAME.read(item, findings)
            if isinstance(attribute, Bad):
                continue
            if attribute.text in attributes:
                findings.add_value("BLZ006", f"`{attribute.text}` is there twice", attribute.mark)
            attributes.setdefault(attribute.text, attribute)
        return tuple(attributes.values()) or BAD

    def schema(self) -> Json:
        attribute = ATTRIBUTE_NAME.schema()
        several = {"type": "array", "items": attribute, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [attribute, several]}


ATTRIBUTES: Final = Attributes()


@dataclass(frozen=True, slots=True)
class Subscript:
    """A gate: attributes, or `"*"` where it is not known. The value is empty for `*`."""

    expects: str = 'a list of attributes, or "*"'

    def read(self, node: Node, findings: Findings) -> tuple[Scalar, ...] | Bad:
        if type(node) is Scalar and node.text == "*":
            return ()
        if type(node) is List and not node.items:
            return refuse(
                self, node, findings, 'Write `subscript: "*"` where the gate is not known.'
            )
        return ATTRIBUTES.read(node, findings)

    def schema(self) -> Json:
        return ATTRIBUTES.schema()


@dataclass(frozen=True, slots=True)
class Seals:
    """One key, a list of keys, or compactly `Seal[campaign]`. The value is a list of keys."""

    expects: str = "a key (a list of attributes), a list of keys, or Seal[key]"

    def read(self, node: Node, findings: Findings) -> list[tuple[Scalar, ...]] | Bad:
        if type(node) is Scalar and "[" in node.text:
            return self._compact(node, findings)
        if type(node) is List and node.items and all(type(item) is List for item in node.items):
            keys = [ATTRIBUTES.read(item, findings) for item in node.items]
        elif type(node) is Map or (type(node) is List and not node.items):
            return refuse(self, node, findings)
        else:
            keys = [ATTRIBUTES.read(node, findings)]
        return [key for key in keys if not isinstance(key, Bad)] or BAD

    def _compact(self, node: Scalar, findings: Findings) -> list[tuple[Scalar, ...]] | Bad:
        from annotations.file.compact import CompactError, read_seals

        try:
            return [_scalars(key, node, findings) for key in read_seals(node.text)]
        except CompactError as error:
            return _refuse_compact(
                error, node, findings, "Write for example [campaign] or Seal[campaign]."
            )

    def schema(self) -> Json:
        attribute = ATTRIBUTE_NAME.schema()
        key = {"type": "array", "items": attribute, "minItems": 1, "uniqueItems": True}
        keys = {"type": "array", "items": key, "minItems": 1}
        return {"anyOf": [key, keys, attribute, {"type": "string", "pattern": _COMPACT_SEALS}]}


_HOW_TO_WRITE_DEPENDENCIES: Final = (
    "Write for example `id -> campaign` or `company <-> symbol`; inside of [ ], put one with a "
    'comma in quotes: "a, b -> c".'
)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A functional dependency: `a, b -> c`, or an injective one, `a <-> b`."""

    expects: str = "a dependency such as `a, b -> c` or `a <-> b`"

    def read(self, node: Node, findings: Findings) -> DependencyValue | Bad:
        if not is_word(self, node, findings):
            return BAD
        assert type(node) is Scalar
        from annotations.file.compact import CompactError, read_dependency

        try:
            left, right, injective = read_dependency(node.text)
        except CompactError as error:
            return _refuse_compact(error, node, findings, _HOW_TO_WRITE_DEPENDENCIES)
        return DependencyValue(
            _scalars(left, node, findings), _scalars(right, node, findings), injective
        )

    def schema(self) -> Json:
        return {"type": "string", "pattern": "->"}


@dataclass(frozen=True, slots=True)
class Schema:
    """Attributes and their Spark SQL types, in order: name -> (the key's node, type)."""

    expects: str = "a mapping from attributes to Spark SQL types"

    def read(self, node: Node, findings: Findings) -> dict[str, tuple[Scalar, str]] | Bad:
        if type(node) is not Map or not node.entries:
            return refuse(self, node, findings)
        types: dict[str, tuple[Scalar, str]] = {}
        cut = False
        for text, (key, value) in node.entries.items():
            if cut and type(value) is Scalar and not value.text:
                continue
            findings.key = ""
            if ATTRIBUTE_NAME.read(key, findings) is BAD:
                continue
            findings.key = text
            spark_type = _TYPE.read(value, findings)
            if isinstance(spark_type, Bad):
                continue
            types[text] = (key, spark_type)
            if not _balanced(spark_type):
                cut = True
                message = f"the brackets of `{shorten(spark_type)}` do not match"
                findings.add_value("BLZ013", message, value.mark, _QUOTE_THE_TYPE)
            elif (unknown := unknown_type(spark_type)) is not None:
                near = findings.suggest(unknown.lower(), TYPES)
                message = f"Spark SQL has no type `{shorten(unknown)}`{near}"
                findings.add_value("BLZ053", message, value.mark)
            elif (bounded := bounded_text(spark_type)) is not None:
                message = f"a stream has no column of type `{bounded}`, only a table"
                findings.add_value("BLZ053", message, value.mark, "Write STRING.")
        return types

    def schema(self) -> Json:
        return {"type": "object", "additionalProperties": _TYPE.schema(), "minProperties": 1}


_TYPE: Final = Text("a Spark SQL type")
_QUOTE_THE_TYPE: Final = 'Inside of { } a comma ends a value; quote the type: "decimal(10,2)"'


def _balanced(text: str) -> bool:
    return all(text.count(left) == text.count(right) for left, right in ("()", "<>", "[]"))
