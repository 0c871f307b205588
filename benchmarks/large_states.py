"""A pair with a large state loses a copy: how long its output stops, and when it is whole again.

    python benchmarks/large_states.py [--state keys] [--mib 16 256 1024 4096] [--turns 3]
        [--kept beforehand|whole]

Three sites as processes, without Spark; one partition, in a pair. Its operator keeps rows, as SQL
does, or keys with a value of 1 KiB, as processors do: some batches say how many of them to make, so
that the state need not be sent to get there. Then a batch comes every `--pace` seconds, which
also changes 100 keys, and the site with one of the copies is killed with SIGKILL: the other
copy goes on, and its state travels to the third site. Prints medians of the longest time from one
result to the next while that goes on, beside the usual one, of the time until the pair is whole
again, and how much memory a site had at most. Exit status 1 if a result is wrong.

With `--kept` no site is killed: the state is written to a file, as a job does now and then, by the
site while input goes on and its rest while that pauses, or as a whole while it pauses.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flux_lab.local_sites import LocalSites
from flux_runtime.operators.processor_state import KeyedState
from flux_runtime.operators.rows import SN_FIELDS, KeySplit, merge, rows_size
from flux_runtime.operators.state_file import ready, size_of
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Pair, Shape
from flux_runtime.site.feeder import Feeder

KEPT: Final = pa.schema([(name, pa.int64()) for name in "abcdefgh"])
ROW_BYTES: Final = 8 * len(KEPT)
KEY_BYTES: Final = 1 << 10
CHANGED: Final = 100
"""Keys that a batch changes."""
FILL_BYTES: Final = 64 << 20
"""Of state that one batch makes."""
AFTER_S: Final = 3.0
"""How long after the pair is whole the results are watched."""
PATIENCE_S: Final = 300.0


class Keeping:
    """Makes as many rows as a batch says, keeps them, and puts out how many it has."""

    def __init__(self) -> None:
        self.kept = KEPT.empty_table()

    def process(self, batch: Any) -> Any:
        """A row for each row."""
        counts = []
        for rows in batch.column("rows").to_pylist():
            first = self.kept.num_rows
            columns = [np.arange(first, first + rows) for _ in KEPT]
            self.kept = pa.concat_tables([self.kept, pa.table(columns, schema=KEPT)])
            counts.append(self.kept.num_rows)
        return output(batch, counts)

    def get_state(self) -> Any:
        """All rows."""
        return self.kept

    def install_state(self, state: Any) -> None:
        """Replace them."""
        self.kept = state

    def state_size(self) -> int:
        """Bytes of them."""
        return int(self.kept.num_rows) * ROW_BYTES


class Keys:
    """Makes as many keys as a batch says, changes some, and puts out how many it has."""

    def __init__(self) -> None:
        self.state = KeyedState()
        for name in ("get_state", "install_state", "parts", "rest", "reads", "install_part"):
            setattr(self, name, getattr(self.state, name))

    def process(self, batch: Any) -> Any:
        """A row for each row."""
        counts = []
        for new in batch.column("rows").to_pylist():
            self.state.begin(len(counts))
            first = len(self.state.keys)
            for key in range(first, first + new):
                self.write(key, KEY_BYTES)
            for i in range(CHANGED if first else 0):
                self.write((first * 7919 + i * 104729) % first, 0)
            counts.append(len(self.state.keys))
        return output(batch, counts)

    def write(self, key: int, more: int) -> None:
        """Give a key a value of its own."""
        self.state.enter((key,))
        value = (self.state.read("value") or ((bytes(KEY_BYTES),), None))[0][0]
        self.state.write("value", ((value[1:] + bytes([key % 251]),), None), more)

    def state_size(self) -> int:
        """Bytes of them."""
        return self.state.bytes


def output(batch: Any, counts: list[int]) -> Any:
    """A row for each row, with how many there are."""
    sn = [batch.column(field.name) for field in SN_FIELDS]
    schema = pa.schema([("kept", pa.int64()), *SN_FIELDS])
    return pa.RecordBatch.from_arrays([pa.array(counts, pa.int64()), *sn], schema=schema)


def rows() -> Dataflow:
    """One stage with one partition, which keeps rows."""
    return dataflow(Keeping)


def keys() -> Dataflow:
    """One stage with one partition, which keeps keys."""
    return dataflow(Keys)


def dataflow(operator: Callable[[], Any]) -> Dataflow:
    """One stage with one partition."""
    return Dataflow(
        shape=Shape(widths=(1,), pool=64, ack_every=8, in_hand=4),
        operator=lambda _: operator(),
        split=KeySplit({0: ("rows",)}),
        merge=merge,
        rows_size=rows_size,
    )


class Results(threading.Thread):
    """Reads results, and when they came; `wrong` once a count is not what it must be."""

    def __init__(self, job: LocalSites) -> None:
        super().__init__(daemon=True)
        self.reader = job.reader()
        self.fed: list[int] = []
        self.times: list[float] = []
        self.wrong = False

    def run(self) -> None:
        """Until the input ends."""
        offset, total, ended = 0, 0, False
        while not ended:
            offset, batches, ended = self.reader.read(offset, timeout_s=PATIENCE_S)
            for number, rows in batches:
                total += self.fed[number]
                self.wrong |= rows.column("kept").to_pylist() != [total]
                self.times.append(time.monotonic())
            self.reader.commit(offset)


def measure(
    state: str, mib: int, pace_s: float, kept: str | None
) -> tuple[float, float, float, float, bool]:
    """(longest and usual time between results, until whole or kept, memory in MiB, wrong)."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSites(
            dataflow=f"benchmarks.large_states:{state}", sites=3, folder=Path(folder)
        ) as job,
    ):
        feeder, results = job.feeder("sizes"), Results(job)
        results.start()

        def feed(rows: int) -> None:
            results.fed.append(rows)
            batch = pa.record_batch({"rows": pa.array([rows], pa.int64())})
            feeder.offer(len(results.fed) - 1, 0, batch)

        left = mib << 20
        while left > 0:
            feed(min(left, FILL_BYTES) // (ROW_BYTES if state == "rows" else KEY_BYTES))
            left -= FILL_BYTES
        fills = len(results.fed)
        while len(results.times) < fills:
            time.sleep(0.05)
        stop = threading.Event()

        paced = threading.Lock()

        def pace() -> None:
            while not stop.wait(pace_s):
                with paced:
                    feed(1)

        pacing = threading.Thread(target=pace, daemon=True)
        pacing.start()
        time.sleep(AFTER_S)
        begun = time.monotonic()
        if kept is None:
            victim = kill_a_copy(job)
            took = job.recoveries()[0]
        else:
            victim = -1
            keep(feeder, results.fed, paced, Path(folder) / "kept", whole=kept == "whole")
            took = time.monotonic() - begun
        time.sleep(AFTER_S)
        memory = max(map(peak_mib, (p.pid for s, p in job.sites.items() if s != victim)))
        stop.set()
        pacing.join()
        feeder.finish()
        results.join()
        gaps = [(b, b - a) for a, b in itertools.pairwise(results.times[fills:])]
        usual = statistics.median(gap for b, gap in gaps if b < begun)
        longest = max(gap for b, gap in gaps if b > begun)
        return longest, usual, took, memory, results.wrong


def kill_a_copy(job: LocalSites) -> int:
    """Kill the site with one of the copies, and wait until the pair is whole; which site."""
    status = job.reader().status()
    place = next(copy[4] for copy in status["copies"] if copy[0] == 0)
    pid = status["loads"][str(place)]["pid"]
    victim = next(site for site, process in job.sites.items() if process.pid == pid)
    end = time.monotonic() + PATIENCE_S
    job.kill(victim)
    while not job.recoveries() and time.monotonic() < end:
        time.sleep(0.1)
    return victim


def keep(
    feeder: Feeder, fed: list[int], paced: threading.Lock, folder: Path, *, whole: bool
) -> None:
    """Have the state written to a file."""
    pairs = [Pair(0, 0)]
    while not whole and not ready(folder, pairs):
        with paced:
            assert not feeder.keep(None, folder)
        time.sleep(0.1)
    with paced:
        while size_of(folder, pairs) is None:
            assert not feeder.keep(len(fed) - 1, folder)
            time.sleep(0.02)


def peak_mib(pid: int) -> float:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> int:
    """Measure and print; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--state", choices=("rows", "keys"), default="rows")
    add("--mib", type=int, nargs="+", default=[16, 256, 1024, 4096])
    add("--turns", type=int, default=3)
    add("--pace", type=float, default=0.05)
    add("--kept", choices=("beforehand", "whole"))
    args = parser.parse_args()
    wrong = False
    print(f"{'state':>10}  {'pause':>8}  {'usually':>8}  {'whole after':>11}  {'memory':>9}")
    for mib in args.mib:
        turns = [measure(args.state, mib, args.pace, args.kept) for _ in range(args.turns)]
        longest, usual, whole, memory = (
            statistics.median(turn[i] for turn in turns) for i in range(4)
        )
        wrong |= any(turn[4] for turn in turns)
        print(
            f"{mib:6} MiB  {longest:6.2f} s  {usual:6.2f} s  {whole:9.2f} s  {memory:5.0f} MiB",
            flush=True,
        )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
