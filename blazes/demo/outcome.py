"""The outcome of the anomalies demonstration: how many different answers, and one example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from blazes.demo.ads import Size

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


@dataclass(frozen=True, slots=True)
class Witness:
    """What one replica had seen when it answered a request."""

    replica: int
    """From 1."""
    batch: int
    """The micro-batch that brought the request, from 1."""
    batches: int
    clicks: int
    """On the request's ad, up to and with that micro-batch."""
    poor: bool


@dataclass(frozen=True, slots=True)
class Dispute:
    """A request that the replicas of one run answered differently."""

    run: int
    """From 1."""
    request: Mapping[str, Any]
    clicks: int
    """On the request's ad, in all."""
    right: bool
    """What complete data would have said."""
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that the demonstration prints."""

    seed: int
    size: Size
    runs: int
    replicas: int
    poor: int
    """How many requests are about an ad that performed poorly, by complete data."""
    ways: Mapping[str, Tally]
    """`uncoordinated`, `ordered`, `sealed` -> what was counted."""
    verdicts: Mapping[str, str]
    """Way -> the label that the analysis derives for the answers."""
    example: Dispute | None
    """None where no two replicas of a run disagreed."""
    note: str
    """What is not as it would be in a compiled job."""
    engine: str
    seconds: float


def tally(runs: Iterable[Run], *, right: Answers) -> Tally:
    """Count the different answers; `right` are those that complete data give.

    >>> counted = tally([(frozenset({1}), frozenset({1, 2}))], right=frozenset({1}))
    >>> counted.outputs, counted.requests_by_replica, counted.requests_by_run, counted.wrong
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
    given = list(answers)
    if not given:
        return frozenset()
    return frozenset.union(*given) - frozenset.intersection(*given)
