"""What the documentation says holds: links lead somewhere, dataflows load, Python parses."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from annotations.file import loads
from annotations.file.python_declarations import declares
from blazes.cli import main

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
            if declares(text):
                loads(text, file=page.name, module="module")


def test_the_tutorial_shows_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of output, between their dots, are in what the commands print or write."""
    shutil.copytree(ROOT / "docs" / "tutorial" / "energy", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorial" / "from-a-spark-job.md").read_text(encoding="utf-8")
    main(["analyze", "1_described.yaml"])
    analyzed = capsys.readouterr().out
    main(["compile", "2_sealed.yaml"])
    job = (tmp_path / "target" / "energy" / "job.py").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\n( {11}Async.*?)^```", page, re.MULTILINE | re.DOTALL)
    (called,) = re.findall(r"^```python\n( {4}credits_2 = .*?)^```", page, re.MULTILINE | re.DOTALL)
    main(["analyze", "before.py"])
    script = capsys.readouterr().out
    assert main(["import", "before.py", "-o", "credits.yaml"]) == 0
    assert main(["compile", "credits.yaml"]) == 0
    imported = (tmp_path / "credits_code.py").read_text(encoding="utf-8")
    (asked,) = re.findall(r"^```text\n(  query_14.*?)^```", page, re.MULTILINE | re.DOTALL)
    (function,) = re.findall(r"^```python\n(def query_14.*?)^```", page, re.MULTILINE | re.DOTALL)
    blocks = ((shown, analyzed), (called, job), (asked, script), (function, imported))
    for block, said in blocks:
        for piece in re.split(r"^ *\.\.\.$", block, flags=re.MULTILINE):
            assert " ".join(piece.split()) in " ".join(said.split())


def test_every_row_of_the_table_of_faults_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "sealing.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| fault \| outcome \| test \|\n.*\n((?:\|.*\n)+)", page, re.M)
    rows = table.splitlines()
    texts = [f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.rpartition(" | ")[2])
        assert named, row
        assert set(named) <= defined, row
