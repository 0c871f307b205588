"""The event time of an input: its watermark, and what that ends, windows or joins by time.

As in Spark: a record is in every window `[start, end)` that its time is in, windows start at
multiples of the slide (counted from 1970, shifted by `start_us`), and a session begins with a
window `[time, time + gap)` for each record. The watermark is the latest time that has been seen,
in whole milliseconds, less the promised lateness. What decides is the watermark before a batch: a
window that ends at or before it takes nothing more, and a record whose windows have all ended is
late. A record that is joined with others of a range of times meets no more of them once their
watermark has passed that range, and is late behind its own. All of this is a function of a
partition's records in their order (DET-2), so both copies have the same watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from flux_runtime.operators.rows import Ints

START: Final = "flux_window_start"
END: Final = "flux_window_end"
"""Columns of the windows of a record."""
TIME_MAX_US: Final = 2**62
"""Further from 1970 no window can be worked out in 64 bits."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LateRecord(Exception):  # noqa: N818 - what it is
    """A record came after the watermark had ended what it belongs to."""


class TimeOutOfRange(Exception):  # noqa: N818 - what it is
    """A record's time is so far from 1970 that it cannot be reckoned with."""


@dataclass(frozen=True, kw_only=True)
class EventTime:
    """The event time of an input.

    Attributes:
        column: with the times, timestamps.
        lateness_us: how far behind the latest time a record may be.
    """

    column: str
    lateness_us: int

    def late(self, rows: Any, watermark_us: int | None) -> list[tuple[int, Exception]]:
        """(place, why) of every record that comes too late, or too far from 1970."""
        times, known = self._times(rows)
        far = known & (np.abs(times) > TIME_MAX_US)
        refused: list[tuple[int, Exception]] = [
            (int(place), TimeOutOfRange(f"{self.column} is too far from 1970"))
            for place in np.flatnonzero(far)
        ]
        if watermark_us is not None:
            late = known & ~far & self._over(times, watermark_us)
            why = self._why_late(watermark_us)
            refused += [(int(place), LateRecord(why)) for place in np.flatnonzero(late)]
        return sorted(refused, key=lambda entry: entry[0])

    def watermark_us(self, rows: Any, before: int | None) -> int | None:
        """The watermark after these records, in microseconds since 1970."""
        times, known = self._times(rows)
        if not known.any():
            return before
        after = int(times[known].max()) // 1000 * 1000 - self.lateness_us
        return after if before is None else max(before, after)

    def _over(self, times: Ints, watermark_us: int) -> Any:
        """Whether a record of that time comes too late."""
        return times < watermark_us

    def _why_late(self, watermark_us: int) -> str:
        return f"{self.column} is before the watermark, {shown(watermark_us)}"

    def _times(self, rows: Any) -> tuple[Ints, Any]:
        """(microseconds since 1970, whether there is a time) of each row."""
        column = rows.column(self.column)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        known = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.cast(pa.int64()).fill_null(0)
        return numbers.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), known


@dataclass(frozen=True, kw_only=True)
class RangeTime(EventTime):
    """The event time of an input whose records meet those of another that are near in time.

    Attributes:
        partner: the other input.
        after_us: how much later than a record those are at most that it meets; before if negative.
        width_us: from the first to the last of the times that it meets.
    """

    partner: str
    after_us: int
    width_us: int

    def since(self, rows: Any, limit_us: int) -> Any:
        """Whether a row has a time that is not before a limit: a boolean for each row."""
        times, known = self._times(rows)
        return pa.array(known & (times >= limit_us))


@dataclass(frozen=True, kw_only=True)
class WindowTime(EventTime):
    """The event time of an input whose records are grouped by windows.

    Attributes:
        duration_us: length of a window; of sessions, the gap.
        slide_us: from one window to the next; None: sessions.
        start_us: start of one of the windows.
        keys: the columns that windows are grouped by, besides.
        final: whether a window is put out once, when it has ended; else whenever it changes.
    """

    duration_us: int
    slide_us: int | None
    start_us: int = 0
    keys: Sequence[str] = ()
    final: bool = True

    def windowed(self, rows: Any, watermark_us: int | None) -> Any:
        """A row for each record and each of its windows that has not ended; none without a time."""
        times, known = self._times(rows)
        last = self._last_start(times)
        slide = self.slide_us or self.duration_us
        places, starts = [], []
        for back in range(-(-self.duration_us // slide)):
            start = last - back * slide
            within = known & (times < start + self.duration_us)
            if watermark_us is not None:
                within &= start + self.duration_us > watermark_us
            places.append(np.flatnonzero(within))
            starts.append(start[within])
        place, start = np.concatenate(places), np.concatenate(starts)
        order = np.argsort(place, kind="stable")
        start = start[order]
        taken = rows.take(pa.array(place[order]))
        for name, ends in ((START, start), (END, start + self.duration_us)):
            taken = taken.append_column(name, pa.array(ends).cast(pa.timestamp("us")))
        return taken

    def _over(self, times: Ints, watermark_us: int) -> Any:
        return self._last_start(times) + self.duration_us <= watermark_us

    def _why_late(self, watermark_us: int) -> str:
        return f"its windows ended before the watermark, {shown(watermark_us)}"

    def _last_start(self, times: Ints) -> Ints:
        """Where the last window begins that a time is in."""
        if self.slide_us is None:
            return times
        last: Ints = times - (times - self.start_us) % self.slide_us
        return last


def event_time(arguments: Mapping[str, Any]) -> WindowTime | RangeTime:
    """The event time that has these attributes."""
    return RangeTime(**arguments) if "partner" in arguments else WindowTime(**arguments)


def shown(time_us: int) -> str:
    """A time, for people.

    >>> shown(1_500_000), shown(2**62)
    ('1970-01-01T00:00:01.500000+00:00', '4611686018427387904 us since 1970')
    """
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} us since 1970"
