"""The places in a function of a micro-batch that let the code go on where a write has failed."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from annotations.whitebox.following.module_text import (
    Definition,
    ModuleText,
    attributes,
    calls,
    root_of,
    words,
)
from annotations.whitebox.python_chance import alone

_ENDING: Final = words("_exit exit stop")
_WRITING: Final = words(
    "append csv execute insertInto jdbc json merge orc overwrite overwritePartitions parquet save "
    "saveAsTable sql text"
)
_BESIDE: Final = words("multiprocessing.Process threading.Thread threading.Timer")
_LATER: Final = words(
    """
    apply_async create_task ensure_future map_async run_coroutine_threadsafe run_in_executor submit
    """
)
"""Methods that let something run beside a function."""
_AWAITING: Final = words("gather get result run run_until_complete wait wait_for")
"""Methods that raise what it has raised."""


def lost(module: ModuleText, node: Definition) -> str:
    """The part of a function that lets it go on where a write of it has failed."""
    tried_again = {id(item) for item in _tried_again(node)}
    for inner in (part for part in ast.walk(node) if id(part) not in tried_again):
        match inner:
            case ast.Try(finalbody=body) if any(
                isinstance(part, ast.Return) for statement in body for part in ast.walk(statement)
            ):
                return "finally: return"
            case ast.Try(body=body, handlers=handlers) if _may_write(module, node, *body):
                tried = set(_written(*body))
                for handler in handlers:
                    again = tried & {*_written(handler)}
                    raises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
                    if not raises and not again and not _members(handler) & _ENDING:
                        return f"except {ast.unparse(handler.type)}" if handler.type else "except"
            case ast.With(items=items, body=body) if _may_write(module, node, *body):
                passing = next(filter(None, (_passes_over(module, item) for item in items)), "")
                if passing:
                    return passing
            case ast.Call(func=function) if module.called(function) in _BESIDE:
                return module.called(function)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _LATER:
                if not _members(node) & _AWAITING:
                    return ast.unparse(inner.func)[:60]
    return ""


def _may_write(module: ModuleText, function: Definition, *parts: ast.AST, depth: int = 3) -> bool:
    """Whether parts of a function write, or call what may: what it is given or holds, and
    other functions of the user that do, or that are in other files."""
    if _members(*parts) & _WRITING:
        return True
    known = {*module.functions, *module.classes, *module.imported, *dir(builtins)}
    for call in (call for part in parts for call in calls(part)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if isinstance(call.func, ast.Name) and name not in known:
            return True
        other = module.functions.get(name)
        given = any(isinstance(argument, ast.Name) for argument in call.args)
        if other is not None and depth and other is not function:
            writes = _may_write(module, other, *other.body, depth=depth - 1)
        else:
            called = module.called(call.func)
            writes = bool(called) and given and alone(called) is None
        if writes:
            return True
    return False


def _passes_over(module: ModuleText, item: ast.withitem) -> str:
    """The name in a `with` that lets the code behind it go on where an error is met."""
    context = item.context_expr
    if module.called(context) == "contextlib.suppress":
        return "contextlib.suppress"
    name = root_of(context.func) if isinstance(context, ast.Call) else root_of(context)
    made_by = module.values.get(name)
    kind = module.classes.get(name) or module.classes.get(
        root_of(made_by.func) if isinstance(made_by, ast.Call) else ""
    )
    if kind is not None:
        ends = [part for part in kind.body if getattr(part, "name", "") == "__exit__"]
        results = [r.value for end in ends for r in ast.walk(end) if isinstance(r, ast.Return)]
        passes = [v for v in results if v is not None and ast.unparse(v) not in ("None", "False")]
        return f"{name}.__exit__" if passes else ""
    function = module.functions.get(name)
    for part in ast.walk(function) if function is not None else ():
        if isinstance(part, ast.Try) and any(
            isinstance(inner, ast.Yield) for statement in part.body for inner in ast.walk(statement)
        ):
            for handler in part.handlers:
                if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                    return name
    return ""


def _tried_again(node: ast.AST) -> Iterator[ast.Try]:
    """The tries of a loop that ends with an error where none of them has come to its end."""
    for block in (getattr(part, "body", None) for part in ast.walk(node)):
        for loop, behind in pairwise(block) if isinstance(block, list) else ():
            raises = isinstance(behind, ast.Raise)
            for part in loop.body if raises and isinstance(loop, ast.For | ast.While) else ():
                done = [*(part.orelse or part.body)][-1] if isinstance(part, ast.Try) else None
                if isinstance(part, ast.Try) and isinstance(done, ast.Return):
                    yield part


def _members(*nodes: ast.AST) -> set[str]:
    """The names of all members, and of functions that are called."""
    inner = [part for node in nodes for part in ast.walk(node)]
    called = [part.func for part in inner if isinstance(part, ast.Call)]
    names = {part.id for part in called if isinstance(part, ast.Name)}
    return names | attributes(*nodes)


def _written(*nodes: ast.AST) -> Iterator[str]:
    """The calls that write, or that may, as they stand there."""
    for call in (call for node in nodes for call in calls(node)):
        if getattr(call.func, "attr", "") in _WRITING or isinstance(call.func, ast.Name):
            yield ast.unparse(call)
