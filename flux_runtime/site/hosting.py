# ruff: noqa: D102 (what each method does stands where it is implemented)
"""The pair protocol of a process: its host, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.spill import Storage
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.resume.flow import Flow
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.collector import HeldResults
from flux_runtime.site.control_messages import AnyNotice
from flux_runtime.site.copies import HostedCopy, Load, Placement
from flux_runtime.site.intake import Intake
from flux_runtime.site.journal import Journal
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.moving import States
from flux_runtime.site.resume_host import ResumeHost, Snapshots
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.wire import Bundles, Kind


class AnyHost(Protocol):
    """A host as whoever runs it sees it; `ResumeHost` says what each does."""

    dataflow: Dataflow
    storage: Storage | None
    last: int | None

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
    def extend(self, entry: Any) -> None: ...
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


@dataclass(frozen=True)
class Hosting:
    """The pair protocol that jobs run, the resume protocol, as the parts of their processes.

    The laboratory has another one to compare it with (`flux_lab.papers`).

    Attributes:
        resumes: it is the resume protocol: view changes and notices are of its own kinds.
    """

    resumes: ClassVar[bool] = True

    def host(self, dataflow: Dataflow, me: int, storage: Storage | None = None) -> AnyHost:
        """The host of a process."""
        return ResumeHost(flow_of(dataflow), me, storage=storage)

    def states(self, host: AnyHost) -> States:
        """The states that leave and reach a host."""
        assert isinstance(host, ResumeHost)
        return Snapshots(host)

    def intake(self, host: AnyHost, journal: Journal, **options: Any) -> Intake:
        """The ingress at a host; for the options see `Intake`."""
        return Intake(host, journal, **options)

    def ledger(
        self, dataflow: Dataflow, *, wanted: int, first: int = 0, parallel_max: int = 1
    ) -> Ledger:
        """The state before the first event; see `ResumeLedger`."""
        return ResumeLedger(
            flow_of(dataflow), wanted=wanted, first=first, parallel_max=parallel_max
        )
