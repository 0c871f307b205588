"""Every setting of Spark's SQL, searched for one with which Spark computes what sites do not.

    python -m benchmarks.settings_on_spark [--seed N] [--only PATTERN] [--types T,...] [--plant]

Flux sites compute as Spark does with its own settings; those that change a value have to be known
(`codegen.settings.ON_SITES`), so that they are refused. The functions and shapes of queries that
sites take (`benchmarks/site_sql_on_spark.py`) are answered by Spark with its own settings, and then
under other values of all others: switches are turned, and where Spark lists its values each is
taken. Many are set at once; where an answer differs, halves of them are, until one is left. Prints
each that changes an answer, with SQL that shows it, and then exits with 1. With `--plant` the
known ones count as unknown.

Settings that make Spark fail are none of interest: a job on sites does not ask Spark. Nor are those
whose values are names of classes, sizes or times.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from annotations.whitebox.sql import read
from benchmarks.function_values import BY_NAME
from benchmarks.site_sql_on_spark import Case, Prover, bag, cases
from codegen.settings import ON_SITES
from codegen.site_sql import site_refusals

TYPES: Final = (
    "int",
    "bigint",
    "text",
    "truth",
    "day",
    "instant",
    "zoneless",
    "price",
    "double",
    "bytes",
)
BASE: Final[Mapping[str, str]] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",  # compiled code takes longer here than it saves
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
OTHERS: Final[Mapping[str, Sequence[str]]] = {
    "spark.sql.session.timeZone": ("America/New_York", "+05:30"),
}
"""Values that Spark does not list."""
PASSED: Final = re.compile(
    r"spark\.sql\.(codegen\.|catalogImplementation|extendedExplainProviders|.*singlePassResolver)"
)
"""Settings of how Spark compiles, which `functions_on_spark.py` tries, and of classes."""
LISTED: Final = re.compile(
    r"(?:one of|in|be)\s*[{\[(]?((?:'?\w[\w.-]*'?,\s*(?:or\s)?)+'?\w[\w.-]*)"
)
NO_VALUE: Final = "no such value"
GROUP: Final = 40
ROWS: Final = 60
"""Enough for each awkward value of a type to be among them."""
WIDTH: Final = 25
FAILED: Final = "failed"


class Searcher:
    """Spark, the queries, and its answers to them with its own settings."""

    def __init__(self, spark: Any, seed: int, types: Sequence[str]) -> None:
        self.spark = spark
        self.rng = random.Random(seed)
        self.queries = [q for name in types for q in self._queries(name)]
        with_own = self._session({})
        self._due = [self._answer(with_own, query) for query in self.queries]

    def _queries(self, type_: str) -> Iterator[str]:
        """What sites take over columns of a type; of single records, many in one query."""
        prover = Prover(self.spark, self.rng.randrange(1 << 30))
        rows, given = prover.columns([BY_NAME[type_]] * 3, ROWS)
        view = f"global_temp.v_{type_}"
        self.spark.table("v").createOrReplaceGlobalTempView(f"v_{type_}")
        of_records: list[str] = []
        for case in cases(None):
            case = Case(case.function, case.sql.format("x0", "x1", "x2"))
            plan = read(case.sql, inputs={"v": given}).plan
            if list(site_refusals(case.sql, plan)):
                continue
            answered = prover._at_site(case, rows)
            if answered is not None and case.kind == "":
                of_records.append(answered.guarded(f"y{len(of_records)}"))
            elif answered is not None and not answered.letters:
                yield re.sub(r"\b(FROM|JOIN) v\b", rf"\1 {view} v", case.sql)
        for at in range(0, len(of_records), WIDTH):
            yield f"SELECT i, {', '.join(of_records[at : at + WIDTH])} FROM {view} v"

    def alternatives(self, only: str) -> list[tuple[str, str]]:
        """(setting, another value than its own), in the order of chance."""
        jvm = self.spark._jvm
        companion = jvm.java.lang.Class.forName("org.apache.spark.sql.internal.SQLConf$")
        entries = companion.getField("MODULE$").get(None).getConfigEntries().iterator()
        pairs = []
        while entries.hasNext():
            name = entries.next().key()
            if re.search(only, name) and not PASSED.match(name):
                pairs += [(name, value) for value in self._values(name)]
        pairs.sort()
        self.rng.shuffle(pairs)
        return pairs

    def _values(self, name: str) -> Sequence[str]:
        session = self.spark.newSession()
        if not session.conf.isModifiable(name):
            return []
        if name in OTHERS:
            return OTHERS[name]
        try:
            own = str(session.conf.get(name)).lower()
        except Exception:  # it has none
            own = ""
        if own in ("true", "false"):
            return ["false" if own == "true" else "true"]
        try:
            session.conf.set(name, NO_VALUE)
        except Exception as error:
            listed = LISTED.search(str(error))
            values = re.findall(r"[\w.-]+", listed[1]) if listed else []
            return [value for value in values if value.lower() != own and value != "or"]
        return []

    def changing(self, settings: Mapping[str, str]) -> tuple[str | None, bool]:
        """A query that Spark answers with another value, and whether it fails of more queries."""
        session = self._session(settings)
        fails = False
        for query, due in zip(self.queries, self._due, strict=True):
            answer = self._answer(session, query)
            if FAILED not in (answer, due) and answer != due:
                return query, fails
            fails |= answer == FAILED != due
        return None, fails

    def _session(self, settings: Mapping[str, str]) -> Any:
        session = self.spark.newSession()
        for name, value in {**BASE, **settings}.items():
            session.conf.set(name, value)
        return session

    def _answer(self, session: Any, query: str) -> object:
        try:
            frame = session.sql(query)
            return frame.schema.simpleString(), bag(frame.toArrow())
        except Exception:
            return FAILED


def groups(pairs: Sequence[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Settings to be set at once, each of them once."""
    rest = list(pairs)
    while rest:
        group: dict[str, str] = {}
        later = []
        for name, value in rest:
            if name in group or len(group) == GROUP:
                later.append((name, value))
            else:
                group[name] = value
        yield group
        rest = later


def search(
    spark: Any, *, seed: int, only: str = "", types: Sequence[str] = TYPES
) -> tuple[int, dict[str, str]]:
    """(how many values of settings were tried, setting that changes an answer -> SQL)."""
    searcher = Searcher(spark, seed, types)
    pairs = searcher.alternatives(only)
    todo, changes = [*groups(pairs)], dict[str, str]()
    while todo:
        group = {name: value for name, value in todo.pop().items() if name not in changes}
        query, fails = searcher.changing(group) if group else (None, False)
        if query is not None and len(group) == 1:
            ((name, value),) = group.items()
            changes[name] = query
            print(f"CHANGES {name}: {value}\n  {query[:600]}", flush=True)
        elif len(group) > 1 and (query is not None or fails):
            items = list(group.items())
            half = len(items) // 2
            todo += [dict(items[:half]), dict(items[half:])]
    return len(pairs), changes


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, and print what is found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settings_on_spark")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="settings whose name this pattern is in")
    parser.add_argument("--types", help="only these, with commas between")
    parser.add_argument("--plant", action="store_true", help="take known settings for unknown")
    options = parser.parse_args(arguments)
    from benchmarks.functions_on_spark import session

    spark, begun = session(), time.monotonic()
    types = options.types.split(",") if options.types else TYPES
    try:
        tried, changes = search(spark, seed=options.seed, only=options.only, types=types)
    finally:
        spark.stop()
    unknown = [name for name in changes if options.plant or name not in ON_SITES]
    print(
        f"{tried} values of settings: {len(changes)} settings change an answer, of which "
        f"{len(unknown)} are not known; {time.monotonic() - begun:.0f} s"
    )
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
