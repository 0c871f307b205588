"""Functions of a script that is not run, the names that they see, and what they are called with."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

from annotations.whitebox.following import outside, permitted
from annotations.whitebox.following.classes import Class, Method, Object, Super
from annotations.whitebox.following.module_text import Definition, names_in
from annotations.whitebox.following.outside import Outside
from annotations.whitebox.following.values import as_by_default

_KINDS: Final = {
    "posonlyargs": Parameter.POSITIONAL_ONLY,
    "args": Parameter.POSITIONAL_OR_KEYWORD,
    "vararg": Parameter.VAR_POSITIONAL,
    "kwonlyargs": Parameter.KEYWORD_ONLY,
    "kwarg": Parameter.VAR_KEYWORD,
}
"""Lists of parameters in the syntax tree, in their order."""
SUPER: Final = "super()"
"""The name in a method's scope of what `super()` gives."""
_PASSING: Final = frozenset(
    {"call_soon", "call_soon_threadsafe", "do", "run_in_executor", "run_sync", "submit"}
    | {"to_process", "to_thread"}
)
"""Functions that call one that they are given with the arguments behind it."""
_PACKING: Final = frozenset(
    {"apply", "apply_async", "call_later", "Process", "start_new_thread", "Thread", "Timer"}
)
"""Functions that are given the arguments of another as a list and a dictionary behind it."""
_ARGUMENTS: Final = ("args", "op_args", "fargs"), ("kwargs", "op_kwargs", "fkwargs", "kwds")
"""What these are called where they have a name."""


class Caller(Protocol):
    """Follows what a function does."""

    session: Any
    """What `spark` is where the platform sets it."""

    def defaults(self, parameters: ast.arguments, scope: Scope) -> dict[str, Any]:
        """The values that parameters have by default."""

    def called(self, node: Definition, outer: Scope, bound: dict[str, Any]) -> Any:
        """The value of a call, with these arguments."""


def signature(parameters: ast.arguments) -> Signature:
    """The parameters of a function, without what they are by default."""
    listed = []
    for name, kind in _KINDS.items():
        part = getattr(parameters, name)
        several = part if isinstance(part, list) else filter(None, [part])
        listed += [Parameter(value.arg, kind) for value in several]
    return Signature(listed)


class Function:
    """A function of the script: PySpark may call it like any other."""

    def __init__(
        self,
        interpreter: Caller,
        node: Definition,
        scope: Scope,
        kind: Class | None = None,
    ) -> None:
        self._interpreter = interpreter
        self._kind = kind
        self._node = node
        self._scope = scope
        self._defaults = interpreter.defaults(node.args, scope)
        self.command = ""
        """The module that makes a command of it."""
        self.__name__ = getattr(node, "name", "<lambda>")
        self.__qualname__ = self.__name__
        self.__module__ = "__main__"
        self.__doc__ = None
        self.__signature__ = signature(node.args)
        """How PySpark knows what it takes."""
        decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
        inner = scope.outer is not None and names_in(node) & scope.names.keys()
        self.__code__ = SimpleNamespace(
            co_filename=str(scope.file),
            co_firstlineno=min([node.lineno, *decorators]),
            co_name=self.__name__,
            co_freevars=tuple(sorted(inner)) if inner else (),
        )

    @property
    def scope(self) -> Scope:
        """The names around it."""
        return self._scope

    @property
    def given(self) -> dict[str, Any]:
        """The values of its parameters by default."""
        return self._defaults

    @property
    def node(self) -> Definition:
        """Its text."""
        return self._node

    def batches(self) -> int:
        """As a function of pandas, its kind: of series, of iterators of them, or an aggregate."""
        args = self._node.args
        taken = " ".join(
            ast.unparse(argument.annotation)
            for argument in (*args.posonlyargs, *args.args)
            if argument.annotation is not None
        )
        returns = getattr(self._node, "returns", None)
        given = "Series" if returns is None else ast.unparse(returns)
        if "Iterator[" in given:
            return 204
        if "Series" in given or "DataFrame" in given:
            return 200
        return 217 if "Iterator[" in taken else 202

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The value that the function returns."""
        if self.command:
            return self.from_outside(*arguments, **named)
        return self._called(bound_to(self._node.args, self._defaults, arguments, named), arguments)

    def from_outside(self, *arguments: Any, **named: Any) -> Any:
        """The value that it returns where it may be given more than these arguments."""
        defaults = {name: as_by_default(value) for name, value in self._defaults.items()}
        bound = bound_to(self._node.args, defaults, arguments, named)
        for argument in (self._node.args.vararg, self._node.args.kwarg):
            if argument is not None:
                bound[argument.arg] = outside.as_default([*bound[argument.arg]] if (
                    argument is self._node.args.vararg) else bound[argument.arg])  # fmt: skip
        if bound.get("spark") == "$spark":
            bound["spark"] = self._interpreter.session
        return self._called(bound, arguments)

    def _called(self, bound: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
        if self._kind is not None and arguments and isinstance(arguments[0], Object | Class):
            bound.setdefault(SUPER, Super(arguments[0], self._kind))
        return self._interpreter.called(self._node, self._scope, bound)


@dataclass
class Scope:
    """Names of a module or of a call, in a file."""

    file: Path
    names: dict[str, Any] = field(default_factory=dict)
    outer: Scope | None = None
    shared: dict[str, Scope] = field(default_factory=dict)
    """Names that belong to a scope around it."""
    comprehension: bool = False
    """It is of a comprehension: what `:=` sets in it belongs to the scope around it."""

    def around(self) -> Iterator[Scope]:
        """The scopes around it, the nearest first."""
        scope = self.outer
        while scope is not None:
            yield scope
            scope = scope.outer

    def share(self, names: Sequence[str], *, of_module: bool) -> None:
        """Let names be those of the module (`global`), or of the nearest scope that has them."""
        for name in names:
            scope = self.outer or self
            while scope.outer is not None and (of_module or name not in scope.names):
                scope = scope.outer
            self.shared[name] = scope

    def put(self, name: str, value: Any) -> None:
        """Set a name."""
        self.shared.get(name, self).names[name] = value

    def value(self, name: str) -> Any:
        """The value of a name; one that is not known where nothing set it."""
        scope: Scope | None = self.shared.get(name, self)
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return permitted.BUILT_IN[name] if name in permitted.BUILT_IN else Outside(f"${name}")


def unwrapped(function: Any) -> Any:
    """The function of the script that another one was made of, the first of several."""
    while not (isinstance(function, Function | Method) or hasattr(type(function), "__getattr__")):
        parts = getattr(function, "parts", None) or getattr(function, "chosen_from", None)
        inner = parts[0] if parts else getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return function


def passed(
    name: str, function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments that a function is called with by another that it is handed to; None: not
    known."""
    place = next((n for n, argument in enumerate(arguments) if argument is function), None)
    behind = () if place is None else arguments[place + 1 :]
    if name in _PASSING and place is not None:
        return behind, dict(named)
    listed, mapped = (
        next((named[word] for word in words if word in named), None) for words in _ARGUMENTS
    )
    if name in _PACKING:
        listed, mapped = (
            value if value is not None or number >= len(behind) else behind[number]
            for number, value in enumerate((listed, mapped))
        )
    elif listed is None and mapped is None:
        return None
    listed, mapped = listed or (), mapped or {}
    known = isinstance(listed, list | tuple) and isinstance(mapped, dict)
    return (tuple(listed), dict(mapped)) if known else None


def bound_to(
    parameters: ast.arguments,
    defaults: Mapping[str, Any],
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Parameter -> its value in a call."""
    names = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)]
    known = {*names, *(argument.arg for argument in parameters.kwonlyargs)}
    bound = dict(defaults)
    bound |= dict(zip(names, arguments, strict=False))
    bound |= {name: value for name, value in named.items() if name in known}
    bound |= {name: Outside(f"${name}") for name in sorted(known - bound.keys())}
    if parameters.vararg is not None:
        bound[parameters.vararg.arg] = tuple(arguments[len(names) :])
    if parameters.kwarg is not None:
        rest = {name: value for name, value in named.items() if name not in known}
        bound[parameters.kwarg.arg] = rest
    return bound
