"""Small dataflows for proofs: rows are tuples, operators digest all they see, in order.

A row is (sn, key, value) with sn = (batch, offset, ...). The operators are stateful and
many-to-one: one output for every `every` rows of a key, whose value digests everything seen of the
key so far, so a lost, repeated or reordered row changes every later output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Pair, Shape

Row = tuple[tuple[int, ...], int, int]
PyRows = tuple[Row, ...]

MODULUS = (1 << 31) - 1


class DigestOperator:
    """Emits, for every `every`-th row of a key, the key's digest so far.

    Args:
        every: rows of a key per output row.
        spread: keys that the outputs are spread over.
    """

    def __init__(self, *, every: int = 1, spread: int = 7) -> None:
        self.every = every
        self.spread = spread
        self.seen: dict[int, tuple[int, int]] = {}

    def process(self, batch: PyRows) -> PyRows:
        """One row at a time, in the order given."""
        rows = []
        for sn, key, value in batch:
            count, digest = self.seen.get(key, (0, 17))
            count, digest = count + 1, (digest * 131 + value * 7 + sn[0] * 3 + sn[-1]) % MODULUS
            self.seen[key] = (count, digest)
            if count % self.every == 0:
                rows.append((sn, digest % self.spread, digest))
        return tuple(rows)

    def get_state(self) -> tuple[tuple[int, tuple[int, int]], ...]:
        """Count and digest of every key."""
        return tuple(sorted(self.seen.items()))

    def install_state(self, state: tuple[tuple[int, tuple[int, int]], ...]) -> None:
        """Replace count and digest of every key."""
        self.seen = dict(state)

    def state_size(self) -> int:
        """Three numbers per key."""
        return 24 * len(self.seen)


def split(stage: int, rows: PyRows, width: int) -> Mapping[int, PyRows]:
    """Rows by key modulo the number of partitions; partitions that get nothing are left out."""
    parts: dict[int, list[Row]] = {}
    for row in rows:
        parts.setdefault(row[1] % width, []).append(row)
    return {i: tuple(part) for i, part in parts.items()}


def merge(parts: Sequence[PyRows]) -> PyRows:
    """Rows of one batch in the order of their sequence numbers."""
    return tuple(sorted(row for part in parts for row in part))


def digest_dataflow(shape: Shape, *, every: int = 1) -> Dataflow:
    """A dataflow of digest operators in the given shape."""

    def operator(pair: Pair) -> DigestOperator:
        return DigestOperator(every=every if pair.stage == 0 else 1, spread=5 + pair.part)

    return Dataflow(
        shape=shape, operator=operator, split=split, merge=merge, rows_size=lambda r: 24 * len(r)
    )


def digest_input(batches: int, *, rows: int, keys: int, salt: int = 1) -> tuple[PyRows, ...]:
    """Batches of rows whose keys wander over all partitions."""
    return tuple(
        tuple(
            ((b, o), ((b * 5 + o * 3 + b * o + salt) * 2654435761 >> 7) % keys, b * 100 + o)
            for o in range(rows)
        )
        for b in range(batches)
    )
