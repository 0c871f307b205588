"""One connection per pair of sites in the simulated world: its rules matter, and runs miss them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flux_scenes import AP, AS, BP, run

from flux_lab import sweep
from flux_lab.connections import LEADER
from flux_lab.papers.protocol.channels import Envelope, Frame, Multiplexer
from flux_lab.papers.protocol.messages import Data
from flux_lab.plans import Plan
from flux_lab.sweep import RunError
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Node, Shape


def plan(**changes: Any) -> Plan:
    given: dict[str, Any] = {
        "shape": Shape(widths=(2, 2)),
        "batches": 8,
        "rows": 2,
        "keys": 5,
        "every": 1,
        "sites": 3,
        "spares": 1,
        "link_capacity": 2,
        "kills": 2,
        "reckless": False,
        "multiplexed": True,
    }
    return Plan(**{**given, **changes})


def begun(**changes: Any) -> World:
    return run(plan(**changes).world(), steps=60)


# ---- what a crash leaves


def test_what_a_site_had_written_arrives_after_its_death() -> None:
    w = plan(shape=Shape(widths=(1, 1)), sites=2).world()
    run(w, steps=40, hold=lambda step: step.kind == "frame" and step.peer == w.site[AP])
    there = w.site[AS]
    w.crash(w.site[AP])
    assert Step("frame", there, 0) in w.steps() or Step("frame", LEADER, 0) in w.steps()
    run(w)
    w.finished()


def test_a_site_that_knows_of_a_death_has_nothing_of_the_dead() -> None:
    w = begun(shape=Shape(widths=(1, 1)), sites=2)
    w.kill(AP)
    w.perform(Step("detect process", AP))
    w.perform(Step("log", BP))
    connections = w.network.connections
    assert connections is not None
    here = [mux for (site, _), mux in connections.ends.items() if site == w.site[BP]]
    assert all(AP in mux.gone for mux in here)
    assert all(w.site.get(dst) != w.site[BP] for src, dst in w.links if src == AP)


def test_a_broken_connection_ends_the_site_that_is_named() -> None:
    w = begun(sites=4)
    w.perform(Step("close", 1, 2))
    run(w)
    w.finished()
    assert 1 not in w.controller.sites
    assert 1 not in w.site.values()
    assert w.controller.is_whole


# ---- every interleaving


class Pairing:
    """Two channels of one connection, what each still has to send, and what has been read."""

    def __init__(self, units: int, credits: int) -> None:
        self.ends = (Multiplexer(credits=credits), Multiplexer(credits=credits))
        self.left = {(AP, BP): units, (AS, BP): units}
        self.read: dict[tuple[Node, Node], list[int]] = {(AP, BP): [], (AS, BP): []}
        self.wire: list[list[Frame]] = [[], []]
        self.dead = False

    def steps(self) -> list[tuple[str, Any]]:
        here, there = self.ends
        found: list[tuple[str, Any]] = [
            ("send", c) for c, n in self.left.items() if n and here.room(*c)
        ]
        found += [("take", c) for c in self.left if there.head(*c) is not None]
        found += [("write", i) for i in (0, 1) if self.ends[i].due()]
        found += [("frame", i) for i in (0, 1) if self.wire[i]]
        return found if self.dead else [*found, ("forget", AS)]

    def perform(self, kind: str, what: Any) -> None:
        here, there = self.ends
        match kind:
            case "send":
                here.send(*what, Data(self.left[what], ()))
                self.left[what] -= 1
            case "take":
                message = there.take(*what)
                assert isinstance(message, Data)
                self.read[what].append(message.batch)
            case "write":
                frame = self.ends[what].next_frame()
                assert frame is not None
                self.wire[what].append(frame)
            case "frame":
                self.ends[1 - what].receive(self.wire[what].pop(0))
            case _:  # both ends learn of a death; the channel of the other goes on
                self.dead = True
                self.left[AS, BP] = 0
                here.forget(AS)
                there.forget(AS)

    def key(self) -> object:
        ends = [
            (tuple(m.outbox), sorted(m.spent.items()), sorted(m.owed.items()), repr(m.inbox))
            for m in self.ends
        ]
        return repr((ends, self.left, self.read, self.wire, self.dead))


@pytest.mark.parametrize(("units", "credits"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.slow)])
def test_every_interleaving_of_two_channels_delivers_all_in_order(units: int, credits: int) -> None:
    """Rows of two nodes over one connection, one of which may die at any moment."""
    first = Pairing(units, credits)
    open_, seen, ends = [first], {first.key()}, 0
    while open_:
        pairing = open_.pop()
        steps = pairing.steps()
        for step in steps:
            after = copy.deepcopy(pairing)
            after.perform(*step)
            assert all(read == sorted(read, reverse=True) for read in after.read.values())
            if (key := after.key()) not in seen:
                seen.add(key)
                open_.append(after)
        if all(kind == "forget" for kind, _ in steps):
            ends += 1
            assert len(pairing.read[AP, BP]) == units
            assert pairing.dead or len(pairing.read[AS, BP]) == units
    assert ends > 1
    assert len(seen) > 100


# ---- planted mistakes


def no_credit_comes_back(patch: pytest.MonkeyPatch) -> None:
    right = Multiplexer.next_frame

    def wrong(self: Multiplexer) -> Frame | None:
        frame = right(self)
        return frame and Frame(frame.envelopes, ())

    patch.setattr(Multiplexer, "next_frame", wrong)


def credit_for_everything(patch: pytest.MonkeyPatch) -> None:
    right = Multiplexer.take

    def wrong(self: Multiplexer, src: Any, dst: Any) -> Any:
        message = right(self, src, dst)
        if isinstance(message, Data):
            self.owed[src, dst] += 1  # type: ignore[index]
        return message

    patch.setattr(Multiplexer, "take", wrong)


def control_overtakes_rows(patch: pytest.MonkeyPatch) -> None:
    def in_order(envelopes: Iterable[Envelope]) -> tuple[Envelope, ...]:
        return tuple(sorted(envelopes, key=lambda e: isinstance(e.message, Data)))

    right = Multiplexer.next_frame

    def wrong(self: Multiplexer) -> Frame | None:
        frame = right(self)
        return frame and Frame(in_order(frame.envelopes), frame.credits)

    patch.setattr(Multiplexer, "next_frame", wrong)


def credits_only_with_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Multiplexer, "due", lambda self: bool(self.outbox))


PLANTED: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    no_credit_comes_back,
    credit_for_everything,
    control_overtakes_rows,
    credits_only_with_messages,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_mistake_in_the_multiplexer_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(RunError):
        sixty_seeds()


def sixty_seeds() -> None:
    for seed in range(60):
        sweep.run(seed, plan=plan(link_capacity=1 + seed % 3))
