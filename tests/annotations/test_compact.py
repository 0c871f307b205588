"""The compact language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.file.compact import CompactError, parse_annotation, parse_dependency, parse_seal
from annotations.vocabulary import STAR, Annotation, AnnotationKind, FunctionalDependency, Gate

ATTRIBUTES = st.frozensets(
    st.sampled_from(["id", "word", "CR", "Seal", "a-b", "x.y", "größe", "_1"]), min_size=1
)
GATED = st.sampled_from([AnnotationKind.OR, AnnotationKind.OW])
ANNOTATIONS = st.one_of(
    st.sampled_from([AnnotationKind.CR, AnnotationKind.CW]).map(Annotation),
    st.builds(Annotation, GATED, st.one_of(st.just(STAR), ATTRIBUTES.map(Gate))),
)


@given(ANNOTATIONS)
def test_an_annotation_is_read_as_it_is_written(annotation: Annotation) -> None:
    assert parse_annotation(str(annotation)) == annotation


@given(st.builds(FunctionalDependency, ATTRIBUTES, ATTRIBUTES, st.booleans()))
def test_a_dependency_is_read_as_it_is_written(fd: FunctionalDependency) -> None:
    assert parse_dependency(str(fd)) == fd


@given(st.lists(ATTRIBUTES, min_size=1, max_size=3))
def test_seals_are_read_as_they_are_written(keys: list[frozenset[str]]) -> None:
    assert parse_seal(" ".join(f"Seal[{', '.join(key)}]" for key in keys)) == tuple(keys)


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("OW", "OW[*]"),
        (" OR [ * ] ", "OR[*]"),
        ("OW[\n word,\n batch\n]", "OW[batch,word]"),
        ("CW", "CW"),
    ],
)
def test_white_space_and_a_missing_gate(text: str, annotation: str) -> None:
    assert str(parse_annotation(text)) == annotation


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "expected CR, CW, OR or OW, found the end"),
        ("cr", 0, "expected CR, CW, OR or OW, found `cr`; did you mean CR?"),
        ("Seal[a]", 0, "expected CR, CW, OR or OW, found `Seal`"),
        ("CR[id]", 2, "CR is confluent and has no gate"),
        ("OW word", 3, "expected `[` or the end, found `word`"),
        ("OW[]", 3, "expected an attribute or `*`, found `]`"),
        ("OW[*, id]", 4, "expected `]`, found `,`"),
        ("OW[id word]", 6, "expected `,` or `]`, found `word`"),
        ("OW[id, id]", 7, "`id` is there twice"),
        ("OW[id", 5, "expected `,` or `]`, found the end"),
        ("OW[id]]", 6, "expected the end, found `]`"),
        ("OW[a$b]", 4, "expected `,` or `]`, found `$`"),
    ],
)
def test_what_is_no_annotation(text: str, offset: int, message: str) -> None:
    with pytest.raises(CompactError) as caught:
        parse_annotation(text)
    assert (caught.value.offset, caught.value.message) == (offset, message)
    assert f"column {offset + 1} of" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("id", 2, "expected `->` or `<->` or `,`, found the end"),
        ("id => ad", 3, "expected `->` or `<->` or `,`, found `=`"),
        ("-> ad", 0, "expected an attribute, found `->`"),
        ("id ->", 5, "expected an attribute, found the end"),
        ("a -> b -> c", 7, "expected `,` or the end, found `->`"),
        ("a, a -> b", 3, "`a` is there twice"),
    ],
)
def test_what_is_no_dependency(text: str, offset: int, message: str) -> None:
    with pytest.raises(CompactError) as caught:
        parse_dependency(text)
    assert (caught.value.offset, caught.value.message) == (offset, message)


@pytest.mark.parametrize("text", ["", "Seal", "Seal[]", "Seal[a], Seal[b]", "seal[a]", "[a]"])
def test_what_is_no_seal(text: str) -> None:
    with pytest.raises(CompactError):
        parse_seal(text)


@given(st.text(alphabet="OWCRSeal[]*,->< ab\n\0é$"))
def test_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    for parse in (parse_annotation, parse_seal, parse_dependency):
        offset = 0
        try:
            parse(text)
        except CompactError as error:
            offset = error.offset
        assert 0 <= offset <= len(text)
