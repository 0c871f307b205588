"""Wrong annotations planted in the examples are refuted by a few records.

On DuckDB alone by default; on real Spark, with the data of the examples, in a slow test.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from annotations.dataflow import Dataflow
from annotations.file import load, loads
from blazes.analysis import analyze
from blazes.cli.verify import session
from blazes.verify import duckdb_engine
from blazes.verify.claims import Kind, claims_of
from blazes.verify.constants import constants_of
from blazes.verify.findings import Refutation, Status
from blazes.verify.operators import Operator, Schema, Unknown, operators_of
from blazes.verify.search import Search
from blazes.verify.values import Generator
from blazes.verify.verify import Verifier
from tests.blazes.verify.searching import searched

ROOT = Path(__file__).parents[2]
COUNT, ADS = "examples/wordcount/wordcount.yaml", "examples/ad_network/ad_network.yaml"
ENERGY = "docs/tutorial/energy/2_sealed.yaml"
POOR = "label: OR, subscript: [id]}"
GROUPED = "SELECT batch, word, count(*) AS frequency FROM words GROUP BY batch, word"
MIXED = "SELECT max(batch) AS batch, word, count(*) AS frequency FROM words GROUP BY word"
VALID = "SELECT site, hour, meter, wh FROM readings WHERE wh >= 0"
TOTALS = "SELECT site, hour, max(meter) AS meter, sum(wh) AS wh FROM readings GROUP BY site, hour"
PLANTED = [
    (COUNT, "Count", 'label: "OW[word, batch]"', "label: CW"),
    (COUNT, "Count", 'label: "OW[word, batch]"', 'label: "OR[word, batch]"'),
    (COUNT, "Count", GROUPED, MIXED),
    (ADS, "Report", POOR, "label: OR, subscript: [id, campaign]}"),
    (COUNT, "Splitter", "label: CR}", "label: CR, lineage: {batch: batch, word: text}}"),
    (ADS, "Cache", "from: response, to: response, label: CW",
     "from: response, to: response, label: CR"),
    (ENERGY, "Usage", 'label: "OW[site, hour]"', "label: CW"),
    (ENERGY, "Usage", 'label: "OW[site, hour]"', 'label: "OR[site, hour]"'),
    (ENERGY, "Usage", 'label: "OW[site, hour]"', 'label: "OW[site, hour, meter]"'),
    (ENERGY, "Clean", VALID, TOTALS),
]  # fmt: skip
IN_PYTHON = (
    "examples/settlement/settlement.yaml",
    "Limit",
    'label: "OW[card, day]"\n      within',
    'label: "OW[card, day, merchant]"\n      within',
)
"""A mistake in a Python component, which Spark alone can run."""


def planted(name: str, right: str, wrong: str) -> Dataflow:
    """An example with a mistake in it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert right in text
    variants = {"Report": "POOR"} if name == ADS else {}
    dataflow, _ = loads(text.replace(right, wrong, 1), file=name, variants=variants)
    return replace(dataflow, file=ROOT / name)


def first_refutation(dataflow: Dataflow, component: str) -> Refutation | None:
    """What DuckDB, its own judge, finds first against a component."""
    engine = duckdb_engine.DuckDBEngine()

    def schema(operator: Operator) -> Schema:
        if refused := duckdb_engine.refusal(operator):
            raise Unknown(refused)
        return engine.schema(operator)

    operators, _, _ = operators_of(dataflow, schema)
    for operator in operators.values():
        for claim in claims_of(operator, analyze(dataflow)):
            if operator.component != component or claim.kind is Kind.FUNCTION:
                continue
            generator = Generator(operator, constants_of(operator), dataflow.fds)
            search = Search(claim, generator, engine, engine, random.Random(1), tries_max=60)
            found = searched(search, seconds=120)
            if found.refutation is not None:
                return found.refutation
    return None


@pytest.mark.parametrize(
    ("name", "component", "right", "wrong"),
    [pytest.param(*each, marks=pytest.mark.slow if each[0] == ADS else ()) for each in PLANTED],
)
def test_a_planted_mistake_is_refuted(name: str, component: str, right: str, wrong: str) -> None:
    refutation = first_refutation(planted(name, right, wrong), component)
    assert refutation is not None
    assert refutation.case.records <= 12


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_planted_mistakes_are_refuted_by_a_dozen_records() -> None:
    with session() as spark:
        for name, component, right, wrong in (PLANTED[0], PLANTED[4], IN_PYTHON):
            verifier = Verifier(planted(name, right, wrong), spark, time_s=1800.0)
            report = verifier.report(components=[component], tries=100)
            assert report.refuted, (name, wrong)
            for finding in report.refuted:
                assert finding.refutation is not None
                assert finding.refutation.case.records <= 12


RIGHT = [
    ("examples/ad_network/ad_network.yaml", {"Report": "CAMPAIGN"}, {"Report", "Cache"}),
    ("examples/settlement/settlement.yaml", {}, {"Risk", "Alert", "Settlement", "Reconcile"}),
]
"""File, variants, and components each of which has claims that can be tested."""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_right_annotations_are_not_refuted() -> None:
    with session() as spark:
        for name, variants, tested in RIGHT:
            dataflow, _ = load(ROOT / name, variants=variants)
            report = Verifier(dataflow, spark, time_s=3600.0).report(components=tested, tries=1)
            assert not report.refuted, (name, [finding.claim.where for finding in report.refuted])
            stand = {
                finding.claim.operator.component
                for finding in report.findings
                if finding.claim.operator and finding.status is Status.STANDS
            }
            assert stand == tested, name
