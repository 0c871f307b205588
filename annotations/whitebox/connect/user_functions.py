"""What the text of a function that Spark calls for each record shows: that its result is left to
chance, or depends on records before it or on how records are divided into batches.

Of Python's own library, pandas and NumPy, what depends on its arguments alone, and treats each
record by itself, is listed (`python_chance`, `_BY_RECORD`): everything else of them does not. What
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from types import MethodType
from typing import Any, Final, TypeAlias

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect import outside
from annotations.whitebox.connect.classes import Class, Object
from annotations.whitebox.connect.program import module_file, program
from annotations.whitebox.datatypes import UNKNOWN, DataType
from annotations.whitebox.derivation import SETTINGS
from annotations.whitebox.python_chance import (
    GIVEN,
    NAMED,
    READING,
    Chance,
    alone,
    imported_names,
    placed,
    reason_of,
    reason_of_call,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHANGING: Final = _words(
    """
    __delitem__ __iadd__ __ior__ __next__ __setattr__ __setitem__ add append appendleft clear
    difference_update discard extend extendleft insert intersection_update move_to_end pop
    popitem popleft put remove reverse rotate send setdefault sort subtract
    symmetric_difference_update update
    """
)
_CHANGING_FIRST: Final = _words(
    """
    bisect.insort bisect.insort_left bisect.insort_right heapq.heapify heapq.heappop
    heapq.heappush heapq.heappushpop heapq.heapreplace numpy.add.at numpy.copyto numpy.place
    numpy.put numpy.putmask operator.delitem operator.iadd operator.setitem random.shuffle
    """
)
"""Functions that change their first argument."""
_HOLDERS: Final = _words("Counter OrderedDict defaultdict deque dict list set")
_ITERATING: Final = _words("iter enumerate filter map open reversed zip")
_ITERATORS: Final = _words("itertools.chain itertools.count itertools.cycle itertools.repeat")
"""Functions whose values are used up."""
_ORDERING: Final = _words("enumerate iter join list map next str repr tuple zip")
"""Functions for which the order of a set matters."""
_READING: Final = re.compile(
    r"\bopen\(|\.(collect\w*|first|head|read|read_\w+|take\w*|toPandas|toLocalIterator|load\w*)\("
    r"|\bspark\.(read|sql|table)\b"
)
"""A text that reads what is somewhere now."""
_BY_RECORD: Final = _words(
    """
    abs add applymap apply array asarray astype between clip combine combine_first copy div divide
    drop dt eq fillna floordiv ge get gt insert isin isna isnull itertuples iterrows items join
    keys le list lt map mask mod mul multiply ne notna notnull pop pow radd rdiv rename replace
    reindex rfloordiv rmod rmul round rpow rsub rtruediv set_axis str sub subtract to_dict to_frame
    to_list to_numpy tolist truediv tz_convert tz_localize where assign add_prefix add_suffix
    append extend
    """
)
"""Methods of Series, DataFrames and arrays that treat each record by itself."""
_WHOLE: Final = _words("T at cat empty iat iloc index ndim shape size")
"""Members of them that show the whole batch, or the place of a record in it."""
_ARRAYS: Final = _words(
    """
    absolute arccos arcsin arctan arctan2 array asanyarray asarray around bitwise_and bitwise_or
    bitwise_xor cbrt ceil char clip column_stack cos cosh deg2rad degrees digitize divide empty_like
    equal exp exp2 expm1 fabs fix floor floor_divide fmax fmin fmod frompyfunc full_like greater
    greater_equal heaviside hypot interp invert isfinite isin isinf isnan isnat less less_equal log
    log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum mod multiply
    nan_to_num negative not_equal ones_like power rad2deg radians reciprocal remainder rint
    round searchsorted select sign sin sinh sqrt square stack subtract tan tanh true_divide trunc
    vectorize where zeros_like abs add DataFrame Series isna isnull notna notnull to_datetime
    to_numeric to_timedelta datetime64 timedelta64 float32 float64 int32 int64
    """
)
"""Functions of NumPy and pandas of which the same is true."""
_OF_COLUMNS: Final = _words(
    """
    abs add between clip copy div divide eq fillna floordiv ge gt isna isnull le lt mask mod mul
    multiply ne notna notnull pow radd rdiv rfloordiv rmod rmul round rpow rsub rtruediv sub
    subtract truediv where
    """
)
"""Methods of which that is true whatever columns and values they are given by place."""
_OF_FRAMES: Final = (
    _words(
        """
    array attrs axes columns dtype dtypes flags hasnans is_monotonic_decreasing
    is_monotonic_increasing is_unique loc name nbytes plot style
    """
    )
    | _WHOLE
)
"""Members that are no columns."""
_OF_VALUES: Final = _words(
    """
    abs absolute ceil cos equal exp expm1 fabs floor fmax fmin greater greater_equal isfinite isinf
    isnan less less_equal log log10 log1p log2 logical_and logical_not logical_or maximum minimum
    mod multiply not_equal power round sign sin sqrt square tan trunc where
    """
)
"""Functions of NumPy that treat values one by one."""
_PLAIN_TYPES: Final = _words("bool float str 'bool' 'float' 'float64' 'str' 'string'")
_OF_SEVERAL: Final = _words("functools itertools numpy pandas scipy sklearn statistics")
"""Modules whose other functions look at all that they are given."""
_PREDICTING: Final = _words("predict predict_proba")
"""Methods of models that score each record by itself."""
_FITTING: Final = ("fit", "partial_fit")
"""Methods of models that learn from all that they are given begin so, in whatever module."""
_ARROW: Final = _words(
    """
    all any approximate_median count count_distinct cumulative_max cumulative_min cumulative_prod
    cumulative_sum dictionary_encode first index kurtosis last max mean min min_max mode
    pairwise_diff product quantile rank skew sort_indices stddev sum tdigest unique value_counts
    variance
    """
)
"""Functions of Arrow of which that is true."""
_OF_ALL: Final = _words("all any enumerate len max min reversed set sorted sum")
"""Functions of Python of which that is true, given a Series or a DataFrame."""

_UNSEEN: Final = _words("__import__ eval exec importlib")
"""Functions, and a module, by which anything may be asked."""
_ENDING: Final = _words("_exit exit stop")
_WRITING: Final = _words(
    "append csv execute insertInto jdbc json merge orc overwrite overwritePartitions parquet save "
    "saveAsTable sql text"
)
_BESIDE: Final = _words("multiprocessing.Process threading.Thread threading.Timer")
_LATER: Final = _words(
    """
    apply_async create_task ensure_future map_async run_coroutine_threadsafe run_in_executor submit
    """
)
"""Methods that let something run beside a function."""
_AWAITING: Final = _words("gather get result run run_until_complete wait wait_for")
"""Methods that raise what it has raised."""
_STATE: Final = re.compile(r"\.get(Value|List|Map)State\(")

_Named: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Named | ast.Lambda


@dataclass(frozen=True)
class Shown:
    """What the text of a function shows: a word of the text for each, empty where it does not."""

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
        """What either shows."""
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
        found = Chance.of(text)
        if found is not None and found.of_file and not in_batch:
            outside.note(f"{SETTINGS} what `{found.text}` reads stay as they are")
            return False
        return found is not None

    def value(literal: ir.Literal) -> ir.Expression:
        return by_chance(literal.position, literal.type) if drawn(literal.value) else literal

    def unknown(part: ir.Unknown) -> ir.Expression:
        return replace(part, calls=True) if drawn(part.reason) else part

    return ir.changed(ir.changed(plan, ir.Literal, value), ir.Unknown, unknown)


def shown(function: Any, met: frozenset[int] = frozenset()) -> Shown:
    """What the text of a function of the user shows, and what it holds when it is handed over;
    nothing where it has no text."""
    processor = getattr(getattr(function, "__self__", None), "_stateful_processor", None)
    if processor is not None:
        return _shown_processor(processor)
    met |= {id(function)}
    if several := getattr(function, "chosen_from", ()):
        return functools.reduce(operator.or_, (shown(each, met) for each in several))
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
    except (ValueError, SyntaxError):
        return Shown()
    lambdas = code.co_name == "<lambda>"
    found = [
        node
        for node in module.definitions
        if isinstance(node, ast.Lambda) == lambdas and _first_line(node) == code.co_firstlineno
    ]
    each = [module.looked_at(n, held=frozenset(a.arg for a in n.args.args[:given])) for n in found]
    whole = {name for n in found for name in module.given_all(n)}
    used = _attributes(*found)
    for name, value in holding:
        other = _shown_value(value, used, met)
        each.append(other if name in whole else replace(other, batch=""))
    by_record = function is plain and bool(found) and all(map(module.by_record, found))
    return replace(functools.reduce(operator.or_, each, Shown()), by_record=by_record)


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function holds when it is handed over, by its name there: of the functions around it,
    the object that it is a method of, arguments that it was given before, and defaults."""
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
            made = hasattr(type(value), "scope") and getattr(value.scope, "outer", None) is not None
            if scope.outer is not None or made or isinstance(value, dict | list):
                yield name, value
        scope = scope.outer


def _shown_value(value: Any, used: Collection[str], met: frozenset[int]) -> Shown:
    """What a value shows that a function holds, of which it uses these members."""
    inside: list[Any] = []
    found = Shown()
    if isinstance(value, str):
        chance = Chance.of(value)
        asked = value[1:] if value[:1] == "$" and "." in value else ""
        if chance is not None and chance.of_file:
            return Shown(rests_on=chance.text)
        return Shown(chance.text if chance else asked if reason_of(asked) else "")
    if id(value) in met:
        return found
    met |= {id(value)}
    if isinstance(value, dict | list | tuple | set):
        inside = [*(value.values() if isinstance(value, dict) else value)]
    elif isinstance(value, Object):
        inside = [*value.names.values()]
        found = shown_class(value.kind.file, value.kind.name, used)
        used = {*used, *_attributes(value.kind.node)}
    elif callable(value) and not type(value).__module__.startswith("pyspark"):
        return shown(value, met)
    return functools.reduce(operator.or_, (_shown_value(v, used, met) for v in inside), found)


def _shown_processor(processor: Any) -> Shown:
    """What the text of a StatefulProcessor shows; `kind`: it is of a script that is not run."""
    kind = getattr(processor, "kind", None)
    if kind is not None:
        return shown_class(Path(kind.file), kind.name)
    members = chain.from_iterable(vars(each).values() for each in type(processor).__mro__)
    codes = (getattr(member, "__code__", None) for member in members)
    file = next((Path(code.co_filename) for code in codes if code is not None), Path("<"))
    return shown_class(file, type(processor).__name__)


def shown_class(file: Path, name: str, used: Collection[str] | None = None) -> Shown:
    """What the text of a StatefulProcessor shows, by its class or by a function that makes it; of
    another class, of the methods that are `used`, and of what these use."""
    try:
        module = _module(file)
    except (OSError, ValueError, SyntaxError):
        return Shown()
    return module.of_class(name, used=used)


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
    return _Module(ast.parse(program(file)), file.parent)


@dataclass
class _Module:
    """The text of a module."""

    tree: ast.Module
    folder: Path = Path("/nowhere")
    """What modules of the user are beside it."""
    definitions: list[_Definition] = field(init=False)
    imported: dict[str, str] = field(init=False)
    """Name -> what it is called in the module that it comes from."""
    values: dict[str, ast.expr] = field(init=False)
    """Name -> what it is set to, outside of the functions that are looked at or around them."""
    later: dict[str, list[ast.expr]] = field(init=False)
    """Name -> what else it, an item or a member of it is set to."""
    functions: dict[str, _Named] = field(init=False)
    classes: dict[str, ast.ClassDef] = field(init=False)

    def __post_init__(self) -> None:
        nodes = list(ast.walk(self.tree))
        self.definitions = [n for n in nodes if isinstance(n, _Definition)]
        self.functions = {d.name: d for d in self.definitions if isinstance(d, _Named)}
        self.classes = {n.name: n for n in nodes if isinstance(n, ast.ClassDef)}
        self.imported, self.values, self.later = imported_names(self.tree), {}, {}
        for node in nodes:
            match node:
                case ast.Assign(targets=targets, value=value) if all(
                    isinstance(each, ast.Name | ast.Tuple) for each in targets
                ):
                    for name, part in (pair for each in targets for pair in _pairs(each, value)):
                        if self.values.setdefault(name, part) is not part:
                            self.later.setdefault(name, []).append(part)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.values.setdefault(name, value)
                case ast.Assign(targets=[ast.Subscript() | ast.Attribute() as part], value=value):
                    self.later.setdefault(_root(part), []).append(value)

    def looked_at(
        self,
        node: _Definition,
        seen: frozenset[int] = frozenset(),
        held: frozenset[str] = frozenset(),
    ) -> Shown:
        """What a function shows, and what it calls: functions and classes of the user. `held`:
        parameters that are there before it is called."""
        chance, rests = self._chance(node)
        kept = self._kept(node, held=held)
        batch = "" if chance else self._batch(node)
        shown = Shown(chance, kept, batch, self._lost(node), ", ".join(rests))
        seen |= {id(node)}
        own = self._own(node)
        for name in dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            called, kind = self.functions.get(name), self.classes.get(name)
            value = None if name in own else self.values.get(name)
            if called is not None and id(called) not in seen:
                passed = self._passed(node, called, own, held)
                whole = name in self.given_all(node)
                other = self.looked_at(called, seen, passed)
                shown |= other if whole else replace(other, batch="")
            elif kind is not None and id(kind) not in seen:
                shown |= self._methods(kind, seen, shared=False)
            elif name in self.imported and name not in own:
                whole = name in self.given_all(node)
                shown |= self._beside(self.imported[name], seen, whole=whole)
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
            whole = member.rpartition(".")[2] in self._methods_given_all(node)
            shown |= self._beside(member, seen, whole=whole)
        return shown

    def _passed(
        self, node: _Definition, called: _Definition, own: Collection[str], held: Collection[str]
    ) -> frozenset[str]:
        """The parameters of a function that are given what is there before this one is called."""
        named = getattr(called, "name", "")
        names = [each.arg for each in (*called.args.posonlyargs, *called.args.args)]
        given = [c for c in _calls(node) if isinstance(c.func, ast.Name) and c.func.id == named]
        pairs = [pair for call in given for pair in zip(names, call.args, strict=False)]
        pairs += [(k.arg, k.value) for call in given for k in call.keywords if k.arg]
        return frozenset(
            name
            for name, value in pairs
            if _root(value) in held or (_root(value) and self._holds(value, own))
        )

    def set_to(self, name: str, seen: frozenset[int]) -> Shown:
        """What a name shows that is set outside of a function."""
        shown, value = Shown(), self.values[name]
        if isinstance(value, ast.Lambda):
            return replace(self.looked_at(value, seen), batch="")
        for each in (value, *self.later.get(name, ())):
            shown |= self._set_to(name, each, seen | {id(value)})
        return shown

    def _set_to(self, name: str, value: ast.expr, seen: frozenset[int]) -> Shown:
        """What a value shows that a name has outside of a function."""
        made = [*_calls(value)]
        kinds = [self.classes[c.func.id] for c in made
                 if isinstance(c.func, ast.Name) and c.func.id in self.classes]  # fmt: skip
        shown = Shown()
        for kind in kinds:
            shown |= self._methods(kind, seen, shared=True)
        for other in (self._beside(self._called(c.func), seen) for c in made):
            shown |= Shown(chance=other.chance, rests_on=other.rests_on)
        names = {c.func.id for c in made if isinstance(c.func, ast.Name)}
        for called in (self.functions[n] for n in names if n in self.functions):
            if id(called) not in seen:
                own = self.looked_at(called, seen | {id(value)})
                shown |= Shown(chance=own.chance, rests_on=own.rests_on)
                if _yields(called):
                    shown |= Shown(kept=name)
        for inner in ast.walk(value):
            before = self.values.get(inner.id) if isinstance(inner, ast.Name) else None
            if before is not None and id(before) not in seen | {id(value)}:
                shown |= self._set_to(ast.unparse(inner), before, seen | {id(value)})
        plain = value.func if isinstance(value, ast.Call) else None
        word = self._called(plain) or getattr(plain, "id", "") if plain is not None else ""
        iterates = word in _ITERATING and word not in self.functions
        partial = word == "functools.partial" and any(
            self._called(c) in _ITERATORS for c in made[1:]
        )
        if isinstance(value, ast.GeneratorExp) or iterates or partial or word in _ITERATORS:
            return shown | (Shown(rests_on=name) if word == "open" else Shown(kept=name))
        chance, rests = self._chance(ast.Lambda(_NO_ARGUMENTS, value), whole=False)
        return shown | Shown(chance, rests_on=", ".join([name, *rests][: 1 if rests else 0]))

    def _methods(self, kind: ast.ClassDef, seen: frozenset[int], *, shared: bool) -> Shown:
        """What the methods of a class show. `shared`: of an object that is there before."""
        shown = Shown()
        parts = [part for part in kind.body if isinstance(part, _Named)]
        for part in kind.body:
            if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
                shown |= replace(self._set_to(kind.name, part.value, seen), kept="")
        for part in parts:
            if id(part) not in seen:
                found = self.looked_at(part, seen | {id(kind), *map(id, parts)})
                own = frozenset[str]() if shared and part.name != "__init__" else {"self"}
                shown |= replace(found, kept=self._kept(part, new=own), batch="", lost="")
        return shown

    def _beside(self, name: str, seen: frozenset[int], *, whole: bool = False) -> Shown:
        """What a function of another file of the user shows, or a class. `whole`: it is given all
        rows of a batch."""
        other, member = self._other(name)
        if other is None:
            return Shown(rests_on=name if member else "")
        function, kind = other.functions.get(member), other.classes.get(member)
        if function is not None and id(function) not in seen:
            shown = other.looked_at(function, seen)
            return shown if whole else replace(shown, batch="")
        if function is None and kind is not None and id(kind) not in seen:
            return other.of_class(member, seen | {id(kind)})
        place = hash((id(other), member))
        if function is None and kind is None and place not in seen:
            if member in other.imported:
                return other._beside(other.imported[member], seen | {place}, whole=whole)
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
        except (SyntaxError, ValueError, OSError):
            return None, member

    def of_class(
        self,
        name: str,
        seen: frozenset[int] = frozenset(),
        used: Collection[str] | None = None,
    ) -> Shown:
        """What the methods of a class and of its bases show, or a function that gives an object;
        with `used`, those that are named there or in one another.

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
                names |= _attributes(*reached)
            methods = {id(method): method for method in reached} if methods else {}
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
            own = self.looked_at(method, seen)
            kept = "" if method in first else self._kept(method, state)
            found |= Shown(own.chance, kept)
        return found

    def _chance(self, node: _Definition, *, whole: bool = True) -> tuple[str, list[str]]:
        """What in a function depends on more than its arguments, and what is taken for granted."""
        own, nodes, rests = self._own(node), list(ast.walk(node)), dict[str, None]()
        rows = _batches(node)
        owners = {id(inner.value) for inner in nodes if isinstance(inner, ast.Attribute)}
        called = {id(call.func): call for call in _calls(node)}
        for inner in nodes:
            text = ast.unparse(inner)[:60] if isinstance(inner, ast.expr) else ""
            if isinstance(inner, ast.Call) and (
                _root(inner.func) in _UNSEEN or self.asks(inner, conditional=True)
            ):
                return text, []
            if isinstance(inner, ast.Call) and (
                ast.unparse(inner) == "repr(object())"
                or (_root(inner.func) == "getattr" and alone(self._called(inner)) is False)
            ):
                return text, []
            if isinstance(inner, ast.Attribute) and inner.attr in READING and whole:
                return text, []
            if isinstance(inner, ast.Call) and _samples(inner) and _made_of(inner.func) & rows:
                return text, []
            if isinstance(inner, ast.Attribute) and inner.attr == "astimezone":
                call = called.get(id(inner))
                if call is not None and not call.args and not call.keywords:
                    rests[text] = None
            if not isinstance(inner, ast.Attribute | ast.Name) or id(inner) in owners:
                continue
            root = _root(inner)
            name = self._called(inner)
            if root in own and not name.startswith("pathlib.Path."):
                continue
            if not name and isinstance(inner, ast.Name) and inner.id in ("open", "id", "hash"):
                name = inner.id
            if not name or name in GIVEN or name in NAMED or self._given(inner):
                continue
            call = called.get(id(inner))
            sure = alone(name)
            zoned = name.endswith(".fromtimestamp") and len(getattr(call, "args", ())) > 1
            nested = call is not None and any(_calls(inner))
            asked = call is not None or placed(name)
            if sure is None and asked and not zoned and not nested:
                rests[ast.unparse(call or inner)[:60]] = None
            elif sure is False:
                reads = _READING.search(ast.unparse(call)) if call is not None else None
                if whole or reads is None:
                    return text, []
                rests[text] = None
        if not whole and _READING.search(ast.unparse(node)):
            rests[ast.unparse(node.body)[:60] if isinstance(node, ast.Lambda) else ""] = None
        rests |= dict.fromkeys(_orders(node))
        return "", [*filter(None, rests)]

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
                known = self._called(owner, depth)
                return f"{known}.{name}" if known else ""
            case ast.Name(id=name) if name in self.imported:
                return self.imported[name]
            case ast.Name(id=name) if name in self.values and depth < 5:
                return self._called(self.values[name], depth + 1)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]
            ):
                return f"{self._called(owner, depth)}.{name}"
            case ast.Call(func=function):
                return self._called(function, depth)
        return ""

    def _own(self, node: _Definition) -> dict[str, None]:
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
            if plain and value is not None and self._holds(value, own) and _root(value) != "self":
                for target in targets:
                    if isinstance(target, ast.Name):
                        own.pop(target.id, None)
        return own

    def _kept(
        self,
        node: _Definition,
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
                    root = _root(inner)
                    if root not in own and (root or self._given_again(inner, own)):
                        return ast.unparse(inner)[:60]
                case ast.Call(func=function, args=[ast.Name(id=name), *_]) if name not in own and (
                    self._called(function) in _CHANGING_FIRST or _unbound(function)
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
        found = set[str]()
        for kind in self.classes.values():
            if not any("Listener" in ast.unparse(base) for base in kind.bases):
                continue
            for part in ast.walk(kind):
                match part:
                    case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                        found.add(_root(part))
                    case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CHANGING:
                        found.add(_root(owner))
                    case ast.Global(names=names):
                        found |= {*names}
        return found - {"self", "event", ""}

    def _holds(self, node: ast.expr, own: Collection[str], depth: int = 5) -> bool:
        """Whether an expression is a list or the like that is there before the function is."""
        root = _root(node)
        if not root:
            return self._given_again(node, own)
        if root in own:
            return False
        other, member = self._other(self._called(node)) if root in self.imported else (None, "")
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

    def _batch(self, node: _Definition, depth: int = 3) -> str:
        """What a function of pandas does with all rows of a batch, or a method that it gives them
        to, or a function that it calls for each batch."""
        batches = _batches(node)
        named = self._methods_given_all(node)
        inside: list[_Definition] = [
            part
            for kind in self.classes.values()
            for part in kind.body
            if isinstance(part, _Named) and part.name in named and part is not node
        ]
        for part in _outer(node):
            match part:
                case ast.Call(func=ast.Name(id="map"), args=args) if batches & {*map(_root, args)}:
                    inside += [each for each in args if isinstance(each, ast.Lambda)]
        if depth and (found := next(filter(None, (self._batch(i, depth - 1) for i in inside)), "")):
            return found
        whole_rows = {
            each.arg
            for each in node.args.args
            if each.annotation is not None and "DataFrame" in ast.unparse(each.annotation)
        }
        called = {id(call.func): call for call in _calls(node)}
        labels = {id(part) for call in _calls(node) for k in call.keywords if k.arg == "index"
                  for part in ast.walk(k.value)}  # fmt: skip
        for inner in _outer(node):
            call = called.get(id(inner))
            parts = [*call.args, *(k.value for k in call.keywords)] if call is not None else []
            given = any(_made_of(each) & batches for each in parts)
            by_record = call is not None and any(map(_each_row, call.keywords))
            if isinstance(inner, ast.expr) and self._called(inner).rpartition(".")[0] in GIVEN:
                continue
            if isinstance(inner, ast.Attribute) and _made_of(inner) & batches:
                on = inner.value
                if isinstance(on, ast.Attribute) and on.attr in ("str", "dt", "list"):
                    continue
                by_columns = inner.attr in ("apply", "map") and _root(on) in whole_rows
                by_columns &= isinstance(on, ast.Name)
                known = (
                    inner.attr in _BY_RECORD and not by_columns
                    if call is not None
                    else inner.attr not in _WHOLE
                )
                if not known and not by_record and id(inner) not in labels:
                    return ast.unparse(inner)[:60]
            elif given and isinstance(inner, ast.Attribute | ast.Name) and not by_record:
                name = self._called(inner)
                root, _, last = name.rpartition(".")
                of_all = root.partition(".")[0] in _OF_SEVERAL and last not in _ARRAYS
                of_all |= getattr(inner, "attr", "").startswith(_FITTING)
                if of_all or (root == "pyarrow.compute" and last in _ARROW):
                    return ast.unparse(inner)[:60]
        if whole := self._of_all(node):
            return whole
        body = node.body if isinstance(node, _Named) else []
        assigned = [part for part in body if isinstance(part, ast.Assign)]
        before = {name for part in assigned for name in _stored(part)}
        loops = [inner for inner in _outer(node) if isinstance(inner, ast.For)]
        return next((name for loop in loops for name in _stored(loop) if name in before), "")

    # ---- functions of whole frames (`mapInPandas`)

    def by_record(self, node: _Definition) -> bool:
        """Whether a function of frames is a loop over them that computes columns of columns."""
        names = [each.arg for each in node.args.args]
        body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        names_set = {name for step in body[-1:] for name in _stored(step)}
        while len(body) > 1 and _prepares(body[0], {*names, *names_set}):
            body = body[1:]
        match body:
            case [
                ast.For(target=ast.Name(id=frame), iter=ast.Name(id=given), body=steps, orelse=[])
            ]:
                rows = {frame}
                return names == [given] and all(self._maps(step, rows) for step in steps)
            case [ast.Return(value=ast.GeneratorExp(elt=value, generators=[each]))]:
                match each:
                    case ast.comprehension(ast.Name(id=frame), ast.Name(id=given), []):
                        return names == [given] and self._of_columns(value, {frame})
        return False

    def _maps(self, step: ast.stmt, rows: set[str]) -> bool:
        """Whether a statement computes of each record alone; `rows`: what has a row for each."""
        match step:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                of_columns = self._of_columns(value, rows)
                if not of_columns and _names_in(value) & rows:
                    return False
                (rows.add if of_columns else rows.discard)(name)
                return True
            case ast.Assign(
                targets=[ast.Subscript(ast.Name(id=name), ast.Constant(value=str()))], value=value
            ):
                scalar = isinstance(value, ast.Constant | ast.Name) and not _names_in(value) & rows
                return name in rows and (scalar or self._of_columns(value, rows))
            case ast.Expr(value=ast.Yield(value=ast.expr() as value)):
                return self._of_columns(value, rows)
            case ast.If(
                test=ast.Attribute(value=ast.Name(id=name), attr="empty"),
                body=[ast.Continue()],
                orelse=[],
            ):
                return name in rows
        return False

    def _of_columns(self, node: ast.expr, rows: set[str]) -> bool:
        """Whether a value has a row for each record, made of that record alone."""

        def fits(part: ast.expr) -> bool:
            names = _names_in(part)
            made = (self._called(self.values[name]) for name in names & self.values.keys())
            aligned = any(name.partition(".")[0] in _OF_SEVERAL for name in made)
            return self._of_columns(part, rows) or not (names & rows or aligned)

        def one(*parts: ast.expr) -> bool:
            return all(map(fits, parts)) and any(_names_in(part) & rows for part in parts)

        match node:
            case ast.Name(id=name):
                return name in rows
            case ast.Attribute(value=ast.Name(id=name), attr=column):
                return name in rows and column not in _OF_FRAMES
            case ast.Attribute(value=ast.Attribute(attr="dt")):
                return self._of_columns(node.value, rows)
            case ast.Attribute(value=owner, attr="str" | "dt" | "values"):
                return self._of_columns(owner, rows)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str())):
                return self._of_columns(owner, rows)
            case ast.Subscript(value=owner, slice=ast.List(elts=names)):
                named = all(isinstance(each, ast.Constant) and isinstance(each.value, str)
                            for each in names)  # fmt: skip
                return named and self._of_columns(owner, rows)
            case ast.Subscript(value=owner, slice=test):
                return self._of_columns(owner, rows) and self._of_columns(test, rows)
            case ast.BinOp(left=left, op=op, right=right):
                return not isinstance(op, ast.MatMult) and one(left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return not isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) and one(
                    left, right
                )
            case ast.UnaryOp(op=ast.Invert() | ast.USub(), operand=inner):
                return self._of_columns(inner, rows)
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=named):
                values = [*args, *(keyword.value for keyword in named)]
                keys = {str(keyword.arg) for keyword in named}
                known = not any(_names_in(value) & rows for value in values)
                if not self._of_columns(owner, rows):
                    root, _, last = self._called(node.func).rpartition(".")
                    if root == "pandas" and last == "DataFrame" and not named and len(args) == 1:
                        table = args[0]
                        return (
                            isinstance(table, ast.Dict)
                            and None not in table.keys
                            and all(self._of_columns(value, rows) for value in table.values)
                        )
                    if name in _PREDICTING and _root(owner) not in rows:
                        return not named and len(args) == 1 and self._of_columns(args[0], rows)
                    return root == "numpy" and last in _OF_VALUES and not named and one(*args)
                if isinstance(owner, ast.Attribute) and owner.attr in ("str", "dt"):
                    return known and name not in ("cat", "get_dummies")
                match name:
                    case "assign":
                        return not args and all(map(fits, values)) and None not in keys
                    case "dropna":
                        return not args and known and keys <= {"subset"}
                    case "drop" | "rename":
                        return not args and known and keys == {"columns"}
                    case "query":
                        return len(values) == 1 and _plain_test(args)
                    case "astype":
                        return not named and len(args) == 1 and ast.unparse(args[0]) in _PLAIN_TYPES
                    case "isin" | "map":
                        return known and not named and len(args) == 1
                return name in _OF_COLUMNS and not named and all(map(fits, values))
        return False

    def _lost(self, node: _Definition) -> str:
        """What lets a function go on where a write of it has failed."""
        tried_again = {id(each) for each in _tried_again(node)}
        for inner in (part for part in ast.walk(node) if id(part) not in tried_again):
            match inner:
                case ast.Try(finalbody=body) if any(
                    isinstance(part, ast.Return) for each in body for part in ast.walk(each)
                ):
                    return "finally: return"
                case ast.Try(body=body, handlers=handlers) if self._may_write(node, *body):
                    tried = set(_written(*body))
                    for handler in handlers:
                        again = tried & {*_written(handler)}
                        raises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
                        if not raises and not again and not _members(handler) & _ENDING:
                            return (
                                f"except {ast.unparse(handler.type)}" if handler.type else "except"
                            )
                case ast.With(items=items, body=body) if self._may_write(node, *body):
                    passing = next(filter(None, map(self._passes_over, items)), "")
                    if passing:
                        return passing
                case ast.Call(func=function) if self._called(function) in _BESIDE:
                    return self._called(function)
                case ast.Call(func=ast.Attribute(attr=name)) if name in _LATER:
                    if not _members(node) & _AWAITING:
                        return ast.unparse(inner.func)[:60]
        return ""

    def _may_write(self, function: _Definition, *parts: ast.AST, depth: int = 3) -> bool:
        """Whether parts of a function write, or call what may: what it is given or holds, and
        other functions of the user that do, or that are in other files."""
        if _members(*parts) & _WRITING:
            return True
        known = {*self.functions, *self.classes, *self.imported, *dir(builtins)}
        for call in (call for part in parts for call in _calls(part)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if isinstance(call.func, ast.Name) and name not in known:
                return True
            other = self.functions.get(name)
            given = any(isinstance(each, ast.Name) for each in call.args)
            if other is not None and depth and other is not function:
                found = self._may_write(other, *other.body, depth=depth - 1)
            else:
                module = self._called(call.func)
                found = bool(module) and given and alone(module) is None
            if found:
                return True
        return False

    def _passes_over(self, item: ast.withitem) -> str:
        """What in a `with` lets the code behind it go on where an error is met."""
        made = item.context_expr
        if self._called(made) == "contextlib.suppress":
            return "contextlib.suppress"
        name = _root(made.func) if isinstance(made, ast.Call) else _root(made)
        made_by = self.values.get(name)
        kind = self.classes.get(name) or self.classes.get(
            _root(made_by.func) if isinstance(made_by, ast.Call) else ""
        )
        if kind is not None:
            ends = [part for part in kind.body if getattr(part, "name", "") == "__exit__"]
            found = [r.value for end in ends for r in ast.walk(end) if isinstance(r, ast.Return)]
            passes = [v for v in found if v is not None and ast.unparse(v) not in ("None", "False")]
            return f"{name}.__exit__" if passes else ""
        function = self.functions.get(name)
        for part in ast.walk(function) if function is not None else ():
            if isinstance(part, ast.Try) and any(
                isinstance(inner, ast.Yield) for each in part.body for inner in ast.walk(each)
            ):
                for handler in part.handlers:
                    if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                        return name
        return ""

    def _methods_given_all(self, node: _Definition) -> set[str]:
        """The names of members that are called with all rows of a batch."""
        batches = _batches(node)
        calls = [inner for inner in _outer(node) if isinstance(inner, ast.Call)]
        given = [c for c in calls if any(_made_of(each) & batches for each in c.args)]
        return {call.func.attr for call in given if isinstance(call.func, ast.Attribute)}

    def given_all(self, node: _Definition) -> set[str]:
        """The names of functions that are called with all rows of a batch."""
        batches = _batches(node)
        calls = [inner for inner in _outer(node) if isinstance(inner, ast.Call)]
        given = [call for call in calls if batches & {*map(_root, call.args)}]
        return {
            name for call in given for name in (_root(call.func), *map(_root, call.args))
        } - batches

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
                case ast.Subscript(value=of, slice=place) if _root(of) in batches:
                    on_text = isinstance(of, ast.Attribute) and of.attr == "str"
                    if not on_text and (isinstance(place, ast.Slice) or _is_number(place)):
                        return ast.unparse(inner)[:60]
                case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=name), *_]):
                    if name in batches:
                        return ast.unparse(inner)[:60]
        return ""


def _prepares(step: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement before a loop over frames names nothing of it: a text, an import, or a
    value that no frame changes."""
    described = isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)
    sets = isinstance(step, ast.Assign) and not _names_in(step) & {*names}
    return described or sets or isinstance(step, ast.Import | ast.ImportFrom)


def _names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _plain_test(args: Sequence[ast.expr]) -> bool:
    """Whether a condition in a text compares columns alone."""
    text = args[0].value if args and isinstance(args[0], ast.Constant) else None
    return isinstance(text, str) and re.search(r"[(@\[`]|\b(index|ilevel_\d+|in)\b", text) is None


_NO_ARGUMENTS: Final = ast.arguments([], [], None, [], [], None, [])


def _samples(call: ast.Call) -> bool:
    """Whether it draws rows by chance."""
    seeded = any(keyword.arg in ("random_state", "seed") for keyword in call.keywords)
    return getattr(call.func, "attr", "") == "sample" and not seeded


def _each_row(keyword: ast.keyword) -> bool:
    by_row = keyword.arg == "axis" and _by_record(keyword.value)
    return by_row or (keyword.arg == "drop" and ast.unparse(keyword.value) == "True")


def _unbound(function: ast.expr) -> bool:
    """Whether it is a method that changes what it is given: `list.append`."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in CHANGING
        and _root(function) in _HOLDERS
    )


def _yields(node: _Definition) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _outer(node))


def _orders(node: ast.AST) -> Iterator[str]:
    """The places where the order of a set matters, which the seed of `hash` decides."""
    sets = {
        target.id
        for part in ast.walk(node)
        if isinstance(part, ast.Assign) and _is_set(part.value, ())
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    within = {id(a) for call in _calls(node) for a in call.args
              if _root(call.func) in ("set", "frozenset", "sorted", "sum", "min", "max", "any",
                                      "all", "len")}  # fmt: skip
    for part in ast.walk(node):
        values: list[ast.expr] = []
        match part:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                values = args if name in _ORDERING else []
                if name == "pop" and isinstance(part.func, ast.Attribute):
                    values = [part.func.value]
            case ast.For(iter=each) | ast.Starred(value=each):
                values = [each]
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


def _batches(node: _Definition) -> set[str]:
    """The names of what a function of pandas is given, one after the other or at once, and of what
    it makes of these."""
    loops = [inner for inner in _outer(node) if isinstance(inner, ast.For)]
    args = [*node.args.args, *([node.args.vararg] if node.args.vararg else ())]
    notes = {each.arg: ast.unparse(each.annotation) if each.annotation else "" for each in args}
    found = {*notes} - {"self"}
    single = {name for name, note in notes.items() if note and "Iterator" not in note}
    found |= {n for loop in loops if _root(loop.iter) not in single for n in _stored(loop.target)}
    within = [inner for inner in _outer(node) if isinstance(inner, ast.comprehension)]
    found |= {
        n
        for loop in within
        if isinstance(loop.iter, ast.Name) and loop.iter.id in notes.keys() - single
        for n in _stored(loop.target)
    }
    for _ in range(3):
        for part in _outer(node):
            if isinstance(part, ast.Assign) and _made_of(part.value) & found:
                found |= {t.id for t in part.targets if isinstance(t, ast.Name)}
    return found


def _made_of(node: ast.AST) -> set[str]:
    """The names that are operands of a value, or the owners of methods that give it."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _made_of(left) | _made_of(right)
        case ast.Compare(left=left, comparators=others):
            return _made_of(left).union(*map(_made_of, others))
        case ast.UnaryOp(operand=inner):
            return _made_of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args):
            listed = () if name in ("to_list", "tolist", "items", "itertuples") else args
            return _made_of(inner).union(*map(_made_of, listed))
        case ast.Subscript(value=inner) | ast.Attribute(value=inner):
            return _made_of(inner)
        case ast.Name(id=name):
            return {name}
    return set()


def _members(*nodes: ast.AST) -> set[str]:
    """The names of all members, and of functions that are called."""
    inner = [part for node in nodes for part in ast.walk(node)]
    called = [part.func for part in inner if isinstance(part, ast.Call)]
    names = {part.id for part in called if isinstance(part, ast.Name)}
    return names | _attributes(*nodes)


def _attributes(*nodes: ast.AST) -> set[str]:
    inner = (part for node in nodes for part in ast.walk(node))
    return {part.attr for part in inner if isinstance(part, ast.Attribute)}


def _written(*nodes: ast.AST) -> Iterator[str]:
    """The calls that write, or that may, as they stand there."""
    for call in (call for node in nodes for call in _calls(node)):
        if getattr(call.func, "attr", "") in _WRITING or isinstance(call.func, ast.Name):
            yield ast.unparse(call)


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that a target sets, each with what it is set to."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    parts = target.elts if isinstance(target, ast.Tuple) else []
    given = value.elts if isinstance(value, ast.Tuple) else []
    several = given if len(given) == len(parts) else [value] * len(parts)
    for part, each in zip(parts, several, strict=True):
        yield from _pairs(part, each)


def _tried_again(node: ast.AST) -> Iterator[ast.Try]:
    """The tries of a loop that ends with an error where none of them has come to its end."""
    for block in (getattr(part, "body", None) for part in ast.walk(node)):
        for loop, behind in pairwise(block) if isinstance(block, list) else ():
            raises = isinstance(behind, ast.Raise)
            for part in loop.body if raises and isinstance(loop, ast.For | ast.While) else ():
                done = [*(part.orelse or part.body)][-1] if isinstance(part, ast.Try) else None
                if isinstance(part, ast.Try) and isinstance(done, ast.Return):
                    yield part


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
    todo: list[ast.AST] = [*node.body] if isinstance(node, _Named) else [node.body]
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, _Definition):
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
    """The name that an expression begins with, also behind calls of methods."""
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
