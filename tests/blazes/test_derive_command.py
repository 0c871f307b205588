"""`blazes derive` on the examples: what the code shows beside what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from blazes.cli import main
from blazes.report.result_schema import result_schema

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
AD_NETWORK = EXAMPLES / "ad_network" / "ad_network.yaml"


def derive(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    status = main(["derive", *arguments, "--format", "json"])
    assert status == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("variant", ["THRESH", "POOR", "WINDOW", "CAMPAIGN"])
def test_the_sql_of_the_ad_network_gives_its_written_annotations(
    variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = derive(capsys, str(AD_NETWORK), "--variant", f"Report={variant}")
    assert len(found) == 5
    assert [each for each in found if each["written"] is not None] == []


def test_the_word_count_claims_what_its_code_shows(capsys: pytest.CaptureFixture[str]) -> None:
    found = derive(capsys, str(EXAMPLES / "wordcount" / "wordcount.yaml"))
    assert {str(each["annotation"]) for each in found} == {"CR", "OW[batch,word]"}
    assert [each for each in found if each["written"] is not None] == []


def test_what_does_not_follow_from_the_code_of_the_settlement_is_claimed_with_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That an order has one invoice on both sides, and what happens inside of a function."""
    found = derive(
        capsys, str(EXAMPLES / "settlement" / "settlement.yaml"), "--strict", "--execute"
    )
    differ = {
        (str(each["component"]), str(each["written"])): str(each["why"])
        for each in found
        if each["written"] is not None
    }
    assert differ == {
        ("Limit", "OW[card,day]"): "the function sees one card's day at a time, and keeps nothing",
        ("Settlement", "OW[invoice]"): "the charges and the parcels of an order are of one invoice",
    }


def test_a_claim_beyond_the_code_is_told_with_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    text = (EXAMPLES / "wordcount" / "wordcount.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace('label: "OW[word, batch]"', "label: CW"), encoding="utf-8")
    assert main(["derive", str(file), "Count", "--strict"]) == 1
    printed = capsys.readouterr().out
    assert "OW[batch,word]" in printed
    assert "written: CW; it claims more than the code shows" in printed
    line = next(n for n, each in enumerate(text.splitlines(), 1) if "count(*) AS" in each)
    assert f"wrong.yaml:{line}:" in printed


UNANNOTATED = """\
components:
  Count:   # each word
    output_mode: update
    sql: SELECT word, count(*) AS n FROM words GROUP BY word
streams:
  words: {to: Count.words, schema: {word: STRING}}
  counts: {from: Count.counts}
"""


@pytest.fixture
def unannotated(tmp_path: Path) -> Path:
    file = tmp_path / "words.yaml"
    file.write_text(UNANNOTATED, encoding="utf-8")
    return file


@pytest.mark.parametrize("output", ["text", "markdown", "html"])
def test_a_report_says_what_was_derived_and_from_which_line(
    output: str, unannotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(unannotated), "--format", output]) == 0
    printed = capsys.readouterr().out
    derived = printed[printed.index("Derived from the code") :]
    assert "is used before each word is complete (line 4)" in derived


def test_the_json_result_has_what_was_derived(
    unannotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(unannotated), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    jsonschema.validate(result, result_schema())
    (found,) = result["derived"]
    assert (found["component"], found["annotation"]) == ("Count", "OW[word]")
    assert {each["line"] for each in found["reasons"]} == {4}
    main(["analyze", str(AD_NETWORK), "--variant", "Report=POOR", "--format", "json"])
    assert "derived" not in json.loads(capsys.readouterr().out)


def test_explain_says_what_was_derived(
    unannotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(unannotated), "Count"]) == 0
    assert "rows are kept for each word (line 4)" in capsys.readouterr().out


def test_write_puts_the_annotation_above_the_code(
    unannotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", "--write", str(unannotated)]) == 0
    lines = unannotated.read_text(encoding="utf-8").splitlines()
    assert lines[1:5] == [
        "  Count:   # each word",
        "    annotation:",
        "      # `count(*)` is used before each word is complete",
        "      # rows are kept for each word",
    ]
    assert [*lines[:2], *lines[6:]] == UNANNOTATED.splitlines()
    assert main(["derive", str(unannotated), "--strict"]) == 0
    assert main(["derive", str(unannotated), "--write"]) == 0
    assert "every component has annotations already" in capsys.readouterr().err


def test_check_warns_of_a_claim_that_the_query_does_not_show(
    unannotated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = "annotation: {from: words, to: counts, label: CW}\n    output_mode"
    unannotated.write_text(UNANNOTATED.replace("output_mode", claim), encoding="utf-8")
    assert main(["check", str(unannotated), "--strict"]) == 1
    assert "BLZ084 Count words->counts is written CW, and its code gives OW[word]" in (
        capsys.readouterr().out
    )
