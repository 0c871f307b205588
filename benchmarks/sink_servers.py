"""Real ends for sinks: a Kafka broker, an object store, PostgreSQL on loopback; Derby in a folder.

The broker is `noida-db`, the object store `moto`, both of PyPI. PostgreSQL is Debian's
(`postgresql`, and `libpostgresql-jdbc-java` for the driver); where it is not installed, `postgres`
gives None. Derby ships with Spark, and is opened by one process at a time.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from flux_runtime.zookeeper.process import free_port

JDBC_JAR = "BLAZES_POSTGRESQL_JAR"
"""Environment variable: PostgreSQL's JDBC driver, where it is not in Debian's place."""


@contextlib.contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """A broker; the address to give as `bootstrap.servers`."""
    port = free_port()
    command = ["start", "--only", "kafka", "--kafka-port", str(port), "--data-dir", str(folder)]
    with _server([str(_program("noida-db")), *command], lambda: _listens(port)):
        yield f"127.0.0.1:{port}"


def make_topic(broker: str, topic: str, partitions: int = 2) -> None:
    """Make a topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def committed_messages(broker: str, topic: str) -> list[bytes]:
    """The values of all messages of a topic, those of open and aborted transactions left out."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "blazes-check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    values, open_ = [], set(partitions)
    while open_:
        message = consumer.poll(30)
        if message is None:
            raise RuntimeError(f"{topic} has no end: a transaction is open")
        if message.error() is None:
            values.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            open_.discard(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()
    return values


@contextlib.contextmanager
def object_store(bucket: str) -> Iterator[Mapping[str, str]]:
    """An S3 that enforces conditional puts, with a bucket; the options to reach it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _server([sys.executable, "-m", "moto.server", "-p", str(port)], lambda: _listens(port)):
        request = urllib.request.Request(f"{url}/{bucket}", method="PUT")
        urllib.request.urlopen(request).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


@contextlib.contextmanager
def schema_registry() -> Iterator[str]:
    """A registry of schemas, in a process of its own; its address.

    It answers as Confluent's does what a job asks it, and keeps schemas in memory.
    """
    port = free_port()
    command = [sys.executable, __file__, "schema-registry", str(port)]
    with _server(command, lambda: _listens(port)):
        yield f"http://127.0.0.1:{port}"


class _Registry(http.server.BaseHTTPRequestHandler):
    schemas: ClassVar[list[dict[str, Any]]] = []
    subjects: ClassVar[dict[str, list[dict[str, Any]]]] = {}

    def do_GET(self) -> None:
        """`/schemas/ids/N`, `/subjects/NAME/versions/N`."""
        place, _, last = self.path.rpartition("/")
        known = self.schemas if place == "/schemas/ids" else self.subjects.get(place, [])
        if not 0 < int(last) <= len(known):
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            return
        self._answer(200, known[int(last) - 1])

    def do_POST(self) -> None:
        """`/subjects/NAME/versions`."""
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for known in (self.schemas, self.subjects.setdefault(self.path, [])):
            if given not in known:
                known.append(given)
        self._answer(200, {"id": self.schemas.index(given) + 1})

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


class Postgres(NamedTuple):
    """A running PostgreSQL."""

    options: Mapping[str, str]
    """Of Spark's format `jdbc`, without `dbtable`."""
    jar: str

    def query(self, statement: str) -> list[list[str]]:
        """The rows of an answer, as texts."""
        url = self.options["url"].removeprefix("jdbc:")
        command = ["psql", "-X", "-A", "-t", "-F", "\t", "-c", statement, url]
        env = {**os.environ, "PGUSER": self.options["user"]}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]


class Derby(NamedTuple):
    """A database in a folder, for the process that has opened it."""

    folder: Path

    @property
    def options(self) -> Mapping[str, str]:
        """Of Spark's format `jdbc`, without `dbtable`."""
        return {"url": f"jdbc:derby:{self.folder};create=true", "user": "blazes"}

    def query(self, statement: str) -> list[list[str]]:
        """The rows of an answer, as texts; by Derby's own program `ij`."""
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars"
        path = os.pathsep.join(map(str, jars.glob("derby*.jar")))
        done = subprocess.run(
            ["java", "-cp", path, "org.apache.derby.tools.ij"],
            input=f"CONNECT '{self.options['url']};user=blazes';\n{statement};\nEXIT;\n",
            capture_output=True,
            text=True,
            check=True,
            cwd=self.folder.parent,
        )
        lines = done.stdout.splitlines()
        rule = next((at for at, line in enumerate(lines) if re.fullmatch("-{3,}", line)), None)
        if rule is None:
            raise RuntimeError(f"no answer of Derby: {done.stdout}")
        end = next(at for at, line in enumerate(lines) if at > rule and not line.strip())
        return [[text.strip() for text in line.split("|")] for line in lines[rule + 1 : end]]


@contextlib.contextmanager
def postgres() -> Iterator[Postgres | None]:
    """A database; None where PostgreSQL or its JDBC driver is not installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    jar = os.environ.get(JDBC_JAR, "/usr/share/java/postgresql.jar")
    if not programs or not Path(jar).exists():
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from _postgres(programs[-1], Path(folder), jar)


def _postgres(programs: Path, folder: Path, jar: str) -> Iterator[Postgres]:
    own: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("postgres")
        own = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    port, data = free_port(), folder / "data"
    init = [programs / "initdb", "-D", data, "-U", "blazes", "-A", "trust", "--no-sync"]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, cwd=folder, **own)
    serve = [programs / "postgres", "-D", data, "-p", port, "-k", folder, "-h", "127.0.0.1"]
    with _server(list(map(str, serve)), lambda: _listens(port), cwd=folder, **own):
        url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        options = {"url": url, "user": "blazes", "driver": "org.postgresql.Driver"}
        yield Postgres(options, jar)


@contextlib.contextmanager
def _server(command: list[str], ready: Callable[[], bool], **options: Any) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )
    try:
        deadline = time.monotonic() + 120
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start; exit status {process.poll()}")
            time.sleep(0.05)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _program(name: str) -> Path:
    return Path(sys.executable).parent / name


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), _Registry).serve_forever()
