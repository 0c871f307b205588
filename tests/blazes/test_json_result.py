"""The JSON result: its schema, the examples of the specification, and its stability."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from annotations.file import loads
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.cli import main
from blazes.coordination import plan
from blazes.report.json_result import dumps, to_json
from blazes.report.result_schema import result_schema

GOLDEN = Path(__file__).parent.parent / "golden" / "report"


def result(
    text: str, *, rules: str = "blazes", target: Label = Label.ASYNC, **variants: str
) -> Any:
    dataflow, warnings = loads(text, variants=variants)
    planned = plan(analyze(dataflow, rules=rules), target=target)
    return to_json(planned, warnings=warnings)


def ad_network(sealed: bool = False, **options: Any) -> Any:
    file = "ad_network_sealed.yaml" if sealed else "ad_network.yaml"
    return result((GOLDEN / file).read_text(encoding="utf-8"), **options)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(result_schema())


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_results_validate(golden: Path) -> None:
    jsonschema.validate(json.loads(golden.read_text(encoding="utf-8")), result_schema())


@pytest.mark.parametrize("field", ["verdict", "plan", "streams", "schema_version"])
def test_the_schema_refuses_a_result_without(field: str) -> None:
    found = ad_network(Report="POOR")
    del found[field]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, result_schema())


def test_poor_is_the_example_of_the_specification() -> None:
    found = ad_network(Report="POOR")
    assert found["schema_version"] == 2
    assert found["dataflow"] == "ad-network"
    assert (found["rules"], found["target"], found["verdict"]) == ("blazes", "Async", "Diverge")
    assert found["streams"]["answers"] == {
        "from": "Report.response",
        "to": "Cache.response",
        "label": "Inst",
        "keys": [],
        "rep": True,
        "delivery": "Once",
        "id": None,
    }
    assert found["plan"] == [
        {
            "component": "Report",
            "path": {"from": "request", "to": "response"},
            "annotation": "OR[id]",
            "strategy": "order",
            "inputs": ["click", "request"],
            "scope": "gate",
            "mode": "recorded",
            "cause": "R1",
            "alternatives": [{"seal": ["id"], "streams": ["clicks"], "sources": ["clicks"]}],
        }
    ]
    assert found["repaired"]["answers"] == found["repaired"]["results"] == "Async"
    report = next(each for each in found["derivations"] if each["component"] == "Report")
    assert report["output"] == "response"
    assert report["steps"][1] == {
        "path": "request->response",
        "input": "Async",
        "annotation": "OR[id]",
        "rule": "R1",
        "adds": ["NDRead[id]"],
    }
    assert (report["rep"], report["reconciled"], report["label"]) == (True, ["C2"], "Inst")
    assert found["warnings"] == []


def test_a_sealed_path_says_what_it_waits_for() -> None:
    (entry,) = ad_network(sealed=True, Report="CAMPAIGN")["plan"]
    assert entry["strategy"] == "seal"
    assert entry["inputs"] == ["click"]
    assert entry["key"] == ["campaign"]
    assert entry["gate"] == ["campaign", "id"]
    assert entry["streams"] == ["clicks"]
    assert entry["release"] == "whole"
    assert entry["cause"] is None


REPEATING = """
components:
  Count:
    annotation: {from: words, to: counts, label: "OW[batch]"}
streams:
  words:
    to: Count.words
    source: {format: kafka}
    seal: [batch]
    punctuation: {when: sealed, count: n}
    producers: one
  counts: {from: Count.counts}
"""


def test_a_seal_names_the_ids_by_which_it_drops_copies() -> None:
    (entry,) = result(REPEATING)["plan"]
    assert "dedup" not in entry
    known = result(REPEATING.replace("seal:", "id: [line, host]\n    seal:"))
    jsonschema.validate(known, result_schema())
    (entry,) = known["plan"]
    assert entry["dedup"] == [{"stream": "words", "id": ["host", "line"]}]


def test_the_papers_rules_say_nothing_about_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "words.yaml"
    file.write_text(REPEATING)
    codes = {}
    for rules, status in (("blazes", 1), ("icde14", 0)):
        assert main(["analyze", str(file), "--rules", rules, "--format", "json"]) == status
        warnings = json.loads(capsys.readouterr().out)["warnings"]
        codes[rules] = [each["code"] for each in warnings]
    assert codes == {"blazes": ["BLZ074"], "icde14": []}


def test_a_sealed_stream_has_sorted_keys() -> None:
    found = result(
        "components:\n  Copy:\n    annotation: {from: a, to: b, label: CR}\n"
        "streams:\n  a: {to: Copy.a, seal: [[y, x], [z]]}\n  b: {from: Copy.b}\n"
    )
    assert found["streams"]["a"]["label"] == "Seal"
    assert found["streams"]["a"]["keys"] == [["z"], ["x", "y"]]


def test_a_warning_has_a_code_and_a_place() -> None:
    found = result("components:\n  Copy:\n    annotation: {from: a, to: b}\n")
    (warning,) = found["warnings"]
    assert warning["code"] == "BLZ023"
    assert warning["line"] == 3
    jsonschema.validate(found, result_schema())


def test_inherited_nondeterminism_is_named() -> None:
    found = result(
        "components:\n  Copy:\n    annotation: {from: a, to: b, label: CR}\n"
        "streams:\n  a: {to: Copy.a, label: Run}\n  b: {from: Copy.b}\n"
    )
    assert found["verdict"] == found["repaired"]["b"] == "Run"
    assert [each["origin"] for each in found["inherited"]] == ["a"]
    jsonschema.validate(found, result_schema())


def test_the_printed_text_is_the_object() -> None:
    found = ad_network(Report="POOR")
    assert json.loads(dumps(found)) == found
    assert json.loads(dumps({})) == {}


def test_odd_names_survive_the_printing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text('name: "\\u8a08 \\"x\\" \\\\"\n' + (GOLDEN / "wordcount.yaml").read_text()[16:])
    assert main(["analyze", str(file), "--format", "json"]) in (0, 2)
    json.loads(capsys.readouterr().out)


def test_the_order_of_attributes_in_the_file_changes_nothing() -> None:
    text = (GOLDEN / "wordcount_sealed.yaml").read_text(encoding="utf-8")
    assert result(text.replace("[word, batch]", "[batch, word]")) == result(text)


def test_the_result_does_not_depend_on_hash_seeds() -> None:
    attributes = [f"a{number}" for number in range(12)]
    random.Random(7).shuffle(attributes)
    gate = ", ".join(attributes)
    found = result(
        f"components:\n  C:\n    annotation: {{from: a, to: b, label: 'OW[{gate}]'}}\n"
        f"streams:\n  a: {{to: C.a, seal: [{gate}]}}\n  b: {{from: C.b}}\n"
    )
    assert found["plan"][0]["gate"] == sorted(attributes)
    assert found["plan"][0]["key"] == sorted(attributes)
