"""What people are told about a gate: metrics, what is overdue, what a partition waits for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.partition import Partition, Status
from flux_runtime.sealing.tracker import Tracker

_VOTES_OF_MAX: Final = 10_000
"""Missing votes are counted over this many of the oldest open partitions."""


def waits_for(partition: Partition) -> list[str]:
    """What an open partition waits for, in words."""
    reasons = []
    for name, share in partition.shares.items():
        if share.producers is None:
            reasons.append(f"{name}: its producers are not known")
        for producer in share.producers or ():
            if producer in share.missing:
                reasons.append(f"{name}: no punctuation of {producer}")
            elif producer in share.votes and producer not in share.excused:
                promised, came = share.votes[producer].count, share.received.get(producer, 0)
                if promised != came:
                    reasons.append(f"{name}: {came} of {promised} records of {producer}")
    return reasons


def overdue(
    tracker: Tracker, now: float, timeout_s: float
) -> Iterator[tuple[KeyText, float, list[str]]]:
    """(partition, age in seconds, what it waits for) of those open longer than that (SE-8)."""
    for key, partition in tracker.partitions.items():
        age = now - partition.opened
        if age <= timeout_s:
            return
        if partition.status is Status.OPEN:
            yield key, age, waits_for(partition)


def metrics(tracker: Tracker, now: float) -> dict[str, Any]:
    """The gate's part of the run's metrics (specification 4)."""
    open_ = [p for p in tracker.partitions.values() if p.status is Status.OPEN]
    missing: dict[str, int] = {}
    for partition in itertools.islice(open_, _VOTES_OF_MAX):
        for share in partition.shares.values():
            for producer in share.missing:
                missing[producer] = missing.get(producer, 0) + 1
    quarantined = sum(p.status is Status.QUARANTINED for p in tracker.partitions.values())
    c = tracker.counters
    return {
        "open_partitions": len(tracker.partitions) - quarantined,
        "oldest_open_partition_s": round(now - open_[0].opened, 3) if open_ else 0.0,
        "quarantined_partitions": quarantined,
        "released_partitions": c.released,
        "late_records": c.late,
        "dead_letters": c.late + c.unknown + c.rejected,
        "waiting_requests": sum(
            sum(rows.values()) for wanted in tracker.wanted.values() for rows in wanted.values()
        ),
        "seal_wait_s": round(c.seal_wait_s, 3),
        "votes_missing": missing,
    }
