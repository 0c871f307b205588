"""Producer sets in a real ZooKeeper: registered, looked up, frozen, refused, raced for."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from flux_runtime.zookeeper.client import Client, SessionState, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.errors import (
    EnsembleUnreachable,
    RegistrationDiffers,
    RegistrationFrozen,
    SessionUnavailable,
)
from flux_runtime.zookeeper.process import free_port
from flux_runtime.zookeeper.registrations_file import BadRegistrations, load_registrations
from flux_runtime.zookeeper.registry import ProducerRegistry, Registration


@pytest.fixture
def client(zookeeper_hosts: str) -> Iterator[Client]:
    with connect(zookeeper_hosts) as client:
        yield client


@pytest.fixture
def registry(client: Client) -> ProducerRegistry:
    return ProducerRegistry(client, f"app-{uuid.uuid4()}", by="Count.counts")


AWKWARD_KEYS = [
    ("17",),
    ("a/b",),
    ("/",),
    (".",),
    ("..",),
    ("",),
    (None,),
    ("null",),
    ("%null",),
    ("zookeeper",),
    ("Zoë 日本 \x00\x1f\uf8ff",),
    ("eu", None, ""),
    ("eu,", "west"),
    ("eu", ",west"),
    ("k" * 100_000,),
    ("k" * 100_001,),
]


def test_a_set_is_registered_and_found(registry: ProducerRegistry) -> None:
    assert registry.register("clicks", ("17",), ["b", "a"])
    assert registry.lookup("clicks", ("17",)) == {"a", "b"}
    assert registry.lookup("clicks", ("18",)) is None
    assert registry.lookup("other", ("17",)) is None


def test_keys_of_any_content_stay_apart(registry: ProducerRegistry) -> None:
    wanted = {key: frozenset({f"producer {number}"}) for number, key in enumerate(AWKWARD_KEYS)}
    assert registry.register_many("a/stream", wanted) == len(wanted)
    assert registry.streams() == ("a/stream",)
    assert {r.key: r.producers for r in registry.registered("a/stream")} == wanted
    assert registry.lookup_many("a/stream", wanted) == wanted


def test_registering_again_changes_nothing(registry: ProducerRegistry) -> None:
    assert registry.register("clicks", ("1",), ["a"])
    assert not registry.register("clicks", ("1",), ["a", "a"])
    registry.lookup("clicks", ("1",))
    assert not registry.register("clicks", ("1",), ["a"]), "equal after the freeze is fine too"


def test_a_different_set_is_refused_unless_it_replaces(registry: ProducerRegistry) -> None:
    registry.register("clicks", ("1",), ["a", "b"])
    with pytest.raises(RegistrationDiffers, match=r"c would be new; b would be gone") as refused:
        registry.register("clicks", ("1",), ["a", "c"])
    assert "--replace" in refused.value.remedy
    assert registry.register("clicks", ("1",), ["a", "c"], replace=True)
    assert registry.lookup("clicks", ("1",)) == {"a", "c"}


def test_the_first_look_up_freezes_the_set(registry: ProducerRegistry) -> None:
    registry.register("clicks", ("1",), ["a"])
    (before,) = registry.registered("clicks")
    assert before.frozen is None, "listing freezes nothing"
    registry.lookup("clicks", ("1",))
    (after,) = registry.registered("clicks")
    assert after.frozen is not None
    assert after.frozen.by == "Count.counts"
    assert abs(after.frozen.time - time.time()) < 60
    for replace in (False, True):
        with pytest.raises(RegistrationFrozen, match=r"late would be new; frozen by Count\.counts"):
            registry.register("clicks", ("1",), ["a", "late"], replace=replace)
    assert registry.lookup("clicks", ("1",)) == {"a"}


def test_a_look_up_of_nothing_freezes_nothing(registry: ProducerRegistry) -> None:
    assert registry.lookup("clicks", ("1",)) is None
    assert registry.register("clicks", ("1",), ["a"])


def test_all_refusals_are_reported_and_the_others_made(registry: ProducerRegistry) -> None:
    registry.register_many("clicks", {(str(n),): ["a"] for n in range(8)})
    registry.lookup_many("clicks", [("0",)])
    with pytest.raises(RegistrationFrozen):
        registry.register_many("clicks", {(str(n),): ["b"] for n in range(10)})
    with pytest.raises(RegistrationDiffers, match="and 2 more"):
        registry.register_many("clicks", {(str(n),): ["b"] for n in range(1, 8)})
    assert registry.lookup("clicks", ("9",)) == {"b"}


def test_an_empty_set_is_refused(registry: ProducerRegistry) -> None:
    with pytest.raises(ValueError, match=r"no producers given for clicks \[1\]"):
        registry.register("clicks", ("1",), [])


def test_of_a_registration_and_a_look_up_that_race_one_wins(
    registry: ProducerRegistry, zookeeper_hosts: str
) -> None:
    """Whatever the interleaving: what a look-up returned is what stays registered."""
    keys = [(str(n),) for n in range(300)]
    registry.register_many("clicks", {key: ["a"] for key in keys})
    refused: list[RegistrationFrozen] = []

    def overwrite() -> None:
        try:
            registry.register_many("clicks", {key: ["b"] for key in keys}, replace=True)
        except RegistrationFrozen as late:
            refused.append(late)

    writer = threading.Thread(target=overwrite)
    writer.start()
    found = {key: registry.lookup("clicks", key) for key in keys}
    writer.join()
    assert found == registry.lookup_many("clicks", keys)
    assert set(found.values()) <= {frozenset("a"), frozenset("b")}
    assert bool(refused) == (frozenset("a") in found.values())


def test_many_consumers_freeze_the_same_set(registry: ProducerRegistry) -> None:
    registry.register("clicks", ("1",), ["a", "b"])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: registry.lookup("clicks", ("1",)), range(32)))
    assert set(found) == {frozenset({"a", "b"})}


def test_more_keys_than_are_asked_for_at_once_are_registered_and_found(
    registry: ProducerRegistry,
) -> None:
    wanted = {(f"campaign-{n}", str(n % 7)): frozenset({"a", "b"}) for n in range(1500)}
    assert registry.register_many("clicks", wanted) == 1500
    assert registry.lookup_many("clicks", wanted) == wanted
    registry.forget("clicks", list(wanted)[:1000])
    assert len(registry.registered("clicks")) == 500
    registry.clear()
    assert registry.streams() == ()


def test_applications_do_not_see_each_other(client: Client) -> None:
    one, other = (ProducerRegistry(client, f"{uuid.uuid4()}/app") for _ in range(2))
    one.register("clicks", ("1",), ["a"])
    assert other.lookup("clicks", ("1",)) is None
    other.clear()
    assert one.lookup("clicks", ("1",)) == {"a"}


def test_a_registration_reads_itself_back() -> None:
    registration = Registration(("a\ud800", None), frozenset({"p"}))
    assert Registration.from_bytes(registration.to_bytes()) == registration


def test_nobody_answers() -> None:
    with pytest.raises(EnsembleUnreachable, match="no ZooKeeper server answered at") as refused:
        connect(f"127.0.0.1:{free_port()}", timeout_s=0.5)
    assert "zookeeper: embedded" in refused.value.remedy


def test_nobody_answers_and_only_the_error_says_so() -> None:
    script = (
        "from flux_runtime.zookeeper.client import connect\n"
        f"try: connect('127.0.0.1:{free_port()}', timeout_s=0.5)\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("EnsembleUnreachable\n", "")


def test_a_name_that_is_no_address() -> None:
    with pytest.raises(EnsembleUnreachable, match="is no list of addresses"):
        connect("no such host:port", timeout_s=0.5)


@pytest.mark.zookeeper
def test_or7_a_paused_server_suspends_the_session(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path, tick_ms=500) as server,
        connect(server.hosts, session_timeout_s=3.0) as client,
    ):
        client.require_session()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        _until(lambda: client.state is SessionState.SUSPENDED)
        with pytest.raises(SessionUnavailable, match="is suspended"):
            client.require_session()
        with pytest.raises(EnsembleUnreachable):
            client.wait_for_session(0.1)
        os.kill(server.pid, signal.SIGCONT)
        client.wait_for_session(120)
        client.require_session()


@pytest.mark.zookeeper
def test_or7_a_lost_session_is_counted(tmp_path: Path) -> None:
    """LOST by the server's word, then CONNECTED with a new session."""
    seen: list[SessionState] = []
    with EmbeddedZooKeeper(tmp_path) as server:
        with connect(server.hosts, session_timeout_s=3.0) as client:
            client.on_change(seen.append)
            first_session = client.kazoo.client_id
            same_session = KazooClient(server.hosts, client_id=first_session)
            same_session.start()
            same_session.stop()  # which ends the session for both
            _until(lambda: SessionState.LOST in seen)
            client.wait_for_session(120)
            assert client.kazoo.client_id[0] != first_session[0]
            losses = seen.count(SessionState.LOST)
            assert client.session_losses == losses == 1
        assert client.session_losses == losses, "closing is no loss"


@pytest.mark.zookeeper
def test_or7_the_registry_waits_for_a_server_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    server = EmbeddedZooKeeper(tmp_path, port=port).start()
    with connect(server.hosts) as client, ThreadPoolExecutor(1) as pool:
        registry = ProducerRegistry(client, "app", timeout_s=120)
        wanted = {(str(n),): frozenset({"a", "b"}) for n in range(8_000)}
        path, asked = registry.path, itertools.count(1)

        def killing(stream: str, key: tuple[str | None, ...]) -> str:
            if next(asked) == 4_500:  # in the middle of it
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
            return path(stream, key)

        monkeypatch.setattr(registry, "path", killing)
        registering = pool.submit(registry.register_many, "clicks", wanted)
        _until(lambda: not server.running)
        assert not registering.done()
        server.stop()
        with EmbeddedZooKeeper(tmp_path, port=port):
            registering.result(240)
            assert registry.lookup_many("clicks", wanted) == wanted


@pytest.mark.zookeeper
def test_or7_nothing_is_decided_while_the_server_is_away(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path).start()
    with connect(server.hosts) as client:
        ProducerRegistry(client, "app").register("clicks", ("1",), ["a"])
        registry = ProducerRegistry(client, "app", timeout_s=1.0)
        server.stop()
        with pytest.raises(EnsembleUnreachable):
            registry.lookup("clicks", ("1",))
        with pytest.raises(EnsembleUnreachable):
            registry.register("clicks", ("2",), ["a"])


def _until(condition: object, seconds: float = 120.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def write(folder: Path, text: str) -> Path:
    file = folder / "producers.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_object_from_key_to_producers(tmp_path: Path) -> None:
    file = write(tmp_path, '{"17": ["a", "b"], "a/b": ["a"]}')
    assert load_registrations(file) == {("17",): frozenset("ab"), ("a/b",): frozenset("a")}


def test_a_list_for_keys_of_several_attributes(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """[{"key": {"window": 3, "campaign": "c"}, "producers": ["a"]},
            {"key": ["d", null], "producers": ["b"]}]""",
    )
    expected = {("c", "3"): frozenset("a"), ("d", None): frozenset("b")}
    assert load_registrations(file) == expected, "attributes in alphabetical order"


def test_nothing_to_register(tmp_path: Path) -> None:
    assert load_registrations(write(tmp_path, "{}")) == {}
    assert load_registrations(write(tmp_path, "[]")) == {}


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """[{"key": 1, "producers": ["a"]}, {"key": 1, "producers": ["b"]},
            {"key": 2, "producers": []}, {"key": 2.5, "producers": ["a"]},
            {"key": [1, 2], "producers": ["a"]}, {"key": {"a": 1, "a": 2}, "producers": ["a"]}]""",
    )
    with pytest.raises(BadRegistrations) as refused:
        load_registrations(file)
    for part in (
        "entry 2: [1] occurs twice",
        "entry 3: producers must be a list of names, not []",
        "entry 4: 2.5 cannot be part of a partition key",
        "entry 5: [1, 2] has another number of attributes",
        "entry 6: an attribute occurs twice",
    ):
        assert part in refused.value.message
    assert "entry 1:" not in refused.value.message
    assert str(file) in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON.*line 1 column 2"),
        ("17", "neither an object nor a list"),
        ('[{"key": 1}]', "entry 1: not an object of `key` and `producers`"),
        ("[17]", "entry 1: not an object"),
        ('{"1": "a"}', "producers must be a list"),
        ('{"1": ["a"], "1": ["b"]}', "occurs twice"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadRegistrations, match=message):
        load_registrations(write(tmp_path, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadRegistrations, match="No such file"):
        load_registrations(tmp_path / "gone.json")
