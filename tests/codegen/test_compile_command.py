"""`blazes compile`, as it is called, and for the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from annotations.file import load
from blazes.analysis import analyze
from blazes.cli import main
from blazes.coordination import plan
from codegen.explain import coordination
from codegen.model import Stages, Unit
from codegen.stages import stages

TEXT = """
name: clicks-per-day
components:
  Count:
    annotation: {from: clicks, to: out, label: "OW[day]"}
    sql: SELECT day, count(*) AS n FROM clicks GROUP BY day
streams:
  clicks: {to: Count.clicks, schema: {day: int}, source: {format: json, path: data}}
  out: {from: Count.out}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "dataflow.yaml"
    found.write_text(TEXT)
    return found


def test_it_writes_the_project_and_says_where_the_job_is(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(file)]) == 0
    assert capsys.readouterr().out == "target/clicks-per-day/job.py\n"
    assert (file.parent / "target/clicks-per-day/job.py").exists()


@pytest.mark.parametrize("option", [["-o", "here"], ["--target-dir", "."]])
def test_it_writes_where_it_is_told(option: list[str], file: Path) -> None:
    assert main(["compile", str(file), *option]) == 0
    folder = "here" if option[0] == "-o" else "clicks-per-day"
    assert (file.parent / folder / "plan.json").exists()


def test_as_json_it_lists_the_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "schema_version": 1,
        "dataflow": "clicks-per-day",
        "folder": "target/clicks-per-day",
        "files": ["job.py", "README.md", "plan.json"],
        "needs": [],
    }


def test_explain_writes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(file), "--explain"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("clicks-per-day: 3 stages, order at Count.out\n")
    assert "why:" in printed
    assert not (file.parent / "target").exists()


def test_explain_as_json_is_the_stages_of_the_plan(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(file), "--explain", "--format", "json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert main(["compile", str(file)]) == 0
    plan = json.loads((file.parent / "target/clicks-per-day/plan.json").read_text())
    assert explained["stages"] == plan["stages"]
    assert [each["kind"] for each in explained["stages"]] == ["source", "order", "sink"]


def test_what_cannot_be_compiled_is_all_said_at_once(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        TEXT.replace("    sql:", "    Rep: true\n    engine: spark\n    sql:").replace(
            ", path: data", ""
        )
    )
    assert main(["compile", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "BLZ503" in printed
    assert "BLZ511" in printed
    assert not (file.parent / "target").exists()


def test_a_refusal_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("schema: {day: int}, ", ""))
    assert main(["compile", str(file), "--format", "json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert problem["code"] == "BLZ502"
    assert problem["line"] == 8


def test_an_edited_job_is_reported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(file)]) == 0
    (file.parent / "target/clicks-per-day/job.py").write_text("# mine\n")
    assert main(["compile", str(file)]) == 0
    assert "BLZ541" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "target").write_text("a file")
    assert main(["compile", str(file)]) == 2
    assert "cannot write" in capsys.readouterr().err


EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def compiled(file: str, **variants: str) -> Stages:
    return stages(plan(analyze(load(EXAMPLES / file, variants=variants)[0])))


@pytest.mark.parametrize(
    ("file", "variant", "expected"),
    [
        ("wordcount/wordcount.yaml", None, {"Count.counts": "seal"}),
        ("wordcount/wordcount_unsealed.yaml", None, {"Count.counts": "order"}),
        ("ad_network/ad_network.yaml", "THRESH", {}),
        ("ad_network/ad_network.yaml", "CAMPAIGN", {"Report.response": "seal"}),
        ("ad_network/ad_network.yaml", "POOR", {"Report.response": "order"}),
        ("ad_network/ad_network.yaml", "WINDOW", {"Report.response": "order"}),
        ("ad_network/ad_network_hourly.yaml", None, {"Report.response": "seal"}),
    ],
)
def test_an_example_gets_the_coordination_that_it_needs(
    file: str, variant: str | None, expected: dict[str, str]
) -> None:
    job = compiled(file, **({"Report": variant} if variant else {}))
    found = {
        f"{unit.component}.{unit.output}": coordination(unit)
        for unit in job
        if isinstance(unit, Unit)
    }
    assert {name: kind for name, kind in found.items() if kind} == expected


NOT_COMPILED = {
    "ad_network.yaml": "has variants, tried above",
    "shop.yaml": "is imported without code",
    "ad_network_bloom.yaml": "rules are not executed",
    "carts.yaml": "rules are not executed",
    "carts_sealed.yaml": "rules are not executed",
}


def test_every_other_example_compiles() -> None:
    files = [file for file in EXAMPLES.glob("*/*.yaml") if file.name not in NOT_COMPILED]
    assert len(files) >= 5
    for file in files:
        assert compiled(str(file.relative_to(EXAMPLES))).stages
