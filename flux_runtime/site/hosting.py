# ruff: noqa: D102 (what each method does stands where it is implemented)
"""The host of a process, of either protocol, and the states that leave and reach it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.spill import Storage
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.resume.flow import Flow
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.collector import HeldResults
from flux_runtime.site.config import Config
from flux_runtime.site.control_messages import AnyNotice
from flux_runtime.site.copies import HostedCopy
from flux_runtime.site.host import Host, Load, Placement
from flux_runtime.site.moving import Moving
from flux_runtime.site.resume_host import ResumeHost, Snapshots
from flux_runtime.site.wire import Bundles, Kind


class AnyHost(Protocol):
    """A host as whoever runs it sees it; `Host` and `ResumeHost` say what each does."""

    dataflow: Dataflow
    storage: Storage | None

    # fmt: off
    @property
    def me(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def busy(self) -> bool: ...
    @property
    def owing(self) -> Any: ...
    @property
    def nodes(self) -> Mapping[Any, Any]: ...

    def become(self, number: int) -> None: ...
    def connect(self, site: int) -> None: ...
    def disconnect(self, site: int) -> None: ...
    def reconnect(self, site: int) -> None: ...
    def lay_out(
        self, placement: Placement, lives: Placement, *, base: int, ingress: int, done: int
    ) -> None: ...
    def extend(self, entry: Any, site: int | None) -> None: ...
    def trim(self, base: int) -> None: ...
    def resume_points(self) -> Mapping[Node, int]: ...
    def take_notices(self) -> tuple[AnyNotice, ...]: ...

    def take(self, site: int, kind: Kind, body: memoryview, decoder: RowsDecoder) -> None: ...
    def put(self, site: int, encoder: RowsEncoder, out: Bundles) -> None: ...
    def hold(self, sites: set[int]) -> None: ...
    def touch_all(self) -> None: ...
    def turn(self, budget_s: float = ...) -> bool: ...

    def results(self) -> HeldResults | None: ...
    def commit(self, offset: int) -> None: ...
    def copies(self) -> Iterator[HostedCopy]: ...
    def counts(self) -> dict[Node, Load]: ...
    def buffered(self) -> int: ...
    # fmt: on


def flow_of(dataflow: Dataflow) -> Flow:
    """The dataflow, with its collector, as the resume protocol sees it."""
    return Flow(dataflow=dataflow, collects=True)


def hosted(config: Config, dataflow: Dataflow, me: int, storage: Storage | None = None) -> AnyHost:
    """The host that a process is told to have."""
    if config.papers:
        return Host(dataflow, me, credits=config.credits, storage=storage)
    return ResumeHost(flow_of(dataflow), me, storage=storage)


def states_of(host: AnyHost) -> Moving | Snapshots:
    """The states that leave and reach a host."""
    if isinstance(host, Host):
        return Moving(host)
    assert isinstance(host, ResumeHost)
    return Snapshots(host)
