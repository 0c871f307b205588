"""What each stage does, and why, in words: the same in the job's docstring, README and explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from annotations.dataflow import External, Producers, Stream
from annotations.delivery import FILES
from annotations.phrases import listed
from blazes.coordination import Entry, Mode, Release, Scope, Vote
from codegen.drafts import Draft
from codegen.model import Flux, Guarantee


def attributes(names: Iterable[str]) -> str:
    """A key or a gate, as it is written in the file.

    >>> attributes(("batch", "word"))
    '[batch, word]'
    """
    return f"[{', '.join(names)}]"


def external(it: External) -> str:
    """A format and where it is."""
    return f"{it.format} {it.path}" if it.path else it.format


def source(stream: Stream, it: External) -> str:
    """What a source does."""
    words = f"reads {external(it)}"
    if stream.seals and stream.punctuation is not None:
        keys = " and ".join(attributes(sorted(key)) for key in stream.seals)
        words += f"; sealed on {keys}: a record with {stream.punctuation.when} is a punctuation"
    if stream.id:
        words += f"; a record is known by its {attributes(stream.id)}"
    return words


def record_wise(draft: Draft) -> str:
    """What a fused transform does."""
    did = "works on single records" if draft.implementation else "passes its records through"
    copies = draft.component.replicas
    note = f"; its {copies} replicas are the same function" if copies > 1 else ""
    return f"{did}, inside its consumers{note}"


def narrowed(replicas: int) -> str:
    """What a transform does that hides from readers which replica a record is from."""
    return f"the columns of its schema; each of {replicas} replicas puts out its own records"


def native(draft: Draft) -> str:
    """What a transform in Spark's own state does."""
    it = draft.implementation
    if it is not None and it.distinct:
        how_long = it.repeat_within or "ever"
        return f"drops copies, known by their {attributes(it.distinct)}; remembers for {how_long}"
    mode = draft.component.output_mode
    again = "; a group is written again whenever it changes" if mode == "update" else ""
    return f"a streaming query with Spark's own state, {mode} mode{again}"


def accumulating(draft: Draft) -> str:
    """What a transform over everything that arrived does."""
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
    """What a sealed output does."""
    asked = f"; requests on {listed(draft.reads)} wait for theirs" if draft.reads else ""
    return (
        f"holds {listed(draft.writes)} back until a partition of {attributes(key)} is "
        f"complete, and works on it once, whole{asked}"
    )


def seal_why(entries: Iterable[Entry]) -> str:
    """Why an output is sealed: for its own sake, else for that of what waits for it."""
    sensitive = [each for each in entries if not each.path.annotation.kind.confluent]
    if not sensitive:
        return "what comes after it waits for whole partitions, and for their punctuations"
    told = listed(f"{each.path} is {each.path.annotation}" for each in sensitive)
    return (
        f"{told}: seen half, a partition gives another result, and what is seen depends on "
        "arrival; seen whole, it gives one"
    )


def vote(vote: Vote, release: Release) -> str:
    """How it is decided that a partition is complete, and how it is handed over."""
    who = "its one producer" if vote is Vote.NONE else "every producer of the partition"
    how = "sorted by a total key" if release is Release.SORTED else "as a multiset"
    return f"complete when {who} has punctuated it and the counts agree; released {how}"


def producers(it: Producers) -> str:
    """Who contributes to a partition."""
    match it.rule:
        case "one":
            return "whoever punctuates a partition is its only producer"
        case "all":
            return f"{listed(it.members)} contribute to every partition"
        case _:
            start = f", from {it.registrations} at the start" if it.registrations else ""
            return f"registered in ZooKeeper, partition by partition{start}"


def watermark(column: str, delay: str) -> str:
    """What an output sealed by a lateness promise does."""
    return (
        f"a streaming query with Spark's own state, append mode: a group is written once, when the "
        f"newest {column} is {delay} past it"
    )


def late(policy: str, seal_timeout_s: float) -> str:
    """What happens to what comes too late, and to what does not come."""
    done = "stops the job" if policy == "fail" else "goes to the dead letters"
    return (
        f"a record after its seal {done}; a partition that is open for {seal_timeout_s:g} s is "
        "warned about, never guessed"
    )


def dedup(stream: str, id: Iterable[str]) -> str:
    """What happens to a record that comes again."""
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
    """What has to be true for a watermark to be a seal."""
    return (
        f"no record of {stream.name} is more than {stream.lateness} behind the newest one by "
        f"{column}. The sources promise it; a record that breaks the promise and comes after its "
        "group was written is left out, counted, and kept as a dead letter where it can be told"
    )


def no_later_copy(stream: str, within: str) -> str:
    """What has to be true for an id to be forgotten."""
    return (
        f"a record of {stream} comes again within {within} or never, by the modification times of "
        "its files. The source promises it; a record whose file is older than the newest one by "
        "more is left out, counted, and kept as a dead letter, since it cannot be told from a copy"
    )


def order(draft: Draft, changed_by: tuple[str, ...] | None, *, native: bool) -> str:
    """What an ordered output does."""
    recorded = "micro-batch by micro-batch, in the order that Spark's offset log records"
    if native:
        return f"takes {listed(draft.inputs)} {recorded}; a group is written again when it changes"
    if changed_by is None:
        return (
            f"takes {listed(draft.inputs)} {recorded}; each record of {listed(draft.reads)} is "
            "answered once, from what stands before it"
        )
    what = f"the partitions of {attributes(changed_by)} that changed" if changed_by else "all of it"
    return f"takes {listed(draft.inputs)} {recorded}; computes {what} again"


def order_why(entries: Iterable[Entry]) -> str:
    """Why an output is ordered."""
    told = listed(
        f"{each.path} is {each.path.annotation}{f' ({each.cause})' if each.cause else ''}"
        for each in entries
    )
    return f"{told}: it depends on arrival, and nothing seals what it depends on"


def order_scope(scope: Scope, mode: Mode) -> str:
    """What the order ranges over and what it is good for."""
    ranges = "within each gate partition" if scope is Scope.GATE else "over all records"
    fresh = "a restart or replay follows it; a run from scratch may be ordered differently"
    note = "" if mode is Mode.RECORDED else "; more than the target asks for, at no further cost"
    return f"one order {ranges}; {fresh}{note}"


def flux(steps: Sequence[Draft]) -> str:
    """What a Flux stage does."""
    taken = listed(steps[0].inputs)
    through = f" through {listed(str(each.at) for each in steps)}" if len(steps) > 1 else ""
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
    """What the order of a Flux stage is good for."""
    return (
        "one order of producers' batches; all copies, a restart and a replay follow it; a run "
        "from scratch may be ordered differently"
    )


def step(name: str, gives: str, gate: tuple[str, ...] | None, query: str | None) -> str:
    """What a step of a Flux stage does, and how it is partitioned."""
    engine = "a Flux operator" if query is None else "SQL, in DuckDB"
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
        "answers": "answers each request once",
        "changes": "computes what a batch changed again",
    }[gives]
    return f"{name}: {engine}, {apart}; {when}"


def sites(stage: Flux) -> str:
    """What hosts a Flux stage."""
    words = f"{stage.sites} Spark tasks host at most {stage.partitions} pairs of partitions"
    words += " for each step"
    if stage.balance != "none":
        words += f"; they move off busy sites (policy: {stage.balance})"
    if stage.site_memory is not None:
        words += f"; a site keeps {stage.site_memory} of state in memory and the rest on its disk"
    if stage.keep_every is not None:
        every = "every batch" if stage.keep_every == 1 else f"every {stage.keep_every} batches"
        words += f"; their state is kept after {every}"
    return words


def channel(streams: Iterable[str], *, loop: bool) -> str:
    """What a channel does."""
    if loop:
        return f"durable stream {listed(streams)}, which feeds back"
    return f"durable stream {listed(streams)}, in committed folders"


def sink(name: str, it: External, guarantee: Guarantee) -> str:
    """What a sink does."""
    once = guarantee is Guarantee.EXACTLY_ONCE
    files = once and it.format in FILES
    named = it.options.get("dbtable") or it.options.get("topic")
    where = it.path or (f"results/{name}" if files else None) or named
    how = ", appending"
    if once:
        how = ", one folder for each commit" if files else ", one transaction for each commit"
    if it.key:
        how += f", which replaces the row of equal {listed(it.key)}"
    return f"writes {it.format}{f' {where}' if where else ''}{how}: {guarantee.value}"
