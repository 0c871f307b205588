"""A session with a ZooKeeper ensemble, with the three states that matter to coordination.

SUSPENDED (the connection is gone, the session may live) and LOST (the session is gone, with
everything ephemeral) are different; in both, nothing is decided locally (OR-7): `require_session`
raises, `wait_for_session` waits. kazoo reconnects by itself and opens a new session after a loss,
unless the ensemble no longer lets the user in: then it gives up for good (`shut_out`).
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from flux_runtime.zookeeper.access import SASL, Ensemble, ensemble_of
from flux_runtime.zookeeper.errors import (
    AccessRefused,
    EnsembleUnreachable,
    SessionUnavailable,
)

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # into the job's log where there is one, never on stderr


class SessionState(enum.Enum):
    """The state of a session: how much it can be relied on."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

Listener = Callable[[SessionState], None]


class Client:
    """A session that is kept up until `close`; made by `connect`."""

    def __init__(self, ensemble: Ensemble, *, session_timeout_s: float) -> None:
        self.ensemble = ensemble
        self.hosts = ensemble.hosts
        self.session_losses = 0
        """How often the session was lost since `connect` (metric zookeeper_session_losses)."""
        self._changed = threading.Condition()
        self._state = SessionState.LOST
        self._listeners: list[Listener] = []
        self._session_timeout_s = session_timeout_s
        self._closing = False
        self._let_in = self._answered = False
        retry = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0)
        self.kazoo: Any = KazooClient(
            hosts=self.hosts,
            timeout=session_timeout_s,
            **ensemble.arguments(),
            connection_retry=retry,
            command_retry=KazooRetry(max_tries=5, delay=0.1, backoff=2, max_delay=2.0),
            logger=log,
        )
        """The kazoo client underneath, for recipes that need more than the registry."""
        self.kazoo.add_listener(self._on_change)

    @property
    def state(self) -> SessionState:
        """The session's state as last heard."""
        return self._state

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closing

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` at every change of state, from kazoo's thread: it must not block.

        Returns:
            What to call to end that.
        """
        self._listeners = [*self._listeners, listener]
        return lambda: self._forget(listener)

    @property
    def session_timeout_s(self) -> float:
        """How long the session outlives its last sign of life, as asked for."""
        return self._session_timeout_s

    @property
    def session_id(self) -> int | None:
        """The session, as `ephemeralOwner` names it; None while not connected."""
        known = self.kazoo.client_id
        return None if known is None else int(known[0])

    @property
    def shut_out(self) -> bool:
        """Whether the ensemble did not let the user in again, which kazoo does not try twice."""
        ended = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        return self._let_in and not self._closing and self.kazoo.client_state in ended

    def require_session(self) -> None:
        """Return while connected.

        Raises:
            SessionUnavailable: the session is suspended or lost (OR-7).
        """
        if self._state is not SessionState.CONNECTED:
            if self.shut_out:
                raise not_let_in(self.ensemble)
            raise SessionUnavailable(
                f"the ZooKeeper session with {self.hosts} is {self._state.value}",
                "Nothing is decided until it is back; it is re-established by itself as soon as "
                "the ensemble answers again.",
            )

    def wait_for_session(self, timeout_s: float) -> None:
        """Wait until connected.

        Raises:
            EnsembleUnreachable: still not connected after `timeout_s` seconds.
            AccessRefused: the ensemble does not let the user in any more.
            SessionUnavailable: the session has been closed.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._closing or self.shut_out or self._state is SessionState.CONNECTED,
                timeout_s,
            ):
                raise unreachable(self.hosts, timeout_s)
            if self.shut_out:
                raise not_let_in(self.ensemble)
            if self._closing:
                raise SessionUnavailable(
                    f"the ZooKeeper session with {self.hosts} has been closed",
                    "Nothing can be decided any more; open a new one.",
                )

    def close(self) -> None:
        """End the session; its ephemeral znodes go with it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.kazoo.stop()
        self.kazoo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _forget(self, listener: Listener) -> None:
        self._listeners = [known for known in self._listeners if known != listener]

    def _on_change(self, state: str) -> None:
        with self._changed:
            self._state = _STATES[state]
            self._answered = self._answered or self._state is SessionState.CONNECTED
            if self._state is SessionState.LOST and not self._closing:
                self.session_losses += 1
            self._changed.notify_all()
        for listener in self._listeners:
            listener(_STATES[state])


CONNECT_S = 15.0
"""How long `connect` tries where it is not told."""


def connect(
    zookeeper: str | Ensemble, *, timeout_s: float | None = None, session_timeout_s: float = 10.0
) -> Client:
    """A session with an ensemble.

    Args:
        zookeeper: it, or addresses, separated by commas; a path at the end is a chroot.
        timeout_s: how long to try; None: `CONNECT_S`.
        session_timeout_s: how long the session outlives its last sign of life; the ensemble
            bounds it to 2 to 20 of its ticks.

    Raises:
        EnsembleUnreachable: no server of the ensemble answered, or they are no addresses.
        AccessRefused: the ensemble does not know the user by SASL.
        ValueError: references of its access lead nowhere.
    """
    ensemble = ensemble_of(zookeeper)
    hosts = ensemble.hosts
    ensemble.arguments()
    timeout_s = CONNECT_S if timeout_s is None else timeout_s
    try:
        client = Client(ensemble, session_timeout_s=session_timeout_s)
    except ValueError as error:
        raise EnsembleUnreachable(
            f"{hosts!r} is no list of addresses: {error}", "Write host:port,host:port."
        ) from None
    try:
        client.kazoo.start(timeout=timeout_s)
    except (KazooTimeoutError, KazooException, OSError):
        client.close()
        if SASL in ensemble.access and client._answered:
            raise not_let_in(ensemble, f" within {timeout_s:g} s") from None
        raise unreachable(hosts, timeout_s) from None
    except BaseException:
        client.close()
        raise
    if SASL in ensemble.access:  # kazoo takes a session for one before it has said who it is
        try:
            client.kazoo.exists_async("/").get(timeout=timeout_s)
        except (KazooTimeoutError, KazooException):
            client.close()
            raise not_let_in(ensemble, f" within {timeout_s:g} s") from None
    client._let_in = True
    client.wait_for_session(timeout_s)
    return client


def not_let_in(ensemble: Ensemble, when: str = ", which it had before") -> AccessRefused:
    """The error for a user whom the ensemble does not know, at first or when it is back."""
    access = ensemble.access
    by = f"{access.get('user', 'the job')} by {access.get(SASL, 'its access')}"
    return AccessRefused(
        f"the ZooKeeper ensemble at {ensemble.hosts} did not let in {by}{when}",
        "Look at user and password under `zookeeper_access`, and at the JAAS file there; then "
        "start the job again.",
    )


def refused(client: Client) -> AccessRefused:
    """The error for znodes that the client may not read or change."""
    user = client.ensemble.access.get("user")
    whose = "nobody in particular" if user is None else f"{user}, with a password"
    return AccessRefused(
        f"the ZooKeeper ensemble at {client.hosts} refuses this job, which says that it is {whose}",
        "Its znodes, below /blazes, belong to whoever made them: give the same user and password "
        "under `zookeeper_access`, or end the addresses with a path of their own (zk:2181/team).",
    )


def unreachable(hosts: str, timeout_s: float) -> EnsembleUnreachable:
    """The error for an ensemble that does not answer."""
    return EnsembleUnreachable(
        f"no ZooKeeper server answered at {hosts} within {timeout_s:g} s",
        "Check the addresses (host:port,host:port), that the servers run (`echo srvr | nc HOST "
        "PORT`) and that no firewall stands between; `zookeeper: embedded` needs no ensemble.",
    )
