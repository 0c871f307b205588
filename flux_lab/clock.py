"""The virtual clock, as what runs under it sees it (`timed.Timed`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from flux_lab.costs import Costs, Trace
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Node


class Clock(Protocol):
    """Time, and what happens in it."""

    world: World
    costs: Costs
    trace: Trace
    load: Callable[[int, float], float]
    """(site, time) -> share of its processor that the flow gets."""
    now: float
    """Seconds."""
    hosted: dict[int, list[Node]]
    """Site -> the nodes on it."""

    def at(self, time: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Let something happen at a time."""

    def perform(self, step: Step) -> None:
        """Perform a step now, and follow what it changes."""

    def follow(self, *, hosts: bool = False) -> None:
        """Follow the controller: nodes come and go."""
