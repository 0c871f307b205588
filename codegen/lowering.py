"""Drafts become stages, each with its name, inputs, settings and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from annotations.dataflow import Endpoint, Stream
from blazes.coordination import Entry, Mode, Release, Scope, Strategy, Vote
from codegen import wording
from codegen.drafts import Draft, Kind, folder_of, ordered_by_spark, path_words, reference_of
from codegen.ends import sink
from codegen.model import (
    Channel,
    Flux,
    Function,
    Inputs,
    Kept,
    Order,
    Partial,
    Seal,
    Sink,
    Source,
    Stage,
    Step,
    Transform,
    Unit,
    Way,
)
from codegen.names import Names
from codegen.network import Network
from codegen.partial import split
from codegen.seals import Route
from codegen.site_state import Keeping, gate, gives, kept_on_sites, schema_of
from codegen.sites import chains
from codegen.summaries import summarise

REPLICA: Final = "replica"
"""The column by which the running job tells the records of replicas apart."""


class Lowering:
    """Turns the drafts of one network into stages."""

    def __init__(self, net: Network, sealed: Mapping[Endpoint, Route]) -> None:
        self._net = net
        self._sealed = sealed
        self._chains = chains(net)
        self._without: Function | None = None
        self._awaited = {at for route in sealed.values() for at in route.units}
        self._names = Names(*(module_root(draft) for draft in net.drafts.values()))

    def stages_of(self, draft: Draft) -> list[Stage]:
        """The stage or stages of one output, and the channel it is written to."""
        if draft.kind is Kind.FUSED:
            return [self._fused(draft)]
        if draft.kind is Kind.FLUX and draft.at not in self._chains:
            return []  # a step of the stage that it feeds
        unit = self._unit(draft, self._function(draft))
        stages: list[Stage] = [replica(unit, number) for number in replicas_of(draft)]
        if draft.at in self._net.channels:
            streams = [
                stream.name
                for stream in self._net.leaving[draft.at]
                if stream.consumer is not None and stream.name not in self._net.loops
            ]
            stages.append(
                Channel(
                    id=f"{Channel.kind}:{draft.at}",
                    name=str(draft.at),
                    inputs=self._units(draft.at),
                    description=wording.channel(streams, loop=False),
                    streams=tuple(streams),
                )
            )
        return [*stages, *self._without_replica(draft)]

    def _without_replica(self, draft: Draft) -> Iterator[Transform]:
        """For streams of a replicated output that declare what they hold: that, and no more."""
        for stream in self._net.leaving[draft.at]:
            if not self._is_narrowed(stream):
                continue
            if self._without is None:
                self._without = Function(
                    name=self._names.new(f"without {REPLICA}"),
                    title="Streams whose schema does not tell replicas apart",
                    parameters=("records",),
                    paths=("every replica",),
                    drops=REPLICA,
                )
            inputs = self._output(draft.at)
            yield Transform(
                id=f"{Transform.kind}:{stream.name}",
                name=stream.name,
                inputs=inputs,
                description=wording.narrowed(draft.component.replicas),
                way=Way.RECORD_WISE,
                component="",
                output="",
                streams=(f"all {stream.name}",),
                function=self._without,
                reads={"records": inputs},
            )

    def _is_narrowed(self, stream: Stream) -> bool:
        """True where readers must not see which replica a record is from."""
        if stream.producer is None or stream.consumer is None or stream.name in self._net.loops:
            return False
        draft = self._net.drafts[stream.producer]
        many = draft.kind is not Kind.FUSED and draft.component.replicas > 1
        return many and stream.schema is not None and REPLICA not in stream.schema

    def loop(self, stream: Stream) -> Channel:
        """The channel of a stream that closes a cycle."""
        assert stream.producer is not None
        return Channel(
            id=f"{Channel.kind}:{stream.name}",
            name=stream.name,
            inputs=self._units(stream.producer),
            description=wording.channel([stream.name], loop=True),
            streams=(stream.name,),
            loop=True,
            schema=stream.schema,
        )

    def sink(self, stream: Stream) -> Sink:
        """The stage of an external sink."""
        return sink(stream, self._feed(stream))

    def _units(self, at: Endpoint) -> tuple[str, ...]:
        draft = self._net.drafts[at]
        kind = self._kind(draft)
        return tuple(f"{kind}:{unit_name(at, number)}" for number in replicas_of(draft))

    def _kind(self, draft: Draft) -> str:
        """The kind of stage that an output becomes."""
        if draft.kind is Kind.ORDER:
            return Order.kind
        if draft.kind is Kind.FLUX:
            return Flux.kind
        sealed = self._sealed.get(draft.at)
        return Seal.kind if sealed is not None and sealed.promise is None else Transform.kind

    def _inputs(self, draft: Draft, interfaces: Iterable[str]) -> Inputs:
        name = draft.component.name
        return {interface: self._feeds(Endpoint(name, interface)) for interface in interfaces}

    def _feeds(self, at: Endpoint) -> tuple[str, ...]:
        """Ids of the stages that an input interface is fed from."""
        return tuple(id for stream in self._net.entering[at] for id in self._feed(stream))

    def _feed(self, stream: Stream) -> tuple[str, ...]:
        """Ids of the stages that a reader of the stream reads."""
        at = stream.producer
        if at is None:
            return (f"{Source.kind}:{stream.name}",)
        if stream.name in self._net.loops:
            return (f"{Channel.kind}:{stream.name}",)
        if self._net.drafts[at].kind is Kind.FUSED:
            return (f"{Transform.kind}:{at}",)
        if self._is_narrowed(stream):
            return (f"{Transform.kind}:{stream.name}",)
        return self._output(at)

    def _output(self, at: Endpoint) -> tuple[str, ...]:
        """Ids of the stages that hold the output of a unit: its channel, else the unit itself."""
        return (f"{Channel.kind}:{at}",) if at in self._net.channels else self._units(at)

    def _function(self, draft: Draft) -> Function:
        implementation = draft.implementation
        return Function(
            name=self._names.new(str(draft.at)),
            title=str(draft.at),
            parameters=draft.inputs,
            paths=path_words(draft),
            description=draft.component.description,
            sql=implementation.sql if implementation else None,
            python=implementation.python if implementation else None,
            operator=implementation.operator if implementation else None,
            processor=implementation.processor if implementation else None,
            batches=draft.kind is Kind.FLUX and bool(implementation and implementation.python),
            distinct=implementation.distinct if implementation else (),
        )

    def _fused(self, draft: Draft) -> Transform:
        inputs = self._inputs(draft, draft.inputs)
        return Transform(
            id=f"transform:{draft.at}",
            name=str(draft.at),
            inputs=flat(inputs),
            description=wording.record_wise(draft),
            way=Way.RECORD_WISE,
            component=draft.component.name,
            output=draft.output,
            streams=self._net.streams_of(draft.at),
            function=self._function(draft) if draft.implementation else None,
            reads=inputs,
        )

    def _unit(self, draft: Draft, function: Function) -> Unit:
        """The unit of an output, replicas aside."""
        if draft.kind is Kind.ORDER:
            return self._order(draft, function)
        if draft.kind is Kind.FLUX:
            return self._flux(draft, function)
        route = self._sealed.get(draft.at)
        if route is not None and route.promise is None:
            return self._seal(draft, function, route)
        return self._transform(draft, function, route)

    def _transform(self, draft: Draft, function: Function, route: Route | None) -> Transform:
        accumulates = draft.kind is Kind.ACCUMULATING
        writes = self._inputs(draft, draft.writes)
        reads = self._inputs(draft, draft.reads)
        watermark = assumes = why = None
        description = wording.accumulating(draft) if accumulates else wording.native(draft)
        if route is not None and route.promise is not None:
            watermark = (route.key[0], route.promise.lateness or "0 seconds")
            assumes = wording.promise(route.promise, route.key[0])
            why = wording.seal_why(draft.entries)
            description = wording.watermark(*watermark)
        within = draft.implementation.repeat_within if draft.implementation else None
        if within is not None:
            (entering,) = self._net.entering[Endpoint(draft.component.name, draft.inputs[0])]
            assumes = wording.no_later_copy(entering.name, within)
        return Transform(
            id=f"{Transform.kind}:{draft.at}",
            name=str(draft.at),
            inputs=flat(writes, reads),
            description=description,
            way=Way.ACCUMULATING if accumulates else Way.NATIVE,
            component=draft.component.name,
            output=draft.output,
            streams=self._net.streams_of(draft.at),
            function=function,
            writes=writes,
            reads=reads,
            output_mode="append" if watermark or accumulates else draft.component.output_mode,
            stateless=not accumulates and not watermark and draft.reads_only,
            monotone=accumulates and draft.confluent,
            order_by=draft.component.order_by if accumulates else (),
            kept=self._kept(draft, function, draft.inputs) if accumulates else None,
            watermark=watermark,
            repeat_within=within,
            assumes=assumes,
            why=why,
        )

    def _seal(self, draft: Draft, function: Function, route: Route) -> Seal:
        waits = self._inputs(draft, draft.writes)
        reads = self._inputs(draft, draft.reads)
        near = [
            stream
            for interface in draft.writes
            for stream in self._net.entering[Endpoint(draft.component.name, interface)]
        ]
        policies = list(route.sources.values()) or near
        late = "fail" if any(e.late == "fail" for e in [*policies, *near]) else "dead-letter"
        release = release_of(draft)
        unanimous = any(entry.vote is not Vote.NONE for entry in draft.entries)
        return Seal(
            id=f"{Seal.kind}:{draft.at}",
            name=str(draft.at),
            inputs=flat(waits, reads),
            description=wording.seal(draft, route.key),
            component=draft.component.name,
            output=draft.output,
            streams=self._net.streams_of(draft.at),
            function=function,
            waits=waits,
            reads=reads,
            key=route.key,
            gates=gates(draft.entries),
            vote=Vote.UNANIMOUS if unanimous else Vote.NONE,
            producers=route.producers,
            renamed=dict(self._renamed(route)),
            release=release,
            order_by=draft.component.order_by if release is Release.SORTED else (),
            late=late,
            seal_timeout_s=min(policy.seal_timeout_s for policy in policies),
            remember_s=longest(policy.remember_s for policy in policies),
            dedup={name: stream.id for name, stream in route.sources.items() if stream.id},
            forward=route.forward if draft.at in self._awaited else (),
            partial=self._partial(draft, function, route),
            why=wording.seal_why(draft.entries),
        )

    def _partial(self, draft: Draft, function: Function, route: Route) -> Partial | None:
        """The aggregate in two steps, where the buffer can hold partial results.

        That takes one source that is read as it stands, with a declared schema, and whose records
        need not be known one by one.
        """
        if len(route.sources) != 1 or len(draft.writes) != 1 or draft.reads:
            return None
        ((name, stream),) = route.sources.items()
        if stream.id:
            return None
        (interface,) = draft.writes
        feeds = self._feeds(Endpoint(draft.component.name, interface))
        if feeds != (f"{Source.kind}:{name}",) or function.sql is None or stream.schema is None:
            return None
        steps = split(function.sql, view=interface, key=route.key, schema=stream.schema)
        if steps is None or release_of(draft) is not Release.WHOLE:
            return None
        first = ("step 1 of 2", "partial", "the records of a micro-batch", steps.first)
        second = ("step 2 of 2", "total", "the partial aggregates of partitions", steps.second)
        return Partial(self._step(function, *first), self._step(function, *second))

    def _step(self, function: Function, place: str, suffix: str, paths: str, sql: str) -> Function:
        return replace(
            function,
            name=self._names.new(f"{function.name} {suffix}"),
            title=f"{function.title}, {place}",
            paths=(paths,),
            description=None,
            sql=sql,
        )

    def _renamed(self, route: Route) -> Iterator[tuple[str, tuple[str, ...]]]:
        """`Route.renamed` by what the running job calls the units."""
        outputs = {str(at): at for at in self._sealed}
        for name, key in route.renamed.items():
            if name in outputs:
                at = outputs[name]
                yield from ((unit_name(at, r), key) for r in replicas_of(self._net.drafts[at]))
            else:
                yield name, key

    def _order(self, draft: Draft, function: Function) -> Order:
        writes = self._inputs(draft, draft.writes)
        reads = self._inputs(draft, draft.reads)
        entries = [entry for entry in draft.entries if entry.strategy is Strategy.ORDER]
        native = ordered_by_spark(draft, folder_of(self._net.plan.analysis.dataflow))
        scope = Scope.GATE if all(e.scope is Scope.GATE for e in entries) else Scope.GLOBAL
        ordered = {name for entry in entries for name in entry.inputs}
        partitioned = scope is Scope.GATE and ordered >= writes.keys()
        mode = "append" if draft.appends else "update"
        changed_by = None if reads or native else common_gate(entries) if partitioned else ()
        return Order(
            id=f"{Order.kind}:{draft.at}",
            name=str(draft.at),
            inputs=flat(writes, reads),
            description=wording.order(draft, changed_by, native=native),
            component=draft.component.name,
            output=draft.output,
            streams=self._net.streams_of(draft.at),
            function=function,
            writes=writes,
            reads=reads,
            native=native,
            output_mode=mode if native else None,
            scope=scope,
            mode=next((entry.mode for entry in entries if entry.mode), Mode.RECORDED),
            order_by=() if native else draft.component.order_by,
            changed_by=changed_by,
            kept=None if native else self._kept(draft, function, draft.writes, changed_by or ()),
            why=wording.order_why(entries),
        )

    def _kept(
        self, draft: Draft, function: Function, inputs: Iterable[str], gate: tuple[str, ...] = ()
    ) -> Kept | None:
        """Partial aggregates in place of the records of inputs, where the SQL can do with them.

        That takes schemas of all inputs.
        """
        schemas = {name: schema_of(self._net, draft, name) for name in draft.inputs}
        known = {name: schema for name, schema in schemas.items() if schema is not None}
        confluent = draft.kind is Kind.ACCUMULATING and draft.confluent
        names = inputs if confluent else [name for name in inputs if name in draft.writes]
        if function.sql is None or len(known) < len(schemas):
            return None
        summaries = summarise(function.sql, known, inputs=names, beside=gate, as_set=confluent)
        if summaries is None:
            return None
        steps: dict[str, tuple[Function, Function | None]] = {}
        for name, summary in summaries.kept.items():
            of_record = ("in place of records", f"{name} kept", "each record", summary.of_record)
            first = replace(self._step(function, *of_record), parameters=(name,))
            again = None
            if summary.again is not None:
                texts = ("combined", f"{name} combined", "what is kept of it", summary.again)
                again = replace(self._step(function, *texts), parameters=(name,))
            steps[name] = first, again
        over_kept = function
        if summaries.query != function.sql:
            texts = (
                "over what is kept",
                "over kept",
                "what is kept of each input",
                summaries.query,
            )
            over_kept = self._step(function, *texts)
        return Kept(steps, over_kept)

    def _flux(self, draft: Draft, function: Function) -> Flux:
        *before, last = self._chains[draft.at]
        steps = [self._flux_step(step, self._function(step)) for step in before]
        first = before[0] if before else last
        writes, reads = self._inputs(first, first.writes), self._inputs(first, first.reads)
        entries = [entry for d in (*before, last) for entry in d.entries]
        deployment = self._net.plan.analysis.dataflow.deployment
        return Flux(
            id=f"{Flux.kind}:{draft.at}",
            name=str(draft.at),
            inputs=flat(writes, reads),
            description=wording.flux([*before, last]),
            component=draft.component.name,
            output=draft.output,
            streams=self._net.streams_of(draft.at),
            function=function,
            steps=(*steps, self._flux_step(draft, function)),
            writes=writes,
            reads=reads,
            replicas=draft.component.replicas,
            sites=deployment.sites,
            copies=min(deployment.copies, deployment.sites),
            partitions=deployment.partitions,
            balance=deployment.balance,
            site_memory=deployment.site_memory,
            keep_every=deployment.keep_every,
            ordered=any(entry.strategy is Strategy.ORDER for entry in entries),
            order_by=first.component.order_by,
            why=wording.flux_why(draft, entries),
        )

    def _flux_step(self, draft: Draft, function: Function) -> Step:
        streams = self._net.leaving[draft.at]
        schema = next((stream.schema for stream in streams if stream.schema is not None), None)
        keeping: Keeping | None = None
        if function.on_sites is None:
            sql = function.sql or f"SELECT * FROM `{draft.inputs[0]}`"
            keeping = kept_on_sites(self._net, draft, sql)
        return Step(
            name=str(draft.at),
            function=function,
            query=None if keeping is None else keeping.query,
            gives=gives(draft),
            reads=draft.reads if keeping is not None else (),
            gate=gate(draft),
            schema=schema if keeping is None and not function.batches else None,
            kept={} if keeping is None else keeping.summaries,
            deltas={} if keeping is None else keeping.deltas,
            times={} if keeping is None else keeping.times,
        )


def unit_name(at: Endpoint, replica: int | None) -> str:
    """The name of a unit in the running job: `Report.response-2` where it is one of several."""
    return str(at) if replica is None else f"{at}-{replica}"


def replica(unit: Unit, number: int | None) -> Unit:
    """One of several units that do the same; the unit itself where it is the only one."""
    if number is None or isinstance(unit, Order | Flux):
        return unit
    name = unit_name(Endpoint(unit.component, unit.output), number)
    return replace(unit, id=f"{unit.kind}:{name}", name=name, replica=number)


def replicas_of(draft: Draft) -> tuple[int | None, ...]:
    """The numbers of an output's units; a single one has none."""
    number = 1 if draft.kind is Kind.FLUX else draft.component.replicas
    return tuple(range(1, number + 1)) if number > 1 else (None,)


def flat(*inputs: Inputs) -> tuple[str, ...]:
    """All stages that feed these interfaces, once each."""
    return tuple(
        dict.fromkeys(id for by_interface in inputs for ids in by_interface.values() for id in ids)
    )


def module_root(draft: Draft) -> str:
    """The top-level module of a Python operator, a name that the job's text uses."""
    implementation = draft.implementation
    reference = implementation and reference_of(implementation)
    return reference.split(".")[0].split(":")[0] if reference else ""


def common_gate(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Attributes whose partitions contain the gate partitions of every path."""
    gates = [entry.path.annotation.gate for entry in entries]
    known = [gate.attributes for gate in gates if gate and gate.attributes is not None]
    return tuple(sorted(frozenset.intersection(*known)))


def gates(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The gates of sealed paths, each once; a confluent path has none."""
    gates = (entry.path.annotation.gate for entry in entries)
    return tuple(dict.fromkeys(str(gate) for gate in gates if gate is not None))


def longest(times_s: Iterable[float | None]) -> float | None:
    """The longest of some times, of which None is endless.

    >>> longest([60.0, 3600.0]), longest([60.0, None])
    (3600.0, None)
    """
    times = list(times_s)
    return None if None in times else max(time for time in times if time is not None)


def release_of(draft: Draft) -> Release:
    """How a partition is handed over: sorted where one of the paths asks for it."""
    in_order = any(entry.release is Release.SORTED for entry in draft.entries)
    return Release.SORTED if in_order else Release.WHOLE
