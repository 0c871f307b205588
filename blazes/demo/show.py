"""The outcome of the anomalies demonstration, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from annotations.vocabulary import Label
from blazes.demo.outcome import Dispute, Outcome, Tally, Witness
from blazes.document import blocks as b
from blazes.report.notation import label_span


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome as JSON data; `schema_version` counts its changes."""
    return {"schema_version": 1, **asdict(outcome)}


def document(outcome: Outcome) -> b.Document:
    """What was done, a table, an example."""
    size = outcome.size
    intro = (
        f"Which ads have fewer than 100 clicks in their campaign (the query CAMPAIGN)? "
        f"{size.clicks:,} clicks from {size.servers} ad servers, {size.requests} requests, "
        f"{outcome.replicas} replicas of Report; {outcome.runs} runs, in each of which every "
        "replica has an arrival order of its own: the same records, in another sequence and "
        "other micro-batches."
    )
    blocks = b.section("Different answers", [b.paragraph(intro), table(outcome)])
    if outcome.example is not None:
        blocks += b.section("One of them", [story(outcome.example)])
    close = f"{outcome.seconds:.0f} s on {outcome.engine}, seed {outcome.seed}."
    blocks += b.section("How", [b.paragraph(outcome.note, close)])
    return b.Document("", tuple(blocks))


def table(outcome: Outcome) -> b.Table:
    """A row for each thing that was counted, a column for each way of coordination."""
    runs, requests = outcome.runs, outcome.size.requests
    total = runs * outcome.replicas
    labels = (label_span(Label.parse(outcome.verdicts[way])) for way in outcome.ways)
    found: list[tuple[b.Words, ...]] = [("what the analysis says of the answers", *labels)]
    rows: list[tuple[str, int, Callable[[Tally], int]]] = [
        (f"different outputs, of {total}", 1, lambda found: found.outputs),
        (f"runs whose replicas disagreed, of {runs}", 0, lambda found: found.replicas_disagreed),
        (
            f"requests that replicas answered differently (Inst), of {requests}",
            0,
            lambda found: found.requests_by_replica,
        ),
        (
            f"requests that runs answered differently (Run), of {requests}",
            0,
            lambda found: found.requests_by_run,
        ),
        (f"wrong answers, of {total * requests:,}", 0, lambda found: found.wrong),
    ]
    for name, ideal, count in rows:
        figures = [count(tally) for tally in outcome.ways.values()]
        found.append((name, *(b.Span(f"{n:,}", "bad" if n > ideal else "good") for n in figures)))
    return b.Table(("", *outcome.ways), tuple(found), right=[*outcome.ways])


def story(dispute: Dispute) -> b.Paragraph:
    """One request that was answered differently, with the schedules that did it."""
    request = dispute.request
    asked = (
        f"Request {request['request']} of run {dispute.run}: is ad {request['id']} of campaign "
        f"{request['campaign']} a poor performer? It gets {dispute.clicks} clicks in all, so the "
        f"right answer is: {said(dispute.right)}. Uncoordinated,"
    )
    return b.Paragraph((asked, *map(witness, dispute.witnesses)))


def witness(seen: Witness) -> str:
    """What one replica had seen when it answered."""
    return (
        f"  replica {seen.replica} got it in micro-batch {seen.batch} of {seen.batches}, knew "
        f"{seen.clicks} clicks, and said: {said(seen.poor)}"
    )


def said(poor: bool) -> str:
    """An answer in a word."""
    return "poor" if poor else "not poor"
