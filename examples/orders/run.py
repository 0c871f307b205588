"""Settle orders and payments out of Kafka, kill the driver again and again, and compare.

    python run.py                  start a broker, run the job, kill it ten times
    python run.py --kills 3 --seed 7

Starts a Kafka broker (`noida-db`) in data/broker, makes the topics, compiles the job, and starts
its driver with a part of the messages sent. The driver is killed with SIGKILL, by itself or
together with its JVM, after so many steps as the seed says: a micro-batch that begins or ends, a
commit, an entry in the table's log. Then more is sent, and it starts again. The last driver reads
what is left and ends. Regions give up a transaction now and then, whose orders nobody may see. In
the end the table and the topic are compared with what the messages say, and the dead letters with
what cannot be read.

Exit status: 0 where all of them are right; else 1.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

import expected  # noqa: E402
import generate  # noqa: E402

from benchmarks.sink_servers import kafka_broker, make_topic  # noqa: E402

PROJECT = HERE / "target" / "orders"
LOG = HERE / "data" / "driver.log"
PARTITIONS = 3
ATTEMPTS = 3
"""How often the last driver is started: a busy machine can exceed Spark's limits of time."""
STEPS = 12
"""A driver is killed after less steps than that."""
IDLE_S = 20.0
"""Or when it has taken none for so long."""
STARTS_S = 300.0
"""And so long its first one is waited for."""


def send(broker: str, messages: Sequence[dict[str, str]], rng: random.Random) -> None:
    """Send messages: of a region in a transaction, of a gateway one by one."""
    from confluent_kafka import Producer

    for sender in sorted({message["sender"] for message in messages}):
        own = [message for message in messages if message["sender"] == sender]
        settings = {"bootstrap.servers": broker, "linger.ms": 20}
        if sender not in generate.REGIONS:
            producer = Producer(settings)
            produce(producer, own)
            producer.flush(60)
            continue
        producer = Producer({**settings, "transactional.id": f"region {sender}"})
        producer.init_transactions(60)
        for commits in (False, True) if rng.random() < 0.5 else (True,):
            producer.begin_transaction()
            produce(producer, own)
            (producer.commit_transaction if commits else producer.abort_transaction)(60)


def produce(producer: Any, messages: Sequence[dict[str, str]]) -> None:
    """Hand messages to a producer; those of an order, a shop or a day may be in any partition."""
    for message in messages:
        headers = [("sender", message["sender"].encode())]
        producer.produce(message["topic"], message["value"].encode(), headers=headers)


class Driver:
    """A process that runs the job, and its JVM."""

    def __init__(self, broker: str, *arguments: str) -> None:
        with LOG.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROJECT / "job.py"), *arguments],
                env={**os.environ, "KAFKA_BROKERS": broker},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def take(self, number: int) -> int:
        """Wait until it has taken so many steps, takes no more, or ends; how many it has taken."""
        before, taken, deadline = steps(), 0, time.monotonic() + STARTS_S
        while taken < number and time.monotonic() < deadline:
            if self.process.poll() is not None:
                print(f"the driver ended by itself, with {self.process.returncode}; see {LOG}")
                break
            time.sleep(0.02)
            if (now := steps() - before) != taken:
                taken, deadline = now, time.monotonic() + IDLE_S
        return taken

    def kill(self, *, alone: bool) -> None:
        """SIGKILL to the driver, or to all that belongs to it; all of it has ended afterwards."""
        if alone:
            self.process.kill()  # its JVM ends when it notices
            time.sleep(0.5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def steps() -> int:
    """What the job has left on the disk so far: micro-batches, commits, entries of the table."""
    places = (
        (PROJECT / "state", "units/*/checkpoint/*/offsets/[0-9]*"),
        (PROJECT / "state", "units/*/checkpoint/*/commits/[0-9]*"),
        (PROJECT / "state", "channels/*/*/_commit"),
        (expected.TABLE, "_delta_log/*.json"),
    )
    return sum(1 for folder, pattern in places for _ in folder.glob(pattern))


def main() -> int:
    """Run, kill, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shops", type=int, default=6)
    parser.add_argument("--days", type=int, default=12)
    parser.add_argument("--orders", type=int, default=30)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for folder in (HERE / "data", PROJECT):
        shutil.rmtree(folder, ignore_errors=True)
    expected.MESSAGES.parent.mkdir()
    messages = [*generate.messages(options.seed, options.shops, options.days, options.orders)]
    expected.MESSAGES.write_text("".join(json.dumps(message) + "\n" for message in messages))
    subprocess.run(
        [sys.executable, "-m", "blazes", "compile", "orders.yaml"],
        cwd=HERE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    with kafka_broker(HERE / "data" / "broker") as broker:
        for topic in ("orders", "payments", expected.TOPIC):
            make_topic(broker, topic, PARTITIONS)
        share = -(-len(messages) // (options.kills + 1))
        for kill in range(options.kills):
            send(broker, messages[kill * share : (kill + 1) * share], rng)
            driver, alone = Driver(broker), rng.random() < 0.5
            taken = driver.take(rng.randrange(STEPS))
            time.sleep(rng.uniform(0, 0.3))
            driver.kill(alone=alone)
            what = "driver" if alone else "driver and JVM"
            print(f"kill {kill + 1}: {what}, after {taken} steps", flush=True)
        send(broker, messages[options.kills * share :], rng)
        for _ in range(ATTEMPTS):
            if not (status := Driver(broker, "--available-now").process.wait()):
                break
            print(f"the last driver ended with {status}, and is started again; see {LOG}")
        return 0 if expected.check(broker) else 1


if __name__ == "__main__":
    sys.exit(main())
