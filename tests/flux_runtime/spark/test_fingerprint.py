"""What a job may change and still go on from its state."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.changes import Change, changes
from flux_runtime.spark.fingerprint import fingerprint
from flux_runtime.spark.function_text import code, is_narrow, may_read


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


def changed(job: Job, tmp_path: Path) -> list[Change]:
    before = json.loads(json.dumps(fingerprint(job_with())))
    return changes(before, json.loads(json.dumps(fingerprint(job))), job, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"path": "elsewhere"},
        {"options": {"maxFilesPerTrigger": "3"}},
        {"seal_timeout_s": 5.0},
        {"late": "fail"},
        {"remember_s": 3600.0},
        {"sink": "kafka"},
        {"fn": described()},
        {"fn": largest},
        {"schema": "k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT, more STRING"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_job_goes_on_after_a_change_of(change: dict[str, Any], tmp_path: Path) -> None:
    assert all(each.goes_on for each in changed(job_with(**change), tmp_path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": ("p",)}, ["unit Total: another key"]),
        ({"when": "not sealed"}, ["source items: another punctuation"]),
        ({"id": ("k", "v")}, ["source items: another id"]),
        ({"sink": "json"}, ["sink out: another format"]),
        (
            {"schema": "k BIGINT, v INT, p STRING, sealed BOOLEAN, n BIGINT"},
            ["source items: another schema (k)"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_job_does_not_go_on_after_another(
    change: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    refused = [each for each in changed(job_with(**change), tmp_path) if not each.goes_on]
    assert [f"{each.name}: {each.what}" for each in refused] == said
    assert all(each.because and each.remedy for each in refused)


def test_a_unit_whose_name_was_there_before_is_refused(tmp_path: Path) -> None:
    renamed = job_with(name="Sum")
    assert all(each.goes_on for each in changed(renamed, tmp_path))
    (tmp_path / "units" / "Sum").mkdir(parents=True)
    (refused,) = (each for each in changed(renamed, tmp_path) if not each.goes_on)
    assert (refused.name, refused.what) == ("unit Sum", "it is new")


def test_functions_without_a_text_of_their_own_go_by_their_code() -> None:
    one, two = (lambda item: item), (lambda item: item.limit(1))
    assert code(one) != code(two)
    assert code(len) == code(len) != code(print)


def named(item: DataFrame) -> DataFrame:
    return sql("SELECT k, v * 2 AS v, count(*) OVER () AS n FROM item", item=item)


def starred(item: DataFrame) -> DataFrame:
    return sql("SELECT *, v * 2 AS w FROM item", item=item)


def of_python(item: DataFrame) -> DataFrame:
    return item.groupBy("k").count()


def without(item: DataFrame) -> DataFrame:
    return item.drop("v")


@pytest.mark.parametrize(
    ("functions", "narrow", "reads"),
    [
        ([named], True, False),
        ([starred], False, True),
        ([of_python], False, True),
        ([without], False, True),
        ([without, named], True, False),
        ([starred, named], True, False),
        ([named, starred], True, False),
        ([of_python, named], True, True),
    ],
)
def test_of_a_query_it_is_known_which_columns_it_does_not_read(
    functions: list[Any], narrow: bool, reads: bool
) -> None:
    assert is_narrow(functions) == narrow
    assert may_read(functions, frozenset({"other"})) == ({"other"} if reads else set())
    assert may_read(functions, frozenset({"k"})) == {"k"}


MODULES = """
import importlib, json, os, sys
from flux_runtime.spark.function_text import modules
for prices, folder in json.load(sys.stdin):
    if not os.fork():
        os.chdir(folder)
        job, p = map(importlib.import_module, ("job", prices))
        print(json.dumps([*map(modules, ([job.rate], [p.rate], [p.Rate]))]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_a_module_beside_the_job_that_changes_is_another_text(tmp_path: Path) -> None:
    asked = []
    for prices in ("prices", "shop.prices"):
        beside = "from . import factors" if "." in prices else "import factors"
        for imports in ("{}\n\n\ndef rate(item):\n", "def rate(item):\n    {}\n\n"):
            for factor in (2, 3, 3):
                top = tmp_path / str(len(asked))
                folder = top.joinpath(*prices.split(".")[:-1])
                folder.mkdir(parents=True)
                job = f"{imports.format(f'import {prices}')}    return {prices}.rate(item)\n"
                (top / "job.py").write_text(job)
                (folder / "factors.py").write_text(f"FACTOR = {factor}  # {len(asked)}\n")
                (folder / "prices.py").write_text(
                    f"{beside}\n\n\ndef rate(item):\n    return item * factors.FACTOR\n"
                    "\n\nclass Rate:\n    pass\n"
                )
                asked.append((prices, str(top)))
    command = [sys.executable, "-c", MODULES]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for (prices, _), (called, operator, processor) in zip(asked, found, strict=True):
        package = prices.rpartition("prices")[0]
        assert called.keys() == {prices, f"{package}factors"}
        assert called == operator == processor  # by the job, or given to it
    for first in range(0, len(found), 3):
        assert found[first] != found[first + 1] == found[first + 2]
