"""The judgement of a plan, what can be compiled of it and what cannot, for all commands.

`blazes compile` refuses what is found here, and `analyze`, `plan` and `check` report it
(`refusals`). What an output becomes is decided in `drafts`, cycles are found in `network`, `gates`
and `seals` follow the punctuations, `sites` looks at what runs beside Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from annotations.dataflow import Endpoint
from annotations.diagnostics import Diagnostic, errors_among
from blazes.coordination import Plan
from codegen.codes import CODES
from codegen.deduplication import with_deduplication
from codegen.drafts import Kind, folder_of, ordered_by_spark
from codegen.ends import OWN_COLUMNS, read_again, sink_problems, source_problems, taken_names
from codegen.gates import with_gates
from codegen.network import Network, network, not_streaming, with_kept_inputs
from codegen.operators import STREAMS_ONLY, named_attributes
from codegen.seals import Route, routes
from codegen.settings import breaking

if TYPE_CHECKING:
    from annotations.whitebox.code import Code

OF_SOURCES: Final = frozenset({"BLZ501", "BLZ502", "BLZ503", "BLZ521", "BLZ522", "BLZ532"})
"""What a file lacks that says nothing about where its records come from, and need not."""
OF_CODE: Final = frozenset({"BLZ504", "BLZ505"})
"""What a file lacks whose components have annotations and no code, and need not."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A plan on its way to stages."""

    plan: Plan
    """With a component for each stream that is de-duplicated."""
    net: Network
    sealed: Mapping[Endpoint, Route]
    problems: tuple[Diagnostic, ...]
    """Everything that cannot be compiled, in the order of the file."""
    warnings: tuple[Diagnostic, ...] = ()
    """What can be, and will hurt."""


def judged(plan: Plan) -> Judgement:
    """The outputs of a plan, wired and with their seals followed, and every problem of that."""
    problems: list[Diagnostic] = []
    plan = with_deduplication(plan, problems)

    @cache
    def code() -> Code:
        from annotations.whitebox.code import Code

        return Code(plan.analysis.dataflow, follow=True)

    net, ungated = with_gates(network(plan, problems), code)
    net = with_kept_inputs(net, code)
    sealed = routes(net, problems, ungated)
    if any(draft.needs_site_check for draft in net.drafts.values()):
        from codegen.sites import site_problems

        problems += site_problems(net, code)
    problems += _of_streams_alone(net, sealed)
    conf = plan.analysis.dataflow.deployment.conf
    for setting in breaking(conf):
        message = f"conf has {setting}: {conf[setting]}"
        problems.append(Diagnostic(CODES["BLZ539"], message, None))
    for stream in plan.analysis.dataflow.streams.values():
        problems += [
            Diagnostic(CODES["BLZ529"], f"stream {stream.name} has {taken}", stream.position)
            for taken in taken_names(stream.schema or (), conf)
        ]
        if stream.producer is None:
            problems += source_problems(stream)
        if stream.consumer is None:
            problems += sink_problems(stream, folder_of(plan.analysis.dataflow))
    problems += _not_streaming(net, sealed, code)
    problems += read_again(plan.analysis.dataflow.streams.values())
    problems += _own_columns(net, code)
    ordered = sorted(dict.fromkeys(problems), key=place)
    errors = errors_among(ordered)
    warnings = tuple(problem for problem in ordered if problem not in errors)
    return Judgement(plan, net, sealed, tuple(errors), warnings)


def _own_columns(net: Network, code: Callable[[], Code]) -> Iterator[Diagnostic]:
    """Columns to which SQL gives a name of the job's own."""
    for at, draft in net.drafts.items():
        by = draft.implementation
        if by is None or by.sql is None or "__" not in by.sql:
            continue
        plan = code().plan(draft.component, draft.output)
        for column in () if plan is None else plan.columns:
            if OWN_COLUMNS.fullmatch(column.name):
                message = f"{at} puts out a column `{column.name}`, which is the job's own"
                yield Diagnostic(CODES["BLZ529"], message, by.position)


def _not_streaming(
    net: Network, sealed: Mapping[Endpoint, Route], code: Callable[[], Code]
) -> Iterator[Diagnostic]:
    """Outputs whose code would run over a stream, where Spark does not run it."""
    for at in _streamed(net, {at for at, route in sealed.items() if route.promise is None}):
        draft = net.drafts[at]
        construct = not_streaming(code(), draft)
        if construct is not None and draft.implementation is not None:
            message = f"{at} would run over a stream, where Spark refuses {construct}"
            yield Diagnostic(CODES["BLZ538"], message, draft.implementation.position)


def _streamed(net: Network, waiting: Collection[Endpoint]) -> set[Endpoint]:
    """Outputs that a streaming query computes: one of their own, or one that reads them.

    Only a sealed output reads what it waits for (`waiting`) from records that are kept.
    """
    readers: dict[Endpoint, list[Endpoint]] = {}
    for at, draft in net.drafts.items():
        for interface in draft.reads if at in waiting else draft.inputs:
            readers.setdefault(Endpoint(at.component, interface), []).append(at)
    streamed: set[Endpoint] = set()
    for at, draft in reversed([*net.drafts.items()]):
        ends = [stream.consumer for stream in net.leaving[at]]
        if (draft.kind is Kind.NATIVE and at not in waiting) or (
            draft.kind is Kind.FUSED
            and any(
                end is None
                or any(
                    net.drafts[reader].kind is not Kind.FUSED or reader in streamed
                    for reader in readers.get(end, ())
                )
                for end in ends
            )
        ):
            streamed.add(at)
    return streamed


def _of_streams_alone(net: Network, sealed: Mapping[Endpoint, Route]) -> Iterator[Diagnostic]:
    """Functions that are handed batches, with an operation that Spark has for streams alone."""
    folder = folder_of(net.plan.analysis.dataflow)
    for at, draft in net.drafts.items():
        by = draft.implementation
        if by is None or by.python is None:
            continue
        waits = draft.kind is Kind.SEAL and at in sealed and sealed[at].promise is None
        ordered = draft.kind is Kind.ORDER and not ordered_by_spark(draft, folder)
        if waits or ordered or draft.kind is Kind.ACCUMULATING:
            for operation in sorted(STREAMS_ONLY & named_attributes(by.python, folder)):
                message = f"{at} is handed batches, and {by.python} calls {operation}"
                yield Diagnostic(CODES["BLZ537"], message, by.position)


def refusals(plan: Plan) -> tuple[Diagnostic, ...]:
    """The compiler's refusals of a dataflow that is meant to be compiled, and its warnings.

    A file without sources, or without code, is a model of a dataflow: it is not held against it
    that these are missing, and of one that has neither nothing is said.
    """
    dataflow = plan.analysis.dataflow
    sources, code = dataflow.has_sources, dataflow.has_code
    if not sources and not code:
        return ()
    missing = (frozenset() if sources else OF_SOURCES) | (frozenset() if code else OF_CODE)
    judgement = judged(plan)
    problems = (*judgement.problems, *judgement.warnings)
    return tuple(problem for problem in problems if problem.code.id not in missing)


def place(problem: Diagnostic) -> tuple[str, int, int]:
    """Where a problem stands in the file; those without a place come first."""
    at = problem.position
    return (at.file, at.line, at.column) if at else ("", 0, 0)
