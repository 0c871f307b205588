"""A state that is kept in an object store, as a folder that can be read."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flux_runtime.commits.kept_folder import copy_of
from flux_runtime.commits.objects import StoreError, is_address
from flux_runtime.sealing.manifest import DamagedError


class UnreadableError(Exception):
    """A state cannot be read; the message says why, and what to do."""


@contextlib.contextmanager
def copied(address: str) -> Iterator[Path]:
    """A copy of the state that a store keeps, to be read.

    Raises:
        UnreadableError: there is none, the store does not answer, or it has damaged objects.
    """
    if not is_address(address):
        raise UnreadableError(f"{address} is no address of a state in an object store")
    with tempfile.TemporaryDirectory(prefix="blazes-state-") as folder:
        try:
            copy_of(address, Path(folder))
        except (StoreError, DamagedError) as error:
            raise UnreadableError(str(error)) from None
        yield Path(folder)
