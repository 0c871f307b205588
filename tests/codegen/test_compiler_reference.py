"""The committed reference of the compiler's codes is what the code says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from blazes.cli import main
from codegen.reference import compiler_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compiler.md"


def test_the_page_is_current() -> None:
    """Write it with `python -m codegen.reference > docs/reference/compiler.md`."""
    assert PAGE.read_text(encoding="utf-8") == compiler_page()


def test_the_rule_command_knows_the_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "blz511"]) == 0
    assert "What to do" in capsys.readouterr().out
