"""The wheel installs into an empty environment and works outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("annotations", "blazes", "codegen", "flux_runtime")

pytestmark = pytest.mark.slow


def succeed(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed; it sees nothing of the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the committed and changed files of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    files = succeed("git", "ls-files", "--", *PACKAGES, "*.toml", "LICENSE", "README.md", cwd=ROOT)
    for name in files.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    succeed(sys.executable, "-m", "build", "--wheel", "-o", folder, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder of an environment that has the wheel and what it needs by default."""
    folder = wheel.parent / "environment"
    succeed(sys.executable, "-m", "venv", folder, cwd=wheel.parent)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    succeed(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=wheel.parent)
    return folder


def test_the_wheel_has_every_module_and_the_data_beside_them(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    tracked = succeed("git", "ls-files", "--", *PACKAGES, cwd=ROOT).splitlines()
    assert {name for name in tracked if (ROOT / name).is_file()} <= packed
    assert {name.split("/")[0] for name in packed} - {*PACKAGES} == {
        name.split("/")[0] for name in packed if ".dist-info/" in name
    }


def test_the_laboratory_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "flux_lab"
    shutil.copytree(ROOT / "flux_lab", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    succeed(sys.executable, "-m", "build", "--wheel", "-o", tmp_path, source, cwd=tmp_path)
    (lab,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(lab).namelist() if ".dist-info/" not in name}
    tracked = succeed("git", "ls-files", "--", "flux_lab/*.py", cwd=ROOT).splitlines()
    assert packed == {*tracked, "flux_lab/py.typed"}


def test_it_analyzes_and_compiles_without_spark(installed: Path, tmp_path: Path) -> None:
    blazes = installed / "bin" / "blazes"
    example = ROOT / "examples" / "ad_network" / "ad_network.yaml"
    file = tmp_path / "ad_network.yaml"
    file.write_bytes(example.read_bytes())
    assert "blazes" in succeed(blazes, "--version", cwd=tmp_path)
    said = succeed(blazes, "analyze", file, "--variant", "Report=POOR", cwd=tmp_path)
    assert "Diverge" in said
    succeed(blazes, "compile", file, "--variant", "Report=CAMPAIGN", cwd=tmp_path)
    job = tmp_path / "target" / "ad-network" / "job.py"
    compile(job.read_text(encoding="utf-8"), str(job), "exec")
    assert "R2" in succeed(blazes, "rule", "R2", cwd=tmp_path)


def test_what_needs_spark_says_how_to_get_it(installed: Path, tmp_path: Path) -> None:
    doctor = subprocess.run(
        [installed / "bin" / "blazes", "doctor", "--quick"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert doctor.returncode == 1
    assert "blazes[run]" in doctor.stdout
