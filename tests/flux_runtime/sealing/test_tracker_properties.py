"""SE-1 to SE-12 under random traffic, registrations, replays and crashes, against a naive judge."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from seal_world import Batch, Judge, Message, World, covered, state_of

from flux_runtime.sealing import ledger as ledgers
from flux_runtime.sealing.events import Chunk, Group, Groups, Ingested
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.tracker import All, One, Registered, Rules, Tracker

KEYS = ("k1", "k2", "k3")
PRODUCERS = ("a", "b", "c")


def traffic(
    rng: random.Random, inputs: tuple[str, ...], *, clean: bool, repeats: bool
) -> list[tuple]:
    """(input, message) of a random world; `clean`: every producer keeps its promises."""
    messages: list[tuple[str, Message]] = []

    def add(name: str, key: str, producer: str, count: int | None = None) -> None:
        message = Message(len(messages), key, producer, count)
        again = repeats and count is None and rng.random() < 0.3
        messages.extend([(name, message)] * (1 + again * rng.randrange(1, 3)))

    for name in inputs:
        for key in KEYS:
            for producer in PRODUCERS:
                n = rng.randrange(4)
                for _ in range(n):
                    add(name, key, producer)
                promised = n
                if not clean and rng.random() < 0.15:
                    promised = max(0, n + rng.choice((-1, 1)))
                if clean or rng.random() < 0.9:
                    add(name, key, producer, promised)
                if rng.random() < 0.2:
                    add(name, key, producer, promised)
                if not clean and rng.random() < 0.1:
                    add(name, key, producer, promised + 1)
            if not clean and rng.random() < 0.3:
                add(name, key, "stranger")
                add(name, key, "stranger", 1)
    rng.shuffle(messages)
    return messages


def batches_of(rng: random.Random, messages: list[tuple]) -> list[Batch]:
    batches: list[Batch] = []
    numbers: Counter[str] = Counter()
    while messages:
        name = messages[0][0]
        size = rng.randrange(1, 12)
        mine, rest = [], []
        for message in messages:
            (mine if message[0] == name and len(mine) < size else rest).append(message)
        messages = rest
        batches.append(Batch(name, numbers[name], tuple(m for _, m in mine)))
        numbers[name] += 1
    return batches


def live(
    rng: random.Random,
    *,
    clean: bool,
    registered: bool,
    asks: bool,
    repeats: bool,
    path: Path | None = None,
) -> World:
    """One random life of a gate."""
    inputs = ("x", "y")[: rng.choice((1, 2))]
    rule = Registered() if registered else All(PRODUCERS)
    rules = Rules(
        inputs=dict.fromkeys(inputs, rule),
        requests=("ask",) if asks else (),
        identified=frozenset(inputs) if repeats else frozenset(),
    )
    world = World(rules, {}, path, eager=repeats and not clean)
    unregistered = [(name, key) for name in inputs for key in KEYS] if registered else []
    batches = batches_of(rng, traffic(rng, inputs, clean=clean, repeats=repeats))
    asked: Counter[str] = Counter()
    asks_made = 0

    while batches or unregistered:
        step = rng.randrange(12)
        if step <= 3 and batches:
            batch = batches[0]
            crash = rng.random() < 0.15
            world.ingest(batch, crash_before_ledger=crash)
            if not crash:
                batches.pop(0)
                if rng.random() < 0.2:
                    world.ingest(batch)  # SE-10: a replay
        elif step == 4 and unregistered:
            place = unregistered.pop(rng.randrange(len(unregistered)))
            who = rng.sample(PRODUCERS, rng.randrange(1, len(PRODUCERS) + 1))
            world.registered[place] = tuple(sorted(who))
        elif step == 5:
            world.look_up_due()
        elif step == 6:
            world.start_release()
        elif step == 7:
            world.process()
        elif step == 8:
            world.finish_release()
        elif step == 9 and asks and rng.random() < 0.5:
            keys = [rng.choice(KEYS) for _ in range(rng.randrange(1, 3))]
            world.ask("ask", asks_made, keys)
            asked.update(keys)
            asks_made += 1
        elif step == 10:
            world.count()
        elif step == 11:
            world.compact(rng.choice((0.3, 0.6, 1.0)))
        if rng.random() < 0.1:
            world.crash()
    world.settle()
    if world.ledger is not None:
        world.ledger.close()
        world.tracker = Tracker(rules, {}, world.tracker.partitions)
    check(
        world,
        Judge(rules, world.history),
        asked,
        clean=clean,
        registered=registered,
        asks=asks,
        repeats=repeats,
    )
    return world


def check(
    world: World,
    judge: Judge,
    asked: Counter[str],
    *,
    clean: bool,
    registered: bool,
    asks: bool,
    repeats: bool,
) -> None:
    released, late, unknown, bad = judge.verdict()
    assert world.released() == Counter(released.keys()), "SE-1, SE-3, SE-4"
    assert world.quarantined == bad, "SE-6"
    if clean and repeats:  # until it is counted, a partition takes the repeats that come
        assert world.late <= late, "SE-5"
        assert unknown <= world.unknown <= unknown + late, "SE-7"
    else:
        assert world.late == late, "SE-5"
        assert world.unknown == unknown, "SE-7"
    if clean:
        assert released.keys() == set(KEYS)
        assert not late or registered or repeats
    if not asks:
        rows = sum((rows for _, rows, _ in world.outputs.values()), Counter())
        assert rows == sum(released.values(), Counter()), "SE-3: each record once"
        needed = bad | set(world.tracker.partitions)
        held = {m.key for messages in world.chunks.values() for m in messages}
        assert needed >= held - set(released), "SE-9"
        if not world.tracker.partitions:
            assert world.chunks == {}, "SE-9"
    answered: Counter[str] = Counter()
    for _, _, answers in world.outputs.values():
        for (_, key, _), n in answers.items():
            answered[key] += n
    assert answered == Counter({k: n for k, n in asked.items() if k in released}), "SE-12"


@pytest.mark.parametrize("repeats", [False, True], ids=["", "repeats"])
@pytest.mark.parametrize("asks", [False, True], ids=["", "requests"])
@pytest.mark.parametrize("registered", [False, True], ids=["all", "registered"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "wrong"])
@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_every_life_of_a_gate_is_right(
    seed: int, clean: bool, registered: bool, asks: bool, repeats: bool
) -> None:
    live(random.Random(seed), clean=clean, registered=registered, asks=asks, repeats=repeats)


@pytest.mark.parametrize("seed", range(16))
def test_every_life_of_a_gate_with_its_ledger_is_right(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    clean, registered, asks, repeats = (bool(seed >> bit & 1) for bit in range(4))
    live(rng, clean=clean, registered=registered, asks=asks, repeats=repeats, path=tmp_path)


def other_rules(rng: random.Random, rules: Rules) -> Rules:
    """What a changed file may say of the same gate."""
    inputs = {
        name: rng.choice((rule, All(PRODUCERS[:2]), All((*PRODUCERS, "d")), Registered(), One()))
        for name, rule in rules.inputs.items()
    }
    identified = rng.choice((rules.identified, frozenset(), frozenset(inputs)))
    return replace(
        rules, inputs=inputs, identified=identified, remember_s=rng.choice((None, 0.5, 9.0))
    )


@pytest.mark.parametrize("seed", range(0, 16, 3))
def test_a_journal_is_applied_under_the_rules_that_it_was_written_under(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on under other rules, at any moment, has what is there without a journal."""
    clean, registered, asks, repeats = (bool(seed >> bit & 1) for bit in range(4))
    flags = {"clean": clean, "registered": registered, "asks": asks, "repeats": repeats}
    world = live(random.Random(seed), **flags)
    lives: list[list[Any]] = []
    for length in (0, ledgers.JOURNAL_MAX):
        monkeypatch.setattr(ledgers, "JOURNAL_MAX", length)
        rng, states = random.Random(seed), list[Any]()
        path = tmp_path / str(length)
        ledger = Ledger(path, replace(world.rules, remember_s=rng.choice((None, 9.0))))
        for event in world.events[: rng.randrange(1, len(world.events) + 1)]:
            ledger.record(event)
            if rng.random() < 0.1:
                ledger.close()
                ledger = Ledger(path, ledger.tracker.rules)
        for _ in range(2):
            ledger.close()
            ledger = Ledger(path, other_rules(rng, world.rules))
            states.append(pformat(state_of(ledger.tracker)))
            (name, *_) = ledger.tracker.rules.inputs
            number = ledger.tracker.ingested.get(name, (-1,))[0] + 1
            new = [
                Group(key, rng.choice("abcd"), None, None, 1) for key in (*KEYS, f"new {number}")
            ]
            chunk = Chunk("records", 4, 4, 0, {"part": (4, 0)})
            ledger.record(Ingested(name, number, 4.0, Groups.of(new), 0, covered(number), chunk))
            states += [pformat(state_of(ledger.tracker)), ledger.forget(rng.choice((4.0, 99.0)))]
        ledger.close()
        lives.append(states)
    assert lives[1] == lives[0]
