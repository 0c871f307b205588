"""Dataflows that the tests' site processes load by name."""

from __future__ import annotations

from flux_lab.example import running_example
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape


def pairs() -> Dataflow:
    """The running example in partition pairs."""
    return running_example(Shape(widths=(3, 2), ack_every=4, pool=64, in_hand=4))


def many() -> Dataflow:
    """The running example with several partitions per site, so that there is something to move."""
    return running_example(Shape(widths=(8, 4), ack_every=4, pool=64, in_hand=4))
