"""The analyser against the reference, and what must hold of every dataflow."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, handed_on
from strategies import ATTRIBUTES, dataflows, many_dataflows

from annotations.dataflow import Dataflow
from annotations.vocabulary import FunctionalDependency, Key, StreamLabel
from blazes.analysis import analyze

RULES = ("blazes", "icde14")
SOME = settings(max_examples=40, deadline=None)


def assert_equal_to_reference(dataflow: Dataflow, rules: str) -> None:
    found = analyze(dataflow, rules=rules)
    assert found.propagation is not None
    expected = Reference(dataflow, rules, handed_on=handed_on(found.propagation))
    assert found.labels == expected.labels
    assert found.replicated == expected.rep
    assert found.verdict == expected.verdict
    derived = {(each.component, each.output): each for each in found.derivations}
    assert len(derived) == len(found.derivations)
    for (_, component, output), label in expected.outputs.items():
        assert derived[component, output].label == label
    if rules == "icde14":
        return
    for (_, component, output), reconciled in expected.reconciled.items():
        assert set(derived[component, output].reconciled) == reconciled
    for (component, number), fired in expected.fired.items():
        path = dataflow.components[component].paths[number]
        steps = [each for each in derived[component, path.target].steps if each.path is path]
        assert {step.rule for step in steps} == fired


@pytest.mark.parametrize("rules", RULES)
@SOME
@given(dataflow=dataflows())
def test_the_analyser_agrees_with_the_reference(rules: str, dataflow: Dataflow) -> None:
    assert_equal_to_reference(dataflow, rules)


@pytest.mark.parametrize("rules", RULES)
def test_the_analyser_agrees_with_the_reference_on_hundreds(rules: str) -> None:
    for dataflow in many_dataflows(400, seed=14):
        assert_equal_to_reference(dataflow, rules)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
def test_the_analyser_agrees_with_the_reference_on_larger_ones(rules: str) -> None:
    for dataflow in many_dataflows(2500, seed=0, components_max=7, paths_max=5):
        assert_equal_to_reference(dataflow, rules)


def sealed(dataflow: Dataflow, name: str, key: Key) -> Dataflow:
    stream = dataflow.streams[name]
    seals = tuple(dict.fromkeys((*stream.seals, key)))
    return replace(dataflow, streams={**dataflow.streams, name: replace(stream, seals=seals)})


def no_worse(new: StreamLabel, old: StreamLabel) -> bool:
    """Not a higher severity, and no key lost."""
    return new.label < old.label or (new.label == old.label and new.keys >= old.keys)


def assert_no_worse(
    new: Mapping[str, StreamLabel], old: Mapping[str, StreamLabel], rules: str
) -> None:
    for name, label in new.items():
        assert no_worse(label, old[name]), f"{rules}: {name} was {old[name]} and is {label}"


@SOME
@given(dataflow=dataflows(), data=st.data())
def test_a_further_seal_never_raises_a_label(dataflow: Dataflow, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(dataflow.streams)))
    key = data.draw(st.frozensets(st.sampled_from(ATTRIBUTES), min_size=1))
    new = analyze(sealed(dataflow, name, key))
    assert_no_worse(new.labels, analyze(dataflow).labels, "blazes")


def replicated(dataflow: Dataflow, name: str) -> Dataflow:
    component = replace(dataflow.components[name], rep=True)
    return replace(dataflow, components={**dataflow.components, name: component})


@pytest.mark.parametrize("rules", RULES)
@SOME
@given(dataflow=dataflows(), data=st.data())
def test_replication_never_lowers_a_label(
    rules: str, dataflow: Dataflow, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(dataflow.components)))
    new = analyze(replicated(dataflow, name), rules=rules)
    assert_no_worse(analyze(dataflow, rules=rules).labels, new.labels, rules)


@SOME
@given(dataflow=dataflows(), data=st.data())
def test_a_further_dependency_never_raises_a_label(dataflow: Dataflow, data: st.DataObject) -> None:
    key = st.frozensets(st.sampled_from(ATTRIBUTES), min_size=1)
    fd = FunctionalDependency(data.draw(key), data.draw(key), injective=data.draw(st.booleans()))
    new = analyze(replace(dataflow, fds=(*dataflow.fds, fd)))
    assert_no_worse(new.labels, analyze(dataflow).labels, "blazes")


@pytest.mark.parametrize("count", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_seals_replication_and_dependencies_are_monotone(count: int) -> None:
    source = random.Random(5)
    for dataflow in many_dataflows(count, seed=15):
        old = analyze(dataflow).labels
        name = source.choice(sorted(dataflow.streams))
        key = frozenset(source.sample(ATTRIBUTES, source.randint(1, 2)))
        assert_no_worse(analyze(sealed(dataflow, name, key)).labels, old, "blazes")
        component = source.choice(sorted(dataflow.components))
        assert_no_worse(old, analyze(replicated(dataflow, component)).labels, "blazes")
        fd = FunctionalDependency(key, frozenset(source.sample(ATTRIBUTES, 1)))
        more = replace(dataflow, fds=(*dataflow.fds, fd))
        assert_no_worse(analyze(more).labels, old, "blazes")


def shuffled(dataflow: Dataflow, source: random.Random) -> Dataflow:
    """The same declarations in another order."""
    components = list(dataflow.components.values())
    streams = list(dataflow.streams.values())
    fds = list(dataflow.fds)
    for each in (components, streams, fds):
        source.shuffle(each)
    mixed = []
    for component in components:
        paths = list(component.paths)
        source.shuffle(paths)
        mixed.append(replace(component, paths=tuple(paths)))
    return replace(
        dataflow,
        components={each.name: each for each in mixed},
        streams={each.name: each for each in streams},
        fds=tuple(fds),
    )


@pytest.mark.parametrize("rules", RULES)
def test_the_order_of_declarations_does_not_matter(rules: str) -> None:
    source = random.Random(3)
    for dataflow in many_dataflows(200, seed=16):
        old, new = analyze(dataflow, rules=rules), analyze(shuffled(dataflow, source), rules=rules)
        assert old.labels == new.labels
        assert old.rep == new.rep
        assert old.verdict == new.verdict
        assert {(d.component, d.output, d.label, d.rep, d.reconciled) for d in old.derivations} == {
            (d.component, d.output, d.label, d.rep, d.reconciled) for d in new.derivations
        }
        assert {frozenset(each) for each in old.cycles} == {frozenset(each) for each in new.cycles}


@pytest.mark.parametrize("rules", RULES)
def test_the_same_dataflow_gives_the_same_analysis(rules: str) -> None:
    for dataflow in many_dataflows(100, seed=17):
        assert analyze(dataflow, rules=rules) == analyze(dataflow, rules=rules)


@pytest.mark.parametrize("rules", RULES)
def test_a_derivation_stands_after_those_it_depends_on(rules: str) -> None:
    for dataflow in many_dataflows(200, seed=18):
        found = analyze(dataflow, rules=rules)
        circular = {name for cycle in found.cycles for name in cycle}
        seen: set[tuple[str, str]] = set()
        for derivation in found.derivations:
            seen.add((derivation.component, derivation.output))
            inputs = {step.path.source for step in derivation.steps}
            for stream in dataflow.streams.values():
                consumer, producer = stream.consumer, stream.producer
                if not consumer or not producer or stream.name in circular:
                    continue
                if consumer.component == derivation.component and consumer.interface in inputs:
                    assert (producer.component, producer.interface) in seen
