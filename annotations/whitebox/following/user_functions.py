"""Findings in the text of a function that Spark calls for each record: that its result is left to
chance, or depends on records before it or on how records are divided into batches.

Of Python's own library, pandas and NumPy, what depends on its arguments alone, and treats each
record by itself, is listed (`python_chance`, `batches`): everything else of them does not. What
other modules do is taken for granted, and said, as is what a name was set to outside of the
function. Functions and classes of the user that it calls are looked through, too, also in the files
beside it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import operator
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MethodType
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.datatypes import UNKNOWN, DataType
from annotations.whitebox.derivation import SETTINGS
from annotations.whitebox.following import outside
from annotations.whitebox.following.batches import (
    batches_of,
    given_all,
    made_of,
    methods_given_all,
    whole_batch,
)
from annotations.whitebox.following.classes import Class, Object
from annotations.whitebox.following.failures import lost
from annotations.whitebox.following.frame_loops import maps_records
from annotations.whitebox.following.module_text import (
    Definition,
    ModuleText,
    Named,
    attributes,
    calls,
    root_of,
    words,
    yields,
)
from annotations.whitebox.following.program import Unparsed, module_file, tree_of
from annotations.whitebox.python_chance import (
    GIVEN,
    NAMED,
    READING,
    Chance,
    alone,
    placed,
    reason_of,
    reason_of_call,
)

CHANGING: Final = words(
    """
    __delitem__ __iadd__ __ior__ __next__ __setattr__ __setitem__ add append appendleft clear
    difference_update discard extend extendleft insert intersection_update move_to_end pop
    popitem popleft put remove reverse rotate send setdefault sort subtract
    symmetric_difference_update update
    """
)
_CHANGING_FIRST: Final = words(
    """
    bisect.insort bisect.insort_left bisect.insort_right heapq.heapify heapq.heappop
    heapq.heappush heapq.heappushpop heapq.heapreplace numpy.add.at numpy.copyto numpy.place
    numpy.put numpy.putmask operator.delitem operator.iadd operator.setitem random.shuffle
    """
)
"""Functions that change their first argument."""
_HOLDERS: Final = words("Counter OrderedDict defaultdict deque dict list set")
_ITERATING: Final = words("iter enumerate filter map open reversed zip")
_ITERATORS: Final = words("itertools.chain itertools.count itertools.cycle itertools.repeat")
"""Functions whose values are used up."""
_ORDERING: Final = words("enumerate iter join list map next str repr tuple zip")
"""Functions for which the order of a set matters."""
_READING: Final = re.compile(
    r"\bopen\(|\.(collect\w*|first|head|read|read_\w+|take\w*|toPandas|toLocalIterator|load\w*)\("
    r"|\bspark\.(read|sql|table)\b"
)
"""A text that reads what is somewhere now."""

LOOKED_MAX: Final = 500
"""Functions that are looked through for one, each as often as it is called from another one."""
_LOOKED: Final[list[Definition]] = []
"""Those of the function at hand."""
_UNSEEN: Final = words("__import__ eval exec importlib")
"""Functions, and a module, by which anything may be asked."""
_STATE: Final = re.compile(r"\.get(Value|List|Map)State\(")


@dataclass(frozen=True)
class Shown:
    """Signs in the text of a function: a word of the text for each, empty where there is none."""

    chance: str = ""
    kept: str = ""
    batch: str = ""
    lost: str = ""
    """What passes over a failure of what it calls."""
    rests_on: str = ""
    """What it is taken for granted of: that it stays the same, and depends on its arguments."""
    by_record: bool = False
    """Whether it maps and filters each record of whole frames by itself, by nothing but columns."""

    def __or__(self, other: Shown) -> Shown:
        """Signs in either."""
        rests = [*self.rests_on.split(", "), *other.rests_on.split(", ")]
        return Shown(
            self.chance or other.chance,
            self.kept or other.kept,
            self.batch or other.batch,
            self.lost or other.lost,
            ", ".join(dict.fromkeys(filter(None, rests))),
        )


def by_chance(at: Position | None, type_: DataType = UNKNOWN) -> ir.Expression:
    """A value that is another one each time."""
    return ir.Call("udf.chance", (), type_, True, at)


def left_to_chance(plan: ir.Relation, *, in_batch: bool = False) -> ir.Relation:
    """The plan with what it is in the places of texts that stand for values by chance. `in_batch`:
    a function of `foreachBatch` makes it, which reads files anew."""

    def drawn(text: object) -> bool:
        chance = Chance.of(text)
        if chance is not None and chance.of_file and not in_batch:
            outside.note(f"{SETTINGS} what `{chance.text}` reads stay as they are")
            return False
        return chance is not None

    def value(literal: ir.Literal) -> ir.Expression:
        return by_chance(literal.position, literal.type) if drawn(literal.value) else literal

    def unknown(part: ir.Unknown) -> ir.Expression:
        return replace(part, calls=True) if drawn(part.reason) else part

    return ir.changed(ir.changed(plan, ir.Literal, value), ir.Unknown, unknown)


def shown(function: Any, met: frozenset[int] = frozenset()) -> Shown:
    """Signs in the text of a function of the user, and in what it holds when it is handed over;
    none where it has no text."""
    processor = getattr(getattr(function, "__self__", None), "_stateful_processor", None)
    if processor is not None:
        return _shown_processor(processor)
    if not met:
        _LOOKED.clear()
    met |= {id(function)}
    if several := getattr(function, "chosen_from", ()):
        return functools.reduce(operator.or_, (shown(value, met) for value in several))
    given, holding, plain = 0, [*_held(function)], function
    while hasattr(function, "__wrapped__") or isinstance(function, functools.partial):
        first = getattr(function, "parts", (0, getattr(function, "args", ())))[1]
        given += len(first)
        function = getattr(function, "__wrapped__", getattr(function, "func", None))
        holding += _held(function)
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__  # an object that can be called
    code = getattr(function, "__code__", None)
    file = Path(getattr(code, "co_filename", "") or "<")
    if code is None or not file.is_file():
        return Shown()
    try:
        module = _module(file)
    except (ValueError, Unparsed):
        return Shown()
    lambdas = code.co_name == "<lambda>"
    nodes = [
        node
        for node in module.definitions
        if isinstance(node, ast.Lambda) == lambdas and _first_line(node) == code.co_firstlineno
    ]
    results = [
        module.looked_at(n, held=frozenset(a.arg for a in n.args.args[:given])) for n in nodes
    ]
    takers = {name for n in nodes for name in given_all(module, n)}
    used = attributes(*nodes)
    for name, value in holding:
        other = _shown_value(value, used, met)
        results.append(other if name in takers else replace(other, batch=""))
    by_record = function is plain and bool(nodes) and all(maps_records(module, n) for n in nodes)
    return replace(functools.reduce(operator.or_, results, Shown()), by_record=by_record)


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function holds when it is handed over, by their names there: of the
    functions around it, the object that it is a method of, arguments that it was given before,
    and defaults."""
    if isinstance(function, type | str | Class):
        return
    yield from (("", value) for value in getattr(function, "args", ()))
    yield from (getattr(function, "keywords", None) or {}).items()
    _, first, named = getattr(function, "parts", ((), (), {}))
    yield from (*(("", value) for value in first), *named.items())
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Object):
        yield from owner.names.items()
    elif isinstance(function, MethodType):
        yield from getattr(owner, "__dict__", {}).items()
    inner = getattr(function, "__func__", function)
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # it is not set yet
            yield name, cell.cell_contents
    if not hasattr(type(inner), "scope"):
        return
    yield from inner.given.items()
    scope, node = inner.scope, inner.node
    while scope is not None and node is not None:
        for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
            value = scope.names.get(name)
            nested = (
                hasattr(type(value), "scope") and getattr(value.scope, "outer", None) is not None
            )
            if scope.outer is not None or nested or isinstance(value, dict | list):
                yield name, value
        scope = scope.outer


def _shown_value(value: Any, used: Collection[str], met: frozenset[int]) -> Shown:
    """Signs in a value that a function holds, of which it uses these members."""
    inside: list[Any] = []
    result = Shown()
    if isinstance(value, str):
        chance = Chance.of(value)
        asked = value[1:] if value[:1] == "$" and "." in value else ""
        if chance is not None and chance.of_file:
            return Shown(rests_on=chance.text)
        return Shown(chance.text if chance else asked if reason_of(asked) else "")
    if id(value) in met:
        return result
    met |= {id(value)}
    if isinstance(value, dict | list | tuple | set):
        inside = [*(value.values() if isinstance(value, dict) else value)]
    elif isinstance(value, Object):
        inside = [*value.names.values()]
        result = shown_class(value.kind.file, value.kind.name, used)
        used = {*used, *attributes(value.kind.node)}
    elif callable(value) and not type(value).__module__.startswith("pyspark"):
        return shown(value, met)
    return functools.reduce(operator.or_, (_shown_value(v, used, met) for v in inside), result)


def _shown_processor(processor: Any) -> Shown:
    """Signs in the text of a StatefulProcessor; `kind`: it is of a script that is not run."""
    kind = getattr(processor, "kind", None)
    if kind is not None:
        return shown_class(Path(kind.file), kind.name)
    members = chain.from_iterable(vars(base).values() for base in type(processor).__mro__)
    codes = (getattr(member, "__code__", None) for member in members)
    file = next((Path(code.co_filename) for code in codes if code is not None), Path("<"))
    return shown_class(file, type(processor).__name__)


def shown_class(file: Path, name: str, used: Collection[str] | None = None) -> Shown:
    """Signs in the text of a StatefulProcessor, by its class or by a function that makes it; of
    another class, of the methods that are `used`, and of what these use."""
    try:
        module = _module(file)
    except (OSError, ValueError, Unparsed):
        return Shown()
    if used is None:
        _LOOKED.clear()
    return module.of_class(name, used=used)


def chances(tree: ast.Module) -> list[str]:
    """The calls in a module, outside of its functions, whose results are not the same each time.

    >>> tree = ast.parse("from time import time as now\\nstart = now()\\ndef late(): return now()")
    >>> chances(tree)
    ['now()']
    """
    module, texts = _Module(tree), dict[str, None]()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Call) and module.asks(node):
            texts[ast.unparse(node)[:60]] = None
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return list(texts)


@functools.cache
def _module(file: Path) -> _Module:
    return _Module(tree_of(file), file.parent)


class _Module(ModuleText):
    """The text of a module, looked through."""

    def looked_at(
        self,
        node: Definition,
        seen: frozenset[int] = frozenset(),
        held: frozenset[str] = frozenset(),
    ) -> Shown:
        """Signs in a function, and in what it calls: functions and classes of the user. `held`:
        parameters that are there before it is called."""
        _LOOKED.append(node)
        if len(_LOOKED) > LOOKED_MAX:
            return Shown(kept="more code than is looked through")
        chance, rests = self._chance(node)
        change = self._kept(node, held=held)
        batch = "" if chance else whole_batch(self, node)
        shown = Shown(chance, change, batch, lost(self, node), ", ".join(rests))
        seen |= {id(node)}
        own = self._own(node)
        for name in dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            called, kind = self.functions.get(name), self.classes.get(name)
            value = None if name in own else self.values.get(name)
            if called is not None and id(called) not in seen:
                passed = self._passed(node, called, own, held)
                all_rows = name in given_all(self, node)
                other = self.looked_at(called, seen, passed)
                shown |= other if all_rows else replace(other, batch="")
            elif kind is not None and id(kind) not in seen:
                shown |= self._methods(kind, seen, shared=False)
            elif name in self.imported and name not in own:
                all_rows = name in given_all(self, node)
                shown |= self._beside(self.imported[name], seen, all_rows=all_rows)
            elif value is not None and id(value) not in seen:
                shown |= self.set_to(name, seen)
        modules = self.imported.keys() - own.keys()
        members = {
            f"{self.imported[part.value.id]}.{part.attr}": None
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part.value.id in modules
        }
        for member in members:
            all_rows = member.rpartition(".")[2] in methods_given_all(self, node)
            shown |= self._beside(member, seen, all_rows=all_rows)
        return shown

    def _passed(
        self, node: Definition, called: Definition, own: Collection[str], held: Collection[str]
    ) -> frozenset[str]:
        """The parameters of a function that are given what is there before this one is called."""
        named = getattr(called, "name", "")
        names = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
        given = [c for c in calls(node) if isinstance(c.func, ast.Name) and c.func.id == named]
        pairs = [pair for call in given for pair in zip(names, call.args, strict=False)]
        pairs += [(k.arg, k.value) for call in given for k in call.keywords if k.arg]
        return frozenset(
            name
            for name, value in pairs
            if root_of(value) in held or (root_of(value) and self._holds(value, own))
        )

    def set_to(self, name: str, seen: frozenset[int]) -> Shown:
        """Signs in the value of a name that is set outside of a function."""
        shown, value = Shown(), self.values[name]
        if isinstance(value, ast.Lambda):
            return replace(self.looked_at(value, seen), batch="")
        for item in (value, *self.later.get(name, ())):
            shown |= self._set_to(name, item, seen | {id(value)})
        return shown

    def _set_to(self, name: str, value: ast.expr, seen: frozenset[int]) -> Shown:
        """Signs in a value that a name has outside of a function."""
        inner_calls = [*calls(value)]
        kinds = [self.classes[c.func.id] for c in inner_calls
                 if isinstance(c.func, ast.Name) and c.func.id in self.classes]  # fmt: skip
        shown = Shown()
        for kind in kinds:
            shown |= self._methods(kind, seen, shared=True)
        for other in (self._beside(self.called(c.func), seen) for c in inner_calls):
            shown |= Shown(chance=other.chance, rests_on=other.rests_on)
        names = {c.func.id for c in inner_calls if isinstance(c.func, ast.Name)}
        for called in (self.functions[n] for n in names if n in self.functions):
            if id(called) not in seen:
                own = self.looked_at(called, seen | {id(value)})
                shown |= Shown(chance=own.chance, rests_on=own.rests_on)
                if yields(called):
                    shown |= Shown(kept=name)
        for inner in ast.walk(value):
            before = self.values.get(inner.id) if isinstance(inner, ast.Name) else None
            if before is not None and id(before) not in seen | {id(value)}:
                shown |= self._set_to(ast.unparse(inner), before, seen | {id(value)})
        plain = value.func if isinstance(value, ast.Call) else None
        word = self.called(plain) or getattr(plain, "id", "") if plain is not None else ""
        iterates = word in _ITERATING and word not in self.functions
        partial = word == "functools.partial" and any(
            self.called(c) in _ITERATORS for c in inner_calls[1:]
        )
        if isinstance(value, ast.GeneratorExp) or iterates or partial or word in _ITERATORS:
            return shown | (Shown(rests_on=name) if word == "open" else Shown(kept=name))
        chance, rests = self._chance(ast.Lambda(_NO_ARGUMENTS, value), repeated=False)
        return shown | Shown(chance, rests_on=", ".join([name, *rests][: 1 if rests else 0]))

    def _methods(self, kind: ast.ClassDef, seen: frozenset[int], *, shared: bool) -> Shown:
        """Signs in the methods of a class. `shared`: of an object that is there before."""
        shown = Shown()
        parts = [part for part in kind.body if isinstance(part, Named)]
        for part in kind.body:
            if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
                shown |= replace(self._set_to(kind.name, part.value, seen), kept="")
        for part in parts:
            if id(part) not in seen:
                result = self.looked_at(part, seen | {id(kind), *map(id, parts)})
                own = frozenset[str]() if shared and part.name != "__init__" else {"self"}
                shown |= replace(result, kept=self._kept(part, new=own), batch="", lost="")
        return shown

    def _beside(self, name: str, seen: frozenset[int], *, all_rows: bool = False) -> Shown:
        """Signs in a function of another file of the user, or in a class. `all_rows`: it is given
        all rows of a batch."""
        other, member = self._other(name)
        if other is None:
            return Shown(rests_on=name if member else "")
        function, kind = other.functions.get(member), other.classes.get(member)
        if function is not None and id(function) not in seen:
            shown = other.looked_at(function, seen)
            return shown if all_rows else replace(shown, batch="")
        if function is None and kind is not None and id(kind) not in seen:
            return other.of_class(member, seen | {id(kind)})
        place = hash((id(other), member))
        if function is None and kind is None and place not in seen:
            if member in other.imported:
                return other._beside(other.imported[member], seen | {place}, all_rows=all_rows)
            if member in other.values:
                return other.set_to(member, seen | {place})
        return Shown()

    def _other(self, name: str) -> tuple[_Module | None, str]:
        """The file of the user that a name comes from, and the name there: empty where there is no
        such file."""
        plain = name.lstrip(".")
        module, _, member = plain.rpartition(".")
        file = module_file(module, self.folder / "module.py", level=len(name) - len(plain))
        if file is None:
            return None, ""
        try:
            return _module(file), member
        except (Unparsed, ValueError, OSError):
            return None, member

    def of_class(
        self,
        name: str,
        seen: frozenset[int] = frozenset(),
        used: Collection[str] | None = None,
    ) -> Shown:
        """Signs in the methods of a class and of its bases, or in a function that gives an object;
        with `used`, in those that are named there or in one another.

        Members that `init` gets from the handle are state, which Spark keeps.
        """
        classes, functions = self.classes, self.functions
        todo, methods = [name], dict[int, ast.FunctionDef]()
        met = set[str]()
        while todo:
            known = todo.pop(0)
            node = classes.get(known) or functions.get(known)
            if node is None or known in met:
                continue
            met.add(known)
            is_class = isinstance(node, ast.ClassDef)
            within = node.bases if isinstance(node, ast.ClassDef) else ast.walk(node)
            todo += [n.id for n in within if isinstance(n, ast.Name) and n.id in classes]
            parts = node.body if is_class else [node]
            methods |= {id(part): part for part in parts if isinstance(part, ast.FunctionDef)}
        if used is not None:
            names = {*used}
            for _ in methods:
                reached = [m for m in methods.values() if m.name in names or m.name[:2] == "__"]
                names |= attributes(*reached)
            methods = {id(method): method for method in reached} if methods else {}
        result = Shown()
        first = [method for method in methods.values() if method.name in ("init", "__init__")]
        state = {
            ast.unparse(target)
            for part in first
            for assigned in ast.walk(part)
            if isinstance(assigned, ast.Assign) and _STATE.search(ast.unparse(assigned.value))
            for target in assigned.targets
        }
        for method in methods.values():
            own = self.looked_at(method, seen)
            change = "" if method in first else self._kept(method, state)
            result |= Shown(own.chance, change)
        return result

    def _chance(self, node: Definition, *, repeated: bool = True) -> tuple[str, list[str]]:
        """The part of a function that depends on more than its arguments, and what is taken for
        granted. `repeated`: it reads anew at each call."""
        own, nodes, rests = self._own(node), list(ast.walk(node)), dict[str, None]()
        rows = batches_of(node)
        owners = {id(inner.value) for inner in nodes if isinstance(inner, ast.Attribute)}
        called = {id(call.func): call for call in calls(node)}
        for inner in nodes:
            text = ast.unparse(inner)[:60] if isinstance(inner, ast.expr) else ""
            if isinstance(inner, ast.Call) and (
                root_of(inner.func) in _UNSEEN or self.asks(inner, conditional=True)
            ):
                return text, []
            if isinstance(inner, ast.Call) and (
                ast.unparse(inner) == "repr(object())"
                or (root_of(inner.func) == "getattr" and alone(self.called(inner)) is False)
            ):
                return text, []
            if isinstance(inner, ast.Attribute) and inner.attr in READING and repeated:
                return text, []
            if isinstance(inner, ast.Call) and _samples(inner) and made_of(inner.func) & rows:
                return text, []
            if isinstance(inner, ast.Attribute) and inner.attr == "astimezone":
                call = called.get(id(inner))
                if call is not None and not call.args and not call.keywords:
                    rests[text] = None
            if not isinstance(inner, ast.Attribute | ast.Name) or id(inner) in owners:
                continue
            root = root_of(inner)
            name = self.called(inner)
            if root in own and not name.startswith("pathlib.Path."):
                continue
            if not name and isinstance(inner, ast.Name) and inner.id in ("open", "id", "hash"):
                name = inner.id
            if not name or name in GIVEN or name in NAMED or self._given(inner):
                continue
            call = called.get(id(inner))
            sure = alone(name)
            zoned = name.endswith(".fromtimestamp") and len(getattr(call, "args", ())) > 1
            nested = call is not None and any(calls(inner))
            asked = call is not None or placed(name)
            if sure is None and asked and not zoned and not nested:
                rests[ast.unparse(call or inner)[:60]] = None
            elif sure is False:
                reads = _READING.search(ast.unparse(call)) if call is not None else None
                if repeated or reads is None:
                    return text, []
                rests[text] = None
        if not repeated and _READING.search(ast.unparse(node)):
            rests[ast.unparse(node.body)[:60] if isinstance(node, ast.Lambda) else ""] = None
        rests |= dict.fromkeys(_orders(node))
        return "", [*filter(None, rests)]

    def asks(self, node: ast.Call, *, conditional: bool = False) -> bool:
        """Whether a call depends on something beside its arguments; `conditional`: whether they
        decide that it does."""
        name = self.called(node.func)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        texts = [
            argument.value if isinstance(argument, ast.Constant) else None for argument in arguments
        ]
        if conditional and name not in GIVEN and name not in NAMED:
            return False
        return reason_of_call(name, texts) is not None

    def _given(self, node: ast.AST) -> bool:
        """Whether it is a member of what is made there of arguments alone."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Call) or self.called(node.func) not in GIVEN:
            return False
        return bool(node.args or node.keywords)

    def _own(self, node: Definition) -> dict[str, None]:
        """The names that are new with every call, and stand for nothing that was there before."""
        own = _own(node)
        sets = [
            n for n in ast.walk(node) if isinstance(n, ast.Assign | ast.AnnAssign | ast.NamedExpr)
        ]
        for part in sets * 2:
            value = part.value
            while (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Attribute)
                and (value.func.attr in ("get", "setdefault"))
            ):
                value = value.func.value
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            plain = isinstance(value, ast.Name | ast.Attribute | ast.Subscript)
            if plain and value is not None and self._holds(value, own) and root_of(value) != "self":
                for target in targets:
                    if isinstance(target, ast.Name):
                        own.pop(target.id, None)
        return own

    def _kept(
        self,
        node: Definition,
        state: Collection[str] = (),
        *,
        held: Collection[str] = (),
        new: Collection[str] = (),
    ) -> str:
        own = self._own(node) | dict.fromkeys(new)
        for name in held:
            own.pop(name, None)
        shared = {n for inner in ast.walk(node) if isinstance(inner, ast.Global | ast.Nonlocal)
                  for n in inner.names}  # fmt: skip
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in shared:
                    if not _once(node, name, own):
                        return name
                case ast.Name(id=name, ctx=ast.Load()) if name in self._changed and name not in own:
                    return name
                case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store()):
                    root = root_of(inner)
                    if root not in own and (root or self._given_again(inner, own)):
                        return ast.unparse(inner)[:60]
                case ast.Call(func=function, args=[ast.Name(id=name), *_]) if name not in own and (
                    self.called(function) in _CHANGING_FIRST or _unbound(function)
                ):
                    return name
                case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CHANGING:
                    if self._holds(owner, own) and ast.unparse(owner) not in state:
                        return ast.unparse(owner)[:60]
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if (
                    name in self.functions and name not in own and attr.startswith("cache_")
                ):
                    return ast.unparse(inner)[:60]
                case ast.Call(func=ast.Name(id="globals" | "setattr")):
                    return ast.unparse(inner)[:60]
                case ast.Call(func=ast.Name(id="next"), args=[ast.Name(id=name), *_]):
                    if name not in own:
                        return name
        return ""

    @functools.cached_property
    def _changed(self) -> set[str]:
        """The names of lists and the like that methods of listeners change, while queries run."""
        changed = set[str]()
        for kind in self.classes.values():
            if not any("Listener" in ast.unparse(base) for base in kind.bases):
                continue
            for part in ast.walk(kind):
                match part:
                    case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                        changed.add(root_of(part))
                    case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CHANGING:
                        changed.add(root_of(owner))
                    case ast.Global(names=names):
                        changed |= {*names}
        return changed - {"self", "event", ""}

    def _holds(self, node: ast.expr, own: Collection[str], depth: int = 5) -> bool:
        """Whether an expression is a list or the like that is there before the function is."""
        root = root_of(node)
        if not root:
            return self._given_again(node, own)
        if root in own:
            return False
        other, member = self._other(self.called(node)) if root in self.imported else (None, "")
        if other is not None and depth:
            return member in {**other.values, **other.imported} and other._holds(
                ast.Name(member), (), depth - 1
            )
        value = self.values.get(root)
        if isinstance(node, ast.Attribute) or root not in self.values:
            return root not in {*self.imported, *self.functions, *dir(builtins)}
        if not isinstance(value, ast.Call):
            return not isinstance(value, ast.Constant | ast.Tuple | ast.JoinedStr | ast.Lambda)
        return getattr(value.func, "attr", "") != "accumulator"  # Spark sums it up, and tells none

    def _given_again(self, node: ast.expr, own: Collection[str]) -> bool:
        """Whether an expression begins with a call that gives what is there before: the type of
        something, or what a function or an object of the user has."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in ("type", "vars", "globals") or name in self.functions
            case ast.Call(func=ast.Attribute(value=owner)):
                return self._holds(owner, own)
        return False


_NO_ARGUMENTS: Final = ast.arguments([], [], None, [], [], None, [])


def _samples(call: ast.Call) -> bool:
    """Whether it draws rows by chance."""
    seeded = any(keyword.arg in ("random_state", "seed") for keyword in call.keywords)
    return getattr(call.func, "attr", "") == "sample" and not seeded


def _unbound(function: ast.expr) -> bool:
    """Whether it is a method that changes what it is given: `list.append`."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in CHANGING
        and root_of(function) in _HOLDERS
    )


def _orders(node: ast.AST) -> Iterator[str]:
    """The places where the order of a set matters, which the seed of `hash` decides."""
    sets = {
        target.id
        for part in ast.walk(node)
        if isinstance(part, ast.Assign) and _is_set(part.value, ())
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    within = {id(a) for call in calls(node) for a in call.args
              if root_of(call.func) in ("set", "frozenset", "sorted", "sum", "min", "max", "any",
                                      "all", "len")}  # fmt: skip
    for part in ast.walk(node):
        values: list[ast.expr] = []
        match part:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                values = args if name in _ORDERING else []
                if name == "pop" and isinstance(part.func, ast.Attribute):
                    values = [part.func.value]
            case ast.For(iter=value) | ast.Starred(value=value):
                values = [value]
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() if id(part) not in within:
                values = [generator.iter for generator in part.generators]
        if id(part) not in within and any(_is_set(value, sets) for value in values):
            yield "the order of sets"


def _is_set(node: ast.AST, names: Collection[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub()):
            return _is_set(left, names) or _is_set(right, names)
    return False


def _own(node: Definition) -> dict[str, None]:
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
    own -= {"self", "cls"}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            own.add(inner.id)
        elif isinstance(inner, ast.arg) and inner not in named:
            own.add(inner.arg)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Global | ast.Nonlocal):
            own -= set(inner.names)
    return dict.fromkeys(own)


def _once(node: Definition, name: str, own: Mapping[str, Any]) -> bool:
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


def _first_line(node: Definition) -> int:
    return min([int(node.lineno), *(int(d.lineno) for d in getattr(node, "decorator_list", ()))])


SHOWN: Final[dict[bytes, Shown]] = {}
"""What stands for a function in a plan -> what its text shows."""


def shown_of(function: Any) -> Shown:
    """Signs in the text of a function in a plan."""
    return SHOWN.get(function.python_udf.command, Shown())
