"""Random queries of Spark SQL over small random schemas, and random contents for them.

`Queries` joins, groups, compares and nests in every way that the derivation knows or should know;
`query.constructs` says which ways a query has. Values come from small domains, so that keys
collide: NULL often, duplicates, sometimes the extremes of a type.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from annotations.dataflow import Implementation, Path
from annotations.file.compact import parse_dependency
from annotations.vocabulary import FunctionalDependency
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from benchmarks.random_types import TYPES
from blazes.verify.operators import Operator
from blazes.verify.records import Item, Row
from blazes.verify.values import consistent

INT, STRING, DOUBLE, BOOLEAN, OTHER = "INT", "STRING", "DOUBLE", "BOOLEAN", "?"
JOINED: Final = (INT, STRING, *TYPES)
"""Types of keys."""
COMPARED: Final = (*JOINED, DOUBLE)


class Value(NamedTuple):
    """An expression and its type."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Table:
    """An input: its columns with types; `table` never changes, `request` asks once."""

    name: str
    columns: tuple[Value, ...]
    role: Role = Role.STREAM
    not_null: frozenset[str] = frozenset()
    keys: tuple[frozenset[str], ...] = ()

    @property
    def input(self) -> Input:
        """What the front end is told of it."""
        schema = {name: kind + " NOT NULL" * (name in self.not_null) for name, kind in self.columns}
        return Input(schema, self.role, keys=self.keys)


@dataclass(frozen=True, slots=True)
class Schemas:
    """The inputs of a query, and what holds in their records."""

    tables: tuple[Table, ...]
    fds: tuple[FunctionalDependency, ...] = ()

    @property
    def streams(self) -> tuple[Table, ...]:
        """Those of which more may come."""
        return tuple(each for each in self.tables if each.role is not Role.TABLE)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, its inputs, and the constructs that it has."""

    text: str
    schemas: Schemas
    constructs: frozenset[str]


DEPENDENCIES: Final = tuple(
    tuple(map(parse_dependency, each))
    for each in (["id -> k"], ["id, n -> k"], ["id -> w", "w -> k"], ["m <-> k", "id -> m"])
)
"""What may hold in the records of all streams that have the attributes, together."""


def schemas(rng: random.Random, *, types: Sequence[str] = ()) -> Schemas:
    """Two streams and a table that never changes; columns of these types of `TYPES`, too."""
    typed = {"id": INT, "k": INT, "n": INT, "m": INT, "w": STRING, "d": DOUBLE}
    typed |= {TYPES[each].column: each for each in types}

    def table(name: str, role: Role) -> Table:
        chance = 0.15 if types else 0.45
        columns = ["id", "k", *(each for each in "nmwd" if rng.random() < chance)]
        columns += [TYPES[each].column for each in types if rng.random() < 0.75]
        if rng.random() < 0.15:
            columns.remove(rng.choice(["id", "k"]))
        not_null = frozenset(each for each in columns if rng.random() < 0.25)
        keys = (frozenset({"id"}),) if "id" in columns and rng.random() < 0.1 else ()
        listed = tuple(Value(each, typed[each]) for each in columns)
        return Table(name, listed, role, not_null, keys)

    role = Role.REQUEST if rng.random() < 0.1 else Role.STREAM
    fixed = (Value("x", INT), Value("y", INT), Value("z", STRING))
    tables = (table("a", role), table("b", Role.STREAM), Table("t", fixed, Role.TABLE))
    return Schemas(tables, rng.choice(DEPENDENCIES) if rng.random() < 0.3 else ())


def random_query(rng: random.Random, *, typed: bool = False) -> Query:
    """A query over inputs of its own, `typed` with columns of `TYPES`; it reads a stream."""
    while True:
        given = schemas(rng, types=rng.sample(tuple(TYPES), 3) if typed else ())
        queries = Queries(rng, given)
        depth = rng.choice([0, 0, 1, 1, 2])
        text, _ = queries.threshold() if queries.some(0.05) else queries.query(depth)
        if queries.read & {each.name for each in given.streams}:
            tables = tuple(each for each in given.tables if each.name in queries.read)
            return Query(text, replace(given, tables=tables), frozenset(queries.constructs))


Columns = list[Value]


class Queries:
    """A source of queries over some inputs."""

    def __init__(self, rng: random.Random, given: Schemas) -> None:
        self.rng, self.given = rng, given
        self.constructs: set[str] = set()
        self.read: set[str] = set()
        self._names = 0

    def name(self, first: str = "c") -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{first}{self._names}"

    def some(self, chance: float) -> bool:
        """True so often."""
        return self.rng.random() < chance

    def mark(self, construct: str) -> None:
        """Note a construct."""
        self.constructs.add(construct)

    # ---- queries

    def query(self, depth: int) -> tuple[str, Columns]:
        """A query; its columns under names of their own."""
        kinds = [self._select] * 12 + [self._sets] * 2
        if depth:
            kinds += [self._cte, self._pivot, self._unpivot, self._looked_up]
        return self.rng.choice(kinds)(depth)

    def threshold(self) -> tuple[str, Columns]:
        """Groups that have reached something, and nothing else: confluent where they only grow."""
        source, columns = self._base()
        key = self.rng.choice([each for each in columns if each.type != OTHER])
        self.mark("threshold")
        name = self.name()
        having = self._having(columns)
        text = f"SELECT {key.text} AS {name} FROM {source} GROUP BY {key.text}{having}"
        return text, [Value(name, key.type)]

    def _cte(self, depth: int) -> tuple[str, Columns]:
        self.mark("CTE")
        inner, columns = self.query(depth - 1)
        name, one, other = self.name("w"), self.name("x"), self.name("x")
        left = [Value(f"{one}.{each.text}", each.type) for each in columns]
        right = [Value(f"{other}.{each.text}", each.type) for each in columns]
        if self.some(0.5):
            source = f"{name} {one} {self.rng.choice(['JOIN', 'LEFT JOIN'])} {name} {other} "
            source += f"ON {self._on(left, right)}"
            found, made = self._over(source, left + right, depth - 1)
        else:
            found, made = self._over(f"{name} {one}", left, depth - 1)
        return f"WITH {name} AS ({inner}) {found}", made

    def _sets(self, depth: int) -> tuple[str, Columns]:
        left, columns = self._select(max(depth - 1, 0), plain=True)
        right, others = self._select(max(depth - 1, 0), plain=True)
        pairs = []
        for one in columns:
            same = [each for each in others if each.type == one.type]
            if same and one.type != OTHER:
                pairs.append((one, self.rng.choice(same)))
        if not pairs:
            return left, columns
        kind = self.rng.choice(SET_OPERATIONS)
        self.mark(kind)
        one, other = self.name("x"), self.name("x")
        made = [Value(self.name(), each.type) for each, _ in pairs]
        first = ", ".join(
            f"{one}.{each.text} AS {to.text}" for (each, _), to in zip(pairs, made, strict=True)
        )
        named = [
            f"{other}.{each.text} AS {to.text}" for (_, each), to in zip(pairs, made, strict=True)
        ]
        if kind.endswith("BY NAME"):
            self.rng.shuffle(named)
        text = f"SELECT {first} FROM ({left}) {one} {kind} "
        text += f"SELECT {', '.join(named)} FROM ({right}) {other}"
        if self.some(0.2) and not kind.endswith("BY NAME"):
            self.mark("set operations without brackets")
            last = self.rng.choice(["INTERSECT", "EXCEPT", "UNION ALL"])
            third, own = self.name("x"), ", ".join(f"{other}.{each.text}" for _, each in pairs)
            text += f" {last} SELECT {own.replace(other + '.', third + '.')} FROM ({right}) {third}"
        return text, made

    def _looked_up(self, depth: int) -> tuple[str, Columns]:
        """Values of two inputs, of which only those remain that an input has, or has not."""
        self.mark("values looked up")
        (one, left), (other, right) = self._base(), self._base()
        same = [
            (a.text, b.text, a.type)
            for a in left
            for b in right
            if a.type == b.type and a.text.partition(".")[2] == b.text.partition(".")[2]
        ]
        pairs = self.rng.sample(same, min(len(same), self.rng.choice([1, 2, 2])))
        if not pairs:
            return self._select(depth)
        made = [Value(self.name(), kind) for *_, kind in pairs]
        if self.some(0.6):
            call = self.rng.choice(["coalesce", "coalesce", "greatest", "least"])
            on = self.rng.choice([pairs, same])
            listed = [Value(f"{call}({a}, {b})", kind) for a, b, kind in pairs]
            text = f"SELECT {_listed(listed, made)} FROM {one} "
            text += self.rng.choice(["FULL JOIN", "LEFT JOIN", "RIGHT JOIN", "JOIN"])
            text += f" {other} ON {' AND '.join(f'{a} = {b}' for a, b, _ in on)}"
        else:
            first = _listed([Value(a, kind) for a, _, kind in pairs], made)
            second = ", ".join(b for _, b, _ in pairs)
            how = self.rng.choice(["UNION ALL", "EXCEPT", "INTERSECT"])
            text = f"SELECT {first} FROM {one} {how} SELECT {second} FROM {other}"
        outer = self.name("x")
        columns = [Value(f"{outer}.{name}", kind) for name, kind in made]
        inner, looked = self._base()
        on = self._on(self.rng.sample(columns, 1), looked)
        no = self.rng.choice(["", "NOT "])
        where = f" WHERE {no}EXISTS (SELECT 1 FROM {inner} WHERE {on})"
        return self._projected(f"({text}) {outer}{where}", columns, depth)

    def _pivot(self, depth: int) -> tuple[str, Columns]:
        part, columns = self._part(depth - 1)
        integers = [each for each in columns if each.type == INT]
        if len(integers) < 2:
            return self._over(part, columns, depth - 1)
        self.mark("PIVOT")
        chosen = self.rng.sample(integers, min(len(integers), self.rng.choice([2, 3, 3])))
        names = [self.name() for _ in chosen]
        listed = ", ".join(f"{c.text} AS {n}" for c, n in zip(chosen, names, strict=True))
        values = [self.name() for _ in range(2)]
        by, of = names[0], names[1]
        call = self.rng.choice(["sum", "count", "max", "min"])
        among = ", ".join(f"{number} AS {name}" for number, name in enumerate(values))
        text = f"SELECT * FROM (SELECT {listed} FROM {part}) "
        text += f"PIVOT ({call}({of}) FOR {by} IN ({among}))"
        return text, [Value(each, INT) for each in [*names[2:], *values]]

    def _unpivot(self, depth: int) -> tuple[str, Columns]:
        part, columns = self._part(depth - 1)
        integers = [each for each in columns if each.type == INT]
        if len(integers) < 2:
            return self._over(part, columns, depth - 1)
        self.mark("UNPIVOT")
        names = [self.name() for _ in integers]
        listed = ", ".join(f"{c.text} AS {n}" for c, n in zip(integers, names, strict=True))
        rows, of = self.name(), self.name()
        text = f"SELECT * FROM (SELECT {listed} FROM {part}) "
        text += f"UNPIVOT ({rows} FOR {of} IN ({', '.join(names[-2:])}))"
        return text, [
            *(Value(each, INT) for each in names[:-2]),
            Value(of, STRING),
            Value(rows, INT),
        ]

    def _select(self, depth: int, *, plain: bool = False) -> tuple[str, Columns]:
        source, columns = self._from(depth)
        if plain or self.some(0.2):
            where = self._where(columns, depth)
            return self._projected(source + where, columns, depth)
        return self._over(source, columns, depth)

    # ---- FROM

    def _base(self) -> tuple[str, Columns]:
        weights = [4 if each.role is not Role.TABLE else 1 for each in self.given.tables]
        (table,) = self.rng.choices(self.given.tables, weights)
        self.read.add(table.name)
        alias = self.name("x")
        return f"{table.name} {alias}", [
            Value(f"{alias}.{each.text}", each.type) for each in table.columns
        ]

    def _part(self, depth: int) -> tuple[str, Columns]:
        """A table, values, or a query in brackets."""
        if self.some(0.04):
            if self.some(0.3):
                self.mark("TABLESAMPLE")
                text, columns = self._base()
                name, _, alias = text.partition(" ")
                return f"{name} TABLESAMPLE ({self.rng.randint(1, 2)} ROWS) {alias}", columns
            self.mark("VALUES")
            alias, names = self.name("x"), [self.name(), self.name()]
            rows = ", ".join(f"({self._literal(INT)}, {self._literal(INT)})" for _ in range(2))
            made = [Value(f"{alias}.{name}", INT) for name in names]
            return f"(VALUES {rows}) AS {alias}({', '.join(names)})", made
        if depth <= 0 or self.some(0.4):
            return self._base()
        text, columns = self.query(depth - 1)
        alias = self.name("x")
        return f"({text}) {alias}", [Value(f"{alias}.{c}", kind) for c, kind in columns]

    def _from(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._part(depth)
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
            source, columns = self._joined(source, columns, depth)
        if self.some(0.08):
            source, columns = self._exploded(source, columns)
        return source, columns

    def _joined(self, source: str, left: Columns, depth: int) -> tuple[str, Columns]:
        kind = self.rng.choice(
            ["JOIN"] * 4 + ["LEFT JOIN"] * 3 + ["RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]
            + ["LEFT SEMI JOIN", "LEFT ANTI JOIN", "LATERAL"]
        )  # fmt: skip
        self.mark(kind)
        if kind == "LATERAL":
            if self.some(0.2):
                self.mark("LATERAL without FROM")
                value, name = self._value(left), self.name()
                where = f" WHERE {self._on(left, left)}" if self.some(0.4) else ""
                inner, made = f"SELECT {value.text} AS {name}{where}", [Value(name, value.type)]
            else:
                inner, made = self._correlated(left, grouped=self.some(0.4))
            alias = self.name("x")
            how = self.rng.choice([",", " JOIN", " LEFT JOIN"])
            text = f"{source}{how} LATERAL ({inner}) {alias}"
            return text, [*left, *(Value(f"{alias}.{c}", kind) for c, kind in made)]
        part, right = self._part(depth - 1)
        if kind == "CROSS JOIN":
            return f"{source} CROSS JOIN {part}", left + right
        names = [each.text.rpartition(".")[2] for each in left]
        common = [each for each in right if names.count(each.text.rpartition(".")[2]) == 1]
        if common and "SEMI" not in kind and "ANTI" not in kind and self.some(0.08):
            self.mark("USING")
            name = self.rng.choice(common).text.rpartition(".")[2]
            kinds = {each.type for each in (*left, *right) if each.text.endswith(f".{name}")}
            if len(kinds) == 1:
                merged = Value(name, kinds.pop())
                hidden = [each for each in left + right if not each.text.endswith(f".{name}")]
                return f"{source} {kind} {part} USING ({name})", [*hidden, merged]
        if self.some(0.05):
            self.mark("a join in a join")
            inner, more = self._base()
            how = self.rng.choice(["JOIN", "LEFT JOIN", "LEFT ANTI JOIN"])
            part += f" {how} {inner} ON {self._on(right, more)}"
        text = f"{source} {kind} {part} ON {self._on(left, right)}"
        return text, left if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else left + right

    def _correlated(self, outer: Columns, *, grouped: bool) -> tuple[str, Columns]:
        """A query that names columns around it."""
        part, columns = self._base()
        where = f" WHERE {self._on(outer, columns)}" if self.some(0.8) else ""
        name = self.name()
        if grouped:
            value = self._aggregate(columns)
            return f"SELECT {value.text} AS {name} FROM {part}{where}", [Value(name, value.type)]
        value = self._value(columns)
        distinct = "DISTINCT " * self.some(0.15)
        rest = self._more(columns) if self.some(0.15) else ""
        text = f"SELECT {distinct}{value.text} AS {name} FROM {part}{where}{rest}"
        return text, [Value(name, value.type)]

    def _more(self, columns: Columns) -> str:
        """What a subquery may have behind its WHERE."""
        one = self.rng.choice(columns).text
        found = self.rng.choice(
            [
                f" QUALIFY count(*) OVER (PARTITION BY {one}) < 2",
                f" QUALIFY row_number() OVER (ORDER BY {one}) = 1",
                f" ORDER BY {one} LIMIT 1",
                f" GROUP BY {one}",
                f" GROUP BY {one} HAVING count(*) < 2",
            ]
        )
        self.mark(f"subquery with {found.split()[0]}")
        return found

    def _exploded(self, source: str, columns: Columns) -> tuple[str, Columns]:
        integers = [each for each in columns if each.type == INT]
        if not integers:
            return source, columns
        view, name = self.name("v"), self.name()
        one, other = self.rng.choice(integers).text, self.rng.choice(integers).text
        found = Value(f"{view}.{name}", INT)
        self.mark("explode")
        text = f"{source} LATERAL VIEW explode(array({one}, {other})) {view} AS {name}"
        return text, [*columns, found]

    def _on(self, left: Columns, right: Columns) -> str:
        parts = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            pairs = [(a, b) for a in left for b in right if a.type == b.type and a.type != OTHER]
            same = [p for p in pairs if p[0].text.split(".")[-1] == p[1].text.split(".")[-1]]
            if not pairs:
                return "TRUE"
            one, other = self.rng.choice(same if same and self.some(0.5) else pairs)
            sign = self.rng.choice(["="] * 8 + ["<=>", "<", ">="])
            more = " + 1" if one.type == INT and self.some(0.08) else ""
            parts.append(f"{one.text} {sign} {other.text}{more}")
        return " AND ".join(parts)

    # ---- conditions and values

    def _literal(self, kind: str) -> str:
        if kind == STRING:
            return self.rng.choice(["'a'", "'b'", "'A'"])
        if kind in TYPES:
            return self.rng.choice(TYPES[kind].literals)
        return self.rng.choice(["0", "1", "2", "3"])

    def _condition(self, columns: Columns) -> str:
        usable = [each for each in columns if each.type in COMPARED]
        if not usable:
            return "TRUE"
        one = self.rng.choice(usable)
        alike = self.rng.choice([each for each in usable if each.type == one.type])
        literal = self._literal(one.type)
        found = self.rng.choice(
            [
                f"{one.text} = {literal}",
                f"{one.text} > {literal}",
                f"{one.text} <= {literal}",
                f"{one.text} <> {alike.text}",
                f"{one.text} = {alike.text}",
                f"{one.text} <=> {alike.text}",
                f"{one.text} IS NULL",
                f"{one.text} IS NOT NULL",
                f"{one.text} IN ({literal}, {self._literal(one.type)})",
                f"{one.text} BETWEEN {literal} AND {self._literal(one.type)}",
            ]
        )
        if self.some(0.12):
            found = f"({found} OR {self._condition(columns)})"
        return f"NOT ({found})" if self.some(0.08) else found

    def _where(self, columns: Columns, depth: int, *, chance: float = 0.55) -> str:
        if not self.some(chance):
            return ""
        parts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            subquery = self.some(0.35)
            parts.append(self._subquery(columns, depth) if subquery else self._condition(columns))
        return f" WHERE {' AND '.join(parts)}"

    def _subquery(self, outer: Columns, depth: int) -> str:
        """A condition with a subquery."""
        usable = [each for each in outer if each.type in JOINED]
        no = self.rng.choice(["", "", "NOT "])
        kind = self.rng.choice(["IN", "IN", "EXISTS", "EXISTS", "scalar", "OR"])
        if kind == "scalar" and usable:
            one = self.rng.choice(usable)
            inner = self._scalar(outer, one.type)
            if inner is not None:
                return f"{one.text} {self.rng.choice(['=', '>', '<='])} ({inner})"
        if kind == "EXISTS" or not usable:
            self.mark(f"{no}EXISTS")
            part, columns = self._part(min(depth - 1, 1))
            where = self._where(columns, 0, chance=0.3)
            on = self._on(outer, columns)
            where = f"{where} AND {on}" if where else f" WHERE {on}"
            rest = self._more(columns) if self.some(0.12) else ""
            return f"{no}EXISTS (SELECT 1 FROM {part}{where}{rest})"
        self.mark(f"{no}IN")
        one = self.rng.choice(usable)
        part, columns = self._part(min(depth - 1, 1))
        same = [each for each in columns if each.type == one.type]
        if not same:
            return self._condition(outer)
        where = f" WHERE {self._on(outer, columns)}" if self.some(0.25) else ""
        if self.some(0.15):
            self.mark(f"{no}IN of pairs")
            pairs = [(a, b) for a in usable for b in columns if a.type == b.type]
            (a, b), (c, d) = self.rng.choices(pairs, k=2)
            a = Value(self._literal(a.type), a.type) if self.some(0.2) else a
            members = f"{b.text}, {d.text}"
            return f"({a.text}, {c.text}) {no}IN (SELECT {members} FROM {part}{where})"
        if self.some(0.1):
            one = Value(self._literal(one.type), one.type)
        found = f"{one.text} {no}IN (SELECT {self.rng.choice(same).text} FROM {part}{where})"
        if kind == "OR":
            self.mark("subquery in OR")
            return f"({found} OR {self._condition(outer)})"
        return found

    def _scalar(self, outer: Columns, kind: str) -> str | None:
        part, columns = self._base()
        same = [each for each in columns if each.type == kind]
        if not same:
            return None
        correlated = self.some(0.6)
        self.mark("correlated scalar" if correlated else "scalar")
        where = f" WHERE {self._on(outer, columns)}" if correlated else ""
        calls = ["max", "min"] + (["count", "sum"] if kind == INT else [])
        return f"SELECT {self.rng.choice(calls)}({self.rng.choice(same).text}) FROM {part}{where}"

    def _value(self, columns: Columns) -> Value:
        rng = self.rng
        usable = [each for each in columns if each.type != OTHER] or [Value("1", INT)]
        one = rng.choice(usable)
        typed = [each for each in usable if each.type in TYPES]
        if typed and self.some(0.5):
            one = rng.choice(typed)
            if self.some(0.5):
                return one
            other = rng.choice([each for each in typed if each.type == one.type])
            text, kind = rng.choice(TYPES[one.type].calls)
            self.mark(f"{one.type} expression")
            return Value(text.format(one.text, other.text), kind)
        if self.some(0.7):
            return one
        alike = rng.choice([each for each in usable if each.type == one.type])
        name = one.text.rpartition(".")[2]
        twins = [each for each in usable if each.text.rpartition(".")[2] == name]
        if len(twins) > 1 and one.type in (INT, STRING) and self.some(0.3):
            self.mark("coalesce")
            parts = [each.text for each in rng.sample(twins, 2)]
            if self.some(0.2):
                parts.insert(rng.choice([0, 2]), self._literal(one.type))
            return Value(f"coalesce({', '.join(parts)})", one.type)
        if one.type == INT and self.some(0.15):
            self.mark("higher-order function")
            array = f"array({one.text}, {alike.text})"
            return rng.choice(
                [
                    Value(f"size(filter({array}, e -> e > 1))", INT),
                    Value(f"aggregate({array}, 0, (s, e) -> s + e)", INT),
                    Value(f"sort_array({array})", OTHER),
                    Value(f"transform({array}, e -> e + 1)", OTHER),
                ]
            )
        if one.type == INT:
            text = rng.choice(
                [
                    f"{one.text} + 1",
                    f"-{one.text}",
                    f"coalesce({one.text}, {alike.text})",
                    f"CASE WHEN {self._condition(columns)} THEN {one.text} ELSE 0 END",
                    f"greatest({one.text}, {alike.text})",
                    f"abs({one.text})",
                ]
            )
            if self.some(0.1):
                return Value(f"CAST({one.text} AS STRING)", STRING)
            if self.some(0.1):
                return Value(f"CAST({one.text} AS {rng.choice(['BIGINT', 'DOUBLE'])})", INT)
            return Value(text, INT)
        if one.type == STRING:
            text = rng.choice([f"upper({one.text})", f"concat({one.text}, {alike.text})"])
            return Value(text, STRING)
        return one

    # ---- what is made of the rows

    def _over(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        """A SELECT over some tables."""
        source += self._where(columns, depth)
        kind = self.rng.choice(
            [self._projected, self._grouped, self._grouped, self._grouped, self._windowed]
        )
        return kind(source, columns, depth)

    def _projected(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        values = [self._value(columns) for _ in range(self.rng.choice([1, 2, 2, 3]))]
        made = [Value(self.name(), each.type) for each in values]
        if self.some(0.07):
            inner = self._scalar(columns, INT)
            if inner is not None:
                values.append(Value(f"({inner})", INT))
                made.append(Value(self.name(), INT))
        if made[0].type == INT and self.some(0.06):
            self.mark("an item of an item")
            values.append(Value(f"{made[0].text} + 1", INT))
            made.append(Value(self.name(), INT))
        distinct = self.some(0.2)
        if distinct:
            self.mark("DISTINCT")
        text = f"SELECT {'DISTINCT ' * distinct}{_listed(values, made)} FROM {source}"
        return self._limited(text, made)

    def _limited(self, text: str, made: Columns) -> tuple[str, Columns]:
        if self.some(0.06):
            self.mark("LIMIT")
            keys = self.rng.sample(made, self.rng.randint(1, len(made)))
            keys = [each for each in keys if each.type != OTHER]
            if keys:
                text += " ORDER BY " + ", ".join(
                    each.text + self.rng.choice(["", " DESC"]) for each in keys
                )
            text += f" LIMIT {self.rng.randint(1, 3)}"
            text += f" OFFSET {self.rng.randint(1, 2)}" * self.some(0.2)
        return text, made

    def _aggregate(self, columns: Columns) -> Value:
        rng = self.rng
        usable = [each for each in columns if each.type in COMPARED]
        if not usable:
            return Value("count(*)", INT)
        value, other = rng.choice(usable), rng.choice(usable)
        typed = [each for each in usable if each.type in TYPES]
        if typed and self.some(0.6):
            value = rng.choice(typed)
            text, kind = rng.choice(TYPES[value.type].aggregates)
            self.mark(f"{value.type} aggregate")
            return Value(text.format(value.text), kind)
        names = ["count", "min", "max", "first", "any_value", "collect_list", "DISTINCT"]
        names += ["max_by", "min_by", "collect_set", "sort_array", "count_if", "bool_or", "listagg"]
        if value.type in (INT, DOUBLE):
            names += ["sum", "sum", "sum", "avg", "bool_and", "sumabs"]
        function = rng.choice(["*", "*", "*", *names])
        self.mark(f"aggregate {function}")
        match function:
            case "*":
                found = Value("count(*)", INT)
            case "DISTINCT":
                found = Value(f"count(DISTINCT {value.text})", INT)
            case "max_by" | "min_by":
                found = Value(f"{function}({value.text}, {other.text})", value.type)
            case "collect_list":
                found = Value(f"collect_list({value.text})", OTHER)
            case "collect_set":
                found = Value(f"size(collect_set({value.text}))", INT)
            case "sort_array":
                found = Value(f"sort_array(collect_list({value.text}))", OTHER)
            case "count_if" | "bool_or" | "bool_and":
                kind = INT if function == "count_if" else OTHER
                return Value(f"{function}({self._condition(columns)})", kind)
            case "listagg":
                words = [each.text for each in usable if each.type == STRING]
                if not words:
                    return Value("count(*)", INT)
                return Value(f"listagg({rng.choice(words)}, ',')", STRING)
            case "count":
                found = Value(f"count({value.text})", INT)
            case "sumabs":
                found = Value(f"sum(abs(CAST({value.text} AS BIGINT)))", INT)
                if value.type == DOUBLE:
                    found = Value(f"sum(abs({value.text}))", DOUBLE)
            case "avg":
                found = Value(f"avg({value.text})", DOUBLE)
            case _:
                found = Value(f"{function}({value.text})", value.type)
        if self.some(0.12):
            self.mark("FILTER")
            found = Value(f"{found.text} FILTER (WHERE {self._condition(columns)})", found.type)
            if "size(" in found.text or "sort_array(" in found.text:
                inner, _, rest = found.text.partition(") FILTER")
                found = Value(f"{inner} FILTER{rest})", found.type)
        return found

    def _grouped(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        keys = []
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 2])):
            key = self._value(columns)
            if key.type != OTHER and key.text not in [each.text for each in keys]:
                keys.append(key)
        times = [each for each in columns if each.type in TYPES and TYPES[each.type].groups]
        if times and self.some(0.4):
            one = self.rng.choice(times)
            text = self.rng.choice(TYPES[one.type].groups)
            self.mark(f"groups by {text.partition('(')[0]}")
            keys.append(Value(text.format(one.text), OTHER))
        shown = [each for each in keys if self.some(0.85)]
        values = [*shown, *(self._aggregate(columns) for _ in range(self.rng.choice([0, 1, 1, 2])))]
        if not values or (not keys and values == shown):
            values = [*shown, Value("count(*)", INT)]
        made = [Value(self.name(), each.type) for each in values]
        by = ", ".join(each.text for each in keys)
        how = self._grouping(keys, by)
        if keys and shown == keys and "(" not in how and self.some(0.15):
            aggregated = len(values) > len(shown)
            how = " GROUP BY " + ", ".join(str(n + 1) for n in range(len(keys)))
            how = " GROUP BY ALL" if aggregated and self.some(0.5) else how
            self.mark(how.split()[-1] if "ALL" in how else "GROUP BY places")
        having = self._having(columns) if self.some(0.3) else ""
        if not having and values[-1].type == INT and self.some(0.08):
            self.mark("HAVING by name")
            having = f" HAVING {made[-1].text} {self.rng.choice(['>', '<', '='])} 1"
        if "ALL" not in how and self.some(0.06):
            self.mark("explode of groups")
            array = self._of_groups(columns)
            values, made = [*values, Value(array, OTHER)], [*made, Value(self.name(), OTHER)]
        if keys and self.some(0.06):
            self.mark("window over groups")
            of = self.rng.choice(keys).text
            inner = f"{self.rng.choice(['rank()', 'sum(count(*))', 'max(count(*))'])} OVER "
            inner += self.rng.choice([f"(ORDER BY {of})", f"(PARTITION BY {of} ORDER BY count(*))"])
            values, made = [*values, Value(inner, INT)], [*made, Value(self.name(), INT)]
            if self.some(0.4):
                self.mark("QUALIFY over groups")
                having += f" QUALIFY {self.rng.choice([inner, made[-1].text])} <= 1"
        self.mark("GROUP BY" if keys else "aggregate of all")
        text = f"SELECT {_listed(values, made)} FROM {source}{how}{having}"
        return self._limited(text, made)

    def _of_groups(self, columns: Columns) -> str:
        """EXPLODE of what aggregates give."""
        numbers = [each.text for each in columns if each.type == INT]
        if not numbers or self.some(0.3):
            return "explode(array(count(*), count(*) + 1))"
        one = self.rng.choice(numbers)
        kinds = ["array(min({0}), max({0}))", "collect_list({0})", "sort_array(collect_list({0}))"]
        return f"explode({self.rng.choice(kinds).format(one)})"

    def _grouping(self, keys: Columns, by: str) -> str:
        if not keys:
            return ""
        if self.some(0.12):
            self.mark("grouping sets")
            sets = [f"ROLLUP ({by})", f"CUBE ({by})", f"GROUPING SETS (({by}), ({keys[0].text}))"]
            if len(keys) > 1:
                sets.append(f"{keys[0].text}, ROLLUP ({keys[1].text})")
                sets.append(f"GROUPING SETS (({by}), {keys[0].text}, ({keys[0].text}))")
            return f" GROUP BY {self.rng.choice(sets)}"
        return f" GROUP BY {by}"

    def _having(self, columns: Columns) -> str:
        self.mark("HAVING")
        parts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            value = self._aggregate(columns)
            if value.type == OTHER:
                value = Value("count(*)", INT)
            sign = self.rng.choice([">", ">", ">=", "<", "=", "<="])
            part = f"{value.text} {sign} {self._literal(value.type)}"
            parts.append(f"NOT ({part})" if self.some(0.15) else part)
        return f" HAVING {self.rng.choice([' AND ', ' AND ', ' OR ']).join(parts)}"

    def _windowed(self, source: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        usable = [each for each in columns if each.type in JOINED]
        if not usable:
            return self._projected(source, columns, depth)
        self.mark("window")
        over, clause = self._window(usable), ""
        if self.some(0.25):
            self.mark("named window")
            name = self.name("u")
            over, clause = name, f" WINDOW {name} AS {over}"
        one = rng.choice(usable)
        ordered = "ORDER BY" in over + clause
        calls = [Value("count(*)", INT), Value(f"max({one.text})", one.type)]
        calls.append(Value(f"first_value({one.text})", one.type))
        if one.type == INT:
            calls.append(Value(f"sum({one.text})", INT))
        if ordered and "BETWEEN" not in over + clause:
            calls += [Value(f"{each}()", INT) for each in ("row_number", "rank", "dense_rank")] * 2
            calls += [Value(f"lag({one.text})", one.type), Value("ntile(2)", INT)]
        call = rng.choice(calls)
        self.mark(f"window {call.text.partition('(')[0]}")
        values = [*(self._value(columns) for _ in range(rng.choice([1, 2]))),
                  Value(f"{call.text} OVER {over}", call.type)]  # fmt: skip
        made = [Value(self.name(), each.type) for each in values]
        qualify = ""
        if self.some(0.4):
            self.mark("QUALIFY")
            sign = f"{rng.choice(['=', '=', '<=', '>'])} {self._literal(call.type)}"
            if self.some(0.5):
                qualify = f" QUALIFY {call.text} OVER {over} {sign}"
                if self.some(0.7):
                    values, made = values[:-1], made[:-1]
            else:
                qualify = f" QUALIFY {made[-1].text} {sign}"
        text = f"SELECT {_listed(values, made)} FROM {source}"
        # Spark has QUALIFY before WINDOW or after it, as the standard and DuckDB have it.
        return f"{text}{qualify}{clause}" if not clause else f"{text}{clause}{qualify}", made

    def _window(self, usable: Columns) -> str:
        rng = self.rng
        keys = rng.sample(usable, min(len(usable), rng.choice([0, 1, 1, 1, 2])))
        order = rng.sample(usable, min(len(usable), rng.choice([0, 1, 1, 2])))
        parts = []
        if keys:
            texts = [
                f"{each.text} + 1" if each.type == INT and self.some(0.1) else each.text
                for each in keys
            ]
            parts.append("PARTITION BY " + ", ".join(texts))
        if order:
            parts.append(
                "ORDER BY " + ", ".join(each.text + rng.choice(["", " DESC"]) for each in order)
            )
            if self.some(0.25):
                self.mark("frame")
                ranged = len(order) == 1 and order[0].type == INT and self.some(0.3)
                frame = "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
                ranges = TYPES[order[0].type].ranges if order[0].type in TYPES else ()
                if ranges and len(order) == 1:
                    ranged, frame = True, rng.choice(ranges)
                parts.append(frame if ranged else rng.choice(FRAMES))
        return f"({' '.join(parts)})"


SET_OPERATIONS: Final = (
    *("UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"),
    *("EXCEPT ALL", "INTERSECT ALL", "UNION ALL BY NAME"),
)
FRAMES: Final = (
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)


def _listed(values: Sequence[Value], made: Sequence[Value]) -> str:
    return ", ".join(f"{v.text} AS {m.text}" for v, m in zip(values, made, strict=True))


# ---- contents

POOLS: Final[dict[str, tuple[Any, ...]]] = {
    INT: (0, 1, 2, 3, -1),
    STRING: ("a", "b", "A", ""),
    DOUBLE: (1.0, 0.1, 1e16, -1e16, 0.0),
}
EXTREMES: Final[dict[str, tuple[Any, ...]]] = {
    INT: (2**31 - 1, -(2**31)),
    STRING: ("ä", "a b"),
    DOUBLE: (1e308, -1e308),
}


def records(rng: random.Random, given: Schemas, count: int) -> tuple[Item, ...]:
    """So many records of the streams, which keep what is declared of them."""
    pools = _pools(rng, {kind for table in given.streams for _, kind in table.columns})
    found = []
    for _ in range(count):
        table = rng.choice(given.streams)
        row = _row(rng, table, pools)
        times = rng.choice([1, 1, 1, 1, 2]) if table.role is Role.STREAM else 1
        found.append(Item(table.name, row, times))
    items: list[Item] = []
    for item in consistent(found, operator_of(given), given.fds):
        if lawful(given, [*items, item]):
            items.append(item)
    return tuple(items)


def lawful(given: Schemas, items: Sequence[Item]) -> bool:
    """Whether records keep keys and have what is never NULL, and no request comes twice."""
    rows: dict[Any, Row] = {}
    for table in given.streams:
        names = [each.text for each in table.columns]
        own = [item.row for item in items if item.interface == table.name]
        if table.role is Role.REQUEST and len(own) > len(set(own)):
            return False
        if any(row[names.index(each)] is None for row in own for each in table.not_null):
            return False
        for key in table.keys:
            for row in own:
                at = (table.name, *(row[names.index(each)] for each in sorted(key)))
                if rows.setdefault(at, row) != row:
                    return False
    return True


def operator_of(given: Schemas, paths: tuple[Path, ...] = (), text: str = "") -> Operator:
    """A query as a component over these streams."""
    streams = {each.name: dict(each.columns) for each in given.streams}
    return Operator("Query", "out", paths, Implementation(sql=text), streams)


def contents(rng: random.Random, table: Table) -> tuple[Row, ...]:
    """Rows of a table that never changes."""
    pools = _pools(rng, {kind for _, kind in table.columns})
    return tuple(_row(rng, table, pools) for _ in range(rng.randint(0, 4)))


def _pools(rng: random.Random, kinds: set[str]) -> dict[str, list[Any]]:
    pools = {}
    more = {kind: TYPES[kind] for kind in TYPES if kind in kinds}
    values_of = POOLS | {kind: each.pool for kind, each in more.items()}
    extremes = EXTREMES | {kind: each.extremes for kind, each in more.items()}
    for kind, values in values_of.items():
        pools[kind] = rng.sample(values, rng.choice([1, 2, 2, 3]))
        if rng.random() < 0.04:
            pools[kind].append(rng.choice(extremes[kind]))
    return pools


def _row(rng: random.Random, table: Table, pools: dict[str, list[Any]]) -> Row:
    return tuple(
        None if name not in table.not_null and rng.random() < 0.15 else rng.choice(pools[kind])
        for name, kind in table.columns
    )
