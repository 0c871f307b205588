"""The function `build(job)` of a job: one statement for each stage that runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from annotations.dataflow import Avro, Processor, Producers, Punctuation
from codegen.ends import is_transactional
from codegen.explain import base_name
from codegen.literals import INDENT, WIDTH, Call, Code, Text, value
from codegen.model import (
    Channel,
    Flux,
    Guarantee,
    Inputs,
    Order,
    Seal,
    Sink,
    Source,
    Stage,
    Stages,
    Step,
    Transform,
    Unit,
    Way,
)
from codegen.names import Names
from codegen.sql_text import sql_value

SHORT_SCHEMA: Final = 56
"""A schema of more characters is written one column a line."""


class Build:
    """Writes `build`. Feeds are variables; a variable may hold a list of feeds."""

    def __init__(self, stages: Stages, names: Names) -> None:
        self._stages = stages
        self._names = names
        self._feeds: dict[str, tuple[str, ...]] = {}
        """Stage id -> its feeds as they stand in a list: `name`, or `*name` for a list."""

    def text(self) -> str:
        """The definition of `build`."""
        statements = [statement for stage in self._stages for statement in self._statements(stage)]
        statements += [statement for stage in self._stages for statement in self._closing(stage)]
        lines = ["def build(job: Job) -> None:"]
        lines.append(f'{INDENT}"""Sources, components and sinks, each after what it reads."""')
        before = ""
        for statement in statements:
            if "\n" in statement or "\n" in before:
                lines.append("")
            lines.append(f"{INDENT}{statement}")
            before = statement
        if lines[2:3] == [""]:
            del lines[2]
        return "\n".join(lines)

    def _statements(self, stage: Stage) -> Iterator[str]:
        match stage:
            case Source():
                yield self._assigned(stage, stage.name, source(stage))
            case Channel(loop=True):
                schema = schema_value(stage.schema or {})
                loop = Call("job.loop", [stage.name], [("schema", schema)])
                yield self._assigned(stage, stage.name, loop)
            case Channel():
                self._feeds[stage.id] = self._feeds_of(stage.inputs)
            case Transform(way=Way.RECORD_WISE):
                yield from self._record_wise(stage)
            case Transform() | Seal() | Order():
                yield from self._unit(stage)
            case Flux():
                yield self._assigned(stage, stage.streams[0], self._flux(stage))
            case Sink(external=end):
                options = external(end)
                if end.function is not None:
                    options.append(("function", Code(end.function.replace(":", "."))))
                if end.key:
                    options.append(("key", list(end.key)))
                elif is_transactional(end) and stage.guarantee is Guarantee.EXACTLY_ONCE:
                    options.append(("transaction", True))
                sink = Call("job.sink", [stage.name, self._list(stage.inputs)], options)
                yield value(sink, depth=1, before=len(INDENT), after=0)

    def _closing(self, stage: Stage) -> Iterator[str]:
        if isinstance(stage, Channel) and stage.loop:
            (loop,) = self._feeds[stage.id]
            close = Call("job.close_loop", [Code(loop), self._list(stage.inputs)])
            yield value(close, depth=1, before=len(INDENT), after=0)

    def _record_wise(self, stage: Transform) -> Iterator[str]:
        feeds = self._feeds_of(id for ids in stage.reads.values() for id in ids)
        if stage.function is None:
            self._feeds[stage.id] = feeds
            return
        arguments = [stage.name, Code(stage.function.name)]
        if len(feeds) == 1 and not feeds[0].startswith("*"):
            yield self._assigned(stage, stage.streams[0], Call(f"{feeds[0]}.transform", arguments))
            return
        variable = self._variable(stage, stage.streams[0], several=True)
        flat = f"[{value(Call('feed.transform', arguments))} for feed in {flat_list(feeds)}]"
        if len(INDENT) + len(variable) + 3 + len(flat) <= WIDTH and flat.isascii():
            yield f"{variable} = {flat}"
        else:
            call = Call("feed.transform", arguments, tall=True)
            yield f"{variable} = {comprehension(call, 'feed', feeds)}"

    def _unit(self, stage: Transform | Seal | Order) -> Iterator[str]:
        if stage.replica not in (None, 1):
            self._feeds[stage.id] = ()  # the variable of the first replica holds all of them
            return
        call = self._unit_call(stage)
        if stage.replica is None:
            yield self._assigned(stage, stage.streams[0], call)
            return
        variable = self._variable(stage, stage.streams[0], several=True)
        copies = (unit for unit in self._stages if isinstance(unit, Unit) and unit.replica)
        number = sum(copy.function == stage.function for copy in copies)
        replicas = f"range(1, {number + 1})"
        yield f"{variable} = {comprehension(call, 'replica', replicas)}"

    def _unit_call(self, stage: Transform | Seal | Order) -> Call:
        assert stage.function is not None
        match stage:
            case Seal():
                function, named = "job.seal", self._seal(stage)
            case Order(native=True):
                function, named = "job.native", self._native(stage)
            case Transform(way=Way.NATIVE):
                function, named = "job.native", self._native(stage)
            case _:
                function, named = "job.stateful", self._stateful(stage)
        if stage.replica is not None:
            named.append(("replica", Code("replica")))
        return Call(function, [base_name(stage), Code(stage.function.name)], named, tall=True)

    def _native(self, stage: Transform | Order) -> list[tuple[str, Any]]:
        named: list[tuple[str, Any]] = [("inputs", self._inputs(stage.writes, stage.reads))]
        if isinstance(stage, Order):
            return [*named, ("output_mode", stage.output_mode), ("ordered", True)]
        named.append(("output_mode", stage.output_mode))
        if stage.watermark is not None:
            named.append(("watermark", stage.watermark))
        if stage.repeat_within is not None:
            named.append(("repeat_within", stage.repeat_within))
        if stage.stateless:
            named.append(("stateless", True))
        return named

    def _stateful(self, stage: Transform | Order) -> list[tuple[str, Any]]:
        ordered = isinstance(stage, Order)
        named: list[tuple[str, Any]] = [("writes", self._inputs(stage.writes))]
        if stage.reads:
            named.append(("reads", self._inputs(stage.reads)))
        named.append(("monotone", isinstance(stage, Transform) and stage.monotone))
        if ordered:
            named.append(("ordered", True))
        if stage.order_by:
            named.append(("order_by", list(stage.order_by)))
        if isinstance(stage, Order) and stage.changed_by is not None:
            named.append(("changed_by", list(stage.changed_by)))
        if stage.kept is not None:
            summaries = {
                name: tuple(function and Code(function.name) for function in steps)
                for name, steps in stage.kept.inputs.items()
            }
            named.append(("partial", (summaries, Code(stage.kept.whole.name))))
        return named

    def _seal(self, stage: Seal) -> list[tuple[str, Any]]:
        assert stage.function is not None
        voters = {name: producers(name, declared) for name, declared in stage.producers.items()}
        named: list[tuple[str, Any]] = [("waits", self._inputs(stage.waits))]
        if stage.reads:
            named.append(("reads", self._inputs(stage.reads)))
        named.append(("key", list(stage.key)))
        if voters:
            named.append(("producers", voters))
        named.append(("release", stage.release.value))
        if stage.order_by:
            named.append(("order_by", list(stage.order_by)))
        if stage.renamed:
            named.append(("renamed", {name: list(key) for name, key in stage.renamed.items()}))
        named += [("late", stage.late), ("seal_timeout_s", stage.seal_timeout_s)]
        if stage.remember_s is not None:
            named.append(("remember_s", stage.remember_s))
        if stage.forward:
            named.append(("forward", list(stage.forward)))
        if stage.partial is not None:
            steps = (Code(stage.partial.first.name), Code(stage.partial.second.name))
            named.append(("partial", steps))
        return named

    def _flux(self, stage: Flux) -> Call:
        named: list[tuple[str, Any]] = [("writes", self._inputs(stage.writes))]
        if stage.reads:
            named.append(("reads", self._inputs(stage.reads)))
        if stage.order_by:
            named.append(("order_by", list(stage.order_by)))
        if stage.replicas > 1:
            named.append(("replicas", stage.replicas))
        named += [("sites", stage.sites), ("partitions", stage.partitions)]
        if stage.copies != 2:
            named.append(("copies", stage.copies))
        if stage.balance != "none":
            named.append(("balance", stage.balance))
        if stage.site_memory is not None:
            named.append(("site_memory", stage.site_memory))
        if stage.keep_every is not None:
            named.append(("keep_every", stage.keep_every))
        steps = [step(flux_step) for flux_step in stage.steps]
        return Call("job.flux", [base_name(stage), steps], named, tall=True)

    def _inputs(self, *inputs: Inputs) -> dict[str, Code | list[Code]]:
        return {
            name: self._list(ids) for by_interface in inputs for name, ids in by_interface.items()
        }

    def _list(self, ids: Iterable[str]) -> Code | list[Code]:
        """The feeds of some stages as a list; the variable itself where it holds just them."""
        feeds = self._feeds_of(ids)
        if len(feeds) == 1 and feeds[0].startswith("*"):
            return Code(feeds[0][1:])
        return [Code(feed) for feed in feeds]

    def _feeds_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(feed for id in ids for feed in self._feeds[id])

    def _variable(self, stage: Stage, name: str, *, several: bool = False) -> str:
        variable = self._names.new(name)
        self._feeds[stage.id] = (f"*{variable}" if several else variable,)
        return variable

    def _assigned(self, stage: Stage, name: str, call: Call) -> str:
        variable = self._variable(stage, name)
        before = len(INDENT) + len(variable) + 3
        return f"{variable} = {value(call, depth=1, before=before, after=0)}"


def step(flux_step: Step) -> Call:
    """`Step(...)`."""
    named: list[tuple[str, Any]] = []
    if flux_step.query is None:
        assert flux_step.function.on_sites is not None
        run = Code(flux_step.function.on_sites.replace(":", "."))
        if flux_step.function.batches:
            named.append(("batches", True))
        else:
            named.append(("schema", schema_value(flux_step.schema or {})))
        if flux_step.function.processor is not None:
            named.append(("processor", processor(flux_step.function.processor)))
    else:
        run = Code(flux_step.function.name)
        named += [("query", sql_value(flux_step.query)), ("gives", flux_step.gives)]
    if flux_step.kept:
        summaries = {
            name: [text and sql_value(text, deeper=3) for text in texts]
            for name, texts in flux_step.kept.items()
        }
        named.append(("kept", summaries))
    if flux_step.deltas:
        deltas = {
            name: (sql_value(text, deeper=3), dict(matches))
            for name, (text, matches) in flux_step.deltas.items()
        }
        named.append(("deltas", deltas))
    if flux_step.times:
        named.append(("times", {name: dict(time) for name, time in flux_step.times.items()}))
    if flux_step.gate is not None:
        named.append(("gate", list(flux_step.gate)))
    return Call("Step", [flux_step.name, run], named, tall=True)


def processor(declared: Processor) -> Call:
    """`Processor(...)`."""
    named: list[tuple[str, Any]] = [("key", list(declared.key))]
    named += [("takes", declared.takes)] if declared.takes != "rows" else []
    if declared.event_time is not None:
        named += [("event_time", declared.event_time), ("delay_s", declared.delay_s)]
    elif declared.time != "none":
        named.append(("time", declared.time))
    return Call("Processor", (), named)


def source(stage: Source) -> Call:
    """`job.source(...)`."""
    named: list[tuple[str, Any]] = external(stage.external)
    if stage.schema is not None:
        named.append(("schema", schema_value(stage.schema)))
    if stage.producer is not None:
        named.append(("producer", stage.producer))
    if stage.punctuation is not None:
        named.append(("punctuation", punctuation(stage.punctuation)))
    if stage.record_id:
        named.append(("id", list(stage.record_id)))
    return Call("job.source", [stage.name], named, tall=True)


def external(end: Any) -> list[tuple[str, Any]]:
    """The arguments of a source or sink that say what and where it is."""
    named: list[tuple[str, Any]] = [("format", end.format)]
    if end.path is not None:
        named.append(("path", end.path))
    if end.options:
        named.append(("options", end.options))
    if end.value is not None:
        named.append(("value", end.value if isinstance(end.value, str) else avro(end.value)))
    if end.columns:
        named.append(("columns", end.columns))
    return named


def schema_value(schema: Mapping[str, str]) -> str | Text:
    """A schema as Spark's DDL, one column a line where it is long.

    >>> schema_value({"id": "BIGINT", "a-b": "STRING"})
    'id BIGINT, `a-b` STRING'
    """
    columns = [f"{column(name)} {' '.join(type.split())}" for name, type in schema.items()]
    flat = ", ".join(columns)
    if len(flat) <= SHORT_SCHEMA:
        return flat
    return Text((*(f"{column}," for column in columns[:-1]), columns[-1]), deeper=True)


def column(name: str) -> str:
    """A column's name, quoted where it is not a plain word."""
    plain = name.isidentifier() and name.isascii()
    return name if plain else "`" + name.replace("`", "``") + "`"


def avro(declared: Avro) -> Call:
    """`Avro(...)`."""
    named: list[tuple[str, Any]] = []
    if declared.schema is not None:
        record = json.loads(declared.schema)
        fields = [json.dumps(of, ensure_ascii=False) for of in record.pop("fields")]
        lines = [*(f"    {line}," for line in fields[:-1]), f"    {fields[-1]}"]
        begin = f'{json.dumps(record, ensure_ascii=False)[:-1]}, "fields": ['
        named.append(("schema", Text((begin, *lines, "]}"), deeper=True)))
    if declared.registry is not None:
        named.append(("registry", declared.registry))
    return Call("Avro", (), named, tall=True)


def punctuation(declared: Punctuation) -> Call:
    """`Punctuation(...)`."""
    named = [("when", declared.when), ("count", declared.count)]
    return Call(
        "Punctuation", (), [*named, *([("digest", declared.digest)] if declared.digest else [])]
    )


def producers(stream: str, declared: Producers) -> Call:
    """`Producers.RULE(...)`."""
    match declared.rule:
        case "one":
            return Call("Producers.one")
        case "all":
            return Call("Producers.all", [list(declared.members)])
        case _:
            named = [("registrations", declared.registrations)] if declared.registrations else []
            return Call("Producers.registered", [stream], named)


def flat_list(feeds: Iterable[str]) -> str:
    """Feeds to iterate over, on one line."""
    names = list(feeds)
    if len(names) == 1:
        return names[0].removeprefix("*")
    return f"[{', '.join(names)}]"


def comprehension(call: Call, name: str, over: str | tuple[str, ...]) -> str:
    """A list of calls over three lines or more, in `build`."""
    inner = INDENT * 2
    head = f"{inner}for {name} in "
    if isinstance(over, tuple):
        items: Any = Code(over[0].removeprefix("*")) if len(over) == 1 else [*map(Code, over)]
    else:
        items = Code(over)
    iterated = value(items, depth=2, before=len(head), after=0)
    return (
        f"[\n{inner}{value(call, depth=2, before=len(inner), after=0)}\n{head}{iterated}\n{INDENT}]"
    )
