"""Who takes part: ephemeral znodes with the identity, place and address of every site.

`/blazes/APP/sites/SITE.INCARNATION` is there as long as that incarnation is a member: it goes with
the ZooKeeper session of its process, and whoever removes it fences the process (hosting decisions 2
and 3). Of several incarnations of a site the highest is the member; lower ones are
superseded, and end as soon as they look. `/blazes/APP/incarnations/SITE` remembers the highest one
that ever joined, so that a late start of an older one is refused.

    seat = join(client, "app", Member(site=3, incarnation=17, ...), on_event=print)
    roster = Roster(client, "app", on_event=print)
    roster.members[3].address
    roster.remove(roster.members[3])      # fences it: its seat reports Fenced

A seat is lost for good, never regained: after `Fenced` the process ends, or joins again as a higher
incarnation. Without an answer of the ensemble for as long as a session lives it counts as lost too,
since the ensemble may have given it up by then; kazoo would say so only after reconnecting.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from flux_runtime.zookeeper.client import Client, SessionState
from flux_runtime.zookeeper.errors import SessionProblem
from flux_runtime.zookeeper.nodes import app_path, ask, children, delete, ensure
from flux_runtime.zookeeper.watcher import LOOKS_PER_SESSION, Poke, Watcher, patience_s

SESSION_LOST: Final = "the ZooKeeper session was lost"
NO_ANSWER: Final = "the ensemble has not answered for as long as a session lives"
REMOVED: Final = "it was removed from the members"
SUPERSEDED: Final = "a later incarnation has taken its place"
FAILED: Final = "what it reads of ZooKeeper makes no sense"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One incarnation of one site."""

    site: int
    incarnation: int
    """Greater for every later start of the same site."""
    host: str
    executor: str
    """What dies together on a host: copies of a pair are laid out apart (hosting decision 4)."""
    address: str
    """`host:port` where it listens."""
    role: str = "site"

    @property
    def name(self) -> str:
        """`SITE.INCARNATION`, the name of its znode."""
        return f"{self.site}.{self.incarnation}"


@dataclass(frozen=True, slots=True)
class Joined:
    """A member has come."""

    member: Member


@dataclass(frozen=True, slots=True)
class Left:
    """A member has gone: ended, removed, superseded or without a session."""

    member: Member


@dataclass(frozen=True, slots=True)
class Suspended:
    """There is no connection: the session may live; decide nothing until `Resumed` (OR-7)."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The same session is connected again."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """This process is no member any more, and will not be under this identity."""

    member: Member
    reason: str


RosterEvent: TypeAlias = Joined | Left | Suspended | Resumed
SeatEvent: TypeAlias = Suspended | Resumed | Fenced


class NoMember(SessionProblem):
    """This process is fenced: it is no member (any more)."""


def join(
    client: Client, app: str, member: Member, *, on_event: Callable[[SeatEvent], None]
) -> Seat:
    """Become a member.

    Args:
        client: the session whose end ends the membership.
        app: name of the application.
        member: identity and place; the incarnation must not have been used before.
        on_event: called from threads of the seat's, one call at a time; it must not block.

    Raises:
        NoMember: a higher incarnation of the site is there, or another process has this identity.
        EnsembleUnreachable: no answer.
    """
    folder = app_path(app, "sites")
    ensure(client, folder)
    losses = client.session_losses
    if _raise_incarnation(client, app, member.site, member.incarnation) > member.incarnation:
        raise _no_member(member, SUPERSEDED)
    path = f"{folder}/{member.name}"
    data = json.dumps(asdict(member)).encode()
    try:
        ask(client, lambda: client.kazoo.create_async(path, data, ephemeral=True))
    except NodeExistsError:
        while (owned := _owned(client, path)) is None:
            pass  # it waits for the connection
        if not owned:  # else the answer to an earlier attempt was lost
            raise _no_member(member, "another process has the same identity") from None
    return Seat(client, folder, member, on_event, losses)


def next_incarnation(client: Client, app: str, site: int) -> int:
    """An incarnation of a site that is higher than all before, also those of earlier runs."""
    return _raise_incarnation(client, app, site, None)


def _raise_incarnation(client: Client, app: str, site: int, to: int | None) -> int:
    """Raise the highest incarnation of a site to a number, or by one; the highest afterwards."""
    path = app_path(app, "incarnations", str(site))
    ensure(client, path)
    while True:
        data, stat = ask(client, lambda: client.kazoo.get_async(path))
        highest = int(data or b"0")
        wanted = highest + 1 if to is None else to
        if wanted <= highest:
            return highest
        with contextlib.suppress(BadVersionError):
            ask(
                client,
                lambda: client.kazoo.set_async(path, b"%d" % wanted, version=stat.version),  # noqa: B023 - called at once
            )
            return wanted


class Seat:
    """This process' membership; made by `join`."""

    def __init__(
        self,
        client: Client,
        folder: str,
        member: Member,
        on_event: Callable[[SeatEvent], None],
        losses: int,
    ) -> None:
        self.member = member
        self.fenced: Fenced | None = None
        """Why this process is no member any more; None while it is."""
        self._client = client
        self._folder = folder
        self._path = f"{folder}/{member.name}"
        self._on_event = on_event
        self._losses = losses
        self._suspended = False
        self._left = False
        self._lock = threading.RLock()
        self._watcher = Watcher(
            client,
            self._look,
            name=f"seat-{member.name}",
            tick=self._tick,
            failed=lambda error: self._fence(f"{FAILED}: {error!r}"),
        )
        self._unlisten = client.on_change(self._on_session)
        self._watcher.start()

    def require(self) -> None:
        """Return while this process is a member that may act.

        Raises:
            NoMember: it is fenced.
            SessionUnavailable: the session is suspended.
        """
        if self.fenced is None and self._watcher.age_s() > self._client.session_timeout_s:
            self._fence(NO_ANSWER)  # the process was paused, for example
        if self.fenced is not None:
            raise _no_member(self.member, self.fenced.reason)
        self._client.require_session()

    def confirmed(self) -> bool:
        """Whether ZooKeeper has said within two looks that this process is a member.

        Then most of its session is left, even if nobody hears of it from now on.
        """
        lately_s = 2 * self._client.session_timeout_s / LOOKS_PER_SESSION
        return self.fenced is None and self._watcher.age_s() < lately_s

    def leave(self) -> None:
        """Give the membership up; no event follows."""
        with self._lock:
            self._left = True
        self._close()
        if self.fenced is None:
            delete(self._client, [self._path])

    def _look(self, poke: Poke) -> None:
        end = time.monotonic() + patience_s(self._client)

        def left_s() -> float:
            return max(0.001, end - time.monotonic())

        if not self._client.kazoo.exists_async(self._path, watch=poke).get(timeout=left_s()):
            names = children(self._client, self._folder, timeout_s=left_s())
            above = [_of(name) for name in names]
            mine = (self.member.site, self.member.incarnation)
            later = any(of and of[0] == mine[0] and of > mine for of in above)
            self._fence(SUPERSEDED if later else REMOVED)
        elif _owned(self._client, self._path, timeout_s=left_s()) is False:
            self._fence(SESSION_LOST)

    def _tick(self) -> None:
        if self._watcher.age_s() > self._client.session_timeout_s:
            self._fence(NO_ANSWER)

    def _on_session(self, state: SessionState) -> None:
        if self._client.session_losses > self._losses:
            self._fence(SESSION_LOST)
            return
        with self._lock:
            changed = (state is not SessionState.CONNECTED) != self._suspended
            if changed and self.fenced is None and not self._left:
                self._suspended = not self._suspended
                self._on_event(Suspended() if self._suspended else Resumed())

    def _fence(self, reason: str) -> None:
        with self._lock:
            if self.fenced is not None or self._left:
                return
            self.fenced = Fenced(self.member, reason)
            self._on_event(self.fenced)
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        self._unlisten()
        self._watcher.close()


class Roster:
    """The members as they come and go.

    Args:
        client: a session.
        app: name of the application.
        on_event: called from threads of the roster's, one call at a time; it must not block. The
            members that are there already come first, as `Joined`. A new incarnation of a site
            is announced by `Left` of the old one and `Joined` of the new one, in this order.
    """

    def __init__(
        self, client: Client, app: str, *, on_event: Callable[[RosterEvent], None]
    ) -> None:
        self._client = client
        self._folder = app_path(app, "sites")
        self._on_event = on_event
        self._members: Mapping[int, Member] = MappingProxyType({})
        self._suspended = False
        self._lock = threading.RLock()
        ensure(client, self._folder)
        self._watcher = Watcher(client, self._look, name="roster")
        self._unlisten = client.on_change(self._on_session)
        self._watcher.start()

    @property
    def members(self) -> Mapping[int, Member]:
        """Site -> member, as last seen."""
        return self._members

    def remove(self, member: Member) -> None:
        """Fence a member: its znode is deleted, whether its session still lives or not."""
        delete(self._client, [f"{self._folder}/{member.name}"])
        self._watcher.poke()

    def close(self) -> None:
        """Stop watching."""
        self._unlisten()
        self._watcher.close()

    def _look(self, poke: Poke) -> None:
        highest: dict[int, int] = {}
        for name in children(self._client, self._folder, watch=poke):
            if of := _of(name):
                highest[of[0]] = max(of[1], highest.get(of[0], of[1]))
        now: dict[int, Member] = {}
        for site, incarnation in sorted(highest.items()):
            known = self._members.get(site)
            if known is None or known.incarnation != incarnation:
                known = self._read(f"{site}.{incarnation}")
            if known is not None:
                now[site] = known
        with self._lock:
            before, self._members = self._members, MappingProxyType(now)
            for site, member in before.items():
                if now.get(site) != member:
                    self._on_event(Left(member))
            for site, member in now.items():
                if before.get(site) != member:
                    self._on_event(Joined(member))

    def _read(self, name: str) -> Member | None:
        try:
            data, _ = self._client.kazoo.get_async(f"{self._folder}/{name}").get(timeout=30.0)
        except NoNodeError:
            return None
        return Member(**json.loads(data))

    def _on_session(self, state: SessionState) -> None:
        with self._lock:
            if (state is not SessionState.CONNECTED) != self._suspended:
                self._suspended = not self._suspended
                self._on_event(Suspended() if self._suspended else Resumed())


def _of(name: str) -> tuple[int, int] | None:
    site, _, incarnation = name.rpartition(".")
    try:
        return int(site), int(incarnation)
    except ValueError:
        return None


def _owned(client: Client, path: str, *, timeout_s: float = 30.0) -> bool | None:
    """Whether a znode is this session's; None: the connection is gone, so nobody can say."""
    stat = ask(client, lambda: client.kazoo.exists_async(path), timeout_s=timeout_s)
    mine = client.session_id
    return None if mine is None else stat is not None and stat.ephemeralOwner == mine


def _no_member(member: Member, reason: str) -> NoMember:
    return NoMember(
        f"site {member.site}, incarnation {member.incarnation}, is no member: {reason}",
        "It must not act any more. A new start of the site joins as a higher incarnation.",
    )
