"""What real Spark does under permuted arrivals contradicts no derived label, tried anew.

A seeded part of the constructs, one of each group; `python -m
tests.constructs.observe` runs all of them, and writes what `constructs.md` shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import pytest

from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.sql import read
from tests.constructs.catalogue import CONSTRUCTS, Construct
from tests.constructs.observe import contradictions, observe, session

OF_EACH_GROUP: Final = 1
SEED: Final = 25

pytestmark = pytest.mark.spark


def chosen() -> Iterator[Construct]:
    """One construct of each group, the same ones in every run."""
    draw = random.Random(SEED)
    for _, group in groupby(CONSTRUCTS, key=lambda construct: construct.group):
        some = list(group)
        yield from draw.sample(some, min(OF_EACH_GROUP, len(some)))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    started = session()
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


@pytest.mark.parametrize("construct", list(chosen()), ids=lambda construct: construct.name)
def test_what_spark_does_does_not_contradict_the_label(construct: Construct, spark: Any) -> None:
    seen = observe(construct, spark)
    assert list(contradictions(construct.name, seen)) == []
    assert sum(seen[kind]["runs"] for kind in ("permuted", "sealed") if kind in seen) > 1


def test_a_wrong_label_is_contradicted(spark: Any) -> None:
    """The test of the test: a count that is called confluent."""
    (count,) = (each for each in CONSTRUCTS if each.name == "count")
    seen = observe(count, spark) | {"label": "CW"}
    assert list(contradictions("count", seen)) != []


@pytest.mark.parametrize("pick", ["collect_list(z)", "first(z)", "listagg(z, ',')"])
def test_rows_behind_a_join_come_in_another_order_than_the_records(pick: str, spark: Any) -> None:
    """A partition handed over sorted: whether Spark sends the table along or not decides."""
    sql = f"SELECT b.id, {pick} AS picked FROM b JOIN t USING (k) GROUP BY b.id"
    given = {
        "b": Input({"id": "INT", "k": "INT"}),
        "t": Input({"k": "INT", "z": "STRING"}, Role.TABLE),
    }
    assert annotate(read(sql, inputs=given).plan).paths["b"].nondeterministic is not None
    several = spark.newSession()
    several.conf.set("spark.sql.shuffle.partitions", 4)
    several.conf.set("spark.sql.adaptive.enabled", False)
    records = several.range(12).selectExpr("1 AS id", "id AS k").repartition(4, "id")
    records.sortWithinPartitions("id", "k").createOrReplaceTempView("b")
    several.range(12).selectExpr("id AS k", "CAST(id AS STRING) AS z").createOrReplaceTempView("t")
    answers = set()
    for limit in ("-1", "10MB"):
        several.conf.set("spark.sql.autoBroadcastJoinThreshold", limit)
        ((_, picked),) = several.sql(sql).collect()
        answers.add(str(picked))
    assert len(answers) == 2
