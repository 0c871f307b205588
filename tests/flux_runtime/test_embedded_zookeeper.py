"""The embedded server: real processes are started, killed, starved and robbed of their port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flux_runtime.zookeeper import embedded, process
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.errors import (
    DataFolderLocked,
    DataFolderUnusable,
    JarsMissing,
    JavaTooOld,
    NoMemory,
    PortTaken,
    ServerFailed,
)
from flux_runtime.zookeeper.java import find_java
from flux_runtime.zookeeper.process import running_server

pytestmark = pytest.mark.zookeeper


def alive(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_dead(pid: int, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def listening(pid: int) -> set[str]:
    """Local addresses, in hexadecimal, on which a process listens, for IPv4 and IPv6."""
    links = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            links.append(file.readlink())
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1])
    return found


def java_that(folder: Path, script: str) -> str:
    """A JAVA_HOME whose `java` tells its version and otherwise runs this shell script."""
    real = find_java().executable
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then exec {real} -version; fi\n'
        + script.format(real=real)
        + "\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return str(folder)


@pytest.fixture
def held_port() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_it_serves_on_loopback_only_and_keeps_its_data(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.running
        assert server.pid is not None
        assert "Mode: standalone" in server.status()
        with connect(server.hosts) as client:
            client.kazoo.create("/kept", b"value")
        assert listening(server.pid) == {f"0100007F:{server.port:04X}"}
        pid = server.pid
    assert not alive(pid)
    assert not server.running
    with EmbeddedZooKeeper(tmp_path) as server, connect(server.hosts) as client:
        assert client.kazoo.get("/kept")[0] == b"value"


def test_the_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with EmbeddedZooKeeper(tmp_path / "Übung 日本 \\x #1 %20") as server:
        assert running_server(server.data_dir) == server.hosts
        with connect(server.hosts) as client:
            client.kazoo.create("/x")
    assert list(server.data_dir.glob("data/version-2/log.*"))


def test_java_gets_the_options_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Da=1 -Db='2 3'")
    with EmbeddedZooKeeper(tmp_path) as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
    assert {b"-Da=1", b"-Db=2 3"} <= {*command}


def test_two_servers_run_side_by_side(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "a") as a, EmbeddedZooKeeper(tmp_path / "b") as b:
        assert a.port != b.port
        with connect(a.hosts) as client:
            client.kazoo.create("/only-in-a")
        with connect(b.hosts) as client:
            assert client.kazoo.exists("/only-in-a") is None


def test_a_taken_port_is_an_error_with_the_remedy(tmp_path: Path, held_port: int) -> None:
    with pytest.raises(PortTaken, match=f"port {held_port} on 127.0.0.1 is taken") as refused:
        EmbeddedZooKeeper(tmp_path, port=held_port).start()
    assert "0 for any free one" in refused.value.remedy
    assert running_server(tmp_path) is None


def test_a_free_port_lost_to_somebody_else_is_replaced(
    tmp_path: Path, held_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port that was free when it was chosen is taken when the server wants it."""
    offered: list[int] = []
    real_free_port = embedded.free_port

    def free_port() -> int:
        offered.append(held_port if not offered else real_free_port())
        return offered[-1]

    monkeypatch.setattr(embedded, "free_port", free_port)
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.port == offered[1] != held_port


def test_no_outgoing_connection_can_take_the_port_of_a_server_that_is_down() -> None:
    connections = [socket.create_server(("127.0.0.1", 0)) for _ in range(100)]
    first_of_them = min(connection.getsockname()[1] for connection in connections)
    for connection in connections:
        connection.close()
    ports = {process.free_port() for _ in range(100)}
    assert max(ports) < first_of_them
    assert len(ports) > 90


def test_a_foreign_zookeeper_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path / "theirs") as theirs,
        pytest.raises(PortTaken),
    ):
        EmbeddedZooKeeper(tmp_path / "ours", port=theirs.port).start()


def test_a_data_folder_has_one_server(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as first:
        assert running_server(tmp_path) == first.hosts
        with pytest.raises(DataFolderLocked, match=f"process {first.pid}, {first.hosts}") as no:
            EmbeddedZooKeeper(tmp_path, lock_wait_s=0.2).start()
        assert f"--zookeeper {first.hosts}" in no.value.remedy
        assert first.running
    assert running_server(tmp_path) is None


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataFolderUnusable, match="cannot write"):
        EmbeddedZooKeeper(tmp_path / "file" / "data").start()


def test_damaged_data_is_reported_as_such(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server, connect(server.hosts) as client:
        client.kazoo.create("/a", b"x" * 1000)
    (log,) = (tmp_path / "data" / "version-2").glob("log.*")
    for snapshot in (tmp_path / "data" / "version-2").glob("snapshot.*"):
        snapshot.write_bytes(b"rubbish" * 20)
    log.write_bytes(b"rubbish" * 100)
    with pytest.raises(DataFolderUnusable, match="cannot be read"):
        EmbeddedZooKeeper(tmp_path).start()


def test_an_old_java_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'java version \"1.8.0_292\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaTooOld, match=r"1\.8\.0_292"):
        EmbeddedZooKeeper(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("limit_kb", [400_000, 800_000])
def test_no_memory_for_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_kb: int
) -> None:
    home = java_that(tmp_path / "small", f'ulimit -v {limit_kb}; exec {{real}} "$@"')
    monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(NoMemory, match="heap of 256 MB") as refused:
        EmbeddedZooKeeper(tmp_path / "data").start()
    assert "Free memory" in refused.value.remedy


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path / "slow", "exec sleep 100"))
    server = EmbeddedZooKeeper(tmp_path / "data", start_timeout_s=0.5, grace_s=0.5)
    with pytest.raises(ServerFailed, match=r"did not answer on port \d+ within 0.5 s"):
        server.start()
    assert running_server(tmp_path / "data") is None


def test_a_server_that_is_slow_is_waited_for_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SLOW_S", 0.5)
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path / "slow", 'sleep 2; exec {real} "$@"'))
    told: list[str] = []
    with EmbeddedZooKeeper(tmp_path / "data", on_wait=told.append) as server:
        assert server.running
    assert "has not answered for" in told[0]
    assert str(server.log) in told[0]


def test_a_server_that_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path / "bad", "echo strange >&2; exit 3"))
    with pytest.raises(ServerFailed, match="ended with status 3: strange"):
        EmbeddedZooKeeper(tmp_path / "data").start()


def test_no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(JarsMissing, match="comes with pyspark") as refused:
        EmbeddedZooKeeper(tmp_path).start()
    assert "blazes[run]" in refused.value.remedy


def test_a_killed_server_is_noticed_and_its_folder_is_free_again(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path).start()
    server.check()
    with connect(server.hosts) as client:
        client.kazoo.create("/written", b"before the crash")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert wait_dead(server.pid)
    deadline = time.monotonic() + 60
    while server.running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.pid is None
    with pytest.raises(NoMemory, match="was killed"):
        server.check()
    server.stop()
    with EmbeddedZooKeeper(tmp_path) as again, connect(again.hosts) as client:
        assert client.kazoo.get("/written")[0] == b"before the crash"


STARTER = """
    import sys, threading, time
    from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
    server = EmbeddedZooKeeper(sys.argv[1])
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    print(server.pid, server.hosts, flush=True)
    time.sleep(600)
"""


def starter(folder: Path) -> tuple[subprocess.Popen[str], int, str]:
    """(A process that started a server in a thread that has ended, server pid, hosts)."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STARTER), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    pid, hosts = child.stdout.readline().split()
    return child, int(pid), hosts


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_starter_and_not_before(tmp_path: Path, by: signal.Signals) -> None:
    child, pid, hosts = starter(tmp_path)
    with child:
        with connect(hosts) as client:  # the starting thread has ended, the server has not
            client.kazoo.create("/x")
        assert alive(pid)
        child.send_signal(by)
        child.wait()
    assert wait_dead(pid)
    with EmbeddedZooKeeper(tmp_path) as server, connect(server.hosts) as client:
        assert client.kazoo.exists("/x")


def test_a_killed_watchdog_takes_the_server_with_it(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        pid = server.pid
        assert pid is not None
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        assert wait_dead(pid)


def test_ctrl_c_in_the_terminal_leaves_the_server_to_its_starter(tmp_path: Path) -> None:
    child, pid, _ = starter(tmp_path)
    with child:
        assert os.getpgid(pid) != os.getpgid(child.pid)
        child.kill()
    assert wait_dead(pid)


def test_a_server_that_does_not_end_is_killed(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path, grace_s=0.3).start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it cannot handle SIGTERM now
    server.stop()
    assert not alive(pid)


def test_stop_may_be_called_twice_and_start_may_not(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.stop()
    server.start()
    with pytest.raises(RuntimeError, match="started already"):
        server.start()
    server.stop()
    server.stop()
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = server.hosts
    with pytest.raises(ValueError, match="0 to 65535"):
        EmbeddedZooKeeper(tmp_path, port=70000)
