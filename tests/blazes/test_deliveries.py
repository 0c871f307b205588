"""How often records come: the analyser against the plain reference; the plan against repeats."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from reference import handed_on
from reference_delivery import DeliveryReference
from strategies import many_dataflows

from annotations.dataflow import Dataflow, External, Punctuation
from annotations.vocabulary import Delivery, Label, Repeats, Rows
from blazes.analysis import analyze, explore
from blazes.coordination import plan
from blazes.core.deliveries import Repairs
from blazes.core.limits import limits
from blazes.repairs import Means


def repeating(dataflow: Dataflow, rng: random.Random) -> Dataflow:
    """The dataflow with sources that may repeat, paths that say what they do, and sinks."""

    def stream(each: Any) -> Any:
        if each.producer is None:
            punctuation, lateness = None, None
            if each.seals and rng.random() < 0.3:
                punctuation = Punctuation("end", "n", digest="d" if rng.random() < 0.5 else None)
            elif each.seals and rng.random() < 0.3:
                lateness = "10 minutes"
            source = rng.choice([None, External("kafka"), External("json")])
            says = rng.choice([None, None, "once", "may-repeat"])
            id = rng.choice([(), ("a",), ("a", "b")])
            each = replace(each, punctuation=punctuation, lateness=lateness)
            return replace(each, delivery=says, source=source, id=id)
        if each.consumer is not None:
            return replace(each, delivery="may-repeat") if rng.random() < 0.1 else each
        sinks = [None, External("json"), External("jdbc"), External("kafka", delivery="once")]
        sinks.append(External("jdbc", key=rng.choice([("a",), ("a", "b"), ("c",)])))
        return replace(each, sink=rng.choice(sinks), delivery=rng.choice([None, "once"]))

    def component(each: Any) -> Any:
        choices = [None, None, *Repeats]
        paths = tuple(
            replace(path, repeats=rng.choice(choices), rows=rng.choice([*Rows, Rows.ONE]))
            for path in each.paths
        )
        return replace(each, paths=paths)

    return replace(
        dataflow,
        components={name: component(each) for name, each in dataflow.components.items()},
        streams={name: stream(each) for name, each in dataflow.streams.items()},
    )


def many(count: int, seed: int, **options: Any) -> Iterator[Dataflow]:
    rng = random.Random(seed)
    return (repeating(each, rng) for each in many_dataflows(count, seed=seed, **options))


def assert_equal_to_reference(dataflow: Dataflow) -> Counter[str]:
    found = analyze(dataflow)
    assert found.propagation is not None
    chosen = handed_on(found.propagation)
    expected = DeliveryReference(dataflow, "blazes", handed_on=chosen)
    assert found.labels == expected.labels
    told = {name: (str(each.label), each.id) for name, each in found.deliveries.items()}
    plain = {name: (each.label, each.id) for name, each in expected.came.items()}
    if told:
        assert told == plain
    else:
        assert {label for label, _ in plain.values()} == {"Once"}
    fired = Counter[str]()
    for derivation in found.derivations:
        for step in derivation.steps:
            if step.rule.startswith("D"):
                number = dataflow.components[derivation.component].paths.index(step.path)
                assert expected.rules_of_delivery[derivation.component, number] == step.rule
                fired[step.rule] += 1
    return fired


def test_the_analyser_agrees_with_the_reference() -> None:
    fired = Counter[str]()
    for dataflow in many(400, seed=8):
        fired += assert_equal_to_reference(dataflow)
    assert fired.keys() == {f"D{n}" for n in range(1, 10)}


@pytest.mark.slow
def test_the_analyser_agrees_with_the_reference_on_thousands() -> None:
    for dataflow in many(4000, seed=8):
        assert_equal_to_reference(dataflow)


def test_the_papers_rules_ignore_delivery() -> None:
    for dataflow, plain in zip(many(100, seed=9), many_dataflows(100, seed=9), strict=True):
        found, before = analyze(dataflow, rules="icde14"), analyze(plain, rules="icde14")
        assert found.labels == before.labels
        assert not found.deliveries
        assert not plan(found).repairs.items


def corrupt(found: Any) -> set[str]:
    return {name for name, each in found.deliveries.items() if each.label is Delivery.CORRUPT}


def test_nothing_is_wrong_under_the_plan_but_what_it_says_is_not_repaired() -> None:
    repaired = 0
    for dataflow in many(400, seed=10):
        decided = plan(analyze(dataflow))
        if decided.repairs.unrepaired:
            continue
        assert not corrupt(decided)
        for name, stream in dataflow.streams.items():
            asked = stream.consumer is None and stream.producer and stream.delivery == "once"
            if asked and decided.deliveries:
                assert decided.deliveries[name].label is Delivery.ONCE
        repaired += bool(decided.repairs.items)
    assert repaired > 40


def test_no_smaller_set_of_deduplications_would_do() -> None:
    """Every smaller set of streams with ids leaves something wrong."""
    looked = 0
    for dataflow in many(300, seed=11, components_max=3, paths_max=2):
        decided = plan(analyze(dataflow))
        chosen = decided.repairs.repairs.deduplicated
        if not 0 < len(chosen) <= 2 or decided.repairs.unrepaired:
            continue
        before = explore(dataflow)
        assert before.deliveries is not None
        rules = before.interpreter.rules
        tolerated = limits(before.graph, before.replicated, rules, target=Label.ASYNC)
        with_id = [name for name, each in before.deliveries.by_name().items() if each.id]
        for smaller in combinations(with_id, len(chosen) - 1):
            repairs = replace(decided.repairs.repairs, deduplicated=frozenset(smaller))
            after = before.ordering(tolerated, dynamic=False, repairs=repairs)
            assert after.deliveries is not None
            delivered = after.deliveries.streams
            wrong = any(each.base is Delivery.CORRUPT for each in delivered.values())
            missed = any(
                stream.declared.delivery == "once" and delivered[stream].base > Delivery.ONCE
                for stream in after.deliveries.before_sink
            )
            assert wrong or missed, smaller
        looked += 1
    assert looked > 20


def test_a_dedup_lies_as_far_down_as_it_can() -> None:
    """Of two streams in a row the second, whose filter only loses records."""
    decided = plan(analyze(_chain()))
    (item,) = decided.repairs.items
    assert (item.means, item.stream) == (Means.DEDUP, "kept")
    assert Repairs(deduplicated=decided.repairs.repairs.deduplicated) == decided.repairs.repairs


def _chain() -> Dataflow:
    from annotations.file import loads

    dataflow, _ = loads(
        """
components:
  Keep: {annotation: {from: click, to: kept, label: CR, rows: one}}
  Count: {annotation: {from: kept, to: counts, label: "OW[ad]", repeats: corrupt}}
streams:
  clicks: {to: Keep.click, delivery: may-repeat, id: [click]}
  kept: {from: Keep.kept, to: Count.kept}
  counts: {from: Count.counts}
"""
    )
    return dataflow
