"""What a site decides of leader, view and neighbours: events in, instructions out."""

from __future__ import annotations

from typing import Any

import pytest

from flux_lab.control_fuzz import flow
from flux_runtime.resume.messages import BEGINNING, Copy, Installed
from flux_runtime.site import control_messages as control
from flux_runtime.site import site_steps as steps
from flux_runtime.site.collector import collected
from flux_runtime.site.control_messages import SiteAddress
from flux_runtime.site.site_state import SiteState
from flux_runtime.site.steps import Step
from flux_runtime.site.wire import Malformed

SITES = tuple(SiteAddress(number, f"{number}.1", "127.0.0.1", number) for number in range(4))
SESSION_S = 2.0


class Site:
    """The state of site 2, which leader 1 has admitted; others are told as a test says."""

    def __init__(self, *, resumes: bool = True) -> None:
        self.state = SiteState(collected(flow()).shape, session_s=SESSION_S, resumes=resumes)
        self.now = 0.0
        self.admitted("leader", 1)

    def handle(self, event: Step) -> list[Step]:
        made = list(self.state.handle(event, self.now))
        self.state.validate()
        return made

    def admitted(self, link: str, epoch: int) -> list[Step]:
        made = self.handle(steps.LeaderReached(link))
        return made + self.handle(steps.Admitted(link, epoch, 2))

    def view(self, *sites: SiteAddress, link: str = "leader") -> list[Step]:
        return self.handle(steps.LeaderSaid(link, control.Sites(sites)))


def of(kind: type[Step], made: list[Step]) -> list[Any]:
    return [step for step in made if type(step) is kind]


def accused(made: list[Step], link: str) -> list[int]:
    told = [step.message for step in of(steps.Tell, made) if step.link == link]
    return [message.site for message in told if isinstance(message, control.LinkLost)]


def introduced(number: int, link: str) -> steps.SiteIntroduced:
    return steps.SiteIntroduced(link, control.Introduction(f"{number}.1", number, 0), False)


def test_of_two_sites_the_later_one_dials() -> None:
    site = Site()
    assert [step.number for step in of(steps.Dial, site.view(*SITES))] == [0, 1]


def test_a_broken_link_is_told_to_every_leader_until_one_has_acted_on_it() -> None:
    site = Site()
    site.view(*SITES)
    site.handle(introduced(3, "three"))
    site.handle(steps.LinkClosed("leader", "reset"))
    assert not accused(site.handle(steps.LinkClosed("three", "cut")), "leader"), "nobody leads now"
    site.admitted("second", 2)
    assert accused(site.view(*SITES, link="second"), "second") == [3]
    site.handle(steps.LinkClosed("second", "reset"))
    site.admitted("third", 3)
    assert accused(site.view(*SITES, link="third"), "third") == [3], (
        "the second may have died of it"
    )
    assert accused(site.view(*SITES[:3], link="third"), "third") == []


def test_a_removed_site_is_not_accused_and_its_link_is_closed() -> None:
    site = Site()
    site.view(*SITES)
    site.handle(introduced(3, "three"))
    made = site.view(*SITES[:3])
    assert of(steps.Disconnect, made) == [steps.Disconnect(3)]
    assert [step.link for step in of(steps.Close, made)] == ["three"]
    assert accused(site.handle(steps.LinkClosed("three", "removed")), "leader") == []
    site.view(*SITES[1:3])
    assert site.handle(steps.DialFailed(0, ("127.0.0.1", 0), 9.0, "refused")) == []


def test_a_site_is_tried_for_as_long_as_a_session_lives_and_then_accused() -> None:
    site = Site()
    site.view(*SITES)
    address = ("127.0.0.1", 0)
    site.now = SESSION_S
    failed = steps.DialFailed(0, address, SESSION_S - 0.1, "refused")
    assert [step.number for step in of(steps.Dial, site.handle(failed))] == [0]
    made = site.handle(steps.DialFailed(0, address, SESSION_S + 0.1, "refused"))
    assert accused(made, "leader") == [0]
    assert not of(steps.Dial, made)
    assert site.handle(steps.DialFailed(0, ("elsewhere", 0), 9.0, "refused")) == []


def test_a_site_that_this_view_does_not_know_yet_waits_for_its_seat() -> None:
    site = Site()
    site.view(*SITES[:3])
    assert site.handle(introduced(3, "three")) == []
    made = site.view(*SITES)
    assert of(steps.Seat, made) == [steps.Seat("three", 3)]
    assert of(steps.Introduce, made) == [steps.Introduce("three")]


def test_another_incarnation_and_a_second_link_get_no_seat() -> None:
    site = Site()
    site.view(*SITES)
    said = control.Introduction("3.0", 3, 0)
    assert of(steps.Close, site.handle(steps.SiteIntroduced("old", said, False)))
    assert of(steps.Seat, site.handle(introduced(3, "three")))
    assert of(steps.Close, site.handle(introduced(3, "again")))
    assert accused(site.handle(steps.LinkClosed("again", "closed")), "leader") == []


def test_notices_are_told_to_every_leader_until_they_are_recorded() -> None:
    site = Site()
    notices = (Installed(Copy(0, 0, 1)), Installed(Copy(0, 1, 1)))
    made = site.handle(steps.NodesNoticed(notices))
    assert [len(step.message.notices) for step in of(steps.Tell, made)] == [2]
    site.handle(steps.LeaderSaid("leader", control.Noted(1)))
    site.handle(steps.LinkClosed("leader", "reset"))
    made = site.admitted("second", 2)
    assert [len(step.message.notices) for step in of(steps.Tell, made)] == [1]
    with pytest.raises(Malformed, match="2 notices are recorded, 1 were told"):
        site.handle(steps.LeaderSaid("second", control.Noted(2)))


def test_an_older_leader_is_not_heard() -> None:
    site = Site()
    site.admitted("second", 2)
    with pytest.raises(Malformed, match="no business"):
        site.view(*SITES, link="leader")
    with pytest.raises(Malformed, match="leader 1 after 2"):
        site.handle(steps.Admitted("leader", 1, 2))
    with pytest.raises(Malformed, match="this is site 2, not 5"):
        site.handle(steps.Admitted("third", 3, 5))


@pytest.mark.parametrize("resumes", [True, False])
def test_a_log_with_a_gap_or_of_another_dataflow_or_protocol_is_refused(resumes: bool) -> None:
    site = Site(resumes=resumes)
    at = BEGINNING
    pairs = site.state.shape.pairs()
    copies = tuple(control.PlacedCopy(*pair, copy, copy, 0) for pair in pairs for copy in (0, 1))
    with pytest.raises(Malformed, match="at 0"):
        site.handle(steps.LeaderSaid("leader", control.Log(0, ())))
    for part in (copies[2:], (*copies, control.PlacedCopy(9, 0, 0, 0, 0))):
        with pytest.raises(Malformed, match="another dataflow"):
            site.handle(steps.LeaderSaid("leader", control.Layout(part, at, 0, 0)))
    site.handle(steps.LeaderSaid("leader", control.Layout(copies, at, 0, 0)))
    entry, stranger = control.Gone(0, 0, 2), control.Hosted(0, 0, (1,))
    other: Any = control.Gone(9, 0, 2)
    if not resumes:
        entry, stranger, other = stranger, entry, control.Hosted(9, 0, (1,))
    assert site.handle(steps.LeaderSaid("leader", control.Log(at - 1, (entry, entry)))) == [
        steps.Extend(entry)
    ], "one was known"
    for start, change in ((at + 2, entry), (at + 1, other), (at + 1, stranger)):
        with pytest.raises(Malformed):
            site.handle(steps.LeaderSaid("leader", control.Log(start, (change,))))
    assert site.state.position == at + 1
