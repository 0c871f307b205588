"""The meaning of an analysis and a plan in plain words; every rendering for people says the same.

Each function answers one question a user has, in a sentence or two without markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from annotations.dataflow import Path, Stream
from annotations.diagnostics import Diagnostic, errors_among
from annotations.phrases import NAMES_MAX, listed, tupled
from annotations.phrases import number as number
from annotations.vocabulary import Delivery, Gate, Key, Label, StreamLabel
from blazes.analysis import Derivation, Step
from blazes.coordination import (
    Entry,
    Mode,
    Plan,
    Release,
    Scope,
    Strategy,
    Vote,
)
from blazes.core.graph import Output
from blazes.core.propagation import NO_KEY, Propagation
from blazes.repairs import Means
from blazes.report.index import Index, other_writers

CAN_GO_WRONG: Final = {
    Label.RUN: "give different answers when it is run again or replayed after a failure",
    Label.INST: "give different answers on replay and on different replicas",
    Label.DIVERGE: (
        "give different answers on replay and on different replicas, "
        "and state built from them can stay different for ever"
    ),
}
"""What a label means for the owner of a dataflow (figure 8)."""


REPAIRS: Final = (
    (Means.DEDUP, "de-duplication"),
    (Means.UPSERT, "upsert"),
    (Means.TRANSACTION, "transaction"),
)


def verdict(plan: Plan) -> str:
    """The sentence about what can go wrong."""
    label = plan.analysis.verdict
    if label in CAN_GO_WRONG:
        return f"Without coordination this dataflow can {CAN_GO_WRONG[label]}."
    seals = [entry for entry in plan.entries if entry.strategy is Strategy.SEAL]
    same = "Every run, replay and replica gives the same answers"
    if seals:
        keys = listed(sorted({sealed_on(entry) for entry in seals}), most=NAMES_MAX)
        sentence = f"{same}, because the seals are waited for ({keys})."
    else:
        sentence = f"{same}; nothing has to wait."
    return " ".join([sentence, *_may_come_again(plan), *_not_known(plan)])


def _not_known(plan: Plan) -> Iterator[str]:
    """Results that a function of the user takes, which may make anything of them."""
    for name, stream in plan.analysis.dataflow.streams.items():
        if stream.sink is not None and stream.sink.function is not None:
            yield f"What {stream.sink.function} does with {name} is not known."


def _may_come_again(plan: Plan) -> Iterator[str]:
    """Results that may have a row more than once, though each of its rows is right."""
    again = [
        name
        for name, delivered in plan.analysis.deliveries.items()
        if delivered.label in (Delivery.REPEAT_ID, Delivery.REPEAT)
        and plan.analysis.dataflow.streams[name].consumer is None
    ]
    if again:
        yield f"Rows may come again at {listed(again, most=NAMES_MAX)}."


def refused(diagnostics: Iterable[Diagnostic]) -> str | None:
    """That the dataflow cannot be compiled as it stands, and why; None where nothing says so."""
    errors = errors_among(diagnostics)
    if not errors:
        return None
    first = errors[0]
    where = f", {first.position}" if first.position else ""
    more = f", and {number(len(errors) - 1, 'more reason')}" if len(errors) > 1 else ""
    return f"{first.message} ({first.code.id}{where}){more}."


def further(plan: Plan, warnings: Sequence[Diagnostic] = ()) -> list[str]:
    """The sentences after the verdict: the plan, what it rests on, why it cannot be compiled."""
    sentences = (outcome(plan), rests_on(plan), refused(warnings))
    return [sentence for sentence in sentences if sentence is not None]


def rests_on(plan: Plan) -> str | None:
    """The sentence about what the verdict takes for granted and nothing checks; None: nothing."""
    dataflow = plan.analysis.dataflow
    taken = [
        f"{stream.name} is never more than {stream.lateness} late"
        for stream in dataflow.streams.values()
        if stream.lateness is not None
    ]
    taken += [
        f"{stream.name} delivers each record once"
        for stream in dataflow.streams.values()
        if stream.producer is None and stream.delivery == "once"
    ]
    taken += [
        f"{component.name} {path} is {path.annotation} ({path.why})"
        for component in dataflow.components.values()
        for path in component.paths
        if path.why is not None
    ]
    assumed = dict.fromkeys(
        reason.text
        for component in dataflow.components.values()
        for path in component.paths
        for reason in path.assumed
    )
    sentences = []
    if taken:
        sentences.append(f"It rests on what the file says: {listed(taken, most=NAMES_MAX)}.")
    if assumed:
        sentences.append(f"It takes for granted: {listed([*assumed], most=NAMES_MAX)}.")
    return " ".join(sentences) or None


def outcome(plan: Plan) -> str | None:
    """The sentence about what the plan makes of the verdict; None where it changes nothing."""
    if (
        plan.analysis.verdict <= plan.target
        and not plan.repairs.items
        and not any(entry.strategy is Strategy.ORDER for entry in plan.entries)
    ):
        return None
    ordered = sum(entry.strategy is Strategy.ORDER for entry in plan.entries)
    sealed = sum(entry.strategy is Strategy.SEAL for entry in plan.entries)
    counts = [
        *(
            (sum(repair.means is means for repair in plan.repairs.items), noun)
            for means, noun in REPAIRS
        ),
        (ordered, "order"),
        (sealed, "seal"),
    ]
    means = listed([number(n, noun) for n, noun in counts if n])
    them = "it" if sum(n for n, _ in counts) == 1 else "them"
    if plan.verdict <= plan.target:
        return f"The plan has {means}; with {them} {_promise(plan)}."
    if not means:
        return "This is inherited (see below), and no coordination repairs it."
    return (
        f"The plan has {means}; with {them} the worst sink is still {plan.verdict}: "
        "that is inherited (see below), and no coordination repairs it."
    )


def _promise(plan: Plan) -> str:
    """The effect of the plan; the paper's labels in brackets."""
    modes = {entry.mode for entry in plan.entries if entry.strategy is Strategy.ORDER}
    if Mode.DYNAMIC in modes:
        return f"replicas agree, and a replay can give other answers ({sinks(plan)})"
    if Mode.RECORDED in modes:
        return (
            f"replays and replicas give the answers of the run that they repeat ({sinks(plan)}); "
            "two runs from scratch can still be ordered differently"
        )
    return f"every run, replay and replica gives the same answers ({sinks(plan)})"


def sinks(plan: Plan) -> str:
    """The labels of the sinks under the plan, the worst first: `Async or Seal`."""
    streams = plan.analysis.dataflow.streams.values()
    labels = {plan.repaired[stream.name].label for stream in streams if stream.consumer is None}
    return " or ".join(str(label) for label in sorted(labels or {plan.verdict}, reverse=True))


def needs(entries: Sequence[Entry]) -> str:
    """The need of a component, for its heading: `needs an order`."""
    strategies = {entry.strategy for entry in entries}
    if strategies == {Strategy.ORDER}:
        return "needs an order"
    return "waits for a seal" if strategies == {Strategy.SEAL} else "needs an order and a seal"


def why(index: Index, name: str, step: Step) -> str | None:
    """Why a step of this component adds to the labels; None where it adds nothing."""
    component = index.component(name)
    path = step.path
    gate = path.annotation.gate
    one = for_one(gate) if gate else ""
    sources = sorted({other.source for other in other_writers(component, path)})
    writers, s = listed(sources), "" if len(sources) > 1 else "s"
    match step.rule:
        case "R1" if writers:
            return (
                f"{path.source} is answered from state that {writers} still change{s}: "
                f"the answer {one} depends on what has arrived before it."
                + _no_help(index, name, path)
            )
        case "R1":
            return (
                f"What {path.source} gives {one} depends on what has arrived before it."
                + _handed_on(index, name, path)
            )
        case "R2":
            return (
                f"Records of {path.source} change the state as they arrive, "
                f"and the result {one} depends on their order." + _handed_on(index, name, path)
            )
        case "R3":
            return (
                f"{path.source} brings records that can differ between replicas "
                f"({step.input}), and {component.name} keeps them: "
                "what once differs stays different."
            )
        case "R4" | "S1" if gate is not None and not gate.attributes:
            return f"{path.source} is sealed, but no seal fits a gate that is not known (*)."
        case "R4" | "S1" if not fits(index, step):
            return (
                f"{path.source} is sealed ({step.input}), but {path.annotation} needs all "
                f"records {one}: these are not all in one sealed partition."
                + _handed_on(index, name, path)
            )
        case "R4" | "S1" if others := _sealed_apart(index, name, step):
            return (
                f"{path.source} is sealed ({step.input}), and {listed(others)} on no key of these: "
                "records that meet are released together, for one value of one key."
            )
        case "S1":
            return (
                f"{path.source} is sealed, but it is answered from state that {writers} still "
                f"change{s} and whose seal does not fit {path.annotation}."
            )
        case "S2":
            return (
                f"{path.source} waits for its own seal, but {writers} write{s} the same state "
                "without a seal that fits."
            )
        case "N1" | "N2":
            return (
                f"What {path.source} gives on {path.target} is not a function of it: "
                f"{path.nondeterministic}."
            )
        case "D3":
            return f"A record of {path.source} that comes again gets a second, different answer."
        case "D4":
            return f"A record of {path.source} that comes again changes the state for good."
        case "D5":
            return f"Each copy of a record of {path.source} draws anew: {path.nondeterministic}."
        case "D7":
            return (
                f"A record of {path.source} that comes again is counted, so that a partition can "
                "be released before it is complete."
            )
        case "D9":
            return f"{path.source} brings rows that repeats have made wrong."
        case "p" if step.input.keys and gate is not None and path.annotation.kind.writes:
            return f"The result {one} depends on the order of its records on {path.source}."
        case "p" if step.input.keys and gate is not None:
            return f"What {path.source} gives {one} depends on the order of its records."
    return None


def why_then(index: Index, entry: Entry) -> str | None:
    """Why a path is an origin only once what comes before it is repaired."""
    async_ = StreamLabel(Label.ASYNC)
    reason = why(index, entry.component, Step(entry.path, async_, entry.cause or "p", (), async_))
    return f"Once what comes before it is repaired: {reason}" if reason else None


def fits(index: Index, step: Step) -> bool:
    """True where a key of the step's input is compatible with its path's gate."""
    return any(_compatible(index, step.path, key) for key in step.input.keys)


def _compatible(index: Index, path: Path, key: Key) -> bool:
    propagation = index.plan.analysis.propagation
    assert propagation is not None
    shape = next(edge.shape for edge in propagation.graph.paths if edge.declared is path)
    return propagation.interpreter.compatible(shape, key)


def _handed_on(index: Index, component: str, path: Path) -> str:
    """Which of several keys comes to a path, where what is before it hands on one alone."""
    propagation = index.plan.propagation
    assert propagation is not None
    entering = {stream.name for stream in index.streams_into(component, [path.source])}
    for output, key in propagation.handed_on.items():
        if key and not entering.isdisjoint(stream.name for stream in output.streams):
            return (
                f" {output.component.name} hands on the seal on {tupled(key)} alone, for which "
                f"others behind it wait; {listed(_sources(output))} sealed on a key that fits all "
                "of them would do."
            )
        if key == NO_KEY and not entering.isdisjoint(stream.name for stream in output.streams):
            return _no_seal(propagation, output)
    return ""


def _no_seal(propagation: Propagation, output: Output) -> str:
    """Why a confluent output hands on none of the seals of its inputs."""
    if any(path.shape.ordered for path in output.paths):
        return ""
    name, labels = output.component.name, propagation.input_labels
    keys = {path.input.name: labels[path.input].keys for path in output.paths}
    for key in sorted(frozenset.intersection(*keys.values()), key=sorted):
        for path in output.paths:
            refusal = propagation.interpreter.refusal(path.shape, key)
            if refusal is not None:
                return f" The seal on {tupled(key)} ends at {name}: {refusal}."
    sealed = listed(f"{tupled(*held)} in {source}" for source, held in keys.items() if held)
    return (
        f" The seals end at {name}, whose inputs name the key differently ({sealed}); a component "
        "before it that gives it one name would do."
    )


def _sources(output: Output) -> list[str]:
    """The source streams whose records come to an output."""
    names, outputs = set(), [output]
    for before in outputs:
        for stream in (stream for path in before.paths for stream in path.input.streams):
            if stream.producer is None:
                names.add(stream.name)
            elif stream.producer not in outputs:
                outputs.append(stream.producer)
    return sorted(names)


def _sealed_apart(index: Index, component: str, step: Step) -> list[str]:
    """The inputs that meet a path's where no key is common to all; empty where one is (SP-19)."""
    propagation = index.plan.propagation
    assert propagation is not None
    for output, key in propagation.handed_on.items():
        if key == NO_KEY and (output.component.name, output.name) == (component, step.path.target):
            labels = {
                path.input.name: propagation.input_labels[path.input] for path in output.paths
            }
            return sorted(n for n, label in labels.items() if not label.keys & step.input.keys)
    return []


def _no_help(index: Index, component: str, path: Path) -> str:
    """Why the seals on the state that a path reads do not protect it, where there are any."""
    writers = {other.source for other in other_writers(index.component(component), path)}
    streams = list(index.streams_into(component, sorted(writers)))
    gate = path.annotation.gate
    keys = common_keys(streams, index.plan)
    if not keys or gate is None or any(_compatible(index, path, key) for key in keys):
        return ""
    sealed = tupled(min(keys, key=_size))
    if not gate.attributes:
        return f" The seal on {sealed} does not help, because the gate is not known (*)."
    return f" The seal on {sealed} does not help: records {for_one(gate)} can lie in several."


def shared(derivation: Derivation) -> Iterator[str]:
    """The sentences of the rules of sharing: an output shows state that others have spoilt."""
    output, component = derivation.output, derivation.component
    if "S4" in derivation.reconciled:
        yield f"{output} shows state of {component} that another of its paths taints (S4)."
    if "S5" in derivation.reconciled:
        yield f"{output} shows state of {component} made of records that differ from run to run."


def effect(derivation: Derivation) -> str | None:
    """The meaning of the labels added by reconciliation for the output."""
    label = derivation.label.label
    if not derivation.reconciled or label < Label.RUN:
        return None
    if label is Label.RUN:
        return f"So {derivation.output} can differ from run to run (Run)."
    if label is Label.INST:
        return (
            f"{derivation.component} is replicated, so its replicas can give different "
            f"{derivation.output} records (Inst)."
        )
    return (
        f"{derivation.component} is replicated, so its replicas can diverge for ever, "
        f"and with them {derivation.output} (Diverge)."
    )


def does(index: Index, entry: Entry) -> Iterator[str]:
    """The plan for a path in sentences: who waits for whom, what order, scope, mode and vote."""
    if entry.strategy is Strategy.SEAL:
        yield from _seals(index, entry)
    elif entry.strategy is Strategy.ORDER:
        yield from _orders(index, entry)
    else:
        yield from _nothing(entry)


def _seals(index: Index, entry: Entry) -> Iterator[str]:
    key = tupled(entry.key or ())
    inputs, streams = listed(sorted(entry.inputs)), listed(sorted(entry.streams))
    if index.by_watermark(entry):
        streams_of = index.plan.analysis.dataflow.streams
        newer = listed(
            [
                f"{name} has a record {streams_of[name].lateness} newer"
                for name in sorted(entry.streams)
            ]
        )
        condition = f"until {newer}: none is promised to come later, and nothing is counted"
    elif entry.vote is Vote.UNANIMOUS:
        condition = f"until every producer of {streams} has said so, with a count (unanimous vote)"
    else:
        condition = f"until the one producer of the {key} has said so, with a count (no vote)"
    if entry.path.source in entry.inputs:
        yield f"Records of {inputs} wait until their {key} is complete, that is {condition}."
        yield "They are then processed once."
    else:
        yield (
            f"Each record of {entry.path.source} waits until the {key} of {inputs} that it reads "
            f"is complete, that is {condition}."
        )
        yield "It is then answered once."
    for source in entry.dedup:
        yield (
            f"A record of {source.stream} that comes again is known by its {tupled(source.id)}, "
            "and is dropped before it counts."
        )
    if entry.release is Release.SORTED:
        yield f"The {key} is handed over sorted, because the order inside it matters (SE-11)."
    yield f"One {key} does not wait for another, and nothing else waits."


def waiting_helps(entry: Entry) -> str:
    """Why a seal makes a path deterministic: each gate partition lies in one sealed partition."""
    seals = entry.seals or dict.fromkeys(entry.inputs, entry.key or frozenset())
    sealed = listed([f"{name} is sealed on {tupled(key)}" for name, key in sorted(seals.items())])
    gate = entry.path.annotation.gate
    one = tupled(gate.attributes) if gate and gate.attributes else "partition"
    if gate is not None and seals and all(key == gate.attributes for key in seals.values()):
        return f"But {sealed}: what concerns one {one} can wait until it is complete."
    keys = set(seals.values())
    inside = f"one {tupled(*keys)}" if len(keys) == 1 else "one sealed partition of each"
    return f"But {sealed}, and one {one} lies in {inside}: it can wait until that is complete."


def _orders(index: Index, entry: Entry) -> Iterator[str]:
    inputs = listed(sorted(entry.inputs))
    gate = entry.path.annotation.gate
    if entry.scope is Scope.GATE and gate is not None:
        scope = f"one order for each {tupled(gate.attributes or ())} (scope: gate)"
    else:
        scope = f"one order for all of them (scope: global{_narrower(index, entry)})"
    replicated = index.plan.analysis.replicated[entry.component]
    every = "every replica" if replicated else entry.component
    yield f"Each record of {inputs} waits for its place in {scope}, and {every} follows it."
    if entry.mode is Mode.RECORDED:
        component = index.plan.analysis.dataflow.components[entry.component]
        on_sites = replicated or component.asks_for_sites
        store = "ZooKeeper" if on_sites else "Spark's offset log"
        yield (
            f"The order is stored ({store}; mode: recorded), so a replay follows it too. "
            "Two runs from scratch can still be ordered differently."
        )
    else:
        yield (
            "The order is agreed on while the job runs and not kept (mode: dynamic): replicas "
            "agree, but a replay can give different answers."
        )


def _narrower(index: Index, entry: Entry) -> str:
    """The schemas that an order for each partition of the gate needs, where the gate is known."""
    gate = entry.path.annotation.gate
    if gate is None or not gate.attributes:
        return ""
    lacking = [
        stream.name
        for stream in index.streams_into(entry.component, entry.inputs)
        if not gate.attributes <= (stream.schema or {}).keys()
    ]
    attributes = listed(sorted(gate.attributes))
    one = tupled(gate.attributes)
    return f"; one for each {one} where the schema of {listed(lacking)} declares {attributes}"


def _nothing(entry: Entry) -> Iterator[str]:
    if entry.cause is None:
        yield "Nothing: its result does not depend on the order of arrival here."
    else:
        yield f"Nothing: what {entry.cause} leads to is within the target, or repaired elsewhere."


def common_keys(streams: Iterable[Stream], plan: Plan) -> frozenset[Key]:
    """The keys that all of these streams are sealed on."""
    keys = [plan.analysis.labels[stream.name].keys for stream in streams]
    return frozenset.intersection(*keys) if keys else frozenset()


def _size(key: Iterable[str]) -> tuple[int, list[str]]:
    """The smallest key first, then the alphabet."""
    names = sorted(key)
    return len(names), names


def sealed_on(entry: Entry) -> str:
    """`[campaign] on clicks`."""
    return f"[{', '.join(sorted(entry.key or ()))}] on {listed(sorted(entry.streams))}"


def for_one(gate: Gate) -> str:
    """Which records belong together: `for one id`; all of them where the gate is unknown."""
    return f"for one {tupled(gate.attributes)}" if gate.attributes else "at any time"
