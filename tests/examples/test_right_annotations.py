"""The annotations of the examples are not refuted, on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import load
from blazes.cli.verify import session
from blazes.verify.findings import Status
from blazes.verify.verify import Verifier

ROOT = Path(__file__).parents[2]
RIGHT = [
    ("examples/wordcount/wordcount.yaml", {}, {"Splitter", "Count"}),
    ("docs/tutorial/energy/2_sealed.yaml", {}, {"Clean", "Usage"}),
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
            report = Verifier(dataflow, spark, time_s=3600.0).report(components=tested, tries=6)
            assert not report.refuted, (name, [finding.claim.where for finding in report.refuted])
            stand = {
                finding.claim.operator.component
                for finding in report.findings
                if finding.claim.operator and finding.status is Status.STANDS
            }
            assert stand == tested, name
