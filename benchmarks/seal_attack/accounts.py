"""Where every record is, read off results, dead letters and ledgers, beside where it has to be."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.seal_attack.traffic import (
    ALWAYS_DEAD,
    BUFFERED,
    Key,
    Kind,
    Message,
    Partition,
    Traffic,
)
from flux_runtime.observe.gates import GateView, read_gates

UNITS: Final = {"Clean": "items", "Work": "works", "Sums": "works"}
"""Unit -> the stream that it waits for."""
BESIDE: Final = "Beside"
"""A unit that the job has now and then; the others must not notice."""
_MARK: Final = re.compile(r'^\{"v": (\d+)')


class ViolationError(Exception):
    """A record is not where it has to be."""


@dataclass(slots=True)
class Unit:
    """What one unit has made of its stream."""

    released: dict[Key, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Partition -> marks of its records in the results."""
    dead: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Mark -> reasons of its dead letters."""
    open: dict[Key, tuple[str, int]] = field(default_factory=dict)
    """Partition -> status, records in the buffer."""


@dataclass(slots=True)
class Accounts:
    """All that the job has left behind."""

    units: dict[str, Unit]
    sums: dict[Key, list[tuple[int, int]]]
    """Partition -> (records, sum of their marks), of every time it came out of `Sums`."""
    discarded_sums: dict[Key, list[tuple[int, int]]]
    """The same of dead letters that are partial aggregates."""
    answers: dict[int, list[tuple[str, int, int]]]
    dead_asks: dict[int, list[str]]
    waiting: int
    """Partitions of `Answer` that are not released."""


def read_results(folder: Path) -> dict[str, dict[Key, Counter[int]]]:
    """Unit -> partition -> marks of its records in the results."""
    found: dict[str, dict[Key, Counter[int]]] = {
        "Clean": defaultdict(Counter),
        "Work": defaultdict(Counter),
    }
    for row in _rows(folder, "records"):
        found["Clean"][(row["k"],)][row["v"]] += 1
    for row in _rows(folder, "worked"):
        found["Work"][row["g"], _day(row["d"])][row["v"]] += 1
    return found


def check_released(traffic: Traffic, results: Mapping[str, dict[Key, Counter[int]]]) -> None:
    """Return if what has been put out is right, whatever may be missing.

    Raises:
        ViolationError: naming the first partition that is wrong.
    """
    for partition in traffic.partitions:
        for name, released in results.items():
            marks = released.get(partition.key)
            if UNITS[name] != partition.stream or not marks:
                continue
            wrong = set(marks) != partition.marks(Kind.RECORD) and not partition.contradictory
            if wrong or not partition.whole or max(marks.values()) > 1:
                raise ViolationError(f"{name} put out {_short(partition.key)} wrong: {marks}")


def read(folder: Path) -> Accounts:
    """The accounts of a job that is not running."""
    units = {name: Unit() for name in UNITS}
    for name, released in read_results(folder).items():
        units[name].released = released
    sums: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for row in _rows(folder, "sums"):
        sums[row["g"], _day(row["d"])].append((row["c"], row["s"]))
    answers: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for row in _rows(folder, "answers"):
        answers[row["ask"]].append((row["k"], row["c"], row["s"]))
    discarded: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    dead_asks: dict[int, list[str]] = defaultdict(list)
    for unit, letter in _letters(folder):
        if unit == BESIDE:
            continue
        record = letter["record"]
        if isinstance(record, str):
            marked = _MARK.match(record)
            if marked is None:
                raise ViolationError(f"{unit}: nobody sent the dead letter {record[:100]!r}")
            units[unit].dead[int(marked[1])].append(letter["reason"])
        elif "ask" in record:
            dead_asks[record["ask"]].append(letter["reason"])
        elif "c1" in record:
            discarded[record["g"], record["d"]].append((record["c1"], record["s1"]))
        else:
            units[unit].dead[record["v"]].append(letter["reason"])
    gates = {gate.unit: gate for gate in read_gates(folder / "state")}
    for name, unit_accounts in units.items():
        if name in gates:
            unit_accounts.open = _open(gates[name])
    waiting = len(gates["Answer"].partitions) if "Answer" in gates else 0
    return Accounts(units, sums, discarded, answers, dead_asks, waiting)


def check(traffic: Traffic, accounts: Accounts, *, final: bool) -> None:
    """Return if every record that was delivered is where it has to be.

    Args:
        traffic: what was sent, all of which the job has read.
        accounts: what it has made of it.
        final: nothing may be open any more.

    Raises:
        ViolationError: with all that is wrong.
    """
    wrong = [
        *(f"{unit}: {problem}" for unit, problem in _wrong(traffic, accounts, final)),
        *(f"Answer: {problem}" for problem in _wrong_answers(traffic, accounts, final)),
    ]
    if wrong:
        more = f"\n... and {len(wrong) - 12} more" if len(wrong) > 12 else ""
        raise ViolationError("\n".join(wrong[:12]) + more)


def mark_released(traffic: Traffic, accounts: Accounts) -> None:
    """Take note of what has been released: from now on, records of it are late."""
    for partition in traffic.partitions:
        units = [unit for unit, stream in UNITS.items() if stream == partition.stream]
        partition.released = partition.whole and all(
            partition.key not in accounts.units[unit].open for unit in units
        )


# ---- partitions


def _wrong(traffic: Traffic, accounts: Accounts, final: bool) -> Iterator[tuple[str, str]]:
    by_stream: dict[str, dict[Key, Partition]] = {"items": {}, "works": {}}
    for partition in traffic.partitions:
        by_stream[partition.stream][partition.key] = partition
    for name, stream in UNITS.items():
        unit = accounts.units[name]
        for key in (unit.released.keys() | unit.open.keys()) - by_stream[stream].keys():
            yield name, f"nobody sent the partition {_short(key)}"
        for partition in by_stream[stream].values():
            problems = _wrong_partition(name, unit, partition, accounts, final)
            yield from ((name, f"{_short(partition.key)}: {problem}") for problem in problems)
        for problem in _wrong_letters(stream, unit, traffic):
            yield name, problem


def _wrong_partition(
    name: str, unit: Unit, partition: Partition, accounts: Accounts, final: bool
) -> Iterator[str]:
    key = partition.key
    status, buffered = unit.open.get(key, ("", 0))
    if name == "Sums":
        released = accounts.sums.get(key, [])
        discarded = accounts.discarded_sums.get(key, [])
        if len(released) > 1:
            yield f"released {len(released)} times"
    else:
        marks = unit.released.get(key, Counter())
        twice = [mark for mark, times in marks.items() if times > 1]
        if twice:
            yield f"records {twice[:5]} were released more than once"
        released = [(len(marks), sum(marks))] if marks else []
        discarded = []
        if not partition.contradictory and marks and set(marks) != partition.marks(Kind.RECORD):
            lacks = sorted(partition.marks(Kind.RECORD) - set(marks))
            extra = sorted(set(marks) - partition.marks(Kind.RECORD))
            yield f"released without {lacks[:5]} and with {extra[:5]}"
    if status == "quarantined" and not partition.contradictory:
        yield "in quarantine without a reason"
    if status and released:
        yield f"released, and {status}"
    if not partition.whole and released and not partition.contradictory:
        yield "released before it was complete"
    delivered = partition.marks(*BUFFERED)
    dead = {mark for mark in delivered if unit.dead.get(mark)}
    if final and status:
        yield f"still {status}"
    if status:
        if partition.whole and not partition.contradictory and partition.registered:
            yield f"{status}, though it is complete"
        kinds = BUFFERED if partition.registered else BUFFERED | {Kind.STRANGER}
        expected = sum(
            m.deliveries for m in partition.messages if m.kind in kinds and m.mark not in dead
        )
        if buffered != expected and not partition.contradictory:
            yield f"{buffered} records are buffered instead of {expected}"
    elif not partition.whole:
        if delivered - dead and not partition.contradictory:
            yield f"neither open nor released, with {len(delivered - dead)} records"
    elif name == "Sums":
        _check = (
            sum(c for c, _ in [*released, *discarded]) + len(dead),
            sum(s for _, s in [*released, *discarded]) + sum(dead),
        )
        if _check != (len(delivered), sum(delivered)):
            yield f"{_check[0]} of {len(delivered)} records are accounted for (or the sum differs)"
        if not partition.contradictory and released:
            good = partition.marks(Kind.RECORD)
            if released != [(len(good), sum(good))]:
                yield f"released as {released} instead of {len(good)} records"
    else:
        out = set(unit.released.get(key, ()))
        both = [m for m in partition.messages if m.mark in out & dead and m.deliveries == 1]
        if both:
            yield f"{_marks(both)} were released and are dead"
        lost = delivered - out - dead
        if lost:
            yield f"{sorted(lost)[:5]} ({len(lost)} records) are nowhere"


def _wrong_letters(stream: str, unit: Unit, traffic: Traffic) -> Iterator[str]:
    for mark, reasons in unit.dead.items():
        message = traffic.messages.get(mark)
        if message is None:
            yield f"nobody sent the dead letter {mark}"
            continue
        allowed = set(message.kind.reasons)
        if message.partition is not None and (
            message.partition.contradictory or message.deliveries > 1
        ):
            allowed |= {"late", "discarded"}
        if not set(reasons) <= allowed:
            yield f"{message.kind.name} {mark} is dead as {reasons}"
        if len(reasons) > message.deliveries:
            yield f"{message.kind.name} {mark} came {message.deliveries} times, dead {reasons}"
    for message in traffic.messages.values():
        if message.deliveries and _stream(message) == stream and message.mark not in unit.dead:
            partition = message.partition
            if message.kind in ALWAYS_DEAD and (
                partition is None or partition.key not in unit.open
            ):
                yield f"{message.kind.name} {message.mark} is no dead letter"
            late = message.kind in (Kind.LATE, Kind.LATE_PROMISE)
            if late and partition is not None and not partition.contradictory:
                yield f"{message.kind.name} {message.mark} is no dead letter"


def _stream(message: Message) -> str:
    if message.partition is not None:
        return message.partition.stream
    return "items" if isinstance(message.row, dict) and "k" in message.row else "works"


# ---- requests


def _wrong_answers(traffic: Traffic, accounts: Accounts, final: bool) -> Iterator[str]:
    released = accounts.units["Clean"].released
    for ask, given in accounts.answers.items():
        key = traffic.asks.get(ask)
        if key is None:
            yield f"nobody asked {ask}"
            continue
        marks = released.get(key, Counter())
        right = [(key[0], len(marks), sum(marks))]
        if given != right:
            yield f"{ask} was answered {_short(given)} instead of {_short(right)}"
    for ask, key in traffic.asks.items():
        if key is None:
            if accounts.dead_asks.get(ask) != ["no_key"]:
                yield f"{ask} has no key, and is dead as {accounts.dead_asks.get(ask)}"
        elif released.get(key) and ask not in accounts.answers:
            yield f"{ask} was not answered, though {_short(key)} is released"
    if final and accounts.waiting:
        yield f"{accounts.waiting} partitions are still open"


# ---- parts


def _rows(folder: Path, sink: str) -> Iterator[dict[str, Any]]:
    for file in sorted((folder / "results" / sink).glob("*/*.parquet")):
        yield from pq.read_table(file, partitioning=None).to_pylist()


def _letters(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for file in sorted((folder / "state" / "dead_letters").glob("*/*.jsonl")):
        for line in file.read_text(encoding="utf-8").split("\n"):
            if line:
                yield file.parent.name, json.loads(line)


def _open(gate: GateView) -> dict[Key, tuple[str, int]]:
    return {tuple(p.key): (p.status, p.records) for p in gate.partitions}


def _day(value: datetime.date) -> str:
    return value.isoformat()


def _marks(messages: Iterable[Message]) -> str:
    return ", ".join(f"{m.kind.name} {m.mark}" for m in list(messages)[:5])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:80]}... ({len(text)} characters)"
