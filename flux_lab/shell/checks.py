"""Invariants of a simulated job, besides the results that are read.

| when | what |
|---|---|
| always | a leader hears only sites of its view, and knows no fenced site as one of them |
| always | no two leaders have one epoch |
| always | copies of a pair stand on different sites |
| always | what copies say of themselves (`Segment.validate`) |
| after every step | what the states of leader and sites say of themselves (`validate`) |
| at the end | the record leads to the state that the last leader has acted on |
| at the end | all copies are in place and have processed everything; those of a pair are equal |
| at the end | states that were kept after the last batch are those of the copies |
| at the end | no buffer holds anything |
"""

from __future__ import annotations

from typing import Any

from flux_lab.checks import ViolationError
from flux_lab.papers.host import Host
from flux_lab.shell.cluster import Cluster
from flux_runtime.operators.state_file import Restored, file_of
from flux_runtime.protocol.vocabulary import END, Pair, Status
from flux_runtime.site.collector import collected
from flux_runtime.site.leader import Leader
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.record import decoded
from flux_runtime.site.resume_host import ResumeHost
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.snapshot import restore, snapshot

ID_BYTES = 16
"""The length of what the control log puts before every entry."""


def always(cluster: Cluster) -> None:
    """Check what holds whenever nothing is just happening.

    Raises:
        ViolationError: it does not.
    """
    for leader in cluster.leaders[-2:]:
        process = cluster.leader_process[leader]
        if process.alive and not leader.ended.done():
            _view(leader)
    epochs = [leader.intake.journal.epoch for leader in cluster.leaders if leader.feeding]
    if len(set(epochs)) < len(epochs):
        raise ViolationError(f"two leaders have one epoch: {epochs}")
    for worker in cluster.workers.values():
        if isinstance(worker.host, Host):
            for _, segment in worker.host.segments():
                segment.validate()
        elif isinstance(worker.host, ResumeHost):
            worker.host.site.validate()


def _view(leader: Leader) -> None:
    ledger = leader.state.ledger
    strangers = set(leader.state.attached) - set(ledger.sites)
    if strangers:
        raise ViolationError(f"leader {ledger.leaders} hears sites {strangers} that were removed")
    back = [site.id for site in ledger.sites.values() if site.id in ledger.fenced]
    if back or {site.id: n for n, site in ledger.sites.items()} != ledger.numbers:
        raise ViolationError(f"sites {back} are fenced and in the view: {ledger.numbers}")
    if ledger.controller is not None:
        places: set[tuple[Any, int]] = set()
        for node, copy in ledger.controller.nodes():
            if (node.pair, copy.site) in places:
                raise ViolationError(f"two copies of {node.pair} on site {copy.site}")
            places.add((node.pair, copy.site))


def recorded(cluster: Cluster, parallel_max: int) -> Ledger:
    """The state that the record in ZooKeeper leads to."""
    dataflow, plan = collected(cluster.flow), cluster.plan
    ledger = plan.hosting.ledger(
        dataflow, wanted=plan.sites, first=plan.first, parallel_max=parallel_max
    )
    nodes = cluster.ensemble.state.nodes
    first = 0
    znode = nodes.get("/blazes/flux/control/snapshot")
    if znode is not None:
        value = znode.data[ID_BYTES:]
        first = int.from_bytes(value[:8], "big")
        restore(ledger, value[8:])
    for path in sorted(nodes):
        parent, _, name = path.rpartition("/n-")
        if parent == "/blazes/flux/control/log" and int(name) >= first:
            for event in decoded(nodes[path].data[ID_BYTES:]):
                ledger.apply(event)
    return ledger


def at_the_end(cluster: Cluster) -> None:
    """Check what holds once all is read, all pairs are whole, and nothing strikes any more.

    Raises:
        ViolationError: it does not.
    """
    leader = cluster.leader
    assert leader is not None
    now = leader.state.ledger
    due = recorded(cluster, now.parallel_max)
    if due.events != now.events:
        raise ViolationError(
            f"the record has {due.events} events, leader {now.leaders} has applied {now.events}"
        )
    if now.is_whole and snapshot(due) != snapshot(now):
        raise ViolationError(
            f"the record leads to {snapshot(due)!r}, leader {now.leaders} acts on {snapshot(now)!r}"
        )
    if cluster.plan.papers:
        _copies(cluster, leader)
    else:
        _replicas(cluster, now)


def _replicas(cluster: Cluster, ledger: Ledger) -> None:
    assert isinstance(ledger, ResumeLedger)
    assert ledger.controller is not None
    here = {
        copy: replica
        for worker in cluster.workers.values()
        if isinstance(worker.host, ResumeHost)
        for copy, replica in worker.host.site.replicas.items()
    }
    states: dict[Any, list[str]] = {}
    for pair in ledger.flow.segments():
        for copy in ledger.controller.members[pair]:
            replica = here.get(copy)
            if replica is None or replica.done != cluster.end_of_input:
                raise ViolationError(f"{copy} has not processed everything: {replica}")
            if replica.held or replica.rows:
                raise ViolationError(f"{copy} holds {len(replica.held)}, waits {replica.rows}")
            if pair.stage < ledger.flow.last:
                assert replica.operator is not None
                state = _rows(replica.operator.get_state())
                if states.setdefault(pair, state) != state:
                    raise ViolationError(f"the copies of {pair} are not equal")
                _kept(cluster, pair, state)


def _copies(cluster: Cluster, leader: Leader) -> None:
    controller = leader.state.ledger.controller
    assert controller is not None
    here = {
        node: segment
        for worker in cluster.workers.values()
        if isinstance(worker.host, Host)
        for node, segment in worker.host.segments()
    }
    states: dict[Any, list[str]] = {}
    for node, _ in controller.nodes():
        segment = here.get(node)
        if segment is None or segment.status is not Status.ACTIVE:
            raise ViolationError(f"{node} is said to be whole and is {segment}")
        if segment.producer.progress < END or segment.consumer.inlets[0].queue:
            raise ViolationError(
                f"{node} has not processed everything: {segment.producer.progress}"
            )
        if node.stage < len(leader.state.ledger.shape.widths) - 1:  # a collector forgets on demand
            if not segment.back.resident:
                segment.activate()
            state = _rows(segment.operator.get_state())
            if states.setdefault(node.pair, state) != state:
                raise ViolationError(f"the copies of {node.pair} are not equal")
            _kept(cluster, node.pair, state)
        for outlet in segment.producer.outlets:
            if outlet.buffer.entries or outlet.buffer.dangling:
                raise ViolationError(f"{node} holds what everybody has: {outlet}")


def _kept(cluster: Cluster, pair: Pair, state: list[str]) -> None:
    """Check that what was kept of a pair after the last batch is this state."""
    if cluster.kept is not None and (file := file_of(cluster.kept, pair)).exists():
        operator = Restored(cluster.flow.operator(pair), file)
        if _rows(operator.get_state()) != state:
            raise ViolationError(f"what was kept of {pair} is not its state")


def _rows(state: dict[str, Any]) -> list[str]:
    """The rows of an operator's state, whose columns are arrays, in an order of their own."""
    if "by_key" in state:
        return [*map(repr, state["by_key"]["keys"]), *_rows(state["inner"])]
    if "inner" in state:
        rows = state["rows"]
        return [*map(repr, [] if rows is None else rows.to_pylist()), *_rows(state["inner"])]
    columns = [column for value in state.values() for column in _columns(value)]
    return sorted(map(repr, zip(*(column.tolist() for column in columns), strict=True)))


def _columns(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
