"""The resume protocol under random schedules, in every order of events, and with mistakes in it."""

from __future__ import annotations

import pytest

from flux_lab.reference import reference
from flux_lab.resume.explore import CONFIGURATIONS, ExplorationError, explore
from flux_lab.resume.mutations import MUTATIONS, Mutation, changed, noticed
from flux_lab.resume.sweep import RunError, run, sweep
from flux_lab.resume.world import Expected
from flux_lab.workload import digest_dataflow, digest_input
from flux_runtime.protocol.vocabulary import Pair, Shape
from flux_runtime.resume.flow import Flow


def test_the_sequential_run_is_that_of_the_papers_protocol() -> None:
    dataflow = digest_dataflow(Shape(widths=(2, 3)), every=2)
    batches = digest_input(6, rows=4, keys=5)
    ours = Expected(Flow(dataflow=dataflow), batches)
    theirs = reference(dataflow, batches, states=True)
    output = [(number, rows) for number, rows in enumerate(ours.output) if rows is not None]
    assert output == theirs.output
    assert ours.states == theirs.states
    units = ours.units[Pair(0, 1), Pair(1, 2)][1:]
    filled = {number: unit for number, unit in enumerate(units) if unit is not None}
    assert filled == theirs.units[Pair(0, 1), Pair(1, 2)]


def test_every_fault_strikes_and_nothing_is_violated() -> None:
    totals = sweep(range(40))
    assert totals.failed == []
    faults = {"crash", "suspect", "deaf", "move", "break", "depose", "join", "switch"}
    assert set(totals.struck) == faults
    assert totals.losses > 0
    assert totals.catch_ups > 40


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(5).steps == run(5).steps != run(6).steps


@pytest.mark.parametrize("name", ["no-fault", "one-crash"])
def test_every_order_of_events(name: str) -> None:
    found = explore(CONFIGURATIONS[name])
    assert found.complete
    assert found.finals > 0
    assert bool(found.faults) == bool(CONFIGURATIONS[name].faults)


def test_the_explorer_notices_a_copy_that_stays_with_the_dead() -> None:
    (mutation,) = [m for m in MUTATIONS if m.rule == "RS-16 stays with the dead"]
    with pytest.raises(ExplorationError, match=r"stuck(.|\n)*crash"):
        explore(CONFIGURATIONS["one-crash"], tried=changed(mutation))


def test_the_text_as_it_is_fails_nowhere() -> None:
    assert all(run(seed, tried=changed(None)).seed == seed for seed in range(5))


@pytest.mark.parametrize(
    "mutation", [m for m in MUTATIONS if m.seed is not None], ids=lambda mutation: mutation.rule
)
def test_each_mistake_is_noticed(mutation: Mutation) -> None:
    """At the seed that `python -m flux_lab.resume.mutations` found."""
    assert mutation.seed is not None
    assert noticed(mutation, [mutation.seed]) is not None


def test_a_failure_tells_its_story() -> None:
    (mutation,) = [m for m in MUTATIONS if m.rule == "RS-8 no pin"]
    seed = mutation.seed
    assert seed is not None
    with pytest.raises(RunError, match=rf"seed {seed}, (.|\n)*RS-13 at site"):
        run(seed, tried=changed(mutation), stories=True)
