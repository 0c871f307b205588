"""YAML text as a tree of nodes that know where they stand.

libyaml reads the events (pure Python where it is missing), and a loop without recursion makes the
tree, so that no input can exhaust the stack. Keys that occur twice, tags, aliases that multiply or
contain themselves, second documents and `<<` merges are dealt with here; what words mean is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from annotations.diagnostics import Findings, Mark
from annotations.syntax_errors import report_syntax

DEPTH_MAX: Final = 64
"""Levels of nesting. A dataflow needs about eight."""
ALIASED_MAX: Final = 100_000
"""Nodes that aliases may repeat, beside one for every four characters of the file."""
SHOWN_MAX: Final = 40
"""Characters of the file's text in a message."""

_HARMLESS_TAGS: Final = {"!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq"))}
UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]"
)


class Place(NamedTuple):
    """A place that no parser gave: inside a text, or at the start of a file."""

    line: int
    column: int


START: Final = Place(0, 0)


class Scalar:
    """A word of the file; `plain` where it stands without quotes, so that YAML may misread it."""

    __slots__ = ("mark", "plain", "text")

    def __init__(self, text: str, mark: Mark, plain: bool = False) -> None:
        self.text = text
        self.mark = mark
        self.plain = plain

    def __repr__(self) -> str:
        return f"Scalar({self.text!r})"


class List:
    """A sequence."""

    __slots__ = ("items", "mark")

    def __init__(self, mark: Mark) -> None:
        self.items: list[Node] = []
        self.mark = mark


class Map:
    """A mapping: key -> (the key's own node, value), in the order of the file, merges applied."""

    __slots__ = ("entries", "mark", "merge")

    def __init__(self, mark: Mark) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.mark = mark
        self.merge: Node | None = None
        """The value of `<<`."""

    def key_mark(self, key: str) -> Mark:
        """Where the key stands; the mapping itself where it lacks the key."""
        entry = self.entries.get(key)
        return self.mark if entry is None else entry[0].mark

    def value_mark(self, key: str) -> Mark:
        """Where the key's value stands; the mapping itself where it lacks the key."""
        entry = self.entries.get(key)
        return self.mark if entry is None else entry[1].mark


Node: TypeAlias = Scalar | List | Map
_NO_KEY: Final = Scalar("", START)
"""Stands for a key that is no word."""
_SPECIAL_KEYS: Final = ("", "<<")


def read_tree(text: str, findings: Findings) -> Node | None:
    """The only document of `text`; None where there is none, with the reason in `findings`."""
    text = text.removeprefix("\ufeff")
    if bad := UNPRINTABLE.search(text):
        character = f"U+{ord(bad.group()):04X}"
        place = place_at(text, bad.start())
        remedy = "Remove the character; a YAML file is printable text."
        findings.add("BLZ001", f"the file contains the character {character}", place, remedy)
        return None
    parser = (yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)(text)
    try:
        root = _Builder(findings, ALIASED_MAX + len(text) // 4).build(parser.get_event)
    except _Stop:
        return None
    except yaml.MarkedYAMLError as error:
        report_syntax(error, text, findings)
        return None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        findings.add("BLZ002", f"this is not YAML: {str(error).splitlines()[0]}", START)
        return None
    finally:
        parser.dispose()
    if root is None or (isinstance(root, Scalar) and root.plain and not root.text):
        findings.add("BLZ003", "the file is empty", START)
        return None
    return root


def place_at(text: str, index: int) -> Place:
    """The place of the character number `index` of `text`."""
    return Place(text.count("\n", 0, index), index - (text.rfind("\n", 0, index) + 1))


def place_inside(node: Scalar, offset: int, text: str) -> Mark:
    """The place of the character number `offset` of the scalar in the file's `text`.

    The scalar's own place where its characters are not those of the file: folded lines, escapes.
    """
    begin: int = getattr(node.mark, "index", -1)
    for quotes in (0, 1):
        if begin >= 0 and text.startswith(node.text, begin + quotes) and "\n" not in node.text:
            return Place(node.mark.line, node.mark.column + quotes + offset)
    return node.mark


class _Stop(Exception):  # noqa: N818
    """The rest of the file cannot be read; the reason has been noted."""


class _Builder:
    """Makes the tree out of events."""

    def __init__(self, findings: Findings, aliased_max: int) -> None:
        self.findings = findings
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[List | Map, Scalar | None]] = []
        """What is being read, outermost first, each with the key that waits for its value."""
        self.aliased_left = aliased_max
        self.sizes: dict[int, int] = {}
        self.documents = 0

    def build(self, next_event: Callable[[], Any]) -> Node | None:
        """The root of the only document. The loop knows every event; nothing recurses."""
        root: Node | None = None
        parent: List | Map | None = None
        key: Scalar | None = None
        node: Node
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                node = Scalar(event.value, event.start_mark, not event.style)
                if event.tag is not None:
                    node.plain &= self.tag(event)
                if event.anchor is not None:
                    self.anchors[event.anchor] = node
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if parent is not None:
                    self.open.append((parent, key))
                parent, key = self.start(event, kind), None
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                assert parent is not None
                node = parent
                if type(node) is Map and node.merge is not None:
                    self.merge(node, node.merge)
                parent, key = self.open.pop() if self.open else (None, None)
            elif kind is yaml.AliasEvent:
                node = self.alias(event, parent)
            else:
                if kind is yaml.DocumentStartEvent:
                    self.document(event)
                continue
            if parent is None:
                root = node
            elif isinstance(parent, List):
                parent.items.append(node)
            elif key is None:
                key = node if type(node) is Scalar else self.no_key(node)
            else:
                entries = parent.entries
                if key.text in entries or key.text in _SPECIAL_KEYS:
                    self.special_entry(parent, key, node)
                else:
                    entries[key.text] = (key, node)
                key = None
        return root

    def document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            message = "a second document begins here"
            self.findings.add("BLZ004", message, event.start_mark)
            raise _Stop

    def start(self, event: Any, kind: type) -> List | Map:
        node = Map(event.start_mark) if kind is yaml.MappingStartEvent else List(event.start_mark)
        if len(self.open) >= DEPTH_MAX:
            message = f"the nesting is deeper than {DEPTH_MAX} levels"
            self.findings.add("BLZ005", message, node.mark)
            raise _Stop
        if event.tag is not None:
            self.tag(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def tag(self, event: Any) -> bool:
        """False for a tag that only says what the node is anyhow, or that a word is a string."""
        if event.tag in _HARMLESS_TAGS:
            return False
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        self.findings.add("BLZ008", f"the tag `{tag}` is not known here", event.start_mark)
        return True

    def no_key(self, node: Node) -> Scalar:
        self.findings.add("BLZ011", f"a key is a word, not {describe(node)}", node.mark)
        return _NO_KEY

    def special_entry(self, parent: Map, key: Scalar, value: Node) -> None:
        """Merges, duplicates, and what stands beside a key that is no word."""
        if key is _NO_KEY:
            return
        if key.text == "<<" and key.plain:
            if parent.merge is None:
                parent.merge = value
            else:
                remedy = "Merge several mappings with one key: `<<: [*one, *two]`."
                self.findings.add("BLZ006", "a second `<<`", key.mark, remedy)
        elif key.text in parent.entries:
            first = self.findings.position(parent.key_mark(key.text))
            message = f"a second `{key.text}`; the first is in line {first.line}"
            self.findings.add("BLZ006", message, key.mark)
        else:
            parent.entries[key.text] = (key, value)

    def alias(self, event: Any, parent: List | Map | None) -> Node:
        """The node that the alias stands for, if it is complete and repeats no more than may be."""
        node = self.anchors.get(event.anchor)
        if node is None:
            message = f"the alias `*{event.anchor}` has no anchor before it"
            remedy = f"Write `&{event.anchor}` before the value that it stands for."
            self.findings.add("BLZ002", message, event.start_mark, remedy)
            raise _Stop
        if node is parent or any(node is outer for outer, _ in self.open):
            message = f"the alias `*{event.anchor}` stands inside of what it names"
            self.findings.add("BLZ005", message, event.start_mark)
            raise _Stop
        self.aliased_left -= self.size(node)
        if self.aliased_left < 0:
            message = f"the alias `*{event.anchor}` repeats too much"
            self.findings.add("BLZ005", message, event.start_mark)
            raise _Stop
        return node

    def size(self, node: Node) -> int:
        """How many nodes an alias to `node` repeats; counted no further than what is left."""
        if type(node) is Scalar:
            return 1
        if id(node) not in self.sizes:
            count, todo = 0, [node]
            while todo and count <= self.aliased_left:
                inner = todo.pop()
                count += 1
                if type(inner) is List:
                    todo.extend(inner.items)
                elif type(inner) is Map:
                    todo.extend(value for _, value in inner.entries.values())
            self.sizes[id(node)] = count
        return self.sizes[id(node)]

    def merge(self, node: Map, value: Node) -> None:
        """Add the keys of `<<` that the mapping lacks; of several mappings the first wins."""
        merged = value.items if type(value) is List else [value]
        for item in merged:
            if type(item) is Map:
                for key, entry in item.entries.items():
                    node.entries.setdefault(key, entry)
            else:
                message = f"`<<` merges mappings, not {describe(item)}"
                self.findings.add("BLZ009", message, item.mark)


def describe(node: Node) -> str:
    """The node in words, for messages."""
    if type(node) is List:
        return "a list" if node.items else "an empty list"
    if type(node) is Map:
        return "a mapping" if node.entries else "an empty mapping"
    assert type(node) is Scalar
    if node.plain and not node.text:
        return "nothing"
    return f"`{shorten(node.text)}`"


def shorten(text: str) -> str:
    """The text on one line of bounded length, for messages."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else line[: SHOWN_MAX - 3] + "..."
