"""Invariants of a tracker between any two events; tests check them after every one."""

from __future__ import annotations

from typing import Final

from flux_runtime.sealing.events import Resolution
from flux_runtime.sealing.partition import Status
from flux_runtime.sealing.tracker import Registered, Tracker

_AS_THEY_ARE: Final = (Resolution.RELEASE, Resolution.DISCARD)


def validate(tracker: Tracker) -> None:
    """Raise AssertionError, with the rule, if the state contradicts the protocol."""
    _check_partitions(tracker)
    _check_references(tracker)
    _check_indexes(tracker)
    pending = set(tracker.pending.keys) if tracker.pending else set()
    releasing = {k for k, p in tracker.partitions.items() if p.status is Status.RELEASING}
    assert pending == releasing, f"SE-10: {pending ^ releasing} is in one of log and state only"
    both = {key for key in tracker.partitions if tracker.released.get(key) is not None}
    assert not both, f"SE-3: {both} is released and waiting"


def _check_partitions(tracker: Tracker) -> None:
    for key, partition in tracker.partitions.items():
        assert partition.shares.keys() == tracker.rules.inputs.keys(), key
        assert (partition.quarantine is not None) == (partition.status is Status.QUARANTINED), key
        if partition.status is Status.OPEN:
            assert not partition.complete, f"SE-3: {key} is complete and waits"
        elif (
            partition.status is not Status.QUARANTINED and partition.resolution not in _AS_THEY_ARE
        ):
            assert partition.complete, f"SE-4: {key} is {partition.status} and not complete"
        for name, share in partition.shares.items():
            members = set(share.producers) if share.producers is not None else None
            if members is not None:
                others = (share.received.keys() | share.votes.keys()) - members
                assert not others, f"SE-7: {key} of {name} took {others}"
            assert share.complete_by_counts in (None, share.complete), f"SE-1: {key} of {name}"
            assert share.batches == sorted(set(share.batches)), (key, name)
            assert all(rows > 0 for rows in share.received.values()), (key, name)
            assert all(0 < n < share.received[p] for p, n in share.repeats.items()), (key, name)
            if partition.status is Status.OPEN and members is not None:
                for producer, vote in share.votes.items():
                    known = not share.identified or producer in share.counts
                    if known and producer not in share.excused:
                        held = share.held(producer)
                        assert held <= vote.count, f"SE-6: {key} of {name}: {producer}"


def _check_indexes(tracker: Tracker) -> None:
    """Check that what is derived from the partitions is what they say."""

    def having(status: Status) -> set[str]:
        return {key for key, p in tracker.partitions.items() if p.status is status}

    assert set(tracker.sealed) == having(Status.SEALED)
    assert set(tracker.quarantined) == having(Status.QUARANTINED)
    counting = {
        key
        for key, p in tracker.partitions.items()
        if p.status is Status.OPEN and any(p.to_count())
    }
    assert set(tracker.counting) == counting
    for name, rule in tracker.rules.inputs.items():
        unknown = {key for key, p in tracker.partitions.items() if p.shares[name].producers is None}
        if isinstance(rule, Registered):
            assert set(tracker.unknown_sets.get(name, {})) == unknown


def _check_references(tracker: Tracker) -> None:
    """SE-9: a chunk is kept exactly as long as somebody needs it."""
    expected: dict[str, dict[int, int]] = {}

    def need(name: str, batches: list[int]) -> None:
        for batch in batches:
            of_input = expected.setdefault(name, {})
            of_input[batch] = of_input.get(batch, 0) + 1

    for partition in tracker.partitions.values():
        for name, share in partition.shares.items():
            need(name, share.batches)
    if tracker.rules.requests:
        for was in tracker.released.values():
            for name, batches in was.batches.items():
                need(name, batches)
    for name, wanted in tracker.wanted.items():
        for rows in wanted.values():
            need(name, list(rows))
    actual = {name: of_input for name, of_input in tracker.references.items() if of_input}
    assert actual == expected, f"SE-9: chunks {actual} are kept, {expected} are needed"
    for name, of_input in actual.items():
        assert tracker.chunks[name].keys() == of_input.keys(), f"SE-9: chunks of {name}"
        for number, needed in of_input.items():
            if name in tracker.rules.inputs:
                assert needed <= tracker.chunks[name][number].keys, (name, number)
