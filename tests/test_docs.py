"""What the documentation says holds: links lead somewhere, dataflows load, Python parses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from annotations.file import loads

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for page in ROOT.glob(pattern)
    if "target" not in page.parts
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for groups in LINK.findall(page.read_text(encoding="utf-8")):
        link = groups[0] or groups[1]
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_whole_dataflows_load_and_python_parses(page: Path) -> None:
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "yaml" and re.search(r"^(name|components):", text, re.MULTILINE):
            if "streams:" in text:
                loads(text, file=page.name)
        elif language == "python" and "..." not in text:
            ast.parse(text if not text.startswith(" ") else "if True:\n" + text)


def test_the_table_of_faults_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "sealing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    texts = [f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    assert len(named) > 20
    assert named <= defined, sorted(named - defined)
