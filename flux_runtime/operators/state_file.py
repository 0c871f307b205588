"""States of operators in files: written while a stage runs, taken up by the sites of a later run.

    folder/STAGE-PART          what `get_state` gave, packed (`packing`); or the parts of a state
    folder/STAGE-PART.ready    a copy has written beforehand what it could

A state in parts (`dataflow.InParts`) is `PARTS`, then each part, 0, and the rest; each behind its
length (8 bytes). Most of it is written while the operator goes on.

Both copies of a pair hold the same state, so either may write it. A file holds data and no code.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from flux_runtime.operators.packing import LENGTH, Unreadable, pack, unpack
from flux_runtime.operators.rows import Batch
from flux_runtime.protocol.dataflow import InParts, Operator
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.sealing.storage import LocalStorage, make_folder, sync_folder

PARTS: Final = b"in parts"
"""What a state in parts begins with; no length of a skeleton is so large."""
FLUSH_BYTES: Final = 4 << 20
"""Written, after which a file is flushed, so that the end has little left to flush."""


def file_of(folder: Path, pair: Pair) -> Path:
    """Where the state of a pair's operator is."""
    return folder / f"{pair.stage}-{pair.part}"


def write_state(folder: Path, pair: Pair, state: Any) -> None:
    """Write a state durably and in one step."""
    LocalStorage(folder).write(file_of(folder, pair).name, pack(state))


class PartsFile:
    """A state that is written in parts, under another name until it is whole.

    Args:
        folder: of the states.
        pair: whose operator's state it is.

    Raises:
        OSError: it cannot be written; so does every method.
    """

    def __init__(self, folder: Path, pair: Pair) -> None:
        self._target = file_of(folder, pair)
        make_folder(folder)
        self._path = folder / f".{self._target.name}.{uuid.uuid4().hex[:8]}"
        self._file = self._path.open("wb")
        self._file.write(PARTS)
        self._unflushed = 0

    def add(self, part: Any) -> None:
        """Write one more part."""
        data = pack(part)
        self._file.write(LENGTH.pack(len(data)))
        self._file.write(data)
        self._unflushed += len(data)
        if self._unflushed >= FLUSH_BYTES:
            self._flush()

    def finish(self, rest: Any) -> None:
        """Write what the parts lack; the state is there then, durably."""
        data = pack(rest)
        self._file.write(LENGTH.pack(0) + LENGTH.pack(len(data)))
        self._file.write(data)
        self._flush()
        self._file.close()
        self._path.replace(self._target)
        sync_folder(self._target.parent)

    def drop(self) -> None:
        """Give it up."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._unflushed = 0


def mark_ready(folder: Path, pair: Pair) -> None:
    """Say that what can be written of a state beforehand is."""
    make_folder(folder)
    _ready(folder, pair).touch()


def ready(folder: Path, pairs: Iterable[Pair]) -> bool:
    """Whether this has been said of all of them."""
    return all(_ready(folder, pair).exists() for pair in pairs)


def _ready(folder: Path, pair: Pair) -> Path:
    file = file_of(folder, pair)
    return file.with_name(f"{file.name}.ready")


def size_of(folder: Path, pairs: Iterable[Pair]) -> int | None:
    """Bytes of all these states; None as long as one is missing, or cannot be seen."""
    try:
        return sum(file_of(folder, pair).stat().st_size for pair in pairs)
    except OSError:
        return None


def _install(operator: Operator, file: Path) -> None:
    """Give an operator the state in a file.

    Raises:
        Unreadable: it is none.
    """
    try:
        with file.open("rb") as data:
            if data.read(len(PARTS)) != PARTS:
                data.seek(0)
                operator.install_state(unpack(data.read()))
                return
            if not isinstance(operator, InParts):
                raise Unreadable("the state of another operator, which has parts")
            for part in _parts(data):
                operator.install_part(part)
            operator.install_state(unpack(_piece(data)))
    except Unreadable as error:
        raise Unreadable(
            f"{file}: {error}; another version has written it, or it is damaged: begin anew with "
            "`--fresh`, or put a copy of the folder back"
        ) from None


def _parts(data: BinaryIO) -> Iterator[Any]:
    while part := _piece(data):
        yield unpack(part)


def _piece(data: BinaryIO) -> bytes:
    left = os.fstat(data.fileno()).st_size - data.tell() - LENGTH.size
    size = LENGTH.unpack(data.read(LENGTH.size))[0] if left >= 0 else 0
    if size > left:
        raise Unreadable("it ends too early")
    return data.read(size)


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
        if not isinstance(inner, InParts):
            return

        def parts() -> Iterator[Any]:
            self._operator()
            return inner.parts()

        def install_part(part: Any) -> None:
            self._file = None  # the state comes from elsewhere
            inner.install_part(part)

        self.parts, self.install_part = parts, install_part
        self.rest, self.reads = inner.rest, inner.reads

    def _operator(self) -> Operator:
        if self._file is not None:
            _install(self._inner, self._file)
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
