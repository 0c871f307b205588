"""Whole jobs under simulated faults keep their promises; with a planted mistake they do not."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from flux_lab.shell.__main__ import main
from flux_lab.shell.cluster import Cluster, plan_of, substituted
from flux_lab.shell.explore import CONFIGURATIONS, Configuration, explore
from flux_lab.shell.kazoo_client import SimulatedKazoo
from flux_lab.shell.kernel import Kernel, Process
from flux_lab.shell.mistakes import MISTAKES, Mistake, found_at, planted
from flux_lab.shell.sweep import SETTINGS, run, sweep
from flux_runtime.site.leader import Leader
from flux_runtime.site.worker import LEADER_LOOK_S
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.election import Candidate

QUICK = (
    "the leader acts before the record is safe",
    "resume points are ignored",
    "a failed site may come back",
    "a unit tells how many partitions worked at once",
    "an empty unit is sent as rows, if another one is not empty",
)
"""Mistakes that few runs find."""


def test_jobs_keep_their_promises() -> None:
    totals, _ = sweep(range(12))
    assert not totals.failed
    assert totals.sums["terms"] > 1.5 * totals.runs
    for promised in ("mid_recovery", "mid_record", "sessions_expired"):
        assert totals.sums[promised], f"no run had any {promised}"


@pytest.mark.parametrize("setting", list(SETTINGS)[1:])
def test_jobs_keep_their_promises_in_every_region(setting: str) -> None:
    totals, _ = sweep(range(100, 101), setting=setting)
    assert not totals.failed


@pytest.mark.slow
def test_more_jobs_keep_their_promises() -> None:
    totals, _ = sweep(range(1_000, 1_120))
    assert not totals.failed


def test_a_seed_gives_the_same_run_again() -> None:
    one, two = run(23), run(23)
    assert (one.events, one.virtual_s, one.struck) == (two.events, two.virtual_s, two.struck)


@pytest.mark.parametrize(
    "mistake", [m for m in MISTAKES if m.name in QUICK], ids=lambda mistake: mistake.name
)
def test_a_planted_mistake_is_found(mistake: Any) -> None:
    assert found_at(mistake, range(100)) is not None


def test_every_mistake_can_be_planted() -> None:
    for mistake in MISTAKES:
        with planted(mistake):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["site killed", "leader killed"])
def test_jobs_keep_their_promises_whatever_moment_a_fault_strikes_at(kind: str) -> None:
    found = explore(Configuration(((kind,),)))
    assert (found.problem, found.complete) == ("", True)
    assert found.moments > 50
    assert len(found.states) > 30


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("a failed site may come back", "crash"),
        pytest.param(
            "a record does not ask whether another leads", "leader", marks=pytest.mark.slow
        ),
    ],
)
def test_a_planted_mistake_is_found_at_some_moment(name: str, job: str) -> None:
    (mistake,) = [m for m in MISTAKES if m.name == name]
    with planted(mistake):
        found = explore(CONFIGURATIONS[job], runs_max=100)
    assert "\nafter Choice(" in found.problem


@pytest.mark.parametrize(("last", "first"), [("0", "5"), ("5", "5"), ("3", "7"), ("5", "-1")])
def test_no_seeds_are_an_error(last: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["sweep", last, "--", first])
    assert exit_.value.code == 2
    assert "give LAST, then FIRST" in capsys.readouterr().err


def left_behind(seed: int) -> str:
    """The leader's znode after a candidate has closed, at any moment, in a session that goes on."""
    kernel = Kernel(seed)
    cluster = Cluster(kernel, plan_of(kernel.rng), seed)

    def main() -> None:
        client = connect("simulated", session_timeout_s=2.0)
        candidate = Candidate(client, "flux", "me", on_event=lambda _: None)
        kernel.sleep(0.03 * kernel.rng.random())
        candidate.close()
        kernel.sleep(1.0)

    with substituted(cluster):
        Process(kernel, "candidate", "c0").start(main, ended=lambda _: None)
        kernel.run(kernel.now + 0.9)
        znodes = [path for path in cluster.ensemble.state.nodes if path.endswith("/leader")]
        kernel.run(kernel.now + 5.0)
    assert not kernel.faults
    return ", ".join(znodes)


def test_a_candidate_that_closes_while_it_competes_leaves_no_leader_behind() -> None:
    assert [seed for seed in range(30) if left_behind(seed)] == []


def test_a_leader_that_closes_over_a_question_is_not_asked_for_ever() -> None:
    said = "self.step(steps.ClientSaid(connection, message))"
    closing = "connection.close('no') if isinstance(message, control.Where) else " + said
    with planted(Mistake("a question closes the connection", Leader, "controlled", said, closing)):
        story = run(0).story
    assert "has closed 10 connections over Where" in story


def follows_after_s(seed: int) -> float:
    """From an election until a site follows that has dialed the machine of the dead leader."""
    kernel = Kernel(seed)
    plan = replace(plan_of(kernel.rng), controllers=2, batches=16)
    cluster = Cluster(kernel, plan, seed)

    def until(done: Callable[[], Any]) -> float:
        end = kernel.now + 30.0
        while not done() and kernel.now < end and not kernel.faults:
            kernel.run(kernel.now + 0.02)
        assert done(), kernel.faults
        return kernel.now

    def elected(terms: int) -> bool:
        return len(cluster.leaders) == terms and cluster.leaders[-1].state.leading

    with substituted(cluster):
        cluster.start()
        until(lambda: elected(1))
        process = cluster.leader_process[cluster.leaders[0]]
        cluster.network.dead_machines.add(process.machine)
        process.kill()
        cluster.start_site(plan.sites)
        newcomer = cluster.sites[plan.sites]
        since = until(lambda: elected(2))
        took = until(lambda: newcomer in cluster.workers and cluster.workers[newcomer].state.leader)
        cluster.end()
    return took - since


def test_a_site_does_not_dial_a_dead_machine_while_another_leads() -> None:
    (mistake,) = [m for m in MISTAKES if m.function == "_dialed"]
    assert max(map(follows_after_s, range(3))) < LEADER_LOOK_S + 1.0
    with planted(mistake):
        assert max(map(follows_after_s, range(3))) > LEADER_LOOK_S + 1.5


# ---- the simulated ZooKeeper beside a real one


PATHS = ("/a", "/a/b", "/a/c", "/d", "/d/e", "/d/e/f")
REFUSALS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
BYSTANDERS = (RolledBackError, RuntimeInconsistency)


def answers(kazoo: Any, seed: int, root: str) -> list[Any]:
    """What a server says to requests drawn from a seed, and which watches it touched off."""
    draw = random.Random(seed)
    paths = [root + path for path in PATHS]
    kazoo.ensure_path_async(root).get(timeout=30.0)
    said: list[Any] = []
    touched: list[int] = []

    def watch_of(number: int) -> Any:
        return lambda _: touched.append(number)

    for number in range(300):
        path = draw.choice(paths)
        version = draw.choice((-1, -1, 0, 1))
        data = bytes([number % 256])
        kind = draw.randrange(9)
        transaction = kazoo.transaction()
        match kind:
            case 0 | 1:
                answer = kazoo.create_async(path, data, ephemeral=False)
            case 2:
                answer = kazoo.set_async(path, data, version=version)
            case 3:
                answer = kazoo.delete_async(path, version=version)
            case 4:
                answer = kazoo.get_async(path, watch=watch_of(number))
            case 5:
                answer = kazoo.exists_async(path, watch=watch_of(number))
            case 6:
                answer = kazoo.get_children_async(path, watch=watch_of(number))
            case 7:
                answer = kazoo.ensure_path_async(path)
            case _:
                transaction.check(draw.choice(paths), max(version, 0))
                transaction.create(path, data)
                transaction.set_data(draw.choice(paths), data, version=version)
                answer = transaction.commit_async()
        try:
            said.append((kind, _plain(answer.get(timeout=30.0), root)))
        except REFUSALS as error:
            said.append((kind, type(error).__name__))
        kazoo.sync_async("/").get(timeout=30.0)
    last = 300  # watches are called in their order, but in a thread of the client's own
    kazoo.exists_async(f"{root}/last", watch=watch_of(last)).get(timeout=30.0)
    kazoo.create_async(f"{root}/last", b"", ephemeral=False).get(timeout=30.0)
    for _ in range(10_000):
        if last in touched:
            break
        kazoo.sync_async("/").get(timeout=30.0)
    return [*said, sorted(touched)]


def _plain(value: Any, root: str) -> Any:
    """An answer without what differs from server to server."""
    if isinstance(value, BYSTANDERS):
        return "bystander"
    if isinstance(value, Exception):
        return type(value).__name__
    if hasattr(value, "cversion"):
        return (value.version, value.cversion, value.numChildren, value.ephemeralOwner)
    if isinstance(value, (list, tuple)):
        plain = [_plain(item, root) for item in value]
        return sorted(plain) if all(isinstance(item, str) for item in plain) else plain
    return value.removeprefix(root) if isinstance(value, str) else value


@pytest.mark.zookeeper
@pytest.mark.parametrize("seed", range(3))
def test_the_simulated_zookeeper_answers_as_a_real_one(seed: int, zookeeper_hosts: str) -> None:
    kernel = Kernel(seed)
    cluster = Cluster(kernel, plan_of(kernel.rng), seed)
    simulated: list[Any] = []

    def main() -> None:
        kazoo = SimulatedKazoo(cluster.ensemble, timeout=10.0)
        kazoo.start()
        simulated.extend(answers(kazoo, seed, "/root"))

    with substituted(cluster):
        process = Process(kernel, "client", "client")
        process.start(main, ended=lambda _: None)
        kernel.run(kernel.now + 600)
    assert not kernel.faults
    with connect(zookeeper_hosts) as client:
        assert answers(client.kazoo, seed, f"/{uuid.uuid4()}") == simulated
