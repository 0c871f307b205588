"""Proposes a producer's batches, those that wait together, each once (OR-2, OR-3, OR-7).

    proposer = Proposer(client, "app", "ads-3", on_placed=print)
    proposer.propose(proposer.next, proposer.next + 4095)
    proposer.wait()

The shell around `proposals.Proposals`. Whoever proposes sends the create, if it is time for one; a
thread takes the answers, and reads the order where one was lost. Nothing is sent while there is no
session. A lone batch never waits; where batches come fast, each create takes along what has come
within `GATHER_S`.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from flux_runtime.ordering.places import CLAIMS_MAX, Batch, Claims, Verdicts, counting, encode
from flux_runtime.ordering.proposals import (
    IN_FLIGHT_MAX,
    Action,
    CatchUp,
    Create,
    Placed,
    Proposals,
)
from flux_runtime.ordering.scope import ALL, Scope, catch_up
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.errors import SessionProblem, SessionUnavailable
from flux_runtime.zookeeper.nodes import ANSWER_LOST
from flux_runtime.zookeeper.tail import PREFIX, Trimmed, number_of

GATHER_S: Final = 0.01
"""So far apart at least are the creates of a producer whose batches come faster than that."""
_RETRY_S: Final = 0.2

Event = Callable[[], list[Action]]
"""Tells the machine what has happened."""


class Proposer:
    """One producer of one scope, in this process; `close` it.

    A process that has been replaced under the same name may still be told that a batch has its
    place although the batch is outdated: its host has to fence it. The new one begins where the
    order says.

    Args:
        client: a session.
        app: name of the application.
        producer: name that survives restarts.
        scope: name of the order.
        in_flight_max: how many creates are under way at once; batches that come meanwhile share
            the place of the next one.
        group_max: how many batches share a place at most; 1, with batches of one record, is the
            order of messages of the paper (OR-9).
        waiting_max: how many batches `propose` takes ahead of their places.
        on_placed: called with every batch and its place, in order, in a thread of the proposer's.
        timeout_s: how long `Proposer` and `wait` wait.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        producer: str,
        *,
        scope: str = ALL,
        in_flight_max: int = IN_FLIGHT_MAX,
        group_max: int = CLAIMS_MAX,
        waiting_max: int = 1024,
        on_placed: Callable[[Batch, int], None] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.next = 0
        """The offset of the next record to propose."""
        self._scope = Scope(client, app, scope)
        self._group_max = group_max
        self._machine = Proposals(
            producer, uuid.uuid4().hex, in_flight_max=in_flight_max, group_max=group_max
        )
        self._waiting_max = waiting_max
        self._on_placed = on_placed
        self._timeout_s = timeout_s
        self._order = self._scope.base()
        self._places: dict[int, int] = {}
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        """Guards the machine and what follows."""
        self._taken = 0
        self._placed = 0
        self._began = False
        self._created_at = 0.0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"propose-{producer}", daemon=True)
        self._thread.start()
        self._events.put(self._machine.begin)
        try:
            self._wait(lambda: self._began)
        except BaseException:
            self.close()
            raise
        self.next = self._order.next_of(producer)

    def propose(self, first: int, last: int) -> None:
        """Propose the next records as one batch; returns before it has its place.

        Raises:
            ValueError: they are not the next ones.
            Superseded: another process has begun under this name.
            EnsembleUnreachable: too many batches wait already, for too long.
        """
        if first != self.next or last < first:
            raise ValueError(f"records {first} to {last} are not the next ones after {self.next}")
        with self._changed:
            self._wait(lambda: self._taken - self._placed < self._waiting_max)
            self.next = last + 1
            self._taken += 1
            self._step(lambda: self._machine.add(first, last))

    def wait(self) -> None:
        """Return when everything that was proposed has its place.

        Raises:
            Superseded: another process has begun under this name.
            EnsembleUnreachable: it takes too long.
        """
        self._wait(lambda: self._taken == self._placed)

    def close(self) -> None:
        """Stop; what has no place by now may get one or not."""
        self._events.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(10.0)

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._error is not None or condition(), self._timeout_s
            )
        if self._error is not None:
            raise self._error
        if not done:
            self._scope.client.wait_for_session(0.0)  # says so if that is the reason
            raise SessionUnavailable(
                f"{self._machine.producer} got no place within {self._timeout_s:g} s",
                "The ensemble is overloaded or without a majority; what was proposed is not lost.",
            )

    def _run(self) -> None:
        try:
            while (event := self._events.get()) is not None:
                self._gather()
                self._step(event)
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _step(self, event: Event) -> None:
        """Do what the machine says; no other step gets in between it and its creates."""
        with self._changed:
            actions = event()
            for action in actions:
                if isinstance(action, Create):
                    self._create(action.claims)
        placed = 0
        for action in actions:
            match action:
                case Placed(batch, place):
                    placed += 1
                    if self._on_placed is not None:
                        self._on_placed(batch, place)
                case CatchUp():
                    self._catch_up()
        if placed:
            with self._changed:
                self._placed += placed
                self._changed.notify_all()

    def _create(self, claims: Claims) -> None:
        self._created_at = time.monotonic()
        answer = self._scope.client.kazoo.create_async(
            f"{self._scope.places}/{PREFIX}", encode(claims), sequence=True
        )
        answer.rawlink(lambda answer: self._events.put(lambda: self._answered(claims, answer)))

    def _gather(self) -> None:
        """Where batches wait already, let more of them come for the next create (group commit)."""
        if self._group_max > 1 and self._machine.waiting:
            time.sleep(max(0.0, self._created_at + GATHER_S - time.monotonic()))

    def _answered(self, claims: Claims, answer: Any) -> list[Action]:
        try:
            path: str = answer.get(block=False)
        except ANSWER_LOST:
            return self._machine.failed(claims)
        return self._machine.answered(claims, number_of(path))

    def _catch_up(self) -> None:
        """Read the order to its end, however often the session is lost on the way."""
        while True:
            try:
                self._scope.client.wait_for_session(_RETRY_S)
                catch_up(self._scope, self._order, seen=self._seen)
                break
            except Trimmed:
                base = self._scope.base()
                if base.at <= self._order.at:
                    raise
                self._order = base
            except (*ANSWER_LOST, SessionProblem):
                if self._scope.client.closed:
                    raise
                time.sleep(_RETRY_S)
        places, self._places = self._places, {}
        self._step(lambda: self._machine.caught_up(self._order, places))
        with self._changed:
            self._began = self._machine.begun
            self._changed.notify_all()

    def _seen(self, place: int, claims: Claims, verdicts: Verdicts) -> None:
        for _, batch in counting(claims, verdicts):
            if batch.token == self._machine.token:
                self._places[batch.first] = place
