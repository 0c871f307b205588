"""A stream that the analyser calls deterministic never differs between runs or replicas."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def benchmark() -> ModuleType:
    file = Path(__file__).parents[3] / "benchmarks/soundness.py"
    spec = importlib.util.spec_from_file_location("soundness", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("dataflows", "seed"), [(30, 1)])
def test_no_label_is_exceeded(dataflows: int, seed: int) -> None:
    found = benchmark().sweep(dataflows, inputs=4, seed=seed)
    assert found.dataflows == dataflows
    assert not found.mistakes
    assert sum(found.differed.values()) > 0
