"""StatefulProcessors in Spark's own transformWithState, and unchanged on Flux sites.

    python -m benchmarks.processors_on_spark programs 0 6      random programs, batch by batch
    python -m benchmarks.processors_on_spark kills --kills 20  a job whose sites are killed

`programs` hands the random programs of `flux_lab.processors` to Spark, a file for each batch, and
compares what each file leads to with what a site's operator does. Spark ends a query where a
processor raises, so these programs do not. `kills` compiles a dataflow with the processor of
Spark's documentation (`pyspark.sql.GroupedData.transformWithStateInPandas`; `handleInputRows` got
the third parameter that Spark hands over) and one with timers of event time, kills sites while
files come, and compares all rows with those of Spark's own queries over the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

from flux_lab.processors import CALM, DELAY_MS, CalmFrames, component, drawn_input, observation
from flux_runtime.observe.reader import Tail
from flux_runtime.operators.components import Components
from flux_runtime.operators.processor_handle import TimeMode
from flux_runtime.spark.session import DEFAULTS

PROGRAM: Final = "key BIGINT, op STRING, n BIGINT, at TIMESTAMP"
SEEN: Final = "key BIGINT, op STRING, seen STRING"
BATCHES: Final = 8
WAIT_S: Final = 300.0

PROCESSORS: Final = '''
"""The processor of Spark's documentation, and one with timers of event time."""

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, StructField, StructType

state_schema = StructType([
    StructField("value", IntegerType(), True)
])


class SimpleStatefulProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle):
        self.num_violations_state = handle.getValueState("numViolations", state_schema)

    def handleInputRows(self, key, rows, timerValues):
        new_violations = 0
        count = 0
        exists = self.num_violations_state.exists()
        if exists:
            existing_violations_row = self.num_violations_state.get()
            existing_violations = existing_violations_row[0]
        else:
            existing_violations = 0
        for pdf in rows:
            pdf_count = pdf.count()
            count += pdf_count.get('temperature')
            violations_pdf = pdf.loc[pdf['temperature'] > 100]
            new_violations += violations_pdf.count().get('temperature')
        updated_violations = new_violations + existing_violations
        self.num_violations_state.update((updated_violations,))
        yield pd.DataFrame({'id': key, 'count': count})

    def close(self) -> None:
        pass


class Silence(StatefulProcessor):
    """Says when nothing has been heard of an id for 3 s, and what was heard before."""

    def init(self, handle):
        self.handle = handle
        self.heard = handle.getListState("heard", "temperature INT")
        self.last = handle.getMapState("last", "name STRING", "ms BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            self.heard.appendValue((row.temperature,))
            ms = max(int(row.at.timestamp() * 1000), (self.last.getValue(("ms",)) or (0,))[0])
            self.last.updateValue(("ms",), (ms,))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(ms + 3000)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        heard = [temperature for temperature, in self.heard.get()]
        self.heard.clear()
        yield Row(id=key[0], since=expiredTimerInfo.getExpiryTimeInMs(), heard=sum(heard))
'''

FLOW: Final = """
name: processors
deployment: {keep_every: 5}
components:
  Violations:
    availability: pairs
    processor: {class: "violations:SimpleStatefulProcessor", key: [id], takes: pandas}
  Silence:
    availability: pairs
    processor: {class: "violations:Silence", key: [id], time: {event: at, delay: 1 second}}
streams:
  temperatures:
    to: Violations.readings
    schema: {id: STRING, temperature: INT, at: TIMESTAMP}
    source: {format: json, path: data, options: {maxFilesPerTrigger: 1}}
  again:
    to: Silence.readings
    schema: {id: STRING, temperature: INT, at: TIMESTAMP}
    source: {format: json, path: data, options: {maxFilesPerTrigger: 1}}
  counts:
    from: Violations.counts
    schema: {id: STRING, count: BIGINT}
    sink: {format: json, path: counts}
  silences:
    from: Silence.silences
    schema: {id: STRING, since: BIGINT, heard: BIGINT}
    sink: {format: json, path: silences}
"""
READING: Final = "id STRING, temperature INT, at TIMESTAMP"


def session() -> SparkSession:
    """Spark as jobs have it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("processors")
    conf = {
        **DEFAULTS,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def streamed(
    spark: SparkSession,
    folder: Path,
    files: Sequence[Sequence[Mapping[str, Any]]],
    *,
    schema: str,
    query: Callable[[DataFrame], DataFrame],
) -> list[list[Any]]:
    """What Spark puts out after each file, with the batch without data that follows it."""
    put: list[Any] = []
    source = folder / "in"
    source.mkdir(parents=True)
    frame = query(spark.readStream.schema(schema).json(str(source)))
    running = (
        frame.writeStream.foreachBatch(lambda rows, _: put.extend(rows.collect()))
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    after = []
    for n, rows in enumerate(files):
        write(source, n, rows)
        running.processAllAvailable()
        after.append(list(put))
        put.clear()
    running.stop()
    return after


def write(folder: Path, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file that is there at once."""
    hidden = folder / f".{number:05d}.json"
    hidden.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in rows))
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(folder / hidden.name[1:])


# ---- random programs


def program(spark: SparkSession, folder: Path, seed: int) -> int:
    """Compare one program; gives how many rows were the same.

    Raises:
        AssertionError: Spark and the site's operator differ.
    """
    rng = random.Random(seed)
    kind = sorted(CALM)[seed % len(CALM)]
    made = CALM[kind]
    source = drawn_input(rng, kind, BATCHES)
    flow = Components(stages=(component(kind, 2),))()
    seen = observation(flow, source)
    event = made.time is TimeMode.EVENT

    def query(frame: DataFrame) -> DataFrame:
        if event:
            frame = frame.withWatermark("at", f"{DELAY_MS} milliseconds")
        grouped = frame.groupBy("key")
        run = (
            grouped.transformWithStateInPandas
            if issubclass(made, CalmFrames)
            else grouped.transformWithState
        )
        return run(made(), SEEN, "Update", "EventTime" if event else "None")

    files = [
        [{name: row[name] for name in ("key", "op", "n", "at")} for row in batch.to_pylist()]
        for batch in source
    ]
    after = streamed(spark, folder, files, schema=PROGRAM, query=query)
    same = 0
    for n, rows in enumerate(after):
        by_key: dict[int, list[tuple[str, str]]] = {}
        for row in rows:
            by_key.setdefault(row.key, []).append((row.op, row.seen))
        due = {key: put for (batch, key), put in seen.rows.items() if batch == n}
        if by_key != due:
            raise AssertionError(f"seed {seed}, {kind}, batch {n}: {due} instead of {by_key}")
        same += len(rows)
    return same


def programs(first: int, last: int) -> int:
    """Compare the programs of some seeds."""
    spark, failed, same = session(), 0, 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for seed in range(first, last):
            try:
                same += program(spark, Path(folder) / str(seed), seed)
            except AssertionError as differ:
                failed += 1
                print(differ)
    spark.stop()
    print(f"{last - first} programs: {same} rows as Spark puts them out, {failed} programs differ")
    return 1 if failed else 0


# ---- a job whose sites are killed


class KilledJob:
    """A compiled job in a process of its own, and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir(parents=True)
        (folder / "violations.py").write_text(PROCESSORS)
        (folder / "flow.yaml").write_text(FLOW)
        self._command("compile", "flow.yaml")
        self.files: list[list[dict[str, Any]]] = []
        self.job = folder / "target" / "processors"

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "blazes", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def more(self) -> None:
        """One more file, of one second: readings of three of ten ids, which change in time."""
        n = len(self.files)
        rng = random.Random(n)
        rows = [
            {
                "id": f"s{(n // 3 + rng.randrange(3)) % 10}",
                "temperature": rng.randrange(60, 140),
                "at": f"2024-01-01T00:{n // 60:02d}:{n % 60:02d}.{rng.randrange(1000):03d}Z",
            }
            for _ in range(12)
        ]
        self.files.append(rows)
        write(self.folder / "data", n, rows)

    def start(self) -> subprocess.Popen[bytes]:
        """Run until it is stopped."""
        with (self.folder / "said.txt").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "job.py"], cwd=self.job, stdout=said, stderr=said
            )

    def rows(self, sink: str) -> Counter[tuple[Any, ...]]:
        """What was put out, and how often."""
        files = (self.folder / sink).glob("*/*.json")
        return Counter(
            tuple(json.loads(line).values())
            for file in files
            for line in file.read_text().splitlines()
        )

    def events(self, kind: str) -> int:
        """How often something happened."""
        noted = Tail(self.job / "runs" / "latest" / "events.jsonl").records()
        return sum(event["kind"] == kind for event in noted)

    def sites(self) -> dict[Path, int]:
        """Where a site's process id stands -> the process id."""
        seats = self.job.glob("state/units/*/sites/*/seats/*/*")
        return {seat: int(text) for seat in seats if (text := seat.read_text())}


def kills(number: int, folder: Path) -> int:
    """Kill sites while files come, and compare with Spark."""
    job = KilledJob(folder)
    running = job.start()

    def until(condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            if running.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{what}: {(folder / 'said.txt').read_text()[-3000:]}")
            time.sleep(0.2)

    def counted() -> bool:
        return sum(n * row[1] for row, n in job.rows("counts").items()) >= 12 * len(job.files)

    killed = begun = 0
    try:
        job.more()
        until(counted, "the first file")
        while killed < number:
            if killed and killed == number // 2:
                begun += job.events("sites_begin_again")
                stop(running)
                running = job.start()
                job.more()
                until(counted, "the file after the restart")
                until(lambda: job.events("site_joined") >= 6, "all sites")
            before = job.sites()
            seat = sorted(before)[killed % len(before)]
            joined = job.events("site_joined")
            os.kill(before[seat], signal.SIGKILL)
            killed += 1
            job.more()
            until(counted, f"the file after kill {killed}")
            until(lambda joined=joined: job.events("site_joined") > joined, "another site")
            job.more()
            until(counted, f"the second file after kill {killed}")
        stop(running)
    finally:
        if running.poll() is None:
            running.kill()
    begun += job.events("sites_begin_again")
    status = _compared(job, folder)
    print(f"{killed} sites killed, the job stopped and started once, {begun} times begun again")
    return status


def stop(running: subprocess.Popen[bytes]) -> None:
    """Have a job come to its end."""
    running.send_signal(signal.SIGTERM)
    running.wait(WAIT_S)


def _compared(job: KilledJob, folder: Path) -> int:
    sys.path.insert(0, str(folder))
    import violations  # type: ignore[import-not-found]

    register_pickle_by_value(violations)  # Spark's workers do not find it
    spark = session()
    counts = streamed(
        spark,
        folder / "spark-counts",
        job.files,
        schema=READING,
        query=lambda frame: frame.groupBy("id").transformWithStateInPandas(
            violations.SimpleStatefulProcessor(), "id STRING, count BIGINT", "Update", "None"
        ),
    )
    silences = streamed(
        spark,
        folder / "spark-silences",
        job.files,
        schema=READING,
        query=lambda frame: (
            frame.withWatermark("at", "1 second")
            .groupBy("id")
            .transformWithState(
                violations.Silence(), "id STRING, since BIGINT, heard BIGINT", "Update", "EventTime"
            )
        ),
    )
    spark.stop()
    failed = 0
    for sink, after in (("counts", counts), ("silences", silences)):
        due = Counter(tuple(row) for rows in after for row in rows)
        seen = job.rows(sink)
        failed += seen != due or not due
        print(f"{sink}: {seen.total()} rows, {'as' if seen == due else 'other than'} Spark's")
        if seen != due:
            print(f"  missing {due - seen}\n  too many {seen - due}")
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processors_on_spark")
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("programs")
    compare.add_argument("first", type=int, help="the first seed")
    compare.add_argument("last", type=int, help="the seed after the last")
    soak = commands.add_parser("kills")
    soak.add_argument("--kills", type=int, default=20)
    soak.add_argument("--keep", type=Path, help="folder for the job; a temporary one without")
    arguments = parser.parse_args(argv)
    if arguments.command == "programs":
        return programs(arguments.first, arguments.last)
    if arguments.keep is not None:
        return kills(arguments.kills, arguments.keep)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return kills(arguments.kills, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
