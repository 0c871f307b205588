"""Plans of random runs: a dataflow, its limits, and how many faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from flux_lab.checks import Checks
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import World
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import Shape

WIDTHS = ((1,), (2,), (3,), (1, 1), (2, 2), (1, 2), (2, 1), (3, 2), (1, 1, 1), (1, 2, 1), (2, 2, 2))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run.

    Attributes:
        batches, rows, keys, every: the input, and how many rows of a key make a result.
        sites, spares: machines with copies at first, and without.
        link_capacity: units under way per link, or credits per channel.
        multiplexed: one connection per pair of sites.
        kills: faults of which each takes a copy, or makes others believe that it is gone.
        troubles: faults that only slow down: memory, disk, processor, controller.
        reckless: faults may concern both copies of a pair.
    """

    WORKLOAD: ClassVar[str] = "digests"
    """The sweep's name for runs like this one."""

    shape: Shape
    batches: int
    rows: int
    keys: int
    every: int
    sites: int
    spares: int
    link_capacity: int
    kills: int
    reckless: bool
    multiplexed: bool = False
    troubles: int = 0

    @property
    def parallel_max(self) -> int:
        """Catch-ups at once (CT-7)."""
        return 1 + (self.batches + self.keys + self.sites) % 3

    @property
    def steps(self) -> int:
        """About how many steps a run takes."""
        return 12 * self.batches * sum(self.shape.widths) + 40

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        dataflow = digest_dataflow(self.shape, every=self.every)
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return self.made_of(dataflow, batches, stories=stories, states=True)

    def made_of(
        self, dataflow: Dataflow, batches: Sequence[Rows], *, stories: bool, states: bool
    ) -> World:
        """The world of a dataflow; with `states` the copies' states are compared too."""
        return World(
            dataflow,
            batches,
            checks=Checks(dataflow, batches, states=states),
            sites=self.sites,
            spares=self.spares,
            link_capacity=self.link_capacity,
            multiplexed=self.multiplexed,
            stories=stories,
            parallel_max=self.parallel_max,
        )


def plan_of(rng: random.Random) -> Plan:
    """Draw a plan: three of four runs have one connection per pair of sites."""
    widths = rng.choice(WIDTHS)
    ack_every = rng.choice((1, 1, 1, 2, 3))
    shape = Shape(
        widths=widths,
        ordered_egress=rng.random() < 0.7,
        pool=rng.choice((4, 6, 16, 64)) + max(widths) * (ack_every - 1),
        reserve=1,
        ack_every=ack_every,
        in_hand=rng.choice((1, 1, 2, 4)),
        results_max=rng.choice((0, 0, 1, 3)),
    )
    return Plan(
        shape=shape,
        batches=rng.choice((4, 4, 8, 8, 12, 12, 40)),
        rows=rng.choice((1, 2, 4)),
        keys=rng.choice((2, 5, 12)),
        every=rng.choice((1, 2, 3)),
        sites=rng.choice((2, 3, 4)),
        spares=rng.choice((0, 1, 1, 2)),
        link_capacity=rng.choice((1, 2, 4, 16)),
        kills=rng.choice((0, 1, 2, 3, 4, 6)),
        reckless=rng.random() < 0.1,
        multiplexed=rng.random() < 0.75,
        troubles=rng.choice((0, 0, 1, 2, 4)),
    )
