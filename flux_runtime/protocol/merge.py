"""Merging the streams of several producers: in order of sequence numbers, or first come.

XM-1: release a batch once every producer has either a unit at hand or said that it has nothing up
to there (XM-2); the units of the batch from all producers leave together, and their rows are then
put in the order of (batch, offset). With one row per batch this is the merge of the papers, tuple
by tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

from flux_runtime.protocol.inlet import Inlet
from flux_runtime.protocol.messages import Rows
from flux_runtime.protocol.vocabulary import END


def next_batch(inlets: Sequence[Inlet], *, ordered: bool) -> int | None:
    """The batch that can be released now, if any."""
    lowest: int | None = None
    told = END
    for inlet in inlets:
        if not inlet.queue:
            told = min(told, inlet.mark)
        elif lowest is None or inlet.queue[0].batch < lowest:
            lowest = inlet.queue[0].batch
    if ordered and lowest is not None and told < lowest:
        return None
    return lowest


def release(inlets: Sequence[Inlet], batch: int, *, ordered: bool) -> list[Rows]:
    """Take the units of this batch; without order, only the first one at hand."""
    taken = []
    for inlet in inlets:
        if inlet.queue and inlet.queue[0].batch == batch:
            taken.append(inlet.queue[0].rows)
            inlet.queue = inlet.queue[1:]
            if not ordered:
                break
    return taken


def complete_up_to(inlets: Sequence[Inlet]) -> int:
    """The batch up to which everything has been released (progress of the input)."""
    complete = END
    for inlet in inlets:
        complete = min(complete, inlet.queue[0].batch - 1 if inlet.queue else inlet.mark)
    return complete
