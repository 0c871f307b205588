"""Whatever the text: a dataflow, or `BadInput` with a reason; nothing else, and never slowly."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Diagnostic, Severity
from annotations.yaml_file import loads
from tests.annotations import fuzzing

CHECKED = settings(
    max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _read(text: str) -> tuple[Dataflow | None, tuple[Diagnostic, ...]]:
    try:
        return loads(text, variants={"Report": "POOR"} if "POOR" in text else {})
    except BadInput as bad:
        return None, bad.diagnostics


def _check(text: str) -> None:
    dataflow, found = _read(text)
    lines = text.count("\n") + text.count("\r") + text.count("\u2028") + text.count("\x85") + 1
    for diagnostic in found:
        assert str(diagnostic)
        if diagnostic.position:
            assert 1 <= diagnostic.position.line <= lines + 1
    assert len(set(found)) == len(found)
    refused = any(diagnostic.code.severity is Severity.ERROR for diagnostic in found)
    assert refused == (dataflow is None)
    if dataflow is not None:
        for stream in dataflow.streams.values():
            for end in filter(None, (stream.producer, stream.consumer)):
                assert end.component in dataflow.components


@pytest.fixture(params=["libyaml", "pure Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "libyaml")


@CHECKED
@given(fuzzing.NOISE)
def test_noise(text: str) -> None:
    _check(text)


@CHECKED
@given(fuzzing.texts(fuzzing.dataflows()))
def test_files_that_are_right_or_nearly(text: str) -> None:
    _check(text)


@CHECKED
@given(fuzzing.texts(fuzzing.mutated()))
def test_files_that_are_spoilt(text: str) -> None:
    _check(text)


@CHECKED
@given(fuzzing.texts(fuzzing.dataflows()), st.data())
def test_files_that_are_cut_or_patched(text: str, data: st.DataObject) -> None:
    assume(text)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 8)))
    patch = data.draw(st.one_of(st.just(""), st.sampled_from(fuzzing.WORDS), st.text(max_size=3)))
    _check(text[:start] + patch + text[stop:])


def test_most_files_that_should_be_right_are() -> None:
    accepted = []

    @settings(max_examples=200, database=None, derandomize=True)
    @given(fuzzing.texts(fuzzing.dataflows()))
    def count(text: str) -> None:
        accepted.append(_read(text)[0] is not None)

    count()
    assert sum(accepted) > len(accepted) / 2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "- " * 200_000,
        "{a: " * 100_000,
        "a: &a [" * 50_000,
        "? " * 100_000,
        "a: " * 10_000,
        "!!a " * 10_000,
        "'" + "a\n" * 100_000,
        "a:\n" + "  b: &x c\n" * 20_000,
        "&a " * 10_000,
        "a: *b\n" * 10_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_no_depth_or_length_breaks_the_reader(text: str) -> None:
    with pytest.raises(BadInput):
        loads(text)
