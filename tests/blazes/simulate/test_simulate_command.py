"""`blazes simulate`: what it prints, its exit status, and witnesses that are kept and run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from annotations.file import load, loads
from annotations.vocabulary import Label
from blazes.cli import main
from blazes.simulate import repro
from blazes.simulate.simulation import Simulation

ROOT = Path(__file__).parents[3]
COUNT = ROOT / "examples/wordcount/wordcount_unsealed.yaml"
SEALED = ROOT / "examples/wordcount/wordcount.yaml"
FIRST = """
name: first
components:
  Pick:
    annotation: {from: rows, to: out, label: CW}
    sql: SELECT max(k) AS k FROM rows
streams:
  rows: {to: Pick.rows, schema: {k: INT}}
  out: {from: Pick.out, schema: {k: INT}}
"""
"""A maximum is called confluent, and is not: what it emits depends on the batches."""


def blazes(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `blazes simulate`."""
    status = main(["simulate", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_predicted_anomaly_is_told_as_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = blazes(capsys, COUNT, "--inputs", 6)
    assert status == 0
    assert "as planned" in out
    told = out.partition("Run at counts")[2]
    assert "Another schedule of the same input gives other records." in told
    once, _, twice = told.partition("Run 2")
    assert "Count has sent: {batch 1, word 'a', frequency 2}" in once
    assert twice.count("Count receives words {batch 1, word 'a'}") == 2
    assert "What was not seen is not excluded." in out


def test_json_says_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = blazes(capsys, COUNT, "--inputs", 6, "--format", "json")
    assert status == 0
    found = json.loads(out)
    assert found["dataflow"] == "wordcount-unsealed"
    assert set(found["engines"].values()) == {"DuckDB"}
    assert found["uncoordinated"]["inputs"] == found["planned"]["inputs"] == 6
    assert found["streams"]["words"] == {"label": "Async", "planned": "Async", "seen": {}}
    counts = found["streams"]["counts"]
    assert counts["label"] == "Run"
    assert counts["planned"] == "Async"
    assert counts["seen"]["Run"] > 0
    assert not found["unexpected"]
    assert {each["stream"] for each in found["witnesses"]} == {"counts", "db"}


def test_a_sealed_word_count_never_differs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = blazes(capsys, SEALED, "--inputs", 4, "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert found["planned"]["schedules"] > 0
    assert not found["unexpected"]


def test_ids_guarantees_and_memory_change_no_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = SEALED.read_text(encoding="utf-8")
    keys = "id: [user, text]\n    delivery: may-repeat\n    remember: 7 days\n    seal: [batch]"
    results = []
    for text in (plain, plain.replace("seal: [batch]", keys)):
        file = tmp_path / "wordcount.yaml"
        file.write_text(text, encoding="utf-8")
        assert loads(text)[0].streams["tweets"].id == (("user", "text") if results else ())
        status, out, _ = blazes(capsys, file, "--inputs", 3, "--seed", 5, "--format", "json")
        assert status == 0
        results.append({**json.loads(out), "seconds": None})
    assert results[0] == results[1]


def test_what_exceeds_its_label_is_written_and_shown_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "first.yaml"
    file.write_text(FIRST, encoding="utf-8")
    status, out, _ = blazes(capsys, file, "--inputs", 10)
    assert status == 1
    assert "Something worse than its label was seen." in out
    kept = tmp_path / "blazes-simulate-first-1.json"
    assert f"written to {kept.name}" in out

    status, again, _ = blazes(capsys, file, "--replay", kept.name)
    assert status == 0
    assert again.strip() in out

    file.write_text(FIRST.replace("max(k)", "1"), encoding="utf-8")
    status, mended, _ = blazes(capsys, file, "--replay", kept.name)
    assert status == 1
    assert "This run no longer shows the anomaly" in mended


def test_a_file_that_is_no_witness_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = blazes(capsys, COUNT, "--replay", tmp_path / "none.json")
    assert status == 2
    assert "cannot read" in err
    kept = tmp_path / "kept.json"
    for text, said in (("{", "not JSON"), ("[]", "not an object"), ("{}", "not a witness")):
        kept.write_text(text, encoding="utf-8")
        status, _, err = blazes(capsys, COUNT, "--replay", kept)
        assert status == 2
        assert said in err


def test_a_witness_of_another_dataflow_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    assert blazes(capsys, COUNT, "--inputs", 6, "--save", kept)[0] == 0
    file = tmp_path / "first.yaml"
    file.write_text(FIRST, encoding="utf-8")
    status, _, err = blazes(capsys, file, "--replay", kept)
    assert status == 2
    assert "the dataflow has no stream" in err


def test_poor_diverges_uncoordinated_and_not_under_the_plan(tmp_path: Path) -> None:
    file = ROOT / "examples/ad_network/ad_network.yaml"
    dataflow, _ = load(file, variants={"Report": "POOR"})
    simulation = Simulation(dataflow)
    found = simulation.simulate(inputs=6, time_s=120.0)
    seen = {(anomaly.kind, anomaly.stream) for anomaly in found.free.witnesses}
    assert {(Label.INST, "answers"), (Label.DIVERGE, "gossip")} <= seen
    assert not found.unexpected
    assert found.planned is not None
    assert not found.planned.witnesses
    witness = next(w for a, w in found.free.witnesses.items() if a.kind is Label.DIVERGE)
    assert sum(map(len, witness.given.values())) == 2  # a click, and a request that misses it
    repro.save(witness, tmp_path / "w.json")
    networks = {planned: simulation.network(coordinated=planned) for planned in (False, True)}
    again = repro.load(tmp_path / "w.json", networks)
    assert again.runs[-1].end == witness.runs[-1].end
