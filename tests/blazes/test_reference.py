"""The committed reference pages are what the code says now."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from blazes.cli.reference import FOLDER, PAGES, PICTURE, pictured
from blazes.document import terminal
from blazes.report.document import analysis_document


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
