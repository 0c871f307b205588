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
    assert {mutation.module for mutation in mutations(10_000, seed=0)} >= set(CORE) - {
        "rules",
        "choice",
    }


def test_a_mutated_module_is_python_and_differs() -> None:
    texts = {name: (ROOT / path).read_text(encoding="utf-8") for name, path in CORE.items()}
    trees = {name: ast.dump(ast.parse(text)) for name, text in texts.items()}
    for mutation in mutations(4, seed=1):
        mutated = mutation.applied(texts[mutation.module])
        assert ast.dump(ast.parse(mutated)) != trees[mutation.module], mutation.name
