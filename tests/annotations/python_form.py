"""A dataflow file as a Python module that says the same, each part in the line of the file.

Statements, keywords and items stand in the lines in which the YAML text has them, so that what is
reported of one form is to be reported of the other, line by line.
"""

from __future__ import annotations

import keyword
import re

import yaml

from annotations.diagnostics import Findings
from annotations.file.keys import COMPONENT, DATAFLOW, STREAM
from annotations.file.python_declarations import KEYWORDS
from annotations.file.shapes import misread
from annotations.positions import List, Map, Node, Scalar, read_tree


class Unlike(Exception):  # noqa: N818
    """Python cannot say what the file says, or says it otherwise."""


def python_form(text: str) -> str:
    """The module; `Unlike` where the file is no mapping of components and streams."""
    findings = Findings("<string>", text)
    root = read_tree(text, findings)
    if findings.sorted() or not isinstance(root, Map) or "components" not in root.entries:
        raise Unlike
    known = {*DATAFLOW.keys, "x-anchors"}
    if "streams" not in root.entries or not root.entries.keys() <= known:
        raise Unlike
    module = _Module()
    module.put(0, "import blazes; ")
    whole = {key: root.entries[key] for key in ("name", "fds", "deployment") if key in root.entries}
    sections = [("component", "components"), ("stream", "streams")]
    parts = [(root.key_mark(key).line, kind, key) for kind, key in sections]
    parts += [(min(key.mark.line for key, _ in whole.values()), "", "")] if whole else []
    for _, kind, section in sorted(parts):
        if not kind:
            entries = dict(whole)
            module.call("dataflow", [], entries)
            continue
        node = root.entries[section][1]
        if not isinstance(node, Map):
            raise Unlike
        for name, value in node.entries.values():
            if name.plain and misread(name.text):
                raise Unlike
            if not isinstance(value, Map) or re.fullmatch(r"\w+(-\w+)*", name.text) is None:
                raise Unlike
            known = COMPONENT.keys if kind == "component" else STREAM.keys
            if not value.entries.keys() - known.keys() <= _misspelt(kind, value):
                raise Unlike
            module.call(kind, [name], value.entries)
        if not node.entries:
            raise Unlike
    return module.text()


def _misspelt(kind: str, value: Map) -> set[str]:
    """Keys that neither form has."""
    return {key for key in value.entries if key not in {*KEYWORDS[kind], "name", "from"}}


class _Module:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, line: int, text: str) -> None:
        """Text in a line of the file; what stood in an earlier one is behind us."""
        if line < len(self.lines) - 1:
            raise Unlike  # an alias: the file says it elsewhere
        self.lines += [""] * (line + 1 - len(self.lines))
        self.lines[line] += text

    def add(self, text: str) -> None:
        self.lines[-1] += text

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def call(
        self, kind: str, positional: list[Scalar], entries: dict[str, tuple[Scalar, Node]]
    ) -> None:
        first = positional[0].mark.line if positional else min(
            key.mark.line for key, _ in entries.values())  # fmt: skip
        self.put(first, f"blazes.{kind}(")
        for name in positional:
            self.add(f"{name.text!r}, ")
        for text, (key, value) in entries.items():
            word = "from_" if (kind, text) == ("stream", "from") else text
            plain = word.isidentifier() and not keyword.iskeyword(word)
            self.put(key.mark.line, f"{word}=" if plain else f"**{{{word!r}: ")
            self.value(value)
            self.add(", " if plain else "}, ")
        self.add("); ")

    def value(self, node: Node) -> None:
        line = node.mark.line
        match node:
            case Scalar():
                literal = _literal(node)
                self.put(line, literal)
            case List(items=items):
                self.put(line if not items else items[0].mark.line, "[")
                for item in items:
                    self.value(item)
                    self.add(", ")
                self.add("]")
            case Map(entries=entries):
                begin = min((key.mark.line for key, _ in entries.values()), default=line)
                self.put(begin, "{")
                for key, value in entries.values():
                    self.put(key.mark.line, f"{_literal(key)}: ")
                    self.value(value)
                    self.add(", ")
                self.add("}")


def _literal(node: Scalar) -> str:
    """The word as Python writes it; `Unlike` where YAML reads it as something else than it is."""
    if not node.plain:
        return repr(node.text)
    if node.text in ("<<", "="):
        raise Unlike
    if node.text and misread(node.text) and node.text.lower() not in ("true", "false"):
        number = yaml.safe_load(node.text)
        if not isinstance(number, int | float) or repr(number) != node.text:
            raise Unlike
    value = yaml.safe_load(node.text) if node.text else None
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, bool) and node.text.lower() in ("true", "false"):
        return repr(value)
    if isinstance(value, int | float) and repr(value) == node.text:
        return repr(value)
    raise Unlike
