"""Rows that an operator keeps, found by the values of some columns without reading them all.

They lie in pieces of falling size, oldest first; a piece is joined to the one before it as soon as
that has not twice its rows, so that a row is copied a logarithmic number of times and there are
only so many pieces. Each piece is indexed, the first time that it is asked, by sorted hashes of the
columns. Nothing here is changed in place: rows with some more are another `KeptRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flux_runtime.operators.evaluation import evaluate, quoted
from flux_runtime.operators.rows import Ints, coded, content_size, stable_hash

Columns = tuple[str, ...]
Hashes = npt.NDArray[np.uint64]


class Piece:
    """Some rows, and for some columns the hashes of all rows, sorted, with the place of each."""

    __slots__ = ("by", "rows")

    def __init__(self, rows: Any) -> None:
        self.rows = rows.combine_chunks()
        self.by: dict[Columns, tuple[Hashes, Ints]] = {}

    def index(self, columns: Columns) -> tuple[Hashes, Ints]:
        """(sorted hashes, row of each)."""
        if columns not in self.by:
            hashes = hashed(self.rows, columns)
            order = np.argsort(hashes, kind="stable")
            self.by[columns] = hashes[order], order
        return self.by[columns]

    def joined(self, later: Piece) -> Piece:
        """Both, with the indices that both have."""
        piece = Piece(pa.concat_tables([self.rows, later.rows]))
        for columns in self.by.keys() & later.by.keys():
            (mine, my_rows), (theirs, their_rows) = self.by[columns], later.by[columns]
            hashes = np.concatenate([mine, theirs])
            order = np.argsort(hashes, kind="stable")  # two sorted runs: one pass
            rows = np.concatenate([my_rows, their_rows + self.rows.num_rows])
            piece.by[columns] = hashes[order], rows[order]
        return piece

    def matching(self, columns: Columns, wanted: Hashes) -> Any:
        """The rows with one of these hashes, in their order."""
        hashes, rows = self.index(columns)
        low, high = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
        sizes = high - low
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.rows.take(pa.array(np.sort(rows[np.repeat(low, sizes) + within])))


class KeptRows:
    """Rows in the order in which they were added.

    Args:
        schema: of the rows.
        pieces: of the rows, oldest first.
        combined: how many of them, from the first, have been combined (`query.Summary`).
    """

    __slots__ = ("combined", "pieces", "schema")

    def __init__(self, schema: Any, pieces: Iterable[Piece] = (), *, combined: int = 0) -> None:
        self.schema = schema
        self.pieces = tuple(pieces)
        self.combined = combined

    @classmethod
    def of(cls, rows: Any, *, combined: int = 0) -> KeptRows:
        """The rows of a table."""
        return cls(rows.schema, [Piece(rows)] if rows.num_rows else (), combined=combined)

    def __len__(self) -> int:
        return sum(piece.rows.num_rows for piece in self.pieces)

    @property
    def table(self) -> Any:
        """All rows."""
        return self._together(piece.rows for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Bytes of what the rows say."""
        return content_size(self.table)

    def added(self, rows: Any) -> KeptRows:
        """These rows, and some more behind them."""
        if not rows.num_rows:
            return self
        pieces = [*self.pieces, Piece(rows.cast(self.schema))]
        while len(pieces) > 1 and pieces[-2].rows.num_rows < 2 * pieces[-1].rows.num_rows:
            pieces[-2:] = [pieces[-2].joined(pieces[-1])]
        return KeptRows(self.schema, pieces, combined=self.combined)

    def matching(self, columns: Sequence[str], others: Any, their_columns: Sequence[str]) -> Any:
        """The rows whose columns may equal those of some other row.

        All that do are among them, and some that do not may be (their hashes are equal). NULL
        counts as equal to NULL.
        """
        if not self.pieces:
            return self.schema.empty_table()
        wanted = np.unique(hashed(others, tuple(their_columns)))
        by = tuple(columns)
        return self._together(piece.matching(by, wanted) for piece in self.pieces)

    def chosen(self, choice: Callable[[Any], Any]) -> KeptRows:
        """The rows of which `choice`, given a table, says so."""
        return KeptRows.of(self._together(p.rows.filter(choice(p.rows)) for p in self.pieces))

    def _together(self, tables: Iterable[Any]) -> Any:
        pieces = [*tables]
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()


def hashed(rows: Any, columns: Columns) -> Hashes:
    """A hash of some columns of each row, in this process; the same for integers of all widths."""
    of_columns = [_numbers(rows.column(name)) for name in columns]
    if all(numbers is not None for numbers in of_columns):
        names = [str(place) for place in range(len(of_columns))]
        return stable_hash(pa.table(of_columns, names=names), names)
    parts = [
        f"CAST({quoted(name)} AS BIGINT)"
        if pa.types.is_integer(rows.schema.field(name).type)
        else quoted(name)
        for name in columns
    ]
    hashes = evaluate(f"SELECT hash({', '.join(parts)}) AS h FROM rows", {"rows": rows})
    column: Hashes = hashes.column("h").to_numpy()
    return column


def _numbers(column: Any) -> Any:
    """The values as integers, equal ones as the same: quicker to hash than by asking DuckDB.

    None for types of which values are equal that differ in their bits.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values, places = coded(column.cast(pa.binary()).combine_chunks())
        hashes = np.array([*map(hash, values), 0], np.int64)
        return pa.array(hashes[places], mask=places < 0)
    return None
