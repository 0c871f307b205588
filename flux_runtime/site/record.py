"""Where the controller's events are kept, so that another process can go on from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from flux_runtime.site.ledger import Event
from flux_runtime.zookeeper.client import Client
from flux_runtime.zookeeper.control import ControlLog
from flux_runtime.zookeeper.election import Leadership


class EventRecord(Protocol):
    """One total order of events, appended to by whoever leads."""

    def append(self, events: Sequence[Event]) -> None:
        """Keep events; when it returns they are safe. May block.

        Raises:
            NotLeading: this process does not lead any more; nothing was kept.
        """
        ...


class NoRecord:
    """For a single controller, whose loss ends the job."""

    def append(self, events: Sequence[Event]) -> None:
        """The only process that needs them has them."""


class ZooKeeperRecord:
    """In the controller's log in ZooKeeper."""

    def __init__(self, log: ControlLog, leadership: Leadership) -> None:
        self.log = log
        self.leadership = leadership

    def append(self, events: Sequence[Event]) -> None:
        """In one transaction that fails if another leader has been elected."""
        self.log.append(self.leadership, encoded(events))


def encoded(events: Sequence[Event]) -> bytes:
    """Events as one entry."""
    return json.dumps(list(events), separators=(",", ":")).encode()


def decoded(entry: bytes) -> list[Event]:
    """What `encoded` wrote."""
    events: list[Event] = json.loads(entry)
    return events


def control_log(client: Client, app: str) -> ControlLog:
    """The log of an application's controller."""
    return ControlLog(client, app)
