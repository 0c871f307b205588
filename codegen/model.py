"""Stages: what a compiled job consists of.

One frozen list that the emitter writes, `blazes compile --explain` prints and the running job
reports its progress by. A *unit* is a stage with a streaming query of its own: one for each
(component, output interface, replica) that is not record-wise.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

from annotations.dataflow import EMPTY, External, Processor, Producers, Punctuation
from blazes.coordination import Mode, Plan, Release, Scope, Vote
from codegen.deltas import Matches

Inputs: TypeAlias = Mapping[str, tuple[str, ...]]
"""Input interface -> ids of the stages it is fed from, in the order of the file."""


class Guarantee(enum.Enum):
    """How often a record reaches an external sink."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class Way(enum.Enum):
    """How a transform runs."""

    RECORD_WISE = "record-wise"
    """A function of single records, fused into its consumers; no query of its own."""
    NATIVE = "native"
    """A streaming query with Spark's own state."""
    ACCUMULATING = "accumulating"
    """A query that keeps what was written durably and answers what is read."""


@dataclass(frozen=True, slots=True)
class Function:
    """The implementation of one output interface, as the job defines it."""

    name: str
    """A Python identifier, unique in the job."""
    title: str
    """What it computes, for people."""
    parameters: tuple[str, ...]
    """Input interfaces; each is handed in as a DataFrame."""
    paths: tuple[str, ...]
    """`input: annotation` of each path, for people."""
    description: str | None = None
    sql: str | None = None
    python: str | None = None
    """`module:function`."""
    operator: str | None = None
    """`module:function` that gives a Flux operator; the job defines nothing for it."""
    processor: Processor | None = None
    """A StatefulProcessor; the job defines nothing for it."""
    batches: bool = False
    """Sites call the Python function themselves; the job defines nothing for it."""
    drops: str | None = None
    """A column of the only input."""
    distinct: tuple[str, ...] = ()
    """The id by which records of the only input that came before are dropped. Without any of
    these the input is passed through."""

    @property
    def on_sites(self) -> str | None:
        """`module:name` of what only sites run; None where the job defines it."""
        if self.batches:
            return self.python
        return self.processor.make if self.processor is not None else self.operator

    @property
    def module(self) -> str | None:
        """The module that it is in; None where the job defines it."""
        reference = self.python or self.on_sites
        return reference.partition(":")[0] if reference else None


@dataclass(frozen=True, slots=True)
class Partial:
    """An aggregate in two steps: `first` runs in the buffer, `second` at release."""

    first: Function
    second: Function


@dataclass(frozen=True, slots=True)
class Kept:
    """The summaries that a unit keeps in place of records, and the component on them.

    Args:
        inputs: input interface -> what makes it of a record, and what combines it; None: of equal
            rows, one is kept.
        whole: the component.
    """

    inputs: Mapping[str, tuple[Function, Function | None]]
    whole: Function

    @property
    def functions(self) -> Iterator[Function]:
        """All of them, in the order in which they are used."""
        for steps in self.inputs.values():
            yield from (step for step in steps if step is not None)
        yield self.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The fields of all stages; `inputs` are ids of other stages."""

    kind: ClassVar[str] = "stage"

    id: str
    name: str
    inputs: tuple[str, ...] = ()
    description: str = ""
    engine: str = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Stage):
    """An external source: what it holds, who sends, and how a punctuation is recognised."""

    kind: ClassVar[str] = "source"

    external: External
    schema: Mapping[str, str] | None
    """Attribute -> Spark SQL type; None where the format brings its own."""
    seals: tuple[tuple[str, ...], ...] = ()
    producer: str | None = None
    punctuation: Punctuation | None = None
    record_id: tuple[str, ...] = ()
    """What identifies a record; empty: nothing that is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(Stage):
    """A component's output that needs no coordination."""

    kind: ClassVar[str] = "transform"

    way: Way
    component: str
    """Empty where this is no component's, but a stream's that hides which replica it is from."""
    output: str
    streams: tuple[str, ...]
    function: Function | None
    """None: a record-wise transform that passes its records through."""
    writes: Inputs = field(default_factory=lambda: EMPTY)
    reads: Inputs = field(default_factory=lambda: EMPTY)
    output_mode: str = "append"
    stateless: bool = False
    """Native: what it puts out for a record depends on no other record."""
    monotone: bool = False
    """Accumulating: every path is confluent, so that answers only ever grow."""
    order_by: tuple[str, ...] = ()
    kept: Kept | None = None
    """Accumulating: partial aggregates, in place of records."""
    watermark: tuple[str, str] | None = None
    """(column, delay): a seal by a stated lateness promise, which `assumes` puts in words."""
    repeat_within: str | None = None
    """How long after a record a copy of it may come; its id is forgotten then."""
    assumes: str | None = None
    why: str | None = None
    replica: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal(Stage):
    """A component's output that sees whole partitions only (rules SE-1 to SE-12)."""

    kind: ClassVar[str] = "seal"

    component: str
    output: str
    streams: tuple[str, ...]
    function: Function
    waits: Inputs
    reads: Inputs
    key: tuple[str, ...]
    gates: tuple[str, ...]
    vote: Vote
    producers: Mapping[str, Producers]
    """Source stream -> who contributes to a partition of it. Units know their own."""
    renamed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: EMPTY)
    """Source stream -> what the key's attributes are called there, where that differs."""
    release: Release
    order_by: tuple[str, ...] = ()
    late: str
    seal_timeout_s: float
    remember_s: float | None = None
    """How long released partitions are remembered; None: for ever."""
    dedup: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: EMPTY)
    """Source stream -> the id by which records that are known are dropped before they count."""
    forward: tuple[str, ...] = ()
    """The key as the output names it, where punctuations leave with a released partition."""
    partial: Partial | None = None
    why: str
    replica: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Stage):
    """A component's output whose inputs have a recorded total order (rule OR-8)."""

    kind: ClassVar[str] = "order"

    component: str
    output: str
    streams: tuple[str, ...]
    function: Function
    writes: Inputs
    reads: Inputs
    native: bool
    """True: Spark's own state, batch by batch; False: all records are kept and read again."""
    output_mode: str | None = None
    """Spark's, where it is native."""
    scope: Scope
    mode: Mode
    order_by: tuple[str, ...] = ()
    changed_by: tuple[str, ...] | None = None
    """Recompute the partitions that changed, by these attributes; None: answer the reads."""
    kept: Kept | None = None
    """Partial aggregates, in place of records."""
    why: str
    replica: None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One component of a Flux stage."""

    name: str
    function: Function
    query: str | None
    """What the function's SQL is in DuckDB's dialect; None where Python runs."""
    gives: str
    """When the output is put out: `records`, `new`, `answers` or `changes`."""
    reads: tuple[str, ...]
    """Inputs whose records are answered and not kept."""
    gate: tuple[str, ...] | None
    """Attributes that partition the work; None where records need not be kept together."""
    schema: Mapping[str, str] | None
    """Of what an operator puts out."""
    kept: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Input -> what makes partial aggregates of its records, and what combines them, in DuckDB's
    dialect; the query is over these."""
    deltas: Mapping[str, tuple[str, Matches]] = field(default_factory=dict)
    """Input -> what its new records add, in DuckDB's dialect, and which rows of others matter."""
    times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Input -> the arguments of its `flux_runtime.operators.event_time.EventTime`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flux(Stage):
    """Outputs of components that run as partition pairs, on one order from ZooKeeper (OR-1)."""

    kind: ClassVar[str] = "flux"

    component: str
    """Of the last step, as is everything up to `function`."""
    output: str
    streams: tuple[str, ...]
    function: Function
    steps: tuple[Step, ...]
    writes: Inputs
    """Of the first step."""
    reads: Inputs
    replicas: int
    """Instances that put out the same; a client tells them apart by the column `replica`."""
    sites: int
    """Spark tasks that host the partitions."""
    copies: int = 2
    """Of every partition."""
    partitions: int
    balance: str = "none"
    """By which policy partitions move off busy sites."""
    site_memory: str | None = None
    """State that a site keeps in memory; the rest is on its disk."""
    keep_every: int | None = None
    """Batches after which the state is kept in files."""
    ordered: bool
    """The plan asks for an order; else only availability or the engine was asked for."""
    order_by: tuple[str, ...] = ()
    why: str
    engine: str = "flux"
    replica: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(Stage):
    """The durable internal stream that an output is written to, with all of its replicas."""

    kind: ClassVar[str] = "channel"

    streams: tuple[str, ...]
    loop: bool = False
    """True: the stage feeds itself through this stream; it stands before the units it is fed by."""
    schema: Mapping[str, str] | None = None
    """Of a loop, which must say it before anything is in the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Stage):
    """An external sink."""

    kind: ClassVar[str] = "sink"

    external: External
    guarantee: Guarantee


Unit: TypeAlias = Transform | Seal | Order | Flux


@dataclass(frozen=True, slots=True)
class Stages:
    """A whole job. A stage stands after its inputs, save that a loop closes further down."""

    plan: Plan
    stages: tuple[Stage, ...]

    @property
    def name(self) -> str:
        """Of the dataflow, the job and its folder."""
        return self.plan.analysis.dataflow.name

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __getitem__(self, id: str) -> Stage:
        """The stage of that id; KeyError where there is none."""
        for stage in self.stages:
            if stage.id == id:
                return stage
        raise KeyError(id)

    @property
    def functions(self) -> tuple[Function, ...]:
        """Every implementation once, in the order of the stages."""
        functions: dict[str, Function] = {}
        for stage in self.stages:
            if isinstance(stage, Flux):
                for step in stage.steps:
                    functions.setdefault(step.function.name, step.function)
            elif isinstance(stage, Unit) and stage.function is not None:
                functions.setdefault(stage.function.name, stage.function)
            if isinstance(stage, Seal) and stage.partial is not None:
                for function in (stage.partial.first, stage.partial.second):
                    functions.setdefault(function.name, function)
            if isinstance(stage, Transform | Order) and stage.kept is not None:
                for function in stage.kept.functions:
                    functions.setdefault(function.name, function)
        return tuple(functions.values())

    @property
    def modules(self) -> list[str]:
        """The modules with code of the user that the job imports, sorted."""
        modules = {function.module for function in self.functions if function.module}
        return sorted(modules | {*self.imported_at_once})

    @property
    def imported_at_once(self) -> list[str]:
        """Those that it imports before there is a session: of sinks, and of functions on sites."""
        taken = [stage.external.function for stage in self.stages if isinstance(stage, Sink)]
        taken += [function.on_sites for function in self.functions]
        return sorted({name.partition(":")[0] for name in taken if name})

    def to_json(self) -> list[dict[str, Any]]:
        """The stages as JSON data, in their order; what says nothing is left out."""
        return [stage_json(stage) for stage in self.stages]


def stage_json(stage: Stage) -> dict[str, Any]:
    """One stage as JSON data."""
    values = {field.name: plain(getattr(stage, field.name)) for field in fields(stage)}
    present = {name: value for name, value in values.items() if value not in (None, [], {}, False)}
    return {"id": present.pop("id"), "kind": stage.kind, **present}


def plain(value: Any) -> Any:
    """A field of a stage as JSON data."""
    match value:
        case enum.Enum():
            return value.value
        case Function():
            return value.name
        case External(format=format, path=path, options=options, function=function):
            called = {} if function is None else {"function": function}
            return {"format": format, "path": path, "options": dict(options), **called}
        case Producers() | Punctuation() | Partial() | Kept() | Step():
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case Mapping():
            return {name: plain(item) for name, item in value.items()}
        case tuple():
            return [plain(item) for item in value]
        case _:
            return value
