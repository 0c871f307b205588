"""The relational representation that every white-box front end produces: `annotations.whitebox.ir`.

A plan is a graph of frozen nodes over `Source` leaves, one for each *occurrence* of an input. Nodes
define columns; a `Column` is itself (two with equal names are two), has a type, may be null, and
knows where it stands in the author's text. What a plan *does* is not in here: `derive.annotate`
finds lineage, duplicates, gates and labels from it, and function names mean what the tables of
`functions` say, in whatever front end they were met.

A node stands in one place of a plan. What is used again (a CTE) stands under a `Reuse` there, with
columns of its own, because its rows are then other rows; so a plan is as long as its text.

A front end builds every node with what it knows. What it does not know it says with `Opaque` (a
relation) or `Unknown` (an expression), each with a reason and a position; it never leaves anything
out and never raises for text that parses. Names of functions are Spark's, in lower case; operators
are functions named `=`, `<=>`, `<>`, `<`, `<=`, `>`, `>=`, `+`, `-`, `*`, `/`, `%`, `div`, `and`,
`or`, `not`, `is null`, `is not null`, `negative`, `in`, `like`, `case`, `cast`, `field`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from annotations.dataflow import Position
from annotations.whitebox.datatypes import UNKNOWN, DataType


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column that a node defines. Equal only to itself."""

    name: str
    type: DataType = UNKNOWN
    nullable: bool = True
    position: Position | None = None
    bits_max: int | None = None
    """How many bits the absolute value of an integer may need, where the type allows for more."""

    def __repr__(self) -> str:
        return f"<{self.name}>"


# ---- expressions


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a column of the node's input (or a parameter of a surrounding `Lambda`)."""

    column: Column
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `value` is what Python calls it: None, bool, int, Decimal, float, str, bytes."""

    value: object
    type: DataType = UNKNOWN
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator applied to arguments.

    `case` has the arguments condition, value, ..., and at the end the value of ELSE (NULL where it
    is not written). `cast` and `field` say what they make in `type`; `field` names its field in
    `detail`.
    """

    function: str
    arguments: tuple[Expression, ...] = ()
    type: DataType = UNKNOWN
    nullable: bool = True
    position: Position | None = field(default=None, compare=False)
    distinct: bool = False
    """Of an aggregate: `f(DISTINCT ...)`."""
    condition: Expression | None = None
    """Of an aggregate: `FILTER (WHERE ...)`."""
    order: tuple[SortKey, ...] = ()
    """Of an aggregate: `WITHIN GROUP (ORDER BY ...)`, or an order inside of the parentheses."""
    detail: str = ""
    user: str | None = None
    """For a function of the user: what the author vouches for, as a sentence that the report can
    list ("`score` is declared deterministic"). A user's function without it is `Unknown`."""


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function that a higher-order function takes."""

    parameters: tuple[Column, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Unknown:
    """An expression whose meaning the front end does not know."""

    reason: str
    arguments: tuple[Expression, ...] = ()
    position: Position | None = field(default=None, compare=False)
    calls: bool = False
    """True where it calls a function that nobody vouches for: it may leave its result to chance."""


Expression: TypeAlias = Ref | Literal | Call | Lambda | Unknown


@dataclass(frozen=True, slots=True)
class SortKey:
    """One part of an order."""

    expression: Expression
    descending: bool = False


Output: TypeAlias = tuple[Column, Expression]
"""A column and what it is computed from."""


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside of one."""
    match expression:
        case Call(arguments=arguments, condition=condition, order=order):
            inner = (*arguments, *(key.expression for key in order))
            return inner if condition is None else (*inner, condition)
        case Lambda(body=body):
            return (body,)
        case Unknown(arguments=arguments):
            return arguments
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside of it, outermost first."""
    todo = [expression]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(reversed(children(part)))


def references(expression: Expression) -> frozenset[Column]:
    """The columns that an expression reads."""
    return frozenset(part.column for part in walk(expression) if isinstance(part, Ref))


# ---- relations


class Role(enum.Enum):
    """How the records of a source come, and what becomes of them."""

    STREAM = "stream"
    """One after the other; kept as far as the operators above need it (a continuous query)."""
    REQUEST = "request"
    """One after the other; each asks once and nothing of it is kept (an event, a transient)."""
    TABLE = "table"
    """There from the beginning, and never changed while the job runs."""
    MUTABLE = "mutable"
    """A table that somebody else may change; what is read depends on when."""


@dataclass(frozen=True, slots=True)
class Source:
    """One occurrence of an input. Two occurrences of one input are two nodes of equal `name`."""

    name: str
    columns: tuple[Column, ...]
    role: Role = Role.STREAM
    complete: bool = True
    """False where `columns` may be only some of the input's columns (no schema is declared)."""
    repeats: str | None = None
    """Why the same record may come more than once (a *set-only* stream); None where it may not."""
    keys: tuple[frozenset[str], ...] = ()
    """Attributes that no two different records have in common, as the author declares."""
    step: int | None = 0
    """Of a request: how many timesteps after it came its row takes part; None: not fixed."""
    files: str = ""
    """Of a table: the files that it is, of which nothing says that they stay as they are."""
    position: Position | None = None

    @property
    def comes(self) -> bool:
        """Whether its records come one after the other, so that more may come."""
        return self.role in (Role.STREAM, Role.REQUEST)


@dataclass(frozen=True, slots=True)
class Project:
    """New columns for each row. The columns of the input are gone unless they are listed."""

    input: Relation
    outputs: tuple[Output, ...]
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return tuple([column for column, _ in self.outputs])


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the condition is true."""

    input: Relation
    condition: Expression
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


class JoinKind(enum.Enum):
    """Which rows of a join are kept. A right join is a left join of swapped inputs."""

    INNER = "inner"
    LEFT = "left outer"
    FULL = "full outer"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows; `condition` None: all pairs. SEMI and ANTI have the left columns only.

    `null_aware` marks `NOT IN`: a NULL on either side takes the row away (row 8 of the table of
    constructs). It is the number of values that are compared: `condition` is then the conjunction
    of as many `=` between a value and a column of the subquery, and of the correlated conditions.
    """

    left: Relation
    right: Relation
    kind: JoinKind
    condition: Expression | None
    null_aware: int = 0
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.columns
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each group. `outputs` mix keys and aggregates as the author wrote them.

    `keys` are what is grouped by; none: one group, the whole input. `sets` are the grouping sets
    of ROLLUP, CUBE and GROUPING SETS, as places in `keys`; None: one set, all keys. An output that
    is or contains a key repeats the key's expression.
    """

    input: Relation
    keys: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    sets: tuple[frozenset[int], ...] | None = None
    position: Position | None = None
    pivots: bool = False
    """True for PIVOT, of which Spark makes groups of groups."""

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return tuple([column for column, _ in self.outputs])


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """One row for each value of `keys`, with the other columns of whichever row came first."""

    input: Relation
    keys: tuple[Column, ...]
    expires: bool = False
    """True for `dropDuplicatesWithinWatermark`: what was seen is forgotten after a time."""
    position: Position | None = None
    grouped: bool = False
    """True for DISTINCT and UNION in SQL, of which Spark makes groups: in update mode a row is put
    out again whenever one like it comes, which `dropDuplicates` never does."""

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs, duplicates included, columns matched by place (UNION ALL)."""

    inputs: tuple[Relation, ...]
    columns: tuple[Column, ...]
    position: Position | None = None


class SetKind(enum.Enum):
    """Which rows a set operation keeps."""

    EXCEPT = "except"
    INTERSECT = "intersect"


@dataclass(frozen=True, slots=True)
class SetOperation:
    """EXCEPT or INTERSECT, columns matched by place; `all`: duplicates are counted."""

    left: Relation
    right: Relation
    kind: SetKind
    columns: tuple[Column, ...]
    all: bool = False
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Further columns computed over the rows of equal `partition`, in `order`.

    `rows` is True where a frame counts rows (ROWS BETWEEN ...), so that rows of equal order differ.
    """

    input: Relation
    outputs: tuple[Output, ...]
    """Each expression is a `Call` of the window function or aggregate."""
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...] = ()
    rows: bool = False
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns + tuple([column for column, _ in self.outputs])


@dataclass(frozen=True, slots=True)
class Sort:
    """The rows in an order, or, without keys, in other partitions. A result is a set of rows, so
    that by itself it changes nothing; what stands above it gets them as Spark fetches them."""

    input: Relation
    keys: tuple[SortKey, ...]
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Limit:
    """Some of the rows: LIMIT, OFFSET, TOP, `tail`. Of a sorted input, those at the beginning."""

    input: Relation
    order: tuple[SortKey, ...] = ()
    position: Position | None = None
    skips: bool = False
    """True where the rows at the beginning are left out (OFFSET)."""

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the rows, by chance."""

    input: Relation
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Generate:
    """For each row a row for each element of what `generator` computes (EXPLODE, LATERAL VIEW)."""

    input: Relation
    generator: Expression
    generated: tuple[Column, ...]
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns + self.generated


@dataclass(frozen=True, slots=True)
class Watermark:
    """Rows more than `delay_s` seconds of event time behind the newest may be dropped."""

    input: Relation
    column: Column
    delay_s: float | None
    """None where it is not known."""
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Store:
    """A table that is filled by the input and keeps every row (Bloom's `table`); a set of rows."""

    input: Relation
    name: str
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Delete:
    """A table (`input`) from which the rows of `deleted` are removed when they come (Bloom `<-`).

    `keys` pairs a column of the table with the column of `deleted` that selects what is removed.
    """

    input: Relation
    deleted: Relation
    keys: tuple[tuple[Column, Column], ...]
    upsert: bool = False
    """True where the rows of `deleted` take the place of those that they remove (Bloom `<+-`)."""
    position: Position | None = None

    @property
    def columns(self) -> tuple[Column, ...]:  # noqa: D102
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Reuse:
    """The rows of a node that stands elsewhere in the plan too: a CTE that is used again.

    `columns` are those of `input`, by place, as columns of their own: the records behind these rows
    are other occurrences than those behind the rows of the other place.
    """

    input: Relation
    columns: tuple[Column, ...]
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """User code, or a construct that the front end does not know, over some inputs.

    Nothing is assumed of it: order-sensitive with an unknown gate, no lineage. `writes` False says
    that it is known to keep nothing between batches (`mapInPandas`): `OR[*]` instead of `OW[*]`.
    `keys` says that it keeps state and does to the records of a key what others do not change:
    `OW[key]`; where there are none, that others may, and so `OW[*]`.
    """

    inputs: tuple[Relation, ...]
    columns: tuple[Column, ...]
    reason: str
    writes: bool = True
    nondeterministic: bool = False
    position: Position | None = None
    keys: tuple[Expression, ...] | None = None
    assumes: str = ""
    """What has to be true of the records, or the job stops."""
    left_open: str = ""
    """`text`: running the code could tell what its text does not. `place`: one of several ways is
    taken, and the place where it runs decides which."""


Relation: TypeAlias = (
    Source
    | Project
    | Filter
    | Join
    | Aggregate
    | Deduplicate
    | Union
    | SetOperation
    | Window
    | Sort
    | Limit
    | Sample
    | Generate
    | Watermark
    | Store
    | Delete
    | Reuse
    | Opaque
)


def inputs_of(node: Relation) -> tuple[Relation, ...]:
    """The relations directly below a node."""
    match node:
        case Source():
            return ()
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return (left, right)
        case Union(inputs=inputs) | Opaque(inputs=inputs):
            return inputs
        case Delete(input=table, deleted=deleted):
            return (table, deleted)
    return (node.input,)


def single(node: Relation) -> bool:
    """Whether a node has exactly one row, whatever is below it."""
    while isinstance(node, Project | Sort | Window | Reuse):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys and node.sets is None


def padded(side: Relation) -> tuple[Relation, dict[Column, Column]]:
    """A side of an outer join that may be missing, with columns that may be NULL there; and which
    of them takes the place of which column that may not."""
    exchange = {column: replace(column, nullable=True) for column in side.columns
                if not column.nullable}  # fmt: skip
    if not exchange:
        return side, exchange
    return Project(side, tuple((exchange.get(c, c), Ref(c)) for c in side.columns)), exchange


def nodes_of(plan: Relation) -> Iterator[Relation]:
    """The nodes of a plan, each once and before those that stand below it alone."""
    todo = [plan]
    met: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        yield node
        todo.extend(reversed(inputs_of(node)))


_Part = TypeVar("_Part")


def changed(plan: Relation, kind: type[_Part], change: Callable[[_Part], Any]) -> Relation:
    """The plan with other parts in the places of those of a kind; its columns stay the same."""
    done: dict[int, Any] = {}

    def part(node: Any) -> Any:
        if isinstance(node, tuple):
            items = tuple([part(item) for item in node])
            return items if any(a is not b for a, b in zip(items, node, strict=True)) else node
        if not is_dataclass(node) or isinstance(node, Column):
            return node
        if id(node) not in done:
            done[id(node)] = change(node) if isinstance(node, kind) else inner(node)
        return done[id(node)]

    def inner(node: Any) -> Any:
        new = {own.name: part(getattr(node, own.name)) for own in fields(node)}
        same = all(new[name] is getattr(node, name) for name in new)
        return node if same else replace(node, **new)

    result: Relation = part(plan)
    return result
