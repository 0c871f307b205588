"""Registrations from a JSON file: both forms, and every mistake in one report."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_runtime.zookeeper.registrations_file import BadRegistrations, load_registrations


def write(folder: Path, text: str) -> Path:
    file = folder / "producers.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_object_from_key_to_producers(tmp_path: Path) -> None:
    file = write(tmp_path, '{"17": ["a", "b"], "a/b": ["a"]}')
    assert load_registrations(file) == {("17",): frozenset("ab"), ("a/b",): frozenset("a")}


def test_a_list_for_keys_of_several_attributes(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """[{"key": {"window": 3, "campaign": "c"}, "producers": ["a"]},
            {"key": ["d", null], "producers": ["b"]}]""",
    )
    expected = {("c", "3"): frozenset("a"), ("d", None): frozenset("b")}
    assert load_registrations(file) == expected, "attributes in alphabetical order"


def test_nothing_to_register(tmp_path: Path) -> None:
    assert load_registrations(write(tmp_path, "{}")) == {}
    assert load_registrations(write(tmp_path, "[]")) == {}


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """[{"key": 1, "producers": ["a"]}, {"key": 1, "producers": ["b"]},
            {"key": 2, "producers": []}, {"key": 2.5, "producers": ["a"]},
            {"key": [1, 2], "producers": ["a"]}, {"key": {"a": 1, "a": 2}, "producers": ["a"]}]""",
    )
    with pytest.raises(BadRegistrations) as refused:
        load_registrations(file)
    for part in (
        "entry 2: [1] occurs twice",
        "entry 3: producers must be a list of names, not []",
        "entry 4: 2.5 cannot be part of a partition key",
        "entry 5: [1, 2] has another number of attributes",
        "entry 6: an attribute occurs twice",
    ):
        assert part in refused.value.message
    assert "entry 1:" not in refused.value.message
    assert str(file) in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON.*line 1 column 2"),
        ("17", "neither an object nor a list"),
        ('[{"key": 1}]', "entry 1: not an object of `key` and `producers`"),
        ("[17]", "entry 1: not an object"),
        ('{"1": "a"}', "producers must be a list"),
        ('{"1": ["a"], "1": ["b"]}', "occurs twice"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadRegistrations, match=message):
        load_registrations(write(tmp_path, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadRegistrations, match="No such file"):
        load_registrations(tmp_path / "gone.json")
