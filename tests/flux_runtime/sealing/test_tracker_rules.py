"""One short story for each rule of the seal protocol; no Spark, no clock."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from seal_world import covered, state_of

from flux_lab.seal_invariants import validate
from flux_runtime.sealing.events import (
    Chunk,
    Compacted,
    Count,
    Counted,
    Coverage,
    Excused,
    Forgotten,
    Found,
    Group,
    Groups,
    Ingested,
    Outsider,
    Quarantined,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Resolution,
    Resolved,
    Sealed,
    Unneeded,
)
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.report import metrics, overdue, votes_missing
from flux_runtime.sealing.tracker import All, One, Registered, Rules, Tracker, Verdict

AB = All(("a", "b"))


class Story:
    """A tracker, and short names for what happens to it."""

    def __init__(self, **rules: object) -> None:
        rules.setdefault("inputs", {"x": AB})
        self.tracker = Tracker(Rules(**rules))
        self.batches: dict[str, int] = {}

    def tell(self, event: object) -> list:
        findings = self.tracker.handle(event)
        validate(self.tracker)
        return findings

    def came(self, *groups: tuple, input: str = "x", time: float = 0.0) -> list:
        """(key, producer, rows) for data, (key, producer, None, count[, digest]) for votes."""
        number = self.batches[input] = self.batches.get(input, -1) + 1
        made = tuple(
            Group(g[0], g[1], None, None, g[2])
            if g[2] is not None
            else Group(g[0], g[1], g[3], g[4] if len(g) > 4 else None, 1)
            for g in groups
        )
        findings = self.tell(self.batch(input, number, made, time))
        return [found for found in findings if found != Unneeded(input, number)]

    @staticmethod
    def batch(input: str, number: int, groups: tuple[Group, ...], time: float = 0.0) -> Ingested:
        keys = len({group.key for group in groups if group.promised is None})
        rows = sum(group.rows for group in groups if group.promised is None)
        chunk = Chunk("records", rows, keys, 0, {"part": (rows, 0)})
        return Ingested(input, number, time, Groups.of(groups), 0, covered(number), chunk)

    def asked(self, number: int, keys: dict[str, int]) -> list:
        return self.tell(Requested("ask", number, 0.0, keys, 0, covered(number), Chunk()))

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
    assert (release.number, release.keys) == (1, ("k",))
    assert story.tracker.reading("x", release.keys).keys == {0: ("k",)}
    assert story.release() == [Unneeded("x", 0)]
    assert story.tracker.next_release() is None


def test_se_4_an_incomplete_partition_cannot_be_released() -> None:
    story = Story()
    story.came(("k", "a", 1), ("q", "a", 1), vote("q", "a", 1), vote("q", "b", 0))
    release = story.tracker.next_release()
    assert release.keys == ("q",)
    with pytest.raises(ValueError, match="not complete"):
        story.tracker.handle(ReleaseStarted(type(release)(1, ("k",), ("k",)), 0.0))


def test_se_5_after_completion_everything_is_late() -> None:
    story = Story()
    story.came(vote("k", "a", 0), vote("k", "b", 0))
    groups = (Group("k", "a", None, None, 1), Group("k", "c", None, None, 1))
    late = story.batch("x", 1, groups)
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
    assert story.tracker.counts_due() == {"x": {"k": ("a",)}}
    (found,) = story.tell(Counted("x", "k", 0.0, {"a": Count(1, 1, "18")}))
    assert (found.why, found.promised, found.found) == ("another digest than promised", "17", "18")


def test_se_1_a_digest_that_agrees() -> None:
    story = Story(inputs={"x": AB})
    story.came(("k", "a", 1), vote("k", "a", 1, "17"))
    assert story.tracker.counts_due() == {}, "the vote is not complete yet"
    story.came(vote("k", "b", 0))
    assert story.tell(Counted("x", "k", 0.0, {"a": Count(1, 1, "17")})) == [Sealed("k")]


def test_d6_repeats_of_known_ids_do_not_count() -> None:
    story = Story(inputs={"x": All(("a",))}, identified=frozenset({"x"}))
    assert story.came(("k", "a", 2), vote("k", "a", 2)) == [], "it may be one record, twice"
    assert story.tracker.counts_due() == {"x": {"k": ("a",)}}
    assert story.tell(Counted("x", "k", 0.0, {"a": Count(2, 1)})) == []
    assert story.tracker.counts_due() == {}, "it waits for the second record"
    assert story.came(("k", "a", 1)) == []
    assert story.tell(Counted("x", "k", 0.0, {"a": Count(2, 1)})) == [], "of before: no account"
    assert story.tell(Counted("x", "k", 0.0, {"a": Count(3, 2)})) == [Sealed("k")]
    story.release()
    assert story.tracker.counters.repeats == 1


def test_d6_more_ids_than_promised_are_a_contradiction() -> None:
    story = Story(inputs={"x": All(("a",))}, identified=frozenset({"x"}))
    story.came(("k", "a", 3), vote("k", "a", 1))
    (found,) = story.tell(Counted("x", "k", 0.0, {"a": Count(3, 2)}))
    assert (found.why, found.promised, found.found) == ("more records than promised", "1", "2")


def test_d6_different_records_with_one_id_are_a_contradiction() -> None:
    story = Story(inputs={"x": All(("a",))}, identified=frozenset({"x"}))
    story.came(("k", "a", 2), vote("k", "a", 1))
    (found,) = story.tell(Counted("x", "k", 0.0, {"a": Count(2, 1, conflicts=1)}))
    assert found.why == "ids that several different records have"


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
    assert story.tracker.reading("x", ["k"]).excluded == (("k", "c"),)


def test_se_7_a_strangers_records_are_left_out_of_a_chunk_that_members_share() -> None:
    story = Story()
    story.came(("k", "a", 1), ("k", "c", 5), ("q", "c", 1))
    story.came(vote("k", "a", 1), vote("k", "b", 0), ("k", "c", 2))
    reading = story.tracker.reading("x", story.tracker.next_release().keys)
    assert (reading.keys, reading.excluded, reading.whole) == (
        {0: ("k",)},
        (("k", "c"),),
        frozenset(),
    )


def test_se_7_the_set_is_frozen_at_the_first_look_up() -> None:
    story = Story(inputs={"x": Registered()})
    story.tell(Found("x", 0.0, {"k": ("a",)}))
    story.tell(Found("x", 0.0, {"k": ("a", "b")}))
    assert story.came(vote("k", "a", 0)) == [Sealed("k")]


def test_se_8_an_open_partition_is_reported_by_age_and_what_it_waits_for() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "a", 2), time=10.0)
    warned: dict[str, None] = {}
    assert list(overdue(story.tracker, 19.0, 10.0, warned)) == []
    assert list(overdue(story.tracker, 21.0, 10.0, warned)) == [
        ("k", 11.0, ["x: 1 of 2 records of a", "x: no punctuation of b"])
    ]
    assert list(overdue(story.tracker, 22.0, 10.0, warned)) == [], "once is enough"
    assert metrics(story.tracker, 21.0)["oldest_open_partition_s"] == 11.0
    assert votes_missing(story.tracker) == {"b": 1}


def test_se_8_an_excused_producer_is_not_waited_for() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "a", 1), ("k", "b", 1))
    assert story.tell(Excused("x", "k", "b", "disk lost", "ann", 0.0)) == [Sealed("k")]


def test_se_9_a_released_partition_that_is_forgotten_opens_anew() -> None:
    story = Story()
    story.came(("k", "a", 1), ("q", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    story.release()
    story.tell(Forgotten(("k",)))
    story.came(("k", "a", 1), vote("q", "a", 1), vote("q", "b", 0))
    assert list(story.tracker.partitions) == ["q", "k"], "it waits, and is seen by its age"
    reading = story.tracker.reading("x", ["k", "q"])
    assert reading.keys == {0: ("q",), 1: ("k",)}, "k's first record, in chunk 0, is not read again"


def test_se_9_a_compacted_chunk_may_hold_nothing_of_a_partition_that_needed_it() -> None:
    story = Story(inputs={"x": Registered()})
    story.came(("stuck", "a", 1), ("k", "stranger", 1))
    story.tell(Found("x", 0.0, {"k": ("a",), "stuck": ("a",)}))
    chunk = Chunk("records", 1, 1, 0, {"part": (1, 0)})
    story.tell(Compacted("x", (0,), -1, chunk))
    assert story.came(("k", "a", 1), vote("k", "a", 1)) == [Sealed("k")]
    reading = story.tracker.reading("x", story.tracker.next_release().process)
    assert reading.keys == {-1: ("k",), 1: ("k",)}
    assert reading.whole == {1}, "what is in chunk -1 belongs to the stuck partition"


def test_se_9_a_stuck_partition_keeps_its_own_records_only() -> None:
    story = Story()
    done = [vote(key, p, n) for key in ("k", "q") for p, n in (("a", 1), ("b", 0))]
    story.came(("k", "a", 1), ("q", "a", 1), ("stuck", "a", 1), *done)
    story.release()
    assert story.tracker.sparse("x", 0.5) == (0,)
    assert story.tracker.needing("x", (0,)).keys == {0: ("stuck",)}
    chunk = Chunk("records", 1, 1, 0, {"part": (1, 0)})
    assert story.tell(Compacted("x", (0,), -1, chunk)) == [Unneeded("x", 0)]
    assert story.tracker.sparse("x", 0.5) == ()
    story.came(vote("stuck", "a", 1), vote("stuck", "b", 0))
    reading = story.tracker.reading("x", story.tracker.next_release().keys)
    assert (reading.keys, reading.whole) == ({-1: ("stuck",)}, {-1})
    assert story.release() == [Unneeded("x", -1)]


def test_se_9_a_partition_that_is_stuck_for_ever_has_few_chunks() -> None:
    """It gets a record in every micro-batch, which is written anew as often as rows have digits."""
    story, least, batches = Story(), 8, 600
    most = written = 0
    for batch in range(batches):
        others = [f"k {batch} {number}" for number in range(4)]
        votes = [vote(key, p, n) for key in others for p, n in (("a", 1), ("b", 0))]
        story.came(("stuck", "a", 1), *((key, "a", 1) for key in others), *votes)
        story.release()
        tracker = story.tracker
        while due := tracker.to_merge("x", 0.25, least):
            chunks = tracker.chunks["x"]
            rows = sum(1 if number >= 0 else chunks[number].rows for number in due[0])
            chunk = Chunk("records", rows, 1, 0, {"part": (1, 0)})
            story.tell(Compacted("x", due[0], -1 - tracker.compactions, chunk))
            written += rows
        most = max(most, len(tracker.chunks["x"]))
    assert most < 4 * least
    assert batches <= written <= 4 * batches


def quarantined() -> Story:
    story = Story()
    story.came(("k", "a", 2), vote("k", "a", 1), vote("k", "b", 0))
    assert list(story.tracker.quarantined) == ["k"]
    return story


def test_se_6_a_person_releases_a_quarantined_partition_as_it_is() -> None:
    story = quarantined()
    assert story.tell(Resolved("k", Resolution.RELEASE, "checked", "ann", 0.0)) == [Sealed("k")]
    assert story.tracker.next_release().process == ("k",)
    story.release()
    assert story.tracker.counters.late == 0


def test_se_6_a_person_discards_a_quarantined_partition() -> None:
    story = quarantined()
    assert story.tell(Resolved("k", Resolution.DISCARD, "garbage", "ann", 0.0)) == [Sealed("k")]
    release = story.tracker.next_release()
    assert (release.keys, release.process, release.discarded) == (("k",), (), ("k",))
    assert story.release() == [Unneeded("x", 0)]
    assert story.tracker.counters.discarded == 2
    story.came(("k", "a", 1))
    assert story.tracker.counters.late == 1, "what comes later is late"


def test_se_6_a_recount_takes_the_newest_punctuation() -> None:
    story = Story()
    story.came(("k", "a", 2), vote("k", "b", 0), vote("k", "a", 3))
    story.came(vote("k", "a", 2))
    assert list(story.tracker.quarantined) == ["k"]
    assert story.tell(Resolved("k", Resolution.RECOUNT, "a said so", "ann", 0.0)) == [Sealed("k")]


def test_se_6_the_first_punctuation_may_be_the_newest_again() -> None:
    story = Story()
    story.came(("k", "a", 1), vote("k", "b", 0), vote("k", "a", 2))
    story.came(vote("k", "a", 3))
    story.came(("k", "a", 1), vote("k", "a", 2))
    assert story.tell(Resolved("k", Resolution.RECOUNT, "a said so", "ann", 0.0)) == [Sealed("k")]


@pytest.mark.parametrize("first", [2, 3])
def test_se_6_a_micro_batch_has_no_order_in_which_a_punctuation_could_be_the_newest(
    first: int,
) -> None:
    story = Story()
    story.came(("k", "a", 2), vote("k", "b", 0), vote("k", "a", first), vote("k", "a", 5 - first))
    (found,) = story.tell(Resolved("k", Resolution.RECOUNT, "try", "ann", 0.0))
    assert isinstance(found, Quarantined), "neither open for ever nor released by chance"
    assert "none of them is the newest" in found.why
    story.came(vote("k", "a", 2))
    assert story.tell(Resolved("k", Resolution.RECOUNT, "a said so", "ann", 0.0)) == [Sealed("k")]


def test_se_6_a_recount_that_still_contradicts_goes_back_into_quarantine() -> None:
    story = quarantined()
    (found,) = story.tell(Resolved("k", Resolution.RECOUNT, "try", "ann", 0.0))
    assert isinstance(found, Quarantined)
    assert list(story.tracker.quarantined) == ["k"]


def test_se_10_a_replayed_micro_batch_changes_nothing() -> None:
    story = Story()
    batch = story.batch("x", 0, (Group("k", "a", None, None, 1),))
    story.tell(batch)
    before = repr(state_of(story.tracker))
    assert story.tell(batch) == []
    assert repr(state_of(story.tracker)) == before


@pytest.mark.parametrize(
    ("number", "coverage", "problem"),
    [
        (0, Coverage("other", "", "0"), "not the one that the state goes with"),
        (2, Coverage("other", "1", "2"), "not the one that the state goes with"),
        (1, Coverage("q", "0", "7"), "holds other records"),
        (1, Coverage("q", "0", "1", "other files"), "holds other records"),
        (0, Coverage("q", "", "0"), "the state took 1 already"),
        (3, Coverage("q", "2", "3"), "micro-batches 2 to 2 were taken and are not in the state"),
        (2, Coverage("q", "0", "2"), "does not begin where 1 ended"),
    ],
)
def test_se_10_a_micro_batch_goes_by_what_it_covers(
    number: int, coverage: Coverage, problem: str
) -> None:
    story = Story()
    story.came(("k", "a", 1))
    story.came(("k", "a", 1))
    with pytest.raises(DamagedError, match=problem):
        story.tracker.replayed("x", number, coverage)


def test_se_10_a_state_that_was_lost_is_noticed_by_the_first_micro_batch() -> None:
    with pytest.raises(DamagedError, match="micro-batches 0 to 4 were taken"):
        Story().tracker.replayed("x", 5, covered(5))


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
    story.asked(0, {"k": 2, "q": 1})
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
    story.asked(1, {"k": 1})
    again = story.tracker.next_release()
    assert (again.keys, again.process) == ((), ("k",))
    assert story.tracker.reading("x", again.process).keys == {0: ("k",)}
    assert story.release() == [Unneeded("ask", 1)]


def test_se_12_a_partition_nobody_asks_for_needs_no_work() -> None:
    story = Story(requests=("ask",))
    story.came(("k", "a", 1), vote("k", "a", 1), vote("k", "b", 0))
    release = story.tracker.next_release()
    assert (release.keys, release.process) == (("k",), ())


def test_the_ledger_gives_the_tracker_back_after_every_event(tmp_path: Path) -> None:
    rules = Rules(inputs={"x": Registered(), "y": AB}, identified=frozenset({"y"}))
    groups = (Group("k", "a", None, None, 1), Group("k", "a", 1, "5", 1))
    events = [
        Story.batch("x", 0, groups, 1.0),
        Story.batch("y", 0, (Group("k", "b", 0, None, 1), Group("k", "a", 0, None, 1)), 2.0),
        Counted("y", "k", 3.0, {"a": Count(0, 0), "b": Count(0, 0)}),
        Excused("x", "q", "b", "why", "who", 4.0),
        Found("x", 5.0, {"k": ("a",), '["z\\u0000\ud800"]': ("a",)}),
        Counted("x", "k", 6.0, {"a": Count(1, 1, "5")}),
    ]
    for event in events:
        with Ledger(tmp_path, rules) as ledger:
            ledger.record(event)
            before = state_of(ledger.tracker)
        with Ledger(tmp_path, rules) as ledger:
            assert state_of(ledger.tracker) == before
    with Ledger(tmp_path, rules) as ledger:
        release = ledger.tracker.next_release()
        assert release.keys == ("k",)
        ledger.record(ReleaseStarted(release, 7.0))
    with Ledger(tmp_path, rules) as ledger:
        assert ledger.tracker.pending == release
        ledger.record(ReleaseFinished(1, 8.0))
        assert ledger.tracker.released.get("k").number == 1
    with Ledger(tmp_path, rules) as ledger:
        assert list(ledger.tracker.released) == ["k"]
        assert not any(ledger.tracker.chunks.values())


def test_se_9_the_ledger_forgets_in_time(tmp_path: Path) -> None:
    with Ledger(tmp_path, Rules(inputs={"x": AB}, remember_s=100.0)) as ledger:
        for number, key in enumerate(("k", "q")):
            votes = (Group(key, "a", 0, None, 1), Group(key, "b", 0, None, 1))
            ledger.record(Story.batch("x", number, votes))
            ledger.record(ReleaseStarted(ledger.tracker.next_release(), 0.0))
            ledger.record(ReleaseFinished(number + 1, number * 50.0))
        assert ledger.forget(99.0) == 0
        assert ledger.forget(120.0) == 1
        assert list(ledger.tracker.released) == ["q"]


@pytest.mark.parametrize("kind", ["log", "sst"])
def test_a_damaged_ledger_is_refused(tmp_path: Path, kind: str) -> None:
    rules = Rules(inputs={"x": AB})
    with Ledger(tmp_path / "ledger", rules) as ledger:
        for number in range(50):
            ledger.record(Story.batch("x", number, (Group(f"k{number}", "a", None, None, 1),)))
        shutil.copytree(tmp_path / "ledger", tmp_path / "crashed")
    folder = tmp_path / ("crashed" if kind == "log" else "ledger")
    (file,) = folder.glob(f"*.{kind}")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedError, match="cannot be read"):
        Ledger(folder, rules)


def test_a_torn_end_of_the_ledgers_log_is_what_a_crash_leaves(tmp_path: Path) -> None:
    rules = Rules(inputs={"x": AB})
    with Ledger(tmp_path / "ledger", rules) as ledger:
        for number in range(2):
            ledger.record(Story.batch("x", number, (Group(f"k{number}", "a", None, None, 1),)))
        shutil.copytree(tmp_path / "ledger", tmp_path / "crashed")
    (file,) = (tmp_path / "crashed").glob("*.log")
    file.write_bytes(file.read_bytes()[:-20])
    with Ledger(tmp_path / "crashed", rules) as ledger:
        assert list(ledger.tracker.partitions) == ["k0"]
        with pytest.raises(DamagedError, match="micro-batches 1 to 1"):
            ledger.tracker.replayed("x", 2, covered(2))
