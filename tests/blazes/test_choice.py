"""Orders in place of seals, and no coordination at all, for comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.dataflow import Dataflow
from annotations.file import load
from annotations.vocabulary import Label
from blazes.choice import Coordination, coordinate
from blazes.coordination import Strategy
from codegen.explain import explain
from codegen.model import Flux, Seal, Unit
from codegen.stages import stages

FILE = Path(__file__).parents[2] / "examples" / "ad_network" / "ad_network.yaml"


@pytest.fixture(scope="module")
def dataflow() -> Dataflow:
    return load(FILE, variants={"Report": "CAMPAIGN"})[0]


@pytest.mark.parametrize(
    ("choice", "strategy", "verdict"),
    [
        (Coordination.LEAST, Strategy.SEAL, Label.ASYNC),
        (Coordination.ORDER, Strategy.ORDER, Label.ASYNC),
        (Coordination.NONE, Strategy.NONE, Label.DIVERGE),
    ],
)
def test_the_report_is_coordinated_as_asked(
    dataflow: Dataflow, choice: Coordination, strategy: Strategy, verdict: Label
) -> None:
    plan = coordinate(dataflow, choice)
    assert {entry.strategy for entry in plan.entries} == {strategy}
    assert plan.verdict is verdict


def test_one_file_becomes_three_jobs(dataflow: Dataflow) -> None:
    kinds: dict[Coordination, set[type]] = {}
    for choice in Coordination:
        job = stages(coordinate(dataflow, choice))
        of_report = [s for s in job if isinstance(s, Unit) and s.component == "Report"]
        kinds[choice] = {type(stage) for stage in of_report}
    assert kinds[Coordination.LEAST] == {Seal}
    assert kinds[Coordination.ORDER] == {Flux}
    assert len(kinds[Coordination.NONE] & {Seal, Flux}) == 0


def test_what_is_left_uncoordinated_is_said(dataflow: Dataflow) -> None:
    text = " ".join(explain(stages(coordinate(dataflow, Coordination.NONE))).split())
    assert (
        "compiled without the coordination of Report request->response: the results may be Diverge"
        in text
    )
    assert "compiled without" not in explain(stages(coordinate(dataflow)))
