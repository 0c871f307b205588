"""The folder of a compiled project: what is written, what is kept, what is left alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from annotations.file import load
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.report.json_result import to_json
from codegen.project import write
from codegen.stages import stages

TEXT = """
components:
  Pass: {annotation: {from: clicks, to: out, label: CR}, python: "operators:one"}
streams:
  clicks: {to: Pass.clicks, source: {format: rate}}
  out: {from: Pass.out}
deployment: {zookeeper: "127.0.0.1:2181"}
"""
OPERATORS = "import helpers\ndef one(clicks):\n    return helpers.same(clicks)\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "operators.py").write_text(OPERATORS)
    (folder / "helpers.py").write_text("def same(it):\n    return it\n")
    (folder / "unrelated.py").write_text("")
    found = folder / "dataflow.yaml"
    found.write_text(TEXT)
    return found


def compiled(file: Path, target: Path) -> list[str]:
    """Compile and write; the messages about edited files."""
    decided = plan(analyze(load(file)[0]))
    project = write(stages(decided), target, analysis=to_json(decided))
    assert project.job == target / "job.py"
    assert project.files[-1] == "plan.json"
    return [note.message for note in project.notes]


def names(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_a_project_is_complete(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target" / "flow"
    assert compiled(file, target) == []
    assert names(target) == {"README.md", "helpers.py", "job.py", "operators.py", "plan.json"}
    assert (target / "operators.py").read_text() == OPERATORS


def test_the_plan_holds_the_analysis_and_what_was_compiled(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target" / "flow"
    compiled(file, target)
    found = json.loads((target / "plan.json").read_bytes())
    decided = plan(analyze(load(file)[0]))
    analysed = json.loads(json.dumps(to_json(decided)))
    assert {key: found[key] for key in analysed} == analysed
    assert found["file"] == "dataflow.yaml"
    assert found["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (target / found["root"]).resolve() == file.parent.resolve()
    assert found["stages"] == json.loads(json.dumps(stages(decided).to_json()))
    assert found["deployment"]["zookeeper"] == "127.0.0.1:2181"
    for name, digest in found["files"].items():
        assert hashlib.sha256((target / name).read_bytes()).hexdigest() == digest


def test_what_a_run_left_is_left_alone(file: Path, tmp_path: Path) -> None:
    for name in ("state/offsets", "runs/latest/log.txt", "results/out/part-0", "notes.txt"):
        kept = tmp_path / "target" / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(name)
    before = names(tmp_path / "target")
    compiled(file, tmp_path / "target")
    compiled(file, tmp_path / "target")
    assert before <= names(tmp_path / "target")
    assert (tmp_path / "target" / "state/offsets").read_text() == "state/offsets"


def test_compiling_again_changes_nothing(file: Path, tmp_path: Path) -> None:
    compiled(file, tmp_path / "target")
    before = {
        name: (tmp_path / "target" / name).read_bytes() for name in names(tmp_path / "target")
    }
    assert compiled(file, tmp_path / "target") == []
    after = {name: (tmp_path / "target" / name).read_bytes() for name in names(tmp_path / "target")}
    assert before == after


@pytest.mark.parametrize("name", ["job.py", "README.md", "operators.py"])
def test_an_edited_file_is_kept_beside_the_new_one(name: str, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    compiled(file, target)
    written = (target / name).read_bytes()
    (target / name).write_bytes(b"# mine\n")
    (message,) = compiled(file, target)
    assert message.endswith(
        f"was edited since it was written by the compiler; it is kept as {name}.orig"
    )
    assert (target / f"{name}.orig").read_bytes() == b"# mine\n"
    assert (target / name).read_bytes() == written
    (target / name).write_bytes(b"# mine again\n")
    compiled(file, target)
    assert (target / f"{name}.orig").read_bytes() == b"# mine\n"
    assert (target / f"{name}.orig.2").read_bytes() == b"# mine again\n"


@pytest.mark.parametrize("lost", [None, b"{", b"[]", b'{"files": 3}'])
def test_a_file_that_nobody_knows_is_kept(lost: bytes | None, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "job.py").write_bytes(b"# somebody's\n")
    if lost is not None:
        (target / "plan.json").write_bytes(lost)
    (message,) = compiled(file, target)
    assert "job.py.orig" in message
    assert (target / "job.py.orig").read_bytes() == b"# somebody's\n"


def test_a_changed_dataflow_replaces_what_was_not_edited(file: Path, tmp_path: Path) -> None:
    compiled(file, tmp_path / "target")
    before = (tmp_path / "target" / "job.py").read_bytes()
    file.write_text(TEXT.replace("  out: {", "  result: {"))
    assert compiled(file, tmp_path / "target") == []
    assert (tmp_path / "target" / "job.py").read_bytes() != before
    assert not list((tmp_path / "target").glob("*.orig"))


def test_a_module_that_is_no_longer_needed_goes(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    compiled(file, target)
    (file.parent / "operators.py").write_text("def one(clicks):\n    return clicks\n")
    assert compiled(file, target) == []
    assert "helpers.py" not in names(target)


def test_a_module_that_is_no_longer_needed_and_was_edited_stays(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    compiled(file, target)
    (target / "helpers.py").write_text("# mine\n")
    (file.parent / "operators.py").write_text("def one(clicks):\n    return clicks\n")
    assert len(compiled(file, target)) == 1
    assert (target / "helpers.py.orig").read_text() == "# mine\n"


def test_a_plan_cannot_point_outside_its_folder(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    compiled(file, target)
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    digest = hashlib.sha256(b"precious").hexdigest()
    found = json.loads((target / "plan.json").read_bytes())
    found["files"] |= {"../precious.txt": digest, str(precious): digest}
    (target / "plan.json").write_text(json.dumps(found))
    compiled(file, target)
    assert precious.read_text() == "precious"


def test_nothing_half_written_stays(file: Path, tmp_path: Path) -> None:
    compiled(file, tmp_path / "target")
    assert not list((tmp_path / "target").rglob("*.part"))
