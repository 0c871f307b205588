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
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.following import classes, configuration, outside, permitted, places
from annotations.whitebox.following.branches import Left, Raised, Returned, State, Yielded, restore
from annotations.whitebox.following.calls import COMMANDS, Calls, describes, is_name
from annotations.whitebox.following.classes import Class, Method, Object
from annotations.whitebox.following.outside import Outside
from annotations.whitebox.following.program import Unparsed, module_file, tree_of
from annotations.whitebox.following.script_functions import Function, Scope
from annotations.whitebox.following.standard import Namespace
from annotations.whitebox.following.values import (
    as_by_default,
    chance_of,
    decides,
    deciding,
    either_way,
    enumerated,
    in_order,
    of_open_length,
    one_of_many,
    shown_text,
    unknown_of,
    whether,
)
from annotations.whitebox.python_chance import Chance

TURNS_DEPTH_MAX: Final = 4
"""Loops inside of each other of which a second turn is read."""
_MISSING: Final = re.compile(r"ImportError|ModuleNotFound|NameError")
"""Errors that say where a script runs."""


class Interpreter(Calls):
    """Follows one script.

    Args:
        modules: names of modules -> what stands for them.
        arguments: of the script, its own name first.
    """

    def __init__(self, modules: Mapping[str, Callable[[], Any]], arguments: list[str]) -> None:
        super().__init__(arguments)
        self._modules = modules
        self._imported: dict[Path, Namespace] = {}
        self._registered: list[Function] = []
        """Functions that a decorator which is not known may call."""
        self.made: list[list[Any]] = []
        """Lists that get what the script makes: queries, datasets."""
        self._leaves: list[list[tuple[bool, State, str]]] = []
        """Of each loop, the ways out of a turn that may have been taken: whether it goes on, what
        was there, and what is not known."""
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
                scope.share(names, of_module=isinstance(node, ast.Global))
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
                    elif isinstance(result, Yielded):
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
                raise Returned(None if value is None else self.value(value, scope))
            case ast.Break() | ast.Continue():
                raise Left(isinstance(node, ast.Continue))
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
            chance = Chance.of(held)
            stands = Outside(f"${node.name}" + (f".${chance.text}()" if chance else ""))
            self._not_followed.append((node, scope, stands))
            for definition, _, stands in self._not_followed:
                self._left_out(definition, scope)
                scope.names[definition.name] = stands
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

    def _left_out(self, node: ast.stmt, scope: Scope) -> None:
        """A statement that is not followed: the names that it sets are not known after it."""
        word = type(node).__name__.lower().removesuffix("def")
        if describes(node):
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
        catches_all = last.guard is None and isinstance(last.pattern, ast.MatchAs)
        bodies = [case.body for case in node.cases]
        self._ways([*bodies, *([] if catches_all else [[]])], scope, subject)

    def _fits(self, pattern: ast.pattern, value: Any, scope: Scope) -> bool | None:
        """Whether a pattern is that of a value; None: not known."""
        match pattern:
            case ast.MatchAs(pattern=None, name=name):
                if name is not None:
                    scope.put(name, value)
                return True
            case ast.MatchOr(patterns=several):
                fits = [self._fits(option, value, scope) for option in several]
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
        ended: list[State] = []
        stopped: list[Raised | Returned | Left] = []
        left: list[tuple[bool, State, str]] = []
        for number, way in enumerate(ways):
            restore(before)
            self._unsure += not tried or number > 0
            try:
                self._body(way, scope)
            except (Raised, Returned, Left) as stop:
                stopped.append(stop)
                if isinstance(stop, Left):
                    left.append((stop.on, self._state(scope), test))
            else:
                if not _ends(way):
                    ended.append(self._state(scope))
            finally:
                self._unsure -= not tried or number > 0
        returned = [stop.value for stop in stopped if isinstance(stop, Returned)]
        if self._leaves:
            self._leaves[-1] += left
        if self._results and (ended or left):
            self._results[-1] += [either_way(value, test) for value in returned]
        if ended:
            self._either(ended, test)
        elif left:
            self._either([state for _, state, _ in left], test)
            raise Left(any(on for on, *_ in left))
        elif returned:
            raise Returned(self._one_of(returned, "result", test))
        else:
            raise stopped[0] if stopped else Raised("the script ends")

    def _repeated(
        self, loop: str, node: ast.While | ast.For, scope: Scope, decided: Any = None
    ) -> None:
        """A loop of which it is not known how often it runs: its body is read once, of values that
        are those of any turn."""
        often = f"how often a loop runs{deciding(decided)}"
        if describes(node):
            outside.note(f"{loop}, which is not known here, was read once")
        forever = isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
        body: list[ast.stmt] = [*node.body]
        before = [len(value) for value in self.made]
        for _ in range(1 if self._unsure > TURNS_DEPTH_MAX else 2):
            # Behind the first turn, what it has made may be what the next one begins with.
            for results, count in zip(self.made, before, strict=True):
                del results[count:]
            self._forget(node, scope, again=True)
            if isinstance(node, ast.For):
                for name in _stored(node.target):
                    scope.put(name, chance_of([decided], one_of_many(decided, name)))
            self._leaves.append([])
            raised: Raised | None = None
            try:
                self._ways([body] if forever else [body, []], scope, often)
            except Left:
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
        named = {inner.id: scope.value(inner.id) for inner in ast.walk(node) if is_name(inner)}
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
            self._for(target, [as_by_default(value) for value in values], body, scope, node)
            self._either([before, self._state(scope)], "how often a loop runs")
            return
        broken: list[State] = []
        far = "how far a loop comes"
        begun = [len(results) for results in self.made]
        for turn, value in enumerate(values):
            if turn == 1:
                tried = [len(results) for results in self.made]
            self._assign(target, value, scope)
            self._leaves.append([])
            ended: Left | None = None
            raised: Raised | None = None
            try:
                self._body(body, scope)
            except Left as left:
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
        for results, first, later in zip(self.made, begun, tried, strict=True):
            known = [permitted.essence(value) for value in results[first:later]]
            results[later:] = [
                value for value in results[later:] if permitted.essence(value) not in known
            ]

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Any:
        result: Any = self.function(node, scope)
        at = self.at
        for decorator in reversed(node.decorator_list):
            self.at = Position(str(scope.file), decorator.lineno, decorator.col_offset + 1)
            wrapper = self.value(decorator, scope)
            unknown = isinstance(wrapper, Outside) and self._of_script(result)
            if unknown and isinstance(result, Function):
                root = outside.root(wrapper)
                result.command = result.command or (root if root in COMMANDS else "")
                self._registered.append(result)
            result = (
                self._decorated(wrapper, result) if unknown else self._call(wrapper, (result,), {})
            )
        self.at = at
        return result

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                module = self._module(alias.name, scope.file)
                name = alias.asname or alias.name.partition(".")[0]
                root = alias.name.partition(".")[0]
                scope.names[name] = module if alias.asname else self._module(root, scope.file)
                continue
            base = node.module or ""
            module = self._module(base, scope.file, level=node.level)
            if alias.name == "*":
                scope.names.update(permitted.all_of(module) if module is not None else {})
                if base in permitted.PANDAS_UDF:
                    scope.names["pandas_udf"] = self._pandas
            else:
                inner = self._module(
                    f"{base}.{alias.name}".lstrip("."), scope.file, level=node.level, required=False
                )
                value = self._attribute(module, alias.name) if inner is None else inner
                scope.names[alias.asname or alias.name] = value

    def _module(self, name: str, beside: Path, *, level: int = 0, required: bool = True) -> Any:
        """A module of PySpark, a file of the user that is followed too, or one that is unknown:
        None, unless it is `required`."""
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
            if not required:
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


def _how(known: str, leaves: Sequence[tuple[bool, State, str]]) -> str:
    """How often a loop runs, or how far it comes, where chance may decide when it ends."""
    return next((test for _, _, test in leaves if Chance.of(test)), known)


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


def _describes_all(body: Sequence[ast.stmt]) -> bool:
    return any(map(describes, body))
