"""Streams by equal names, for files without `streams`.

The rule, chosen so that the ad network of the paper comes out as its figure 4 draws it:

1. An output is connected with every input of the same name at *another* component.
2. An output is connected with the input of the same name at its *own* component, if another
   component's output feeds that input too: then the component passes on to its other instances what
   it was given (`Cache.response`, the gossip of the caches). Without such a feed, equal names mean
   that the component passes records through (`Cache.request`), and there is no loop.
3. An input that no other component feeds comes from outside.
4. An output that no other component takes is a result, also where it loops back (rule 2).

A stream carries the name of its interfaces. Where one name yields several streams, each adds its
ends: `request-to-Cache` from outside, `request-Cache-to-Report`, `response-from-Cache` to outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from typing import Final, NamedTuple

from annotations.dataflow import Endpoint, Stream
from annotations.diagnostics import Findings
from annotations.file.components import Built

STREAMS_MAX: Final = 10_000
"""Streams that one name may yield; more is a name that was not meant to connect anything."""


class _Link(NamedTuple):
    """A stream to be: the components at its ends, None for outside."""

    producer: str | None
    consumer: str | None


def connect(components: Mapping[str, Built], findings: Findings) -> dict[str, Stream]:
    """The streams that equal names make; a name that yields more than `STREAMS_MAX` is refused."""
    outputs: dict[str, list[str]] = {}
    inputs: dict[str, list[str]] = {}
    names: dict[str, None] = {}
    for component, built in components.items():
        for interface in built.inputs:
            inputs.setdefault(interface, []).append(component)
        for interface in built.outputs:
            outputs.setdefault(interface, []).append(component)
        names |= dict.fromkeys((*built.inputs, *built.outputs))
    streams: dict[str, Stream] = {}
    for name in names:
        producers, consumers = outputs.get(name, []), inputs.get(name, [])
        if len(producers) * len(consumers) > STREAMS_MAX:
            message = f"`{name}` connects {len(producers)} outputs with {len(consumers)} inputs"
            findings.add("BLZ047", message, components[producers[0]].outputs[name].position)
            continue
        links = list(_links(producers, consumers))
        for link in links:
            stream = name if len(links) == 1 else _free(_name(name, link), names, streams)
            streams[stream] = _stream(stream, name, link, components)
    return streams


def _links(producers: list[str], consumers: list[str]) -> Iterator[_Link]:
    """The streams of one name: from outside, between components, to outside."""
    yield from (_Link(None, name) for name in consumers if _alone(name, producers))
    fed = [name for name in consumers if not _alone(name, producers)]
    yield from (_Link(producer, consumer) for producer in producers for consumer in fed)
    yield from (_Link(name, None) for name in producers if _alone(name, consumers))


def _alone(component: str, others: list[str]) -> bool:
    """True where `others` hold no component but this one."""
    return others in ([], [component])


def _name(name: str, link: _Link) -> str:
    if link.producer is None:
        return f"{name}-to-{link.consumer}"
    if link.consumer is None:
        return f"{name}-from-{link.producer}"
    return f"{name}-{link.producer}-to-{link.consumer}"


def _free(name: str, names: Collection[str], streams: Collection[str]) -> str:
    """The name, with a number where an interface or a stream has it already."""
    candidates = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(free for free in candidates if free not in names and free not in streams)


def _stream(stream: str, name: str, link: _Link, components: Mapping[str, Built]) -> Stream:
    producer, consumer = link
    if producer is not None:
        position = components[producer].outputs[name].position
    else:
        assert consumer is not None
        position = components[consumer].inputs[name].position
    return Stream(
        name=stream,
        producer=None if producer is None else Endpoint(producer, name),
        consumer=None if consumer is None else Endpoint(consumer, name),
        position=position,
    )
