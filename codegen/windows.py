"""Groups by windows of event time, as groups by columns: what sites make of `window(...)`.

`SELECT window(at, '1 hour') AS w, shop, count(*) AS n FROM sales GROUP BY window(at, '1 hour'),
shop` is read as a query over `sales` in which each record has the start and the end of its window
as columns (`flux_runtime.operators.event_time`), and grouped by these. `session_window` is read
alike; there the operator puts windows together that touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from annotations.whitebox.sql_dialect import NotParsed, parse, seconds_of

START: Final = "flux_window_start"
END: Final = "flux_window_end"
"""The columns of a record's window, as `flux_runtime.operators.event_time` calls them."""
FUNCTIONS: Final = ("window", "session_window")
TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})
CLAUSES: Final = frozenset({"expressions", "from", "where", "group", "having"})


class Refused(Exception):  # noqa: N818 - what it is
    """The query has windows that a site cannot keep; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """A query grouped by a window.

    Attributes:
        sql: the query, grouped by `START` and `END`.
        outputs: (column, whether it is the window as a struct) of the whole query, in their order;
            of a struct `sql` has `START` and `END` in its place.
        input: the interface that it reads.
        column: the event time.
        duration_us: length of a window; of sessions, the gap.
        slide_us: from one window to the next; None: sessions.
        start_us: where a window starts.
        keys: the other columns that it is grouped by.
        where: what a record has to be like, if anything.
    """

    sql: str
    outputs: tuple[tuple[str, bool], ...]
    input: str
    column: str
    duration_us: int
    slide_us: int | None
    start_us: int
    keys: tuple[str, ...]
    where: str | None = None

    def in_duckdb(self, query: str) -> str:
        """The whole query in DuckDB's dialect, of `sql` in it.

        >>> w = windowed("SELECT window(at, '1 hour') AS w, count(*) AS n FROM s "
        ...     "GROUP BY window(at, '1 hour')", {"s": {"at": "TIMESTAMP"}})
        >>> print(w.sql)  # doctest: +NORMALIZE_WHITESPACE
        SELECT flux_window_start, flux_window_end, COUNT(*) AS n FROM s
        GROUP BY flux_window_start, flux_window_end
        >>> print(w.in_duckdb("SELECT 1"))  # doctest: +NORMALIZE_WHITESPACE
        SELECT {'start': flux_window_start, 'end': flux_window_end} AS "w", "n"
        FROM (SELECT 1) AS windows
        """
        if not any(is_struct for _, is_struct in self.outputs):
            return query
        struct = f"{{'start': {START}, 'end': {END}}}"
        listed = [
            f"{struct} AS {_in_duckdb(name)}" if is_struct else _in_duckdb(name)
            for name, is_struct in self.outputs
        ]
        return f"SELECT {', '.join(listed)} FROM ({query}) AS windows"

    def merged(self, again: str | None, columns: tuple[str, ...]) -> str:
        """The query that combines the parts of sessions, in DuckDB's dialect.

        Args:
            again: what combines parts of one session, over columns `START` and `END` that are
                those of the session; None: equal ones are one.
            columns: of what is kept.
        """
        table = _in_duckdb(self.input)
        apart = "".join(f"{_in_duckdb(key)}, " for key in self.keys)
        by = f"PARTITION BY {apart[:-2]} " if apart else ""
        others = "".join(f"{_in_duckdb(c)}, " for c in columns if c not in (START, END))
        order = f"ORDER BY {START}, {END} ROWS BETWEEN UNBOUNDED PRECEDING AND"
        opens = (
            f"SELECT *, CASE WHEN {START} <= max({END}) OVER ({by}{order} 1 PRECEDING) "
            f"THEN 0 ELSE 1 END AS flux_opens FROM {table}"
        )
        numbered = (
            f"SELECT *, sum(flux_opens) OVER ({by}{order} CURRENT ROW) AS flux_session "
            f"FROM ({opens}) AS opening"
        )
        of_session = f"OVER (PARTITION BY {apart}flux_session)"
        windows = (
            f"(SELECT {others}min({START}) {of_session} AS {START}, max({END}) {of_session} "
            f"AS {END} FROM ({numbered}) AS numbered) AS {table}"
        )
        if again is None:
            return f"SELECT DISTINCT {', '.join(map(_in_duckdb, columns))} FROM {windows}"
        head, separator, tail = again.partition(f" FROM {self.input}")
        if not separator:
            head, separator, tail = again.partition(f" FROM {table}")
        assert separator
        return f"{head} FROM {windows}{tail}"


def _in_duckdb(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def has_windows(sql: str) -> bool:
    """Whether a query calls `window` or `session_window`."""
    try:
        return any(True for _ in _calls(parse(sql).tree))
    except NotParsed:
        return False


def _calls(tree: Any) -> Any:
    from sqlglot import exp

    return (c for c in tree.find_all(exp.Anonymous) if str(c.this).lower() in FUNCTIONS)


def windowed(sql: str, schemas: Mapping[str, Mapping[str, str]]) -> Windowed:
    """The query with columns in place of its window; raises `Refused`.

    Args:
        sql: a query that has one.
        schemas: input -> attributes and Spark SQL types.
    """
    return _Rewriter(parse(sql).tree, schemas).result()


class _Rewriter:
    """One query with a window on its way into one without."""

    def __init__(self, tree: Any, schemas: Mapping[str, Mapping[str, str]]) -> None:
        from sqlglot import exp

        self._exp = exp
        self._tree = tree
        call, *others = _calls(tree)
        self._name = str(call.this).lower()
        if any(other != call for other in others):
            raise Refused("several windows are not known to mean the same")
        clauses = {key.rstrip("_") for key, value in tree.args.items() if value}
        source = tree.find(exp.From)
        plain = isinstance(tree, exp.Select) and isinstance(source and source.this, exp.Table)
        names = {name.lower(): name for name in schemas}
        if not plain or not clauses <= CLAUSES or source.this.name.lower() not in names:
            raise Refused(f"{self._name} of anything but one input is not known to mean the same")
        if len([*tree.find_all(exp.Query)]) > 1:
            raise Refused(f"{self._name} beside a subquery is not known to mean the same")
        self._input = names[source.this.name.lower()]
        self._schema = {
            c.lower(): (c, of.strip().lower()) for c, of in schemas[self._input].items()
        }
        if self._name in self._schema:
            raise Refused(f"{self._name} is the name of a column, too")
        self._alias = source.this.alias_or_name.lower()
        self._call = call.copy()

    def result(self) -> Windowed:
        """The rewritten query."""
        exp, tree = self._exp, self._tree
        time, *intervals = self._call.expressions
        if not isinstance(time, exp.Column) or time.name.lower() not in self._schema:
            raise Refused(f"{self._name} of an expression is not known to mean the same")
        column, kind = self._schema[time.name.lower()]
        if kind not in TIMES:
            raise Refused(f"{self._name}({kind.upper()}) is not known to mean the same")
        lengths = [self._length_us(interval) for interval in intervals]
        session = self._name == "session_window"
        if len(lengths) not in ((1,) if session else (1, 2, 3)):
            raise Refused(f"{self._name} with {len(lengths)} intervals is no function of Spark's")
        duration, slide, start = (*lengths, lengths[0], 0)[:3] if len(lengths) < 3 else lengths
        if len(lengths) == 2:
            slide, start = lengths[1], 0
        if slide > duration or slide <= 0 or not 0 <= start < slide:
            raise Refused(f"{self._name} with such intervals is refused by Spark")
        keys = self._group()
        outputs = self._projections()
        for key in ("where", "having"):
            if tree.args.get(key):
                tree.args[key].set("this", self._columns(tree.args[key].this))
        where = tree.args.get("where")
        return Windowed(
            sql=tree.sql(dialect="spark"),
            outputs=outputs,
            input=self._input,
            column=column,
            duration_us=duration,
            slide_us=None if session else slide,
            start_us=start,
            keys=keys,
            where=None if where is None else where.this.sql(dialect="spark"),
        )

    def _length_us(self, interval: Any) -> int:
        exp = self._exp
        is_text = isinstance(interval, exp.Literal) and interval.is_string
        seconds = seconds_of(interval.this) if is_text else None
        if seconds is None:
            text = interval.sql(dialect="spark")[:40]
            raise Refused(f"{self._name} of {text} is not known to mean the same")
        return round(seconds * 1_000_000)

    def _group(self) -> tuple[str, ...]:
        """Group by the two columns; the others that the query is grouped by."""
        exp, group = self._exp, self._tree.args.get("group")
        others = {key for key, value in group.args.items() if value} if group else {"none"}
        if others != {"expressions"}:
            raise Refused(f"{self._name} outside of a plain GROUP BY is not known to mean the same")
        columns, keys, met = [], [], False
        for expression in group.expressions:
            if expression == self._call:
                columns += [exp.column(START), exp.column(END)]
                met = True
            elif isinstance(expression, exp.Column) and expression.name.lower() in self._schema:
                columns.append(expression)
                keys.append(self._schema[expression.name.lower()][0])
            else:
                text = expression.sql(dialect="spark")[:40]
                raise Refused(f"{self._name} and {text} in GROUP BY are not known to mean the same")
        if not met:
            raise Refused(f"{self._name} outside of GROUP BY is not known to mean the same")
        group.set("expressions", columns)
        return tuple(keys)

    def _projections(self) -> tuple[tuple[str, bool], ...]:
        exp = self._exp
        items: list[Any] = []
        outputs: list[tuple[str, bool]] = []
        for item in self._tree.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if self._is_window(inner):
                outputs.append((item.alias or self._name, True))
                if not any(is_struct for _, is_struct in outputs[:-1]):
                    items += [exp.column(START), exp.column(END)]
                continue
            name = item.alias
            end = self._end(inner)
            if end is not None:
                name = name or end[0]
                item = exp.alias_(exp.column(end[1]), name, quoted=True)
            elif isinstance(item, exp.Alias):
                item = exp.alias_(self._columns(inner), item.args["alias"].copy())
            elif isinstance(item, exp.Column):
                name = item.name
            else:
                raise Refused("an output column has no name")
            outputs.append((name, False))
            items.append(item)
        self._tree.set("expressions", items)
        return tuple(outputs)

    def _is_window(self, node: Any) -> bool:
        bare = isinstance(node, self._exp.Column) and not node.table
        return node == self._call or (bare and node.name.lower() == self._name)

    def _end(self, node: Any) -> tuple[str, str] | None:
        """(`start` or `end` as written, its column) of `window.start` and the like."""
        exp = self._exp
        field = None
        if isinstance(node, exp.Dot) and self._is_window(node.this):
            field = node.expression.name
        elif isinstance(node, exp.Column) and node.table.lower() == self._name:
            field = node.name
        if field is None or field.lower() not in ("start", "end"):
            return None
        return field, START if field.lower() == "start" else END

    def _columns(self, node: Any) -> Any:
        """An expression in which the ends of the window are columns."""

        def replaced(part: Any) -> Any:
            end = self._end(part)
            return part if end is None else self._exp.column(end[1])

        changed = node.copy().transform(replaced)
        if any(self._is_window(part) for part in changed.walk()):
            raise Refused(f"{self._name} inside of an expression is not known to mean the same")
        return changed
