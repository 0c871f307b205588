"""What Flux sites take of SQL, taken to real Spark, which is searched for another answer.

    python -m benchmarks.site_sql_on_spark [--seed N] [--only FUNCTION] [--queries N] [--windows N]

Every function of `codegen.site_sql.ON_SITES` is applied to columns of every type that it accepts,
with awkward values in them (`benchmarks/function_values.py`), by Spark and by the operator that a
site runs. Where Spark has a value the site has the same, in the same type; where Spark fails on a
record (ANSI mode) the site sets that record aside. Then random queries
(`benchmarks/random_queries.py`), as far as sites take them, over random records: the same bag of
rows. Then Python functions on batches (`benchmarks/site_functions_on_spark.py`). Last, what sites
keep in place of records (`benchmarks/site_arrivals_on_spark.py`). Prints each difference with SQL
that shows it, and then exits with 1.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from annotations.whitebox.inputs import Input
from annotations.whitebox.sql import read
from benchmarks import random_queries, site_functions_on_spark
from benchmarks.function_values import BY_NAME, Sample
from codegen.site_sql import ON_SITES, site_refusals, site_sql
from flux_runtime.operators.components import Component
from flux_runtime.operators.query import Gives, QueryPlan, tagged
from flux_runtime.operators.rows import number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.spark.flux.components import arrow_columns, as_columns
from flux_runtime.spark.frames import nullable

TYPES: Final = (
    *("tinyint", "smallint", "int", "bigint", "text", "truth", "day", "instant", "zoneless"),
    *("price", "decimal38", "double", "bytes", "collated"),
)
"""Samples of `function_values` that columns are made of."""
NULLS: Final = 4
"""The group that has NULLs alone."""
INFIX: Final = ("=", "<>", "<=>", "<", "<=", ">", ">=", "and", "or", "+", "-", "*", "||")
TEMPLATES: Final[Mapping[str, Sequence[str]]] = {
    **{name: (f"{{0}} {name} {{1}}",) for name in INFIX},
    ">": ("{0} > {1}", "{0} > 300", "{0} > -5000000000"),
    "between": ("{0} BETWEEN {1} AND {2}", "{0} BETWEEN -1000 AND 1"),
    "in": ("{0} IN ({1}, {2})", "{0} NOT IN ({1})", "{0} IN (1, 300, 5000000000)"),
    "not": ("NOT {0}",),
    "is null": ("{0} IS NULL",),
    "is not null": ("{0} IS NOT NULL",),
    "+": ("{0} + {1}", "{0} + 1", "{0} + 3000000000", "{0} + INTERVAL 3 DAYS"),
    "-": ("{0} - {1}", "{0} - INTERVAL '90' MINUTE", "{0} - INTERVAL '2 weeks' < {1}"),
    "*": ("{0} * {1}", "2 * {0}", "({0} * 2 > -10) = ({1} > 1)"),
    "negative": ("- {0}", "-({0} + {1})"),
    "%": ("{0} % 3", "{0} % 2 + {1}"),
    "div": ("{0} DIV 2", "{0} DIV 7 + {1}"),
    "case": (
        "CASE WHEN {0} = {1} THEN {0} ELSE {2} END",
        "CASE WHEN {0} < {1} THEN {1} END",
        "CASE {0} WHEN {1} THEN 1 WHEN {2} THEN 2 END",
    ),
    "if": ("if({0} <=> {1}, {1}, {2})",),
    "cast": (
        *(f"CAST({{0}} AS {name})" for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "STRING")),
        *("CAST('2024-02-29' AS DATE)", "DATE '0001-01-01'"),
    ),
    "substring": ("substring({0}, 1)", "substring({0}, 2, 1)", "substring({0}, 1, 0)"),
    "substr": ("substr({0}, 2)", "substr({0}, 1, 100)"),
    "length": ("length({0})", "length({0}) * 1500000000"),
    "concat": ("concat({0}, {1})", "concat({0}, 'x', {1})"),
    "split": ("split({0}, ' ')", "split({0}, '1')", "split({0}, 'ab')"),
}
AGGREGATED: Final[Mapping[str, Sequence[str]]] = {
    "count": ("count(*)", "count({0})", "count(DISTINCT {0})", "count(DISTINCT {0}, {1})"),
    "count_if": ("count_if({0} = {1})", "count_if({0})", "count_if({0} IS NULL) * 2"),
    "sum": (
        "sum({0})",
        "sum(DISTINCT {0})",
        "sum({0}) FILTER (WHERE {0} > 0)",
        "sum(CASE WHEN {0} > 1 THEN 1 ELSE 0 END)",
    ),
    "avg": ("avg({0})", "avg(DISTINCT {0})"),
    "min": ("min({0})", "min({0}) FILTER (WHERE {1} IS NOT NULL)"),
    "max": ("max({0})", "coalesce(max({0}), min({1}))"),
    **{name: (f"{name}({{0}})", f"{name}({{0}} = {{1}})") for name in ("bool_and", "bool_or")},
    **{name: (f"{name}({{0}} < {{1}})",) for name in ("every", "some", "any")},
    "collect_list": ("collect_list({0})",),
    "array_agg": ("array_agg({0})",),
}
OVER: Final[Mapping[str, Sequence[str]]] = {
    "row_number": ("row_number() OVER (PARTITION BY g ORDER BY {0}, i)",),
    "rank": ("rank() OVER (PARTITION BY g ORDER BY {0})", "rank() OVER (ORDER BY {0} DESC) + i"),
    "dense_rank": ("dense_rank() OVER (PARTITION BY g ORDER BY {0} DESC, {1})",),
    "sum": ("sum({0}) OVER (PARTITION BY g ORDER BY i)",),
    "count": ("count({0}) OVER (PARTITION BY g)",),
    "max": ("max({0}) OVER (PARTITION BY g ORDER BY {1}, i)",),
}
GENERATED: Final = ("explode(split({0}, ' '))", "explode(split({0}, '1'))")
CARRIED: Final = ("{0}",)
SHAPES: Final = (
    "SELECT DISTINCT {0} AS y FROM v",
    "SELECT {0} AS y FROM v UNION SELECT {1} AS y FROM v",
    "SELECT {0} AS y FROM v UNION ALL SELECT {1} AS y FROM v",
    "SELECT {0} AS y FROM v INTERSECT SELECT {1} AS y FROM v",
    "SELECT {0} AS y FROM v EXCEPT SELECT {1} AS y FROM v",
    "SELECT a.{0} AS y, b.i AS z FROM v a JOIN v b ON a.{0} = b.{1}",
    "SELECT a.{0} AS y, b.i AS z FROM v a LEFT JOIN v b ON a.{0} = b.{1}",
    "SELECT a.{0} AS y, b.i AS z FROM v a FULL JOIN v b ON a.{0} <=> b.{1} AND a.i < b.i",
    "SELECT {0} AS y FROM v WHERE {0} IN (SELECT {1} FROM v)",
    "SELECT {0} AS y FROM v WHERE {0} NOT IN (SELECT {1} FROM v WHERE {1} IS NOT NULL)",
    "SELECT {0} AS y FROM v WHERE EXISTS (SELECT 1 FROM v b WHERE b.{1} = v.{0})",
    "SELECT {0} AS y, count(*) AS z FROM v GROUP BY {0} HAVING count(*) > 1",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer of a site that is not Spark's."""

    function: str
    sql: str
    spark: object
    site: object


@dataclass
class Report:
    """What was tried."""

    queries: int = 0
    rows: int = 0
    failed: int = 0
    """Records that Spark fails on and the site sets aside."""
    refused: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A query over the view `v`."""

    function: str
    sql: str

    @property
    def kind(self) -> str | None:
        """What stands behind `FROM v` where Spark can answer it with others; None: it cannot."""
        for first, rest in (("SELECT i, ", ""), ("SELECT g, ", " GROUP BY g")):
            if self.sql.startswith(first) and self.sql.endswith(f" AS y FROM v{rest}"):
                return None if "explode" in self.sql else rest
        return None


@dataclass(frozen=True, slots=True)
class _Answered:
    """A case, what a site has set aside of its records, and its rows."""

    case: Case
    letters: Sequence[int]
    rows: Any

    @property
    def expression(self) -> str:
        """What the case computes."""
        end = f" AS y FROM v{self.case.kind}"
        return self.case.sql[len("SELECT i, ") : -len(end)]

    def guarded(self, name: str) -> str:
        """The expression, for the records that are not set aside."""
        if not self.letters:
            return f"{self.expression} AS {name}"
        listed = ", ".join(map(str, self.letters))
        return f"CASE WHEN i IN ({listed}) THEN NULL ELSE {self.expression} END AS {name}"

    def alone(self) -> str:
        """The case over the records that are not set aside."""
        if not self.letters:
            return self.case.sql
        return f"{self.case.sql} WHERE i NOT IN ({', '.join(map(str, self.letters))})"


class Prover:
    """Spark, and tables of awkward values."""

    def __init__(self, spark: Any, seed: int) -> None:
        self.spark = spark
        self.rng = random.Random(seed)
        self.report = Report()
        self.inputs: Any = ()
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    def columns(self, samples: Sequence[Sample], rows: int) -> tuple[Any, Input]:
        """A table `v` of such columns, a number `i` and a group `g`; (rows, for the front end).

        Texts are UTF-8, as those of a source are that is read as text. One group has NULLs alone.
        """
        pools = [
            [v for v in sample.some(self.rng, rows) if "(X'" not in v or sample.name == "bytes"]
            for sample in samples
        ]
        for pool, sample in zip(pools, samples, strict=True):
            pool.append(f"CAST(NULL AS {sample.sql})")
        tuples = [[self.rng.choice(pool) for pool in pools] for _ in range(rows)]
        for place, pool in enumerate(pools):  # each value once at least
            for row, value in zip(tuples, pool, strict=False):
                row[place] = value
        groups = [self.rng.randrange(4) for _ in tuples]
        groups += [NULLS, NULLS]
        tuples += [[f"CAST(NULL AS {sample.sql})" for sample in samples]] * 2
        selects = (
            f"SELECT {i} AS i, {group} AS g, "
            + ", ".join(f"{value} AS x{n}" for n, value in enumerate(row))
            for i, (group, row) in enumerate(zip(groups, tuples, strict=True))
        )
        frame = self.spark.sql(" UNION ALL ".join(selects))
        schema = {"i": "INT", "g": "INT", **{f"x{n}": s.sql for n, s in enumerate(samples)}}
        table = frame.toArrow()
        local = self.spark.createDataFrame(table, frame.schema)
        local.createOrReplaceTempView("v")
        self.inputs = arrow_columns(nullable(frame.schema))
        return as_columns(table.combine_chunks().to_batches()[0], self.inputs), Input(schema)

    def prove(self, cases: Sequence[Case], rows: Any, given: Input) -> None:
        """Compare the cases that a site takes over one table; Spark answers many in one query."""
        together: dict[str, list[_Answered]] = {"": [], " GROUP BY g": []}
        for case in cases:
            plan = read(case.sql, inputs={"v": given}).plan
            if list(site_refusals(case.sql, plan)):
                self.report.refused[case.function] += 1
                continue
            answered = self._at_site(case, rows)
            if answered is None:
                continue
            if answered.letters:
                self._fails_too(answered)
            if case.kind is None or (answered.letters and case.kind):
                self._compare([answered], case.sql)
            else:
                together[case.kind].append(answered)
        for kind, answers in together.items():
            key = "g" if kind else "i"
            parts = [a.guarded(f"y{n}") for n, a in enumerate(answers)]
            for at in range(0, len(answers), 25):
                few = ", ".join([key, *parts[at : at + 25]])
                self._compare(answers[at : at + 25], f"SELECT {few} FROM v{kind}")

    def _at_site(self, case: Case, rows: Any) -> _Answered | None:
        """What a site makes of a case; None where Spark does not take it."""
        try:
            analysed = self.spark.sql(case.sql)
        except Exception:
            return None
        self.report.queries += 1
        self.report.rows += rows.num_rows
        output = arrow_columns(nullable(analysed.schema))
        plan = QueryPlan(
            sql=site_sql(case.sql),
            inputs={"v": self.inputs},
            output=output,
            gives=Gives.RECORDS if case.kind == "" else Gives.CHANGES,
        )
        operator = Component(name="C", buckets=1, gate=(), plan=plan).instance(None)
        try:
            made = operator.process(number(tagged(rows, 0), 0))
        except Exception as error:
            self._differ(case, "an answer", f"{type(error).__name__}: {error}")
            return None
        letters = sorted(letter["record"]["i"] for letter in letters_of(made))
        results = results_of(made).select([name for name, _ in output])
        return _Answered(case, letters, results)

    def _fails_too(self, answered: _Answered) -> None:
        """Whether Spark, too, fails on what the site has set aside: one of the records is tried."""
        self.report.failed += len(answered.letters)
        case, one = answered.case, self.rng.choice(answered.letters)
        sql = f"{case.sql} WHERE i = {one}" if case.kind == "" else case.sql
        if self._answer(sql) is not None:
            self._differ(case, f"a value for i = {one}", "a dead letter")

    def _compare(self, answers: Sequence[_Answered], sql: str) -> None:
        """Compare answers with one of Spark's; one by one where it fails, or is another."""
        if not answers:
            return
        if answers[0].letters and answers[0].case.kind != "":
            return  # of the rest of a group nothing is claimed
        theirs = self._answer(sql)
        if theirs is not None and len(answers) > 1:
            names = theirs.schema.names
            for n, answered in enumerate(answers):
                key = theirs.column(0)
                mine = pa.table([key, theirs.column(n + 1)], [names[0], "y"])
                if answered.letters:
                    chosen = [i not in answered.letters for i in key.to_pylist()]
                    mine = mine.filter(pa.array(chosen))
                self._same(answered, mine)
        elif len(answers) > 1:
            for answered in answers:
                self._compare([answered], answered.alone())
        else:
            if theirs is not None and answers[0].case.kind is not None:
                theirs = theirs.rename_columns([theirs.schema.names[0], "y"])
            self._same(answers[0], theirs)

    def _same(self, answered: _Answered, theirs: Any) -> None:
        if theirs is None and answered.case.function == "sum":
            self.report.failed += 1  # a part of it overflows in one order, and not in another
        else:
            self._compared(answered.case, answered.rows, theirs)

    def same(self, function: str, rows: Any, theirs: Any) -> None:
        """Compare the rows of a Python function with Spark's; None: Spark fails."""
        self._compared(Case("python", function), rows, theirs)

    def differ(self, function: str, spark: object, site: object) -> None:
        """Note what a site and Spark make of a Python function."""
        self._differ(Case("python", function), spark, site)

    def _compared(self, case: Case, rows: Any, theirs: Any) -> None:
        mine = bag(rows)
        due = None if theirs is None else bag(theirs)
        if due is None:
            self._differ(case, "an error", _shown(mine))
        elif due != mine:
            self._differ(case, _shown(due - mine), _shown(mine - due))

    def _answer(self, sql: str) -> Any:
        """Spark's rows; None where it fails."""
        try:
            frame = self.spark.sql(sql)
            table = frame.toArrow()
        except Exception:
            return None
        return table.cast(pa.schema(arrow_columns(nullable(frame.schema))))

    def _differ(self, case: Case, spark: object, site: object) -> None:
        self.report.differences.append(Difference(case.function, case.sql, spark, site))
        print(f"DIFFERS {case.function}: {case.sql}\n  Spark: {spark}\n  site:  {site}", flush=True)

    # ---- random queries

    def random(self, count: int) -> None:
        """As many random queries that a site takes."""
        taken = 0
        while taken < count:
            query = random_queries.random_query(self.rng)
            inputs = {table.name: table.input for table in query.schemas.tables}
            plan = read(query.text, inputs=inputs).plan
            if list(site_refusals(query.text, plan)) or "row_number" in query.text:
                self.report.refused["random"] += 1
                continue
            taken += 1
            self._random(query)

    def _random(self, query: random_queries.Query) -> None:
        rows: dict[str, list[Any]] = {table.name: [] for table in query.schemas.tables}
        if query.schemas.streams:
            for item in random_queries.records(self.rng, query.schemas, 12):
                rows[item.interface] += [item.row] * item.times
        for table in query.schemas.tables:
            if table not in query.schemas.streams:
                rows[table.name] = list(random_queries.contents(self.rng, table))
        frames = {}
        for table in query.schemas.tables:
            ddl = ", ".join(f"{name} {kind}" for name, kind in table.columns)
            frames[table.name] = self.spark.createDataFrame(rows[table.name], ddl)
            frames[table.name].createOrReplaceTempView(table.name)
        case = Case("random", query.text)
        try:
            analysed = self.spark.sql(query.text)
        except Exception:
            return
        if len(set(analysed.columns)) < len(analysed.columns):
            return
        self.report.queries += 1
        inputs = {name: arrow_columns(nullable(frame.schema)) for name, frame in frames.items()}
        output = arrow_columns(nullable(analysed.schema))
        plan = QueryPlan(
            sql=site_sql(query.text), inputs=inputs, output=output, gives=Gives.CHANGES
        )
        operator = Component(name="C", buckets=1, gate=(), plan=plan).instance(None)
        made = None
        for place, (name, frame) in enumerate(frames.items()):
            batches = frame.toArrow().combine_chunks().to_batches()
            if not batches or not batches[0].num_rows:
                continue
            table = as_columns(batches[0], inputs[name])
            self.report.rows += table.num_rows
            batch = number(tagged(table, list(frames).index(name)), place)
            try:
                made = operator.process(batch)
            except Exception as error:
                self._differ(case, "an answer", error)
                return
            if letters_of(made):
                self.report.failed += len(letters_of(made))
                if self._answer(query.text) is not None and place == len(frames) - 1:
                    self._differ(case, "an answer", letters_of(made))
                return
        if made is not None:
            rows_made = results_of(made).select([name for name, _ in output])
            self._same(_Answered(case, [], rows_made), self._answer(query.text))


def bag(rows: Any) -> Counter[str]:
    """Rows as a bag; the order of a list is not part of its value."""
    columns = [_plain(column).to_pylist() for column in rows.columns]
    names = rows.schema.names
    return Counter(
        repr([(name, _value(v)) for name, v in zip(names, row, strict=True)])
        for row in zip(*columns, strict=True)
    )


def _plain(column: Any) -> Any:
    """Times as numbers: some are beyond what Python has."""
    if pa.types.is_struct(column.type):
        return column.cast(pa.struct([pa.field(part.name, pa.int64()) for part in column.type]))
    is_list = pa.types.is_list(column.type)
    inner = column.type.value_type if is_list else column.type
    if not (pa.types.is_date(inner) or pa.types.is_timestamp(inner)):
        return column
    plain = pa.int32() if pa.types.is_date(inner) else pa.int64()
    return column.cast(pa.list_(plain) if is_list else plain)


def _value(value: object) -> object:
    return sorted(map(repr, value)) if isinstance(value, list) else value


def _shown(rows: object) -> str:
    return str(list(rows.items())[:4]) if isinstance(rows, Counter) else str(rows)[:300]


def cases(chosen: str | None) -> Iterator[Case]:
    """Queries for every function of the table, and the shapes of queries."""
    for name in ON_SITES:
        if chosen not in (None, name):
            continue
        scalar, grouped, over = (t.get(name, ()) for t in (TEMPLATES, AGGREGATED, OVER))
        if not scalar and not grouped and not over and name != "explode":
            scalar = tuple(f"{name}({', '.join(['{0}', '{1}', '{2}'][:n])})" for n in (1, 2, 3))
        yield from (Case(name, f"SELECT i, {text} AS y FROM v") for text in scalar)
        yield from (Case(name, f"SELECT g, {text} AS y FROM v GROUP BY g") for text in grouped)
        yield from (Case(name, f"SELECT {text} AS y FROM v") for text in grouped)
        yield from (Case(name, f"SELECT i, {text} AS y FROM (SELECT * FROM v) w") for text in over)
    if chosen in (None, "explode"):
        yield from (Case("explode", f"SELECT i, {text} AS y FROM v") for text in GENERATED)
    if chosen in (None, "carried"):
        yield from (Case("carried", f"SELECT i, {text} AS y FROM v") for text in CARRIED)
    if chosen in (None, "shapes"):
        yield from (Case("shapes", text) for text in SHAPES)


def prove(
    spark: Any,
    *,
    seed: int = 0,
    only: str | None = None,
    queries: int = 300,
    types: Sequence[str] = TYPES,
    mixed: int | None = None,
    rows: int = 40,
    functions: int = 3,
) -> Report:
    """Try the table over these types; of two different types, `mixed` pairs."""
    prover = Prover(spark, seed)
    names = ("x0", "x1", "x2")
    listed = [Case(c.function, c.sql.format(*names)) for c in cases(only)]
    alike = [(name, name, name) for name in types]
    integers = [name for name in types if name.endswith("int")]
    pairs = [(a, b, a) for a, b in itertools.permutations(integers, 2)]
    pairs += [(a, b, b) for a, b in itertools.permutations(types, 2) if (a, b, a) not in pairs]
    if mixed is not None:
        pairs = prover.rng.sample(pairs, min(mixed, len(pairs)))
    for combination in (*alike, *pairs):
        table, given = prover.columns([BY_NAME[name] for name in combination], rows)
        prover.prove(listed, table, given)
        if only is None:
            site_functions_on_spark.prove(prover, table, functions)
    if only is None:
        prover.random(queries)
    return prover.report


def main(arguments: Sequence[str] | None = None) -> int:
    """Try everything, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_sql_on_spark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one function")
    parser.add_argument("--queries", type=int, default=300, help="random queries")
    parser.add_argument("--windows", type=int, default=12, help="queries over windows of a stream")
    parser.add_argument("--types", help="only these, with commas between")
    parser.add_argument("--mixed", type=int, help="only so many pairs of different types")
    options = parser.parse_args(arguments)
    from benchmarks import site_arrivals_on_spark as arriving
    from benchmarks.functions_on_spark import session

    spark, begun = session(), time.monotonic()
    arrivals = arriving.Arrivals()
    try:
        report = prove(
            spark,
            seed=options.seed,
            only=options.only,
            queries=options.queries,
            types=options.types.split(",") if options.types else TYPES,
            mixed=options.mixed,
        )
        if options.only is None:
            counts = {"queries": options.queries, "windows": options.windows}
            arrivals = arriving.prove(spark, seed=options.seed, **counts)
    finally:
        spark.stop()
    print(
        f"{report.queries:,} queries over {report.rows:,} rows, {report.failed:,} records that "
        f"both refuse, {len(report.differences)} differences, {report.refused.total():,} queries "
        f"that sites do not take; {time.monotonic() - begun:.0f} s"
    )
    print(arriving.summary(arrivals))
    return 1 if report.differences or arrivals.differences else 0


if __name__ == "__main__":
    sys.exit(main())
