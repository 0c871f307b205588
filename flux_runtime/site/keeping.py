"""How a site keeps its operators' states in files, on demand, while no input is under way.

Whoever feeds the dataflow pauses after a batch and asks. A copy that has processed just this batch
writes its state, unless the other copy of the pair has. One that is behind, or moves, does so when
it has come that far; if the feeder has given up meanwhile and fed on, it never does. A site that
cannot write says why, and goes on: what it holds is not lost by that.
"""

from __future__ import annotations

from pathlib import Path

from flux_runtime.operators.state_file import file_of, write_state
from flux_runtime.protocol.vocabulary import Pair, Status
from flux_runtime.site.host import Host


class Keeping:
    """The state files that a site has been asked to write.

    Args:
        host: hosts the copies.
        excluded: stage of the collector, whose results are committed instead.
    """

    def __init__(self, host: Host, *, excluded: int) -> None:
        self._host = host
        self._excluded = excluded
        self._batch = -1
        self._folder = Path()
        self._left: set[Pair] = set()

    def ask(self, batch: int, folder: str) -> None:
        """Keep the states after a batch in a folder, and forget what was asked before."""
        self._batch, self._folder = batch, Path(folder)
        shape = self._host.dataflow.shape
        stages = [s for s in range(len(shape.widths)) if s != self._excluded]
        self._left = {Pair(stage, part) for stage in stages for part in range(shape.widths[stage])}

    def look(self) -> str:
        """Write what can be written by now; gives why it cannot, after which nothing is tried."""
        if not self._left:
            return ""
        for node, segment in self._host.segments():
            if node.pair not in self._left or segment.status is not Status.ACTIVE:
                continue
            if segment.complete() == self._batch:
                self._left.discard(node.pair)
                try:
                    if not file_of(self._folder, node.pair).exists():
                        state, _ = segment.back.snapshot()
                        write_state(self._folder, node.pair, state)
                except OSError as error:
                    self._left.clear()
                    return f"{type(error).__name__}: {error}"
        return ""

    @property
    def batch(self) -> int:
        """The batch that was asked for last."""
        return self._batch
