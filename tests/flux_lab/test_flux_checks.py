"""Each checker finds the fault that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flux_scenes import AP, AS, inlet, outlet, run, segment, world

from flux_lab.checks import ViolationError
from flux_lab.papers.protocol.messages import Emit
from flux_lab.world import World
from flux_runtime.protocol.vocabulary import Shape


def begun() -> World:
    return run(world(Shape(widths=(1,)), batches=30), steps=60)


def lost(w: World) -> None:
    """The receiver believes to be where it has not been."""
    inlet(w, AP).hi = -1
    run(w)


def other_state(w: World) -> None:
    segment(w, AS).operator.install_state(((1, (99, 99)),))
    w.validate()


def emitted_again(w: World) -> None:
    w.checks.emitted({0: None, 1: None}, Emit(0, w.checks.expected.output[0][1]))


def acknowledged_again(w: World) -> None:
    w.checks.acknowledged(3, 2)


def one_site(w: World) -> None:
    w.site[AS] = w.site[AP]
    w.checks.placement(w)


def unbounded(w: World) -> None:
    for sn in range(1000, 1200):
        outlet(w, AP).buffer.put((), sn, 7)
    w.checks.bounded(w.nodes[AP])


def stuck(w: World) -> None:
    w.finished()


def leak(w: World) -> None:
    run(w)
    outlet(w, AS).buffer.dangling[7] = 1
    w.finished()


def not_fenced(w: World) -> None:
    run(w)
    w.controller.copy_failed(AS)
    w.finished()


FOUND: dict[Callable[[World], Any], str] = {
    lost: r"lost before|repeated",
    other_state: "copies disagree: A0s is in state",
    emitted_again: "egress emitted 0 as number 2",
    acknowledged_again: "acknowledged batch 2, due 3",
    one_site: "two copies of .* on site",
    unbounded: "A0p holds .* units of",
    stuck: "stuck: .* emitted",
    leak: "BI-9: A0s still holds something",
    not_fenced: r"not fenced|stuck",
}


@pytest.mark.parametrize("fault", FOUND, ids=lambda fault: fault.__name__)
def test_bi_7_bi_8_and_bi_9_a_planted_fault_is_found(fault: Callable[[World], Any]) -> None:
    w = begun()
    w.validate()
    with pytest.raises(ViolationError, match=FOUND[fault]):
        fault(w)
