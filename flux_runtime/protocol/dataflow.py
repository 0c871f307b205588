"""The dataflow as the protocol sees it: operators, and how rows are merged and split.

The protocol never looks into rows. Whoever defines a dataflow says how the rows of one batch that
come from several producers become one value in the order of their sequence numbers (`merge`), and
which partition of the next stage each row belongs to (`split`). Both are functions of their
arguments alone: the two copies of a pair must decide alike (DET-1 to DET-4), so never use `hash()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from flux_runtime.protocol.vocabulary import Pair, Shape

Rows = Any
"""Rows of one unit, each with its own sequence number (batch, offset); read by operators only."""


class Operator(Protocol):
    """A deterministic state machine over rows: the same input sequence gives the same output.

    Every output row carries the sequence number its kind prescribes: one-to-one keeps the input's;
    one-to-many appends a discriminator; many-to-one takes the largest that contributed.
    """

    def process(self, batch: Rows) -> Rows:
        """Consume the rows of one batch, give the rows it produces (possibly none)."""
        ...

    def get_state(self) -> Any:
        """The state as data (`operators.packing`), with any order output depends on (DET-3).

        Arrow tables in it must not change afterwards: they are read while they are sent.
        """
        ...

    def install_state(self, state: Any) -> None:
        """Replace the state by what `get_state` gave, perhaps in another process."""
        ...

    def state_size(self) -> int:
        """Size of the state in bytes, as moved."""
        ...


@runtime_checkable
class InParts(Operator, Protocol):
    """An operator whose state can be read in parts while it goes on processing batches."""

    def parts(self) -> Iterator[Any]:
        """Begin to read the state; every part is as it stands when its turn comes."""
        ...

    def rest(self) -> Any:
        """End the reading: what `install_state` needs besides the parts that were read."""
        ...

    def reads(self, parts: Iterator[Any]) -> bool:
        """Whether `rest` would end this reading: no other has begun since, and it has not ended."""
        ...

    def install_part(self, part: Any) -> None:
        """Add a part to a state that is arriving."""
        ...


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """A linear dataflow of partitioned operators.

    Attributes:
        shape: partitions and limits.
        operator: makes the operator of a pair in its initial state.
        split: (stage that receives, rows, partitions) -> rows per partition, empty ones left out.
        merge: rows of one batch from several producers -> rows in the order of sequence numbers.
        rows_size: size of rows in bytes, for links that take time.
        units: rows that a set-preserving operator produced -> rows per unique key, a non-negative
            integer that both copies give to the same rows.
    """

    shape: Shape
    operator: Callable[[Pair], Operator]
    split: Callable[[int, Rows, int], Mapping[int, Rows]]
    merge: Callable[[Sequence[Rows]], Rows]
    rows_size: Callable[[Rows], int] = lambda rows: 0
    units: Callable[[Rows], Mapping[int, Rows]] | None = None

    def __post_init__(self) -> None:
        if self.shape.set_preserving != (self.units is not None):
            raise ValueError(
                "`units` names the output of set-preserving operators, and only theirs"
            )
