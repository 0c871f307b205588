"""The streams of a Python module: those that are declared, and those that follow from who reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from annotations.diagnostics import Findings
from annotations.file.python_declarations import (
    OF_END,
    Declared,
    End,
    Entries,
    Part,
    enter_text,
)
from annotations.file.python_values import Mark
from annotations.positions import Map, Node, Scalar


class Reader(NamedTuple):
    """An input that reads a source or an output."""

    component: str
    interface: str
    mark: Mark

    @property
    def end(self) -> str:
        """The input as a stream names it."""
        return f"{self.component}.{self.interface}"


def ends_of_streams(declared: Iterable[Declared], key: str) -> set[str]:
    """The interfaces from which, or to which, declared streams lead."""
    streams = (stream for stream in declared if stream.kind == "stream" and key in stream.entries)
    nodes = (stream.entries[key][1] for stream in streams)
    return {node.text for node in nodes if isinstance(node, Scalar)}


@dataclass(frozen=True, slots=True)
class Streams:
    """Sources, streams and sinks, with who reads what."""

    declared: Sequence[Declared]
    parts: Sequence[Part]
    readers: Mapping[End, Sequence[Reader]]
    takers: Mapping[End, Sequence[Declared]]
    """Output -> the sinks that take it."""
    findings: Findings

    def all(self) -> Iterator[tuple[Scalar, Node]]:
        """Every stream: sources and declared ones, then those of each component, and its sinks."""
        for stream in self.declared:
            if stream.kind == "source":
                yield from self._of_source(stream)
            elif stream.kind == "stream":
                mapping = Map(stream.mark)
                mapping.entries |= stream.entries
                yield stream.name, mapping
        outlets = ends_of_streams(self.declared, "from")
        for part in self.parts:
            for output in part.outputs:
                end = End(part.name.text, output)
                yield from self._of_output(part, end, leads_on=str(end) in outlets)

    def _of_source(self, source: Declared) -> Iterator[tuple[Scalar, Node]]:
        readers = self.readers.get(End(None, source.name.text), ())
        if not readers:
            message = f"no component reads the source `{source.name.text}`"
            remedy = "Name a parameter like it, or remove the source."
            self.findings.add("BLZ042", message, source.name.mark, remedy)
        for reader in readers:
            name = _named(source.name.text, reader, readers)
            mapping = Map(source.mark)
            enter_text(mapping, "to", reader.end)
            mapping.entries |= _with_end(source, "source")
            yield Scalar(name, source.name.mark), mapping

    def _of_output(self, part: Part, end: End, *, leads_on: bool) -> Iterator[tuple[Scalar, Node]]:
        text = str(end)
        sinks = self.takers.get(end, ())
        readers = self.readers.get(end, ())
        for reader in readers:
            mapping = Map(reader.mark)
            enter_text(mapping, "from", text)
            enter_text(mapping, "to", reader.end)
            yield Scalar(_named(end.name, reader, readers, alone=not sinks), reader.mark), mapping
        for sink in sinks:
            mapping = Map(sink.mark)
            enter_text(mapping, "from", text)
            mapping.entries |= _with_end(sink, "sink")
            yield Scalar(sink.name.text or end.name, sink.name.mark), mapping
        if part.computed and not (readers or sinks or leads_on):
            mapping = Map(part.name.mark)
            enter_text(mapping, "from", text)
            yield Scalar(end.name, part.name.mark), mapping


def _named(name: str, reader: Reader, readers: Sequence[Reader], *, alone: bool = True) -> str:
    """The name of a stream to a reader, which is `alone` where no sink takes the same."""
    if len(readers) == 1 and alone:
        return name
    others = {other.interface for other in readers if other.component == reader.component}
    suffix = f"_{reader.interface}" if len(others) > 1 else ""
    return f"{name}_to_{reader.component}{suffix}"


def _with_end(declared: Declared, end: str) -> Entries:
    """The keys of a stream, with those of its source or sink in a mapping of their own."""
    entries = dict(declared.entries)
    inner = Map(declared.mark)
    keys = [key for key in OF_END[end] if key in entries]
    for key in keys:
        inner.entries[key] = entries.pop(key)
    if keys:
        entries[end] = Scalar(end, declared.mark), inner
    return entries
