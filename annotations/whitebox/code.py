"""The outputs of the code of a dataflow's components: each derived once, when asked for.

Schemas flow along inner streams: where a stream declares none, its records have the columns of the
output that it comes from, by the code of that output; so do the reasons why records may come twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from annotations.dataflow import (
    Component,
    Dataflow,
    Endpoint,
    Implementation,
    Position,
    Processor,
    Stream,
)
from annotations.whitebox.components import Output, claimed_requests, derive_output, role
from annotations.whitebox.existing import leaves, weaker
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Opaque, Ref, Relation, Source, changed
from annotations.whitebox.places import Place, placer
from annotations.whitebox.settings import unread
from annotations.whitebox.sql import Query, mentioned
from annotations.whitebox.sql import read as read_sql
from annotations.whitebox.sql_dialect import seconds_of
from annotations.whitebox.type_text import sql_text

if TYPE_CHECKING:
    from annotations.whitebox.bloom.program import Named
    from annotations.whitebox.pyspark_code import Function
    from annotations.whitebox.sandbox import Limits

Schema = Mapping[str, str]
"""Attribute -> Spark SQL type; a type that is not known is `?`."""


class Code:
    """The code of a dataflow.

    Args:
        dataflow: whose code.
        text: the file's, where it is at hand already.
        execute: what Python functions may take when they are run to be read; None: nothing is run,
            and those for which nobody vouches are followed without.
        follow: of these, all are followed.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        text: str | None = None,
        *,
        execute: Limits | None = None,
        follow: bool = False,
    ) -> None:
        self.dataflow = dataflow
        self._execute = execute
        self._follow = follow
        self._text = text
        self._found: dict[Endpoint, Output | None] = {}
        self._promises: dict[Endpoint, float | None] = {}
        """The lateness promised at inputs."""
        self._passed: dict[Endpoint, Schema | None] = {}
        """Columns of outputs without code; None also while they are looked for."""
        self._named: dict[str, Named] = {}
        """Bloom modules, by what the file says of them."""
        self._read: dict[str, Relation] = {}
        """Plans of Python functions that were read, by what was asked."""
        self._together = False
        """Whether those that do not wait for each other were read together."""
        self._unfinished: set[Endpoint] = set()
        """Outputs whose code is being derived, so that a reader of theirs is in a cycle."""
        self._into: dict[Endpoint, list[Stream]] = {}
        for stream in dataflow.streams.values():
            if stream.consumer is not None:
                self._into.setdefault(stream.consumer, []).append(stream)

    def of(self, dataflow: Dataflow) -> Code:
        """The code of a dataflow made of this one; a function that is given the same is not read
        again."""
        code = Code(dataflow, self._text, execute=self._execute, follow=self._follow)
        code._read = self._read
        return code

    def plan(self, component: Component, output: str) -> Relation | None:
        """The plan of the code of an output; None where there is none to be read."""
        outputs = self.outputs(component)
        return next(
            (candidate.query.plan for candidate in outputs if candidate.name == output), None
        )

    def outputs(self, component: Component) -> Iterator[Output]:
        """The outputs that the component's code computes, in the order of the file."""
        if not self._together:
            self._together = True
            self._read_together()
        for name in component.implementations:
            output = self._output(Endpoint(component.name, name))
            if output is not None:
                yield output

    def schema(self, stream: Stream) -> Schema | None:
        """The columns of a stream: as declared, else by the code it comes from, if that says."""
        if stream.schema is not None or stream.producer is None:
            return stream.schema
        return self._schema_of(stream.producer)

    def columns(self, end: Endpoint) -> frozenset[str] | None:
        """The columns that come in at an input, in lower case; None where they are not known.

        An inner stream has what the code before it gives, whatever it declares, and the number of
        the replica that it is from.
        """
        names: set[str] = set()
        for stream in self._into.get(end, ()):
            before = stream.producer
            schema = stream.schema if before is None else self._schema_of(before) or stream.schema
            if schema is None:
                return None
            names |= {name.lower() for name in (*schema, *(stream.schema or ()))}
            if before is not None and self._component(before).replicas > 1:
                names.add("replica")
        return frozenset(names) if end in self._into else None

    def exact_schema(self, stream: Stream) -> Schema | None:
        """The same as Spark names the types; None where a type is not known exactly."""
        if stream.producer is None or stream.schema is not None:
            return stream.schema
        output = self._output(stream.producer)
        if output is None or output.schema is None:
            return None
        types = {column.name: sql_text(column.type) for column in output.derivation.columns}
        known = {name: text for name, text in types.items() if text is not None}
        return MappingProxyType(known) if len(known) == len(types) else None

    # ---- one output

    def _component(self, end: Endpoint) -> Component:
        return self.dataflow.components[end.component]

    def _schema_of(self, end: Endpoint) -> Schema | None:
        """The columns of an output; without code, it passes its only input through."""
        if end.interface in self._component(end).implementations:
            output = self._output(end)
            return None if output is None else output.schema
        if end not in self._passed:
            self._passed[end] = None
            sources = {path.source for path in self._component(end).paths}
            if len(sources) == 1:
                into = Endpoint(end.component, sources.pop())
                self._passed[end] = self._input(into, frozenset(), ()).schema
        return self._passed[end]

    def _output(self, end: Endpoint) -> Output | None:
        """The output as its code gives it; None where there is no code, or it reads itself."""
        if end not in self._found:
            for before in self._furthest_first(end):
                self._schema_of(before)
            self._found[end] = None
            component = self._component(end)
            by = component.implementations.get(end.interface)
            if by is not None:
                self._unfinished.add(end)
                inputs = self.inputs(component, end.interface)
                self._found[end] = self._derived(component, end.interface, by, inputs)
                self._unfinished.remove(end)
        return self._found[end]

    def _furthest_first(self, end: Endpoint) -> list[Endpoint]:
        """Outputs that are not read yet and come before one, each behind those before itself.

        A long chain of them would else be read by as many calls inside of each other. Where some
        are in a cycle, which of them is read first decides what is known of the others: none.
        """
        ordered: list[Endpoint] = []
        met: dict[Endpoint, bool] = {}  # True: all before it stand in `ordered`
        todo = [end]
        while todo:
            at = todo[-1]
            if at in met:
                todo.pop()
                if not met[at]:
                    met[at] = True
                    ordered.append(at)
                continue
            met[at] = False
            for before in self._before(at):
                if met.get(before) is False or before in self._unfinished:
                    return []
                if before not in met:
                    todo.append(before)
        return ordered[:-1]

    def _before(self, end: Endpoint) -> Iterator[Endpoint]:
        """Outputs whose streams go into a component that has one, and that are not read yet."""
        for source in dict.fromkeys(path.source for path in self._component(end).paths):
            for stream in self._into.get(Endpoint(end.component, source), ()):
                before = stream.producer
                if before is not None and before not in self._found and before not in self._passed:
                    yield before

    def _derived(
        self, component: Component, name: str, by: Implementation, inputs: Mapping[str, Input]
    ) -> Output:
        setting = unread(self.dataflow.deployment.conf)
        if setting is not None and (by.sql is not None or by.python is not None):
            query = _unread(setting, by, inputs)
        elif by.sql is not None:
            query = read_sql(by.sql, inputs=inputs, place=self._place(by.sql, by.position))
        elif by.bloom is not None:
            query = self._read_bloom(by.bloom, by.position, name, inputs)
        elif by.python is not None:
            end = Endpoint(component.name, name)
            query = self._read_python(by.python, by, inputs, follow=self._follows(end))
        elif by.processor is not None:
            declared = self._declared(Endpoint(component.name, name))
            query = _keyed(by.processor, by, inputs, declared, self._folder)
        else:
            query = _unread(f"the operator {by.operator} is not read", by, inputs)
        return derive_output(
            name,
            query,
            position=by.position,
            output_mode=component.output_mode,
            lateness=self._lateness(component),
            fds=self.dataflow.fds,
            by_partition=by.bloom is None,
        )

    def _declared(self, end: Endpoint) -> Schema | None:
        """The columns that a stream from an output is said to have."""
        leaving = (s for s in self.dataflow.streams.values() if s.producer == end)
        return next((stream.schema for stream in leaving if stream.schema is not None), None)

    # ---- what comes in

    def inputs(self, component: Component, output: str) -> Mapping[str, Input]:
        """The component's inputs, as far as they are known, for the code of an output.

        Where `requests` is not said, an input that the written paths only read with, while another
        is written, asks and is not kept.
        """
        asking = frozenset(component.requests or ())
        if component.requests is None:
            written = (path for path in component.paths if path.derived is None)
            asking = claimed_requests(path for path in written if path.target == output)
        interfaces = list(dict.fromkeys(path.source for path in component.paths))
        by = component.implementations[output]
        if by.sql is not None:
            interfaces = mentioned(by.sql, interfaces)
        return {
            interface: self._input(Endpoint(component.name, interface), asking, component.order_by)
            for interface in interfaces
        }

    def _input(self, end: Endpoint, asking: frozenset[str], order_by: Iterable[str]) -> Input:
        streams = self._into.get(end, [])
        schemas = [self.schema(stream) for stream in streams]
        alike = schemas and all(other == schemas[0] for other in schemas)
        schema = schemas[0] if alike else None
        total = frozenset(order_by)
        keys = (total,) if total and schema is not None and total <= schema.keys() else ()
        return Input(schema, role(end.interface, asking), self._repeats(streams), keys)

    def _repeats(self, streams: Iterable[Stream]) -> str | None:
        """Why a record may come twice, by the code that it comes from."""
        for stream in streams:
            if stream.producer is None:
                continue
            if stream.producer in self._unfinished:
                return f"{stream.producer} is in a cycle and may send it again"
            output = self._output(stream.producer)
            if output is not None and output.derivation.repeats is not None:
                return f"{stream.producer} may send it again: {output.derivation.repeats}"
            if output is not None and output.undescribed and self._possible(stream.producer):
                return f"{stream.producer} may send it again: nothing is known of its code"
        return None

    def _possible(self, end: Endpoint) -> bool:
        """Whether nobody vouches for an output: its paths are those that the code may have."""
        paths = self._component(end).paths
        return any(path.derived is not None for path in paths if path.target == end.interface)

    def _follows(self, end: Endpoint) -> bool:
        """Whether a function is followed, and not run."""
        return self._execute is None and (self._follow or self._possible(end))

    def _lateness(self, component: Component) -> Mapping[str, float]:
        """Input -> how many seconds its records may be late, where that is promised."""
        lateness: dict[str, float] = {}
        for source in dict.fromkeys(path.source for path in component.paths):
            promise = self._promise(Endpoint(component.name, source))
            if promise is not None:
                lateness[source] = promise
        return lateness

    def _promise(self, end: Endpoint) -> float | None:
        """The lateness promised at an input; None for several streams, as one may run ahead."""
        passed: set[Endpoint] = set()
        promise = None
        while end not in self._promises and end not in passed:
            passed.add(end)
            streams = self._into.get(end, [])
            if len(streams) != 1:
                break
            (stream,) = streams
            if stream.lateness is not None:
                promise = seconds_of(stream.lateness)
                break
            if stream.producer is None:
                break
            if stream.producer in self._unfinished:
                return None
            output = self._output(stream.producer)
            before = None if output is None else output.read_record_by_record()
            if before is None:
                break
            end = Endpoint(stream.producer.component, before)
        else:
            promise = self._promises.get(end)
        self._promises |= dict.fromkeys(passed, promise)
        return promise

    # ---- reading

    def place(self, sql: str, position: Position | None) -> Place:
        """Where a character of a query stands in the dataflow's file, as far as that is known."""
        return self._place(sql, position) or (lambda _: position)

    def _place(self, sql: str, position: Position | None) -> Place | None:
        """Places in the dataflow's file; in the query itself where there is no file."""
        if position is None:
            return None
        if self._text is None and self.dataflow.file is not None:
            try:
                self._text = self.dataflow.file.read_text(encoding="utf-8").removeprefix("\ufeff")
            except (OSError, UnicodeDecodeError):
                return None
        return None if self._text is None else placer(sql, self._text, position)

    def _read_bloom(
        self, bloom: str, position: Position | None, output: str, inputs: Mapping[str, Input]
    ) -> Query:
        """The plan of an output of a Bloom module; BadInput with the mistakes of its text."""
        from annotations.whitebox.bloom.program import Named

        if bloom not in self._named:
            folder = self.dataflow.file.parent if self.dataflow.file is not None else FilePath()
            place = self._place(bloom, position) if "\n" in bloom.strip() else None
            self._named[bloom] = Named(bloom, folder=folder, place=place, position=position)
        return self._named[bloom].query(output, inputs)

    @property
    def _folder(self) -> FilePath:
        return self.dataflow.file.parent if self.dataflow.file is not None else FilePath()

    def _read_together(self) -> None:
        """Read the Python functions that do not wait for each other by one process at a time."""
        from annotations.whitebox.pyspark_code import Unreadable

        levels: dict[int, list[Endpoint]] = {}
        depths: dict[Endpoint, int] = {}
        for component in self.dataflow.components.values():
            for name, by in component.implementations.items():
                end = Endpoint(component.name, name)
                if by.python is not None and (self._execute is not None or self._follows(end)):
                    levels.setdefault(self._depth(end, depths), []).append(end)
        for _, ends in sorted(levels.items()):
            asked: dict[str, Function] = {}
            for end in ends:
                component = self._component(end)
                reference = component.implementations[end.interface].python or ""
                function = _function(reference, self.inputs(component, end.interface))
                asked[repr(function)] = function
            unread = [function for key, function in asked.items() if key not in self._read]
            if len(unread) > 1:
                with suppress(Unreadable):  # told where each is read by itself
                    self._functions(unread)

    def _depth(self, end: Endpoint, known: dict[Endpoint, int]) -> int:
        """How many Python functions stand before an output, one behind the other."""
        if end in known:
            return known[end]
        known[end] = 0  # where it is met again, in a cycle
        before = [
            stream.producer
            for source in {path.source for path in self._component(end).paths}
            for stream in self._into.get(Endpoint(end.component, source), ())
            if stream.producer is not None
        ]
        by = self._component(end).implementations.get(end.interface)
        depth = max((self._depth(producer, known) for producer in before), default=0)
        known[end] = depth + (by is not None and by.python is not None)
        return known[end]

    def _functions(self, asked: Sequence[Function]) -> None:
        """Read functions by one process, and keep their plans."""
        from annotations.whitebox.pyspark_code import read_functions, read_functions_twice
        from annotations.whitebox.sandbox import Limits

        folder = self._folder
        if self._execute is None:
            plans = read_functions(asked, folder=folder, limits=Limits(), follow=True)
        else:
            texts, ran = read_functions_twice(asked, folder=folder, limits=self._execute)
            plans = [_weaker(plan, text) for plan, text in zip(ran, texts, strict=True)]
        self._read |= {repr(function): plan for function, plan in zip(asked, plans, strict=True)}

    def _read_python(
        self, reference: str, by: Implementation, inputs: Mapping[str, Input], *, follow: bool
    ) -> Query:
        """The plan of a function, whose module stands in the folder of the dataflow's file."""
        if self._execute is None and not follow:
            unread = _unread(f"{reference} was not run", by, inputs, chance=True)
            return replace(unread, code="BLZ089")
        from annotations.whitebox.pyspark_code import Unreadable

        asked = _function(reference, inputs)
        reason, remedy, position = "", "", None
        if repr(asked) not in self._read:
            try:
                self._functions([asked])
            except Unreadable as unreadable:
                reason, remedy, position = str(unreadable), unreadable.remedy, unreadable.position
        plan = self._read.get(repr(asked))
        if plan is not None and not follow:
            return replace(_completed(plan, inputs), code="BLZ093")
        if plan is not None and not _undescribed(plan):
            return _completed(plan, inputs)
        if follow:
            reason = plan.reason if isinstance(plan, Opaque) else reason
            reason = f"{reference} was not run: {reason}"
            unread = _unread(reason, by, inputs, chance=True)
            remedy = _LACKING if reason.endswith(".py is here") else remedy
            return replace(unread, remedy=remedy or None, code="BLZ089")
        unread = _unread(reason, by, inputs, position=position, chance=True)
        return replace(unread, remedy=remedy or None, code="BLZ093")


def _weaker(ran: Relation, text: Relation) -> Relation:
    """The plan of a function that was run, where its text does not say all of it."""
    if _undescribed(ran) or not _undescribed(text):
        return ran if _undescribed(ran) else text
    return weaker(ran, [text], "")[0]


def _undescribed(plan: Relation) -> bool:
    """Whether nothing is known of a function."""
    return isinstance(plan, Opaque) and not plan.columns


def _function(reference: str, inputs: Mapping[str, Input]) -> Function:
    """A function as it is asked for: its inputs with what is known of them."""
    from annotations.whitebox.pyspark_code import Function
    from annotations.whitebox.pyspark_code import Input as Given

    module, _, name = reference.partition(":")
    given = {key: Given(known.schema, known.role) for key, known in inputs.items()}
    return Function(module, name, given)


def _keyed(
    processor: Processor,
    by: Implementation,
    inputs: Mapping[str, Input],
    declared: Schema | None,
    folder: FilePath,
) -> Query:
    """A StatefulProcessor: whatever it does to the records of a key, it does to one key alone.

    Its text may show more: a clock, dice, a service, or what it keeps outside of its state. Time is
    that of all records: with a time mode, a record of another key may let a timer expire.
    """
    sources = tuple([given.source(name, None, processor.key) for name, given in inputs.items()])
    keys = [
        Ref(column)
        for source in sources
        for column in source.columns
        if column.name in processor.key
    ]
    columns = () if declared is None else Input(declared).source("").columns
    listed = ", ".join(processor.key)
    reason = f"{processor.make} keeps state for each value of {listed}"
    if processor.time != "none":
        reason, keys = f"{reason}, and is told the time, which all records move on", []
    from annotations.whitebox.following.user_functions import shown_class

    module, _, name = processor.make.partition(":")
    shown = shown_class(folder / f"{module.replace('.', '/')}.py", name)
    if shown.chance:
        reason += f", and `{shown.chance}` in it is not the same each time"
    if shown.kept:
        reason, keys = f"{reason}, and changes `{shown.kept}`, which is no state of Spark's", []
    chance = bool(shown.chance or shown.kept)
    opaque = Opaque(sources, columns, reason, True, chance, position=by.position, keys=tuple(keys))
    return Query(opaque, open=declared is None)


def _unread(
    reason: str,
    by: Implementation,
    inputs: Mapping[str, Input],
    *,
    position: Position | None = None,
    chance: bool = False,
) -> Query:
    """Code of which nothing is known. `chance`: it may even leave its result to chance."""
    sources = tuple([given.source(name) for name, given in inputs.items()])
    opaque = Opaque(sources, (), reason, nondeterministic=chance, position=position or by.position)
    return Query(opaque, open=True, problem=reason)


def _completed(plan: Relation, inputs: Mapping[str, Input]) -> Query:
    """The plan of a function as a query, with what only the dataflow knows of its inputs."""

    def known(source: Source) -> Source:
        given = inputs.get(source.name)
        return source if given is None else replace(source, repeats=given.repeats, keys=given.keys)

    plan = changed(plan, Source, known)
    problem = plan.reason if isinstance(plan, Opaque) and not plan.columns else None
    return Query(plan, not all(leaf.complete for leaf in leaves(plan)), problem)


_LACKING: Final = (
    "Put the module beside this file, or correct its name (`python: module:function`); until then, "
    "write the `annotation`."
)
