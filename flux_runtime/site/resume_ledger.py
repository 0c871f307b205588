"""Membership and copies under the resume protocol, as a function of the recorded events.

As `ledger`, with the controller of `flux_runtime.resume` in its place. Nothing is in hand when
another process leads: only the ingress begins anew there (RS-21). Notices are recorded, so nobody
has to be asked for them (RS-23). A pair without copies is a loss that clients are told of; nothing
begins anew after it. A layout takes the place of the start and of all that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from flux_runtime.protocol.orders import Copy as PlacedCopy
from flux_runtime.protocol.orders import DataLoss, PairView
from flux_runtime.protocol.vocabulary import INGRESS, Node, Pair, Status
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import BEGINNING, Avail, Copy, Fail, LogEntry, Lost, Start
from flux_runtime.site.copies import LEADER
from flux_runtime.site.ledger import Event, Layout, Ledger, apart, lay_out


class PlacingController(Controller):
    """A controller that keeps copies apart by executor where it can (CT-4).

    Its log holds what has been decided and not yet taken out of it.

    Args:
        flow: the dataflow.
        start: where all copies stand.
        sites: those that take copies.
        executor_of: site -> what it shares its fate with.
        parallel_max: most pairs that are not whole because of moves.

    Attributes:
        lost: pairs without copies.
        failures: how many copies have failed or moved; a move counts from its beginning.
    """

    def __init__(
        self,
        flow: Flow,
        start: Start,
        sites: Iterable[int],
        executor_of: Mapping[int, tuple[str, str]],
        parallel_max: int,
    ) -> None:
        self.executor_of = executor_of
        self.parallel_max = parallel_max
        self.lost: list[Pair] = []
        self.failures = 0
        super().__init__(flow, [start], sites, ends=LEADER, at=start.at)
        self.log.clear()

    def _replace_ends(self) -> None:
        """The ingress stays until another process leads."""

    def _start(self) -> None:
        """After a loss nothing begins anew (see the module)."""

    def new_leader(self) -> None:
        """RS-21: the ingress goes on at whoever leads now."""
        super()._replace_ends()

    def _append(self, entry: LogEntry) -> None:
        if isinstance(entry, Lost):
            self.lost.append(entry.pair)
            return
        super()._append(entry)
        self.failures += isinstance(entry, Fail) and entry.copy.stage >= 0

    def _plan(self) -> None:
        if not self.lost:
            super()._plan()

    def _superfluous(self, working: Sequence[Copy]) -> Copy:
        self.failures -= 1  # a move ends, which has been counted
        return super()._superfluous(working)

    def _place(self, taken: Iterable[int]) -> int | None:
        taken = [*taken]
        near = {self.executor_of.get(site) for site in taken}
        apart = [site for site in self.sites if self.executor_of.get(site) not in near]
        every = self.sites
        try:
            self.sites = apart or every
            return super()._place(taken)
        finally:
            self.sites = every

    # ---- as others see it

    site_joined = Controller.join
    site_failed = Controller.leave

    @property
    def is_whole(self) -> bool:
        """Whether all copies work, and none is superfluous."""
        return not self.lost and not self.catching_up

    @property
    def losses(self) -> tuple[Pair, ...]:
        """Pairs without copies."""
        return tuple(self.lost)

    @property
    def pairs(self) -> dict[Pair, PairView]:
        """The two copies of every pair that remain."""
        return {
            pair: PairView((*self._placed(pair), None, None)[:2]) for pair in self.flow.segments()
        }

    def nodes(self) -> Iterator[tuple[Node, PlacedCopy]]:
        """All copies: their place among those of their pair, the second at most."""
        for pair in self.flow.segments():
            for place, copy in enumerate(self._placed(pair)):
                yield Node(*pair, min(place, 1), copy.life), copy

    def _placed(self, pair: Pair) -> list[PlacedCopy]:
        """The oldest first; the one that ends once another works, last (RS-19)."""
        members = self.members[pair]
        ending = None
        if len(members) > self.flow.dataflow.shape.copies:
            ending = self.donors.get([*members][-1])
        return [
            PlacedCopy(
                Status.ACTIVE if copy in self.installed else Status.STANDBY,
                copy.number,
                members[copy],
            )
            for copy in sorted(members, key=lambda copy: copy == ending)
        ]

    @property
    def catching_up(self) -> set[Pair]:
        """Pairs a copy of which has not its state yet, or is to end."""
        copies = self.flow.dataflow.shape.copies
        return {
            pair
            for pair in self.flow.segments()
            if len(self.members[pair]) != copies
            or not self.members[pair].keys() <= self.installed.keys()
        }

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """RS-19: the pair is whole, the site has none of it, nor if avoidable has its executor."""
        recovering = self.catching_up
        return (
            not self.lost
            and pair in self.flow.segments()
            and 0 <= c < len(self.members[pair])
            and pair not in recovering
            and len(recovering) < self.parallel_max
            and site in self.sites
            and site not in self.members[pair].values()
            and site in (apart(self, pair, c) or self.sites)
        )

    def move_copy(self, pair: Pair, c: int, site: int) -> None:
        """RS-19: have a copy move that may."""
        self.failures += 1
        self.move([*self.members[pair]][c], site)


class ResumeLedger(Ledger):
    """The state that all events so far add up to.

    Args:
        flow: the dataflow; it collects.
        wanted: how many sites the first layout waits for.
        first: number of the first batch; the operators' states already hold those before it.
        parallel_max: see `PlacingController`.
    """

    controller: PlacingController | None
    resumes = True

    def __init__(self, flow: Flow, *, wanted: int, first: int = 0, parallel_max: int = 1) -> None:
        super().__init__(flow.dataflow.shape, wanted=wanted, parallel_max=parallel_max)
        self.flow = flow
        self.first = first

    def _lay_out(self) -> None:
        placement = lay_out(self.shape, list(self.sites.values()))
        lives = dict(zip(placement, count(2), strict=False))
        self.layout = self.later = Layout(BEGINNING, placement, lives, 1, self.first)
        self._begin(self.layout)

    def _begin(self, layout: Layout) -> None:
        copies = ((Copy(*of[0], layout.lives[of]), at) for of, at in layout.placement.items())
        start = Start(((Copy(INGRESS, 0, layout.ingress), LEADER), *copies), layout.done)
        self.controller = PlacingController(
            self.flow, start, self.sites, self.executor_of, self.parallel_max
        )

    def _since(self, position: int) -> int:
        """All but those of the ingress: leaders may change while no site hears of it."""
        return sum(
            isinstance(entry, Avail | Fail) and entry.copy.stage >= 0
            for entry in self.entries[position - self.base :]
        )

    def _layout_now(self) -> Layout:
        return replace(super()._layout_now(), ingress=self.numbers_given[0], done=self.first)

    @property
    def numbers_given(self) -> tuple[int, ...]:  # type: ignore[override]
        """Number of the ingress, and the last number that a copy was given."""
        assert self.controller is not None
        (ingress,) = self.controller.members[Pair(INGRESS, 0)]
        return ingress.number, self.controller.number

    def take_up(self, pairs: dict[Pair, PairView], failures: int, numbers: Sequence[int]) -> None:
        """Go on with copies that are whole, as `snapshot` has kept them."""
        placed = {
            (pair, c): copy for pair, v in pairs.items() for c, copy in enumerate(v.copies) if copy
        }
        self._begin(
            Layout(
                self.position,
                {which: copy.site for which, copy in placed.items()},
                {which: copy.life for which, copy in placed.items()},
                numbers[0],
                self.first,
            )
        )
        assert self.controller is not None
        self.controller.number, self.controller.failures = numbers[1], failures
        for pair in self.flow.segments():
            self.controller.installed |= dict.fromkeys(self.controller.members[pair])

    def _new_leader(self) -> None:
        if self.controller is not None:
            self.controller.new_leader()
            self._note()

    def _note(self, orders: Any = ()) -> None:
        """Take what the controller has decided."""
        assert self.controller is not None
        self.entries += self.controller.log
        self.controller.log.clear()
        for pair in self.controller.lost[len(self.losses) :]:
            self.losses.append(DataLoss(pair, "no copy of it is left"))

    def _move(self, event: Event) -> None:
        pair, copy, site = Pair(event["stage"], event["part"]), event["copy"], event["site"]
        if self.controller is not None and self.controller.may_move(pair, copy, site):
            self.moves += 1
            self.controller.move_copy(pair, copy, site)
            self._note()
