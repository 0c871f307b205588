"""Folders of rows that a unit's catalogue names: made, checked whenever they are read, merged.

A part is either a sorted run (`runs`) or a folder of Parquet files. A folder
that the catalogue does not name, since a step did not come to its end or the part was merged, goes
with the next `sweep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flux_runtime.sealing.manifest import Manifest, check, take
from flux_runtime.sealing.storage import Storage, local_path
from flux_runtime.spark.stateful import runs
from flux_runtime.spark.stateful.catalogue import Catalogue, Part, due
from flux_runtime.spark.stateful.runs import Hashes, Run

KEPT: Final = "kept"
"""Where parts are."""
STAGED: Final = "staged"
"""Where files are that the running micro-batch needs, and nothing later."""


class Parts:
    """The parts of a unit.

    Args:
        storage: the unit's folder.
        catalogue: names the parts.
    """

    def __init__(self, storage: Storage, catalogue: Catalogue) -> None:
        self._storage = storage
        self._catalogue = catalogue
        self._opened: dict[str, Run] = {}

    def of(self, name: str) -> tuple[Part, ...]:
        """The parts of something that is kept, oldest first."""
        return self._catalogue.now.parts.get(name, ())

    def uri(self, name: str) -> str:
        """Where Spark finds a folder or file; it takes an address as it stands."""
        return f"{self._storage.uri()}/{name}"

    def files(self, folder: str) -> list[Path]:
        """The Parquet files of a folder."""
        return sorted(self._path(folder).glob("[!._]*.parquet"))

    # ---- made

    def new_name(self) -> str:
        """A name that no part has had; it is in the catalogue once that is saved."""
        number = self._catalogue.now.named
        self._catalogue.take_name()
        return f"{KEPT}/{number:09d}"

    def new_run(self, tables: Iterable[Any], level: int) -> Part:
        """Write a run of sorted tables."""
        name = self.new_name()
        self._storage.delete(name)
        rows = runs.write(self._path(name), tables)
        return Part(name, level, Manifest(rows, take(self._storage, name)))

    def new_folder(self, write: Callable[[str], object], level: int) -> Part:
        """Have a folder of Parquet files written; `write` is given its address."""
        name = self.new_name()
        write(self.uri(name))
        return self.as_part(name, level)

    def moved(self, folder: str, level: int) -> Part:
        """Make a staged folder a part."""
        name = self.new_name()
        self._storage.delete(name)
        self._storage.move(folder, name)
        return self.as_part(name, level)

    def as_part(self, name: str, level: int) -> Part:
        """A folder of Parquet files as a part, flushed to the disk."""
        rows = sum(pq.read_metadata(file).num_rows for file in self.files(name))
        return Part(name, level, Manifest(rows, take(self._storage, name)))

    # ---- read

    def check(self, parts: Iterable[Part]) -> None:
        """Return if parts are what was written.

        Raises:
            DamagedError: one is not.
        """
        for part in parts:
            check(self._storage, part.name, part.manifest.files, remedy=self._catalogue.remedy)

    def run(self, part: Part) -> Run:
        """A part that is a run, checked."""
        self.check([part])
        if part.name not in self._opened:
            self._opened[part.name] = Run(self._path(part.name))
        return self._opened[part.name]

    def select(self, name: str, hashes: Hashes) -> Iterator[Any]:
        """The rows of runs that have one of some hashes, as tables."""
        if len(hashes):
            yield from runs.select([self.run(part) for part in self.of(name)], hashes)

    def staged(self, place: str, tables: Iterable[Any]) -> str | None:
        """Hand tables to Spark in a file; its name, or None where there are none."""
        name = f"{STAGED}/{place}.parquet"
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = None
        try:
            for table in tables:
                writer = writer or pq.ParquetWriter(path, table.schema, compression="lz4")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
        return None if writer is None else name

    # ---- merged

    def merge(self, merged: Callable[[str, Sequence[Part]], Part]) -> None:
        """Merge parts as long as there are too many of a level.

        Args:
            merged: writes one part that holds what some hold.
        """
        while True:
            parts = self._catalogue.now.parts
            many = {name: due_parts for name in sorted(parts) if (due_parts := due(parts[name]))}
            if not many:
                return
            name, due_parts = next(iter(many.items()))
            new = merged(name, due_parts)
            left = [part for part in parts[name] if part not in due_parts]
            left.insert(parts[name].index(due_parts[0]), new)
            self._catalogue.save(parts={**parts, name: tuple(left)})
            self.sweep()

    def sweep(self, *folders: str) -> None:
        """Delete what the catalogue does not name, below these folders, too."""
        named = {part.name for parts in self._catalogue.now.parts.values() for part in parts}
        for name in [*self._opened]:
            if name not in named:
                del self._opened[name]
        for folder in (KEPT, *folders):
            for name in self._storage.names(folder):
                self._sweep(f"{folder}/{name}", named)

    def _sweep(self, name: str, named: set[str]) -> None:
        if name in named:
            return
        if not any(folder.startswith(f"{name}/") for folder in named):
            self._storage.delete(name)
            return
        for below in self._storage.names(name):
            self._sweep(f"{name}/{below}", named)

    def _path(self, name: str) -> Path:
        return local_path(self._storage.uri(name))


def read_tables(files: Iterable[Path], columns: Sequence[str], slot: str | None) -> Iterator[Any]:
    """The rows of Parquet files that Spark wrote, as tables that fit in memory.

    Args:
        files: the files.
        columns: that are wanted beside those of `slot`; where that is None, all are.
        slot: a column of structs, whose fields become columns; None: there is none.
    """
    wanted = None if slot is None else [slot, *columns]
    held: list[Any] = []
    rows = size = 0
    for file in files:
        for batch in _opened(file).iter_batches(columns=wanted):
            flat = _flat(batch, slot)
            held.append(flat)
            rows, size = rows + len(flat), size + flat.nbytes
            if rows >= runs.TABLE_ROWS or size >= runs.TABLE_BYTES:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(held)


def read_column(files: Iterable[Path], name: str) -> Iterator[Hashes]:
    """A column of 64-bit integers without nulls, piece by piece."""
    for file in files:
        for batch in _opened(file).iter_batches(columns=[name]):
            yield batch.column(name).to_numpy()


def _opened(file: Path) -> Any:
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _flat(batch: Any, slot: str | None) -> Any:
    table = pa.Table.from_batches([batch])
    if slot is not None:
        rows = table.column(slot).combine_chunks()
        own = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
        rest = {name: table.column(name) for name in table.column_names if name != slot}
        table = pa.table({**own, **rest})
    return table.cast(pa.schema([(field.name, _relaxed(field.type)) for field in table.schema]))


def _relaxed(of: Any) -> Any:
    """A type in which everything may be null, so that all files of one kind have one schema."""
    if pa.types.is_struct(of):
        return pa.struct([(field.name, _relaxed(field.type)) for field in of])
    if pa.types.is_map(of):
        return pa.map_(_relaxed(of.key_type), _relaxed(of.item_type))
    if pa.types.is_list(of):
        return pa.list_(pa.field("element", _relaxed(of.value_type)))
    return of


def covered(manifest: Manifest, folder: str) -> Manifest:
    """The part of a manifest that is about a folder below."""
    prefix = f"{folder}/"
    files = {
        name.removeprefix(prefix): of
        for name, of in manifest.files.items()
        if name.startswith(prefix)
    }
    return Manifest(0, files, manifest.covers)


def by_name(parts: Mapping[str, tuple[Part, ...]], name: str, *new: Part) -> dict[str, Any]:
    """The catalogue with new parts of something."""
    return {**parts, name: (*parts.get(name, ()), *new)}
