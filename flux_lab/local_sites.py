"""Sites and controllers as processes of this machine, for plain use, tests and measurements.

with LocalSites(dataflow="package.module:function", sites=4, folder=folder) as job:
    feeder, reader = job.feeder("events"), job.reader()
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flux_runtime.observe.reader import Tail
from flux_runtime.observe.run_folder import EVENTS_FILE
from flux_runtime.site.client import Client
from flux_runtime.site.config import ControllerConfig, Made, SiteConfig
from flux_runtime.site.feeder import Feeder
from flux_runtime.site.key import JobKey
from flux_runtime.site.reader import Reader
from flux_runtime.zookeeper.process import free_port


class LocalSites:
    """A job on this machine, from `start` (or `with`) to `stop` or the end of this process.

    Args:
        dataflow: `module:function`, or a function that can be pickled.
        sites: how many sites, all present at first.
        folder: for the journal, logs and the run folder.
        zookeeper: addresses of an ensemble; None: one controller, which must not die.
        controllers: how many candidates; more than one needs ZooKeeper.
        app: name of the application in ZooKeeper.
        executors: executor of each site, by number; each its own if left out.
        settings: further fields of the configurations.
        controller_settings: further fields of the controllers' configuration.
        site_settings: further fields of the sites' configuration.
        run_folder: where metrics and events go; `run` in `folder` if left out.
    """

    def __init__(
        self,
        *,
        dataflow: Made,
        sites: int,
        folder: Path,
        zookeeper: str | None = None,
        controllers: int = 1,
        app: str = "flux",
        executors: Mapping[int, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        controller_settings: Mapping[str, Any] | None = None,
        site_settings: Mapping[str, Any] | None = None,
        run_folder: Path | None = None,
    ) -> None:
        if zookeeper is None and controllers > 1:
            raise ValueError("several controllers need ZooKeeper to elect one of them")
        self.folder = folder
        self.run_folder = run_folder or folder / "run"
        fixed = None if zookeeper else ("127.0.0.1", free_port())
        common: dict[str, Any] = {
            "key": JobKey.fresh(),
            "dataflow": dataflow,
            "app": app,
            "zookeeper": zookeeper,
            "controller": fixed,
            **(settings or {}),
        }
        self.site_config = SiteConfig(**common, **(site_settings or {}))
        self.controller_config = ControllerConfig(
            **common,
            sites=sites,
            folder=folder,
            run_folder=self.run_folder,
            **(controller_settings or {}),
        )
        self.executors = dict(executors or {})
        self.count = sites
        self.candidates = controllers
        self.controllers: list[subprocess.Popen[bytes]] = []
        self.addresses: dict[int, tuple[str, int]] = {}
        self.sites: dict[int, subprocess.Popen[bytes]] = {}
        self.clients: list[Client] = []

    def start(self, *, timeout_s: float = 180.0) -> Self:
        """Start everything; return when all sites are registered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(self.candidates):
            self.start_controller()
        for process in self.controllers:  # before a site may be given the port that was free
            host, port = self.ready(process, timeout_s)
            self.addresses[process.pid] = (host, port)
        for site in range(self.count):
            self.start_site(site)
        for process in self.sites.values():
            self.ready(process, timeout_s)
        return self

    def start_controller(self) -> subprocess.Popen[bytes]:
        """Start one more controller."""
        name = f"controller-{len(self.controllers)}"
        self.controllers.append(self._start(self.controller_config, name))
        return self.controllers[-1]

    def start_site(self, site: int) -> subprocess.Popen[bytes]:
        """Start a site, or a new incarnation of it."""
        executor = self.executors.get(site, str(site))
        config = replace(self.site_config, site=site, executor=executor)
        self.sites[site] = self._start(config, f"site-{site}")
        return self.sites[site]

    def _start(self, config: SiteConfig | ControllerConfig, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "flux_runtime.site.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(config))
        process.stdin.close()
        return process

    def ready(self, process: subprocess.Popen[bytes], timeout_s: float = 180.0) -> Any:
        """Wait until a process says that it is ready; gives what it says.

        Raises:
            RuntimeError: it ended, or said nothing within the time.
        """
        assert process.stdout is not None
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            readable, _, _ = select.select([process.stdout], [], [], 0.2)
            if readable:
                line = process.stdout.readline()
                message = json.loads(line) if line else {}
                if "ready" in message:
                    return message["ready"]
                break
            if process.poll() is not None:
                break
        raise RuntimeError(f"a process did not start (status {process.poll()}); see {self.folder}")

    def kill(self, site: int, how: int = signal.SIGKILL) -> None:
        """Send a signal to a site."""
        os.kill(self.sites[site].pid, how)

    def feeder(self, source: str, **options: Any) -> Feeder:
        """A feeder of this job."""
        feeder = Feeder(self.site_config, source, **options)
        self.clients.append(feeder)
        return feeder

    def reader(self, **options: Any) -> Reader:
        """A reader of this job."""
        reader = Reader(self.site_config, **options)
        self.clients.append(reader)
        return reader

    def events(self) -> list[dict[str, Any]]:
        """The events that the controllers have noted in the run folder."""
        records = Tail(self.run_folder / EVENTS_FILE).records()
        return [dict(record) for record in records if "kind" in record]

    def recoveries(self) -> list[float]:
        """Seconds that each recovery took, until every pair was whole."""
        return [event["seconds"] for event in self.events() if event["kind"] == "recovered"]

    def stop(self) -> None:
        """End all processes that are left."""
        for client in self.clients:
            with contextlib.suppress(OSError):
                client.close()
        for process in (*self.controllers, *self.sites.values()):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
