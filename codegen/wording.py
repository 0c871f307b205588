"""The sentence of each stage, and why it is there: the same in docstring, README and explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from annotations.dataflow import External, Producers, Stream
from annotations.delivery import FILES
from annotations.phrases import listed
from blazes.coordination import Entry, Mode, Release, Scope, Vote
from codegen.drafts import Draft
from codegen.model import Flux, Guarantee, Step


def attributes(names: Iterable[str]) -> str:
    """A key or a gate, as it is written in the file.

    >>> attributes(("batch", "word"))
    '[batch, word]'
    """
    return f"[{', '.join(names)}]"


def external(end: External) -> str:
    """A format and where it is."""
    return f"{end.format} {end.path}" if end.path else end.format


def source(stream: Stream, end: External) -> str:
    """The sentence of a source."""
    words = f"reads {external(end)}"
    if stream.seals and stream.punctuation is not None:
        keys = " and ".join(attributes(sorted(key)) for key in stream.seals)
        words += f"; sealed on {keys}: a record with {stream.punctuation.when} is a punctuation"
    if stream.id:
        words += f"; a record is known by its {attributes(stream.id)}"
    return words


def record_wise(draft: Draft) -> str:
    """The sentence of a fused transform."""
    did = "works on single records" if draft.implementation else "passes its records through"
    copies = draft.component.replicas
    note = f"; its {copies} replicas are the same function" if copies > 1 else ""
    return f"{did}, inside its consumers{note}"


def narrowed(replicas: int) -> str:
    """The sentence of a transform that hides from readers which replica a record is from."""
    return f"the columns of its schema; each of {replicas} replicas puts out its own records"


def native(draft: Draft) -> str:
    """The sentence of a transform in Spark's own state."""
    implementation = draft.implementation
    if implementation is not None and implementation.distinct:
        how_long = implementation.repeat_within or "ever"
        known_by = attributes(implementation.distinct)
        return f"drops copies, known by their {known_by}; remembers for {how_long}"
    mode = draft.component.output_mode
    again = "; a group is written again whenever it changes" if mode == "update" else ""
    return f"a streaming query with Spark's own state, {mode} mode{again}"


def accumulating(draft: Draft) -> str:
    """The sentence of a transform over everything that arrived."""
    if draft.confluent and draft.reads:
        return (
            f"keeps {listed(draft.inputs)}; an answer is given once, as soon as it follows from "
            "what has arrived"
        )
    if draft.confluent:
        return f"keeps {listed(draft.inputs)}; what follows from it is given once, as a set"
    return (
        f"keeps {listed(draft.writes)}; each record of {listed(draft.reads)} is answered once, "
        "from what has arrived until then"
    )


def seal(draft: Draft, key: tuple[str, ...]) -> str:
    """The sentence of a sealed output."""
    asked = f"; requests on {listed(draft.reads)} wait for theirs" if draft.reads else ""
    return (
        f"holds {listed(draft.writes)} back until a partition of {attributes(key)} is "
        f"complete, and works on it once, whole{asked}"
    )


def seal_why(entries: Iterable[Entry]) -> str:
    """Why an output is sealed: for its own sake, else for that of what waits for it."""
    sensitive = [entry for entry in entries if not entry.path.annotation.kind.confluent]
    if not sensitive:
        return "what comes after it waits for whole partitions, and for their punctuations"
    paths = listed(f"{entry.path} is {entry.path.annotation}" for entry in sensitive)
    return (
        f"{paths}: seen half, a partition gives another result, and what is seen depends on "
        "arrival; seen whole, it gives one"
    )


def vote(vote: Vote, release: Release) -> str:
    """How it is decided that a partition is complete, and how it is handed over."""
    who = "its one producer" if vote is Vote.NONE else "every producer of the partition"
    how = "sorted by a total key" if release is Release.SORTED else "as a multiset"
    return f"complete when {who} has punctuated it and the counts agree; released {how}"


def producers(declared: Producers) -> str:
    """Who contributes to a partition."""
    match declared.rule:
        case "one":
            return "whoever punctuates a partition is its only producer"
        case "all":
            return f"{listed(declared.members)} contribute to every partition"
        case _:
            start = (
                f", from {declared.registrations} at the start" if declared.registrations else ""
            )
            return f"registered in ZooKeeper, partition by partition{start}"


def watermark(column: str, delay: str) -> str:
    """The sentence of an output sealed by a lateness promise."""
    return (
        f"a streaming query with Spark's own state, append mode: a group is written once, when the "
        f"newest {column} is {delay} past it"
    )


def late(policy: str, seal_timeout_s: float) -> str:
    """The fate of what comes too late, and of what does not come."""
    done = "stops the job" if policy == "fail" else "goes to the dead letters"
    return (
        f"a record after its seal {done}; a partition that is open for {seal_timeout_s:g} s is "
        "warned about, never guessed"
    )


def dedup(stream: str, id: Iterable[str]) -> str:
    """The fate of a record that comes again."""
    return f"a record of {stream} whose {attributes(id)} is known is dropped before it counts"


def remembered(remember_s: float) -> str:
    """How long a released partition is remembered."""
    return (
        f"released partitions for {duration(remember_s)}; what comes for one after that opens it "
        "anew, and waits for punctuations"
    )


def duration(seconds: float) -> str:
    """A time in the largest unit that gives a whole number.

    >>> duration(604800), duration(5400), duration(1.5)
    ('7 days', '90 minutes', '1.5 s')
    """
    for unit, length_s in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count, rest = divmod(seconds, length_s)
        if count and not rest:
            return f"{count:g} {unit}{'s' if count != 1 else ''}"
    return f"{seconds:g} s"


def promise(stream: Stream, column: str) -> str:
    """The condition under which a watermark is a seal."""
    return (
        f"no record of {stream.name} is more than {stream.lateness} behind the newest one by "
        f"{column}. The sources promise it; a record that breaks the promise and comes after its "
        "group was written is left out, counted, and kept as a dead letter where it can be told"
    )


def no_later_copy(stream: str, within: str) -> str:
    """The condition under which an id may be forgotten."""
    return (
        f"a record of {stream} comes again within {within} or never, by the modification times of "
        "its files. The source promises it; a record whose file is older than the newest one by "
        "more is left out, counted, and kept as a dead letter, since it cannot be told from a copy"
    )


def order(draft: Draft, changed_by: tuple[str, ...] | None, *, native: bool) -> str:
    """The sentence of an ordered output."""
    recorded = "micro-batch by micro-batch, in the order that Spark's offset log records"
    if native:
        return f"takes {listed(draft.inputs)} {recorded}; a group is written again when it changes"
    if changed_by is None:
        return (
            f"takes {listed(draft.inputs)} {recorded}; each record of {listed(draft.reads)} is "
            "answered once, from what stands before it"
        )
    recomputed = (
        f"the partitions of {attributes(changed_by)} that changed" if changed_by else "all of it"
    )
    return f"takes {listed(draft.inputs)} {recorded}; computes {recomputed} again"


def order_why(entries: Iterable[Entry]) -> str:
    """Why an output is ordered."""
    paths = listed(
        f"{entry.path} is {entry.path.annotation}{f' ({entry.cause})' if entry.cause else ''}"
        for entry in entries
    )
    return f"{paths}: it depends on arrival, and nothing seals what it depends on"


def order_scope(scope: Scope, mode: Mode) -> str:
    """The range of the order, and what it is good for."""
    ranges = "within each gate partition" if scope is Scope.GATE else "over all records"
    fresh = "a restart or replay follows it; a run from scratch may be ordered differently"
    note = "" if mode is Mode.RECORDED else "; more than the target asks for, at no further cost"
    return f"one order {ranges}; {fresh}{note}"


def flux(steps: Sequence[Draft]) -> str:
    """The sentence of a Flux stage."""
    taken = listed(steps[0].inputs)
    through = f" through {listed(str(step.at) for step in steps)}" if len(steps) > 1 else ""
    copies = steps[-1].component.replicas
    many = f"; {copies} replicas follow the same order" if copies > 1 else ""
    return (
        f"takes {taken} in the one order that ZooKeeper records{through}, on pairs of partitions "
        f"of which one may fail{many}"
    )


def flux_why(draft: Draft, entries: Sequence[Entry]) -> str:
    """Why outputs run on Flux sites."""
    component = draft.component
    reasons = []
    if entries:
        reasons.append(order_why(entries))
    if component.replicas > 1:
        reasons.append("replicas have to agree on the order")
    if component.availability == "pairs":
        reasons.append("availability: pairs asks for output that goes on when a process fails")
    return "; ".join(reasons) or "engine: flux asks for it"


def flux_order() -> str:
    """The purpose of the order of a Flux stage."""
    return (
        "one order of producers' batches; all copies, a restart and a replay follow it; a run "
        "from scratch may be ordered differently"
    )


def step(flux_step: Step) -> str:
    """The sentence of a step of a Flux stage, and how it is partitioned."""
    name, gate, query = flux_step.name, flux_step.gate, flux_step.query
    processor = flux_step.function.processor
    engine = "a Flux operator" if query is None else "SQL, in DuckDB"
    if processor is not None:
        engine = f"the StatefulProcessor {processor.make}"
        engine += "" if processor.time == "none" else f", told {processor.time} time"
    if flux_step.function.batches:
        engine = f"{flux_step.function.python}, batch by batch"
    if gate is None:
        apart = "in any partition"
    elif gate:
        apart = f"partitioned by {attributes(gate)}"
    else:
        apart = "in one partition: no attribute separates its work"
    if query is None:
        return f"{name}: {engine}, {apart}"
    when = {
        "records": "record by record",
        "new": "puts out what follows anew",
        "distinct": "puts out what follows anew, each row once",
        "answers": "answers each request once",
        "changes": "computes what a batch changed again",
    }[flux_step.gives]
    for name, time in flux_step.times.items():
        seconds = time["lateness_us"] / 1_000_000
        if "partner" in time:
            when += f"; sets {name} aside that are {seconds:g} s before the latest {time['column']}"
            continue
        ended = f"when it ends {seconds:g} s before the latest {time['column']}"
        when = (
            f"puts a window out and forgets it {ended}"
            if time["final"]
            else f"{when}, and forgets a window {ended}"
        )
    return f"{name}: {engine}, {apart}; {when}"


def sites(stage: Flux) -> str:
    """The hosts of a Flux stage."""
    of = "pairs of partitions" if stage.copies == 2 else "partitions without a second copy"
    words = f"{stage.sites} Spark tasks host at most {stage.partitions} {of} for each step"
    if stage.balance != "none":
        words += f"; they move off busy sites (policy: {stage.balance})"
    if stage.site_memory is not None:
        words += f"; a site keeps {stage.site_memory} of state in memory and the rest on its disk"
    if stage.keep_every is not None:
        every = "every batch" if stage.keep_every == 1 else f"every {stage.keep_every} batches"
        words += f"; their state is kept after {every}"
    return words


def channel(streams: Iterable[str], *, loop: bool) -> str:
    """The sentence of a channel."""
    if loop:
        return f"durable stream {listed(streams)}, which feeds back"
    return f"durable stream {listed(streams)}, in committed folders"


def sink(name: str, end: External, guarantee: Guarantee) -> str:
    """The sentence of a sink."""
    once = guarantee is Guarantee.EXACTLY_ONCE
    files = once and end.format in FILES
    named = end.options.get("dbtable") or end.options.get("topic")
    where = end.path or (f"results/{name}" if files else None) or named
    how = ", appending"
    if end.function is not None:
        return f"hands its rows to {end.function} ({end.format}): {guarantee.value}"
    if once:
        how = ", one folder for each commit" if files else ", one transaction for each commit"
    if end.key:
        how += f", which replaces the row of equal {listed(end.key)}"
    return f"writes {end.format}{f' {where}' if where else ''}{how}: {guarantee.value}"
