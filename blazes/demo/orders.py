"""Arrival orders: how the same traffic may reach a replica, micro-batch by micro-batch.

A message waits on its producer's link and on the way; links differ in speed from order to order,
and so do the boundaries of the micro-batches. Nothing is lost and nothing is repeated.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from blazes.demo.ads import Traffic
from blazes.demo.files import Line, Message, Step

BATCHES: Final = (2, 3, 4)
"""How many micro-batches an arrival order may have."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The lines of one micro-batch."""

    clicks: tuple[Line, ...]
    requests: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """The micro-batches of one replica, in order."""

    batches: tuple[Batch, ...]

    def files(self) -> list[Step]:
        """A file of clicks and one of requests for each micro-batch, empty ones too."""
        return [
            {f"clicks/{n:03d}.json": batch.clicks, f"requests/{n:03d}.json": batch.requests}
            for n, batch in enumerate(self.batches)
        ]

    def clicks_before(self, request: dict[str, Any]) -> tuple[int, int]:
        """The micro-batch (from 1) of a request, and the clicks on its ad up to and with it."""
        seen = 0
        for number, batch in enumerate(self.batches, 1):
            seen += sum(about(click, request) for click in batch.clicks)
            if request in batch.requests:
                return number, seen
        raise KeyError(f"request {request['request']} does not arrive")


def about(click: Line, request: dict[str, Any]) -> bool:
    """True for a click on the request's ad in its campaign; False for a punctuation."""
    if isinstance(click, str) or click["sealed"]:
        return False
    return bool(click["id"] == request["id"] and click["campaign"] == request["campaign"])


def arrival_order(traffic: Traffic, rng: random.Random) -> ArrivalOrder:
    """One way in which the traffic may arrive."""
    ways: dict[str, float] = {}

    def arrives(message: Message) -> float:
        slow = ways.setdefault(message.producer, rng.uniform(0.0, 3.0))
        return message.at + slow + rng.expovariate(2.0)

    tagged = [(arrives(m), "clicks", m.line) for m in traffic.clicks]
    tagged += [(arrives(m), "requests", m.line) for m in traffic.requests]
    tagged.sort(key=lambda pair: pair[0])
    count = rng.choice(BATCHES)
    inner = sorted(rng.sample(range(1, len(tagged)), count - 1))
    bounds = [0, *inner, len(tagged)]
    return ArrivalOrder(
        tuple(batch(tagged[start:end]) for start, end in itertools.pairwise(bounds))
    )


def batch(tagged: Sequence[tuple[float, str, Line]]) -> Batch:
    """The micro-batch of these messages."""
    return Batch(
        clicks=tuple(line for _, kind, line in tagged if kind == "clicks"),
        requests=tuple(line for _, kind, line in tagged if kind == "requests"),
    )
