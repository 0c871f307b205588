"""How long batches take from the ingress to the collector, as a histogram.

The leader asks the sites with the collector to say when they have passed a batch that it has just
fed, some twenty times a second. Both moments are read from the leader's clock, so that the clocks
of machines need not agree; the answer's way back is part of the result.
"""

from __future__ import annotations

from typing import Final

from flux_runtime.site.control_messages import LatencyStatus

LEAST_S: Final = 1e-4
BUCKETS: Final = 24
BOUNDS_S: Final[tuple[float, ...]] = tuple(LEAST_S * 2**k for k in range(BUCKETS))
"""Upper bounds of the buckets, 0.1 ms to 14 min; what is longer is counted in the last."""
SAMPLE_S: Final = 0.05
ASKED_MAX: Final = 256


class Latency:
    """Samples of one term of leading.

    Attributes:
        counts: batches per bucket.
        asked: batch -> when it was fed, of those that have not arrived.
    """

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.asked: dict[int, float] = {}
        self.newest = -1
        self.sampled_at = 0.0

    def fed(self, batch: int, now: float) -> bool:
        """Batches up to this one have been fed; gives whether to watch for it."""
        due = now - self.sampled_at >= SAMPLE_S and len(self.asked) < ASKED_MAX
        if batch <= self.newest or not due:
            return False
        self.newest = batch
        self.sampled_at = now
        self.asked[batch] = now
        return True

    def reached(self, batch: int, now: float) -> None:
        """A copy of the collector has passed this batch; the first to do so counts."""
        began = self.asked.pop(batch, None)
        if began is not None:
            took = now - began
            at = sum(bound < took for bound in BOUNDS_S)
            self.counts[min(at, BUCKETS - 1)] += 1

    def quantile(self, q: float) -> float | None:
        """The upper bound of the bucket with this quantile, in seconds; None without samples."""
        wanted = q * sum(self.counts)
        seen = 0
        for bound, count in zip(BOUNDS_S, self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return None

    def summary(self) -> LatencyStatus:
        """As in the status."""
        p50_s, p99_s = self.quantile(0.5), self.quantile(0.99)
        return LatencyStatus(BOUNDS_S, tuple(self.counts), p50_s, p99_s)
