"""Mistakes in the SQL of components that Spark would refuse: names, functions, types, groups.

    findings(text, tables={"clicks": {"ad": "BIGINT"}}) -> mistakes, each with its place

Only what is certain is reported. Where a table's columns are not known, nothing is said of names
that may be its; a construct that is not known here ends the check of the query that has it.
Names are resolved as Spark does it: case does not matter, a name of the inner query hides one of
the outer, and an item further right may use what one further left is called.
`tests/annotations/whitebox/test_checking_on_spark.py` holds it against Spark's analyser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import TokenType, exp

from annotations.diagnostics import did_you_mean
from annotations.type_names import TYPES, unknown_type
from annotations.whitebox.functions import AGGREGATES, FUNCTIONS
from annotations.whitebox.placement import misplaced
from annotations.whitebox.sql_dialect import NotParsed, parse, tokens_of
from annotations.whitebox.sql_items import start_of

Names = frozenset[str] | None
"""Columns of a table, in lower case; None: not known, or not all of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake at an offset of the text."""

    code: str
    message: str
    start: int
    remedy: str | None = None


class Unsure(Exception):  # noqa: N818
    """The query has something of which the check knows nothing."""


SELECT_PARTS: Final = frozenset(
    {"expressions", "from_", "from", "joins", "laterals", "where", "group", "having", "distinct"}
    | {"with_", "with", "order", "limit", "offset", "sort", "cluster", "distribute", "hint"}
    | {"windows", "kind"}
)
TABLE_PARTS: Final = frozenset({"this", "alias", "db", "catalog", "sample", "joins", "hints"})
SET_PARTS: Final = frozenset(
    {"this", "expression", "distinct", "with_", "with", "order", "limit", "offset"}
)
WITHOUT_PARENTHESES: Final = frozenset(
    {"current_catalog", "current_database", "current_date", "current_schema", "current_time"}
    | {"current_timestamp", "current_timezone", "current_user", "localtime", "localtimestamp"}
    | {"session_user", "user", "window", "session_window", "_metadata"}
    | {"grouping__id", "spark_grouping_id"}
)
"""Names that are not columns of a table, or may be there though no schema has them."""
WITH_UNIT: Final = frozenset(
    {"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff", "timediff"}
    | {"time_diff", "time_trunc", "timestamp_add", "timestamp_diff"}
)
"""Functions whose first argument may be a unit of time, which is no column."""
BEGINNINGS: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
"""Words with which a query may begin."""
TIME_WINDOWS: Final = frozenset({"window", "session_window"})


def findings(
    text: str, *, tables: Mapping[str, Names], functions: bool = True
) -> tuple[Finding, ...]:
    """The mistakes of a query, in the order of the text.

    Args:
        text: of the query.
        tables: input -> its columns; None where they are not known.
        functions: False where the job may have functions of its own.

    >>> [each.message for each in findings("SELECT wrd FROM w", tables={"w": frozenset({"word"})})]
    ['`wrd` is not a column of w; did you mean word?']
    """
    if "|>" in text:
        return ()
    check = _Check(tables, functions=functions)
    mistakes: list[Finding] = []
    try:
        mistakes += _no_query(text)
        mistakes += _types(text)
        tree = parse(text).tree
        mistakes += (Finding(m.code, m.message, start_of(m.node) or 0) for m in misplaced(tree))
        check.columns(tree, {}, None)
        check.functions(tree)
        check.tables()
    except (NotParsed, Unsure, RecursionError):
        return tuple(sorted(dict.fromkeys(mistakes), key=lambda finding: finding.start))
    unknown = {finding.start for finding in check.found if finding.code == "BLZ054"}
    certain = (f for f in check.found if f.code != "BLZ056" or f.start not in unknown)
    return tuple(sorted(dict.fromkeys((*mistakes, *certain)), key=lambda finding: finding.start))


def of_expression(text: str, columns: Collection[str], *, of: str) -> tuple[Finding, ...]:
    """The mistakes of an expression over the columns of one table; offsets are the expression's.

    >>> [each.message for each in of_expression("closed > 0", ["done"], of="clicks")]
    ['`closed` is not a column of clicks']
    """
    before = "SELECT "
    names = frozenset(name.lower() for name in columns)
    mistakes = findings(f"{before}{text}\nFROM `{of}`", tables={of.lower(): names})
    return tuple(Finding(f.code, f.message, f.start - len(before), f.remedy) for f in mistakes)


_STRINGS: Final = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)


def _no_query(text: str) -> Iterator[Finding]:
    """Signs that a text is not one query, whatever the parser knows (BLZ059)."""
    try:
        tokens = tokens_of(text)
    except NotParsed as unreadable:
        yield Finding("BLZ059", unreadable.reason, 0)
        return
    words = ["''" if token.token_type in _STRINGS else token.text for token in tokens]
    while words and words[-1] == ";":
        words.pop()
    if not words:
        yield Finding("BLZ059", "there is no query", 0)
    elif words[0].isalpha() and words[0].upper() not in BEGINNINGS:
        near = did_you_mean(words[0].lower(), [word.lower() for word in BEGINNINGS])
        yield Finding("BLZ059", f"`{words[0]}` begins no query{near}", tokens[0].start)
    elif ";" in words:
        yield Finding("BLZ059", "more than one statement", tokens[words.index(";")].start)
    elif words.count("(") != words.count(")"):
        yield Finding("BLZ059", "the brackets do not match", 0)


def _types(text: str) -> Iterator[Finding]:
    """The types of casts that Spark does not have.

    They are found by words alone: the parser refuses some of them, and takes names of others.
    """
    tokens = tokens_of(text)
    words = [token.text.upper() for token in tokens]
    for at, word in enumerate(words):
        first = None
        if word in ("CAST", "TRY_CAST") and words[at + 1 : at + 2] == ["("]:
            first = _behind_as(words, at + 2)
        elif word == "::" and text.startswith("::", tokens[at].start):
            first = at + 1
        if first is None or first >= len(tokens):
            continue
        start = tokens[first].start
        unknown = unknown_type(_up_to_bracket(text[start:]) if word != "::" else tokens[first].text)
        if unknown is not None:
            near = did_you_mean(unknown.lower(), TYPES)
            message = f"Spark SQL has no type `{unknown}`{near}"
            yield Finding("BLZ053", message, text.index(unknown, start))


def _behind_as(words: Sequence[str], at: int) -> int | None:
    """The place of a cast's type, given that of its value."""
    depth = 0
    for place in range(at, len(words)):
        if words[place] == "AS" and not depth:
            return place + 1
        depth += (words[place] == "(") - (words[place] == ")")
        if depth < 0:
            break
    return None


def _up_to_bracket(text: str) -> str:
    """The text before the bracket that closes what is around it."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return text[:at]
    return text


@dataclass(slots=True)
class _Scope:
    """The tables that the expressions of one SELECT see, by the names that it gives them."""

    tables: list[tuple[str, Names]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """Columns that USING made one."""
    plain: bool = True
    """False where a join hides columns, so that of equal names one may be meant."""
    outer: _Scope | None = None

    @property
    def all(self) -> Iterator[tuple[str, Names]]:
        """The tables, and those of the queries around."""
        yield from self.tables
        if self.outer is not None:
            yield from self.outer.all

    @property
    def open(self) -> bool:
        """True where a name may be a column that is not known."""
        return any(names is None for _, names in self.all)

    def known(self) -> set[str]:
        """All columns that are known."""
        return {name for _, names in self.all for name in names or ()}


class _Check:
    """One statement."""

    def __init__(self, tables: Mapping[str, Names], *, functions: bool) -> None:
        self._inputs = {name.lower(): names for name, names in tables.items()}
        self._own_functions = not functions
        self._read: set[str] = set()
        self._others: list[Any] = []
        """Tables that are no inputs."""
        self.found: list[Finding] = []

    # ---- queries

    def columns(self, tree: Any, ctes: Mapping[str, Names], outer: _Scope | None) -> Names:
        """The columns that a query gives, after its mistakes were noted."""
        if isinstance(tree, exp.Query):
            ctes = self._named(tree, ctes)
        match tree:
            case exp.Subquery(this=exp.Query()):
                _only(tree, SET_PARTS | {"alias", "sample"})
                return self.columns(tree.this, ctes, outer)
            case exp.SetOperation():
                _only(tree, SET_PARTS)
                first = self.columns(tree.left, ctes, outer)
                self.columns(tree.right, ctes, outer)
                return first
            case exp.Select():
                return self._select(tree, ctes, outer)
            case exp.Values():
                return None
        raise Unsure

    def _named(self, tree: Any, ctes: Mapping[str, Names]) -> Mapping[str, Names]:
        clause = tree.args.get("with_") or tree.args.get("with")
        if clause is None:
            return ctes
        if clause.args.get("recursive"):
            raise Unsure
        known = dict(ctes)
        for cte in clause.expressions:
            names = self.columns(cte.this, known, None)
            alias = cte.args.get("alias")
            known[cte.alias.lower()] = _renamed(alias, names)
        return known

    def _select(self, tree: Any, ctes: Mapping[str, Names], outer: _Scope | None) -> Names:
        _only(tree, SELECT_PARTS)
        if tree.args.get("kind"):
            raise Unsure
        scope = self._from(tree, ctes, outer)
        aliases: set[str] = set()
        for item in tree.expressions:
            self._names(item, ctes, scope, aliases, ambiguous=True)
            aliases |= {name.lower() for name in _aliases(item)}
        where = tree.args.get("where")
        if where is not None:
            self._names(where.this, ctes, scope, frozenset(), ambiguous=True)
        for part in ("group", "having", "order", "sort", "cluster", "distribute"):
            if tree.args.get(part) is not None:
                self._names(tree.args[part], ctes, scope, aliases)
        for window in tree.args.get("windows") or ():
            self._names(window, ctes, scope, aliases)
        self._groups(tree, scope, aliases)
        return _given(tree, scope)

    # ---- tables

    def _from(self, tree: Any, ctes: Mapping[str, Names], outer: _Scope | None) -> _Scope:
        scope = _Scope(outer=outer)
        clause = tree.args.get("from_") or tree.args.get("from")
        if clause is not None:
            self._add(clause.this, scope, ctes)
            for join in clause.this.args.get("joins") or ():
                self._join(join, scope, ctes)
        for join in tree.args.get("joins") or ():
            self._join(join, scope, ctes)
        for lateral in tree.args.get("laterals") or ():
            self._lateral(lateral, scope, ctes)
        return scope

    def _join(self, node: Any, scope: _Scope, ctes: Mapping[str, Names]) -> None:
        _only(node, {"this", "on", "using", "kind", "side", "method", "hint"})
        if isinstance(node.this, exp.Lateral):
            self._lateral(node.this, scope, ctes)
            return
        before = list(scope.tables)
        self._add(node.this, scope, ctes)
        kind = (node.args.get("kind") or "").upper()
        scope.plain &= kind in ("", "INNER", "CROSS", "OUTER") and not node.args.get("method")
        for column in node.args.get("using") or ():
            name = column.name.lower()
            scope.shared.add(name)
            for side in (before, scope.tables[len(before) :]):
                if not any(names is None or name in names for _, names in side):
                    known = {n for _, names in side for n in names or ()}
                    self._unknown(column, column.name, known, listed(t for t, _ in side))
        if node.args.get("on") is not None:
            self._names(node.args["on"], ctes, scope, frozenset(), ambiguous=True)

    def _lateral(self, node: Any, scope: _Scope, ctes: Mapping[str, Names]) -> None:
        """LATERAL VIEW: what the generator makes has the names that are given, or its own."""
        call = node.this
        if not node.args.get("view") or not isinstance(call, exp.Anonymous | exp.Explode):
            raise Unsure
        self._names(call, ctes, scope, frozenset())
        alias = node.args.get("alias")
        columns = alias.columns if alias is not None else []
        names = frozenset(column.name.lower() for column in columns) if columns else None
        scope.tables.append((alias.name.lower() if alias is not None else "", names))

    def _add(self, node: Any, scope: _Scope, ctes: Mapping[str, Names]) -> None:
        alias = node.args.get("alias")
        match node:
            case exp.Subquery(this=exp.Query()):
                names = self.columns(node, ctes, scope.outer)
            case exp.Values():
                names = None
            case exp.Table():
                _only(node, TABLE_PARTS)
                names = self._table(node, ctes)
            case _:
                raise Unsure
        scope.tables.append((node.alias_or_name.lower(), _renamed(alias, names)))

    def _table(self, node: Any, ctes: Mapping[str, Names]) -> Names:
        if not isinstance(node.this, exp.Identifier) or node.db:
            return None
        name = node.name.lower()
        if name in ctes:
            return ctes[name]
        self._read.add(name)
        if name not in self._inputs:
            self._others.append(node)
        return self._inputs.get(name)

    def tables(self) -> None:
        """Note a table that is no input where one of nearly that name is not read."""
        unread = sorted(self._inputs.keys() - self._read)
        for node in self._others:
            near = did_you_mean(node.name, unread)
            if near:
                message = f"the table `{node.name}` is no input{near}"
                self._note("BLZ054", message, node, "Correct the name of the table.")

    # ---- names

    def _names(
        self,
        node: Any,
        ctes: Mapping[str, Names],
        scope: _Scope,
        aliases: Collection[str],
        *,
        ambiguous: bool = False,
    ) -> None:
        """Note what an expression names and nothing has; queries inside of it are checked too."""
        for part in _walk(node):
            if isinstance(part, exp.Query):
                self.columns(part, ctes, scope)
            elif isinstance(part, exp.Column) and not _is_no_column(part):
                self._column(part, scope, aliases, ambiguous=ambiguous)

    def _column(
        self, node: Any, scope: _Scope, aliases: Collection[str], *, ambiguous: bool
    ) -> None:
        parts = [part.name for part in (*_qualifiers(node), node.this)]
        first, lower = parts[0], parts[0].lower()
        star = isinstance(node.this, exp.Star)
        if lower in WITHOUT_PARENTHESES or lower.startswith("__") or lower in _parameters(node):
            return
        if len(parts) == 1:
            if star or lower in aliases or scope.open:
                return
            here = [table for table, names in scope.tables if lower in (names or ())]
            if not here and lower not in scope.known():
                self._unknown(node, first, scope.known(), listed(t for t, _ in scope.all))
            elif len(here) > 1 and ambiguous and scope.plain and lower not in scope.shared:
                message = f"`{first}` is a column of {listed(here)}; which is meant is not said"
                remedy = f"Write {' or '.join(f'{table}.{first}' for table in here)}."
                self._note("BLZ054", message, node, remedy)
            return
        tables = [names for table, names in scope.all if table == lower]
        if tables:
            second = parts[1].lower()
            known = [names for names in tables if names is not None]
            if star or len(known) < len(tables) or lower in scope.known():
                return
            if not any(second in names for names in known) and not second.startswith("__"):
                self._unknown(node, parts[1], set().union(*known), first)
        elif not (lower in scope.known() or lower in aliases or scope.open):
            near = did_you_mean(first, sorted({table for table, _ in scope.all if table}))
            message = f"`{first}` is neither a table nor a column of this query{near}"
            self._note("BLZ054", message, node)

    def _unknown(self, node: Any, name: str, known: Iterable[str], table: str) -> None:
        columns = sorted(known)
        near = did_you_mean(name, columns)
        message = f"`{name}` is not a column of {table or 'anything here'}{near}"
        remedy = f"Correct the name, or add it to the schema. There are {', '.join(columns)}."
        self._note("BLZ054", message, node, remedy if columns else None)

    def _note(self, code: str, message: str, node: Any, remedy: str | None = None) -> None:
        self.found.append(Finding(code, message, start_of(node) or 0, remedy))

    # ---- functions

    def functions(self, tree: Any) -> None:
        """Note the functions that Spark does not have."""
        for node in tree.find_all(exp.Anonymous):
            name = node.name
            qualified = isinstance(node.parent, exp.Dot) and node.parent.expression is node
            if qualified or isinstance(node.parent, exp.Table | exp.Hint):
                continue
            if name.lower() in FUNCTIONS:
                continue
            near = did_you_mean(name.lower(), FUNCTIONS)
            if near or not self._own_functions:
                self._note("BLZ055", f"Spark has no function `{name}`{near}", node)

    # ---- groups

    def _groups(self, tree: Any, scope: _Scope, aliases: Collection[str]) -> None:
        """Note the columns of items that are neither grouped by nor inside of an aggregate."""
        group = tree.args.get("group")
        if group is None and not any(map(_aggregates, tree.expressions)):
            return
        if group is not None and group.args.get("all"):
            return
        texts, names = _grouped(tree, group)
        having = tree.args.get("having")
        items = tree.expressions if having is None else [*tree.expressions, having.this]
        for item in items:
            if not self._may_be_judged(item):
                continue
            for node in _walk(item):
                if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                    continue
                parts = {part.name.lower() for part in (*_qualifiers(node), node.this)}
                unclear = parts & (names | WITHOUT_PARENTHESES | _parameters(node))
                only_alias = not node.table and node.name.lower() in set(aliases) - scope.known()
                if unclear or only_alias or _is_no_column(node) or _is_inside(node, item, texts):
                    continue
                if node.name.lower() in aliases and not _is_item(node, item):
                    continue
                by = "grouped by nor aggregated" if group is not None else "aggregated nor grouped"
                message = f"`{node.sql(dialect='spark')}` is neither {by}"
                self._note("BLZ056", message, node)

    def _may_be_judged(self, item: Any) -> bool:
        """False where something in an item is not known: it may be an aggregate."""
        return not any(
            isinstance(node, exp.Query | exp.Dot)
            or (isinstance(node, exp.Anonymous) and node.name.lower() not in FUNCTIONS)
            for node in item.walk()
        )


def _only(node: Any, parts: Collection[str]) -> None:
    """Give up at a clause that is not one of `parts`."""
    if any(value and key not in parts for key, value in node.args.items()):
        raise Unsure


def _renamed(alias: Any, names: Names) -> Names:
    """The columns under the names that an alias gives them."""
    columns = alias.args.get("columns") if alias is not None else None
    return frozenset(column.name.lower() for column in columns) if columns else names


def _walk(node: Any) -> Iterator[Any]:
    """The nodes of an expression; of a query inside of it only the query itself."""
    todo = [node]
    while todo:
        part = todo.pop()
        yield part
        if not isinstance(part, exp.Query):
            todo += reversed(list(part.iter_expressions()))


def _qualifiers(node: Any) -> list[Any]:
    keys = ("catalog", "db", "table")
    return [node.args[key] for key in keys if node.args.get(key) is not None]


def _is_no_column(node: Any) -> bool:
    """True for a unit of time, a collation, or what EXCEPT takes out of a star."""
    above = node.parent
    if isinstance(above, exp.DataType):
        return True
    if isinstance(above, exp.Anonymous) and above.name.lower() in WITH_UNIT:
        return above.expressions[0] is node and len(above.expressions) > 2
    return isinstance(above, exp.Star | exp.Kwarg) and above.args.get("expression") is not node


def _parameters(node: Any) -> set[str]:
    """The parameters of the lambda functions around a node."""
    parameters: set[str] = set()
    above = node.find_ancestor(exp.Lambda)
    while above is not None:
        parameters |= {parameter.name.lower() for parameter in above.expressions}
        above = above.find_ancestor(exp.Lambda)
    return parameters


def _aliases(item: Any) -> list[str]:
    if isinstance(item, exp.Aliases):
        return [alias.name for alias in item.expressions]
    return [item.alias] if isinstance(item, exp.Alias) else []


def _given(tree: Any, scope: _Scope) -> Names:
    """The columns of a SELECT; None where one has a name that Spark makes up."""
    columns_given: set[str] = set()
    for item in tree.expressions:
        names = _aliases(item)
        if isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            star = item if isinstance(item, exp.Star) else item.this
            if set(star.args) - {"except_", "except"} or any(n is None for _, n in scope.tables):
                return None
            table = item.table.lower() if isinstance(item, exp.Column) else None
            if table is not None and table not in {name for name, _ in scope.tables}:
                return None
            taken = star.args.get("except_") or star.args.get("except") or ()
            without = {column.name.lower() for column in taken}
            for name, columns in scope.tables:
                if table in (None, name):
                    columns_given |= set(columns or ()) - without
        elif names:
            columns_given |= {name.lower() for name in names}
        elif isinstance(item, exp.Column):
            columns_given.add(item.name.lower())
        else:
            return None
    return frozenset(columns_given)


def _aggregates(item: Any) -> bool:
    """True where an aggregate takes part that is not one over a window."""
    return any(
        isinstance(node, exp.Anonymous)
        and node.name.lower() in AGGREGATES
        and not isinstance(node.find_ancestor(exp.Window, exp.Query), exp.Window)
        for node in _walk(item)
    )


def _grouped(tree: Any, group: Any) -> tuple[set[str], set[str]]:
    """The grouping: texts of its expressions, and the names that are in them as they stand."""
    texts, names = set[str](), set[str]()
    items = list(tree.expressions)
    for node in _walk(group) if group is not None else ():
        place = node.this if isinstance(node, exp.Literal) and not node.is_string else ""
        if place.isdigit() and 0 < int(place) <= len(items):
            texts.add(_text(items[int(place) - 1].unalias()))
            continue
        texts.add(_text(node))
        if isinstance(node, exp.Column) and not isinstance(node.parent, exp.Anonymous):
            names.add(node.name.lower())
            texts |= {
                _text(item.unalias())
                for item in items
                if node.name.lower() in map(str.lower, _aliases(item))
            }
        elif isinstance(node, exp.Anonymous) and node.name.lower() in TIME_WINDOWS:
            names.add(node.name.lower())
    by_text = {_text(item.unalias()) for item in items if isinstance(item.unalias(), exp.Column)}
    names |= {text for text in texts & by_text if text.isidentifier()}
    return texts, names


def _text(node: Any) -> str:
    """An expression as text in which only what it means counts."""
    copy = node.copy()
    for column in list(copy.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    while isinstance(copy, exp.Paren):
        copy = copy.this
    return " ".join(str(copy.sql(dialect="spark")).lower().split()).replace("`", "")


def _is_inside(node: Any, item: Any, texts: Collection[str]) -> bool:
    """True in an aggregate, a window function, or an expression that is grouped by."""
    above = node
    while above is not None:
        if isinstance(above, exp.Filter | exp.WithinGroup | exp.Window):
            return True
        if isinstance(above, exp.Anonymous) and above.name.lower() in AGGREGATES:
            return True
        if _text(above) in texts:
            return True
        if above is item:
            return False
        above = above.parent
    return False


def _is_item(node: Any, item: Any) -> bool:
    """True for a column that is the item, or all that an alias stands for."""
    return item is node or (isinstance(item, exp.Alias) and item.this is node)


def listed(names: Iterable[str]) -> str:
    """Names of tables, each once, in their order.

    >>> listed(["a", "", "b", "a"])
    'a or b'
    """
    return " or ".join(dict.fromkeys(name for name in names if name))
