"""Spark -> ingress -> order -> egress -> Spark: every record once, whatever is killed when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.flux import ingress_staging
from flux_runtime.spark.flux.ingress_staging import OtherQuery
from flux_runtime.spark.flux.ordered_channel import Channel, ContentMissing
from flux_runtime.zookeeper.tail import Trimmed

ONCE = [
    "ingress-staged@2",
    "ingress-commit-begins",
    "ingress-logged",
    "content-written@2",
    "ingress-offered",
    "ingress-flushed",
    "ingress-acknowledged",
    "ingress-committed",
    "egress-planned",
    "egress-read",
    "egress-commit-begins",
    "contents-deleted",
    "egress-committed",
]

JOB = """
import os, sys
from pathlib import Path
os.environ["BLAZES_CRASH_DRIVER"] = f"{os.getpid()}:{sys.argv[4]}"
from pyspark.sql import functions as sf
from flux_runtime.spark.flux.egress import EgressSource, egress_options
from flux_runtime.spark.flux.far_side import far_side_options
from flux_runtime.spark.flux.ingress import IngressSink, ingress_options
from flux_runtime.spark.session import start_session

folder, hosts, app = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
session = start_session("exchange", master="local[2]", conf={}, log=folder / "log.txt")
for source in (IngressSink, EgressSource):
    session.dataSource.register(source)
far = far_side_options("flux_runtime.spark.flux.ordered_channel:open_channel", {
    "zookeeper": hosts, "app": app, "folder": (folder / "contents").as_uri()})
items = (session.readStream.schema("id BIGINT, name STRING, at TIMESTAMP")
    .option("maxFilesPerTrigger", 1).json(str(folder / "in")))
# another distribution at every attempt, as after a shuffle
into = (items.repartition(3, sf.rand()).writeStream.format("flux-ingress")
    .options(**ingress_options("items", folder / "staging", far))
    .option("checkpointLocation", str(folder / "checkpoint-in"))
    .trigger(availableNow=True))
results = (session.readStream.format("flux-egress")
    .schema("sn_batch BIGINT, sn_offset BIGINT, id BIGINT, name STRING, at TIMESTAMP")
    .options(**egress_options("report", far, batch_bytes=1)).load())
out = (results.writeStream.format("parquet")
    .option("checkpointLocation", str(folder / "checkpoint-out")))
into.start().awaitTermination()
if os.environ.get("RUN_ON"):
    import time
    query = out.start(str(folder / "out"))
    while True:
        time.sleep(0.1)
        if query.exception():
            raise query.exception()
out.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
session.stop()
"""


class Exchange:
    """The job in a process of its own."""

    def __init__(self, folder: Path, hosts: str) -> None:
        self.folder = folder
        self.hosts = hosts
        self.app = f"app-{uuid.uuid4()}"
        self.ids = 0
        self.files = 0
        (folder / "in").mkdir()
        (folder / "exchange_job.py").write_text(JOB)

    def more(self, rows: int) -> None:
        self.files += 1
        lines = [
            json.dumps({"id": n, "name": f"n{n}", "at": f"2024-01-01T00:00:{n % 60:02d}Z"})
            for n in range(self.ids, self.ids + rows)
        ]
        self.ids += rows
        hidden = self.folder / "in" / f".{self.files:04d}.json"
        hidden.write_text("\n".join(lines) + "\n")
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(self.folder / "in" / hidden.name[1:])

    def run(self, crash_at: str | None = None) -> tuple[int, str]:
        passed = self.folder / f"passed-{uuid.uuid4()}"
        env = {**os.environ, "BLAZES_CRASH_AT": crash_at or ""}
        if crash_at and crash_at.startswith(("egress-commit", "contents-deleted")):
            env["RUN_ON"] = "1"
        process = subprocess.run(
            [sys.executable, "exchange_job.py", str(self.folder), self.hosts, self.app, passed],
            cwd=self.folder,
            env=env,
            stderr=subprocess.PIPE,
            text=True,
            timeout=400,
            check=False,
        )
        return process.returncode, process.stderr[-3000:]

    def out(self) -> list[dict[str, Any]]:
        """What Spark's own sink has committed."""
        files: set[str] = set()
        for log in sorted((self.folder / "out" / "_spark_metadata").glob("[0-9]*")):
            for line in log.read_text().splitlines()[1:]:
                files.add(json.loads(line)["path"].rpartition("/")[2])
        rows = []
        for file in files:
            rows += pq.read_table(self.folder / "out" / file).to_pylist()
        return sorted(rows, key=lambda row: (row["sn_batch"], row["sn_offset"]))


@pytest.mark.spark
@pytest.mark.timeout(3600)  # fourteen jobs, one after another
def test_the_driver_is_killed_between_every_pair_of_steps(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    exchange = Exchange(tmp_path, zookeeper_hosts)
    for point in ONCE:
        exchange.more(40)
        exchange.more(25)
        status, err = exchange.run(point)
        assert status == -signal.SIGKILL, f"{point}: {status} {err}"
    exchange.more(10)
    for _ in range(2):  # Spark's fallback for available-now first redoes an open batch, and stops
        status, err = exchange.run()
        assert status == 0, err
    rows = exchange.out()
    assert sorted(row["id"] for row in rows) == list(range(exchange.ids))
    assert all(row["name"] == f"n{row['id']}" for row in rows)
    assert all(row["at"].second == row["id"] % 60 for row in rows)
    places = [(row["sn_batch"], row["sn_offset"]) for row in rows]
    assert len(set(places)) == len(places)
    left = list((tmp_path / "staging" / "staged").glob("*/*"))
    assert left == []


# ---- without Spark

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


@pytest.mark.zookeeper
def test_the_channel_drops_replays_and_forgets_what_all_have_read(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    far = Channel(zookeeper_hosts, f"app-{uuid.uuid4()}", LocalStorage(tmp_path))
    one, two = far.egress("one"), far.egress("two")
    end = far.ingress("s")
    for offset in (0, 10, 0, 5, 20):
        end.offer(0, offset, ROWS)
    end.flush()
    with pytest.raises(ValueError, match="30 to 39 of s are missing"):
        end.offer(0, 40, ROWS)
    end.close()
    end = far.ingress("s")  # restarted
    end.offer(0, 20, ROWS)
    end.offer(1, 30, ROWS)
    end.flush()
    after, found, _ = one.read(0, timeout_s=30.0)
    assert sum(rows.num_rows for _, rows in found) == 40
    assert two.read(0, timeout_s=30.0)[1] == found
    assert one.read(found[1][0], timeout_s=30.0)[1] == found[1:]  # any stretch, again
    one.commit(after)
    assert two.read(0, timeout_s=30.0)[1] == found
    two.commit(after)
    assert list(tmp_path.rglob("*.arrow")) == []
    with pytest.raises(Trimmed):
        far.egress("three").read(0, timeout_s=1.0)
    end.offer(1, 40, ROWS)
    end.flush()
    for file in tmp_path.rglob("*.arrow"):
        file.unlink()
    with pytest.raises(ContentMissing, match="records 40 to 49 of s"):
        one.read(after, timeout_s=0.2)
    for closing in (one, two, end):
        closing.close()


@pytest.mark.zookeeper
def test_the_channel_reads_and_forgets_batches_that_share_a_place_one_by_one(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    far = Channel(zookeeper_hosts, f"app-{uuid.uuid4()}", LocalStorage(tmp_path))
    one, two = far.egress("one"), far.egress("two")
    end = far.ingress("s")
    with end._proposer._changed:  # no answer comes in between: all but one wait
        for offset in range(0, 100, 10):
            end.offer(0, offset, ROWS.slice(0, 10))
    end.flush()
    after, found, _ = one.read(0, timeout_s=30.0)
    numbers = [number for number, _ in found]
    assert len(numbers) == 10
    assert numbers[1:] == list(range(numbers[1], numbers[1] + 9)), "one place"
    assert numbers == sorted(numbers) == [rows.column("sn_batch")[0].as_py() for _, rows in found]
    at, stepwise = 0, []
    while at < after:
        at, some, _ = two.read(at, timeout_s=30.0, max_bytes=1)
        stepwise += some
        assert len(some) <= 1
    assert (at, stepwise) == (after, found)
    for done, number in enumerate(numbers):
        assert two.read(number, timeout_s=30.0)[1] == found[done:]  # any stretch, again
        counting = far.egress("two")
        assert counting.batches(number) == 10 - done
        counting.close()
    contents = list(tmp_path.rglob("*.arrow"))
    two.commit(after)
    one.commit(numbers[5])
    left = list(tmp_path.rglob("*.arrow"))
    assert (len(contents), len(left)) == (10, 9), "the place is passed with its last batch"
    restarted = far.egress("one")
    assert restarted.read(numbers[5], timeout_s=30.0)[1] == found[5:]
    assert restarted.batches(numbers[5]) == 5
    with pytest.raises(Trimmed):
        restarted.read(0, timeout_s=1.0)
    restarted.commit(after)
    assert list(tmp_path.rglob("*.arrow")) == []
    for closing in (one, two, end, restarted):
        closing.close()


@pytest.mark.zookeeper
def test_or7_a_reader_goes_on_while_one_server_after_the_other_dies(tmp_path: Path) -> None:
    batches = range(60)
    with LoopbackEnsemble(tmp_path / "zookeeper") as ensemble, ThreadPoolExecutor() as pool:
        far = Channel(ensemble.hosts, "app", LocalStorage(tmp_path / "contents"))
        reader, end = far.egress("one"), far.ingress("s")

        def read() -> int:
            at = rows = 0
            while rows < len(batches) * ROWS.num_rows:
                at, found, _ = reader.read(at, timeout_s=0.05)
                rows += sum(each.num_rows for _, each in found)
            return rows

        reading = pool.submit(read)
        for n in batches:
            if n % 20 == 0:
                ensemble.kill(n // 20 + 1)
            end.offer(0, n * ROWS.num_rows, ROWS)
            end.flush()
            if n % 20 == 19:
                ensemble.restart(n // 20 + 1)
        assert reading.result(timeout=120) == len(batches) * ROWS.num_rows
        reader.close()
        end.close()
