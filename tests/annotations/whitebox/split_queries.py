"""Random queries over two sealed streams and a table, and whether they really split by the key.

    python -m tests.annotations.whitebox.split_queries --queries 10000 --seed 1

DuckDB answers each query on random contents, once on all of them and once on every partition for
itself. A query that `splitting.splits` accepts must give the same rows both ways, and none for
nothing; how many of the refused ones did so on every content is the price of caution.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import duckdb

from annotations.dataflow import Refusal
from annotations.vocabulary import FunctionalDependency
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.splitting import splits
from annotations.whitebox.sql import read

COLUMNS: Final = {"r": ("id", "k", "n"), "s": ("id", "k", "m"), "t": ("x", "y")}
INPUTS: Final = {
    name: Input(dict.fromkeys(columns, "INT"), role=Role.TABLE if name == "t" else Role.STREAM)
    for name, columns in COLUMNS.items()
}
KEYS: Final = {"r": ("k",), "s": ("k",)}
FDS: Final = (FunctionalDependency(frozenset({"id"}), frozenset({"k"})),)
SET_OPERATIONS: Final = (
    "UNION ALL",
    "UNION ALL",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "INTERSECT ALL",
    "EXCEPT ALL",
)
PARTITIONS: Final = (0, 1, 2)
ALL: Final = -1
NOTHING: Final = -2
"""In place of a partition."""
CONTENTS: Final = 8
"""On which a query is tried."""
Row = tuple[int | None, ...]


LEAST: Final = ("0", "1", "2", "(SELECT max(x) FROM t)", "(SELECT count(n) FROM r)")
"""What a group may have to have more rows than."""


class Queries:
    """A source of queries; all columns are integers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = 0

    def query(self, depth: int) -> tuple[str, list[str]]:
        """A query, and the names of its columns."""
        if depth == 0:
            return self._scan()
        often = [self._join, self._aggregate]
        kinds = [self._filter, self._subquery, self._sets, *often]
        rare = [self._project, self._distinct, self._window, self._limit]
        return self.rng.choice([*often, *kinds, *kinds, *rare])(depth - 1)

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _part(self, depth: int) -> tuple[str, list[str], str]:
        """A query as a part of FROM; its columns; its alias."""
        text, columns = self.query(self.rng.randint(0, depth))
        alias = self._name()
        return f"({text}) {alias}", columns, alias

    def _scan(self) -> tuple[str, list[str]]:
        table = self.rng.choice(["r", "r", "s", "t"])
        columns = [self._name() for _ in COLUMNS[table]]
        listed = ", ".join(f"{c} AS {n}" for c, n in zip(COLUMNS[table], columns, strict=True))
        return f"SELECT {listed} FROM {table}", columns

    def _value(self, columns: Sequence[str]) -> str:
        column = self.rng.choice(columns)
        call = self.rng.choice(["coalesce", "greatest", "least"])
        other = f"{call}({column}, {self.rng.choice(columns)})"
        return self.rng.choice([*[column] * 6, f"{column} + 1", f"-{column}", other])

    def _condition(self, columns: Sequence[str]) -> str:
        rng = self.rng
        one, other = rng.choice(columns), rng.choice(columns)
        number = rng.randint(0, 2)
        right = [f"= {number}", f"= {other}", f"> {number}", "IS NOT NULL", f"= {other} + 1"]
        return f"{one} {rng.choice([*right, f'IS NOT DISTINCT FROM {other}'])}"

    def _project(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        names = [self._name() for _ in range(self.rng.randint(1, 3))]
        listed = ", ".join(f"{self._value(columns)} AS {n}" for n in names)
        return f"SELECT {listed} FROM {part}", names

    def _filter(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        return f"SELECT * FROM {part} WHERE {self._condition(columns)}", columns

    def _on(self, left: Sequence[str], right: Sequence[str]) -> str:
        rng = self.rng
        return " AND ".join(
            f"{rng.choice(left)} = {rng.choice(right)}{rng.choice(['', '', '', ' + 1'])}"
            for _ in range(rng.choice([1, 1, 2, 3]))
        )

    def _join(self, depth: int) -> tuple[str, list[str]]:
        one, left, _ = self._part(depth)
        other, right, _ = self._part(depth)
        kind = self.rng.choice(
            ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
        )
        if self.rng.random() < 0.15:
            text = f"SELECT * FROM {one}, {other} WHERE {self._on(left, right)}"
        else:
            text = f"SELECT * FROM {one} {kind} {other} ON {self._on(left, right)}"
            if self.rng.random() < 0.2:
                text += f" WHERE {self._condition([*left, *right])}"
        return text, [*left, *right]

    def _subquery(self, depth: int) -> tuple[str, list[str]]:
        one, left, _ = self._part(depth)
        other, right, _ = self._part(depth)
        no = self.rng.choice(["", "NOT "])
        if self.rng.random() < 0.5:
            inner = f"SELECT 1 FROM {other} WHERE {self._on(left, right)}"
            return f"SELECT * FROM {one} WHERE {no}EXISTS ({inner})", left
        value, inner = self.rng.choice(left), f"SELECT {self.rng.choice(right)} FROM {other}"
        if self.rng.random() < 0.5:
            inner += f" WHERE {self._on(left, right)}"
        return f"SELECT * FROM {one} WHERE {value} {no}IN ({inner})", left

    def _aggregate(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        keys = self.rng.sample(columns, min(len(columns), self.rng.choice([0, 1, 1, 1, 2, 2])))
        names = [self._name() for _ in keys]
        listed = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
        value = self.rng.choice(columns)
        for call in self.rng.sample(["count(*)", f"count({value})", f"max({value})"], 1):
            names.append(self._name())
            listed.append(f"CAST({call} AS INT) AS {names[-1]}")
        text = f"SELECT {', '.join(listed)} FROM {part}"
        if keys:
            by = ", ".join(keys)
            text += f" GROUP BY {self.rng.choice([by] * 5 + [f'ROLLUP ({by})', f'CUBE ({by})'])}"
        if self.rng.random() < 0.2:
            text += f" HAVING count(*) > {self.rng.choice(LEAST)}"
        return text, names

    def _distinct(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        chosen = self.rng.sample(columns, self.rng.randint(1, len(columns)))
        return f"SELECT DISTINCT {', '.join(chosen)} FROM {part}", chosen

    def _sets(self, depth: int) -> tuple[str, list[str]]:
        one, left, _ = self._part(depth)
        other, right, _ = self._part(depth)
        width = min(len(left), len(right), self.rng.randint(1, 3))
        first, second = self.rng.sample(left, width), self.rng.sample(right, width)
        how = self.rng.choice(SET_OPERATIONS)
        text = f"SELECT {', '.join(first)} FROM {one} {how} SELECT {', '.join(second)} FROM {other}"
        return text, first

    def _window(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        name = self._name()
        keys = self.rng.sample(columns, min(len(columns), self.rng.choice([0, 1, 1, 2])))
        by = f"PARTITION BY {', '.join(keys)}" if keys else ""
        call = f"CAST(count({self.rng.choice(columns)}) OVER ({by}) AS INT)"
        return f"SELECT *, {call} AS {name} FROM {part}", [*columns, name]

    def _limit(self, depth: int) -> tuple[str, list[str]]:
        part, columns, _ = self._part(depth)
        every = ", ".join(columns)
        return f"SELECT * FROM {part} ORDER BY {every} LIMIT {self.rng.randint(1, 3)}", columns


def content(rng: random.Random, *, dependency: bool) -> dict[str, list[Row]]:
    """Rows of the three inputs; the keys of streams are not NULL."""

    def value() -> int | None:
        return rng.choice([None, 0, 1, 2, 2])

    keys = {number: rng.choice(PARTITIONS) for number in range(4)}
    rows: dict[str, list[Row]] = {"t": [(value(), value()) for _ in range(rng.randint(0, 4))]}
    for name in KEYS:
        rows[name] = []
        for _ in range(rng.randint(0, 6)):
            number = rng.randrange(4)
            key = keys[number] if dependency else rng.choice(PARTITIONS)
            rows[name].append((number, key, value()))
    return rows


def answers(text: str, number: int) -> Iterator[Counter[Row]]:
    """The rows that a query gives on a content: on all of it, and on each partition, on none."""
    database = _database()
    for part in (ALL, *PARTITIONS, NOTHING):
        database.execute(f"SET VARIABLE content = {number}; SET VARIABLE part = {part};")
        yield Counter(database.execute(text).fetchall())


def tried_on(contents: Sequence[dict[str, list[Row]]]) -> None:
    """Let queries be tried on these contents."""
    database = _database()
    for name in COLUMNS:
        rows = [(number, *row) for number, of in enumerate(contents) for row in of[name]]
        values = ", ".join(
            "(" + ", ".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows
        )
        database.execute(f"DELETE FROM all_{name}")
        if values:
            database.execute(f"INSERT INTO all_{name} VALUES {values}")


@cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config={"threads": 1})
    for name, columns in COLUMNS.items():
        typed = ", ".join(f"{c} INT" for c in ("content", *columns))
        own = f"content = getvariable('content') AND getvariable('part') IN ({ALL}, k)"
        if name not in KEYS:
            own = "content = getvariable('content')"
        database.execute(f"CREATE TABLE all_{name} ({typed})")
        listed = ", ".join(columns)
        database.execute(f"CREATE VIEW {name} AS SELECT {listed} FROM all_{name} WHERE {own}")
    return database


def disproof(text: str, rng: random.Random, *, dependency: bool) -> dict[str, list[Row]] | None:
    """A content on which a query does not split; None: none was found."""
    contents = [content(rng, dependency=dependency) for _ in range(CONTENTS)]
    tried_on(contents)
    for number, rows in enumerate(contents):
        whole, *parts, nothing = answers(text, number)
        if whole != sum(parts, Counter()) or nothing:
            return rows
    return None


def verdict(text: str, *, dependency: bool) -> Refusal | None:
    """What the product says."""
    return splits(read(text, inputs=INPUTS).plan, KEYS, fds=FDS if dependency else ())


def main() -> int:
    """Try so many queries; 1 if one that is accepted does not split."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="refused ones that seem to split")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    found: Counter[str] = Counter()
    for _ in range(options.queries):
        dependency = rng.random() < 0.4
        text, _ = Queries(rng).query(rng.randint(1, 3))
        refusal = verdict(text, dependency=dependency)
        counter = disproof(text, rng, dependency=dependency)
        known = f" (id -> k holds: {dependency})"
        if refusal is None and counter is not None:
            found["wrong"] += 1
            print(f"WRONG: {text}{known}\n    {counter}")
        elif refusal is None:
            found["right, accepted"] += 1
        elif counter is None and not _constant(text, rng, dependency=dependency):
            found["seems to split, refused"] += 1
            if found["seems to split, refused"] <= options.show:
                print(f"refused: {text}{known}\n    {refusal}")
        else:
            found["does not split, refused"] += 1
    print(", ".join(f"{what}: {times}" for what, times in sorted(found.items())))
    return int(found["wrong"] > 0)


def _constant(text: str, rng: random.Random, *, dependency: bool) -> bool:
    """Whether a query gives nothing on any content, so that nothing was tried."""
    tried_on([content(rng, dependency=dependency) for _ in range(CONTENTS)])
    return not any(next(answers(text, number)) for number in range(CONTENTS))


if __name__ == "__main__":
    sys.exit(main())
