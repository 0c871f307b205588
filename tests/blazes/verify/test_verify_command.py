"""`blazes verify`: what it prints and its exit status, for right and for wrong annotations."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from annotations.file import load, loads
from annotations.vocabulary import FunctionalDependency
from blazes.analysis import analyze
from blazes.cli import main
from blazes.cli.verify import session
from blazes.document.terminal import Layout
from blazes.document.terminal import text as text_of
from blazes.verify import duckdb_engine
from blazes.verify.claims import Claim, Kind, claims_of
from blazes.verify.constants import constants_of
from blazes.verify.findings import Finding, Report, Result, Status, to_json
from blazes.verify.operators import Operator, operators_of
from blazes.verify.records import Evaluated, Inputs
from blazes.verify.search import Search
from blazes.verify.show import document
from blazes.verify.spark import OutOfTime
from blazes.verify.values import Generator
from blazes.verify.verify import Verifier, take
from blazes.verify.weights import Weight, weights_of
from tests.blazes.verify.searching import searched

SETTLEMENT = Path(__file__).parents[3] / "examples/settlement/settlement.yaml"
TEXT = """
name: totals
components:
  Total:
    annotation: {from: charges, to: totals, label: "OW[invoice]"}
    sql: SELECT invoice, sum(cents) AS cents FROM charges GROUP BY invoice
streams:
  charges: {to: Total.charges, schema: {invoice: STRING, shop: INT, cents: BIGINT}}
  totals: {from: Total.totals}
fds: ["invoice -> shop"]
"""
WRONG = TEXT.replace("OW[invoice]", "OW[invoice, shop]").replace('fds: ["invoice -> shop"]\n', "")
"""The partitions of the gate are finer than the groups of the query."""
ANYTHING = """
name: any
components:
  Any:
    annotation: {from: rows, to: out, label: "OW[*]", within: set}
    sql: SELECT k, first(v) AS v FROM rows GROUP BY k
streams:
  rows: {to: Any.rows, schema: {k: INT, v: INT}}
  out: {from: Any.out}
"""
"""The order matters, and nobody says that it does not."""


@pytest.fixture(scope="module")
def report() -> Report:
    """The verdicts on WRONG with DuckDB as its own judge; that it is a function is not tried."""
    dataflow, _ = loads(WRONG, file="totals.yaml")
    engine = duckdb_engine.DuckDBEngine()
    operators, _, _ = operators_of(dataflow, engine.schema)
    findings = []
    for operator in operators.values():
        for claim in claims_of(operator, analyze(dataflow)):
            if claim.kind is Kind.FUNCTION:
                findings.append(Finding(claim, Status.UNTESTED, reason="nobody tried"))
                continue
            generator = Generator(operator, constants_of(operator))
            search = Search(claim, generator, engine, engine, random.Random(1), tries_max=40)
            findings.append(searched(search, seconds=60))
    return Report(dataflow, tuple(findings), ("A note.",), 1, 2.0)


def test_a_refutation_shows_the_smallest_input_and_both_outcomes(report: Report) -> None:
    (finding,) = report.refuted
    assert finding.refutation is not None
    assert finding.refutation.case.records == 2
    text = text_of(document(report), Layout(width=100))
    assert "✗ 1 refuted  3 claims: 1 refuted, 1 not refuted, 1 not tested." in text
    assert "Not refuted is not proved" in text
    told = text.partition("── Total: charges → totals ──")[2]
    assert "totals.yaml:5:17" in told
    wanted = [
        "Claim    OW[invoice,shop]: keeps gate partitions apart",
        "Refuted  Together the partitions emit something else than each by itself.",
        "charges  invoice  shop  cents",
        "1           'a'      1     1",
        "2           'a'      2     1",
        "2 records, found by DuckDB",
        "partitions together    each by itself",
        "records 1 2            records 1, then 2",
        "invoice 'a', cents 2   invoice 'a', cents 1",
        "Instead  Use a coarser gate",
    ]
    squeezed = [" ".join(line.split()) for line in told.splitlines()]
    for line in wanted:
        assert any(" ".join(line.split()) in each for each in squeezed), (line, told)


def test_a_key_that_the_output_lacks_is_no_claim() -> None:
    dataflow, _ = load(SETTLEMENT)
    operators, _, _ = operators_of(dataflow, lambda _: {})
    copies = {
        operator.component: claim.copies
        for operator in operators.values()
        for claim in claims_of(operator, analyze(dataflow))
        if claim.kind is Kind.KEY
    }
    assert {("day", "day"), ("merchant", "merchant")} < {*copies["Pricing"]}
    assert copies["Alert"] == (("card", "card"), ("day", "day"))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int) -> None:
    lines = text_of(document(report), Layout(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    ascii_only = text_of(document(report), Layout(width=width, unicode=False))
    assert ascii_only.isascii()


def test_json_says_what_the_text_says(report: Report) -> None:
    found = json.loads(json.dumps(to_json(report)))
    assert found["counts"] == {
        "refuted": 1,
        "not refuted": 1,
        "not tested": 1,
        "nothing to test": 0,
    }
    verdicts = {each["kind"]: each for each in found["findings"]}
    assert verdicts["set"]["verdict"] == "not refuted"
    assert verdicts["set"]["tries"] >= 40
    assert verdicts["set"]["tried"] == "in another order"
    assert found["result"] == "refuted"
    assert verdicts["function"]["reason"] == "nobody tried"
    gate = verdicts["gate"]
    assert gate["position"] == "totals.yaml:5:17"
    evidence = gate["refutation"]
    assert [each["values"]["shop"] for each in evidence["records"]] == [1, 2]
    assert evidence["ways"] == [[[1, 2]], [[1], [2]]]
    assert evidence["only_first"] == [{"invoice": "a", "cents": 2}]
    assert evidence["only_second"] == [{"invoice": "a", "cents": 1}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Totl"], "has no component 'Totl'; did you mean Total?"),
        (["--tries", "0"], "'0' is not a number from 1"),
    ],
)
def test_bad_usage_is_refused_before_anything_starts(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "totals.yaml"
    file.write_text(TEXT, encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-m", "blazes", "verify", str(file), *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert finished.returncode == 2
    assert said in " ".join(finished.stderr.split())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status", "result"),
    [
        (TEXT.partition("fds:")[0], 0, "not refuted"),
        (TEXT, 3, "inconclusive"),  # there are no data that the dependency could be held against
        (WRONG, 1, "refuted"),
        (ANYTHING, 0, "not refuted"),
    ],
)
def test_the_exit_status_says_what_became_of_the_claims(
    text: str, status: int, result: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "totals.yaml"
    file.write_text(text, encoding="utf-8")
    arguments = ["verify", str(file), "--tries", "20", "--time", "120", "--format", "json"]
    assert main(arguments) == status
    found = json.loads(capsys.readouterr().out)
    assert found["result"] == result
    for each in found["findings"]:
        if each["verdict"] == "nothing to test":
            assert (text, each["claim"]) == (ANYTHING, "OW[*]: no gate is known")
        elif each["kind"] != "fd":
            assert each["verdict"] == "refuted" or each["tries"] > 0
        if each["refutation"]:
            assert each["refutation"]["confirmed_by"] == "Spark"


TOO_LATE = "the time was over before an input was found that it puts anything out for"


class Limited(duckdb_engine.DuckDBEngine):
    """DuckDB, whose time is over after so many jobs."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.jobs = jobs

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        if not self.jobs:
            raise OutOfTime
        self.jobs -= 1
        return super().evaluate(operator, many)


@pytest.mark.parametrize(
    ("jobs", "status", "reason"),
    [(3, Status.STANDS, ""), (0, Status.UNTESTED, TOO_LATE)],
)
def test_what_was_tried_before_the_time_was_over_counts(
    jobs: int, status: Status, reason: str
) -> None:
    found = finding_of(TEXT, Kind.GATE, Limited(jobs))
    assert (found.status, found.reason) == (status, reason)
    assert found.tries > 0 or not jobs


def test_a_gate_too_fine_for_the_first_five_of_a_group_is_refuted() -> None:
    """Several records of a group are needed: as many as the code's own limit says."""
    text = (
        TEXT.replace(
            "SELECT invoice, sum(cents) AS cents FROM charges GROUP BY invoice",
            "SELECT invoice, cents FROM (SELECT invoice, cents, row_number() OVER"
            " (PARTITION BY invoice ORDER BY cents) AS place FROM charges) WHERE place <= 5",
        )
        .replace("OW[invoice]", "OW[invoice, shop]")
        .replace('fds: ["invoice -> shop"]\n', "")
    )
    found = finding_of(text, Kind.GATE, duckdb_engine.DuckDBEngine())
    assert found.refutation is not None
    assert found.refutation.case.records == 6


@pytest.mark.parametrize(
    ("key", "status"),
    [("upper(invoice)", Status.REFUTED), ("concat(invoice, '!')", Status.STANDS)],
)
def test_the_column_below_an_expression_is_a_gate_only_where_it_keeps_values_apart(
    key: str, status: Status
) -> None:
    """Invoices `a` and `A` are one group: sealed one by one, each would be counted alone."""
    query = f"SELECT {key} AS invoice, sum(cents) AS cents FROM charges GROUP BY {key}"
    text = TEXT.replace("SELECT invoice, sum(cents) AS cents FROM charges GROUP BY invoice", query)
    assert query in text
    assert finding_of(text, Kind.GATE, duckdb_engine.DuckDBEngine()).status is status


def finding_of(text: str, kind: Kind, engine: duckdb_engine.DuckDBEngine) -> Finding:
    """The verdict on the claim of this kind, with DuckDB as its own judge."""
    dataflow, _ = loads(text, file="totals.yaml")
    operators, _, _ = operators_of(dataflow, duckdb_engine.DuckDBEngine().schema)
    claims = [c for o in operators.values() for c in claims_of(o, analyze(dataflow))]
    (claim,) = (each for each in claims if each.kind is kind)
    assert claim.operator is not None
    generator = Generator(claim.operator, constants_of(claim.operator), dataflow.fds)
    return searched(Search(claim, generator, engine, engine, random.Random(1)), seconds=60)


# ---- turns


@dataclass
class Counted:
    """A claim that counts its turns, out of a number of steps that all share."""

    name: str
    precedence: tuple[Weight, bool]
    left: list[None]
    steps: int = 0
    over_after: int = 1_000_000

    @property
    def claim(self) -> Claim:
        dependency = FunctionalDependency(frozenset({self.name}), frozenset({"x"}))
        return Claim(Kind.FD, None, fd=dependency)

    @property
    def over(self) -> bool:
        return self.steps >= self.over_after

    def step(self) -> None:
        if not self.left:
            raise OutOfTime
        self.left.pop()
        self.steps += 1

    def settle(self) -> None:
        """Nothing is open."""

    def finding(self) -> Finding:
        return Finding(self.claim, Status.STANDS, self.steps)


@pytest.mark.parametrize("steps", [0, 1, 5, 12, 40])
def test_every_claim_has_its_turn_before_any_has_another(steps: int) -> None:
    """However many steps there are; and those first on which most rests."""
    left: list[None] = [None] * steps
    turns = [
        Counted("seldom", (Weight.NOTHING, False), left),
        Counted("short", (Weight.PLAN, False), left, over_after=2),
        Counted("slow", (Weight.VERDICT, True), left),
        Counted("fast", (Weight.VERDICT, False), left),
    ]
    told: list[str] = []
    take(
        turns,
        until=float("inf"),
        progress=lambda where, done, of: told.append(where[0:2]),
        share_s=0,
    )
    most = [turn.steps for turn in turns if turn.name != "short"]
    assert max(most) - min(most) <= 1
    assert sum(turn.steps for turn in turns) == steps
    assert told[:4] == ["fa", "sl", "sh", "se"][: steps + 1]
    if steps == 40:
        assert turns[1].steps == 2


THREE = """
name: shop
components:
  Parse: {annotation: {from: raw, to: orders, label: CR}, sql: SELECT * FROM raw}
  Count:
    annotation: {from: orders, to: counts, label: "OW[id]"}
    sql: SELECT id, count(*) AS n FROM orders GROUP BY id
  Copy: {annotation: {from: raw, to: copies, label: CR}, sql: SELECT * FROM raw}
  Late: {annotation: {from: counts, to: told, label: CW}, sql: SELECT DISTINCT id FROM counts}
streams:
  raw: {to: Parse.raw, schema: {id: INT}}
  more: {to: Copy.raw, schema: {id: INT}}
  orders: {from: Parse.orders, to: Count.orders}
  counts: {from: Count.counts, to: Late.counts}
  told: {from: Late.told}
  copies: {from: Copy.copies}
fds: ["id -> id"]
"""


def test_what_rests_on_a_claim_is_what_changes_when_it_falls() -> None:
    """An order-sensitive path; then confluent ones, which would need coordination of their own."""
    weights = by_component(THREE)
    assert weights["Count", Kind.GATE] is Weight.VERDICT
    assert weights["Copy", Kind.CONFLUENT] is Weight.PLAN
    assert weights["", Kind.FD] is Weight.NOTHING
    alone = THREE.replace("OW[id]", "CW").replace("count(*) AS n", "1 AS n")
    assert by_component(alone)["Copy", Kind.CONFLUENT] is Weight.VERDICT


def by_component(text: str) -> dict[tuple[str, Kind], Weight]:
    """(component, kind) of each claim -> what rests on it."""
    dataflow, _ = loads(text)
    weight = weights_of(dataflow)
    operators, _, _ = operators_of(dataflow, duckdb_engine.DuckDBEngine().schema)
    claims = [c for o in operators.values() for c in claims_of(o, analyze(dataflow))]
    claims += [Claim(Kind.FD, None, fd=fd) for fd in dataflow.fds]
    return {(c.operator.component if c.operator else "", c.kind): weight(c) for c in claims}


def test_claims_that_nobody_tested_are_no_success(report: Report) -> None:
    """One that was not refuted says how often it was tried, and how."""
    claims = [replace(each, status=Status.STANDS, tries=4) for each in report.findings]
    passed = replace(report, findings=tuple(claims))
    assert passed.result is Result.STANDS
    assert "✓ none refuted" in text_of(document(passed), Layout(width=120))
    assert "4 tries, partition by partition (DuckDB)" in text_of(
        document(passed), Layout(width=120)
    )
    claims[1] = replace(claims[1], status=Status.UNTESTED, weight=Weight.VERDICT, tries=0)
    left = replace(report, findings=tuple(claims))
    assert left.result is Result.INCONCLUSIVE
    text = " ".join(text_of(document(left), Layout(width=120)).split())
    assert "? inconclusive 3 claims: 0 refuted, 2 not refuted, 1 not tested." in text
    assert "the verdict of the analysis rests on 1 of them" in text


@pytest.mark.spark
@pytest.mark.slow
def test_every_claim_is_tried_and_the_order_sensitive_component_first(tmp_path: Path) -> None:
    """Also where the time would do for the first components alone."""
    (tmp_path / "flow.yaml").write_text(THREE.replace('fds: ["id -> id"]', ""), encoding="utf-8")
    dataflow, _ = load(tmp_path / "flow.yaml")
    began: list[str] = []
    with session() as spark:
        verifier = Verifier(dataflow, spark, time_s=120.0)
        found = verifier.report(tries=20, progress=lambda where, *_: began.append(where))
    assert began[0].startswith("Count")
    assert found.result is Result.STANDS
    assert all(finding.tries for finding in found.findings)
