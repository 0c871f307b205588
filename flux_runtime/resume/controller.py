"""The controller: which copies exist, written into one log that all sites read (RS-18, RS-19).

It is a function of the log and of what sites report. A new one reads the log and asks every site
how its copies stand (`Site.standing`); nothing else has to survive. Any number of copies may catch
up at the same time, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flux_runtime.protocol.vocabulary import Pair, ProtocolError
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import (
    Avail,
    Copy,
    Fail,
    Installed,
    LogEntry,
    Lost,
    Notice,
    Start,
)


class Controller:
    """Keeps every pair at its number of copies.

    Args:
        flow: the dataflow.
        log: what has been decided before; new entries are appended to it.
        sites: those that take copies.
        ends: the site of ingress and egress.
        at: batch of the checkpoint that a new start would begin from; kept up to date by whoever
            keeps the checkpoints, before every event.

    Attributes:
        members: pair -> announced copies that have not failed -> their sites.
        donors: announced copy -> its donor.
        installed: those of them that have reported that they work.
    """

    def __init__(
        self, flow: Flow, log: list[LogEntry], sites: Iterable[int], ends: int, at: int = 0
    ) -> None:
        self.flow = flow
        self.log = log
        self.sites = sorted(sites)
        self.ends = ends
        self.at = at
        self.members: dict[Pair, dict[Copy, int]] = {}
        self.donors: dict[Copy, Copy] = {}
        self.installed: dict[Copy, None] = {}
        self.number = 0
        for entry in log:
            self._note(entry)
        if not log:
            self._start()
        else:
            self._replace_ends()
        self._plan()

    def _append(self, entry: LogEntry) -> None:
        self.log.append(entry)
        self._note(entry)

    def _note(self, entry: LogEntry) -> None:
        """Take an entry, just decided or read: it means the same."""
        match entry:
            case Start(copies):
                self.members, self.donors, self.installed = {}, {}, {}
                for copy, site in copies:
                    self.members.setdefault(copy.pair, {})[copy] = site
                    self.number = max(self.number, copy.number)
            case Avail(copy, site, donor):
                self.members[copy.pair][copy] = site
                self.donors[copy] = donor
                self.number = max(self.number, copy.number)
            case Fail(copy):
                self.members[copy.pair].pop(copy, None)
                self.installed.pop(copy, None)
            case Lost():
                pass

    def _new(self, pair: Pair) -> Copy:
        self.number += 1
        return Copy(*pair, self.number)

    # ---- events

    def join(self, site: int) -> None:
        """A site that takes copies is there."""
        if site not in self.sites:
            self.sites = sorted([*self.sites, site])
            self._plan()

    def leave(self, site: int) -> None:
        """RS-18: a site is dead or taken for dead; so are its copies, for good."""
        if site not in self.sites:
            return
        self.sites.remove(site)
        for members in list(self.members.values()):
            for copy in [copy for copy, place in members.items() if place == site]:
                self._append(Fail(copy))
        self._plan()

    def notice(self, notice: Notice) -> None:
        """RS-18: a site reports what became of a copy; may come late, and again."""
        copy = notice.copy
        if copy not in self.members.get(copy.pair, ()):
            return
        if isinstance(notice, Installed):
            self.installed[copy] = None
        else:
            self._append(Fail(copy))
        self._plan()

    def move(self, copy: Copy, site: int) -> None:
        """RS-19: announce a copy there; when it works, the one that gave it its state ends."""
        members = self.members[copy.pair]
        if copy in self.installed and site in self.sites and site not in members.values():
            self._append(Avail(self._new(copy.pair), site, copy))

    # ---- decisions

    def _start(self) -> None:
        """RS-20: copies of every pair, side by side on neighbouring sites."""
        copies = [(self._new(pair), self.ends) for s in self.flow.stages if self.flow.is_end(s)
                  for pair in self.flow.pairs(s)]  # fmt: skip
        copies_each = min(self.flow.dataflow.shape.copies, len(self.sites))
        for pair in self.flow.segments():
            for turn in range(copies_each):
                site = self.sites[(pair.part + turn) % len(self.sites)]
                copies.append((self._new(pair), site))
        if self.sites:
            self._append(Start(tuple(copies), self.at))

    def _replace_ends(self) -> None:
        """RS-21: ingress and egress go on here; their state lies outside."""
        for stage in self.flow.stages:
            if self.flow.is_end(stage):
                (old,) = self.members[Pair(stage, 0)]
                self._append(Avail(self._new(old.pair), self.ends, old))
                self._append(Fail(old))

    def _plan(self) -> None:
        """RS-18, RS-19: what is missing is announced, what is superfluous ends."""
        wanted = self.flow.dataflow.shape.copies
        for pair in self.flow.segments():
            members = self.members.get(pair, {})
            working = [copy for copy in members if copy in self.installed]
            if not members:
                self._append(Lost(pair))
                self._start()
                return
            if len(working) > wanted:
                self._append(Fail(self._superfluous(working)))
            elif working and len(members) < wanted:
                site = self._place(members.values())
                if site is not None:
                    self._append(Avail(self._new(pair), site, working[0]))

    def _superfluous(self, working: Sequence[Copy]) -> Copy:
        """RS-19: the donor of the newest, where it is left; else the oldest."""
        donor = self.donors.get(working[-1])
        return working[0] if donor is None or donor not in working else donor

    def _place(self, taken: Iterable[int]) -> int | None:
        """The site with the fewest copies that has none of this pair."""
        load = dict.fromkeys(self.sites, 0)
        for members in self.members.values():
            for site in members.values():
                if site in load:
                    load[site] += 1
        free = [site for site in self.sites if site not in [*taken]]
        return min(free, key=lambda site: (load[site], site)) if free else None

    def validate(self) -> None:
        """No two copies of a pair on one site.

        Raises:
            ProtocolError: there are.
        """
        for pair, members in self.members.items():
            if len({*members.values()}) < len(members):
                raise ProtocolError(f"two copies of {pair} on one site: {members}")
