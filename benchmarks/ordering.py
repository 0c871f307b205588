"""Throughput of ordering: per batch, per message, and without coordination, side by side.

    python benchmarks/ordering.py [--runs 3] [--work window|sum] [--batch 8192 65536 262144]

Producers in processes of their own send Arrow batches to two replicas, also in processes of their
own. In the product's way the batches go through the ordered channel of a Flux stage: contents in
files, one order in ZooKeeper (an embedded server), read by every replica. Without coordination they
go over sockets on loopback, and a replica takes what comes as it comes. Message by message has one
znode per record (OR-9), and its contents without cost. With `window` a replica does what a site
does with records: of each of 1,000 groups it aggregates the last 16, every 16 (order-sensitive);
with `sum` it adds them up, which costs next to nothing. What ordering costs depends on the size of
a batch, so it is measured for several. Prints records per second, medians, and in how many runs
both replicas came to the same results; it fails if ordered ones did not.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import multiprocessing as mp
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client as Dial
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flux_runtime.operators.rows import SN, number
from flux_runtime.operators.window import CountWindow
from flux_runtime.ordering.places import Order, counting, decode
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.ordering.scope import Scope
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.flux.ordered_channel import Channel
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.tail import Reader

GROUPS = 1000
WINDOW = 16
REPLICAS = 2
AIM_MESSAGE, AIM_FREE = 10.0, 0.7


@dataclass(frozen=True)
class Way:
    """One run: how records get to the replicas, and where."""

    mode: str
    hosts: str
    app: str
    folder: str
    producers: int

    @property
    def sockets(self) -> list[str]:
        """One of each replica."""
        return [f"{self.folder}/{number}" for number in range(REPLICAS)]

    def channel(self) -> Channel:
        """The order, with the contents in files."""
        return Channel(self.hosts, self.app, LocalStorage(Path(self.folder, "contents")))


Work = Callable[[Any], bytes]
"""Takes records; gives what follows from them."""


def adding() -> Work:
    """A sum for each group."""
    sums = np.zeros(GROUPS)

    def work(rows: Any) -> bytes:
        keys, values = rows.column("key").to_numpy(), rows.column("value").to_numpy()
        sums[:] += np.bincount(keys, values, GROUPS)
        return b""

    return work


def windows() -> Work:
    """The sum of the last records of each group, again and again."""
    operator = CountWindow(["key"], "value", ["sum"], history=WINDOW, slide=WINDOW)
    numbers = itertools.count()

    def work(rows: Any) -> bytes:
        results = operator.process(number(rows, next(numbers)))
        found: bytes = results.column("sum_value").to_numpy().tobytes()
        return found

    return work


WORKS = {"window": (windows, 6_000_000), "sum": (adding, 24_000_000)}
"""With how many records of each producer: a run that is shorter than seconds measures its start."""


def batch_of(rows: int, name: str) -> Any:
    """The batch that a producer sends again and again."""
    draw = np.random.default_rng(int(name[1:]))
    return pa.RecordBatch.from_pydict(
        {"key": draw.integers(0, GROUPS, rows), "value": draw.integers(0, 100, rows)}
    )


def encoded(batch: Any) -> bytes:
    """A batch as Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def produce(way: Way, name: str, rows: int, size: int, ready: Any, go: Any) -> None:
    """Send all batches of a producer; `ready` is told when it could begin, `go` waited for."""
    batch = batch_of(size, name)
    if way.mode == "batch":
        end = way.channel().ingress(name)
        ready.release()
        go.wait()
        for first in range(0, rows, size):
            end.offer(first, batch)
        end.flush()
        end.close()
    elif way.mode == "message":
        with connect(way.hosts) as client:
            each = {"in_flight_max": 64, "group_max": 1, "timeout_s": 300.0}
            proposer = Proposer(client, way.app, name, **each)
            ready.release()
            go.wait()
            for first in range(rows):
                proposer.propose(first, first)
            proposer.wait()
            proposer.close()
    else:
        to = [Dial(path, family="AF_UNIX") for path in way.sockets]
        data = encoded(batch)
        ready.release()
        go.wait()
        for _ in range(0, rows, size):
            for replica in to:
                replica.send_bytes(data)


def consume(way: Way, name: str, kind: str, total: int, size: int, ready: Any, done: Any) -> None:
    """Process all records as one replica; put the time, how many, and a digest of the results.

    With an order, how every batch begins is in the digest too: `sum` gives nothing in between.
    """
    work, digest, processed = WORKS[kind][0](), hashlib.sha256(), 0
    for rows in {"batch": ordered, "message": messages, "uncoordinated": received}[way.mode](
        way, name, size, ready
    ):
        digest.update(work(rows))
        if way.mode != "uncoordinated":
            digest.update(str(rows.slice(0, 8).to_pydict()).encode())
        processed += rows.num_rows
        if processed >= total:
            break
    done.put((time.monotonic(), processed, digest.hexdigest()))


def ordered(way: Way, name: str, _size: int, ready: Any) -> Iterator[Any]:
    """Batches as the ordered channel gives them."""
    reader, at = way.channel().egress(name), 0
    ready.release()
    while True:
        at, found = reader.read(at, timeout_s=1.0)
        yield from (rows.drop_columns(list(SN)) for _, rows in found)


def messages(way: Way, _name: str, size: int, ready: Any) -> Iterator[Any]:
    """Records one by one, in the order of their places; what is in them is known beforehand."""
    known = {f"p{n}": batch_of(size, f"p{n}") for n in range(way.producers)}
    with connect(way.hosts) as client:
        scope, order = Scope(client, way.app), Order()
        reader = Reader(client, scope.places)
        ready.release()
        while True:
            for place, data in reader.read():
                claims = decode(data)
                for _, batch in counting(claims, order.handle(place, claims)):
                    yield known[batch.producer].slice(batch.first % size, 1)


def received(way: Way, name: str, _size: int, ready: Any) -> Iterator[Any]:
    """Batches as they come over sockets."""
    listener = Listener(way.sockets[int(name[-1])], family="AF_UNIX")
    ready.release()
    came: queue.Queue[Any] = queue.Queue(64)

    def receive(connection: Any) -> None:
        with contextlib.suppress(EOFError):
            while True:
                (rows,) = pa.ipc.open_stream(connection.recv_bytes())
                came.put(rows)

    for _ in range(way.producers):
        threading.Thread(target=receive, args=(listener.accept(),), daemon=True).start()
    while True:
        yield came.get()


def run(
    mode: str, hosts: str, work: str, producers: int, rows: int, size: int
) -> tuple[float, bool]:
    """Records per second of one run, with all processes new, and whether the replicas agree."""
    ready, go, done = mp.Semaphore(0), mp.Event(), mp.Queue()
    with tempfile.TemporaryDirectory() as folder:
        way = Way(mode, hosts, f"ordering-{uuid.uuid4()}", folder, producers)
        total = producers * (-(-rows // size) * size)
        replicas = [
            mp.Process(target=consume, args=(way, f"replica-{n}", work, total, size, ready, done))
            for n in range(REPLICAS)
        ]
        sources = [
            mp.Process(target=produce, args=(way, f"p{n}", rows, size, ready, go))
            for n in range(producers)
        ]
        for some in (replicas, sources):
            for process in some:
                process.start()
            for _ in some:
                ready.acquire()
        began = time.monotonic()
        go.set()
        ends = [done.get(timeout=290) for _ in replicas]
        for process in sources:
            process.join()
        for process in replicas:
            process.kill()  # their sessions and connections end with them
            process.join()
    if any(count != total for _, count, _ in ends):
        raise SystemExit(f"{mode}: not all records were processed: {ends}")
    same = len({digest for _, _, digest in ends}) == 1
    if mode != "uncoordinated" and not same:
        raise SystemExit(f"{mode}: the replicas saw different sequences")
    return total / (max(end for end, _, _ in ends) - began), same


def main() -> int:
    """Print the medians; fail if the aims are missed at every size of a batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--work", choices=WORKS, default="window", help="of a replica")
    parser.add_argument("--rows", type=int, help="of each producer")
    parser.add_argument("--messages", type=int, default=1500, help="of each, message by message")
    parser.add_argument("--batch", type=int, nargs="+", default=[8192, 65536, 262144])
    args = parser.parse_args()
    kinds = [("message", args.messages)]
    kinds += [(mode, size) for size in args.batch for mode in ("uncoordinated", "batch")]
    rates: dict[tuple[str, int], list[float]] = {kind: [] for kind in kinds}
    agreed: Counter[tuple[str, int]] = Counter()
    records = args.rows or WORKS[args.work][1]
    with EmbeddedZooKeeper(Path(tempfile.mkdtemp()) / "zookeeper") as server:
        for _ in range(args.runs):
            for mode, size in kinds:
                rows = args.messages if mode == "message" else records
                rate, same = run(mode, server.hosts, args.work, args.producers, rows, size)
                rates[mode, size].append(rate)
                agreed[mode, size] += same
    median = {kind: statistics.median(found) for kind, found in rates.items()}
    for (mode, size), found in rates.items():
        of = "" if mode == "message" else f"{size:,} records"
        print(
            f"{mode:14s} {of:>16s} {median[mode, size]:12,.0f} records/s"
            f"  ({min(found):,.0f}-{max(found):,.0f}), "
            f"replicas agree in {agreed[mode, size]} of {len(found)}"
        )
    met = False
    print(f"aims: batch / message {AIM_MESSAGE:g}, batch / uncoordinated {AIM_FREE}")
    for size in args.batch:
        to_message = median["batch", size] / median["message", args.messages]
        to_free = median["batch", size] / median["uncoordinated", size]
        met |= to_message >= AIM_MESSAGE and to_free >= AIM_FREE
        print(
            f"batches of {size:,}: batch / message {to_message:,.0f}, "
            f"batch / uncoordinated {to_free:.2f}"
        )
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
