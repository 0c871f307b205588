"""Shapes of structures: lists, mappings from names, and records with known keys."""

# ruff: noqa: D102  (the protocol `Shape` documents the methods of every shape)

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from annotations.dataflow import EMPTY
from annotations.diagnostics import Findings
from annotations.file.shapes import BAD, Bad, Json, Name, Pairs, Shape, refuse
from annotations.positions import List, Map, Node, Scalar, shorten


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list with at least one item, or, where `one` is set, an item that stands alone.

    An item that could not be read is `BAD` in the list, so that one can see that it is there.
    """

    item: Shape
    expects: str
    one: bool = False
    empty: bool = False

    def read(self, node: Node, findings: Findings) -> list[Any] | Bad:
        if type(node) is List and (node.items or self.empty):
            return [self.item.read(item, findings) for item in node.items]
        no_item = type(node) is Scalar and isinstance(self.item, Record)
        if type(node) is List or not self.one or no_item:
            return refuse(self, node, findings)
        return [self.item.read(node, findings)]

    def schema(self) -> Json:
        some = {} if self.empty else {"minItems": 1}
        items: Json = {"type": "array", "items": self.item.schema(), **some}
        return {"anyOf": [self.item.schema(), items]} if self.one else items


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping from names to values: name -> (the key's node, value or `BAD`)."""

    key: Name
    value: Shape
    expects: str
    empty: bool = False

    def read(self, node: Node, findings: Findings) -> Pairs | Bad:
        if type(node) is not Map or not (node.entries or self.empty):
            nothing = type(node) is Scalar and not node.text
            return refuse(self, node, findings, "Indent the lines that belong to it." * nothing)
        values: Pairs = {}
        for text, (key, value) in node.entries.items():
            findings.key = ""
            named = self.key.read(key, findings) is not BAD
            findings.key = text
            read = self.value.read(value, findings)
            if named:
                values[text] = (key, read)
        return values

    def schema(self) -> Json:
        some = {} if self.empty else {"minProperties": 1}
        return {"type": "object", "additionalProperties": self.value.schema(), **some}


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a record: the shape of its value and what it means."""

    shape: Shape
    description: str
    required: bool = False


class Fields:
    """The values of a record by key, as far as they could be read, and where they stand."""

    __slots__ = ("broken", "node", "values")

    def __init__(self, node: Map) -> None:
        self.node = node
        self.values: dict[str, Any] = {}
        self.broken = False
        """True where something in it, at any depth, is an error."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of the key; `default` where it is absent or could not be read."""
        return self.values.get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self.values


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys."""

    name: str
    """What it is called in messages, with its article, and in the schema without."""
    keys: Mapping[str, Entry]
    description: str
    extensions: bool = False
    """Whether keys that begin with `x-` may hold anything: a place for anchors."""
    elsewhere: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Keys of other records that people write here -> where they belong."""
    required: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        required = tuple(key for key, entry in self.keys.items() if entry.required)
        object.__setattr__(self, "required", required)

    @property
    def expects(self) -> str:
        return f"{self.name} (a mapping)"

    def read(self, node: Node, findings: Findings) -> Fields | Bad:
        if type(node) is not Map:
            return refuse(self, node, findings)
        before = findings.errors
        unknown: list[tuple[Scalar, str]] = []
        fields = Fields(node)
        cut = ""
        for text, (key, value_node) in node.entries.items():
            entry = self.keys.get(text)
            if entry is None:
                empty = isinstance(value_node, Scalar) and not value_node.text
                unknown.append((key, cut if empty else ""))
                continue
            cut = findings.key = text
            value = entry.shape.read(value_node, findings)
            if value is not BAD:
                fields.values[text] = value
        if unknown:
            self._report_unknown(unknown, findings)
        for text in self.required:
            if text not in node.entries and findings.errors == before:
                findings.add("BLZ012", f"{self.name} needs the key `{text}`", node.mark)
        fields.broken = findings.errors != before
        return fields

    def _report_unknown(self, keys: list[tuple[Scalar, str]], findings: Findings) -> None:
        """One finding for each key, but one for all that belong to the same other place.

        Args:
            keys: and, where a key has no value, the known key before it: in braces, YAML cuts text
                without quotes at a comma.
            findings: what is wrong.
        """
        places: set[str] = set()
        for key, cut in keys:
            if self.extensions and key.text.startswith("x-"):
                continue
            near, remedy = "", self.elsewhere.get(key.text)
            if cut and " " in key.text:
                near = f"; is it the rest of `{cut}`?"
                remedy = f"Put the value of `{cut}` in quotes: a comma ends a value without them."
            elif remedy is None:
                near = findings.suggest(key.text, self.keys)
                remedy = f"The keys of {self.name} are {', '.join(self.keys)}."
            elif remedy in places:
                continue
            else:
                places.add(remedy)
            message = f"unknown key `{shorten(key.text)}` in {self.name}{near}"
            findings.add("BLZ010", message, key.mark, remedy)

    def schema(self) -> Json:
        return {"$ref": f"#/definitions/{self.definition_name}"}

    @property
    def definition_name(self) -> str:
        """The name under which the schema defines it."""
        return self.name.split(" ", 1)[1].replace(" ", "-")

    def definition(self) -> Json:
        """The schema that `schema` refers to."""
        required = {"required": list(self.required)} if self.required else {}
        extensions: Json = {"patternProperties": {"^x-": {}}} if self.extensions else {}
        return {
            "type": "object",
            "description": self.description,
            "properties": {key: described(entry) for key, entry in self.keys.items()},
            **extensions,
            "additionalProperties": False,
            **required,
        }


def described(entry: Entry) -> Json:
    """The schema of a key's value with the key's description."""
    schema = entry.shape.schema()
    inner = {"allOf": [schema]} if "$ref" in schema else schema
    return {"description": entry.description, **inner}


@dataclass(frozen=True, slots=True)
class OneOf:
    """Several shapes, of which a look at the node decides; the last one takes what is left."""

    cases: tuple[tuple[Callable[[Node], bool], Shape], ...]
    expects: str

    def read(self, node: Node, findings: Findings) -> Any:
        for fits, shape in self.cases:
            if fits(node):
                return shape.read(node, findings)
        return refuse(self, node, findings)

    def schema(self) -> Json:
        return {"anyOf": [shape.schema() for _, shape in self.cases]}


def is_scalar(node: Node) -> bool:
    """True for a word."""
    return type(node) is Scalar


def is_list(node: Node) -> bool:
    """True for a list."""
    return type(node) is List


def is_map(node: Node) -> bool:
    """True for a mapping."""
    return type(node) is Map
