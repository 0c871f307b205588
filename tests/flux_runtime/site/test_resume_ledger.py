"""The ledger of the resume protocol: who begins with what is kept of it comes to the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import site_flows
from site_ledgers import joined

from flux_runtime.site import ledger as ledger_module
from flux_runtime.site.collector import collected
from flux_runtime.site.hosting import flow_of
from flux_runtime.site.ledger import Event
from flux_runtime.site.resume_host import ResumeHost
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.snapshot import restore, snapshot

FIRST = 7


def new() -> ResumeLedger:
    return ResumeLedger(flow_of(collected(site_flows.pairs())), wanted=4, first=FIRST)


def works(ledger: ResumeLedger, draw: random.Random) -> Event | None:
    """Some copy reports that it works, or never will."""
    controller = ledger.controller
    assert controller is not None
    waiting = [c for m in controller.members.values() for c in m if c.stage >= 0]
    waiting = [copy for copy in waiting if copy not in controller.installed]
    if not waiting:
        return None
    copy = draw.choice(waiting)
    unfit = copy in controller.donors and draw.random() < 0.2
    return {"e": "noticed", "notice": ["unfit" if unfit else "works", *copy]}


def event(ledger: ResumeLedger, draw: random.Random) -> Event:
    """Something happens; as long as a copy waits, mostly it comes to work."""
    due = works(ledger, draw)
    if due is not None and draw.random() < 0.8:
        return due
    if draw.random() < 0.3:
        return {"e": "leader", "id": str(draw.random())}
    if ledger.is_whole and draw.random() < 0.5:
        site = draw.choice(sorted(ledger.sites))
        return {"e": "move", "stage": 0, "part": 0, "copy": draw.randrange(2), "site": site}
    if ledger.is_whole and len(ledger.sites) > 3:
        return {"e": "failed", "site": draw.choice(sorted(ledger.sites)), "why": ""}
    return joined(ledger.joined)


def members(ledger: ResumeLedger) -> Any:
    """What a site knows that comes now: the layout, then the entries."""
    assert ledger.layout is not None
    host = ResumeHost(ledger.flow, 1 << 20)
    layout = ledger.layout
    host.lay_out(
        layout.placement, layout.lives, base=layout.at, ingress=layout.ingress, done=layout.done
    )
    for entry in ledger.entries:
        host.extend(entry)  # type: ignore[arg-type]
    return host.position, host.site.members


@pytest.mark.parametrize("seed", range(8))
def test_who_begins_with_what_is_kept_comes_to_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "KEPT_ENTRIES", 6)
    draw = random.Random(seed)
    ledger = new()
    for number in range(4):
        ledger.apply(joined(number))
    assert ledger.layout is not None
    layout = ledger.layout
    host = ResumeHost(ledger.flow, 1 << 20)  # reads everything from the beginning
    host.lay_out(layout.placement, layout.lives, base=layout.at, ingress=1, done=FIRST)
    followers = []
    kept = 0
    for _ in range(400):
        happened = event(ledger, draw)
        before = ledger.position
        for each in (ledger, *followers):
            each.apply(happened)
        assert ledger.controller is not None
        assert ledger.controller.failures >= ledger.moves
        for entry in ledger.entries[before - ledger.base :]:
            host.extend(entry)  # type: ignore[arg-type]
        assert members(ledger) == (host.position, host.site.members)
        for follower in followers:
            assert follower.position == ledger.position
            assert members(follower) == members(ledger)
        if ledger.is_whole and draw.random() < 0.2:
            for follower in followers:
                assert snapshot(follower) == snapshot(ledger)
            followers = [new()]
            restore(followers[0], snapshot(ledger))
            kept += 1
    assert kept > 3
    assert ledger.base > 10, "the log has been trimmed"


@pytest.mark.parametrize("seed", range(6))
def test_a_loss_is_known_as_soon_as_the_last_copy_is_gone(seed: int) -> None:
    """Also where no site is left."""
    sites = range(2 + seed % 3)
    ledger = ResumeLedger(flow_of(collected(site_flows.pairs())), wanted=len(sites))
    for number in sites:
        ledger.apply(joined(number))
    assert ledger.layout is not None
    placed = ledger.layout.placement
    gone: set[int] = set()
    for site in random.Random(seed).sample(sites, len(sites)):
        ledger.apply({"e": "failed", "site": site, "why": ""})
        gone.add(site)
        lost = any({placed[pair, 0], placed[pair, 1]} <= gone for pair, _ in placed)
        assert bool(ledger.losses) is lost
