"""The verbs that keeping a state takes, at moto and at the store of the attack."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from benchmarks.seal_attack.store import ADDRESS, BUCKET, Store, serving
from benchmarks.sink_servers import object_store
from flux_runtime.commits.objects import ConflictError, Objects, StoreError

PLACE = "objects/00000000-0/probe"


@pytest.fixture(params=["moto", "attacked"])
def objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    server = object_store(BUCKET) if request.param == "moto" else serving(Store(random.Random(1)))
    with server as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Objects(ADDRESS)


def test_verbs(objects: Objects) -> None:
    assert objects.get("head") is None
    assert objects.version("head") is None
    first = objects.replace("head", b"1", None)
    with pytest.raises(ConflictError):
        objects.replace("head", b"2", None)
    second = objects.replace("head", b"2", first)
    with pytest.raises(ConflictError):
        objects.replace("head", b"3", first)
    with pytest.raises(ConflictError):
        objects.replace("other", b"3", first)
    assert objects.get("head") == (b"2", second)
    assert objects.version("head") == second
    objects.put("a/b c%20d\N{EURO SIGN}", b"")
    objects.put("a/big", b"x" * 100_000)
    assert objects.get("a/b c%20d\N{EURO SIGN}") is not None
    assert objects.get("a/big") == (b"x" * 100_000, objects.version("a/big"))
    assert sorted(objects.names("a/")) == ["a/b c%20d\N{EURO SIGN}", "a/big"]
    objects.delete(["a/big", "nothing"])
    objects.delete(["nothing"])
    objects.delete([])
    assert sorted(objects.names("")) == ["a/b c%20d\N{EURO SIGN}", "head"]
    objects.check_conditions(PLACE)
    assert sorted(objects.names("")) == ["a/b c%20d\N{EURO SIGN}", "head"]


@pytest.mark.parametrize("ignored", ["If-Match", "If-None-Match"])
def test_a_store_without_conditions_is_refused(
    ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Store(random.Random(1), ignores=(ignored,))) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreError, match=r"condition did not hold.*mounted file system"):
            Objects(ADDRESS).check_conditions(PLACE)


def test_a_store_that_refuses_the_newest_version_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(random.Random(1))
    with serving(store) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store.disturb({"conflict": 1.0})
        with pytest.raises(StoreError, match="refused to replace the newest"):
            Objects(ADDRESS).check_conditions(PLACE)


@pytest.mark.parametrize("address", ["s3://bucket", "s3a://bucket/", "s3:///folder"])
def test_an_address_without_a_folder_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="add a folder for the state"):
        Objects(address)
