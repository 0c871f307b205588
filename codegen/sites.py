"""Outputs that run on Flux sites: which do, what a site can evaluate, and what runs in one stage.

A site is a Python process beside Spark. SQL runs there in DuckDB (`codegen.site_sql`); what is not
known to mean the same is refused. So is Python that two copies would not do alike, or that asks for
more than sites have (`codegen.site_python`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from annotations.dataflow import Endpoint
from annotations.diagnostics import Diagnostic
from annotations.type_names import named_types
from blazes.coordination import Strategy
from codegen.codes import CODES
from codegen.drafts import Draft, Kind, reference_of
from codegen.network import Network
from codegen.settings import other_than_sites
from codegen.site_python import function_refusals, processor_refusals
from codegen.site_sql import site_refusals
from codegen.site_state import gives, kept_on_sites, schema_of, unbounded
from codegen.windows import END, START, Refused, has_windows, windowed

if TYPE_CHECKING:
    from annotations.whitebox.code import Code
    from annotations.whitebox.ir import Relation

OWN_COLUMNS: Final = frozenset(
    {"flux_clock", "flux_dead_letter", "flux_interface", "sn_batch", "sn_offset", "sn_sub"}
    | {START, END}
)
"""Columns that sites have beside those of records."""
NOT_CARRIED: Final = frozenset({"time", "geometry", "geography"})
"""Types of Spark's that sites do not have."""
CAST: Final = "leave the column out of the schema, or cast it in a component before"
RENAME: Final = "give the column another name, before the component or in it"


def site_problems(net: Network, code: Callable[[], Code]) -> Iterator[Diagnostic]:
    """Why outputs that should run on Flux sites cannot, or grow there; `code` gives the code."""
    for at, draft in net.drafts.items():
        strategies = {entry.strategy for entry in draft.entries}
        wanted = draft.component.asks_for_sites
        if draft.kind is Kind.SEAL and wanted and Strategy.SEAL in strategies:
            message = f"{at} is sealed, and {draft.component.name} would run on Flux sites"
            yield Diagnostic(CODES["BLZ512"], message, draft.position)
        if draft.kind is Kind.FLUX:
            yield from _flux_problems(net, at, draft, code)
        elif (by := draft.implementation) is not None and by.python is None and by.sql is None:
            given = "a Flux operator" if by.processor is None else "a StatefulProcessor"
            message = f"{at} is given by {given}, and runs on Spark"
            yield Diagnostic(CODES["BLZ513"], message, by.position)


def _flux_problems(
    net: Network, at: Endpoint, draft: Draft, code: Callable[[], Code]
) -> Iterator[Diagnostic]:
    implementation = draft.implementation
    if draft.component.engine == "spark":
        message = f"{at} has engine: spark, which cannot run it"
        yield Diagnostic(CODES["BLZ511"], message, draft.position)
    deployment = net.plan.analysis.dataflow.deployment
    single = "copy" if deployment.copies == 1 else "site"
    if 1 in (deployment.copies, deployment.sites):
        if draft.component.availability == "pairs":
            message = f"{at} has availability: pairs, and the deployment one {single}"
            yield Diagnostic(CODES["BLZ535"], message, draft.position)
        elif deployment.balance != "none":
            message = f"the partitions of {at} would move by balance: {deployment.balance}, and "
            message += f"the deployment has one {single}"
            yield Diagnostic(CODES["BLZ535"], message, draft.position)
    if implementation is None:
        return
    plan = None
    if implementation.sql is not None:
        plan = code().plan(draft.component, draft.output)
    for name in _own_columns(net, draft, plan):
        message = f"{at}: `{name}` is a column that sites have beside those of records"
        yield Diagnostic(CODES["BLZ515"], message, implementation.position, RENAME)
    for name, type_ in _not_carried(net, draft):
        message = f"{at}: sites have no values of the type of `{name}`, {type_}"
        yield Diagnostic(CODES["BLZ515"], message, implementation.position, CAST)
    if implementation.operator is None:
        python = implementation.sql is None
        for name, value, of_sites in other_than_sites(deployment.conf, python=python):
            message = f"{at} would run on Flux sites, with {name}: {value}"
            remedy = f"leave {name} as it is, {of_sites}, or let {at.component} run on Spark"
            yield Diagnostic(CODES["BLZ510"], message, draft.position, remedy)
    if implementation.sql is not None:
        if plan is not None:
            reasons = dict.fromkeys(_reasons(net, draft, implementation.sql, plan))
            for reason in reasons:
                yield Diagnostic(CODES["BLZ515"], f"{at}: {reason}", implementation.position)
            if not reasons:
                yield from _growth(net, draft, implementation.sql)
    elif implementation.python is not None:
        for reason in function_refusals(net, draft, implementation.python):
            yield Diagnostic(CODES["BLZ515"], f"{at}: {reason}", implementation.position)
    else:
        if implementation.processor is not None:
            for reason in processor_refusals(net, draft, implementation.processor):
                yield Diagnostic(CODES["BLZ515"], f"{at}: {reason}", implementation.position)
        if not any(stream.schema for stream in net.leaving[at]):
            message = f"the output of {reference_of(implementation)} at {at} has no schema"
            yield Diagnostic(CODES["BLZ516"], message, implementation.position)


def _own_columns(net: Network, draft: Draft, plan: Relation | None) -> list[str]:
    """Columns of an input or of the output that would stand beside the sites' own of that name."""
    names = {name for interface in draft.inputs for name in schema_of(net, draft, interface) or ()}
    names.update(name for stream in net.leaving[draft.at] for name in stream.schema or ())
    names.update(() if plan is None else (column.name for column in plan.columns))
    return sorted(name for name in names if name.lower() in OWN_COLUMNS)


def _not_carried(net: Network, draft: Draft) -> Iterator[tuple[str, str]]:
    """Columns of inputs and of the output, with their types, that no site takes or gives."""
    streams = [
        *(s for name in draft.inputs for s in net.entering[Endpoint(draft.component.name, name)]),
        *net.leaving[draft.at],
    ]
    for name, type_ in dict(c for s in streams for c in (s.schema or {}).items()).items():
        if NOT_CARRIED & {word.lower() for word in named_types(type_)}:
            yield name, type_


def _growth(net: Network, draft: Draft, sql: str) -> Iterator[Diagnostic]:
    """The state that a site would keep for ever."""
    keeping, when = kept_on_sites(net, draft, sql), gives(draft)
    stored = draft.writes if when == "answers" else draft.inputs
    if (state := unbounded(keeping, when, stored)) is not None:
        assert draft.implementation is not None
        message = f"{draft.at} keeps {state} on Flux sites for ever"
        yield Diagnostic(CODES["BLZ536"], message, draft.implementation.position)


def _reasons(net: Network, draft: Draft, sql: str, plan: Relation) -> Iterator[str]:
    """Everything in a component's SQL that a site cannot evaluate, or keep the state of."""
    if not has_windows(sql):
        yield from site_refusals(sql, plan)
        return
    from annotations.whitebox.inputs import Input
    from annotations.whitebox.sql import read

    schemas = {name: schema_of(net, draft, name) or {} for name in draft.inputs}
    try:
        if gives(draft) != "changes":
            raise Refused("a window in what is no group of records is not known to mean the same")
        query = windowed(sql, schemas)
        kept_on_sites(net, draft, sql)
    except Refused as reason:
        yield str(reason)
        return
    columns = {**schemas[query.input], START: "TIMESTAMP", END: "TIMESTAMP"}
    yield from site_refusals(query.sql, read(query.sql, inputs={query.input: Input(columns)}).plan)


def chains(net: Network) -> Mapping[Endpoint, tuple[Draft, ...]]:
    """Last output of a Flux stage -> its steps; a step that feeds nothing but the next joins it."""
    follows: dict[Endpoint, Endpoint] = {}
    for at, draft in net.drafts.items():
        before = _only_feeder(net, at, draft)
        if before is not None:
            follows[before] = at
    chains: dict[Endpoint, tuple[Draft, ...]] = {}
    for at, draft in net.drafts.items():
        if draft.kind is Kind.FLUX and at not in follows:
            steps = [draft]
            while (before := _only_feeder(net, steps[0].at, steps[0])) is not None:
                steps.insert(0, net.drafts[before])
            chains[at] = tuple(steps)
    return chains


def _only_feeder(net: Network, at: Endpoint, draft: Draft) -> Endpoint | None:
    """The Flux output whose one stream is this one's only input."""
    if draft.kind is not Kind.FLUX or len(draft.inputs) != 1:
        return None
    processor = draft.implementation.processor if draft.implementation is not None else None
    if processor is not None and processor.time != "none":
        return None  # it is told the time of its records' batches, which it reads itself
    (interface,) = draft.inputs
    streams = net.entering.get(Endpoint(at.component, interface), ())
    if len(streams) != 1 or streams[0].producer is None or streams[0].name in net.loops:
        return None
    before = net.drafts[streams[0].producer]
    of_component = (other for other in net.drafts.values() if other.component is draft.component)
    readers = [other for other in of_component if interface in other.inputs]
    alone = len(net.leaving[before.at]) == len(readers) == 1
    single = before.component.replicas == draft.component.replicas == 1
    return before.at if before.kind is Kind.FLUX and alone and single else None
