"""Members come, go, are removed, superseded and cut off; each ends in one view."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from zookeeper_wire import CREATE, EXISTS, Wire
from zookeeper_world import Events, until

from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.errors import SessionUnavailable
from flux_runtime.zookeeper.membership import (
    NO_ANSWER,
    REMOVED,
    SESSION_LOST,
    SUPERSEDED,
    Fenced,
    Joined,
    Left,
    Member,
    NoMember,
    Resumed,
    Roster,
    Suspended,
    join,
    next_incarnation,
)

pytestmark = pytest.mark.zookeeper

A = Member(site=3, incarnation=1, host="h", executor="e", address="127.0.0.1:1")


def test_a_member_is_seen_with_its_address_until_it_leaves(client: Client, app: str) -> None:
    seen = Events()
    first = join(client, app, A, on_event=Events())
    roster = Roster(client, app, on_event=seen)
    other = replace(A, site=-1, role="ingress", address="127.0.0.1:2")
    second = join(client, app, other, on_event=Events())
    until(lambda: len(roster.members) == 2)
    assert roster.members == {3: A, -1: other}
    second.leave()
    assert seen.of(Left) == Left(other)
    first.leave()
    seen.of(Left, count=2)
    assert [type(event) for event in seen] == [Joined, Joined, Left, Left]
    roster.close()


def test_who_is_removed_is_fenced(client: Client, zookeeper_hosts: str, app: str) -> None:
    heard = Events()
    with connect(zookeeper_hosts) as own:
        seat = join(own, app, A, on_event=heard)
        seat.require()
        roster = Roster(client, app, on_event=Events())
        roster.remove(until(lambda: roster.members.get(3)))
        assert heard.of(Fenced).reason == REMOVED
        with pytest.raises(NoMember, match="removed"):
            seat.require()
        until(lambda: not roster.members)
        roster.close()


def test_a_later_incarnation_supersedes_and_an_earlier_one_is_refused(
    client: Client, app: str
) -> None:
    heard, seen = Events(), Events()
    roster = Roster(client, app, on_event=seen)
    join(client, app, A, on_event=heard)
    seen.of(Joined)
    later = replace(A, incarnation=7)
    seat = join(client, app, later, on_event=Events())
    seen.of(Joined, count=2)
    assert list(seen) == [Joined(A), Left(A), Joined(later)]
    with pytest.raises(NoMember, match="later incarnation"):
        join(client, app, replace(A, incarnation=6), on_event=Events())
    roster.remove(A)
    assert heard.of(Fenced).reason == SUPERSEDED
    seat.leave()
    with pytest.raises(NoMember, match="later incarnation"):
        join(client, app, replace(A, incarnation=6), on_event=Events())
    assert next_incarnation(client, app, 3) == 8
    assert next_incarnation(client, app, 3) == 9
    roster.close()


def test_the_same_identity_twice_is_refused(client: Client, zookeeper_hosts: str, app: str) -> None:
    join(client, app, A, on_event=Events())
    with connect(zookeeper_hosts) as own, pytest.raises(NoMember, match="same identity"):
        join(own, app, A, on_event=Events())


def test_a_create_without_an_answer_is_recognised(wire: Wire, remote: Client, app: str) -> None:
    other = replace(A, site=1)
    join(remote, app, other, on_event=Events()).leave()  # all folders are there now
    join(remote, app, replace(A, incarnation=0), on_event=Events()).leave()
    wire.cut_after(CREATE)
    seat = join(remote, app, replace(A, incarnation=1), on_event=Events())
    until(lambda: wire.cuts == 1)
    seat.require()


def test_suspended_and_resumed_with_the_same_session(wire: Wire, app: str) -> None:
    heard = Events()
    with connect(wire.hosts, session_timeout_s=40.0) as remote:  # it outlives the interruption
        seat = join(remote, app, A, on_event=heard)
        wire.stop()
        heard.of(Suspended)
        with pytest.raises(SessionUnavailable):
            seat.require()
        wire.resume()
        heard.of(Resumed)
        seat.require()
        assert seat.fenced is None


def test_a_connection_that_drops_while_it_looks_fences_nobody(
    remote: Client, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a connection kazoo names no session, which is not to say that it is another one."""
    seat = join(remote, app, A, on_event=Events())
    with monkeypatch.context() as dropped:
        dropped.setattr(Client, "session_id", None)
        began = time.monotonic()
        until(lambda: seat._watcher.confirmed > began)
    seat.require()
    assert seat.fenced is None
    seat.leave()


def test_without_an_answer_it_fences_itself_before_kazoo_knows(
    wire: Wire, remote: Client, client: Client, app: str
) -> None:
    heard, seen = Events(), Events()
    roster = Roster(client, app, on_event=seen)
    join(remote, app, A, on_event=heard)
    seen.of(Joined)
    wire.stop()
    assert heard.of(Fenced).reason == NO_ANSWER
    assert remote.session_losses == 0  # kazoo hears of it from the ensemble only
    seen.of(Left)
    wire.resume()
    roster.close()


def test_a_connection_that_is_lost_while_it_looks_holds_no_fencing_up(
    wire: Wire, remote: Client, app: str
) -> None:
    heard = Events()
    join(remote, app, A, on_event=heard)
    wire.open = False  # what is cut now is not replaced
    wire.cut_after(EXISTS, nth=2)  # the second question of a look
    until(lambda: wire.cuts == 1)
    cut = time.monotonic()
    assert heard.of(Fenced).reason == NO_ANSWER
    assert time.monotonic() - cut < 20.0, "and the session lives for four seconds"


SITE = """
import sys, time
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.membership import Member, join
client = connect(sys.argv[1], session_timeout_s=4.0)
fenced = []
member = Member(site=3, incarnation=1, host="h", executor="e", address="127.0.0.1:1")
seat = join(client, sys.argv[2], member, on_event=fenced.append)
print("joined", flush=True)
while seat.fenced is None:
    time.sleep(0.05)
print(seat.fenced.reason, flush=True)
"""


def test_a_paused_process_that_comes_back_is_fenced(
    client: Client, zookeeper_hosts: str, app: str
) -> None:
    seen = Events()
    roster = Roster(client, app, on_event=seen)
    with subprocess.Popen(
        [sys.executable, "-c", SITE, zookeeper_hosts, app], stdout=subprocess.PIPE, text=True
    ) as site:
        assert site.stdout is not None
        assert site.stdout.readline() == "joined\n"
        seen.of(Joined)
        os.kill(site.pid, signal.SIGSTOP)
        seen.of(Left)
        later = join(client, app, replace(A, incarnation=2), on_event=Events())
        os.kill(site.pid, signal.SIGCONT)
        assert site.stdout.readline().strip() in (SESSION_LOST, NO_ANSWER, REMOVED, SUPERSEDED)
        site.wait(120)
    until(lambda: set(roster.members) == {3})
    assert roster.members[3].incarnation == 2
    later.require()
    roster.close()


def test_a_killed_process_leaves(client: Client, zookeeper_hosts: str, app: str) -> None:
    seen = Events()
    roster = Roster(client, app, on_event=seen)
    with subprocess.Popen(
        [sys.executable, "-c", SITE, zookeeper_hosts, app], stdout=subprocess.PIPE, text=True
    ) as site:
        seen.of(Joined)
        site.kill()
    assert seen.of(Left) == Left(A)
    roster.close()
