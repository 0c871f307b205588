"""What is derived of random queries, beside what happens when they run.

    python benchmarks/query_soundness.py [--queries 10000] [--seed 0] [--processes 1] [--spark 0]
                                         [--typed]

`benchmarks/random_queries.py` makes the queries and their contents. Whatever is derived of a query
is a claim (`CLAIMS`): labels with gates, lineage, repeats, keys by which it splits. DuckDB runs the
query in the two ways that each claim says are one: in other orders, batches and partitions, with
copies. A claim that fails is printed with query, contents and both ways, made small; then the exit
status is 1. `--spark N` runs the first N queries on Spark too, and lets it judge what DuckDB
refuted; `--typed` adds columns of dates, times, decimals, intervals and collated texts
(`benchmarks/random_types.py`). The price of caution is printed by construct: order-sensitive
queries that no schedule showed to be, and keys by which a query seems to split though that is
refused.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

import duckdb
from sqlglot import exp

from annotations.dataflow import Path as FlowPath
from annotations.vocabulary import Repeats, Rows, Within
from annotations.whitebox.components import Output as Derived
from annotations.whitebox.components import derive_output
from annotations.whitebox.ir import Role
from annotations.whitebox.splitting import splits
from annotations.whitebox.sql import Query as Read
from annotations.whitebox.sql import read
from benchmarks.random_queries import (
    DOUBLE,
    INT,
    STRING,
    Query,
    Schemas,
    contents,
    lawful,
    operator_of,
    random_query,
    records,
)
from benchmarks.random_types import COLLATED, TYPES
from blazes.verify import claims as verified
from blazes.verify.claims import Kind
from blazes.verify.constants import Constants
from blazes.verify.duckdb_engine import BIGINT_MAX
from blazes.verify.duckdb_engine import TYPES as PLAIN_TYPES
from blazes.verify.experiment import Case, Engine, Way, steps
from blazes.verify.operators import Operator, Schema
from blazes.verify.records import Evaluated, Failure, Inputs, Item, Output, Row, canonical, shown
from blazes.verify.shrink import shrunk
from blazes.verify.values import Generator
from blazes.verify.ways import silent, split
from blazes.verify.ways import ways as ways_of
from codegen.duckdb_sql import parsed

CASES: Final = 6
"""Contents on which a query is tried."""
SIZES: Final = (2, 3, 4, 5, 6, 8)
MORE: Final = 12
"""So many times more contents for a key by which a query seems to split though that is refused."""
LARGER: Final = (4, 6, 8, 12, 16, 24)
"""Their sizes: a query that counts, or asks for much at once, shows nothing on fewer records."""
PRICED: Final = 5
"""Of so many queries one is asked whether caution was needed, which takes longer than the rest."""
KEYS_MAX: Final = 2
"""Attributes of a key that is tried."""
SHRINK_S: Final = 20.0

COPIED: Final = {INT: 1, STRING: "b", DOUBLE: 1.0, **{kind: TYPES[kind].pool[1] for kind in TYPES}}
"""Type -> a value that is looked for where it is copied."""

Run: TypeAlias = tuple[tuple[Item, ...], Way]
"""Records, and how they come."""
Bags: TypeAlias = list[Counter[Row]]
"""What is put out after each batch."""


@dataclass(frozen=True)
class Claim:
    """Something that is derived of a query and can be refuted."""

    kind: str
    text: str
    runs: Callable[[Case], Iterator[tuple[Run, Run]]]
    """Pairs of ways to run a case."""
    differ: Callable[[Bags, Bags], bool]
    """Whether what came of the two ways refutes the claim."""


# ---- what comes of the two ways


def as_sets(one: Bags, other: Bags) -> bool:
    """Other rows are put out."""
    return set().union(*one) != set().union(*other)


def as_bags(one: Bags, other: Bags) -> bool:
    """Other rows are put out, or equally many of each."""
    return sum(one, Counter()) != sum(other, Counter())


def lost(one: Bags, other: Bags) -> bool:
    """The second way puts out other rows, or fewer of some."""
    before, after = sum(one, Counter()), sum(other, Counter())
    return before.keys() != after.keys() or not before <= after


def taken_back(one: Bags, other: Bags) -> bool:
    """Something that the first way puts out is not in what the second does."""
    return any(not bag <= other[-1] for bag in one)


def several(one: Bags, other: Bags) -> bool:
    """The second way puts out more than one row that the first does not."""
    return (other[-1] - one[-1]).total() > 1


# ---- the claims of a query


@dataclass(frozen=True)
class Subject:
    """A query with all that is derived of it."""

    query: Query
    mode: str
    read: Read
    output: Derived
    operator: Operator

    @property
    def paths(self) -> tuple[FlowPath, ...]:
        """The derived paths."""
        return self.output.paths()

    @property
    def in_sequence(self) -> bool:
        """Whether something looks at the order of the records."""
        return any(path.within is Within.SEQUENCE for path in self.paths)

    @property
    def left_to_chance(self) -> bool:
        """Whether rows are picked by an order that no order of records decides."""
        paths = self.paths
        return any(path.nondeterministic and path.within is Within.SEQUENCE for path in paths)

    @property
    def confluent(self) -> bool:
        """Whether every path is."""
        return all(path.annotation.kind.confluent for path in self.paths)

    @property
    def requests(self) -> bool:
        """Whether some input asks once."""
        return any(each.role is Role.REQUEST for each in self.query.schemas.streams)


def subject(query: Query, mode: str) -> Subject:
    """What is derived of a query."""
    given = query.schemas
    found = read(query.text, inputs={each.name: each.input for each in given.tables})
    output = derive_output("out", found, output_mode=mode, fds=given.fds)
    operator = operator_of(given, output.paths(), query.text)
    return Subject(query, mode, found, output, operator)


def claims_of(it: Subject) -> Iterator[Claim]:
    """Everything that is derived of a query and can be refuted."""
    yield from _of_presence(it)
    yield from _of_lineage(it)
    if it.left_to_chance:
        return
    for path in it.paths:
        yield from _of_label(it, path)
    if not it.requests:
        if not it.in_sequence:
            for path in it.paths:
                yield from _of_repeats(it, path)
        if it.confluent and it.output.derivation.repeats is None:
            yield Claim("once", "no row leaves twice", _as_they_come, taken_back)
        for key in keys_of(it.query.schemas):
            if refusal(it, key) is None:
                yield splitting(it, key)


def _of_label(it: Subject, path: FlowPath) -> Iterator[Claim]:
    label = path.annotation
    gate = label.gate.attributes if label.gate is not None else None
    for kind in verified.claimed(path):
        if kind is Kind.SET and it.read.problem is not None:
            continue  # of a query that is not understood nothing is claimed
        if kind is Kind.READ_ONLY and not label.kind.confluent and not gate:
            continue  # with an unknown gate, what comes together may meet
        claim = verified.Claim(kind, it.operator, path, gate=gate or frozenset())

        def runs(case: Case, claim: verified.Claim = claim) -> Iterator[tuple[Run, Run]]:
            case = _without(case, silent(claim))
            first, second = ways_of(claim, case)
            yield (case.items, first), (case.items, second)

        yield Claim(kind.value, f"{path}: {label}", runs, as_sets)


def _without(case: Case, interfaces: Iterable[str]) -> Case:
    for place in reversed(range(len(case.items))):
        if case.items[place].interface in interfaces:
            case = case.without(place)
    return case


def _everything(case: Case) -> Way:
    return Way((tuple(range(len(case.items))),), frozenset())


def _as_they_come(case: Case) -> Iterator[tuple[Run, Run]]:
    every = frozenset(each.interface for each in case.items)
    yield (case.items, Way(case.split, every)), (case.items, _everything(case))


def _of_presence(it: Subject) -> Iterator[Claim]:
    """A column that is said to be there in every row is never NULL."""
    there = [at for at, column in enumerate(it.read.plan.columns) if not column.nullable]

    def runs(case: Case) -> Iterator[tuple[Run, Run]]:
        run = case.items, _everything(case)
        yield run, run

    def differ(one: Bags, _: Bags) -> bool:
        return any(row[at] is None for row in one[0] for at in there)

    if there:
        names = ", ".join(it.read.plan.columns[at].name for at in there)
        yield Claim("presence", f"never NULL: {names}", runs, differ)


def _of_lineage(it: Subject) -> Iterator[Claim]:
    """An output attribute has the one value that all attributes have of which it is a copy."""
    names = [column.name for column in it.output.derivation.columns]
    for at, name in enumerate(names):
        copied = {path.source: path.lineage[name] for path in it.paths
                  if path.lineage is not None and name in path.lineage}  # fmt: skip
        if not copied or names.count(name) > 1:
            continue

        def runs(case: Case, copied: dict[str, str] = copied) -> Iterator[tuple[Run, Run]]:
            items = []
            for item in case.items:
                if item.interface in copied:
                    columns = list(it.operator.schemas[item.interface])
                    kind = it.operator.schemas[item.interface][copied[item.interface]]
                    place = columns.index(copied[item.interface])
                    items.append(item.replaced(place, COPIED[kind]))
            run = tuple(items), Way((tuple(range(len(items))),), frozenset())
            yield run, run

        def differ(one: Bags, _: Bags, at: int = at) -> bool:
            return any(row[at] not in map(canonical, COPIED.values()) for row in one[0])

        yield Claim("lineage", f"{name} copies {copied}", runs, differ)


def _of_repeats(it: Subject, path: FlowPath) -> Iterator[Claim]:
    def copies(case: Case) -> Iterator[tuple[Run, Run]]:
        own = [n for n, item in enumerate(case.items) if item.interface == path.source]
        again = tuple(n for n in own for _ in range((n * 7 + len(own)) % 3))
        every = _everything(case)
        if again:
            yield (case.items, every), (case.items, Way((every.batches[0] + again,), frozenset()))

    def alone(case: Case) -> Iterator[tuple[Run, Run]]:
        """Without any of its records, and with one."""
        single = {path.source}
        if path.rows is Rows.JOINED:
            single |= {each.source for each in it.paths if each.rows is Rows.JOINED}
        rest = tuple(n for n, item in enumerate(case.items) if item.interface not in single)
        own = [next((n for n, e in enumerate(case.items) if e.interface == name), None)
               for name in sorted(single)]  # fmt: skip
        items = tuple(replace(item, times=1) for item in case.items)
        if None not in own:
            with_one = (*rest, *(n for n in own if n is not None))
            none = frozenset[str]()
            yield (items, Way((rest,), none)), (items, Way((with_one,), none))

    text = f"{path}: {path.repeats.value if path.repeats else None} {path.rows.value}"
    ways = {Repeats.ABSORB: as_bags, Repeats.PASS: lost, Repeats.MAKE: as_sets}
    if path.repeats in ways:
        yield Claim("repeats", text, copies, ways[path.repeats])
    if path.rows is not Rows.MANY:
        yield Claim("rows", text, alone, several)


Key: TypeAlias = Mapping[str, tuple[str, ...]]
"""Stream -> the attributes by which it is sealed."""


def keys_of(given: Schemas) -> Iterator[Key]:
    """The keys by which all streams could be sealed: on attributes of one name, or of several."""
    usable = {
        each.name: sorted(name for name, kind in each.columns if kind not in (DOUBLE, COLLATED))
        for each in given.streams
    }
    names = list(map(set, usable.values()))
    common = sorted(set.intersection(*names)) if names else []
    for size in range(1, KEYS_MAX + 1):
        for key in itertools.combinations(common, size):
            yield dict.fromkeys(usable, key)
    kinds = {each.name: dict(each.columns) for each in given.streams}
    for several in itertools.product(*usable.values()):
        alike = {kinds[name][each] for name, each in zip(usable, several, strict=True)}
        if len(alike) == 1 < len(set(several)):
            yield {name: (each,) for name, each in zip(usable, several, strict=True)}


def refusal(it: Subject, key: Key) -> object:
    """Why a query does not split by a key; None: it is said to."""
    return splits(it.read.plan, key, fds=it.query.schemas.fds)


def splitting(it: Subject, key: Key) -> Claim:
    """That a query splits by a key; records without one are left out."""

    def runs(case: Case) -> Iterator[tuple[Run, Run]]:
        parts: dict[Row, list[int]] = {}
        for place, item in enumerate(case.items):
            columns = list(it.operator.schemas[item.interface])
            value = tuple(item.row[columns.index(name)] for name in key[item.interface])
            if None not in value:
                parts.setdefault(value, []).append(place)
        every = tuple(n for part in parts.values() for n in part)
        # The second way begins with nothing at all.
        batches = ((), *map(tuple, parts.values()))
        none = frozenset[str]()
        yield (case.items, Way((every,), none)), (case.items, Way(batches, none))

    def differ(one: Bags, other: Bags) -> bool:
        return bool(other[0]) or as_bags(one, other)

    return Claim("splits", f"splits by {dict(key)}", runs, differ)


# ---- running


class Duck:
    """DuckDB with the inputs of one query; many contents are filled in at once."""

    name: Final = "DuckDB"

    def __init__(self, query: Query, fixed: Mapping[str, Sequence[Row]]) -> None:
        self._unreadable = ""
        try:
            tree = parsed(query.text).transform(_as_in_spark)
            self._text = _of_nothing(tree).sql(dialect="duckdb")
        except ValueError as error:
            self._unreadable = str(error)
        self._known: dict[Inputs, Evaluated] = {}
        self._database = _database()
        for table in query.schemas.tables:
            columns = ", ".join(f"{name} {_in_duckdb(kind)}" for name, kind in table.columns)
            names = ", ".join(name for name, _ in table.columns)
            self._database.execute(f"CREATE OR REPLACE TABLE all_{table.name} (way INT, {columns})")
            fill = table.role is Role.TABLE
            rows = f"SELECT {names} FROM all_{table.name}"
            rows += "" if fill else " WHERE way = getvariable('way')"
            self._database.execute(f"CREATE OR REPLACE VIEW {table.name} AS {rows}")
            if fill:
                self._fill(table.name, [(0, *row) for row in fixed[table.name]])

    def _fill(self, name: str, rows: Sequence[Row]) -> None:
        if rows:
            row = "(" + ", ".join("?" * len(rows[0])) + ")"
            values = ", ".join([row] * len(rows))
            flat = [value for each in rows for value in each]
            self._database.execute(f"INSERT INTO all_{name} VALUES {values}", flat)

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        """The output for each of the inputs."""
        new = [each for each in dict.fromkeys(many) if each not in self._known]
        for name in operator.schemas:
            self._database.execute(f"DELETE FROM all_{name}")
            self._fill(name, [(way, *row) for way, inputs in enumerate(new)
                              for interface, rows in inputs if interface == name
                              for row in rows])  # fmt: skip
        for way, inputs in enumerate(new):
            self._known[inputs] = self._answer(way)
        return [self._known[each] for each in many]

    def _answer(self, way: int) -> Evaluated:
        if self._unreadable:
            return Failure(self._unreadable)
        try:
            self._database.execute(f"SET VARIABLE way = {way}")
            result = self._database.execute(self._text)
            names = tuple(column[0] for column in result.description or ())
            rows = tuple(tuple(map(canonical, row)) for row in result.fetchall())
        except duckdb.Error as error:
            return Failure(str(error).splitlines()[0])
        if any(isinstance(v, int) and abs(v) > BIGINT_MAX for row in rows for v in row):
            return Failure("a sum does not fit into a BIGINT")
        return Output(names, rows)

    def schema(self, operator: Operator) -> Schema:
        """Not asked for."""
        raise NotImplementedError


def _as_in_spark(node: exp.Expression) -> exp.Expression:
    """A sample of so many rows as the LIMIT that it is in Spark; DuckDB draws them. A cast to a
    text as one without a collation, which DuckDB would keep."""
    if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES):
        return exp.Collate(this=node, expression=exp.to_identifier("C"))
    sample = node.args.get("sample")
    if not isinstance(node, exp.Table) or sample is None:
        return node
    return exp.select("*").from_(node.name).limit(sample.args["size"]).subquery(node.alias)


def _of_nothing(tree: Any) -> Any:
    """The tree with aggregates that are 0 or empty of NULLs alone, and NULL in DuckDB."""
    for node in list(tree.find_all(exp.CountIf, exp.ArrayAgg, exp.ArrayUniqueAgg)):
        outer: Any = node
        while isinstance(outer.parent, exp.Window | exp.Filter) and outer.arg_key == "this":
            outer = outer.parent
        nothing = exp.Literal.number(0) if isinstance(node, exp.CountIf) else exp.Array()
        outer.replace(exp.Coalesce(this=outer.copy(), expressions=[nothing]))
    return tree


def _in_duckdb(kind: str) -> str:
    """The type in DuckDB."""
    return TYPES[kind].duckdb if kind in TYPES else PLAIN_TYPES[kind]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": 1})


def refuted(engine: Engine, operator: Operator, tries: Sequence[tuple[Claim, Case]]) -> list[int]:
    """The places of the tries in which the claim is refuted."""
    pairs = [(n, pair) for n, (claim, case) in enumerate(tries) for pair in claim.runs(case)]
    plans = [[steps(operator, *run) for run in pair] for _, pair in pairs]
    todo = [inputs for plan in plans for run in plan for inputs in run]
    evaluated = iter(engine.evaluate(operator, todo))
    found = []
    for (n, _), plan in zip(pairs, plans, strict=True):
        results = [[next(evaluated) for _ in run] for run in plan]
        if any(isinstance(each, Failure) for run in results for each in run):
            continue
        one, other = ([Counter(each.rows) for each in run if isinstance(each, Output)]
                      for run in results)  # fmt: skip
        if tries[n][0].differ(one, other):
            found.append(n)
    return found


# ---- a sweep


@dataclass(frozen=True)
class Refuted:
    """A claim that failed, with the smallest query and contents that show it."""

    number: int
    query: Query
    claim: Claim
    case: Case
    fixed: Mapping[str, Sequence[Row]]
    operator: Operator

    def text(self) -> str:
        """For people."""
        lines = [f"REFUTED {self.claim.kind}: {self.claim.text} (query {self.number})",
                 f"  {self.query.text}"]  # fmt: skip
        for table in self.query.schemas.tables:
            schema = ", ".join(f"{k} {v}" for k, v in (table.input.schema or {}).items())
            lines.append(f"  {table.name} ({schema}), {table.role.value}")
        if self.query.schemas.fds:
            lines.append(f"  {', '.join(map(str, self.query.schemas.fds))}")
        for name, rows in self.fixed.items():
            lines += [f"    {name}: {_row(row)}" for row in rows]
        for pair in self.claim.runs(self.case):
            for name, (items, way) in zip(("one way", "another"), pair, strict=True):
                lines.append(f"  {name}, {', '.join(sorted(way.kept)) or 'nothing'} kept:")
                for batch in way.batches:
                    inner = "; ".join(_item(items[n]) for n in batch)
                    lines.append(f"    {inner or 'nothing'}")
                for inputs in steps(self.operator, items, way):
                    (result,) = Duck(self.query, self.fixed).evaluate(self.operator, [inputs])
                    out = map(_row, result.rows) if isinstance(result, Output) else [str(result)]
                    lines.append(f"      -> {', '.join(out) or 'no rows'}")
        return "\n".join(lines)


def _item(item: Item) -> str:
    times = f" x {item.times}" if item.times > 1 else ""
    return f"{item.interface}{_row(item.row)}{times}"


def _row(row: object) -> str:
    return "(" + ", ".join(map(shown, row)) + ")" if isinstance(row, tuple) else str(row)


@dataclass
class Sound:
    """What a sweep found."""

    queries: int = 0
    understood: int = 0
    silent: int = 0
    """Of which nothing is claimed: an unknown gate and no lineage."""
    failed: int = 0
    """Which DuckDB does not run."""
    claims: Counter[str] = field(default_factory=Counter)
    tries: int = 0
    ordered: Counter[str] = field(default_factory=Counter)
    """Order-sensitive queries, by construct, and `any`."""
    priced: Counter[str] = field(default_factory=Counter)
    """Those of them that were run in many schedules to see it."""
    unseen: Counter[str] = field(default_factory=Counter)
    """Those of which no schedule showed a difference."""
    star: Counter[str] = field(default_factory=Counter)
    """Queries with an unknown gate, by construct."""
    constructs: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    """Why a query was not understood."""
    keys: Counter[str] = field(default_factory=Counter)
    """Keys by which a query is said to split, or does not, or seems to."""
    refuted: list[str] = field(default_factory=list)

    def add(self, other: Sound) -> None:
        """Join another sweep's findings to these."""
        for name in ("queries", "understood", "silent", "failed", "tries"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in (
            "claims",
            "ordered",
            "priced",
            "unseen",
            "star",
            "constructs",
            "problems",
            "keys",
        ):
            getattr(self, name).update(getattr(other, name))
        self.refuted += other.refuted


def sweep(
    numbers: Iterable[int],
    *,
    seed: int,
    until: float = float("inf"),
    refuted_max: int = 5,
    shrink_s: float = SHRINK_S,
    price: bool = True,
    typed: bool = False,
) -> Sound:
    """Try the queries of these numbers."""
    found = Sound()
    for number in numbers:
        if time.monotonic() > until or len(found.refuted) >= refuted_max:
            break
        rng = random.Random(f"{seed}/{number}")
        query = random_query(rng, typed=typed)
        it = subject(query, rng.choice(["append", "append", "update"]))
        _try(found, number, it, rng, shrink_s, price and number % PRICED == 0)
    return found


def _try(
    found: Sound, number: int, it: Subject, rng: random.Random, shrink_s: float, price: bool
) -> None:
    query = it.query
    found.queries += 1
    found.understood += it.read.problem is None
    constructs = [*query.constructs, "any"]
    found.constructs.update(constructs)
    if it.read.problem is not None:
        found.problems[it.read.problem] += 1
    gates = [each.annotation.gate for each in it.paths]
    if any(gate is not None and gate.attributes is None for gate in gates):
        found.star.update(constructs)
    if not it.confluent:
        found.ordered.update(constructs)
    fixed = tables_of(query.schemas, rng)
    cases = cases_of(query.schemas, rng)
    engine = Duck(query, fixed)
    claims = list(claims_of(it))
    found.claims.update(claim.kind for claim in claims)
    tries = [(claim, case) for claim in claims for case in cases]
    found.tries += len(tries)
    wrong = refuted(engine, it.operator, tries)
    answers = engine._known.values()
    found.silent += not answers
    found.failed += bool(answers) and all(isinstance(each, Failure) for each in answers)
    if wrong:
        claim, case = tries[wrong[0]]
        small = smallest(it, claim, case, fixed, time.monotonic() + shrink_s)
        found.refuted.append(replace(small, number=number).text())
    if price:
        _price(found, it, engine, cases, rng)


def tables_of(given: Schemas, rng: random.Random) -> dict[str, Sequence[Row]]:
    """The contents of the tables that nothing is added to."""
    return {each.name: contents(rng, each) for each in given.tables if each.role is Role.TABLE}


def cases_of(given: Schemas, rng: random.Random, *, sizes: Sequence[int] = SIZES) -> list[Case]:
    """Contents, and how they come."""
    found = []
    for _ in range(CASES):
        items = records(rng, given, rng.choice(sizes))
        if items:
            found.append(Case(items, split(items, rng)))
    return found


def _price(
    found: Sound, it: Subject, engine: Duck, cases: Sequence[Case], rng: random.Random
) -> None:
    """Count where caution was not needed, as far as the cases show."""
    if it.requests:
        return
    before = found.keys.copy()
    if not it.confluent:
        names = [*it.query.constructs, "any"]
        found.priced.update(names)
        order = Claim("order", "any order", _as_they_come, as_sets)
        if not refuted(engine, it.operator, [(order, case) for case in cases]):
            found.unseen.update(names)
    for key in keys_of(it.query.schemas):
        if refusal(it, key) is None:
            found.keys["said to split"] += 1
        elif refuted(engine, it.operator, [(splitting(it, key), case) for case in cases]):
            found.keys["does not split"] += 1
        elif _told(it, key, engine, cases) > 2:
            wrong = any(_splits_wrongly(it, key, rng) for _ in range(MORE))
            found.keys["does not split" if wrong else "seems to split, refused"] += 1
    new = found.keys - before
    found.keys["queries that split by a key"] += bool(new["said to split"])
    found.keys["queries refused"] += bool(new["seems to split, refused"])


def _splits_wrongly(it: Subject, key: Key, rng: random.Random) -> bool:
    """Whether other contents show that a query does not split by a key."""
    schemas = it.query.schemas
    cases = cases_of(schemas, rng, sizes=LARGER)
    engine = Duck(it.query, tables_of(schemas, rng))
    return bool(refuted(engine, it.operator, [(splitting(it, key), case) for case in cases]))


def _told(it: Subject, key: Key, engine: Duck, cases: Sequence[Case]) -> int:
    """On how many contents of several partitions something is put out."""
    found = 0
    for case in cases:
        for (items, whole), (_, parts) in splitting(it, key).runs(case):
            (result,) = engine.evaluate(it.operator, steps(it.operator, items, whole))
            several = len(parts.batches) > 2
            found += several and isinstance(result, Output) and bool(result.rows)
    return found


# ---- making it small


def smallest(
    it: Subject, claim: Claim, case: Case, fixed: Mapping[str, Sequence[Row]], until: float
) -> Refuted:
    """The refuted claim with fewer records, and of a smaller query."""
    it, claim, case = _smaller_query(it, claim, case, fixed, until)
    engine = Duck(it.query, fixed)
    generator = Generator(it.operator, Constants(), it.query.schemas.fds)

    def refutes(several: Sequence[Case]) -> list[bool]:
        kept = [n for n, each in enumerate(several) if lawful(it.query.schemas, each.items)]
        wrong = refuted(engine, it.operator, [(claim, several[n]) for n in kept])
        return [n in {kept[place] for place in wrong} for n in range(len(several))]

    case = shrunk(case, refutes, generator, until=until, alike=frozenset())
    return Refuted(0, it.query, claim, case, fixed, it.operator)


def _smaller_query(
    it: Subject, claim: Claim, case: Case, fixed: Mapping[str, Sequence[Row]], until: float
) -> tuple[Subject, Claim, Case]:
    progress = True
    while progress:
        progress = False
        for text in smaller_texts(it.query.text):
            if time.monotonic() > until:
                return it, claim, case
            try:
                made = subject(replace(it.query, text=text), it.mode)
                again = [each for each in claims_of(made) if each.kind == claim.kind]
                engine = Duck(made.query, fixed)
                wrong = refuted(engine, made.operator, [(each, case) for each in again])
            except Exception:  # whatever is no query any more
                continue
            if wrong:
                it, claim, progress = made, again[wrong[0]], True
                break
    return it, claim, case


def smaller_texts(text: str) -> Iterator[str]:
    """The query with less in it, the most left out first."""
    tree = parsed(text)
    nodes = list(tree.walk())
    for n, node in enumerate(nodes):
        if n and isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            yield node.sql(dialect="spark")
    for n, node in enumerate(nodes):
        for edit in _edits(node):
            copy = tree.copy()
            twin = list(copy.walk())[n]
            edit(twin)
            made = copy.sql(dialect="spark")
            if made != text:
                yield made


def _edits(node: Any) -> Iterator[Callable[[Any], None]]:
    for name in ("where", "having", "qualify", "distinct", "limit", "order", "group", "windows"):
        if isinstance(node, exp.Query) and node.args.get(name):
            yield lambda twin, name=name: twin.set(name, None)  # type: ignore[misc]
    for name in ("joins", "laterals", "expressions", "partition_by"):
        values = node.args.get(name)
        if isinstance(values, list) and len(values) > (name in ("expressions",)):
            for at in range(len(values)):
                yield lambda twin, name=name, at=at: twin.args[name].pop(at)  # type: ignore[misc]
    if isinstance(node, exp.Connector | exp.Add | exp.Coalesce):
        yield lambda twin: twin.replace(twin.this)
    if isinstance(node, exp.Connector):
        yield lambda twin: twin.replace(twin.expression)
    if isinstance(node, exp.Not | exp.Paren):
        yield lambda twin: twin.replace(twin.this)


# ---- on Spark


def on_spark(numbers: Iterable[int], *, seed: int, typed: bool) -> tuple[int, list[str]]:
    """How many queries Spark ran; which claims it refutes, or what it answers unlike DuckDB."""
    from benchmarks.functions_on_spark import session
    from blazes.verify.spark import CONF, Spark

    spark = session()
    for name, value in CONF.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    spark.conf.set("spark.sql.optimizer.maxIterations", "100")  # queries need all of it
    spark.conf.set("spark.sql.optimizer.excludedRules", "")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin" if typed else "UTC")
    judge, ran, wrong = Spark(spark), 0, []
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        it = subject(random_query(rng, typed=typed), rng.choice(["append", "append", "update"]))
        fixed = tables_of(it.query.schemas, rng)
        _register(spark, it.query.schemas, fixed)
        cases = cases_of(it.query.schemas, rng)[:2]
        wrong += [f"PLANNED OTHERWISE query {number}: {it.query.text}"
                  for case in cases if planned_otherwise(judge, it, case)][:1]  # fmt: skip
        tries = [(claim, case) for claim in claims_of(it) for case in cases]
        engine = _Both(judge, Duck(it.query, fixed))
        for n in refuted(engine, it.operator, tries)[:1]:
            claim, case = tries[n]
            small = Refuted(number, it.query, claim, case, fixed, it.operator)
            wrong.append(f"ON SPARK {small.text()}")
        ran += engine.ran
        if engine.failed and not engine.ran:
            print(f"Spark does not run query {number}: {engine.failed}"[:300])
        if engine.unlike and not it.in_sequence and not typed:
            wrong.append(f"UNLIKE query {number}: {it.query.text}\n  {engine.unlike}")
    spark.stop()
    return ran, wrong


def _register(spark: Any, given: Schemas, fixed: Mapping[str, Sequence[Row]]) -> None:
    """Let Spark find the tables that nothing is added to."""
    for table in given.tables:
        if table.role is Role.TABLE:
            ddl = ", ".join(f"{name} {kind}" for name, kind in table.columns)
            frame = spark.createDataFrame(list(fixed[table.name]), ddl)
            frame.createOrReplaceTempView(table.name)


PLANS: Final = ({"shuffle.partitions": "1"}, {"shuffle.partitions": "7"},
                {"shuffle.partitions": "5", "autoBroadcastJoinThreshold": "-1"})  # fmt: skip
"""Settings of Spark (`spark.sql`) with which rows come in other orders behind a shuffle."""


def planned_otherwise(judge: Any, it: Subject, case: Case) -> bool:
    """Whether a query of which the order of its records is said to decide the result gives
    something else for one order of them, where Spark computes it in another way."""
    if not it.in_sequence or any(path.nondeterministic for path in it.paths):
        return False
    (inputs,) = steps(it.operator, case.items, _everything(case))
    seen = set[frozenset[Row]]()
    for plan in PLANS:
        for name, value in plan.items():
            judge.session.conf.set(f"spark.sql.{name}", value)
        (found,) = judge.evaluate(it.operator, [inputs])
        seen |= {frozenset(found.rows)} if isinstance(found, Output) else set()
    judge.session.conf.set("spark.sql.shuffle.partitions", "1")
    judge.session.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    return len(seen) > 1


class _Both:
    """Spark, and whether DuckDB answers alike."""

    def __init__(self, spark: Engine, duck: Duck) -> None:
        self._spark, self._duck = spark, duck
        self.name, self.unlike, self.failed, self.ran = "Spark", "", "", False

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        distinct = list(dict.fromkeys(many))
        found = dict(zip(distinct, self._spark.evaluate(operator, distinct), strict=True))
        others = self._duck.evaluate(operator, distinct)
        for inputs, other in zip(distinct, others, strict=True):
            one = found[inputs]
            if isinstance(one, Output):
                self.ran = True
                if isinstance(other, Output) and Counter(one.rows) != Counter(other.rows):
                    self.unlike = f"{inputs}: Spark {one.rows}, DuckDB {other.rows}"
            else:
                self.failed = one.message
        return [found[each] for each in many]

    def schema(self, operator: Operator) -> Schema:
        return self._spark.schema(operator)


# ---- the command


def percent(part: int, whole: int) -> str:
    """A share.

    >>> percent(1, 8)
    '12.5 %'
    """
    return f"{100 * part / whole:.1f} %" if whole else "-"


def report(found: Sound) -> Iterator[str]:
    """What a sweep found, in lines."""
    yield (f"{found.queries:,} queries, {found.understood:,} understood, {found.silent:,} of which "
           f"nothing is claimed, {found.failed:,} that DuckDB does not run; "
           f"{sum(found.claims.values()):,} claims, {found.tries:,} tries, "
           f"{len(found.refuted)} refuted")  # fmt: skip
    yield "claims: " + ", ".join(f"{kind} {n:,}" for kind, n in found.claims.most_common())
    keys = found.keys
    seems = keys["seems to split, refused"]
    share = percent(seems, seems + keys["said to split"])
    yield (f"keys: {keys['said to split']:,} split, {keys['does not split']:,} do not; {seems:,} "
           f"seem to and are refused ({share})")  # fmt: skip
    yield (f"queries: {keys['queries that split by a key']:,} split by some key, "
           f"{keys['queries refused']:,} are refused one that they seem to split by")  # fmt: skip
    yield (f"{'construct':24} {'queries':>7} {'gate *':>8} {'ordered':>8} "
           "no schedule showed it")  # fmt: skip
    for name, count in found.constructs.most_common():
        yield (f"{name:24} {count:7,} {percent(found.star[name], count):>8} "
               f"{percent(found.ordered[name], count):>8} "
               f"{percent(found.unseen[name], found.priced[name])}")  # fmt: skip
    for problem, count in found.problems.most_common(8):
        yield f"not understood {count:5,} times: {problem}"


def swept(numbers: Sequence[int], seed: int, typed: bool) -> tuple[Sound, float]:
    """The sweep of a process, and its CPU time in seconds."""
    began = time.process_time()
    return sweep(numbers, seed=seed, typed=typed), time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found; 1 where something derived is refuted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--spark", type=int, default=0, help="queries that Spark runs too")
    parser.add_argument("--typed", action="store_true", help="also dates, times, decimals, ...")
    parser.add_argument("--only", type=int, help="the query of this number")
    options = parser.parse_args(arguments)
    numbers = range(options.queries) if options.only is None else [options.only]
    found, cpu_s = Sound(), 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        lots = [numbers[at::100] for at in range(min(100, len(numbers)))]
        for task in as_completed(
            [pool.submit(swept, lot, options.seed, options.typed) for lot in lots]
        ):
            part, took_s = task.result()
            found.add(part)
            cpu_s += took_s
            print(f"{found.queries} of {len(numbers)}", end="\r", file=sys.stderr)
            for text in part.refuted:
                print(text, flush=True)
    for line in report(found):
        print(line)
    print(f"{cpu_s:.0f} s of CPU")
    wrong: list[str] = []
    if options.spark:
        ran, wrong = on_spark(numbers[: options.spark], seed=options.seed, typed=options.typed)
        print(f"on Spark: {ran} queries, {len(wrong)} refuted or unlike", *wrong, sep="\n")
    return int(bool(found.refuted) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
