"""The ingress's journal, what a replaced leader has written, and the rates of a stage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flux_lab.example import events, running_example
from flux_lab.papers.host import Host
from flux_lab.papers.intake import PapersIntake
from flux_lab.papers.protocol.controller import Controller, chained
from flux_runtime.operators.rows import SN
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.site import journal as module
from flux_runtime.site import stage_log
from flux_runtime.site.copies import LEADER
from flux_runtime.site.journal import END_KEY, Journal, JournalDamaged, Record
from flux_runtime.site.stage_log import RATE_S, StageLog

BATCHES = [batch.drop_columns(list(SN)) for batch in events(6, 4, keys=5)]


def record(n: int) -> Record:
    return Record(n, "events", (n, 0), BATCHES[n])


def six_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal of six batches, each in a file of its own."""
    monkeypatch.setattr(module, "FILE_FULL_BYTES", 1)
    journal = Journal(folder)
    journal.begin(1, 0)
    for n in range(6):
        journal.append(record(n))
    return journal


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
    new.begin(2, 3, new.read())
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


def test_what_a_replaced_leader_wrote_is_not_read_when_its_successors_files_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_FULL_BYTES", 1)
    old, new = Journal(tmp_path), Journal(tmp_path)
    old.begin(1, 0)
    old.append(record(0))
    new.begin(2, 1, [r for r in new.read() if r.rows is not None])
    for n in range(1, 5):
        new.append(record(n))
    new.trim(4)
    for n in range(1, 4):  # it was only paused
        old.append(record(n)._replace(key=(30, n)))
    last = Journal(tmp_path)
    needed = [r for r in last.read() if r.rows is not None]
    assert [(r.number, r.key) for r in needed] == [(4, (4, 0))]
    last.begin(3, 5, needed)
    old.append(record(4)._replace(key=(40, 0)))
    again = Journal(tmp_path)
    assert [(r.number, r.key) for r in again.read() if r.rows is not None] == [(4, (4, 0))]
    assert again.last == {"events": (4, 0)}
    for journal in (old, new, last):
        journal.close()


def test_batches_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = six_files(tmp_path, monkeypatch)
    journal.close()
    (tmp_path / "000001-000000000003").unlink()
    with pytest.raises(JournalDamaged, match=r"batches 3 to 3 are missing .* durable=\"machine\""):
        Journal(tmp_path).read()


def test_files_go_when_every_copy_has_their_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = six_files(tmp_path, monkeypatch)
    before = len(list(tmp_path.iterdir()))
    journal.trim(5)
    assert before >= 6
    assert len(list(tmp_path.iterdir())) <= 2
    journal.close()
    again = Journal(tmp_path)
    assert [r.number for r in again.read() if r.rows is not None] == [5]
    assert again.last == {"events": (5, 0)}
    again.begin(2, 6)
    again.trim(6)
    host = Host(running_example(shape := Shape(widths=(2, 1))), LEADER, credits=1)
    controller = Controller(host.dataflow.shape, chained(shape, 2), frozenset((0, 1)))
    intake = PapersIntake(host, Journal(tmp_path), window=1, on_taken=lambda *_: None)
    intake.begin(3, controller, {}, position=0)  # whoever had received them is gone
    assert intake.ingress.last == 5


def test_a_file_that_could_not_be_begun_hides_nothing_of_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    first = Journal(tmp_path, fsync=True)
    first.begin(1, 0)
    first.append(Record(0, "", END_KEY, None))
    second = Journal(tmp_path, fsync=True)
    second.read()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            second.begin(2, 0)
    third = Journal(tmp_path, fsync=True)
    assert [record.key for record in third.read()] == [END_KEY]
    third.begin(3, 0)
    assert [record.key for record in Journal(tmp_path).read()] == [END_KEY]


def test_a_rate_is_the_mean_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stage_log.time, "monotonic", lambda: now)
    log = StageLog(None, "stage", lambda: pytest.fail("nothing is written"))
    rates, rows = [], 0
    for half in range(1, 81):
        rows += 2000 if half % 4 == 0 and half <= 60 else 0  # a batch every two seconds, for 30 s
        rates.append(log._rows_per_s(now + half / 2, rows))
    assert min(rates[4:60]) > 500
    assert 900 <= rates[55] <= 1100
    assert rates[-1] == 0.0
    assert len(log.rows) <= 2 * RATE_S + 2
