"""The reference: what a failure-free sequential run delivers and emits; every check uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import INGRESS, NOTHING, Pair


@dataclass
class Reference:
    """The units of every producer-consumer pair of pairs, and the output.

    Attributes:
        units: (producer, consumer) -> batch -> rows.
        after: (producer, consumer) -> batch -> the batch of the next unit.
        output: what leaves, in the order of sequence numbers.
        states: pair -> the operator's state before any batch, after the first, and so on.
    """

    units: dict[tuple[Pair, Pair], dict[int, Rows]] = field(default_factory=dict)
    after: dict[tuple[Pair, Pair], dict[int, int]] = field(default_factory=dict)
    output: list[tuple[int, Rows]] = field(default_factory=list)
    states: dict[Pair, list[Any]] = field(default_factory=dict)

    def state(self, pair: Pair, batch: int) -> Any:
        """The operator's state once everything up to this batch is processed; None if not kept."""
        states = self.states.get(pair)
        return states[min(batch + 1, len(states) - 1)] if states else None


def reference(dataflow: Dataflow, batches: Sequence[Rows], *, states: bool = False) -> Reference:
    """Run the dataflow batch by batch, without network, copies or failures.

    Args:
        dataflow: what runs.
        batches: the source's input.
        states: keep the operators' states too.
    """
    shape = dataflow.shape
    result = Reference()
    operators = {pair: dataflow.operator(pair) for pair in shape.pairs()}
    if states:
        result.states = {pair: [op.get_state()] for pair, op in operators.items()}
    for number, rows in enumerate(batches):
        inputs: dict[Pair, list[Rows]] = {}
        _route(dataflow, result, Pair(INGRESS, 0), number, rows, inputs)
        for pair in shape.pairs():
            parts = inputs.get(pair)
            if not parts:
                continue
            output = operators[pair].process(dataflow.merge(parts))
            _route(dataflow, result, pair, number, output, inputs)
        for pair, history in result.states.items():
            history.append(operators[pair].get_state())
        last = inputs.get(shape.egress.pair)
        if last:
            result.output.append((number, dataflow.merge(last)))
    for link, units in result.units.items():
        batches_of_link = list(units)
        result.after[link] = dict(zip([NOTHING, *batches_of_link], batches_of_link, strict=False))
    return result


def _route(
    dataflow: Dataflow,
    result: Reference,
    producer: Pair,
    batch: int,
    rows: Rows,
    inputs: dict[Pair, list[Rows]],
) -> None:
    consumers = dataflow.shape.downstream(producer.stage)
    parts = dataflow.split(producer.stage + 1, rows, len(consumers))
    for part in sorted(parts):
        consumer = consumers[part]
        result.units.setdefault((producer, consumer), {})[batch] = parts[part]
        inputs.setdefault(consumer, []).append(parts[part])
