"""The simulation of a dataflow: uncoordinated until what is predicted was seen, then planned."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Dataflow
from annotations.vocabulary import Label, StreamLabel
from blazes.analysis import Analysis, analyze
from blazes.choice import without_seals
from blazes.coordination import Plan, plan
from blazes.simulate.hunt import Hunt, Hunted, Source, Witness, exceeds
from blazes.simulate.network import REPLICAS, Network, Refused, network_of
from blazes.verify import duckdb_engine
from blazes.verify.constants import Constants, constants_of
from blazes.verify.experiment import Engine
from blazes.verify.operators import Operator, Schema, operators_of, unset_columns
from blazes.verify.values import NoValues

INPUTS: Final = 200
TIME_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """The labels and anomalies of a stream.

    Attributes:
        stream: its name.
        label: without coordination.
        planned: under the plan.
        seen: anomaly -> inputs that showed it, uncoordinated.
    """

    stream: str
    label: StreamLabel
    planned: StreamLabel
    seen: Mapping[Label, int]


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of the simulation of a dataflow.

    Attributes:
        plan: what was simulated the second time.
        analysis: without coordination: no order, and nothing waits for a seal.
        free: the hunt without coordination.
        planned: the hunt under the plan; None where it could not be simulated.
        refused: why the plan could not be simulated.
        engines: component output -> what evaluated it.
        unexpected: anomalies worse than their labels allow, with and without coordination.
    """

    plan: Plan
    analysis: Analysis
    free: Hunted
    planned: Hunted | None
    refused: str
    engines: Mapping[str, str]
    unexpected: tuple[Witness, ...]
    replicas: int
    seed: int
    seconds: float

    @property
    def rows(self) -> list[Row]:
        """The streams that components send, in the order of the file."""
        return [
            Row(
                name,
                self.analysis.labels[name],
                self.plan.repaired[name],
                {a.kind: n for a, n in self.free.seen.items() if a.stream == name},
            )
            for name, stream in self.analysis.dataflow.streams.items()
            if stream.producer is not None
        ]


class Simulation:
    """A dataflow that can be run.

    Args:
        dataflow: the dataflow.
        spark: makes an engine for what DuckDB does not run; called at most once.
        target: what the plan brings the sinks to.
        replicas: instances of each replicated component.

    Raises:
        Refused: a component has no code that can be run.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        spark: Callable[[], Engine] | None = None,
        target: Label = Label.ASYNC,
        replicas: int = REPLICAS,
    ) -> None:
        self.dataflow = dataflow
        self.replicas = replicas
        self.plan = plan(analyze(dataflow), target=target)
        self.free = analyze(without_seals(dataflow))
        self._spark = spark
        self._slow: Engine | None = None
        self._fast = duckdb_engine.DuckDBEngine()
        self.operators, reasons, self.schemas = operators_of(dataflow, self._schema)
        for at, reason in reasons.items():
            raise Refused(f"{at} cannot be run: {reason}")
        self.engines = {
            operator.name: self._engine(operator)
            for operator in self.operators.values()
            if operator.code is not None
        }

    def _schema(self, operator: Operator) -> Schema:
        if operator.code is None:
            (schema,) = operator.schemas.values()
            return schema
        return self._engine(operator).schema(operator)

    def _engine(self, operator: Operator) -> Engine:
        refused = duckdb_engine.refusal(operator)
        if refused is None:
            return self._fast
        if self._slow is None:
            if self._spark is None:
                raise Refused(f"{operator.name} cannot be run without Spark: {refused}")
            self._slow = self._spark()
        return self._slow

    def network(self, *, coordinated: bool) -> Network:
        """The network with the plan or without it; Refused where the plan is not simulated."""
        return network_of(
            self.plan.analysis if coordinated else self.free,
            self.plan if coordinated else None,
            operators=self.operators,
            schemas=self.schemas,
            engine=self.engines,
            replicas=self.replicas,
        )

    def simulate(
        self,
        *,
        inputs: int = INPUTS,
        time_s: float = TIME_S,
        seed: int = 1,
        progress: Callable[[str, int, int], None] = lambda phase, done, total: None,
    ) -> Simulated:
        """Hunt without the plan and under it.

        Args:
            inputs: to run, of each.
            time_s: for everything, in seconds.
            seed: of all choices.
            progress: is told how far it is.
        """
        began = time.monotonic()
        free = self._hunt(False, inputs, began + time_s / 2, seed, progress)
        refused, planned = "", None
        try:
            planned = self._hunt(True, inputs, began + time_s, seed, progress)
        except Refused as reason:
            refused = str(reason)
        unexpected = [w for a, w in free.witnesses.items() if exceeds(a, self.free.labels)]
        if planned is not None:
            repaired = self.plan.repaired
            unexpected += [w for a, w in planned.witnesses.items() if exceeds(a, repaired)]
        return Simulated(
            self.plan,
            self.free,
            free,
            planned,
            refused,
            {name: engine.name for name, engine in self.engines.items()},
            tuple(unexpected),
            self.replicas,
            seed,
            time.monotonic() - began,
        )

    def _hunt(
        self,
        coordinated: bool,
        inputs: int,
        until: float,
        seed: int,
        progress: Callable[[str, int, int], None],
    ) -> Hunted:
        network = self.network(coordinated=coordinated)
        phase = "under the plan" if coordinated else "uncoordinated"
        make = self._inputs(network)
        hunt = Hunt(network, make, random.Random(seed), coordinated=coordinated)
        return hunt.go(
            inputs_max=inputs,
            until=until,
            progress=lambda done, total: progress(phase, done, total),
        )

    def _inputs(self, network: Network) -> Source:
        numbers: dict[int, None] = {}
        texts: dict[str, None] = {}
        for operator in self.operators.values():
            of_code = constants_of(operator)
            numbers |= dict.fromkeys(of_code.numbers)
            texts |= dict.fromkeys(of_code.texts)
        constants = Constants(tuple(numbers), tuple(texts))
        unset = {s.name: unset_columns(s) for s in self.dataflow.streams.values()}
        for wire in network.sources:
            if wire.name not in self.schemas:
                raise Refused(f"the schema of {wire.name} is not known")
        try:
            return Source(network, self.schemas, constants, self.dataflow.fds, unset)
        except NoValues as unknown:
            raise Refused(f"no values are known of the type {unknown}") from None


def predicted(label: StreamLabel) -> tuple[Label, ...]:
    """The anomalies that a label allows, the mildest first."""
    return tuple(kind for kind in (Label.RUN, Label.INST, Label.DIVERGE) if kind <= label.label)
