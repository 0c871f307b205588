"""A plan's dataflow, indexed the way reports walk it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from annotations.dataflow import Component, Endpoint, Path, Stream
from annotations.delivery import counts
from annotations.vocabulary import AnnotationKind
from blazes.advice import Advisor
from blazes.analysis import Derivation
from blazes.coordination import Entry, Plan, Strategy


@dataclass(frozen=True, slots=True)
class Index:
    """Components in topological order, and what goes in and out of them."""

    plan: Plan
    components: tuple[str, ...]
    """A component stands after those that its first derived output depends on."""
    sources: tuple[Stream, ...]
    sinks: tuple[Stream, ...]
    into: Mapping[Endpoint, tuple[Stream, ...]]
    out_of: Mapping[str, tuple[Stream, ...]]
    """By component."""
    derivations: Mapping[str, tuple[Derivation, ...]]
    """By component."""
    entries: Mapping[str, tuple[Entry, ...]]
    """By component; the plan for its order-sensitive paths."""
    advisor: Advisor

    @classmethod
    def of(cls, plan: Plan) -> Index:
        """Index a plan; linear in its size."""
        dataflow = plan.analysis.dataflow
        into: dict[Endpoint, list[Stream]] = {}
        out_of: dict[str, list[Stream]] = {}
        for stream in dataflow.streams.values():
            if stream.consumer is not None:
                into.setdefault(stream.consumer, []).append(stream)
            if stream.producer is not None:
                out_of.setdefault(stream.producer.component, []).append(stream)
        derivations: dict[str, list[Derivation]] = {}
        for derivation in plan.analysis.derivations:
            derivations.setdefault(derivation.component, []).append(derivation)
        entries: dict[str, list[Entry]] = {}
        for entry in plan.entries:
            entries.setdefault(entry.component, []).append(entry)
        streams = tuple(dataflow.streams.values())
        return cls(
            plan=plan,
            components=tuple(dict.fromkeys([*derivations, *dataflow.components])),
            sources=tuple(stream for stream in streams if stream.producer is None),
            sinks=tuple(stream for stream in streams if stream.consumer is None),
            into={end: tuple(edges) for end, edges in into.items()},
            out_of={name: tuple(edges) for name, edges in out_of.items()},
            derivations={name: tuple(group) for name, group in derivations.items()},
            entries={name: tuple(group) for name, group in entries.items()},
            advisor=Advisor(plan),
        )

    def component(self, name: str) -> Component:
        """The component of that name."""
        return self.plan.analysis.dataflow.components[name]

    def streams_into(self, component: str, interfaces: Iterable[str]) -> Iterator[Stream]:
        """The streams that enter these interfaces."""
        for interface in interfaces:
            yield from self.into.get(Endpoint(component, interface), ())

    def coordinated(self, component: str) -> tuple[Entry, ...]:
        """The component's entries that make something wait."""
        return tuple(
            entry
            for entry in self.entries.get(component, ())
            if entry.strategy is not Strategy.NONE
        )

    def by_watermark(self, entry: Entry) -> bool:
        """Whether a seal waits for newer records only, so that nothing is counted or voted on."""
        streams = [self.plan.analysis.dataflow.streams[name] for name in entry.streams]
        return all(stream.seals and not counts(stream) for stream in streams)

    def need_coordination(self) -> tuple[str, ...]:
        """The components that the plan coordinates, in topological order."""
        return tuple(name for name in self.components if self.coordinated(name))


def state_group(path: Path) -> str | None:
    """The state that a path shares: its named group, "" for the default one, None for none."""
    if path.state is not None:
        return path.state
    return None if path.annotation.kind is AnnotationKind.CR else ""


def other_writers(component: Component, path: Path) -> tuple[Path, ...]:
    """The rendezvous of a path: the other paths that write the state it works on."""
    group = state_group(path)
    return tuple(
        other
        for other in component.paths
        if other is not path
        and other.annotation.kind.writes
        and group is not None
        and state_group(other) == group
    )
