"""A real ZooKeeper with TLS, and znodes that are their maker's alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl, make_digest_acl

from flux_runtime.commits.driver import Driver
from flux_runtime.ordering.scope import Scope
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.epoch import EpochNode
from flux_runtime.zookeeper.errors import AccessRefused, EnsembleUnreachable
from flux_runtime.zookeeper.membership import next_incarnation
from flux_runtime.zookeeper.process import ServerProcess, free_port
from flux_runtime.zookeeper.registry import ProducerRegistry

PASSWORD = "a-password-of-tests"


def made(*command: str | Path) -> None:
    """Run a tool of the JDK or of OpenSSL."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def identity(folder: Path, name: str) -> Path:
    """A key and its certificate: NAME.p12, NAME.pem and NAME.key."""
    store = folder / f"{name}.p12"
    given = ("-keystore", store, "-storepass", PASSWORD, "-alias", name)
    named = ("-dname", f"CN={name}", "-ext", "SAN=IP:127.0.0.1", "-validity", "2")
    made("keytool", "-genkeypair", "-keyalg", "EC", *named, *given, "-storetype", "PKCS12")
    made("keytool", "-exportcert", "-rfc", "-file", folder / f"{name}.pem", *given)
    key = ("-nodes", "-nocerts", "-passin", f"pass:{PASSWORD}", "-out", folder / f"{name}.key")
    made("openssl", "pkcs12", "-in", store, *key)
    return store


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """A server that speaks TLS with those whose certificate it knows, and how the job gets in."""
    folder = tmp_path_factory.mktemp("secure")
    server, _, _ = (identity(folder, name) for name in ("server", "job", "stranger"))
    known = folder / "known.p12"
    trusted = ("-noprompt", "-keystore", known, "-storepass", PASSWORD, "-storetype", "PKCS12")
    made("keytool", "-importcert", "-alias", "job", "-file", folder / "job.pem", *trusted)
    port = free_port()
    settings = (
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        f"ssl.keyStore.location={server}",
        f"ssl.keyStore.password={PASSWORD}",
        "ssl.keyStore.type=PKCS12",
        f"ssl.trustStore.location={known}",
        f"ssl.trustStore.password={PASSWORD}",
        "ssl.trustStore.type=PKCS12",
        "ssl.clientAuth=need",
    )
    (folder / "password").write_text(f"{PASSWORD}\n")
    access = {
        "user": "orders",
        "password": "${file:password}",
        "ca": "server.pem",
        "certificate": "job.pem",
        "key": "job.key",
    }
    process = ServerProcess(folder / "data", port=free_port(), settings=settings, heap_mb=256)
    process.start(timeout_s=60.0, lock_wait_s=5.0, grace_s=5.0)
    try:
        yield Ensemble(f"127.0.0.1:{port}", access, folder)
    finally:
        process.stop(grace_s=5.0)


JAAS = """
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_orders="{password}" user_payments="{password}";
}};
"""


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """A server that knows users by SASL, and lets in nobody else."""
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "password").write_text(f"{PASSWORD}\n")
    port = free_port()
    process = sasl_server(folder, port, PASSWORD)
    access = {"sasl": "DIGEST-MD5", "user": "orders", "password": "${file:password}"}
    try:
        yield Ensemble(f"127.0.0.1:{port}", access, folder)
    finally:
        process.stop(grace_s=5.0)


def sasl_server(folder: Path, port: int, password: str) -> ServerProcess:
    """A server whose users have this password."""
    (folder / "jaas.conf").write_text(JAAS.format(password=password))
    settings = (
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth=true",
    )
    process = ServerProcess(folder / "data", port=port, settings=settings, heap_mb=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={folder}/jaas.conf")
        process.start(timeout_s=60.0, lock_wait_s=5.0, grace_s=5.0)
    return process


def below(client: Client, path: str) -> list[str]:
    """A znode and all below it."""
    names = client.kazoo.get_children(path)
    return [path, *(node for name in names for node in below(client, f"{path}/{name}"))]


def without(ensemble: Ensemble, **changes: str) -> Ensemble:
    """The ensemble with another access; an empty text leaves an option out."""
    access = {k: v for k, v in {**ensemble.access, **changes}.items() if v}
    return replace(ensemble, access=access)


def filled(client: Client) -> list[str]:
    """Let each part of the runtime make its znodes; all that there are."""
    EpochNode(client, "job").claim(Driver(epoch=1, state="s"))
    ProducerRegistry(client, "job").register("clicks", ("17",), {"a", "b"})
    assert ProducerRegistry(client, "job").lookup("clicks", ("17",)) == {"a", "b"}
    next_incarnation(client, "job", 0)
    Scope(client, "job", "all").register("reader", 3)
    return below(client, "/blazes")


@pytest.mark.zookeeper
def test_every_znode_is_its_makers_alone(ensemble: Ensemble) -> None:
    others = [
        without(ensemble, user="", password=""),
        without(ensemble, password="another"),
        without(ensemble, user="payments"),
    ]
    with connect(ensemble) as client:
        nodes = filled(client)
        assert len(nodes) > 8
        mine = make_digest_acl("orders", PASSWORD, all=True)
        assert {node: client.kazoo.get_acls(node)[0] for node in nodes} == {
            node: [mine] for node in nodes
        }
        for other in others:
            with connect(other) as stranger:
                for node in nodes:
                    for attempt in (
                        lambda node=node: stranger.kazoo.get(node),
                        lambda node=node: stranger.kazoo.get_children(node),
                        lambda node=node: stranger.kazoo.set(node, b"theirs"),
                        lambda node=node: stranger.kazoo.create(f"{node}/theirs"),
                    ):
                        with pytest.raises(NoAuthError):
                            attempt()
                for node in nodes[1:]:
                    with pytest.raises(NoAuthError):
                        stranger.kazoo.delete(node)
                with pytest.raises(AccessRefused, match="refuses this job"):
                    EpochNode(stranger, "job").claim(Driver(epoch=1, state="s"))
                with pytest.raises(AccessRefused, match="refuses this job"):
                    ProducerRegistry(stranger, "job").lookup("clicks", ("17",))
        assert below(client, "/blazes") == nodes


@pytest.mark.zookeeper
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_every_znode_is_of_the_user_whom_the_servers_know_by_sasl(sasl: Ensemble) -> None:
    with connect(sasl) as client:
        nodes = filled(client)
        mine = [make_acl("sasl", "orders", all=True)]
        assert {str(client.kazoo.get_acls(node)[0]) for node in nodes} == {str(mine)}
        with connect(without(sasl, user="payments")) as stranger:
            for node in nodes:
                with pytest.raises(NoAuthError):
                    stranger.kazoo.get(node)
                with pytest.raises(NoAuthError):
                    stranger.kazoo.create(f"{node}/theirs")
            with pytest.raises(AccessRefused, match="refuses this job"):
                EpochNode(stranger, "job").claim(Driver(epoch=1, state="s"))
        assert below(client, "/blazes") == nodes
    for other in ({"password": "another"}, {"user": "nobody"}):
        with pytest.raises(AccessRefused, match="by DIGEST-MD5 within 2 s"):
            connect(without(sasl, **other), timeout_s=2.0)


@pytest.mark.zookeeper
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_user_who_is_not_let_in_again_is_told_so(tmp_path: Path) -> None:
    port = free_port()
    process = sasl_server(tmp_path, port, PASSWORD)
    access = {"sasl": "DIGEST-MD5", "user": "orders", "password": PASSWORD}
    try:
        with connect(Ensemble(f"127.0.0.1:{port}", access, tmp_path)) as client:
            process.stop(grace_s=5.0)
            process = sasl_server(tmp_path, port, "another")
            with pytest.raises(AccessRefused, match="let in orders by DIGEST-MD5, which it had be"):
                wait_until_refused(client)
            with pytest.raises(AccessRefused, match="did not let in orders"):
                client.require_session()
            with pytest.raises(AccessRefused, match="did not let in orders"):
                ProducerRegistry(client, "job").lookup("clicks", ("17",))
    finally:
        process.stop(grace_s=5.0)


def wait_until_refused(client: Client) -> None:
    """kazoo says that it is connected before it is let in."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client.wait_for_session(60.0)
        time.sleep(0.05)


@pytest.mark.zookeeper
@pytest.mark.parametrize(
    "changes",
    [
        {"ca": "stranger.pem"},
        {"certificate": "stranger.pem", "key": "stranger.key"},
        {"certificate": "", "key": ""},
        {"ca": "", "certificate": "", "key": ""},
    ],
    ids=["another server", "another certificate", "no certificate", "no encryption"],
)
def test_there_is_no_session_without_the_certificates(
    ensemble: Ensemble, changes: dict[str, str]
) -> None:
    with pytest.raises(EnsembleUnreachable):
        connect(without(ensemble, **changes), timeout_s=2.0)


def test_what_the_access_lacks_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no name; user and password go together") as bad:
        Ensemble("zk:2181", {"user": "a", "name": "b", "key": "k"})
    assert "certificate and key go together" in str(bad.value)
    with pytest.raises(ValueError, match="sasl is DIGEST-MD5, not GSSAPI; sasl needs user and"):
        Ensemble("zk:2181", {"sasl": "GSSAPI"})
    lost = Ensemble(
        "zk:2181", {"ca": "ca.pem", "user": "a", "password": "${env:NO_SUCH}"}, tmp_path
    )
    assert "NO_SUCH" not in os.environ
    with pytest.raises(ValueError, match="NO_SUCH: not set"):
        connect(lost)
    with pytest.raises(ValueError, match=r"ca is .*ca.pem: no file"):
        connect(Ensemble("zk:2181", {"ca": "ca.pem"}, tmp_path))


JOB = """
from pathlib import Path
from flux_runtime.spark import Job, Step, main

def same(click):
    return click

def build(job: Job) -> None:
    clicks = job.source("clicks", format="json", path="data", schema="v INT")
    step = Step("C", same, query="SELECT v FROM click", gives="records")
    job.sink("out", [job.flux("C", [step], writes={"click": [clicks]}, sites=2)])

if __name__ == "__main__":
    main(build, name="sites", folder=Path(__file__).parent, master="local[2]",
         zookeeper=HOSTS, zookeeper_access=ACCESS)
"""


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_sites_on_executors_get_in_and_no_file_holds_the_password(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    access = {k: v if k == "user" else str(ensemble.root / v) for k, v in ensemble.access.items()}
    access["password"] = f"${{file:{ensemble.root / 'password'}}}"
    text = JOB.replace("HOSTS", repr(ensemble.hosts)).replace("ACCESS", repr(access))
    (tmp_path / "job.py").write_text(text)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.json").write_text("".join(f'{{"v": {v}}}\n' for v in range(20)))
    done = subprocess.run(
        [sys.executable, "job.py", "--available-now"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    files = (tmp_path / "results" / "out").rglob("*.parquet")
    rows = [row["v"] for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert sorted(rows) == [*range(20)]
    holding = [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and PASSWORD.encode() in file.read_bytes()
    ]
    assert holding == []
    with connect(ensemble) as client:
        mine = make_digest_acl("orders", PASSWORD, all=True)
        nodes = below(client, "/blazes/sites")
        assert {str(client.kazoo.get_acls(node)[0]) for node in nodes} == {str([mine])}
