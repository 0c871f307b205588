"""A CTE that is used twice says what its text says when it stands in both places."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from annotations.whitebox import derive, plan_json, sharing, splitting
from annotations.whitebox.derive import annotate
from annotations.whitebox.facts import Facts
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Relation, Role, nodes_of
from annotations.whitebox.sql import read
from benchmarks.cte_chains import CLICKS, FORMS, chain
from benchmarks.random_queries import Queries, schemas

CLICKS_AND_ASKS: Final = {"clicks": Input(CLICKS), "asks": Input({"k": "INT"}, Role.REQUEST)}


def inlined(form: str, first: str, length: int) -> str:
    """The chain with the text of each CTE in every place where it is used."""
    _, step, last = FORMS[form]
    query = first
    for at in range(1, length + 1):
        query = step.format(f"({query})", at)
    return last.format(f"({query})", length)


def verdict(text: str, inputs: dict[str, Input]) -> Any:
    """What is derived of a query, but for the places in its text."""
    query = read(text, inputs=inputs)
    assert query.problem is None, (query.problem, text)
    derivation = annotate(query.plan, lateness={"a": 10.0})
    paths = {
        name: (
            path.writes, frozenset(path.gates), path.within, path.nondeterministic,
            dict(path.lineage), path.repeats, path.rows,
            frozenset((why.construct, why.text, why.gate) for why in path.evidence),
        )
        for name, path in derivation.paths.items()
    }  # fmt: skip
    return paths, derivation.repeats, {assumed.text for assumed in derivation.assumptions}


class Chain(NamedTuple):
    """A chain of CTEs over a random query."""

    text: str
    inlined: str
    inputs: dict[str, Input]


def chains(seeds: int, length: int = 2) -> Iterator[Chain]:
    for seed in range(seeds):
        rng = random.Random(seed)
        given = schemas(rng)
        inner, columns = Queries(rng, given).query(rng.choice([0, 0, 1]))
        inputs = CLICKS_AND_ASKS | {table.name: table.input for table in given.tables}
        named = zip("kuv", [rng.choice(columns).text for _ in range(3)], strict=True)
        items = ", ".join(f"{column} AS {name}" for name, column in named)
        first = f"SELECT {items} FROM ({inner}) s"
        for form in FORMS:
            text = chain(form, length, first)
            if read(text, inputs=inputs).problem is not None:
                continue
            yield Chain(text, inlined(form, first, length), inputs)


def test_a_cte_in_several_places_is_as_its_text_in_each() -> None:
    compared = [*chains(4)]
    for text, apart, inputs in compared:
        assert verdict(text, inputs) == verdict(apart, inputs), text
    assert len(compared) > 25


def test_far_down_a_chain_a_cte_is_as_its_text() -> None:
    for form in FORMS:
        first = FORMS[form][0]
        text = chain(form, 4, first)
        assert verdict(text, CLICKS_AND_ASKS) == verdict(inlined(form, first, 4), CLICKS_AND_ASKS)


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_with_a_cte_in_several_places_goes_from_process_to_process(form: str) -> None:
    plan = read(chain(form, 8), inputs=CLICKS_AND_ASKS).plan
    handed = plan_json.from_json(json.loads(json.dumps(plan_json.to_json(plan))))
    assert len(list(nodes_of(handed))) == len(list(nodes_of(plan)))
    assert annotate(handed).paths == annotate(plan).paths


def of_one_source(facts: Facts, occurrences: sharing.Occurrences) -> dict[int, int]:
    """Every occurrence of a source for the first of it."""
    first: dict[str, int] = {}
    names = {at: occurrences.names[at].name for at in sorted(facts.live)}
    return {at: first.setdefault(name, at) for at, name in names.items()}


MISTAKES: Final[dict[str, tuple[Any, str, Any]]] = {
    "all occurrences of a source are one": (sharing, "_alike", of_one_source),
    "the records behind both uses are the same": (derive, "used_again", lambda node, facts, _: (
        sharing._changed(facts, dict(zip(node.input.columns, node.columns, strict=True)),
                         lambda several: several))),
    "a gate has what one occurrence has": (sharing, "_common", lambda gate, seen, occurrences: (
        tuple(frozenset((next(iter(occurrences.represent([at]))), name) for at, name in copies)
              for copies in gate))),
    "marks are lost where rows are used again": (splitting, "_condensed", lambda rows: (
        replace(rows, marks={}))),
}  # fmt: skip
"""Rules of sharing that are wrong."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    assert any(
        verdict(text, inputs) != verdict(apart, inputs) for text, apart, inputs in chains(40)
    )


def test_too_many_occurrences_only_take_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [*chains(4)]
    exact = [verdict(text, inputs) for text, _, inputs in several]
    monkeypatch.setattr(sharing, "OCCURRENCES_MAX", 0)
    monkeypatch.setattr(splitting, "OCCURRENCES_MAX", 0)
    coarser = 0
    for (text, _, inputs), (exactly, *_) in zip(several, exact, strict=True):
        paths, *_ = verdict(text, inputs)
        for name, (writes, gates, within, chance, lineage, *_) in paths.items():
            known = exactly[name]
            assert (writes, within, chance) == (known[0], known[2], known[3]), text
            assert lineage.items() <= known[4].items(), text
            assert bool(gates) == bool(known[1]), text
            if any(gate.attributes is None for gate in gates) or not gates:
                continue
            least, exact_least = (
                frozenset.intersection(*(gate.attributes for gate in each))
                for each in (gates, known[1])
            )
            assert least <= exact_least, text
            coarser += least < exact_least
    assert coarser


@pytest.mark.parametrize("form", FORMS)
def test_the_work_grows_like_the_text(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, seen = derive._Pass._facts, list[int]()

    def counted(self: Any, node: Relation) -> Facts:
        facts = rules(self, node)
        seen.append(1 + len(facts.live) + len(facts.effects))
        return facts

    monkeypatch.setattr(derive._Pass, "_facts", counted)
    visited, work = [], []
    for length in (6, 12, 18):
        plan = read(chain(form, length), inputs=CLICKS_AND_ASKS).plan
        seen.clear()
        annotate(plan)
        assert len(seen) == sum(1 for _ in nodes_of(plan))
        visited.append(len(seen))
        work.append(sum(seen))
    assert visited[2] - visited[1] == visited[1] - visited[0]
    assert work[2] <= 3.5 * work[1]  # an operator's effect is known to all that stand above it
