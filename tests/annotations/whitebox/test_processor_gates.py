"""A StatefulProcessor is order-sensitive key by key, unless it is told the time of all records."""

from __future__ import annotations

from itertools import product
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


PROCESSOR = """
import random
import time
from datetime import datetime as clock
import requests
from pyspark.sql.streaming import StatefulProcessor

SEEN = {{}}

def draw(row):
    return random.random()

class Base(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "cents BIGINT")
        self.days = handle.getListState("days", "day DATE")
        self.last = None
        self.cache = []

    def handleExpiredTimer(self, key, timers, expired):
        {timer}
        yield from ()

class Total(Base):
    def handleInputRows(self, key, rows, timers):
        for row in rows:
            {row}
            self.total.update((row.cents,))
            self.days.clear()
        yield from ()

def made():
    return Total()
"""
CHANCE = [
    "time.time()", "clock.now()", "draw(row)", "random.Random().random()",
    "requests.get('http://rates')",
]  # fmt: skip
KEPT = [
    "self.last = row", "self.jitter = random.randint(0, 3)", "self.cache.append(row)",
    "SEEN[key] = row", "SEEN.update({key: row})",
]  # fmt: skip
HARMLESS = ["pass", "local = []; local.append(1)", "clock(2020, 1, 1)", "self.days.appendValue(1)"]


@pytest.mark.parametrize(
    ("line", "place", "maker"),
    [*product([*CHANCE, *KEPT, *HARMLESS], ["row", "timer"], ["Total", "made"])],
)
def test_the_text_of_a_processor_is_looked_at(
    tmp_path: Path, line: str, place: str, maker: str
) -> None:
    lines = {"row": "pass", "timer": "pass"} | {place: line.replace("row", "key", place == "timer")}
    (tmp_path / "totals.py").write_text(PROCESSOR.format(**lines))
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.format(time="").replace("totals:Total", f"totals:{maker}"))
    dataflow, _ = load(file)
    (path,) = dataflow.components["Total"].paths
    assert (path.nondeterministic is None) == (line in HARMLESS)
    assert str(path.annotation) == ("OW[*]" if line in KEPT else "OW[day,shop]")
