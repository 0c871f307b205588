"""Kafka in, sealed, Kafka out, beside the same job by hand.

    python benchmarks/kafka_throughput.py [--turns 3] [--messages 200000]

The same messages (batch, key, value as JSON, in three partitions of a topic) are counted and summed
by batch and key. The compiled job waits for whole batches and sends each result once. By hand it is
what people write: `groupBy` in update mode with Spark's state, and a `foreachBatch` that sends what
has changed in a transaction of a producer. Both read through the same source, without Spark's jar,
in micro-batches of the same size, in `local[2]`, each in a process of its own, in turns. What both
have sent is compared with the truth: of the compiled job every row, of the other one the last row
of each key. Prints seconds of the queries, and of the processor, medians. Exit status 1 if a result
is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from annotations.file import loads  # noqa: E402
from benchmarks.measured_job import Cpu, run  # noqa: E402
from benchmarks.sink_servers import committed_messages, kafka_broker, make_topic  # noqa: E402
from blazes.analysis import analyze  # noqa: E402
from blazes.coordination import plan  # noqa: E402
from blazes.report.json_result import to_json  # noqa: E402
from codegen.project import write  # noqa: E402
from codegen.stages import stages  # noqa: E402

SCHEMA: Final[Mapping[str, str]] = {
    "batch": "INT", "k": "INT", "v": "BIGINT", "closes": "BIGINT"
}  # fmt: skip
PARTITIONS: Final = 3
BATCHES: Final = 10
MASTER: Final = "local[2]"
TOPIC: Final = "in"

Truth = dict[tuple[int, int], tuple[int, int]]
"""(batch, key) -> how many values, and their sum."""


@dataclass(frozen=True)
class Turn:
    """One run of one of the two."""

    seconds: float
    """Of its queries."""
    cpu_s: float
    """Of all its processes in that time."""
    messages: int
    """That it has sent."""
    right: bool


def filled(broker: str, messages: int, keys: int) -> Truth:
    """Send the messages, each batch followed by its punctuation; what must come out."""
    from confluent_kafka import Producer

    rng = random.Random(1)
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 50})
    truth: Truth = {}
    for batch in range(BATCHES):
        size = messages // BATCHES
        for number in range(size):
            k, v = rng.randrange(keys), rng.randrange(1000)
            n, s = truth.get((batch, k), (0, 0))
            truth[batch, k] = (n + 1, s + v)
            value = json.dumps({"batch": batch, "k": k, "v": v}).encode()
            producer.produce(TOPIC, value, partition=number % PARTITIONS)
            if number % 1000 == 0:
                producer.flush(60)
        producer.produce(TOPIC, json.dumps({"batch": batch, "closes": size}).encode())
    producer.flush(60)
    return truth


def options(broker: str, messages: int) -> dict[str, str]:
    """Of the source, for both."""
    return {
        "kafka.bootstrap.servers": broker,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(messages // 5),
    }


def compiled(folder: Path, broker: str, messages: int, out: str, truth: Truth) -> Turn:
    """The compiled job."""
    text = {
        "name": out,
        "components": {
            "Sum": {
                "sql": "SELECT batch, k, count(*) AS n, sum(v) AS s FROM items GROUP BY batch, k"
            }
        },
        "streams": {
            "items": {
                "to": "Sum.items",
                "schema": dict(SCHEMA),
                "source": {
                    "format": "kafka",
                    "value": "json",
                    "options": options(broker, messages),
                },
                "delivery": "once",
                "seal": ["batch"],
                "punctuation": {"when": "closes IS NOT NULL", "count": "closes"},
                "producers": "one",
            },
            "sums": {
                "from": "Sum.sums",
                "delivery": "once",
                "sink": {
                    "format": "kafka",
                    "options": {"kafka.bootstrap.servers": broker, "topic": out},
                },
            },
        },
    }
    dataflow, _ = loads(json.dumps(text))
    decided = plan(analyze(dataflow))
    project = write(stages(decided), folder / out, analysis=to_json(decided))
    measured = run(project, folder, MASTER)
    sent = [json.loads(value) for value in committed_messages(broker, out)]
    rows = Counter((row["batch"], row["k"], row["n"], row["s"]) for row in sent)
    right = rows == Counter((*key, *sums) for key, sums in truth.items())
    return Turn(measured.seconds, measured.cpu_s, len(sent), right)


def by_hand(folder: Path, broker: str, messages: int, out: str, truth: Truth) -> Turn:
    """The same by hand, in a process of its own."""
    command = [sys.executable, __file__, "--by-hand", json.dumps([broker, messages, out])]
    job = subprocess.Popen(
        [*command, "--folder", str(folder / out)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    with Cpu(job.pid) as cpu:
        said, _ = job.communicate()
    if job.returncode:
        sys.exit("the job by hand failed")
    begun, ended = json.loads(said.splitlines()[-1])
    sent = [json.loads(value) for value in committed_messages(broker, out)]
    last: Truth = {}
    for row in sent:
        key = (row["batch"], row["k"])
        last[key] = max(last.get(key, (0, 0)), (row["n"], row["s"]))
    return Turn(ended - begun, round(cpu.between(begun, ended)[0], 1), len(sent), last == truth)


def hand_written(broker: str, messages: int, out: str, folder: Path) -> None:
    """The job by hand; prints when its query began and ended."""
    from confluent_kafka import Producer
    from pyspark.sql import functions as f

    from flux_runtime.spark.ends.kafka_source import FORMAT, KafkaSource
    from flux_runtime.spark.session import start_session

    folder.mkdir()
    session = start_session(out, master=MASTER, conf={}, log=folder / "log.txt")
    session.dataSource.register(KafkaSource)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": out, "linger.ms": 50})
    producer.init_transactions(60)

    def send(rows: Any, _: int) -> None:
        producer.begin_transaction()
        for row in rows.select(f.to_json(f.struct("*")).alias("value")).toLocalIterator():
            producer.produce(out, row.value.encode())
            producer.poll(0)
        producer.commit_transaction(60)

    ddl = ", ".join(f"{name} {type}" for name, type in SCHEMA.items())
    records = (
        session.readStream.format(FORMAT)
        .options(**options(broker, messages))
        .load()
        .select(f.from_json(f.col("value").cast("string"), ddl).alias("r"))
        .select("r.*")
        .where("closes IS NULL")
    )
    sums = records.groupBy("batch", "k").agg(f.count("*").alias("n"), f.sum("v").alias("s"))
    begun = time.time()
    query = (
        sums.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(send)
        .start()
    )
    query.awaitTermination()
    print(json.dumps([begun, time.time()]), flush=True)
    session.stop()


def main() -> int:
    """Measure in turns, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=500, help="of a batch")
    parser.add_argument("--by-hand", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.by_hand:
        hand_written(*json.loads(args.by_hand), args.folder)
        return 0
    ways = {"by hand": by_hand, "compiled": compiled}
    turns: dict[str, list[Turn]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "broker") as broker:
        make_topic(broker, TOPIC, PARTITIONS)
        truth = filled(broker, args.messages, args.keys)
        for turn in range(args.turns):
            for way, measure in ways.items():
                out = f"{way.replace(' ', '-')}-{turn}"
                make_topic(broker, out, PARTITIONS)
                turns[way].append(measure(Path(name), broker, args.messages, out, truth))
                print(f"{way:9} {turns[way][-1]}", file=sys.stderr, flush=True)
    medians = {}
    for way, measured in turns.items():
        seconds = statistics.median(turn.seconds for turn in measured)
        cpu_s = statistics.median(turn.cpu_s for turn in measured)
        medians[way] = (seconds, cpu_s)
        wrong = sum(not turn.right for turn in measured)
        print(
            f"{way:9} {args.messages / seconds:9,.0f} messages/s, {seconds:6.1f} s, of the "
            f"processor {cpu_s:6.1f} s; {measured[-1].messages:,} sent; "
            f"{'results right' if not wrong else f'{wrong} results WRONG'}"
        )
    by_seconds, by_cpu = (medians["by hand"][at] / medians["compiled"][at] for at in (0, 1))
    print(f"compiled / by hand: throughput {by_seconds:.2f}, per second of processor {by_cpu:.2f}")
    return int(any(not turn.right for measured in turns.values() for turn in measured))


if __name__ == "__main__":
    sys.exit(main())
