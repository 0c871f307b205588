"""What people see of open partitions, and what they ask for, read from real ledgers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from flux_runtime.observe.decisions import Decision, Excuse, Resolve, pending, request, taken
from flux_runtime.observe.gates import DESCRIPTION, LEDGER, describe, read_gates
from flux_runtime.sealing.events import Excused, Found, Group, Groups, Ingested, Resolution
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.sealing.tracker import All, One, Registered, Rules

RULES = Rules(
    inputs={"clicks": All(("ads-1", "ads-2")), "views": Registered(), "Other.out": One()},
    requests=("queries",),
)


def gate(state: Path, unit: str = "Count.counts", rules: Rules = RULES) -> Ledger:
    """A sealed unit's part of the state folder, as the runtime writes it."""
    folder = state / "units" / unit
    folder.mkdir(parents=True)
    (folder / DESCRIPTION).write_bytes(
        describe(unit, key=("campaign",), rules=rules, seal_timeout_s=600.0)
    )
    return Ledger(folder / LEDGER, rules)


def data(key: str, producer: str, rows: int) -> Group:
    return Group(key_text([key]), producer, None, None, rows)


def vote(key: str, producer: str, count: int) -> Group:
    return Group(key_text([key]), producer, count, None, 1)


def test_open_partitions_and_what_they_wait_for(tmp_path: Path) -> None:
    ledger = gate(tmp_path)
    groups = Groups.of([data("7", "ads-1", 3), vote("7", "ads-1", 5), data("8", "ads-2", 1)])
    ledger.record(Ingested("clicks", 0, 1000.0, groups))
    ledger.record(Found("views", 1001.0, {key_text(["7"]): ("p",)}))
    (view,) = read_gates(tmp_path)
    assert view.unit == "Count.counts"
    assert view.key == ("campaign",)
    assert view.inputs == {
        "clicks": "all of ads-1, ads-2",
        "views": "registered in ZooKeeper",
        "Other.out": "one producer for each partition",
    }
    seven, eight = view.partitions
    assert (seven.key, seven.status, seven.opened, seven.records) == (("7",), "open", 1000.0, 3)
    assert seven.missing == {"clicks": ("ads-2",), "views": ("p",)}
    assert "clicks: 3 of 5 records of ads-1" in seven.waits_for
    assert "views: its producers are not known" in eight.waits_for


def test_excused_and_contradictory_partitions(tmp_path: Path) -> None:
    ledger = gate(tmp_path, rules=Rules(inputs={"clicks": All(("ads-1", "ads-2"))}))
    ledger.record(
        Ingested("clicks", 0, 1.0, Groups.of([vote("7", "ads-1", 1), vote("8", "ads-1", 0)]))
    )
    ledger.record(Excused("clicks", key_text(["7"]), "ads-2", "gone", "kim", 2.0))
    ledger.record(Ingested("clicks", 1, 3.0, Groups.of([data("8", "ads-1", 2)])))
    (view,) = read_gates(tmp_path)
    seven, eight = view.partitions
    assert seven.excused == {"clicks": ("ads-2",)}
    assert seven.missing == {}
    assert eight.status == "quarantined"
    assert eight.contradiction == "clicks: ads-1: more records than promised: 0, then 2"


def test_reading_changes_nothing(tmp_path: Path) -> None:
    gate(tmp_path).record(Ingested("clicks", 0, 1.0, Groups.of([data("7", "ads-1", 1)])))

    def contents() -> dict[Path, bytes]:
        files = (f for f in tmp_path.rglob("*") if f.is_file() and not f.name.startswith("LOG"))
        return {file: file.read_bytes() for file in files}

    before = contents()
    read_gates(tmp_path)
    assert contents() == before


def test_reading_while_the_job_writes_and_tidies(tmp_path: Path) -> None:
    ledger = gate(tmp_path)
    done = threading.Event()

    def write() -> None:
        for batch in range(400):
            ledger.record(Ingested("clicks", batch, 1.0, Groups.of([data("7", "ads-1", 1)])))
            if batch % 100 == 0:
                ledger._db.flush()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not done.is_set():
        (view,) = read_gates(tmp_path)
        seen += [partition.records for partition in view.partitions]
    writer.join()
    (view,) = read_gates(tmp_path)
    assert view.partitions[0].records == 400
    assert len(seen) > 3


def test_no_unit_has_run(tmp_path: Path) -> None:
    assert read_gates(tmp_path / "state") == ()


@pytest.mark.parametrize(
    "decision",
    [
        Excuse(
            stream="clicks", key=("a/b", "2"), producer="ads-2", by="kim", reason="gone", time=1.5
        ),
        Resolve(key=("a/b", "2"), resolution=Resolution.DISCARD, by="kim", reason="gone", time=1.5),
    ],
)
def test_a_decision_is_a_file_until_it_is_taken_and_a_record_after(
    tmp_path: Path, decision: Decision
) -> None:
    unit = "Count/counts"
    name = request(tmp_path, unit, decision)
    state = LocalStorage(tmp_path)
    assert list(pending(state, unit)) == [(name, decision)]
    assert list(pending(state, "Other.out")) == []
    taken(state, unit, name)
    taken(state, unit, name)
    assert list(pending(state, unit)) == []
    (record,) = (tmp_path / "decisions").rglob("taken/*.json")
    assert json.loads(record.read_text(encoding="utf-8"))["by"] == "kim"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"stream": 1}', '{"key": 3}', '{"key": ["3"], "resolution": "maybe"}']
)
def test_a_file_that_is_no_decision_is_left_alone(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "decisions" / "U.out"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(content, encoding="utf-8")
    (folder / "notes.txt").write_text("hello", encoding="utf-8")
    assert list(pending(LocalStorage(tmp_path), "U.out")) == []
    assert (folder / "x.json").exists()
