"""What the commands say of a job that has run and is another one now; nothing is started."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from blazes.cli import main
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Job
from flux_runtime.spark.fingerprint import fingerprint
from flux_runtime.spark.main import FINGERPRINT
from flux_runtime.spark.runner import assign_channels

FILE = """
name: clicks
components:
  Tag:
    annotation: {from: click, to: tagged, label: CR}
    CODE
  Count:
    annotation: {from: seen, to: counts, label: "OW[id]"}
    sql: SELECT id, AGGREGATE AS n FROM seen GROUP BY id
streams:
  clicks: {to: Tag.click, schema: {id: BIGINT, v: BIGINT}, source: {format: json, path: clicks}}
  views: {to: Count.seen, schema: {id: BIGINT, v: BIGINT}, source: {format: json, path: views}}
  tagged: TAGGED
  counts: {from: Count.counts}
"""


def compiled(
    folder: Path,
    *options: str,
    tag: str = "v",
    aggregate: str = "count(*)",
    tagged: str = "{from: Tag.tagged}",
) -> int:
    """Compile the dataflow; the exit status."""
    code = tag if tag.startswith("python") else f"sql: SELECT id, {tag} AS v FROM click"
    text = FILE.replace("CODE", code).replace("AGGREGATE", aggregate).replace("TAGGED", tagged)
    (folder / "clicks.yaml").write_text(text)
    return main(["compile", str(folder / "clicks.yaml"), "-o", str(folder / "target"), *options])


def has_run(folder: Path) -> None:
    """Leave what the job writes into its state when it starts."""
    project = folder / "target"
    module = ModuleType("job")
    exec(compile((project / "job.py").read_text(), str(project / "job.py"), "exec"), vars(module))
    job = Job(root=folder, results=project / "results")
    vars(module)["build"](job)
    state = LocalStorage(project / "state")
    assign_channels(job, state)
    state.write(FINGERPRINT, json.dumps(fingerprint(job)).encode())


@pytest.mark.slow
def test_compile_and_doctor_say_what_goes_on_and_what_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(tmp_path) == 0
    has_run(tmp_path)
    assert compiled(tmp_path, tag="v + 1") == 0
    said = capsys.readouterr().err
    assert said.startswith(
        f"the job goes on from {tmp_path / 'target' / 'state'}:\n  goes on: unit"
    )
    assert compiled(tmp_path, tag="v + 1", aggregate="sum(v)") == 1
    refused, goes_on, to_do = capsys.readouterr().err.splitlines()[1:]
    assert refused.startswith("  refused: unit Count.counts: another text; ")
    assert goes_on.startswith("  goes on: unit tagged.1: another text of what is before it; ")
    assert to_do.startswith("  to do: go back to that plan, or start afresh with --fresh")
    assert main(["doctor", str(tmp_path / "target")]) == 1
    assert "refused: unit Count.counts" in capsys.readouterr().out


@pytest.mark.slow
def test_code_of_the_user_is_not_imported_unless_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def tag(click, number=0):\n    return click\n"
    (tmp_path / "tags.py").write_text(text)
    assert compiled(tmp_path, tag="python: tags:tag") == 0
    has_run(tmp_path)
    (tmp_path / "tags.py").write_text(f"{text}\nraise SystemExit(9)\n")
    assert compiled(tmp_path, tag="python: tags:tag") == 0  # read, and not imported
    assert "unit tagged.1: another text of what is before it" in capsys.readouterr().err
    sink = "{from: Tag.tagged, sink: {format: foreachBatch, function: tags:tag}}"
    assert compiled(tmp_path, tagged=sink) == 0
    assert "was not compared with its state" in capsys.readouterr().err
    assert compiled(tmp_path, "--execute", tagged=sink) == 2
    assert "cannot be compared with" in capsys.readouterr().err
