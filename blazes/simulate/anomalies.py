"""The end of a run, and how two runs, or the replicas of one, differ.

The three anomalies are those of the labels (Blazes figure 8): another run gives other records;
replicas of one run are given other records; replicas end with other state, when everything has
been delivered and nothing is left to repair it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from annotations.vocabulary import Label
from blazes.simulate.network import Manner, Network
from blazes.simulate.world import World
from blazes.verify.records import Row

Contents = tuple[frozenset[Row], ...]
"""What each instance sent on a stream, or holds."""


@dataclass(frozen=True, slots=True)
class End:
    """A run that has come to its end.

    Attributes:
        streams: stream -> what each instance of its producer sent, as a set.
        states: stream -> what each instance of its producer holds that it is computed from.
    """

    streams: dict[str, Contents]
    states: dict[str, Contents]
    released: dict[str, Contents]
    """Stream -> what each instance's gate handed over: (waiting input, record, how often)."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A difference that should not be, at a stream."""

    kind: Label
    """Run, Inst or Diverge."""
    stream: str


def end_of(world: World) -> End:
    """The end of a run."""
    network = world.network
    streams: dict[str, Contents] = {}
    states: dict[str, Contents] = {}
    released: dict[str, Contents] = {}
    for name, wire in network.wires.items():
        if wire.producer is None:
            continue
        component, output = wire.producer.component, wire.producer.interface
        count = network.replicas.get(component, 1)
        streams[name] = tuple(world.sent.get((name, n), frozenset()) for n in range(count))
        states[name] = tuple(state_of(world, network, component, output, n) for n in range(count))
        if any(part.at == wire.producer for part in network.gated):
            counts = [world.released.get((wire.producer, n), Counter()) for n in range(count)]
            released[name] = tuple(
                frozenset((at, row, times) for (at, row), times in counter.items())
                for counter in counts
            )
    return End(streams, states, released)


def state_of(
    world: World, network: Network, component: str, output: str, replica: int
) -> frozenset[Row]:
    """The state of an instance for an output: its kept records, and a result that can change.

    Requests that wait beside what is written are not state: no other request ever meets them.
    """
    instance = world.instances[component, replica]
    (part,) = (
        candidate for candidate in network.parts[component] if candidate.at.interface == output
    )
    state: set[Row] = set()
    for (name, interface), rows in instance.kept.items():
        waits = part.operator.writes and interface in part.operator.reads
        if name == output and not waits:
            state.update((interface, *row) for row in rows)
    if part.manner is Manner.CHANGING:
        state.update(("", *row) for row in instance.emitted.get(output, ()))
    return frozenset(state)


def within(end: End) -> Iterator[Anomaly]:
    """How the replicas of one run differ."""
    for stream, contents in end.streams.items():
        if len(set(end.states[stream])) > 1:
            yield Anomaly(Label.DIVERGE, stream)
        elif len(set(contents)) > 1:
            yield Anomaly(Label.INST, stream)


def between(one: End, other: End) -> Iterator[Anomaly]:
    """How two runs on the same input differ."""
    for stream, contents in one.streams.items():
        if contents != other.streams[stream] or one.released.get(stream) != other.released.get(
            stream
        ):
            yield Anomaly(Label.RUN, stream)
