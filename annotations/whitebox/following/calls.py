"""Calls of a script that is followed: of its own functions, of PySpark, Python, and others."""

from __future__ import annotations

import ast
import functools
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any, Final, TypeGuard

from annotations.dataflow import Position
from annotations.whitebox.following import classes, configuration, outside, permitted, standard
from annotations.whitebox.following.branches import Ended, Left, Raised, Returned, Yielded
from annotations.whitebox.following.classes import Class, Method, Object
from annotations.whitebox.following.evaluation import Evaluator
from annotations.whitebox.following.module_text import Definition, yields
from annotations.whitebox.following.outside import UNREAD, Asked, Open, Outside, Refused
from annotations.whitebox.following.script_functions import (
    SUPER,
    Function,
    Scope,
    passed,
    unwrapped,
)
from annotations.whitebox.following.standard import Chain, Namespace
from annotations.whitebox.following.values import (
    TEXT_MAX,
    UNSET,
    are_lists,
    as_by_default,
    chance_of,
    draws,
    holds_object,
    holds_open,
    holds_unknown,
    in_order,
    is_text,
    is_unknown,
    open_up,
    settled,
)
from annotations.whitebox.python_chance import GIVEN, NAMED, Chance, reason_of_call

_OPERATORS: Final[Mapping[str, type[ast.operator]]] = {
    "add": ast.Add,
    "and_": ast.BitAnd,
    "mul": ast.Mult,
    "or_": ast.BitOr,
    "sub": ast.Sub,
    "truediv": ast.Div,
}
"""Functions of `operator`."""
DEPTH_MAX: Final = 60
"""Calls of the script's own functions inside of each other."""
_MAPS: Final = frozenset({"imap", "imap_unordered", "map", "map_async", "starmap"})
"""What calls a function for each of several values."""
_TRANSPARENT: Final = frozenset(
    {"abc", "airflow", "backoff", "cachetools", "click", "contextlib", "dagster", "dataclasses"}
    | {"dask", "fire", "functools", "hydra", "invoke", "joblib", "loguru", "luigi", "mlflow"}
    | {"prefect", "retry", "retrying", "tenacity", "typeguard", "typer", "typing"}
)
"""Modules whose decorators change nothing of what a function returns."""
COMMANDS: Final = frozenset(
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
_OF_SQL: Final = frozenset({"expr", "filter", "selectExpr", "sql", "where"})
"""Functions of PySpark that are given texts of SQL."""
_TOLD: Final = frozenset({"get", "pop", "setdefault"})
"""Members of a dictionary that find something by its key."""
_TOLD_BY: Final = (str, bytes, int, float, bool)
"""Classes of values that depend on each of those that they were made of."""
_VIEWS: Final = (ItemsView, KeysView, ValuesView, enumerate, map, reversed, zip)


class Calls(Evaluator):
    """Follows calls.

    Args:
        arguments: of the script, its own name first.

    Attributes:
        at: the place that is being read.
        session: what `spark` is where the platform sets it.
    """

    def __init__(self, arguments: list[str]) -> None:
        super().__init__()
        self._not_followed: list[tuple[ast.ClassDef, Scope, Any]] = []
        """Classes of the script that are not followed, where they stand, and what for them."""
        self._definitions: dict[str, list[ast.AST]] = {}
        """Name -> the functions and classes of the script, and of its modules, that have it."""
        self._entered: set[int] = set()
        """The functions that were called, by the id of their text."""
        self._calls: list[ast.AST] = []
        """The functions that are being called, the innermost last."""
        self._results: list[list[Any]] = []
        """Of each, the values that it may have returned before."""
        self.at: Position | None = None
        self.session: Any = None
        self._pandas = self._pandas_udf
        self._standard = standard.modules(arguments)
        """Module of Python -> what of it is worked out here."""
        contexts = {"contextmanager": _same, "closing": _same}
        functions = {"reduce": self._reduce, "partial": self._partial, "wraps": _wraps}
        operators = {name: functools.partial(self._binary, op()) for name, op in _OPERATORS.items()}
        fields, tuples = {"replace": self._with_fields}, {"namedtuple": self._named_tuple}
        simple = {"SimpleNamespace": self._simple}
        self._standard["contextlib"] = Namespace(contexts)
        self._standard["functools"] = Namespace(functions)
        self._standard["operator"] = Namespace(operators, "operator.")
        self._standard["dataclasses"] = Namespace(fields, "dataclasses.")
        self._standard["types"] = Namespace(simple, "types.")
        self._standard["collections"].names |= tuples
        for known in (contexts, functions, operators, fields, tuples, simple, configuration.PATHS):
            self._given |= {id(function): function for function in known.values()}
        self._given[id(self._pandas)] = self._pandas

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
            wraps = outside.root(function) in _TRANSPARENT - COMMANDS and self._of_script(first)
            done = not wraps and self._handed_over(called.rpartition(".")[2], arguments, named)
            if called == "object.__setattr__" and len(arguments) == len(("self", "name", "value")):
                self._set(*arguments)
                return None
            if Chance.of(given) is not None:
                outside.SET.add(function.without_last())
            if called.rpartition(".")[2] not in _LOOKING:
                for argument in given:
                    if isinstance(argument, Class | Object):
                        classes.forget(argument)
                    elif type(argument) in (dict, list):
                        open_up(argument)
            if called in (*GIVEN, *NAMED) and reason_of_call(called, given) is None:
                return Outside(f"{function}(...)")
            if isinstance(first, Function | Method) and not (done or draws(function)):
                return self._decorated(function, first)
            return self._also_read(function, Outside.__call__(function, *arguments, **named))
        if isinstance(function, Class):
            return classes.instance(self, function, arguments, named)
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
            values = arguments[0] if len(arguments) == 1 and are_lists(arguments) else arguments
            return self._one_of(values, "value", "which of several values is chosen")
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
            entry = function(*arguments) if arguments[0] in owner else (*arguments, None)[1]
            by_default = isinstance(arguments[0], Open) and name == "get"
            return self._chosen(owner, entry, *([] if by_default else [None]))
        if type(owner) is dict and name == "update" and any(map(is_unknown, arguments)):
            open_up(owner)
            return None
        if permitted.writer(owner) and name in ("foreachBatch", "foreach"):
            arguments = tuple(
                classes.attribute(argument, "__call__")
                if isinstance(argument, Object) and name == "foreachBatch"
                else argument
                for argument in arguments
            )
        if unknown and permitted.reader(owner) and name == "schema":
            return owner.option(name, str(given)) if Chance.of(given) else owner
        if unknown and permitted.writer(owner) and name in ("foreachBatch", "foreach"):
            return owner.foreachBatch(_unknown_body)
        try:
            result = function(*arguments, **named)
            if isinstance(result, _VIEWS):
                result = list(result)
            if any(isinstance(argument, Open) for argument in (owner, *arguments, *named.values())):
                result = list(result[:TEXT_MAX]) if isinstance(result, range) else result
                return outside.by_default(result, str(name))
            if function is sorted and holds_open(arguments):
                return [as_by_default(value) for value in result]
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
        except (Refused, Ended, Returned, Left):
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
            named = [scope.value(inner.id) for inner in ast.walk(node) if is_name(inner)]
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
        udf = _create_udf(function, returnType, kind or function.batches())
        self._given[id(udf)] = udf
        return udf

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
        inside = [part for value in values if type(value) in (list, tuple) for part in value]
        inside += [part for value in values if type(value) is dict for part in value.values()]
        functions = [value for value in (*values, *inside) if self._of_script(value)]
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
        if describes(node):
            return True
        met |= {node}
        names = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}
        inner = [definition for name in names for definition in self._definitions.get(name, ())]
        return any(
            self._may_describe(definition, met) for definition in inner if definition not in met
        )

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
            for choice in function.chosen_from:
                self._from_outside(choice, *arguments, **named)
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
        scope, at, yielded = Scope(outer.file, bound, outer), self.at, Yielded()
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
        except Returned as returned:
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

    def follow(self, node: ast.stmt, scope: Scope) -> None:
        """Follow a statement of the body of a class."""
        self._statement(node, scope)

    def call(self, function: Any) -> Any:
        """The value of a call without arguments."""
        return self._call(function, (), {})

    def function(self, node: Definition, scope: Scope, kind: Class | None = None) -> Function:
        """A function of the script, or of a class of it."""
        return Function(self, node, scope, kind)

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
        return classes.instance(self, target.kind, (), known | named)

    def _named_tuple(self, name: Any, fields: Any, *_: Any, **named: Any) -> Any:
        """`collections.namedtuple`."""
        several = fields.replace(",", " ").split() if isinstance(fields, str) else fields
        defaults = named.get("defaults") or ()
        known = are_lists([several, defaults]) and not named.keys() - {"defaults", "module"}
        if not known or not all(type(value) is str for value in (name, *several)):
            return Outside("$collections.namedtuple()")
        kind = classes.without_text(name, ["NamedTuple"], several)
        kind.names = dict(zip(reversed(several), reversed(defaults), strict=False))
        return kind

    def _simple(self, *arguments: Any, **named: Any) -> Any:
        """`types.SimpleNamespace`."""
        namespace = Object(classes.without_text("SimpleNamespace"), named, plain=not named)
        self.objects.append(namespace)
        return Outside("$types.SimpleNamespace()") if arguments else namespace

    def _reduce(self, function: Any, values: Any, *first: Any) -> Any:
        """`functools.reduce`, of functions that may be called."""
        if isinstance(values, Outside) or not isinstance(values, list | tuple):
            return Outside("$functools.reduce()")(*first)
        result, *rest = (*first, *list(values))
        for value in rest:
            result = self._call(function, (result, value), {})
        return result


def _unknown_body(*_: Any) -> None:
    raise Refused("the function is not known, as nothing was run")


def _wraps(_: Any) -> Any:
    """`functools.wraps`: what a function is called changes nothing of what it does."""
    return _same


def _same(function: Any) -> Any:
    return function


def is_name(node: ast.AST) -> TypeGuard[ast.Name]:
    """Whether an expression is a name."""
    return isinstance(node, ast.Name)


@functools.cache
def describes(node: ast.AST) -> bool:
    """Whether a statement may start queries or define datasets."""
    text = ast.unparse(node)
    words = ("readStream", "writeStream", ".start(", ".toTable(", "dlt.", "dp.")
    return any(word in text for word in words)
