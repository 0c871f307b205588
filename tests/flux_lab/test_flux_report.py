"""The report of a simulated run: true numbers, the same from the same seed, and its pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from rich.console import Console

from flux_lab import report
from flux_lab.papers.protocol.messages import Data
from flux_lab.pictures import failure, placed
from flux_lab.reaction import Machine
from flux_lab.scenario import (
    Counting,
    Fault,
    Outcome,
    Scenario,
    as_keys,
    configured,
    drawn,
    perform,
)
from flux_runtime.protocol.vocabulary import Node, ProtocolError

CRASH = Scenario(
    seconds=1.0, widths=(2, 2), sites=3, spares=1, interval=0.02, rows=4, keys=12, state=400_000,
    balance=False, faults=(Fault(at=0.51, kind="crash", site=0),),
)  # fmt: skip


def shown(outcome: Outcome) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(report.screen(outcome))
    return captured.get()


def test_what_the_report_says_of_a_crash_is_what_happened(tmp_path: Path) -> None:
    outcome = perform(CRASH)
    found = report.numbers(outcome)
    hosted = [n for n, site in outcome.timed.first.items() if site == 0]
    assert found["recovered"] == found["standbys"] == len(hosted) > 0
    assert (found["losses"], found["violation"], found["not_whole"]) == ([], "", 0)
    assert found["state_moved"] == len(hosted) * 200_000
    assert min(found["recovery_seconds"]) > 200_000 / CRASH.bandwidth
    assert found["longest_gap"] > 1.9 * CRASH.interval
    assert all(found["checked"][name] for _, name in report.VERDICTS)
    text = shown(outcome)
    assert all(words in text for words in ("seed 0", "0.51 s crash of site 0", "no violation"))
    names = {path.name for path in report.write(outcome, tmp_path)}
    assert names == {"over-time.svg", "placement.svg", "space-time.svg", "run.json", "run.yaml"}
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)
    assert json.loads((tmp_path / "run.json").read_text())["recovered"] == len(hosted)


def test_the_file_that_is_written_gives_the_same_run(tmp_path: Path) -> None:
    first = perform(CRASH)
    report.write(first, tmp_path)
    keys = yaml.safe_load((tmp_path / "run.yaml").read_text())
    again = perform(configured(keys))
    assert report.numbers(again) == report.numbers(first)
    assert again.timed.history == first.timed.history


def test_the_copies_that_died_with_their_site_come_back_elsewhere() -> None:
    outcome = perform(CRASH)
    for lane in placed(outcome).lanes:
        node = next(n for n in outcome.timed.first if str(n) == lane.name)
        stood = [stay.place for stay in lane.stays]
        if outcome.timed.first[node] == 0:
            assert stood[0] == 0
            assert 0 not in stood[1:]
            assert [stay.ready for stay in lane.stays] == [True, False, True]
        else:
            assert len(stood) == 1


def test_a_diagram_shows_take_over_before_the_state_and_markers_behind_it() -> None:
    outcome = perform(
        replace(CRASH, widths=(1, 1), faults=(Fault(at=0.5, kind="kill", copy="B0p"),))
    )
    diagram = failure(outcome.timed, title="t")
    assert diagram is not None
    sent = {arrow.name: arrow.sent for arrow in reversed(diagram.arrows)}
    order = ["fail", "reverse", "ready", "start", "pause", "pause-ack", "state, 0.4 MB", "csync 1"]
    assert sorted(order, key=lambda name: sent[name]) == order
    standby = next(held for held in diagram.lines if held.name == "B0p'1")
    assert standby.start == sent["fail"]
    assert standby.ready == pytest.approx(sent["csync 1"])
    assert [p.name for p in diagram.phases][:2] == ["not noticed yet", "take-over"]


def test_what_a_checker_finds_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuses(self: Counting, machine: Machine, src: Node, unit: Data) -> None:
        raise ProtocolError("lost before: planted")

    monkeypatch.setattr(Counting, "received", refuses)
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(as_keys(CRASH)))
    assert report.main(["--config", str(config), "--out", str(tmp_path / "out")]) == 1
    found = json.loads((tmp_path / "out" / "run.json").read_text())
    assert found["violation"] == "lost before: planted"


def test_a_configuration_with_a_mistake_names_it() -> None:
    with pytest.raises(ValueError, match="unknown keys: site;"):
        configured({"site": 3})
    with pytest.raises(ValueError, match="no such fault: burn"):
        configured({"faults": [{"at": 1.0, "kind": "burn"}]})
    with pytest.raises(ValueError, match="slow needs a `site`"):
        configured({"faults": [{"at": 1.0, "kind": "slow"}]})


def test_scenarios_from_a_seed_survive_the_way_through_a_file() -> None:
    for seed in range(40):
        scenario = drawn(seed)
        assert configured(yaml.safe_load(yaml.safe_dump(as_keys(scenario)))) == scenario
