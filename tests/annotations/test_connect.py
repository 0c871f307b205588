"""Streams by equal names, for files without `streams`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.diagnostics import BadInput
from annotations.file import connect, loads


def streams(*components: str) -> dict[str, str]:
    """Streams of components written as `in->out in->out`, named A, B, C, ..."""
    text = ""
    for name, several in zip("ABCDEFGH", components, strict=False):
        pairs = [path.split("->") for path in several.split()]
        paths = [f"{{from: {source}, to: {target}, label: CR}}" for source, target in pairs]
        text += f"{name}: {{annotation: [{', '.join(paths)}]}}\n"
    dataflow, _ = loads(text)
    return {name: f"{s.producer}->{s.consumer}" for name, s in dataflow.streams.items()}


def test_a_chain() -> None:
    assert streams("a->b", "b->c") == {"a": "None->A.a", "b": "A.b->B.b", "c": "B.c->None"}


def test_one_output_feeds_every_input_of_its_name() -> None:
    assert streams("a->b", "b->c", "b->d") == {
        "a": "None->A.a",
        "b-A-to-B": "A.b->B.b",
        "b-A-to-C": "A.b->C.b",
        "c": "B.c->None",
        "d": "C.d->None",
    }


def test_every_output_of_a_name_feeds_an_input() -> None:
    assert streams("a->c", "b->c", "c->d") == {
        "a": "None->A.a",
        "b": "None->B.b",
        "c-A-to-C": "A.c->C.c",
        "c-B-to-C": "B.c->C.c",
        "d": "C.d->None",
    }


def test_inputs_of_equal_name_that_nobody_feeds_are_sources_of_their_own() -> None:
    assert streams("a->b", "a->c") == {
        "a-to-A": "None->A.a",
        "a-to-B": "None->B.a",
        "b": "A.b->None",
        "c": "B.c->None",
    }


def test_a_component_that_passes_a_name_through_is_no_loop() -> None:
    assert streams("a->a") == {"a-to-A": "None->A.a", "a-from-A": "A.a->None"}


def test_a_name_passed_through_and_taken_by_another_is_a_source_and_a_stream() -> None:
    """`request` of the ad network: from outside to Cache, and from Cache to Report."""
    assert streams("q->q", "q->r") == {
        "q-to-A": "None->A.q",
        "q-A-to-B": "A.q->B.q",
        "r": "B.r->None",
    }


def test_a_name_that_another_feeds_loops_back_and_is_a_result() -> None:
    """`response` of the ad network: from Report to Cache, Cache to itself, and to outside."""
    assert streams("c->r", "r->r") == {
        "c": "None->A.c",
        "r-A-to-B": "A.r->B.r",
        "r-B-to-B": "B.r->B.r",
        "r-from-B": "B.r->None",
    }


def test_a_derived_name_gives_way_to_an_interface_and_to_a_stream() -> None:
    found = streams("a-to-A->b", "a->c", "a->a-to-B")
    assert found["a-to-A"] == "None->A.a-to-A"
    assert found["a-to-B"] == "C.a-to-B->None"
    assert found["a-to-B-2"] == "None->B.a"


def test_a_name_may_not_connect_everything_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "STREAMS_MAX", 8)
    with pytest.raises(BadInput) as caught:
        streams("a->x", "b->x", "c->x", "x->d", "x->e", "x->f")
    (found,) = caught.value.diagnostics
    assert found.code.id == "BLZ047"
    assert found.message == "`x` connects 3 outputs with 3 inputs"
    assert str(found.position) == "<string>:1:18"


NAMES = st.sampled_from("abc")
PATHS = st.lists(st.builds("{}->{}".format, NAMES, NAMES), min_size=1, max_size=3, unique=True)


@given(st.lists(PATHS.map(" ".join), min_size=1, max_size=5))
def test_every_interface_has_a_stream_and_only_equal_names_are_connected(
    components: list[str],
) -> None:
    found = streams(*components)
    ends = [stream.split("->") for stream in found.values()]
    for name, several in zip("ABCDE", components, strict=False):
        for path in several.split():
            source, target = path.split("->")
            assert any(consumer == f"{name}.{source}" for _, consumer in ends)
            assert any(producer == f"{name}.{target}" for producer, _ in ends)
    for producer, consumer in ends:
        if "None" not in (producer, consumer):
            assert producer.split(".")[1] == consumer.split(".")[1]
    assert len(set(map(tuple, ends))) == len(ends)
