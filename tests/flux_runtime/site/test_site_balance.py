"""What the balancer sees of a ledger, and of sites that have come late or done nothing."""

from __future__ import annotations

from collections.abc import Callable

import site_flows

from flux_lab.papers.ledger import PapersLedger
from flux_runtime.protocol.balancing import SiteStatistics, plan_round
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site.balance import RecordedMoves
from flux_runtime.site.collector import collected
from flux_runtime.site.control_messages import PartStatistics, Statistics
from flux_runtime.site.idle import IdleSelector
from flux_runtime.site.latency import BOUNDS_S, Latency
from flux_runtime.site.ledger import Event, Ledger
from flux_runtime.site.statistics import answered


def ledger(parallel_max: int) -> Ledger:
    made = PapersLedger(collected(site_flows.many()).shape, wanted=4, parallel_max=parallel_max)
    made.apply({"e": "leader", "id": "l"})
    for n in range(4):
        event = {"e": "joined", "id": str(n), "address": ["x", n], "host": "h"}
        made.apply(event | {"executor": str(n)})
    return made


def free_site(made: Ledger, pair: Pair) -> int:
    taken = {site for _, site, _ in made.site_of(pair)}
    return min(set(made.sites) - taken)


def test_uf_11_a_move_counts_as_under_way_until_its_event_has_been_applied() -> None:
    made, pending = ledger(2), list[tuple[Event, Callable[[], None]]]()

    def record(pair: Pair, copy: int, site: int, then: Callable[[], None]) -> None:
        event = {"e": "move", "stage": pair.stage, "part": pair.part, "copy": copy, "site": site}
        pending.append((event, then))

    moves = RecordedMoves(made, record)
    first, second, third = Pair(0, 0), Pair(0, 1), Pair(0, 2)
    assert moves.is_whole
    assert moves.may_move(first, 0, free_site(made, first))
    assert moves.move(first, 0, free_site(made, first)) == []
    assert not moves.is_whole
    assert not moves.may_move(first, 0, free_site(made, first)), "it moves already"
    assert not moves.may_move(Pair(1, 0), 0, free_site(made, Pair(1, 0))), "another stage"
    assert moves.may_move(second, 1, free_site(made, second))
    moves.move(second, 1, free_site(made, second))
    assert not moves.may_move(third, 0, free_site(made, third)), "CT-7"
    for event, then in pending:
        made.apply(event)
        then()
    assert not moves.is_whole
    assert moves.failures == 0, "no failure but those that moves cause"
    made.apply({"e": "failed", "site": 3})
    assert moves.failures > 0


def test_a_site_that_is_busy_and_has_done_nothing_can_give_copies_away() -> None:
    parts = tuple(PartStatistics(0, part, 0, 0.0, 10, 0, False) for part in range(3))
    stuck = answered(0, Statistics(1, 1.0, 1.0, 1.0, None, parts))
    idle = SiteStatistics(site=1, utilisation=0.1, processed={(Pair(0, 9), 0): 50.0})
    (move,) = plan_round([stuck, idle])
    assert (move.donor, move.receiver) == (0, 1)


def test_latency_counts_the_first_copy_to_arrive_and_samples_now_and_then() -> None:
    latency = Latency()
    assert latency.fed(0, 10.0)
    assert not latency.fed(1, 10.01), "too soon"
    assert not latency.fed(0, 11.0), "nothing new"
    latency.reached(0, 10.003)
    latency.reached(0, 12.0)
    assert sum(latency.counts) == 1
    assert latency.quantile(0.5) == min(bound for bound in BOUNDS_S if bound >= 0.003)
    assert Latency().quantile(0.5) is None


def test_uf_6_time_beyond_what_was_asked_for_is_not_idle() -> None:
    selector = IdleSelector()
    selector.select(0)
    assert selector.idle_s == 0.0
    selector.select(0.01)
    assert 0.0 < selector.idle_s <= 0.01
    selector.close()
