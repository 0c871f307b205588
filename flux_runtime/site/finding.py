"""How a process finds the leader and becomes a member: through ZooKeeper, or at a fixed address."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Protocol, Self

from flux_runtime.site.config import Config, SiteConfig
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.membership import Fenced, Member, Seat, join, next_incarnation
from flux_runtime.zookeeper.nodes import app_path, delete, read

OnFenced = Callable[[str], None]


class Finder(Protocol):
    """Who leads, and this process' membership."""

    def leader(self) -> tuple[str, int] | None:
        """The address of whoever leads; None while nobody does. May block for a moment."""
        ...

    def join(self, config: SiteConfig, port: int, on_fenced: OnFenced) -> str:
        """Become a member; gives the identity of this incarnation. May block."""
        ...

    def confirmed(self) -> bool:
        """Whether this process has lately been told that it is a member."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class FixedFinder:
    """One controller, at an address that everybody has been told."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def leader(self) -> tuple[str, int] | None:
        """The one address."""
        return self.address

    def join(self, config: SiteConfig, port: int, on_fenced: OnFenced) -> str:
        """There is nothing to join but the controller."""
        return f"{config.site}.{uuid.uuid4().hex[:12]}"

    def confirmed(self) -> bool:
        """Nobody but the controller could say."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return


class ZooKeeperFinder:
    """An elected leader, and members with ephemeral nodes."""

    def __init__(self, config: Config, client: Client) -> None:
        self.client = client
        self.app = config.app
        self.seat: Seat | None = None
        self._leader_path = app_path(config.app, "control", "leader")

    def leader(self) -> tuple[str, int] | None:
        """The address that the leader was elected under."""
        node = read(self.client, self._leader_path)
        if node is None:
            return None
        host, _, port = json.loads(node[0])["name"].rpartition(":")
        return host, int(port)

    def depose(self, address: tuple[str, int]) -> None:
        """End the term of the leader at this address, if it leads still."""
        if self.leader() == address:
            delete(self.client, [self._leader_path])

    def join(self, config: SiteConfig, port: int, on_fenced: OnFenced) -> str:
        """Make the ephemeral node whose loss fences this incarnation."""

        def on_event(event: object) -> None:
            if isinstance(event, Fenced):
                on_fenced(event.reason)

        member = Member(
            site=config.site,
            incarnation=next_incarnation(self.client, self.app, config.site),
            host=config.host,
            executor=config.fate,
            address=f"{config.reached_at}:{port}",
        )
        self.seat = join(self.client, self.app, member, on_event=on_event)
        return member.name

    def confirmed(self) -> bool:
        """The addresses that the seat knows."""
        return self.seat is not None and self.seat.confirmed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()


def finder(config: Config) -> Finder:
    """The way that the configuration names.

    Raises:
        EnsembleUnreachable: ZooKeeper does not answer.
    """
    if config.controller is not None:
        return FixedFinder(config.controller)
    assert config.zookeeper is not None
    client = connect(config.zookeeper, session_timeout_s=config.session_timeout_s)
    return ZooKeeperFinder(config, client)
