"""Whatever the text: a dataflow, or `BadInput` with a reason; nothing else, and never slowly."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Diagnostic, Severity
from annotations.file import loads
from tests.annotations import fuzzing

CHECKED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
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


@pytest.fixture(params=["libyaml", "pure Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "libyaml")


@st.composite
def patched(draw: st.DrawFn) -> str:
    """A file that is right but for a few characters."""
    text = draw(fuzzing.texts(fuzzing.dataflows()))
    start = draw(st.integers(0, len(text)))
    stop = draw(st.integers(start, min(len(text), start + 8)))
    patch = draw(st.one_of(st.just(""), st.sampled_from(fuzzing.WORDS), st.text(max_size=3)))
    return text[:start] + patch + text[stop:]


TEXTS = {
    "noise": fuzzing.NOISE,
    "right or nearly": fuzzing.texts(fuzzing.dataflows()),
    "spoilt": fuzzing.texts(fuzzing.mutated()),
    "patched": patched(),
}


@pytest.mark.parametrize("texts", TEXTS)
@CHECKED
@given(data=st.data())
def test_a_text_is_read_or_refused(texts: str, parser: None, data: st.DataObject) -> None:
    _check(data.draw(TEXTS[texts]))


@pytest.mark.slow
@pytest.mark.parametrize("texts", TEXTS)
@settings(CHECKED, max_examples=200)
@given(data=st.data())
def test_a_text_is_read_or_refused_at_length(texts: str, parser: None, data: st.DataObject) -> None:
    _check(data.draw(TEXTS[texts]))


def test_most_files_that_should_be_right_are() -> None:
    accepted = []

    @settings(max_examples=100, database=None, derandomize=True)
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
def test_no_depth_or_length_breaks_the_reader(text: str, parser: None) -> None:
    with pytest.raises(BadInput):
        loads(text)
