"""What a streaming sink and a streaming source of ours talk to: the far side of the exchange.

Anything that takes batches by number and gives results by offset: the sites of a Flux stage, or the
ordered channel of `flux_runtime.ordering.channel`. A far side is named by the function that opens
it and a JSON argument, both of which end up in Spark's plans and logs: a secret is passed by the
name of a file or an environment variable, never by itself.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Rows = Any
"""A pyarrow.RecordBatch (pyarrow ships no types)."""


class IngressEnd(Protocol):
    """Takes a stream's batches."""

    def offer(self, batch_id: int, offset: int, rows: Rows) -> None:
        """Hand over records, in the order of (batch_id, offset).

        Idempotent: what was offered before, by this process or another, is recognised by
        (batch_id, offset) and dropped. `offset` counts all records of the stream from 0 on.
        """

    def flush(self) -> None:
        """Return when everything that was offered is acknowledged: it will not be lost."""

    def close(self) -> None:
        """End the connection."""


class EgressEnd(Protocol):
    """Gives results, in order, until they are committed."""

    def read(
        self, offset: int, *, timeout_s: float | None = None, max_bytes: int = ...
    ) -> tuple[int, list[tuple[int, Rows]], bool]:
        """Results from an offset on.

        Args:
            offset: where to begin.
            timeout_s: how long to wait for more than nothing; None: for ever.
            max_bytes: about how much to give at once.

        Returns:
            The next offset; (number, rows) in order, numbers from `offset` up to below the next
            one; whether nothing comes after these. What lies between two offsets never changes.
        """

    def commit(self, offset: int) -> None:
        """What is below the offset will not be read again."""

    def close(self) -> None:
        """End the connection."""


class FarSide(Protocol):
    """Opens connections."""

    def ingress(self, stream: str) -> IngressEnd:
        """Offers of one stream; one process at a time."""

    def egress(self, reader: str) -> EgressEnd:
        """Results, for a reader whose name survives restarts."""


Opener = Callable[[Mapping[str, Any]], FarSide]

OPENER = "farside"
ARGUMENT = "argument"
"""The options that name a far side."""


def far_side_options(opener: str, argument: Mapping[str, Any]) -> dict[str, str]:
    """The options of sink and source for a far side.

    Args:
        opener: `module:function`, called with `argument` wherever it is needed.
        argument: as JSON has it; shown in logs.
    """
    return {OPENER: opener, ARGUMENT: json.dumps(argument)}


def open_far_side(options: Mapping[str, str]) -> FarSide:
    """The far side that options name.

    Raises:
        ValueError: they name none.
    """
    named = options.get(OPENER, "")
    module, _, function = named.partition(":")
    if not module or not function:
        raise ValueError(f"option {OPENER}: {named!r} is not module:function")
    opener: Opener = getattr(importlib.import_module(module), function)
    return opener(json.loads(options.get(ARGUMENT, "{}")))
