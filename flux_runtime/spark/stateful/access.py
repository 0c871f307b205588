"""How a unit that keeps records gets at those that a micro-batch needs, decided once.

Three ways, the first that is possible for what a micro-batch brings of an input:

- *alone*: new rows, and what has to be looked up of the other inputs for them;
- *apart*: all rows of the partitions that new rows belong to;
- everything, where the component's plan shows no columns by which inputs meet.

The first two cost what is new and what it meets, however long the job has been running. The
decision follows from the component's plan on no rows, and goes into the unit's catalogue, since
what is kept is arranged by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegralType, StructType

from flux_runtime.sealing.storage import Storage
from flux_runtime.spark.context import file_name
from flux_runtime.spark.stateful.logical_plan import (
    UnknownPlanError,
    can_be_kept,
    comparable,
    read_plan,
)
from flux_runtime.spark.stateful.relevance import (
    Columns,
    LookUp,
    Node,
    Probe,
    inputs_of,
    is_distributive,
    look_ups,
    shared_keys,
)
from flux_runtime.spark.units import StatefulUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The part of what is kept that a micro-batch needs.

    Args:
        interfaces: whose rows are kept.
        alone: interface -> look-ups for its new rows, where these can be looked at alone.
        apart: interface -> the columns of its partitions, where there are any.
        asked: the look-ups for reads that are answered once; None: there are no such reads.
        unused: interfaces that the component does not look at.
    """

    interfaces: tuple[str, ...]
    alone: Mapping[str, tuple[LookUp, ...]]
    apart: Mapping[str, Columns] | None
    asked: tuple[LookUp, ...] | None
    unused: tuple[str, ...] = ()

    def needs_all(self, interface: str) -> bool:
        """Whether there are micro-batches that need all rows of an interface."""
        if self.asked is not None:
            return LookUp(interface, None) in self.asked
        if any(LookUp(interface, None) in steps for steps in self.alone.values()):
            return True
        known = {*self.alone, *(self.apart or ()), *self.unused}
        return interface not in self.unused and not known.issuperset(self.interfaces)

    def found_by(self, interface: str) -> tuple[Columns, ...]:
        """The columns by which rows of an interface are looked up."""
        columns = [
            step.probe.columns
            for step in self._look_ups()
            if step.name == interface and step.probe is not None
        ]
        if self.apart is not None and interface in self.apart:
            columns.append(self.apart[interface])
        return tuple(dict.fromkeys(columns))

    def hashed(self, interface: str) -> tuple[Columns, ...]:
        """The columns of an interface whose hashes are needed."""
        asking = [
            columns
            for step in self._look_ups()
            if step.probe is not None
            for name, columns in sorted(step.probe.by)
            if name == interface
        ]
        return tuple(dict.fromkeys([*self.found_by(interface), *asking]))

    def _look_ups(self) -> Iterator[LookUp]:
        for steps in (*self.alone.values(), self.asked or ()):
            yield from steps

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "interfaces": list(self.interfaces),
            "alone": {name: _to_json(steps) for name, steps in self.alone.items()},
            "apart": self.apart and {name: list(of) for name, of in self.apart.items()},
            "asked": None if self.asked is None else _to_json(self.asked),
            "unused": list(self.unused),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Reach:
        """The reverse of `to_json`."""
        return Reach(
            interfaces=tuple(data["interfaces"]),
            alone={name: _from_json(steps) for name, steps in data["alone"].items()},
            apart=data["apart"] and {name: tuple(of) for name, of in data["apart"].items()},
            asked=None if data["asked"] is None else _from_json(data["asked"]),
            unused=tuple(data["unused"]),
        )


def reach_of(
    unit: StatefulUnit,
    session: SparkSession,
    schemas: Mapping[str, StructType],
    folder: Storage,
) -> Reach:
    """How a unit gets at what it keeps.

    Args:
        unit: the unit.
        session: to plan with.
        schemas: of what the component is handed, by interface.
        folder: where files without rows are put.
    """
    only_in_spark = not all(can_be_kept(schema) for schema in schemas.values())
    if unit.changed_by is not None and not unit.monotone:
        return by_gate(schemas, () if only_in_spark else unit.changed_by)
    plan = None if only_in_spark else plan_of(unit, session, schemas, folder)
    if not unit.monotone:
        return for_reads(plan, tuple(unit.writes), tuple(unit.reads))
    return for_growth(plan, tuple(schemas))


def by_gate(schemas: Mapping[str, StructType], gate: Columns) -> Reach:
    """Partitions that are given: those of the gate, if equal values of it have equal hashes."""
    apart = bool(gate)
    for name in gate:
        types = [schema[name].dataType for schema in schemas.values()]
        alike = len(set(map(str, types))) == 1 or all(isinstance(t, IntegralType) for t in types)
        apart = apart and alike and all(map(comparable, types))
    key_of = dict.fromkeys(schemas, gate) if apart else None
    return Reach(interfaces=tuple(schemas), alone={}, apart=key_of, asked=None)


def for_reads(plan: Node | None, writes: Columns, reads: Columns) -> Reach:
    """Reads that are answered once, from what was written."""
    everything = tuple(LookUp(name, None) for name in writes)
    asked = everything if plan is None else look_ups(plan, reads)
    return Reach(interfaces=writes, alone={}, apart=None, asked=asked)


def for_growth(plan: Node | None, interfaces: Columns) -> Reach:
    """Output that grows as a set with every input."""
    if plan is None:
        return Reach(interfaces=interfaces, alone={}, apart=None, asked=None)
    used = [name for name in interfaces if name in set(inputs_of(plan))]
    alone = {
        name: look_ups(plan, [name], adding=True) for name in used if is_distributive(plan, name)
    }
    apart = shared_keys(plan)
    if apart is not None:  # better than to look at everything else for each new row
        alone = {n: of for n, of in alone.items() if all(step.probe for step in of)}
        if len(alone) == len(used):
            apart = None
    unused = tuple(name for name in interfaces if name not in used)
    return Reach(interfaces=interfaces, alone=alone, apart=apart, asked=None, unused=unused)


def plan_of(
    unit: StatefulUnit,
    session: SparkSession,
    schemas: Mapping[str, StructType],
    folder: Storage,
) -> Node | None:
    """The plan of a unit's component; None: it cannot be said, or it ran a job by itself."""
    frames: dict[str, DataFrame] = {}
    places: dict[str, str] = {}
    for name, schema in schemas.items():
        places[name] = folder.uri(file_name(name))
        folder.write(f"{file_name(name)}/_no_rows", b"")  # Spark passes over such names
        frames[name] = session.read.schema(schema).parquet(places[name])
    scheduler: Any = session.sparkContext._jsc.sc().dagScheduler()
    jobs = scheduler.numTotalJobs()
    output = unit.compute(frames, unit.on_kept)
    if scheduler.numTotalJobs() != jobs:
        return None
    try:
        return read_plan(output, places)
    except UnknownPlanError:
        return None


def _to_json(look_ups_of: Iterable[LookUp]) -> list[Any]:
    return [
        [step.name, step.probe and [step.probe.columns, sorted(step.probe.by)]]
        for step in look_ups_of
    ]


def _from_json(data: Iterable[Any]) -> tuple[LookUp, ...]:
    return tuple(
        LookUp(
            name,
            probe
            and Probe(tuple(probe[0]), frozenset((of, tuple(columns)) for of, columns in probe[1])),
        )
        for name, probe in data
    )
