"""One run of an operator over all partitions of a stage that stand on a site (hosting decision 6).

What an operator costs per batch is mostly the same however few rows there are. So the copies of a
stage on one site share an operator that knows which partition a row belongs to; each copy sees its
own part of it, whose state can be taken out alone. That the operators of a stage are alike is
checked: if one is made otherwise than the first, it works alone.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.protocol.dataflow import Dataflow, Operator, Rows
from flux_runtime.protocol.vocabulary import Pair


class Shared:
    """The operator of a stage on one site.

    Args:
        operator: in its initial state.

    Attributes:
        parts: partitions that it is run for.
    """

    def __init__(self, operator: Partitioned) -> None:
        self.operator = operator
        self.parts: dict[int, Part] = {}

    def run(self, batches: Sequence[tuple[int, Rows]]) -> list[Rows]:
        """Batches of different partitions in, what each gives out."""
        return self.operator.process_parts(batches)


class Part:
    """One partition's part of a shared operator, in its initial state."""

    def __init__(self, shared: Shared, number: int) -> None:
        self.shared = shared
        self.number = number
        shared.operator.drop(number)
        shared.parts[number] = self

    def process(self, batch: Rows) -> Rows:
        """Run it for this partition alone."""
        return self.shared.run([(self.number, batch)])[0]

    def get_state(self) -> Any:
        """The state that is held of this partition."""
        return self.shared.operator.get_state(self.number)

    def install_state(self, state: Any) -> None:
        """Replace what is held of this partition."""
        self.shared.operator.install_state(state, self.number)

    def state_size(self) -> int:
        """Bytes of state; all partitions are taken to be of the same size."""
        return self.shared.operator.state_size() // len(self.shared.parts)

    def leave(self) -> None:
        """The copy is gone; forget what it held, unless another has taken its place."""
        if self.shared.parts.get(self.number) is self:
            del self.shared.parts[self.number]
            self.shared.operator.drop(self.number)


def together(dataflow: Dataflow) -> Dataflow:
    """The dataflow, for one site; operators that can be shared are."""
    stages: dict[int, tuple[Shared, bytes]] = {}

    def operator(pair: Pair) -> Operator:
        result = dataflow.operator(pair)
        if not isinstance(result, Partitioned):
            return result
        try:
            looks = pickle.dumps(result)
        except Exception:  # whatever an operator has that cannot be pickled
            return result
        known = stages.setdefault(pair.stage, (Shared(result), looks))
        if known[1] != looks:
            return result
        return Part(known[0], pair.part)

    return dataclasses.replace(dataflow, operator=operator)
