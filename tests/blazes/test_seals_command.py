"""`blazes seals` over ledgers and a ZooKeeper that are real; Spark is not needed for it."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest

from blazes.cli import main
from flux_runtime.observe.decisions import Excuse, Resolve, pending
from flux_runtime.observe.gates import DESCRIPTION, LEDGER, describe
from flux_runtime.sealing.events import Group, Groups, Ingested
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.sealing.tracker import All, Rules
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three replicas of a unit, each with a partition that waits for ads-2."""
    folder = tmp_path / "clicks"
    rules = Rules(inputs={"clicks": All(("ads-1", "ads-2"))})
    for replica in (1, 2, 3):
        unit = folder / "state" / "units" / f"Report.response-{replica}"
        unit.mkdir(parents=True)
        (unit / DESCRIPTION).write_bytes(
            describe(unit.name, key=("campaign",), rules=rules, seal_timeout_s=600.0)
        )
        votes = tuple(Group(key_text([k]), "ads-1", 0, None, 1) for k in ("7", "\x1b[31m"))
        bad = key_text(["bad"])
        contradiction = (Group(bad, "ads-1", None, None, 2), Group(bad, "ads-1", 1, None, 1))
        with Ledger(unit / LEDGER, rules) as ledger:
            ledger.record(Ingested("clicks", 0, time.time() - 4000.0, Groups.of(votes)))
            if replica == 3:
                ledger.record(Ingested("clicks", 1, time.time() - 4000.0, Groups.of(contradiction)))
    (folder / "plan.json").write_text(json.dumps({"dataflow": str(uuid.uuid4())}), encoding="utf-8")
    return folder


def excuses(project: Path) -> dict[str, list[str]]:
    state = LocalStorage(project / "state")
    return {
        f"Report.response-{n}": [
            decision.producer
            for _, decision in pending(state, f"Report.response-{n}")
            if isinstance(decision, Excuse)
        ]
        for n in (1, 2, 3)
    }


def test_list(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seals", str(project), "--unit", "Report.response-2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "Report.response-2, sealed on campaign: 2 open, 0 released",
        "  waits for clicks: all of ads-1, ads-2",
        "  [7]  open for 1h06m, longer than seal_timeout, 0 records",
        "      clicks: no punctuation of ads-2",
        "  [\\x1b[31m]  open for 1h06m, longer than seal_timeout, 0 records",
        "      clicks: no punctuation of ads-2",
    ]
    assert main(["seals", str(project), "--limit", "1"]) == 0
    assert capsys.readouterr().out.count(" more (--limit)") == 3


def test_an_excuse_goes_to_all_units_that_wait(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["seals", str(project), "excuse", "--key=7", "--producer=ads-2", "--reason=gone"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("no longer waits for ads-2 (clicks)") == 3
    assert excuses(project) == {f"Report.response-{n}": ["ads-2"] for n in (1, 2, 3)}


def test_an_excuse_for_one_unit_alone(project: Path) -> None:
    arguments = ["--key=7", "--producer=ads-2", "--reason=gone", "--unit=Report.response-3"]
    assert main(["seals", str(project), "excuse", *arguments]) == 0
    assert list(excuses(project).values()) == [[], [], ["ads-2"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key=9", "--producer=ads-2", "--reason=x"], "no open partition [9]"),
        (["--key=7", "--producer=ads-1", "--reason=x"], "does not wait for ads-1"),
        (["--key=7", "--producer=ads-2"], "excuse needs --reason"),
        (["--producer=ads-2", "--reason=x"], "excuse needs --key"),
        (["--key=7", "--producer=ads-2", "--reason=x", "--stream=click"], "no open partition"),
    ],
)
def test_excuses_that_make_no_sense(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["seals", str(project), "excuse", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not any(excuses(project).values())


@pytest.mark.parametrize("action", ["release", "discard", "recount"])
def test_a_quarantine_is_resolved_by_a_person(
    project: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    arguments = ["seals", str(project), action, "--key=bad", "--reason=checked", "--by=kim"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"Report.response-3: [bad]: {action}\n"
    ((_, decision),) = pending(LocalStorage(project / "state"), "Report.response-3")
    assert isinstance(decision, Resolve)
    assert (decision.key, decision.resolution, decision.by) == (("bad",), action, "kim")
    assert main(["seals", str(project), action, "--key=7", "--reason=x"]) == 2
    assert "[7] is not in quarantine" in capsys.readouterr().err
    assert main(["seals", str(project), action, "--key=9", "--reason=x"]) == 2
    assert "[9] is not open" in capsys.readouterr().err


def test_nothing_has_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    assert main(["seals", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No sealed unit has run.\n"
    assert main(["seals", str(tmp_path), "--unit", "X.y"]) == 2
    assert "no sealed unit yet" in capsys.readouterr().err


def test_producers_are_registered_in_the_given_ensemble(
    project: Path, zookeeper_hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = tmp_path / "sets.json"
    sets.write_text('{"1": ["b", "a"], "x/y": ["c"]}', encoding="utf-8")
    seals = ["seals", str(project), "--zookeeper", zookeeper_hosts, "--stream", "clicks"]
    assert main([*seals, "register", "--from", str(sets)]) == 0
    assert main([*seals, "register", "--key", "2", "--producer", "a", "--producer", "b"]) == 0
    capsys.readouterr()
    assert main([*seals, "registered"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "clicks: 3 partitions",
        "  [1]  a, b",
        "  [2]  a, b",
        "  [x/y]  c",
    ]
    assert main([*seals, "register", "--key", "2", "--producer", "z"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert main([*seals, "register", "--key", "2", "--producer", "z", "--replace"]) == 0
    assert main([*seals, "registered", "--format", "json"]) == 0
    printed = capsys.readouterr().out
    registered = json.loads(printed[printed.index("{") :])["streams"]["clicks"]
    assert registered[1] == {"key": ["2"], "producers": ["z"], "frozen": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["register"], "register needs --stream"),
        (["register", "--stream", "s"], "register needs --key, --producer"),
        (["register", "--stream", "s", "--from", "gone.json"], "gone.json: No such file"),
        (["registered", "--zookeeper", "no such:thing"], "is no list of addresses"),
    ],
)
def test_bad_usage(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["seals", str(project), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.zookeeper
def test_the_jobs_own_server_is_used_whether_it_runs_or_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seals = ["seals", str(project), "--stream", "clicks"]
    assert main([*seals, "register", "--key", "1", "--producer", "a"]) == 0
    with EmbeddedZooKeeper(project / "state" / "zookeeper") as server:
        pid = server.pid
        assert main([*seals, "register", "--key", "2", "--producer", "a"]) == 0
        capsys.readouterr()
        assert main([*seals, "registered"]) == 0
        assert server.pid == pid
    assert capsys.readouterr().out.startswith("clicks: 2 partitions")
