"""The dataflow as the resume protocol sees it: stages, who feeds whom, and two limits.

Stages form a graph without circles: a stage may read several stages, also some that lie at
different distances from the source. The ingress is stage -1, the egress the last one; both have one
partition. Where results end in a stage that keeps them, that is the last one: there is no egress.
Batches are numbered from 1. Every pair gives every consumer pair one *unit* per batch, possibly an
empty one, which is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import INGRESS, Pair

Units = Sequence[Rows | None]


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Stages, their inputs, and the limits that every site knows.

    Attributes:
        dataflow: operators, and how rows are merged and split.
        inputs: per stage from 0 to the last, the stages that it reads; a chain if left out.
        collects: the last stage of the dataflow keeps the results; there is no egress.
        window: batches that a copy may be ahead of the slowest copy of its consumers (W).
        ack_every: batches after which acknowledgements travel by themselves (A).
        read_by: stage -> stages that read it.
        upstream, downstream: stage -> pairs that it reads, and that read it, in a fixed order.
        slots: stage -> pair that it reads -> place in `upstream`.
        columns: stage -> pair that reads it -> place in `downstream`.

    Raises:
        ValueError: copies may make different units; a stage reads none, a later one, or is read by
            none; a limit is not positive.
    """

    dataflow: Dataflow
    inputs: tuple[tuple[int, ...], ...] = ()
    collects: bool = False
    window: int = 8
    ack_every: int = 4
    read_by: Mapping[int, tuple[int, ...]] = field(init=False, repr=False)
    upstream: Mapping[int, tuple[Pair, ...]] = field(init=False, repr=False)
    downstream: Mapping[int, tuple[Pair, ...]] = field(init=False, repr=False)
    slots: Mapping[int, Mapping[Pair, int]] = field(init=False, repr=False)
    columns: Mapping[int, Mapping[Pair, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.dataflow.shape.set_preserving or self.dataflow.shape.cluster_pairs:
            raise ValueError(
                "the copies of a set-preserving operator or of a cluster pair may make different "
                "units of a batch: only the papers' protocol runs them"
            )
        inputs = self.inputs or tuple((s - 1,) for s in range(self.last + 1))
        misplaced = [s for s, read in enumerate(inputs) if not read or not max(read) < s]
        read_by = {s: tuple(t for t, r in enumerate(inputs) if s in r) for s in self.stages}
        unread = [s for s in self.stages if s != self.last and not read_by[s]]
        if len(inputs) != self.last + 1 or misplaced or unread or min(min(r) for r in inputs) < -1:
            raise ValueError(
                f"{len(inputs)} inputs for stages 0 to {self.last}: stages {misplaced} must read "
                f"stages before them, stages {unread} must be read"
            )
        if min(self.window, self.ack_every) < 1:
            raise ValueError(f"window {self.window}, ack_every {self.ack_every}: must be positive")
        known = {s: self.pairs(s) for s in self.stages}
        up = {s: tuple(p for r in inputs[s] for p in known[r]) if s >= 0 else () for s in known}
        down = {s: tuple(p for t in read_by[s] for p in known[t]) for s in known}
        for name, value in (
            ("inputs", inputs),
            ("read_by", read_by),
            ("upstream", up),
            ("downstream", down),
            ("slots", {s: {p: i for i, p in enumerate(pairs)} for s, pairs in up.items()}),
            ("columns", {s: {p: i for i, p in enumerate(pairs)} for s, pairs in down.items()}),
        ):
            object.__setattr__(self, name, value)

    @property
    def egress(self) -> int:
        """The stage number of the egress."""
        return len(self.dataflow.shape.widths)

    @property
    def last(self) -> int:
        """The stage that results end in: the egress, or the one before, which keeps them."""
        return self.egress - 1 if self.collects else self.egress

    @property
    def stages(self) -> range:
        """All stages, ingress and egress among them."""
        return range(INGRESS, self.last + 1)

    def reads(self, stage: int) -> tuple[int, ...]:
        """The stages that a stage reads; none of the ingress."""
        return self.inputs[stage] if stage >= 0 else ()

    def is_end(self, stage: int) -> bool:
        """Whether the stage is the ingress or the egress, whose state lies outside."""
        return stage in (INGRESS, self.egress)

    def pairs(self, stage: int) -> tuple[Pair, ...]:
        """The pairs of a stage."""
        width = 1 if self.is_end(stage) else self.dataflow.shape.widths[stage]
        return tuple(Pair(stage, part) for part in range(width))

    def segments(self) -> tuple[Pair, ...]:
        """The pairs of all stages but ingress and egress."""
        return tuple(pair for stage in range(self.egress) for pair in self.pairs(stage))

    # ---- rows

    def merged(self, units: Units) -> Rows | None:
        """The units of one batch in the order of sequence numbers; None if all are empty."""
        filled = [unit for unit in units if unit is not None]
        return self.dataflow.merge(filled) if filled else None

    def split(self, stage: int, rows: Rows | None) -> list[Rows | None]:
        """Rows that a stage made, as units of its consumer pairs: one per column."""
        units: list[Rows | None] = [None] * len(self.downstream[stage])
        if rows is None:
            return units
        for consumer in self.read_by[stage]:
            base = self.columns[stage][Pair(consumer, 0)]
            parts = self.dataflow.split(consumer, rows, len(self.pairs(consumer)))
            for part, unit in parts.items():
                units[base + part] = unit
        return units
