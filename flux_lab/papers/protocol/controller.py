"""The controller: membership, placement, and the order in which pairs recover (CT-1 to CT-7).

A logically single, highly available service. It holds no data in flight and no operator state. What
it decides is one totally ordered log that every node reads; what nodes report are notices.

Cluster pairs (section 5.2, FS-20): a replica set lives, dies and is rebuilt as a whole. In that
baseline only ingress and egress coordinate the two copies of the dataflow; inside, each is plain
exchange, and the copies are not in step. So when one machine dies, what its neighbours had in
flight is gone for good, and none of them can be saved: the whole set ends (RS-1). It is rebuilt
from the other set with one attempt number (RS-2): all survivors pause, source to destination, so
that their states are one cut through the dataflow; each state moves; and only when all have arrived
do all copies go on (RS-3). If anything dies on the way, the attempt ends with the whole new set. If
it is of the surviving set, everything is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flux_lab.papers.protocol.messages import (
    Avail,
    CatchUpCommit,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Fail,
    FoldInDone,
    LogEntry,
    Notice,
)
from flux_runtime.protocol.orders import (
    CatchUp,
    Copy,
    DataLoss,
    Destroy,
    Instantiate,
    Order,
    PairView,
    Phase,
)
from flux_runtime.protocol.vocabulary import (
    LABELS,
    THE_INGRESS,
    Node,
    Pair,
    ProtocolError,
    Shape,
    Status,
    other,
)

__all__ = [
    "CatchUp",
    "Controller",
    "Copy",
    "DataLoss",
    "Destroy",
    "Instantiate",
    "Order",
    "PairView",
    "Phase",
    "chained",
]

ACTIVE, DEAD, STANDBY = Status.ACTIVE, Status.DEAD, Status.STANDBY


def chained(shape: Shape, sites: int) -> dict[tuple[Pair, int], int]:
    """UF-4, chained declustering: copy P of partition k on site k, copy S on site k + 1.

    Site numbers are modulo `sites`: a multiple of `sites` partitions puts equally many on each.

    Raises:
        ValueError: fewer sites than copies, so that two copies would share one.
    """
    if sites < shape.copies:
        raise ValueError(f"{shape.copies} copies need as many sites, there are {sites}")
    if shape.cluster_pairs:
        return chained_sets(shape.pairs(), sites)
    return {
        (pair, copy): (pair.part + copy) % sites
        for pair in shape.pairs()
        for copy in range(shape.copies)
    }


class Controller:
    """Decides view changes; one mutator per event, each gives the orders to carry out.

    Args:
        shape: the dataflow.
        placement: (pair, copy) -> site, at first.
        sites: that may host copies.
        parallel_max: most catch-ups at once (CT-7), all in one stage. So many pairs at most are
            without a partner because of moves.

    Attributes:
        log: all view changes so far; nodes read it at their own pace.
        failures: number of the last failure in the log.
        in_hand: the catch-ups under way.
        targets: (pair, copy, site) of moves under way: where the new copy is to stand (UF-11).
    """

    __slots__ = (
        "failures",
        "in_hand",
        "log",
        "losses",
        "pairs",
        "parallel_max",
        "shape",
        "sites",
        "targets",
    )

    def __init__(
        self,
        shape: Shape,
        placement: Mapping[tuple[Pair, int], int],
        sites: frozenset[int],
        *,
        parallel_max: int = 1,
    ) -> None:
        if parallel_max < 1:
            raise ValueError(f"with {parallel_max} catch-ups at a time nothing ever recovers")
        self.shape = shape
        self.sites = sites
        self.parallel_max = parallel_max
        self.log: tuple[LogEntry, ...] = ()
        self.failures = 0
        self.in_hand: tuple[CatchUp, ...] = ()
        self.losses: tuple[DataLoss, ...] = ()
        self.targets: tuple[tuple[Pair, int, int], ...] = ()
        self.pairs: dict[Pair, PairView] = {}
        for pair in shape.pairs():
            first = Copy(ACTIVE, 0, placement[pair, 0])
            second = Copy(ACTIVE, 0, placement[pair, 1]) if shape.copies == 2 else None
            if second is not None and second.site == first.site:
                raise ValueError(f"two copies of {pair} on site {first.site}")
            self.pairs[pair] = PairView((first, second))

    def clone(self) -> Controller:
        """An independent copy."""
        new = Controller.__new__(Controller)
        new.shape, new.sites, new.log = self.shape, self.sites, self.log
        new.failures, new.in_hand, new.losses = self.failures, self.in_hand, self.losses
        new.targets, new.parallel_max = self.targets, self.parallel_max
        new.pairs = self.pairs.copy()
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.sites, self.log, self.in_hand, self.targets, tuple(self.pairs.values()))

    @property
    def current(self) -> CatchUp | None:
        """The first of the catch-ups in hand."""
        return self.in_hand[0] if self.in_hand else None

    def nodes(self) -> Iterator[tuple[Node, Copy]]:
        """Every copy that is not dead."""
        for pair, view in self.pairs.items():
            for c, copy in enumerate(view.copies):
                if copy is not None and copy.status is not DEAD:
                    yield Node(*pair, c, copy.life), copy

    # ---- events

    def site_failed(self, site: int) -> list[Order]:
        """A site is gone for good, with every copy on it."""
        self.sites -= {site}
        out: list[Order] = []
        for node, copy in list(self.nodes()):
            now = self.pairs[node.pair].copies[node.copy]
            if copy.site == site and now is not None and now.status is not DEAD:
                out += self.fail(node.pair, node.copy)
                if self.shape.cluster_pairs:
                    out += end_set(self, node.copy)
        return out + self._plan()

    def copy_failed(self, node: Node) -> list[Order]:
        """One process is gone; its site is well. Old news about earlier incarnations is ignored."""
        copy = self.pairs[node.pair].copies[node.copy]
        if copy is None or copy.status is DEAD or copy.life != node.life:
            return []
        out = self.fail(node.pair, node.copy)
        if self.shape.cluster_pairs:
            out += end_set(self, node.copy)
        return out + self._plan()

    def site_joined(self, site: int) -> list[Order]:
        """A new, stateless site may take standbys."""
        self.sites |= {site}
        return self._plan()

    @property
    def is_whole(self) -> bool:
        """UF-7: nothing is to be recovered, so load may be balanced."""
        return not self.in_hand and not self.incomplete() and not self.losses

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """Whether a copy may move now (UF-10, UF-12).

        The site lives and has no copy of the pair; the pair is whole; and all that is not are
        partitions of the same stage that move already, fewer than CT-7 allows. Whoever asks may
        name a pair or a copy that does not exist.
        """
        if pair not in self.pairs or c not in (0, 1):
            return False
        copies = self.pairs[pair].copies
        apart = all(copy is None or copy.site != site for copy in copies)
        partial = {of for of, _ in self.incomplete()} | {now.pair for now in self.in_hand}
        return (
            apart
            and site in self.sites
            and copies[other(c)] is not None
            and not self.shape.cluster_pairs
            and not self.losses
            and len(partial) < self.parallel_max
            and all(of.stage == pair.stage and of != pair for of in partial)
            and partial == {now.pair for now in self.in_hand}
        )

    def move(self, pair: Pair, c: int, site: int) -> list[Order]:
        """UF-11: end the copy here and bring up its successor there, from the surviving copy.

        Raises:
            ProtocolError: the copy may not move now (`may_move`).
        """
        copy = self.pairs[pair].copies[c]
        if copy is None or not self.may_move(pair, c, site):
            raise ProtocolError(f"copy {c} of {pair} may not move to site {site} now")
        self.targets += ((pair, c, site),)
        return [Destroy(Node(*pair, c, copy.life)), *self.fail(pair, c), *self._plan()]

    def notice(self, notice: Notice) -> list[Order]:
        """A node reports; what belongs to an earlier attempt is ignored."""
        match notice:
            case CatchUpReady(pair, failures) if pair in self.pairs:
                self.pairs[pair] = self.pairs[pair]._replace(ready=failures)
            case CatchUpDone(pair, attempt):
                self._update(pair, attempt, lambda now: now._replace(phase=Phase.MOVED))
            case FoldInDone(pair, attempt, at):
                self._update(pair, attempt, lambda now: now._replace(folded=now.folded | {at}))
        return self._plan()

    def _update(self, pair: Pair, attempt: int, change: Callable[[CatchUp], CatchUp]) -> None:
        self.in_hand = tuple(
            change(now) if (now.pair, now.attempt) == (pair, attempt) else now
            for now in self.in_hand
        )

    # ---- view changes

    def fail(self, pair: Pair, c: int) -> list[Order]:
        """CT-1: put the failure of a copy into the log; if nobody is left, report the loss."""
        view = self.pairs[pair]
        copy = view.copies[c]
        assert copy is not None
        self.set_copy(pair, c, copy._replace(status=DEAD))
        self.failures += 1
        self.log += (Fail(pair, c, self.failures),)  # CT-1
        self.in_hand = tuple(now for now in self.in_hand if now.pair != pair)
        survivor = view.copies[other(c)]
        if view.lost or (survivor is not None and survivor.status is ACTIVE):
            return []
        return self._lose(pair, c, survivor)

    def _lose(self, pair: Pair, c: int, survivor: Copy | None) -> list[Order]:
        """FS-26: nobody holds the whole state any more; say so, and let no half copy go on."""
        why = f"copy {c} failed while the other was {survivor.status.name if survivor else 'none'}"
        loss = DataLoss(pair, why)
        self.losses += (loss,)
        self.pairs[pair] = self.pairs[pair]._replace(lost=True)
        out: list[Order] = [loss]
        if survivor is not None and survivor.status is STANDBY:
            out.append(Destroy(Node(*pair, other(c), survivor.life)))
            out += self.fail(pair, other(c))
        return out

    def set_copy(self, pair: Pair, c: int, copy: Copy) -> None:
        """Change what is known of a copy."""
        copies = list(self.pairs[pair].copies)
        copies[c] = copy
        self.pairs[pair] = self.pairs[pair]._replace(copies=tuple(copies))

    # ---- recovery

    def _plan(self) -> list[Order]:
        """CT-3, CT-7: source to destination, within a stage several pairs at a time.

        Looked at again after every event. Pairs of one stage have the same neighbours but share no
        link, so the catch-up of one is to the other like any other traffic.
        """
        self._fold_in()
        if self.shape.cluster_pairs:
            return plan_set(self)
        out: list[Order] = []
        incomplete = self.incomplete()
        started = [now for now in self.in_hand if now.phase is not Phase.ANNOUNCED]
        if not incomplete or (started and started[0].pair.stage != incomplete[0][0].stage):
            self.in_hand = tuple(started)  # CT-3: what has only been announced yields
            return out
        announced = [
            (pair, c)
            for pair, c in incomplete
            if pair.stage == incomplete[0][0].stage and all(now.pair != pair for now in started)
        ]
        self.in_hand = tuple(started)
        for pair, c in announced:
            if len(self.in_hand) < self.parallel_max:  # CT-7
                out += self._announce(pair, c)
        return out

    def _fold_in(self) -> None:
        """CT-6: what has moved and is folded in at all live neighbours is whole again."""
        for now in self.in_hand:
            done = Phase.COMMITTED if self.shape.cluster_pairs else Phase.MOVED
            if now.phase is done and self._neighbours(now.pair) <= now.folded:
                copy = self.pairs[now.pair].copies[now.copy]
                assert copy is not None
                self.set_copy(now.pair, now.copy, copy._replace(status=ACTIVE))
                self.in_hand = tuple(rest for rest in self.in_hand if rest.pair != now.pair)

    def _announce(self, pair: Pair, c: int) -> list[Order]:
        """CT-4: have a standby, as soon as a site will take it; CT-5: start it when it may."""
        out: list[Order] = []
        view = self.pairs[pair]
        copy = view.copies[c]
        assert copy is not None
        if copy.status is DEAD:
            site = self.place(pair, c)
            if site is None:
                return out
            attempt = view.attempts + 1  # AB-1
            self.pairs[pair] = view._replace(attempts=attempt)
            self.set_copy(pair, c, Copy(STANDBY, attempt, site))
            self.log += (Avail(pair, c, attempt),)
            out.append(Instantiate(Node(*pair, c, attempt), site))
        attempt = self.pairs[pair].attempts
        phase = Phase.ANNOUNCED
        if self.pairs[pair].ready == self.failures:  # CT-5
            phase = Phase.STARTED
            self.log += (CatchUpStart(pair, attempt),)
        self.in_hand += (CatchUp(pair, c, attempt, phase),)
        return out

    def incomplete(self) -> list[tuple[Pair, int]]:
        """CT-2: copies that are not whole, of pairs that are not lost, from source on."""
        return [
            (pair, c)
            for pair in self.shape.pairs()
            if not (view := self.pairs[pair]).lost
            for c, copy in enumerate(view.copies)
            if copy is not None and copy.status is not ACTIVE
        ]

    def place(self, pair: Pair, c: int) -> int | None:
        """CT-4, UF-13: where a move leads, else the emptiest site without the other copy."""
        mate = self.pairs[pair].copies[other(c)]
        for of, copy_of, site in self.targets:
            if (
                (of, copy_of) == (pair, c)
                and site in self.sites
                and (mate is None or site != mate.site)
            ):
                self.targets = tuple(target for target in self.targets if target[0] != pair)
                return site
        load = dict.fromkeys(self.sites, 0)
        for _, copy in self.nodes():
            if copy.site in load:
                load[copy.site] += 1
        allowed = [(n, site) for site, n in load.items() if mate is None or site != mate.site]
        return min(allowed)[1] if allowed else None

    def _neighbours(self, pair: Pair) -> frozenset[Node]:
        """CT-6: who must have folded in: the live copies next to the pair."""
        neighbours = set()
        for near in (*self.shape.upstream(pair.stage), *self.shape.downstream(pair.stage)):
            if self.shape.outside(near.stage):
                neighbours.add(THE_INGRESS if near.stage < 0 else self.shape.egress)
                continue
            for c in () if self.shape.cluster_pairs else LABELS:
                copy = self.pairs[near].copies[c]
                if copy is not None and copy.status is ACTIVE:
                    neighbours.add(Node(*near, c, copy.life))
        return frozenset(neighbours)


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
