"""Runs of Bloom modules under many orders and batchings, held against the derived labels.

What the labels claim (Blazes section IV), on the facts that a module ever puts out:

* all paths to an output confluent: every order and batching gives the same facts;
* `OW[gate]`, `OR[gate]`: the same facts where each partition of what is written comes whole, in
  whatever order the partitions come, and requests come when all is there.

A request is sent again in the end, as the derivation assumes of one that found no partner.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from annotations.dataflow import Path
from annotations.whitebox.bloom.modules import Module
from tests.annotations.whitebox.bloom_machine import Machine, Row

Facts = dict[str, list[Row]]
Batches = list[Facts]


@dataclass(frozen=True)
class Claim:
    """What is claimed of an output."""

    paths: tuple[Path, ...]

    @property
    def confluent(self) -> bool:
        """True where no order matters."""
        return all(path.annotation.kind.confluent for path in self.paths)

    @property
    def gate(self) -> frozenset[str] | None:
        """What the partitions of all order-sensitive paths have in common; None: nothing known."""
        gates = [p.annotation.gate for p in self.paths if p.annotation.gate is not None]
        found: frozenset[str] | None = None
        for gate in gates:
            if gate.attributes is None:
                return None
            found = gate.attributes if found is None else found & gate.attributes
        return found or None

    def sealable(self, module: Module) -> bool:
        """True where every input that writes has the attributes of the gate."""
        return self.gate is not None and all(
            self.gate <= set(module.collections[path.source].columns)
            for path in self.paths
            if path.annotation.kind.writes
        )

    @property
    def chance(self) -> bool:
        """True where the output is left to chance."""
        return any(path.nondeterministic is not None for path in self.paths)

    @property
    def requests(self) -> frozenset[str]:
        """Inputs that only read."""
        return frozenset(p.source for p in self.paths if not p.annotation.kind.writes)


def facts_of(module: Module, choose: random.Random) -> Facts:
    """A few facts for each input; two facts never have the same key."""
    found: Facts = {}
    for name in module.inputs:
        each = module.collections[name]
        rows: dict[Row, Row] = {}
        for at in range(choose.randint(2, 5)):
            row = tuple(
                at
                if column in ("id", "no")
                else choose.randint(0, 2)
                if column != "v"
                else choose.randint(-3, 5)
                for column in each.columns
            )
            key = tuple(
                v for v, column in zip(row, each.columns, strict=True) if column in each.keys
            )
            rows[key] = row
        found[name] = list(rows.values())
    return found


def any_schedule(facts: Facts, again: frozenset[str], choose: random.Random) -> Batches:
    """The facts in any order, cut into batches anywhere; requests once more in the end."""
    every = [(name, row) for name, rows in facts.items() for row in rows]
    choose.shuffle(every)
    batches: Batches = [{}]
    for name, row in every:
        if choose.random() < 0.6:
            batches.append({})
        batches[-1].setdefault(name, []).append(row)
    return [*batches, {}, {name: facts[name] for name in facts if name in again}]


def sealed_schedule(module: Module, facts: Facts, claim: Claim, choose: random.Random) -> Batches:
    """Partition after partition, each whole, and the requests when all of them are there."""
    gate = claim.gate or frozenset()
    partitions: dict[Row, Facts] = {}
    requests: Facts = {}
    for name, rows in facts.items():
        columns = module.collections[name].columns
        at = [columns.index(attribute) for attribute in sorted(gate) if attribute in columns]
        for row in rows:
            if name in claim.requests:
                requests.setdefault(name, []).append(row)
            else:
                key = tuple(row[each] for each in at)
                partitions.setdefault(key, {}).setdefault(name, []).append(row)
    order = list(partitions.values())
    choose.shuffle(order)
    asked = any_schedule(requests, frozenset(requests), choose)
    return [*order, {}, {}, *asked]


def outcomes(module: Module, output: str, batches: Iterator[Batches]) -> set[frozenset[Row]]:
    """What is put out, under each of these schedules."""
    return {Machine(module).run(each)[output] for each in batches}


def unsealed(
    module: Module, output: str, facts: Facts, claim: Claim, choose: random.Random, runs: int
) -> set[frozenset[Row]]:
    """The outcomes of `runs` schedules of any kind."""
    again = claim.requests if claim.confluent else frozenset()
    made = (any_schedule(facts, again, choose) for _ in range(runs))
    return outcomes(module, output, made)


def sealed(
    module: Module, output: str, facts: Facts, claim: Claim, choose: random.Random, runs: int
) -> set[frozenset[Row]]:
    """The outcomes of `runs` schedules that keep partitions together."""
    made = (sealed_schedule(module, facts, claim, choose) for _ in range(runs))
    return outcomes(module, output, made)
