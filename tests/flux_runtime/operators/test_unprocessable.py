"""What is set aside, in which place of the order, and what ends a copy instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from flux_lab.bad_records import COLUMNS, DOUBLED_MAX, Refusing, components, double, refusing
from flux_runtime.operators.components import Component
from flux_runtime.operators.query import tagged
from flux_runtime.operators.rows import number, sn_of
from flux_runtime.operators.unprocessable import OperatorError, letters_of, results_of
from flux_runtime.protocol.vocabulary import Pair


def clicks(place: int, *rows: tuple[int, int]) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, t) for c, (_, t) in zip(columns, COLUMNS, strict=True)]
    return number(tagged(pa.table(arrays, pa.schema(COLUMNS)), 0), place)


def test_a_dead_letter_says_why_and_stands_where_its_record_stood() -> None:
    made = double(1).instance(None).process(clicks(7, (1, 5), (2, DOUBLED_MAX), (3, 6)))
    assert results_of(made).to_pydict()["v"] == [10, 12]
    (letter,) = letters_of(made)
    assert letter["component"] == "Double"
    assert letter["interface"] == "click"
    assert letter["record"] == {"key": 2, "v": DOUBLED_MAX}
    assert "Overflow" in letter["why"]
    numbers = list(zip(*(part.tolist() for part in sn_of(made)), strict=True))
    assert numbers == sorted(set(numbers))
    offset = numbers[made.column("flux_dead_letter").is_valid().to_pylist().index(True)][1]
    assert offset == 1


def test_a_batch_of_nothing_but_bad_records_has_no_results() -> None:
    made = double(1).instance(None).process(clicks(0, (1, DOUBLED_MAX), (2, DOUBLED_MAX)))
    assert results_of(made).num_rows == 0
    assert [letter["record"]["key"] for letter in letters_of(made)] == [1, 2]


def test_a_later_stage_passes_dead_letters_on_and_computes_without_them() -> None:
    flow = components("python", (1, 1))()
    first, second = (flow.operator(Pair(stage, 0)) for stage in (0, 1))
    rows = first.process(clicks(0, (1, 4), (2, DOUBLED_MAX), (1, -3), (3, DOUBLED_MAX)))
    made = second.process(rows)
    assert results_of(made).to_pydict()["total"] == [8]
    named = [(letter["component"], letter["record"]["v"]) for letter in letters_of(made)]
    assert sorted(named) == [("Double", DOUBLED_MAX)] * 2 + [("Refusing", -6)]
    numbers = list(zip(*(part.tolist() for part in sn_of(made)), strict=True))
    assert numbers == sorted(set(numbers))
    only_letters = second.process(first.process(clicks(1, (2, DOUBLED_MAX))))
    assert results_of(only_letters).num_rows == 0
    assert len(letters_of(only_letters)) == 1


def test_replicas_can_be_told_apart_in_their_dead_letters() -> None:
    rows = clicks(0, (1, 5), (2, DOUBLED_MAX))
    made = [double(1).instance(replica).process(rows) for replica in (1, 2)]
    assert [rows.column("replica").to_pylist() for rows in made] == [[1, 1], [2, 2]]
    numbers = [tuple(sn) for rows in made for sn in zip(*map(list, sn_of(rows)), strict=True)]
    assert len(set(numbers)) == 4


@pytest.mark.parametrize("error", [MemoryError(), OSError("disk"), ImportError("no pandas")])
def test_an_error_of_the_machine_ends_the_copy(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(_: Refusing, batch: Any) -> Any:
        raise error

    monkeypatch.setattr(Refusing, "process", process)
    with pytest.raises(type(error)):
        refusing(1).instance(None).process(clicks(0, (1, 1)))


def test_an_operator_without_a_declared_column_ends_the_copy() -> None:
    stage: Component = replace(refusing(1), output=(("mean", pa.int64()),))
    with pytest.raises(OperatorError, match="no column mean"):
        stage.instance(None).process(clicks(0, (1, 1)))


def test_a_state_that_is_installed_is_what_an_error_returns_to() -> None:
    one, other = refusing(1).instance(None), refusing(1).instance(None)
    one.process(clicks(0, (1, 5)))
    other.process(clicks(0, (1, 100)))
    other.install_state(one.get_state())
    made = other.process(clicks(1, (1, 2), (1, -1)))
    assert results_of(made).to_pydict()["total"] == [7]
