"""Stages for people: what each does, what it reads, and why there is coordination where there is.

`blazes compile --explain` prints it, and the project's README repeats it. Every line comes from
the stages that the emitter writes, so that the two cannot differ.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from annotations.phrases import listed
from blazes import advice_text
from blazes.advice import Advisor
from blazes.coordination import Entry, Strategy
from codegen import wording
from codegen.model import Flux, Kept, Order, Seal, Source, Stage, Stages, Transform, Unit

WIDTH: Final = 96


def explain(stages: Stages, *, width: int = WIDTH) -> str:
    """The stages as an indented list; replicas are told once."""
    number = len(stages.stages)
    coordinated = listed(
        f"{kind} at {base_name(stage)}"
        for stage in once(stages)
        if isinstance(stage, Unit) and (kind := coordination(stage))
    )
    head = f"{stages.name}: {number} stage{'s' if number != 1 else ''}, "
    lines = [*textwrap.wrap(head + (coordinated or "no coordination"), width), ""]
    advisor = Advisor(stages.plan)
    for stage in once(stages):
        lines += paragraphs(stage, stages, advisor, width)
    lines += assumptions(stages, width)
    return "\n".join(lines).rstrip() + "\n"


def once(stages: Stages) -> Iterator[Stage]:
    """The stages, of replicas the first."""
    return (stage for stage in stages if getattr(stage, "replica", None) in (None, 1))


def coordination(stage: Unit) -> str | None:
    """The coordination of a unit; None where it has none."""
    match stage:
        case Seal() | Order():
            return stage.kind
        case Flux():
            return Order.kind if stage.ordered else Flux.kind
        case Transform(assumes=str()):
            return "seal by promise"
    return None


def title(stage: Stage, stages: Stages) -> str:
    """A stage's name; for the first of several replicas, what all of them are called."""
    if not isinstance(stage, Unit) or stage.replica is None:
        return stage.name
    copies = sum(isinstance(unit, Unit) and unit.function == stage.function for unit in stages)
    return f"{base_name(stage)}, {copies} replicas"


def base_name(stage: Unit) -> str:
    """The name that all replicas of a unit share."""
    return f"{stage.component}.{stage.output}"


def paragraphs(stage: Stage, stages: Stages, advisor: Advisor, width: int) -> list[str]:
    """A stage as a title and the facts about it."""
    lines = [f"{stage.kind:<9} {title(stage, stages)}"]
    inputs = dict.fromkeys(input_name(id, stages) for id in stage.inputs)
    if inputs:
        lines += fact("reads", listed(inputs), width)
    lines += fact("does", stage.description, width)
    for name, text in facts(stage):
        lines += fact(name, text, width)
    if isinstance(stage, Order | Flux):
        for name, text in cheaper(stage, advisor):
            lines += fact(name, text, width)
    return [*lines, ""]


def input_name(id: str, stages: Stages) -> str:
    """The name of a stage where another reads it."""
    stage = stages[id]
    return base_name(stage) if isinstance(stage, Unit) and stage.component else stage.name


def facts(stage: Stage) -> Iterator[tuple[str, str]]:
    """Details of a stage beyond its sentence."""
    match stage:
        case Source():
            if stage.producer is not None:
                yield "producer", f"named in column {stage.producer}"
        case Transform():
            if stage.why is not None:
                yield "why", stage.why
            if stage.assumes is not None:
                yield "assumes", stage.assumes
            yield from _in_place_of_records(stage.kept)
        case Seal():
            yield "why", stage.why
            yield "release", wording.vote(stage.vote, stage.release)
            for name, producers in stage.producers.items():
                yield "producers", f"{name}: {wording.producers(producers)}"
            for name, id in stage.dedup.items():
                yield "repeats", wording.dedup(name, id)
            yield "late", wording.late(stage.late, stage.seal_timeout_s)
            if stage.remember_s is not None:
                yield "remembers", wording.remembered(stage.remember_s)
            if stage.forward:
                yield "forwards", f"punctuations on {wording.attributes(stage.forward)}"
            if stage.partial is not None:
                yield "buffers", "partial aggregates, where they are much fewer than records"
        case Order():
            yield "why", stage.why
            yield "order", wording.order_scope(stage.scope, stage.mode)
            if stage.order_by:
                yield "within", f"a micro-batch, by {wording.attributes(stage.order_by)}"
            yield from _in_place_of_records(stage.kept)
        case Flux():
            yield "why", stage.why
            yield "order", wording.flux_order()
            for step in stage.steps:
                yield "runs", wording.step(step)
                if step.kept:
                    yield "keeps", _partial_aggregates(step.kept)
            yield "sites", wording.sites(stage)
            if stage.order_by:
                yield "within", f"a producer's batch, by {wording.attributes(stage.order_by)}"
        case _:
            pass


def _in_place_of_records(summaries: Kept | None) -> Iterator[tuple[str, str]]:
    """The summaries that are kept in place of records."""
    if summaries is not None:
        yield "keeps", _partial_aggregates(summaries.inputs)


def _partial_aggregates(inputs: Iterable[str]) -> str:
    return f"of {listed(inputs)} what the query needs (aggregates, distinct values), no records"


def cheaper(stage: Unit, advisor: Advisor) -> Iterator[tuple[str, str]]:
    """The changes that would make an order unnecessary, cheapest first."""
    advice = advisor.of(stage.component)
    for alternative in () if advice is None else advice.alternatives:
        yield "cheaper", advice_text.headline(alternative)


def assumptions(stages: Stages, width: int) -> list[str]:
    """The assumptions that the results rest on, beyond the annotations."""
    plan = stages.plan
    lines: list[str] = []
    for inherited in plan.inherited:
        origin = f"{inherited.origin} is {inherited.label} by itself ({inherited.reason})"
        text = f"{origin}; no coordination repairs it"
        lines += fact("note", text, width)
    left = [entry for entry in plan.entries if entry.cause and entry.strategy is Strategy.NONE]
    if left and plan.verdict > plan.target:
        paths = listed(path_of(entry) for entry in left)
        text = f"compiled without the coordination of {paths}: the results may be {plan.verdict}"
        lines += fact("note", text, width)
    return lines


def path_of(entry: Entry) -> str:
    """A path with its component."""
    return f"{entry.component} {entry.path}"


def fact(name: str, text: str, width: int) -> list[str]:
    """A fact behind its name."""
    indent = " " * 10
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"{indent}{name + ':':<11}",
        subsequent_indent=indent + " " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
