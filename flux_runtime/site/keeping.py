"""How a site keeps its operators' states in files, on demand.

Whoever feeds the dataflow first asks for what can be written beforehand: states that are read in
parts (`dataflow.InParts`), a part now and then, while input goes on. Then it pauses after a batch
and asks for the states after that. A copy that has processed just this batch writes what is left of
its state, unless the other copy of the pair has written its own. One that is behind, or moves, does
so when it has come that far; if the feeder has given up meanwhile and fed on, it never does. A site
that cannot write says why, and goes on: what it holds is not lost by that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from flux_runtime.operators.state_file import PartsFile, file_of, mark_ready, write_state
from flux_runtime.protocol.dataflow import InParts
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site.copies import BASE_MIN_BYTES, HostedCopy
from flux_runtime.site.hosting import AnyHost

PAUSE_RATIO: Final = 0.5
"""After a part so many times what it took belongs to the site's other work."""


class Beforehand:
    """A state that is written while its operator goes on; another reading ends this one."""

    def __init__(self, folder: Path, pair: Pair, operator: InParts) -> None:
        self.operator = operator
        self.parts: Iterator[Any] = operator.parts()
        self.file = PartsFile(folder, pair)
        self.ready = False

    def of(self, copy: HostedCopy) -> bool:
        """Whether it is still the state of this copy that is read."""
        return copy.operator is self.operator and self.operator.reads(self.parts)

    def step(self) -> bool:
        """Write a part; False: there are no more."""
        for part in self.parts:
            self.file.add(part)
            return True
        return False

    def finish(self) -> None:
        """Write all that is left, as the state is now."""
        while self.step():
            pass
        self.file.finish(self.operator.rest())


class Keeping:
    """The state files that a site has been asked to write.

    Args:
        host: hosts the copies.
        excluded: stage of the collector, whose results are committed instead.

    Attributes:
        batch: after which the states are to be kept; None: it is not known yet.
    """

    def __init__(self, host: AnyHost, *, excluded: int) -> None:
        self._host = host
        self._excluded = excluded
        self.batch: int | None = None
        self._folder: Path | None = None
        self._left: set[Pair] = set()
        self._beforehand: dict[Node, Beforehand] = {}
        self._again = 0.0
        """When the next part may be written."""

    def ask(self, batch: int | None, folder: str) -> None:
        """Keep the states in a folder, and forget what was asked before.

        Args:
            batch: after this one; None: write what can be written before it is known.
            folder: new for each batch.
        """
        if self._folder != Path(folder):
            self._give_up()
        self.batch, self._folder = batch, Path(folder)
        shape = self._host.dataflow.shape
        stages = [s for s in range(len(shape.widths)) if s != self._excluded]
        self._left = {Pair(stage, part) for stage in stages for part in range(shape.widths[stage])}

    def look(self) -> str:
        """Write what can be written by now; gives why it cannot, after which nothing is tried."""
        folder = self._folder
        if not self._left or folder is None:
            return ""
        try:
            for copy in self._host.copies():
                if copy.name.pair not in self._left or not copy.works:
                    continue
                if self.batch is None:
                    self._prepare(folder, copy)
                elif copy.done == self.batch:
                    self._left.discard(copy.name.pair)
                    self._write(folder, copy)
        except OSError as error:
            self._left.clear()
            self._give_up()
            return f"{type(error).__name__}: {error}"
        return ""

    @property
    def again_s(self) -> float | None:
        """Seconds after which `look` has more to write; None: not before something happens."""
        if self.batch is None and any(
            not preparation.ready for preparation in self._beforehand.values()
        ):
            return max(0.0, self._again - time.monotonic())
        return None

    def _prepare(self, folder: Path, copy: HostedCopy) -> None:
        """Write a part of a state, if it is time, or say that there is no more."""
        node = copy.name
        begun = self._beforehand.get(node)
        if begun is not None and not begun.of(copy):  # it moves; most likely it is ready soon
            self._beforehand.pop(node).file.drop()
            begun = None
        now = time.monotonic()
        if (begun is not None and begun.ready) or now < self._again:
            return
        if begun is None:
            operator = copy.operator
            small = not copy.resident or operator.state_size() < BASE_MIN_BYTES
            if small or not isinstance(operator, InParts):
                self._left.discard(node.pair)
                mark_ready(folder, node.pair)
                return
            if copy.sends_parts:
                return
            begun = self._beforehand[node] = Beforehand(folder, node.pair, operator)
        if not begun.step():
            begun.ready = True
            mark_ready(folder, node.pair)
        self._again = now + (1.0 + PAUSE_RATIO) * (time.monotonic() - now)

    def _write(self, folder: Path, copy: HostedCopy) -> None:
        node = copy.name
        begun = self._beforehand.pop(node, None)
        written = file_of(folder, node.pair).exists()
        if begun is not None and begun.of(copy) and not written:
            begun.finish()
            return
        if begun is not None:
            begun.file.drop()
        if not written:
            write_state(folder, node.pair, copy.state())

    def _give_up(self) -> None:
        """Leave no files that were begun."""
        for begun in self._beforehand.values():
            begun.file.drop()
        self._beforehand.clear()
