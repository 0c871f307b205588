"""The leader's log of a Flux stage while it runs: one JSON line about twice a second.

`flux_runtime.observe.stages` reads it, together with what the sites report of themselves
(`sites.jsonl`) and the events. Latency is from the moment when a batch is given its number to the
moment when a reader commits its results.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from flux_runtime.observe.run_folder import SITES_FILE, STAGES_FILE
from flux_runtime.observe.thinned import ThinnedLog
from flux_runtime.site.control_messages import Report, Status

PERIOD_S: Final = 0.5
RATE_S: Final = 10.0
"""Time that a rate is the mean of: batches come seconds apart, and lines say one at any time."""
FED_MAX: Final = 100_000
"""Batches without a commit whose times are kept."""


class StageNumbers(NamedTuple):
    """Batches fed so far, offers that wait to be fed, the offset that is committed."""

    batches: int
    waiting: int
    committed: int


class StageLog:
    """Writes what a leader knows.

    Args:
        run_folder: where; None: nowhere.
        stage: what lines call the stage.
        read: gives what the job looks like now, and what lines say besides: batches fed so far,
            offers that wait, the offset that is committed.
    """

    def __init__(
        self, run_folder: Path | None, stage: str, read: Callable[[], tuple[Status, StageNumbers]]
    ) -> None:
        self.stage = stage
        self.read = read
        self.at = time.monotonic()
        self.rows = deque([(self.at, 0)])
        self.fed: dict[int, float] = {}
        self.latencies_s: list[float] = []
        self._copies: Any = None
        self._out: ThinnedLog | None = None
        if run_folder is not None:
            self._out = ThinnedLog(
                run_folder / STAGES_FILE,
                of=lambda line: line["stage"],
                lasting=lambda line: "copies" in line,
            )

    def fed_now(self, batch: int) -> None:
        """A batch has got its number."""
        if len(self.fed) < FED_MAX:
            self.fed[batch] = time.monotonic()

    def committed(self, offset: int) -> None:
        """The results of all batches below `offset` are where they belong."""
        now = time.monotonic()
        while self.fed and (batch := next(iter(self.fed))) < offset:
            self.latencies_s.append(now - self.fed.pop(batch))

    def due(self, *, anyway: bool = False) -> None:
        """Write a line if it is time."""
        now = time.monotonic()
        if self._out is None or (now - self.at < PERIOD_S and not anyway):
            return
        self.at = now
        now_s = round(time.time(), 3)
        self._out.append({"t": now_s, "stage": self.stage, **self._line(now)})

    def _rows_per_s(self, now: float, rows: int) -> float:
        """The mean of the last seconds."""
        self.rows.append((now, rows))
        while len(self.rows) > 2 and self.rows[1][0] <= now - RATE_S:
            self.rows.popleft()
        since, before = self.rows[0]
        return round((rows - before) / max(now - since, 1e-6), 1)

    def _line(self, now: float) -> dict[str, Any]:
        status, numbers = self.read()
        line = {
            "epoch": status.epoch,
            "whole": status.whole,
            "failures": status.failures,
            "losses": msgspec.to_builtins(status.losses),
            "rows": status.rows,
            "rows_per_s": self._rows_per_s(now, status.rows),
            "batches": numbers.batches,
            "under_way": status.under_way,
            "waiting": numbers.waiting,
            "committed": numbers.committed,
            "latency_ms": quantiles_ms(self.latencies_s),
        }
        self.latencies_s = []
        placed = msgspec.to_builtins([status.sites, status.copies])
        if placed != self._copies:  # these are long, and change rarely
            self._copies = placed
            line |= {"sites": placed[0], "copies": placed[1]}
        return line

    def close(self) -> None:
        """Write the last line."""
        self.due(anyway=True)


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    """Median, 95 %, 99 % and the most, in milliseconds; nothing of nothing.

    >>> quantiles_ms([0.001, 0.002, 0.003])
    {'p50': 2.0, 'p95': 3.0, 'p99': 3.0, 'max': 3.0}
    """
    if not seconds:
        return {}
    ordered = sorted(seconds)
    last = len(ordered) - 1
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[round(part * last)] * 1e3, 3) for name, part in places.items()}


PARTS_S: Final = 5.0
"""How often what every copy does goes into the run folder; it is long."""


class Reports:
    """Writes the reports that a leader has got.

    Args:
        run_folder: where they are written; None: nowhere.
        stage: what they call the stage.
    """

    def __init__(self, run_folder: Path | None, stage: str) -> None:
        self._stage = stage
        self._parts_at: dict[int, float] = {}
        self._out: ThinnedLog | None = None
        if run_folder is not None:
            self._out = ThinnedLog(run_folder / SITES_FILE, of=_place)

    def add(self, site: int, identity: str, report: Report) -> None:
        """A site has reported."""
        if self._out is None:
            return
        now_s = round(time.time(), 3)
        line = {"t": now_s, "stage": self._stage, "number": site, "site": identity}
        line |= msgspec.to_builtins(report)
        del line["c"]
        if time.monotonic() - self._parts_at.get(site, 0.0) < PARTS_S:
            line.pop("parts", None)
        else:
            self._parts_at[site] = time.monotonic()
        self._out.append(line)


def _place(line: Mapping[str, Any]) -> tuple[str, str]:
    """The stage and the place of a site, whose incarnations follow one another."""
    return line["stage"], line["site"].partition(".")[0]
