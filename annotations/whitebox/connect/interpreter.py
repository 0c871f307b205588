"""A script read without being run: its syntax tree is followed, as far as it describes queries.

Nothing of the user's is compiled or executed. Names, texts, numbers, lists, conditions, loops over
known values and calls of the script's own functions are worked out here; what is called for real is
PySpark's interface alone (`permitted`), whose plans go to the session that has no Spark. Everything
else (other modules, classes, files, services) is a value that is not known (`outside.Outside`): a
DataFrame that goes through one is one of which nothing is known, so that reading this way never
claims more than running would.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
import sys
from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeGuard

from annotations.dataflow import Position
from annotations.whitebox.connect import (
    classes,
    configuration,
    outside,
    permitted,
    places,
    standard,
)
from annotations.whitebox.connect.answers import Asked, Refused
from annotations.whitebox.connect.classes import Class, Method, Object, Super
from annotations.whitebox.connect.module_text import Definition, yields
from annotations.whitebox.connect.outside import PLACE, UNREAD, Default, Open, Outside
from annotations.whitebox.connect.program import Unparsed, module_file, tree_of
from annotations.whitebox.connect.script_functions import (
    SUPER,
    Function,
    Scope,
    passed,
    unwrapped,
)
from annotations.whitebox.connect.standard import Chain, Environment, Namespace
from annotations.whitebox.connect.values import (
    FIXED,
    TEXT_MAX,
    UNSET,
    are_lists,
    as_by_default,
    as_unknown,
    beside_column,
    chance_of,
    decides,
    deciding,
    defaulted,
    draws,
    either_way,
    enumerated,
    holds_object,
    holds_open,
    holds_unknown,
    in_order,
    is_text,
    is_unknown,
    of_file,
    of_open_length,
    one_of_many,
    open_up,
    perhaps,
    same_value,
    settled,
    shown_text,
    small,
    unknown_of,
    whether,
)
from annotations.whitebox.python_chance import GIVEN, NAMED, Chance, reason_of_call

STEPS_MAX: Final = 200_000
"""Statements and expressions that are worked out of one script, and half as many objects, lists and
scopes of which every branch keeps what they hold."""
DEPTH_MAX: Final = 60
"""Calls of the script's own functions inside of each other."""
TURNS_DEPTH_MAX: Final = 4
"""Loops inside of each other of which a second turn is read."""

_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_NAMED: Final[Mapping[str, type[ast.operator]]] = {
    "add": ast.Add,
    "and_": ast.BitAnd,
    "mul": ast.Mult,
    "or_": ast.BitOr,
    "sub": ast.Sub,
    "truediv": ast.Div,
}
"""Functions of `operator`."""
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}

_MISSING: Final = re.compile(r"ImportError|ModuleNotFound|NameError")
"""Errors that say where a script runs."""
_MAPS: Final = frozenset({"imap", "imap_unordered", "map", "map_async", "starmap"})
"""What calls a function for each of several values."""
_TRANSPARENT: Final = frozenset(
    {"abc", "airflow", "backoff", "cachetools", "click", "contextlib", "dagster", "dataclasses"}
    | {"dask", "fire", "functools", "hydra", "invoke", "joblib", "loguru", "luigi", "mlflow"}
    | {"prefect", "retry", "retrying", "tenacity", "typeguard", "typer", "typing"}
)
"""Modules whose decorators change nothing of what a function returns."""
_COMMANDS: Final = frozenset(
    {"absl", "asyncclick", "click", "cyclopts", "fire", "hydra", "invoke", "rich_click", "typer"}
)
"""Modules whose decorators make a command, which gets its parameters from outside."""
_COMPARING: Final = (all, any, bool, len, max, min, range, set, sorted, sum)
"""Functions whose value for objects depends on methods of theirs, and on what is not known."""
_DECIDING: Final = (all, any, bool, max, min)
"""Functions that choose by what is known of each value."""
_GATHERING: Final = (*_COMPARING, Chain, dict, enumerate, list, reversed, tuple, zip)
"""Functions whose value depends on all of what is not known."""
_LOOKING: Final = frozenset(
    {"asdict", "astuple", "callable", "fields", "getattr", "hasattr", "hash", "id", "isinstance"}
    | {"issubclass", "repr", "replace", "type"}
    | {"critical", "debug", "dump", "dumps", "error", "exception", "info", "pprint", "safe_dump"}
    | {"warn", "warning"}
)
"""Functions that change nothing of an object that they are given."""
_NAMING: Final = frozenset({"exec", "getattr", "globals", "locals", "map", "setattr", "vars"})
"""Functions that look at names or members, set them, or call others."""
_OF_SQL: Final = frozenset({"expr", "filter", "selectExpr", "sql", "where"})
"""Functions of PySpark that are given texts of SQL."""
_TOLD: Final = frozenset({"get", "pop", "setdefault"})
"""Members of a dictionary that find something by its key."""
_TOLD_BY: Final = (str, bytes, int, float, bool)
"""Classes of values that depend on each of those that they were made of."""
_VIEWS: Final = (ItemsView, KeysView, ValuesView, enumerate, map, reversed, zip)


class _Return(Exception):  # noqa: N818
    def __init__(self, value: Any) -> None:
        self.value = value


class _Leave(Exception):  # noqa: N818
    """`break` or `continue`."""

    def __init__(self, on: bool) -> None:
        self.on = on


class Ended(Refused):
    """The script ends here: it raises an error, or is too long to be followed."""


class Raised(Ended):
    """The script raises an error."""


_State: TypeAlias = list[tuple[dict[str, Any] | list[Any], Any]]
"""Whatever holds values that statements may set, and a copy of it."""


class _Yielded(list[Any]):
    """What a generator of the script yields, all of it at once."""


class Interpreter:
    """Follows one script.

    Args:
        modules: names of modules -> what stands for them.
        arguments: of the script, its own name first.
    """

    def __init__(self, modules: Mapping[str, Callable[[], Any]], arguments: list[str]) -> None:
        self._modules = modules
        self._not_followed: list[tuple[ast.ClassDef, Scope, Any]] = []
        """Classes of the script that are not followed, where they stand, and what for them."""
        self._patched: dict[str, Any] = {}
        """Members of PySpark that the script has set."""
        self._given: dict[int, Any] = {}
        """Functions that PySpark has made of the script's own (`udf`), and some of ours, by id."""
        self._standard = standard.modules(arguments)
        self._given |= {id(function): function for function in configuration.PATHS.values()}
        reduce = self._reduce
        self._given |= {id(reduce): reduce, id(_same): _same}
        partial = self._partial
        self._given |= {id(function): function for function in (partial, _wraps)}
        self._standard["contextlib"] = Namespace({"contextmanager": _same, "closing": _same})
        self._pandas = self._pandas_udf
        self._given[id(self._pandas)] = self._pandas
        self._standard["functools"] = Namespace(
            {"reduce": reduce, "partial": partial, "wraps": _wraps}
        )
        operators = {name: functools.partial(self._binary, op()) for name, op in _NAMED.items()}
        fields = {"replace": self._with_fields}
        self._given |= {id(each): each for each in (*operators.values(), *fields.values())}
        named_tuple, simple = self._named_tuple, self._simple
        self._given |= {id(named_tuple): named_tuple, id(simple): simple}
        self._standard["collections"].names["namedtuple"] = named_tuple
        self._standard["types"] = Namespace({"SimpleNamespace": simple}, "types.")
        self._standard["operator"] = Namespace(operators, "operator.")
        self._standard["dataclasses"] = Namespace(fields, "dataclasses.")
        self._imported: dict[Path, Namespace] = {}
        self.session: Any = None
        """What `spark` is where the platform sets it."""
        self._definitions: dict[str, list[ast.AST]] = {}
        """Name -> the functions and classes of the script, and of its modules, that have it."""
        self._registered: list[Function] = []
        """Functions that a decorator which is not known may call."""
        self._entered: set[int] = set()
        """The functions that were called, by the id of their text."""
        self.objects: list[Object] = []
        """All objects that were made of the script's own classes."""
        self._steps = 0
        self._calls: list[ast.AST] = []
        """The functions that are being called, the innermost last."""
        self._results: list[list[Any]] = []
        """Of each, the values that it may have returned before."""
        self._yields: list[_Yielded] = []
        """Of each, what it has yielded."""
        self.made: list[list[Any]] = []
        """Lists that get what the script makes: queries, datasets."""
        self._drawn: Chance | None = None
        """What is another one each time, among the parts of the expression that is being read."""
        self._unsure = 0
        """In how many ways that may not be taken the place lies that is being read."""
        self._leaves: list[list[tuple[bool, _State, str]]] = []
        """Of each loop, the ways out of a turn that may have been taken: whether it goes on, what
        was there, and what is not known."""
        self.at: Position | None = None
        """The place that is being read."""
        places.reading(lambda: self.at)

    def run(self, tree: ast.Module, file: Path, names: dict[str, Any]) -> Scope:
        """Follow the statements of a module, which may set names that are there."""
        names.setdefault("__name__", "__main__")
        names.setdefault("__file__", str(file))
        scope = Scope(file, names)
        if not self._calls:
            configuration.beside(file)
        self._module_body(tree, scope)
        return scope

    def finish(self) -> None:
        """Follow the functions that a decorator may call, and that nothing has called."""
        for function in self._registered:
            if id(function.node) not in self._entered and self._may_describe(function.node):
                self._perhaps(function)

    def _module_body(self, tree: ast.Module, scope: Scope) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._definitions.setdefault(node.name, []).append(node)
        self._body(tree.body, scope)

    # ---- statements

    def _body(self, statements: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in statements:
            self._step()
            self.at = Position(str(scope.file), statement.lineno, statement.col_offset + 1)
            self._statement(statement, scope)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise Ended(
                "it is too long, or has too many branches, to be followed without being run"
            )

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Expr(value=value):
                self.value(value, scope)
            case ast.Assign(targets=targets, value=value):
                result = self.value(value, scope)
                for target in targets:
                    self._assign(target, result, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value, scope), scope)
            case ast.AugAssign(target=target, op=op, value=value):
                result = self._binary(op, self.value(target, scope), self.value(value, scope))
                self._assign(target, result, scope)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                scope.share(names, whole=isinstance(node, ast.Global))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.names[node.name] = self._defined(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.If():
                self._if(node, scope)
            case ast.For(target=target, iter=values, body=body):
                self._for(target, self.value(values, scope), body, scope, node)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    result = self.value(item.context_expr, scope)
                    if isinstance(result, Object):
                        result = self.call(classes.attribute(result, "__enter__"))
                    elif isinstance(result, _Yielded):
                        result = result[0] if len(result) == 1 else unknown_of(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, result, scope)
                self._body(body, scope)
            case ast.Try() | ast.TryStar():
                self._try(node, scope)
            case ast.While(test=test):
                decided = self.value(test, scope)
                self._repeated(f"`while {ast.unparse(test)[:60]}`", node, scope, decided)
            case ast.Match():
                self._match(node, scope)
            case ast.Return(value=value):
                raise _Return(None if value is None else self.value(value, scope))
            case ast.Break() | ast.Continue():
                raise _Leave(isinstance(node, ast.Continue))
            case ast.Raise():
                raise Raised(f"the script raises {ast.unparse(node)[6:80] or 'an error'}")
            case ast.Assert(test=test):
                self.value(test, scope)
            case ast.Pass() | ast.AnnAssign():
                pass
            case _:
                self._left_out(node, scope)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        """A class. Of one that is not followed, what it and those before may have changed is not
        known: they may be what it is made by."""
        made_by = [d for d in node.decorator_list if not self._fills(d, scope)]
        others = [d for d in node.decorator_list if d not in made_by]
        bare = ast.ClassDef(node.name, node.bases, node.keywords, node.body, others)
        ast.copy_location(bare, node)
        kind: Any = classes.defined(self, bare, scope, Scope(scope.file, {}, scope))
        if kind is None:
            held = [self.value(part.value, scope) for part in node.body
                    if isinstance(part, ast.Assign | ast.AnnAssign) and part.value]  # fmt: skip
            found = Chance.of(held)
            stands = Outside(f"${node.name}" + (f".${found.text}()" if found else ""))
            self._not_followed.append((node, scope, stands))
            for each, _, stands in self._not_followed:
                self._left_out(each, scope)
                scope.names[each.name] = stands
            return
        for decorator in reversed(made_by):
            kind = self._call(self.value(decorator, scope), (kind,), {})
        scope.names[node.name] = kind

    def _fills(self, decorator: ast.expr, scope: Scope) -> bool:
        """Whether a decorator makes the fields of a class the parameters of its making."""
        text = ast.unparse(decorator)
        word = text.partition("(")[0].rpartition(".")[2]
        begin = scope.value(re.split(r"\W", text, maxsplit=1)[0])
        of_attrs = isinstance(begin, Outside) and outside.root(begin) in ("attr", "attrs")
        return word == "dataclass" or (word in classes.FILLING and of_attrs)

    def follow(self, node: ast.stmt, scope: Scope) -> None:
        """Follow a statement of the body of a class."""
        self._statement(node, scope)

    def function(self, node: ast.FunctionDef, scope: Scope, kind: Class) -> Function:
        """A function of a class."""
        return Function(self, node, scope, kind)

    def call(self, function: Any) -> Any:
        """The value of a call without arguments."""
        return self._call(function, (), {})

    def _left_out(self, node: ast.stmt, scope: Scope) -> None:
        """A statement that is not followed: the names that it sets are not known after it."""
        word = type(node).__name__.lower().removesuffix("def")
        if _describes(node):
            outside.note(f"a `{word}` was not followed, as the script was not run")
        self._forget(node, scope)

    def _if(self, node: ast.If, scope: Scope) -> None:
        test = self.value(node.test, scope)
        if not decides(test) or not isinstance(test, bool | int | str | list | dict | None):
            if _ends(node.body) and not node.orelse and not _describes_all(node.body):
                return  # a check of what only the running script has
            outside.note(f"`if {ast.unparse(node.test)[:60]}` is not known, and was read both ways")
            outside.BOTH.append(ast.unparse(node.test)[:60])
            self._ways([node.body, node.orelse], scope, whether(node.test, test))
            return
        self._body(node.body if test else node.orelse, scope)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        """A `match`: the case of a value that is known; else each is a way."""
        value = self.value(node.subject, scope)
        for case in node.cases:
            fits = self._fits(case.pattern, value, scope)
            if fits and case.guard is not None:
                guard = self.value(case.guard, scope)
                fits = bool(guard) if decides(guard) else None
            if fits is None:
                break
            if fits:
                self._body(case.body, scope)
                return
        else:
            return
        subject = f"`match {ast.unparse(node.subject)[:60]}`"
        outside.note(f"{subject} is not worked out, and every case of it is read")
        subject += deciding(value)
        for part in ast.walk(node):
            for name in ("name", "rest"):
                if isinstance(part, ast.pattern) and isinstance(getattr(part, name, None), str):
                    scope.put(getattr(part, name), Outside(f"${getattr(part, name)}"))
        last = node.cases[-1]
        whole = last.guard is None and isinstance(last.pattern, ast.MatchAs)
        bodies = [case.body for case in node.cases]
        self._ways([*bodies, *([] if whole else [[]])], scope, subject)

    def _fits(self, pattern: ast.pattern, value: Any, scope: Scope) -> bool | None:
        """Whether a pattern is that of a value; None: not known."""
        match pattern:
            case ast.MatchAs(pattern=None, name=name):
                if name is not None:
                    scope.put(name, value)
                return True
            case ast.MatchOr(patterns=several):
                fits = [self._fits(each, value, scope) for each in several]
                return True if True in fits else None if None in fits else False
            case ast.MatchValue(value=expected):
                other = self.value(expected, scope)
            case ast.MatchSingleton(value=other):
                pass
            case _:
                return None
        plain = isinstance(value, str | int | float | None) and decides(value)
        known = plain and isinstance(other, str | int | float | None) and decides(other)
        if known or enumerated(value, other):
            return bool(value is other if isinstance(other, bool | None) else value == other)
        return None

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        """A `try`: where an error is met, its handlers are ways beside the one without. Handlers of
        a module that is missing are none where PySpark or Python alone is imported."""
        there = all(self._there(statement, scope) for statement in node.body)
        handlers = [
            handler.body
            for handler in node.handlers
            if handler.type is None or not (there and _MISSING.search(ast.unparse(handler.type)))
        ]
        for handler in node.handlers:
            if handler.name is not None:
                scope.put(handler.name, Outside(f"${handler.name}"))
        try:
            self._ways(
                [[*node.body, *node.orelse], *handlers],
                scope,
                "whether an error is met",
                tried=True,
            )
        finally:
            self._body(node.finalbody, scope)

    def _there(self, node: ast.stmt, scope: Scope) -> bool:
        """Whether a statement imports what is there for sure, or names it."""
        match node:
            case ast.Import(names=names):
                return all(_is_there(alias.name) for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                return _is_there(name)
            case ast.Expr(value=ast.Name(id=name)):
                return not isinstance(scope.value(name), Outside)
        return False

    def _ways(
        self,
        ways: Sequence[Sequence[ast.stmt]],
        scope: Scope,
        test: str,
        *,
        tried: bool = False,
    ) -> None:
        """Follow several ways of which one is taken, and it is not known which: what they set is
        not known after it, where they differ. The first of a `try` is taken for the usual one."""
        before = self._state(scope)
        ended: list[_State] = []
        stopped: list[Raised | _Return | _Leave] = []
        left: list[tuple[bool, _State, str]] = []
        for number, way in enumerate(ways):
            _restore(before)
            self._unsure += not tried or number > 0
            try:
                self._body(way, scope)
            except (Raised, _Return, _Leave) as stop:
                stopped.append(stop)
                if isinstance(stop, _Leave):
                    left.append((stop.on, self._state(scope), test))
            else:
                if not _ends(way):
                    ended.append(self._state(scope))
            finally:
                self._unsure -= not tried or number > 0
        returned = [stop.value for stop in stopped if isinstance(stop, _Return)]
        if self._leaves:
            self._leaves[-1] += left
        if self._results and (ended or left):
            self._results[-1] += [either_way(value, test) for value in returned]
        if ended:
            self._either(ended, test)
        elif left:
            self._either([state for _, state, _ in left], test)
            raise _Leave(any(on for on, *_ in left))
        elif returned:
            raise _Return(self._one_of(returned, "result", test))
        else:
            raise stopped[0] if stopped else Raised("the script ends")

    def _state(self, scope: Scope) -> _State:
        """Whatever may be set from here: names, what objects and classes hold, lists."""
        todo: list[Any] = [scope.names, *(each.names for each in scope.around())]
        todo += [each.names for each in self.objects]
        found: dict[int, tuple[Any, Any]] = {}
        while todo:
            holder = todo.pop()
            if id(holder) in found or isinstance(holder, Environment):
                continue
            copy: Any = dict(holder) if isinstance(holder, dict) else list(holder)
            found[id(holder)] = (holder, copy)
            inside = holder.values() if isinstance(holder, dict) else holder
            todo += [
                each.names if isinstance(each, Class) else each
                for each in inside
                if isinstance(each, dict | list | Class)
            ]
        self._steps += len(found) // 2
        return list(found.values())

    def _either(self, states: Sequence[_State], test: str) -> None:
        """Let everything that may be set be as in one of several states."""
        holders = {id(holder): holder for state in states for holder, _ in state}
        copies = [{id(holder): copy for holder, copy in state} for state in states]
        for key, holder in holders.items():
            several = [each[key] for each in copies if key in each]
            if isinstance(holder, dict):
                made = dict(several[0])
                for each in several[1:]:
                    for name in each.keys() | made.keys():
                        if each.get(name, UNSET) is not made.get(name, UNSET):
                            made[name] = UNSET
                for name in [name for name, value in made.items() if value is UNSET]:
                    values = [each.get(name, UNSET) for each in several]
                    made[name] = self._one_of(values, name, test)
                holder.clear()
                holder.update(made)
            elif len({len(each) for each in several}) == 1:
                holder[:] = [
                    self._one_of(parts, "item", test) for parts in zip(*several, strict=True)
                ]
            else:
                every = {id(part): part for each in several for part in each}
                sure = set(every).intersection(*(map(id, each) for each in several))
                holder[:] = [part if key in sure else perhaps(part) for key, part in every.items()]

    def _either_value(self, ways: Sequence[ast.expr], scope: Scope, test: str) -> list[Any]:
        """The values of expressions of which one is worked out, and it is not known which."""
        if not any(
            isinstance(part, ast.Call | ast.NamedExpr) for e in ways for part in ast.walk(e)
        ):
            return [self.value(way, scope) for way in ways]
        before = self._state(scope)
        values, states = [], []
        for way in ways:
            _restore(before)
            values.append(self.value(way, scope))
            states.append(self._state(scope))
        self._either(states, test)
        return values

    def _one_of(self, values: Sequence[Any], name: str, test: str) -> Any:
        """One of several values, it is not known which: of DataFrames, what any reads is read."""
        several: list[Any] = []
        for value in values:
            if value is not UNSET and not any(same_value(value, each) for each in several):
                several.append(value)
        made = [value for value in several if value is not None]
        if len(several) == 1 or (len(made) == 1 and not isinstance(made[0], permitted.PLAIN)):
            return made[0] if made else None  # nothing can be done with the others
        frames = [value for value in made if permitted.frame(value)]
        if all(isinstance(value, Function | Method) for value in made):

            def any_of_them(*arguments: Any, **named: Any) -> Any:
                self._unsure += 1
                try:
                    given = [self._call(each, arguments, named) for each in made]
                finally:
                    self._unsure -= 1
                return self._one_of(given, name, test)

            any_of_them.chosen_from = tuple(made)  # type: ignore[attr-defined]
            self._given[id(any_of_them)] = any_of_them
            return any_of_them
        if not frames:
            return chance_of([*values, test], Outside(f"${name}"))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        place = () if test.startswith("how") else (PLACE,)  # running it tells how often
        return whole.hint(UNREAD, f"{test} is not known here", *place)

    def _repeated(
        self, what: str, node: ast.While | ast.For, scope: Scope, decided: Any = None
    ) -> None:
        """A loop of which it is not known how often it runs: its body is read once, of values that
        are those of any turn."""
        often = f"how often a loop runs{deciding(decided)}"
        if _describes(node):
            outside.note(f"{what}, which is not known here, was read once")
        forever = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        body: list[ast.stmt] = [*node.body]
        before = [len(each) for each in self.made]
        for _ in range(1 if self._unsure > TURNS_DEPTH_MAX else 2):
            # Behind the first turn, what it has made may be what the next one begins with.
            for made, count in zip(self.made, before, strict=True):
                del made[count:]
            self._forget(node, scope, again=True)
            if isinstance(node, ast.For):
                for name in _stored(node.target):
                    scope.put(name, chance_of([decided], one_of_many(decided, name)))
            self._leaves.append([])
            raised: Raised | None = None
            try:
                self._ways([body] if forever else [body, []], scope, often)
            except _Leave:
                pass
            except Raised as error:  # unless it was left before
                raised = error
            finally:
                leaves = self._leaves.pop()
            if raised is not None and not leaves:
                raise raised
            often = _how(often, leaves)
            after = [] if raised else [self._state(scope)]
            self._either([*(state for _, state, _ in leaves), *after], often)
        for name in _stored(node):
            scope.put(name, either_way(scope.value(name), often))
        self._body(node.orelse, scope)

    def _forget(self, node: ast.AST, scope: Scope, *, again: bool = False) -> None:
        """Know nothing any more of what statements that were left out may have changed, or that
        come again: a DataFrame is then any that they name."""
        named = {inner.id: scope.value(inner.id) for inner in ast.walk(node) if _is_name(inner)}
        frames = [value for value in named.values() if permitted.frame(value)]
        for name in _stored(node):
            before = scope.value(name)
            if again and permitted.frame(before):
                before = self._one_of([before, *frames], name, "how often a loop runs")
            scope.put(name, outside.lost(before, name))
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        own = (Class, Function, Method, Object)
        if any(isinstance(self._found(call.func, scope), own) for call in calls):
            for held in self.objects:  # their code may change any of them
                classes.forget(held)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(
                inner.ctx, ast.Store
            ):
                self._lose(inner.value, scope, again)
            elif isinstance(inner, ast.Call):
                for part in (inner.func, *inner.args, *(k.value for k in inner.keywords)):
                    self._lose(part.value if part is inner.func and isinstance(
                        part, ast.Attribute) else part, scope, again)  # fmt: skip

    def _lose(self, node: ast.AST, scope: Scope, again: bool) -> None:
        """Know nothing any more of what an object, a list or a dictionary holds, nor, unless what
        changes it is read, how much."""
        holder = self._found(node, scope)
        if isinstance(holder, Object):
            classes.forget(holder)
        elif isinstance(holder, dict):
            holder.update({key: outside.lost(value, key) for key, value in holder.items()})
        elif isinstance(holder, list):
            holder[:] = [outside.lost(value, "item") for value in holder]
        several = isinstance(holder, set) or (isinstance(holder, dict | list) and not again)
        if several and isinstance(node, ast.Name):
            scope.put(node.id, Outside(f"${node.id}"))

    def _lose_all(self, node: ast.AST, scope: Scope) -> None:
        """Know nothing any more of the objects that an expression names, and of their classes."""
        for inner in ast.walk(node):
            holder = scope.value(inner.id) if isinstance(inner, ast.Name) else None
            if isinstance(holder, Object):
                classes.forget(holder)
                classes.forget(holder.kind)
            elif isinstance(holder, Class):
                classes.forget(holder)
            elif isinstance(holder, Outside):
                outside.SET.add(holder)

    def _found(self, node: ast.AST, scope: Scope) -> Any:
        """The value of a name, or of what is inside of one; None of any other expression."""
        match node:
            case ast.Name(id=name):
                return scope.value(name)
            case ast.Attribute(value=inner, attr=name):
                owner = self._found(inner, scope)
                held = isinstance(owner, Object | Class | Namespace)
                return self._attribute(owner, name) if held else None
            case ast.Subscript(value=inner):
                owner = self._found(inner, scope)
                return self.value(node, scope) if isinstance(owner, dict | list) else None
        return None

    def _for(
        self, target: ast.expr, values: Any, body: Sequence[ast.stmt], scope: Scope, node: ast.For
    ) -> None:
        values = in_order(values)
        if isinstance(values, Outside) or not isinstance(values, list | tuple | dict | range | set):
            self._repeated(f"a loop over `{shown_text(values)}`", node, scope, values)
            return
        if of_open_length(values):
            if not values:
                self._repeated(f"a loop over `{ast.unparse(node.iter)[:60]}`", node, scope)
                return
            before = self._state(scope)
            self._for(target, [as_by_default(each) for each in values], body, scope, node)
            self._either([before, self._state(scope)], "how often a loop runs")
            return
        broken: list[_State] = []
        far = "how far a loop comes"
        begun = [len(made) for made in self.made]
        for turn, value in enumerate(values):
            if turn == 1:
                tried = [len(made) for made in self.made]
            self._assign(target, value, scope)
            self._leaves.append([])
            ended: _Leave | None = None
            raised: Raised | None = None
            try:
                self._body(body, scope)
            except _Leave as left:
                ended = left
            except Raised as error:  # a way out of the turn may have been taken before
                raised = error
            finally:
                leaves = self._leaves.pop()
                if turn and _retries(body):
                    self._tried_again(begun, tried)
            if raised is not None and not (leaves or broken):
                raise raised
            far = _how(far, leaves)
            broken += [state for on, state, _ in leaves if not on]
            gone_on = [state for on, state, _ in leaves if on]
            if gone_on:
                self._either([*([] if raised else [self._state(scope)]), *gone_on], far)
            elif raised:
                self._either(broken, far)
                return
            if ended is not None and not ended.on:
                break
        else:
            self._body(node.orelse, scope)
        if broken:
            self._either([self._state(scope), *broken], far)

    def _tried_again(self, begun: Sequence[int], tried: Sequence[int]) -> None:
        """Leave out what a turn has made that is there because one before may have failed: it is
        what that one would have made."""
        for made, first, later in zip(self.made, begun, tried, strict=True):
            known = [permitted.essence(each) for each in made[first:later]]
            made[later:] = [each for each in made[later:] if permitted.essence(each) not in known]

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.put(name, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                value = classes.parts(value)
                known = isinstance(value, list | tuple) and len(value) == len(parts)
                for number, part in enumerate(parts):
                    found = value[number] if known else Outside(f"{shown_text(value)}[{number}]")
                    self._assign(part, found, scope)
            case ast.Subscript(value=container, slice=key):
                inside, at = self.value(container, scope), self.value(key, scope)
                if isinstance(inside, dict | list) and not isinstance(at, Outside):
                    inside[at] = value
                else:
                    self._lose_all(container, scope)
            case ast.Attribute(value=container, attr=name):
                inside = self.value(container, scope)
                self._set(inside, name, value)
                if isinstance(inside, Outside):
                    self._lose_all(container, scope)

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Any:
        result: Any = Function(self, node, scope)
        at = self.at
        for decorator in reversed(node.decorator_list):
            self.at = Position(str(scope.file), decorator.lineno, decorator.col_offset + 1)
            wrapper = self.value(decorator, scope)
            unknown = isinstance(wrapper, Outside) and self._of_script(result)
            if unknown and isinstance(result, Function):
                root = outside.root(wrapper)
                result.command = result.command or (root if root in _COMMANDS else "")
                self._registered.append(result)
            result = (
                self._decorated(wrapper, result) if unknown else self._call(wrapper, (result,), {})
            )
        self.at = at
        return result

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                whole = self._module(alias.name, scope.file)
                name = alias.asname or alias.name.partition(".")[0]
                root = alias.name.partition(".")[0]
                scope.names[name] = whole if alias.asname else self._module(root, scope.file)
                continue
            base = node.module or ""
            found = self._module(base, scope.file, level=node.level)
            if alias.name == "*":
                scope.names.update(permitted.all_of(found) if found is not None else {})
                if base in permitted.PANDAS_UDF:
                    scope.names["pandas_udf"] = self._pandas
            else:
                inner = self._module(
                    f"{base}.{alias.name}".lstrip("."), scope.file, level=node.level, whole=False
                )
                value = self._attribute(found, alias.name) if inner is None else inner
                scope.names[alias.asname or alias.name] = value

    def _module(self, name: str, beside: Path, *, level: int = 0, whole: bool = True) -> Any:
        """A module of PySpark, a file of the user that is followed too, or one that is unknown:
        None, unless the `whole` of it is asked for."""
        if not level:
            if name in self._modules:
                return self._modules[name]()
            if name in self._standard:
                return self._standard[name]
            known = permitted.module(name)
            if known is not None:
                return known
        file = module_file(name, beside, level=level)
        if file is None:
            folder = beside.parents[max(level - 1, 0)].joinpath(*name.split("."))
            if not whole:
                return None
            return Namespace({}) if folder.is_dir() else Outside.module(name)
        if file not in self._imported:
            self._imported[file] = Namespace({})
            inner = Scope(file, {"__name__": name, "__file__": str(file)})
            at = self.at
            try:
                self._module_body(tree_of(file), inner)
            except Unparsed as unparsed:
                self.at = unparsed.position
                outside.note(f"{file.name} is not known: {unparsed}")
            self.at = at
            self._imported[file].names = inner.names
        return self._imported[file]

    # ---- expressions

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression; an `Outside` where it is not known."""
        self._step()
        before, self._drawn = self._drawn, None
        try:
            result = self._value(node, scope)
        except (Refused, Ended, _Return, _Leave):
            self._drawn = before
            raise
        except Exception:
            if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                self._read_once(node, scope)
            result = unknown_of(node)
        if type(result) is str and not isinstance(node, ast.Constant) and holds_unknown(result):
            result = Default(result)  # made of what is not known: it decides nothing
        found = Chance.of(result) if isinstance(result, str) else None
        if found is None and isinstance(result, Outside | bytes | slice):
            found = self._drawn  # it was made of that
            result = result if found is None else Outside(f"${found.text}()")
        elif found is None and isinstance(node, ast.Attribute):
            found = self._drawn  # of a method, and of what it gives
        self._drawn = min(filter(None, (before, found)), key=of_file, default=None)
        return result

    def _read_once(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope
    ) -> None:
        """A comprehension over what is not known is a loop like others: it may start queries."""
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        body: list[ast.stmt] = [ast.Expr(part) for part in parts]
        for each in reversed(node.generators):
            for test in reversed(each.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(each.target, each.iter, body, [])]
        loop = ast.fix_missing_locations(ast.copy_location(body[0], node))
        for inner in ast.walk(loop):
            if isinstance(inner, ast.stmt):
                ast.copy_location(inner, node)
        self._statement(loop, Scope(scope.file, {}, scope, comprehension=True))

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return scope.value(name)
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(self.value(inner, scope), name)
            case ast.Call():
                return self._called(node, scope)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                inner = self.value(operand, scope)
                return _UNARY[type(op)](inner) if decides(inner) else unknown_of(node)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared(node, self.value(left, scope), ops, others, scope)
            case ast.BoolOp(op=op, values=values):
                return self._boolean(op, values, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self.value(test, scope)
                if not decides(known):
                    values = self._either_value([body, orelse], scope, whether(test, known))
                    return self._one_of(values, ast.unparse(node)[:40], whether(test, known))
                return self.value(body if known else orelse, scope)
            case ast.JoinedStr(values=values):
                pieces = [self._piece(piece, scope) for piece in values]
                whole = "".join(map(str, pieces))
                return whole if all(map(decides, pieces)) else Default(whole)
            case ast.List(elts=parts):
                return list(self._items(parts, scope))
            case ast.Tuple(elts=parts):
                return tuple(self._items(parts, scope))
            case ast.Set(elts=parts):
                return set(self._items(parts, scope))
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, scope)
            case ast.Subscript(value=inner, slice=key):
                return self._item(self.value(inner, scope), self.value(key, scope), node)
            case ast.Slice():
                ends = [node.lower, node.upper, node.step]
                return slice(*(None if end is None else self.value(end, scope) for end in ends))
            case ast.Lambda():
                return Function(self, node, scope)
            case ast.Await(value=inner):
                return self.value(inner, scope)
            case ast.Yield(value=part):
                self._yields[-1].append(None if part is None else self.value(part, scope))
                return None
            case ast.YieldFrom(value=part):
                several = self.value(part, scope)
                known = isinstance(several, list | tuple | range)
                self._yields[-1] += several if known else [Outside(f"{shown_text(several)}[]")]
                return None
            case ast.SetComp(elt=part):
                return {self.value(part, inner) for inner in self._loops(node.generators, scope)}
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                return [self.value(part, inner) for inner in self._loops(node.generators, scope)]
            case ast.DictComp(key=key, value=value):
                return {
                    self.value(key, inner): self.value(value, inner)
                    for inner in self._loops(node.generators, scope)
                }
            case ast.NamedExpr(target=target, value=value):
                result = self.value(value, scope)
                while scope.comprehension and scope.outer is not None:
                    scope = scope.outer
                self._assign(target, result, scope)
                return result
        return unknown_of(node)

    def _compared(
        self,
        node: ast.AST,
        one: Any,
        ops: Sequence[ast.cmpop],
        others: Sequence[ast.expr],
        scope: Scope,
    ) -> Any:
        result: Any = True
        for number, (op, part) in enumerate(zip(ops, others, strict=True), 1):
            one, other = beside_column(one, self.value(part, scope))
            identity = isinstance(op, ast.Is | ast.IsNot) or enumerated(one, other)
            if isinstance(one, Outside) or isinstance(other, Outside):
                result = self._mixed(node, one, other)
            elif not identity and (holds_object((one, other)) or holds_open((one, other))):
                result = chance_of((one, other), unknown_of(node))
            else:
                result = _COMPARED[type(op)](one, other)
                if len(ops) > 1 and not isinstance(result, bool):
                    result = unknown_of(node)
                if result is True:
                    one = other
                    continue
            if result is not False and others[number:]:  # which may be worked out
                left = ast.copy_location(ast.Tuple([*others[number:]], ast.Load()), part)
                self._either_value([left, ast.Constant(None)], scope, whether(part, result))
            return result
        return result

    def _piece(self, piece: ast.expr, scope: Scope) -> Any:
        if not isinstance(piece, ast.FormattedValue):
            return self.value(piece, scope)
        value = self.value(piece.value, scope)
        if isinstance(value, configuration.File):
            value = str(value)
        if isinstance(value, str | int | float | bool | None) and piece.format_spec is None:
            return value
        if isinstance(value, Outside):
            return value
        parts = [*value.names.values()] if isinstance(value, Object) else []
        return chance_of(parts, unknown_of(piece.value))

    def _items(self, parts: Sequence[ast.expr], scope: Scope) -> Iterator[Any]:
        for part in parts:
            if not isinstance(part, ast.Starred):
                yield self.value(part, scope)
                continue
            values = in_order(self.value(part.value, scope))
            yield from values if isinstance(values, list | tuple | set | range) else [values]

    def _dict(
        self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], scope: Scope
    ) -> Any:
        made: dict[Any, Any] = {}
        by_default = False
        for key, value in zip(keys, values, strict=True):
            inner = self.value(value, scope)
            if key is not None:
                made[self.value(key, scope)] = inner
            elif isinstance(inner, dict):
                made |= inner
                by_default |= isinstance(inner, Open)
            else:
                return Outside("$options")
        return outside.by_default(made, "settings") if by_default else made

    def _loops(self, generators: Sequence[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        if not generators:
            yield scope
            return
        first, *rest = generators
        values = in_order(self.value(first.iter, scope))
        if isinstance(values, Outside) or not isinstance(values, list | tuple | dict | range | set):
            raise TypeError("not known")
        if of_open_length(values):
            if not values:
                raise TypeError("not known")
            values = [as_by_default(each) for each in values]
        for value in values:
            inner = Scope(scope.file, {}, scope, comprehension=True)
            self._assign(first.target, value, inner)
            if all(self._true(test, inner) for test in first.ifs):
                yield from self._loops(rest, inner)

    def _true(self, test: ast.expr, scope: Scope) -> bool:
        value = self.value(test, scope)
        if not decides(value):
            raise TypeError("not known")
        return bool(value)

    def _binary(self, op: ast.operator, one: Any, other: Any) -> Any:
        if not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):  # of conditions
            one, other = beside_column(one, other)
        if isinstance(one, Outside) or isinstance(other, Outside):
            return self._mixed(op, one, other)
        frame = next((part for part in (one, other) if permitted.frame(part)), None)
        if frame is not None:
            return frame.hint(UNREAD, "what an operator makes of it is not known here")
        if isinstance(op, ast.Mult) and not small(one, other):
            return Outside("$text")
        known = all(permitted.value(part) or isinstance(part, FIXED) for part in (one, other))
        if type(op) not in _BINARY or not known:
            return chance_of((one, other), Outside("$value"))
        result = _BINARY[type(op)](one, other)
        decided = decides(one) and decides(other)
        if isinstance(result, set):
            decided = not holds_open((one, other))
        return result if decided else outside.by_default(result, "value")

    def _mixed(self, node: ast.AST, one: Any, other: Any) -> Any:
        """Of something that is not known: a column where a column takes part."""
        part = next((p for p in (one, other) if permitted.column(p) or permitted.frame(p)), None)
        if part is not None:
            return Outside("$value")(part)
        settings = {type(p) for p in (one, other) if isinstance(p, outside.Setting)}
        plain = all(isinstance(p, outside.Setting | int | float) for p in (one, other))
        if len(settings) == 1 and plain and isinstance(node, ast.operator):
            return next(p for p in (one, other) if isinstance(p, outside.Setting))
        if isinstance(node, ast.Add):
            kind = Default if is_text(one) or is_text(other) else Outside
            return kind(f"{shown_text(one)}{shown_text(other)}")
        return chance_of((one, other), Outside("$value"))

    def _boolean(self, op: ast.boolop, values: Sequence[ast.expr], scope: Scope) -> Any:
        result: Any = None
        for number, value in enumerate(values, 1):
            result = self.value(value, scope)
            if not decides(result):
                if number == len(values):
                    return result
                left = [*values[number:]]
                rest = ast.BoolOp(op, left) if len(left) > 1 else left[0]
                ways = [ast.copy_location(rest, left[0]), ast.Constant(None)]
                last, _ = self._either_value(ways, scope, whether(value, result))
                whole = isinstance(op, ast.Or) and type(last) in (str, Default)
                return Default(last) if whole else as_unknown(result)
            if bool(result) == isinstance(op, ast.Or):
                return result
        return result

    def _item(self, container: Any, key: Any, node: ast.AST) -> Any:
        if isinstance(container, Class) and not isinstance(key, Outside | Open):
            return next((v for v in container.values if v.names["name"] == key), unknown_of(node))
        container = classes.parts(container)
        if isinstance(container, Object):
            return self._call(classes.attribute(container, "__getitem__"), (key,), {})
        if isinstance(key, Outside) and isinstance(container, dict) and container:
            return self._chosen(container)
        if isinstance(container, Outside) and Chance.of(container) is not None:
            return container[key] if isinstance(key, Outside) else outside.entry(container, key)
        if isinstance(container, outside.Setting) and type(key) in (str, int):
            return outside.entry(container, key)
        if isinstance(container, Outside) or isinstance(key, Outside):
            return chance_of((key,), unknown_of(node))
        if isinstance(container, Namespace | Function) or not permitted.value(container):
            return unknown_of(node)
        if isinstance(container, dict) and isinstance(key, Open):
            return self._chosen(container, container[key])
        if type(container) is dict and holds_open([*container]):
            return self._chosen(container, container.get(key), None)
        if isinstance(container, list | tuple) and isinstance(key, Open):
            return self._one_of(container, "item", "the place that is looked up")
        if isinstance(key, slice) and holds_open((key.start, key.stop, key.step)):
            return unknown_of(node)
        found = container[key]
        return as_by_default(found) if isinstance(container, Open) else found

    def _chosen(self, container: dict[Any, Any], *found: Any) -> Any:
        """What a key finds that is not known, or has a value by default: any of the values. Of
        texts and numbers by default, that one is kept."""
        if len(found) == 1 and (plain := defaulted(found[0])) is not UNSET:
            return plain
        return self._one_of([*found, *container.values()], "value", "the key that is looked up")

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Outside):
            return outside.member(owner, name)
        if name in self._patched and not isinstance(owner, Class | Object | Super | Namespace):
            return self._replaced(owner, name)
        if isinstance(owner, Object) and name == "__dict__":
            return owner.names
        named_tuple = isinstance(owner, Object) and "NamedTuple" in owner.kind.words
        setting = isinstance(owner, Object | Class) and name == "__setattr__"
        if setting or (named_tuple and name in _OF_TUPLES):
            function = self._set if setting else functools.partial(_OF_TUPLES[name], self)
            method = functools.partial(function, owner)
            self._given[id(method)] = method
            return method
        if isinstance(owner, Class | Object | Super):
            return classes.attribute(owner, name)
        if isinstance(owner, Namespace):
            known = name in owner.names
            return owner.names[name] if known else Outside(f"${owner.called}{name}")
        if name == "__name__" and isinstance(owner, Function):
            return owner.__name__
        if isinstance(owner, Function) and owner.command:
            return Outside(f"${owner.command}.{name}")
        if name == "pandas_udf" and getattr(owner, "__name__", "") in permitted.PANDAS_UDF:
            return self._pandas
        if name == "rdd" and permitted.frame(owner):
            return Outside("$DataFrame.rdd")
        typed = name in ("schema", "dtypes") and permitted.frame(owner)
        if typed and isinstance(owner.columns, outside.Columns):
            return Outside(f"$DataFrame.{name}")
        missing = isinstance(owner, ModuleType) and not hasattr(owner, name)
        if missing or isinstance(owner, Function) or not permitted.attribute(owner, name):
            return Outside(f"${name}")
        try:
            found = getattr(owner, name)
        except Refused as refused:  # of the context: what it gives, only data tell
            outside.note(str(refused))
            return Outside("$DataFrame.rdd")
        if isinstance(found, outside.Several):
            return self._one_of(found.values, name, f"`{name}`")
        if permitted.setting(owner, name) and isinstance(found, str):
            return Default(found)
        return (
            found if permitted.value(found) or permitted.callable_(found) else Outside(f"${name}")
        )

    def _set(self, owner: Any, name: Any, value: Any) -> None:
        """Set a member."""
        if isinstance(owner, Class) and isinstance(name, Outside | Open):
            owner.names.update({key: Outside(f"${key}") for key in owner.names})
        if isinstance(owner, Object | Class) and not isinstance(name, Outside):
            classes.put(owner, str(name), value)
        elif isinstance(owner, Object | Class):
            classes.forget(owner)
        elif isinstance(owner, Namespace):
            owner.names[str(name)] = value
        elif isinstance(owner, Outside):
            outside.SET.add(owner)
        else:
            self._patched[str(name)] = value  # a member of PySpark is replaced

    def _replaced(self, owner: Any, name: str) -> Any:
        """A member of PySpark that the script has set: a function of it, or what is not known."""
        value = self._patched[name]
        if isinstance(owner, type | ModuleType):
            return value
        if isinstance(value, Function):
            return Method(value, owner)
        frame = permitted.frame_of(owner)

        def unknown(*_: Any, **__: Any) -> Any:
            if frame is None:
                return Outside(f"${name}")
            return frame.hint(UNREAD, f"what the script has put in place of `{name}` is not known")

        self._given[id(unknown)] = unknown
        return unknown

    def _built_in(self, node: ast.Call, scope: Scope) -> Any:
        """A call of a function of Python that is worked out here; `UNSET` where it is
        another one."""
        word = node.func.id if isinstance(node.func, ast.Name) else ""
        if word not in _NAMING or scope.value(word) != f"${word}" or node.keywords:
            return UNSET
        arguments = list(self._items(node.args, scope))
        whole = scope
        while whole.outer is not None and (word in ("exec", "globals") or whole.comprehension):
            whole = whole.outer
        match word, arguments:
            case (("globals" | "locals" | "vars"), []):
                return whole.names
            case "vars", [Object() as owner]:
                return owner.names
            case "map", [function, *values] if are_lists(values):
                return [self._call(function, each, {}) for each in zip(*values, strict=False)]
            case "setattr", [owner, name, value]:
                self._set(owner, name, value)
                return None
            case "getattr", [owner, str(name), *default] if not isinstance(name, Outside | Open):
                found = self._attribute(owner, name)
                lacks = isinstance(found, Outside) and bool(default)
                return self._one_of([found, *default], name, f"`{name}`") if lacks else found
            case "exec", [str(text), *_] if not holds_unknown(text):
                self._body(ast.parse(text).body, scope)
                return None
            case "exec", _:
                for names in (scope.names, whole.names):
                    names.update({k: outside.lost(v, k) for k, v in names.items() if k[:2] != "__"})
                return None
        return UNSET

    # ---- calls

    def _called(self, node: ast.Call, scope: Scope) -> Any:
        if ast.unparse(node.func) == "super" and not node.args:
            return scope.value(SUPER)
        built_in = self._built_in(node, scope)
        if built_in is not UNSET:
            return built_in
        function = self.value(node.func, scope)
        arguments = tuple(self._items(node.args, scope))
        named: dict[str, Any] = {}
        more = False
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            more |= keyword.arg is None and isinstance(value, Open | Outside)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named |= value
            elif getattr(function, "__name__", "") == "options":
                outside.note(f"the options `{ast.unparse(keyword.value)[:60]}` are not known here")
            else:
                named["options"] = Outside("$options")
        self.at = Position(str(scope.file), node.func.end_lineno or node.lineno, 1)
        if isinstance(function, Function | Method | Class):
            self._drawn = None  # what it gives is read in its text
        if more:  # settings of which there may be others
            given = getattr(function, "given", {})
            named = {name: as_by_default(value) for name, value in given.items()} | named
            result = self._call(function, arguments, named)
            if isinstance(result, Object):
                result.names |= {k: as_by_default(v) for k, v in result.names.items()}
            return result
        return self._call(function, arguments, named)

    def _call(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = self._result(function, arguments, named)
        given = [*arguments, *named.values()]
        parts = given if isinstance(result, Outside) else [e for e in given if isinstance(e, str)]
        if isinstance(result, Outside):  # functions that it may call
            parts += [f"{e}()" for e in given if isinstance(e, Outside) and draws(e)]
        plain = isinstance(result, str | int | float)
        if not plain or isinstance(function, Function | Method) or Chance.of(result):
            return result
        return chance_of(parts, result)

    def _result(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if isinstance(function, Outside):
            called, given = str(function)[1:], [*arguments, *named.values()]
            first = arguments[0] if len(arguments) == 1 else None
            wraps = outside.root(function) in _TRANSPARENT - _COMMANDS and self._of_script(first)
            done = not wraps and self._handed_over(called.rpartition(".")[2], arguments, named)
            if called == "object.__setattr__" and len(arguments) == len(("self", "name", "value")):
                self._set(*arguments)
                return None
            if Chance.of(given) is not None:
                outside.SET.add(function.without_last())
            if called.rpartition(".")[2] not in _LOOKING:
                for each in given:
                    if isinstance(each, Class | Object):
                        classes.forget(each)
                    elif type(each) in (dict, list):
                        open_up(each)
            if called in (*GIVEN, *NAMED) and reason_of_call(called, given) is None:
                return Outside(f"{function}(...)")
            if isinstance(first, Function | Method) and not (done or draws(function)):
                return self._decorated(function, first)
            return self._also_read(function, Outside.__call__(function, *arguments, **named))
        if isinstance(function, Class):
            return classes.made(self, function, arguments, named)
        if permitted.of_frames(function) and arguments and permitted.frame(arguments[0]):
            function, arguments = getattr(arguments[0], function.__name__), arguments[1:]
        if isinstance(function, Object):
            function = classes.attribute(function, "__call__")
        if isinstance(function, Function | Method):
            return function(*arguments, **named)
        if function is permitted.shown:
            return None
        if function in (enumerate, list, tuple) or getattr(function, "__name__", "") == "join":
            any(map(in_order, arguments))
        compares = any(function is known for known in _COMPARING)
        gathers = any(function is known for known in _GATHERING)
        if function is str and holds_object(arguments):
            return Outside("$text")
        if (compares and holds_object(arguments)) or (gathers and any(map(is_unknown, arguments))):
            return Outside("$value")
        if any(function is known for known in _DECIDING) and (
            holds_open(arguments) or self._of_script(named.get("key"))
        ):
            whole = arguments[0] if len(arguments) == 1 and are_lists(arguments) else arguments
            return self._one_of(whole, "value", "which of several values is chosen")
        if id(function) not in self._given and not permitted.callable_(function):
            return Outside(f"${getattr(function, '__name__', 'value')}")(*arguments, **named)
        owner: Any = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        given = [*arguments, *named.values()]
        looked_at = given[:1] if name == "withWatermark" else given  # not at how late rows may be
        unknown = any(map(holds_unknown, looked_at))
        frame = permitted.frame_of(owner)
        if unknown and name in _OF_SQL and all(map(is_text, given)):
            texts, known = zip(*map(settled, arguments), strict=True)
            arguments, unknown = tuple(texts), not all(known)
        if unknown and frame is not None and not permitted.harmless(name):
            reason = f"an argument of `{name}` is not known, as nothing was run"
            return permitted.as_given(name, frame.hint(UNREAD, reason))
        if type(owner) is dict and name in _TOLD and holds_open((arguments[0], *owner)):
            found = function(*arguments) if arguments[0] in owner else (*arguments, None)[1]
            by_default = isinstance(arguments[0], Open) and name == "get"
            return self._chosen(owner, found, *([] if by_default else [None]))
        if type(owner) is dict and name == "update" and any(map(is_unknown, arguments)):
            open_up(owner)
            return None
        if permitted.writer(owner) and name in ("foreachBatch", "foreach"):
            arguments = tuple(
                classes.attribute(each, "__call__")
                if isinstance(each, Object) and name == "foreachBatch"
                else each
                for each in arguments
            )
        if unknown and permitted.reader(owner) and name == "schema":
            return owner.option(name, str(given)) if Chance.of(given) else owner
        if unknown and permitted.writer(owner) and name in ("foreachBatch", "foreach"):
            return owner.foreachBatch(_unknown_body)
        try:
            result = function(*arguments, **named)
            if isinstance(result, _VIEWS):
                result = list(result)
            if any(isinstance(each, Open) for each in (owner, *arguments, *named.values())):
                result = list(result[:TEXT_MAX]) if isinstance(result, range) else result
                return outside.by_default(result, str(name))
            if function is sorted and holds_open(arguments):
                return [as_by_default(each) for each in result]
            counts = function is len and isinstance(arguments[0], list | tuple)
            if type(result) in _TOLD_BY and not counts and holds_open((owner, given)):
                return outside.by_default(result, str(name))
            if permitted.setting(owner, name) or (
                unknown and isinstance(owner, permitted.PLAIN) and isinstance(result, bool | int)
            ):
                return outside.by_default(result, str(name))
            if callable(result):
                self._given[id(result)] = result
            return result
        except Asked:
            outside.note(f"what `{name}` gives is not known, as only a running Spark has data")
            return Outside(f"$DataFrame.{name}()")
        except (Refused, Ended, _Return, _Leave):
            raise
        except Exception as failed:
            if frame is not None:
                reason = f"`{name}` was not understood without being run: {type(failed).__name__}"
                return permitted.as_given(name, frame.hint(UNREAD, reason))
            if permitted.writer(owner):
                return owner if name == "trigger" else owner.foreachBatch(_unknown_body)
            return Outside(f"${name}")

    def _also_read(self, function: Outside, result: Any) -> Any:
        """The result of a class that is not followed: it may read every DataFrame in its text."""
        if not permitted.frame(result):
            return result
        for node, scope, _ in self._not_followed:
            if outside.root(function) != node.name:
                continue
            named = [scope.value(inner.id) for inner in ast.walk(node) if _is_name(inner)]
            frames = {id(value): value for value in named if permitted.frame(value)}
            for frame in frames.values():
                result = result.union(frame)
            reason = f"what `{node.name}` does is not known, as it was not followed"
            result = result.hint(UNREAD, reason) if frames else result
        return result

    def _pandas_udf(self, function: Any = None, returnType: Any = None, kind: Any = None) -> Any:  # noqa: N803
        """`pandas_udf`, of a function whose kind its annotations say."""
        from pyspark.sql.connect.udf import _create_udf

        if not isinstance(function, Function):
            return self._partially(function if returnType is None else returnType, kind)
        made = _create_udf(function, returnType, kind or function.batches())
        self._given[id(made)] = made
        return made

    def _partially(self, returns: Any, kind: Any) -> Any:
        def decorate(function: Any) -> Any:
            return self._pandas_udf(function, returns, kind)

        self._given[id(decorate)] = decorate
        return decorate

    def _handed_over(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Call functions that are handed to threads and the like with what comes with them; others
        that may start queries, with arguments that are not known. Gives whether they are known."""
        first, *rest = arguments or (None,)
        if self._of_script(first) and name in _MAPS and are_lists(rest):
            for values in zip(*rest, strict=False):
                self._call(first, values if name != "starmap" else tuple(values[0]), {})
            return True
        values = (*arguments, *named.values())
        inside = [part for each in values if type(each) in (list, tuple) for part in each]
        inside += [part for each in values if type(each) is dict for part in each.values()]
        functions = [each for each in (*values, *inside) if self._of_script(each)]
        known = passed(name, functions[0], arguments, named) if len(functions) == 1 else None
        if known is not None:
            self._call(functions[0], *known)
            return True
        for function in functions:
            if self._may_describe(unwrapped(function).node):
                self._perhaps(function)
        return False

    def _of_script(self, value: Any) -> bool:
        """Whether a value is a function of the script, or one that was made of such."""
        if isinstance(value, Function | Method):
            return value.node is not None
        return id(value) in self._given and isinstance(unwrapped(value), Function | Method)

    def _may_describe(self, node: ast.AST, met: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a function may start queries or define datasets, or what it names."""
        if _describes(node):
            return True
        met |= {node}
        names = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}
        inner = [each for name in names for each in self._definitions.get(name, ())]
        return any(self._may_describe(each, met) for each in inner if each not in met)

    def _perhaps(self, function: Any) -> None:
        """Follow a call that may come, with arguments that are not known."""
        scope = unwrapped(function).scope
        before = self._state(scope)
        self._unsure += 1
        try:
            self._from_outside(function)
        except Raised:
            pass
        finally:
            self._unsure -= 1
        self._either([before, self._state(scope)], f"whether `{function.__name__}` is called")

    def _from_outside(self, function: Any, *arguments: Any, **named: Any) -> None:
        if hasattr(function, "parts"):
            inner, first, others = function.parts
            self._from_outside(inner, *first, *arguments, **{**others, **named})
        elif hasattr(function, "chosen_from"):
            for each in function.chosen_from:
                self._from_outside(each, *arguments, **named)
        elif hasattr(function, "__wrapped__"):
            self._from_outside(function.__wrapped__, *arguments, **named)
        else:
            function.from_outside(*arguments, **named)

    def _decorated(self, decorator: Outside, function: Any) -> Any:
        """A function behind a decorator that is not known: it may do anything to a DataFrame."""
        if outside.root(decorator) in _TRANSPARENT:
            return function

        @functools.wraps(function, assigned=(), updated=())
        def decorated(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            reason = f"what `{decorator[1:]}` does to `{function.__name__}` is not known here"
            return result.hint(UNREAD, reason) if permitted.frame(result) else result

        self._given[id(decorated)] = decorated
        return decorated

    def called(
        self,
        node: Definition,
        outer: Scope,
        bound: dict[str, Any],
    ) -> Any:
        """The value of a call of a function of the script, with these arguments."""
        if len(self._calls) >= DEPTH_MAX:
            raise Ended("its functions call each other too deeply to be followed")
        name = getattr(node, "name", "lambda")
        self._entered.add(id(node))
        if self._unsure and any(node is called for called in self._calls):
            return Outside(f"${name}()")  # how often it calls itself is not known
        scope, at, yielded = Scope(outer.file, bound, outer), self.at, _Yielded()
        drawn = self._drawn
        self._calls.append(node)
        self._results.append([])
        self._yields.append(yielded)
        result: Any = None
        ends = True
        try:
            if isinstance(node, ast.Lambda):
                result = self.value(node.body, scope)
            else:
                self._body(node.body, scope)
        except _Return as returned:
            result = returned.value
        except Raised:
            ends = False
            if not self._results[-1]:
                raise
        finally:
            self.at, self._drawn, _ = at, drawn, self._calls.pop()
            several = self._results.pop()
            self._yields.pop()
        if yielded or (not isinstance(node, ast.Lambda) and yields(node)):
            return yielded
        if not several:
            return result
        return self._one_of(
            [*several, *([result] if ends else [])], f"{name}()", f"what `{name}` gives"
        )

    def defaults(self, parameters: ast.arguments, scope: Scope) -> dict[str, Any]:
        """The values that parameters have by default."""
        names = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)]
        values = parameters.defaults
        pairs = [*zip(names[len(names) - len(values) :], values, strict=True)]
        for argument, value in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            if value is not None:
                pairs.append((argument.arg, value))
        return {name: self.value(value, scope) for name, value in pairs}

    def _partial(self, function: Any, *first: Any, **named: Any) -> Any:
        """`functools.partial`, of functions that may be called."""

        @functools.wraps(function, assigned=(), updated=())
        def partial(*arguments: Any, **others: Any) -> Any:
            return self._call(function, (*first, *arguments), {**named, **others})

        partial.parts = (function, first, named)  # type: ignore[attr-defined]
        self._given[id(partial)] = partial
        return partial

    def _with_fields(self, target: Any, **named: Any) -> Any:
        """`dataclasses.replace`."""
        if not isinstance(target, Object) or not target.kind.fields:
            return Outside("$dataclasses.replace()")
        known = {f.name: target.names[f.name] for f in target.kind.fields if f.name in target.names}
        return classes.made(self, target.kind, (), known | named)

    def _named_tuple(self, name: Any, fields: Any, *_: Any, **named: Any) -> Any:
        """`collections.namedtuple`."""
        several = fields.replace(",", " ").split() if isinstance(fields, str) else fields
        defaults = named.get("defaults") or ()
        known = are_lists([several, defaults]) and not named.keys() - {"defaults", "module"}
        if not known or not all(type(each) is str for each in (name, *several)):
            return Outside("$collections.namedtuple()")
        kind = classes.without_text(name, ["NamedTuple"], several)
        kind.names = dict(zip(reversed(several), reversed(defaults), strict=False))
        return kind

    def _simple(self, *arguments: Any, **named: Any) -> Any:
        """`types.SimpleNamespace`."""
        made = Object(classes.without_text("SimpleNamespace"), named, plain=not named)
        self.objects.append(made)
        return Outside("$types.SimpleNamespace()") if arguments else made

    def _reduce(self, function: Any, values: Any, *first: Any) -> Any:
        """`functools.reduce`, of functions that may be called."""
        if isinstance(values, Outside) or not isinstance(values, list | tuple):
            return Outside("$functools.reduce()")(*first)
        result, *rest = (*first, *list(values))
        for value in rest:
            result = self._call(function, (result, value), {})
        return result


def _replaced_parts(interpreter: Interpreter, target: Object, **named: Any) -> Any:
    """`_replace` of a named tuple."""
    return classes.made(interpreter, target.kind, (), target.names | named)


def _as_dict(_: Interpreter, target: Object) -> dict[str, Any]:
    """`_asdict` of a named tuple."""
    return dict(target.names)


_OF_TUPLES: Final[Mapping[str, Callable[..., Any]]] = {
    "_asdict": _as_dict,
    "_replace": _replaced_parts,
}
"""Methods that every named tuple has."""


def _unknown_body(*_: Any) -> None:
    raise Refused("the function is not known, as nothing was run")


def _retries(body: Sequence[ast.stmt]) -> bool:
    """Whether turns of a loop are tries: the first that meets no error is the last."""
    return any(
        isinstance(node, ast.Try)
        and any(isinstance(last, ast.Return | ast.Break) for last in _last(node))
        for node in body
    )


def _last(node: ast.Try) -> list[ast.stmt]:
    return [*(node.orelse or node.body)[-1:]]


def _is_there(module: str) -> bool:
    """Whether a module is there wherever a script runs."""
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names or permitted.module(module) is not None


def _how(known: str, leaves: Sequence[tuple[bool, _State, str]]) -> str:
    """How often a loop runs, or how far it comes, where chance may decide when it ends."""
    return next((test for _, _, test in leaves if Chance.of(test)), known)


def _wraps(_: Any) -> Any:
    """`functools.wraps`: what a function is called changes nothing of what it does."""
    return _same


def _same(function: Any) -> Any:
    return function


def _is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _restore(state: _State) -> None:
    """Let everything be as it was."""
    for holder, copy in state:
        if isinstance(holder, dict):
            holder.clear()
            holder.update(copy)
        else:
            holder[:] = copy


def _stored(node: ast.AST) -> set[str]:
    """The names that a statement sets."""
    names = {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }
    return names | ({node.name} if isinstance(node, ast.ClassDef) else set())


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether a branch leaves the script or the function."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in ("sys.exit", "exit", "quit")
    return isinstance(last, ast.Raise)


@functools.cache
def _describes(node: ast.AST) -> bool:
    """Whether a statement may start queries or define datasets."""
    text = ast.unparse(node)
    words = ("readStream", "writeStream", ".start(", ".toTable(", "dlt.", "dp.")
    return any(word in text for word in words)


def _describes_all(body: Sequence[ast.stmt]) -> bool:
    return any(map(_describes, body))
