"""A ZooKeeper server for those who have none: one process on 127.0.0.1, from pyspark's jars.

    with EmbeddedZooKeeper(Path("state/zookeeper")) as server:
        client = connect(server.hosts)

It is a real server with durable data, but a single one: it coordinates processes that can reach
this machine's loopback, and does not survive the machine. For more, name an ensemble.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flux_runtime.zookeeper.errors import PortTaken
from flux_runtime.zookeeper.process import LOOPBACK, ServerProcess, ask, free_port

log = logging.getLogger(__name__)

_PORTS_TRIED: Final = 10


class EmbeddedZooKeeper:
    """One ZooKeeper server, from `start` (or `with`) to `stop` or the end of this process.

    Args:
        data_dir: where its data lives; kept between runs, and used by one server at a time.
        port: the port on 127.0.0.1; 0 takes any free one.
        heap_mb: the server's heap; a million registrations take about 300 MB.
        tick_ms: ZooKeeper's tick; a session lives at least 2 ticks without a sign of life.
        fsync: whether an answered write survives a crash of the machine, not only of the server.
        start_timeout_s: how long to wait until it answers; a busy machine can take minutes.
        grace_s: how long it may take to end before it is killed.
        lock_wait_s: how long to wait for a server that is just ending on the same data; longer than
            `grace_s`, since the server of a job that was killed ends by itself.
        on_wait: called every `process.SLOW_S` while it does not answer, with what to tell a person.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        heap_mb: int = 256,
        tick_ms: int = 2000,
        fsync: bool = True,
        start_timeout_s: float = 600.0,
        grace_s: float = 5.0,
        lock_wait_s: float = 60.0,
        on_wait: Callable[[str], None] = log.warning,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be 0 to 65535, not {port}")
        self.data_dir = Path(data_dir).resolve()
        self._port_wanted = port
        self._heap_mb = heap_mb
        self._settings = (f"tickTime={tick_ms}", f"forceSync={'yes' if fsync else 'no'}")
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._lock_wait_s = lock_wait_s
        self._on_wait = on_wait
        self._server: ServerProcess | None = None

    def start(self) -> Self:
        """Start the server, and return when it answers.

        Raises:
            JavaProblem: Java is missing, too old or broken.
            ServerProblem: the port is taken, the data folder in use or unusable, no memory, ...
            RuntimeError: it has been started already.
        """
        if self._server is not None:
            raise RuntimeError("the server has been started already")
        for left in reversed(range(_PORTS_TRIED)):
            server = ServerProcess(
                self.data_dir,
                port=self._port_wanted or free_port(),
                settings=self._settings,
                heap_mb=self._heap_mb,
            )
            try:
                server.start(
                    timeout_s=self._start_timeout_s,
                    lock_wait_s=self._lock_wait_s,
                    grace_s=self._grace_s,
                    on_wait=self._on_wait,
                )
            except PortTaken:
                server.stop(grace_s=self._grace_s)
                if self._port_wanted or not left:
                    raise
                continue  # somebody took the free port before the server did
            except BaseException:
                server.stop(grace_s=self._grace_s)
                raise
            self._server = server
            break
        return self

    def stop(self) -> None:
        """Stop the server; its data stays. Does nothing if it is not running."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(grace_s=self._grace_s)

    def restart(self) -> None:
        """Start a server that has died again, on its data and its port.

        Raises:
            ZooKeeperProblem: it could not be started; a later call may.
        """
        server = self._started
        server.stop(grace_s=0.0)
        server.start(
            timeout_s=self._start_timeout_s,
            lock_wait_s=self._lock_wait_s,
            grace_s=self._grace_s,
            on_wait=self._on_wait,
        )

    def check(self) -> None:
        """Return if the server is running, else raise the `ZooKeeperProblem` that ended it."""
        if not self._started.running:
            raise self._started.failure()

    @property
    def running(self) -> bool:
        """True between `start` and the end of the server, however it came."""
        return self._server is not None and self._server.running

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._started.port

    @property
    def hosts(self) -> str:
        """`127.0.0.1:port`, as clients and `--zookeeper` take it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the server; None where it has ended."""
        return self._started.pid if self.running else None

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.data_dir / "server.log"

    def status(self) -> str:
        """The server's answer to `srvr`: version, latencies, connections, number of znodes."""
        return ask(self.port, "srvr")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _started(self) -> ServerProcess:
        if self._server is None:
            raise RuntimeError("the server has not been started")
        return self._server
