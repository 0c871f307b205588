"""Whatever is in a chunk, its census is the one that a person would make by hand."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType, DataType, DateType, LongType, StringType

from flux_runtime.sealing import manifest
from flux_runtime.sealing.events import Group, Groups
from flux_runtime.sealing.keys import KEY_BYTES_MAX, key_text
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.feed import COUNT, DATA, DIGEST, MALFORMED, PRODUCER, UNREADABLE
from flux_runtime.spark.sealed.chunks import PARTIALS, ROWS, Census, census_of
from flux_runtime.spark.sealed.counting import count_here

NOT_UTF8: Final = b"\xff\xfe"
LONG: Final = "x" * (KEY_BYTES_MAX + 1)
TEXTS: Final = st.sampled_from(
    [None, b"", b"a", b"b", "ü".encode(), b'"]', NOT_UTF8, LONG.encode(), b"x" * KEY_BYTES_MAX]
)
KINDS: Final[dict[type[DataType], tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    StringType: (pa.string(), TEXTS),
    LongType: (pa.int64(), st.none() | st.integers(-3, 3) | st.just(2**62)),
    BooleanType: (pa.bool_(), st.none() | st.booleans()),
    DateType: (pa.date32(), st.none() | st.dates()),
}
COUNTS: Final = st.sampled_from([DATA, DATA, DATA, 0, 1, 7, 2**40, MALFORMED, UNREADABLE])
Row = tuple[Any, ...]


def text(value: Any) -> str | None:
    """The text of a value, as `key_columns` says."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None if value is None else str(value).lower()


def by_hand(rows: list[Row], keys: int, *, digests: bool) -> tuple[list[Group], int, int, int]:
    """(groups, rejected, records, keys with data) of rows (key..., producer, count, weight)."""
    groups: Counter[tuple[str, str, int | None, str | None]] = Counter()
    rejected = 0
    for row in rows:
        texts, producer, count = [text(v) for v in row[:keys]], text(row[keys]), row[keys + 1]
        known = [t for t in texts if t is not None]
        if (
            len(known) < keys
            or producer is None
            or sum(len(t.encode()) for t in known) > KEY_BYTES_MAX
            or len(producer.encode()) > KEY_BYTES_MAX
            or count in (MALFORMED, UNREADABLE)
        ):
            rejected += row[-1]
            continue
        promised = None if count == DATA else count
        digest = row[keys + 2] if digests else None
        groups[key_text(known), producer, promised, digest] += row[-1]
    found = [Group(*group, rows=n) for group, n in groups.items()]
    with_data = len({group.key for group in found if group.promised is None})
    return found, rejected, sum(row[-1] for row in rows), with_data


@st.composite
def chunks(draw: st.DrawFn) -> tuple[list[type[DataType]], bool, list[Row]]:
    """(types of the key, whether there are digests, rows)."""
    types = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    digests = draw(st.booleans())
    columns = [*(KINDS[of][1] for of in types), TEXTS, COUNTS]
    columns += [st.sampled_from([None, "d", "e"])] if digests else []
    rows = draw(st.lists(st.tuples(*columns, st.integers(1, 5)), min_size=1, max_size=40))
    return types, digests, rows


def written(folder: Path, types: list[type[DataType]], digests: bool, rows: list[Row]) -> None:
    """The rows as a chunk of partial aggregates, in two files."""
    names = [*(f"k{i}" for i in range(len(types))), PRODUCER, COUNT]
    arrow = [*(KINDS[of][0] for of in types), pa.string(), pa.int64()]
    if digests:
        names, arrow = [*names, DIGEST], [*arrow, pa.string()]
    names, arrow = [*names, ROWS], [*arrow, pa.int64()]
    for number, part in enumerate((rows[::2], rows[1::2])):
        columns = []
        for position, of in enumerate(arrow):
            values = [row[position] for row in part]
            bytes_ = pa.types.is_string(of) and not all(isinstance(v, str | None) for v in values)
            stored = pa.array(values, pa.binary() if bytes_ else of)
            columns.append(
                pa.StringArray.from_buffers(len(stored), *stored.buffers()[1:], stored.buffers()[0])
                if bytes_
                else stored
            )
        pq.write_table(pa.table(columns, names=names), folder / f"part-{number}.parquet")


def census(types: list[type[DataType]], digests: bool, rows: list[Row]) -> Census | None:
    """What the product makes of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "chunk"
        folder.mkdir()
        written(folder, types, digests, rows)
        files = manifest.take(LocalStorage(place), "chunk")
        columns = [*(f"k{i}" for i in range(len(types))), PRODUCER, COUNT]
        columns += [DIGEST] if digests else []
        of_text = [*(of() for of in types), StringType()]
        counted = count_here(folder, files, columns, ROWS, of_text)
        return counted and census_of(counted, len(types), PARTIALS, files)


@given(chunks())
def test_the_census_of_any_chunk(chunk: tuple[list[type[DataType]], bool, list[Row]]) -> None:
    types, digests, rows = chunk
    found = census(*chunk)
    assert found is not None
    groups, rejected, records, with_data = by_hand(rows, len(types), digests=digests)
    assert sorted(map(repr, found.groups)) == sorted(map(repr, groups))
    places = [(g.key, g.promised is not None, g.producer) for g in found.groups]
    assert places == sorted(places)
    assert found.groups == Groups.of(found.groups)
    assert (found.rejected, found.rows, found.chunk.keys) == (rejected, records, with_data)
    assert found.chunk.rows == len(rows)
