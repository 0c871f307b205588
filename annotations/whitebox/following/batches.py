"""Functions of pandas or Arrow that depend on all rows of a batch, so on how it was divided."""

from __future__ import annotations

import ast
from typing import Final

from annotations.whitebox.following.module_text import (
    Definition,
    ModuleText,
    Named,
    calls,
    outer,
    root_of,
    stored,
    words,
)
from annotations.whitebox.python_chance import GIVEN

_BY_RECORD: Final = words(
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
WHOLE: Final = words("T at cat empty iat iloc index ndim shape size")
"""Members of them that show the whole batch, or the place of a record in it."""
_ARRAYS: Final = words(
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
OF_SEVERAL: Final = words("functools itertools numpy pandas scipy sklearn statistics")
"""Modules whose other functions look at all that they are given."""
_FITTING: Final = ("fit", "partial_fit")
"""Methods of models that learn from all that they are given begin so, in whatever module."""
_ARROW: Final = words(
    """
    all any approximate_median count count_distinct cumulative_max cumulative_min cumulative_prod
    cumulative_sum dictionary_encode first index kurtosis last max mean min min_max mode
    pairwise_diff product quantile rank skew sort_indices stddev sum tdigest unique value_counts
    variance
    """
)
"""Functions of Arrow of which that is true."""
_OF_ALL: Final = words("all any enumerate len max min reversed set sorted sum")
"""Functions of Python of which that is true, given a Series or a DataFrame."""


def whole_batch(module: ModuleText, node: Definition, depth: int = 3) -> str:
    """The part of a function of pandas that uses all rows of a batch, or of a method that it gives
    them to, or of a function that it calls for each batch."""
    batches = batches_of(node)
    named = methods_given_all(module, node)
    inside: list[Definition] = [
        part
        for kind in module.classes.values()
        for part in kind.body
        if isinstance(part, Named) and part.name in named and part is not node
    ]
    for part in outer(node):
        match part:
            case ast.Call(func=ast.Name(id="map"), args=args) if batches & {*map(root_of, args)}:
                inside += [argument for argument in args if isinstance(argument, ast.Lambda)]
    deeper = (whole_batch(module, value, depth - 1) for value in inside)
    if depth and (use := next(filter(None, deeper), "")):
        return use
    whole_rows = {
        argument.arg
        for argument in node.args.args
        if argument.annotation is not None and "DataFrame" in ast.unparse(argument.annotation)
    }
    called = {id(call.func): call for call in calls(node)}
    labels = {id(part) for call in calls(node) for k in call.keywords if k.arg == "index"
              for part in ast.walk(k.value)}  # fmt: skip
    for inner in outer(node):
        call = called.get(id(inner))
        parts = [*call.args, *(k.value for k in call.keywords)] if call is not None else []
        given = any(made_of(part) & batches for part in parts)
        by_record = call is not None and any(map(_each_row, call.keywords))
        if isinstance(inner, ast.expr) and module.called(inner).rpartition(".")[0] in GIVEN:
            continue
        if isinstance(inner, ast.Attribute) and made_of(inner) & batches:
            on = inner.value
            if isinstance(on, ast.Attribute) and on.attr in ("str", "dt", "list"):
                continue
            by_columns = inner.attr in ("apply", "map") and root_of(on) in whole_rows
            by_columns &= isinstance(on, ast.Name)
            known = (
                inner.attr in _BY_RECORD and not by_columns
                if call is not None
                else inner.attr not in WHOLE
            )
            if not known and not by_record and id(inner) not in labels:
                return ast.unparse(inner)[:60]
        elif given and isinstance(inner, ast.Attribute | ast.Name) and not by_record:
            name = module.called(inner)
            root, _, last = name.rpartition(".")
            of_all = root.partition(".")[0] in OF_SEVERAL and last not in _ARRAYS
            of_all |= getattr(inner, "attr", "").startswith(_FITTING)
            if of_all or (root == "pyarrow.compute" and last in _ARROW):
                return ast.unparse(inner)[:60]
    if use := _of_all(module, node):
        return use
    body = node.body if isinstance(node, Named) else []
    assigned = [part for part in body if isinstance(part, ast.Assign)]
    before = {name for part in assigned for name in stored(part)}
    loops = [inner for inner in outer(node) if isinstance(inner, ast.For)]
    return next((name for loop in loops for name in stored(loop) if name in before), "")


def methods_given_all(module: ModuleText, node: Definition) -> set[str]:
    """The names of members that are called with all rows of a batch."""
    batches = batches_of(node)
    calls = [inner for inner in outer(node) if isinstance(inner, ast.Call)]
    given = [c for c in calls if any(made_of(argument) & batches for argument in c.args)]
    return {call.func.attr for call in given if isinstance(call.func, ast.Attribute)}


def given_all(module: ModuleText, node: Definition) -> set[str]:
    """The names of functions that are called with all rows of a batch."""
    batches = batches_of(node)
    calls = [inner for inner in outer(node) if isinstance(inner, ast.Call)]
    given = [call for call in calls if batches & {*map(root_of, call.args)}]
    return {
        name for call in given for name in (root_of(call.func), *map(root_of, call.args))
    } - batches


def _of_all(module: ModuleText, node: Definition) -> str:
    """The part of a function in which Python asks all rows of a batch, or one at some place."""
    batches = batches_of(node)
    times = [inner for inner in outer(node) if isinstance(inner, ast.BinOp)]
    as_long = {id(t.right) for t in times if isinstance(t.left, ast.List)}
    for inner in outer(node):
        match inner:
            case ast.Call(func=ast.Name(id=name), args=[asked, *_]) if name in _OF_ALL:
                if root_of(asked) in batches and id(inner) not in as_long:
                    return ast.unparse(inner)[:60]
            case ast.Subscript(value=of, slice=place) if root_of(of) in batches:
                on_text = isinstance(of, ast.Attribute) and of.attr == "str"
                if not on_text and (isinstance(place, ast.Slice) or _is_number(place)):
                    return ast.unparse(inner)[:60]
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=name), *_]):
                if name in batches:
                    return ast.unparse(inner)[:60]
    return ""


def batches_of(node: Definition) -> set[str]:
    """The names of what a function of pandas is given, one after the other or at once, and of what
    it makes of these."""
    loops = [inner for inner in outer(node) if isinstance(inner, ast.For)]
    args = [*node.args.args, *([node.args.vararg] if node.args.vararg else ())]
    notes = {
        argument.arg: ast.unparse(argument.annotation) if argument.annotation else ""
        for argument in args
    }
    batches = {*notes} - {"self"}
    single = {name for name, note in notes.items() if note and "Iterator" not in note}
    batches |= {
        n for loop in loops if root_of(loop.iter) not in single for n in stored(loop.target)
    }
    within = [inner for inner in outer(node) if isinstance(inner, ast.comprehension)]
    batches |= {
        n
        for loop in within
        if isinstance(loop.iter, ast.Name) and loop.iter.id in notes.keys() - single
        for n in stored(loop.target)
    }
    for _ in range(3):
        for part in outer(node):
            if isinstance(part, ast.Assign) and made_of(part.value) & batches:
                batches |= {t.id for t in part.targets if isinstance(t, ast.Name)}
    return batches


def made_of(node: ast.AST) -> set[str]:
    """The names that are operands of a value, or the owners of methods that give it."""
    match node:
        case ast.BinOp(left=left, right=right):
            return made_of(left) | made_of(right)
        case ast.Compare(left=left, comparators=others):
            return made_of(left).union(*map(made_of, others))
        case ast.UnaryOp(operand=inner):
            return made_of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args):
            listed = () if name in ("to_list", "tolist", "items", "itertuples") else args
            return made_of(inner).union(*map(made_of, listed))
        case ast.Subscript(value=inner) | ast.Attribute(value=inner):
            return made_of(inner)
        case ast.Name(id=name):
            return {name}
    return set()


def _each_row(keyword: ast.keyword) -> bool:
    by_row = keyword.arg == "axis" and _by_record(keyword.value)
    return by_row or (keyword.arg == "drop" and ast.unparse(keyword.value) == "True")


def _by_record(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (1, "columns")


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)
