"""Cluster pairs: a replica set lives, dies and is rebuilt as a whole (section 5.2, FS-20).

In the baseline only ingress and egress coordinate the two copies of the dataflow; inside, each is
plain exchange, and the copies are not in step. So when one machine dies, what its neighbours had
in flight is gone for good, and none of them can be saved: the whole set ends (RS-1). It is rebuilt
from the other set with one attempt number (RS-2): all survivors pause, source to destination, so
that their states are one cut through the dataflow; each state moves; and only when all have arrived
do all copies go on (RS-3). If anything dies on the way, the attempt ends with the whole new set. If
it is of the surviving set, everything is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from flux_lab.papers.protocol.messages import Avail, CatchUpCommit, CatchUpStart, LogEntry
from flux_runtime.protocol.orders import CatchUp, Copy, Destroy, Instantiate, Order, PairView, Phase
from flux_runtime.protocol.vocabulary import Node, Pair, Shape, Status, other


class Controller(Protocol):
    """The part of the controller (`controller.Controller`) that a replica set is decided on."""

    shape: Shape
    sites: frozenset[int]
    log: tuple[LogEntry, ...]
    failures: int
    in_hand: tuple[CatchUp, ...]
    pairs: dict[Pair, PairView]

    def nodes(self) -> Iterator[tuple[Node, Copy]]: ...  # noqa: D102
    def incomplete(self) -> list[tuple[Pair, int]]: ...  # noqa: D102
    def fail(self, pair: Pair, c: int) -> list[Order]: ...  # noqa: D102
    def set_copy(self, pair: Pair, c: int, copy: Copy) -> None: ...  # noqa: D102


def end_set(controller: Controller, c: int) -> list[Order]:
    """RS-1: copy c of some pair is dead; the others of its set go with it."""
    out: list[Order] = []
    for pair, view in list(controller.pairs.items()):
        copy = view.copies[c]
        if copy is not None and copy.status is not Status.DEAD:
            out.append(Destroy(Node(*pair, c, copy.life)))
            out += controller.fail(pair, c)
    return out


def plan_set(controller: Controller) -> list[Order]:
    """RS-2, RS-3: the next step of the one rebuilding that there can be."""
    out: list[Order] = []
    incomplete = controller.incomplete()
    if not controller.in_hand and incomplete:
        c = incomplete[0][1]
        if len(incomplete) < len(controller.pairs) or any(of != c for _, of in incomplete):
            return out
        out += _announce(controller, c)
    phases = {now.phase for now in controller.in_hand}
    ready = all(
        controller.pairs[now.pair].ready == controller.failures for now in controller.in_hand
    )
    if phases == {Phase.ANNOUNCED} and ready:  # CT-5, for all
        _advance(controller, Phase.STARTED)
        controller.log += tuple(CatchUpStart(now.pair, now.attempt) for now in controller.in_hand)
    if phases == {Phase.MOVED}:  # RS-3
        _advance(controller, Phase.COMMITTED)
        controller.log += tuple(CatchUpCommit(now.pair, now.attempt) for now in controller.in_hand)
    return out


def _advance(controller: Controller, phase: Phase) -> None:
    controller.in_hand = tuple(now._replace(phase=phase) for now in controller.in_hand)


def _announce(controller: Controller, c: int) -> list[Order]:
    """Standbys for all copies c, with one attempt number, away from every site of the other set."""
    taken = {copy.site for node, copy in controller.nodes() if node.copy == other(c)}
    sites = sorted(controller.sites - taken)
    if not sites:
        return []
    out: list[Order] = []
    attempt = 1 + max(view.attempts for view in controller.pairs.values())  # AB-1
    for n, pair in enumerate(controller.shape.pairs()):
        site = sites[n % len(sites)]
        view = controller.pairs[pair]
        controller.pairs[pair] = view._replace(attempts=attempt)
        controller.set_copy(pair, c, Copy(Status.STANDBY, attempt, site))
        controller.log += (Avail(pair, c, attempt),)
        controller.in_hand += (CatchUp(pair, c, attempt, Phase.ANNOUNCED),)
        out.append(Instantiate(Node(*pair, c, attempt), site))
    return out


def chained_sets(pairs: tuple[Pair, ...], sites: int) -> dict[tuple[Pair, int], int]:
    """Half of the sites for either set."""
    half = sites // 2
    return {(pair, copy): copy * half + pair.part % half for pair in pairs for copy in (0, 1)}
