"""Seals and dependencies put into a dataflow file, which stays as it is otherwise.

What was written is read again: it must say the same as before and what was added, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from annotations.dataflow import EMPTY, Dataflow, Stream
from annotations.file.insertions import (
    CannotWrite,
    Insertion,
    below,
    body_of,
    first_key,
    inserted,
    into_list,
    newline_of,
    offset_of,
    read_again,
    tree_of,
)
from annotations.positions import List, Map, Node
from annotations.vocabulary import FunctionalDependency, Key
from annotations.whitebox.path_text import quoted, scalar

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

_WORDS: Final = re.compile(r"\[[^\[\]{}#'\"\n]*\]|[A-Za-z_]\w*(?=\s*(?:[,}#\r\n]|$))")
"""One key in one line, without quotes."""


def with_additions(
    dataflow: Dataflow,
    *,
    seals: Sequence[tuple[str, Key]] = (),
    fds: Sequence[FunctionalDependency] = (),
    variants: Mapping[str, str] = EMPTY,
    execute: Limits | None = None,
) -> tuple[str, Dataflow]:
    """The text of the dataflow's file with seals on streams, and dependencies, added; what it says.

    Raises:
        CannotWrite: a place is written in a way that nothing can be put into.
    """
    assert dataflow.file is not None
    mark, body = body_of(dataflow.file)
    root = tree_of(body, str(dataflow.file))
    if not isinstance(root, Map):
        raise CannotWrite("the file is not a mapping", remedy=_by_hand(seals, fds))
    keys: dict[str, list[Key]] = {}
    for name, key in dict.fromkeys(seals):
        if key not in dataflow.streams[name].seals:
            keys.setdefault(name, []).append(key)
    expected = _expected(dataflow, keys, fds)
    remedy = _by_hand(seals, fds)
    try:
        written = inserted(body, _seals(body, root, expected, keys))
        root = tree_of(written, str(dataflow.file))
        written = inserted(written, _dependencies(written, root, fds))
        after = read_again(written, dataflow.file, variants, execute)
        _check(after, expected)
    except CannotWrite as cannot:
        raise CannotWrite(str(cannot), remedy=remedy) from None
    return mark + written, after


def _expected(
    dataflow: Dataflow, keys: Mapping[str, Sequence[Key]], fds: Sequence[FunctionalDependency]
) -> Dataflow:
    streams = {
        name: replace(stream, seals=(*stream.seals, *keys.get(name, ())))
        for name, stream in dataflow.streams.items()
    }
    return replace(dataflow, streams=streams, fds=(*dataflow.fds, *fds))


def _by_hand(seals: Iterable[tuple[str, Key]], fds: Iterable[FunctionalDependency]) -> str:
    additions = [f"seal: {_key(key)} to {name}" for name, key in seals]
    additions += [f"{_fd(fd)} to fds" for fd in fds]
    return f"add {' and '.join(additions)} by hand"


def _key(key: Key) -> str:
    return f"[{', '.join(map(scalar, sorted(key)))}]"


def _fd(fd: FunctionalDependency) -> str:
    return quoted(str(fd))


def _seals(
    body: str, root: Map, expected: Dataflow, keys: Mapping[str, list[Key]]
) -> Iterator[Insertion]:
    if not keys:
        return
    streams = below(root, "streams")
    if "streams" not in root.entries:
        yield _at_end(body, ["streams:", *map(_stream_line, expected.streams.values())])
        return
    for name, added in keys.items():
        mapping = below(streams, name)
        if not isinstance(mapping, Map):
            raise CannotWrite(f"{name} is not where its name stands")
        there = below(mapping, "seal")
        if there is None:
            yield _first(body, mapping, name, added)
        else:
            yield from _beside(body, there, name, added)


def _stream_line(stream: Stream) -> str:
    """A stream that nobody wrote: interfaces of equal name were connected."""
    ends = {"from": stream.producer, "to": stream.consumer}
    parts = [
        f"{side}: {scalar(end.component)}.{end.interface}"
        if scalar(end.component) == end.component
        else f"{side}: {scalar(str(end))}"
        for side, end in ends.items()
        if end is not None
    ]
    if stream.seals:
        parts.append(f"seal: {_keys(stream.seals)}")
    return f"  {scalar(stream.name)}: {{{', '.join(parts)}}}"


def _keys(keys: Sequence[Key]) -> str:
    return _key(keys[0]) if len(keys) == 1 else f"[{', '.join(map(_key, keys))}]"


def _first(body: str, mapping: Map, name: str, added: Sequence[Key]) -> Insertion:
    """The first seal of a stream: before its first key."""
    first, before = first_key(body, mapping, name)
    item = f"seal: {_keys(added)}"
    flow = body[offset_of(body, mapping.mark)] == "{"
    if before.strip():
        if not flow:
            raise CannotWrite(f"the keys of {name} stand where no line can be added")
        return Insertion(first, f"{item}, ")
    return Insertion(first - len(before), f"{before}{item}{',' * flow}{newline_of(body)}")


def _beside(body: str, there: Node, name: str, added: Sequence[Key]) -> Iterator[Insertion]:
    """More keys beside those that a stream has."""
    start = offset_of(body, there.mark)
    more = [_key(key) for key in added]
    if isinstance(there, List) and there.items and all(isinstance(i, List) for i in there.items):
        insertion = into_list(body, there, more)
        if insertion is not None:
            yield insertion
            return
    elif (words := _WORDS.match(body, start)) is not None:
        bare = not words[0].startswith("[")
        yield Insertion(start, "[[" if bare else "[")
        yield Insertion(words.end(), f"{']' * bare}, {', '.join(more)}]")
        return
    raise CannotWrite(f"the seal of {name} is written so that no key can be added")


def _dependencies(
    body: str, root: Node | None, fds: Sequence[FunctionalDependency]
) -> Iterator[Insertion]:
    if not fds:
        return
    there = below(root, "fds")
    items = [_fd(fd) for fd in fds]
    if not isinstance(root, Map) or "fds" not in root.entries:
        yield _at_end(body, [f"fds: [{', '.join(items)}]"])
        return
    insertion = into_list(body, there, items) if isinstance(there, List) else None
    if insertion is None:
        raise CannotWrite("`fds` is written so that nothing can be added")
    yield insertion


def _at_end(body: str, lines: Sequence[str]) -> Insertion:
    end = newline_of(body)
    begin = "" if body.endswith("\n") or not body else end
    return Insertion(len(body), begin + "".join(f"{line}{end}" for line in lines))


def _check(written: Dataflow, expected: Dataflow) -> None:
    """The text says what is expected, and nothing else."""
    for name, stream in expected.streams.items():
        if name not in written.streams or _comparable(written.streams[name]) != _comparable(stream):
            raise CannotWrite(f"the stream {name} would not say what it should")
    if (
        written.streams.keys() != expected.streams.keys()
        or written.components != expected.components
        or set(written.fds) != set(expected.fds)
        or written.deployment != expected.deployment
    ):
        raise CannotWrite("something else would change in the file")


def _comparable(stream: Stream) -> tuple[Any, ...]:
    """The stream as a value in which the order of its keys does not count."""
    return replace(stream, seals=()), frozenset(stream.seals)
