"""Components of a global state: each holds one of few values, and may take one step.

There is one per node, link, queue of notices, state under way, and so on. Their values are numbered
when they are first met; a global state is then a mapping from component to number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from flux_lab.papers.protocol.segment import SegmentState
from flux_lab.steps import Step
from flux_runtime.protocol.vocabulary import Node

Values = dict[int, int]
"""Component -> number of its value; components that hold nothing are left out."""

STEPS: Final = {
    "link": "deliver",
    "node": "log",
    "notices": "notice",
    "install": "install",
    "moved": "moved",
    "dead process": "detect process",
    "dead site": "detect",
}
"""Kind of component -> its step; others only hold a value, or are faults."""

OF_A_NODE: Final = frozenset(("node", "site", "link", "notices", "install", "moved", "doomed"))
"""Components that end with their node."""


class State(NamedTuple):
    """A global state and its code: the exclusive or of its components' codes."""

    values: Values
    code: int


@dataclass(slots=True)
class Component:
    """One component: its values by number (0 is nothing), and the step it may take."""

    kind: str
    at: Node | int
    peer: Node | None
    step: Step
    numbers: dict[Any, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=lambda: [None])
    codes: list[int] = field(default_factory=lambda: [0])
    heads: dict[int, int] = field(default_factory=dict)
    rest: dict[int, int] = field(default_factory=dict)
    longer: dict[tuple[int, int], int] = field(default_factory=dict)
    accepted: dict[tuple[int, int], bool] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        """The number of a value, new or met before."""
        result = self.numbers.get(value)
        if result is None:
            result = self.numbers[value] = len(self.values)
            self.values.append(value)
            text = repr((self.kind, self.at, self.peer, value))
            self.codes.append(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))
        return result

    # ---- queues: tuples of messages

    def first(self, number: int) -> int:
        """The queue of the head alone."""
        result = self.heads.get(number)
        if result is None:
            result = self.heads[number] = self.number(self.values[number][:1])
        return result

    def pop(self, number: int) -> int:
        """The queue without its head."""
        result = self.rest.get(number)
        if result is None:
            shorter = self.values[number][1:]
            result = self.rest[number] = self.number(shorter) if shorter else 0
        return result

    def push(self, number: int, burst: int) -> int:
        """The queue with another one behind it."""
        if not number:
            return burst
        result = self.longer.get((number, burst))
        if result is None:
            result = self.number(self.values[number] + self.values[burst])
            self.longer[number, burst] = result
        return result


class Components:
    """All components met so far, by number and by name."""

    __slots__ = ("all", "index")

    def __init__(self) -> None:
        self.all: list[Component] = []
        self.index: dict[tuple[str, Any, Any], int] = {}

    def __getitem__(self, number: int) -> Component:
        return self.all[number]

    def __iter__(self) -> Iterator[Component]:
        return iter(self.all)

    def named(self, kind: str, at: Node | int, peer: Node | None = None) -> int:
        """The number of a component, new or met before."""
        result = self.index.get((kind, at, peer))
        if result is None:
            result = self.index[kind, at, peer] = len(self.all)
            step = Step(STEPS.get(kind, kind), at, peer)
            self.all.append(Component(kind, at, peer, step))
        return result

    def link(self, src: Node, dst: Node) -> int:
        """The component of the link from one node to another."""
        return self.named("link", dst, src)

    def code(self, values: Values) -> int:
        """The code of a state, worked out afresh."""
        code = 0
        for component, number in values.items():
            code ^= self.all[component].codes[number]
        return code


class Moving:
    """A state under way from one node; equal if the contents are."""

    __slots__ = ("content", "origin", "state")

    def __init__(self, origin: Node, content: tuple[object, ...], state: SegmentState) -> None:
        self.origin = origin
        self.content = content
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moving) and (self.origin, self.content) == (
            other.origin,
            other.content,
        )

    def __hash__(self) -> int:
        return hash((self.origin, self.content))

    def __repr__(self) -> str:
        return repr((self.origin, self.content))
