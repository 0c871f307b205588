"""Order, cycles, size and errors of the graph that the analysis walks."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace

import pytest

from annotations.dataflow import Component, Dataflow, Endpoint, Path, Stream
from annotations.vocabulary import ASYNC, Annotation, AnnotationKind, Gate, Label, StreamLabel
from blazes.analysis import Analysis, analyze
from blazes.coordination import Strategy, plan

CR = Annotation(AnnotationKind.CR)
CW = Annotation(AnnotationKind.CW)
OW = Annotation(AnnotationKind.OW, Gate(frozenset({"id"})))


def dataflow(components: list[Component], *edges: str | Stream) -> Dataflow:
    """Edges are streams, or `A.out B.in`, where `-` is outside."""
    streams: list[Stream] = []
    for edge in edges:
        if isinstance(edge, Stream):
            streams.append(edge)
            continue
        source, target = (end(each) for each in edge.split())
        streams.append(Stream(f"s{len(streams)}", source, target))
    return Dataflow(
        "test", {each.name: each for each in components}, {each.name: each for each in streams}
    )


def end(text: str) -> Endpoint | None:
    return None if text == "-" else Endpoint(*text.split("."))


def test_a_source_may_be_replicated_and_so_is_what_replicas_put_out() -> None:
    parts = [Component("A", (Path("i", "o", CR),), rep=True), Component("B", (Path("i", "o", CR),))]
    source = Stream("source", None, end("A.i"), rep=True)
    other = Stream("other", None, end("B.i"))
    analysis = analyze(dataflow(parts, source, other, "A.o -", "B.o -"))
    assert analysis.rep == {"source": True, "other": False, "s2": True, "s3": False}


def chain(count: int, annotation: Annotation = OW) -> Dataflow:
    parts = [Component(f"C{n}", (Path("i", "o", annotation),)) for n in range(count)]
    edges = [f"C{n}.o C{n + 1}.i" for n in range(count - 1)]
    return dataflow(parts, "- C0.i", *edges, f"C{count - 1}.o -")


def backwards(forwards: Dataflow) -> Dataflow:
    return Dataflow(
        "test",
        dict(reversed(forwards.components.items())),
        dict(reversed(forwards.streams.items())),
    )


def severities(found: Analysis) -> dict[str, Label]:
    return {name: label.label for name, label in found.labels.items()}


@pytest.mark.parametrize("turn", [lambda each: each, backwards])
def test_a_chain_longer_than_the_stack_is_no_matter(turn: object) -> None:
    count = 3 * sys.getrecursionlimit()
    found = analyze(turn(chain(count)))  # type: ignore[operator]
    assert [each.component for each in found.derivations] == [f"C{n}" for n in range(count)]
    repaired = plan(found)
    assert len(repaired.entries) == count
    assert repaired.verdict is Label.ASYNC


@pytest.mark.parametrize("rules", ["blazes", "icde14"])
def test_a_ring_longer_than_the_stack_is_no_matter(rules: str) -> None:
    count = 3 * sys.getrecursionlimit()
    line = chain(count, CW)
    ring = Dataflow(
        "ring",
        line.components,
        {
            **line.streams,
            "back": Stream("back", Endpoint(f"C{count - 1}", "o"), Endpoint("C0", "i")),
            "dirty": Stream("dirty", None, Endpoint("C0", "i"), label=Label.RUN),
        },
    )
    found = analyze(ring, rules=rules)
    assert len(found.cycles) == 1
    assert len(found.cycles[0]) == count
    assert found.verdict is Label.RUN


def test_a_dense_component_is_linear() -> None:
    """A thousand writers and a thousand readers of one state, with a thousand gates."""
    count = 1000
    gates = [Gate(frozenset({f"a{n}"})) for n in range(count)]
    paths = [Path(f"w{n}", "x", CW) for n in range(count)]
    paths += [
        Path("r", f"y{n}", Annotation(AnnotationKind.OR, gate)) for n, gate in enumerate(gates)
    ]
    inputs = [f"- C.w{n}" for n in range(count)]
    found = analyze(dataflow([Component("C", tuple(paths))], *inputs, "- C.r", "C.y0 -"))
    assert found.verdict is Label.RUN


def test_twenty_diamonds_have_a_million_ways_and_are_walked_once() -> None:
    parts, edges = [], ["- S0.i"]
    for n in range(20):
        parts += [Component(f"S{n}", (Path("i", "o", CR),))]
        parts += [Component(f"{side}{n}", (Path("i", "o", CW),)) for side in "LR"]
        edges += [f"S{n}.o L{n}.i", f"S{n}.o R{n}.i"]
        target = f"S{n + 1}.i" if n < 19 else "-"
        edges += [f"L{n}.o {target}", f"R{n}.o {target}"]
    found = analyze(dataflow(parts, *edges))
    assert len(found.derivations) == 60
    assert found.verdict is Label.ASYNC


def test_two_loops_through_one_component_are_one_cycle() -> None:
    parts = [
        Component("A", (Path("i", "o", CR),)),
        Component("B", (Path("i", "o", CR),)),
        Component("C", (Path("i", "o", CR),)),
    ]
    edges = ("- A.i", "A.o B.i", "B.o A.i", "A.o C.i", "C.o A.i", "C.o -")
    found = analyze(dataflow(parts, *edges))
    assert found.cycles == (("s1", "s3", "s2", "s4"),)


def test_a_component_in_two_separate_cycles() -> None:
    parts = [Component("A", (Path("i", "o", CR), Path("j", "p", CW)))]
    found = analyze(dataflow(parts, "- A.i", "A.o A.i", "- A.j", "A.p A.j", "A.p -", "A.o -"))
    assert {frozenset(each) for each in found.cycles} == {frozenset({"s1"}), frozenset({"s3"})}


def test_without_a_sink_the_verdict_is_of_all_streams() -> None:
    parts = [Component("A", (Path("i", "o", OW),)), Component("B", (Path("i", "o", CR),))]
    found = analyze(dataflow(parts, "- A.i", "A.o B.i"))
    assert found.verdict is Label.RUN
    repaired = plan(found)
    assert repaired.verdict is Label.ASYNC
    assert [each.strategy for each in repaired.entries] == [Strategy.ORDER]


def test_an_input_that_nothing_enters_is_async() -> None:
    parts = [Component("A", (Path("i", "o", CR), Path("j", "o", CW)))]
    seal = Stream("i", None, Endpoint("A", "i"), seals=(frozenset({"id"}),))
    found = analyze(dataflow(parts, seal, "A.o -"))
    assert found.labels["s1"] == ASYNC


def test_a_stream_from_outside_to_outside_is_its_own_sink() -> None:
    through = Stream("through", None, None, label=Label.INST)
    found = analyze(dataflow([], through))
    assert found.labels["through"] == StreamLabel(Label.INST)
    repaired = plan(found)
    assert [each.origin for each in repaired.inherited] == ["through"]
    assert repaired.verdict is Label.INST


def test_an_empty_dataflow() -> None:
    found = analyze(dataflow([]))
    assert found.verdict is Label.SEAL
    assert plan(found).entries == ()


def test_a_stream_to_an_interface_that_no_path_has_is_refused() -> None:
    parts = [Component("A", (Path("i", "o", CR),))]
    with pytest.raises(ValueError, match=r"stream s0: no path has A\.x"):
        analyze(dataflow(parts, "- A.x"))


def test_another_rule_set_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule set 'icde15'; there are blazes, icde14"):
        analyze(chain(1), rules="icde15")


def test_no_plan_promises_a_seal() -> None:
    with pytest.raises(ValueError, match="the target is one of Async, Run, Inst, Diverge"):
        plan(analyze(chain(1)), target=Label.SEAL)


def test_the_collector_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    plan(analyze(chain(3)))
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no path"):
        analyze(dataflow([Component("A", (Path("i", "o", CR),))], "- A.x"))
    assert gc.isenabled()
    gc.disable()
    try:
        analyze(chain(3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_others_froze_stays_frozen_and_nothing_else_is() -> None:
    plan(analyze(chain(3)))
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        plan(analyze(chain(3)))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_replication_goes_round_a_cycle_and_stops_where_it_is_told_to() -> None:
    parts = [
        Component("A", (Path("i", "o", CR),)),
        Component("B", (Path("i", "o", CR),), rep=True),
        Component("C", (Path("i", "o", CR),), rep=False),
        Component("D", (Path("i", "o", CR),)),
    ]
    found = analyze(dataflow(parts, "- A.i", "A.o B.i", "B.o A.i", "A.o C.i", "C.o D.i", "D.o -"))
    assert found.replicated == {"A": True, "B": True, "C": False, "D": False}
    assert found.rep == {f"s{n}": n in (1, 2, 3) for n in range(6)}


def test_a_replicated_source_replicates_what_it_enters() -> None:
    parts = [Component("A", (Path("i", "o", OW),))]
    source = Stream("in", None, Endpoint("A", "i"), rep=True)
    found = analyze(dataflow(parts, source, "A.o -"))
    assert found.verdict is Label.DIVERGE


def test_severities_along_a_chain_only_rise() -> None:
    found = severities(analyze(chain(5)))
    assert list(found.values()) == sorted(found.values())


def test_an_analysis_without_its_graph_can_be_planned() -> None:
    found = analyze(chain(4))
    assert plan(replace(found, propagation=None)) == plan(found)
