"""One short story for each rule of the seal protocol; no Spark, no clock."""

from __future__ import annotations

import pytest

from flux_runtime.sealing.events import (
    Digested,
    Excused,
    Found,
    Group,
    Ingested,
    Outsider,
    Quarantined,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Sealed,
    Unneeded,
)
from flux_runtime.sealing.invariants import validate
from flux_runtime.sealing.journal import Journal
from flux_runtime.sealing.report import metrics, overdue
from flux_runtime.sealing.snapshot import tracker_to_json
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.sealing.tracker import All, One, Registered, Rules, Tracker, Verdict

AB = All(("a", "b"))


class Story:
    """A tracker, and short names for what happens to it."""

    def __init__(self, **rules: object) -> None:
        rules.setdefault("inputs", {"x": AB})
        self.tracker = Tracker(Rules(**rules))
        self.batch = -1

    def tell(self, event: object) -> list:
        findings = self.tracker.handle(event)
        validate(self.tracker)
        return findings

    def came(self, *groups: tuple, input: str = "x", time: float = 0.0) -> list:
        """(key, producer, rows) for data, (key, producer, None, count[, digest]) for votes."""
        self.batch += 1
        made = tuple(
            Group(g[0], g[1], None, None, g[2])
            if g[2] is not None
            else Group(g[0], g[1], g[3], g[4] if len(g) > 4 else None, 1)
            for g in groups
        )
        return self.tell(Ingested(input, self.batch, time, made))

    def release(self, time: float = 0.0) -> list:
        release = self.tracker.next_release()
        assert release is not None
        self.tell(ReleaseStarted(release, time))
        return self.tell(ReleaseFinished(release.number, time))


def vote(key: str, producer: str, count: int, digest: str | None = None) -> tuple:
    return (key, producer, None, count, digest)


def test_se_1_every_producer_has_voted_and_the_counts_agree() -> None:
    story = Story()
    assert story.came(("k", "a", 2), vote("k", "a", 2)) == []
    assert story.came(vote("k", "b", 1)) == [], "b's record is still on its way"
    assert story.came(("k", "b", 1)) == [Sealed("k")]


def test_se_1_a_partition_is_complete_in_every_input() -> None:
    story = Story(inputs={"x": All(("a",)), "y": All(("c",))})
    assert story.came(("k", "a", 1), vote("k", "a", 1)) == []
    assert story.came(vote("k", "c", 0), input="y") == [Sealed("k")]


def test_se_2_one_producer_needs_no_vote() -> None:
    story = Story(inputs={"x": One()})
    assert story.came(("k", "a", 1), vote("k", "a", 1)) == [Sealed("k")]


def test_se_2_of_two_new_producers_the_one_who_punctuates_is_the_one() -> None:
    story = Story(inputs={"x": One()})
    assert story.came(("k", "a", 1), ("k", "b", 1), vote("k", "b", 1)) == [Sealed("k")]
    assert story.tracker.counters.unknown == 1


def test_se_3_a_partition_is_released_once() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    release = story.tracker.next_release()
    assert (release.number, release.keys, release.chunks) == (1, ("k",), {"x": (0,)})
    assert story.release() == [Unneeded("x", 0)]
    assert story.tracker.next_release() is None


def test_se_4_an_incomplete_partition_cannot_be_released() -> None:
    story = Story()
    story.came(("k", "a", 1), ("q", "a", 1), vote("q", "a", 1), vote("q", "b", 0))
    release = story.tracker.next_release()
    assert release.keys == ("q",)
    with pytest.raises(ValueError, match="not complete"):
        story.tracker.handle(ReleaseStarted(type(release)(1, ("k",), ("k",), {"x": (0,)}), 0.0))


def test_se_5_after_completion_everything_is_late() -> None:
    story = Story()
    story.came(vote("k", "a", 0), vote("k", "b", 0))
    late = Ingested("x", 1, 0.0, (Group("k", "a", None, None, 1), Group("k", "c", None, None, 1)))
    assert [v for _, v in story.tracker.assess(late)] == [Verdict.LATE, Verdict.LATE]
    story.release()
    assert [v for _, v in story.tracker.assess(late)] == [Verdict.LATE, Verdict.LATE]
    story.tell(late)
    assert story.tracker.counters.late == 2
    assert story.tracker.partitions == {}


def test_se_6_more_than_promised() -> None:
    story = Story()
    (found,) = story.came(("k", "a", 2), vote("k", "a", 1))
    assert found == Quarantined("k", "x", "a", "more records than promised", "1", "2")
    story.came(vote("k", "b", 0))
    assert story.tracker.next_release() is None


def test_se_6_a_second_punctuation_that_differs() -> None:
    story = Story()
    story.came(vote("k", "a", 1))
    assert story.came(vote("k", "a", 1)) == [], "an equal one is ignored"
    (found,) = story.came(vote("k", "a", 2))
    assert (found.promised, found.found) == ("1 records", "2 records")


def test_se_6_an_equal_punctuation_of_a_released_partition_is_ignored() -> None:
    story = Story()
    story.came(vote("k", "a", 0), vote("k", "b", 0))
    story.release()
    story.came(vote("k", "a", 0))
    assert story.tracker.counters.late == 0
    story.came(vote("k", "a", 1))
    assert story.tracker.counters.late == 1


def test_se_6_a_digest_that_differs() -> None:
    story = Story(inputs={"x": All(("a",))})
    assert story.came(("k", "a", 1), vote("k", "a", 1, "17")) == []
    assert story.tracker.digests_due() == [("x", "k", ("a",), (0,))]
    (found,) = story.tell(Digested("x", "k", 0.0, {"a": "18"}))
    assert (found.why, found.promised, found.found) == ("another digest than promised", "17", "18")


def test_se_1_a_digest_that_agrees() -> None:
    story = Story(inputs={"x": AB})
    story.came(("k", "a", 1), vote("k", "a", 1, "17"))
    assert story.tracker.digests_due() == [], "the vote is not complete yet"
    story.came(vote("k", "b", 0))
    assert story.tell(Digested("x", "k", 0.0, {"a": "17"})) == [Sealed("k")]


def test_se_7_a_producer_outside_the_set_does_not_block() -> None:
    story = Story()
    assert story.came(("k", "c", 5), vote("k", "c", 9), vote("k", "a", 0), vote("k", "b", 0)) == [
        Sealed("k")
    ]
    assert story.tracker.counters.unknown == 6


def test_se_7_outsiders_are_found_when_the_set_becomes_known() -> None:
    story = Story(inputs={"x": Registered()})
    story.came(("k", "a", 1), ("k", "c", 2), vote("k", "c", 1), vote("k", "a", 1))
    assert story.tracker.lookups_due() == {"x": ["k"]}
    assert story.tell(Found("x", 0.0, {"k": ("a",)})) == [Outsider("k", "x", "c", 2), Sealed("k")]
    assert story.tracker.next_release().excluded == {"x": (("k", "c"),)}


def test_se_7_the_set_is_frozen_at_the_first_look_up() -> None:
    story = Story(inputs={"x": Registered()})
    story.tell(Found("x", 0.0, {"k": ("a",)}))
    story.tell(Found("x", 0.0, {"k": ("a", "b")}))
    assert story.came(vote("k", "a", 0)) == [Sealed("k")]


def test_se_8_an_open_partition_is_reported_by_age_and_what_it_waits_for() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "a", 2), time=10.0)
    assert list(overdue(story.tracker, 19.0, 10.0)) == []
    assert list(overdue(story.tracker, 21.0, 10.0)) == [
        ("k", 11.0, ["x: 1 of 2 records of a", "x: no punctuation of b"])
    ]
    now = metrics(story.tracker, 21.0)
    assert (now["oldest_open_partition_s"], now["votes_missing"]) == (11.0, {"b": 1})


def test_se_8_an_excused_producer_is_not_waited_for() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "a", 1), ("k", "b", 1))
    assert story.tell(Excused("x", "k", "b", "disk lost", "ann", 0.0)) == [Sealed("k")]


def test_se_9_the_oldest_released_partitions_are_forgotten() -> None:
    story = Story(remember=1)
    for key in ("k", "q"):
        story.came(vote(key, "a", 0), vote(key, "b", 0))
        story.release()
    assert list(story.tracker.released) == ["q"]
    story.came(("k", "a", 1))
    assert list(story.tracker.partitions) == ["k"], "it waits, and is seen by its age"


def test_se_9_a_partition_is_remembered_while_its_records_are_in_somebodys_chunk() -> None:
    story = Story(remember=0)
    story.came(("k", "a", 1), ("q", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    assert story.release() == [], "q's record is in the same chunk"
    assert list(story.tracker.released) == ["k"]
    story.came(vote("q", "a", 1), vote("q", "b", 0))
    assert story.release() == [Unneeded("x", 0)]
    assert list(story.tracker.released) == []


def test_se_10_a_replayed_micro_batch_changes_nothing() -> None:
    story = Story()
    batch = Ingested("x", 0, 0.0, (Group("k", "a", None, None, 1),))
    story.tell(batch)
    before = tracker_to_json(story.tracker)
    assert story.tell(batch) == []
    assert tracker_to_json(story.tracker) == before


def test_se_10_an_unfinished_release_is_done_again_under_its_number() -> None:
    story = Story()
    story.came(vote("k", "a", 0), vote("k", "b", 0))
    release = story.tracker.next_release()
    story.tell(ReleaseStarted(release, 0.0))
    story.came(vote("q", "a", 0), vote("q", "b", 0))
    assert story.tracker.next_release() is release
    story.tell(ReleaseFinished(1, 0.0))
    assert (story.tracker.next_release().number, story.tracker.next_release().keys) == (2, ("q",))


def test_se_12_requests_wait_and_are_answered_once() -> None:
    story = Story(requests=("ask",))
    story.tell(Requested("ask", 0, 0.0, {"k": 2, "q": 1}))
    assert story.tracker.next_release() is None
    story.came(("k", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    release = story.tracker.next_release()
    assert (release.keys, release.process, release.answers) == (
        ("k",),
        ("k",),
        {"ask": {"k": (0,)}},
    )
    assert story.release() == [], "q's request is still there, and so is k for later requests"
    assert story.tracker.next_release() is None
    story.tell(Requested("ask", 1, 0.0, {"k": 1}))
    again = story.tracker.next_release()
    assert (again.keys, again.process, again.chunks) == ((), ("k",), {"x": (0,)})
    assert story.release() == [Unneeded("ask", 1)]


def test_se_12_a_partition_nobody_asks_for_needs_no_work() -> None:
    story = Story(requests=("ask",))
    story.came(("k", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    release = story.tracker.next_release()
    assert (release.keys, release.process, release.chunks) == (("k",), (), {})


@pytest.mark.parametrize("snapshot_every", [1, 2, 100])
def test_the_journal_gives_the_tracker_back(tmp_path, snapshot_every: int) -> None:
    """SE-10: at every event, and with entries that a snapshot has made superfluous."""
    rules = Rules(inputs={"x": AB})
    events = [
        Ingested("x", 0, 1.0, (Group("k", "a", None, None, 1), Group("k", "a", 1, "5", 1))),
        Ingested("x", 1, 2.0, (Group("k", "b", 0, None, 1),)),
        Digested("x", "k", 3.0, {"a": "5"}),
        Excused("x", "q", "b", "why", "who", 4.0),
        Found("x", 5.0, {"z": ("a",)}),
    ]
    storage = LocalStorage(tmp_path)
    for event in events:
        journal = Journal(storage, rules, snapshot_every=snapshot_every)
        journal.record(event)
        again = Journal(storage, rules, snapshot_every=snapshot_every)
        assert tracker_to_json(again.tracker) == tracker_to_json(journal.tracker)
    journal = Journal(storage, rules)
    release = journal.tracker.next_release()
    journal.record(ReleaseStarted(release, 6.0))
    assert Journal(storage, rules).tracker.pending == release
    journal.record(ReleaseFinished(1, 7.0))
    journal.snapshot()
    assert storage.names() == ["snapshot-000000000007.json"]
    assert tracker_to_json(Journal(storage, rules).tracker) == tracker_to_json(journal.tracker)
