"""The configuration of sites and controllers, given to them when they start."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.site.collector import HELD_MAX_BYTES, collected
from flux_runtime.site.hosting import Hosting
from flux_runtime.site.key import JobKey
from flux_runtime.zookeeper.access import Ensemble

Made = Callable[[], Dataflow] | str
"""What gives the dataflow: a function, or `module:function` where it is to be found."""


class Fenced(Exception):  # noqa: N818 - what happened
    """This incarnation has been removed from the view: it must not act any more.

    A new start of the site joins as a new incarnation, without state, as a standby.
    """


@dataclass(frozen=True, kw_only=True)
class Config:
    """The configuration that all processes of a job share.

    Attributes:
        key: what they know each other by.
        dataflow: gives the dataflow, the same in every process.
        app: name of the application in ZooKeeper.
        zookeeper: addresses of the ensemble; None: one controller at a fixed address, whose loss
            ends the job.
        controller: address of the controller where there is no ZooKeeper.
        bind: address to listen on.
        advertise: address that others reach this process at; `bind` if left out.
        host: the machine, for placing copies apart.
        executor: what the process shares its fate with on that machine; its parent if left out.
        held_max_bytes: uncommitted results that the collector takes.
        session_timeout_s: how long a ZooKeeper session outlives its last sign of life.
        patience_s: how long a site goes on without a leader, and a leader waits for its sites.
        report_s: how often a site reports its metrics.
        hosting: the pair protocol; the same in every process of a job.
    """

    key: JobKey
    dataflow: Made
    app: str = "flux"
    zookeeper: str | Ensemble | None = None
    controller: tuple[str, int] | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    host: str = field(default_factory=socket.gethostname)
    executor: str = ""
    held_max_bytes: int = HELD_MAX_BYTES
    session_timeout_s: float = 10.0
    patience_s: float = 30.0
    report_s: float = 0.5
    hosting: Hosting = field(default_factory=Hosting)

    def __post_init__(self) -> None:
        if (self.zookeeper is None) == (self.controller is None):
            raise ValueError("either `zookeeper` or the address of the `controller` has to be set")

    def load_dataflow(self) -> Dataflow:
        """The dataflow, with the collector."""
        return collected(load(self.dataflow), held_max_bytes=self.held_max_bytes)

    @property
    def reached_at(self) -> str:
        """The address that others are told."""
        return self.advertise or self.bind

    @property
    def fate(self) -> str:
        """The name of all that fails together with this process."""
        return self.executor or str(os.getppid())


@dataclass(frozen=True, kw_only=True)
class SpillTo:
    """Where partitions go that do not fit into a site's memory.

    Attributes:
        folder: on a disk of the site's machine; each process has a folder of its own in it.
        memory_bytes: for operators' states; None: as much as they need, until told otherwise.
        disk_bytes: that may be on disk at once; None: as much as there is. What does not fit stays
            in memory.
        gap_s: from one activation to the next (`t_gap`); None: as long as the last one took.
    """

    folder: Path
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    gap_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How partitions move to even out load (section 6.4, 6.6, 7.3).

    Attributes:
        policy: "load": utilisation; "memory": memory to spare; "hybrid": memory while any partition
            is on disk, else load.
        imbalance: least ratio of utilisations that a move is made for (th_imb).
        utilisation: greatest utilisation of a receiver (th_util).
        quiet: while no site is busier than this, none holds the others up, and load moves nothing.
        delta_min_s: shortest collection phase; it tunes itself above that.
        delta_max_s: longest collection phase.
        severe: ratio of utilisations above which a site gives away several partitions in a round.
        moves_max: most such moves in a round; so many pairs may be without their second copy at
            once because of moves, and so many catch up at once after a failure.
    """

    policy: Literal["load", "memory", "hybrid"] = "hybrid"
    imbalance: float = 1.15
    utilisation: float = 0.925
    quiet: float = 0.8
    delta_min_s: float = 1.0
    delta_max_s: float = 30.0
    severe: float = 1.5
    moves_max: int = 4


@dataclass(frozen=True, kw_only=True)
class SiteConfig(Config):
    """The configuration of a site.

    Attributes:
        site: number of its place, such as the index of its task; incarnations of the same place
            follow one another.
        parent: the process whose end ends this one; None: its parent when it starts.
        spill: where partitions go that do not fit into memory, perhaps only its folder; None keeps
            everything in memory.
    """

    site: int = 0
    parent: int | None = None
    spill: SpillTo | Path | None = None


@dataclass(frozen=True, kw_only=True)
class ControllerConfig(Config):
    """The configuration of a controller.

    Attributes:
        sites: how many sites the first layout waits for.
        folder: where the ingress keeps its journal; every candidate has to reach it.
        run_folder: where metrics and events go.
        stage: what they call the stage; `app` if left out.
        window: batches that are fed and not yet everywhere, per source.
        balance: whether, and how, partitions move to even out load; the same for all candidates.
        durable: what batches in the journal survive: the end of the process, or also that of the
            machine, which costs a flush to disk for each.
        first: number of the first batch; the operators' states already hold those before it.
    """

    sites: int
    folder: Path
    run_folder: Path | None = None
    stage: str = ""
    window: int = 64
    balance: Balance | bool = False
    durable: Literal["process", "machine"] = "process"
    first: int = 0

    @property
    def called(self) -> str:
        """The name that metrics and events have for the stage."""
        return self.stage or self.app

    @property
    def balancing(self) -> Balance | None:
        """How partitions move; None if they do not."""
        if isinstance(self.balance, bool):
            return Balance() if self.balance else None
        return self.balance


def load(maker: Made) -> Dataflow:
    """The dataflow that a function gives.

    Raises:
        ValueError: `module:function` does not name one.
    """
    if not isinstance(maker, str):
        return maker()
    module, _, name = maker.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{maker!r} names no function: {error}") from error
    dataflow = function()
    if not isinstance(dataflow, Dataflow):
        raise ValueError(f"{maker!r} gives {type(dataflow).__name__}, not a Dataflow")
    return dataflow
