"""The copies of a site, as whoever reports on them, keeps their states or spills them sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from flux_runtime.protocol.dataflow import Operator
from flux_runtime.protocol.spill import Storage
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.resume.messages import Copy
from flux_runtime.resume.replica import Replica
from flux_runtime.resume.site import Site

LEADER: Final = -1
"""The site number of whoever leads the controller; it hosts ingress and egress."""
BASE_MIN_BYTES: Final = 1 << 20
"""Of a state of which most is sent before the partition waits for it."""
Placement = Mapping[tuple[Pair, int], int]
"""Site, or number, of each copy."""


@dataclass
class Load:
    """The work of one copy since it came here.

    Attributes:
        rows: rows received.
        units: units received.
        operator_s: processor time of its operator.
        cpu_s: processor time of all that was done for it, its operator included.
    """

    rows: int = 0
    units: int = 0
    operator_s: float = 0.0
    cpu_s: float = 0.0

    def minus(self, before: Load | None) -> Load:
        """The work that it has done since then."""
        if before is None:
            return self
        return Load(
            self.rows - before.rows,
            self.units - before.units,
            self.operator_s - before.operator_s,
            self.cpu_s - before.cpu_s,
        )


class HostedCopy(Protocol):
    """A copy of a pair on a site."""

    # fmt: off
    @property
    def name(self) -> Node:
        """Its name as long as it stands here."""
    @property
    def place(self) -> int:
        """Its place among the copies of its pair: 0 or 1."""
    @property
    def operator(self) -> Operator:
        """The operator; another one while the state is on disk."""
    @property
    def works(self) -> bool:
        """Whether it has its state."""
    @property
    def done(self) -> int:
        """The last batch that it has processed."""
    @property
    def resident(self) -> bool:
        """Whether the state is in memory."""
    @property
    def sends_parts(self) -> bool:
        """Whether another copy is being sent the parts of its state."""
    @property
    def waiting(self) -> bool:
        """Whether a batch waits for the state to be in memory, or to be processed."""
    # fmt: on

    def can_work(self) -> bool:
        """Whether it could go on, if its state is in memory."""

    def evict(self) -> None:
        """SP-2: write the state out, unless it moves just now."""

    def activate(self) -> None:
        """SP-4, SP-5: read the state in."""

    def state(self) -> Any:
        """The operator's state, wherever it is."""

    def state_size(self) -> int:
        """Bytes of it."""

    def waiting_size(self) -> int:
        """Bytes of rows that wait for it."""

    def queued(self) -> int:
        """Units that have come and are not processed."""

    def buffered(self) -> int:
        """Units of its output that consumers may still want."""


class OnDisk:
    """The state of an operator on disk, in the place of the operator: it can process nothing.

    Args:
        storage: the site's disk.
        name: of the copy.
        state: of its operator.
    """

    full: Final = True

    def __init__(self, storage: Storage, name: Node, state: Any) -> None:
        self._storage = storage
        self._name = name
        self._size = storage.write(name, 0, state)

    def get_state(self) -> Any:
        """The state, which stays on disk."""
        return self._storage.read(self._name, 0)

    def state_size(self) -> int:
        """Bytes of it."""
        return self._size

    def leave(self) -> None:
        """The state is not needed there any more."""
        self._storage.drop(self._name, 0)


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A replica; the first batch of the source is number 0, that of the protocol 1.

    Of a copy on disk neither input nor output is: there is never more than `window` batches.
    """

    replica: Replica
    site: Site
    sends_parts: bool
    storage: Storage | None

    @property
    def name(self) -> Node:
        """See `HostedCopy`."""
        return name_of(self.replica.copy)

    @property
    def place(self) -> int:
        """See `HostedCopy`."""
        copy = self.replica.copy
        return min([*self.site.members[copy.pair]].index(copy), 1)

    @property
    def operator(self) -> Operator:
        """See `HostedCopy`."""
        assert self.replica.operator is not None
        return self.replica.operator

    @property
    def works(self) -> bool:
        """See `HostedCopy`."""
        return True

    @property
    def done(self) -> int:
        """See `HostedCopy`."""
        return self.replica.done - 1

    @property
    def resident(self) -> bool:
        """See `HostedCopy`."""
        return not isinstance(self.replica.operator, OnDisk)

    @property
    def waiting(self) -> bool:
        """See `HostedCopy`."""
        return self.replica.ready()

    def can_work(self) -> bool:
        """See `HostedCopy`."""
        return self.site.has_room(self.replica.copy)

    def evict(self) -> None:
        """See `HostedCopy`."""
        if self.resident and not self.sends_parts:
            assert self.storage is not None
            self.replica.operator = cast(Operator, OnDisk(self.storage, self.name, self.state()))

    def activate(self) -> None:
        """See `HostedCopy`."""
        if isinstance(disk := self.replica.operator, OnDisk):
            operator = self.site.flow.dataflow.operator(self.replica.copy.pair)
            operator.install_state(disk.get_state())
            disk.leave()
            self.replica.operator = operator

    def state(self) -> Any:
        """See `HostedCopy`."""
        return self.operator.get_state()

    def state_size(self) -> int:
        """See `HostedCopy`."""
        return int(self.operator.state_size())

    def waiting_size(self) -> int:
        """See `HostedCopy`."""
        size = self.site.flow.dataflow.rows_size
        waiting = (unit for row in self.replica.rows.values() for unit in row[:-1])
        return sum(int(size(unit)) for unit in waiting if unit is not None)

    def queued(self) -> int:
        """See `HostedCopy`."""
        return sum(len(row) - 1 - row[-1] for row in self.replica.rows.values())

    def buffered(self) -> int:
        """See `HostedCopy`."""
        return sum(unit is not None for row in self.replica.held for unit in row)


def name_of(copy: Copy) -> Node:
    """The name of a copy of `flux_runtime.resume` among nodes: its number is its life."""
    return Node(copy.stage, copy.part, 0, copy.number)
