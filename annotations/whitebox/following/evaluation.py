"""Expressions of a script that is followed: their values, as far as they are known."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from annotations.whitebox.following import classes, configuration, outside, permitted
from annotations.whitebox.following.branches import (
    Branches,
    Ended,
    Left,
    Returned,
    Yielded,
    restore,
)
from annotations.whitebox.following.classes import Class, Follower, Method, Object, Super
from annotations.whitebox.following.module_text import Definition
from annotations.whitebox.following.outside import UNREAD, Default, Open, Outside, Refused
from annotations.whitebox.following.script_functions import Function, Scope
from annotations.whitebox.following.standard import Namespace
from annotations.whitebox.following.values import (
    FIXED,
    UNSET,
    are_lists,
    as_by_default,
    as_unknown,
    beside_column,
    chance_of,
    decides,
    defaulted,
    enumerated,
    holds_object,
    holds_open,
    holds_unknown,
    in_order,
    is_text,
    of_file,
    of_open_length,
    shown_text,
    small,
    unknown_of,
    whether,
)
from annotations.whitebox.python_chance import Chance

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
_NAMING: Final = frozenset({"exec", "getattr", "globals", "locals", "map", "setattr", "vars"})
"""Functions that look at names or members, set them, or call others."""


class Evaluator(Branches):
    """Works out expressions; calls and statements inside of them are for others to follow."""

    def __init__(self) -> None:
        super().__init__()
        self._patched: dict[str, Any] = {}
        """Members of PySpark that the script has set."""
        self._drawn: Chance | None = None
        """What is another one each time, among the parts of the expression that is being read."""
        self._yields: list[Yielded] = []
        """Of each function that is being called, what it has yielded."""
        self._pandas: Any = None
        """What stands for `pandas_udf`."""

    def _called(self, node: ast.Call, scope: Scope) -> Any:
        """The value of a call in the script."""
        raise NotImplementedError

    def function(self, node: Definition, scope: Scope, kind: Class | None = None) -> Any:
        """A function of the script, or of a class of it."""
        raise NotImplementedError

    def _body(self, statements: Sequence[ast.stmt], scope: Scope) -> None:
        """Follow statements."""
        raise NotImplementedError

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        """Follow a statement."""
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression; an `Outside` where it is not known."""
        self._step()
        before, self._drawn = self._drawn, None
        try:
            result = self._value(node, scope)
        except (Refused, Ended, Returned, Left):
            self._drawn = before
            raise
        except Exception:
            if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                self._read_once(node, scope)
            result = unknown_of(node)
        if type(result) is str and not isinstance(node, ast.Constant) and holds_unknown(result):
            result = Default(result)  # made of what is not known: it decides nothing
        chance = Chance.of(result) if isinstance(result, str) else None
        if chance is None and isinstance(result, Outside | bytes | slice):
            chance = self._drawn  # it was made of that
            result = result if chance is None else Outside(f"${chance.text}()")
        elif chance is None and isinstance(node, ast.Attribute):
            chance = self._drawn  # of a method, and of what it gives
        self._drawn = min(filter(None, (before, chance)), key=of_file, default=None)
        return result

    def _read_once(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope
    ) -> None:
        """A comprehension over what is not known is a loop like others: it may start queries."""
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        body: list[ast.stmt] = [ast.Expr(part) for part in parts]
        for generator in reversed(node.generators):
            for test in reversed(generator.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(generator.target, generator.iter, body, [])]
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
                text = "".join(map(str, pieces))
                return text if all(map(decides, pieces)) else Default(text)
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
                return self.function(node, scope)
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
        entries: dict[Any, Any] = {}
        by_default = False
        for key, value in zip(keys, values, strict=True):
            inner = self.value(value, scope)
            if key is not None:
                entries[self.value(key, scope)] = inner
            elif isinstance(inner, dict):
                entries |= inner
                by_default |= isinstance(inner, Open)
            else:
                return Outside("$options")
        return outside.by_default(entries, "settings") if by_default else entries

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
            values = [as_by_default(value) for value in values]
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
                by_default = isinstance(op, ast.Or) and type(last) in (str, Default)
                return Default(last) if by_default else as_unknown(result)
            if bool(result) == isinstance(op, ast.Or):
                return result
        return result

    def _either_value(self, ways: Sequence[ast.expr], scope: Scope, test: str) -> list[Any]:
        """The values of expressions of which one is worked out, and it is not known which."""
        if not any(
            isinstance(part, ast.Call | ast.NamedExpr) for e in ways for part in ast.walk(e)
        ):
            return [self.value(way, scope) for way in ways]
        before = self._state(scope)
        values, states = [], []
        for way in ways:
            restore(before)
            values.append(self.value(way, scope))
            states.append(self._state(scope))
        self._either(states, test)
        return values

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
        entry = container[key]
        return as_by_default(entry) if isinstance(container, Open) else entry

    def _chosen(self, container: dict[Any, Any], *entries: Any) -> Any:
        """The value under a key that is not known, or has a value by default: any of the values. Of
        texts and numbers by default, that one is kept."""
        if len(entries) == 1 and (plain := defaulted(entries[0])) is not UNSET:
            return plain
        return self._one_of([*entries, *container.values()], "value", "the key that is looked up")

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
            value = getattr(owner, name)
        except Refused as refused:  # of the context: what it gives, only data tell
            outside.note(str(refused))
            return Outside("$DataFrame.rdd")
        if isinstance(value, outside.Several):
            return self._one_of(value.values, name, f"`{name}`")
        if permitted.setting(owner, name) and isinstance(value, str):
            return Default(value)
        return (
            value if permitted.value(value) or permitted.callable_(value) else Outside(f"${name}")
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

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.put(name, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                value = classes.parts(value)
                known = isinstance(value, list | tuple) and len(value) == len(parts)
                for number, part in enumerate(parts):
                    item = value[number] if known else Outside(f"{shown_text(value)}[{number}]")
                    self._assign(part, item, scope)
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

    def _built_in(self, node: ast.Call, scope: Scope) -> Any:
        """A call of a function of Python that is worked out here; `UNSET` where it is
        another one."""
        word = node.func.id if isinstance(node.func, ast.Name) else ""
        if word not in _NAMING or scope.value(word) != f"${word}" or node.keywords:
            return UNSET
        arguments = list(self._items(node.args, scope))
        holder = scope
        while holder.outer is not None and (word in ("exec", "globals") or holder.comprehension):
            holder = holder.outer
        match word, arguments:
            case (("globals" | "locals" | "vars"), []):
                return holder.names
            case "vars", [Object() as owner]:
                return owner.names
            case "map", [function, *values] if are_lists(values):
                return [self._call(function, value, {}) for value in zip(*values, strict=False)]
            case "setattr", [owner, name, value]:
                self._set(owner, name, value)
                return None
            case "getattr", [owner, str(name), *default] if not isinstance(name, Outside | Open):
                member = self._attribute(owner, name)
                lacks = isinstance(member, Outside) and bool(default)
                return self._one_of([member, *default], name, f"`{name}`") if lacks else member
            case "exec", [str(text), *_] if not holds_unknown(text):
                self._body(ast.parse(text).body, scope)
                return None
            case "exec", _:
                for names in (scope.names, holder.names):
                    names.update({k: outside.lost(v, k) for k, v in names.items() if k[:2] != "__"})
                return None
        return UNSET


def _replaced_parts(interpreter: Follower, target: Object, **named: Any) -> Any:
    """`_replace` of a named tuple."""
    return classes.instance(interpreter, target.kind, (), target.names | named)


def _as_dict(_: Follower, target: Object) -> dict[str, Any]:
    """`_asdict` of a named tuple."""
    return dict(target.names)


_OF_TUPLES: Final[Mapping[str, Callable[..., Any]]] = {
    "_asdict": _as_dict,
    "_replace": _replaced_parts,
}
"""Methods that every named tuple has."""
