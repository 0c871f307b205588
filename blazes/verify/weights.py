"""The weights of claims, by what would change if one fell: the heaviest are tested first."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from annotations.dataflow import Dataflow, Path
from annotations.vocabulary import UNKNOWN
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.verify.claims import Claim, Kind

PATHS_MAX: Final = 200
"""Confluent paths that are tried out; of more than these each counts as one of the plan's."""


class Weight(enum.IntEnum):
    """The weight of a claim; the least number comes first."""

    VERDICT = 0
    PLAN = 1
    NOTHING = 2


def weights_of(dataflow: Dataflow) -> Callable[[Claim], Weight]:
    """The function that gives the weight of a claim of this dataflow.

    On what an order-sensitive path claims, its partitions and their order, the plan is built, and
    so is the verdict. A confluent path, or a dependency, is taken away to see what changes.
    """
    now = _judged(dataflow)
    confluent = sum(
        path.annotation.kind.confluent
        for component in dataflow.components.values()
        for path in component.paths
    )
    known: dict[Any, Weight] = {}

    def without(claim: Claim) -> Weight:
        if claim.fd is not None:
            rest = tuple(fd for fd in dataflow.fds if fd != claim.fd)
            return _compared(now, _judged(replace(dataflow, fds=rest)))
        assert claim.operator is not None
        assert claim.path is not None
        if confluent > PATHS_MAX:
            return Weight.PLAN
        return _compared(now, _judged(_fallen(dataflow, claim.operator.component, claim.path)))

    def weight(claim: Claim) -> Weight:
        if claim.kind is Kind.FUNCTION:
            return Weight.VERDICT
        if claim.path is not None and not claim.path.annotation.kind.confluent:
            return Weight.VERDICT
        if claim.kind is Kind.KEY:
            return Weight.PLAN
        name = claim.where
        if name not in known:
            known[name] = without(claim)
        return known[name]

    return weight


def _fallen(dataflow: Dataflow, component: str, path: Path) -> Dataflow:
    """The dataflow in which nothing is known of a path."""
    declared = dataflow.components[component]
    paths = tuple(
        replace(known, annotation=UNKNOWN) if known == path else known for known in declared.paths
    )
    components = {**dataflow.components, component: replace(declared, paths=paths)}
    return replace(dataflow, components=MappingProxyType(components))


def _judged(dataflow: Dataflow) -> tuple[Any, Any]:
    """The verdict without and with the plan; and the plan."""
    decided = plan(analyze(dataflow))
    entries = {(entry.component, str(entry.path), entry.strategy) for entry in decided.entries}
    return (decided.analysis.verdict, decided.verdict), entries


def _compared(one: tuple[Any, Any], other: tuple[Any, Any]) -> Weight:
    if one[0] != other[0]:
        return Weight.VERDICT
    return Weight.PLAN if one[1] != other[1] else Weight.NOTHING
