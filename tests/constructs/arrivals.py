"""The records that the constructs are tried on, and the orders in which they arrive.

An arrival is a list of batches; a batch holds the records of each stream that arrive together.
`permuted` mixes everything; `sealed` lets each gate partition arrive whole, which is what a seal
makes of a stream, its records in any order, or in canonical order where the plan would sort them.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Record = Mapping[str, Any]
Records = Mapping[str, Sequence[Record]]
"""Stream -> its records."""
Arrival = list[dict[str, list[Record]]]
"""One entry a batch: stream -> the records that arrive with it."""

PERMUTED: Final = 5
SEALED: Final = 4

ADS: Final[Sequence[Record]] = tuple({"id": i, "title": f"ad {i}"} for i in (1, 2))
MINUTES: Final = ("22:13", "22:14", "22:15", "22:16")


def at(minute: int, second: int) -> str:
    """A time of the test's only hour."""
    return f"2023-11-14T{MINUTES[minute]}:{second:02d}Z"


def click(**values: Any) -> Record:
    """A click, with what matters given and the rest filled in."""
    record = {"id": 1, "campaign": "a", "ts": at(0, 0), "v": 0.5, "n": 1, "price": "1.50"}
    record |= values
    record.setdefault("tags", ["x", "y"][: 1 + record["n"] % 2 if record["n"] else 1])
    record.setdefault("j", json.dumps({"a": record["n"], "b": record["campaign"]}))
    return record


def answer(**values: Any) -> Record:
    """An answer, likewise."""
    return {"id": 1, "rts": at(0, 5), "who": "w"} | values


def _mixed(draw: random.Random) -> Records:
    """A little of everything: repeated keys, nulls, signs, both cases of a letter."""
    clicks = [
        click(
            id=draw.choice([1, 1, 2, 2, 3]),
            campaign=draw.choice(["a", "A", "b", None]),
            ts=at(i % 4, draw.randrange(60)),
            v=draw.choice([0.1, 0.2, 0.3, 1e16, -1e16, 7.7]),
            n=draw.choice([-2, -1, 0, 1, 2, 3, 4, None]),
            price=draw.choice(["0.10", "0.20", "9.99", "-3.30"]),
        )
        for i in range(18)
    ]
    clicks += [click(id=1, n=4), click(id=1, n=-2), clicks[0], clicks[1]]
    answers = [answer(id=i, rts=clicks[i]["ts"], who=f"w{i}") for i in (1, 2)]
    return {"clicks": clicks, "answers": [*answers, answer(id=2, who="w8"), answer(id=9, who="w9")]}


def _doubles(draw: random.Random) -> Records:
    """Sums of these differ with the order: floating-point addition is not associative."""
    values = [1e16, 1.0, -1e16, 1.0, 0.1, 0.2, 0.3]
    clicks = [click(id=i, v=v, n=k * k * 1_000_003) for i in (1, 2) for k, v in enumerate(values)]
    return {"clicks": clicks, "answers": [answer()]}


def _signed(draw: random.Random) -> Records:
    """A sum that is above the threshold only in some orders."""
    return {"clicks": [click(id=i, n=n) for i in (1, 2) for n in (5, -5)], "answers": [answer()]}


def _ties(draw: random.Random) -> Records:
    """Several records are the largest, the smallest, the most frequent."""
    clicks = [click(id=i, n=n, campaign="a") for i in (1, 2) for n in (1, 2, 3, 1, 2, 3)]
    return {"clicks": [*clicks, click(id=7), click(id=8)], "answers": [answer()]}


def _ranks(draw: random.Random) -> Records:
    """Equal sort keys with different payloads."""
    clicks = [
        click(id=i, n=n, price=f"{k}.00")
        for i in (1, 2)
        for k, n in enumerate((1, 1, 2, 2, 2, 3), start=1)
    ]
    return {"clicks": clicks, "answers": [answer()]}


def _nulls(draw: random.Random) -> Records:
    """One null among the answers empties NOT IN."""
    clicks = [click(id=i, n=i) for i in (1, 2, 3)]
    return {"clicks": clicks, "answers": [answer(id=2), answer(id=None)]}


def _timed(draw: random.Random) -> Records:
    """Every minute has several records, the same ids come back long after, answers match some."""
    clicks = [
        click(id=1 + k % 2, n=k, ts=at(minute, 7 * k)) for minute in range(4) for k in range(3)
    ]
    answers = [answer(id=r["id"], rts=r["ts"], who=f"w{k}") for k, r in enumerate(clicks[::2])]
    return {"clicks": clicks, "answers": answers}


DATA: Final[Mapping[str, Callable[[random.Random], Records]]] = {
    "mixed": _mixed,
    "doubles": _doubles,
    "signed": _signed,
    "ties": _ties,
    "ranks": _ranks,
    "nulls": _nulls,
    "timed": _timed,
}

LAST: Final[Records] = {
    "clicks": [click(id=99, campaign="z", ts="2023-11-15T23:00:00Z", n=0, tags=[])],
    "answers": [answer(id=98, rts="2023-11-15T23:00:00Z", who="end")],
}
"""Comes after everything else and moves the watermark past it."""

PARTITIONS: Final[Mapping[str, Callable[[Record], Any]]] = {
    "window": lambda record: (record.get("ts") or record["rts"])[:16],
    "upper": lambda record: record["campaign"] and record["campaign"].upper(),
}
"""Gate attributes that are functions of a record."""


def records(data: str) -> Records:
    """The records of a data set: the same in every run."""
    return DATA[data](random.Random(7))


def permuted(records: Records, *, seed: int, timed: bool) -> Arrival:
    """Everything in random order, in two to five batches (seed 0: all in one)."""
    draw = random.Random(seed)
    batches = 1 if seed == 0 else draw.randint(2, 5)
    arrival: Arrival = [{stream: [] for stream in records} for _ in range(batches)]
    for stream, rows in records.items():
        for row in draw.sample(list(rows), len(rows)):
            arrival[draw.randrange(batches)][stream].append(row)
    return _ended(arrival, timed=timed)


def sealed(
    records: Records, gates: Mapping[str, Sequence[str]], *, seed: int, ordered: bool, timed: bool
) -> Arrival:
    """One batch for each partition, in random order; equal keys of both streams arrive together.

    Args:
        records: Stream -> its records.
        gates: Stream -> the attributes of its gate; a stream that is not in it, or has the gate
            `[]`, is one partition.
        seed: Of the order.
        ordered: Sort the records of a partition: the canonical order.
        timed: Partitions come in the order of their times, and `LAST` after them.
    """
    draw = random.Random(1000 + seed)
    parts: dict[tuple[Any, ...], dict[str, list[Record]]] = {}
    for stream, rows in records.items():
        for row in draw.sample(list(rows), len(rows)):
            key = tuple(_attribute(row, name) for name in gates.get(stream, ()))
            parts.setdefault(key, {name: [] for name in records})[stream].append(row)
    keys = sorted(parts, key=repr)
    if not timed:
        draw.shuffle(keys)
    arrival: Arrival = [parts[key] for key in keys]
    if ordered:
        for batch, stream in itertools.product(arrival, records):
            batch[stream].sort(key=lambda row: json.dumps(row, sort_keys=True))
    return _ended(arrival, timed=timed)


def _attribute(row: Record, name: str) -> Any:
    return PARTITIONS[name](row) if name in PARTITIONS else row[name]


def _ended(arrival: Arrival, *, timed: bool) -> Arrival:
    full = [batch for batch in arrival if any(batch.values())]
    if timed:
        full.append({stream: list(rows) for stream, rows in LAST.items()})
    return full
