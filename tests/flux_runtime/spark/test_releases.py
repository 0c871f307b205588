"""Releases and housekeeping of a sealed unit do not wait for each other."""

from __future__ import annotations

import threading

import pytest

from flux_runtime.spark.sealed import releases
from flux_runtime.spark.sealed.releases import Releaser


def test_a_release_does_not_wait_for_housekeeping() -> None:
    answered, kept, work = threading.Event(), threading.Event(), [True]

    def keep_house() -> None:
        answered.wait(10.0)
        kept.set()

    releaser = Releaser("releases", lambda: bool(work and work.pop()), keep_house, lambda: False)
    releaser.start()
    releaser.drain()
    work.append(True)
    releaser.wake()
    releaser.drain()
    assert not work
    assert not kept.is_set()
    answered.set()
    releaser.stop()
    releaser.check()


def test_housekeeping_does_not_wait_for_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "PERIOD_S", 0.0)
    house: list[None] = []
    kept = threading.Event()

    def keep_house() -> None:
        house.append(None)
        if len(house) == 3:
            kept.set()
            raise RuntimeError("house")

    def work() -> bool:  # more is always due, and each piece is followed by a rest
        return not kept.wait(0.01)

    releaser = Releaser("releases", work, keep_house, lambda: not kept.is_set())
    releaser.start()
    assert kept.wait(60.0)
    releaser.drain()
    releaser.stop()
    with pytest.raises(RuntimeError, match="house"):
        releaser.check()
