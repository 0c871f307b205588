"""Random Spark SQL over three tables, right ones and broken ones, for whatever judges queries."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Final

TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "clicks": {
        "ad": "BIGINT",
        "n": "INT",
        "word": "STRING",
        "price": "DOUBLE",
        "at": "TIMESTAMP",
        "tags": "ARRAY<STRING>",
        "place": "STRUCT<city: STRING, zip: INT>",
        "done": "BOOLEAN",
    },
    "imps": {"ad": "BIGINT", "m": "INT", "word": "STRING", "user": "STRING"},
    "days": {"day": "DATE", "size": "INT", "Zone": "STRING"},
}
"""Table -> column -> type."""
SCALARS: Final = {
    "INT": ("abs({0})", "{0} + 1", "coalesce({0}, 0)", "CASE WHEN {0} > 3 THEN 1 ELSE {0} END"),
    "BIGINT": ("{0} % 7", "pmod({0}, 3)", "CAST({0} AS BIGINT)", "nvl({0}, 1)", "greatest({0}, 2)"),
    "STRING": ("upper({0})", "substr({0}, 1, 3)", "concat({0}, 'a b', {0})", "trim({0})"),
    "DOUBLE": ("round({0}, 2)", "{0} / 2", "CAST({0} AS DECIMAL(10, 2))", "-{0}"),
    "TIMESTAMP": ("date_trunc('DAY', {0})", "{0} + INTERVAL 1 HOUR", "EXTRACT(HOUR FROM {0})"),
    "ARRAY<STRING>": (
        "size({0})",
        "transform({0}, x -> upper(x))",
        "filter({0}, (x, i) -> i > 1)",
        "aggregate({0}, 0, (sum, x) -> sum + length(x))",
        "{0}[0]",
    ),
    "STRUCT<city: STRING, zip: INT>": ("{0}.city", "{0}.zip + 1", "struct({0}.zip AS z).z"),
    "BOOLEAN": ("NOT {0}", "if({0}, 1, 2)", "{0} IS NULL"),
    "DATE": ("date_add({0}, 1)", "timestampdiff(DAY, {0}, current_date)", "year({0})"),
}
"""Type -> expressions of a value of it."""
CONDITIONS: Final = {
    "INT": ("{0} > 3", "{0} BETWEEN 1 AND 5", "{0} IN (1, 2)"),
    "BIGINT": ("{0} <> 3", "{0} <=> 4"),
    "STRING": ("{0} LIKE 'a%'", "{0} RLIKE '[a-z]'", "length({0}) > 2"),
    "DOUBLE": ("isnan({0})",),
    "TIMESTAMP": ("{0} > TIMESTAMP '2024-01-01 00:00:00'", "{0} < current_timestamp"),
    "ARRAY<STRING>": ("array_contains({0}, 'x')", "exists({0}, x -> x = 'a')"),
    "STRUCT<city: STRING, zip: INT>": ("{0}.zip = 3",),
    "BOOLEAN": ("{0}", "NOT {0}"),
    "DATE": ("{0} > DATE '2024-01-01'",),
}
AGGREGATES: Final = {
    "INT": ("sum({0})", "max({0})", "avg({0}) FILTER (WHERE {0} > 1)", "count(DISTINCT {0})"),
    "BIGINT": ("sum({0})", "min({0})", "percentile_approx({0}, 0.5)"),
    "STRING": ("max({0})", "collect_set({0})", "listagg({0}) WITHIN GROUP (ORDER BY {0})"),
    "DOUBLE": ("avg({0})", "percentile_cont(0.5) WITHIN GROUP (ORDER BY {0})"),
    "TIMESTAMP": ("max({0})", "first({0}) IGNORE NULLS"),
    "BOOLEAN": ("bool_or({0})", "count_if({0})"),
    "DATE": ("min({0})",),
}


class Queries:
    """Makes queries out of choices of one source."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._names = 0

    def right(self) -> str:
        """A query that Spark should take."""
        match self._source.randrange(10):
            case 0:
                name = self._name("c")
                inner, columns = self._select(1)
                column = self._one(columns)
                return f"WITH {name} AS ({inner}) SELECT {column}, x.* FROM {name} x"
            case 1:
                return f"SELECT ad, word FROM clicks {self._set()} SELECT ad, word FROM imps"
            case 2:
                inner, columns = self._select(1)
                column = self._one(columns)
                return f"SELECT s.{column} AS k, count(*) FROM ({inner}) s GROUP BY s.{column}"
            case _:
                return self._select(2)[0]

    def broken(self) -> str:
        """A query with one thing changed, which Spark mostly refuses."""
        query = self.right()
        words = list(re.finditer(r"(?<!')\b[A-Za-z_]\w*\b(?!')", query))
        columns = {name for columns in TABLES.values() for name in columns}
        named = [each for each in words if each[0] in columns or each[0] in TABLES]
        called = [each for each in words if query[each.end() : each.end() + 1] == "("]
        grouped = re.search(r"GROUP BY (\w+\.\w+)(, |$| )", query)
        match self._source.randrange(4):
            case 0 if called:
                return self._respelt(query, self._source.choice(called))
            case 1 if grouped:
                return query.replace(f"GROUP BY {grouped[1]}", "GROUP BY 'k'")
            case 2 if named:
                word = self._source.choice(named)
                other = self._one(sorted(columns - {word[0]}))
                return query[: word.start()] + other + query[word.end() :]
        return self._respelt(query, self._source.choice(named or words))

    # ---- parts

    def _one(self, options: list[str] | tuple[str, ...]) -> str:
        return self._source.choice(options)

    def _chance(self, count: int) -> bool:
        return self._source.randrange(count) == 0

    def _name(self, start: str) -> str:
        self._names += 1
        return f"{start}{self._names}"

    def _set(self) -> str:
        return self._one(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))

    def _respelt(self, query: str, word: re.Match[str]) -> str:
        text = word[0]
        at = self._source.randrange(len(text))
        spelt = self._one((text[:at] + text[at + 1 :] or "zz", text[:at] + "q" + text[at:]))
        return query[: word.start()] + spelt + query[word.end() :]

    def _from(self) -> tuple[str, list[tuple[str, str]]]:
        """A FROM clause, and what its columns are called, each with its type."""
        first = self._one(tuple(TABLES))
        alias = self._one(("", "t", "T1"))
        known = {alias or first: TABLES[first]}
        clause = f"{first} {alias}".strip()
        if self._chance(3):
            other = self._one(tuple(TABLES))
            name = self._name("j")
            kind = self._one(("JOIN", "LEFT JOIN", "FULL OUTER JOIN", "LEFT SEMI JOIN"))
            same = sorted(TABLES[first].keys() & TABLES[other].keys() & {"ad", "word", "day"})
            if same and self._chance(2):
                clause += f" {kind} {other} {name} USING ({self._one(same)})"
            else:
                here, there = self._one(tuple(TABLES[first])), self._one(tuple(TABLES[other]))
                left = f"{alias or first}.{here}"
                clause += f" {kind} {other} {name} ON {left} IS NULL OR {name}.{there} IS NULL"
            if kind != "LEFT SEMI JOIN":
                known[name] = TABLES[other]
        columns = [
            (self._cased(f"{table}.{column}"), type)
            for table, names in known.items()
            for column, type in names.items()
        ]
        if len(known) == 1 and " JOIN " not in clause:
            columns += [
                (self._cased(column), type) for column, type in known[alias or first].items()
            ]
            if first == "clicks" and self._chance(3):
                clause += " LATERAL VIEW explode(tags) e AS tag"
                columns += [("tag", "STRING"), ("e.tag", "STRING")]
        return clause, columns

    def _cased(self, name: str) -> str:
        return self._one((name, name, name, name.upper(), f"`{name.replace('.', '`.`')}`"))

    def _select(self, depth: int) -> tuple[str, list[str]]:
        """A SELECT, and what its columns are called."""
        clause, columns = self._from()
        where = self._where(columns, depth) if self._chance(2) else ""
        names: list[str] = []
        if self._chance(2):
            body = self._grouped(columns, names, clause, where)
        else:
            body = self._plain(columns, names, clause, where)
        if self._chance(5):
            body += f" ORDER BY {self._one(names)} LIMIT 3"
        return body, names

    def _where(self, columns: list[tuple[str, str]], depth: int) -> str:
        name, type = self._source.choice(columns)
        found = self._one(CONDITIONS[type]).format(name)
        longs = [name for name, type in columns if type == "BIGINT"]
        if depth > 1 and longs and self._chance(3):
            outer = self._one([each for each in longs if "." in each] or longs)
            inner = f"SELECT 1 FROM imps q WHERE q.ad = {outer} AND q.m > 1"
            found += f" AND EXISTS ({inner})"
        if self._chance(4) and longs:
            found += f" AND {self._one(longs)} IN (SELECT i.ad FROM imps i)"
        return f" WHERE {found}"

    def _plain(
        self, columns: list[tuple[str, str]], names: list[str], clause: str, where: str
    ) -> str:
        items = []
        for _ in range(1 + self._source.randrange(3)):
            column, type = self._source.choice(columns)
            alias = self._name("k")
            items.append(f"{self._one((*SCALARS[type], '{0}')).format(column)} AS {alias}")
            names.append(alias)
        if self._chance(4):
            alias = self._name("l")
            items.append(f"coalesce({names[0]}, {names[0]}) AS {alias}")
            names.append(alias)
        if self._chance(4):
            by, order = (self._source.choice(columns)[0] for _ in range(2))
            alias = self._name("w")
            ranked = f"row_number() OVER (PARTITION BY {by} ORDER BY {order})"
            items.append(f"{ranked} AS {alias}")
            names.append(alias)
        distinct = "DISTINCT " if self._chance(5) else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {clause}{where}"

    def _grouped(
        self, columns: list[tuple[str, str]], names: list[str], clause: str, where: str
    ) -> str:
        aggregated = [each for each in columns if each[1] in AGGREGATES]
        keys = [self._source.choice(columns) for _ in range(1 + self._source.randrange(2))]
        items, by = [], []
        for key, type in keys:
            text = self._one((key, key, *(each.format(key) for each in SCALARS[type])))
            alias = self._name("g")
            items.append(f"{text} AS {alias}")
            names.append(alias)
            by.append(self._one((text, text, alias, str(len(items)))))
        for _ in range(1 + self._source.randrange(2)):
            column, type = self._source.choice(aggregated)
            alias = self._name("s")
            items.append(f"{self._one(AGGREGATES[type]).format(column)} AS {alias}")
            names.append(alias)
        having = self._one(("", "", f" HAVING count(*) > 1 AND {names[-1]} IS NOT NULL"))
        group = self._one((", ".join(by), ", ".join(by), "ALL"))
        return f"SELECT {', '.join(items)} FROM {clause}{where} GROUP BY {group}{having}"
