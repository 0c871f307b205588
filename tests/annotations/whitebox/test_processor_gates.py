"""A StatefulProcessor is order-sensitive key by key, unless it is told the time of all records."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import load

FLOW = """
components:
  Total: {{processor: {{class: "totals:Total", key: [shop, day]{time}}}, availability: pairs}}
streams:
  sales:
    to: Total.sales
    schema: {{shop: STRING, day: DATE, cents: BIGINT, at: TIMESTAMP}}
    source: {{format: json, path: data}}
  totals: {{from: Total.totals, schema: {{shop: STRING, cents: BIGINT}}}}
"""


@pytest.mark.parametrize(
    ("time", "label"),
    [
        ("", "OW[day,shop]"),
        (", time: none", "OW[day,shop]"),
        (", time: processing", "OW[*]"),
        (", time: {event: at, delay: 5 minutes}", "OW[*]"),
    ],
)
def test_the_gate_is_the_key_without_a_time(tmp_path: Path, time: str, label: str) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.format(time=time))
    dataflow, warnings = load(file)
    (path,) = dataflow.components["Total"].paths
    assert str(path.annotation) == label
    assert path.lineage == {}
    assert not warnings
    processor = dataflow.components["Total"].implementations["totals"].processor
    assert processor is not None
    assert processor.key == ("shop", "day")
    assert (processor.event_time, processor.delay_s) == (("at", 300) if "at" in time else (None, 0))
