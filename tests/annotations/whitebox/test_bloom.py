"""What Bloom modules give: case by case, and never against what happens when they are run."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from annotations.diagnostics import BadInput
from annotations.whitebox.bloom import read
from tests.annotations.whitebox import bloom_page
from tests.annotations.whitebox.bloom_cases import (
    NEVER_SEEN,
    NOT_RUN,
    Case,
    cases,
    lines_of,
    outputs_of,
)
from tests.annotations.whitebox.bloom_programs import program
from tests.annotations.whitebox.bloom_truth import Claim, facts_of, sealed, unsealed

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_module_gives_what_stands_beside_it(case: Case) -> None:
    assert lines_of(case) == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_no_run_contradicts_a_label(case: Case) -> None:
    contradict(case, range(4))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_no_run_of_many_contradicts_a_label_and_most_labels_are_seen(case: Case) -> None:
    differed, sensitive = contradict(case, range(40))
    if sensitive:
        assert differed == (case.title not in NEVER_SEEN)


@pytest.mark.parametrize("seed", range(60))
def test_no_run_contradicts_a_label_of_a_random_module(seed: int) -> None:
    contradict_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(2))
def test_no_run_contradicts_a_label_of_many_random_modules(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        contradict_random(seed)


def contradict_random(seed: int) -> None:
    """Fails where a run of a random module contradicts a label of it."""
    text = program(random.Random(seed))
    # Some go in a circle through what they negate, and some have a column twice.
    with suppress(BadInput):
        contradict(Case(text, text, ()), range(3))


def contradict(case: Case, seeds: range) -> tuple[bool, bool]:
    """Fails where a run contradicts a label; whether runs differed, and may."""
    module = read(case.text).modules["Case"]
    differed = sensitive = False
    for output in outputs_of(case):
        claim = Claim(output.paths())
        if claim.chance or case.title in NOT_RUN:
            continue
        sensitive = sensitive or not claim.confluent
        for seed in seeds:
            choose = random.Random(seed)
            facts = facts_of(module, choose)
            found = unsealed(module, output.name, facts, claim, choose, 5)
            differed = differed or len(found) > 1
            assert not claim.confluent or len(found) == 1, (facts, found)
            if claim.sealable(module):
                found = sealed(module, output.name, facts, claim, choose, 4)
                assert len(found) == 1, (facts, found)
    return differed, sensitive


def test_the_committed_table_is_what_the_cases_say() -> None:
    committed = bloom_page.PAGE.read_text(encoding="utf-8")
    assert committed == bloom_page.page(), "run: python -m tests.annotations.whitebox.bloom_page"
