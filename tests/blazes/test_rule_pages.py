"""Pages of rules and codes, with their headings and examples; the reference pages are current."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from reference_delivery import seen_between_paths

from annotations.diagnostics import CODES
from annotations.file import loads
from blazes.analysis import analyze
from blazes.cli import main
from blazes.cli.reference import FOLDER, PAGES, PICTURE, pictured
from blazes.core.rules import RULES
from blazes.document import terminal
from blazes.report import rules
from blazes.report.document import analysis_document
from blazes.report.examples import CODE_EXAMPLES, IN_WORDS, RULE_EXAMPLES, findings


@pytest.mark.parametrize("rule", RULES)
def test_the_example_of_a_rule_shows_it(rule: str) -> None:
    example = RULE_EXAMPLES[rule]
    dataflow, warnings = loads(example.text)
    assert warnings == ()
    shown = set()
    for derivation in analyze(dataflow).derivations:
        if derivation.component == example.component:
            shown |= {step.rule for step in derivation.steps} | set(derivation.reconciled)
            if any(step.input.keys for step in derivation.steps) and derivation.label.keys:
                shown.add("S3")
    assert rule in shown | seen_between_paths(analyze(dataflow))


@pytest.mark.parametrize("code", CODES)
def test_the_example_of_a_code_shows_it(code: str) -> None:
    if code in IN_WORDS:
        assert code not in CODE_EXAMPLES
        return
    example = CODE_EXAMPLES[code]
    assert code in {each.code.id for each in findings(example)}


@pytest.mark.parametrize("name", [*RULES, *CODES])
def test_a_page_has_the_fixed_headings(name: str) -> None:
    last = "Source" if name in RULES else "What to do"
    headings = [section.heading for section in rules.page(name).sections]
    assert headings == ["What it does", "Why it matters", "Example", last]


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_all_pages_are_printed(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "--all", "--format", format]) == 0
    printed = capsys.readouterr().out
    for name in [*RULES, *CODES]:
        assert name in printed
    assert format != "text" or max(map(len, printed.splitlines())) <= 125


def test_names_are_found_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "r2", "blz010"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("R2  ")
    assert "\nBLZ010  " in printed


def test_the_rule_command_knows_the_codes_of_the_compiler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["rule", "blz511"]) == 0
    assert "What to do" in capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_current(name: str) -> None:
    committed = (FOLDER / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), "run: python -m blazes.cli.reference"


def test_the_committed_picture_shows_the_current_report() -> None:
    drawn = ET.fromstring(PICTURE.read_text(encoding="utf-8"))
    texts = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    _, *lines = texts  # the first is the title of the window
    shown = "".join("".join(lines).split())
    current = "".join(terminal.text(analysis_document(pictured())).split())
    assert shown == current, "run: python -m blazes.cli.reference"


def test_the_picture_needs_nothing_from_outside() -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert "url(http" not in picture
    assert "@font-face" not in picture
