"""The draft of each output of a component, before the stages are put in order.

One `Draft` for each output interface that a stream leaves. Its inputs are the interfaces with a
path to the output, and those of the other writers of the state that the output reads, where the
implementation mentions them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from annotations.dataflow import Component, Dataflow, Endpoint, Implementation, Path, Position
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import AnnotationKind, Within
from blazes.coordination import Entry, Plan, Strategy
from codegen.codes import CODES
from codegen.operators import (
    STATEFUL,
    TAKEN,
    Operator,
    OperatorError,
    find,
    named_attributes,
)


class Kind(enum.Enum):
    """How an output is compiled."""

    FUSED = "fused"
    NATIVE = "native"
    ACCUMULATING = "accumulating"
    SEAL = "seal"
    ORDER = "order"
    FLUX = "flux"


@dataclass(frozen=True, slots=True)
class Draft:
    """One output interface of a component."""

    component: Component
    output: str
    kind: Kind
    writes: tuple[str, ...]
    """Input interfaces whose records are kept, or run through Spark's own state."""
    reads: tuple[str, ...]
    """Input interfaces whose records ask something of what was written."""
    own: tuple[Path, ...]
    """The paths that end in the output."""
    paths: tuple[Path, ...]
    """Those, and the other writers of the state they share."""
    entries: tuple[Entry, ...]
    """The plan for its own order-sensitive paths."""
    implementation: Implementation | None
    position: Position | None = field(compare=False)
    from_records: bool = False
    """True where its SQL runs over records that are kept, since over a stream Spark runs none."""
    as_set: bool = False
    """True where only distinct rows of what a confluent output puts out matter, as on Spark."""

    @property
    def at(self) -> Endpoint:
        """Where it is in the dataflow."""
        return Endpoint(self.component.name, self.output)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every input interface, in the order of the file."""
        wanted = {*self.writes, *self.reads}
        return tuple(dict.fromkeys(path.source for path in self.paths if path.source in wanted))

    @property
    def confluent(self) -> bool:
        """True where no path is order-sensitive."""
        return all(path.annotation.kind.confluent for path in self.own)

    @property
    def appends(self) -> bool:
        """True where Spark puts out new rows alone, and not those of groups that change."""
        if self.kind is not Kind.ORDER:
            return self.component.output_mode == "append"
        by = self.implementation
        return self.component.appends and by is not None and by.python is not None

    @property
    def reads_only(self) -> bool:
        """True where what comes out for a record depends on no other record."""
        distinct = self.implementation is not None and bool(self.implementation.distinct)
        return not distinct and all(p.annotation.kind is AnnotationKind.CR for p in self.paths)

    @property
    def needs_site_check(self) -> bool:
        """True where anything about it asks for Flux sites (`codegen.sites`)."""
        by = self.implementation
        for_sites = by is not None and (by.operator is not None or by.processor is not None)
        return self.kind is Kind.FLUX or self.component.asks_for_sites or for_sites

    @property
    def sequence(self) -> bool:
        """True where the result depends on the order within a partition."""
        return any(path.within is Within.SEQUENCE for path in self.own)


def drafts(plan: Plan, problems: list[Diagnostic]) -> dict[Endpoint, Draft]:
    """A draft for every output that a stream leaves, in the order of the file."""
    dataflow = plan.analysis.dataflow
    entries: dict[Endpoint, list[Entry]] = {}
    for entry in plan.entries:
        entries.setdefault(Endpoint(entry.component, entry.path.target), []).append(entry)
    leaving = {stream.producer for stream in dataflow.streams.values()}
    drafted: dict[Endpoint, Draft] = {}
    for component in dataflow.components.values():
        for output in dict.fromkeys(path.target for path in component.paths):
            at = Endpoint(component.name, output)
            if at not in leaving:
                continue
            own = tuple(entries.get(at, ()))
            replicated = plan.analysis.replicated[component.name] or component.replicas > 1
            drafted[at] = draft_of(
                component, output, own, dataflow, problems, replicated=replicated
            )
    return drafted


def draft_of(
    component: Component,
    output: str,
    entries: tuple[Entry, ...],
    dataflow: Dataflow,
    problems: list[Diagnostic],
    *,
    replicated: bool,
) -> Draft:
    """The draft of one output."""
    own = tuple(path for path in component.paths if path.target == output)
    implementation = component.implementations.get(output)
    groups = {
        path.state or ""
        for path in own
        if path.state is not None or not path.annotation.kind.confluent
    }
    others = tuple(
        path
        for path in component.paths
        if path.target != output and path.annotation.kind.writes and (path.state or "") in groups
    )
    position = own[0].position or component.position
    operator = operator_of(implementation, dataflow, problems)
    paths = own + tuple(
        other for other in others if mentions(implementation, operator, other.source)
    )
    sources = tuple(dict.fromkeys(path.source for path in own))
    sensitive = any(not path.annotation.kind.confluent for path in own)
    waiting = {
        name for entry in entries if entry.strategy is Strategy.SEAL for name in entry.inputs
    }
    states = {path.source for path in paths if path.annotation.kind.writes} | waiting
    if not states and sensitive:
        # A reader of no state of its own: what it depends on is the order of its own input.
        states = set(sources)
    writes = tuple(dict.fromkeys(path.source for path in paths if path.source in states))
    reads = tuple(source for source in sources if source not in states)
    draft = Draft(
        component,
        output,
        kind_of(component, own, writes, reads, entries, implementation, replicated=replicated),
        writes,
        reads,
        own,
        paths,
        entries,
        implementation,
        position,
    )
    if implementation is None and (sensitive or len(sources) > 1):
        reason = "is order-sensitive" if sensitive else "has several inputs"
        problems.append(
            Diagnostic(CODES["BLZ504"], f"{draft.at} {reason} and has no implementation", position)
        )
    if implementation is not None and implementation.bloom is not None:
        message = f"{draft.at} is given by Bloom rules"
        problems.append(Diagnostic(CODES["BLZ505"], message, implementation.position))
    problems += mixed(draft)
    if operator is not None and implementation is not None:
        problems += wrong_parameters(draft, operator, implementation)
        problems += unknown(draft, implementation)
    return draft


def kind_of(
    component: Component,
    own: tuple[Path, ...],
    writes: tuple[str, ...],
    reads: tuple[str, ...],
    entries: tuple[Entry, ...],
    implementation: Implementation | None,
    *,
    replicated: bool,
) -> Kind:
    """How the output is compiled, cycles aside."""
    strategies = {entry.strategy for entry in entries}
    if Strategy.SEAL in strategies:
        return Kind.SEAL
    if Strategy.ORDER in strategies:
        return Kind.FLUX if replicated or component.asks_for_sites else Kind.ORDER
    if component.asks_for_sites:
        return Kind.FLUX
    if writes and reads:
        return Kind.ACCUMULATING
    if any(path.nondeterministic for path in own):
        # Computed once and kept: each consumer that computed it again would see something else.
        return Kind.NATIVE
    if all(path.annotation.kind is AnnotationKind.CR for path in own) and len(reads) == 1:
        return Kind.FUSED
    return Kind.FUSED if implementation is None and len(writes) == 1 else Kind.NATIVE


def ordered_by_spark(draft: Draft, folder: FilePath) -> bool:
    """Whether an ordered output is run by Spark's operators, whose log keeps the micro-batches.

    It is where the order within a partition does not matter, and where a function keeps state with
    Spark, which nothing else runs: of that it is said with the label that is derived, that the
    order of a group's rows in a micro-batch is taken not to matter.
    """
    by = draft.implementation
    if draft.from_records or draft.reads or len(draft.writes) != 1:
        return False
    if not draft.sequence:
        return True
    if by is None or by.python is None:
        return False
    return not STATEFUL.isdisjoint(named_attributes(by.python, folder))


def mixed(draft: Draft) -> list[Diagnostic]:
    """An output whose paths have strategies that do not go together."""
    by_strategy: dict[Strategy, Entry] = {}
    for entry in draft.entries:
        by_strategy.setdefault(entry.strategy, entry)
    if Strategy.SEAL not in by_strategy or len(by_strategy) == 1:
        return []
    needs = " and ".join(
        f"{entry.path}: {strategy.value}" for strategy, entry in by_strategy.items()
    )
    return [Diagnostic(CODES["BLZ514"], f"{draft.at} would need {needs}", draft.position)]


def in_cycle(draft: Draft, problems: list[Diagnostic]) -> Draft:
    """The draft of an output that feeds itself: everything is kept, as a set, to the fixpoint."""
    if draft.kind is Kind.FLUX:
        message = f"{draft.at} feeds itself, and would run on Flux sites"
        problems.append(Diagnostic(CODES["BLZ534"], message, draft.position))
    if not draft.confluent:
        path = next(own for own in draft.own if not own.annotation.kind.confluent)
        problems.append(
            Diagnostic(
                CODES["BLZ531"],
                f"{draft.at} feeds itself, and its path {path} is {path.annotation}",
                path.position or draft.position,
            )
        )
    if draft.component.output_mode != "append":
        problems.append(
            Diagnostic(
                CODES["BLZ533"],
                f"{draft.at} feeds itself and has output_mode: {draft.component.output_mode}",
                draft.position,
            )
        )
    writes, reads = (draft.writes, draft.reads) if draft.writes else (draft.reads, ())
    return replace(draft, kind=Kind.ACCUMULATING, writes=writes, reads=reads)


def operator_of(
    implementation: Implementation | None, dataflow: Dataflow, problems: list[Diagnostic]
) -> Operator | None:
    """The Python operator of an implementation, looked up without importing it."""
    if implementation is None:
        return None
    reference = reference_of(implementation)
    if reference is None:
        return None
    try:
        operator = find(reference, folder_of(dataflow))
    except OperatorError as error:
        problems.append(Diagnostic(CODES["BLZ506"], str(error), implementation.position))
        return None
    top = operator.module.split(".")[0]
    if operator.file is not None and top in TAKEN:
        message = f"{top}.py cannot stand beside the job"
        problems.append(Diagnostic(CODES["BLZ508"], message, implementation.position))
    return operator


def reference_of(implementation: Implementation) -> str | None:
    """The `module:name` that an implementation is code of; None where it is no Python."""
    processor = implementation.processor
    if processor is not None:
        return processor.make
    return implementation.python or implementation.operator


def mentions(
    implementation: Implementation | None, operator: Operator | None, interface: str
) -> bool:
    """True where the implementation works on that interface."""
    if operator is not None:
        return operator.takes(interface)
    if implementation is None or implementation.sql is None:
        return False
    return re.search(rf"(?<!\w){re.escape(interface)}(?!\w)", implementation.sql, re.I) is not None


def wrong_parameters(
    draft: Draft, operator: Operator, implementation: Implementation
) -> list[Diagnostic]:
    """The options that the operator does not take, or that it asks for beyond the inputs."""
    if operator.parameters is None or implementation.python is None:
        return []
    messages = [
        f"{implementation.python} has no parameter {interface!r}, an input of {draft.at}"
        for interface in draft.inputs
        if not operator.takes(interface)
    ]
    messages += [
        f"{implementation.python} asks for {name!r}, which is no input of {draft.at}"
        for name in operator.required
        if name not in draft.inputs
    ]
    return [Diagnostic(CODES["BLZ507"], message, implementation.position) for message in messages]


def unknown(draft: Draft, implementation: Implementation) -> list[Diagnostic]:
    """A function that nobody has annotated and nothing was derived of."""
    for path in draft.own:
        if not path.annotated and path.derived:
            (reason, *_) = path.derived
            message = f"nothing is known of {draft.at}: {reason.text}"
            place = reason.position or implementation.position
            return [Diagnostic(CODES["BLZ509"], message, place)]
    return []


def folder_of(dataflow: Dataflow) -> FilePath:
    """Where relative paths and operators of the dataflow are looked for."""
    return dataflow.file.parent if dataflow.file is not None else FilePath()


def path_words(draft: Draft) -> tuple[str, ...]:
    """`input: annotation` of each path, for people."""
    return tuple(f"{path.source}: {path.annotation}" for path in draft.paths)
