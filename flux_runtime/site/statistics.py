"""What a site reports about itself."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, Any

from flux_runtime.site.connection import Connection
from flux_runtime.site.host import LEADER, Load

if TYPE_CHECKING:
    from flux_runtime.site.worker import Worker


class SiteReport:
    """Counts since the last report."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.at = time.monotonic()
        self.cpu_s = _cpu_s()

    def due(self) -> None:
        """Report if it is time."""
        now = time.monotonic()
        worker = self.worker
        leader = worker.links.get(LEADER)
        if now - self.at < worker.config.report_s or leader is None:
            return
        took, self.at = now - self.at, now
        cpu, self.cpu_s = self.cpu_s, _cpu_s()
        host = worker.host
        loads = host.take_loads()
        total = Load(
            sum(load.rows for load in loads.values()),
            sum(load.units for load in loads.values()),
            sum(load.busy_s for load in loads.values()),
        )
        report: dict[str, Any] = {
            "c": "report",
            "pid": os.getpid(),
            "rows_per_s": total.rows / took,
            "units_per_s": total.units / took,
            "busy": total.busy_s / took,
            "cpu": (self.cpu_s - cpu) / took,
            "buffered_units": host.buffered(),
            "state_bytes": sum(s.operator.state_size() for _, s in host.segments()),
            "copies": len(host.nodes),
            "bytes_in": sum(c.bytes_in for c in worker.open),
            "bytes_out": sum(c.bytes_out for c in worker.open),
            "states_moved": worker.states_moved,
            "state_bytes_moved": worker.state_bytes,
        }
        worker.tell(leader, report)

    def controlled(self, connection: Connection, message: dict[str, Any]) -> None:
        """The balancer asks."""


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
