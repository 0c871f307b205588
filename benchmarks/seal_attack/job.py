"""The job that is attacked: four sealed units, a channel between two of them, requests.

Its process takes commands as lines of JSON on standard input, runs the job through the usual entry
point on what there is, and answers with a line of JSON. So many runs share one process, until one
of them is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.seal_attack.plants import plant
from flux_runtime.spark import Job, Producers, Punctuation, faults, sql
from flux_runtime.spark.ends import retention
from flux_runtime.spark.sealed import gate

ITEMS = "rid BIGINT, k STRING, v BIGINT, p STRING, sealed BOOLEAN, n BIGINT"
WORKS = "g STRING, d DATE, v BIGINT, p STRING, sealed BOOLEAN, n BIGINT"
ASKS = "ask BIGINT, k STRING"
FILES = "SEAL_FAULTS_FILES"
"""Environment variable: files in a micro-batch."""
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings with which a job that is killed all the time gets going sooner."""
MEMBERS = "members.json"
"""Beside the job: the producers of every partition of `items`."""
CHANGED = "changed.json"
"""Beside the job: what its file says now that it did not say at first; see `CHANGES`."""
CHANGES = (
    {"remember_s": 1e9},
    {"remember_s": None},
    {"beside": "asks"},
    {"key": ["g"]},
    {"day": "STRING"},
    {"id": []},
    {"waits": "late"},
)
"""Changes of the file. Some can go on, others have to be refused; those stay out of the job."""


def clean(item: DataFrame) -> DataFrame:
    return sql("SELECT k, v FROM item", item=item)


def answer(record: DataFrame, ask: DataFrame) -> DataFrame:
    return sql(
        "SELECT a.ask, a.k, count(*) AS c, sum(r.v) AS s FROM ask a JOIN record r ON a.k = r.k"
        " GROUP BY a.ask, a.k",
        record=record,
        ask=ask,
    )


def work(work: DataFrame) -> DataFrame:
    return sql("SELECT g, d, v FROM work", work=work)


def total(work: DataFrame) -> DataFrame:
    return sql("SELECT g, d, count(*) AS c, sum(v) AS s FROM work GROUP BY g, d", work=work)


def first(work: DataFrame) -> DataFrame:
    return sql(
        "SELECT g, d, __producer, __count, count(*) AS __rows, count(*) AS c1, sum(v) AS s1"
        " FROM work GROUP BY g, d, __producer, __count",
        work=work,
    )


def second(work: DataFrame) -> DataFrame:
    return sql("SELECT g, d, sum(c1) AS c, sum(s1) AS s FROM work GROUP BY g, d", work=work)


def build(job: Job) -> None:
    """Two gates and a channel, requests, ids, registered producers, partial aggregates."""
    changed = json.loads((job.root / CHANGED).read_text())
    remembered = changed.get("remember_s")
    files = {"maxFilesPerTrigger": os.environ.get(FILES, "2")}
    mark = Punctuation(when="sealed", count="n")
    items = job.source(
        "items",
        format="parquet",
        path="data/items",
        options=files,
        schema=ITEMS,
        producer="p",
        punctuation=mark,
        id=tuple(changed.get("id", ["rid"])),
    )
    works = job.source(
        "works",
        format="json",
        path="data/works",
        options=files,
        schema=WORKS.replace("DATE", changed.get("day", "DATE")),
        producer="p",
        punctuation=mark,
    )
    waits = [works]
    if changed.get("waits"):
        waits.append(
            job.source(
                "late",
                format="json",
                path="data/late",
                schema=WORKS,
                producer="p",
                punctuation=mark,
            )
        )
    asks = job.source("asks", format="json", path="data/asks", options=files, schema=ASKS)
    members = json.loads((job.root / MEMBERS).read_text())
    cleaned = job.seal(
        "Clean",
        clean,
        waits={"item": [items]},
        key=("k",),
        producers={"items": Producers.all(members)},
        forward=("k",),
        remember_s=remembered,
    )
    answers = job.seal(
        "Answer", answer, waits={"record": [cleaned]}, reads={"ask": [asks]}, key=("k",)
    )
    registered = {"works": Producers.registered("works", registrations=job.root / "who.json")}
    key = tuple(changed.get("key", ["g", "d"]))
    worked = job.seal(
        "Work",
        work,
        waits={"work": waits},
        key=key,
        producers=registered if len(waits) == 1 else {**registered, "late": Producers.all(members)},
        remember_s=remembered,
    )
    sums = job.seal(
        "Sums",
        total,
        waits={"work": [works]},
        key=key,
        producers=registered,
        partial=(first, second),
        remember_s=remembered,
    )
    if changed.get("beside"):
        job.sink(
            "beside",
            [job.seal("Beside", work, waits={"work": [works]}, key=key, producers=registered)],
        )
    job.sink("records", [cleaned])
    job.sink("answers", [answers])
    job.sink("worked", [worked])
    job.sink("sums", [sums])


def serve(folder: Path) -> None:
    """Run the job as often as it is asked to."""
    from flux_runtime.spark.main import main

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    plant()
    gate.SPARSE_CHUNKS = 2  # type: ignore[misc] # so that chunks are compacted often
    retention.TOGETHER = 2  # type: ignore[misc] # so that a channel is emptied often
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is said goes to the log
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        os.environ[FILES] = str(command["files"])
        os.environ.pop(faults.VARIABLE, None)
        if command["crash_at"]:
            os.environ[faults.VARIABLE] = command["crash_at"]
        faults._passed.clear()
        status, said, seconds = _run(main, folder, command["arguments"])
        answers.write(json.dumps({"status": status, "said": said, "seconds": seconds}) + "\n")
        answers.flush()


def _run(main: Any, folder: Path, arguments: Sequence[str]) -> tuple[int, str, float]:
    began = time.monotonic()
    said = io.StringIO()
    status = 0
    try:
        with contextlib.redirect_stderr(said):
            argv = ["--root", str(folder), *arguments]
            main(build, name="attacked", folder=folder, conf=QUICK, argv=argv)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, said.getvalue(), time.monotonic() - began


if __name__ == "__main__":
    serve(Path(sys.argv[1]).resolve())
