"""How much coordination a job gets: the least that repairs it, an order throughout, or none.

The least is what a job should have. The others are for comparison: what an order costs where a seal
would do, and what goes wrong without either (Blazes, section VIII).
"""

from __future__ import annotations

import enum
from dataclasses import replace
from types import MappingProxyType

from annotations.dataflow import Dataflow
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import Entry, Plan, Strategy, plan
from blazes.repairs import NO_REPAIRS


class Coordination(enum.Enum):
    """The coordination that a dataflow is compiled with."""

    LEAST = "least"
    """The plan: seals where the streams have them, orders elsewhere."""
    ORDER = "order"
    """Orders only: the streams' seals are not used."""
    NONE = "none"
    """Nothing: every order-sensitive path takes what arrives as it arrives."""


def coordinate(
    dataflow: Dataflow,
    choice: Coordination = Coordination.LEAST,
    *,
    rules: str = "blazes",
    target: Label = Label.ASYNC,
) -> Plan:
    """The plan for a dataflow under a choice of coordination."""
    if choice is not Coordination.LEAST:
        dataflow = without_seals(dataflow)
    decided = plan(analyze(dataflow, rules=rules), target=target)
    return uncoordinated(decided) if choice is Coordination.NONE else decided


def without_seals(dataflow: Dataflow) -> Dataflow:
    """The same streams, punctuations and all, but nobody waits for a partition."""
    streams = {name: replace(stream, seals=()) for name, stream in dataflow.streams.items()}
    return replace(dataflow, streams=MappingProxyType(streams))


def uncoordinated(decided: Plan) -> Plan:
    """A plan that leaves every path as it is: the labels are those of the analysis."""
    analysis = decided.analysis
    return replace(
        decided,
        entries=tuple(_left_alone(entry) for entry in decided.entries),
        repaired=analysis.labels,
        verdict=analysis.verdict,
        repairs=NO_REPAIRS,
        deliveries=analysis.deliveries,
    )


def _left_alone(entry: Entry) -> Entry:
    return Entry(entry.component, entry.path, Strategy.NONE, (), cause=entry.cause)
