"""The network: first and last packets of sessions between pairs of hosts, for as long as one likes.

Batch `n` depends on the seed and on the batches before it, so the same seed gives the same packets
however they are sent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

APPS = 5
TICK_US = 50
"""Time from one packet to the next, more or less; no two packets have the same time."""
HOSTS = 200
"""Sources; destinations are as many as it takes."""

SCHEMA = pa.schema(
    [
        ("src", pa.int64()),
        ("dst", pa.int64()),
        ("app", pa.int64()),
        ("time", pa.int64()),
        ("last", pa.bool_()),
    ]
)
"""`time` in microseconds; `last`: the packet ends the session that the pair's last one began."""


def packets(rows: int, *, pairs: int = 20_000, seed: int = 0) -> Iterator[Any]:
    """Batches of `rows` packets of sessions between `pairs` pairs of hosts, without end."""
    open_ = np.zeros(pairs, np.int64)  # whether each pair has an open session
    clock = 0
    number = 0
    while True:
        draw = np.random.default_rng([seed, number])
        # some pairs talk more than others, which is what makes load uneven
        pair = (pairs * draw.random(rows) ** 2).astype(np.int64)
        order = np.argsort(pair, kind="stable")
        starts = np.flatnonzero(np.diff(pair[order], prepend=-1))
        sizes = np.diff(np.append(starts, rows))
        rank = np.empty(rows, np.int64)
        rank[order] = np.arange(rows) - np.repeat(starts, sizes)
        last = (open_[pair] + rank) % 2 == 1
        open_ = (open_ + np.bincount(pair, minlength=pairs)) % 2
        time = clock + np.arange(rows) * TICK_US + draw.integers(0, TICK_US, rows)
        clock += rows * TICK_US
        number += 1
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(pair % HOSTS),
                pa.array(pair // HOSTS),
                pa.array(pair * 7 // HOSTS % APPS),
                pa.array(time),
                pa.array(last),
            ],
            schema=SCHEMA,
        )
