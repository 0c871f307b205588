"""What is wrong with the kept state of a sealed unit is found while nothing runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flux_runtime.observe.gates import DESCRIPTION, LEDGER, describe
from flux_runtime.observe.seal_audit import damage_of_seals
from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import Chunk, Coverage, Group, Groups, Ingested
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.sealing.tracker import All, Rules

RULES = Rules(inputs={"clicks": All(("a", "b"))})


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """A unit after two micro-batches, as the runtime writes it."""
    folder = tmp_path / "units" / "Count.counts"
    folder.mkdir(parents=True)
    about = describe("Count.counts", key=("k",), rules=RULES, seal_timeout_s=1.0)
    (folder / DESCRIPTION).write_bytes(about)
    checkpoint = folder / "checkpoint" / "clicks"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "query-1"}))
    buffer = LocalStorage(folder / "buffer" / "clicks")
    with Ledger(folder / LEDGER, RULES) as ledger:
        for batch in range(2):
            name = Chunk("records").name(batch)
            buffer.write(f"{name}/part-0", b"rows of a chunk")
            chunk = Chunk("records", 1, 1, 0, manifest.take(buffer, name))
            coverage = Coverage("query-1", str(batch - 1), str(batch))
            groups = Groups.of([Group('["1"]', "a", None, None, 1)])
            event = Ingested("clicks", batch, 1.0, groups, coverage=coverage, chunk=chunk)
            ledger.record(event)
            for log in ("offsets", "commits"):
                (checkpoint / log / str(batch)).write_text("")
    return folder


def test_a_whole_state_has_no_findings(unit: Path) -> None:
    assert list(damage_of_seals(unit.parents[1])) == []


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def last_commit(unit: Path) -> None:
    (unit / "checkpoint" / "clicks" / "commits" / "2").write_text("")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a part deleted": (
        lambda unit: (unit / "buffer/clicks/000000001.records/part-0").unlink(),
        "missing",
    ),
    "a chunk deleted": (
        lambda unit: shutil.rmtree(unit / "buffer/clicks/000000000.records"),
        "missing",
    ),
    "a part changed": (lambda unit: flip(unit / "buffer/clicks/000000001.records/part-0"), "CRC32"),
    "a part added": (
        lambda unit: (unit / "buffer/clicks/000000001.records/part-1").write_text("x"),
        "added",
    ),
    "the ledger deleted": (lambda unit: shutil.rmtree(unit / LEDGER), "micro-batches were taken"),
    "the ledger changed": (
        lambda unit: flip(next((unit / LEDGER).glob("*.sst"))),
        "cannot be read",
    ),
    "the checkpoint deleted": (
        lambda unit: shutil.rmtree(unit / "checkpoint"),
        "the checkpoint is missing",
    ),
    "another checkpoint": (
        lambda unit: (unit / "checkpoint/clicks/metadata").write_text('{"id": "query-2"}'),
        "not the checkpoint",
    ),
    "an older checkpoint": (
        lambda unit: (unit / "checkpoint/clicks/offsets/1").unlink(),
        "ends at micro-batch 0, the ledger took 1",
    ),
    "an older ledger": (last_commit, "up to 2 were taken, and the ledger knows of 1"),
    "no description": (lambda unit: (unit / DESCRIPTION).unlink(), "it is missing"),
    "half a description": (lambda unit: (unit / DESCRIPTION).write_text("{"), "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_with_a_remedy(unit: Path, name: str) -> None:
    damage, problem = DAMAGE[name]
    damage(unit)
    found = list(damage_of_seals(unit.parents[1]))
    assert [problem in damaged.problem for damaged in found] == [True]
    assert "--fresh" in found[0].remedy
    assert str(unit) in found[0].place
