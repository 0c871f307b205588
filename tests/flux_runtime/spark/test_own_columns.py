"""Columns that the runtime has beside those of records: their names are refused, others are not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from codegen import ends
from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.frames import OWN_COLUMNS

RUNTIME = Path(__file__).parents[3] / "flux_runtime" / "spark"
NAMES = ("__op", "__Source_ts_ms", "__counted", "__key", "_producer")
"""Names that begin like the runtime's own."""
SCHEMA = ", ".join(["k INT", *(f"{name} STRING" for name in NAMES)])
COLUMNS = ", ".join(NAMES)


def test_the_names_of_all_own_columns_are_known() -> None:
    literals = {
        node.value
        for file in RUNTIME.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and node.value.startswith("__") and node.value.isidentifier()
        and not node.value.endswith("__")
    }  # fmt: skip
    own = {name for name in literals if OWN_COLUMNS.fullmatch(name)}
    starts = {name for name in literals - own if OWN_COLUMNS.fullmatch(f"{name}0")}
    assert literals - own - starts == set()
    assert {"__producer", "__batch", "__value"} < own
    assert {"__text_", "__key_"} < starts
    assert not any(map(OWN_COLUMNS.fullmatch, NAMES))


def test_the_compiler_has_the_same_names() -> None:
    assert (ends.OWN_COLUMNS.pattern, ends.OWN_COLUMNS.flags) == (
        OWN_COLUMNS.pattern,
        OWN_COLUMNS.flags,
    )


def passed(item: DataFrame) -> DataFrame:
    return sql(f"SELECT k, {COLUMNS} FROM item", item=item)


def last(put: DataFrame, ask: DataFrame) -> DataFrame:
    return sql(
        f"SELECT a.k, {', '.join(f'max(p.{name}) AS {name}' for name in NAMES)}"
        " FROM ask a LEFT JOIN put p ON a.k = p.k GROUP BY a.k",
        put=put,
        ask=ask,
    )


def build(job: Job) -> None:
    """Through a gate, a channel, a query of Spark's and a component that keeps records."""
    items = job.source(
        "items",
        format="json",
        path="data/items",
        schema=f"{SCHEMA}, p STRING, sealed BOOLEAN, n BIGINT",
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )
    whole = job.seal(
        "Whole",
        passed,
        waits={"item": [items]},
        key=("k",),
        producers={"items": Producers.one()},
        forward=("k",),
    )
    mapped = job.native("Mapped", passed, inputs={"item": [whole]})
    asks = job.source("asks", format="json", path="data/asks", schema=SCHEMA)
    kept = job.stateful(
        "Last",
        last,
        writes={"put": [mapped]},
        reads={"ask": [asks]},
        ordered=True,
        monotone=False,
        order_by=("k",),
    )
    job.sink("whole", [whole])
    job.sink("out", [kept])


@pytest.mark.spark
def test_columns_whose_names_begin_alike_go_through(bench) -> None:
    row = {"k": 1} | {name: f"of {name}" for name in NAMES}
    sent = row | {"p": "a"}
    bench.file("items", [sent, {"k": 1, "p": "a", "sealed": True, "n": 1}])
    bench.file("items", [sent | {"k": 2}, "{no json"])
    bench.file("asks", [row | {"k": 2}])
    bench.run(build)
    bench.file("items", [sent | {"__op": "late"}])
    bench.file("asks", [row | {"__op": "asked"}])
    bench.run(build)
    assert list(bench.results("whole")) == [row]
    assert [found for found in bench.results("out") if found["k"] == 1] == [row]
    letters = {letter["reason"]: letter["record"] for letter in bench.dead_letters("Whole")}
    assert letters["late"]["__op"] == "late"


@pytest.mark.spark
@pytest.mark.parametrize("name", ["__producer", "__Count", "__text_7"])
def test_columns_of_its_own_names_are_refused(bench, name: str) -> None:
    def taken(job: Job) -> None:
        items = job.source("items", format="json", path="data/items", schema=f"k INT, {name} INT")
        job.sink("out", [job.native("Passed", lambda item: item, inputs={"item": [items]})])

    def given(job: Job) -> None:
        items = job.source("items", format="json", path="data/items", schema="k INT")

        def named(item: DataFrame) -> DataFrame:
            return sql(f"SELECT k AS {name} FROM item", item=item)

        job.sink("out", [job.native("Named", named, inputs={"item": [items]})])

    bench.file("items", [{"k": 1}])
    for build, at in ((taken, "source items"), (given, "Named")):
        with pytest.raises(ValueError, match=f"{at}: the runtime has columns .* names of {name}"):
            bench.run(build)
