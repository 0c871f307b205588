"""Random schedules and faults: nothing lost, repeated or reordered; copies agree; nothing leaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flux_runtime.protocol.outlet import Outlet
from flux_runtime.protocol.vocabulary import ProtocolError, Shape
from flux_runtime.simulation import sweep
from flux_runtime.simulation.sweep import Plan, RunError

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
"""Runs that once found a mistake; they are run again for ever."""


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> bytes:
        return "\n".join(map(str, sweep.run(seed).steps)).encode()

    for seed in (3, 17, 40):
        assert trace(seed) == trace(seed)
    assert trace(3) != trace(17)


def test_the_trace_is_the_same_in_every_process() -> None:
    """Byte for byte, whatever Python's hashes are salted with."""
    code = (
        "from flux_runtime.simulation import sweep\n"
        "for seed in (3, 17, 40): print(*sweep.run(seed).steps, sep='\\n')"
    )

    def trace(salt: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True
        ).stdout

    assert trace("1") == trace("2") != b""


def test_what_is_only_taken_for_dead_is_among_the_faults() -> None:
    kinds = {step.kind for seed in range(60) for step in sweep.run(seed).steps}
    assert kinds >= {"kill", "crash", "suspect", "resume", "close", "move", "evict"}


def test_two_hundred_seeds_with_mixed_faults() -> None:
    kills = recoveries = 0
    for seed in range(200):
        done = sweep.run(seed)
        kills, recoveries = kills + done.kills, recoveries + done.recoveries
        assert done.plan.reckless or not done.losses
    assert kills > 350
    assert recoveries > 350


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_runs_that_once_found_a_mistake(path: Path) -> None:
    sweep.replay(path)


def test_a_failing_run_can_be_kept_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Outlet, "reverse", lambda self, d: False)
        with pytest.raises(RunError) as failure:
            some_seeds()
        path = sweep.keep(failure.value.run, tmp_path)
        with pytest.raises(ProtocolError):
            sweep.replay(path)
    sweep.replay(path)


@pytest.mark.slow
def test_two_thousand_seeds() -> None:
    for seed in range(2_000):
        sweep.run(seed)


def test_fs_26_the_loss_of_both_copies_is_reported() -> None:
    reported = sum(sweep.run(seed, plan=reckless()).losses > 0 for seed in range(30))
    assert reported > 10


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
