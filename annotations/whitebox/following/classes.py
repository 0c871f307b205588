"""Classes of a script that is followed without being run: their members, and objects of them.

A class is followed where all of its bases are: others of the script, those that only mark it
(`ABC`, `Protocol`), those of PySpark whose methods nobody calls here, enumerations and threads. One
that says itself what an access or a call does to it is not. Fields of a `dataclass`, a `NamedTuple`
or a model of pydantic become the parameters of its making.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from annotations.whitebox.following.outside import Open, Outside, as_default, lost

MARKERS: Final = frozenset({"ABC", "Generic", "Protocol", "object"})
"""Bases that do nothing to what a class does."""
_ENUMERATIONS: Final = frozenset({"Enum", "IntEnum", "StrEnum"})
"""Bases that make a class of its values; `int` and `str` may stand beside them."""
_THREADS: Final = frozenset({"Process", "Thread"})
"""Bases that call `run`."""
_MODELS: Final = frozenset({"BaseModel", "BaseSettings"})
"""Bases that fill fields from what they are given, and from the environment."""
_NOT_FOLLOWED: Final = frozenset(
    {"__new__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__"}
    | {"__class_getitem__", "__set_name__", "__bool__", "__len__"}
)
FILLING: Final = frozenset({"attrs", "dataclass", "define", "frozen", "mutable", "s"})
"""Decorators of `dataclasses`, `attr` and `attrs` that make fields the parameters of a class."""
_OF_FIELDS: Final = frozenset({"Field", "attrib", "field", "ib"})
"""Functions that describe a field."""
_FIELDS: Final = (ast.Assign, ast.AnnAssign)
_CHANGING: Final = {None, "converter", "field_transformer", "on_setattr", "these"}
"""Options of classes and of fields by which a field is another one than what it is given."""
_AFTER: Final = ("__post_init__", "__attrs_post_init__")
_MISSING: Final = object()


class Follower(Protocol):
    """Follows the script: statements, expressions and calls."""

    objects: list[Object]
    """All objects that were made of the script's own classes."""

    def value(self, node: ast.expr, scope: Any) -> Any:
        """The value of an expression."""

    def follow(self, node: ast.stmt, scope: Any) -> None:
        """Follow a statement of the body of a class."""

    def function(self, node: ast.FunctionDef, scope: Any, kind: Class) -> Any:
        """A function of a class."""

    def call(self, function: Any) -> Any:
        """The value of a call without arguments."""


@dataclass(eq=False)
class Field:
    """A field of a dataclass, and how its default is made."""

    name: str
    default: ast.expr | None
    factory: ast.expr | None


@dataclass(eq=False)
class Class:
    """A class of the script."""

    name: str
    file: Path
    node: ast.ClassDef
    scope: Any
    """Where it is defined."""
    bases: tuple[Class, ...]
    foreign: bool
    """A base is of PySpark."""
    names: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] | None = None
    """Of a dataclass, those of its bases first."""
    lost: bool = False
    """What it holds may have changed: only its functions are known."""
    words: frozenset[str] = frozenset()
    """The bases that are not of the script."""

    @property
    def enumerates(self) -> bool:
        """Whether it is an enumeration: its values are objects of it, and there are no others."""
        return any(kind.words & _ENUMERATIONS for kind in self.order())

    @property
    def values(self) -> list[Object]:
        """The values of an enumeration."""
        values = self.names.values() if self.enumerates else ()
        return [value for value in values if isinstance(value, Object) and value.kind is self]

    def order(self) -> Iterator[Class]:
        """The class and its bases, in the order in which a member is looked for."""
        several = [self, *(kind for base in self.bases for kind in base.order())]
        last = {id(kind): place for place, kind in enumerate(several)}
        return (kind for place, kind in enumerate(several) if last[id(kind)] == place)

    def member(self, name: str, *, after: Class | None = None) -> Any:
        """The member of that name, in a base behind `after`; `_MISSING` where there is none."""
        order = list(self.order())
        if after is not None:
            order = order[order.index(after) + 1 :]
        return next((kind.names[name] for kind in order if name in kind.names), _MISSING)


@dataclass(eq=False)
class Object:
    """An object of a class of the script."""

    kind: Class
    names: dict[str, Any] = field(default_factory=dict)
    plain: bool = True
    """It was made without arguments."""
    lost: bool = False
    """What it holds may have changed, but for what was set since."""


def parts(value: Any) -> Any:
    """The values of a named tuple; anything else as it is."""
    named = isinstance(value, Object) and "NamedTuple" in value.kind.words
    return tuple(value.names.values()) if named else value


@dataclass(eq=False)
class Super:
    """The members of an object that its bases behind a class have."""

    of: Object | Class
    after: Class


class Method:
    """A function of a class, for an object or for the class itself."""

    def __init__(self, function: Any, owner: Any) -> None:
        self.__self__ = owner
        self.__name__ = function.__name__
        self.__qualname__ = function.__name__
        self.__module__ = "__main__"
        self.node = getattr(function, "node", None)
        self.__doc__ = None
        self.__code__ = function.__code__
        self._function = function
        if (signature := getattr(function, "__signature__", None)) is not None:
            self.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])

    def from_outside(self, *arguments: Any, **named: Any) -> Any:
        """The value that it returns where it may be given more than these arguments."""
        return self._function.from_outside(self.__self__, *arguments, **named)

    @property
    def scope(self) -> Any:
        """The names around the function; None where it is not of the script."""
        return getattr(self._function, "scope", None)

    @property
    def given(self) -> Mapping[str, Any]:
        """The values of its parameters by default."""
        return getattr(self._function, "given", {})

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The value that the function returns."""
        return self._function(self.__self__, *arguments, **named)


@dataclass(eq=False)
class _Bound:
    """A member with a decorator of Python's own."""

    function: Any
    how: str
    setter: Any = None
    """Of a property: what is called with the value that it is given."""


def defined(interpreter: Follower, node: ast.ClassDef, scope: Any, inner: Any) -> Class | None:
    """The class that a statement defines; None where it cannot be followed. `inner` gets the names
    that its body sets."""
    bases: list[Class] = []
    words = set[str]()
    foreign = False
    for base in node.bases:
        word = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        value = interpreter.value(base, scope)
        if isinstance(value, Class):
            bases.append(value)
        elif isinstance(value, type) and value.__module__.startswith("pyspark.sql.streaming"):
            foreign = True
        else:
            words.add(word.rpartition(".")[2])
    known = MARKERS | _ENUMERATIONS | _THREADS | _MODELS | {"NamedTuple"}
    if not words <= (known | {"int", "str"} if words & _ENUMERATIONS else known):
        return None
    decorators = [
        ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list
    ]
    described = [*node.decorator_list, *(s.value for s in node.body if isinstance(s, _FIELDS))]
    options = {k.arg for part in described if isinstance(part, ast.Call) for k in part.keywords}
    if any(word.rpartition(".")[2] not in FILLING for word in decorators) or (
        decorators and options & _CHANGING
    ):
        return None
    plain = [k for k in node.keywords if k.arg != "metaclass" or "ABCMeta" not in ast.unparse(k)]
    result = Class(
        node.name, scope.file, node, scope, tuple(bases), foreign, words=frozenset(words)
    )
    begin = result.member("__init_subclass__")
    if plain and (begin is _MISSING or any(k.arg in (None, "metaclass") for k in plain)):
        return None
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            before = inner.names.get(statement.name)
            member = _member(interpreter, statement, scope, result)
            if isinstance(before, _Bound) and _sets(statement):
                member = replace(before, setter=interpreter.function(statement, scope, result))
            inner.names[statement.name] = member
        elif isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue
        else:
            interpreter.follow(statement, inner)
    result.names = inner.names
    models = any(kind.words & _MODELS for kind in result.order())
    unknown = models and any(isinstance(result.names.get(d.name), Outside) for d in node.body
                             if isinstance(d, ast.FunctionDef))  # fmt: skip
    if result.names.keys() & _NOT_FOLLOWED or unknown:
        return None
    if result.enumerates:
        _enumerate(result, node)
    elif words & _THREADS and "run" in result.names:
        result.names["start"] = result.names["run"]
    inherited = [f for base in reversed([*result.order()][1:]) for f in base.fields or ()]
    if decorators or models or "NamedTuple" in words:
        own = list(_fields(node))
        remaining = [f for f in inherited if f.name not in {field.name for field in own}]
        result.fields = [*remaining, *own]
    elif inherited:
        result.fields = inherited
    if begin is not _MISSING:
        function = begin.function if isinstance(begin, _Bound) else begin
        function(result, **{str(k.arg): interpreter.value(k.value, scope) for k in plain})
    return result


def _enumerate(kind: Class, node: ast.ClassDef) -> None:
    """Let the values of an enumeration be objects of it."""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            value = kind.names[name]
            if name.startswith("_") or isinstance(value, _Bound) or hasattr(value, "__code__"):
                continue
            same = (v for v in kind.values if v.names["value"] == value)
            if (other := next(same, None)) is not None and not isinstance(value, Outside):
                kind.names[name] = other
                continue
            kind.names[name] = member = Object(kind, {"name": name, "value": value}, plain=False)
            if (begin := kind.member("__init__")) is not _MISSING:
                begin(member, *(value if isinstance(value, tuple) else (value,)))


def _member(interpreter: Follower, node: ast.FunctionDef, scope: Any, kind: Class) -> Any:
    function = interpreter.function(node, scope, kind)
    how = ""
    for decorator in node.decorator_list:
        word = ast.unparse(decorator)
        if word in ("property", "staticmethod", "classmethod", "cached_property") or (
            word == "functools.cached_property"
        ):
            how = word.rpartition(".")[2]
        elif word.rpartition(".")[2] not in ("abstractmethod", "override"):
            return Outside(f"${node.name}")
    return _Bound(function, how) if how else function


def _sets(node: ast.FunctionDef) -> bool:
    """Whether a function is what the property before it does with a value that it is given."""
    return [ast.unparse(decorator) for decorator in node.decorator_list] == [f"{node.name}.setter"]


def _fields(node: ast.ClassDef) -> Iterator[Field]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=note, value=default):
                if "ClassVar" in ast.unparse(note):
                    continue
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as default) if _describes(
                default
            ):
                pass
            case _:
                continue
        factory = None
        if isinstance(default, ast.Call) and _describes(default):
            options = {keyword.arg: keyword.value for keyword in default.keywords}
            first = next(iter(default.args), None)
            factory = options.get("default_factory", options.get("factory"))
            default = options.get("default", first)
        yield Field(name, default, factory)


def _describes(call: ast.Call) -> bool:
    """Whether a call describes a field."""
    return ast.unparse(call.func).split(".")[-1] in _OF_FIELDS


def without_text(name: str, bases: Sequence[str] = (), fields: Sequence[str] = ()) -> Class:
    """A class of Python's own that no text of the script defines, with these fields."""
    node = ast.ClassDef(name, [], [], [], [])
    kind = Class(name, Path("<"), node, None, (), False, words=frozenset(bases))
    kind.fields = [Field(field, None, None) for field in fields] or None
    return kind


def instance(
    interpreter: Follower, kind: Class, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """A new object of a class, its `__init__` called; of an enumeration, the one of a value."""
    if kind.enumerates:
        asked = next(iter((*arguments, *named.values())), None)
        values = [] if isinstance(asked, Outside | Open) else kind.values
        return next((v for v in values if v.names["value"] == asked), Outside(f"${kind.name}()"))
    result = Object(kind, plain=not (arguments or named))
    interpreter.objects.append(result)
    begin = kind.member("__init__")
    if kind.fields is not None and (begin is _MISSING or "__init__" not in kind.names):
        _filled(interpreter, result, arguments, named)
        members = (kind.member(name) for name in _AFTER)
        begin = next((member for member in members if member is not _MISSING), _MISSING)
        arguments, named = (), {}
    if begin is not _MISSING:
        if isinstance(begin, Outside | _Bound):
            return Outside(f"${kind.name}()")
        begin(result, *arguments, **named)
    return result


def _filled(
    interpreter: Follower, target: Object, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    fields = target.kind.fields or []
    open_ = any(kind.words & _MODELS for kind in target.kind.order())
    given = dict(zip((f.name for f in fields), arguments, strict=False)) | dict(named)
    for part in fields:
        if part.name in given:
            value = given[part.name]
        elif part.factory is not None:
            value = interpreter.call(interpreter.value(part.factory, target.kind.scope))
        elif part.default is not None:
            value = interpreter.value(part.default, target.kind.scope)
        elif part.name in target.kind.names:
            value = target.kind.names[part.name]
        else:
            value = Outside(f"${part.name}")
        target.names[part.name] = as_default(value) if open_ else value


def attribute(owner: Class | Object | Super, name: str) -> Any:
    """A member of a class or of an object; a value that is not known where it has none."""
    if isinstance(owner, Object) and name in owner.names:
        member = owner.kind.member(name)
        if not (isinstance(member, _Bound) and member.how == "property"):
            return owner.names[name]
    if isinstance(owner, Super):
        holder = owner.of
        member = (holder.kind if isinstance(holder, Object) else holder).member(
            name, after=owner.after
        )
    else:
        member = owner.member(name) if isinstance(owner, Class) else owner.kind.member(name)
        holder = owner
    if member is _MISSING:
        # `super().__init__()` of a base that only marks the class
        empty = name in ("__init__", "__init_subclass__")
        return (lambda *_, **__: None) if empty else Outside(f"${name}")
    if isinstance(member, _Bound):
        kind = holder if isinstance(holder, Class) else holder.kind
        match member.how:
            case "staticmethod":
                return member.function
            case "classmethod":
                return Method(member.function, kind)
            case _:
                return (
                    member.function(holder) if isinstance(holder, Object) else Outside(f"${name}")
                )
    kind = holder if isinstance(holder, Class) else holder.kind
    if not hasattr(member, "__code__"):
        lost = any(base.lost for base in kind.order()) or getattr(holder, "lost", False)
        return Outside(f"${name}") if lost else member
    if (
        isinstance(holder, Object)
        and hasattr(member, "__code__")
        and not isinstance(member, Method)
    ):
        return Method(member, holder)
    return member


def put(owner: Class | Object, name: str, value: Any) -> None:
    """Set a member, or let the setter of a property do it."""
    member = owner.kind.member(name) if isinstance(owner, Object) else None
    if isinstance(member, _Bound) and member.setter is not None:
        member.setter(owner, value)
        return
    if isinstance(member, Outside | _Bound):
        forget(owner)
        value = lost(value, name)
    owner.names[name] = value


def forget(target: Class | Object) -> None:
    """Know nothing any more of what an object, or a class, holds."""
    target.lost = True
    if isinstance(target, Object):
        for name, value in target.names.items():
            target.names[name] = lost(value, name)
