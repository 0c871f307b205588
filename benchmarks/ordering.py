"""Throughput of ordering: per batch, per message, and without coordination, side by side.

    python benchmarks/ordering.py [--runs 3] [--work window|sum] [--batch 8192 65536 262144]

Producers in processes of their own send Arrow batches to two replicas, also in processes of their
own, over sockets on loopback. With `window` a replica does what a site does with records: of each
of 1,000 groups it aggregates the last 16, every 16 (order-sensitive); with `sum` it adds them up,
which costs next to nothing. Without coordination a replica takes what comes as it comes; else it
follows the order in ZooKeeper (one embedded server). Message by message has one znode per record
(OR-9) and gets its contents without cost. What ordering costs depends on the size of a batch, so it
is measured for several. Prints records per second, medians, and in how many runs both replicas came
to the same results; it fails if ordered ones did not.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing as mp
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Client as Dial
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flux_runtime.operators.rows import number
from flux_runtime.operators.window import CountWindow
from flux_runtime.ordering.follower import Follower
from flux_runtime.ordering.places import Batch
from flux_runtime.ordering.proposer import Proposer
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper

GROUPS = 1000
WINDOW = 16
REPLICAS = 2
AIM_MESSAGE, AIM_FREE = 10.0, 0.7


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


def encoded(rows: int, seed: int) -> bytes:
    """A batch as Arrow IPC."""
    draw = np.random.default_rng(seed)
    batch = pa.RecordBatch.from_pydict(
        {"key": draw.integers(0, GROUPS, rows), "value": draw.integers(0, 100, rows)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def producer(mode: str, hosts: str, app: str, name: str, paths: list[str], work: Any) -> None:
    """Send all batches to every replica, and propose them."""
    rows, size, ready, go = work
    to = [Dial(path, family="AF_UNIX") for path in paths]
    data = encoded(size, int(name[1:]))
    client = connect(hosts) if mode != "uncoordinated" else None
    proposer = None
    if client is not None:
        ways = {"batch": {}, "message": {"in_flight_max": 64, "group_max": 1}}
        proposer = Proposer(client, app, name, timeout_s=300.0, **ways[mode])
    ready.release()
    go.wait()
    for first in range(0, rows, size):
        for replica in to:
            replica.send((name, first))
            replica.send_bytes(data)
        if proposer is not None:
            (proposer.propose if mode == "batch" else proposer.propose_each)(
                first, first + size - 1
            )
    if proposer is not None and client is not None:
        proposer.wait()
        proposer.close()
        client.close()


def replica(mode: str, hosts: str, app: str, path: str, work: Any) -> None:
    """Process until all records of all producers are there; put time and digest."""
    kind, producers, total, ready, done, name = work
    listener = Listener(path, family="AF_UNIX")
    ready.release()
    do = WORKS[kind][0]()
    digest = hashlib.sha256()
    contents: dict[tuple[str, int], Any] = {}
    processed = 0
    lock, finished = threading.Lock(), threading.Event()

    def process(source: str, first: int, rows: Any) -> None:
        nonlocal processed
        with lock:
            digest.update(do(rows))
            if follower is not None:
                digest.update(f"{source} {first} {rows.num_rows};".encode())
            processed += rows.num_rows
            if processed >= total:
                finished.set()

    def fetch(batch: Batch) -> Any:
        if mode == "batch":
            return contents.pop((batch.producer, batch.first), None)
        for (source, first), rows in list(contents.items()):
            if source == batch.producer and first <= batch.first < first + rows.num_rows:
                return rows.slice(batch.first - first, 1)
        return None

    client = connect(hosts) if mode != "uncoordinated" else None
    follower = None
    if client is not None:
        follower = Follower(
            client,
            app,
            name,
            fetch=fetch,
            on_batch=lambda _, batch, rows: process(batch.producer, batch.first, rows),
        )

    def receive(connection: Any) -> None:
        while True:
            try:
                source, first = connection.recv()
                data = connection.recv_bytes()
            except EOFError:
                return
            (rows,) = pa.ipc.open_stream(data)
            if follower is None:
                process(source, first, rows)
            else:
                contents[source, first] = rows
                follower.arrived()

    for _ in range(producers):
        threading.Thread(target=receive, args=(listener.accept(),), daemon=True).start()
    finished.wait(280)
    done.put((time.monotonic(), processed, digest.hexdigest()))
    if follower is not None:
        follower.close()


def run(
    mode: str, hosts: str, work: str, producers: int, rows: int, size: int
) -> tuple[float, bool]:
    """Records per second of one run, with all processes new, and whether the replicas agree."""
    app = f"ordering-{uuid.uuid4()}"
    ready, go, done = mp.Semaphore(0), mp.Event(), mp.Queue()
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{number}" for number in range(REPLICAS)]
        total = producers * (-(-rows // size) * size)
        processes = [
            mp.Process(
                target=replica,
                args=(
                    mode,
                    hosts,
                    app,
                    path,
                    (work, producers, total, ready, done, f"replica-{n}"),
                ),
            )
            for n, path in enumerate(paths)
        ]
        for process in processes:
            process.start()
        for _ in paths:
            ready.acquire()
        processes += [
            mp.Process(
                target=producer,
                args=(mode, hosts, app, f"p{n}", paths, (rows, size, ready, go)),
            )
            for n in range(producers)
        ]
        for process in processes[REPLICAS:]:
            process.start()
        for _ in range(producers):
            ready.acquire()
        began = time.monotonic()
        go.set()
        ends = [done.get(timeout=290) for _ in paths]
        for process in processes:
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
