"""The outcome of the anomalies demonstration, for people and as JSON."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from annotations.vocabulary import Label
from blazes.demo.outcome import Dispute, Outcome, Witness
from blazes.demo.tally import Tally
from blazes.report.layout import INDENT, STYLES, Layout, heading, paragraph, printed


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The whole outcome as JSON data; `schema_version` counts its changes."""
    return {"schema_version": 1, **asdict(outcome)}


def as_text(outcome: Outcome, layout: Layout) -> str:
    """The outcome for a terminal: what was done, a table, an example."""
    size = outcome.size
    intro = [
        f"Which ads have fewer than 100 clicks in their campaign (the query CAMPAIGN)? "
        f"{size.clicks:,} clicks from {size.servers} ad servers, {size.requests} requests, "
        f"{outcome.replicas} replicas of Report; {outcome.runs} runs, in each of which every "
        "replica has an arrival order of its own: the same records, in another sequence and "
        "other micro-batches.",
    ]
    parts: list[RenderableType] = [
        Text(),
        heading("Different answers", None, layout),
        inset(paragraph(intro)),
        Text(),
        inset(table(outcome)),
    ]
    if outcome.example is not None:
        parts += [Text(), heading("One of them", None, layout), inset(story(outcome.example))]
    close = [outcome.note, f"{outcome.seconds:.0f} s on {outcome.engine}, seed {outcome.seed}."]
    parts += [Text(), heading("How", None, layout), inset(paragraph(close)), Text()]
    return printed(parts, layout)


def inset(part: RenderableType) -> RenderableType:
    """The part, a little to the right."""
    return Padding(part, (0, 0, 0, INDENT))


def table(outcome: Outcome) -> Table:
    """A row for each thing that was counted, a column for each way of coordination."""
    runs, requests = outcome.runs, outcome.size.requests
    total = runs * outcome.replicas
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold")
    for _ in outcome.ways:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row("", *(Text(way, style="bold") for way in outcome.ways))
    labels = [Label.parse(outcome.verdicts[way]) for way in outcome.ways]
    grid.add_row(
        "what the analysis says of the answers",
        *(Text(str(label), style=STYLES[label]) for label in labels),
    )
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
        figures = [count(found) for found in outcome.ways.values()]
        grid.add_row(
            name,
            *(Text(f"{n:,}", style="bold red" if n > ideal else "green") for n in figures),
        )
    return grid


def story(dispute: Dispute) -> Text:
    """One request that was answered differently, with the schedules that did it."""
    request = dispute.request
    asked = (
        f"Request {request['request']} of run {dispute.run}: is ad {request['id']} of campaign "
        f"{request['campaign']} a poor performer? It gets {dispute.clicks} clicks in all, so the "
        f"right answer is: {said(dispute.right)}. Uncoordinated,"
    )
    return paragraph([asked, *map(witness, dispute.witnesses)])


def witness(seen: Witness) -> str:
    """What one replica had seen when it answered."""
    return (
        f"  replica {seen.replica} got it in micro-batch {seen.batch} of {seen.batches}, knew "
        f"{seen.clicks} clicks, and said: {said(seen.poor)}"
    )


def said(poor: bool) -> str:
    """An answer in a word."""
    return "poor" if poor else "not poor"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while the replicas run, where that is a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("running replicas on Spark", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
