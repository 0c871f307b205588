"""UF-14: how long pairs are exposed, what decides it, and how many partitions that asks for."""

from __future__ import annotations

import pytest

from flux_lab.bulk import Bulk, bulk_dataflow
from flux_lab.costs import Costs
from flux_lab.partition_size import (
    Exposure,
    Prices,
    Sizing,
    Window,
    fewest_parts,
    fitted,
    sizing,
)
from flux_lab.timed import Timed
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Node, Pair, Shape

STATE = 1.6e6
"""Bytes of a stage, shared by its partitions."""
PRICES = Prices(catch_up=0.5, per_byte=1e-6, call=1e-4, batch=0.05)


def windows(parts: int) -> list[Window]:
    """One of two sites dies under load; when its copies are whole again on a third."""
    shape = Shape(widths=(parts,), pool=256, in_hand=2)
    dataflow = bulk_dataflow(shape, selectivity=(1,), row_bytes=(50,), state=(int(STATE / parts),))
    batches = [Bulk(100, 100, i * 0.01) for i in range(100)]
    world = World(dataflow, batches, sites=2, spares=1, link_capacity=8)
    costs = Costs(row=lambda _: 10e-6, bandwidth=10e6, rows=lambda b: b.rows)
    timed = Timed(world, costs, interval=0.01, faults=((0.2, Step("crash", 1)),))
    exposure = Exposure()
    for n in range(2000):
        timed.run(n * 1e-3)
        exposure.look(world.controller, timed.now)
    world.finished()
    assert not exposure.lost
    return exposure.windows


def test_uf_14_smaller_partitions_are_exposed_more_shortly_but_recovery_takes_longer() -> None:
    few, many = windows(2), windows(16)
    assert (len(few), len(many)) == (2, 16)
    assert max(w.catch_up for w in many) < max(w.catch_up for w in few) / 3
    assert max(w.exposed for w in many) > max(w.catch_up for w in many) * 4, "one after the other"
    measured = [(STATE / len(run), w.catch_up) for run in (few, many) for w in run]
    catch_up, per_byte = fitted(measured)
    prices = Prices(catch_up=catch_up, per_byte=per_byte, call=20e-6, batch=1e-3)
    middle = max(w.catch_up for w in windows(8))
    assert sizing(8, prices, state=STATE, sites=2).window == pytest.approx(middle, rel=0.5)
    assert fewest_parts(prices, state=STATE, sites=2, window=middle, overhead=0.2).parts in (
        7,
        8,
        9,
    )


def test_uf_14_the_fewest_partitions_that_keep_to_the_window() -> None:
    found = fewest_parts(PRICES, state=8e6, sites=4, window=1.5, overhead=0.1)
    assert found == sizing(8, PRICES, state=8e6, sites=4)
    assert found.window == pytest.approx(1.5)
    assert found.recovery == pytest.approx(4 * 1.5)
    assert found.overhead == pytest.approx(4e-4 / (4e-4 + 0.05))


def test_uf_14_what_cannot_be_kept_to_is_said() -> None:
    with pytest.raises(ValueError, match=r"takes 0\.5 s without any state"):
        fewest_parts(PRICES, state=8e6, sites=4, window=0.4, overhead=0.1)
    with pytest.raises(ValueError, match="need 80 partitions"):
        fewest_parts(PRICES, state=8e6, sites=4, window=0.6, overhead=0.05)


def test_a_stage_without_state_needs_one_partition() -> None:
    assert fewest_parts(PRICES, state=0, sites=2, window=1.0, overhead=0.1) == Sizing(
        parts=1, window=0.5, recovery=0.5, overhead=1e-4 / (1e-4 + 0.05)
    )


def test_one_size_does_not_tell_what_a_byte_takes() -> None:
    with pytest.raises(ValueError, match="of one size"):
        fitted([(1e6, 1.0), (1e6, 1.1)])
    assert fitted([(1e6, 1.0), (3e6, 2.0)]) == pytest.approx((0.5, 5e-7))


def test_an_attempt_that_was_given_up_does_not_count_as_catch_up() -> None:
    world = World(
        bulk_dataflow(Shape(widths=(1,)), selectivity=(1,), row_bytes=(1,), state=(1,)),
        [],
        sites=2,
        spares=2,
    )
    exposure, pair = Exposure(), Pair(0, 0)
    world.perform(Step("kill", Node(0, 0, 1, 0)))
    world.perform(Step("detect process", Node(0, 0, 1, 0)))
    exposure.look(world.controller, 1.0)
    world.controller.copy_failed(Node(0, 0, 1, 1))
    exposure.look(world.controller, 2.0)
    assert exposure.lost == {pair: 1.0}
    assert exposure.started == {(pair, 2): 2.0}
