"""Several ZooKeeper servers on 127.0.0.1 that vote, to test what the loss of one of them does.

    with LoopbackEnsemble(folder) as ensemble:
        client = connect(ensemble.hosts)
        ensemble.kill(ensemble.leader())

For tests and experiments: all servers share this machine's fate. Servers are counted from 1.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flux_runtime.zookeeper.errors import PortTaken, ServerFailed
from flux_runtime.zookeeper.process import LOOPBACK, ServerProcess, ask, free_port

_GRACE_S: Final = 5.0
_PORTS_TRIED: Final = 5


class LoopbackEnsemble:
    """An ensemble from `start` (or `with`) to `stop` or the end of this process.

    Args:
        folder: where the servers keep their data, each in a folder of its own.
        size: how many servers; a majority of them has to live.
        heap_mb: of each server.
        tick_ms: ZooKeeper's tick; elections and sessions are counted in it.
        start_timeout_s: how long to wait until all of them serve.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        size: int = 3,
        heap_mb: int = 128,
        tick_ms: int = 500,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.size = size
        self._heap_mb = heap_mb
        self._tick_ms = tick_ms
        self._start_timeout_s = start_timeout_s
        self._servers: Mapping[int, ServerProcess] = {}

    def start(self) -> Self:
        """Start all servers, and return when all of them serve.

        Raises:
            ZooKeeperProblem: one could not be started; none is left running.
        """
        for left in reversed(range(_PORTS_TRIED)):
            self._servers = self._new_servers()
            try:
                for server in self._servers.values():
                    server.launch(lock_wait_s=_GRACE_S, grace_s=_GRACE_S)
                for server in self._servers.values():
                    server.wait_ready(timeout_s=self._start_timeout_s)
            except PortTaken:
                self.stop()
                if not left:
                    raise
                continue
            except BaseException:
                self.stop()
                raise
            break
        return self

    def stop(self) -> None:
        """Stop all servers; their data stays."""
        for server in self._servers.values():
            server.stop(grace_s=_GRACE_S)
        self._servers = {}

    def kill(self, number: int) -> None:
        """Kill a server at once, as a crash does."""
        self._servers[number].kill()

    def restart(self, number: int) -> None:
        """Start a server again, on its old data and port; return when it serves."""
        self._servers[number].start(
            timeout_s=self._start_timeout_s, lock_wait_s=_GRACE_S, grace_s=_GRACE_S
        )

    def leader(self, *, timeout_s: float = 30.0) -> int:
        """The number of the server that leads, once there is one.

        Raises:
            ServerFailed: there was none within the time limit.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for number, server in self._servers.items():
                if re.search(r"^Mode: leader$", ask(server.port, "srvr"), re.MULTILINE):
                    return number
            time.sleep(0.05)
        raise ServerFailed(
            f"no leader was elected within {timeout_s:g} s",
            f"A majority of the {self.size} servers has to live.",
        )

    @property
    def hosts(self) -> str:
        """Addresses of all servers, as clients take them."""
        return ",".join(f"{LOOPBACK}:{server.port}" for server in self._servers.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _new_servers(self) -> Mapping[int, ServerProcess]:
        numbers = range(1, self.size + 1)
        settings = [
            f"tickTime={self._tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            *(f"server.{number}={LOOPBACK}:{free_port()}:{free_port()}" for number in numbers),
        ]
        return {
            number: ServerProcess(
                self.folder / str(number),
                port=free_port(),
                settings=settings,
                heap_mb=self._heap_mb,
                member=number,
            )
            for number in numbers
        }
