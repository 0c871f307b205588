"""FS-25: operators that preserve only the set of their output, in dataflow pairs."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from flux_lab.checks import Checks, Machine, ViolationError
from flux_lab.papers.protocol.messages import Data, Emit
from flux_lab.workload import PyRows, digest_dataflow, digest_input
from flux_lab.world import World
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import Node, Pair, Shape

BATCHES, ROWS = 20, 4
LAST = (BATCHES - 1) * 100 + ROWS - 1
"""Value of the very last input row: whatever was put off is produced then."""


def key_of(row: tuple[tuple[int, ...], int, int]) -> int:
    """Unique: the input row that an output comes from, and which of its outputs it is."""
    sn = row[0]
    return (sn[0] * 100 + sn[1]) * 2 + sn[2]


class PutsOff:
    """Two outputs per row, some of them later, in an order that differs from copy to copy."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held: list[tuple[tuple[int, ...], int, int]] = []

    def process(self, batch: PyRows) -> PyRows:
        for sn, key, value in batch:
            self.held += [((*sn, which), key, value * 10 + which) for which in (0, 1)]
        self.rng.shuffle(self.held)
        last = any(row[2] // 10 == LAST for row in self.held)
        n = len(self.held) if last else self.rng.randrange(len(self.held) + 1)
        made, self.held = self.held[:n], self.held[n:]
        return tuple(made)

    def get_state(self) -> tuple[object, ...]:
        return tuple(sorted(self.held))

    def install_state(self, state: Sequence[tuple[tuple[int, ...], int, int]]) -> None:
        self.held = list(state)

    def state_size(self) -> int:
        return 8 * len(self.held)


class SetChecks(Checks):
    """The set of what leaves, and that no receiver gets a unit twice; order does not count."""

    def __init__(self, plain: Dataflow, dataflow: Dataflow, batches: Sequence[Rows]) -> None:
        super().__init__(plain, batches)
        self.dataflow = dataflow
        rows = [
            ((*sn, which), key, value * 10 + which)
            for batch in batches
            for sn, key, value in batch
            for which in (0, 1)
        ]
        self.first_come = {(key_of(row), (row,)) for row in rows}
        self.total = len(rows)
        self.units: set[tuple[Node, int]] = set()

    def received(self, machine: Machine, src: Node, unit: Data) -> None:
        if machine.boundary.node.stage == 0:
            super().received(machine, src, unit)
            return
        if (machine.boundary.node, unit.batch) in self.units:
            raise ViolationError(f"repeated: {unit} from {src}")
        self.units.add((machine.boundary.node, unit.batch))

    def agrees(self, segment: object) -> None:
        """Copies may hold different things back."""

    def emitted(self, before: Collection[Emit | int], emit: Emit) -> None:
        super().emitted(before, emit)


def world(seed: int, *, width: int = 1, pool: int = 200) -> World:
    """The pool holds what the copies may differ by: here everything."""
    rng = random.Random(seed)
    shape = Shape(widths=(width,), ordered_egress=False, set_preserving=True, pool=pool)
    plain = digest_dataflow(Shape(widths=(width,), ordered_egress=False))
    batches = digest_input(BATCHES, rows=ROWS, keys=6)
    if width > 1:
        batches = (*batches[:-1], tuple((sn, 0, value) for sn, _, value in batches[-1]))

    def operator(pair: Pair) -> PutsOff:
        return PutsOff(random.Random(rng.random()))

    dataflow = replace(
        plain,
        shape=shape,
        operator=operator,
        units=lambda rows: {key_of(row): (row,) for row in rows},
    )
    checks = SetChecks(plain, dataflow, batches)
    return World(dataflow, batches, sites=2, spares=1, link_capacity=2, checks=checks)


@pytest.mark.parametrize("kills", [0, 1, 2])
@pytest.mark.parametrize("seed", range(25))
def test_fs_25_the_same_output_set_whoever_dies(seed: int, kills: int) -> None:
    rng = random.Random(seed)
    w = world(seed)
    moments = sorted(rng.randrange(120) for _ in range(kills))
    n = 0
    while steps := w.steps():
        n += 1
        if moments and n >= moments[0] and not w.dead_processes and w.controller.is_whole:
            moments.pop(0)
            w.kill(rng.choice(list(w.site)))
            continue
        w.perform(rng.choice(steps))
    w.finished()
    assert w.emitted == 2 * ROWS * BATCHES
    assert not w.controller.losses


def test_numbers_of_units_are_names_only() -> None:
    """The run above would prove nothing if units came in the order of their keys."""
    w = world(3)
    rng = random.Random(3)
    while steps := w.steps():
        w.perform(rng.choice(steps))
    keys = [emit.batch for emit in w.output if isinstance(emit, Emit)]
    assert keys != sorted(keys)


@pytest.mark.parametrize(
    "wrong",
    [{"widths": (1, 1)}, {"ordered_egress": True}, {"ack_every": 2}, {"cluster_pairs": True}],
)
def test_where_order_is_needed_such_operators_are_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"widths": (1,), "ordered_egress": False, "set_preserving": True}
    Shape(**right)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no order"):
        Shape(**{**right, **wrong})  # type: ignore[arg-type]


def test_units_and_set_preserving_belong_together() -> None:
    plain = digest_dataflow(Shape(widths=(1,)))
    with pytest.raises(ValueError, match="set-preserving"):
        replace(plain, units=lambda rows: {0: rows})
