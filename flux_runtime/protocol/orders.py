"""The controller's view of copies and catch-ups, and its orders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from flux_runtime.protocol.vocabulary import Node, Pair, Status


class Copy(NamedTuple):
    """One copy of a pair, as the controller knows it."""

    status: Status
    life: int
    site: int


class PairView(NamedTuple):
    """One pair, as the controller knows it; `ready` is the failure count of its last cu-ready."""

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
