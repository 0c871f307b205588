"""The search for refutations, on DuckDB alone."""

from __future__ import annotations

import random

import pytest

from annotations.file import loads
from blazes.analysis import analyze
from blazes.verify import duckdb_engine
from blazes.verify.claims import Kind, claims_of
from blazes.verify.constants import constants_of
from blazes.verify.findings import Status
from blazes.verify.operators import operators_of
from blazes.verify.search import Search
from blazes.verify.values import Generator
from codegen.duckdb_sql import parsed, refusals
from tests.blazes.verify.searching import searched

pytestmark = pytest.mark.slow

COUNT = "SELECT k, g, count(*) AS n FROM rows GROUP BY k, g"
TEXT = """
name: t
components:
  C:
    annotation: {{from: rows, to: out, label: "{label}"}}
    sql: {sql}
streams:
  rows: {{to: C.rows, schema: {{k: INT, g: STRING, v: DOUBLE}}}}
  out: {{from: C.out}}
"""


def refuted_in(text: str) -> set[Kind]:
    """The kinds of claims of a file that are refuted, each by at most a dozen records."""
    dataflow, _ = loads(text)
    engine = duckdb_engine.DuckDBEngine()
    operators, reasons, _ = operators_of(dataflow, engine.schema)
    assert not reasons
    (operator,) = operators.values()
    assert duckdb_engine.refusal(operator) is None
    found = set()
    for claim in claims_of(operator, analyze(dataflow)):
        if claim.kind is Kind.FUNCTION:
            continue
        generator = Generator(operator, constants_of(operator))
        search = Search(claim, generator, engine, engine, random.Random(1), tries_max=150)
        finding = searched(search, seconds=300)
        if finding.status is Status.REFUTED:
            assert finding.refutation is not None
            assert finding.refutation.case.records <= 12
            found.add(claim.kind)
    return found


@pytest.mark.parametrize(
    ("label", "sql", "kinds"),
    [
        ("OW[k, g]", COUNT, set()),
        ("OW[k]", COUNT, set()),
        ("CW", COUNT, {Kind.CONFLUENT}),
        ("CR", COUNT, {Kind.CONFLUENT, Kind.READ_ONLY}),
        ("OR[k, g]", COUNT, {Kind.READ_ONLY}),
        ("OW[k, g]", "SELECT k, count(*) AS n FROM rows GROUP BY k", {Kind.GATE}),
        ("OW[k]", "SELECT k, first(g) AS g FROM rows GROUP BY k", {Kind.SET}),
        ("OW[k]", "SELECT k, sum(v) AS s FROM rows GROUP BY k", {Kind.SET}),
        # Of `*` nothing is said: neither that partitions are apart nor that order does not matter.
        ("OW[*]", "SELECT k, first(g) AS g FROM rows GROUP BY k", set()),
        ("OW[*]", "SELECT first(g) AS g FROM rows", set()),
        ("OR[*]", "SELECT k, first(g) AS g FROM rows GROUP BY k", {Kind.READ_ONLY}),
        # Partitions meet, and inside of each nothing depends on the order.
        ("OW[k]", "SELECT g, first(k) AS k FROM rows GROUP BY g", {Kind.GATE}),
        ("CW", "SELECT k FROM rows GROUP BY k HAVING count(*) > 3", set()),
        ("CR", "SELECT k, g FROM rows WHERE k > 0", set()),
    ],
)
def test_wrong_labels_are_refuted_and_right_ones_are_not(
    label: str, sql: str, kinds: set[Kind]
) -> None:
    assert refuted_in(TEXT.format(label=label, sql=sql)) == kinds


ASKED = """
name: t
components:
  C:
    annotation:
      - {{from: rows, to: out, label: {writes}}}
      - {{from: ask, to: out, label: "OR[k]"{within}}}
    sql: SELECT ask.k, {answer} AS answer FROM ask JOIN rows ON ask.k = rows.k GROUP BY ask.k
streams:
  rows: {{to: C.rows, schema: {{k: INT, g: STRING}}}}
  ask: {{to: C.ask, schema: {{k: INT}}}}
  out: {{from: C.out}}
"""


@pytest.mark.parametrize(
    ("writes", "within", "answer", "kinds"),
    [
        ("CW", "", "first(rows.g)", {Kind.SET}),
        ("CW", ", within: set", "first(rows.g)", {Kind.SET}),
        ("CW", ", within: sequence", "first(rows.g)", set()),
        ("CW", "", "min(rows.g)", set()),
        ('"OW[k]", within: sequence', "", "first(rows.g)", set()),
        ('"OW[*]"', "", "first(rows.g)", set()),
    ],
)
def test_a_reader_speaks_of_the_order_of_what_it_reads(
    writes: str, within: str, answer: str, kinds: set[Kind]
) -> None:
    text = ASKED.format(writes=writes, within=within, answer=answer)
    assert refuted_in(text) - {Kind.READ_ONLY, Kind.CONFLUENT} == kinds


def test_what_is_not_known_to_mean_the_same_is_refused() -> None:
    for sql in ("SELECT uuid() AS k FROM rows", "SELECT k / v AS q FROM rows"):
        assert next(refusals(parsed(sql)), None)
