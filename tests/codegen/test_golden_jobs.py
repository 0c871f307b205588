"""What the compiler writes for some dataflows, as a reviewer would read it.

`pytest --update-goldens tests/codegen/test_golden_jobs.py` writes what the code produces now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from annotations.file import load
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.report.json_result import to_json
from codegen.explain import explain
from codegen.model import Stages
from codegen.project import write
from codegen.stages import stages

ROOT = Path(__file__).parent.parent.parent
GOLDENS = ROOT / "tests" / "golden" / "jobs"
RUFF = (sys.executable, "-m", "ruff")


@dataclass(frozen=True)
class Golden:
    name: str
    file: str
    variants: dict[str, str]

    @property
    def folder(self) -> Path:
        return GOLDENS / self.name

    def stages(self) -> Stages:
        dataflow, warnings = load(GOLDENS / self.file, variants=self.variants)
        assert not warnings
        return stages(plan(analyze(dataflow)))


JOBS = [
    Golden("wordcount/sealed", "wordcount/sealed.yaml", {}),
    Golden("wordcount/unsealed", "wordcount/unsealed.yaml", {}),
    Golden("ad_network/campaign", "ad_network/replicated.yaml", {"Report": "CAMPAIGN"}),
    Golden("ad_network/thresh", "ad_network/replicated.yaml", {"Report": "THRESH"}),
    Golden("ad_network/poor", "ad_network/replicated.yaml", {"Report": "POOR"}),
    Golden("ad_network/poor_single", "ad_network/single.yaml", {}),
    Golden("shop/shop", "shop/shop.yaml", {}),
    Golden("sensors/silence", "sensors/silence.yaml", {}),
]
every_job = pytest.mark.parametrize("golden", JOBS, ids=lambda golden: golden.name)


def write_project(compiled: Stages, folder: Path) -> None:
    write(compiled, folder, analysis=to_json(compiled.plan))


@every_job
def test_the_project_is_the_golden(golden: Golden, tmp_path: Path, update_goldens: bool) -> None:
    compiled = golden.stages()
    write_project(compiled, tmp_path)
    texts = {name: (tmp_path / name).read_text() for name in ("job.py", "README.md")}
    texts["explain.txt"] = explain(compiled)
    texts["stages.json"] = json.dumps(compiled.to_json(), indent=2, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        file = golden.folder / name
        if update_goldens:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        assert text == file.read_text(), f"{file} differs; --update-goldens writes it"


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The projects of all jobs, each in a folder of its name."""
    folder = tmp_path_factory.mktemp("projects")
    for golden in JOBS:
        write_project(golden.stages(), folder / golden.name)
    return folder


@pytest.mark.parametrize("width", ["88", "100", "120"])
def test_the_jobs_are_formatted(width: str, projects: Path) -> None:
    command = [*RUFF, "format", "--isolated", "--line-length", width, "--diff"]
    command += [f"{golden.name}/job.py" for golden in JOBS]
    done = subprocess.run(command, cwd=projects, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_jobs_pass_the_linter(projects: Path) -> None:
    config = (ROOT / "pyproject.toml").read_text()
    chosen = re.search(r"^select = \[(.*)\]$", config, re.M)
    ignored = re.search(r"^ignore = \[(.*)\]$", config, re.M)
    assert chosen
    assert ignored
    select, ignore = (each[1].replace('"', "").replace(" ", "") for each in (chosen, ignored))
    command = [*RUFF, "check", "--isolated", "--target-version", "py311", "--line-length", "100"]
    command += ["--select", select, "--ignore", ignore]
    command += ["--config", f"src = {[golden.name for golden in JOBS]}", "."]
    done = subprocess.run(command, cwd=projects, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_jobs_pass_the_type_checker(projects: Path, tmp_path: Path) -> None:
    names = []
    for golden in JOBS:
        names.append(golden.name.replace("/", "_") + ".py")
        shutil.copytree(projects / golden.name, tmp_path / "project", dirs_exist_ok=True)
        (tmp_path / "project" / "job.py").rename(tmp_path / "project" / names[-1])
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"]
    command += ["--cache-dir", str(tmp_path / "cache"), *names]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path / "project", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


COMPILING = """
import json, sys
from blazes.cli import main
for arguments in json.load(sys.stdin):
    assert main(arguments) == 0
"""


def test_compiling_again_writes_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for seed in ("1", "2"):
        commands = []
        for golden in JOBS:
            variants = [f"--variant={name}={chosen}" for name, chosen in golden.variants.items()]
            folder = tmp_path / f"seed-{seed}" / golden.name
            command = ["compile", str(GOLDENS / golden.file), *variants, "-o", str(folder)]
            commands.append(command)
        subprocess.run(
            [sys.executable, "-c", COMPILING],
            input=json.dumps(commands),
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        top = tmp_path / f"seed-{seed}"
        files = sorted(each for each in top.rglob("*") if each.is_file())
        written.append([(each.relative_to(top), each.read_bytes()) for each in files])
    assert len(written[0]) >= 2 * len(JOBS)
    assert written[0] == written[1]


@every_job
def test_the_job_names_no_place_of_this_machine(golden: Golden, projects: Path) -> None:
    for name in ("job.py", "README.md"):
        text = (projects / golden.name / name).read_text()
        assert str(ROOT) not in text
        assert str(projects) not in text
        assert str(Path.home()) not in text or str(Path.home()) == "/"
