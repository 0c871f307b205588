"""Every claim about functions, taken to real Spark, which is searched for a counterexample.

    python benchmarks/functions_on_spark.py [--seed N] [--only NAME] [--seconds S]

What the derivation of annotations believes of a function (`annotations/whitebox/functions.py`) is
asked of it over columns of every type (`benchmarks/function_claims.py`), and tried on awkward
values (`benchmarks/function_values.py`): with ANSI mode on and off, in several session time zones,
with generated code and interpreted. Prints how many claims were tried on how many cases, and each
claim that is refuted, with SQL that shows it; then it exits with 1.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from annotations.whitebox.datatypes import Family
from annotations.whitebox.functions import FUNCTIONS, Direction, Kind
from annotations.whitebox.ir import Call
from benchmarks import function_claims
from benchmarks.function_claims import Claim, Grouped, View, sql_of, typed_calls
from benchmarks.function_values import BY_NAME, SAMPLES, Sample


@dataclass(frozen=True, slots=True)
class Mode:
    """How Spark computes."""

    ansi: bool
    zone: str
    generated: bool

    def __str__(self) -> str:
        code = "generated code" if self.generated else "interpreted"
        return f"ANSI {'on' if self.ansi else 'off'}, {self.zone}, {code}"


MODES: Final = (
    Mode(False, "UTC", False),
    Mode(True, "Europe/Berlin", True),
    Mode(False, "Pacific/Apia", True),
    Mode(True, "America/New_York", False),
)


@dataclass(frozen=True, slots=True)
class Refutation:
    """A claim that does not hold, with SQL that shows it."""

    function: str
    says: str
    mode: str
    sql: str


@dataclass
class Report:
    """What was tried."""

    claims: int = 0
    cases: int = 0
    stopped: list[str] = field(default_factory=list)
    """Claims of which Spark stops for some values: no answer, none wrong."""
    refuted: list[Refutation] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Claims that were not tried, since Spark failed at them by a mistake of its own."""


class Prover:
    """Spark, and the values of every type as views."""

    def __init__(
        self,
        spark: Any,
        seed: int,
        until: float = float("inf"),
        tell: Callable[[Refutation], None] = lambda _: None,
    ) -> None:
        self.tell = tell
        self.spark = spark
        self.rng = random.Random(seed)
        self.until = until
        self.report = Report()
        self.mode = MODES[0]
        self._lock = Lock()
        self._known: set[str] = set()
        self._refused: set[tuple[str, bool]] = set()
        self._pools: dict[str, list[str]] = {}

    # ---- Spark

    def use(self, mode: Mode) -> None:
        """Compute in this mode from now on."""
        self.mode = mode
        for name, value in {
            "spark.sql.ansi.enabled": mode.ansi,
            "spark.sql.session.timeZone": mode.zone,
            "spark.sql.codegen.wholeStage": mode.generated,
            "spark.sql.codegen.factoryMode": "FALLBACK" if mode.generated else "NO_CODEGEN",
        }.items():
            self.spark.conf.set(name, str(value).lower() if isinstance(value, bool) else value)

    def rows(self, sql: str) -> list[Any]:
        """What a query gives."""
        found: list[Any] = self.spark.sql(sql).collect()
        return found

    def understood(self, sql: str) -> Any:
        """The query's schema; None where Spark refuses it."""
        try:
            return self.spark.sql(sql).schema
        except Exception as refused:
            if not _of_spark(refused):
                raise
            return None

    def side_by_side(self, work: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Do the work on the items, two at a time, until time is over."""

        def timely(item: Any) -> None:
            if time.monotonic() < self.until:
                work(item)

        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(timely, items):
                pass

    def tried(self, claims: int, cases: int) -> None:
        """Count claims that were tried."""
        with self._lock:
            self.report.claims += claims
            self.report.cases += cases

    def refute(self, function: str, says: str, sql: str) -> None:
        """Note a counterexample."""
        found = Refutation(function, says, str(self.mode), sql)
        self.report.refuted.append(found)
        self.tell(found)

    # ---- values

    def pool(self, sample: Sample, count: int = 26) -> str:
        """A view of some values (`i`, `x`), the same ones for as long as the prover lives."""
        name = f"pool_{sample.name}"
        if name not in self._known:
            self._known.add(name)
            values = self._pools[sample.name] = sample.some(self.rng, count)
            rows = [f"({i}, CAST({value} AS {sample.sql}))" for i, value in enumerate(values)]
            rows.append(f"({len(values)}, CAST(NULL AS {sample.sql}))")
            frame = self.spark.sql(f"SELECT i, x FROM VALUES {', '.join(rows)} AS t(i, x)")
            frame.createOrReplaceTempView(name)
        return name

    def view(self, view: View) -> str:
        """The rows that a claim is about, as a view."""
        one, other = self.pool(view.one), self.pool(view.other)
        name = f"{view.kind}_{view.one.name}_{view.other.name}"
        if name in self._known:
            return name
        self._known.add(name)
        if view.kind == "pairs":
            sql = f"SELECT p.x AS x, q.x AS y FROM {one} p CROSS JOIN {other} q"
        elif view.kind == "moves":
            a, b = self._moves(view.one), self._moves(view.other)
            sql = (
                "SELECT p.w AS wa, p.v AS a, p.v2 AS a2, q.w AS wb, q.v AS b, q.v2 AS b2, r.x AS c "
                f"FROM {a} p CROSS JOIN {b} q LEFT JOIN {one} r "
                f"ON r.i = (p.n * 7 + q.n) % {len(self._pools[view.one.name])} "
                + ("" if view.one == view.other else "WHERE p.w = 'C' OR q.w = 'C'")
            )
        else:
            sql = (
                f"SELECT slice(e.a, 1, n.id) AS a, slice(e.a, 1, n.id + m.id) AS a2, c.x AS c FROM "
                f"(SELECT shuffle(collect_list(x), 7) AS a FROM {one}) e "
                "CROSS JOIN range(0, 7) n CROSS JOIN range(0, 4) m "
                f"CROSS JOIN (SELECT x FROM {one} LIMIT 5) c"
            )
        self.spark.sql(sql).createOrReplaceTempView(name)
        return name

    def _moves(self, sample: Sample, count: int = 7) -> str:
        """Steps of a moving value (`v`, `v2`): it stays (C), grows (U), shrinks (D)."""
        name = f"steps_{sample.name}"
        if name in self._known:
            return name
        self._known.add(name)
        pool = self.pool(sample)
        some = f"(SELECT x FROM {pool} WHERE i < {count} OR x IS NULL)"
        there = f"(SELECT x FROM {some} WHERE x IS NOT NULL)"
        if sample.type.family is Family.BOOLEAN:
            up = "(NOT coalesce(p.x, FALSE) OR coalesce(q.x, FALSE))"
            down = "(coalesce(p.x, TRUE) OR NOT coalesce(q.x, TRUE))"
            there = some
        else:
            up, down = "(p.x IS NULL OR p.x <= q.x)", "(p.x IS NULL OR p.x >= q.x)"
        sql = (
            f"SELECT 'C' AS w, x AS v, x AS v2 FROM {some} "
            f"UNION ALL SELECT 'U', p.x, q.x FROM {some} p JOIN {there} q ON {up} "
            f"UNION ALL SELECT 'D', p.x, q.x FROM {some} p JOIN {there} q ON {down}"
        )
        frame = self.spark.sql(f"SELECT *, row_number() OVER (ORDER BY w) AS n FROM ({sql})")
        frame.localCheckpoint().createOrReplaceTempView(name)
        return name

    # ---- conditions that no row may meet

    def conditions(self, claims: Iterable[Claim]) -> None:
        """Try claims about single rows, those about one view together."""
        ordered = sorted(claims, key=lambda claim: repr((claim.view.kind, claim.view.one.name,
                                                         claim.view.other.name)))  # fmt: skip
        batches: list[tuple[str, Sequence[Claim]]] = []
        for view, group in itertools.groupby(ordered, key=lambda claim: claim.view):
            if time.monotonic() > self.until:
                return
            name = self.view(view)
            mine = [each for each in group if (each.says, self.mode.ansi) not in self._refused]
            batches += ((name, mine[at : at + 50]) for at in range(0, len(mine), 50))
        self.side_by_side(lambda batch: self._batch(*batch), batches)

    def _batch(self, view: str, claims: Sequence[Claim]) -> None:
        """Try claims about one view in one query; in two where Spark refuses it, or stops."""
        if not claims:
            return
        counts = ", ".join(f"count_if({claim.violated})" for claim in claims)
        try:
            (found,) = self.rows(f"SELECT count(*), {counts} FROM {view}")
        except Exception as stopped:
            if len(claims) == 1:
                self._not_tried(claims[0], stopped)
                return
            middle = len(claims) // 2
            self._batch(view, claims[:middle])
            self._batch(view, claims[middle:])
            return
        self.tried(len(claims), found[0] * len(claims))
        for claim, count in zip(claims, found[1:], strict=True):
            if count:
                self.refute(claim.function, claim.says, self._shown(view, claim))

    def _not_tried(self, claim: Claim, stopped: Exception) -> None:
        """A claim about what Spark refuses is none; where it stops, it gives no answer."""
        if type(stopped).__name__ in ("AnalysisException", "ParseException"):
            self._refused.add((claim.says, self.mode.ansi))
            return
        self._stop(claim.says, stopped)

    def _stop(self, says: str, stopped: Exception) -> None:
        """Note a claim of which Spark gives no answer for some value."""
        if not _of_spark(stopped):
            raise stopped
        broken = "[INTERNAL_ERROR]" in str(stopped)
        (self.report.broken if broken else self.report.stopped).append(says)

    def _shown(self, view: str, claim: Claim) -> str:
        """The counterexample as SQL over constants."""
        columns = [c.name for c in self.spark.table(view).schema if not c.name.startswith("w")]
        literals = ", ".join(
            f"(SELECT max(i) FROM pool_{self._sample(claim, c).name} p WHERE p.x <=> v.{c}) AS {c}"
            for c in columns
        )
        if claim.view.kind == "gains":
            return f"SELECT {', '.join(claim.shown)} FROM {view} WHERE {claim.violated}"
        (found,) = self.rows(
            f"SELECT {literals} FROM (SELECT * FROM {view} WHERE {claim.violated} LIMIT 1) v"
        )
        values = [f"{self._literal(self._sample(claim, c), found[c])} AS {c}" for c in columns]
        return f"SELECT {', '.join(claim.shown)} FROM (SELECT {', '.join(values)})"

    def _sample(self, claim: Claim, column: str) -> Sample:
        return claim.view.other if column[0] in "by" else claim.view.one

    def _literal(self, sample: Sample, at: int | None) -> str:
        values = self._pools[sample.name]
        value = "NULL" if at is None or at >= len(values) else values[at]
        return f"CAST({value} AS {sample.sql})"

    # ---- aggregates

    def aggregates(self, claims: Iterable[Grouped], groups: int = 60) -> None:
        """Try claims about aggregates, those of one type together."""
        by_sample: dict[str, list[Grouped]] = {}
        for claim in claims:
            if claim.set_only or claim.direction in WAYS or claim.counts_once or claim.never_null:
                by_sample.setdefault(claim.sample.name, []).append(claim)
        for name, group in by_sample.items():
            if time.monotonic() > self.until:
                return
            view = self._groups(BY_NAME[name], groups)
            valid = [each for each in group if self.understood(
                f"SELECT CAST({each.sql} AS STRING) FROM {view}0") is not None]  # fmt: skip
            self._orders(view, [each for each in valid if each.set_only])
            self._prefixes(view, [each for each in valid if each.direction in WAYS])
            self._twice(view, [each for each in valid if each.counts_once])
            self._empty(view, [each for each in valid if each.never_null])

    def _groups(self, sample: Sample, groups: int) -> str:
        """Groups of a few values (`g`, `x`, in the order `i`), in several arrangements."""
        name = f"groups_{sample.name}"
        if name in self._known:
            return name
        self._known.add(name)
        pool = self.pool(sample)
        many = len(self._pools[sample.name]) + 1
        rows = [(g, i, self.rng.randrange(many)) for g in range(groups)
                for i in range(self.rng.randint(1, 9))]  # fmt: skip
        listed = ", ".join(map(str, rows))
        frame = self.spark.sql(
            f"SELECT t.g, t.i, p.x FROM VALUES {listed} AS t(g, i, p) JOIN {pool} p ON p.i = t.p"
        )
        base = frame.coalesce(1).sortWithinPartitions("g", "i").localCheckpoint()
        base.createOrReplaceTempView(f"{name}0")
        turned = base.coalesce(1).sortWithinPartitions(base.g, base.i.desc()).localCheckpoint()
        turned.createOrReplaceTempView(f"{name}1")
        for at, seed in ((2, 5), (3, 6)):
            mixed = self.spark.sql(
                f"SELECT /*+ REPARTITION(3, r) */ * FROM (SELECT *, hash(g, i, {seed}) AS r "
                f"FROM {name}0)"
            )
            mixed = mixed.sortWithinPartitions("r").localCheckpoint()
            mixed.createOrReplaceTempView(f"{name}{at}")
        return name

    def _answers(self, view: str, claims: Sequence[Grouped]) -> list[Any] | None:
        """The results as texts, group by group; None where Spark stops."""
        columns = ", ".join(
            f"CAST({claim.sql} AS STRING) AS c{at}" for at, claim in enumerate(claims)
        )
        try:
            found = self.rows(f"SELECT g, {columns} FROM {view} GROUP BY g")
            return sorted(map(tuple, found), key=lambda row: int(row[0]))
        except Exception as stopped:
            if len(claims) == 1:
                self._stop(f"{claims[0].sql} of {claims[0].sample.sql}", stopped)
            return None

    def _orders(self, view: str, claims: Sequence[Grouped]) -> None:
        """Whether a result is the same, to the last bit, in any order and however it is merged."""
        if not claims:
            return
        if self.mode.ansi:
            claims = [claim for claim in claims if not claim.assumed]
        first = self._answers(f"{view}0", claims)
        if first is None:
            if len(claims) > 1:
                self._orders(view, claims[: len(claims) // 2])
                self._orders(view, claims[len(claims) // 2 :])
            return
        self.tried(len(claims), 300 * len(claims))
        found: set[int] = set()
        for arrangement in (1, 2, 3):
            other = self._answers(f"{view}{arrangement}", claims)
            for one, two in zip(first, other or first, strict=True):
                for at, claim in enumerate(claims):
                    if one[at + 1] != two[at + 1] and at not in found:
                        found.add(at)
                        self._refute_group(view, claim, one[0], f"{one[at + 1]} or {two[at + 1]}")

    def _refute_group(self, view: str, claim: Grouped, group: int, what: str) -> None:
        sample = claim.sample
        places = self.rows(
            f"SELECT (SELECT max(i) FROM pool_{sample.name} p WHERE p.x <=> v.x) AS at "
            f"FROM {view}0 v WHERE g = {group} ORDER BY i"
        )
        values = ", ".join(f"({self._literal(sample, row.at)})" for row in places)
        sql = f"SELECT {claim.sql} FROM VALUES {values} AS t(x) -- in another order: {what}"
        self.refute(claim.function, f"{claim.sql} of {sample.sql} depends on the rows alone", sql)

    def _prefixes(self, view: str, claims: Sequence[Grouped]) -> None:
        """Whether a result moves in its direction while rows come."""
        claims = [each for each in claims if not re.search("DISTINCT|WITHIN", each.sql)]
        if not claims:
            return
        over = "OVER (PARTITION BY g ORDER BY i)"
        now = [re.sub(r"(?= FILTER)|$", "", each.sql) + f" {over} AS v{at}"
               for at, each in enumerate(claims)]  # fmt: skip
        before = [f"lag(v{at}) {over} AS p{at}" for at in range(len(claims))]
        wrong = [f"first(g) FILTER (WHERE p{at} IS NOT NULL AND (v{at} IS NULL OR {BAD[way]}))"
                 .replace("@p", f"p{at}").replace("@v", f"v{at}")
                 for at, way in enumerate(each.direction for each in claims)]  # fmt: skip
        inner = f"SELECT g, i, {', '.join(now)} FROM {view}0"
        try:
            (found,) = self.rows(
                f"SELECT {', '.join(wrong)} FROM (SELECT *, {', '.join(before)} FROM ({inner}))"
            )
        except Exception as stopped:
            if len(claims) == 1:
                self._stop(f"{claims[0].sql} of {claims[0].sample.sql}", stopped)
                return
            self._prefixes(view, claims[: len(claims) // 2])
            self._prefixes(view, claims[len(claims) // 2 :])
            return
        self.tried(len(claims), 300 * len(claims))
        for claim, group in zip(claims, found, strict=True):
            if group is not None:
                self._refute_group(view, claim, group, "and it moves the other way")

    def _twice(self, view: str, claims: Sequence[Grouped]) -> None:
        """Whether a record that comes twice changes nothing."""
        claims = [each for each in claims if each.set_only]
        if not claims or (first := self._answers(f"{view}0", claims)) is None:
            return
        self.tried(len(claims), 300 * len(claims))
        twice = f"(SELECT * FROM {view}0 UNION ALL SELECT * FROM {view}0)"
        second = self._answers(twice, claims) or first
        for at, claim in enumerate(claims):
            if any(one[at + 1] != two[at + 1] for one, two in zip(first, second, strict=True)):
                says = f"{claim.sql} of {claim.sample.sql} counts a record once"
                self.refute(claim.function, says, f"SELECT {claim.sql} FROM {twice}")

    def _empty(self, view: str, claims: Sequence[Grouped]) -> None:
        """Whether a result is there even of no rows, and of NULL alone."""
        if not claims:
            return
        self.tried(len(claims), 300 * len(claims))
        columns = ", ".join(f"{claim.sql} IS NULL" for claim in claims)
        for where in ("x IS NULL", "FALSE"):
            (found,) = self.rows(f"SELECT {columns} FROM {view}0 WHERE {where}")
            for claim, missing in zip(claims, found, strict=True):
                if missing:
                    sql = f"SELECT {claim.sql} FROM {view}0 WHERE {where}"
                    self.refute(claim.function, f"{claim.sql} is never NULL", sql)

    # ---- types, clocks, chance

    def types(self, chosen: Callable[[str], bool], count: int) -> None:
        """Whether results have the types that the derivation takes them to have."""
        known = [
            (call, samples)
            for call, samples in typed_calls()
            if chosen(call.function) and call.type.family is not Family.UNKNOWN
        ]
        for sample in SAMPLES:
            self.pool(sample)
        self.side_by_side(
            lambda typed: self._type(*typed), self.rng.sample(known, min(count, len(known)))
        )

    def _type(self, call: Call, samples: Sequence[Sample]) -> None:
        views = " CROSS JOIN ".join(
            f"(SELECT x AS {name} FROM {self.pool(sample)}) {name}"
            for name, sample in zip("xy", samples, strict=False)
        )
        sql = f"SELECT {sql_of(call)} AS v FROM {views}"
        schema = self.understood(sql)
        if schema is None:
            return
        self.tried(1, 1)
        text = schema["v"].dataType.simpleString()
        found = _parsed(text)
        exact = call.type.identical and (call.type.family is not Family.DECIMAL
                                         or call.type.digits_known)  # fmt: skip
        if found != call.type if exact else found.family is not call.type.family:
            of = " and ".join(sample.sql for sample in samples)
            says = f"{sql_of(call)} of {of} is {call.type.family.name} {call.type.bits}"
            self.refute(call.function, says, f"{sql} -- is {text}")

    def clocks(self, chosen: Callable[[str], bool], count: int) -> None:
        """Whether a text is taken for a date or a timestamp by other functions, too."""
        others = ("x_day", "x_instant", "x_text", "x_int", "array(x_day)", "array(x_instant)")
        given = ", ".join(f"(SELECT x AS x_{n} FROM {self.pool(BY_NAME[n])} LIMIT 1)"
                          for n in ("day", "instant", "text", "int"))  # fmt: skip
        names = [name for name, row in FUNCTIONS.items() if chosen(name) and row.in_spark
                 and row.kind in (Kind.SCALAR, Kind.AGGREGATE) and name != "cast"]  # fmt: skip
        calls = [(name, [other] * place + ["array('today')" if "array" in other else "'today'"]
                  + [other] * (arity - place - 1), other)
                 for name in names for arity in (1, 2, 3) for place in range(arity)
                 for other in (others if arity > 1 else others[:1])]  # fmt: skip
        self.side_by_side(
            lambda call: self._clock(given, *call), self.rng.sample(calls, min(count, len(calls)))
        )

    def _clock(self, given: str, name: str, inner: list[str], other: str) -> None:
        text = f"{name}({', '.join(inner)})"
        if name in function_claims.INFIX and len(inner) == 2:
            text = f"({inner[0]} {name} {inner[1]})"
        elif not name[0].isalpha():
            return
        try:
            plan = self.spark.sql(f"SELECT {text} FROM {given}")._jdf.queryExecution().analyzed()
        except Exception:
            return
        self.tried(1, 1)
        row = FUNCTIONS[name]
        compared = row.compares and ("x_day" in other or "x_instant" in other)
        for kind in re.findall(
            r"cast\((?:array\()?today\)? as (?:array<)?(date|timestamp)\b", plan.toString()
        ):
            taken = [Family.TIMESTAMP] if kind == "timestamp" else [Family.DATE, Family.TIMESTAMP]
            if row.takes not in taken and not compared:
                says = f"{name} does not take a text for a {kind}"
                self.refute(name, says, f"SELECT {text} -- with {other}")

    def chance(self, chosen: Callable[[str], bool]) -> None:
        """Whether the examples of Spark's documentation give the same again, in another task, at
        another moment, and computed in another way."""
        texts = list(self._examples(chosen))
        self.tried(len(texts), 8 * len(texts))
        seen: dict[str, set[Any]] = {text: set() for _, text in texts}
        folding = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
        self.spark.conf.set("spark.sql.optimizer.excludedRules", f"{LOCALLY},{folding}")
        for mode in (MODES[0], MODES[2], MODES[0]):
            self.use(replace(mode, zone="UTC"))
            for start in range(0, len(texts), 40):
                self._evaluate([text for _, text in texts[start : start + 40]], seen)
        self.spark.conf.set("spark.sql.optimizer.excludedRules", LOCALLY)
        for name, text in texts:
            if len(seen[text]) > 1:
                shown = " or ".join(sorted(map(str, seen[text]))[:2])
                self.refute(name, f"{name} is determined by its arguments", f"{text} -- {shown}")

    def draws(self, chosen: Callable[[str], bool]) -> None:
        """Whether an aggregate gives the same again of the same rows in the same order."""
        self.spark.sql(
            "SELECT id * 7919 % 10007 AS n, CAST(id * 7919 % 10007 AS DOUBLE) AS d, "
            "CAST(id % 977 AS STRING) AS s FROM range(0, 20000, 1, 1)"
        ).localCheckpoint().createOrReplaceTempView("sequence")
        for name, row in FUNCTIONS.items():
            if row.kind is not Kind.AGGREGATE or row.chance or not chosen(name):
                continue
            if time.monotonic() > self.until:
                return
            for inner in ("n", "d", "s", "n, 0.3D", "n, 5", "s, n"):
                sql = f"SELECT CAST({name}({inner}) AS STRING) AS v FROM sequence"
                if self.understood(sql) is not None:
                    self.tried(1, 3)
                    if len({self.rows(sql)[0].v for _ in range(3)}) > 1:
                        self.refute(name, f"{name}({inner}) is determined by its rows", sql)
                    break

    def _evaluate(self, texts: Sequence[str], seen: dict[str, set[Any]]) -> None:
        columns = ", ".join(f"CAST({text} AS STRING)" for text in texts)
        try:
            for row in self.rows(f"SELECT {columns} FROM range(0, 4, 1, 4)"):
                for text, value in zip(texts, row, strict=True):
                    seen[text].add(value)
        except Exception as stopped:
            if len(texts) > 1:
                self._evaluate(texts[: len(texts) // 2], seen)
                self._evaluate(texts[len(texts) // 2 :], seen)
            else:
                self._stop(texts[0], stopped)

    def _examples(self, chosen: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """(function, expression) of what Spark shows of functions that are claimed determined."""
        for name, row in FUNCTIONS.items():
            if not (row.kind is Kind.SCALAR and row.in_spark and chosen(name)):
                continue
            if time.monotonic() > self.until:
                return
            quoted = f"`{name}`" if not name[0].isalpha() else name
            described = self.rows(f"DESCRIBE FUNCTION EXTENDED {quoted}")
            for text in re.findall(r"> SELECT (.*);", "\n".join(each[0] for each in described)):
                expression = f"SELECT CAST({text} AS STRING) FROM range(1)"
                plain = " FROM " not in text.upper() and "--" not in text
                plain = plain and not (row.clock and text == f"{name}()")
                if plain and self.understood(expression) is not None:
                    yield name, text

    def names(self) -> None:
        """Whether the registry has the functions that Spark has."""
        spark = {row[0] for row in self.rows("SHOW SYSTEM FUNCTIONS")}
        ours = {name for name, row in FUNCTIONS.items() if row.in_spark}
        self.tried(len(spark | ours), 0)
        for name in sorted(spark - ours):
            self.refute(name, "it is in the registry", f"DESCRIBE FUNCTION `{name}`")
        for name in sorted(ours - spark):
            self.refute(name, "Spark has it", f"DESCRIBE FUNCTION `{name}`")


LOCALLY: Final = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""The rule that computes with constants while a query is planned."""
BAD: Final = {
    Direction.UP: "@p > @v",
    Direction.DOWN: "@p < @v",
    Direction.COLLECTS: "size(array_except(@p, @v)) > 0",
}
"""That a result (`v`) is not where its direction says, after an earlier one (`p`)."""
WAYS: Final = tuple(BAD)


def _of_spark(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _parsed(text: str) -> Any:
    from annotations.whitebox.datatypes import parse_type

    return parse_type(text)[0]


def prove(
    spark: Any,
    *,
    seed: int = 0,
    only: str | None = None,
    seconds: float = float("inf"),
    samples: Sequence[Sample] = SAMPLES,
    modes: Sequence[Mode] = MODES,
    tell: Callable[[Refutation], None] = lambda _: None,
    quick: bool = False,
) -> Report:
    """Try the claims, or those of one function, or about values of some types.

    `quick` leaves out the types of results, clocks and chance.
    """
    until = time.monotonic() + seconds
    prover = Prover(spark, seed, until, tell)

    def chosen(name: str) -> bool:
        return only is None or name == only

    rowwise = [
        *function_claims.distinct_claims(),
        *function_claims.gain_claims(),
        *function_claims.value_claims(),
        *function_claims.time_claims(),
        *function_claims.direction_claims(),
    ]
    rowwise = [
        each
        for each in rowwise
        if chosen(each.function) and each.view.one in samples and each.view.other in samples
    ]
    grouped = [each for each in function_claims.aggregate_claims()
               if chosen(each.function) and each.sample in samples]  # fmt: skip
    prover.names()
    for at, mode in enumerate(modes):
        prover.use(mode)
        # Each claim in half of the modes: all of them would take long.
        prover.conditions(
            claim for n, claim in enumerate(rowwise) if len(modes) == 1 or (n + at) % 2 == 0
        )
        if at in (0, len(modes) - 1):
            prover.aggregates(grouped)
    if not quick:
        prover.use(MODES[0])
        prover.types(chosen, 1500)
        prover.use(MODES[3])
        prover.types(chosen, 500)
        prover.clocks(chosen, 2500)
        prover.chance(chosen)
        prover.draws(chosen)
    return prover.report


@contextmanager
def planted(name: str, **claims: object) -> Iterator[None]:
    """The registry with other claims about a function, for as long as this lasts."""
    before = FUNCTIONS[name]
    FUNCTIONS[name] = replace(before, **claims)  # type: ignore[arg-type]
    try:
        yield
    finally:
        FUNCTIONS[name] = before


def session() -> Any:
    """A Spark for many small queries."""
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").disabled = True
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.optimizer.maxIterations": "2",  # with one, `BETWEEN` is left as it is
        "spark.sql.optimizer.excludedRules": LOCALLY,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": tempfile.gettempdir() + "/warehouse",
    }
    builder = SparkSession.builder.master("local[2]").appName("functions")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _tell(found: Refutation) -> None:
    print(f"REFUTED {found.function}: {found.says}\n  {found.mode}\n  {found.sql}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one function")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--types", type=int, help="only about so many types, by the seed")
    options = parser.parse_args(arguments)
    spark = session()
    begun = time.monotonic()
    some = random.Random(options.seed).sample(SAMPLES, min(options.types or 99, len(SAMPLES)))
    try:
        report = prove(spark, seed=options.seed, only=options.only, seconds=options.seconds,
                       samples=some, tell=_tell)  # fmt: skip
    finally:
        spark.stop()
    print(
        f"{report.claims:,} claims, {report.cases:,} cases, {len(report.refuted)} refuted, "
        f"{len(set(report.stopped))} that Spark stops; {time.monotonic() - begun:.0f} s"
    )
    for says in sorted(set(report.broken)):
        print(f"NOT TRIED, an internal error of Spark: {says}")
    return 1 if report.refuted or report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
