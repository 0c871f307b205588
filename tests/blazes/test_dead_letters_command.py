"""`blazes dead-letters` over files that the runtime itself has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blazes.cli import main
from flux_runtime.observe.dead_letters import REASONS, count, read_dead_letters

CLICK = {"campaign": 7, "id": "ad\x1b[31m", "producer": "ads-9"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A compiled project whose job has left dead letters."""
    from flux_runtime.sealing.storage import LocalStorage
    from flux_runtime.spark.ends.dead_letters import DeadLetters

    folder = tmp_path / "target" / "ad-network"
    (folder / "state").mkdir(parents=True)
    (folder / "plan.json").write_text("{}", encoding="utf-8")

    def letters_of(unit: str) -> DeadLetters:
        return DeadLetters(LocalStorage(folder / "state" / "dead_letters" / unit), unit)

    report = letters_of("Report.response")
    report.keep("clicks-4", "clicks", 4, [("late", CLICK), ("unknown_producer", CLICK)])
    report.keep("clicks-5", "clicks", 5, [("late", CLICK), ("unreadable", '{"campaign": ')])
    letters_of("Cache.response").keep("misses-1", "misses", 1, [("no_key", {"campaign": None})])
    return folder


def test_the_reasons_are_those_that_the_runtime_gives() -> None:
    from flux_runtime.spark.ends.dead_letters import RULES

    assert set(REASONS) == set(RULES)
    for reason, rule in RULES.items():
        assert rule is None or rule in REASONS[reason]


def test_every_letter_is_read_back(project: Path) -> None:
    letters = list(read_dead_letters(project / "state"))
    assert len(letters) == 5
    assert letters[0].unit == "Cache.response"
    late = [letter for letter in letters if letter.reason == "late"]
    assert [(letter.batch, letter.rule, letter.record) for letter in late] == [
        (4, "SE-5", CLICK),
        (5, "SE-5", CLICK),
    ]
    assert [each.number for each in count(letters)] == [2, 1, 1, 1]


def test_lines_that_are_no_letters_are_passed_over(project: Path) -> None:
    (project / "state" / "dead_letters" / "Report.response" / "x.jsonl").write_text(
        'rubbish\n{"stream": 1}\n[]\n\n{"time": "x"}\n', encoding="utf-8"
    )
    assert len(list(read_dead_letters(project / "state"))) == 5


def test_list(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", str(project)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == (
        "       2  Report.response  clicks  late: its partition had been released (SE-5)"
    )
    assert len(printed) == 8
    assert main(["dead-letters", str(project), "list", "--reason", "late", "--format=json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["dead_letters"]
    assert (only["reason"], only["number"]) == ("late", 2)


def test_show_escapes_what_could_drive_the_terminal(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead-letters", str(project), "show", "--stream", "clicks", "--limit", "2"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "batch 4  late (SE-5)" in printed
    assert printed.endswith("and 2 more (--limit)\n")


def test_show_as_json_lines(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["dead-letters", str(project), "show", "--unit=Cache.response", "--format=json"]) == 0
    )
    (line,) = capsys.readouterr().out.splitlines()
    letter = json.loads(line)
    assert (letter["reason"], letter["record"]) == ("no_key", {"campaign": None})


def test_export_gives_the_bare_records_back(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    assert main(["dead-letters", str(project), "export", "-o", str(out)]) == 0
    assert {file.name for file in out.iterdir()} == {"clicks.jsonl", "misses.jsonl"}
    lines = (out / "clicks.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines[:3]] == [CLICK] * 3
    assert lines[3] == '{"campaign": ', "what could not be parsed comes back as it was"
    assert "4  " in capsys.readouterr().out
    assert main(["dead-letters", str(project), "export", "-o", str(out)]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export"], "needs a folder"),
        (["lst"], "did you mean list?"),
    ],
)
def test_bad_usage(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["dead-letters", str(project), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    for action in ("list", "show"):
        assert main(["dead-letters", str(tmp_path), action]) == 0
        assert capsys.readouterr().out == "No dead letters.\n"
    assert main(["dead-letters", str(tmp_path), "export", "-o", str(tmp_path / "x")]) == 0


def test_a_folder_that_is_no_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", str(tmp_path)]) == 2
    assert "not the folder of a compiled project" in capsys.readouterr().err
