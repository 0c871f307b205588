"""A site's reports about itself: to whoever looks, and to the balancer.

The numbers are documented in docs/reference/flux-statistics.md. Reports go to the leader every
`report_s` seconds; it keeps the last of every site (`Client.status`) and appends each to the run
folder. The balancer's questions are answered from the same counters, over the phase it asks about.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flux_runtime.protocol.balancing import Part, SiteStatistics
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import (
    PartReport,
    PartStatistics,
    Report,
    RequestStatistics,
    ResetStatistics,
    Statistics,
)
from flux_runtime.site.copies import LEADER, HostedCopy, Load
from flux_runtime.site.hosting import AnyHost
from flux_runtime.site.idle import IdleSelector
from flux_runtime.site.shell import Shell
from flux_runtime.site.spilling import Spilling

PAGE_BYTES: Final = resource.getpagesize()
STATM: Final = Path("/proc/self/statm")


@dataclass
class Since:
    """The counters at the beginning of a phase.

    Attributes:
        at: when it began.
        idle_s: idle time until then.
        cpu_s: processor time of the process until then.
        loads: what every node had done by then.
    """

    at: float = field(default_factory=lambda: time.monotonic())
    idle_s: float = 0.0
    cpu_s: float = field(default_factory=lambda: _cpu_s())
    loads: Mapping[Node, Load] = field(default_factory=dict)

    @classmethod
    def now(cls, host: AnyHost, idle: IdleSelector) -> Since:
        """A phase that begins now."""
        return cls(idle_s=idle.idle_s, loads=host.counts())


@dataclass(frozen=True, slots=True)
class Phase:
    """The work of a site in a phase.

    Attributes:
        took_s: length.
        utilisation: share of it that the site was not idle: it worked, or waited for the processor.
        cpu: processor time of the process per second.
        available: processor time got per second that the site was not idle; well below 1 if
            something else has the processor.
        loads: what every node has done.
    """

    took_s: float
    utilisation: float
    cpu: float
    available: float
    loads: dict[Node, Load]

    @property
    def waiting(self) -> float:
        """Share of it that the site was not idle and did not have the processor."""
        return self.utilisation * (1.0 - self.available)

    @classmethod
    def ending(cls, since: Since, host: AnyHost, idle: IdleSelector) -> Phase:
        """The phase that ends now."""
        took = max(time.monotonic() - since.at, 1e-6)
        busy = max(took - (idle.idle_s - since.idle_s), 1e-6)
        cpu = _cpu_s() - since.cpu_s
        return cls(
            took_s=took,
            utilisation=min(1.0, busy / took),
            cpu=cpu / took,
            available=min(1.0, cpu / busy),
            loads={n: load.minus(since.loads.get(n)) for n, load in host.counts().items()},
        )


class SiteReport:
    """Answers for one site.

    Args:
        shell: of the site.
        idle: what the site's event loop waits with.
        spilling: keeps it within its memory; None: it has no disk.
    """

    def __init__(self, shell: Shell, idle: IdleSelector, spilling: Spilling | None) -> None:
        self.shell = shell
        self.idle = idle
        self.spilling = spilling
        self.since = Since()
        self.round: tuple[int, Since] | None = None

    def due(self) -> None:
        """Report if it is time."""
        shell = self.shell
        leader = shell.links.get(LEADER)
        waited = time.monotonic() - self.since.at
        if waited >= shell.config.report_s and leader is not None:
            phase = Phase.ending(self.since, shell.host, self.idle)
            self.since = Since.now(shell.host, self.idle)
            shell.tell(leader, self._report(phase))

    def _report(self, phase: Phase) -> Report:
        shell, took = self.shell, phase.took_s
        host = shell.host
        parts = [_part(copy, phase.loads.get(copy.name, Load()), took) for copy in host.copies()]
        return Report(
            pid=os.getpid(),
            rows_per_s=_total(phase, "rows") / took,
            units_per_s=_total(phase, "units") / took,
            utilisation=phase.utilisation - phase.waiting,
            waiting=phase.waiting,
            busy=_total(phase, "operator_s") / took,
            cpu=phase.cpu,
            cpu_available=phase.available,
            memory_bytes=_resident_bytes(),
            buffered_units=host.buffered(),
            state_bytes=sum(part.state_bytes for part in parts),
            copies=len(host.nodes),
            bytes_in=sum(c.bytes_in for c in shell.open),
            bytes_out=sum(c.bytes_out for c in shell.open),
            states_moved=shell.moving.states,
            state_bytes_moved=shell.moving.bytes,
            spill=self.spilling.report() if self.spilling is not None else None,
            parts=tuple(parts),
        )

    def asked(self, connection: Connection, question: ResetStatistics | RequestStatistics) -> None:
        """UF-9: the balancer has a phase begin, or asks about it."""
        if isinstance(question, ResetStatistics):
            self.round = (question.round, Since.now(self.shell.host, self.idle))
        elif self.round is not None and self.round[0] == question.round:
            phase = Phase.ending(self.round[1], self.shell.host, self.idle)
            self.shell.tell(connection, self._answer(question.round, phase))

    def _answer(self, number: int, phase: Phase) -> Statistics:
        """Rows per copy, weighted by what the copies cost: stages differ in cost per row."""
        shell = self.shell
        rows, cpu = _total(phase, "rows"), _total(phase, "cpu_s")
        parts = []
        for copy in shell.host.copies():
            share = phase.loads.get(copy.name, Load()).cpu_s / cpu if cpu > 0 else 0.0
            parts.append(
                PartStatistics(
                    *copy.name.pair,
                    copy.place,
                    rows * share,
                    copy.state_size(),
                    copy.waiting_size(),
                    not copy.resident,
                )
            )
        memory = self.spilling.memory if self.spilling is not None else None
        return Statistics(
            number, phase.utilisation, phase.available, phase.took_s, memory, tuple(parts)
        )


def answered(site: int, answer: Statistics) -> SiteStatistics:
    """The statistics in a site's answer.

    Where nothing has been processed, no copy is known to be larger than another.
    """
    parts: dict[Part, PartStatistics] = {
        (Pair(part.stage, part.part), part.copy): part for part in answer.parts
    }
    processed = {part: its.rows for part, its in parts.items()}
    return SiteStatistics(
        site=site,
        utilisation=answer.utilisation,
        available=answer.available,
        covered_s=answer.covered_s,
        processed=processed if any(processed.values()) else dict.fromkeys(parts, 1.0),
        state={part: float(its.state_bytes) for part, its in parts.items()},
        memory=float("inf") if answer.memory is None else float(answer.memory),
        on_disk=frozenset(part for part, its in parts.items() if its.on_disk),
        pending={part: float(its.waiting_bytes) for part, its in parts.items()},
    )


def _part(copy: HostedCopy, load: Load, took: float) -> PartReport:
    return PartReport(
        node=copy.name._replace(copy=copy.place),
        cpu=load.cpu_s / took,
        operator=load.operator_s / took,
        rows_per_s=load.rows / took,
        units_per_s=load.units / took,
        state_bytes=copy.state_size(),
        waiting_bytes=copy.waiting_size(),
        queued_units=copy.queued(),
        buffered_units=copy.buffered(),
        on_disk=not copy.resident,
    )


def _total(phase: Phase, name: str) -> float:
    return float(sum(getattr(load, name) for load in phase.loads.values()))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> int:
    """Memory that the process has now, or had at most where that is not known."""
    if STATM.exists():
        return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
