"""What a site and a controller are told when they start."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.site.collector import HELD_MAX_BYTES, collected
from flux_runtime.site.key import JobKey

Made = Callable[[], Dataflow] | str
"""What gives the dataflow: a function, or `module:function` where it is to be found."""


class Fenced(Exception):  # noqa: N818 - what happened
    """This incarnation has been removed from the view: it must not act any more.

    A new start of the site joins as a new incarnation, without state, as a standby.
    """


@dataclass(frozen=True, kw_only=True)
class Config:
    """What all processes of a job are told alike.

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
        credits: units under way per channel.
        held_max_bytes: uncommitted results that the collector takes.
        state_max_bytes: a larger state of one partition is refused.
        session_timeout_s: how long a ZooKeeper session outlives its last sign of life.
        patience_s: how long a site goes on without a leader, and a leader waits for its sites.
        report_s: how often a site reports its metrics.
    """

    key: JobKey
    dataflow: Made
    app: str = "flux"
    zookeeper: str | None = None
    controller: tuple[str, int] | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    host: str = field(default_factory=socket.gethostname)
    executor: str = ""
    credits: int = 4
    held_max_bytes: int = HELD_MAX_BYTES
    state_max_bytes: int = 1 << 30
    session_timeout_s: float = 10.0
    patience_s: float = 30.0
    report_s: float = 0.5

    def __post_init__(self) -> None:
        if (self.zookeeper is None) == (self.controller is None):
            raise ValueError("either `zookeeper` or the address of the `controller` has to be set")

    def made(self) -> Dataflow:
        """The dataflow, with the collector."""
        return collected(load(self.dataflow), held_max_bytes=self.held_max_bytes)

    @property
    def reached_at(self) -> str:
        """The address that others are told."""
        return self.advertise or self.bind

    @property
    def fate(self) -> str:
        """What this process shares its fate with."""
        return self.executor or str(os.getppid())


@dataclass(frozen=True, kw_only=True)
class SiteConfig(Config):
    """What a site is told.

    Attributes:
        site: number of its place, such as the index of its task; incarnations of the same place
            follow one another.
        spill: folder for what does not fit into memory; None keeps everything in memory.
    """

    site: int = 0
    spill: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ControllerConfig(Config):
    """What a controller is told.

    Attributes:
        sites: how many sites the first layout waits for.
        folder: where the ingress keeps its journal; every candidate has to reach it.
        run_folder: where metrics and events go.
        window: batches that are fed and not yet everywhere, per source.
        balance: whether partitions move to even out load.
    """

    sites: int
    folder: Path
    run_folder: Path | None = None
    window: int = 64
    balance: bool = False


def load(made: Made) -> Dataflow:
    """The dataflow that a function gives.

    Raises:
        ValueError: `module:function` does not name one.
    """
    if not isinstance(made, str):
        return made()
    module, _, name = made.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as wrong:
        raise ValueError(f"{made!r} names no function: {wrong}") from wrong
    dataflow = function()
    if not isinstance(dataflow, Dataflow):
        raise ValueError(f"{made!r} gives {type(dataflow).__name__}, not a Dataflow")
    return dataflow
