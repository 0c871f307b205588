"""The command line: exit codes, refusals with line and caret, colours, start-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blazes.cli import COMMANDS, CommandError, main

GOLDEN = Path(__file__).parent.parent / "golden" / "report"
WORDCOUNT = str(GOLDEN / "wordcount.yaml")
SEALED = str(GOLDEN / "wordcount_sealed.yaml")
AD_NETWORK = str(GOLDEN / "ad_network.yaml")
BAD = "components:\n  Count:\n    annotation: {from: words, to: counts, label: OW, subscrpt: [w]}\n"


def blazes(
    *arguments: str, environment: dict[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """`blazes` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "blazes", *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, **(environment or {})},
        check=False,
    )


@pytest.fixture
def bad(tmp_path: Path) -> str:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["analyze", WORDCOUNT], 0),
        (["analyze", WORDCOUNT, "--strict"], 1),
        (["analyze", WORDCOUNT, "--strict", "--target", "run"], 0),
        (["analyze", SEALED, "--strict"], 0),
        (["analyze", AD_NETWORK, "--strict", "--variant", "Report=POOR"], 1),
        (["analyze", AD_NETWORK, "--strict", "--variant", "Report=THRESH"], 0),
        (["plan", WORDCOUNT, "--strict"], 1),
        (["explain", WORDCOUNT, "Count"], 0),
        (["check", WORDCOUNT, SEALED], 0),
        (["rule", "R2"], 0),
        (["schema"], 0),
        (["schema", "--result"], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["help", "analyze"], 0),
        ([], 2),
        (["analyse", WORDCOUNT], 2),
        (["analyze"], 2),
        (["analyze", "nowhere.yaml"], 2),
        (["analyze", "."], 2),
        (["analyze", WORDCOUNT, "--format", "jsn"], 2),
        (["analyze", WORDCOUNT, "--formt", "json"], 2),
        (["analyze", WORDCOUNT, "--target", "fast"], 2),
        (["analyze", WORDCOUNT, "--rules", "mine"], 2),
        (["analyze", AD_NETWORK, "--variant", "Report"], 2),
        (["analyze", AD_NETWORK, "--variant", "Report=NONE"], 2),
        (["explain", WORDCOUNT, "Cuont"], 2),
        (["rule", "R99"], 2),
        (["rule"], 2),
    ],
    ids=lambda value: (
        " ".join(Path(word).name for word in value) if isinstance(value, list) else ""
    ),
)
def test_exit_status(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == status
    if status == 2:
        assert capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["analyse", "x"], "did you mean analyze?"),
        (["analyze", WORDCOUNT, "--formt", "json"], "did you mean --format?"),
        (["analyze", WORDCOUNT, "--format", "jsn"], "did you mean json?"),
        (["explain", WORDCOUNT, "Cuont"], "did you mean Count?"),
        (["rule", "BLZ10"], "or BLZ010?"),
    ],
)
def test_a_near_word_is_suggested(
    arguments: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert suggestion in capsys.readouterr().err


def test_what_no_plan_repairs_fails_unless_it_is_tolerated(tmp_path: Path) -> None:
    file = tmp_path / "inherited.yaml"
    file.write_text(
        "components:\n  Copy:\n    annotation: {from: a, to: b, label: CR}\n"
        "streams:\n  a: {to: Copy.a, label: Run}\n  b: {from: Copy.b}\n",
        encoding="utf-8",
    )
    assert main(["analyze", str(file)]) == 1
    assert main(["analyze", str(file), "--target", "run", "--strict"]) == 0


def test_a_mistake_is_shown_in_its_line(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", bad]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    first, bar, line, caret, *_ = error.splitlines()
    assert first.startswith(f"{bad}:3:54: BLZ010 ")
    assert "subscript" in first
    assert bar.strip() == "|"
    assert line == "3 |     annotation: {from: words, to: counts, label: OW, subscrpt: [w]}"
    assert caret.index("^") == line.index("subscrpt")
    assert "1 mistake" in error


def test_mistakes_as_json(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", bad, "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    (mistake,) = found["diagnostics"]
    assert (mistake["code"], mistake["line"], mistake["column"]) == ("BLZ010", 3, 54)
    assert (mistake["file"], mistake["severity"]) == (bad, "error")


def test_check_reports_every_file(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", WORDCOUNT, bad, bad]) == 2
    assert "2 mistakes" in capsys.readouterr().out


def test_check_strict_fails_on_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "warned.yaml"
    file.write_text("components:\n  C:\n    annotation: {from: a, to: b}\n", encoding="utf-8")
    assert main(["check", str(file)]) == 0
    assert main(["check", str(file), "--strict"]) == 1
    assert "BLZ023" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["analyze", "plan", "check"])
def test_an_annotation_that_the_code_does_not_show_is_told_by_whoever_judges(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "words.yaml"
    file.write_text(
        "components:\n  Count:\n    annotation: {from: words, to: counts, label: CW}\n"
        "    sql: SELECT word, count(*) AS n FROM words GROUP BY word\n"
        "streams:\n  words: {to: Count.words, schema: {word: STRING}}\n",
        encoding="utf-8",
    )
    assert main([command, str(file)]) == 0
    captured = capsys.readouterr()
    assert "BLZ084 Count words->counts is written CW" in captured.out + captured.err


def test_warnings_go_to_stderr_and_leave_the_report_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "warned.yaml"
    file.write_text("components:\n  C:\n    annotation: {from: a, to: b}\n", encoding="utf-8")
    assert main(["analyze", str(file)]) == 0
    out, error = capsys.readouterr()
    assert "BLZ023" in error
    assert "BLZ023" not in out


@pytest.mark.parametrize("command", ["analyze", "plan"])
def test_output_goes_to_a_file_in_the_format_of_its_suffix(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    assert main([command, WORDCOUNT, "-o", str(file)]) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["verdict"] == "Run"
    assert capsys.readouterr().out == ""
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_output_that_cannot_be_written_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["analyze", WORDCOUNT, "-o", str(tmp_path / "file" / "where.txt")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_folders_of_an_output_are_made(tmp_path: Path) -> None:
    assert main(["analyze", WORDCOUNT, "-o", str(tmp_path / "new" / "where.txt")]) == 0
    assert (tmp_path / "new" / "where.txt").is_file()


def test_explain_as_json_has_the_component_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", WORDCOUNT, "Count", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["component"] for each in found["derivations"]} == {"Count"}
    assert [each["strategy"] for each in found["plan"]] == ["order"]


def test_explain_gives_the_text_of_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    from blazes.core.rules import RULES

    assert main(["explain", WORDCOUNT, "Count"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert RULES["R2"].text in words
    assert RULES["C1"].text in words


def test_help_of_every_command_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, (_, summary) in COMMANDS.items():
        assert name in listed
        assert summary in listed


def test_no_escape_sequences_where_nobody_looks() -> None:
    piped = blazes("analyze", WORDCOUNT)
    assert piped.returncode == 0
    assert "\033" not in piped.stdout


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_no_color(no_color: str, coloured: bool) -> None:
    out = on_a_terminal("analyze", WORDCOUNT, NO_COLOR=no_color, TERM="xterm-256color")
    assert "needs an order" in out
    assert ("\033[" in out) is coloured


def test_mistakes_are_coloured_on_a_terminal(bad: str) -> None:
    assert "\033[1;31m" in on_a_terminal("analyze", bad, NO_COLOR="", TERM="xterm-256color")


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What `blazes` prints on a pseudo-terminal."""
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "blazes", *arguments],
        stdout=child,
        stderr=child,
        stdin=child,
        env={**os.environ, **environment},
    )
    os.close(child)
    pieces = []
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        pieces.append(piece)
    process.wait(timeout=60)
    os.close(parent)
    return b"".join(pieces).decode("utf-8")


def test_ascii_where_the_output_carries_no_unicode() -> None:
    found = blazes("analyze", WORDCOUNT, environment={"PYTHONIOENCODING": "ascii"})
    assert found.returncode == 0
    assert found.stdout.isascii()
    assert "(R2)" in found.stdout


@pytest.mark.parametrize("columns", ["20", "40", "60"])
def test_narrow_terminals_lose_nothing(columns: str) -> None:
    found = blazes("analyze", WORDCOUNT, environment={"COLUMNS": columns})
    assert found.returncode == 0
    for word in ("Splitter", "Count", "Commit", "Taint", "(R2)", "recorded"):
        assert word in found.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m blazes rule --all | head -n 1; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", command], capture_output=True, encoding="utf-8", timeout=120, check=True
    )
    assert found.stderr == ""
    assert found.stdout.splitlines()[-1] in ("0", "141")


def test_ctrl_c_ends_with_130_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from blazes.cli import analyze

    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(analyze, "run", interrupted)
    assert main(["analyze", WORDCOUNT]) == 130


def test_a_command_error_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from blazes.cli import analyze

    def refuse(arguments: object) -> int:
        raise CommandError("no Java", remedy="install Java 17", status=3)

    monkeypatch.setattr(analyze, "run", refuse)
    assert main(["analyze", WORDCOUNT]) == 3
    assert capsys.readouterr().err == "blazes: no Java\n        install Java 17\n"


@pytest.mark.parametrize(
    ("format", "without"),
    [
        ("json", ("rich", "pyspark", "kazoo", "networkx", "lark", "pandas")),
        ("text", ("pyspark", "kazoo", "networkx", "lark", "pandas")),
    ],
)
def test_analyze_imports_only_what_it_needs(format: str, without: tuple[str, ...]) -> None:
    program = (
        "import sys; from blazes.cli import main; "
        f"status = main(['analyze', {WORDCOUNT!r}, '--format', {format!r}]); "
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr); "
        "sys.exit(status)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60
    )
    assert found.returncode == 0
    imported = set(eval(found.stderr.splitlines()[-1]))
    assert "annotations" in imported
    assert not imported & set(without)
