"""The search for a refutation of one claim."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from blazes.verify.claims import Claim, Kind
from blazes.verify.experiment import Case, Engine, Outcome, Result, run
from blazes.verify.findings import Difference, Finding, Refutation, Status, compare
from blazes.verify.records import Failure, sort_key
from blazes.verify.shrink import shrunk
from blazes.verify.spark import OutOfTime
from blazes.verify.values import Generator
from blazes.verify.ways import draw, strangers, ways

SIZES: Final = (2, 2, 3, 3, 4, 5, 6, 8)
"""Records in a case: most mistakes show in a few."""
TOGETHER: Final = 8
"""Cases that are evaluated in one go; the first goes are smaller, as nobody knows how long they
take."""
FUNCTION_TRIES: Final = 4
"""A function that is none mostly shows at once; each try is two jobs."""
HOPELESS: Final = 400
"""After so many cases without a usable one the claim is given up."""
SHRINK_S: Final = 20.0
NO_OUTPUT: Final = "no generated input made it put anything out"
NO_INPUT: Final = "the time was over before an input was found that it puts anything out for"
NO_TIME: Final = "the time was over before it was tried"
FEWEST: Final = 10
"""Tries below which a claim that the time cut short does not count as tested."""


@dataclass
class Search:
    """Looks for a case that refutes a claim, a step at a time, so that claims can take turns.

    Attributes:
        claim: the claim.
        generator: of records for the component.
        fast: evaluates the cases.
        judge: has the last word: Spark.
        rng: all choices.
        patient: the judge without a limit of time, for the last word itself; None: the judge.
        tries_max: after which the search is over.
    """

    claim: Claim
    generator: Generator
    fast: Engine
    judge: Engine
    rng: random.Random
    patient: Engine | None = None
    tries_max: int = 300
    tries: int = 0
    drawn: int = 0
    failed: str = field(default="", repr=False)
    suspect: Case | None = field(default=None, repr=False)
    """It seems to refute the claim, which Spark has not confirmed yet."""
    refutation: Refutation | None = field(default=None, repr=False)
    together: int = field(default=2, repr=False)

    def __post_init__(self) -> None:
        if self.claim.kind is Kind.FUNCTION:
            self.fast, self.tries_max = self.judge, min(self.tries_max, FUNCTION_TRIES)

    @property
    def over(self) -> bool:
        """True where another step would add nothing."""
        if self.suspect is not None:
            return False
        hopeless = not self.tries and self.drawn >= HOPELESS
        return self.refutation is not None or self.tries >= self.tries_max or hopeless

    def step(self) -> None:
        """Try a few cases, or confirm what they seem to show; OutOfTime where no job may begin."""
        if self.suspect is not None:
            self.confirm(SHRINK_S)
            return
        cases = self._cases(min(self.together, self.tries_max))
        self.together = min(2 * self.together, TOGETHER)
        for case, difference in zip(cases, self._differences(self.fast, cases), strict=True):
            if difference is not None:
                self.suspect = case
                return

    def finding(self) -> Finding:
        """The verdict so far."""
        engine = self.fast.name
        if self.refutation is not None:
            return Finding(self.claim, Status.REFUTED, self.tries, engine, "", self.refutation)
        if self.tries >= min(FEWEST, self.tries_max):
            return Finding(self.claim, Status.STANDS, self.tries, engine)
        if self.tries:
            reason = f"the time was over after {self.tries} of at least {FEWEST} tries"
            return Finding(self.claim, Status.UNTESTED, self.tries, engine, reason)
        reason = NO_OUTPUT if self.over else NO_INPUT if self.drawn else NO_TIME
        return Finding(self.claim, Status.UNTESTED, 0, engine, self.failed or reason)

    def confirm(self, shrink_s: float) -> None:
        """Make the suspect small, for so many seconds at most, and let Spark have the last word."""
        assert self.suspect is not None
        refutation = self._refutation(self.suspect, shrink_s)
        self.suspect, self.refutation = None, refutation
        if refutation is None:
            self.fast = self.judge

    def _cases(self, count: int) -> list[Case]:
        drawn: list[Case] = []
        for _ in range(count * 10):
            self.drawn += 1
            case = draw(self.claim, self.generator, self.rng, self.rng.choice(SIZES))
            if case is not None:
                drawn.append(case)
            if len(drawn) == count:
                break
        return drawn

    def _differences(
        self, engine: Engine, cases: Sequence[Case], *, counted: bool = True
    ) -> list[Difference | None]:
        """For each case how its two ways differ, None where they do not or one fails."""
        operator = self.claim.operator
        assert operator is not None
        both = [ways(self.claim, case) for case in cases]
        if self.claim.kind is Kind.FUNCTION:  # in jobs of their own: a clock ticks between jobs
            firsts = run(
                engine, operator, [(c.items, w[0]) for c, w in zip(cases, both, strict=True)]
            )
            seconds = run(
                engine, operator, [(c.items, w[1]) for c, w in zip(cases, both, strict=True)]
            )
        else:
            tried = [(c.items, way) for c, pair in zip(cases, both, strict=True) for way in pair]
            results = run(engine, operator, tried)
            firsts, seconds = results[::2], results[1::2]
        differences = []
        for case, first, second in zip(cases, firsts, seconds, strict=True):
            if counted:
                self._count(case, first, second)
            differences.append(self._difference(case, first, second))
        return differences

    def _count(self, case: Case, first: Result, second: Result) -> None:
        failed = next((result for result in (first, second) if isinstance(result, Failure)), None)
        productive = any(isinstance(result, Outcome) and result.rows for result in (first, second))
        self.generator.learn(case.items, ran=failed is None, productive=productive)
        if failed is not None:
            self.failed = failed.message
        else:
            self.tries += productive

    def _difference(self, case: Case, first: Result, second: Result) -> Difference | None:
        if isinstance(first, Failure) or isinstance(second, Failure):
            return None
        columns = first.columns or second.columns
        if self.claim.kind is not Kind.KEY:
            return compare(columns, first.rows, second.rows)
        operator = self.claim.operator
        assert operator is not None
        wanted = strangers(self.claim, operator, case.items)
        places = {name.lower(): n for n, name in enumerate(columns)}
        strange = [
            row
            for row in first.rows
            for name, value in wanted.items()
            if name.lower() not in places or row[places[name.lower()]] != value
        ]
        if not strange:
            return None
        came = tuple(wanted.values())
        return (
            Difference(
                columns if set(wanted) - set(columns) else tuple(columns),
                (),
                tuple(sorted(dict.fromkeys(strange), key=sort_key)),
                len(first.rows) - len(dict.fromkeys(strange)),
            )
            if came
            else None
        )

    def _refutation(self, case: Case, shrink_s: float) -> Refutation | None:
        """The case made small and confirmed by Spark; None where Spark does not confirm it."""
        alike = frozenset(source for source, _ in self.claim.copies)

        def refutes(cases: Sequence[Case]) -> list[bool]:
            try:
                differences = self._differences(self.fast, cases, counted=False)
            except OutOfTime:
                return [False] * len(cases)
            return [difference is not None for difference in differences]

        until = time.monotonic() + shrink_s
        small = shrunk(case, refutes, self.generator, until=until, alike=alike)
        (difference,) = self._differences(self.patient or self.judge, [small], counted=False)
        found_by = self.fast.name
        if difference is None:
            return None
        operator = self.claim.operator
        assert operator is not None
        return Refutation(
            small,
            ways(self.claim, small),
            difference,
            found_by=found_by,
            confirmed_by=self.judge.name,
            columns={name: tuple(schema) for name, schema in operator.schemas.items()},
        )
