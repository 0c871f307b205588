"""What reports claim of every dataflow, over random ones."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings

from annotations.dataflow import Dataflow
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import Plan, Strategy, plan
from blazes.report import dot, html, markdown, mermaid, sarif, terminal
from blazes.report.findings import consequences, finding
from blazes.report.index import Index
from blazes.report.json_result import dumps, to_json
from blazes.report.layout import Layout
from blazes.report.result_schema import result_schema
from tests.strategies import dataflows, many_dataflows

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
            for width in (30, 80):
                terminal.analysis_report(each, layout=Layout(width=width))
            terminal.plan_report(each)
            for component in dataflow.components:
                terminal.component_report(each, component)
            markdown.analysis_report(each)
            html.page(each)
            mermaid.diagram(each)
            dot.digraph(each)
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
        report = terminal.analysis_report(plan(analyze(dataflow)))
        for stream in dataflow.streams:
            assert f" {stream} " in report
