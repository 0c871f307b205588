"""How diagnostics are shown: the line, the caret under the right character, the remedy."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.dataflow import Position
from annotations.diagnostics import CODES, Diagnostic
from blazes.document.plain import cells, colour_of, safe_write
from blazes.report.problems import (
    LINE_WIDTH,
    Sources,
    count,
    excerpt,
    print_problems,
    problem_text,
    problems_text,
)


def at(line: int, column: int, *, file: str = "flow.yaml", code: str = "BLZ010") -> Diagnostic:
    return Diagnostic(CODES[code], "unknown key `x`", Position(file, line, column), "remove it")


def test_all_parts_in_order() -> None:
    sources = Sources({"flow.yaml": "a: 1\nx: 2\n"})
    assert problem_text(at(2, 1), sources=sources).splitlines() == [
        "flow.yaml:2:1: BLZ010 unknown key `x`",
        "  |",
        "2 | x: 2",
        "  | ^",
        "  = remove it",
    ]


@given(st.text(alphabet="ab \t計é\x1b", max_size=300), st.integers(min_value=1, max_value=320))
def test_the_caret_stands_under_its_character(line: str, column: int) -> None:
    text, offset = excerpt(line, column)
    assert "\x1b" not in text
    assert "\t" not in text
    assert len(text) <= 4 * LINE_WIDTH + 6
    if column <= len(line) and line[column - 1] in "ab計é":
        shown = 0
        while cells(text[:shown]) < offset:
            shown += 1
        assert text[shown] == line[column - 1]


@pytest.mark.parametrize(("line", "column"), [(0, 1), (99, 1), (1, 500)])
def test_a_place_outside_the_file_is_no_crash(line: int, column: int) -> None:
    text = problem_text(at(line, column), sources=Sources({"flow.yaml": "a: 1\n"}))
    assert "BLZ010" in text
    assert "remove it" in text


def test_a_file_that_is_gone_shows_no_line(tmp_path: Path) -> None:
    text = problem_text(at(1, 1, file=str(tmp_path / "gone.yaml")), sources=Sources())
    assert "|" not in text


def test_a_mistake_without_a_place() -> None:
    text = problem_text(Diagnostic(CODES["BLZ030"], "no variant X"), sources=Sources())
    assert text.startswith("BLZ030 no variant X\n")


def test_the_general_remedy_stands_in_for_a_missing_one() -> None:
    text = problem_text(Diagnostic(CODES["BLZ010"], "m"), sources=Sources())
    assert CODES["BLZ010"].remedy in text


def test_the_count_names_the_worst_first() -> None:
    warning = at(1, 1, code="BLZ023")
    assert count([warning, at(1, 1), at(2, 1)]) == "2 mistakes, 1 warning"
    assert problems_text([]) == ""


def test_colour_changes_only_escape_sequences() -> None:
    plain = problems_text([at(1, 1)])
    coloured = problems_text([at(1, 1)], colour=True)
    assert coloured != plain
    for code in ("0", "1", "2", "1;31"):
        coloured = coloured.replace(f"\033[{code}m", "")
    assert coloured == plain


def test_json_keeps_every_field() -> None:
    out = io.StringIO()
    print_problems([at(3, 4), Diagnostic(CODES["BLZ030"], "n")], format="json", stream=out)
    found = json.loads(out.getvalue())["diagnostics"]
    assert found[0] == {
        "code": "BLZ010",
        "severity": "error",
        "message": "unknown key `x`",
        "remedy": "remove it",
        "file": "flow.yaml",
        "line": 3,
        "column": 4,
    }
    assert found[1]["file"] is found[1]["line"] is found[1]["column"] is None


def test_sarif_of_mistakes() -> None:
    out = io.StringIO()
    print_problems([at(3, 4)], format="sarif", stream=out)
    (run,) = json.loads(out.getvalue())["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("BLZ010", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "flow.yaml"},
        "region": {"startLine": 3, "startColumn": 4},
    }


def test_what_the_stream_cannot_carry_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    safe_write(stream, "計 \ud800")
    stream.flush()
    assert raw.getvalue() == b"\\u8a08 \\ud800"


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_colour_where_it_is_not_wanted(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour_of(Terminal())
    assert not colour_of(io.StringIO())
    monkeypatch.setenv(variable, {"NO_COLOR": "1", "TERM": "dumb"}[variable])
    assert not colour_of(Terminal())
