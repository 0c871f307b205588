"""What became of the random mutations of the core: each was noticed, or it is said why none is."""

from __future__ import annotations

import ast
import json

from benchmarks.analysis_mutations import CORE, FOUND, mutations
from benchmarks.mutating import ROOT


def test_every_survivor_is_explained() -> None:
    """Try them again with `python benchmarks/analysis_mutations.py --keep`."""
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    assert len(found) > 30
    left = [name for name, said in found.items() if not said.startswith(("killed", "survived: "))]
    assert left == []


def test_every_module_of_the_core_that_decides_something_can_be_mutated() -> None:
    """`rules` and `choice` are tables, and what only puts parts together."""
    drawn = mutations(seed=1)
    assert {mutation.module for mutation in drawn} >= set(CORE) - {"rules", "choice"}
    for mutation in drawn[:4]:
        text = (ROOT / CORE[mutation.module]).read_text(encoding="utf-8")
        mutated = ast.parse(mutation.applied(text))
        assert ast.dump(mutated) != ast.dump(ast.parse(text)), mutation.name
