"""SQL inside of PySpark code, read by the SQL front end: `expr("...")`, `spark.sql("...")`."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from annotations.dataflow import EMPTY, Position
from annotations.whitebox import ir
from annotations.whitebox.connect.expression_text import ExpressionText, NotWritten
from annotations.whitebox.connect.expressions import user_function
from annotations.whitebox.connect.scope import Built, Names
from annotations.whitebox.following.outside import MADE, note
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Expression, Unknown
from annotations.whitebox.type_text import schema_text

_STREAM: Final = re.compile(r"\bSTREAM\b\s*\(?\s*((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)", re.I)
_LIVE: Final = re.compile(r"\bLIVE\.(?=[\w`])", re.IGNORECASE)
_FILES: Final = re.compile(
    r"(\bSTREAM\b\s*\(?\s*)?\b(read_files|cloud_files|read_kafka|read_kinesis)\s*\(", re.IGNORECASE
)
_PARAMETER: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|(?<![\w)\]:]):(\w+)|\?"
)
_READ: Final = re.compile(r"\b(?:FROM|JOIN)\s+([A-Za-z_]\w*(?:\.\w+)*)(?![\w.(])", re.IGNORECASE)
_OF_PLACE: Final = re.compile(
    r"\b((FROM|JOIN|STREAM)(?:\s+|(?<=STREAM)\s*\(\s*))((?:\w+\.)*\w*\$[\w.$]*\w)(\(\))?(?![\w.(\[])",
    re.IGNORECASE,
)
"""A table of whose name a part, or the whole, is not known."""
_DEFINED: Final = re.compile(r"\b(\w+)\s+AS\s*\(", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def with_arguments(query: Any) -> str:
    """The text of a query whose parameters (`:name`, `?`) have become the values that they are
    given; as it is where one of them is none of the code. `query`: a message, which loses them."""
    writer = ExpressionText(_no_name, _no_name)
    try:
        named = {name: writer.text(value) for name, value in query.named_arguments.items()}
        placed = [*map(writer.text, query.pos_arguments)]
    except NotWritten:
        return str(query.query)
    query.ClearField("named_arguments")
    query.ClearField("pos_arguments")

    def value(match: re.Match[str]) -> str:
        if match[0] == "?" and placed:
            return placed.pop(0)
        return named.get(match[1] or "", match[0])

    return _PARAMETER.sub(value, query.query)


def _no_name(*_: Any) -> str:
    raise NotWritten("a parameter that is no value")


def select_list(
    text: str,
    over: Built,
    names: Names,
    at: Position | None,
    *,
    functions: Mapping[str, Any] = EMPTY,
) -> list[tuple[str, Expression]]:
    """Names and values of the entries of a select list over the columns of a plan.

    `functions`: those that the user has registered, by name in lower case.
    """
    from sqlglot import exp

    from annotations.whitebox.sql_dialect import NotParsed, parse
    from annotations.whitebox.sql_expressions import Expressions, NotUnderstood

    def resolve(node: Any) -> Expression:
        keys = ("catalog", "db", "table", "this")
        parts = [node.args[key].name for key in keys if node.args.get(key) is not None]
        return names.resolve(".".join(f"`{part}`" for part in parts), over, None, at)

    try:
        tree = parse(f"SELECT {text}").tree
        if not isinstance(tree, exp.Select):
            raise NotUnderstood(f"`{text}` is not an expression")
        registered = {
            name: partial(user_function, function, at=at) for name, function in functions.items()
        }
        convert = Expressions(resolve, lambda _: at, registered)
        result: list[tuple[str, Expression]] = []
        for entry in tree.expressions:
            star = _star(entry, exp)
            if star is not None:
                result += names.star(star, over, at)
            else:
                value = entry.this if isinstance(entry, exp.Alias) else entry
                result.append((_title(entry, text, exp), convert(value)))
    except NotParsed as failed:
        return [(text, Unknown(f"`{text}`: {failed.reason}", (), at))]
    except NotUnderstood as failed:
        return [(text, Unknown(f"`{text}`: {failed.reason}", (), at))]
    return result


def _star(entry: Any, exp: Any) -> str | None:
    """The text before the star of `*`, `a.*`; None for anything else."""
    if isinstance(entry, exp.Star):
        return ""
    if isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star):
        return str(entry.table)
    return None


def _title(entry: Any, text: str, exp: Any) -> str:
    if isinstance(entry, exp.Alias | exp.Column):
        return str(entry.alias_or_name)
    if isinstance(entry, exp.Dot):
        return str(entry.expression.name)
    if isinstance(entry, exp.Cast | exp.TryCast) and isinstance(entry.this, exp.Column | exp.Dot):
        return _title(entry.this, text, exp)
    function = re.match(r"\s*(window|session_window|window_time)\s*\(", text, re.IGNORECASE)
    return function[1].lower() if function is not None else text.strip()


Table = Callable[[], ir.Relation]
"""Makes one occurrence of a table: with columns of its own each time."""


def query(
    text: str, tables: Mapping[str, Table], at: Position | None, *, lines: bool = False
) -> ir.Relation:
    """The plan of a query over these tables. `lines`: the text stands in a file from `at` on."""
    from annotations.whitebox.sql import read

    text, plain = _undotted(text, tables)
    samples = {name: table() for name, table in plain.items()}
    inputs = {name: Input(_schema(sample)) for name, sample in samples.items()}

    def place(offset: int) -> Position | None:
        if at is None or not lines:
            return at
        before = text[:offset]
        column = len(before) - before.rfind("\n") if "\n" in before else 1
        return Position(at.file, at.line + before.count("\n"), column)

    answer = read(text, inputs=inputs, place=place)
    return filled(answer.plan, plain)


def named(text: str, views: Container[str] = ()) -> str:
    """The text with names for tables of which a part is not known, or all, which is noted: what is
    not known may be a query in brackets. `views`: names that are there.

    >>> named("SELECT $a.b FROM $catalog.raw_$n.t JOIN $conf.table()")
    'SELECT $a.b FROM catalog.raw_n.t JOIN conf.table'
    >>> named("SELECT extract(YEAR FROM $at) FROM $1")
    'SELECT extract(YEAR FROM $at) FROM table_1'
    """

    def called(match: re.Match[str]) -> str:
        before = text[: match.start()]
        if match[2].upper() == "FROM" and not re.search(
            r"\bSELECT\b", _inner(before), re.IGNORECASE
        ):
            return match[0]
        table = f"{match[3]}{match[4] or ''}"
        if table in views:
            return match[0]
        if table in MADE:
            note(f"`{match[3]}` is not known here, and taken for the name of a table")
        name = match[3].replace("$", "")
        return match[1] + (name if "." in name else f"table_{name}")

    return _OF_PLACE.sub(called, text)


def _inner(text: str) -> str:
    """The text behind the last bracket that is open at its end."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth < 0:
            return text[at + 1 :]
    return text


def streams(text: str) -> set[str]:
    """The tables that a query reads as streams.

    >>> sorted(streams("SELECT 1 FROM STREAM a JOIN STREAM(b.c)"))
    ['a', 'b.c']
    """
    return {name.replace("`", "") for name in _STREAM.findall(text)}


def tables(text: str) -> set[str]:
    """The tables that a query reads, without those that it defines itself.

    >>> sorted(tables("WITH a AS (SELECT 1 FROM b.c) SELECT 1 FROM a JOIN d"))
    ['b.c', 'd']
    """
    from sqlglot import exp

    from annotations.whitebox.sql_dialect import NotParsed, parse

    try:
        tree = parse(text).tree
    except NotParsed:
        defined = {name.lower() for name in _DEFINED.findall(text)}
        return {name for name in _READ.findall(text) if name.lower() not in defined}
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    result = set()
    for table in tree.find_all(exp.Table):
        parts = [part.name for part in table.parts if part.name]
        if parts and not (len(parts) == 1 and parts[0].lower() in own):
            result.add(".".join(parts))
    return result


class TablePlace(NamedTuple):
    """A table where a query reads it."""

    begin: int
    end: int
    name: str
    called: bool
    """It has a name of its own in the query (`AS`)."""


def table_places(text: str) -> Iterator[TablePlace]:
    """The places in which a query names the tables that it reads and does not define.

    >>> [place[:3] for place in table_places("SELECT 1 FROM a JOIN b.c AS d")]
    [(14, 15, 'a'), (21, 24, 'b.c')]
    """
    from sqlglot import exp

    from annotations.whitebox.sql_dialect import parse

    tree = parse(text).tree
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        parts = [part for part in table.parts if part.name]
        if not parts or (len(parts) == 1 and parts[0].name.lower() in own):
            continue
        name = ".".join(part.name for part in parts)
        if "start" in parts[0].meta:
            begin, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
            yield TablePlace(begin, end, name, bool(table.alias))


def without_live(text: str) -> str:
    """The text with the prefix of this pipeline's own datasets blanked out.

    >>> without_live("FROM LIVE.a")
    'FROM      a'
    """
    return _LIVE.sub("     ", text)


def inside(text: str, begin: int) -> str:
    """The text in parentheses of which the first ends before `begin`.

    >>> inside("(a (b)) c", 1)
    'a (b)'
    """
    end, depth = begin, 1
    while end < len(text) and depth:
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    return text[begin : end - 1]


def files_by_name(text: str, files: dict[str, dict[str, Any]]) -> str:
    """The text where a name stands for each function that reads files, as long as it and with
    as many lines; what is read is added to `files`."""
    while match := _FILES.search(text):
        inner = inside(text, match.end())
        end = match.end() + len(inner) + 1
        paths = [one or other for one, other in _QUOTED.findall(inner)]
        last = re.split(r"[/:]", paths[0].rstrip("/*"))[-1] if paths else "files"
        base = name = re.sub(r"\W+", "_", last).strip("_").lower() + "_files"
        schema = re.search(r"schema['\"]?\s*(?:=>|,)\s*(?:'([^']*)'|\"([^\"]*)\")", inner)
        stream = match[1] is not None or match[2].lower() != "read_files"
        described: dict[str, Any] = {
            "format": "cloudFiles",
            "path": paths[0] if paths else "",
            "streaming": stream,
        }
        if schema is not None:
            from annotations.whitebox.connect.sources import entries

            described["columns"] = [list(entry) for entry in entries(schema[1] or schema[2])]
        number = 1
        while files.setdefault(name, described) != described:
            number += 1
            name = f"{base}_{number}"
        begin = match.start(2)
        written = re.sub(r"[^\n]", " ", text[begin:end])
        text = text[:begin] + name + written[len(name) :] + text[end:]
    return text


def _undotted(text: str, tables: Mapping[str, Table]) -> tuple[str, dict[str, Table]]:
    """The text with `schema.table` as one name of the same length, and the tables so called."""
    plain = dict(tables)
    for name, table in tables.items():
        if "." in name:
            escaped = re.escape(name).replace(r"\.", r"`?\.`?")
            pattern = re.compile(rf"`?\b{escaped}\b`?", re.IGNORECASE)
            text = pattern.sub(lambda match: re.sub(r"[.`]", "_", match[0]), text)
            for written in {
                re.sub(r"[.`]", "_", spelling) for spelling in _written(pattern, text, name)
            }:
                plain[written] = table
            del plain[name]
    return text, plain


def _written(pattern: re.Pattern[str], text: str, name: str) -> Iterator[str]:
    yield name
    yield from pattern.findall(text)


def _schema(sample: ir.Relation) -> Mapping[str, str] | None:
    if isinstance(sample, ir.Source) and not sample.complete:
        return None
    names = [column.name.lower() for column in sample.columns]
    if len(set(names)) < len(names):
        return None
    return {
        column.name: schema_text(column.type) + ("" if column.nullable else " NOT NULL")
        for column in sample.columns
    }


def filled(plan: ir.Relation, tables: Mapping[str, Table]) -> ir.Relation:
    """The plan with the tables' own plans in the places of their names."""
    by_name = {name.lower(): table for name, table in tables.items()}

    def placed(leaf: ir.Source) -> ir.Relation:
        table = by_name.get(leaf.name.lower())
        return leaf if table is None else _placed(leaf, table())

    return ir.changed(plan, ir.Source, placed)


def _placed(leaf: ir.Source, plan: ir.Relation) -> ir.Relation:
    """A plan whose columns are those of the leaf that it stands for."""
    if isinstance(plan, ir.Source):
        return replace(plan, columns=leaf.columns, position=leaf.position or plan.position)
    by_name = {column.name.lower(): column for column in plan.columns}
    outputs: list[ir.Output] = []
    for column in leaf.columns:
        of = by_name.get(column.name.lower())
        missing = Unknown(f"no column is called `{column.name}` here", (), leaf.position)
        outputs.append((column, missing if of is None else ir.Ref(of)))
    return ir.Project(plan, tuple(outputs), leaf.position)


def words(text: str) -> Iterator[str]:
    """The names in a text of SQL, with the parts of a name together."""
    for name in re.findall(r"(?:`[^`]+`|[A-Za-z_]\w*)(?:\.(?:`[^`]+`|\w+))*", text):
        yield name.replace("`", "")
