"""Membership, layout and view changes as a function of the recorded events.

Whoever leads records an event before acting on it; whoever follows reads the same events and comes
to the same state, so it can lead at once. Events are JSON objects, `e` names the kind:

    leader     id                               another process leads from here on
    joined     id, address, host, executor      a new incarnation of a site
    failed     site, why                        a site is gone for good (fenced from here on)
    noticed    notice                           what a node reported (CU-9, CU-18, CU-22)
    move       stage, part, copy, site          a copy moves (UF-11)

A site's number is its place among the `joined` events: a restarted site is a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from flux_runtime.protocol.orders import Copy, DataLoss, PairView
from flux_runtime.protocol.vocabulary import LABELS, Node, Pair, Shape, other
from flux_runtime.site.control_messages import AnyEntry, notice_from_json

Event = dict[str, Any]

KEPT_ENTRIES: Final = 512
"""Entries that are kept at least, for sites that have not read them yet."""
FENCED_MAX: Final = 4096
"""Ids of sites that are gone; an older one is known by having been registered, and not being so."""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One incarnation of a site, as it registered.

    Attributes:
        number: its place among all that ever registered.
        id: what it calls itself; unique.
        address: host and port that other sites reach it at.
        host: the machine that it runs on.
        executor: what it shares its fate with on that machine.
    """

    number: int
    id: str
    address: tuple[str, int]
    host: str
    executor: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where all copies stand at a moment when they are whole.

    Attributes:
        at: position in the controller's log.
        placement: site of each copy.
        lives: incarnation of each copy, where it is not the first.
        ingress: number of the ingress under the resume protocol.
        done: batches that all copies have done under the resume protocol, at least.
    """

    at: int
    placement: dict[tuple[Pair, int], int]
    lives: dict[tuple[Pair, int], int]
    ingress: int = 0
    done: int = 0


def lay_out(shape: Shape, sites: Sequence[SiteRecord]) -> dict[tuple[Pair, int], int]:
    """Chained declustering over sites in an order that changes executor at every step, if possible.

    Raises:
        ValueError: fewer sites than copies.
    """
    if len(sites) < shape.copies:
        raise ValueError(f"{shape.copies} copies need as many sites, there are {len(sites)}")
    groups: dict[tuple[str, str], list[SiteRecord]] = {}
    for site in sorted(sites, key=lambda s: s.number):
        groups.setdefault((site.host, site.executor), []).append(site)
    ring: list[SiteRecord] = []
    while any(groups.values()):
        ring += [group.pop(0) for group in groups.values() if group]
    result: dict[tuple[Pair, int], int] = {}
    for i, pair in enumerate(shape.pairs()):
        at = i % len(ring)
        first = ring[at]
        others = [ring[(at + step) % len(ring)] for step in range(1, len(ring))]
        apart = [s for s in others if (s.host, s.executor) != (first.host, first.executor)]
        result[pair, 0] = first.number
        if shape.copies == 2:
            result[pair, 1] = (apart or others)[0].number
    return result


class Placing(Protocol):
    """A controller of either protocol, which knows what copies share their fate with."""

    sites: Any
    executor_of: Any
    failures: int
    parallel_max: int

    @property
    def losses(self) -> tuple[Any, ...]:
        """Pairs that nobody holds the whole state of."""

    @property
    def catching_up(self) -> set[Pair]:
        """Pairs a copy of which has not its state yet."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is to be recovered."""

    @property
    def pairs(self) -> dict[Pair, PairView]:
        """The copies of every pair."""

    def nodes(self) -> Iterator[tuple[Node, Copy]]:
        """All copies."""

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """Whether a copy may move there now."""

    def notice(self, notice: Any) -> Any:
        """A copy reports; gives what is to be noted."""

    def site_joined(self, site: int) -> Any:
        """A site is there; gives what is to be noted."""

    def site_failed(self, site: int) -> Any:
        """A site is gone; gives what is to be noted."""


def apart(controller: Placing, pair: Pair, c: int) -> frozenset[int]:
    """Sites in other executors than that of the other copy."""
    mate = controller.pairs[pair].copies[other(c)]
    near = None if mate is None else controller.executor_of.get(mate.site)
    return frozenset(s for s in controller.sites if controller.executor_of.get(s) != near)


def crowded(controller: Placing) -> Iterator[tuple[Pair, list[int]]]:
    """Pairs with copies in one executor, and their sites."""
    for pair, view in controller.pairs.items():
        sites = [copy.site for copy in view.copies if copy is not None]
        if len({controller.executor_of.get(site) for site in sites}) < len(sites):
            yield pair, sites


def separation(controller: Placing, heard: Collection[int]) -> tuple[Pair, int, int] | None:
    """The move (pair, copy, site) that takes the copies of a pair into different executors (CT-4).

    While an executor is missing both may have to be in one; once another one has a site, the
    loss of an executor is to cost no pair both copies again.

    Args:
        controller: of all copies.
        heard: sites that have just said something: the copy that stays, maybe the only one
            meanwhile, must not be on a site that has stopped without anybody knowing it yet.
    """
    if not controller.is_whole:
        return None
    load = Counter(copy.site for _, copy in controller.nodes())
    for pair, sites in crowded(controller):
        for c in sorted(LABELS, key=lambda c: -load[sites[c]]):
            to = min(apart(controller, pair, c), key=lambda s: (load[s], s), default=None)
            if to is not None and sites[other(c)] in heard and controller.may_move(pair, c, to):
                return pair, c, to
    return None


class Ledger:
    """The state that all events so far add up to.

    Args:
        shape: the dataflow, collector included.
        wanted: how many sites the first layout waits for.
        parallel_max: most catch-ups at once (CT-7).

    Attributes:
        events: how many there have been.
        leaders: how many processes have led; the number of the present one is its epoch.
        sites: live sites.
        fenced: ids of sites that are gone, the last to go at the end.
        layout: from which the entries lead to the present, once there is one.
        entries: the controller's log from there on.
        later: a layout further on, from which entries will be kept once there are enough of them.
        kept: how many events a snapshot covers that this state began with.
        losses: pairs that have lost both copies.
        moves: how many there have been.
        stopped: whether the job has been ended.
        resumes: the job runs the resume protocol.
        controller: what the protocol decides with, once there is a layout.
    """

    resumes = False
    numbers_given: tuple[int, ...] = ()

    def __init__(self, shape: Shape, *, wanted: int, parallel_max: int = 1) -> None:
        self.shape = shape
        self.parallel_max = parallel_max
        self.wanted = max(wanted, shape.copies)
        self.events = 0
        self.leaders = 0
        self.joined = 0
        self.sites: dict[int, SiteRecord] = {}
        self.numbers: dict[str, int] = {}
        self.fenced: dict[str, None] = {}
        self.layout: Layout | None = None
        self.later: Layout | None = None
        self.kept = 0
        self.executor_of: dict[int, tuple[str, str]] = {}
        self.controller: Placing | None = None
        self.entries: list[AnyEntry] = []
        self.losses: list[DataLoss] = []
        self.moves = 0
        self.stopped = False

    def apply(self, event: Event) -> None:
        """Take the next event."""
        self.events += 1
        match event["e"]:
            case "leader":
                self.leaders += 1
                self._new_leader()
            case "joined":
                self._joined(event)
            case "failed":
                self._failed(event["site"])
            case "noticed":
                if self.controller is not None:
                    self._note(self.controller.notice(notice_from_json(event["notice"])))
            case "move":
                self._move(event)
            case "stopped":
                self.stopped = True
            case unknown:
                raise ValueError(f"no event of kind {unknown!r}")
        self._forget()

    @property
    def base(self) -> int:
        """The position of the first entry that is kept."""
        return self.layout.at if self.layout is not None else 0

    @property
    def position(self) -> int:
        """The position of the next entry."""
        return self.base + len(self.entries)

    @property
    def is_whole(self) -> bool:
        """Whether there is a layout, and nothing to recover."""
        return self.controller is not None and self.controller.is_whole

    def _forget(self) -> None:
        """Keep a layout and the entries after it in place of entries from the beginning.

        There is a whole layout between what is forgotten and what any catch-up will ever read.
        """
        if self.later is None or self._since(self.later.at) < KEPT_ENTRIES or not self.is_whole:
            return
        del self.entries[: self.later.at - self.base]
        self.layout = self.later
        self.later = self._layout_now()

    def _layout_now(self) -> Layout:
        assert self.controller is not None
        copies = {(n.pair, n.copy): (n.life, copy.site) for n, copy in self.controller.nodes()}
        return Layout(
            self.position,
            {which: site for which, (_, site) in copies.items()},
            {which: life for which, (life, _) in copies.items() if life},
        )

    def _joined(self, event: Event) -> None:
        number = self.joined
        self.joined += 1
        host, port = event["address"]
        record = SiteRecord(number, event["id"], (host, port), event["host"], event["executor"])
        self.sites[number] = record
        self.numbers[record.id] = number
        self.executor_of[number] = (record.host, record.executor)
        if self.controller is not None:
            self._note(self.controller.site_joined(number))
        elif len(self.sites) >= self.wanted:
            self._lay_out()

    def _failed(self, number: int) -> None:
        record = self.sites.pop(number, None)
        if record is None:
            return
        del self.numbers[record.id]
        del self.executor_of[number]
        self.fenced[record.id] = None
        if len(self.fenced) > FENCED_MAX:
            del self.fenced[next(iter(self.fenced))]
        if self.controller is not None:
            self._note(self.controller.site_failed(number))

    @property
    def one_executor(self) -> bool:
        """Whether all sites share one fate, so that pairs protect against processes only."""
        return len({self.executor_of[number] for number in self.sites}) < 2

    def site_of(self, pair: Pair) -> list[tuple[Node, int, bool]]:
        """The live copies of a pair: node, site, whether it is whole."""
        if self.controller is None:
            return []
        return [
            (node, copy.site, copy.status.name == "ACTIVE")
            for node, copy in self.controller.nodes()
            if node.pair == pair
        ]

    # ---- for each protocol to fill in

    def take_up(self, pairs: dict[Pair, PairView], failures: int, numbers: Sequence[int]) -> None:
        """Go on with copies that are whole, as `snapshot` has kept them.

        Args:
            pairs: the copies.
            failures: how many there have been.
            numbers: see `ResumeLedger.numbers_given`.
        """
        raise NotImplementedError

    def _lay_out(self) -> None:
        """Enough sites are there: place the copies."""
        raise NotImplementedError

    def _since(self, position: int) -> int:
        """How many entries from there on some site must have read before all was whole."""
        raise NotImplementedError

    def _new_leader(self) -> None:
        """Another process leads."""
        raise NotImplementedError

    def _move(self, event: Event) -> None:
        """A copy is to move, if it may."""
        raise NotImplementedError

    def _note(self, orders: Any) -> None:
        """Add what the controller has decided to the entries."""
        raise NotImplementedError
