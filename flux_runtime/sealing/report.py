"""The report on a gate for people: metrics, what is overdue, what a partition waits for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.partition import Partition, Status
from flux_runtime.sealing.tracker import Tracker

_VOTES_OF_MAX: Final = 10_000
"""Missing votes are counted over this many of the oldest open partitions."""


def waits_for(partition: Partition) -> list[str]:
    """The reasons why an open partition waits, in words."""
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
    tracker: Tracker, now: float, timeout_s: float, warned: dict[KeyText, None]
) -> Iterator[tuple[KeyText, float, list[str]]]:
    """(partition, age in seconds, what it waits for) of those open longer than that (SE-8).

    Args:
        tracker: whose partitions.
        now: seconds since the epoch.
        timeout_s: the age.
        warned: those that have been named before; it is brought up to date.
    """
    for key in [key for key in warned if key not in tracker.partitions]:
        del warned[key]
    for key, partition in tracker.partitions.items():
        age = now - partition.opened
        if age <= timeout_s:
            return
        if partition.status is Status.OPEN and key not in warned:
            warned[key] = None
            yield key, age, waits_for(partition)


def votes_missing(tracker: Tracker) -> dict[str, int]:
    """Producer -> how many of the oldest open partitions wait for its punctuation."""
    missing: Counter[str] = Counter()
    silent: Counter[tuple[str, ...]] = Counter()
    """Producer sets of which nobody has voted: most partitions are like that."""
    for partition in itertools.islice(tracker.partitions.values(), _VOTES_OF_MAX):
        if partition.status is Status.OPEN:
            for share in partition.shares.values():
                if share.votes or share.excused:
                    missing.update(share.missing)
                else:
                    silent[share.producers or ()] += 1
    for producers, partitions in silent.items():
        missing.update(dict.fromkeys(producers, partitions))
    return dict(missing)


def oldest_open(tracker: Tracker) -> tuple[KeyText, Partition] | None:
    """The partition that has been open for the longest time; not one in quarantine."""
    for key, partition in tracker.partitions.items():
        if partition.status is not Status.QUARANTINED:
            return key, partition
    return None


def metrics(tracker: Tracker, now: float) -> dict[str, Any]:
    """The gate's part of the run's metrics (specification 4); cheap however much is open."""
    oldest = oldest_open(tracker)
    counters = tracker.counters
    return {
        "open_partitions": len(tracker.partitions) - len(tracker.quarantined),
        "oldest_open_partition_s": round(now - oldest[1].opened, 3) if oldest else 0.0,
        "quarantined_partitions": len(tracker.quarantined),
        "released_partitions": counters.released,
        "late_records": counters.late,
        "repeated_records": counters.repeats,
        "dead_letters": (counters.late + counters.unknown + counters.rejected + counters.discarded),
        "waiting_requests": sum(
            sum(rows.values()) for wanted in tracker.wanted.values() for rows in wanted.values()
        ),
        "seal_wait_s": round(counters.seal_wait_s, 3),
    }
