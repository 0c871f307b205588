"""Copies of a pair are in different executors, again once that is possible (CT-4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import site_flows
from site_ledgers import joined, recovered

from flux_lab.papers.ledger import PapersLedger
from flux_lab.papers.protocol.controller import Controller
from flux_runtime.site.collector import collected
from flux_runtime.site.hosting import flow_of
from flux_runtime.site.ledger import Event, Ledger, separation
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.spark.flux.sites import site_to_move


def happen(ledger: Ledger, *events: Event) -> None:
    for event in events:
        ledger.apply(event)
    while not ledger.is_whole:
        for event in recovered(ledger):
            ledger.apply(event)


def controller(ledger: Ledger) -> Controller:
    assert ledger.controller is not None
    return ledger.controller


def shared(ledger: Ledger) -> int:
    """Pairs of which one executor has both copies."""
    pairs = controller(ledger).pairs.values()
    return sum(len({ledger.executor_of[c.site] for c in p.copies if c}) < 2 for p in pairs)


def papers() -> Ledger:
    return PapersLedger(collected(site_flows.pairs()).shape, wanted=4)


def resume() -> Ledger:
    return ResumeLedger(flow_of(collected(site_flows.pairs())), wanted=4)


@pytest.fixture(params=[papers, resume])
def crowded(request: pytest.FixtureRequest) -> Ledger:
    """Two executors, of which one was lost; its sites came back in the other one."""
    ledger: Ledger = request.param()
    happen(ledger, {"e": "leader", "id": "l"}, *(joined(n, "ab"[n % 2]) for n in range(4)))
    assert not shared(ledger)
    for n in (1, 3):
        happen(ledger, {"e": "failed", "site": n, "why": ""}, joined(n + 4, "a"))
    assert shared(ledger) == len(controller(ledger).pairs)
    return ledger


def separate(ledger: Ledger) -> int:
    moves = 0
    assert ledger.controller is not None
    while (move := separation(ledger.controller, ledger.sites)) is not None:
        (stage, part), copy, site = move
        event = {"e": "move", "stage": stage, "part": part, "copy": copy, "site": site}
        happen(ledger, event)
        moves += 1
    return moves


def test_ct_4_pairs_in_one_executor_are_taken_apart_once_there_is_another(crowded: Ledger) -> None:
    assert separate(crowded) == 0, "there is nowhere to go"
    happen(crowded, joined(6, "c"))
    pairs = len(controller(crowded).pairs)
    assert separate(crowded) == pairs, "a move each"
    assert not shared(crowded)
    for site in [n for n, (_, executor) in crowded.executor_of.items() if executor == "a"]:
        crowded.apply({"e": "failed", "site": site, "why": "its executor"})
    assert not crowded.losses


def test_ct_4_nothing_moves_into_the_executor_of_the_other_copy(crowded: Ledger) -> None:
    happen(crowded, joined(6, "c"))
    separate(crowded)
    for pair, view in controller(crowded).pairs.items():
        for copy, other in ((0, 1), (1, 0)):
            mate = view.copies[other]
            assert mate is not None
            for site, executor in crowded.executor_of.items():
                if executor == crowded.executor_of[mate.site]:
                    assert not controller(crowded).may_move(pair, copy, site)


def test_ct_4_a_copy_stays_alone_only_on_a_site_that_was_heard_of(crowded: Ledger) -> None:
    happen(crowded, joined(6, "c"))
    assert crowded.controller is not None
    assert separation(crowded.controller, ()) is None
    for heard in crowded.sites:
        if (move := separation(crowded.controller, {heard})) is not None:
            pair, copy, _ = move
            stays = crowded.controller.pairs[pair].copies[1 - copy]
            assert stays is not None
            assert stays.site == heard
    assert separation(crowded.controller, crowded.sites) is not None


def status(*executors: str, whole: bool = True) -> dict[str, object]:
    """A stage whose site n has n copies."""
    sites = [
        {"number": n, "id": f"{n}.0", "host": "h", "executor": e} for n, e in enumerate(executors)
    ]
    copies = [[0, 0, 0, 0, n, "ACTIVE"] for n in range(len(executors)) for _ in range(n)]
    return {"whole": whole, "sites": sites, "copies": copies}


def test_the_site_with_the_fewest_copies_leaves_an_executor_that_holds_too_many() -> None:
    assert site_to_move(status(*"bcaaa"), sites=5, room=2) == "2.0"
    assert site_to_move(status(*"bcaa"), sites=4, room=2) is None
    assert site_to_move(status(*"aaaa"), sites=5, room=2) is None, "one is missing"
    assert site_to_move(status(*"aaaa", whole=False), sites=4, room=2) is None, "it recovers"


@pytest.mark.parametrize("made", [papers, resume])
@pytest.mark.parametrize(("stage", "part", "copy"), [(9, 0, 0), (0, 99, 1), (0, 0, 2), (-1, 0, -1)])
def test_a_move_of_what_does_not_exist_is_ignored(
    stage: int, part: int, copy: int, made: Callable[[], Ledger]
) -> None:
    """What a client asks for is recorded first: it must end no leader, now or after a change."""
    ledger = made()
    happen(ledger, {"e": "leader", "id": "l"}, *(joined(n) for n in range(5)))
    before = dict(controller(ledger).pairs)
    event = {"e": "move", "stage": stage, "part": part, "copy": copy, "site": 4}
    notice = ["works", stage, 99, 1] if ledger.resumes else ["hosted", stage, 99, [3, 0]]
    happen(ledger, event, {"e": "noticed", "notice": notice})
    assert controller(ledger).pairs == before
    assert ledger.moves == 0
