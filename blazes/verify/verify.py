"""All claims of a dataflow put to the test."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from annotations.dataflow import Dataflow
from blazes.analysis import Analysis, analyze
from blazes.verify import duckdb_engine, recorded
from blazes.verify.claims import Claim, Kind, claims_of
from blazes.verify.constants import constants_of
from blazes.verify.experiment import Case, Engine, Way
from blazes.verify.findings import Difference, Finding, Refutation, Report, Status
from blazes.verify.operators import Operator, entering, leaving, operators_of
from blazes.verify.records import Failure, Inputs, Row, expanded
from blazes.verify.search import NO_TIME, Search
from blazes.verify.spark import OutOfTime, Spark
from blazes.verify.values import Generator, NoValues
from blazes.verify.weights import Weight, weights_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES: Final = 300
TIME_S: Final = 60.0
COMPARED: Final = 16
"""Inputs on which DuckDB has to agree with Spark before it stands in."""
ON_SPARK: Final = 60
"""Tries of a claim where Spark runs them all."""
LATE_SHRINK_S: Final = 2.0
"""How long a refutation is made smaller when the time is over."""
SHARE_S: Final = 0.2
"""How long a claim is tested in one turn. Many cases run in it on DuckDB, on Spark a few."""
LOOK: Final = 0.25
"""Part of the time for looking at the data, before any claim is tested."""
NO_FUNCTION: Final = "its output is not a function of its input"

Progress = Callable[[str, int, int], None]
"""Told what is tested, how many claims are done, and how many there are."""


class Verifier:
    """Tests the claims of one dataflow in one Spark session.

    Args:
        dataflow: whose claims.
        session: what runs the components.
        seed: of all choices.
        time_s: for everything from here on, in seconds. No job begins after it, but that which
            confirms a refutation; one that runs is waited for.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        session: SparkSession,
        *,
        seed: int = 1,
        time_s: float = TIME_S,
    ) -> None:
        self.dataflow = dataflow
        self.analysis: Analysis = analyze(dataflow)
        self.seed = seed
        self.notes: list[str] = []
        self._began = time.monotonic()
        self._spark = Spark(session, until=self._began + time_s)
        self._patient = Spark(session)
        self._duck = duckdb_engine.DuckDBEngine()
        self._frames: dict[str, DataFrame] = {}
        """Source stream -> its data."""
        self._seen: dict[str, list[Row]] = {}
        """Stream -> records of it."""
        self.operators, self.untestable, self._schemas = operators_of(
            self.dataflow, self._spark.schema
        )
        self._spark.until = self._began + LOOK * time_s
        with contextlib.suppress(OutOfTime):
            self._look_at_data()
        self._spark.until = self._began + time_s

    # ---- what there is

    def _look_at_data(self) -> None:
        for stream in self.dataflow.streams.values():
            frame = recorded.data_of(self._spark.session, self.dataflow, stream)
            if frame is not None:
                self._spark.check()
                self._frames[stream.name] = frame
                self._seen[stream.name] = recorded.sample(frame)
        for operator in self.operators.values():
            self._follow(operator)

    def _follow(self, operator: Operator) -> None:
        """The records that an output makes of those seen at its inputs, kept for its readers."""
        inputs = self._records_for(operator)
        if not any(inputs.values()):
            return
        (output,) = self._spark.evaluate(operator, [tuple(inputs.items())])
        if isinstance(output, Failure):
            return
        for stream in leaving(self.dataflow, operator.component, operator.output):
            columns = self._schemas[stream.name]
            if set(columns) <= set(output.columns):
                places = [output.columns.index(name) for name in columns]
                rows = output.rows[: recorded.SAMPLE]
                self._seen[stream.name] = [tuple(row[n] for n in places) for row in rows]

    def _records_for(self, operator: Operator) -> dict[str, tuple[Row, ...]]:
        """Input interface -> records that were seen there."""
        records: dict[str, tuple[Row, ...]] = {}
        for name, schema in operator.schemas.items():
            rows: list[Row] = []
            for stream in entering(self.dataflow, operator.component, name):
                if list(self._schemas.get(stream.name, ())) == list(schema):
                    rows += self._seen.get(stream.name, [])
            records[name] = tuple(rows[: recorded.SAMPLE])
        return records

    # ---- the test

    def report(
        self,
        *,
        components: Collection[str] = (),
        tries: int = TRIES,
        progress: Progress = lambda stage, done, total: None,
    ) -> Report:
        """Test the claims: in turns, those first on which most rests.

        Args:
            components: only these; none: all, and the functional dependencies.
            tries: of each claim, if there is time for them.
            progress: is told how far it is.
        """
        weight = weights_of(self.dataflow)
        turns = list(self._turns(components, tries, weight))
        take(turns, until=self._spark.until, progress=progress)
        for turn in turns:
            turn.settle()
        reached = [*(turn.finding() for turn in turns), *self._without_code(components)]
        findings = tuple(replace(finding, weight=weight(finding.claim)) for finding in reached)
        took_s = time.monotonic() - self._began
        return Report(self.dataflow, findings, tuple(self.notes), self.seed, took_s)

    def _turns(
        self, components: Collection[str], tries: int, weight: Callable[[Claim], Weight]
    ) -> Iterator[Turn]:
        for at, operator in self.operators.items():
            if components and at.component not in components:
                continue
            output = _Output(self, operator, tries)
            claims = list(claims_of(operator, self.analysis))
            first = min(map(weight, claims[1:]), default=Weight.PLAN)
            slow = duckdb_engine.refusal(operator) is not None
            for claim in claims:
                heavy = first if claim.kind is Kind.FUNCTION else weight(claim)
                yield _Tested(output, claim, (heavy, slow))
        if not components:
            for fd in self.dataflow.fds:
                claim = Claim(Kind.FD, None, fd=fd)
                yield _Checked(self, claim, (weight(claim), False))

    def _why_not(self, operator: Operator) -> str:
        """Why an output claims nothing that could be wrong; empty where it does."""
        if operator.code is None:
            return "it has no code: records pass unchanged"
        for path in operator.own:
            if path.nondeterministic:
                return f"declared nondeterministic: {path.nondeterministic}"
        return ""

    def _pools(self, operator: Operator) -> Mapping[str, Sequence[Row]]:
        return {name: rows for name, rows in self._records_for(operator).items() if rows}

    def _engine(self, operator: Operator, generator: Generator) -> Engine:
        """DuckDB where it may stand in and agrees with Spark on a sample; else Spark."""
        refused = duckdb_engine.refusal(operator)
        if refused is None:
            disagreement = self._disagreement(operator, generator)
            if disagreement is None:
                return self._duck
            refused = f"DuckDB and Spark disagree on {disagreement}"
        if operator.code is not None and operator.code.sql is not None:
            self.notes.append(f"{operator.name} runs on Spark alone: {refused}.")
        return self._spark

    def _disagreement(self, operator: Operator, generator: Generator) -> Inputs | None:
        """Inputs for which DuckDB puts out something else than Spark."""
        rng = random.Random(self.seed)
        sample = [
            expanded(generator.items(rng, rng.randrange(1, 9)), operator.interfaces)
            for _ in range(COMPARED)
        ]
        here = self._duck.evaluate(operator, sample)
        there = self._spark.evaluate(operator, sample)
        for inputs, one, other in zip(sample, here, there, strict=True):
            if isinstance(one, Failure) or isinstance(other, Failure):
                if type(one) is not type(other):
                    return inputs
            elif Counter(one.rows) != Counter(other.rows):
                return inputs
        return None

    def _without_code(self, components: Collection[str]) -> Iterator[Finding]:
        """Outputs whose claims cannot even be written down."""
        for at, reason in self.untestable.items():
            if components and at.component not in components:
                continue
            component = self.dataflow.components[at.component]
            paths = tuple(path for path in component.paths if path.target == at.interface)
            operator = Operator(at.component, at.interface, paths, None, {})
            yield Finding(Claim(Kind.FUNCTION, operator), Status.UNTESTED, reason=reason)

    @cached_property
    def _recorded(self) -> dict[str, DataFrame]:
        """Stream -> all data of a source, or a sample of what components make of it."""
        frames = dict(self._frames)
        for name, rows in self._seen.items():
            if rows and name not in frames:
                ddl = ", ".join(f"`{n}` {kind}" for n, kind in self._schemas[name].items())
                frames[name] = self._spark.session.createDataFrame(rows, ddl)
        return frames


class Turn(Protocol):
    """A claim that is tested a step at a time."""

    claim: Claim
    precedence: tuple[Weight, bool]
    """What rests on it, and whether it is slow: the least begins."""

    @property
    def over(self) -> bool:
        """True where another step would add nothing."""

    def step(self) -> None:
        """Test it a little; OutOfTime where no job may begin."""

    def settle(self) -> None:
        """Let Spark confirm what is not confirmed yet, when the time is over too."""

    def finding(self) -> Finding:
        """The verdict so far."""


def take(
    turns: Sequence[Turn], *, until: float, progress: Progress, share_s: float = SHARE_S
) -> None:
    """Give every claim its share of time, then each another one, until all are over or time is.

    Args:
        turns: the claims.
        until: time (monotonic, seconds) from which no step begins.
        progress: is told how far it is.
        share_s: how long a claim goes on in one turn; a step that takes longer is its turn.
    """
    order = sorted(range(len(turns)), key=lambda n: (*turns[n].precedence, n))
    waiting = deque(turns[n] for n in order)
    while waiting and time.monotonic() < until:
        turn = waiting.popleft()
        if turn.over:
            continue
        progress(turn.claim.where, len(turns) - len(waiting) - 1, len(turns))
        began = time.monotonic()
        try:
            turn.step()
            while not turn.over and time.monotonic() - began < share_s:
                turn.step()
        except OutOfTime:
            return
        waiting.append(turn)


class _Output:
    """The common part of the claims about one output: values, engine, whether it is a function."""

    def __init__(self, verifier: Verifier, operator: Operator, tries: int) -> None:
        self.verifier = verifier
        self.operator = operator
        self.nothing = verifier._why_not(operator)
        self.reason = ""
        """Why nothing can be tested."""
        self.broken = False
        """True where it is no function of its input, so that no difference means anything."""
        self._tries = tries

    @cached_property
    def generator(self) -> Generator | None:
        """Of records; None, and a reason, where a value is not known."""
        verifier, operator = self.verifier, self.operator
        pools = verifier._pools(operator)
        try:
            return Generator(operator, constants_of(operator), verifier.dataflow.fds, pools)
        except NoValues as unknown:
            self.reason = f"no values are known of the type {unknown}"
            return None

    def search(self, claim: Claim) -> Search | None:
        """A search for what refutes a claim; None where there can be none."""
        if self.nothing or self.generator is None:
            return None
        verifier, engine = self.verifier, self.engine
        return Search(
            claim,
            self.generator,
            engine,
            verifier._spark,
            random.Random(seed_of(verifier.seed, claim)),
            verifier._patient,
            self._tries if engine is not verifier._spark else min(self._tries, ON_SPARK),
        )

    @cached_property
    def engine(self) -> Engine:
        """The engine that evaluates it: chosen at the first turn, since that takes a job."""
        assert self.generator is not None
        return self.verifier._engine(self.operator, self.generator)


@dataclass
class _Tested:
    """A claim about an output."""

    output: _Output
    claim: Claim
    precedence: tuple[Weight, bool]
    search: Search | None = None

    @property
    def over(self) -> bool:
        if self.claim.nothing or self.output.nothing or self.output.reason or self.output.broken:
            return True
        return self.search is not None and self.search.over

    def step(self) -> None:
        if self.search is None:
            self.search = self.output.search(self.claim)
        if self.search is not None:
            self.search.step()
            self._look()

    def settle(self) -> None:
        if self.search is not None and self.search.suspect is not None and not self.over:
            self.search.confirm(LATE_SHRINK_S)
            self._look()

    def _look(self) -> None:
        if self.claim.kind is Kind.FUNCTION and self.search is not None:
            self.output.broken = self.search.refutation is not None

    def finding(self) -> Finding:
        nothing = self.output.nothing or self.claim.nothing
        if nothing:
            return Finding(self.claim, Status.UNTESTABLE, reason=nothing)
        if self.output.broken and self.claim.kind is not Kind.FUNCTION:
            return Finding(self.claim, Status.UNTESTED, reason=NO_FUNCTION)
        if self.search is None:
            return Finding(self.claim, Status.UNTESTED, reason=self.output.reason or NO_TIME)
        return self.search.finding()


@dataclass
class _Checked:
    """A functional dependency, checked on the data in one step."""

    verifier: Verifier
    claim: Claim
    precedence: tuple[Weight, bool]
    found: Finding | None = None

    @property
    def over(self) -> bool:
        return self.found is not None

    def step(self) -> None:
        claim = self.claim
        assert claim.fd is not None
        self.verifier._spark.check()
        breach, checked = recorded.breach(self.verifier._recorded, claim.fd)
        if breach is not None:
            refutation = Refutation(
                Case(breach.items, ()),
                (Way(((0,),), frozenset()), Way(((1,),), frozenset())),
                Difference(breach.columns, breach.rows[:1], breach.rows[1:], 0),
                found_by="Spark",
                confirmed_by="Spark",
                recorded=True,
                columns={breach.stream: breach.columns},
            )
            self.found = Finding(claim, Status.REFUTED, checked, "Spark", refutation=refutation)
        elif checked:
            self.found = Finding(claim, Status.STANDS, checked, "the data")
        else:
            reason = "no recorded data has its attributes"
            self.found = Finding(claim, Status.UNTESTED, reason=reason)

    def settle(self) -> None:
        """There is nothing that is not confirmed."""

    def finding(self) -> Finding:
        return self.found or Finding(self.claim, Status.UNTESTED, reason=NO_TIME)


def seed_of(seed: int, claim: Claim) -> int:
    """A seed for a claim that does not depend on which other claims are tested."""
    text = f"{seed}/{claim.where}/{claim.kind.value}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
