"""The tree of a YAML text: places, merges, aliases, limits; the same from both parsers."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from annotations.diagnostics import Findings
from annotations.positions import (
    ALIASED_MAX,
    List,
    Map,
    Node,
    Scalar,
    place_inside,
    read_tree,
    shorten,
)
from tests.annotations import fuzzing

BOTH = pytest.mark.parametrize("libyaml", [True, False], ids=["libyaml", "pure Python"])


def tree(text: str) -> Node:
    findings = Findings("f.yaml", text)
    node = read_tree(text, findings)
    assert node is not None, findings.sorted()
    return node


def plain(node: Node) -> Any:
    """The node as Python data, without its places."""
    if isinstance(node, Map):
        return {key: plain(value) for key, (_, value) in node.entries.items()}
    return [plain(item) for item in node.items] if isinstance(node, List) else node.text


def placed(node: Node) -> Any:
    """The node with all of its places."""
    place = (node.mark.line, node.mark.column)
    if isinstance(node, Map):
        return place, [(placed(key), placed(value)) for key, value in node.entries.values()]
    if isinstance(node, List):
        return place, [placed(item) for item in node.items]
    return place, node.text, node.plain


def codes(text: str) -> list[str]:
    findings = Findings("f.yaml", text)
    read_tree(text, findings)
    return [found.code.id for found in findings.sorted()]


@BOTH
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_places_are_those_an_editor_shows(
    libyaml: bool, newline: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", libyaml)
    root = tree(start + newline.join(["größe:", "  - {a: 'é', b: 𝔸, c: d}", ""]))
    assert isinstance(root, Map)
    inner = root.entries["größe"][1]
    assert isinstance(inner, List)
    item = inner.items[0]
    assert isinstance(item, Map)
    assert [(item.value_mark(k).line, item.value_mark(k).column) for k in "abc"] == [
        (1, 8),
        (1, 16),
        (1, 22),
    ]
    assert (item.key_mark("b").line, item.key_mark("b").column) == (1, 13)
    assert item.key_mark("absent") is item.mark


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(fuzzing.texts(fuzzing.mutated()))
def test_both_parsers_give_the_same_tree(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        results = []
        for libyaml in (True, False):
            patch.setattr(yaml, "__with_libyaml__", libyaml)
            node = read_tree(text, Findings("f.yaml", text))
            results.append(node and placed(node))
    if None not in results:
        assert results[0] == results[1]


@BOTH
def test_merges(libyaml: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", libyaml)
    text = """
a: &a {x: a, y: a}
b: &b {y: b, z: b}
own-wins: {<<: *a, x: own}
own-wins-before: {x: own, <<: *a}
first-wins: {<<: [*a, *b]}
chain: &chain {<<: *a, w: c}
chained: {<<: *chain}
written-out: {<<: {v: here}}
quoted: {"<<": text}
"""
    assert plain(tree(text)) == yaml.safe_load(text.replace('"<<"', "'quoted <<'")) | {
        "quoted": {"<<": "text"}
    }


def test_a_merged_key_stands_where_it_was_written() -> None:
    root = tree("a: &a\n  x: y\nb:\n  <<: *a\n")
    assert isinstance(root, Map)
    merged = root.entries["b"][1]
    assert isinstance(merged, Map)
    assert merged.value_mark("x").line == 1


def test_the_value_of_an_alias_is_the_very_node() -> None:
    root = tree("a: &a [x]\nb: *a\nc: &s word\nd: *s\n")
    assert isinstance(root, Map)
    assert root.entries["a"][1] is root.entries["b"][1]
    assert root.entries["c"][1] is root.entries["d"][1]


def test_an_anchor_can_be_given_again() -> None:
    assert plain(tree("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")) == {
        "a": "1",
        "b": "1",
        "c": "2",
        "d": "2",
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &a {b: *a}", "BLZ005"),
        ("&a [*a]", "BLZ005"),
        ("a: &a {<<: *a}", "BLZ005"),
        ("a: &a [[[{b: [*a]}]]]", "BLZ005"),
        ("a: {b: c}}", "BLZ002"),
        ("a: *b", "BLZ002"),
        ("a: 1\n---\nb: 2", "BLZ004"),
        ("a: 1\n...\n---\n", "BLZ004"),
        ("{a: 1, a: 2}", "BLZ006"),
        ("{a: 1, 'a': 2}", "BLZ006"),
        ("{? [a] : 1, ? {b: c} : 2}", "BLZ011"),
        ("a: \x07", "BLZ001"),
        ("a: \ud800", "BLZ001"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    assert set(codes(text)) == {code}


def test_aliases_may_repeat_no_more_than_the_limit() -> None:
    def bomb(doublings: int) -> str:
        levels = [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, doublings)]
        return "\n".join(["a0: &a0 x", *levels]) + "\n"

    assert codes(bomb(12)) == []
    assert codes(bomb(40)) == ["BLZ005"]
    started = time.process_time()
    codes(bomb(2000))
    assert time.process_time() - started < 1


def test_merges_count_as_repetition_too() -> None:
    base = "a: &a {" + ", ".join(f"k{i}: v" for i in range(1000)) + "}\n"
    several = "".join(f"b{i}: {{<<: *a}}\n" for i in range(ALIASED_MAX // 1000 + 10))
    assert codes(base + several) == ["BLZ005"]


@pytest.mark.parametrize(
    ("yaml_text", "offset", "column"),
    [
        ("a: OW[x, y]", 3, 6),
        ("a: 'OW[x, y]'", 3, 7),
        ('a: "OW[x, y]"', 3, 7),
        ('a: "O\\u0057[x]"', 3, 3),
        ("a: 'it''s x'", 5, 3),
    ],
)
def test_a_place_inside_of_a_string(yaml_text: str, offset: int, column: int) -> None:
    root = tree(yaml_text)
    assert isinstance(root, Map)
    node = root.entries["a"][1]
    assert isinstance(node, Scalar)
    place = place_inside(node, offset, yaml_text)
    assert (place.line, place.column) == (0, column)


def test_a_place_inside_of_a_folded_string_is_the_string() -> None:
    text = "a: >\n  OW[x,\n  y]\n"
    root = tree(text)
    assert isinstance(root, Map)
    node = root.entries["a"][1]
    assert isinstance(node, Scalar)
    assert place_inside(node, 4, text) is node.mark


def test_long_text_is_shortened_for_messages() -> None:
    assert shorten("a\n  b") == "a b"
    assert shorten("x" * 100) == "x" * 37 + "..."
