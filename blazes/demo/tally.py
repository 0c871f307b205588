"""Counting the different answers that replicas gave, within runs and across them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Answers: TypeAlias = frozenset[int]
"""The requests that a replica answered with "poor"; it told the others nothing."""
Run: TypeAlias = tuple[Answers, ...]
"""The answers of each replica in one run."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many different answers one way of coordination gave; the ideal is 1 and 0 throughout."""

    runs: int
    replicas: int
    outputs: int
    """Different sets of answers, over all replicas of all runs."""
    replicas_disagreed: int
    """Runs in which two replicas gave different answers (anomaly Inst)."""
    requests_by_replica: int
    """Requests that two replicas answered differently in one run (Inst)."""
    requests_by_run: int
    """Requests that the first replica answered differently in two runs (anomaly Run)."""
    requests: int
    """Requests that were answered differently anywhere."""
    wrong: int
    """Answers, over all replicas of all runs, that complete data would not have given."""


def tally(runs: Iterable[Run], *, right: Answers) -> Tally:
    """Count the different answers; `right` are those that complete data give.

    >>> found = tally([(frozenset({1}), frozenset({1, 2}))], right=frozenset({1}))
    >>> found.outputs, found.requests_by_replica, found.requests_by_run, found.wrong
    (2, 1, 0, 1)
    """
    given = list(runs)
    everything = [answers for run in given for answers in run]
    disputed = [contested(run) for run in given]
    return Tally(
        runs=len(given),
        replicas=max(map(len, given), default=0),
        outputs=len(set(everything)),
        replicas_disagreed=sum(map(bool, disputed)),
        requests_by_replica=len(frozenset().union(*disputed)),
        requests_by_run=len(contested(run[0] for run in given)),
        requests=len(contested(everything)),
        wrong=sum(len(answers ^ right) for answers in everything),
    )


def contested(answers: Iterable[Answers]) -> Answers:
    """The requests that some answered with "poor" and some did not."""
    each = list(answers)
    if not each:
        return frozenset()
    return frozenset.union(*each) - frozenset.intersection(*each)
