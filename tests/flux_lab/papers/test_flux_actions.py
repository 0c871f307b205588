"""Every action is in the code, in a test's name, and on the reference page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import flux_actions
from benchmarks.flux_mutations import FOUND, MUTATIONS
from flux_lab.actions import ACTIONS, GROUPS

ROOT = Path(flux_actions.ROOT)
CHECKED_ALWAYS = ("BI-7", "BI-8", "BI-9")
"""Promises that the checkers of the simulator watch; nothing implements them by itself."""


@pytest.mark.parametrize("action", ACTIONS)
def test_the_action_is_implemented_tested_and_mutated(action: str) -> None:
    assert action.split("-")[0] in GROUPS
    assert flux_actions.modules(action), "no module names it"
    assert flux_actions.tests(action), "no test has it in its name"
    if action not in CHECKED_ALWAYS:
        assert any(flux_actions.named(action, m.rule) for m in MUTATIONS), (
            "no mutation takes it out"
        )


def test_an_id_is_told_from_longer_ones() -> None:
    assert flux_actions.named("CU-6", "CU-6, CU-6a: both")
    assert not flux_actions.named("CU-6", "CU-6a and CU-60")
    assert not flux_actions.named("CU-6", "ACU-6")


def test_every_mutation_can_still_be_applied_and_has_been_tried() -> None:
    """Run new ones with `python benchmarks/flux_mutations.py --only RULE --keep`."""
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    assert list(found) == [mutation.rule for mutation in MUTATIONS]
    for mutation in MUTATIONS:
        text = (ROOT / mutation.path).read_text(encoding="utf-8")
        assert text.count(mutation.old) == 1, (
            f"{mutation.rule}: {mutation.old!r} in {mutation.path}"
        )


def test_the_page_is_current() -> None:
    """Write it with `python benchmarks/flux_actions.py > docs/reference/flux-actions.md`."""
    written = ROOT / "docs" / "reference" / "flux-actions.md"
    assert written.read_text(encoding="utf-8") == flux_actions.page()
