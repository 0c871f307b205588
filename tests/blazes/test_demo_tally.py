"""Counting different answers."""

from __future__ import annotations

from blazes.demo.outcome import tally

YES = frozenset({1, 2})


def test_equal_answers_count_as_one_output() -> None:
    found = tally([(YES, YES, YES)] * 4, right=YES)
    assert (found.outputs, found.requests, found.replicas_disagreed, found.wrong) == (1, 0, 0, 0)
    assert (found.runs, found.replicas) == (4, 3)


def test_replicas_that_agree_may_still_differ_from_run_to_run() -> None:
    found = tally([(YES, YES), (frozenset(), frozenset())], right=YES)
    assert found.replicas_disagreed == found.requests_by_replica == 0
    assert found.requests_by_run == found.requests == 2
    assert found.wrong == 4


def test_a_request_that_replicas_dispute_counts_once_however_often() -> None:
    found = tally([(YES, frozenset({1}))] * 3, right=YES)
    assert found.replicas_disagreed == 3
    assert found.requests_by_replica == found.requests == 1
    assert found.requests_by_run == 0


def test_answers_that_agree_can_all_be_wrong() -> None:
    found = tally([(frozenset({3}),) * 2], right=YES)
    assert found.outputs == 1
    assert found.wrong == 6
