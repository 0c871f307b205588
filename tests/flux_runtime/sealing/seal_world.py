"""A gate without Spark, and a naive judge of what it should do, for property tests of the tracker.

`World` drives a tracker as the gate does: chunks, journal, releases, outputs that are committed
once, and crashes between any two steps. `Judge` recomputes everything from the list of what
happened, by brute force.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from flux_runtime.sealing.events import (
    Event,
    Found,
    Group,
    Ingested,
    Outsider,
    Quarantined,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Unneeded,
    event_from_json,
    event_to_json,
)
from flux_runtime.sealing.invariants import validate
from flux_runtime.sealing.snapshot import tracker_from_json, tracker_to_json
from flux_runtime.sealing.tracker import All, Rules, Tracker, Verdict


@dataclass(frozen=True)
class Message:
    """A record (`count` None) or a punctuation."""

    id: int
    key: str
    producer: str
    count: int | None = None


@dataclass(frozen=True)
class Batch:
    input: str
    number: int
    messages: tuple[Message, ...]


def groups(messages: tuple[Message, ...]) -> tuple[Group, ...]:
    counted = Counter((m.key, m.producer, m.count) for m in messages)
    return tuple(
        Group(key, producer, count, None, rows)
        for (key, producer, count), rows in sorted(counted.items(), key=repr)
    )


class World:
    """A gate's tracker with everything around it that survives a crash."""

    def __init__(self, rules: Rules, registered: dict[tuple[str, str], tuple[str, ...]]) -> None:
        self.rules = rules
        self.registered = registered
        """What the registry knows by now: (input, key) -> producers."""
        self.tracker = Tracker(rules)
        self.journal: list[str] = []
        self.chunks: dict[tuple[str, int], list[Message]] = {}
        self.outputs: dict[int, tuple[frozenset[str], Counter[int], Counter[tuple]]] = {}
        self.late: Counter[int] = Counter()
        self.unknown: Counter[int] = Counter()
        self.quarantined: set[str] = set()
        self.undecided: dict[tuple[str, int], list[Message]] = {}
        self.history: list[Any] = []
        """For the judge: micro-batches, and (input, key, producers) that became known."""

    # ---- steps

    def ingest(self, batch: Batch, *, crash_before_journal: bool = False) -> None:
        if self.tracker.replayed(batch.input, batch.number):
            before = tracker_to_json(self.tracker)
            self.record(Ingested(batch.input, batch.number, 0.0, groups(batch.messages)))
            assert tracker_to_json(self.tracker) == before, "SE-10: a replay changed something"
            self.journal.pop()
            return
        event = Ingested(batch.input, batch.number, 1.0, groups(batch.messages))
        self.look_up(batch.input, self.tracker.unknown_sets(event))
        verdicts = {
            (g.key, g.producer, g.count): verdict for g, verdict in self.tracker.assess(event)
        }
        place = (batch.input, batch.number)
        taken, late, unknown = [], [], []
        for m in batch.messages:
            verdict = verdicts[m.key, m.producer, m.count]
            if verdict is Verdict.LATE:
                late.append(m.id)
            elif verdict is Verdict.UNKNOWN:
                unknown.append(m.id)
            elif m.count is None:
                taken.append(m)
        self.chunks[place] = taken
        self.undecided[place] = [
            m for m in batch.messages if verdicts[m.key, m.producer, m.count] is Verdict.UNDECIDED
        ]
        if crash_before_journal:
            self.crash()
            return
        self.late.update(late)
        self.unknown.update(unknown)
        self.history.append(batch)
        self.record(event)
        if batch.number not in self.tracker.references.get(batch.input, {}):
            del self.chunks[place]

    def ask(self, name: str, number: int, keys: list[str]) -> None:
        if self.tracker.replayed(name, number):
            return
        self.chunks[name, number] = [Message(0, key, "") for key in keys]
        self.record(Requested(name, number, 1.0, dict(Counter(keys))))

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

    def process(self) -> None:
        release = self.tracker.pending
        if release is None:
            return
        rows: Counter[int] = Counter()
        for name, batches in release.chunks.items():
            excluded = set(release.excluded.get(name, ()))
            for batch in batches:
                for m in self.chunks[name, batch]:
                    if m.key in release.process and (m.key, m.producer) not in excluded:
                        rows[m.id] += 1
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

    def crash(self, *, from_snapshot: bool = False) -> None:
        """Lose what is not durable."""
        if from_snapshot:
            state = json.loads(json.dumps(tracker_to_json(self.tracker)))
            self.tracker = tracker_from_json(state, self.rules)
        else:
            before = tracker_to_json(self.tracker)
            self.tracker = Tracker(self.rules)
            for line in self.journal:
                self.tracker.handle(event_from_json(json.loads(line)))
            assert tracker_to_json(self.tracker) == before, "SE-10: the journal is not the state"
        validate(self.tracker)

    def record(self, event: Event) -> None:
        self.journal.append(json.dumps(event_to_json(event)))
        for finding in self.tracker.handle(event):
            match finding:
                case Quarantined(key=key):
                    assert key not in self.quarantined
                    self.quarantined.add(key)
                case Unneeded(input=name, batch=batch):
                    del self.chunks[name, batch]
                case Outsider(key=key, input=name, producer=producer):
                    for (of, batch), messages in self.undecided.items():
                        if of == name and self.tracker.replayed(of, batch):
                            same = [m for m in messages if (m.key, m.producer) == (key, producer)]
                            self.unknown.update(m.id for m in same)
                case _:
                    pass
        validate(self.tracker)

    def settle(self) -> None:
        """Do everything that is still to be done."""
        self.look_up_due()
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
                    said = {m.count for n, m in mine if (n, m.producer) == (name, producer)} - {
                        None
                    }
                    came = sum((n, m.producer, m.count) == (name, producer, None) for n, m in mine)
                    if len(said) > 1 or any(came > promised for promised in said):
                        bad.add(key)
            if key in bad:
                return
            for name in self.rules.inputs:
                known = members(name, key)
                if known is None:
                    return
                for producer in known:
                    said = {m.count for n, m in mine if (n, m.producer) == (name, producer)} - {
                        None
                    }
                    came = sum((n, m.producer, m.count) == (name, producer, None) for n, m in mine)
                    if said != {came}:
                        return
            done[key] = Counter(m.id for n, m in mine if m.count is None)
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
