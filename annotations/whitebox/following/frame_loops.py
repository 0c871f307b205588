"""Functions of whole frames (`mapInPandas`, `mapInArrow`) that are loops which treat each record by
itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from typing import Final

from annotations.whitebox.following.batches import OF_SEVERAL, WHOLE
from annotations.whitebox.following.module_text import (
    Definition,
    ModuleText,
    names_in,
    root_of,
    stored,
    words,
)

_OF_COLUMNS: Final = words(
    """
    abs add between clip copy div divide eq fillna floordiv ge gt isna isnull le lt mask mod mul
    multiply ne notna notnull pow radd rdiv rfloordiv rmod rmul round rpow rsub rtruediv sub
    subtract truediv where
    """
)
"""Methods of which that is true whatever columns and values they are given by place."""
_OF_FRAMES: Final = (
    words(
        """
    array attrs axes columns dtype dtypes flags hasnans is_monotonic_decreasing
    is_monotonic_increasing is_unique loc name nbytes plot style
    """
    )
    | WHOLE
)
"""Members that are no columns."""
_OF_VALUES: Final = words(
    """
    abs absolute ceil cos equal exp expm1 fabs floor fmax fmin greater greater_equal isfinite isinf
    isnan less less_equal log log10 log1p log2 logical_and logical_not logical_or maximum minimum
    mod multiply not_equal power round sign sin sqrt square tan trunc where
    """
)
"""Functions of NumPy that treat values one by one."""
_OF_ARRAYS: Final = words(
    """
    abs add and and_kleene and_not binary_length cast coalesce divide equal exp fill_null greater
    greater_equal if_else invert is_in is_nan is_null is_valid less less_equal ln log10 match_regex
    match_substring multiply negate not_equal or or_kleene power round sign sqrt starts_with
    ends_with subtract utf8_length utf8_lower utf8_trim utf8_trim_whitespace utf8_upper xor
    """
)
"""Functions of Arrow that treat values one by one."""
_MADE: Final = words("RecordBatch.from_pydict Table.from_pydict record_batch table")
"""Functions of Arrow that make a batch of columns by name."""
_COPIED: Final = words("RecordBatch.from_pandas Table.from_pandas")
_PLAIN_TYPES: Final = words("bool float str 'bool' 'float' 'float64' 'str' 'string'")
_PREDICTING: Final = words("predict predict_proba")
"""Methods of models that score each record by itself."""


def maps_records(module: ModuleText, node: Definition) -> bool:
    """Whether a function of frames is a loop over them that computes columns of columns."""
    names = [argument.arg for argument in node.args.args]
    body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    names_set = {name for step in body[-1:] for name in stored(step)}
    while len(body) > 1 and _prepares(body[0], {*names, *names_set}):
        body = body[1:]
    match body:
        case [ast.For(target=ast.Name(id=frame), iter=ast.Name(id=given), body=steps, orelse=[])]:
            rows = {frame}
            return names == [given] and all(_maps(module, step, rows) for step in steps)
        case [ast.Return(value=ast.GeneratorExp(elt=value, generators=[generator]))]:
            match generator:
                case ast.comprehension(ast.Name(id=frame), ast.Name(id=given), []):
                    return names == [given] and _of_columns(module, value, {frame})
    return False


def _maps(module: ModuleText, step: ast.stmt, rows: set[str]) -> bool:
    """Whether a statement computes of each record alone; `rows`: what has a row for each."""
    match step:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            of_columns = _of_columns(module, value, rows)
            if not of_columns and names_in(value) & rows:
                return False
            (rows.add if of_columns else rows.discard)(name)
            return True
        case ast.Assign(
            targets=[ast.Subscript(ast.Name(id=name), ast.Constant(value=str()))], value=value
        ):
            scalar = isinstance(value, ast.Constant | ast.Name) and not names_in(value) & rows
            return name in rows and (scalar or _of_columns(module, value, rows))
        case ast.Expr(value=ast.Yield(value=ast.expr() as value)):
            return _of_columns(module, value, rows)
        case ast.If(
            test=ast.Attribute(value=ast.Name(id=name), attr="empty"),
            body=[ast.Continue()],
            orelse=[],
        ):
            return name in rows
    return False


def _of_columns(module: ModuleText, node: ast.expr, rows: set[str]) -> bool:
    """Whether a value has a row for each record, made of that record alone."""

    def fits(part: ast.expr) -> bool:
        names = names_in(part)
        makers = (module.called(module.values[name]) for name in names & module.values.keys())
        aligned = any(name.partition(".")[0] in OF_SEVERAL for name in makers)
        return _of_columns(module, part, rows) or not (names & rows or aligned)

    def one(*parts: ast.expr) -> bool:
        return all(map(fits, parts)) and any(names_in(part) & rows for part in parts)

    match node:
        case ast.Name(id=name):
            return name in rows
        case ast.Attribute(value=ast.Name(id=name), attr=column):
            return name in rows and column not in _OF_FRAMES
        case ast.Attribute(value=ast.Attribute(attr="dt")):
            return _of_columns(module, node.value, rows)
        case ast.Attribute(value=owner, attr="str" | "dt" | "values"):
            return _of_columns(module, owner, rows)
        case ast.Subscript(value=owner, slice=ast.Constant(value=str())):
            return _of_columns(module, owner, rows)
        case ast.Subscript(value=owner, slice=ast.List(elts=names)):
            return all(map(_are_names, names)) and _of_columns(module, owner, rows)
        case ast.Subscript(value=owner, slice=test):
            return _of_columns(module, owner, rows) and _of_columns(module, test, rows)
        case ast.BinOp(left=left, op=op, right=right):
            return not isinstance(op, ast.MatMult) and one(left, right)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return not isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) and one(left, right)
        case ast.UnaryOp(op=ast.Invert() | ast.USub(), operand=inner):
            return _of_columns(module, inner, rows)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=named):
            values = [*args, *(keyword.value for keyword in named)]
            keys = {str(keyword.arg) for keyword in named}
            known = not any(names_in(value) & rows for value in values)
            if not _of_columns(module, owner, rows):
                called = module.called(node.func)
                root, _, last = called.rpartition(".")
                arrow = called.removeprefix("pyarrow.") if called.startswith("pyarrow.") else ""
                if root == "pyarrow.compute":
                    return last in _OF_ARRAYS and not named and one(*args)
                if arrow in _COPIED:
                    return not named and len(args) == 1 and _of_columns(module, args[0], rows)
                if (
                    (called == "pandas.DataFrame" or arrow in _MADE)
                    and not named
                    and len(args) == 1
                ):
                    table = args[0]
                    return (
                        isinstance(table, ast.Dict)
                        and None not in table.keys
                        and all(_of_columns(module, value, rows) for value in table.values)
                    )
                if name in _PREDICTING and root_of(owner) not in rows:
                    return not named and len(args) == 1 and _of_columns(module, args[0], rows)
                return root == "numpy" and last in _OF_VALUES and not named and one(*args)
            if isinstance(owner, ast.Attribute) and owner.attr in ("str", "dt"):
                return known and name not in ("cat", "get_dummies")
            match name:
                case "to_pandas":
                    return not values
                case "filter":
                    return not named and len(args) == 1 and _of_columns(module, args[0], rows)
                case "column" | "select" | "drop_columns":
                    return not named and len(args) == 1 and _are_names(args[0])
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


def _are_names(node: ast.expr) -> bool:
    """Whether it is the name of a column, or a list of such."""
    several = node.elts if isinstance(node, ast.List) else [node]
    return all(
        isinstance(value, ast.Constant) and isinstance(value.value, str) for value in several
    )


def _prepares(step: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement before a loop over frames names nothing of it: a text, an import, or a
    value that no frame changes."""
    described = isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)
    sets = isinstance(step, ast.Assign) and not names_in(step) & {*names}
    return described or sets or isinstance(step, ast.Import | ast.ImportFrom)


def _plain_test(args: Sequence[ast.expr]) -> bool:
    """Whether a condition in a text compares columns alone."""
    text = args[0].value if args and isinstance(args[0], ast.Constant) else None
    return isinstance(text, str) and re.search(r"[(@\[`]|\b(index|ilevel_\d+|in)\b", text) is None
