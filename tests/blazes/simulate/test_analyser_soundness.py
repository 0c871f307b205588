"""A stream that the analyser calls deterministic never differs between runs or replicas."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from annotations.dataflow import Component, Dataflow, Endpoint, Stream
from annotations.file import reader
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.simulate.drive import Endless, Input, replayed
from blazes.simulate.world import Step
from tests.executable import SCHEMA, Runnable, both, counted, report

pytestmark = pytest.mark.slow


def benchmark() -> ModuleType:
    file = Path(__file__).parents[3] / "benchmarks/soundness.py"
    spec = importlib.util.spec_from_file_location("soundness", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("dataflows", "seed"), [(30, 1)])
def test_no_label_is_exceeded(dataflows: int, seed: int) -> None:
    found = benchmark().sweep(dataflows, inputs=4, seed=seed)
    assert found.dataflows == dataflows
    assert not found.mistakes
    assert sum(found.differed.values()) > 0


def test_annotations_that_the_code_does_not_show_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found, wrong = benchmark().unsaid(range(100), 7)
    assert not wrong, wrong[0]
    assert found["better, told"] > 20
    monkeypatch.setattr(reader, "completed", lambda dataflow, *_, **__: dataflow)
    _, wrong = benchmark().unsaid(range(100), 7)
    assert wrong


def test_waiting_requests_are_not_state_that_diverges() -> None:
    """Dataflows in which replicas are asked differently, and write the same."""
    found = benchmark().sweep([378, 682, 1498], inputs=3, seed=0)
    assert not found.mistakes
    assert found.witnessed["nothing waits", Label.INST] > 0


def test_equal_requests_are_answered_as_often_in_one_batch_as_in_several() -> None:
    """Who counts the answers must not see which requests met in a micro-batch."""
    verb = report("b", poor=False)
    sealed = (frozenset("b"),)
    given: Input = {"clicks": {(2, 1, 1): 1}, "asks": {(1, 1, 1): 2}}
    streams = (
        Stream("clicks", None, Endpoint("C", "p"), seals=sealed, schema=SCHEMA),
        Stream("asks", None, Endpoint("C", "q"), schema=SCHEMA),
        Stream("answers", Endpoint("C", "x"), Endpoint("D", "p"), schema=SCHEMA),
        Stream("counts", Endpoint("D", "x"), None, schema=SCHEMA),
    )
    verbs = {"C": verb, "D": counted("b")}
    parts = {name: Component(name, each.paths) for name, each in verbs.items()}
    runnable = Runnable(Dataflow("answers", parts, {s.name: s for s in streams}), verbs)
    analysis = analyze(runnable.dataflow)
    network = runnable.network(analysis, plan(analysis))
    apart = [
        Step("asks", 0, (((1, 1, 1), 1),)),
        Step("clicks", 0, (((2, 1, 1), 1),)),
        Step("asks", 0, (((1, 1, 1), 1),)),
    ]
    one, other = replayed(network, given, (), None), replayed(network, given, apart, None)
    assert one.end.streams["counts"] == (frozenset({(0, 1, 1), (0, 1, 2)}),)
    assert other.end.streams["counts"] == one.end.streams["counts"]


def test_a_cycle_that_doubles_its_records_is_given_up_soon() -> None:
    verbs = {"C": both("a")}
    streams = (
        Stream("in", None, Endpoint("C", "p"), schema=SCHEMA),
        Stream("again", Endpoint("C", "x"), Endpoint("C", "p"), schema=SCHEMA),
        Stream("also", Endpoint("C", "x"), Endpoint("C", "q"), schema=SCHEMA),
    )
    parts = {name: Component(name, each.paths) for name, each in verbs.items()}
    runnable = Runnable(Dataflow("cycle", parts, {s.name: s for s in streams}), verbs)
    network = runnable.network(analyze(runnable.dataflow), None)
    with pytest.raises(Endless):
        replayed(network, {"in": {(1, 1, 1): 1}}, (), None)
