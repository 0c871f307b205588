"""Generated inputs come near what the code compares with, in the formats that it can read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from annotations.file import load
from blazes.verify.claims import Claim, Kind
from blazes.verify.constants import constants_of, in_python
from blazes.verify.operators import Operator, operators_of
from blazes.verify.records import Item, Row
from blazes.verify.values import NUMERALS, TIMES, Generator
from blazes.verify.ways import draw, partitions

SETTLEMENT = Path(__file__).parents[3] / "examples/settlement"


@pytest.fixture(scope="module")
def limit() -> Operator:
    dataflow, _ = load(SETTLEMENT / "settlement.yaml")
    operators, _, _ = operators_of(dataflow, lambda _: {})
    return next(each for each in operators.values() if each.component == "Limit")


def test_a_function_has_the_constants_of_what_it_calls_and_no_others() -> None:
    hold = in_python(SETTLEMENT / "operators.py", "hold")
    score = in_python(SETTLEMENT / "operators.py", "score")
    assert 100_000 in hold.numbers
    assert hold.texts == ("capture",)
    assert 40_000 in score.numbers
    assert 100_000 not in score.numbers


def spent(operator: Operator, items: list[Item]) -> int:
    """The most that the captures of one card on one day come to."""
    sums: dict[tuple[object, object], int] = {}
    for item in items:
        record = dict(zip(operator.schemas["scored"], item.row, strict=True))
        if record["kind"] == "capture" and record["amount_cents"] is not None:
            about = (record["card"], record["day"])
            sums[about] = sums.get(about, 0) + record["amount_cents"] * item.times
    return max(sums.values(), default=0)


def test_many_inputs_reach_a_threshold_that_only_sums_reach(limit: Operator) -> None:
    generator = Generator(limit, constants_of(limit))
    rng = random.Random(1)
    reached = sum(spent(limit, generator.items(rng, 4)) > 100_000 for _ in range(400))
    assert reached > 40


def test_cases_of_a_gate_have_partitions_that_differ_in_one_attribute(limit: Operator) -> None:
    """A card's captures of a day come above the limit by those of several merchants."""
    dataflow, _ = load(SETTLEMENT / "settlement.yaml")
    finer = frozenset({"card", "day", "merchant"})
    claim = Claim(Kind.GATE, limit, limit.own[0], gate=finer)
    generator = Generator(limit, constants_of(limit), dataflow.fds)
    rng = random.Random(1)
    telling = 0
    for _ in range(400):
        case = draw(claim, generator, rng, 4)
        if case is not None:
            parts = [[case.items[n] for n in part] for part in partitions(claim, case.items)]
            together = spent(limit, list(case.items))
            telling += together > max(100_000, *(spent(limit, part) for part in parts))
    assert telling >= 10


def test_formats_that_make_the_code_fail_become_rare(limit: Operator) -> None:
    generator = Generator(limit, constants_of(limit))
    rng = random.Random(1)
    at = list(limit.schemas["scored"]).index("at")

    def drawn() -> list[list[Item]]:
        return [generator.items(rng, 3) for _ in range(300)]

    def times(cases: list[list[Item]]) -> int:
        return sum(all(item.row[at] in (*TIMES, None) for item in case) for case in cases)

    before = drawn()
    for case in before:
        generator.learn(
            case, ran=all(item.row[at] in (*TIMES, None) for item in case), productive=False
        )
    assert times(drawn()) > 2 * times(before)


def test_texts_of_the_data_are_used(limit: Operator) -> None:
    names = list(limit.schemas["scored"])
    row: Row = tuple("08:15 Uhr" if name == "at" else None for name in names)
    generator = Generator(limit, constants_of(limit), recorded={"scored": [row]})
    rng = random.Random(1)
    seen = {item.row[names.index("at")] for _ in range(100) for item in generator.items(rng, 2)}
    assert "08:15 Uhr" in seen
    assert seen & {*NUMERALS}
