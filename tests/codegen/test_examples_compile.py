"""The examples compile to what the specification's table of results says."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import load
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.explain import coordination
from codegen.model import Stages, Unit
from codegen.stages import stages

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def compiled(file: str, **variants: str) -> Stages:
    return stages(plan(analyze(load(EXAMPLES / file, variants=variants)[0])))


@pytest.mark.parametrize(
    ("file", "variant", "expected"),
    [
        ("wordcount/wordcount.yaml", None, {"Count.counts": "seal"}),
        ("wordcount/wordcount_unsealed.yaml", None, {"Count.counts": "order"}),
        ("ad_network/ad_network.yaml", "THRESH", {}),
        ("ad_network/ad_network.yaml", "CAMPAIGN", {"Report.response": "seal"}),
        ("ad_network/ad_network.yaml", "POOR", {"Report.response": "order"}),
        ("ad_network/ad_network.yaml", "WINDOW", {"Report.response": "order"}),
        ("ad_network/ad_network_hourly.yaml", None, {"Report.response": "seal"}),
    ],
)
def test_an_example_gets_the_coordination_that_it_needs(
    file: str, variant: str | None, expected: dict[str, str]
) -> None:
    job = compiled(file, **({"Report": variant} if variant else {}))
    found = {
        f"{unit.component}.{unit.output}": coordination(unit)
        for unit in job
        if isinstance(unit, Unit)
    }
    assert {name: kind for name, kind in found.items() if kind} == expected


NOT_COMPILED = {
    "ad_network.yaml": "has variants, tried above",
    "shop.yaml": "is imported without code",
    "ad_network_bloom.yaml": "rules are not executed",
    "carts.yaml": "rules are not executed",
    "carts_sealed.yaml": "rules are not executed",
}


def test_every_other_example_compiles() -> None:
    files = [file for file in EXAMPLES.glob("*/*.yaml") if file.name not in NOT_COMPILED]
    assert len(files) >= 5
    for file in files:
        assert compiled(str(file.relative_to(EXAMPLES))).stages
