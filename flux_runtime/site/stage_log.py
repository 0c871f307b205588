"""What the leader writes of a Flux stage while it runs: one JSON line about twice a second.

`flux_runtime.observe.stages` reads it, together with what the sites report of themselves
(`sites.jsonl`) and the events. Latency is from the moment when a batch is given its number to the
moment when a reader commits its results.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flux_runtime.observe.run_folder import STAGES_FILE
from flux_runtime.observe.thinned import ThinnedLog
from flux_runtime.protocol.vocabulary import END

if TYPE_CHECKING:
    from flux_runtime.site.leader import Leader

PERIOD_S: Final = 0.5
FED_MAX: Final = 100_000
"""Batches without a commit whose times are kept."""


class StageLog:
    """Writes what a leader knows."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.at = time.monotonic()
        self.rows = 0
        self.batches = 0
        self.fed: dict[int, float] = {}
        self.latencies_s: list[float] = []
        self._copies: Any = None
        self._out: ThinnedLog | None = None
        if leader.config.run_folder is not None:
            self._out = ThinnedLog(
                leader.config.run_folder / STAGES_FILE,
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
        took, self.at = max(now - self.at, 1e-6), now
        now_s = round(time.time(), 3)
        self._out.append({"t": now_s, "stage": self.leader.config.called, **self._line(took)})

    def _line(self, took: float) -> dict[str, Any]:
        leader = self.leader
        status = leader.status()
        before, self.rows = self.rows, status.rows
        if leader.began and leader.intake.ingress.last < END:
            self.batches = leader.intake.ingress.last + 1
        line = {
            "epoch": status.epoch,
            "whole": status.whole,
            "failures": status.failures,
            "losses": msgspec.to_builtins(status.losses),
            "rows": self.rows,
            "rows_per_s": round((self.rows - before) / took, 1),
            "batches": self.batches,
            "under_way": status.under_way,
            "waiting": len(leader.intake.waiting),
            "committed": leader.committed,
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
