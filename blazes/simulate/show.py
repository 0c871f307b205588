"""The report of a simulation for people: a line for each stream, and a story for each anomaly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from annotations.vocabulary import Label
from blazes.document import blocks as b
from blazes.report.notation import label_span, role_of
from blazes.simulate import repro
from blazes.simulate.anomalies import Contents
from blazes.simulate.drive import Run
from blazes.simulate.hunt import Hunted, Witness
from blazes.simulate.messages import Item, Message
from blazes.simulate.network import Network
from blazes.simulate.simulation import Simulated
from blazes.simulate.world import Bag, Event, World
from blazes.verify.records import Row, shown, sort_key

SCHEMA_VERSION: Final = 1
MEANS: Final = {
    Label.RUN: "Another schedule of the same input gives other records.",
    Label.INST: "The replicas of one run give different records.",
    Label.DIVERGE: "The replicas end with different state, when everything has been delivered.",
}
OTHERWISE: Final = "What comes out is not what complete partitions give."
"""Where gates wait, the first run is that of gates that know everything."""
ROWS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Told:
    """One delivery, with all that came of it at once."""

    arrival: Event
    consequences: tuple[Event, ...]


def document(simulated: Simulated, networks: dict[bool, Network]) -> b.Document:
    """The document of `blazes simulate`."""
    dataflow = simulated.analysis.dataflow
    blocks = [_verdict(simulated), *b.section("Streams", [_streams(simulated)])]
    for witness in stories(simulated):
        blocks += story(witness, networks[witness.coordinated])
    blocks += b.section("How", [b.paragraph(*_how(simulated))])
    return b.Document(dataflow.name, tuple(blocks), about=str(dataflow.file or ""))


def stories(simulated: Simulated) -> list[Witness]:
    """The witnesses to tell: what must not be, else the first of each kind."""
    if simulated.unexpected:
        return list(simulated.unexpected[:3])
    first: dict[Label, Witness] = {}
    names = list(simulated.analysis.dataflow.streams)
    for anomaly, witness in sorted(
        simulated.free.witnesses.items(), key=lambda entry: names.index(entry[0].stream)
    ):
        first.setdefault(anomaly.kind, witness)
    if len(first) > 1:
        first.pop(Label.RUN, None)  # replicas that differ say it more shortly
    return [first[kind] for kind in sorted(first)]


def _verdict(simulated: Simulated) -> b.Verdict:
    bad = simulated.unexpected
    if bad:
        word, sentence = f"{len(bad)} unexpected", "Something worse than its label was seen."
    elif simulated.planned is None:
        word, sentence = "as labelled", f"The plan was not simulated: {simulated.refused}."
    else:
        word = "as planned"
        sentence = (
            f"Under the plan no anomaly was seen in {simulated.planned.schedules:,} schedules of "
            f"{simulated.planned.inputs:,} inputs."
        )
    free = simulated.free
    seen = sum(1 for row in simulated.rows if row.seen)
    predicted = sum(1 for row in simulated.rows if row.label.label >= Label.RUN)
    free_said = (
        f"Uncoordinated, {seen} of the {predicted} streams that are called nondeterministic were "
        f"seen to be, in {free.schedules:,} schedules of {free.inputs:,} inputs."
    )
    return b.Verdict("✗" if bad else "✓", word, "bad" if bad else "good", (sentence, free_said))


def _streams(simulated: Simulated) -> b.Table:
    heads = ("stream", "uncoordinated", f"seen, of {simulated.free.inputs}", "under the plan")
    rows = tuple(
        (
            b.code(row.stream),
            label_span(row.label),
            _seen(row.seen, row.label.label),
            label_span(row.planned),
        )
        for row in simulated.rows
    )
    return b.Table(heads, rows)


def _seen(seen: Any, label: Label) -> b.Words:
    if not seen:
        return b.Span("nothing" if label < Label.RUN else "not yet", "soft")
    parts = [b.Span(f"{kind} in {seen[kind]}", role_of(kind)) for kind in sorted(seen)]
    return tuple(piece for part in parts for piece in (", ", part))[1:]


def _how(simulated: Simulated) -> list[str]:
    engines = sorted(set(simulated.engines.values()))
    lines = [
        f"Components ran on {' and '.join(engines) or 'no engine'}; a replicated one as "
        f"{simulated.replicas} instances. {simulated.free.exhausted} inputs were small enough to "
        "try every interleaving.",
    ]
    failed = simulated.free.failed + (simulated.planned.failed if simulated.planned else 0)
    if failed:
        error = simulated.free.error or (simulated.planned.error if simulated.planned else "")
        lines.append(f"{failed} inputs had no outcome, because a component failed: {error}")
    lines.append(
        f"{simulated.seconds:.0f} s; seed {simulated.seed}. What was not seen is not excluded."
    )
    return lines


def story(witness: Witness, network: Network) -> list[b.Block]:
    """A witness as it happened, delivery by delivery."""
    kind, stream = witness.anomaly.kind, witness.anomaly.stream
    gated = bool(network.gated)
    planned = " under the plan" if witness.coordinated else ""
    means = OTHERWISE if gated and kind is Label.RUN else MEANS[kind]
    aspects: list[tuple[str, Sequence[b.Block]]] = [
        ("Seen", [b.paragraph(means)]),
        ("Input", [b.paragraph(*_inputs(witness.given, network))]),
    ]
    for number, run in enumerate(witness.runs):
        name = "Run" if len(witness.runs) == 1 else f"Run {number + 1}"
        if gated and len(witness.runs) > 1:
            name = "Run" if number else "Right"
        order = witness.order if number == len(witness.runs) - 1 else None
        steps = (_step(step, network) for step in deliveries_of(network, witness, run, order))
        outcome = b.paragraph(*_outcome(witness, run, network), role="bad")
        aspects.append((name, [b.paragraph(*steps, form="numbered"), outcome]))
    return [b.Heading(f"{kind} at {stream}{planned}"), b.aspects(*aspects)]


def deliveries_of(network: Network, witness: Witness, run: Run, order: Any) -> list[Told]:
    """A run again, with every delivery and its consequences noted."""
    oracle = len(witness.runs) > 1 and run is witness.runs[0]
    world = World(network, dict(witness.given), order, oracle=oracle)
    deliveries: list[Told] = []
    for step in run.steps:
        if not world.possible(step):
            continue
        world.events = []
        world.perform(step)
        arrival, *rest = world.events
        deliveries.append(Told(arrival, tuple(rest)))
    return deliveries


def _inputs(given: Any, network: Network) -> Iterator[str]:
    for stream, bag in given.items():
        columns = network.wires[stream].columns
        for row, times in bag.items():
            yield f"{stream}: {_record(row, columns, times)}"


def _step(step: Told, network: Network) -> b.Words:
    """Who receives what, and what comes of it."""
    at = step.arrival
    columns = _interface(network, at.component, at.name)
    received = f" receives {at.name} {_bag(at.rows, columns)}"
    line: list[str | b.Span] = [b.Span(_who(at, network), "strong"), received]
    for event in step.consequences:
        if event.kind == "emits":
            text = f"{event.name} {_bag(event.rows, _emits(network, event))}"
            line += [b.BREAK, b.Span("  → ", "soft"), b.Span(text, "seal")]
        elif event.kind == "releases":
            for value in event.rows:
                text = ", ".join(map(shown, value)) if isinstance(value, tuple) else str(value)
                line += [b.BREAK, b.Span(f"  partition {text} is complete", "soft")]
    return tuple(line)


def _outcome(witness: Witness, run: Run, network: Network) -> Iterator[str]:
    """The outcome of each replica, at the stream of the anomaly."""
    stream = witness.anomaly.stream
    diverged = witness.anomaly.kind is Label.DIVERGE
    contents: Contents = run.end.states[stream] if diverged else run.end.streams[stream]
    columns = () if diverged else network.wires[stream].columns
    producer = network.wires[stream].producer
    assert producer is not None
    for number, rows in enumerate(contents):
        who = producer.component + (f"[{number + 1}]" if len(contents) > 1 else "")
        verb = "holds" if diverged else "has sent"
        ranked = sorted(rows, key=repr if diverged else sort_key)
        told_rows = [
            _state(row, network, producer.component) if diverged else _record(row, columns)
            for row in ranked
        ]
        more = len(told_rows) - ROWS_MAX
        listing = "; ".join(told_rows[:ROWS_MAX]) + (f"; {more} more" if more > 0 else "")
        yield f"{who} {verb}: {listing or 'nothing'}"


def _state(row: Row, network: Network, component: str) -> str:
    """A record that an instance keeps; its first value says where it came in."""
    name, *values = row
    if not name:
        return f"result {_record(tuple(values), ())}"
    return f"{name} {_record(tuple(values), _interface(network, component, name))}"


def _interface(network: Network, component: str, name: str) -> tuple[str, ...]:
    for part in network.parts[component]:
        if part.gate is not None:
            for interface, origin in network.inputs_of(part).items():
                if interface == name:
                    return origin.columns
        if name in part.operator.schemas:
            return tuple(part.operator.schemas[name])
    return ()


def _emits(network: Network, event: Event) -> tuple[str, ...]:
    for part in network.parts[event.component]:
        if part.at.interface == event.name and part.streams:
            return network.wires[part.streams[0]].columns
    return ()


def _who(event: Event, network: Network) -> str:
    many = network.replicas.get(event.component, 1) > 1
    return f"{event.component}[{event.replica + 1}]" if many else event.component


def _bag(rows: Sequence[Item], columns: tuple[str, ...]) -> str:
    bag: Bag = {}
    for row in rows:
        bag[row] = bag.get(row, 0) + 1
    parts = [_record(row, columns, times) for row, times in list(bag.items())[:ROWS_MAX]]
    return ", ".join(parts) + (f", {len(bag) - ROWS_MAX} more" if len(bag) > ROWS_MAX else "")


def _record(row: Item, columns: tuple[str, ...], times: int = 1) -> str:
    """A record in braces, without its nulls; a message in words."""
    if isinstance(row, Message):
        return str(row)
    names = columns or tuple(str(n + 1) for n in range(len(row)))
    cells = [f"{n} {shown(v)}" for n, v in zip(names, row, strict=False) if v is not None]
    return (f"{times} times " if times > 1 else "") + "{" + ", ".join(cells) + "}"


def to_json(simulated: Simulated) -> dict[str, Any]:
    """The simulation as JSON data; the same things as the text says."""
    return {
        "schema_version": SCHEMA_VERSION,
        "dataflow": simulated.analysis.dataflow.name,
        "seed": simulated.seed,
        "seconds": round(simulated.seconds, 1),
        "replicas": simulated.replicas,
        "engines": dict(simulated.engines),
        "uncoordinated": _hunted(simulated.free),
        "planned": _hunted(simulated.planned) if simulated.planned else None,
        "plan_not_simulated": simulated.refused or None,
        "streams": {
            row.stream: {
                "label": str(row.label),
                "planned": str(row.planned),
                "seen": {str(kind): count for kind, count in sorted(row.seen.items())},
            }
            for row in simulated.rows
        },
        "witnesses": [repro.to_json(witness) for witness in simulated.free.witnesses.values()],
        "unexpected": [repro.to_json(witness) for witness in simulated.unexpected],
    }


def _hunted(hunted: Hunted) -> dict[str, int]:
    return {
        "inputs": hunted.inputs,
        "schedules": hunted.schedules,
        "exhausted": hunted.exhausted,
        "failed": hunted.failed,
    }
