"""Reports of word count and the ad network, compared with what was reviewed.

`pytest tests/blazes/test_report_goldens.py --update-goldens` rewrites them; review the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import loads
from blazes.analysis import analyze
from blazes.cli import main
from blazes.coordination import plan
from blazes.report.index import Index
from blazes.report.results import results
from blazes.report.words import does

GOLDEN = Path(__file__).parent.parent / "golden" / "report"
CASES = {
    "wordcount": ("wordcount.yaml",),
    "wordcount_icde14": ("wordcount.yaml", "--rules", "icde14"),
    "wordcount_sealed": ("wordcount_sealed.yaml",),
    "wordcount_sealed_icde14": ("wordcount_sealed.yaml", "--rules", "icde14"),
    "thresh": ("ad_network.yaml", "--variant", "Report=THRESH"),
    "poor": ("ad_network.yaml", "--variant", "Report=POOR"),
    "poor_to_run": ("ad_network.yaml", "--variant", "Report=POOR", "--target", "run"),
    "poor_sealed": ("ad_network_sealed.yaml", "--variant", "Report=POOR"),
    "campaign": ("ad_network.yaml", "--variant", "Report=CAMPAIGN"),
    "campaign_sealed": ("ad_network_sealed.yaml", "--variant", "Report=CAMPAIGN"),
}
FORMATS = {"text": "txt", "json": "json", "markdown": "md", "mermaid": "mmd", "dot": "dot"}


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def compare(golden: Path, produced: str, update: bool) -> None:
    if update:
        golden.write_text(produced, encoding="utf-8")
    assert golden.exists(), f"{golden} is missing: run with --update-goldens"
    assert produced == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_analyze(
    case: str, format: str, update_goldens: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", *CASES[case], "--format", format]) == 0
    produced, errors = capsys.readouterr()
    assert errors == ""
    compare(GOLDEN / f"{case}.{FORMATS[format]}", produced, update_goldens)


@pytest.mark.parametrize("case", ["poor", "campaign_sealed", "wordcount"])
def test_plan(case: str, update_goldens: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *CASES[case]]) == 0
    compare(GOLDEN / f"{case}.plan.txt", capsys.readouterr().out, update_goldens)


@pytest.mark.parametrize(
    ("case", "component"),
    [("poor", "Report"), ("poor", "Cache"), ("campaign_sealed", "Report"), ("wordcount", "Count")],
)
def test_explain(
    case: str, component: str, update_goldens: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *options = CASES[case]
    assert main(["explain", file, component, *options]) == 0
    golden = GOLDEN / f"{case}.{component}.explain.txt"
    compare(golden, capsys.readouterr().out, update_goldens)


def test_every_line_of_a_text_report_fits_80_columns() -> None:
    for golden in GOLDEN.glob("*.txt"):
        for number, line in enumerate(golden.read_text(encoding="utf-8").splitlines(), start=1):
            assert len(line) <= 80, f"{golden.name}:{number} has {len(line)} columns"


def test_a_seal_is_told_by_what_completes_it() -> None:
    one, both = "r, to: out, label: 'OW[k, n]'", "s, to: out, label: 'OW[k, n]'"
    text = f"""
components: {{J: {{annotation: [{{from: {one}}}, {{from: {both}}}]}}}}
streams:
  r: {{to: J.r, seal: [k], lateness: 10 minutes}}
  s: {{to: J.s, seal: [k], lateness: 1 hour}}
  j: {{from: J.out}}
"""
    decided = plan(analyze(loads(text)[0]))
    (result,) = results(decided)
    assert "the seal on k is waited for" in result.text
    said = " ".join(does(Index.of(decided), decided.entries[0]))
    assert "r has a record 10 minutes newer and s has a record 1 hour newer" in said
    assert "count (" not in said


def test_a_key_that_replaces_rows_is_told_as_the_cause() -> None:
    text = """
components: {J: {annotation: {from: r, to: out, label: "OW[k]", repeats: corrupt}}}
streams:
  r: {to: J.r, seal: [k]}
  j: {from: J.out, sink: {format: jdbc, key: [n]}}
"""
    (result,) = results(plan(analyze(loads(text)[0])))
    because = "because the key of its sink does not determine a row (D14)"
    assert result.text == f"rows may differ from run to run, {because}"
