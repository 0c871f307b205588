"""What the anomalies demonstration found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blazes.demo.ads import Size
from blazes.demo.tally import Tally


@dataclass(frozen=True, slots=True)
class Witness:
    """What one replica had seen when it answered a request."""

    replica: int
    """From 1."""
    batch: int
    """The micro-batch that brought the request, from 1."""
    batches: int
    clicks: int
    """On the request's ad, up to and with that micro-batch."""
    poor: bool


@dataclass(frozen=True, slots=True)
class Dispute:
    """A request that the replicas of one run answered differently."""

    run: int
    """From 1."""
    request: Mapping[str, Any]
    clicks: int
    """On the request's ad, in all."""
    right: bool
    """What complete data would have said."""
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that the demonstration prints."""

    seed: int
    size: Size
    runs: int
    replicas: int
    poor: int
    """How many requests are about an ad that performed poorly, by complete data."""
    ways: Mapping[str, Tally]
    """`uncoordinated`, `ordered`, `sealed` -> what was counted."""
    verdicts: Mapping[str, str]
    """Way -> the label that the analysis derives for the answers."""
    example: Dispute | None
    """None where no two replicas of a run disagreed."""
    note: str
    """What is not as it would be in a compiled job."""
    engine: str
    seconds: float
