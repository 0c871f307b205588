"""One ZooKeeper server process: configuration, class path, start, readiness, end, failure.

Shared by the single embedded server and the loopback ensemble. The server is the one in pyspark's
jars; it listens on 127.0.0.1 only and has no admin server.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from flux_runtime.zookeeper.errors import (
    DataFolderLocked,
    DataFolderUnusable,
    JarsMissing,
    JavaTooOld,
    NoMemory,
    PortTaken,
    ServerFailed,
    ZooKeeperProblem,
)
from flux_runtime.zookeeper.java import INSTALL, find_java

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
SLOW_S: Final = 30.0
"""How long a server is waited for between two words about it."""
STANDALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
QUORUM: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORT_MIN: Final = 10_000
"""Well-known services have those below."""
_PORTS_TRIED: Final = 100

_NEEDED_JARS: Final = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "netty-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
    "audience-annotations-*.jar",
)
"""A short class path halves the start-up time against all of pyspark's jars."""

_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
"""Small and quick to start; the compiler's second level gains nothing for a loopback server."""

_LOG4J: Final = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
"""

_RESTART: Final = "Free memory, or give the server less of it (`heap_mb`), and start again."
_FAILURES: Final[tuple[tuple[str, type[ZooKeeperProblem], str, str], ...]] = (
    (
        r"Address already in use",
        PortTaken,
        "port {port} on 127.0.0.1 is taken by another process",
        "Choose another port, or 0 for any free one; `ss -ltnp` shows who listens.",
    ),
    (r"UnsupportedClassVersionError", JavaTooOld, "Java is too old for the server", INSTALL),
    (
        r"insufficient memory|Could not (reserve|allocate)|OutOfMemoryError|"
        r"Cannot allocate memory|Invalid maximum heap size",
        NoMemory,
        "there is not enough memory for the ZooKeeper server (heap of {heap_mb} MB)",
        _RESTART,
    ),
    (
        r"Permission denied|Read-only file system|No space left on device|AccessDenied",
        DataFolderUnusable,
        "the ZooKeeper server cannot write to {folder}",
        "Check the folder's owner and permissions, and the space on its disk (`df -h`).",
    ),
    (
        r"Unable to load database on disk|Unreasonable length|CRC|No snapshot found",
        DataFolderUnusable,
        "the ZooKeeper data in {folder} cannot be read",
        "It was damaged, by a full disk for example. Restore it from a copy; a job that may start "
        "from scratch can be run with --fresh.",
    ),
)
"""What the server's log says, its error, message and remedy; the first match counts."""


def server_jars() -> Path:
    """The folder of pyspark's jars, found without importing pyspark.

    Raises:
        JarsMissing: pyspark is not installed, or without a ZooKeeper.
    """
    home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(home)] if home else []
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    for folder in folders:
        if any((folder / "jars").glob("zookeeper-[0-9]*.jar")):
            return folder / "jars"
    raise JarsMissing(
        "the ZooKeeper server comes with pyspark, which was not found"
        + (f" in {', '.join(map(str, folders))}" if folders else ""),
        "Install it (`pip install 'blazes[run]'`), or name an ensemble that runs already: "
        "`zookeeper: host:port` under `deployment`, or --zookeeper host:port.",
    )


def class_path(jars: Path) -> str:
    """The server's jars, as Java's -cp takes them."""
    return os.pathsep.join(sorted({str(jar) for name in _NEEDED_JARS for jar in jars.glob(name)}))


def free_port() -> int:
    """A port on 127.0.0.1 that nobody uses at this moment; it is not reserved.

    It lies below those that the system gives to outgoing connections, where these leave room: one
    of them, or a client that tries to reach a server which is down, would take the server's port.

    Raises:
        PortTaken: there is none.
    """
    room = range(_PORT_MIN, _outgoing_port_min())
    for _ in range(_PORTS_TRIED):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, secrets.choice(room) if room else 0))
            return int(probe.getsockname()[1])
    raise PortTaken("no port on 127.0.0.1 is free", "`ss -tan` shows who uses them.")


def _outgoing_port_min() -> int:
    """The first port that an outgoing connection may get; 0: not known."""
    try:
        return int(_OUTGOING_PORTS.read_text(encoding="ascii").split()[0])
    except OSError:
        return 0


def ask(port: int, command: str, *, timeout_s: float = 1.0) -> str:
    """The answer of the server on 127.0.0.1:`port` to a four-letter command; empty if none."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((LOOPBACK, port), timeout_s) as server,
    ):
        server.sendall(command.encode())
        answer = b""
        while part := server.recv(4096):
            answer += part
        return answer.decode(errors="replace")
    return ""


def in_properties(text: str) -> str:
    r"""A value as a Java properties file, which is Latin-1, takes it.

    >>> print(in_properties("C:\\Übung"))
    C:\\\u00dcbung
    """
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    numbers = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(number) if number < 128 else f"\\u{number:04x}" for number in numbers)


class ServerProcess:
    """A server on a folder of its own; `start` returns when it answers.

    Args:
        folder: for its files.
        port: for clients.
        settings: lines of `zoo.cfg`.
        heap_mb: the server's heap.
        member: its number in an ensemble; None: it stands alone.

    The folder holds `zoo.cfg`, `server.log`, `lock` and the data. The lock is held by the server
    process itself, so that it lasts exactly as long as the server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        settings: Sequence[str],
        heap_mb: int,
        member: int | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.log = folder / "server.log"
        self.pid: int | None = None
        self._member = member
        self._settings = tuple(settings)
        self._heap_mb = heap_mb
        self._watchdog: subprocess.Popen[str] | None = None

    @property
    def running(self) -> bool:
        """True while the server process lives."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def start(
        self,
        *,
        timeout_s: float,
        lock_wait_s: float,
        grace_s: float,
        on_wait: Callable[[str], None] = log.warning,
    ) -> None:
        """Start the server and wait until it answers.

        Raises:
            ZooKeeperProblem: it could not be started; nothing of it is left running.
        """
        self.launch(lock_wait_s=lock_wait_s, grace_s=grace_s)
        self.wait_ready(timeout_s=timeout_s, on_wait=on_wait)

    def launch(self, *, lock_wait_s: float, grace_s: float) -> None:
        """Start the server and return at once."""
        java = find_java()
        command = [
            str(java.executable),
            f"-Xmx{self._heap_mb}m",
            *_JVM,
            *shlex.split(os.environ.get("SERVER_JVMFLAGS", "")),  # as ZooKeeper's own script does
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            "-Dzookeeper.preAllocSize=4096",
            "-Djava.net.preferIPv4Stack=true",
            "-cp",
            class_path(server_jars()),
            STANDALONE if self._member is None else QUORUM,
            str(self.folder / "zoo.cfg"),
        ]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = lock_folder(self.folder, wait_s=lock_wait_s)
        except OSError as failure:
            raise DataFolderUnusable(
                f"the ZooKeeper server cannot write to {self.folder}: {failure.strerror}",
                "Check the folder's owner and permissions, and the space on its disk (`df -h`).",
            ) from None
        with lock:
            self._write_configuration()
            with self.log.open("w", encoding="utf-8") as log:
                self._watchdog = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))),
                        *(str(os.getpid()), str(grace_s), str(lock.fileno())),
                        *command,
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=os.environ | {"LC_ALL": "C.UTF-8"},  # so that Java finds any path
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,
                )
            assert self._watchdog.stdout is not None
            line = self._watchdog.stdout.readline()
            self.pid = int(line) if line.strip() else None
            lock.seek(0)
            lock.truncate()
            json.dump({"pid": self.pid, "hosts": f"{LOOPBACK}:{self.port}"}, lock)

    def wait_ready(self, *, timeout_s: float, on_wait: Callable[[str], None] = log.warning) -> None:
        """Wait until this very server serves requests (another one may hold the port)."""
        began = time.monotonic()
        notices = 0
        data = f"dataDir={self.folder / 'data'}/"
        while (waited_s := time.monotonic() - began) < timeout_s:
            if not self.running:
                raise self.failure()
            if data in ask(self.port, "conf", timeout_s=5.0):
                return
            if waited_s // SLOW_S > notices:
                notices = int(waited_s // SLOW_S)
                on_wait(
                    f"the ZooKeeper server has not answered for {waited_s:.0f} s; it runs, and "
                    f"the machine may be busy. Waiting up to {timeout_s:g} s; its log is "
                    f"{self.log}"
                )
            time.sleep(0.02)
        failure = self.failure(f"did not answer on port {self.port} within {timeout_s:g} s")
        self.stop(grace_s=1.0)
        raise failure

    def stop(self, *, grace_s: float) -> None:
        """SIGTERM, and after `grace_s` SIGKILL; nothing happens if the server is not running."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        if watchdog.poll() is None:
            watchdog.terminate()
        try:
            watchdog.wait(grace_s + 2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(watchdog.pid, signal.SIGKILL)
            watchdog.wait()
        for pipe in (watchdog.stdin, watchdog.stdout):
            assert pipe is not None
            pipe.close()
        self.pid = None

    def kill(self) -> None:
        """SIGKILL, as in a crash."""
        if self._watchdog is not None and self._watchdog.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._watchdog.pid, signal.SIGKILL)
        self.stop(grace_s=0.0)

    def failure(self, event: str | None = None) -> ZooKeeperProblem:
        """The error that the server's log tells of."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        for pattern, problem, message, remedy in _FAILURES:
            if re.search(pattern, text):
                explanation = message.format(
                    port=self.port, heap_mb=self._heap_mb, folder=self.folder
                )
                return problem(explanation, remedy)
        status = self._watchdog.poll() if self._watchdog else None
        if status == 128 + signal.SIGKILL and event is None:
            return NoMemory(
                "the ZooKeeper server was killed while it ran; where nobody did that by hand, the "
                "machine ran out of memory",
                _RESTART,
            )
        last = [line for line in text.splitlines() if line.strip()][-3:]
        return ServerFailed(
            f"the ZooKeeper server {event or f'ended with status {status}'}"
            + (f": {' / '.join(last)}" if last else ""),
            f"Its log is {self.log}.",
        )

    def _write_configuration(self) -> None:
        settings = (
            f"dataDir={in_properties(str(self.folder / 'data'))}",
            f"clientPort={self.port}",
            f"clientPortAddress={LOOPBACK}",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=srvr,conf,mntr",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            *self._settings,
        )
        (self.folder / "data").mkdir(exist_ok=True)
        if self._member is not None:
            (self.folder / "data" / "myid").write_text(f"{self._member}\n", encoding="ascii")
        (self.folder / "zoo.cfg").write_text("\n".join(settings) + "\n", encoding="utf-8")
        (self.folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")


def lock_folder(folder: Path, *, wait_s: float) -> TextIO:
    """The folder's lock file, locked; waits for a server that is just ending.

    Raises:
        DataFolderLocked: another server works on the folder.
    """
    lock = (folder / "lock").open("a+", encoding="utf-8")
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            owner = _owner(lock)
            lock.close()
            raise DataFolderLocked(
                f"{folder} is in use by another ZooKeeper server"
                + (f" (process {owner['pid']}, {owner['hosts']})" if owner else ""),
                "Stop the job that started it, or use it: --zookeeper "
                + (str(owner["hosts"]) if owner else "host:port")
                + ".",
            ) from None
        return lock


def running_server(folder: Path) -> str | None:
    """`host:port` of the server that works on the folder now; None where there is none."""
    try:
        lock = (folder / "lock").open(encoding="utf-8")
    except OSError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(lock)
            return str(owner["hosts"]) if owner else None
        return None


def _owner(lock: TextIO) -> dict[str, object] | None:
    lock.seek(0)
    try:
        owner = json.load(lock)
    except ValueError:
        return None
    return owner if isinstance(owner, dict) else None
