"""What a micro-batch has staged counts once, also if Spark does it again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.flux import ingress_staging
from flux_runtime.spark.flux.ingress_staging import OtherQuery

ROWS = pa.RecordBatch.from_pydict({"n": list(range(10))})


def _stage(storage: LocalStorage, batch: int, partition: int, rows: pa.RecordBatch):
    return ingress_staging.stage(storage, iter([rows]), query="q", batch=batch, partition=partition)


def test_a_micro_batch_that_is_done_again_is_recognised(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    first = [_stage(storage, 0, 1, ROWS.slice(4)), _stage(storage, 0, 0, ROWS.slice(0, 4))]
    made = ingress_staging.commit(storage, 0, first)
    assert made is not None
    rows = [(o, r.column("n").to_pylist()) for o, r in ingress_staging.rows_of(storage, made)]
    assert rows == [(0, [0, 1, 2, 3]), (4, [4, 5, 6, 7, 8, 9])]
    again = [_stage(storage, 0, 0, ROWS)]  # other partitions, as after a shuffle
    assert ingress_staging.commit(storage, 0, again) == made
    ingress_staging.acknowledged(storage, made)
    assert list(tmp_path.glob("staged/*")) == []
    late = ingress_staging.commit(storage, 0, [_stage(storage, 0, 0, ROWS)])
    assert late is not None
    assert late.acknowledged
    following = ingress_staging.commit(storage, 1, [_stage(storage, 1, 0, ROWS)])
    assert following is not None
    assert (following.first, following.end) == (10, 20)


def test_an_attempt_that_failed_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    staged = _stage(storage, 0, 0, ROWS)
    ingress_staging.discard(storage, [None, staged])
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_checkpoint_that_was_replaced_is_refused(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    ingress_staging.commit(storage, 0, [_stage(storage, 0, 0, ROWS)])
    other = ingress_staging.stage(storage, iter([ROWS]), query="z", batch=0, partition=0)
    with pytest.raises(OtherQuery, match="checkpoint"):
        ingress_staging.commit(storage, 0, [other])


def test_only_the_last_micro_batches_are_remembered_and_older_ones_recognised(
    tmp_path: Path,
) -> None:
    storage = LocalStorage(tmp_path)
    for batch in range(15):
        made = ingress_staging.commit(storage, batch, [_stage(storage, batch, 0, ROWS)])
        assert made is not None
        assert made.first == 10 * batch
        ingress_staging.acknowledged(storage, made)
    assert len(storage.names("committed")) == ingress_staging.KEPT
    assert ingress_staging.commit(storage, 2, [_stage(storage, 2, 0, ROWS)]) is None
