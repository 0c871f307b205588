"""Whether a file is meant to be compiled, or is a model of a dataflow that is only analysed."""

from __future__ import annotations

from annotations.dataflow import Dataflow


def is_meant(dataflow: Dataflow) -> bool:
    """True where there is anything of a job about it: where records come from, or code."""
    return has_sources(dataflow) or has_code(dataflow)


def has_sources(dataflow: Dataflow) -> bool:
    """True where a stream says where its records come from."""
    return any(stream.source is not None for stream in dataflow.streams.values())


def has_code(dataflow: Dataflow) -> bool:
    """True where a component has code that runs."""
    return any(
        by.bloom is None
        for component in dataflow.components.values()
        for by in component.implementations.values()
    )
