"""Values that are written down in a Python module, as nodes that know where they stand.

A module that declares a dataflow is read and not run. A value is known where the syntax tree says
it: literals, names that the module binds once, f-strings, sums, comprehensions, methods of texts.
Anything else is `NotConstant`, with its place.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from annotations.diagnostics import Findings
from annotations.positions import UNPRINTABLE, List, Map, Node, Scalar

TEXT_MAX: Final = 2**20
"""Letters or items of a value that is worked out."""
STEPS_MAX: Final = 100_000
"""Expressions that are worked out of one module."""
_OPENING: Final = re.compile(r"[A-Za-z]{0,2}(\"\"\"|'''|\"|')")
_TEXT_METHODS: Final = frozenset(
    {"capitalize", "format", "join", "lower", "lstrip", "removeprefix", "removesuffix", "replace"}
    | {"rstrip", "split", "splitlines", "strip", "title", "upper"}
)
_CHANGING: Final = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"}
    | {"reverse", "setdefault", "sort", "update"}
)
"""Methods that change a list, a set or a dictionary."""
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "dict": dict,
    "enumerate": lambda *values: list(enumerate(*values)),
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "set": set,
    "sorted": sorted,
    "str": str,
    "textwrap.dedent": textwrap.dedent,
    "dedent": textwrap.dedent,
    "tuple": tuple,
    "zip": lambda *values: list(zip(*values, strict=False)),
}


class Mark(NamedTuple):
    """A place in a text; `index` counts its characters, as `line` and `column` do from 0."""

    line: int
    column: int
    index: int  # type: ignore[assignment]


class NotConstant(Exception):  # noqa: N818
    """An expression whose value only running the module would tell."""

    def __init__(self, node: ast.expr, reason: str = "") -> None:
        self.node = node
        shown = " ".join(ast.unparse(node).split())
        self.reason = reason or f"`{shown[:60]}` is not known without running the module"
        super().__init__(self.reason)


class Values:
    """The values that a module writes down.

    Args:
        tree: of the module.
        text: of the module.
        findings: gets keys that stand twice in a dictionary, and characters that no name has.
        module: its name, for references to its functions.
    """

    def __init__(self, tree: ast.Module, text: str, findings: Findings, module: str) -> None:
        self._findings = findings
        self._module = module
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._text = text
        self.bound = _bound(tree)
        """Name -> the expression or function that it always stands for."""
        self._steps = 0

    # ---- places

    def mark(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> Mark:
        """The place of a node; of a text in quotes, that of its last opening quote."""
        mark = self._mark(node.lineno, node.col_offset)
        if isinstance(node, ast.Constant | ast.JoinedStr):
            opening = _OPENING.match(self._text, mark.index)
            if opening is not None:
                more = opening.end() - 1 - mark.index
                mark = Mark(mark.line, mark.column + more, mark.index + more)
        return mark

    def name_mark(self, node: ast.FunctionDef) -> Mark:
        """The place of a function's name."""
        begin = self._mark(node.lineno, node.col_offset)
        more = len("def ")
        return Mark(begin.line, begin.column + more, begin.index + more)

    def _mark(self, line: int, offset: int) -> Mark:
        text = self._lines[line - 1]
        column = offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))
        return Mark(line - 1, column, self._starts[line - 1] + column)

    # ---- nodes

    def node(self, expression: ast.expr) -> Node:
        """The value of an expression as a node; `NotConstant` where it has none that is known."""
        self._step(expression)
        mark = self.mark(expression)
        match expression:
            case ast.Constant(value=value):
                return self._of_value(value, mark, expression)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                sequence = List(mark)
                for item in items:
                    if isinstance(item, ast.Starred):
                        inner = self.node(item.value)
                        if not isinstance(inner, List):
                            raise NotConstant(item.value)
                        sequence.items += inner.items
                    else:
                        sequence.items.append(self.node(item))
                return sequence
            case ast.Dict(keys=keys, values=values):
                mapping = Map(mark)
                for key, item in zip(keys, values, strict=True):
                    if key is None:
                        self._merge(mapping, item)
                    else:
                        self._enter(mapping, key, self.node(item))
                return mapping
            case ast.Name(id=name) if isinstance(self.bound.get(name), ast.FunctionDef):
                return Scalar(f"{self._module}:{name}", mark)
            case ast.Name(id=name) if isinstance(bound := self.bound.get(name), ast.expr):
                return self.node(bound)
        return self._of_value(self.value(expression), mark, expression)

    def _merge(self, mapping: Map, value: ast.expr) -> None:
        inner = self.node(value)
        if not isinstance(inner, Map):
            raise NotConstant(value)
        mapping.entries |= inner.entries

    def _enter(self, mapping: Map, key: ast.expr, value: Node) -> None:
        named = self.node(key)
        if not isinstance(named, Scalar):
            raise NotConstant(key)
        if named.text in mapping.entries:
            first = self._findings.position(mapping.key_mark(named.text))
            message = f"a second `{named.text}`; the first is in line {first.line}"
            self._findings.add("BLZ006", message, named.mark)
        mapping.entries[named.text] = (named, value)

    def _of_value(self, value: Any, mark: Mark, expression: ast.expr) -> Node:
        match value:
            case None:
                return Scalar("", mark, plain=True)
            case bool():
                return Scalar(str(value).lower(), mark, plain=True)
            case int() | float():
                return Scalar(repr(value), mark, plain=True)
            case str():
                if bad := UNPRINTABLE.search(value):
                    character = f"U+{ord(bad.group()):04X}"
                    message = f"the text contains the character {character}"
                    self._findings.add("BLZ001", message, mark, "Remove the character.")
                return Scalar(value, mark)
            case list() | tuple() | set() | frozenset():
                sequence = List(mark)
                items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
                sequence.items += [self._of_value(item, mark, expression) for item in items]
                return sequence
            case dict():
                mapping = Map(mark)
                for key, item in value.items():
                    name = Scalar(str(key), mark)
                    mapping.entries[name.text] = (name, self._of_value(item, mark, expression))
                return mapping
        raise NotConstant(expression)

    # ---- values that have to be worked out

    def _step(self, expression: ast.expr) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise NotConstant(expression, "the module takes too long to be read")

    def value(self, expression: ast.expr, local: Mapping[str, Any] | None = None) -> Any:
        """The value of an expression; `local` has the names of comprehensions around it."""
        self._step(expression)
        try:
            value = self._value(expression, local or {})
        except NotConstant:
            raise
        except Exception as error:
            raise NotConstant(expression, f"{type(error).__name__}: {error}") from None
        if isinstance(value, str | list | tuple | dict | set) and len(value) > TEXT_MAX:
            raise NotConstant(expression, "the value is too long")
        return value

    def _value(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in local:
                return local[name]
            case ast.Name(id=name) if isinstance(bound := self.bound.get(name), ast.expr):
                return self.value(bound)
            case ast.List() | ast.Tuple() | ast.Set():
                items = list(self._items(node.elts, local))
                return tuple(items) if isinstance(node, ast.Tuple) else items
            case ast.Dict(keys=keys, values=values):
                pairs: dict[Any, Any] = {}
                for key, value in zip(keys, values, strict=True):
                    if key is None:
                        pairs |= self.value(value, local)
                    else:
                        pairs[self.value(key, local)] = self.value(value, local)
                return pairs
            case ast.JoinedStr(values=parts):
                return "".join(str(self._part(part, local)) for part in parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.value(left, local) + self.value(right, local)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.value(left, local) - self.value(right, local)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.value(left, local) | self.value(right, local)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand, local)
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return self.value(value, local)[self.value(index, local)]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return [self.value(node.elt, inner) for inner in self._each(node.generators, local)]
            case ast.DictComp():
                return {
                    self.value(node.key, inner): self.value(node.value, inner)
                    for inner in self._each(node.generators, local)
                }
            case ast.Call():
                return self._called(node, local)
        raise NotConstant(node)

    def _items(self, items: list[ast.expr], local: Mapping[str, Any]) -> Iterator[Any]:
        for item in items:
            if isinstance(item, ast.Starred):
                yield from self.value(item.value, local)
            else:
                yield self.value(item, local)

    def _part(self, part: ast.expr, local: Mapping[str, Any]) -> Any:
        if isinstance(part, ast.FormattedValue):
            if part.format_spec is not None or part.conversion not in (-1, ord("s")):
                raise NotConstant(part)
            return self.value(part.value, local)
        return self.value(part, local)

    def _each(
        self, generators: list[ast.comprehension], local: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """The names that each turn of a comprehension has."""
        if not generators:
            yield local
            return
        first, *others = generators
        if first.ifs or first.is_async:
            raise NotConstant(first.iter)
        for item in self.value(first.iter, local):
            yield from self._each(others, {**local, **_unpacked(first.target, item)})

    def _called(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        arguments = list(self._items(node.args, local))
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                named |= self.value(keyword.value, local)
            else:
                named[keyword.arg] = self.value(keyword.value, local)
        name = ast.unparse(node.func)
        if name == "range" and not named:
            numbers = range(*arguments)
            if len(numbers) > TEXT_MAX:
                raise NotConstant(node, "the range is too long")
            return list(numbers)
        if name in _FUNCTIONS and name not in self.bound:
            return _FUNCTIONS[name](*arguments, **named)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS:
            text = self.value(node.func.value, local)
            if isinstance(text, str) and _plain(text, node.func.attr):
                return getattr(text, node.func.attr)(*arguments, **named)
        raise NotConstant(node)


def _plain(text: str, method: str) -> bool:
    """False for a template that reaches into values, or pads them."""
    return method != "format" or re.search(r"\{[^{}]*[.\[!:]", text) is None


def _unpacked(target: ast.expr, value: Any) -> dict[str, Any]:
    match target:
        case ast.Name(id=name):
            return {name: value}
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            names: dict[str, Any] = {}
            for inner, item in zip(targets, value, strict=True):
                names |= _unpacked(inner, item)
            return names
    raise NotConstant(target)


def _bound(tree: ast.Module) -> dict[str, ast.expr | ast.FunctionDef]:
    """The names that one statement of the module binds, and that nothing changes."""
    bound: dict[str, ast.expr | ast.FunctionDef] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                bound |= {target.id: value for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                bound[name] = value
            case ast.FunctionDef(name=name):
                bound[name] = statement
    stored = Counter(_stored(tree.body))
    changed = set(_changed(tree))
    while more := {
        value.id
        for name, value in bound.items()
        if name in changed and isinstance(value, ast.Name) and value.id not in changed
    }:
        changed |= more
    return {
        name: value for name, value in bound.items() if stored[name] == 1 and name not in changed
    }


def _stored(body: Sequence[ast.AST]) -> Iterator[str]:
    """The names that statements bind in their own scope, each time."""
    todo = list(body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                yield from (
                    name
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Global)
                    for name in inner.names
                )
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                continue
            case ast.GeneratorExp():
                continue
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
        todo += ast.iter_child_nodes(node)


def _changed(tree: ast.Module) -> Iterator[str]:
    """The names whose values something in the module changes in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                if method in _CHANGING:
                    yield name
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name
