"""The state that a Flux site keeps of a component in SQL: as little as later results still need.

| the query | what is kept of its inputs |
|---|---|
| a function of single records | nothing |
| confluent: a sum over records (`codegen.deltas`) | the columns used of inputs that are joined |
| the same, joined within a range of times | until the watermark has passed the range |
| groups by windows (`codegen.windows`) | partial aggregates, until the watermark passes |
| other aggregates (`codegen.summaries`) | partial aggregates |
| anything else | the records |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from annotations.dataflow import Endpoint
from annotations.vocabulary import AnnotationKind
from annotations.whitebox.sql_dialect import seconds_of
from codegen.deltas import Matches, Range, deltas
from codegen.drafts import Draft
from codegen.network import Network
from codegen.site_sql import site_sql, site_summaries
from codegen.summaries import summarise
from codegen.windows import END, START, Refused, Windowed, has_windows, windowed

Schemas = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Keeping:
    """A query and what is kept for it, in DuckDB's dialect.

    Attributes:
        query: over what is kept.
        summaries: input -> what makes it of a record, and what combines it.
        deltas: input -> what its new records add, and which rows of others matter.
        times: input -> attributes of its `flux_runtime.operators.event_time.EventTime`.
    """

    query: str
    summaries: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    deltas: Mapping[str, tuple[str, Matches]] = field(default_factory=dict)
    times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def gives(draft: Draft) -> str:
    """When the output is put out: see `flux_runtime.operators.query.Gives`."""
    if all(path.annotation.kind is AnnotationKind.CR for path in draft.paths):
        return "records"
    if draft.confluent:
        return "distinct" if draft.as_set else "new"
    return "answers" if draft.reads else "changes"


def gate(draft: Draft) -> tuple[str, ...] | None:
    """Attributes by which the work can be partitioned; None: it need not be kept together."""
    if draft.implementation is not None and draft.implementation.processor is not None:
        return draft.implementation.processor.key
    if gives(draft) == "records":
        return None
    gates = [path.annotation.gate for path in draft.own if not path.annotation.kind.confluent]
    known = [gate.attributes for gate in gates if gate is not None and gate.attributes is not None]
    if not known or len(known) < len(gates):
        return ()
    return tuple(sorted(frozenset.intersection(*known)))


def kept_on_sites(net: Network, draft: Draft, sql: str) -> Keeping:
    """The query of a component, and what a site keeps for it."""
    schemas = {name: schema_of(net, draft, name) for name in draft.inputs}
    known = {name: schema for name, schema in schemas.items() if schema is not None}
    if gives(draft) == "records" or len(known) < len(schemas):
        return Keeping(site_sql(sql))
    if has_windows(sql):
        query = windowed(sql, known)
        lateness_s = lateness_of(net, draft, query.input)
        return kept_windows(
            query,
            known[query.input],
            lateness_s=lateness_s,
            final=draft.component.output_mode == "append",
            gate=gate(draft) or (),
        )
    if draft.confluent:
        return kept_confluent(
            sql, known, as_set=draft.as_set, lateness_s=lambda name: lateness_of(net, draft, name)
        )
    return kept_groups(sql, known, writes=draft.writes, gate=gate(draft) or ())


def unbounded(keeping: Keeping, gives: str, inputs: Iterable[str]) -> str | None:
    """The state that a site keeps for ever of a query, beside a row for each group; None: none.

    Args:
        keeping: what is kept.
        gives: when the output is put out.
        inputs: whose records are kept where nothing less is.
    """
    if gives == "records" or any("duration_us" in time for time in keeping.times.values()):
        return None
    grows_only = gives in ("new", "distinct")
    records = [*inputs]
    if keeping.deltas:
        records = [] if keeping.times else [*keeping.summaries]
    elif keeping.summaries:
        records = []
    parts = [f"the records of {' and '.join(records)}"] if records else []
    if gives == "distinct" or (grows_only and not keeping.deltas):
        parts.append("all rows that it has put out")
    return ", and ".join(parts) or None


def kept_confluent(
    sql: str, schemas: Schemas, *, as_set: bool, lateness_s: Callable[[str], float]
) -> Keeping:
    """Of a query whose results only ever grow.

    Args:
        sql: the query.
        schemas: of its inputs.
        as_set: of the output, only distinct rows matter.
        lateness_s: how far behind the latest time a record of an input may be; raises `Refused`
            where that is not promised.
    """
    summed = deltas(sql, schemas, as_set=as_set)
    if summed is not None:
        return Keeping(
            site_sql(sql),
            {name: _translated(k.of_record, k.again) for name, k in summed.kept.items()},
            {name: (site_sql(q), summed.matches[name]) for name, q in summed.queries.items()},
            _ranges(summed.ranges, lateness_s),
        )
    summaries = summarise(sql, schemas, inputs=schemas, as_set=True) if as_set else None
    texts = None if summaries is None else site_summaries(summaries)
    return Keeping(site_sql(sql)) if texts is None else Keeping(*texts)


def _ranges(
    ranges: Mapping[str, Range], lateness_s: Callable[[str], float]
) -> dict[str, Mapping[str, Any]]:
    """The event times of inputs that meet within a range of times, if watermarks can end that."""
    try:
        lateness = {name: round(lateness_s(name) * 1_000_000) for name in ranges}
    except Refused:
        return {}
    return {name: {"lateness_us": lateness[name], **asdict(r)} for name, r in ranges.items()}


def kept_groups(
    sql: str, schemas: Schemas, *, writes: tuple[str, ...], gate: tuple[str, ...]
) -> Keeping:
    """Of a query that answers, or computes again what has changed."""
    summaries = summarise(sql, schemas, inputs=writes, beside=gate, as_set=False)
    texts = None if summaries is None else site_summaries(summaries)
    return Keeping(site_sql(sql)) if texts is None else Keeping(*texts)


def kept_windows(
    query: Windowed,
    schema: Mapping[str, str],
    *,
    lateness_s: float,
    final: bool,
    gate: tuple[str, ...],
) -> Keeping:
    """Of a query that is grouped by a window; raises `Refused`.

    Args:
        query: the query.
        schema: of its input.
        lateness_s: how far behind the latest time a record may be.
        final: whether a window is put out once, when it has ended; else whenever it changes.
        gate: attributes by which the work is partitioned.
    """
    session = query.slide_us is None
    if session and not final:
        raise Refused("session_window in output_mode: update, which Spark refuses")
    columns = {**schema, START: "TIMESTAMP", END: "TIMESTAMP"}
    beside = dict.fromkeys((*gate, *query.keys, START, END))
    summaries = summarise(
        query.sql, {query.input: columns}, inputs=[query.input], beside=beside, as_set=False
    )
    texts = None if summaries is None else site_summaries(summaries)
    if texts is None and session:
        raise Refused("session_window over such aggregates is not known to mean the same")
    time = {
        "column": query.column,
        "lateness_us": round(lateness_s * 1_000_000),
        "duration_us": query.duration_us,
        "slide_us": query.slide_us,
        "start_us": query.start_us,
        "keys": list(query.keys),
        "final": final,
    }
    if texts is None:
        table = f"`{query.input}`"
        where = "" if query.where is None else f" WHERE {query.where}"
        records = _translated(f"SELECT * FROM {table}{where}", f"SELECT * FROM {table}")
        texts = site_sql(query.sql), {query.input: records}
    sql, stored = texts
    if session:
        stored = {
            name: (of_record, query.merged(again, _columns_of(of_record)))
            for name, (of_record, again) in stored.items()
        }
    return Keeping(query.in_duckdb(sql), stored, times={query.input: time})


def _columns_of(sql: str) -> tuple[str, ...]:
    import sqlglot

    tree: Any = sqlglot.parse_one(sql, dialect="duckdb")
    return tuple(tree.named_selects)


def _translated(of_record: str, again: str | None) -> tuple[str, str | None]:
    return site_sql(of_record), None if again is None else site_sql(again)


def lateness_of(net: Network, draft: Draft, interface: str) -> float:
    """How many seconds the records of an input may be late; raises `Refused`."""
    entering = net.entering[Endpoint(draft.component.name, interface)]
    promised = [stream.lateness for stream in entering]
    if len(promised) != 1:
        raise Refused(f"of several streams, which {interface} has, there is no watermark")
    seconds = None if promised[0] is None else seconds_of(promised[0])
    if seconds is None:
        (stream,) = entering
        raise Refused(f"a window without an end: {stream.name} does not say its `lateness:`")
    return seconds


def schema_of(net: Network, draft: Draft, interface: str) -> Mapping[str, str] | None:
    """The attributes of an input; None where its streams do not all declare the same."""
    entering = net.entering[Endpoint(draft.component.name, interface)]
    schemas = [stream.schema for stream in entering]
    first = schemas[0] if schemas else None
    return first if all(schema == first for schema in schemas) else None
