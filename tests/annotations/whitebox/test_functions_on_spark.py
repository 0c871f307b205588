"""Claims about functions, taken to real Spark: a share of them that a seed chooses.

`python benchmarks/functions_on_spark.py` tries all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from annotations.whitebox import derive
from annotations.whitebox.datatypes import Family
from annotations.whitebox.functions import (
    EVERY,
    Aggregation,
    Direction,
    Keeps,
    Kind,
    Moves,
    Null,
    On,
    Way,
)
from annotations.whitebox.settings import READ_WITH
from benchmarks.batch_functions import Function, differ, functions, labels, merging, outcomes
from benchmarks.function_values import BY_NAME, SAMPLES
from benchmarks.functions_on_spark import MODES, Prover, planted, prove, session
from benchmarks.query_soundness import planned_otherwise, subject
from benchmarks.random_queries import Query, Schemas, Table, Value
from blazes.verify.experiment import Case
from blazes.verify.records import Item
from blazes.verify.spark import Spark

SEED: Final = 45

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    started = session()
    yield started
    started.stop()


def test_the_registry_has_the_functions_of_spark(spark: Any) -> None:
    prover = Prover(spark, SEED)
    prover.names()
    assert prover.report.refuted == []
    assert prover.report.claims > 500
    with planted("hex", in_spark=False):
        prover.names()
    with planted("is null", in_spark=True):
        prover.names()
    assert [each.function for each in prover.report.refuted] == ["hex", "is null"]


def test_queries_are_read_as_under_the_settings_that_spark_has_by_itself(spark: Any) -> None:
    found = {name: spark.conf.get(name).lower() for name in READ_WITH}
    assert found == {name: value.lower() for name, value in READ_WITH.items()}


def test_spark_refutes_no_claim(spark: Any) -> None:
    samples = random.Random(SEED).sample(SAMPLES, 2)
    report = prove(spark, seed=SEED, samples=samples, modes=MODES[2:3], quick=True)
    assert report.refuted == []
    assert report.claims > 100


@pytest.mark.parametrize(
    ("name", "sample", "mistake"),
    [
        ("bit_or", "int", {"aggregation": Aggregation(Direction.UP, EVERY, duplicates=False)}),
        ("bit_xor", "int", {"aggregation": Aggregation(of_the_set=EVERY, duplicates=False)}),
        ("avg", "bigint", {"aggregation": Aggregation(of_the_set=EVERY, adds=True)}),
        ("max", "spot", {"aggregation": Aggregation(Direction.UP, EVERY, duplicates=False)}),
        ("sum", "decimal38", {"aggregation": Aggregation(of_the_set=EVERY, adds=True)}),
        ("max_by", "int", {"null": Null.NEVER}),
        ("hex", "double", {"keeps": Keeps(EVERY)}),
        ("lower", "text", {"keeps": Keeps(EVERY)}),
        ("length", "text", {"moves": Moves((Way.RISES,), On.ALIKE)}),
        ("-", "number", {"moves": Moves((Way.RISES,), On.ALIKE)}),
        ("sign", "int", {"never_negative": EVERY}),
        ("dayofweek", "instant", {"rises_with_time": True}),
        ("+", "decimal38", {"null": Null.OF_NULL, "present": EVERY}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_claim_is_refuted(
    name: str, sample: str, mistake: dict[str, Any], spark: Any
) -> None:
    with planted(name, **mistake):
        report = prove(
            spark, seed=SEED, only=name, samples=[BY_NAME[sample]], modes=MODES[:1], quick=True
        )
    assert {each.function for each in report.refuted} == {name}
    assert all(each.sql.startswith("SELECT") for each in report.refuted)


@pytest.mark.parametrize("name", ["rand", "current_timestamp", "uuid"])
def test_what_is_left_to_chance_is_not_determined(name: str, spark: Any) -> None:
    prover = Prover(spark, SEED)
    with planted(name, kind=Kind.SCALAR):
        prover.chance(lambda each: each == name)
    assert {each.function for each in prover.report.refuted} == {name}


def test_a_sketch_that_draws_by_chance_is_found(spark: Any) -> None:
    prover = Prover(spark, SEED)
    with planted("kll_sketch_agg_bigint", chance=None):
        prover.draws(lambda each: each in ("kll_sketch_agg_bigint", "hll_sketch_agg"))
    assert {each.function for each in prover.report.refuted} == {"kll_sketch_agg_bigint"}


def test_a_text_that_is_a_clock_is_found(spark: Any) -> None:
    prover = Prover(spark, SEED)
    prover.use(MODES[0])
    with planted("datediff", takes=None), planted("date_trunc", takes=Family.DATE):
        prover.clocks(lambda each: each in ("datediff", "date_trunc"), 200)
    assert {each.function for each in prover.report.refuted} == {"datediff", "date_trunc"}


def test_spark_refutes_no_function_of_foreach_batch(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    several = [*functions(rng, 20), *(merging(rng, at) for at in range(20, 30))]
    said = labels(several, tmp_path)
    merges = [function for function in several if function.written.startswith("merged")]
    assert len(merges) > 5
    assert not any(said[function.name] for function in merges)
    same = [function for function in several if said[function.name] and not function.runs][:2]
    assert len(same) == 2
    for function in same:
        assert differ(outcomes(spark, function, several, rng, tmp_path)) is None, function.text
    first = 'def body_0(df, number):\n    df.write.mode("ignore").parquet("{lake}/out_0")\n'
    wrong = Function("body_0", first, "out_0")
    assert differ(outcomes(spark, wrong, [wrong], rng, tmp_path)) is not None


REORDERED: Final = (
    "SELECT a.n FROM a JOIN a b ON a.k = b.k",
    "SELECT n FROM (SELECT /*+ REPARTITION(k) */ k, n FROM a) WHERE n > 1",
)
"""Queries whose rows come in any order, whatever that of the records is."""


def test_rows_come_in_another_order_where_spark_plans_it_otherwise(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What depends on that order is left to chance; said not to be, Spark refutes it."""
    given = Schemas((Table("a", (Value("k", "INT"), Value("n", "INT"))),))
    items = tuple(Item("a", (n % 5, n * 7 % 31)) for n in range(30))
    judge, case = Spark(spark), Case(items, ((*range(30),),))
    queries = [Query(f"SELECT collect_list(n) AS l FROM ({text})", given, frozenset())
               for text in REORDERED]  # fmt: skip
    assert not any(planned_otherwise(judge, subject(query, "append"), case) for query in queries)
    monkeypatch.setattr(derive, "REORDERING", {})
    found = [planned_otherwise(judge, subject(query, "append"), case) for query in queries]
    assert found == [True] * len(queries)
