"""What the text of a function that Spark calls for each record shows: that its result is left to
chance, or depends on records before it or on how records are divided into batches.

A scalar function is taken at its word, that it depends on its arguments alone. Its text may say
otherwise: it asks the clock, draws at random, asks a service, or changes what it keeps. Functions
of the same module that it calls are looked through, too. What the text does not show is not found.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.program import program
from annotations.whitebox.datatypes import UNKNOWN, DataType
from annotations.whitebox.python_chance import (
    CHANCE,
    GIVEN,
    NAMED,
    imported_names,
    reason_of,
    reason_of_call,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHANGING: Final = _words(
    """
    add append appendleft clear discard extend insert pop popitem popleft remove reverse
    setdefault sort subtract update
    """
)
_HOLDERS: Final = _words(
    """
    Counter OrderedDict defaultdict deque dict list set
    """
)
_WHOLE: Final = _words(
    """
    argmax argmin argsort autocorr bfill corr count cov cummax cummin cumprod cumsum describe
    diff drop_duplicates duplicated ewm expanding factorize ffill fit fit_transform head
    idxmax idxmin iloc interpolate kurt max mean median min mode nlargest nsmallest nunique
    pct_change prod qcut quantile rank rolling sample sem shift skew sort_index sort_values
    std sum tail unique value_counts var
    accumulate average convolve empty gradient iat nanmean nanmedian nanstd nansum percentile ptp
    reduce roll shape size sort
    """
)
"""Members of Series, DataFrames and NumPy whose result depends on all rows of a batch."""
_OF_ALL: Final = _words("all any enumerate len max min reversed set sorted sum")
"""Functions of Python of which that is true, given a Series or a DataFrame."""

_UNSEEN: Final = _words("__import__ eval exec id importlib")
"""Functions, and a module, by which anything may be asked."""
_ENDING: Final = _words("_exit exit stop")
_WRITING: Final = _words(
    "append csv execute insertInto jdbc json merge orc overwrite overwritePartitions parquet save "
    "saveAsTable sql text"
)
_STATE: Final = re.compile(r"\.get(Value|List|Map)State\(")

_Definition: TypeAlias = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Shown:
    """What the text of a function shows: a word of the text for each, empty where it does not."""

    chance: str = ""
    kept: str = ""
    batch: str = ""
    lost: str = ""
    """What passes over a failure of what it calls."""


@dataclass(frozen=True)
class Chance:
    """A value that is another one each time."""

    text: str
    """What gives it."""

    @classmethod
    def of(cls, value: object) -> Chance | None:
        """What a value which is not known stands for, where it, or a part of it, is that."""
        if isinstance(value, list | tuple | set):
            return next(filter(None, map(cls.of, value)), None)
        if isinstance(value, dict):
            return cls.of([*value.values()])
        found = _CALLED.search(value) if isinstance(value, str) and "$" in value else None
        return None if found is None else cls(found[1])


_CALLED: Final = re.compile(
    r"\$((?:" + "|".join(map(re.escape, sorted(CHANCE))) + r")(?:\.\w+)*(?=\()|"
    r"(?:" + "|".join(map(re.escape, (*GIVEN, *NAMED))) + r")(?=\(\)))"
)
"""A call in the text of what is not known; of some functions one whose arguments are left out."""


def by_chance(at: Position | None, type_: DataType = UNKNOWN) -> ir.Expression:
    """A value that is another one each time."""
    return ir.Call("udf.chance", (), type_, True, at)


def left_to_chance(plan: ir.Relation) -> ir.Relation:
    """The plan with what it is in the places of texts that stand for values by chance."""

    def value(literal: ir.Literal) -> ir.Expression:
        found = Chance.of(literal.value)
        return literal if found is None else by_chance(literal.position, literal.type)

    def unknown(part: ir.Unknown) -> ir.Expression:
        return part if Chance.of(part.reason) is None else replace(part, calls=True)

    return ir.changed(ir.changed(plan, ir.Literal, value), ir.Unknown, unknown)


def shown(function: Any) -> Shown:
    """What the text of a function of the user shows; nothing where it has none."""
    processor = getattr(getattr(function, "__self__", None), "_stateful_processor", None)
    if processor is not None:
        return _shown_processor(processor)
    if several := getattr(function, "chosen_from", ()):
        each = [shown(one) for one in several]
        return Shown(*("".join([getattr(one, f.name) for one in each if getattr(one, f.name)][:1])
                       for f in fields(Shown)))  # fmt: skip
    while hasattr(function, "__wrapped__") or isinstance(function, functools.partial):
        function = getattr(function, "__wrapped__", getattr(function, "func", None))
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__  # an object that can be called
    code = getattr(function, "__code__", None)
    file = Path(getattr(code, "co_filename", "") or "<")
    if code is None or not file.is_file():
        return Shown()
    try:
        module = _module(file)
    except (ValueError, SyntaxError):
        return Shown()
    lambdas = code.co_name == "<lambda>"
    found = [
        node
        for node in module.definitions
        if isinstance(node, ast.Lambda) == lambdas and _first_line(node) == code.co_firstlineno
    ]
    texts = [module.looked_at(node) for node in found]
    return next((text for text in texts if text != Shown()), Shown())


def _shown_processor(processor: Any) -> Shown:
    """What the text of a StatefulProcessor shows; `kind`: it is of a script that is not run."""
    kind = getattr(processor, "kind", None)
    if kind is not None:
        return shown_class(Path(kind.file), kind.name)
    members = chain.from_iterable(vars(each).values() for each in type(processor).__mro__)
    codes = (getattr(member, "__code__", None) for member in members)
    file = next((Path(code.co_filename) for code in codes if code is not None), Path("<"))
    return shown_class(file, type(processor).__name__)


def shown_class(file: Path, name: str) -> Shown:
    """What the text of a StatefulProcessor shows, by its class or by a function that makes it."""
    try:
        module = _module(file)
    except (OSError, ValueError, SyntaxError):
        return Shown()
    return module.of_class(name)


def chances(text: str) -> list[str]:
    """The calls in a module, outside of its functions, whose results are not the same each time.

    >>> chances("from time import time as now\\nstart = now()\\ndef late(): return now()")
    ['now()']
    """
    tree = ast.parse(text)
    module, found = _Module(tree), dict[str, None]()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Call) and module.asks(node):
            found[ast.unparse(node)[:60]] = None
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return list(found)


@functools.cache
def _module(file: Path) -> _Module:
    return _Module(ast.parse(program(file)))


@dataclass
class _Module:
    """The text of a module."""

    tree: ast.Module
    definitions: list[_Definition] = field(init=False)
    imported: dict[str, str] = field(init=False)
    """Name -> what it is called in the module that it comes from."""
    values: dict[str, ast.expr] = field(init=False)
    """Name -> what it is set to, outside of the functions that are looked at or around them."""

    def __post_init__(self) -> None:
        nodes = list(ast.walk(self.tree))
        self.definitions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.Lambda)]
        self.imported, self.values = imported_names(self.tree), {}
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values.setdefault(name, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.values.setdefault(name, value)

    def looked_at(self, node: _Definition, seen: frozenset[int] = frozenset()) -> Shown:
        """What a function shows, and those of the module that it calls."""
        own = Shown(self._chance(node), self._kept(node), self._batch(node), self._lost(node))
        functions = {d.name: d for d in self.definitions if isinstance(d, ast.FunctionDef)}
        for name in {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}:
            called = functions.get(name)
            if called is None or called is node or id(called) in seen:
                continue
            other = self.looked_at(called, seen | {id(node)})
            whole = other.batch if name in self._given_all(node) else ""
            own = Shown(
                own.chance or other.chance,
                own.kept or other.kept,
                own.batch or whole,
                own.lost or other.lost,
            )
        return own

    def of_class(self, name: str) -> Shown:
        """What the methods of a class and of its bases show, or a function that gives an object.

        Members that `init` gets from the handle are state, which Spark keeps.
        """
        classes = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef)}
        todo, methods = [name], dict[int, ast.FunctionDef]()
        seen = set[str]()
        functions = {d.name: d for d in self.definitions if isinstance(d, ast.FunctionDef)}
        while todo:
            known = todo.pop(0)
            node = classes.get(known) or functions.get(known)
            if node is None or known in seen:
                continue
            seen.add(known)
            is_class = isinstance(node, ast.ClassDef)
            within = node.bases if isinstance(node, ast.ClassDef) else ast.walk(node)
            todo += [n.id for n in within if isinstance(n, ast.Name) and n.id in classes]
            parts = node.body if is_class else [node]
            methods |= {id(part): part for part in parts if isinstance(part, ast.FunctionDef)}
        found = Shown()
        first = [each for each in methods.values() if each.name in ("init", "__init__")]
        state = {
            ast.unparse(target)
            for part in first
            for assigned in ast.walk(part)
            if isinstance(assigned, ast.Assign) and _STATE.search(ast.unparse(assigned.value))
            for target in assigned.targets
        }
        for method in methods.values():
            own = self.looked_at(method)
            kept = "" if method in first else self._kept(method, state)
            found = Shown(found.chance or own.chance, found.kept or kept)
        return found

    def _chance(self, node: _Definition) -> str:
        own, nodes = _own(node), list(ast.walk(node))
        owners = {id(inner.value) for inner in nodes if isinstance(inner, ast.Attribute)}
        for inner in nodes:
            if isinstance(inner, ast.Call) and (
                _root(inner.func) in _UNSEEN or self.asks(inner, conditional=True)
            ):
                return ast.unparse(inner)[:60]
            if not isinstance(inner, ast.Attribute | ast.Name) or id(inner) in owners:
                continue
            name = self._called(inner)
            if (
                reason_of(name) is not None
                and name not in GIVEN
                and not self._given(inner)
                and _root(inner) not in own
            ):
                return ast.unparse(inner)[:60]
        return ""

    def asks(self, node: ast.Call, *, conditional: bool = False) -> bool:
        """Whether a call depends on something beside its arguments; `conditional`: whether they
        decide that it does."""
        name = self._called(node.func)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        texts = [each.value if isinstance(each, ast.Constant) else None for each in arguments]
        if conditional and name not in GIVEN and name not in NAMED:
            return False
        return reason_of_call(name, texts) is not None

    def _given(self, node: ast.AST) -> bool:
        """Whether it is a member of what is made there of arguments alone."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Call) or self._called(node.func) not in GIVEN:
            return False
        return bool(node.args or node.keywords)

    def _called(self, node: ast.expr, depth: int = 0) -> str:
        """What a function is called in the module that it comes from."""
        match node:
            case ast.Attribute(value=owner, attr=name):
                return f"{self._called(owner, depth)}.{name}"
            case ast.Name(id=name) if name in self.imported:
                return self.imported[name]
            case ast.Name(id=name) if name in self.values and depth < 5:
                return self._called(self.values[name], depth + 1)
            case ast.Call(func=function):
                return self._called(function, depth)
        return ""

    def _kept(self, node: _Definition, state: Collection[str] = ()) -> str:
        own = _own(node)
        shared = {n for inner in ast.walk(node) if isinstance(inner, ast.Global | ast.Nonlocal)
                  for n in inner.names}  # fmt: skip
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in shared:
                    if not _once(node, name, own):
                        return name
                case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store()):
                    root = _root(inner)
                    if root and root not in own:
                        return ast.unparse(inner)[:60]
                case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CHANGING:
                    if self._holds(owner, own) and ast.unparse(owner) not in state:
                        return ast.unparse(owner)[:60]
                case ast.Call(func=ast.Name(id="globals" | "setattr")):
                    return ast.unparse(inner)[:60]
                case ast.Call(func=ast.Name(id="next"), args=[ast.Name(id=name), *_]):
                    if name not in own:
                        return name
        return ""

    def _holds(self, node: ast.expr, own: Mapping[str, Any]) -> bool:
        """Whether an expression is a list or the like that is there before the function is."""
        root = _root(node)
        if not root or root in own:
            return False
        value = self.values.get(root)
        if isinstance(node, ast.Attribute) or root not in self.values:
            return root == "self" or root not in self.imported
        holders = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
        name = self._called(value).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        plain = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id
        return isinstance(value, holders) or name in _HOLDERS or plain in _HOLDERS

    def _batch(self, node: _Definition) -> str:
        """What a function of pandas does with all rows of a batch."""
        for inner in _outer(node):
            if not isinstance(inner, ast.Attribute) or inner.attr not in _WHOLE:
                continue
            owner = inner.value
            if isinstance(owner, ast.Attribute) and owner.attr in ("str", "dt", "cat", "list"):
                continue
            calls = (c for c in _calls(node) if c.func is inner)
            if not any(k.arg == "axis" and _by_record(k.value) for c in calls for k in c.keywords):
                return ast.unparse(inner)[:60]
        if whole := self._of_all(node):
            return whole
        body = node.body if isinstance(node, ast.FunctionDef) else []
        assigned = [part for part in body if isinstance(part, ast.Assign)]
        before = {name for part in assigned for name in _stored(part)}
        loops = [inner for inner in _outer(node) if isinstance(inner, ast.For)]
        return next((name for loop in loops for name in _stored(loop) if name in before), "")

    def _lost(self, node: _Definition) -> str:
        """What lets a function go on where a write of it has failed."""
        for inner in ast.walk(node):
            match inner:
                case ast.Try(body=body, handlers=handlers) if _members(*body) & _WRITING:
                    for handler in handlers:
                        raises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
                        if not raises and not _members(handler) & (_WRITING | _ENDING):
                            return (
                                f"except {ast.unparse(handler.type)}" if handler.type else "except"
                            )
                case ast.Call(func=function) if self._called(function) == "threading.Thread":
                    return "threading.Thread"
                case ast.Call(func=ast.Attribute(attr="submit")) if not _members(node) & {"result"}:
                    return ast.unparse(inner.func)[:60]
        return ""

    def _given_all(self, node: _Definition) -> set[str]:
        """The functions that are called with all rows of a batch."""
        batches = _batches(node)
        calls = [inner for inner in _outer(node) if isinstance(inner, ast.Call)]
        return {_root(call.func) for call in calls if batches & {*map(_root, call.args)}}

    def _of_all(self, node: _Definition) -> str:
        """What Python asks of all rows of a batch, or of one at some place."""
        batches = _batches(node)
        times = [inner for inner in _outer(node) if isinstance(inner, ast.BinOp)]
        as_long = {id(t.right) for t in times if isinstance(t.left, ast.List)}
        for inner in _outer(node):
            match inner:
                case ast.Call(func=ast.Name(id=name), args=[asked, *_]) if name in _OF_ALL:
                    if _root(asked) in batches and id(inner) not in as_long:
                        return ast.unparse(inner)[:60]
                case ast.Subscript(value=ast.Name(id=name), slice=place) if name in batches:
                    if isinstance(place, ast.Slice) or _is_number(place):
                        return ast.unparse(inner)[:60]
        return ""


def _batches(node: _Definition) -> set[str]:
    """The names of what a function of pandas is given, one after the other or at once."""
    loops = [inner.target for inner in _outer(node) if isinstance(inner, ast.For)]
    return {each.arg for each in node.args.args} | {n for loop in loops for n in _stored(loop)}


def _members(*nodes: ast.AST) -> set[str]:
    """The names of all members, and of functions that are called."""
    inner = [part for node in nodes for part in ast.walk(node)]
    called = [part.func for part in inner if isinstance(part, ast.Call)]
    names = {part.id for part in called if isinstance(part, ast.Name)}
    return names | {part.attr for part in inner if isinstance(part, ast.Attribute)}


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _stored(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def _by_record(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (1, "columns")


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _outer(node: _Definition) -> Iterator[ast.AST]:
    """The parts of a function that lie in no function inside of it."""
    todo: list[ast.AST] = [*node.body] if isinstance(node, ast.FunctionDef) else [node.body]
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(inner)


def _own(node: _Definition) -> dict[str, None]:
    """The names that are new with every call: not `self`, nor a parameter with a list or the like
    by default, nor what is set for all calls."""
    args = node.args
    placed = [*args.posonlyargs, *args.args]
    named = [*placed, *args.kwonlyargs]
    defaults = {
        a.arg: default
        for a, default in (
            *zip(reversed(placed), reversed(args.defaults), strict=False),
            *zip(args.kwonlyargs, args.kw_defaults, strict=True),
        )
    }
    own = {a.arg for a in (*named, args.vararg, args.kwarg) if a is not None}
    own -= {
        n for n, d in defaults.items() if isinstance(d, ast.List | ast.Dict | ast.Set | ast.Call)
    }
    own -= {"self"}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            own.add(inner.id)
        elif isinstance(inner, ast.arg) and inner not in named:
            own.add(inner.arg)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Global | ast.Nonlocal):
            own -= set(inner.names)
    return dict.fromkeys(own)


def _once(node: _Definition, name: str, own: Mapping[str, Any]) -> bool:
    """Whether a name is set only where it is `None`, and to what no call decides."""
    allowed: set[ast.AST] = set()
    for test in (inner for inner in ast.walk(node) if isinstance(inner, ast.If)):
        if ast.unparse(test.test) not in (f"{name} is None", f"not {name}"):
            continue
        for statement in test.body:
            if isinstance(statement, ast.Assign):
                read = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
                if not read & own.keys():
                    allowed |= set(statement.targets)
    stores = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name
              and not isinstance(n.ctx, ast.Load)]  # fmt: skip
    return all(store in allowed for store in stores)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _first_line(node: _Definition) -> int:
    return min([int(node.lineno), *(int(d.lineno) for d in getattr(node, "decorator_list", ()))])


SHOWN: Final[dict[bytes, Shown]] = {}
"""What stands for a function in a plan -> what its text shows."""


def shown_of(function: Any) -> Shown:
    """What the text of a function in a plan shows."""
    return SHOWN.get(function.python_udf.command, Shown())
