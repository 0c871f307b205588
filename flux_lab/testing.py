"""Tests for an operator of your own: what Flux asks of it, tried alone and in a simulated cluster.

    from flux_lab.testing import check_operator
    check_operator(make_operator, batches, gate=["campaign"])

An operator has `process`, `get_state`, `install_state` and `state_size`
(`flux_runtime.protocol.dataflow.Operator`). Flux runs two copies of each partition of it, gives
both the same batches, and moves states between sites; so it has to be a deterministic function of
its input, its state has to be all that it remembers, and what it computes for a key may depend on
the rows of that key only.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_lab.checks import contents
from flux_lab.plans import Plan, plan_of
from flux_lab.sweep import RunError, Totals, run
from flux_lab.world import World
from flux_runtime.operators.packing import Unpackable, pack, unpack
from flux_runtime.operators.rows import SN, Batch, KeySplit, merge, number, rows_size, sn_of
from flux_runtime.protocol.dataflow import Dataflow, Operator
from flux_runtime.protocol.vocabulary import Shape

Make = Callable[[], Operator]
PARTITIONS = (1, 2, 5)
"""Numbers of partitions that have to give the same rows."""


class OperatorError(AssertionError):
    """An operator does not do what Flux asks of it; the message says what, and what follows."""


def check_operator(
    make: Make,
    batches: Iterable[Batch],
    *,
    gate: Sequence[str] = (),
    schedules: int = 100,
    seed: int = 0,
) -> Totals:
    """Try an operator on batches of input.

    Args:
        make: gives the operator of one partition in its initial state, as `operator:` in the file.
        batches: pyarrow.RecordBatches of the input's columns, in the order of the stream; some
            dozens of rows of several keys, in at least five batches, are enough.
        gate: the columns by which the input is split; none: it is one partition.
        schedules: random runs of a simulated cluster with crashes, false suspicions, recoveries and
            moves.
        seed: of the first schedule; the n-th has `seed + n`.

    Returns:
        What happened in the schedules.

    Raises:
        OperatorError: the operator was refuted.
        ValueError: there are no batches, or a gate's column is not in them.
    """
    source = [number(batch, n) for n, batch in enumerate(batches)]
    if not source:
        raise ValueError("there are no batches to try the operator on")
    if missing := [name for name in gate if name not in source[0].schema.names]:
        raise ValueError(f"no column {', '.join(missing)} in {source[0].schema.names}")
    _check_rows(make, source)
    _check_state(make, source)
    if gate:
        _check_partitions(make, source, gate)
    totals = Totals()
    for n in range(seed, seed + schedules):
        plan = _Plan.drawn(n, make, source, gate)
        try:
            totals.add(run(n, plan=plan))
        except RunError as failure:
            raise OperatorError(
                f"schedule {n}, step {len(failure.run.steps)}: {failure.cause}; "
                f"try it again with schedules=1, seed={n}"
            ) from failure.cause
    return totals


def _check_rows(make: Make, source: Sequence[Batch]) -> None:
    """Rows come with their sequence numbers, in order, and are the same in another run."""
    one, other = make(), make()
    for n, batch in enumerate(source):
        rows = one.process(batch)
        names = rows.schema.names
        if tuple(names[-len(SN) :]) != SN:
            raise OperatorError(f"batch {n}: the last columns put out are not {SN}, but {names}")
        keys = list(zip(*(part.tolist() for part in sn_of(rows)), strict=True))
        if keys != sorted(set(keys)):
            raise OperatorError(
                f"batch {n}: sequence numbers {SN} have to grow from row to row; rows made from "
                "the same row differ in sn_sub"
            )
        if strange := {key[:2] for key in keys} - {(n, offset) for offset in range(batch.num_rows)}:
            raise OperatorError(
                f"batch {n}: sn_batch and sn_offset {min(strange)} are of no row of this batch"
            )
        if contents(rows) != contents(other.process(batch)):
            raise OperatorError(
                f"batch {n}: two runs on the same input put out different rows; look for clocks, "
                "random numbers and the order of sets"
            )


def _check_state(make: Make, source: Sequence[Batch]) -> None:
    """An operator that takes over a state, fresh or used, goes on as the one that it is from."""
    operator, used = make(), make()
    for n, batch in enumerate(source):
        state, fresh = operator.get_state(), make()
        for resumed in (fresh, used):
            resumed.install_state(_copied(state, n))
        due = contents(operator.process(batch))
        if any(contents(resumed.process(batch)) != due for resumed in (fresh, used)):
            raise OperatorError(
                f"batch {n}: an operator with the state of before it puts out other rows; "
                "get_state() has to give all that is remembered, and install_state() to replace it"
            )


def _check_partitions(make: Make, source: Sequence[Batch], gate: Sequence[str]) -> None:
    """The rows do not depend on how the keys are spread."""
    due: list[Batch] | None = None
    for width in PARTITIONS:
        split, operators = KeySplit({0: gate}), [make() for _ in range(width)]
        outputs = []
        for batch in source:
            parts = split(0, batch, width)
            out = [operators[part].process(rows) for part, rows in sorted(parts.items())]
            outputs.append(merge(out) if out else batch.slice(0, 0))
        if due is None:
            due = outputs
        elif differing := [
            n
            for n, (a, b) in enumerate(zip(due, outputs, strict=True))
            if contents(a) != contents(b)
        ]:
            raise OperatorError(
                f"batch {differing[0]}: {width} partitions put out other rows than one; what is "
                f"computed for a {', '.join(gate)} depends on rows of another"
            )


def _copied(state: Any, batch: int) -> Any:
    try:
        return unpack(pack(state))
    except Unpackable as error:
        raise OperatorError(f"batch {batch}: the state cannot move: {error}") from error


class _Moving:
    """An operator whose states travel as bytes."""

    def __init__(self, operator: Operator) -> None:
        self.process = operator.process
        self.state_size = operator.state_size
        self._operator = operator

    def get_state(self) -> bytes:
        return pack(self._operator.get_state())

    def install_state(self, state: bytes) -> None:
        self._operator.install_state(unpack(state))


@dataclass(frozen=True, kw_only=True)
class _Plan(Plan):
    """A run of the operator as the only stage."""

    dataflow: Dataflow = field(repr=False)
    source: tuple[Batch, ...] = field(repr=False)

    @classmethod
    def drawn(cls, seed: int, make: Make, source: Sequence[Batch], gate: Sequence[str]) -> _Plan:
        """As the sweep draws it, with these rows."""
        plan = plan_of(random.Random(seed))
        width = max(plan.shape.widths) if gate else 1
        shape: Shape = dataclasses.replace(plan.shape, widths=(width,), ordered_egress=True)
        dataflow = Dataflow(
            shape=shape,
            operator=lambda _: _Moving(make()),
            split=KeySplit({0: gate} if gate else {}),
            merge=merge,
            rows_size=rows_size,
        )
        drawn = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)}
        drawn |= {"shape": shape, "batches": len(source)}
        return cls(**drawn, dataflow=dataflow, source=tuple(source))

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        return self.made_of(self.dataflow, self.source, stories=stories, states=False)
