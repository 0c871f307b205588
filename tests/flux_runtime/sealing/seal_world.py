"""A gate without Spark, and a naive judge of what it should do, for property tests of the tracker.

`World` drives a tracker as the gate does: chunks, ledger, releases, outputs that are committed
once, compaction, and crashes between any two steps. `Judge` recomputes everything from the list of
what happened, by brute force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flux_lab.seal_invariants import validate
from flux_runtime.sealing.events import (
    Chunk,
    Compacted,
    Count,
    Counted,
    Coverage,
    Event,
    Finding,
    Found,
    Group,
    Groups,
    Ingested,
    Outsider,
    Quarantined,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Unneeded,
)
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.partition import Status
from flux_runtime.sealing.report import votes_missing
from flux_runtime.sealing.tracker import All, Rules, Tracker, Verdict


@dataclass(frozen=True)
class Message:
    """A record (`count` None) or a punctuation."""

    id: int
    """Two messages with one id are one record that was delivered twice."""
    key: str
    producer: str
    count: int | None = None


@dataclass(frozen=True)
class Batch:
    input: str
    number: int
    messages: tuple[Message, ...]


def groups(messages: tuple[Message, ...]) -> Groups:
    counted = Counter((m.key, m.producer, m.count) for m in messages)
    return Groups.of(
        Group(key, producer, count, None, rows)
        for (key, producer, count), rows in sorted(counted.items(), key=repr)
    )


def chunk_of(messages: Iterable[Message]) -> Chunk:
    """What the gate writes down of a chunk."""
    data = [m for m in messages if m.count is None]
    return Chunk("records", len(data), len({m.key for m in data}), 0, {"part": (len(data), 0)})


def covered(number: int) -> Coverage:
    return Coverage("q", str(number - 1), str(number), "")


def state_of(tracker: Tracker) -> dict[str, Any]:
    """Everything of a tracker that a restart has to bring back."""
    found = {f.name: getattr(tracker, f.name) for f in fields(tracker)}
    del found["changes"], found["_assessed"]
    found["released"] = {key: tracker.released.get(key) for key in tracker.released}
    for name in ("chunks", "references", "unknown_sets", "wanted"):
        found[name] = {source: of for source, of in found[name].items() if of}
    return found


class World:
    """A gate's tracker with everything around it that survives a crash.

    Args:
        rules: of the gate.
        registered: what the registry knows by now: (input, key) -> producers.
        path: of the ledger; None: a crash replays the events instead.
        eager: what has to be counted is counted at once.
    """

    def __init__(
        self,
        rules: Rules,
        registered: dict[tuple[str, str], tuple[str, ...]],
        path: Path | None = None,
        *,
        eager: bool = False,
    ) -> None:
        self.eager = eager
        self.ledger = None if path is None else Ledger(path, rules)
        self.path = path
        self.rules = rules
        self.registered = registered
        self.tracker = Tracker(rules) if self.ledger is None else self.ledger.tracker
        self.events: list[Event] = []
        self.chunks: dict[tuple[str, int], list[Message]] = {}
        self.outputs: dict[int, tuple[frozenset[str], Counter[int], Counter[tuple]]] = {}
        self.late: Counter[int] = Counter()
        self.unknown: Counter[int] = Counter()
        self.quarantined: set[str] = set()
        self.undecided: dict[tuple[str, int], list[Message]] = {}
        self.history: list[Any] = []
        """For the judge: micro-batches, and (input, key, producers) that became known."""

    # ---- steps

    def ingest(self, batch: Batch, *, crash_before_ledger: bool = False) -> None:
        coverage = covered(batch.number)
        if self.tracker.replayed(batch.input, batch.number, coverage):
            before = repr(state_of(self.tracker))
            self.tracker.handle(
                Ingested(
                    batch.input, batch.number, 0.0, groups(batch.messages), 0, coverage, Chunk()
                )
            )
            assert repr(state_of(self.tracker)) == before, "SE-10: a replay changed something"
            return
        event = Ingested(
            batch.input,
            batch.number,
            1.0,
            groups(batch.messages),
            0,
            coverage,
            chunk_of(batch.messages),
        )
        self.look_up(batch.input, self.tracker.sets_to_look_up(event))
        verdicts = {
            (g.key, g.producer, g.promised): verdict for g, verdict in self.tracker.assess(event)
        }
        place = (batch.input, batch.number)
        late, unknown = [], []
        for m in batch.messages:
            verdict = verdicts.get((m.key, m.producer, m.count))
            if verdict is Verdict.LATE:
                late.append(m.id)
            elif verdict is Verdict.UNKNOWN:
                unknown.append(m.id)
        self.chunks[place] = [m for m in batch.messages if m.count is None]
        self.undecided[place] = [
            m
            for m in batch.messages
            if verdicts.get((m.key, m.producer, m.count)) is Verdict.UNDECIDED
        ]
        if crash_before_ledger:
            self.crash()
            return
        self.late.update(late)
        self.unknown.update(unknown)
        self.history.append(batch)
        self.record(event)

    def ask(self, name: str, number: int, keys: list[str]) -> None:
        self.chunks[name, number] = [Message(0, key, "") for key in keys]
        coverage = covered(number)
        assert not self.tracker.replayed(name, number, coverage)
        chunk = chunk_of(self.chunks[name, number])
        self.record(Requested(name, number, 1.0, dict(Counter(keys)), 0, coverage, chunk))

    def look_up(self, name: str, keys: list[str]) -> None:
        found = {key: self.registered[name, key] for key in keys if (name, key) in self.registered}
        if found:
            self.history += [(name, key, producers) for key, producers in found.items()]
            self.record(Found(name, 1.0, found))

    def look_up_due(self) -> None:
        for name, keys in self.tracker.lookups_due().items():
            self.look_up(name, keys)

    def start_release(self) -> None:
        if self.tracker.pending is None:
            release = self.tracker.next_release()
            if release is not None:
                self.record(ReleaseStarted(release, 2.0))

    def count(self) -> None:
        """Count the records of partitions that only this keeps from being complete (D6)."""
        for name, due in self.tracker.counts_due().items():
            for key, producers in due.items():
                rows = list(self.read(name, [key]))
                counts = {}
                for producer in producers:
                    ids = [m.id for m in rows if m.producer == producer]
                    counts[producer] = Count(len(ids), len(set(ids)))
                self.record(Counted(name, key, 1.0, counts))

    def read(self, name: str, keys: Iterable[str]) -> Iterable[Message]:
        """The records of partitions, as the gate reads them from its chunks."""
        reading = self.tracker.reading(name, keys)
        for number, of_chunk in reading.keys.items():
            for m in self.chunks[name, number]:
                excluded = (m.key, m.producer) in reading.excluded
                if (number in reading.whole or m.key in of_chunk) and not excluded:
                    yield m

    def compact(self, share_max: float) -> None:
        """Write chunks anew that hold little of what is still needed (SE-9)."""
        for name in self.rules.inputs:
            sparse = self.tracker.sparse(name, share_max)
            if sparse:
                self._merge(name, sparse)
            for old in self.tracker.to_merge(name, share_max, 2):
                self._merge(name, old)

    def _merge(self, name: str, old: tuple[int, ...]) -> None:
        needed = self.tracker.needing(name, old)
        rows = [
            m
            for number in old
            for m in self.chunks[name, number]
            if m.key in needed.keys.get(number, ()) and (m.key, m.producer) not in needed.excluded
        ]
        number = -1 - self.tracker.compactions
        self.chunks[name, number] = rows
        self.record(Compacted(name, old, number, chunk_of(rows)))

    def process(self) -> None:
        release = self.tracker.pending
        if release is None:
            return
        rows: Counter[int] = Counter()
        for name in self.rules.inputs:
            came = [m.id for m in self.read(name, release.process)]
            rows.update(set(came) if name in self.rules.identified else came)
        asked: Counter[tuple] = Counter()
        for name, wanted in release.answers.items():
            for key, batches in wanted.items():
                for batch in batches:
                    n = sum(m.key == key for m in self.chunks[name, batch])
                    asked[name, key, batch] += n
        output = (frozenset(release.keys), rows, asked)
        assert self.outputs.setdefault(release.number, output) == output, "SE-10"

    def finish_release(self) -> None:
        release = self.tracker.pending
        if release is not None and release.number in self.outputs:
            self.record(ReleaseFinished(release.number, 3.0))

    def crash(self) -> None:
        """Lose what is not durable."""
        before = state_of(self.tracker)
        if self.ledger is not None:
            assert self.path is not None
            self.ledger.close()
            self.ledger = Ledger(self.path, self.rules)
            self.tracker = self.ledger.tracker
        else:
            self.tracker = Tracker(self.rules)
            for event in self.events:
                self.tracker.handle(event)
        assert state_of(self.tracker) == before, "SE-10: what is durable is not the state"
        validate(self.tracker)

    def record(self, event: Event) -> None:
        self.events.append(event)
        if self.ledger is None:
            self.follow(self.tracker.handle(event))
        else:
            self.follow(self.ledger.record(event))
        validate(self.tracker)
        open_ = [p for p in self.tracker.partitions.values() if p.status is Status.OPEN]
        shares = [share for partition in open_ for share in partition.shares.values()]
        assert votes_missing(self.tracker) == Counter(p for s in shares for p in s.missing)
        if self.eager and not isinstance(event, Counted):
            self.count()

    def follow(self, findings: list[Finding]) -> None:
        for finding in findings:
            match finding:
                case Quarantined(key=key):
                    assert key not in self.quarantined
                    self.quarantined.add(key)
                case Unneeded(input=name, batch=batch):
                    del self.chunks[name, batch]
                case Outsider(key=key, input=name, producer=producer):
                    for (of, batch), messages in self.undecided.items():
                        last, _ = self.tracker.ingested.get(of, (-1, None))
                        if of == name and batch <= last:
                            same = [m for m in messages if (m.key, m.producer) == (key, producer)]
                            self.unknown.update(m.id for m in same)
                case _:
                    pass

    def settle(self) -> None:
        """Do everything that is still to be done."""
        self.look_up_due()
        self.count()
        while self.tracker.next_release() is not None:
            self.start_release()
            self.process()
            self.finish_release()

    # ---- what came out

    def released(self) -> Counter[str]:
        return Counter(key for keys, _, _ in self.outputs.values() for key in keys)


@dataclass
class Judge:
    """What a gate should do, recomputed from everything that happened so far."""

    rules: Rules
    history: list[Any]
    """See `World.history`."""

    def verdict(self) -> tuple[dict[str, Counter[int]], Counter[int], Counter[int], set[str]]:
        """(records of released partitions, late, unknown, quarantined)."""
        sets: dict[tuple[str, str], tuple[str, ...]] = {}
        held: dict[str, list[tuple[str, Message]]] = {}
        done: dict[str, Counter[int]] = {}
        votes_of_done: dict[str, list[tuple[str, Message]]] = {}
        late: Counter[int] = Counter()
        unknown: Counter[int] = Counter()
        bad: set[str] = set()

        def members(name: str, key: str) -> tuple[str, ...] | None:
            rule = self.rules.inputs[name]
            return rule.members if isinstance(rule, All) else sets.get((name, key))

        def outside(name: str, m: Message) -> bool:
            known = members(name, m.key)
            return known is not None and m.producer not in known

        def judge(key: str) -> None:
            if key in bad or key in done or key not in held:
                return
            mine = [(n, m) for n, m in held[key]]
            for name in self.rules.inputs:
                for producer in members(name, key) or ():
                    said, came = self.told(mine, name, producer)
                    if len(said) > 1 or any(came > promised for promised in said):
                        bad.add(key)
            if key in bad:
                return
            for name in self.rules.inputs:
                known = members(name, key)
                if known is None:
                    return
                for producer in known:
                    said, came = self.told(mine, name, producer)
                    if said != {came}:
                        return
            done[key] = Counter()
            for name in self.rules.inputs:
                ids = [m.id for n, m in mine if n == name and m.count is None]
                done[key].update(set(ids) if name in self.rules.identified else ids)
            votes_of_done[key] = [(n, m) for n, m in mine if m.count is not None]

        for step in self.history:
            if isinstance(step, Batch):
                before = set(done)
                for m in step.messages:
                    if m.key in before:
                        said = [
                            o.count
                            for n, o in votes_of_done[m.key]
                            if (n, o.producer) == (step.input, m.producer)
                        ]
                        if m.count is None or m.count not in said:
                            late[m.id] += 1
                    elif outside(step.input, m):
                        unknown[m.id] += 1
                    else:
                        held.setdefault(m.key, []).append((step.input, m))
                for key in {m.key for m in step.messages}:
                    judge(key)
            else:
                name, key, producers = step
                if key in done or (name, key) in sets:
                    continue
                sets[name, key] = producers
                stay = [(n, m) for n, m in held.get(key, []) if n != name or not outside(n, m)]
                unknown.update(m.id for n, m in held.get(key, []) if n == name and outside(n, m))
                held[key] = stay
                judge(key)
        return done, late, unknown, bad

    def told(self, mine: list[tuple[str, Message]], name: str, producer: str) -> tuple[set, int]:
        """(counts that a producer promised, records of it that came)."""
        of_producer = [m for n, m in mine if (n, m.producer) == (name, producer)]
        ids = [m.id for m in of_producer if m.count is None]
        said = {m.count for m in of_producer} - {None}
        return said, len(set(ids) if name in self.rules.identified else ids)
