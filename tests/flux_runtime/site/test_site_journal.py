"""The ingress's journal: what it keeps, what it forgets, what a replaced leader has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_lab.example import events
from flux_runtime.operators.rows import SN
from flux_runtime.site import journal as module
from flux_runtime.site.journal import Journal, Record

BATCHES = [batch.drop_columns(list(SN)) for batch in events(6, 4, keys=5)]


def record(n: int) -> Record:
    return Record(n, "events", (n, 0), BATCHES[n])


@pytest.mark.parametrize("fsync", [False, True])
def test_a_new_leader_reads_what_is_needed_and_nothing_that_a_replaced_one_wrote(
    tmp_path: Path, fsync: bool
) -> None:
    old = Journal(tmp_path, fsync=fsync)
    old.begin(1, 0)
    for n in range(3):
        old.append(record(n))
    new = Journal(tmp_path, fsync=fsync)
    assert [r.number for r in new.read()] == [0, 1, 2]
    new.begin(2, 3)
    old.append(record(3))  # it was only paused
    new.append(record(3)._replace(key=(30, 0)))
    last = Journal(tmp_path, fsync=fsync)
    found = [r for r in last.read() if r.rows is not None]
    assert [(r.number, r.key) for r in found] == [
        (0, (0, 0)),
        (1, (1, 0)),
        (2, (2, 0)),
        (3, (30, 0)),
    ]
    assert all(r.rows.equals(BATCHES[r.number]) for r in found)
    for journal in (old, new, last):
        journal.close()


def test_files_go_when_every_copy_has_their_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_FULL_BYTES", 1)
    journal = Journal(tmp_path)
    journal.begin(1, 0)
    for n in range(6):
        journal.append(record(n))
    before = len(list(tmp_path.iterdir()))
    journal.trim(5)
    assert before >= 6
    assert len(list(tmp_path.iterdir())) <= 2
    journal.close()
    again = Journal(tmp_path)
    assert [r.number for r in again.read() if r.rows is not None] == [5]
    assert again.last == {"events": (5, 0)}
