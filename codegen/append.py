"""Confluent SQL that Spark does not run in append mode, and what it becomes instead.

In append mode Spark's own state takes projections, filters, inner joins, unions and generators.
DISTINCT, GROUP BY without a watermark, outer and semi joins and the like it refuses when the query
starts. The answers of a confluent component only ever grow, so that it can keep its inputs and give
what follows from them, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from codegen.drafts import Draft, Kind
from codegen.network import Network

if TYPE_CHECKING:
    from annotations.whitebox.code import Code


def with_kept_inputs(net: Network, code: Callable[[], Code]) -> Network:
    """The network where such components accumulate; `code` is the dataflow's."""

    def kept(draft: Draft) -> Draft:
        by = draft.implementation
        native = draft.kind is Kind.NATIVE and draft.confluent and draft.component.output_mode
        if native != "append" or by is None or by.sql is None or draft.reads:
            return draft
        if any(path.nondeterministic for path in draft.own) or _runs(code(), draft):
            return draft
        return replace(draft, kind=Kind.ACCUMULATING)

    return replace(net, drafts={at: kept(draft) for at, draft in net.drafts.items()})


def _runs(code: Code, draft: Draft) -> bool:
    """True where nothing shows that Spark would not run it; a watermark closes groups."""
    from annotations.whitebox.ir import (
        Aggregate,
        Deduplicate,
        Join,
        JoinKind,
        SetOperation,
        Watermark,
        nodes_of,
    )

    plan = code.plan(draft.component, draft.output)
    nodes = list(nodes_of(plan)) if plan is not None else []
    if any(isinstance(node, Watermark) for node in nodes):
        return True
    return not any(
        isinstance(node, Aggregate | Deduplicate | SetOperation)
        or (isinstance(node, Join) and node.kind is not JoinKind.INNER)
        for node in nodes
    )
