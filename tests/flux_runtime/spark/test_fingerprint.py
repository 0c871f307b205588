"""What a job may change and still go on from its state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.fingerprint import code, differences, fingerprint


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s FROM item GROUP BY k", item=item)


def largest(item: DataFrame) -> DataFrame:
    return sql("SELECT k, max(v) AS s FROM item GROUP BY k", item=item)


def described() -> Callable[[DataFrame], DataFrame]:
    def total(item: DataFrame) -> DataFrame:
        """The sum for each key."""
        # of all its records
        return sql(
            "SELECT k, sum(v) AS s FROM item GROUP BY k",
            item=item,
        )

    return total


def job_with(fn: Any = total, **changes: Any) -> Job:
    job = Job(root=Path("/data"), results=Path("/results"))
    items = job.source(
        "items",
        format="json",
        path=changes.get("path", "items"),
        options=changes.get("options"),
        schema=changes.get("schema", "k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT"),
        producer="p",
        punctuation=Punctuation(when=changes.get("when", "sealed"), count="n"),
        id=changes.get("id", ()),
    )
    out = job.seal(
        changes.get("name", "Total"),
        fn,
        waits={"item": [items]},
        key=changes.get("key", ("k",)),
        producers={"items": Producers.all(["a"])},
        seal_timeout_s=changes.get("seal_timeout_s", 600.0),
        late=changes.get("late", "dead-letter"),
        remember_s=changes.get("remember_s"),
    )
    job.sink("out", [out], format=changes.get("sink", "parquet"))
    return job


def changed(job: Job) -> list[str]:
    before = json.loads(json.dumps(fingerprint(job_with())))
    return list(differences(before, json.loads(json.dumps(fingerprint(job)))))


@pytest.mark.parametrize(
    "change",
    [
        {"path": "elsewhere"},
        {"options": {"maxFilesPerTrigger": "3"}},
        {"seal_timeout_s": 5.0},
        {"late": "fail"},
        {"remember_s": 3600.0},
        {"sink": "json"},
        {"fn": described()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_job_goes_on_after_a_change_of(change: dict[str, Any]) -> None:
    assert changed(job_with(**change)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fn": largest}, ["unit Total: another function"]),
        ({"key": ("p",)}, ["unit Total: another key"]),
        ({"when": "not sealed"}, ["source items: another punctuation"]),
        ({"id": ("k", "v")}, ["source items: another id"]),
        (
            {"schema": "k BIGINT, v INT, p STRING, sealed BOOLEAN, n BIGINT"},
            ["source items: another schema"],
        ),
        ({"name": "Sum"}, ["unit Sum is new", "unit Total is gone"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_job_does_not_go_on_after_another(change: dict[str, Any], said: list[str]) -> None:
    assert changed(job_with(**change)) == said


def test_functions_without_a_text_of_their_own_go_by_their_code() -> None:
    one, two = (lambda item: item), (lambda item: item.limit(1))
    assert code(one) != code(two)
    assert code(len) == code(len) != code(print)
