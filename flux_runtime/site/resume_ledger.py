"""Membership and copies under the resume protocol, as a function of the recorded events.

As `ledger`, with the controller of `flux_runtime.resume` in its place. Nothing is in hand when
another process leads: only the ingress begins anew there (RS-21). Notices are recorded, so nobody
has to be asked for them (RS-23). A pair without copies is a loss that clients are told of; nothing
begins anew after it. The log is kept from its beginning, and no state in place of its events.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from flux_runtime.protocol.orders import Copy as PlacedCopy
from flux_runtime.protocol.orders import DataLoss, PairView
from flux_runtime.protocol.vocabulary import Node, Pair, Status
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import Fail, LogEntry, Lost, Start
from flux_runtime.site.host import LEADER
from flux_runtime.site.ledger import Event, Layout, Ledger, lay_out


class PlacingController(Controller):
    """A controller that keeps copies apart by executor where it can (CT-4).

    Args:
        flow: the dataflow.
        placement: site of every copy in the beginning.
        executor_of: site -> what it shares its fate with.

    Attributes:
        lost: pairs without copies.
    """

    def __init__(
        self,
        flow: Flow,
        placement: Mapping[tuple[Pair, int], int],
        sites: Iterable[int],
        executor_of: Mapping[int, tuple[str, str]],
    ) -> None:
        self.placement = placement
        self.executor_of = executor_of
        self.lost: list[Pair] = []
        self.log = []
        super().__init__(flow, self.log, sites, ends=LEADER)

    def _start(self) -> None:
        """The first start; after a loss there is none (see the module)."""
        if not self.log:
            ingress = [(self._new(pair), LEADER) for pair in self.flow.pairs(-1)]
            copies = [(self._new(pair), site) for (pair, _), site in self.placement.items()]
            self._append(Start((*ingress, *copies), self.at))

    def _append(self, entry: LogEntry) -> None:
        if isinstance(entry, Lost):
            self.lost.append(entry.pair)
        else:
            super()._append(entry)

    def _plan(self) -> None:
        if not self.lost:
            super()._plan()

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

    def new_leader(self) -> None:
        """RS-21: the ingress goes on at whoever leads now."""
        self._replace_ends()

    # ---- as others see it

    site_joined = Controller.join
    site_failed = Controller.leave

    @property
    def whole(self) -> bool:
        """Whether all copies work, and none is superfluous."""
        copies = self.flow.dataflow.shape.copies
        return not self.lost and all(
            len(self.members[pair]) == copies and self.members[pair].keys() <= self.installed.keys()
            for pair in self.flow.segments()
        )

    @property
    def failures(self) -> int:
        """How many copies have failed or ended."""
        return sum(isinstance(entry, Fail) and entry.copy.stage >= 0 for entry in self.log)

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

    def separation(self, heard: Collection[int]) -> tuple[Pair, int, int] | None:
        """No copies move of the leader's own accord yet."""
        return None


class ResumeLedger(Ledger):
    """The state that all events so far add up to.

    Args:
        flow: the dataflow; it collects.
        wanted: how many sites the first layout waits for.
    """

    controller: PlacingController | None  # type: ignore[assignment]
    resumes = True

    def __init__(self, flow: Flow, *, wanted: int) -> None:
        super().__init__(flow.dataflow.shape, wanted=wanted)
        self.flow = flow
        self.kept = sys.maxsize  # so that no state is ever due

    def _lay_out(self) -> None:
        placement = lay_out(self.shape, list(self.sites.values()))
        self.controller = controller = PlacingController(
            self.flow, placement, self.sites, self.executor_of
        )
        numbers: dict[tuple[Pair, int], int] = {}
        for pair in self.flow.segments():
            for place, copy in enumerate(controller.members[pair]):
                numbers[pair, place] = copy.number
        self.layout = Layout(1, placement, numbers)  # behind the start
        self._note()

    def _new_leader(self) -> None:
        if self.controller is not None:
            self.controller.new_leader()
            self._note()

    def _note(self, orders: Any = ()) -> None:
        """Take what the controller has decided."""
        assert self.controller is not None
        new = self.controller.log[self.position :] if self.layout is not None else []
        self.entries += [(entry, None) for entry in new]
        for pair in self.controller.lost[len(self.losses) :]:
            self.losses.append(DataLoss(pair, "no copy of it is left"))

    def _move(self, event: Event) -> None:
        if self.controller is None or not self.whole:
            return
        copies = list(self.controller.members[Pair(event["stage"], event["part"])])
        if event["site"] in self.sites and event["copy"] < len(copies):
            before = len(self.controller.log)
            self.controller.move(copies[event["copy"]], event["site"])
            self.moves += len(self.controller.log) > before
            self._note()

    def _forget(self) -> None:
        """Nothing is forgotten."""
