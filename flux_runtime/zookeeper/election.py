"""Who decides: one leader among the controllers, the others warm followers.

Two znodes under `/blazes/APP/control`: `leader`, ephemeral, with the name of who leads, and `term`,
which outlives leaders. Becoming the leader makes the one and writes the other in one step; the
version of `term` is the leader's **token**. Every decision is written in a transaction that checks
this version (`Leadership.check`), so that a leader that was paused or cut off and still believes in
itself writes nothing once another one has been elected.

kazoo's Election is not used: it has no token, runs its function on after the session is suspended
or lost, and does not tell a follower whom to follow.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from flux_runtime.zookeeper.client import Client, SessionState
from flux_runtime.zookeeper.errors import SessionProblem
from flux_runtime.zookeeper.membership import NO_ANSWER, SESSION_LOST, Resumed, Suspended
from flux_runtime.zookeeper.nodes import (
    ANSWER_LOST,
    app_path,
    ask,
    commit,
    delete,
    ensure,
    read,
    sync,
)
from flux_runtime.zookeeper.watcher import Poke, Watcher, patience_s

ROLE: Final = "control"
"""The folder of the leader, its term and its log."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This process leads now."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Deposed:
    """This process does not lead any more; it stays a candidate."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Led:
    """Another process leads."""

    by: str
    token: int


ElectionEvent: TypeAlias = Elected | Deposed | Led | Suspended | Resumed


class NotLeading(SessionProblem):
    """This process does not lead (any more); what it wanted to write has not been written."""


class Leadership:
    """The right to decide, from one election until the next; made by `Candidate`."""

    def __init__(self, candidate: Candidate, token: int) -> None:
        self.token = token
        """Greater than that of every leader before."""
        self._candidate = candidate

    def require(self) -> None:
        """Return while this process may decide.

        Raises:
            NotLeading: it leads no more, as far as it knows.
            SessionUnavailable: the session is suspended.
        """
        self._candidate.require(self)

    def check(self, transaction: Any) -> None:
        """Add to a transaction: only if no other leader has been elected since.

        If so the transaction fails with BadVersionError on this operation.
        """
        transaction.check(self._candidate.term_path, self.token)


class Candidate:
    """A process that would lead; it competes until `close`.

    Args:
        client: a session.
        app: name of the application.
        name: of this process, for the others (an address, for example).
        on_event: called from threads of the candidate's, one call at a time; it must not block.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        name: str,
        *,
        on_event: Callable[[ElectionEvent], None],
    ) -> None:
        self.name = name
        self.leadership: Leadership | None = None
        """Set while this process leads."""
        folder = app_path(app, ROLE)
        self.term_path = f"{folder}/term"
        self._leader_path = f"{folder}/leader"
        self._client = client
        self._on_event = on_event
        self._id = uuid.uuid4().hex
        self._losses = client.session_losses
        self._led: Led | None = None
        self._suspended = False
        self._closed = False
        self._lock = threading.RLock()
        ensure(client, self.term_path)
        self._watcher = Watcher(client, self._look, name=f"candidate-{name}", tick=self._tick)
        self._unlisten = client.on_change(self._on_session)
        self._watcher.start()

    def require(self, leadership: Leadership) -> None:
        """See `Leadership.require`."""
        self._tick()
        if self.leadership is not leadership:
            raise _not_leading(self.name, leadership.token)
        self._client.require_session()

    def close(self) -> None:
        """Stop competing; a leader gives way at once. No event follows."""
        with self._lock:
            self._closed = True
            self.leadership = None
        self._unlisten()
        self._watcher.close()
        self._resign()

    def _resign(self) -> None:
        """Remove the leader's znode if it is this candidate's: its session may go on without it."""
        leader = read(self._client, self._leader_path)
        if leader is not None and json.loads(leader[0])["id"] == self._id:
            delete(self._client, [self._leader_path])

    def _look(self, poke: Poke) -> None:
        losses = self._client.session_losses
        kazoo, wait_s = self._client.kazoo, patience_s(self._client) / 2
        try:
            data, stat = kazoo.get_async(self._leader_path, watch=poke).get(timeout=wait_s)
        except NoNodeError:
            self._compete()
            poke(None)  # look at who won
            return
        term_data, term = kazoo.get_async(self.term_path).get(timeout=wait_s)
        if term_data != data:
            poke(None)  # another one was elected between the two requests
            return
        leader = json.loads(data)
        with self._lock:
            if leader["id"] != self._id:
                self._depose("another leader was elected")
                self._follow(Led(leader["name"], term.version))
            elif stat.ephemeralOwner == self._client.session_id and not self._closed:
                self._losses = losses
                self._lead(term.version)
            # else it is this candidate's, of a session that has just ended: wait until it is gone

    def _compete(self) -> None:
        """Become the leader in one step, unless another one is quicker."""
        if self._closed:
            return
        sync(self._client, self.term_path)
        _, stat = ask(self._client, lambda: self._client.kazoo.get_async(self.term_path))
        data = json.dumps({"id": self._id, "name": self.name}).encode()

        def operations(transaction: Any) -> None:
            transaction.create(self._leader_path, data, ephemeral=True)
            transaction.set_data(self.term_path, data, version=stat.version)

        with contextlib.suppress(NodeExistsError, BadVersionError, *ANSWER_LOST):
            commit(
                self._client, operations
            )  # whether it was carried out is seen when looking again
        if self._closed:
            self._resign()  # nobody would look again, and nobody else would ever lead

    def _lead(self, term: int) -> None:
        if self.leadership is not None and self.leadership.token != term:
            self._depose("another leader was elected")  # and this candidate again, after it
        if self.leadership is None:
            self._led = None
            self.leadership = Leadership(self, term)
            self._on_event(Elected(self.leadership))

    def _follow(self, led: Led) -> None:
        if self._led != led and not self._closed:
            self._led = led
            self._on_event(led)

    def _depose(self, reason: str) -> None:
        with self._lock:
            leading, self.leadership = self.leadership, None
            if leading is not None and not self._closed:
                self._on_event(Deposed(leading.token, reason))

    def _tick(self) -> None:
        if self._watcher.age_s() > self._client.session_timeout_s:
            self._depose(NO_ANSWER)

    def _on_session(self, state: SessionState) -> None:
        with self._lock:
            if self._client.session_losses > self._losses:
                self._losses = self._client.session_losses
                self._depose(SESSION_LOST)
            if (state is not SessionState.CONNECTED) != self._suspended and not self._closed:
                self._suspended = not self._suspended
                self._on_event(Suspended() if self._suspended else Resumed())


def _not_leading(name: str, token: int) -> NotLeading:
    return NotLeading(
        f"{name} with token {token} does not lead any more",
        "Nothing was written; the new leader decides. This process stays a candidate.",
    )
