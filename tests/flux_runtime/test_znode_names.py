"""Every partition key has one znode name, and every name one key."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_runtime.zookeeper.znode_names import (
    NAME_LENGTH_MAX,
    key_of_name,
    partition_key,
    znode_name,
)

texts = st.text() | st.text(alphabet="/%.,~#\x00\x1f\ud800\uf8ffnuley", max_size=8)
keys = st.lists(st.none() | texts, min_size=1, max_size=4).map(tuple)


@given(keys)
def test_a_name_leads_back_to_its_key(key: tuple[str | None, ...]) -> None:
    name = znode_name(key)
    assert 0 < len(name) <= NAME_LENGTH_MAX
    assert key_of_name(name) in (key, None)
    if len(name) < 70:
        assert key_of_name(name) == key


@given(keys)
def test_a_name_is_one_that_zookeeper_takes(key: tuple[str | None, ...]) -> None:
    name = znode_name(key)
    assert name.isascii()
    assert name.isprintable()
    assert "/" not in name
    assert name not in (".", "..")


@given(keys, keys)
def test_different_keys_have_different_names(
    one: tuple[str | None, ...], other: tuple[str | None, ...]
) -> None:
    assert (znode_name(one) == znode_name(other)) == (one == other)


def test_long_keys_are_hashed_and_still_different() -> None:
    one, other = znode_name(("x" * 5000,)), znode_name(("x" * 5001,))
    assert one != other
    assert one.startswith("%sha256-")
    assert key_of_name(one) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("plain", "plain"),
        (17, "17"),
        (-3, "-3"),
        ("a/b", "a%2Fb"),
        ("", "%empty"),
        (None, "%null"),
        ("%null", "%25null"),
        ("..", "%2E%2E"),
        ("Zoë, 日", "Zo%C3%AB%2C%20%E6%97%A5"),
        (["eu", 7], "eu,7"),
        ([None, ""], "%null,%empty"),
    ],
)
def test_names_as_they_look_in_zookeeper(value: object, name: str) -> None:
    assert znode_name(partition_key(value)) == name  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a/b", "%zz", "", "a,,b", "%nul"])
def test_what_is_no_name_is_refused(name: str) -> None:
    if name == "a/b":  # decodes, but no key has this name
        assert znode_name(key_of_name(name) or ()) != name
        return
    with pytest.raises(ValueError, match="not the name"):
        key_of_name(name)


def test_values_have_the_text_that_spark_gives_them() -> None:
    values = [True, Decimal("1.50"), date(2024, 2, 3), datetime(2024, 2, 3, 4, 5, 6, 700_000)]
    assert partition_key(values) == ("true", "1.50", "2024-02-03", "2024-02-03 04:05:06.7")
    assert partition_key(datetime(2024, 2, 3, 4, 5)) == ("2024-02-03 04:05:00",)
    assert partition_key([time(4, 5), time(4, 5, 6, 70)]) == ("04:05:00", "04:05:06.00007")
    assert partition_key([b"\x00\xfe", b""]) == ("00FE", "")


def test_a_moment_is_named_by_its_time_in_utc() -> None:
    summer = timezone(timedelta(hours=2))
    assert partition_key(datetime(2024, 7, 1, 1, 30, tzinfo=summer)) == ("2024-06-30 23:30:00",)


@pytest.mark.parametrize(
    "value", [1.5, timedelta(days=1), time(1, tzinfo=timezone(timedelta(hours=2))), {"a": 1}]
)
def test_values_without_one_text_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be part of a partition key"):
        partition_key(value)  # type: ignore[arg-type]
