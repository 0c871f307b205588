"""All claims of a dataflow put to the test."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from annotations.dataflow import Dataflow, Endpoint
from blazes.analysis import Analysis, analyze
from blazes.verify import duck, recorded
from blazes.verify.claims import Claim, Kind, claims_of
from blazes.verify.constants import constants_of
from blazes.verify.experiment import Case, Engine, Way
from blazes.verify.findings import Difference, Finding, Refutation, Report, Status
from blazes.verify.operators import Operator, entering, leaving, operators_of
from blazes.verify.records import Failure, Inputs, Row, expanded
from blazes.verify.search import Search
from blazes.verify.spark import OutOfTime, Spark
from blazes.verify.values import Generator, NoValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES: Final = 300
TIME_S: Final = 60.0
COMPARED: Final = 16
"""Inputs on which DuckDB has to agree with Spark before it stands in."""
ON_SPARK: Final = 60
"""Tries of a claim where Spark runs them all."""
NO_TIME: Final = "the time was over before it was tried"

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
        self._duck = duck.Duck()
        self._frames: dict[str, DataFrame] = {}
        """Source stream -> its data."""
        self._seen: dict[str, list[Row]] = {}
        """Stream -> records of it."""
        self.operators, self.untestable, self._schemas = operators_of(
            self.dataflow, self._spark.schema
        )
        with contextlib.suppress(OutOfTime):
            self._look_at_data()

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
        """What an output makes of the records that were seen at its inputs."""
        inputs = self._records_for(operator)
        if not any(inputs.values()):
            return
        (found,) = self._spark.evaluate(operator, [tuple(inputs.items())])
        if isinstance(found, Failure):
            return
        for stream in leaving(self.dataflow, operator.component, operator.output):
            columns = self._schemas[stream.name]
            if set(columns) <= set(found.columns):
                places = [found.columns.index(name) for name in columns]
                rows = found.rows[: recorded.SAMPLE]
                self._seen[stream.name] = [tuple(row[n] for n in places) for row in rows]

    def _records_for(self, operator: Operator) -> dict[str, tuple[Row, ...]]:
        """Input interface -> records that were seen there."""
        found: dict[str, tuple[Row, ...]] = {}
        for name, schema in operator.schemas.items():
            rows: list[Row] = []
            for stream in entering(self.dataflow, operator.component, name):
                if list(self._schemas.get(stream.name, ())) == list(schema):
                    rows += self._seen.get(stream.name, [])
            found[name] = tuple(rows[: recorded.SAMPLE])
        return found

    # ---- the test

    def report(
        self,
        *,
        components: Collection[str] = (),
        tries: int = TRIES,
        progress: Progress = lambda what, done, of: None,
    ) -> Report:
        """Test the claims.

        Args:
            components: only these; none: all, and the functional dependencies.
            tries: of each claim, which gets its share of the time that is left.
            progress: is told how far it is.
        """
        todo = [at for at in self.operators if not components or at.component in components]
        claims = {at: list(claims_of(self.operators[at], self.analysis)) for at in todo}
        left = sum(map(len, claims.values()))
        total = left

        def share(among: int) -> float:
            return (self._spark.until - time.monotonic()) / max(among, 1)

        found: dict[Endpoint, list[Finding]] = {at: [] for at in todo}
        for at in sorted(todo, key=self._slow):
            for finding in self._output(at, claims[at], tries, share, left):
                progress(finding.claim.where, total - left + 1, total)
                found[at].append(finding)
                left -= 1
        findings = [finding for its in found.values() for finding in its]
        findings += self._without_code(components)
        if not components:
            findings += self._dependencies()
        took_s = time.monotonic() - self._began
        return Report(self.dataflow, tuple(findings), tuple(self.notes), self.seed, took_s)

    def _slow(self, at: Endpoint) -> bool:
        """Whether Spark alone can run an output: those come last, being slow."""
        return duck.refusal(self.operators[at]) is not None

    def _output(
        self,
        at: Endpoint,
        claims: Sequence[Claim],
        tries: int,
        share: Callable[[int], float],
        left: int,
    ) -> Iterator[Finding]:
        operator = self.operators[at]
        reason = self._why_not(operator)
        generator: Generator | None = None
        if not reason:
            try:
                generator = Generator(
                    operator, constants_of(operator), self.dataflow.fds, self._pools(operator)
                )
            except NoValues as unknown:
                reason = f"no values are known of the type {unknown}"
        if generator is None:
            for claim in claims:
                yield Finding(claim, Status.UNTESTABLE, reason=reason)
            return
        try:
            engine = self._engine(operator, generator)
        except OutOfTime:
            for claim in claims:
                yield Finding(claim, Status.UNTESTABLE, reason=NO_TIME)
            return
        most = tries if engine is not self._spark else min(tries, ON_SPARK)
        broken = False
        for number, claim in enumerate(claims):
            if broken:
                reason = "its output is not a function of its input"
                yield Finding(claim, Status.UNTESTABLE, reason=reason)
                continue
            rng = random.Random(seed_of(self.seed, claim))
            search = Search(claim, generator, engine, self._spark, rng, self._patient)
            until = time.monotonic() + share(left - number)
            finding = search.finding(tries_max=most, until=until)
            broken = claim.kind is Kind.FUNCTION and finding.status is Status.REFUTED
            yield finding

    def _why_not(self, operator: Operator) -> str:
        """Why an output's claims cannot be tested; empty where they can."""
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
        refused = duck.refusal(operator)
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
            yield Finding(Claim(Kind.FUNCTION, operator), Status.UNTESTABLE, reason=reason)

    def _dependencies(self) -> Iterator[Finding]:
        """The functional dependencies, on all data of the sources and a sample of the rest."""
        frames = dict(self._frames)
        for name, rows in self._seen.items():
            if rows and name not in frames:
                ddl = ", ".join(f"`{n}` {kind}" for n, kind in self._schemas[name].items())
                frames[name] = self._spark.session.createDataFrame(rows, ddl)
        for fd in self.dataflow.fds:
            claim = Claim(Kind.FD, None, fd=fd)
            if time.monotonic() > self._spark.until:
                yield Finding(claim, Status.UNTESTABLE, reason=NO_TIME)
                continue
            found, checked = recorded.breach(frames, fd)
            if found is not None:
                refutation = Refutation(
                    Case(found.items, ()),
                    (Way(((0,),), frozenset()), Way(((1,),), frozenset())),
                    Difference(found.columns, found.rows[:1], found.rows[1:], 0),
                    found_by="Spark",
                    confirmed_by="Spark",
                    recorded=True,
                    columns={found.stream: found.columns},
                )
                yield Finding(claim, Status.REFUTED, checked, "Spark", refutation=refutation)
            elif checked:
                yield Finding(claim, Status.STANDS, checked, "the data")
            else:
                reason = "no recorded data has its attributes"
                yield Finding(claim, Status.UNTESTABLE, reason=reason)


def seed_of(seed: int, claim: Claim) -> int:
    """A seed for a claim that does not depend on which other claims are tested."""
    text = f"{seed}/{claim.where}/{claim.kind.value}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
