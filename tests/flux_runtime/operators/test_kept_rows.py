"""Kept rows are found by their columns: none that is equal is missed, whatever the types."""

from __future__ import annotations

import random
from typing import Any, Final

import pyarrow as pa
import pytest
from arrow_values import VALUES

from flux_runtime.operators.evaluation import evaluate
from flux_runtime.operators.kept_rows import KeptRows

KINDS: Final = [
    kind for kind in VALUES if kind not in (pa.time64("ns"), pa.duration("us"), pa.null())
]
"""Types that SQL on sites compares."""
WIDER: Final = {pa.int8(): pa.int64(), pa.int32(): pa.int8()}
"""The type of the column that it is compared with, where that may be another one."""


def rows(rng: random.Random, kinds: list[Any], ids: range) -> pa.Table:
    def drawn(kind: Any) -> pa.Array:
        return pa.array([rng.choice([None, *VALUES[kind]]) for _ in ids], kind)

    columns = {f"c{place}": drawn(kind) for place, kind in enumerate(kinds)}
    return pa.table({**columns, "id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize("seed", range(60))
def test_all_rows_with_equal_columns_are_found(seed: int) -> None:
    rng = random.Random(seed)
    kinds = rng.sample(KINDS, rng.randint(1, 3))
    kept = KeptRows(rows(rng, kinds, range(0)).schema)
    for batch in range(4):
        kept = kept.added(rows(rng, kinds, range(batch * 20, batch * 20 + rng.randint(0, 20))))
        others = rows(rng, [WIDER.get(kind, kind) for kind in kinds], range(3))
        columns = [f"c{place}" for place in range(len(kinds))]
        candidates = kept.matching(columns, others, columns)
        equal = " AND ".join(f"k.{name} IS NOT DISTINCT FROM o.{name}" for name in columns)
        sql = f"SELECT DISTINCT id FROM k WHERE EXISTS (SELECT 1 FROM o WHERE {equal}) ORDER BY id"
        wanted = evaluate(sql, {"k": kept.table, "o": others}).column("id").to_pylist()
        found = candidates.column("id").to_pylist()
        assert found == sorted(found)
        assert set(wanted) <= set(found)
