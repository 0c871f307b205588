"""The committed reference pages are what the code says now."""

from __future__ import annotations

import pytest

from blazes.report.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_current(name: str) -> None:
    committed = (FOLDER / name).read_text(encoding="utf-8")
    assert committed == PAGES[name](), "run: python -m blazes.report.reference"
