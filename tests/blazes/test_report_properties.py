"""What reports claim of every dataflow, over random ones."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings

from annotations.dataflow import Dataflow
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import Plan, Strategy, plan
from blazes.document import html, markdown, terminal
from blazes.document.diagram import digraph, flowchart
from blazes.document.terminal import Layout
from blazes.report import sarif
from blazes.report.diagram import diagram_of
from blazes.report.document import analysis_document, component_document, plan_document
from blazes.report.findings import consequences, finding
from blazes.report.index import Index
from blazes.report.json_result import dumps, to_json
from blazes.report.result_schema import result_schema
from tests.strategies import dataflows, many_dataflows

pytestmark = pytest.mark.slow

SCHEMA = jsonschema.Draft7Validator(result_schema())


def plans(dataflow: Dataflow) -> list[Plan]:
    return [
        plan(analyze(dataflow, rules=rules), target=target)
        for rules in ("blazes", "icde14")
        for target in (Label.ASYNC, Label.RUN, Label.INST, Label.DIVERGE)
    ]


@settings(max_examples=40)
@given(dataflows())
def test_every_result_validates(dataflow: Dataflow) -> None:
    for each in plans(dataflow):
        SCHEMA.validate(to_json(each))


@pytest.mark.parametrize("seed", range(3))
def test_every_rendering_takes_every_dataflow(seed: int) -> None:
    for dataflow in many_dataflows(5, seed=seed):
        for each in plans(dataflow):
            document = analysis_document(each)
            for width in (30, 80):
                terminal.text(document, Layout(width=width))
            terminal.text(plan_document(each))
            for component in dataflow.components:
                terminal.text(component_document(each, component))
            markdown.page(document)
            html.page(document)
            flowchart(diagram_of(each))
            digraph(diagram_of(each))
            sarif.dumps(sarif.log(each))
            dumps(to_json(each))


def test_a_component_is_found_exactly_where_something_waits() -> None:
    for dataflow in many_dataflows(200, seed=1):
        each = plan(analyze(dataflow))
        found = set(Index.of(each).need_coordination())
        waiting = {e.component for e in each.entries if e.strategy is not Strategy.NONE}
        assert found == waiting


def test_every_finding_says_why_and_what_to_do() -> None:
    for dataflow in many_dataflows(200, seed=2):
        index = Index.of(plan(analyze(dataflow)))
        for name in index.need_coordination():
            found = finding(index, name)
            assert found.why
            assert found.does
            assert found.derivations
            assert found.paths


def test_every_anomaly_is_a_finding_or_a_consequence_or_passed_on() -> None:
    """An output above the target that is neither has it from its input, unchanged."""
    for dataflow in many_dataflows(200, seed=3):
        index = Index.of(plan(analyze(dataflow)))
        told = {(each.derivation.component, each.derivation.output) for each in consequences(index)}
        for name in index.need_coordination():
            told |= {(name, each.output) for each in finding(index, name).derivations}
        for derivation in index.plan.analysis.derivations:
            label = derivation.label.label
            if label <= Label.ASYNC or (derivation.component, derivation.output) in told:
                continue
            inputs = [step.input.label for step in derivation.steps]
            added = [label for step in derivation.steps for label in step.adds]
            assert max(inputs) == label or added


def test_the_parts_of_a_report_name_every_stream() -> None:
    for dataflow in many_dataflows(50, seed=4):
        report = terminal.text(analysis_document(plan(analyze(dataflow))))
        for stream in dataflow.streams:
            assert f" {stream} " in report
