"""Gates in front of confluent outputs that a sealed output waits for.

A confluent component is not coordinated for its own sake. Where a sealed one behind it waits for
partitions of what it puts out, it waits for those of its inputs, on the same key, so that its
output comes in whole partitions too, and their punctuations with them (SE-3, S3). That is right
only for code that splits by the key (`docs/explanation/splitting.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from annotations.dataflow import Endpoint, Stream
from annotations.file.splits import OutputSplits
from annotations.phrases import listed
from annotations.vocabulary import Key
from blazes.coordination import Entry, Release, Strategy, Vote
from codegen.drafts import Draft, Kind
from codegen.network import Network
from codegen.seals import ahead, back, before_fused, sealed_key
from codegen.wording import attributes

if TYPE_CHECKING:
    from annotations.whitebox.code import Code


def with_gates(net: Network, code: Callable[[], Code]) -> tuple[Network, Mapping[Endpoint, str]]:
    """The network with such gates; and why an output that would need one cannot have it.

    Args:
        net: the drafts.
        code: of the dataflow.
    """
    drafts = dict(net.drafts)
    refused: dict[Endpoint, str] = {}
    for at in reversed(list(net.drafts)):
        draft = drafts[at]
        if draft.kind is not Kind.SEAL:
            continue
        for feeder, names in _feeders(draft, tuple(sorted(sealed_key(draft))), net):
            before = drafts[feeder]
            if not _may_wait(before) or not _is_sealed(feeder, names, net):
                continue
            gated = _gated(before, names, net, code)
            if isinstance(gated, str):
                refused.setdefault(feeder, gated)
            else:
                drafts[feeder] = gated
    return replace(net, drafts=drafts), refused


def _may_wait(draft: Draft) -> bool:
    """True for what has no gate that lets all of its inputs wait."""
    return draft.kind in (Kind.NATIVE, Kind.ACCUMULATING) or bool(
        draft.kind is Kind.SEAL and draft.reads
    )


def _is_sealed(at: Endpoint, names: tuple[str, ...], net: Network) -> bool:
    """True where the plan says so; every input is then sealed on what becomes the key."""
    labels = (net.plan.repaired[stream.name] for stream in net.leaving[at])
    return any(frozenset(names) in label.keys for label in labels)


def _feeders(
    draft: Draft, key: tuple[str, ...], net: Network
) -> Iterator[tuple[Endpoint, tuple[str, ...]]]:
    """The units that a draft waits for, and what each calls the key."""
    for stream, names in _before(draft, draft.writes, key, net):
        if stream.producer is not None:
            yield stream.producer, names


def _before(
    draft: Draft, interfaces: Iterable[str], key: tuple[str, ...], net: Network
) -> Iterator[tuple[Stream, tuple[str, ...]]]:
    """The streams from sources and units into a draft; fused outputs are passed."""
    todo = [(Endpoint(draft.component.name, interface), key) for interface in interfaces]
    seen = set(todo)
    while todo:
        at, names = todo.pop()
        for stream in net.entering.get(at, ()):
            if stream.producer is None or net.drafts[stream.producer].kind is not Kind.FUSED:
                yield stream, names
                continue
            step = before_fused(net.drafts[stream.producer], names)
            if step not in seen:
                seen.add(step)
                todo.append(step)


def _gated(
    draft: Draft, names: tuple[str, ...], net: Network, code: Callable[[], Code]
) -> Draft | str:
    """The draft behind a gate of its own, on the key that its output calls so; or why not."""
    called = {
        path.source: frozenset(back(path, attribute) for attribute in names) for path in draft.own
    }
    if len(set(called.values())) > 1:
        keys = listed(f"{attributes(sorted(key))} in {name}" for name, key in called.items())
        return f"its inputs call the key {keys}"
    key = next(iter(called.values()))
    if any(ahead(path, attribute) is None for path in draft.own for attribute in key):
        return f"{attributes(sorted(key))} is lost on the way through it"
    if draft.kind is Kind.SEAL and sealed_key(draft) != key:
        return "it waits for partitions of another key itself"
    if any(path.source not in called for path in draft.paths):
        return "it reads state that other inputs write"
    before = [stream for stream, _ in _before(draft, draft.inputs, tuple(sorted(key)), net)]
    if any(stream.producer is None and stream.punctuation is None for stream in before):
        return "no punctuations come to it"
    refusal = _refusal(draft, key, net, code)
    if refusal is not None:
        return refusal
    inputs = draft.inputs
    waiting = tuple(
        Entry(
            draft.component.name,
            path,
            Strategy.SEAL,
            tuple(sorted(inputs)),
            key=key,
            streams=_streams(draft, net),
            vote=Vote.UNANIMOUS,
            release=Release.WHOLE,
            seals=dict.fromkeys(inputs, key),
        )
        for path in draft.own
        if path.annotation.kind.confluent
    )
    entries = (*draft.entries, *waiting)
    return replace(draft, kind=Kind.SEAL, writes=inputs, reads=(), entries=entries)


def _streams(draft: Draft, net: Network) -> tuple[str, ...]:
    ends = (Endpoint(draft.component.name, interface) for interface in draft.inputs)
    return tuple(stream.name for end in ends for stream in net.entering.get(end, ()))


def _refusal(draft: Draft, key: Key, net: Network, code: Callable[[], Code]) -> str | None:
    """Why partitions of the key do not give what all records together give."""
    if draft.implementation is None or draft.implementation.sql is None:
        return "only SQL is known to compute it partition by partition"
    fds = net.plan.analysis.dataflow.fds
    refusal = OutputSplits(code, draft.component, draft.output, fds).refusal(key)
    return None if refusal is None else str(refusal)
