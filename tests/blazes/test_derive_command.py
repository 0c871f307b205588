"""`blazes derive` on the examples: what the code shows beside what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blazes.cli import main

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
    found = derive(capsys, str(EXAMPLES / "settlement" / "settlement.yaml"), "--strict")
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
