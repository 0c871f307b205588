"""Runs tests/cases/diagnostics.md: files beside what the front end finds in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from annotations.diagnostics import CODES, BadInput, Diagnostic, Severity
from annotations.file import loads

FILE = Path(__file__).parent.parent / "cases" / "diagnostics.md"
CASE = re.compile(
    r"^## (?P<title>.+)\n[^#]*?^```yaml(?P<variants>.*)\n(?P<yaml>(?:.*\n)*?)```\n"
    r"```text\n(?P<found>(?:.*\n)*?)```$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Case:
    title: str
    variants: dict[str, str]
    text: str
    expected: list[str]
    codes: set[str]


def _cases(text: str) -> Iterator[Case]:
    for match in CASE.finditer(text):
        title = match["title"]
        yield Case(
            title,
            dict(choice.split("=") for choice in match["variants"].split()),
            re.sub(r"<U\+([0-9A-F]+)>", lambda code: chr(int(code[1], 16)), match["yaml"]),
            match["found"].splitlines(),
            set(re.findall(r"BLZ\d+", title)),
        )


CASES = list(_cases(FILE.read_text(encoding="utf-8")))


def _line(found: Diagnostic) -> str:
    position = found.position
    where = f"{position.line}:{position.column}" if position else "-"
    return f"{where} {found.code.id} {found.message}"


def _found(case: Case) -> tuple[Diagnostic, ...]:
    try:
        _, warnings = loads(case.text, variants=case.variants)
    except BadInput as bad:
        return bad.diagnostics
    return warnings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
@pytest.mark.parametrize("parser", ["libyaml", "pure Python"])
def test_a_file_gives_what_stands_beside_it(
    case: Case, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", parser == "libyaml")
    diagnostics = _found(case)
    assert [_line(found) for found in diagnostics] == case.expected
    for found in diagnostics:  # what to do, in sentences
        remedy = found.remedy or found.code.remedy
        assert remedy[0].isupper() or remedy[0] == "`"
        assert not found.message.endswith(".")
        assert "\n" not in found.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_case_names_its_codes_and_finds_nothing_else_that_is_an_error(case: Case) -> None:
    found = {line.split()[1] for line in case.expected}
    assert case.codes, "the heading names no code"
    assert case.codes <= found
    errors = {code for code in found if CODES[code].severity is Severity.ERROR}
    assert errors <= case.codes


def test_every_code_has_a_case() -> None:
    named = Counter(code for case in CASES for code in case.codes)
    # BLZ047 needs 10,001 streams: tests/annotations/test_connect.py
    # BLZ080 and BLZ081 are about code: tests/annotations/whitebox/test_existing_projects.py
    # BLZ093 and BLZ094 are about code that is run: tests/blazes/test_execute.py
    # BLZ095 is about modules in Python: tests/annotations/test_python_module.py
    # BLZ077 and BLZ084 compare with what is written: tests/annotations/whitebox/test_unannotated.py
    elsewhere = {"BLZ047", "BLZ077", "BLZ080", "BLZ081", "BLZ084", "BLZ093", "BLZ094", "BLZ095"}
    # The analysis finds these: tests/cases/delivery.md
    elsewhere |= {"BLZ070", "BLZ071", "BLZ072", "BLZ073", "BLZ075"}
    assert CODES.keys() - named.keys() == elsewhere


def test_no_case_is_overlooked() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(CASES) == len(re.findall(r"^## ", text, re.MULTILINE))
