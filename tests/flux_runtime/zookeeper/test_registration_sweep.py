"""Registrations leave ZooKeeper some time after their partitions' release, and not before."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import pytest

from flux_runtime.zookeeper import registration_sweep
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.registration_sweep import RegistrationSweep
from flux_runtime.zookeeper.registry import ProducerRegistry
from flux_runtime.zookeeper.znode_names import PartitionKey

KEYS = [(str(k),) for k in range(40)] + [("a/b", None, ""), ("k" * 5000,)]


class Clock:
    """Hours pass when a test says so; ZooKeeper's own clock stays."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def registry(client: Client, app: str) -> ProducerRegistry:
    registry = ProducerRegistry(client, app)
    registry.register_many("clicks", {key: ["a"] for key in KEYS})
    return registry


def test_a_registration_goes_an_hour_after_the_release(registry: ProducerRegistry) -> None:
    clock = Clock()
    sweep = RegistrationSweep(registry, clock=clock)
    released = set(KEYS[:10])
    sweep.released("clicks", released)

    def is_released(stream: str, keys: Sequence[PartitionKey]) -> Collection[PartitionKey]:
        return released & set(keys)

    sweep.joins("clicks", is_released)
    for _ in range(5):
        assert sweep.tick("clicks") == 0
    clock.ahead = 3601
    while sweep.tick("clicks"):
        pass
    assert {r.key for r in registry.registered("clicks")} == set(KEYS[10:])
    assert sweep.deleted == 10


def test_what_earlier_processes_released_and_what_came_too_late_is_swept(
    registry: ProducerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process remembers no release; the gate knows all of them."""
    monkeypatch.setattr(registration_sweep, "PIECE", 7)
    clock = Clock()
    released = set(KEYS[5:])
    asked: list[int] = []

    def is_released(stream: str, keys: Sequence[PartitionKey]) -> Collection[PartitionKey]:
        asked.append(len(keys))
        return released & set(keys)

    def whole_sweep(sweep: RegistrationSweep) -> None:
        for _ in range(len(KEYS)):
            sweep.tick("clicks")

    sweep = RegistrationSweep(registry, clock=clock)
    sweep.joins("clicks", is_released)
    whole_sweep(sweep)
    assert asked == []  # none is an hour old
    clock.ahead = 3700
    whole_sweep(sweep)
    assert {r.key for r in registry.registered("clicks")} == set(KEYS[:5])
    assert max(asked) <= 7
    assert registry.register("clicks", KEYS[6], ["b"])  # its records are late, whatever it says
    clock.ahead = 3 * 3700
    whole_sweep(sweep)
    assert {r.key for r in registry.registered("clicks")} == set(KEYS[:5])


def test_a_gate_that_answers_too_much_deletes_nothing_else(registry: ProducerRegistry) -> None:
    clock = Clock()
    clock.ahead = 3700
    sweep = RegistrationSweep(registry, clock=clock)
    registry.register("other", ("1",), ["a"])
    sweep.joins("clicks", lambda stream, keys: [*keys, ("1", "2"), ("not registered",)])
    sweep.tick("clicks")
    assert registry.registered("clicks") == ()
    assert [r.key for r in registry.registered("other")] == [("1",)]


def test_a_registration_stays_until_every_gate_has_released_its_partition(
    registry: ProducerRegistry,
) -> None:
    clock = Clock()
    sweep = RegistrationSweep(registry, clock=clock)
    slower = set(KEYS[:3])
    sweep.joins("clicks", lambda stream, keys: keys)
    sweep.joins("clicks", lambda stream, keys: slower & set(keys))
    sweep.released("clicks", KEYS[:10])
    clock.ahead = 3601
    for _ in range(3):
        sweep.tick("clicks")
    assert {r.key for r in registry.registered("clicks")} == set(KEYS[3:])
