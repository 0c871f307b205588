"""The session job as people write it for Spark Structured Streaming, to compare Flux with.

Spark refuses a second `applyInPandasWithState` behind the first, so one does both, grouped by
(app, src): that saves it the exchange between the two. The input is the packets of
examples/sessions, as parquet files that arrive while the query runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples" / "sessions"))

from packets import packets  # noqa: E402

PACKET = "src BIGINT, dst BIGINT, app BIGINT, time BIGINT, last BOOLEAN"
STATISTICS = "app BIGINT, src BIGINT, ended BIGINT, max_duration DOUBLE, avg_duration DOUBLE"
STATE = "open STRING, held BIGINT"
"""Arrays would be natural, but pyspark 4.3.0 cannot read them back (KeyError: elementType)."""


def statistics(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Longest and mean duration of every two sessions of an app and source."""
    app, src = key
    rows = pd.concat(frames).sort_values("time")
    known, held = state.get if state.exists else ("{}", None)
    open_ = {int(dst): began for dst, began in json.loads(known).items()}
    found = []
    for dst, time_, last in zip(rows.dst, rows.time, rows["last"], strict=True):
        if not last:
            open_[dst] = time_
        elif dst in open_:
            duration = time_ - open_.pop(dst)
            if held is None:
                held = duration
            else:
                longest, mean = float(max(held, duration)), (held + duration) / 2
                found.append((app, src, time_, longest, mean))
                held = None
    state.update((json.dumps({int(dst): int(t) for dst, t in open_.items()}), held and int(held)))
    names = ["app", "src", "ended", "max_duration", "avg_duration"]
    yield pd.DataFrame(found, columns=names)


def session(master: str, partitions: int) -> Any:
    """Spark, with the settings that people tune such a job with."""
    from pyspark.sql import SparkSession

    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for the Python workers
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("sessions")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.executor.memory": "1g",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def query(spark: Any, folder: Path, each: Any) -> Any:
    """The job over the files in `folder`/in; `each(frame, batch)` takes the results."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    (folder / "in").mkdir(parents=True, exist_ok=True)
    arriving = spark.readStream.schema(PACKET).parquet(str(folder / "in"))
    found = arriving.groupBy("app", "src").applyInPandasWithState(
        statistics, STATISTICS, STATE, "append", GroupStateTimeout.NoTimeout
    )
    return (
        found.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(each)
        .start()
    )


class Files(threading.Thread):
    """Lets files of packets arrive at a steady pace until it is stopped.

    Each is younger than the one before, also where several are late and come at once, so that Spark
    takes them in order.

    Args:
        folder: for the files.
        rows: packets of a batch.
        every: batches of a file.
        pace_s: time from one file to the next.
        pairs: pairs of hosts.
    """

    def __init__(self, folder: Path, rows: int, every: int, pace_s: float, pairs: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.rows, self.every = folder, rows, every
        self.pace_s, self.pairs = pace_s, pairs
        self.batches = 0
        self.enough = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """One after the other."""
        began, wall = time.monotonic(), time.time()
        stream = packets(self.rows, pairs=self.pairs)
        while not self.enough.is_set():
            number = self.batches // self.every
            time.sleep(max(0.0, began + number * self.pace_s - time.monotonic()))
            table = pa.Table.from_batches(islice(stream, self.every))
            temporary = self.folder / f".{number:06d}"
            pq.write_table(table, temporary)
            os.utime(temporary, (wall + number * self.pace_s,) * 2)
            temporary.rename(self.folder / f"{number:06d}.parquet")
            self.batches += self.every


def executors(app: str) -> list[int]:
    """Processes of the executors of an application of local-cluster mode."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and app.encode() in command:
                found.append(int(process.name))
    return sorted(found)


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)
