"""The decisions of a leader: events in, instructions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flux_lab.control_fuzz import flow
from flux_runtime.resume.messages import BEGINNING
from flux_runtime.site import control_messages as control
from flux_runtime.site import leader_steps as steps
from flux_runtime.site.collector import collected
from flux_runtime.site.config import Balance
from flux_runtime.site.hosting import flow_of
from flux_runtime.site.leader_state import SNAPSHOT_EVENTS, LeaderState
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.steps import Step
from flux_runtime.site.wire import Malformed

SITES = 4


def registration(number: int, **fields: Any) -> control.Registration:
    said = {"epoch": 0, "position": BEGINNING, "laid_out": False, "resume": (), **fields}
    return control.Registration(f"{number}.1", ("127.0.0.1", 1), "host", str(number), **said)


class Term:
    """A leader's state, whose record is safe when a test says so."""

    def __init__(self, *, copies: int = 2, balance: Balance | None = None) -> None:
        dataflow = collected(flow())
        shape = replace(dataflow.shape, copies=copies)
        made = flow_of(replace(dataflow, shape=shape))
        self.state = LeaderState(
            ResumeLedger(made, wanted=SITES), patience_s=10.0, balance=balance, now=0.0
        )
        self.now = 0.0
        self.done: list[Step] = []

    def handle(self, event: Step) -> list[Step]:
        made = list(self.state.handle(event, self.now))
        self.state.validate()
        self.done += made
        return made

    def recorded(self) -> list[Step]:
        return self.handle(steps.Recorded(len(self.state.pending)))

    def begun(self) -> Term:
        self.handle(steps.Elected("l"))
        self.recorded()
        for number in range(SITES):
            self.handle(steps.SiteRegistered(f"link {number}", registration(number)))
        self.recorded()
        return self


def of(kind: type[Step], made: list[Step]) -> list[Any]:
    return [step for step in made if type(step) is kind]


def sent(made: list[Step], link: str) -> list[Any]:
    return [step.message for step in of(steps.Tell, made) if step.link == link]


def told(made: list[Step], link: str) -> list[type]:
    return [type(message) for message in sent(made, link)]


def test_a_site_is_fenced_and_its_end_told_only_once_that_is_recorded() -> None:
    term = Term().begun()
    made = term.handle(steps.LinkClosed("link 2", "reset"))
    assert [step.event["e"] for step in of(steps.Record, made)] == ["failed"]
    assert not of(steps.Fence, made)
    assert not of(steps.Tell, made)
    made = term.recorded()
    assert [step.identity for step in of(steps.Fence, made)] == ["2.1"]
    assert [step.site for step in of(steps.Disconnect, made)] == [2]
    assert control.Sites in told(made, "link 0")


def test_a_site_fails_once_whoever_says_so() -> None:
    term = Term().begun()
    term.handle(steps.SiteSaid("link 0", control.LinkLost(1, "reset")))
    made = term.handle(steps.SiteSaid("link 1", control.LinkLost(0, "reset")))
    assert not of(steps.Record, made), "the first to be accused goes"
    assert not of(steps.Record, term.handle(steps.MemberLeft("1.1")))
    assert not of(steps.Record, term.handle(steps.LinkClosed("link 1", "reset")))
    term.recorded()
    assert sorted(term.state.ledger.sites) == [0, 2, 3]


def test_notices_are_answered_once_they_are_recorded() -> None:
    term = Term().begun()
    notices = (control.Works(0, 0, 1), control.Works(0, 1, 1))
    assert not told(term.handle(steps.SiteSaid("link 3", control.Notices(notices))), "link 3")
    made = term.recorded()
    assert of(steps.Tell, made) == [steps.Tell("link 3", control.Noted(2))]


def test_a_notice_of_no_partition_changes_nothing() -> None:
    term = Term().begun()
    wrong = control.Notices((control.Works(0, 0, 1), control.Works(0, 99, 1)))
    with pytest.raises(Malformed, match="no partition 99"):
        term.handle(steps.SiteSaid("link 3", wrong))
    term.state.validate()
    assert not term.state.pending


def test_a_removed_site_is_expelled() -> None:
    term = Term().begun()
    term.handle(steps.MemberLeft("0.1"))
    term.recorded()
    for said in (registration(0), registration(0, epoch=1), registration(8, epoch=1)):
        (greet,) = of(steps.Greet, term.handle(steps.SiteRegistered(f"link {said}", said)))
        assert isinstance(greet.greeting, control.Expulsion)


def test_a_site_does_not_come_back_while_its_failure_is_being_recorded() -> None:
    term = Term().begun()
    term.handle(steps.LinkClosed("link 1", "reset"))
    made = term.handle(steps.SiteRegistered("again", registration(1)))
    assert [type(step) for step in made] == [steps.Close], "what was on its way to it is lost"


def test_a_leader_that_has_been_replaced_expels_nobody() -> None:
    term = Term().begun()
    for number in (1, 8):  # the other one has joined since
        said = registration(number, epoch=2)
        made = term.handle(steps.SiteRegistered(f"new {number}", said))
        assert [type(step) for step in made] == [steps.Close]


def test_a_site_whose_connection_closes_while_it_joins_is_removed_again() -> None:
    term = Term().begun()
    term.handle(steps.SiteRegistered("link 9", registration(9)))
    term.handle(steps.LinkClosed("link 9", "reset"))
    made = term.recorded()
    assert not of(steps.Attach, made)
    assert [step.event["e"] for step in of(steps.Record, made)] == ["failed"]


def test_no_site_is_admitted_before_the_term_is_recorded() -> None:
    """Else two leaders have one epoch, and the journal's files of one are taken for the other's."""
    before = Term().begun()
    term = Term()
    term.state = LeaderState(before.state.ledger, patience_s=10.0, balance=None, now=0.0)
    term.handle(steps.Elected("m"))
    said = [registration(number, epoch=1, laid_out=True) for number in range(SITES)]
    for number in range(SITES):
        made = term.handle(steps.SiteRegistered(f"early {number}", said[number]))
        assert [type(step) for step in made] == [steps.Close]
    term.recorded()
    for number in range(SITES):
        term.handle(steps.SiteRegistered(f"link {number}", said[number]))
    (rebuild,) = of(steps.RebuildEnds, term.done)
    assert rebuild.epoch == 2


def test_ends_are_rebuilt_once_all_sites_have_come_back() -> None:
    before = Term().begun()
    assert len(of(steps.RebuildEnds, before.done)) == 1
    term = Term()
    term.state = LeaderState(before.state.ledger, patience_s=10.0, balance=None, now=0.0)
    term.handle(steps.Elected("m"))
    term.recorded()
    for number in range(SITES):
        assert not of(steps.RebuildEnds, term.done)
        resume = (((0, 0, 0, 0), number + 5),) if number == 1 else ()
        said = registration(number, epoch=1, laid_out=True, resume=resume)
        term.handle(steps.SiteRegistered(f"new {number}", said))
    (rebuild,) = of(steps.RebuildEnds, term.done)
    assert (rebuild.epoch, list(rebuild.received.values())) == (2, [6])


def test_sites_that_do_not_come_back_are_removed_by_seat_or_by_patience() -> None:
    before = Term().begun()
    term = Term()
    term.state = LeaderState(before.state.ledger, patience_s=10.0, balance=None, now=0.0)
    term.handle(steps.Elected("m"))
    term.recorded()
    term.now = 0.2
    assert not of(steps.Record, term.handle(steps.Tick(frozenset()))), "members come late"
    term.now = 0.4
    assert not of(steps.Record, term.handle(steps.Tick(None)))
    seats = frozenset({"0.1", "1.1", "3.1"})
    assert [s.event["site"] for s in of(steps.Record, term.handle(steps.Tick(seats)))] == [2]
    term.now = 10.5
    gone = [s.event["site"] for s in of(steps.Record, term.handle(steps.Tick(seats)))]
    assert gone == [0, 1, 3]


def test_a_client_hears_of_the_end_once() -> None:
    term = Term().begun()
    term.handle(steps.ClientGreeted("client", "events", None))
    assert of(steps.EndInput, term.handle(steps.ClientSaid("client", control.Finish())))
    assert told(term.handle(steps.InputEnded(7)), "client") == [control.Finished]
    assert told(term.handle(steps.ClientSaid("client", control.Finish())), "client") == [
        control.Finished
    ]


def test_every_client_hears_of_a_loss_whenever_it_comes() -> None:
    term = Term().begun()
    term.handle(steps.ClientGreeted("early", "events", None))
    for number in range(SITES - 1):
        term.handle(steps.MemberLeft(f"{number}.1"))
    assert control.DataLoss in told(term.recorded(), "early")
    made = term.handle(steps.ClientGreeted("late", "events", None))
    assert control.DataLoss in told(made, "late")


def test_a_client_hears_that_a_removed_site_will_not_do_what_it_was_sent_for() -> None:
    term = Term().begun()
    term.handle(steps.ClientGreeted("client", "events", None))
    for number in (1, 2):
        term.handle(steps.ClientSaid("client", control.LimitMemory(number, 1)))
    term.handle(steps.MemberLeft("1.1"))
    assert control.Carried(done=False) in sent(term.recorded(), "client")
    made = term.handle(steps.LinkClosed("link 2", "reset"))
    assert control.Carried(done=False) in sent(made, "client")


def test_a_follower_is_greeted_and_a_second_link_of_a_site_is_closed() -> None:
    term = Term().begun()
    (greet,) = of(steps.Greet, term.handle(steps.FollowerGreeted("follower")))
    assert greet.greeting == control.FollowerWelcome()
    made = term.handle(steps.SiteRegistered("second", registration(1)))
    assert [type(step) for step in made] == [steps.Close]
    assert term.state.attached[1] == "link 1"


def test_a_site_that_lacks_entries_which_are_gone_is_removed() -> None:
    before = Term().begun()
    ledger = before.state.ledger
    assert ledger.layout is not None
    ledger.layout = replace(ledger.layout, at=5)
    for position, gone in ((4, True), (5, False)):
        term = Term()
        term.state = LeaderState(ledger, patience_s=10.0, balance=None, now=0.0)
        term.handle(steps.Elected("m"))
        term.recorded()
        said = registration(1, epoch=1, laid_out=True, position=position)
        made = term.handle(steps.SiteRegistered("link", said))
        assert bool(of(steps.Record, made)) is gone
        assert bool(of(steps.Attach, made)) is not gone
    term.handle(steps.MemberLeft("2.1"))
    term.recorded()
    logs = [m for m in sent(term.done, "link") if isinstance(m, control.Log)]
    assert min(log.start for log in logs) == 5, "what came before is gone"
    assert control.Trim not in told(term.done, "link")


def test_the_state_is_kept_once_for_every_thousand_events() -> None:
    term = Term().begun()
    controller = term.state.ledger.controller
    assert controller is not None
    works = [control.Works(*node.pair, node.life) for node, _ in controller.nodes()]
    for notice in (*works, *SNAPSHOT_EVENTS * works[:1]):
        term.handle(steps.SiteSaid("link 3", control.Notices((notice,))))
        term.recorded()
    assert len(of(steps.KeepState, term.done)) == 1


def test_one_copy_of_every_pair_does_not_move() -> None:
    for copies in (1, 2):
        term = Term(copies=copies, balance=Balance())
        term.begun()
        assert (term.state.rounds is None) is (copies == 1)


def test_an_error_tells_what_has_happened_before() -> None:
    term = Term().begun()
    with pytest.raises(IndexError) as error:
        term.state.handle(steps.Recorded(1), 0.0)
    (note,) = error.value.__notes__
    assert "SiteRegistered" in note
    assert "Recorded(count=1) -> error" in note
