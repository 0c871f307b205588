"""Rows of every type that Spark hands over: their size, their way to another site, dead letters."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES

from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.query import tagged
from flux_runtime.operators.rows import content_size, number
from flux_runtime.operators.unprocessable import DEAD_LETTER, DeadLetters


def kind(rng: random.Random, depth: int = 3) -> Any:
    """A type, of others down to a depth."""
    match rng.randrange(4 if depth else 1):
        case 1:
            return pa.list_(kind(rng, depth - 1))
        case 2:
            return pa.struct([(f"f{n}", kind(rng, depth - 1)) for n in range(rng.randint(1, 3))])
        case 3:
            return pa.map_(rng.choice([pa.string(), pa.int64()]), kind(rng, depth - 1))
    return rng.choice(list(VALUES))


def value(rng: random.Random, of: Any, *, null: bool = True) -> Any:
    """One of its values."""
    if null and rng.random() < 0.2:
        return None
    if pa.types.is_list(of):
        return [value(rng, of.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_struct(of):
        return {field.name: value(rng, field.type) for field in of}
    if pa.types.is_map(of):
        keys = {value(rng, of.key_type, null=False) for _ in range(rng.randrange(3))}
        return [(key, value(rng, of.item_type)) for key in keys]
    return rng.choice([None, *VALUES[of]] if null or not VALUES[of] else VALUES[of])


def rows(rng: random.Random) -> pa.Table:
    kinds = [kind(rng) for _ in range(rng.randint(1, 3))]
    columns = [pa.array([value(rng, of) for _ in range(12)], of) for of in kinds]
    return pa.table(columns, names=[f"c{place}" for place in range(len(columns))])


@pytest.mark.parametrize("seed", range(80))
def test_the_size_of_rows_goes_by_what_they_say(seed: int) -> None:
    rng = random.Random(seed)
    table = rows(rng)
    size, cut = content_size(table), rng.randint(1, 11)
    assert size == content_size(unpack(pack({"rows": table}))["rows"])
    assert size == content_size(
        pa.concat_tables([table.slice(0, cut), table.slice(cut)]).combine_chunks()
    )
    first, second = content_size(table.slice(0, cut)), content_size(table.slice(cut))
    assert abs(first + second - size) <= 1, "rounded up twice"


@pytest.mark.parametrize("seed", range(80))
def test_a_dead_letter_has_the_record_as_json(seed: int) -> None:
    table = rows(random.Random(seed))
    letters = DeadLetters(name="C", interfaces=("a",), output=[("x", pa.int64())])
    records = number(tagged(table, 0), 0)
    made = letters.of(records, ["no reason"] * table.num_rows)
    for text in made.column(DEAD_LETTER).to_pylist():
        record = json.loads(text, parse_constant=pytest.fail)["record"]
        assert record.keys() == set(table.schema.names)
