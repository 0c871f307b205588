"""States of operators in files: written while a stage runs, taken up by the sites of a later run.

    folder/STAGE-PART    what `get_state` gave, packed (`packing`)

Both copies of a pair hold the same state, so either may write it. A file holds data and no code.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flux_runtime.operators.packing import Unreadable, pack, unpack
from flux_runtime.operators.rows import Batch
from flux_runtime.protocol.dataflow import Operator
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.sealing.storage import LocalStorage


def file_of(folder: Path, pair: Pair) -> Path:
    """Where the state of a pair's operator is."""
    return folder / f"{pair.stage}-{pair.part}"


def write_state(folder: Path, pair: Pair, state: Any) -> None:
    """Write a state durably and in one step."""
    LocalStorage(folder).write(file_of(folder, pair).name, pack(state))


def size_of(folder: Path, pairs: Iterable[Pair]) -> int | None:
    """Bytes of all these states; None as long as one is missing, or cannot be seen."""
    try:
        return sum(file_of(folder, pair).stat().st_size for pair in pairs)
    except OSError:
        return None


def _read(file: Path) -> Any:
    """The state in a file.

    Raises:
        Unreadable: it is none.
    """
    try:
        return unpack(file.read_bytes())
    except Unreadable as error:
        raise Unreadable(
            f"{file}: {error}; another version has written it, or it is damaged: begin anew with "
            "`--fresh`, or put a copy of the folder back"
        ) from None


class Restored:
    """An operator that begins with the state in a file.

    The file is read when the state is first needed: a standby, and a partition that is on disk,
    get their state from elsewhere.

    Args:
        inner: in its initial state.
        file: with its state; it stays as long as the process may need it.
    """

    def __init__(self, inner: Operator, file: Path) -> None:
        self._inner = inner
        self._file: Path | None = file

    def _operator(self) -> Operator:
        if self._file is not None:
            self._inner.install_state(_read(self._file))
            self._file = None
        return self._inner

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        result: Batch = self._operator().process(batch)
        return result

    def get_state(self) -> Any:
        """The state."""
        return self._operator().get_state()

    def install_state(self, state: Any) -> None:
        """Replace the state."""
        self._file = None
        self._inner.install_state(state)

    def state_size(self) -> int:
        """Bytes of the state."""
        return self._operator().state_size()
