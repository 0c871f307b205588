"""Wrong annotations planted in the examples are refuted, on real Spark, by a few records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from annotations.yaml_file import loads
from blazes.cli.verify import session
from blazes.verify.verify import Verifier

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


@pytest.mark.spark
@pytest.mark.slow
def test_planted_mistakes_are_refuted_by_a_dozen_records() -> None:
    with session() as spark:
        for name, component, right, wrong in PLANTED:
            text = (ROOT / name).read_text(encoding="utf-8")
            assert right in text
            variants = {"Report": "POOR"} if name == ADS else {}
            dataflow, _ = loads(text.replace(right, wrong, 1), file=name, variants=variants)
            verifier = Verifier(replace(dataflow, file=ROOT / name), spark)
            report = verifier.report(components=[component], tries=100, time_s=60.0)
            assert report.refuted, (name, wrong)
            for finding in report.refuted:
                assert finding.refutation is not None
                assert finding.refutation.case.records <= 12
