"""How far the recorded order of a Flux stage is kept as state instead (OR-5).

    units/STAGE/kept.json        the batches and places that the states cover, and their folder
    units/STAGE/kept/FOLDER/     the operators' states after them

The sites' state follows from the order, so the order can be forgotten up to where the state is on
disk and the results are committed: everybody has passed it. Once enough has been fed since, sites
write beforehand what they can, while input goes on. Then the feeder pauses until the sites have
come to the end of it and written the rest of their states, and goes on. Once
the results up to there are committed too, this is noted, and only then the order is trimmed. A
process that dies in between begins with what was noted before.

The order since then is worth at most as many bytes as the states, or `KEEP_BYTES` if that is more,
so keeping them costs at most about as much as writing the order did.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from flux_runtime.operators.state_file import ready, size_of
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.sealing.storage import Storage, local_path

KEEP_EVERY: Final = 1000
"""Batches since the states were last kept ..."""
KEEP_BYTES: Final = 64 << 20
"""... or bytes, after which they are again."""
PATIENCE_S: Final = 60.0
"""So long input waits for the states, once all results are there; a copy may be recovering."""
BEFOREHAND_S: Final = 600.0
"""So long sites may take to write beforehand what they can."""
ASK_AGAIN_S: Final = 0.5
LESS_OFTEN_MAX: Final = 64
"""After failures in a row, states are kept less often, by up to this factor."""
LOOK_S: Final = 0.02
LOOK_AGAIN_S: Final = 0.1
_NOTED: Final = "kept.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """States that are kept.

    Attributes:
        batches: of the order, that they cover.
        place: the offset in the order of what they do not cover.
        folder: where they are; empty: nothing is kept.
        size: their bytes.
    """

    batches: int = 0
    place: int = 0
    folder: str = ""
    size: int = 0


class NotKept(Exception):  # noqa: N818 - what happened
    """The states could not be written; the message says why. What was kept before still holds."""


class KeptStates:
    """The kept states of a stage.

    Args:
        state: of the stage; sites reach its folder.
        pairs: all partitions of all components.
        every: batches after which the states are kept.
    """

    def __init__(self, state: Storage, pairs: list[Pair], *, every: int = KEEP_EVERY) -> None:
        self._state = state
        self._pairs = pairs
        self._every = every
        self._tried = 0
        self._less_often = 1
        self._began = ""
        self._next = ""
        """Folder of the states that are being written."""
        self._since = self._asked = self._looked = 0.0
        noted = state.read(_NOTED)
        self.now = Kept() if noted is None else Kept(**json.loads(noted))

    def begin(self) -> Path | None:
        """The folder that sites begin with, if anything is kept; others are deleted."""
        self._began, self._next = self.now.folder, ""
        self._sweep()
        return local_folder(self._state, f"kept/{self.now.folder}") if self.now.folder else None

    def due(self, batches: int, size: int) -> bool:
        """Whether the states are to be kept after so many batches, and bytes since the last."""
        if batches <= max(self.now.batches, self._tried):
            return False
        since = batches - max(self.now.batches, self._tried)
        enough = max(KEEP_BYTES, self.now.size) * self._less_often
        return since >= self._every * self._less_often or size >= enough

    def ready(self, batches: int, ask: Callable[[int | None, Path], str]) -> bool:
        """Whether sites have written beforehand what they can; asks them to, and may be called
        again at any time.

        Args:
            batches: that have been fed.
            ask: has the sites do so in a folder; gives why one of them could not, the last time.
        """
        now = time.monotonic()
        if not self._next:
            self._next = _new_folder(batches)
            self._since, self._asked, self._looked = now, now - ASK_AGAIN_S, now
        elif now < self._looked + LOOK_AGAIN_S:
            return False
        self._looked = now
        path = local_folder(self._state, f"kept/{self._next}")
        if ready(path, self._pairs) or now > self._since + BEFOREHAND_S:
            return True
        if now < self._asked + ASK_AGAIN_S:
            return False
        self._asked = now
        return bool(ask(None, path))  # `gather` says why they cannot be written

    def gather(
        self,
        batches: int,
        place: int,
        *,
        ask: Callable[[int | None, Path], str],
        committed: Callable[[], bool],
        stopping: threading.Event,
    ) -> Kept | None:
        """Have all states written, while nothing more is fed.

        Args:
            batches: that have been fed, and no more.
            place: the first after them.
            ask: has the sites write their states after a batch into a folder; gives why one of them
                could not, the last time.
            committed: whether the results of these batches are committed, as far as is known.
            stopping: gives up.

        Returns:
            What can be noted as soon as the results are committed; None: it was stopped.

        Raises:
            NotKept: they are not all there; input goes on without.
        """
        self._tried = batches
        folder, self._next = self._next or _new_folder(batches), ""
        path = local_folder(self._state, f"kept/{folder}")
        end = time.monotonic() + PATIENCE_S
        asked = 0.0
        while not stopping.wait(LOOK_S):
            why = ""
            if time.monotonic() > asked + ASK_AGAIN_S:
                why = ask(batches - 1, path)  # again, for sites that have joined, and a new leader
                asked = time.monotonic()
            size = size_of(path, self._pairs)
            if size is not None:
                self._less_often = 1
                return Kept(batches, place, folder, size)
            if not committed():
                end = time.monotonic() + PATIENCE_S
            elif time.monotonic() > end:
                why = f"not all states were in {path} {PATIENCE_S:g} s after the results"
            if why:
                self._less_often = min(self._less_often * 2, LESS_OFTEN_MAX)
                raise NotKept(why.replace(str(path), str(path.parent)))  # alike every time
        return None

    def note(self, states: Kept) -> None:
        """From here on a run begins with these states."""
        self._state.write(_NOTED, json.dumps(asdict(states)).encode())
        self.now = states
        self._sweep()

    def _sweep(self) -> None:
        """Delete states that no process may need: this run's sites began with `_began`."""
        for name in self._state.names("kept"):
            if name not in (self.now.folder, self._began):
                self._state.delete(f"kept/{name}")


def _new_folder(batches: int) -> str:
    return f"{batches:012d}-{uuid.uuid4().hex[:8]}"


def local_folder(state: Storage, name: str) -> Path:
    """A part of the state as a folder: controllers and sites know no other storage."""
    return local_path(state.uri(name))
