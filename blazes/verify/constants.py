"""Constants in a component's code: inputs near them reach what random ones never would."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blazes.verify.operators import Operator

NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'")
MANY_MAX: Final = 2000
"""Up to here a number may be how often a record has to come; above, inputs would be too large."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Numbers and texts that the code compares with."""

    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """How often a record may come for a threshold to be met, just, or just not."""
        near = (n + by for n in self.numbers if 2 < n <= MANY_MAX for by in (-1, 0, 1))
        return tuple(dict.fromkeys(near))


def constants_of(operator: Operator) -> Constants:
    """The constants in an output's SQL text, or in the file of its Python function."""
    code = operator.code
    if code is None:
        return Constants()
    if code.sql is not None:
        return in_sql(code.sql)
    assert code.python is not None
    module, _, function = code.python.partition(":")
    file = operator.folder.joinpath(*module.split(".")).with_suffix(".py")
    return in_python(file, function) if file.is_file() else Constants()


def in_sql(text: str) -> Constants:
    """The constants of a query.

    >>> in_sql("SELECT a FROM t WHERE kind = 'x' GROUP BY a HAVING count(*) < 100")
    Constants(numbers=(100,), texts=('x',))
    """
    texts = QUOTED.findall(text)
    numbers = map(int, NUMBER.findall(QUOTED.sub("''", text)))
    return Constants(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(texts)))


def in_python(file: Path, function: str) -> Constants:
    """The constants that a function reaches: its numbers, and what is quoted inside its texts."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return Constants()
    numbers: list[int] = []
    texts: list[str] = []
    for node in reached(tree, function):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int) and not isinstance(node.value, bool):
                numbers.append(node.value)
            elif isinstance(node.value, str):
                texts += QUOTED.findall(node.value)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts += [
                s.value for s in sides if isinstance(s, ast.Constant) and s.value == str(s.value)
            ]
    return Constants(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(texts)))


def reached(tree: ast.Module, function: str) -> Iterator[ast.AST]:
    """The nodes of a function and of the module's names that it uses; docstrings left out."""
    defined: dict[str, ast.AST] = {}
    for top in tree.body:
        match top:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined[name] = top
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                defined[name] = top
    todo: list[ast.AST] = [defined.get(function, tree)]
    for start in todo:
        stack: list[ast.AST] = [start]
        while stack:
            node = stack.pop()
            yield node
            used = defined.get(node.id) if isinstance(node, ast.Name) else None
            if used is not None and used not in todo:
                todo.append(used)
            stack += [
                child
                for child in ast.iter_child_nodes(node)
                if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))
            ][::-1]
