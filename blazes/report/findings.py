"""The findings of a report for people about each component, before anybody lays them out.

A `Finding` is a component that the plan coordinates; a `Consequence` is a place further down
where its anomaly becomes worse. Terminal, Markdown, HTML and SARIF render these and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from annotations.dataflow import Path, Position, Reason
from annotations.vocabulary import Label
from blazes.advice import Advice
from blazes.advice_text import lines, order_costs
from blazes.analysis import Derivation
from blazes.coordination import Entry, Strategy
from blazes.report import words
from blazes.report.index import Index


@dataclass(frozen=True, eq=False)
class Finding:
    """One component that has to wait for something: why, for what, and what would be cheaper."""

    component: str
    title: str
    """`Report needs an order`."""
    position: Position | None
    entries: tuple[Entry, ...]
    """The paths that are coordinated."""
    derivations: tuple[Derivation, ...]
    """Of the outputs that these paths lead to."""
    why: tuple[str, ...]
    does: tuple[str, ...]
    cheaper: tuple[str, ...]
    paths: tuple[Path, ...]

    @property
    def worst(self) -> Label:
        """The highest severity among its outputs, without coordination."""
        return max(derivation.label.label for derivation in self.derivations)

    @property
    def ordered(self) -> bool:
        """True where an order is needed, not only a seal that is there."""
        return any(entry.strategy is Strategy.ORDER for entry in self.entries)


@dataclass(frozen=True, eq=False)
class Consequence:
    """An output that is worse than what comes in, at a component that is not the origin."""

    derivation: Derivation
    why: tuple[str, ...]
    position: Position | None


@dataclass(frozen=True, eq=False)
class DerivedPath:
    """A path whose annotation nobody wrote: it was derived from the code of its component."""

    component: str
    path: Path
    reasons: tuple[str, ...]
    """What in the code made it so, each with its line."""


def derived_paths(index: Index) -> Iterator[DerivedPath]:
    """The paths with derived annotations, in topological order of their components."""
    file = str(index.plan.analysis.dataflow.file or "")
    for name in index.components:
        for path in index.component(name).paths:
            if path.derived is not None:
                yield DerivedPath(
                    name, path, tuple(_with_place(reason, file) for reason in path.derived)
                )


def _with_place(reason: Reason, file: str) -> str:
    at = reason.position
    if at is None:
        return reason.text
    where = f"line {at.line}" if at.file == file or not file else f"{at.file}:{at.line}"
    return f"{reason.text} ({where})"


def finding(index: Index, component: str) -> Finding:
    """The finding about a component that the plan coordinates."""
    entries = index.coordinated(component)
    outputs = {entry.path.target for entry in entries}
    derivations = tuple(
        derivation
        for derivation in index.derivations.get(component, ())
        if derivation.output in outputs
    )
    declared = index.component(component)
    advice = index.advisor.of(component)
    return Finding(
        component=component,
        title=f"{component} {words.needs(entries)}",
        position=declared.position,
        entries=entries,
        derivations=derivations,
        why=tuple(
            dict.fromkeys([*_why(index, derivations), *_besides(index, entries, derivations)])
        ),
        does=tuple(dict.fromkeys([*_does(index, entries), *_order_costs(advice)])),
        cheaper=cheaper(index, advice),
        paths=tuple(path for path in declared.paths if path.target in outputs),
    )


def cheaper(index: Index, advice: Advice | None) -> tuple[str, ...]:
    """The repairs of a component in place of its order; a line for each alternative."""
    if advice is None:
        return ()
    repairs = list(lines(advice, index.plan.analysis.dataflow))
    if advice.component in index.advisor.left_out:
        repairs.append(f"not all was tried: `blazes explain FILE {advice.component}` tries more")
    return tuple(repairs)


def _does(index: Index, entries: tuple[Entry, ...]) -> Iterator[str]:
    for entry in entries:
        yield from words.does(index, entry)


def _order_costs(advice: Advice | None) -> Iterator[str]:
    if advice is not None:
        yield order_costs(advice.order)


def consequences(index: Index) -> Iterator[Consequence]:
    """Where labels above the target get worse away from their origin, in topological order."""
    for derivation in index.plan.analysis.derivations:
        if derivation.label.label <= index.plan.target or not derivation.reconciled:
            continue
        if any(
            entry.path.target == derivation.output
            for entry in index.coordinated(derivation.component)
        ):
            continue
        why = tuple(dict.fromkeys(_why(index, (derivation,))))
        position = next((step.path.position for step in derivation.steps if step.adds), None)
        yield Consequence(derivation, why, position)


def tolerated(index: Index) -> Iterator[Entry]:
    """Origins that get nothing, because the target tolerates them or another order repairs them."""
    for entry in index.plan.entries:
        if entry.strategy is Strategy.NONE and entry.cause is not None:
            yield entry


def _why(index: Index, derivations: tuple[Derivation, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for derivation in derivations:
        reasons = [words.why(index, derivation.component, step) for step in derivation.steps]
        for line in (*reasons, *words.shared(derivation), words.effect(derivation)):
            if line is not None and line not in seen:
                seen.add(line)
                yield line


def _besides(
    index: Index, entries: tuple[Entry, ...], derivations: tuple[Derivation, ...]
) -> Iterator[str]:
    """The reasons beside the derivations: why a seal helps, and origins that repairs uncover."""
    fired = {(str(step.path), step.rule) for derivation in derivations for step in derivation.steps}
    for entry in entries:
        if entry.strategy is Strategy.SEAL:
            yield words.waiting_helps(entry)
        elif (str(entry.path), entry.cause) not in fired:
            uncovered = words.why_then(index, entry)
            if uncovered is not None:
                yield uncovered
