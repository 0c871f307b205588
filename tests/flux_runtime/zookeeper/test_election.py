"""One leader at a time, with a token; nobody else can write, whatever he believes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from zookeeper_wire import MULTI, Wire
from zookeeper_world import Events, until

from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.control import Conflict, ControlLog, Versioned
from flux_runtime.zookeeper.election import (
    Candidate,
    Deposed,
    Elected,
    Leadership,
    Led,
    NotLeading,
)
from flux_runtime.zookeeper.errors import SessionUnavailable
from flux_runtime.zookeeper.nodes import app_path
from flux_runtime.zookeeper.tail import Trimmed

pytestmark = pytest.mark.zookeeper


def elected(events: Events, count: int = 1) -> Leadership:
    leadership: Leadership = events.of(Elected, count=count).leadership
    return leadership


def test_the_follower_takes_over_with_a_greater_token(
    client: Client, zookeeper_hosts: str, app: str
) -> None:
    one, two = Events(), Events()
    first = Candidate(client, app, "one", on_event=one)
    leading = elected(one)
    with connect(zookeeper_hosts) as other:
        second = Candidate(other, app, "two", on_event=two)
        assert two.of(Led) == Led("one", leading.token)
        assert second.leadership is None
        first.close()
        after = elected(two)
        assert after.token > leading.token
        with pytest.raises(NotLeading):
            leading.require()
        with pytest.raises(NotLeading):
            ControlLog(client, app).append(leading, b"late")
        after.require()
        second.close()


def test_an_election_whose_answer_is_lost_counts_once(wire: Wire, remote: Client, app: str) -> None:
    heard = Events()
    wire.cut_after(MULTI)
    candidate = Candidate(remote, app, "one", on_event=heard)
    leading = elected(heard)
    assert wire.cuts == 1
    assert leading.token == 1  # the term was raised once
    ControlLog(remote, app).append(leading, b"x")
    candidate.close()


def test_cut_off_from_the_ensemble_it_stops_deciding_and_another_one_leads(
    wire: Wire, remote: Client, client: Client, app: str
) -> None:
    one, two = Events(), Events()
    first = Candidate(remote, app, "one", on_event=one)
    leading = elected(one)
    log = ControlLog(remote, app)
    log.append(leading, b"a")
    second = Candidate(client, app, "two", on_event=two)
    wire.stop()
    until(lambda: _refused(leading, (SessionUnavailable, NotLeading)))
    after = elected(two)
    assert ControlLog(client, app).append(after, b"b") == 1
    one.of(Deposed)
    wire.resume()
    assert one.of(Led) == Led("two", after.token)
    with pytest.raises(NotLeading):
        log.append(leading, b"c")
    assert log.read() == [(0, b"a"), (1, b"b")]
    second.close()
    assert elected(one, count=2).token > after.token  # it had stayed a candidate
    first.close()


def _refused(leadership: Leadership, errors: tuple[type[Exception], ...]) -> bool:
    try:
        leadership.require()
    except errors:
        return True
    return False


def test_the_log_has_no_gap_and_no_double_where_answers_are_lost(
    wire: Wire, remote: Client, app: str
) -> None:
    heard = Events()
    candidate = Candidate(remote, app, "one", on_event=heard)
    leading = elected(heard)
    log = ControlLog(remote, app)
    followed: list[tuple[int, bytes]] = []
    watcher = log.follow(0, lambda number, entry: followed.append((number, entry)))
    expected = []
    for n in range(12):
        if n % 3 == 0:
            wire.cut_after(MULTI, before_server=n % 2 == 0)
        entries = [b"%d.%d" % (n, i) for i in range(1 + n % 3)]
        first = log.append(leading, *entries)
        expected += list(enumerate(entries, first))
    assert wire.cuts == 4
    assert log.read() == expected
    assert [number for number, _ in expected] == list(range(len(expected)))
    until(lambda: len(followed) == len(expected))
    assert followed == expected
    watcher.close()
    assert log.trim(leading, 5) == 5
    assert log.read(5) == expected[5:]
    with pytest.raises(Trimmed):
        log.read(4)
    assert log.end() == len(expected)
    log.trim(leading, log.end())
    assert log.append(leading, b"after all were trimmed") == len(expected)
    candidate.close()


def test_a_value_is_replaced_only_from_the_version_one_knows(
    wire: Wire, remote: Client, app: str
) -> None:
    heard = Events()
    candidate = Candidate(remote, app, "one", on_event=heard)
    leading = elected(heard)
    layout = Versioned(remote, app_path(app, "control", "layout"))
    assert layout.read() is None
    wire.cut_after(MULTI)
    assert layout.write(leading, b"first", version=None) == 0
    wire.cut_after(MULTI)
    assert layout.write(leading, b"second", version=0) == 1
    assert wire.cuts == 2
    with pytest.raises(Conflict):
        layout.write(leading, b"third", version=0)
    with pytest.raises(Conflict):
        layout.write(leading, b"third", version=None)
    assert layout.read() == (b"second", 1)
    seen: list[tuple[bytes, int]] = []
    watcher = layout.follow(lambda value, version: seen.append((value, version)))
    until(lambda: seen == [(b"second", 1)])
    layout.write(leading, b"third", version=1)
    until(lambda: seen == [(b"second", 1), (b"third", 2)])
    watcher.close()
    candidate.close()


LEADER = """
import sys
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.control import ControlLog
from flux_runtime.zookeeper.election import Candidate, Elected
client = connect(sys.argv[1], session_timeout_s=4.0)
def on_event(event):
    if isinstance(event, Elected):
        print("elected", flush=True)
candidate = Candidate(client, sys.argv[2], "process", on_event=on_event)
for line in sys.stdin:
    log = ControlLog(client, sys.argv[2])
    kept = candidate.leadership
    break
from types import SimpleNamespace
forced = SimpleNamespace(require=lambda: None, check=lambda t: t.check(candidate.term_path, 1),
                         token=1)
try:
    print(log.append(forced, b"from the past"), flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_a_paused_leader_that_comes_back_writes_nothing(
    client: Client, zookeeper_hosts: str, app: str
) -> None:
    """Even one that skips its own checks: the token is what counts."""
    heard = Events()
    with subprocess.Popen(
        [sys.executable, "-c", LEADER, zookeeper_hosts, app],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as leader:
        assert leader.stdout is not None
        assert leader.stdin is not None
        assert leader.stdout.readline() == "elected\n"
        candidate = Candidate(client, app, "here", on_event=heard)
        os.kill(leader.pid, signal.SIGSTOP)
        leading = elected(heard)
        assert leading.token == 2
        ControlLog(client, app).append(leading, b"now")
        os.kill(leader.pid, signal.SIGCONT)
        leader.stdin.write("go on\n")
        leader.stdin.close()
        assert leader.stdout.readline().strip() == "NotLeading"
    assert ControlLog(client, app).read() == [(0, b"now")]
    candidate.close()
