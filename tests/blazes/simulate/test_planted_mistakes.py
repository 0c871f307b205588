"""What is wrong with the tracker, the census or the producer sets of a plan, `simulate` finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from annotations.dataflow import Component, Dataflow, Endpoint, Producers, Stream
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.simulate import repro
from blazes.simulate.anomalies import Anomaly, between
from blazes.simulate.hunt import Hunt, Hunted
from blazes.simulate.messages import Kind, Message
from blazes.simulate.network import Refused
from codegen.seals import Route
from flux_runtime.sealing.events import Coverage, Finding, Found, Groups, Ingested
from flux_runtime.sealing.partition import Share
from flux_runtime.sealing.tracker import Tracker, Verdict
from flux_runtime.spark.sealed import chunks
from tests.executable import SCHEMA, Numbers, Runnable, Verb, counted

Plant = Callable[[pytest.MonkeyPatch], None]
ALL = Producers("all", ("east", "west"))
INPUTS = 10


def runnable(producers: Producers, *, id: tuple[str, ...] = ()) -> Runnable:
    """Records counted by `a` and `b`, and the counts by `a`: two gates, one after the other."""
    key = (frozenset("a"),)
    column = {} if producers.rule == "one" else {"producer_column": "c"}
    more: dict[str, Any] = {"id": id, "delivery": "may-repeat"} if id else {}
    streams = (
        Stream(
            "clicks",
            None,
            Endpoint("C", "p"),
            seals=key,
            schema=SCHEMA,
            producers=producers,
            **column,
            **more,
        ),
        Stream("counts", Endpoint("C", "x"), Endpoint("D", "p"), schema=SCHEMA),
        Stream("totals", Endpoint("D", "x"), None, schema=SCHEMA),
    )
    verbs: dict[str, Verb] = {"C": counted("ab"), "D": counted("a")}
    parts = {name: Component(name, each.paths) for name, each in verbs.items()}
    return Runnable(Dataflow("counts", parts, {s.name: s for s in streams}), verbs)


def hunted(of: Runnable, *, inputs: int = INPUTS) -> Hunted:
    """What is found under the plan."""
    analysis = analyze(of.dataflow)
    made = plan(analysis)
    assert all(made.repaired[name].label <= Label.ASYNC for name in ("counts", "totals"))
    network = of.network(analysis, made)
    assert len(network.gated) == 2
    hunt = Hunt(network, Numbers(network), random.Random(1), coordinated=True)
    found = hunt.go(
        inputs_max=inputs, until=float("inf"), enough=lambda found: bool(found.witnesses)
    )
    assert not found.failed
    return found


@pytest.mark.parametrize(
    ("producers", "id"),
    [
        (ALL, ()),
        (Producers("registered"), ()),
        (Producers("one"), ()),
        (ALL, ("a", "b", "c")),
    ],
)
def test_nothing_is_found_where_nothing_is_planted(
    producers: Producers, id: tuple[str, ...]
) -> None:
    found = hunted(runnable(producers, id=id))
    assert found.inputs == INPUTS
    assert not found.witnesses


def one_vote_is_enough(patch: pytest.MonkeyPatch) -> None:
    def counted(self: Share) -> bool:
        return bool(self.producers and self.votes) and all(
            self._arrived(p, self.votes[p].count) for p in self.producers or () if p in self.votes
        )

    patch.setattr(Share, "counted", property(counted))
    patch.setattr(Share, "complete_by_counts", property(counted))


def counts_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def voted(self: Share) -> bool:
        return bool(self.producers) and not self.missing

    patch.setattr(Share, "_arrived", lambda self, producer, promised: True)
    patch.setattr(Share, "complete_by_counts", property(voted))


def without(verdict: Verdict) -> Plant:
    def planted(patch: pytest.MonkeyPatch) -> None:
        exceptions = Tracker._exceptions

        def fewer(self: Tracker, event: Ingested) -> dict[int, Verdict]:
            return {n: v for n, v in exceptions(self, event).items() if v is not verdict}

        patch.setattr(Tracker, "_exceptions", fewer)

    return planted


def late_partitions_are_new_ones(patch: pytest.MonkeyPatch) -> None:
    standing = Tracker._standing

    def new(self: Tracker, name: str, key: str, decided: Any) -> Any:
        complete, producers = standing(self, name, key, decided)
        if complete is not None and key not in self.partitions:
            return None, self._initial_set(name, key, decided)
        return complete, producers

    patch.setattr(Tracker, "_standing", new)


def replays_count_twice(patch: pytest.MonkeyPatch) -> None:
    def replayed(self: Tracker, name: str, batch: int, coverage: Coverage) -> bool:
        return False

    patch.setattr(Tracker, "replayed", replayed)


def a_record_is_miscounted(patch: pytest.MonkeyPatch) -> None:
    census_of = chunks.census_of

    def wrong(*arguments: Any) -> chunks.Census:
        found = census_of(*arguments)
        groups = [g._replace(rows=g.rows - (g.rows > 2)) for g in found.groups]
        return replace(found, groups=Groups.of(groups))

    patch.setattr(chunks, "census_of", wrong)


def a_punctuation_is_data(patch: pytest.MonkeyPatch) -> None:
    census_of = chunks.census_of

    def wrong(*arguments: Any) -> chunks.Census:
        found = census_of(*arguments)
        groups = [g._replace(promised=None) if g.promised == 0 else g for g in found.groups]
        return replace(found, groups=Groups.of(groups))

    patch.setattr(chunks, "census_of", wrong)


def a_producer_is_left_out(patch: pytest.MonkeyPatch) -> None:
    sets = vars(Route)["producers"]

    def fewer(self: Route) -> dict[str, Producers]:
        known = sets.fget(self)
        return {name: replace(each, members=each.members[:1]) for name, each in known.items()}

    patch.setattr(Route, "producers", property(fewer))


def ids_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Share, "uncounted", ())


def outsiders_stay(patch: pytest.MonkeyPatch) -> None:
    found = Tracker._on_found

    def all_belong(self: Tracker, event: Found) -> Iterator[Finding]:
        came = {
            key: tuple(self.partitions[key].shares[event.input].received)
            for key in event.producers
            if key in self.partitions
        }
        sets = {key: (*who, *came.get(key, ())) for key, who in event.producers.items()}
        return found(self, replace(event, producers=sets))

    patch.setattr(Tracker, "_on_found", all_belong)


PLANTS: tuple[tuple[Plant, Producers, tuple[str, ...]], ...] = (
    (one_vote_is_enough, ALL, ()),
    (one_vote_is_enough, Producers("registered"), ()),
    (counts_are_not_compared, ALL, ()),
    (counts_are_not_compared, Producers("one"), ()),
    (without(Verdict.UNKNOWN), ALL, ()),
    (outsiders_stay, Producers("registered"), ()),
    (late_partitions_are_new_ones, Producers("one"), ()),
    (replays_count_twice, ALL, ()),
    (replays_count_twice, Producers("one"), ()),
    (a_record_is_miscounted, ALL, ()),
    (a_punctuation_is_data, ALL, ()),
    (a_producer_is_left_out, ALL, ()),
    (ids_are_not_looked_at, ALL, ("a", "b", "c")),
)


@pytest.mark.parametrize(("plant", "producers", "id"), PLANTS)
def test_a_planted_mistake_is_found(
    plant: Plant, producers: Producers, id: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert hunted(runnable(producers, id=id)).witnesses


def test_the_witness_of_a_replay_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    replays_count_twice(monkeypatch)
    found = hunted(runnable(ALL))
    witness = found.witnesses[Anomaly(Label.RUN, "counts")]
    steps = witness.runs[-1].steps
    items = [item for step in steps for item, _ in step.rows]
    assert sum(map(len, witness.given.values())) == 1
    assert [i.kind for i in items if isinstance(i, Message) and i.kind.adverse] == [Kind.CRASH]


def test_what_came_to_a_gate_is_kept_with_the_witness(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = runnable(ALL)
    analysis = analyze(of.dataflow)
    networks = {False: of.network(analysis, None), True: of.network(analysis, plan(analysis))}
    with monkeypatch.context() as planted:
        replays_count_twice(planted)
        witness = hunted(of).witnesses[Anomaly(Label.RUN, "counts")]
        repro.save(witness, tmp_path / "w.json")
        again = repro.load(tmp_path / "w.json", networks)
    assert [run.end for run in again.runs] == [run.end for run in witness.runs]
    right, mended = repro.load(tmp_path / "w.json", networks).runs
    assert not list(between(right.end, mended.end))


def test_a_plan_that_cannot_be_compiled_is_refused() -> None:
    verbs = {"C": counted("a")}
    streams = (
        Stream("in", None, Endpoint("C", "p"), schema=SCHEMA),
        Stream("again", Endpoint("C", "x"), Endpoint("C", "p"), schema=SCHEMA),
    )
    parts = {name: Component(name, each.paths) for name, each in verbs.items()}
    of = Runnable(Dataflow("cycle", parts, {s.name: s for s in streams}), verbs)
    analysis = analyze(of.dataflow)
    with pytest.raises(Refused, match=r"the plan cannot be compiled: .*BLZ531"):
        of.network(analysis, plan(analysis))
