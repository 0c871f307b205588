"""Where the controller's events are kept, so that another process can go on from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from flux_runtime.site.ledger import Event
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.control import ControlLog, Versioned
from flux_runtime.zookeeper.election import Leadership
from flux_runtime.zookeeper.nodes import app_path

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

SLACK_ENTRIES: Final = 256


class EventRecord(Protocol):
    """One total order of events, appended to by whoever leads."""

    def append(self, events: Sequence[Event]) -> None:
        """Keep events; when it returns they are safe. May block.

        Raises:
            NotLeading: this process does not lead any more; nothing was kept.
        """
        ...

    def keep(self, state: bytes) -> None:
        """Keep the state after all events so far, which are not needed any more. May block."""
        ...


class NoRecord:
    """For a single controller, whose loss ends the job."""

    def append(self, events: Sequence[Event]) -> None:
        """The only process that needs them has them."""

    def keep(self, state: bytes) -> None:
        """The only process that needs it has it."""


class ZooKeeperRecord:
    """In the controller's log in ZooKeeper, and beside it the state that a part of it has led to.

    Args:
        log: of the application.
        kept: where the state goes.
        leadership: of this process.
    """

    def __init__(self, log: ControlLog, snapshots: Versioned, leadership: Leadership) -> None:
        self.log = log
        self.kept = snapshots
        self.leadership = leadership
        self.next = 0

    def append(self, events: Sequence[Event]) -> None:
        """In one transaction that fails if another leader has been elected."""
        self.next = self.log.append(self.leadership, encoded(events)) + 1

    def keep(self, state: bytes) -> None:
        """Write the state, then delete entries that it covers; the last stay for slow followers."""
        now = self.kept.read()
        value = self.next.to_bytes(8, "big") + state
        try:
            self.kept.write(self.leadership, value, version=None if now is None else now[1])
        except ValueError as error:
            log.warning("the events are kept as they are: %s", error)
            return
        self.log.trim(self.leadership, self.next - SLACK_ENTRIES)


def kept_state(snapshots: Versioned) -> tuple[int, bytes] | None:
    """The number of the first entry that a kept state does not cover, and the state."""
    entries = snapshots.read()
    if entries is None:
        return None
    return int.from_bytes(entries[0][:8], "big"), entries[0][8:]


def encoded(events: Sequence[Event]) -> bytes:
    """Events as one entry."""
    return json.dumps(list(events), separators=(",", ":")).encode()


def decoded(entry: bytes) -> list[Event]:
    """The value that `encoded` wrote."""
    events: list[Event] = json.loads(entry)
    return events


def control_log(client: Client, app: str) -> tuple[ControlLog, Versioned]:
    """The log of an application's controller, and where the state is kept."""
    return ControlLog(client, app), Versioned(client, app_path(app, "control", "snapshot"))
