"""The small worlds that the explorer knows, and the faults that it tries in each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from flux_lab.checks import Checks
from flux_lab.product import UNBOUNDED, Product
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import World
from flux_runtime.protocol.vocabulary import Pair, Shape


class Due(NamedTuple):
    """A fault that may still come: its kind, and the pair it concerns (None: any site)."""

    kind: str
    pair: Pair | None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A small world and the faults to try.

    Attributes:
        faults: each once, in any order, at any moment at which it can be masked. `kill` ends a
            process, `crash` a whole site; `suspect` takes a process for dead that lives on until
            it finds out; `evict` writes the state of a copy to disk.
        anywhere: each fault may concern any pair; else all concern the same one.
        spares: sites that a standby can be created on.
        parallel_max: catch-ups at once (CT-7).
    """

    shape: Shape
    batches: int
    rows: int
    keys: int
    faults: tuple[str, ...] = ("kill",)
    anywhere: bool = False
    sites: int = 2
    spares: int = 1
    parallel_max: int = 1

    def product(self) -> Product:
        """The states of this configuration."""
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return Product(
            digest_dataflow(self.shape),
            batches,
            sites=self.sites,
            spares=self.spares,
            parallel_max=self.parallel_max,
        )

    def world(self, *, stories: bool = False) -> World:
        """The same as one world, to tell the story of a violation."""
        dataflow = digest_dataflow(self.shape)
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return World(
            dataflow,
            batches,
            sites=self.sites,
            spares=self.spares,
            link_capacity=UNBOUNDED,
            stories=stories,
            checks=Checks(dataflow, batches, states=True),
            parallel_max=self.parallel_max,
        )

    def searches(self) -> tuple[tuple[Due, ...], ...]:
        """The faults due in each search: one search for each choice of the pairs concerned."""
        pairs = self.shape.pairs()
        if "crash" in self.faults:
            return (tuple(Due(kind, None) for kind in self.faults),)
        n = len(self.faults)
        chosen: Iterable[tuple[Pair, ...]] = ((pair,) * n for pair in pairs)
        if self.anywhere:
            chosen = itertools.product(pairs, repeat=n)
        dues = (tuple(sorted(map(Due, self.faults, concerned))) for concerned in chosen)
        return tuple(dict.fromkeys(dues))


def small(*widths: int, **limits: object) -> Shape:
    """A shape whose egress emits first come, so that it adds no order of its own."""
    return Shape(widths=widths, **{"ordered_egress": False, **limits})  # type: ignore[arg-type]


CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    "dataflow-pair": Configuration(shape=Shape(widths=(1,)), batches=2, rows=1, keys=1),
    "two-partitions": Configuration(shape=small(2), batches=2, rows=1, keys=2),
    "two-partitions-in-order": Configuration(shape=Shape(widths=(2,)), batches=2, rows=2, keys=2),
    "site": Configuration(shape=small(2), batches=2, rows=1, keys=2, faults=("crash",)),
    "suspect": Configuration(
        shape=Shape(widths=(1,)), batches=2, rows=1, keys=1, faults=("suspect",)
    ),
    "suspect-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, faults=("suspect",)
    ),
    "partition-pairs": Configuration(shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1),
    "partition-pairs-3": Configuration(shape=Shape(widths=(1, 1)), batches=3, rows=1, keys=1),
    "flux-1x2": Configuration(shape=small(1, 2), batches=1, rows=2, keys=2),
    "flux-2x1": Configuration(shape=small(2, 1), batches=1, rows=2, keys=2),
    "flux-2x2": Configuration(shape=small(2, 2), batches=1, rows=2, keys=2),
    "standby-dies": Configuration(
        shape=Shape(widths=(1,)), batches=1, rows=1, keys=1, faults=("kill", "kill"), spares=2
    ),
    "standby-dies-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, faults=("kill", "kill"), spares=2
    ),
    "two-crashes-in-flux": Configuration(
        shape=Shape(widths=(1, 1)),
        batches=1,
        rows=1,
        keys=1,
        faults=("kill", "kill"),
        anywhere=True,
        spares=2,
    ),
    "disk": Configuration(
        shape=Shape(widths=(1,)), batches=2, rows=1, keys=1, faults=("evict", "kill")
    ),
    "disk-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, faults=("evict", "kill")
    ),
    "parallel-recovery": Configuration(
        shape=small(2),
        batches=1,
        rows=2,
        keys=2,
        faults=("kill", "kill"),
        anywhere=True,
        parallel_max=2,
    ),
    "replica-sets": Configuration(
        shape=Shape(widths=(1, 1), cluster_pairs=True), batches=1, rows=1, keys=1, spares=2
    ),
    "cumulative": Configuration(shape=Shape(widths=(1,), ack_every=2), batches=3, rows=1, keys=1),
}
