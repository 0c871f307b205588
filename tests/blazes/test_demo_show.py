"""The outcome of the demonstration in text and JSON, and the command around it."""

from __future__ import annotations

import json

import pytest

from blazes.cli import main
from blazes.demo import show
from blazes.demo.anomalies import NOTE, SIZE
from blazes.demo.outcome import Dispute, Outcome, Witness, tally
from blazes.document.terminal import Layout, text

RIGHT = frozenset({1, 2})
OUTCOME = Outcome(
    seed=7,
    size=SIZE,
    runs=2,
    replicas=2,
    poor=2,
    ways={
        "uncoordinated": tally([(RIGHT, frozenset({1})), (frozenset(), RIGHT)], right=RIGHT),
        "ordered": tally([(RIGHT, RIGHT), (frozenset(), frozenset())], right=RIGHT),
        "sealed": tally([(RIGHT, RIGHT)] * 2, right=RIGHT),
    },
    verdicts={"uncoordinated": "Inst", "ordered": "Run", "sealed": "Async"},
    example=Dispute(
        run=1,
        request={"request": 2, "id": 101, "campaign": 1},
        clicks=180,
        right=False,
        witnesses=(Witness(1, 1, 3, 57, True), Witness(2, 3, 4, 180, False)),
    ),
    note=NOTE,
    engine="Spark",
    seconds=61.0,
)


def row(text: str, start: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.strip().startswith(start)]
    return line.split()[-3:]


def test_the_table_has_a_column_for_each_way() -> None:
    shown = text(show.document(OUTCOME), Layout(width=100))
    assert row(shown, "what the analysis says") == ["Inst", "Run", "Async"]
    assert row(shown, "different outputs, of 4") == ["3", "2", "1"]
    assert row(shown, "runs whose replicas disagreed, of 2") == ["2", "0", "0"]
    assert row(shown, "requests that replicas answered") == ["2", "0", "0"]
    assert row(shown, "requests that runs answered") == ["2", "2", "0"]
    assert row(shown, "wrong answers, of 240") == ["3", "4", "0"]


def test_the_example_says_what_each_replica_knew() -> None:
    shown = " ".join(text(show.document(OUTCOME), Layout(width=100)).split())
    assert "is ad 101 of campaign 1 a poor performer? It gets 180 clicks in all" in shown
    assert "replica 1 got it in micro-batch 1 of 3, knew 57 clicks, and said: poor" in shown
    assert "replica 2 got it in micro-batch 3 of 4, knew 180 clicks, and said: not poor" in shown


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = text(show.document(OUTCOME), Layout(width=width, unicode=False))
    assert all(len(line) <= width for line in shown.splitlines())


def test_the_json_has_everything_that_the_table_has() -> None:
    told = json.loads(json.dumps(show.to_json(OUTCOME)))
    assert told["schema_version"] == 1
    assert told["ways"]["uncoordinated"]["outputs"] == 3
    assert told["ways"]["sealed"] == {
        "runs": 2,
        "replicas": 2,
        "outputs": 1,
        "replicas_disagreed": 0,
        "requests_by_replica": 0,
        "requests_by_run": 0,
        "requests": 0,
        "wrong": 0,
    }
    assert told["example"]["witnesses"][0]["clicks"] == 57
    assert told["verdicts"]["ordered"] == "Run"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["anomalies", "--orders", "0"], "at least one run"),
        (["anomaly"], "did you mean anomalies?"),
        (["anomalies", "--sed", "1"], "did you mean --seed"),
    ],
)
def test_bad_usage_is_refused_before_spark_starts(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    assert told in capsys.readouterr().err
