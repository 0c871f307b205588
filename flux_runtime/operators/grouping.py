"""Keys to dense slot numbers by an open-addressing hash table in numpy, so that state is arrays.

A key is a partition and the values of some columns. Values become 64-bit integers: integers, times
and booleans are themselves, floats their bits (-0.0 as 0.0, all NaNs as one), everything else a
code from a table of the distinct values seen. Null is a value of its own. Rows are looked up all at
once; only values that are seen for the first time cost a step each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flux_runtime.operators.rows import Batch, Ints, coded

Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

FIRST: Final = 64
"""Slots that there is room for at first."""
PARTITION_SHIFT: Final = 16
"""A key's `meta` is its partition, above one bit per null column."""
MIXERS: Final = np.array(
    [
        0x9E3779B97F4A7C15,
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
        0x589965CC75374CC3,
    ],
    np.uint64,
)


class Texts:
    """Codes of the distinct values of one column that has no integers in it."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self.values: list[Any] = []
        self.bytes = 0

    def of(self, column: Any) -> Ints:
        """The code of every value; null has code -1."""
        values, places = coded(column)
        table = np.array([self.code(v) for v in values] + [-1], np.int64)
        codes: Ints = table[places]
        return codes

    def code(self, value: Any) -> int:
        """The code of one value; a new one gets the next."""
        if value is None:
            return -1
        code = self.codes.setdefault(value, len(self.values))
        if code == len(self.values):
            self.values.append(value)
            self.bytes += 64 + len(value) if hasattr(value, "__len__") else 64
        return code


class Slots:
    """A growing table of keys; slots are numbered in the order of first appearance.

    Args:
        names: key columns, at most 7.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if len(names) >= len(MIXERS):
            raise ValueError(f"{len(names)} key columns; {len(MIXERS) - 1} are the most")
        self.names = tuple(names)
        self.count = 0
        self.keys: list[Ints] = [np.zeros(FIRST, np.int64) for _ in range(len(names) + 1)]
        self.hashes: Hashes = np.zeros(FIRST, np.uint64)
        self.index: npt.NDArray[np.int32] = np.full(4 * FIRST, -1, np.int32)
        self.texts: dict[int, Texts] = {}

    def __len__(self) -> int:
        return self.count

    @property
    def partition(self) -> Ints:
        """The partition of every slot."""
        partition: Ints = self.keys[-1][: self.count] >> PARTITION_SHIFT
        return partition

    def of(self, batch: Batch, partition: Ints | int = 0) -> Ints:
        """The slot of every row; new keys get the next numbers.

        Args:
            batch: has the key columns.
            partition: of every row, or of all.
        """
        n = batch.num_rows
        meta: Ints = np.full(n, partition, np.int64) << PARTITION_SHIFT
        columns = [self._column(i, batch.column(name), meta) for i, name in enumerate(self.names)]
        return self._slots([*columns, meta])

    def _column(self, i: int, column: Any, meta: Ints) -> Ints:
        """The column as integers; nulls are noted in `meta`."""
        kind = column.type
        if column.null_count:
            meta |= column.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << i
        if pa.types.is_floating(kind):
            floats = column.fill_null(0.0).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
            floats[np.isnan(floats)] = np.nan
            bits: Ints = floats.view(np.int64)
            return bits
        if pa.types.is_temporal(kind):
            column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            return self.texts.setdefault(i, Texts()).of(column)
        if column.null_count:
            column = column.fill_null(pa.scalar(0).cast(column.type))
        values: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return values

    # ---- the table

    def _slots(self, columns: Sequence[Ints]) -> Ints:
        hashes = _hash(columns)
        slots = self._find(columns, hashes)
        if len(missing := np.flatnonzero(slots < 0)):
            slots[missing] = self._insert([c[missing] for c in columns], hashes[missing])
        return slots

    def _find(self, columns: Sequence[Ints], hashes: Hashes) -> Ints:
        """The slot of every key that is in the table, else -1."""
        mask = len(self.index) - 1
        at = (hashes & np.uint64(mask)).astype(np.int64)
        slot = self.index[at]
        same = self._same(slot, columns, hashes)
        slots = np.where(same, slot, -1).astype(np.int64)
        todo = np.flatnonzero(~same & (slot >= 0))
        while len(todo):
            at[todo] = (at[todo] + 1) & mask
            slot = self.index[at[todo]]
            same = self._same(slot, [c[todo] for c in columns], hashes[todo])
            slots[todo[same]] = slot[same]
            todo = todo[~same & (slot >= 0)]
        return slots

    def _same(self, slot: npt.NDArray[np.int32], columns: Sequence[Ints], hashes: Hashes) -> Bools:
        """Whether the slot holds exactly that key; never where the slot is -1."""
        same: Bools = (self.hashes[slot] == hashes) & (slot >= 0)
        for held, column in zip(self.keys, columns, strict=True):
            same &= held[slot] == column
        return same

    def _insert(self, columns: Sequence[Ints], hashes: Hashes) -> Ints:
        """Give slots to keys that are not in the table; equal ones get the same slot."""
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        if any((c[first][inverse] != c).any() for c in columns):
            return self._insert_one_by_one(columns, hashes)
        order = np.argsort(first, kind="stable")
        number = np.empty(len(first), np.int64)
        number[order] = np.arange(self.count, self.count + len(first))
        new = first[order]
        self._append([c[new] for c in columns], hashes[new])
        slots: Ints = number[inverse]
        return slots

    def _insert_one_by_one(self, columns: Sequence[Ints], hashes: Hashes) -> Ints:
        """The same for different keys with equal hashes, which hardly ever meet in one batch."""
        slots = np.empty(len(hashes), np.int64)
        for row in range(len(hashes)):
            one = slice(row, row + 1)
            key = [c[one] for c in columns]
            at = self._find(key, hashes[one])
            if at[0] < 0:
                at[0] = self.count
                self._append(key, hashes[one])
            slots[row] = at[0]
        return slots

    def _append(self, columns: Sequence[Ints], hashes: Hashes) -> None:
        """New slots for keys that differ from one another and from all in the table."""
        start, self.count = self.count, self.count + len(hashes)
        self.hashes = grown(self.hashes, self.count)
        self.hashes[start : self.count] = hashes
        for i, column in enumerate(columns):
            self.keys[i] = grown(self.keys[i], self.count)
            self.keys[i][start : self.count] = column
        if 2 * self.count > len(self.index):
            size = len(self.index)
            while 2 * self.count > size:
                size *= 4
            self.index = np.full(size, -1, np.int32)
            start = 0
        self._enter(np.arange(start, self.count))

    def _enter(self, slots: Ints) -> None:
        """Put slots into the index; of several that want a place the first one gets it."""
        mask = len(self.index) - 1
        at = (self.hashes[slots] & np.uint64(mask)).astype(np.int64)
        while len(slots):
            free = self.index[at] < 0
            places, claims = at[free][::-1], slots[free][::-1]
            self.index[places] = claims
            left = self.index[at] != slots
            slots, at = slots[left], (at[left] + 1) & mask

    # ---- state

    def keep(self, remaining: Bools) -> None:
        """Forget all other slots; those kept are numbered anew, in the same order."""
        self.keys = [column[: self.count][remaining] for column in self.keys]
        self.hashes = self.hashes[: self.count][remaining]
        self.count = len(self.hashes)
        size = 4 * FIRST
        while 2 * self.count > size:
            size *= 4
        self.index = np.full(size, -1, np.int32)
        self.keys = [grown(column, FIRST) for column in self.keys]
        self.hashes = grown(self.hashes, FIRST)
        self._enter(np.arange(self.count))

    def get_state(self, chosen: Bools) -> list[Any]:
        """The keys of these slots, column by column, then which of them are null."""
        columns: list[Any] = []
        for i, held in enumerate(self.keys[:-1]):
            column = held[: self.count][chosen]
            if i in self.texts:
                values = self.texts[i].values
                columns.append([None if code < 0 else values[code] for code in column.tolist()])
            else:
                columns.append(column)
        nulls = self.keys[-1][: self.count][chosen] & ((1 << PARTITION_SHIFT) - 1)
        return [*columns, nulls]

    def install_state(self, state: Sequence[Any], partition: int) -> Ints:
        """Add the keys that `get_state` gave, for this partition; gives their slots."""
        *columns, nulls = state
        coded = []
        for i, column in enumerate(columns):
            if isinstance(column, list):
                texts = self.texts.setdefault(i, Texts())
                column = np.array([texts.code(value) for value in column], np.int64)
            coded.append(column)
        return self._slots([*coded, nulls | (np.int64(partition) << PARTITION_SHIFT)])

    def bytes_per_slot(self) -> int:
        """Keys, hash and two entries of the index."""
        return 8 * len(self.keys) + 8 + 2 * 4

    def text_bytes(self) -> int:
        """Bytes of the tables of values, about."""
        return sum(texts.bytes for texts in self.texts.values())


def _hash(columns: Sequence[Ints]) -> Hashes:
    with np.errstate(over="ignore"):
        mixed = columns[0].view(np.uint64) * MIXERS[0]
        for column, mixer in zip(columns[1:], MIXERS[1:], strict=False):
            mixed = mixed + column.view(np.uint64) * mixer
        mixed = (mixed ^ (mixed >> np.uint64(32))) * MIXERS[1]
    hashed: Hashes = mixed ^ (mixed >> np.uint64(29))
    return hashed


def grown(array: npt.NDArray[Any], rows: int, fill: float = 0) -> npt.NDArray[Any]:
    """The array with room for at least `rows` rows, doubling."""
    if len(array) >= rows:
        return array
    wanted = max(rows, 2 * len(array), 16)
    more = np.full((wanted - len(array), *array.shape[1:]), fill, array.dtype)
    return np.concatenate([array, more])


class Groups:
    """The rows of a batch by slot, in their order within a slot.

    Attributes:
        order: row numbers, those of a slot together.
        slot: the slot of each, in that order.
        starts: where each slot's rows begin.
        sizes: how many each slot has.
        rank: number of each row within its slot.
    """

    __slots__ = ("first", "order", "rank", "sizes", "slot", "starts")

    def __init__(self, slots: Ints) -> None:
        n = len(slots)
        narrow = slots.astype(np.uint16) if n and slots.max() < 1 << 16 else slots
        self.order = np.argsort(narrow, kind="stable")  # a radix sort, if narrow
        self.slot = slots[self.order]
        self.first = np.ones(n, bool)
        np.not_equal(self.slot[1:], self.slot[:-1], out=self.first[1:])
        self.starts = np.flatnonzero(self.first)
        self.sizes = np.diff(np.append(self.starts, n))
        self.rank = np.arange(n) - np.repeat(self.starts, self.sizes)
