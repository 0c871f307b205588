"""Random mutations of what decides for leader and sites: does the sweep notice each?

    python -m flux_lab.shell mutations 40 [--seed 0] [--seeds 40]

A mutation turns a condition around, or takes a statement or one side of an `and` or `or` out, at a
place drawn from the seed. It stands in the function's place while the unit tests of these classes
run (`TESTS`, where there are any), then jobs: in the setting "any", then a few in every other one,
until something notices. Survivors are printed with their line.
"""

from __future__ import annotations

import ast
import inspect
import io
import random
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from flux_lab.shell.mistakes import compiled, standing_in
from flux_lab.shell.sweep import SETTINGS, run
from flux_runtime.site.client_service import ClientService
from flux_runtime.site.intake import Intake
from flux_runtime.site.journal import Journal
from flux_runtime.site.leader_state import LeaderState
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.resume_ledger import ResumeLedger
from flux_runtime.site.site_state import SiteState
from flux_runtime.site.view import View

OWNERS: Final = (
    LeaderState, ClientService, View, Ledger, ResumeLedger, SiteState, Intake, Journal
)  # fmt: skip
"""Classes whose functions are mutated."""
TESTS: Final = tuple(
    str(path)
    for name in ("leader_state", "site_state", "site_journal", "site_record")
    if (path := Path("tests", "flux_runtime", "site", f"test_{name}.py")).exists()
)
"""Unit tests of these classes, in the folder where this runs."""
ELSEWHERE: Final = 8
"""Runs in every setting but "any"."""
TELLING: Final = (
    "log.",
    "self.note(",
    "term.note(",
    "self.story.",
    "self.emit(Note",
    "term.emit(Committed(",
)
"""How statements begin that only tell people something."""
NOT_DECIDING: Final = {"tale", "validate", "status", "_note_recovery", "one_executor"}
"""Functions that only show or check."""


class Mutation(NamedTuple):
    """A change of one place of a function.

    Attributes:
        place: number of the place, in the order of the text.
        line: of the function that is changed, and how.
    """

    owner: type
    function: str
    place: int
    line: str

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.function}: {self.line}"


class _Mutator(ast.NodeTransformer):
    """Changes the place with a number, and counts the places."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.count = 0
        self.line = ""

    def _here(self, node: ast.AST, how: str) -> bool:
        self.count += 1
        if self.count - 1 == self.place:
            self.line = f"{how} {ast.unparse(node).splitlines()[0]}"
        return self.count - 1 == self.place

    def visit_If(self, node: ast.If) -> ast.AST:
        """Turn the condition around."""
        if self._here(node, "not"):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Take one side out."""
        for side in list(node.values):
            if self._here(side, "without"):
                node.values.remove(side)
                break
        return self.generic_visit(node)

    def _statement(self, node: ast.stmt) -> ast.AST:
        if ast.unparse(node).startswith(TELLING):
            return node
        return ast.Pass() if self._here(node, "without") else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Take a call out; docstrings are no statements."""
        return node if isinstance(node.value, ast.Constant) else self._statement(node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        """Take it out."""
        return self._statement(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Take it out."""
        return self._statement(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Take one of an attribute or an item out; without a local name nothing would run."""
        local_name = any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
        return self.generic_visit(node) if local_name else self._statement(node)


def _mutated(owner: type, function: str, place: int) -> tuple[ast.Module, _Mutator]:
    text = textwrap.dedent(inspect.getsource(getattr(owner, function)))
    mutator = _Mutator(place)
    tree = mutator.visit(ast.parse(text))
    return ast.fix_missing_locations(tree), mutator


def mutations() -> Iterator[Mutation]:
    """Every mutation, in the order of the text."""
    for owner in OWNERS:
        for name, value in vars(owner).items():
            if not inspect.isfunction(value) or name.startswith("__") or name in NOT_DECIDING:
                continue
            _, counted = _mutated(owner, name, -1)
            for place in range(counted.count):
                yield Mutation(owner, name, place, _mutated(owner, name, place)[1].line)


def drawn(count: int, seed: int) -> list[Mutation]:
    """So many of them."""
    every = list(mutations())
    return random.Random(seed).sample(every, min(count, len(every)))


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The product with this mutation."""
    original: Any = getattr(mutation.owner, mutation.function)
    tree, _ = _mutated(mutation.owner, mutation.function, mutation.place)
    replacement = compiled(ast.unparse(tree), original, str(mutation))
    with standing_in(mutation.owner, mutation.function, replacement):
        yield


def noticed(mutation: Mutation, seeds: range) -> tuple[str, str] | None:
    """The first to notice, unit tests or a seed in some setting, and what it says."""
    with mutated(mutation):
        if failed := _failed_test():
            return "tests", failed
        for setting in SETTINGS:
            for seed in seeds if setting == "any" else seeds[:ELSEWHERE]:
                done = run(seed, setting)
                if done.problem:
                    return f"{setting} {seed}", done.problem
    return None


class _FirstFailure:
    """A plugin of pytest's: which test has failed."""

    name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test has ended."""
        if report.failed:
            self.name = self.name or report.nodeid.rpartition("::")[2]


def _failed_test() -> str:
    """The first unit test that fails; they are run again in this process, as it is now."""
    first = _FirstFailure()
    if TESTS:
        with redirect_stdout(io.StringIO()):
            pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *TESTS], [first])
    return first.name
