"""The tutorial, command by command, on Spark: what the page says comes out, comes out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "tutorial" / "from-a-spark-job.md"
SECTION: Final = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
BLOCK: Final = re.compile(
    r"^```\n((?:blazes|cat|echo|python|sed|source|cp) .*\n(?:.*\n)*?)```$", re.M
)
INLINE: Final = re.compile(r"`(blazes (?:run|analyze) [^`]*)`")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def commands(text: str) -> Iterator[str]:
    """The commands of a part of the page: its blocks, and what it runs in a sentence."""
    places = [(found.start(), found[1]) for found in BLOCK.finditer(text)]
    places += [(found.start(), found[1]) for found in INLINE.finditer(text)]
    for _, several in sorted(places):
        yield from several.splitlines()


def sections() -> dict[str, list[str]]:
    """Heading -> its commands; what comes before the first heading is under ""."""
    page = PAGE.read_text(encoding="utf-8")
    before = {"": [*commands(page[: page.index("\n## ")])]}
    return before | {head: [*commands(text)] for head, text in SECTION.findall(page)}


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """The page's numbers of credits come out, and the late reading is kept with its reason."""
    folder = tmp_path / "energy"
    shutil.copytree(PAGE.parent / "energy", folder)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def said(command: str) -> str:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout.strip()

    (_, (activate, copy, make)), *parts = sections().items()
    assert (activate.split()[0], copy.split()[0]) == ("source", "cp")  # stand in for `folder`
    said(make)
    outputs = {head: [said(command) for command in several] for head, several in parts}
    page = PAGE.read_text(encoding="utf-8")
    ((four, two),) = re.findall(r"(\d+) credits the first time, (\d+) the second", page)
    (sealed,) = re.findall(r"^(\d+), however the readings are batched", page, re.MULTILINE)
    counted = {head: [text for text in texts if text.isdigit()] for head, texts in outputs.items()}
    assert counted["Ask"] == [four, two]
    assert counted["Run it"] == [sealed]
    assert f"{sealed} sites have earned a credit" in page
    assert " Run " in outputs["Ask"][0]
    assert "Every run, replay and replica gives the same answers" in outputs["Seal it"][0]
    letters = outputs["See what could not be processed"][-1]
    assert "late: its partition had been released" in letters
