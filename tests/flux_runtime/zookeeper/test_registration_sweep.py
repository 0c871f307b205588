"""Registrations leave ZooKeeper some time after their partitions' release, and not before."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import pytest
from zookeeper_wire import Wire
from zookeeper_world import until

from flux_runtime.zookeeper import registration_sweep
from flux_runtime.zookeeper.client import Client, connect
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


class Gate:
    """What a gate has released."""

    def __init__(self, *keys: PartitionKey) -> None:
        self.released = set(keys)
        self.asked: list[int] = []

    def __call__(self, keys: Sequence[PartitionKey]) -> Collection[PartitionKey]:
        self.asked.append(len(keys))
        return self.released & set(keys)


def whole(sweep: RegistrationSweep) -> None:
    for _ in range(len(KEYS)):
        sweep.piece()


def left(registry: ProducerRegistry) -> set[PartitionKey]:
    return {registration.key for registration in registry.registered("clicks")}


def test_a_registration_goes_an_hour_after_the_release(registry: ProducerRegistry) -> None:
    clock, gate = Clock(), Gate(*KEYS[:10])
    sweep = RegistrationSweep(registry, {"clicks": ["Count"]}, clock=clock)
    sweep.serve("clicks", "Count", gate)
    sweep.released("clicks", gate.released)
    whole(sweep)
    assert left(registry) == set(KEYS)
    clock.ahead = 3601
    whole(sweep)
    assert left(registry) == set(KEYS[10:])
    assert sweep.deleted == 10


def test_the_oldest_go_before_the_hour_where_there_are_many(
    registry: ProducerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_sweep, "KEPT_MAX", 4)
    monkeypatch.setattr(registration_sweep, "PIECE", 2)
    clock, gate = Clock(), Gate(*KEYS[:10])
    sweep = RegistrationSweep(registry, {"clicks": ["Count"]}, clock=clock)
    sweep.serve("clicks", "Count", gate)
    sweep.released("clicks", KEYS[:10])
    assert sweep.piece() == 6
    whole(sweep)
    assert left(registry) == set(KEYS[6:])


def test_what_earlier_processes_released_and_what_came_too_late_is_swept(
    registry: ProducerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process remembers no release; the gate knows all of them."""
    monkeypatch.setattr(registration_sweep, "PIECE", 7)
    clock, gate = Clock(), Gate(*KEYS[5:])
    sweep = RegistrationSweep(registry, {"clicks": ["Count"]}, clock=clock)
    sweep.serve("clicks", "Count", gate)
    whole(sweep)
    assert gate.asked == []  # none is an hour old
    clock.ahead = 3700
    whole(sweep)
    assert left(registry) == set(KEYS[:5])
    assert max(gate.asked) <= 7
    assert registry.register("clicks", KEYS[6], ["b"])  # its records are late, whatever it says
    clock.ahead = 3 * 3700
    whole(sweep)
    assert left(registry) == set(KEYS[:5])


def test_every_gate_that_seals_the_stream_must_have_released_it(
    registry: ProducerRegistry,
) -> None:
    clock, quick, slow = Clock(), Gate(*KEYS), Gate(*KEYS[:3])
    sweep = RegistrationSweep(registry, {"clicks": ["Quick", "Slow"]}, clock=clock)
    sweep.serve("clicks", "Quick", quick)
    sweep.released("clicks", quick.released)
    clock.ahead = 3700
    whole(sweep)
    assert left(registry) == set(KEYS)  # the other one has not said how it can be asked
    sweep.serve("clicks", "Slow", slow)
    clock.ahead = 2 * 3700
    whole(sweep)
    assert left(registry) == set(KEYS[3:])


def test_a_gate_that_answers_too_much_deletes_nothing_else(registry: ProducerRegistry) -> None:
    clock = Clock()
    clock.ahead = 3700
    sweep = RegistrationSweep(registry, {"clicks": ["Count"]}, clock=clock)
    registry.register("clicks", ("1", "2"), ["a"])
    sweep.serve("clicks", "Count", lambda keys: [*keys[:1], ("1", "2"), ("not registered",)])
    registry.register("other", ("1",), ["a"])
    sweep.piece()
    assert len(left(registry)) == len(KEYS) - 1
    assert [r.key for r in registry.registered("other")] == [("1",)]


def test_the_thread_goes_on_after_the_ensemble_was_away(app: str, wire: Wire) -> None:
    clock = Clock()
    with connect(wire.hosts, session_timeout_s=4.0) as remote:
        registry = ProducerRegistry(remote, app, timeout_s=2.0)
        registry.register_many("clicks", {key: ["a"] for key in KEYS})
        sweep = RegistrationSweep(registry, {"clicks": ["Count"]}, clock=clock)
        with sweep:
            sweep.serve("clicks", "Count", Gate(*KEYS))
            wire.stop()
            clock.ahead = 3700
            until(lambda: remote.state.value != "connected")
            wire.resume()
            until(lambda: remote.state.value == "connected")
            clock.ahead = 2 * 3700
            until(lambda: not registry.registered("clicks"))
