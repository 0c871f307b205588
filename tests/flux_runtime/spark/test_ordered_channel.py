"""The ordered channel in a real ZooKeeper: one order for all readers, kept until all have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import faults
from flux_runtime.spark.flux.ordered_channel import Channel, ContentMissing
from flux_runtime.zookeeper.tail import Trimmed

ROWS = pa.RecordBatch.from_pydict({"n": list(range(10))})


@pytest.mark.zookeeper
def test_the_channel_drops_replays_and_forgets_what_all_have_read(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    channel = Channel(zookeeper_hosts, f"app-{uuid.uuid4()}", LocalStorage(tmp_path))
    one, two = channel.egress("one"), channel.egress("two")
    end = channel.ingress("s")
    for offset in (0, 10, 0, 5, 20):
        end.offer(offset, ROWS)
    end.flush()
    with pytest.raises(ValueError, match="30 to 39 of s are missing"):
        end.offer(40, ROWS)
    end.close()
    end = channel.ingress("s")  # restarted
    end.offer(20, ROWS)
    end.offer(30, ROWS)
    end.flush()
    after, found = one.read(0, timeout_s=30.0)
    assert sum(rows.num_rows for _, rows in found) == 40
    assert two.read(0, timeout_s=30.0)[1] == found
    assert one.read(found[1][0], timeout_s=30.0)[1] == found[1:]  # any stretch, again
    one.commit(after)
    assert two.read(0, timeout_s=30.0)[1] == found
    two.commit(after)
    assert list(tmp_path.rglob("*.arrow")) == []
    with pytest.raises(Trimmed):
        channel.egress("three").read(0, timeout_s=1.0)
    end.offer(40, ROWS)
    end.flush()
    for file in tmp_path.rglob("*.arrow"):
        file.unlink()
    with pytest.raises(ContentMissing, match="records 40 to 49 of s"):
        one.read(after, content_s=0.2)
    for closing in (one, two, end):
        closing.close()


PASSING = """
import sys
from pathlib import Path
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import faults
from flux_runtime.spark.flux.ordered_channel import Channel
hosts, name, folder, offset = sys.argv[1:]
Channel(hosts, name, LocalStorage(Path(folder))).egress("one").commit(int(offset))
"""


@pytest.mark.zookeeper
def test_a_reader_dies_between_the_contents_and_the_places_that_it_forgets(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    name = f"app-{uuid.uuid4()}"
    channel = Channel(zookeeper_hosts, name, LocalStorage(tmp_path))
    end, reader = channel.ingress("s"), channel.egress("one")
    for offset in (0, 10, 20):
        end.offer(offset, ROWS)
        end.flush()
    after, found = reader.read(0, timeout_s=30.0)
    upto = found[1][0]
    command = [sys.executable, "-c", PASSING, zookeeper_hosts, name, tmp_path, str(upto)]
    run = subprocess.run(command, env={**os.environ, faults.VARIABLE: "contents-deleted"})
    assert run.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    again = channel.egress("one")
    assert again.read(upto, timeout_s=30.0) == (after, found[1:])
    again.commit(upto)
    again.commit(after)
    assert list(tmp_path.rglob("*.arrow")) == []
    with pytest.raises(Trimmed):
        channel.egress("two").read(0, timeout_s=1.0)
    for closing in (again, reader, end):
        closing.close()


@pytest.mark.zookeeper
def test_the_channel_reads_and_forgets_batches_that_share_a_place_one_by_one(
    tmp_path: Path, zookeeper_hosts: str
) -> None:
    channel = Channel(zookeeper_hosts, f"app-{uuid.uuid4()}", LocalStorage(tmp_path))
    one, two = channel.egress("one"), channel.egress("two")
    end = channel.ingress("s")
    with end._proposer._changed:  # no answer comes in between: all but one wait
        for offset in range(0, 100, 10):
            end.offer(offset, ROWS.slice(0, 10))
    end.flush()
    after, found = one.read(0, timeout_s=30.0)
    numbers = [number for number, _ in found]
    assert len(numbers) == 10
    assert numbers[1:] == list(range(numbers[1], numbers[1] + 9)), "one place"
    assert numbers == sorted(numbers) == [rows.column("sn_batch")[0].as_py() for _, rows in found]
    at, stepwise = 0, []
    while at < after:
        at, some = two.read(at, timeout_s=30.0, max_bytes=1)
        stepwise += some
        assert len(some) <= 1
    assert (at, stepwise) == (after, found)
    for done, number in enumerate(numbers):
        assert two.read(number, timeout_s=30.0)[1] == found[done:]  # any stretch, again
        counting = channel.egress("two")
        assert counting.batches(number) == 10 - done
        counting.close()
    contents = list(tmp_path.rglob("*.arrow"))
    two.commit(after)
    one.commit(numbers[5])
    left = list(tmp_path.rglob("*.arrow"))
    assert (len(contents), len(left)) == (10, 9), "the place is passed with its last batch"
    restarted = channel.egress("one")
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
        channel = Channel(ensemble.hosts, "app", LocalStorage(tmp_path / "contents"))
        reader, end = channel.egress("one"), channel.ingress("s")

        def read() -> int:
            at = rows = 0
            while rows < len(batches) * ROWS.num_rows:
                at, found = reader.read(at, timeout_s=0.05)
                rows += sum(each.num_rows for _, each in found)
            return rows

        reading = pool.submit(read)
        for n in batches:
            if n % 20 == 0:
                ensemble.kill(n // 20 + 1)
            end.offer(n * ROWS.num_rows, ROWS)
            end.flush()
            if n % 20 == 19:
                ensemble.restart(n // 20 + 1)
        assert reading.result(timeout=120) == len(batches) * ROWS.num_rows
        reader.close()
        end.close()
