"""Declarations of a dataflow in Python: what `from blazes import ...` gives to a module of yours.

Blazes reads the calls off the text of the module (`annotations.file.python_module`) and runs none
of it. Where the module runs, they do nothing: a decorated function stays what it is, and a name
that is bound to a declaration only stands for it in other declarations. The keywords are the keys
of the dataflow file (docs/reference/python.md); a value that a keyword does not take is a mistake
of the module, reported with its line by every command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])

Names: TypeAlias = str | Sequence[str]
Value: TypeAlias = str | int | float | bool
Reads: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Declaration:
    """Something that was declared: a source, a stream, a component without a function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<declared: {self.name}>"

    def __call__(self, function: _F) -> _F:
        """As a decorator: the function itself."""
        return function


def dataflow(
    name: str | None = None,
    *,
    fds: Sequence[str] | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> Declaration:
    """The name of the dataflow and what holds of all of it; without it, it is called like the file.

    Args:
        name: of the dataflow, and of the project that it is compiled to.
        fds: functional dependencies, such as `"id -> campaign"`.
        deployment: where and how the job runs.
    """
    return Declaration(name or "dataflow")


def source(
    name: str,
    *,
    schema: Mapping[str, str] | None = None,
    format: str | None = None,
    path: str | None = None,
    options: Mapping[str, Value] | None = None,
    value: str | Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    seal: Names | Sequence[Sequence[str]] | None = None,
    producer: str | None = None,
    punctuation: Mapping[str, str] | None = None,
    producers: Names | Mapping[str, str] | None = None,
    id: Names | None = None,
    delivery: str | None = None,
    repeat_within: str | None = None,
    late: str | None = None,
    seal_timeout: float | str | None = None,
    remember: float | str | None = None,
    lateness: str | None = None,
    label: str | None = None,
    Rep: bool | None = None,  # noqa: N803
    description: str | None = None,
) -> Declaration:
    """Records from outside: their schema, where they come from, and what their producers promise.

    Args:
        name: a parameter of a component that is called so reads it.
        schema: attributes and their Spark SQL types.
        format: of Spark, with `path` and `options`; of kafka also `value` and `columns`.
        path: file or folder, relative to the folder of the module.
        options: of the format.
        value: what the values of messages are.
        columns: attributes that are another part of a message.
        seal: attributes on which the producers say that no more records come.
        producer: the column that names who sent a record.
        punctuation: how the records are recognised that say so.
        producers: who has to have said so.
        id: attributes that identify a record.
        delivery: whether a record may come again.
        repeat_within: how much later at most.
        late: what becomes of a record after its seal.
        seal_timeout: age at which an open partition is warned about.
        remember: how long released partitions are remembered.
        lateness: how late a record may be at most.
        label: nondeterminism of the source itself.
        Rep: whether several instances of the consumer get the same records.
        description: what it carries.
    """
    return Declaration(name)


def component(
    name: str | Callable[..., Any] | None = None,
    *,
    reads: Reads | None = None,
    output: str | None = None,
    label: str | Mapping[str, str] | None = None,
    subscript: Names | None = None,
    why: str | None = None,
    within: str | None = None,
    nondeterministic: str | None = None,
    lineage: Mapping[str, str] | None = None,
    state: str | None = None,
    repeats: str | None = None,
    rows: str | None = None,
    annotation: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    variants: Mapping[str, Any] | None = None,
    sql: str | Mapping[str, str] | None = None,
    python: str | Mapping[str, Any] | None = None,
    operator: str | Mapping[str, Any] | None = None,
    processor: Mapping[str, Any] | None = None,
    bloom: str | Mapping[str, str] | None = None,
    requests: Names | None = None,
    order_by: Names | None = None,
    output_mode: str | None = None,
    engine: str | None = None,
    availability: str | None = None,
    replicas: int | None = None,
    Rep: bool | None = None,  # noqa: N803
    description: str | None = None,
) -> Declaration:
    """A component: decorates the function that computes its output, or stands alone.

    The parameters of the function are the inputs; a parameter reads the source or the output of its
    name. A default makes a parameter none.

    Args:
        name: of the component; that of the function, where it decorates one.
        reads: input -> what it stands for, or a list; for inputs that are called otherwise.
        output: the name of what it gives; that of the function.
        label: CR, CW, OR[gate] or OW[gate] of every path, or for each input. Without it, and
            without `annotation`, it is derived from the code.
        subscript: the gate, where the label has none.
        why: the label is right, for those who read it later.
        within: whether the order inside a partition of the gate matters.
        nondeterministic: why the output is no function of the input.
        lineage: output attribute -> the input attribute that it copies.
        state: the name of a state that paths share.
        repeats: what a record that comes again does.
        rows: whether one record makes at most one row.
        annotation: the paths, where they differ from each other.
        variants: other behaviours.
        sql: a query, or one for each output.
        python: `module:function`, or one for each output; here also functions by their names.
        operator: a Flux operator.
        processor: a StatefulProcessor of PySpark: its `class`, `key`, `takes` and `time`.
        bloom: a Bloom module.
        requests: inputs whose records ask and are not kept.
        order_by: attributes that order the input totally.
        output_mode: Spark's.
        engine: what runs it.
        availability: whether a second instance takes over.
        replicas: how many instances run.
        Rep: whether several run on the same input.
        description: what it does.
    """
    if callable(name):
        return cast(Declaration, name)  # the function itself, decorated without parentheses
    return Declaration(name or "component")


def sql(
    name: str,
    query: str,
    *,
    reads: Reads | None = None,
    output: str | None = None,
    label: str | Mapping[str, str] | None = None,
    subscript: Names | None = None,
    why: str | None = None,
    within: str | None = None,
    nondeterministic: str | None = None,
    lineage: Mapping[str, str] | None = None,
    state: str | None = None,
    repeats: str | None = None,
    rows: str | None = None,
    annotation: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    variants: Mapping[str, Any] | None = None,
    requests: Names | None = None,
    order_by: Names | None = None,
    output_mode: str | None = None,
    engine: str | None = None,
    availability: str | None = None,
    replicas: int | None = None,
    Rep: bool | None = None,  # noqa: N803
    description: str | None = None,
) -> Declaration:
    """A component that is a query in Spark SQL over what it reads, each under its own name.

    Args:
        name: of the component, and of its output.
        query: its text.
        reads: the sources and components that the query names as tables; a dictionary where it
            calls them otherwise.
        output: see `component`, as all others.
        label: see there.
        subscript: see there.
        why: see there.
        within: see there.
        nondeterministic: see there.
        lineage: see there.
        state: see there.
        repeats: see there.
        rows: see there.
        annotation: see there.
        variants: see there.
        requests: see there.
        order_by: see there.
        output_mode: see there.
        engine: see there.
        availability: see there.
        replicas: see there.
        Rep: see there.
        description: see there.
    """
    return Declaration(name)


def sink(
    output: Any,
    *,
    name: str | None = None,
    format: str | None = None,
    path: str | None = None,
    options: Mapping[str, Value] | None = None,
    key: Names | None = None,
    delivery: str | None = None,
    value: Mapping[str, str] | None = None,
    function: str | None = None,
    schema: Mapping[str, str] | None = None,
    seal: Names | Sequence[Sequence[str]] | None = None,
    producer: str | None = None,
    punctuation: Mapping[str, str] | None = None,
    producers: Names | Mapping[str, str] | None = None,
    id: Names | None = None,
    repeat_within: str | None = None,
    late: str | None = None,
    seal_timeout: float | str | None = None,
    remember: float | str | None = None,
    lateness: str | None = None,
    label: str | None = None,
    Rep: bool | None = None,  # noqa: N803
    description: str | None = None,
) -> Declaration:
    """Where the rows of a component go.

    Args:
        output: the component, or the name of one of its outputs.
        name: of the stream; that of the output.
        format: of Spark, with `path` and `options`.
        path: file or folder, relative to the folder of the module.
        options: of the format.
        key: the sink replaces the row that has the same key.
        delivery: what the writer guarantees.
        value: of kafka, what the values of messages are.
        function: of `foreachBatch` and `foreach`, `module:name` of what takes the rows.
        schema: see `source`, as all others.
        seal: see there.
        producer: see there.
        punctuation: see there.
        producers: see there.
        id: see there.
        repeat_within: see there.
        late: see there.
        seal_timeout: see there.
        remember: see there.
        lateness: see there.
        label: see there.
        Rep: see there.
        description: see there.
    """
    return Declaration(name or "sink")


def stream(
    name: str,
    *,
    from_: str | None = None,
    to: str | None = None,
    source: Mapping[str, Any] | None = None,
    sink: Mapping[str, Any] | None = None,
    schema: Mapping[str, str] | None = None,
    seal: Names | Sequence[Sequence[str]] | None = None,
    producer: str | None = None,
    punctuation: Mapping[str, str] | None = None,
    producers: Names | Mapping[str, str] | None = None,
    id: Names | None = None,
    delivery: str | None = None,
    repeat_within: str | None = None,
    late: str | None = None,
    seal_timeout: float | str | None = None,
    remember: float | str | None = None,
    lateness: str | None = None,
    label: str | None = None,
    Rep: bool | None = None,  # noqa: N803
    description: str | None = None,
) -> Declaration:
    """A stream with both of its ends, where what it is does not follow from who reads what.

    Args:
        name: of the stream.
        from_: `Component.output`; without it the stream comes from outside.
        to: `Component.input`; without it the stream is a result.
        source: where the records come from, as a mapping.
        sink: where the rows go, as a mapping.
        schema: see `source`, the function, as all others.
        seal: see there.
        producer: see there.
        punctuation: see there.
        producers: see there.
        id: see there.
        delivery: see there.
        repeat_within: see there.
        late: see there.
        seal_timeout: see there.
        remember: see there.
        lateness: see there.
        label: see there.
        Rep: see there.
        description: see there.
    """
    return Declaration(name)
