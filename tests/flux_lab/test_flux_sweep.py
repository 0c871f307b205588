"""Random schedules and faults: nothing lost, repeated or reordered; copies agree; nothing leaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flux_lab import sweep
from flux_lab.faults import PHASES, ROLES, Troubles
from flux_lab.papers.protocol.inlet import Inlet
from flux_lab.papers.protocol.messages import Instruction
from flux_lab.papers.protocol.outlet import Outlet
from flux_lab.papers.protocol.segment import Segment
from flux_lab.plans import Plan
from flux_lab.sweep import RunError, replay
from flux_runtime.protocol.vocabulary import ProtocolError, Shape

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
"""Runs that once found a mistake; they are run again for ever."""

KEPT_START = Path(__file__).parent / "kept" / "seed-2953.json"


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> bytes:
        return "\n".join(map(str, sweep.run(seed).steps)).encode()

    for seed in (3, 17, 40):
        assert trace(seed) == trace(seed)
    assert trace(3) != trace(17)


def test_the_trace_is_the_same_in_every_process() -> None:
    """Byte for byte, whatever Python's hashes are salted with."""
    code = (
        "from flux_lab import sweep\n"
        "for seed in (3, 17, 40): print(*sweep.run(seed).steps, sep='\\n')"
    )

    def trace(salt: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True
        ).stdout

    assert trace("1") == trace("2") != b""


def test_every_kind_of_fault_strikes_and_every_step_of_catch_up_is_disturbed() -> None:
    totals = sweep.sweep(range(100))
    assert totals.failed == []
    assert set(totals.struck) == {
        "kill",
        "crash",
        "move",
        "suspect process",
        "suspect site",
        "close link",
        "close connection",
        *Troubles.KINDS,
    }
    assert {now for now, _ in totals.catch_up} == set(PHASES)
    assert {whom for _, whom in totals.catch_up} == set(ROLES)
    assert totals.runs > totals.multiplexed > 50
    assert totals.recoveries > 180


def test_every_workload_runs_from_its_seed_alone() -> None:
    for name in sweep.WORKLOADS:
        plan = sweep.drawn(name)(2)
        assert name == plan.WORKLOAD
        assert sweep.run(2, plan=plan).steps == sweep.run(2, plan=sweep.drawn(name)(2)).steps
        assert sweep.sweep(range(2, 3), workload=name).runs == 1


def test_what_is_not_reckless_loses_nothing() -> None:
    for seed in range(1000, 1015):
        done = sweep.run(seed)
        assert done.plan.reckless or not done.losses


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_runs_that_once_found_a_mistake(path: Path) -> None:
    replay(path)


def test_the_kept_run_of_an_outdated_start_finds_that_mistake_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The window opens at once, though a reverse is on its way (CU-10): no other seed finds it."""
    right = Segment._then

    def wrong(self: Segment, out: list[Instruction]) -> list[Instruction]:
        if self.to_start:
            attempt, self.to_start = self.to_start, 0
            out += self._open_window(attempt)
        return right(self, out)

    monkeypatch.setattr(Segment, "_then", wrong)
    with pytest.raises(ProtocolError, match=r"(?s)repeated: B0p'1 got 4 of A1s.*log position"):
        replay(KEPT_START, stories=True)


def test_the_kept_run_of_a_lost_pair_finds_that_mistake_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Units of a lost copy are passed over (FS-26)."""
    monkeypatch.setattr(Inlet, "_ahead", lambda self, new: False)
    with pytest.raises(ProtocolError, match="copies disagree: C0p got other rows in 6"):
        replay(KEPT_START.with_stem("seed-9385"))


def test_a_failing_run_can_be_kept_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Outlet, "reverse", lambda self, d: False)
        with pytest.raises(RunError) as failure:
            some_seeds()
        path = sweep.keep_with_story(failure.value, tmp_path)
        assert "log position" in path.with_suffix(".txt").read_text()
        with pytest.raises(ProtocolError):
            replay(path)
        assert sweep.main(["--replay", str(tmp_path)]) == 1
    assert sweep.main(["--replay", str(tmp_path)]) == 0


@pytest.mark.slow
def test_a_thousand_seeds_on_all_processors() -> None:
    totals = sweep.sweep_in_parallel(range(1_000), processes=2)
    assert totals.failed == []
    assert totals.runs == 1_000


def test_fs_26_the_loss_of_both_copies_is_reported() -> None:
    reported = sum(sweep.run(seed, plan=reckless()).losses > 0 for seed in range(15))
    assert reported > 5


def reckless() -> Plan:
    return Plan(
        shape=Shape(widths=(2, 2)),
        batches=8,
        rows=2,
        keys=5,
        every=1,
        sites=3,
        spares=1,
        link_capacity=2,
        kills=6,
        reckless=True,
        multiplexed=True,
    )


def some_seeds() -> None:
    for seed in range(100):
        sweep.run(seed)


def test_a_failing_run_prints_its_seed_and_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Outlet, "reverse", lambda self, d: False)
    with pytest.raises(RunError, match=r"seed \d+, step \d+.*\n.*\n.*--story"):
        some_seeds()
