"""The outcome of the anomalies demonstration, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blazes.demo.outcome import Dispute, Outcome, Witness
from blazes.demo.tally import Tally

COLUMNS = (
    "",
    "analysis says",
    "different outputs",
    "runs in which\nreplicas disagreed",
    "requests that replicas\nof one run answered\ndifferently",
    "requests that runs\nanswered\ndifferently",
    "wrong\nanswers",
)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome as JSON data; `schema_version` counts its changes."""
    return {"schema_version": 1, **asdict(outcome)}


def render(outcome: Outcome) -> RenderableType:
    """The outcome for a terminal: a table, an example, and what was done."""
    size = outcome.size
    head = Text(
        f"{size.clicks:,} clicks of {size.servers} ad servers on {size.campaigns} campaigns, "
        f"{size.requests} requests, {outcome.replicas} replicas of Report. {outcome.runs} runs of "
        "each way, every replica with an arrival order of its own.\n"
    )
    table = Table(title="CAMPAIGN: which ads got fewer than 100 clicks?", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right" if table.columns else "left")
    for way, found in outcome.ways.items():
        table.add_row(way, outcome.verdicts[way], *cells(found, size.requests))
    parts: list[RenderableType] = [head, table]
    if outcome.example is not None:
        parts.append(Text("\n" + story(outcome.example)))
    parts += [Text("\n" + outcome.note), Text(f"\n{outcome.seconds:.0f} s on {outcome.engine}")]
    return Group(*parts)


def cells(found: Tally, requests: int) -> list[Text]:
    """The figures of a row, the ones that show an anomaly in red."""
    return [
        _figure(f"{found.outputs} of {found.runs * found.replicas}", bad=found.outputs > 1),
        _figure(f"{found.replicas_disagreed} of {found.runs}", bad=found.replicas_disagreed > 0),
        _figure(f"{found.requests_by_replica} of {requests}", bad=found.requests_by_replica > 0),
        _figure(f"{found.requests_by_run} of {requests}", bad=found.requests_by_run > 0),
        _figure(f"{found.wrong}", bad=found.wrong > 0),
    ]


def _figure(text: str, *, bad: bool) -> Text:
    return Text(text, style="bold red" if bad else "green")


def story(dispute: Dispute) -> str:
    """One request that was answered differently, with the schedules that did it."""
    request = dispute.request
    lines = [
        f"For example request {request['request']}: is ad {request['id']} of campaign "
        f"{request['campaign']} a poor performer? It has {dispute.clicks} clicks in all, so the "
        f"right answer is {yes(dispute.right)}. In run {dispute.run}, uncoordinated:"
    ]
    return "\n".join([*lines, *map(witness, dispute.witnesses)])


def witness(seen: Witness) -> str:
    """What one replica had seen when it answered."""
    return (
        f"  replica {seen.replica} got the request in micro-batch {seen.batch} of {seen.batches}, "
        f"with {seen.clicks} clicks so far, and answered {yes(seen.poor)}"
    )


def yes(poor: bool) -> str:
    """An answer in a word."""
    return "poor" if poor else "not poor"
