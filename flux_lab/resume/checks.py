"""The promises of the resume protocol, checked at every batch of every copy and at the end.

| concern | checker |
|---|---|
| loss-free, dup-free, in the order of every branch, same rows from all copies | `taken` |
| copies agree: output and state are those of a sequential run | `made` |
| each result leaves once, in order, also across losses and changes of the leader | `emitted` |
| bounds: queues and held outputs | `Site.validate`, `Controller.validate` |
| no deadlock, no leak, pairs whole, the dead ended | `World.finished` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_lab.checks import ViolationError
from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import INGRESS, Pair
from flux_runtime.resume.flow import Flow, Units
from flux_runtime.resume.messages import Copy, Work


class Expected:
    """A failure-free sequential run of a dataflow of any shape.

    Attributes:
        units: (producer, consumer) -> the unit of every batch from 1.
        states: pair -> the operator's state before any batch, after the first, and so on.
        output: what leaves in every batch.
    """

    def __init__(self, flow: Flow, batches: Sequence[Rows]) -> None:
        self.flow = flow
        self.units: dict[tuple[Pair, Pair], list[Rows | None]] = {
            (pair, consumer): [None]
            for stage in flow.stages
            for pair in flow.pairs(stage)
            for consumer in flow.downstream[stage]
        }
        operators = {pair: flow.dataflow.operator(pair) for pair in flow.segments()}
        self.states: dict[Pair, list[Any]] = {p: [o.get_state()] for p, o in operators.items()}
        self.output: list[Rows | None] = []
        for rows in batches:
            self._route(Pair(INGRESS, 0), rows)
            for pair, operator in operators.items():
                taken = flow.merged(self.inputs(pair, -1))
                self._route(pair, None if taken is None else operator.process(taken))
                self.states[pair].append(operator.get_state())
            self.output.append(flow.merged(self.inputs(Pair(flow.egress, 0), -1)))

    def inputs(self, pair: Pair, batch: int) -> list[Rows | None]:
        """A unit from everybody that the pair reads."""
        return [self.units[read, pair][batch] for read in self.flow.upstream[pair.stage]]

    def _route(self, pair: Pair, rows: Rows | None) -> None:
        units = self.flow.split(pair.stage, rows)
        for consumer, unit in zip(self.flow.downstream[pair.stage], units, strict=True):
            self.units[pair, consumer].append(unit)

    # ---- during a run

    def taken(self, work: Work, due: int) -> None:
        """A copy gets the next batch, whole, as everybody else does."""
        copy, batch, units = work
        if batch != due:
            raise ViolationError(f"{copy} took batch {batch}, due {due}")
        if list(units) != (expected := self.inputs(copy.pair, batch)):
            raise ViolationError(f"{copy} took {units} in batch {batch}, due {expected}")

    def made(self, copy: Copy, batch: int, units: Units, state: Any) -> None:
        """A copy gives what the sequential run gives, and is in its state."""
        consumers = self.flow.downstream[copy.stage]
        if list(units) != [self.units[copy.pair, consumer][batch] for consumer in consumers]:
            raise ViolationError(f"{copy} made other rows in batch {batch}")
        if copy.pair in self.states and state != self.states[copy.pair][batch]:
            raise ViolationError(f"{copy} is in another state after batch {batch}")

    def emitted(self, before: int, batch: int, rows: Rows | None) -> None:
        """Results leave once, in order."""
        if batch != before + 1:
            raise ViolationError(f"batch {batch} left after {before}")
        if rows != self.output[batch - 1]:
            raise ViolationError(f"other rows left in batch {batch}")
