"""The papers' protocol as the parts of a job's processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flux_lab.papers.host import Host
from flux_lab.papers.intake import PapersIntake
from flux_lab.papers.ledger import PapersLedger
from flux_lab.papers.moving import Moving
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.spill import Storage
from flux_runtime.site.hosting import AnyHost, Hosting
from flux_runtime.site.intake import Intake
from flux_runtime.site.journal import Journal
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.moving import States


@dataclass(frozen=True)
class PapersHosting(Hosting):
    """See `Hosting`.

    Args:
        credits: units under way per channel.
    """

    credits: int = 4
    resumes: ClassVar[bool] = False

    def host(self, dataflow: Dataflow, me: int, storage: Storage | None = None) -> AnyHost:
        """See `Hosting`."""
        return Host(dataflow, me, credits=self.credits, storage=storage)

    def states(self, host: AnyHost) -> States:
        """See `Hosting`."""
        assert isinstance(host, Host)
        return Moving(host)

    def intake(self, host: AnyHost, journal: Journal, **options: Any) -> Intake:
        """See `Hosting`."""
        return PapersIntake(host, journal, **options)

    def ledger(
        self, dataflow: Dataflow, *, wanted: int, first: int = 0, parallel_max: int = 1
    ) -> Ledger:
        """See `Hosting`; batches count from 0."""
        return PapersLedger(dataflow.shape, wanted=wanted, parallel_max=parallel_max)
