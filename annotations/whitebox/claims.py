"""Written annotations beside those that the SQL of a component gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from annotations.dataflow import Component, Dataflow, Endpoint, Path, Position
from annotations.dependencies import closure
from annotations.vocabulary import FunctionalDependency, Within
from annotations.whitebox.components import Output, claimed_requests, derive_output, role
from annotations.whitebox.inputs import Input
from annotations.whitebox.places import placer
from annotations.whitebox.sql import Place
from annotations.whitebox.sql_dialect import seconds_of


def derive_component(dataflow: Dataflow, component: Component) -> Iterator[Output]:
    """What each output that is computed by SQL gives.

    An input that the written paths only read with, while another is written, asks and is not kept:
    that is not in the SQL, and the written annotation says it.
    """
    for name, by in component.implementations.items():
        if by.sql is None:
            continue
        paths = [path for path in component.paths if path.target == name]
        inputs = _inputs(dataflow, component, claimed_requests(paths))
        yield derive_output(
            name,
            by.sql,
            inputs,
            place=_place(dataflow, by.sql, by.position),
            position=by.position,
            output_mode=component.output_mode,
            lateness=_lateness(dataflow, component),
            fds=dataflow.fds,
        )


def more_than_shown(claim: Path, shown: Path, fds: Sequence[FunctionalDependency] = ()) -> bool:
    """True where the claim would let pass what the code does not show to be safe."""
    if claim.nondeterministic is None and shown.nondeterministic is not None:
        return True
    if claim.annotation.kind < shown.annotation.kind:
        return True
    if shown.annotation.kind.confluent:
        return False
    if shown.within is Within.SEQUENCE and claim.within is not Within.SEQUENCE:
        return True
    claimed, derived = claim.annotation.gate, shown.annotation.gate
    assert claimed is not None
    assert derived is not None
    if claimed.attributes is None:
        return False
    return derived.attributes is None or not claimed.attributes <= closure(derived.attributes, fds)


def _inputs(
    dataflow: Dataflow, component: Component, requests: frozenset[str]
) -> Mapping[str, Input]:
    """The inputs of a component with the schemas that the streams into them declare."""
    found: dict[str, Input] = {}
    for interface in dict.fromkeys(path.source for path in component.paths):
        end = Endpoint(component.name, interface)
        schemas = [each.schema for each in dataflow.streams.values() if each.consumer == end]
        same = schemas and all(each == schemas[0] for each in schemas)
        schema = schemas[0] if same else None
        total = frozenset(component.order_by)
        keys = (total,) if total and schema is not None and total <= schema.keys() else ()
        found[interface] = Input(schema, role(interface, requests), keys=keys)
    return found


def _lateness(dataflow: Dataflow, component: Component) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for stream in dataflow.streams.values():
        end = stream.consumer
        if end is None or end.component != component.name or stream.lateness is None:
            continue
        seconds = seconds_of(stream.lateness)
        if seconds is not None:
            found[end.interface] = max(seconds, found.get(end.interface, 0.0))
    return found


def _place(dataflow: Dataflow, sql: str, position: Position | None) -> Place | None:
    """Places in the dataflow's file; in the query itself where there is no file."""
    if dataflow.file is None or position is None:
        return None
    try:
        text = dataflow.file.read_text(encoding="utf-8").removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError):
        return None
    return placer(sql, text, position)
