"""The order in a real ZooKeeper: proposed once, read by the ordered channel, trimmed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from zookeeper_wire import CREATE, Wire
from zookeeper_world import until

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.ordering.places import CLAIMS_MAX, Batch, Order, Verdict
from flux_runtime.ordering.proposals import Superseded
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.ordering.scope import ALL, Scope, catch_up
from flux_runtime.sealing.storage import LocalStorage, Storage
from flux_runtime.spark.flux.ordered_channel import (
    ChannelEgress,
    ContentMissing,
    _content,
    _encode,
)
from flux_runtime.zookeeper.client import Client, SessionState, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.process import free_port
from flux_runtime.zookeeper.tail import Trimmed

pytestmark = pytest.mark.zookeeper


class Contents(LocalStorage):
    """The contents of batches, in memory; what is withheld is not there for readers."""

    def __init__(self) -> None:
        super().__init__("contents")
        self.files: dict[str, bytes] = {}
        self.withheld: set[str] = set()
        self.misses = 0

    def read(self, name: str) -> bytes | None:
        self.misses += name in self.withheld
        return None if name in self.withheld else self.files.get(name)

    def write(self, name: str, data: bytes, *, flush: bool = True) -> None:
        self.files[name] = data

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


@pytest.fixture
def contents() -> Contents:
    return Contents()


@pytest.fixture
def reading() -> Iterator[ThreadPoolExecutor]:
    """A thread for a reader that waits."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def content(producer: str, first: int, last: int) -> pa.RecordBatch:
    """Records that say whose they are."""
    offsets = range(first, last + 1)
    return pa.RecordBatch.from_pydict({"producer": [producer] * len(offsets), "n": list(offsets)})


class Producer(Proposer):
    """Proposes batches after it has written their contents, as `ChannelIngress` does."""

    def __init__(
        self, client: Client, app: str, name: str, contents: Storage, **options: Any
    ) -> None:
        super().__init__(client, app, name, **options)
        self.name = name
        self.contents = contents

    def propose(self, first: int, last: int) -> None:
        rows = content(self.name, first, last)
        self.contents.write(_content(self.name, first), _encode(rows))
        super().propose(first, last)


class Consumer:
    """Reads the ordered channel, whenever it is asked what it has."""

    def __init__(
        self, client: Client, app: str, name: str, contents: Storage, *, at: int = 0
    ) -> None:
        self.got: list[tuple[int, str, int, int]] = []
        self.end = ChannelEgress(client, app, name, contents, ALL, threading.Event())
        self.at = at

    def look(self) -> None:
        while True:
            self.at, found = self.end.read(self.at, timeout_s=0.0)
            if not found:
                return
            for number, rows in found:
                (producer,) = set(rows.column("producer").to_pylist())
                offsets = rows.column("n").to_pylist()
                self.got.append((number // CLAIMS_MAX, producer, offsets[0], offsets[-1]))

    def commit(self) -> None:
        """Nothing that it has will be read again."""
        self.end.commit(self.at)

    def taken(self) -> int:
        self.look()
        return len(self.got)

    def records(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _, producer, first, last in self.got:
            found.setdefault(producer, []).extend(range(first, last + 1))
        return found

    def has(self, **records: int) -> bool:
        self.look()
        return {name: len(offsets) for name, offsets in self.records().items()} == records


def at_once(proposer: Proposer, offsets: range) -> None:
    """Propose faster than any answer: all but the first share a place where it is idle."""
    with proposer._changed:
        for n in offsets:
            proposer.propose(n, n)


def claims(client: Client, app: str) -> list[tuple[Verdict, object]]:
    found: list[tuple[Verdict, object]] = []
    scope = Scope(client, app)
    catch_up(
        scope, Order(), seen=lambda _, *place: found.extend(zip(*reversed(place), strict=True))
    )
    return found


def test_or2_or4_all_consumers_follow_one_order(
    client: Client, zookeeper_hosts: str, app: str, contents: Contents
) -> None:
    one = Consumer(client, app, "one", contents)
    with connect(zookeeper_hosts) as other:
        two = Consumer(other, app, "two", contents)
        placed: list[tuple[Batch, int]] = []
        p = Producer(client, app, "p", contents, on_placed=lambda *what: placed.append(what))
        q = Producer(other, app, "q", contents)
        for n in range(110):
            p.propose(10 * n, 10 * n + 9)
            q.propose(n, n)
        p.wait()
        at_once(p, range(1100, 1500))
        for n in range(110, 150):
            q.propose(n, n)
        p.wait()
        q.wait()
        until(lambda: one.has(p=1500, q=150) and two.has(p=1500, q=150))
        assert one.got == two.got
        assert one.records() == {"p": list(range(1500)), "q": list(range(150))}
        assert {last - first for _, name, first, last in one.got if name == "q"} == {0}
        assert [last - first for _, name, first, last in one.got if name == "p"] == [
            *([9] * 110),
            *([0] * 400),
        ]  # OR-1: batches that share a place are the batches that were proposed
        assert [(b.first, place) for b, place in placed] == [
            (first, place) for place, name, first, _ in one.got if name == "p"
        ]
        scope = Scope(client, app)
        end = scope.end()
        assert end <= 302
        one.commit()
        assert scope.base().at == 0
        assert len(contents.files) == 660
        two.commit()
        assert scope.consumers() == {"one": end, "two": end}
        assert scope.base().at == end  # OR-5: forgotten when everybody had passed
        assert not contents.files
        third = Consumer(client, app, "three", contents, at=two.at)
        p.propose(1500, 1500)
        until(lambda: third.has(p=1))
        p.close()
        again = Producer(client, app, "p", contents)
        assert again.next == 1501  # a producer goes on where the order says
        for proposer in (again, q):
            proposer.close()


def test_or5_nothing_is_forgotten_that_a_registered_consumer_needs(
    client: Client, app: str, contents: Contents
) -> None:
    slow, fast = Consumer(client, app, "slow", contents), Consumer(client, app, "fast", contents)
    placed: dict[int, int] = {}
    proposer = Producer(
        *(client, app, "p", contents), on_placed=lambda b, at: placed.update({b.first: at})
    )
    for n in range(40):
        proposer.propose(n, n)
        if n == 6:
            proposer.wait()
            assert slow.has(p=7)
            slow.commit()
    proposer.wait()
    assert fast.has(p=40)
    fast.commit()
    scope = Scope(client, app)
    assert scope.base().at == scope.consumers()["slow"] <= placed[7]
    assert len(contents.files) == 33
    assert slow.has(p=40)
    assert slow.got == fast.got
    slow.commit()
    assert not contents.files
    with pytest.raises(Trimmed):
        Consumer(client, app, "late", contents).look()
    proposer.close()


def test_or4_a_batch_that_cannot_be_read_is_waited_for_and_named(
    client: Client, app: str, contents: Contents, reading: ThreadPoolExecutor
) -> None:
    consumer = Consumer(client, app, "one", contents)
    contents.withheld = {_content("p", 3)}
    proposer = Producer(client, app, "p", contents)
    for n in range(6):
        proposer.propose(n, n)
    proposer.wait()
    with pytest.raises(ContentMissing, match="records 3 to 3 of p are not in"):
        consumer.end.read(0, content_s=0.2)
    at = 0
    for n in range(3):
        at, found = consumer.end.read(at, timeout_s=60.0, max_bytes=1)
        assert [rows.column("n").to_pylist() for _, rows in found] == [[n]]
    misses = contents.misses
    patient = reading.submit(consumer.end.read, at, timeout_s=0.2, max_bytes=1)
    until(lambda: contents.misses > misses + 3)
    contents.withheld = set()
    _, found = patient.result(60)
    assert [rows.column("n").to_pylist() for _, rows in found] == [[3]]
    assert consumer.has(p=6)
    assert consumer.records() == {"p": list(range(6))}
    proposer.close()


def test_or2_batches_that_wait_share_a_place(client: Client, app: str) -> None:
    placed: list[tuple[int, int]] = []
    proposer = Proposer(
        *(client, app, "p"),
        waiting_max=1500,
        on_placed=lambda batch, place: placed.append((batch.first, place)),
    )
    at_once(proposer, range(1500))
    proposer.wait()
    assert placed == [
        (0, 1),
        *((n, 2) for n in range(1, 1 + CLAIMS_MAX)),
        *((n, 3) for n in range(1 + CLAIMS_MAX, 1500)),
    ]
    assert Scope(client, app).end() == 4
    proposer.propose(1500, 1500)  # nobody to wait for
    proposer.wait()
    assert placed[-1] == (1500, 4)
    proposer.close()


@pytest.mark.parametrize("before_server", [False, True])
def test_or3_a_group_without_an_answer_is_not_repeated(
    wire: Wire, remote: Client, client: Client, app: str, contents: Contents, before_server: bool
) -> None:
    consumer = Consumer(client, app, "one", contents)
    placed: list[tuple[int, int]] = []
    proposer = Producer(
        *(remote, app, "p", contents), on_placed=lambda b, at: placed.append((b.first, at))
    )
    for start, nth in zip(range(0, 120, 30), (2, 1, 2, 2), strict=True):
        wire.cut_after(CREATE, nth=nth, before_server=before_server)
        at_once(proposer, range(start, start + 30))
        proposer.wait()
    assert wire.cuts >= 4
    until(lambda: consumer.has(p=120))
    assert [(first, place) for place, _, first, _ in consumer.got] == placed
    assert [first for first, _ in placed] == list(range(120))
    verdicts = [verdict for verdict, _ in claims(client, app)]
    assert verdicts.count(Verdict.COUNTS) == 120
    assert Verdict.REPEATED not in verdicts
    assert max(Counter(place for _, place in placed).values()) >= 29
    proposer.close()


@pytest.mark.parametrize("before_server", [False, True])
def test_or3_creates_without_an_answer_are_not_repeated(
    wire: Wire, remote: Client, client: Client, app: str, contents: Contents, before_server: bool
) -> None:
    consumer = Consumer(client, app, "one", contents)
    wire.cut_after(CREATE, nth=3, before_server=before_server)  # below the folders: the Begin
    proposer = Producer(remote, app, "p", contents, in_flight_max=16, group_max=1)
    rng = random.Random(1)
    for n in range(300):
        if n % 60 == 20:
            wire.cut_after(CREATE, nth=rng.randrange(1, 12), before_server=before_server)
        proposer.propose(n, n)
        if n % 60 == 50:
            proposer.wait()
    proposer.wait()
    until(lambda: consumer.has(p=300))
    assert consumer.records() == {"p": list(range(300))}
    assert wire.cuts >= 5
    verdicts = [verdict for verdict, _ in claims(client, app)]
    assert verdicts.count(Verdict.COUNTS) == 300
    assert Verdict.REPEATED not in verdicts
    proposer.close()


def test_or7_nothing_is_decided_without_a_session(
    wire: Wire,
    remote: Client,
    client: Client,
    app: str,
    contents: Contents,
    reading: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proposer = Producer(client, app, "p", contents)
    here, there = Consumer(client, app, "here", contents), Consumer(remote, app, "there", contents)
    theirs = Producer(remote, app, "q", contents)
    proposer.propose(0, 0)
    until(lambda: here.has(p=1) and there.has(p=1))
    wire.stop()
    until(lambda: remote.state is not SessionState.CONNECTED)
    theirs.propose(0, 0)
    proposer.propose(1, 1)
    proposer.wait()
    with monkeypatch.context() as impatient:
        impatient.setattr(theirs, "_timeout_s", 1.0)
        with pytest.raises(Exception, match="no ZooKeeper server answered"):
            theirs.wait()
    assert here.has(p=2)
    looked = reading.submit(there.look)
    with pytest.raises(TimeoutError):
        looked.result(1.0)
    assert there.records() == {"p": [0]}
    wire.resume()
    looked.result(60)
    until(lambda: here.has(p=2, q=1) and there.has(p=2, q=1))
    assert here.got == there.got
    theirs.wait()
    proposer.close()
    theirs.close()


def test_a_session_that_is_lost_is_opened_again_and_nothing_is_missing(
    wire: Wire,
    remote: Client,
    client: Client,
    app: str,
    contents: Contents,
    reading: ThreadPoolExecutor,
) -> None:
    proposer = Producer(remote, app, "p", contents)
    consumer = Consumer(remote, app, "one", contents)
    of_the_session = remote.kazoo.create(f"/{app}", ephemeral=True)
    for n in range(50):
        proposer.propose(n, n)
    wire.stop()
    for n in range(50, 100):
        proposer.propose(n, n)
    looked = reading.submit(consumer.look)
    until(lambda: client.kazoo.exists(of_the_session) is None)  # the server has given it up
    wire.resume()
    looked.result(60)
    proposer.wait()
    until(lambda: consumer.has(p=100))
    assert remote.session_losses > 0
    assert consumer.records() == {"p": list(range(100))}
    proposer.close()


def test_or3_who_is_replaced_cannot_propose(client: Client, app: str, contents: Contents) -> None:
    old = Producer(client, app, "p", contents)
    old.propose(0, 0)
    old.wait()
    new = Producer(client, app, "p", contents)
    assert new.next == 1
    before = Scope(client, app).end()
    old.propose(1, 5)
    until(lambda: Scope(client, app).end() > before)
    new.propose(1, 1)
    new.wait()
    consumer = Consumer(client, app, "one", contents)
    until(lambda: consumer.has(p=2))
    assert [c[2:] for c in consumer.got] == [(0, 0), (1, 1)]
    verdicts = [verdict for verdict, _ in claims(client, app)]
    assert Verdict.OUTDATED in verdicts
    new.close()
    old.close()


def reached(consumer: Consumer) -> int:
    """The last record that it has."""
    consumer.look()
    return consumer.got[-1][3] if consumer.got else -1


PRODUCER = """
import sys
from itertools import count
import pyarrow as pa
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.flux.ordered_channel import Channel
hosts, app, folder, size = sys.argv[1:]
end = Channel(hosts, app, LocalStorage(folder)).ingress("p")
print(end._proposer.next, flush=True)
for first in count(0, int(size)):
    offsets = range(first, first + int(size))
    rows = {"producer": ["p"] * len(offsets), "n": list(offsets)}
    end.offer(first, pa.RecordBatch.from_pydict(rows))
"""


def test_or3_a_producer_that_is_killed_goes_on_without_gap_or_double(
    client: Client, zookeeper_hosts: str, app: str, tmp_path: Path
) -> None:
    contents = LocalStorage(tmp_path)
    consumer = Consumer(client, app, "one", contents)
    begins = []
    for size in (3, 5, 2):  # all from the first record on, in batches of another size
        given = [zookeeper_hosts, app, str(tmp_path), str(size)]
        command = [sys.executable, "-c", PRODUCER, *given]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            begins.append(int(process.stdout.readline()))
            enough = begins[-1] + 100 * size  # the consumer may still be behind the one before
            until(lambda enough=enough: reached(consumer) > enough)
            process.kill()
    assert begins[0] == 0 < begins[1] < begins[2]
    last = Producer(client, app, "p", contents)
    last.propose(last.next, last.next)
    last.wait()
    until(lambda: reached(consumer) + 1 == last.next)
    assert consumer.records() == {"p": list(range(last.next))}
    last.close()


def test_superseded_is_told_where_it_matters(wire: Wire, remote: Client, app: str) -> None:
    old = Proposer(remote, app, "p")
    new = Proposer(remote, app, "p")
    wire.cut()
    until(lambda: _propose_fails(old))
    new.propose(new.next, new.next)
    new.wait()
    old.close()
    new.close()


def _propose_fails(proposer: Proposer) -> bool:
    try:
        proposer.propose(proposer.next, proposer.next)
        proposer._scope.client.kazoo._connection._socket.shutdown(2)
        proposer.wait()
    except Superseded:
        return True
    except OSError:
        pass
    return False


def test_or9_message_by_message(client: Client, app: str, contents: Contents) -> None:
    consumer = Consumer(client, app, "one", contents)
    proposer = Producer(client, app, "p", contents, in_flight_max=16, group_max=1)
    for n in range(20):
        proposer.propose(n, n)
    proposer.wait()
    assert Scope(client, app).end() == 21
    until(lambda: consumer.has(p=20))
    assert [(place, first, last) for place, _, first, last in consumer.got] == [
        (n + 1, n, n) for n in range(20)
    ]
    proposer.close()


def test_the_embedded_server_is_killed_and_restarted_on_its_data(
    tmp_path: Path, app: str, contents: Contents
) -> None:
    port = free_port()
    server = EmbeddedZooKeeper(tmp_path / "zk", port=port).start()
    with connect(server.hosts) as client:
        proposer = Producer(client, app, "p", contents)
        consumer = Consumer(client, app, "one", contents)
        proposing = threading.Thread(
            target=lambda: [proposer.propose(n, n) for n in range(3000)], daemon=True
        )
        proposing.start()
        until(lambda: consumer.taken() > 200)
        assert server.pid is not None
        subprocess.run(["kill", "-9", str(server.pid)], check=True)
        until(lambda: not server.running)
        server.stop()
        server = EmbeddedZooKeeper(tmp_path / "zk", port=port).start()
        proposing.join(120)
        proposer.wait()
        until(lambda: consumer.has(p=3000))
        assert consumer.records() == {"p": list(range(3000))}
        proposer.close()
    server.stop()


def test_a_server_of_three_is_killed_while_proposing_and_following(
    tmp_path: Path, app: str, contents: Contents
) -> None:
    with (
        LoopbackEnsemble(tmp_path) as ensemble,
        connect(ensemble.hosts, session_timeout_s=8.0) as one,
        connect(ensemble.hosts, session_timeout_s=8.0) as two,
    ):
        consumers = [Consumer(one, app, "one", contents), Consumer(two, app, "two", contents)]
        proposers = {
            "p": Producer(one, app, "p", contents),
            "q": Producer(two, app, "q", contents),
        }
        threads = [
            threading.Thread(target=lambda p=p: [p.propose(n, n) for n in range(2500)], daemon=True)
            for p in proposers.values()
        ]
        for thread in threads:
            thread.start()
        until(lambda: consumers[0].taken() > 300)
        killed = ensemble.leader()
        ensemble.kill(killed)
        until(lambda: consumers[0].taken() > 2000)
        ensemble.restart(killed)
        for thread in threads:
            thread.join(120)
        for proposer in proposers.values():
            proposer.wait()
        until(lambda: all(c.has(p=2500, q=2500) for c in consumers))
        assert consumers[0].got == consumers[1].got
        assert consumers[0].records() == {name: list(range(2500)) for name in "pq"}
        verdicts = [verdict for verdict, _ in claims(one, app)]
        assert Verdict.REPEATED not in verdicts  # OR-3
        for proposer in proposers.values():
            proposer.close()
