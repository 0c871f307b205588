"""How a sealed output learns that a partition is complete: the way from its producers to it.

Punctuations travel through record-wise transforms, and leave a component behind a gate with
the partition (SE-3). Attributes that are renamed on the way are followed by the paths' lineage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from annotations.dataflow import EMPTY, Endpoint, Path, Producers, Stream
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import Key
from annotations.whitebox.datatypes import BOOLEAN, parse_type
from codegen.codes import CODES
from codegen.drafts import Draft, Kind
from codegen.network import Network
from codegen.wording import attributes

NOT_ATOMIC: Final = ("array", "map", "struct", "variant", "void", "geometry", "geography")
"""Types that cannot be a key: their values are not one value, of which two are equal or not."""
COLLATED: Final = re.compile(r"\bcollate\s+(\S+)")
BINARY: Final = "utf8_binary"
"""The only collation under which texts are equal exactly if they are the same text."""


@dataclass(frozen=True, slots=True)
class Route:
    """Who announces the partitions of a sealed output, and how that reaches it."""

    key: tuple[str, ...]
    """Attributes as the waiting inputs name them, sorted."""
    sources: Mapping[str, Stream] = field(default_factory=lambda: EMPTY)
    """The source streams whose producers vote."""
    renamed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: EMPTY)
    """Source stream or unit -> what the key is called there, where that differs."""
    units: frozenset[Endpoint] = frozenset()
    """The sealed outputs whose punctuations are waited for."""
    forward: tuple[str, ...] = ()
    """The key as the output names it, where its punctuations can leave with the partition."""
    promise: Stream | None = None
    """The one source stream whose lateness promise takes the place of votes."""

    @property
    def producers(self) -> dict[str, Producers]:
        """Source stream -> who contributes to a partition of it."""
        return {name: source.producers for name, source in self.sources.items() if source.producers}


@dataclass(frozen=True, slots=True)
class Origin:
    """The stream or output that announces partitions, with its names for the key's attributes."""

    at: Stream | Endpoint
    """A source stream, or the output of a sealed component."""
    key: tuple[str, ...]


def routes(
    net: Network, problems: list[Diagnostic], ungated: Mapping[Endpoint, str]
) -> dict[Endpoint, Route]:
    """Sealed output -> who announces its partitions; every reason why nobody can is reported.

    Args:
        net: the drafts, with the gates that they can have.
        problems: gets the reasons.
        ungated: why an output has no gate of its own that would let punctuations through.
    """
    routes: dict[Endpoint, Route] = {}
    for at, draft in net.drafts.items():
        if draft.kind is Kind.SEAL:
            routes[at] = route(draft, net, routes, problems, ungated)
    return routes


def sealed_key(draft: Draft) -> Key:
    """The key that an output waits for, as the plan waits for no two; empty where for none."""
    return next((entry.key for entry in draft.entries if entry.key), frozenset())


def route(
    draft: Draft,
    net: Network,
    before: Mapping[Endpoint, Route],
    problems: list[Diagnostic],
    ungated: Mapping[Endpoint, str],
) -> Route:
    """The same for one output, given those that feed it."""
    key = tuple(sorted(sealed_key(draft)))
    origins: dict[str, Origin] = {}
    for origin in origins_of(draft, key, net, before, problems, ungated):
        name = origin.at.name if isinstance(origin.at, Stream) else str(origin.at)
        known = origins.setdefault(name, origin)
        if known.key != origin.key:
            message = (
                f"{draft.at} gets {name} on two ways, on which its {attributes(known.key)} "
                f"and its {attributes(origin.key)} become the key"
            )
            problems.append(Diagnostic(CODES["BLZ524"], message, draft.position))
    problems += requests_without_key(draft, key, net)
    sources = {n: (o.at, o.key) for n, o in origins.items() if isinstance(o.at, Stream)}
    promised = [(stream, names) for stream, names in sources.values() if not stream.punctuation]
    if promised:
        mixed = len(origins) > 1
        problems += unusable_promise(draft, net, *promised[0], mixed=mixed)
        return Route(key, promise=promised[0][0])
    for stream, names in sources.values():
        problems += unknown_producers(stream, names)
    problems += mixed_types(draft, list(sources.values()))
    return Route(
        key,
        {name: stream for name, (stream, _) in sources.items()},
        {name: origin.key for name, origin in origins.items() if origin.key != key},
        frozenset(o.at for o in origins.values() if isinstance(o.at, Endpoint)),
        forward=() if draft.reads else forward(draft, key, net),
    )


def origins_of(
    draft: Draft,
    key: tuple[str, ...],
    net: Network,
    before: Mapping[Endpoint, Route],
    problems: list[Diagnostic],
    ungated: Mapping[Endpoint, str],
) -> Iterator[Origin]:
    """The source streams that reach an output with their seal on the key intact."""
    todo = [(Endpoint(draft.component.name, interface), key) for interface in draft.writes]
    seen = set(todo)
    while todo:
        at, names = todo.pop(0)
        for stream in net.entering.get(at, ()):
            if stream.producer is None:
                if announces(stream, at, names, problems):
                    yield Origin(stream, names)
                continue
            feeder = net.drafts[stream.producer]
            if feeder.kind is Kind.FUSED:
                step = before_fused(feeder, names)
                if step not in seen:
                    seen.add(step)
                    todo.append(step)
            elif feeder.at in before and set(before[feeder.at].forward) == set(names):
                # The unit's punctuations have its own order of the attributes.
                yield Origin(feeder.at, names)
            else:
                message = (
                    f"{draft.at} waits for {attributes(key)}, and stream {stream.name} comes "
                    f"from {feeder.at}, which forwards no punctuations on {attributes(names)}"
                )
                if feeder.at in ungated:
                    message += f": {ungated[feeder.at]}"
                problems.append(Diagnostic(CODES["BLZ523"], message, stream.position))


def announces(
    stream: Stream, at: Endpoint, key: tuple[str, ...], problems: list[Diagnostic]
) -> bool:
    """True where a source stream says when a partition is complete."""
    names = attributes(key)
    if frozenset(key) not in stream.seals:
        message = f"{at} waits for {names}, on which stream {stream.name} is not sealed"
        problems.append(Diagnostic(CODES["BLZ514"], message, stream.position))
        return False
    if stream.punctuation is None and stream.lateness is None:
        message = (
            f"stream {stream.name} is sealed on {names}, and has neither punctuations nor a "
            "lateness promise"
        )
        problems.append(Diagnostic(CODES["BLZ521"], message, stream.position))
        return False
    if stream.punctuation is not None:
        when = stream.punctuation.when.strip()
        type_ = (stream.schema or {}).get(when, "BOOLEAN")
        if parse_type(type_)[0] != BOOLEAN:
            message = f"punctuations of stream {stream.name} are told by {when}, of type {type_}"
            remedy = f"write a condition, such as {when} = 1 or {when} IS NOT NULL"
            problems.append(Diagnostic(CODES["BLZ521"], message, stream.position, remedy))
            return False
    return True


def forward(draft: Draft, key: tuple[str, ...], net: Network) -> tuple[str, ...]:
    """The names of the key in the output; empty where no punctuation leaves with it (S3)."""
    paths = [path for path in draft.own if path.source in draft.writes]
    named = {tuple(ahead(path, attribute) for attribute in key) for path in paths}
    if len(named) != 1:
        return ()
    names = tuple(name for name in named.pop() if name is not None)
    labels = (net.plan.repaired[stream.name] for stream in net.leaving[draft.at])
    sealed = any(frozenset(names) in label.keys for label in labels)
    return names if sealed and len(names) == len(key) else ()


def ahead(path: Path, attribute: str) -> str | None:
    """The name of an input attribute in the path's output; None where it is lost."""
    if path.lineage is None:
        return attribute
    return next((target for target, source in path.lineage.items() if source == attribute), None)


def back(path: Path, attribute: str) -> str:
    """The name of an output attribute in the path's input."""
    return attribute if path.lineage is None else path.lineage.get(attribute, attribute)


def before_fused(draft: Draft, names: tuple[str, ...]) -> tuple[Endpoint, tuple[str, ...]]:
    """The input of a fused output, and what attributes of the output are called there."""
    path = draft.own[0]
    return (
        Endpoint(draft.component.name, path.source),
        tuple(back(path, attribute) for attribute in names),
    )


def requests_without_key(draft: Draft, key: Iterable[str], net: Network) -> list[Diagnostic]:
    """Streams of requests whose declared schema lacks attributes of the key (SE-12)."""
    diagnostics = []
    for interface in draft.reads:
        for stream in net.entering.get(Endpoint(draft.component.name, interface), ()):
            lost = [] if stream.schema is None else [a for a in key if a not in stream.schema]
            if lost:
                message = (
                    f"stream {stream.name} asks {draft.at} about partitions of "
                    f"{attributes(key)} and has no {', '.join(lost)}"
                )
                diagnostics.append(Diagnostic(CODES["BLZ525"], message, stream.position))
    return diagnostics


def unknown_producers(stream: Stream, key: tuple[str, ...]) -> list[Diagnostic]:
    """The missing parts of a seal: who sends, and in which column of the stream it says so."""
    missing = []
    if stream.producers is None:
        message = f"stream {stream.name} does not say who contributes to a partition"
        missing.append(Diagnostic(CODES["BLZ522"], message, stream.position))
    elif stream.producers.rule != "one" and stream.producer_column is None:
        message = f"stream {stream.name} has several producers and no column that names them"
        remedy = "add producer: COLUMN to the stream"
        missing.append(Diagnostic(CODES["BLZ522"], message, stream.position, remedy))
    return missing + unfit_types(stream, key)


def unfit_types(stream: Stream, key: tuple[str, ...]) -> list[Diagnostic]:
    """Attributes of the key, and of the records' id, whose type cannot tell values apart."""
    schema = stream.schema or {}
    uses = [("sealed on", name) for name in key] + [("identified by", name) for name in stream.id]
    return [
        Diagnostic(
            CODES["BLZ527"],
            f"stream {stream.name} is {use} {name}, which is of type {schema[name]}",
            stream.position,
        )
        for use, name in uses
        if name in schema and not is_atomic(schema[name])
    ]


def mixed_types(
    draft: Draft, sources: Sequence[tuple[Stream, tuple[str, ...]]]
) -> Iterator[Diagnostic]:
    """Streams whose key has a type of which equal values have other texts than the first's (SP-19).

    A partition goes by the text of its key, so that one comparison, which casts, would make of two
    partitions one, or of one two.
    """
    from annotations.whitebox.keys import same_value

    typed = [(stream, names) for stream, names in sources if {*names} <= {*(stream.schema or ())}]
    for stream, names in typed[1:]:
        first, ours = typed[0]
        for one, other in zip(ours, names, strict=True):
            texts = (first.schema or {})[one], (stream.schema or {})[other]
            types = [parse_type(text)[0] for text in texts]
            if types[0] != types[1] and not same_value(types[0], types[1]):
                message = (
                    f"{draft.at} waits for {other} of stream {stream.name}, which is of type "
                    f"{texts[1]}, and for {one} of stream {first.name}, which is of type {texts[0]}"
                )
                yield Diagnostic(CODES["BLZ528"], message, stream.position)


def is_atomic(type: str) -> bool:
    """True for a Spark SQL type whose equal values, and only these, have one text as a key.

    >>> [is_atomic(t) for t in ("DOUBLE", "string collate utf8_binary", "map<int,int>")]
    [True, True, False]
    """
    words = type.strip().lower()
    if words.startswith(NOT_ATOMIC) or words == "interval":
        return False  # an INTERVAL without units has months and days, and no fixed length
    collation = COLLATED.search(words)
    return collation is None or collation[1].split(".")[-1].strip("`") == BINARY


def unusable_promise(
    draft: Draft, net: Network, stream: Stream, key: tuple[str, ...], *, mixed: bool
) -> list[Diagnostic]:
    """Why a watermark would not do what the lateness promise says."""
    type = (stream.schema or {}).get(key[0], "").strip().lower()
    component = draft.component.name
    feeds = [s for i in draft.writes for s in net.entering.get(Endpoint(component, i), ())]
    reasons = (
        (mixed or len(feeds) > 1, "is not the only stream that the output waits for"),
        (len(draft.writes) > 1 or bool(draft.reads), f"meets other inputs at {draft.at}"),
        (len(key) != 1, f"is sealed on {attributes(key)}, which is not one attribute"),
        (
            len(key) == 1 and not type.startswith("timestamp"),
            f"has no {key[0]} of type TIMESTAMP in its schema",
        ),
        (draft.sequence, f"meets an order within partitions at {draft.at}"),
        (not groups_on(draft), f"is not grouped on {' '.join(key)} by the SQL of {draft.at}"),
    )
    return [
        Diagnostic(CODES["BLZ526"], f"stream {stream.name}, with a promise, {why}", stream.position)
        for applies, why in reasons
        if applies
    ]


def groups_on(draft: Draft) -> bool:
    """False where the component's SQL does not even name the timestamp after GROUP BY."""
    sql = draft.implementation.sql if draft.implementation else None
    if sql is None:
        return True
    names = "|".join(
        re.escape(attribute) for entry in draft.entries for attribute in entry.key or ()
    )
    grouped = re.split(r"\bgroup\s+by\b", sql, flags=re.I)[1:]
    return any(re.search(rf"(?<!\w)({names})(?!\w)", expression, re.I) for expression in grouped)
