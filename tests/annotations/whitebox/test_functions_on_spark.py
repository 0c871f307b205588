"""Claims about functions, taken to real Spark: a share of them that a seed chooses.

`python benchmarks/functions_on_spark.py` tries all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

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
    Types,
    Way,
)
from benchmarks.functions_on_spark import MODES, Prover, planted, prove, session

SEED: Final = 43
DOUBLES: Final = Types("DOUBLE", lambda type_: type_.family is Family.FLOAT)
WIDE: Final = Types("BIGINT", lambda type_: type_.bits == 64)

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
    with planted("hex", name="hex", in_spark=False):
        prover.names()
    assert [each.function for each in prover.report.refuted] == ["hex"]


def test_spark_refutes_no_claim(spark: Any) -> None:
    report = prove(spark, seed=SEED, share=0.04, modes=MODES[2:])
    assert report.refuted == []
    assert report.claims > 100


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("bit_or", {"aggregation": Aggregation(Direction.UP, EVERY, duplicates=False)}),
        ("bit_xor", {"aggregation": Aggregation(of_the_set=EVERY, duplicates=False)}),
        ("avg", {"aggregation": Aggregation(of_the_set=WIDE, adds=True)}),
        ("max", {"aggregation": Aggregation(Direction.UP, EVERY, duplicates=False)}),
        ("sum", {"aggregation": Aggregation(of_the_set=EVERY, adds=True)}),
        ("max_by", {"null": Null.NEVER}),
        ("hex", {"keeps": Keeps(DOUBLES)}),
        ("lower", {"keeps": Keeps(EVERY)}),
        ("last_day", {"keeps": Keeps(EVERY)}),
        ("length", {"moves": Moves((Way.RISES,), On.ALIKE)}),
        ("-", {"moves": Moves((Way.RISES,), On.ALIKE)}),
        ("abs", {"never_negative": EVERY, "moves": Moves((Way.RISES,), On.ALIKE)}),
        ("sign", {"never_negative": EVERY}),
        ("dayofweek", {"kind": Kind.SCALAR, "rises_with_time": True}),
        ("+", {"null": Null.OF_NULL, "present": EVERY}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_claim_is_refuted(name: str, mistake: dict[str, Any], spark: Any) -> None:
    with planted(name, **mistake):
        report = prove(spark, seed=SEED, only=name, modes=MODES[:1], quick=True)
    assert {each.function for each in report.refuted} >= {name}
    assert all(each.sql.startswith("SELECT") for each in report.refuted)


@pytest.mark.parametrize("name", ["rand", "current_timestamp", "uuid"])
def test_what_is_left_to_chance_is_not_determined(name: str, spark: Any) -> None:
    prover = Prover(spark, SEED)
    with planted(name, kind=Kind.SCALAR):
        prover.chance(lambda each: each == name)
    assert {each.function for each in prover.report.refuted} == {name}


def test_a_text_that_is_a_clock_is_found(spark: Any) -> None:
    prover = Prover(spark, SEED)
    prover.use(MODES[0])
    with planted("datediff", takes_time=False):
        prover.clocks(lambda each: each == "datediff", 100)
    assert {each.function for each in prover.report.refuted} == {"datediff"}
