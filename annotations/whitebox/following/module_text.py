"""The text of a module of the user: its functions, classes and names, as a tree of its syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from annotations.whitebox.python_chance import imported_names

Named: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Named | ast.Lambda


@dataclass
class ModuleText:
    """The text of a module."""

    tree: ast.Module
    folder: Path = Path("/nowhere")
    """What modules of the user are beside it."""
    definitions: list[Definition] = field(init=False)
    imported: dict[str, str] = field(init=False)
    """Name -> what it is called in the module that it comes from."""
    values: dict[str, ast.expr] = field(init=False)
    """Name -> what it is set to, outside of the functions that are looked at or around them."""
    later: dict[str, list[ast.expr]] = field(init=False)
    """Name -> what else it, an item or a member of it is set to."""
    functions: dict[str, Named] = field(init=False)
    classes: dict[str, ast.ClassDef] = field(init=False)

    def __post_init__(self) -> None:
        nodes = list(ast.walk(self.tree))
        self.definitions = [n for n in nodes if isinstance(n, Definition)]
        self.functions = {d.name: d for d in self.definitions if isinstance(d, Named)}
        self.classes = {n.name: n for n in nodes if isinstance(n, ast.ClassDef)}
        self.imported, self.values, self.later = imported_names(self.tree), {}, {}
        for node in nodes:
            match node:
                case ast.Assign(targets=targets, value=value) if all(
                    isinstance(target, ast.Name | ast.Tuple) for target in targets
                ):
                    for name, part in (pair for target in targets for pair in pairs(target, value)):
                        if self.values.setdefault(name, part) is not part:
                            self.later.setdefault(name, []).append(part)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.values.setdefault(name, value)
                case ast.Assign(targets=[ast.Subscript() | ast.Attribute() as part], value=value):
                    self.later.setdefault(root_of(part), []).append(value)

    def called(self, node: ast.expr, depth: int = 0) -> str:
        """The name of a function in the module that it comes from."""
        match node:
            case ast.Attribute(value=owner, attr=name):
                known = self.called(owner, depth)
                return f"{known}.{name}" if known else ""
            case ast.Name(id=name) if name in self.imported:
                return self.imported[name]
            case ast.Name(id=name) if name in self.values and depth < 5:
                return self.called(self.values[name], depth + 1)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]
            ):
                return f"{self.called(owner, depth)}.{name}"
            case ast.Call(func=function):
                return self.called(function, depth)
        return ""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def names_in(node: ast.AST) -> set[str]:
    """All names in an expression."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def attributes(*nodes: ast.AST) -> set[str]:
    """The names of all members that are looked at."""
    inner = (part for node in nodes for part in ast.walk(node))
    return {part.attr for part in inner if isinstance(part, ast.Attribute)}


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that a target sets, each with what it is set to."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    parts = target.elts if isinstance(target, ast.Tuple) else []
    given = value.elts if isinstance(value, ast.Tuple) else []
    several = given if len(given) == len(parts) else [value] * len(parts)
    for part, item in zip(parts, several, strict=True):
        yield from pairs(part, item)


def stored(node: ast.AST) -> Iterator[str]:
    """The names that are set."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """All calls, also those of functions inside."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def outer(node: Definition) -> Iterator[ast.AST]:
    """The parts of a function that lie in no function inside of it."""
    todo: list[ast.AST] = [*node.body] if isinstance(node, Named) else [node.body]
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, Definition):
            todo += ast.iter_child_nodes(inner)


def root_of(node: ast.AST) -> str:
    """The name that an expression begins with, also behind calls of methods."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def yields(node: Definition) -> bool:
    """Whether a function is a generator."""
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in outer(node))
