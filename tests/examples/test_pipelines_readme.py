"""The commands of the pipelines example's README do what it says, from a fresh checkout."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from blazes.cli import main

ROOT = Path(__file__).parents[2]
FOLDER = Path("examples") / "pipelines"


def commands() -> list[list[str]]:
    (fence,) = re.findall(r"```\n(.*?)```", (ROOT / FOLDER / "README.md").read_text(), re.DOTALL)
    lines = [shlex.split(line) for line in fence.splitlines()]
    return [line[1:] for line in lines if line[0] == "blazes"]


def test_the_commands_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path)
    printed = {}
    for command in commands():
        not_carried = command[0] == "import"  # customers has no code that can be compiled
        assert main(command) == not_carried, command
        printed[" ".join(command[:2])] = capsys.readouterr().out
    assert len(printed) == 4
    assert "distinct_orders → out  OW[channel,day]  derived" in printed[
        "analyze examples/pipelines/spark-pipeline.yml"
    ].replace("->", "→")
    imported = (tmp_path / "target" / "shop.yaml").read_text(encoding="utf-8")
    assert imported == (ROOT / FOLDER / "shop.yaml").read_text(encoding="utf-8")
    assert "R2" in printed["explain target/shop.yaml"]
