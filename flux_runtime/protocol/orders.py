"""What the controller knows of copies and catch-ups, and what it orders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from flux_runtime.protocol.vocabulary import Node, Pair, Status


class Copy(NamedTuple):
    """What the controller knows of one copy of a pair."""

    status: Status
    life: int
    site: int


class PairView(NamedTuple):
    """What the controller knows of one pair; `ready` is the failure count of its last cu-ready."""

    copies: tuple[Copy | None, ...]
    attempts: int = 0
    ready: int = -1
    lost: bool = False


class Phase(Enum):
    """How far the catch-up in hand has come."""

    ANNOUNCED = "announced"
    STARTED = "started"
    MOVED = "moved"
    COMMITTED = "committed"


class CatchUp(NamedTuple):
    """A catch-up in hand: which copy, how far, who has folded in."""

    pair: Pair
    copy: int
    attempt: int
    phase: Phase
    folded: frozenset[Node] = frozenset()


@dataclass(frozen=True, slots=True)
class Instantiate:
    """Create this standby, in its initial state, on that site."""

    node: Node
    site: int


@dataclass(frozen=True, slots=True)
class Destroy:
    """End this node."""

    node: Node


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Both copies of the pair are gone: what they held cannot be masked (FS-26)."""

    pair: Pair
    why: str


Order = Instantiate | Destroy | DataLoss
