"""The order in a real ZooKeeper: proposed once, read without gaps, trimmed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from zookeeper_wire import CREATE, Wire
from zookeeper_world import until

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.ordering.places import CLAIMS_MAX, Batch, Order, Verdict, counting, decode
from flux_runtime.ordering.proposals import Superseded
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.ordering.scope import (
    Scope,
    catch_up,
)
from flux_runtime.zookeeper.client import Client, SessionState, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.process import free_port
from flux_runtime.zookeeper.tail import Reader, Trimmed

pytestmark = pytest.mark.zookeeper


class Consumer:
    """Reads the order from where it is kept, whenever it is asked what it has."""

    def __init__(self, client: Client, app: str, name: str) -> None:
        self.got: list[tuple[int, str, int, int]] = []
        self.name = name
        self.scope = Scope(client, app)
        self.order = self.scope.base()
        self.scope.register(name, self.order.at)
        self.reader = Reader(client, self.scope.places, self.order.at)

    def look(self) -> None:
        while entries := self.reader.read():
            for place, data in entries:
                claims = decode(data)
                for _, batch in counting(claims, self.order.handle(place, claims)):
                    self.got.append((place, batch.producer, batch.first, batch.last))

    def close(self) -> None:
        """Note how far it has come, as one does before a restart."""
        self.scope.passed(self.name, self.order.at)

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
    client: Client, zookeeper_hosts: str, app: str
) -> None:
    one = Consumer(client, app, "one")
    with connect(zookeeper_hosts) as other:
        two = Consumer(other, app, "two")
        placed: list[tuple[Batch, int]] = []
        p = Proposer(client, app, "p", on_placed=lambda *what: placed.append(what))
        q = Proposer(other, app, "q")
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
        one.close()
        two.close()
        scope = Scope(client, app)
        end = scope.end()
        assert end <= 302
        assert scope.consumers() == {"one": end, "two": end}
        scope.trim()
        assert scope.base().at == end  # OR-5: forgotten when everybody had passed
        third = Consumer(client, app, "three")
        p.propose(1500, 1500)
        until(lambda: third.has(p=1))
        third.close()
        p.close()
        again = Proposer(client, app, "p")
        assert again.next == 1501  # a producer goes on where the order says
        for proposer in (again, q):
            proposer.close()


def test_or5_nothing_is_forgotten_that_a_registered_consumer_needs(
    client: Client, app: str
) -> None:
    slow, fast = Consumer(client, app, "slow"), Consumer(client, app, "fast")
    placed: dict[int, int] = {}
    proposer = Proposer(client, app, "p", on_placed=lambda b, at: placed.update({b.first: at}))
    for n in range(40):
        proposer.propose(n, n)
        if n == 6:
            proposer.wait()
            assert slow.has(p=7)
            slow.close()
    proposer.wait()
    assert fast.has(p=40)
    fast.close()
    scope = Scope(client, app)
    scope.trim()
    assert scope.base().at == scope.consumers()["slow"] <= placed[7]
    assert slow.has(p=40)
    slow.close()
    scope.trim()
    with pytest.raises(Trimmed):
        Reader(client, scope.places).read()
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
    wire: Wire, remote: Client, client: Client, app: str, before_server: bool
) -> None:
    consumer = Consumer(client, app, "one")
    placed: list[tuple[int, int]] = []
    proposer = Proposer(remote, app, "p", on_placed=lambda b, at: placed.append((b.first, at)))
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
    consumer.close()
    proposer.close()


@pytest.mark.parametrize("before_server", [False, True])
def test_or3_creates_without_an_answer_are_not_repeated(
    wire: Wire, remote: Client, client: Client, app: str, before_server: bool
) -> None:
    consumer = Consumer(client, app, "one")
    wire.cut_after(CREATE, nth=3, before_server=before_server)  # below the folders: the Begin
    proposer = Proposer(remote, app, "p", in_flight_max=16, group_max=1)
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
    consumer.close()
    proposer.close()


def test_or7_nothing_is_decided_without_a_session(
    wire: Wire, remote: Client, client: Client, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposer = Proposer(client, app, "p")
    consumer = Consumer(client, app, "one")
    theirs = Proposer(remote, app, "q")
    proposer.propose(0, 0)
    until(lambda: consumer.has(p=1))
    wire.stop()
    until(lambda: remote.state is not SessionState.CONNECTED)
    theirs.propose(0, 0)
    proposer.propose(1, 1)
    proposer.wait()
    with monkeypatch.context() as impatient:
        impatient.setattr(theirs, "_timeout_s", 1.0)
        with pytest.raises(Exception, match="no ZooKeeper server answered"):
            theirs.wait()
    assert consumer.has(p=2)
    wire.resume()
    until(lambda: consumer.has(p=2, q=1))
    theirs.wait()
    consumer.close()
    proposer.close()
    theirs.close()


def test_a_session_that_is_lost_is_opened_again_and_nothing_is_missing(
    wire: Wire, remote: Client, client: Client, app: str
) -> None:
    proposer = Proposer(remote, app, "p")
    consumer = Consumer(client, app, "one")
    of_the_session = remote.kazoo.create(f"/{app}", ephemeral=True)
    for n in range(50):
        proposer.propose(n, n)
    wire.stop()
    for n in range(50, 100):
        proposer.propose(n, n)
    until(lambda: client.kazoo.exists(of_the_session) is None)  # the server has given it up
    wire.resume()
    proposer.wait()
    until(lambda: consumer.has(p=100))
    assert remote.session_losses > 0
    assert consumer.records() == {"p": list(range(100))}
    consumer.close()
    proposer.close()


def test_or3_who_is_replaced_cannot_propose(client: Client, app: str) -> None:
    old = Proposer(client, app, "p")
    old.propose(0, 0)
    old.wait()
    new = Proposer(client, app, "p")
    assert new.next == 1
    before = Scope(client, app).end()
    old.propose(1, 5)
    until(lambda: Scope(client, app).end() > before)
    new.propose(1, 1)
    new.wait()
    consumer = Consumer(client, app, "one")
    until(lambda: consumer.has(p=2))
    assert [c[2:] for c in consumer.got] == [(0, 0), (1, 1)]
    verdicts = [verdict for verdict, _ in claims(client, app)]
    assert Verdict.OUTDATED in verdicts
    consumer.close()
    new.close()
    old.close()


def reached(consumer: Consumer) -> int:
    """The last record that it has."""
    consumer.look()
    return consumer.got[-1][3] if consumer.got else -1


PRODUCER = """
import sys
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.zookeeper.client import connect
client = connect(sys.argv[1])
proposer = Proposer(client, sys.argv[2], "p", in_flight_max=32)
print(proposer.next, flush=True)
size = int(sys.argv[3])
while True:
    proposer.propose(proposer.next, proposer.next + size - 1)
"""


def test_or3_a_producer_that_is_killed_goes_on_without_gap_or_double(
    client: Client, zookeeper_hosts: str, app: str
) -> None:
    consumer = Consumer(client, app, "one")
    begins = []
    for size in (3, 5, 2):  # batches of another size after every restart
        command = [sys.executable, "-c", PRODUCER, zookeeper_hosts, app, str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            begins.append(int(process.stdout.readline()))
            enough = begins[-1] + 100 * size  # the consumer may still be behind the one before
            until(lambda enough=enough: reached(consumer) > enough)
            process.kill()
    assert begins[0] == 0 < begins[1] < begins[2]
    last = Proposer(client, app, "p")
    last.propose(last.next, last.next)
    last.wait()
    until(lambda: reached(consumer) + 1 == last.next)
    assert consumer.records() == {"p": list(range(last.next))}
    consumer.close()
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


def test_or9_message_by_message(client: Client, app: str) -> None:
    consumer = Consumer(client, app, "one")
    proposer = Proposer(client, app, "p", in_flight_max=16, group_max=1)
    for n in range(20):
        proposer.propose(n, n)
    proposer.wait()
    assert Scope(client, app).end() == 21
    until(lambda: consumer.has(p=20))
    assert [(place, first, last) for place, _, first, last in consumer.got] == [
        (n + 1, n, n) for n in range(20)
    ]
    consumer.close()
    proposer.close()


def test_the_embedded_server_is_killed_and_restarted_on_its_data(tmp_path: Path, app: str) -> None:
    port = free_port()
    server = EmbeddedZooKeeper(tmp_path / "zk", port=port).start()
    with connect(server.hosts) as client:
        proposer = Proposer(client, app, "p")
        consumer = Consumer(client, app, "one")
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
        consumer.close()
        proposer.close()
    server.stop()


def test_a_server_of_three_is_killed_while_proposing_and_following(
    tmp_path: Path, app: str
) -> None:
    with (
        LoopbackEnsemble(tmp_path) as ensemble,
        connect(ensemble.hosts, session_timeout_s=8.0) as one,
        connect(ensemble.hosts, session_timeout_s=8.0) as two,
    ):
        consumers = [Consumer(one, app, "one"), Consumer(two, app, "two")]
        proposers = {"p": Proposer(one, app, "p"), "q": Proposer(two, app, "q")}
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
        for closing in (*proposers.values(), *consumers):
            closing.close()
