"""Advice in plain words and as JSON data: what to change, who has to act, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from annotations.dataflow import Dataflow
from annotations.phrases import NAMES_MAX, listed, number, tupled
from blazes.advice import (
    Advice,
    Alternative,
    Change,
    Cost,
    Depending,
    Held,
    Needs,
    Places,
    Rewriting,
    Sealing,
)

COLUMNS_MAX: Final = 8
"""So many columns are named; of more their number."""


def lines(advice: Advice, dataflow: Dataflow) -> Iterator[str]:
    """One line for each alternative, cheapest first; then what stands in the way of more."""
    for alternative in advice.alternatives:
        yield line(alternative, dataflow)
    if advice.counted_twice:
        streams = listed(advice.counted_twice)
        yield (
            f"say first, with `id:`, what identifies a record of {streams}: it may come again, and "
            "a seal would count its copies"
        )


def line(alternative: Alternative, dataflow: Dataflow) -> str:
    """One alternative: the change, the labels that result, from whom, and at what cost."""
    parts = [headline(alternative), _who(alternative, dataflow)]
    if alternative.must_hold:
        parts.append(f"it must be true that {'; that '.join(alternative.must_hold)}")
    return "; ".join([*parts, *_costs(alternative)])


def headline(alternative: Alternative) -> str:
    """The change, and the labels that result."""
    return f"{_changes(alternative.changes)}: {_effect(alternative)}"


def _changes(changes: Sequence[Change]) -> str:
    return " and ".join(change_text(change) for change in changes)


def change_text(change: Change) -> str:
    """A change, as it is written in the file.

    >>> change_text(Sealing("clicks", frozenset({"campaign"})))
    'seal: [campaign] on clicks'
    """
    match change:
        case Sealing(stream, key):
            return f"seal: [{', '.join(sorted(key))}] on {stream}"
        case Depending(fd):
            one, other = (", ".join(sorted(side)) for side in (fd.determinant, fd.dependent))
            return f'fds: ["{one} -> {other}"]'
        case Rewriting(component, _, key, why):
            return (
                f"change the query of {component}, for which a seal on [{', '.join(sorted(key))}] "
                f"is not enough, since {why}"
            )


def _effect(alternative: Alternative) -> str:
    after: dict[str, list[str]] = {}
    for name, (_, label) in alternative.results.items():
        after.setdefault(str(label), []).append(name)
    parts = []
    for becoming, names in after.items():
        more = [f"{len(names) - NAMES_MAX} more"] if len(names) > NAMES_MAX else []
        becomes = "becomes" if len(names) == 1 else "become"
        parts.append(f"{listed([*names[:NAMES_MAX], *more])} {becomes} {becoming}")
    left = f"{number(alternative.orders, 'order')} left" if alternative.orders else "no order"
    beside = (
        f", together with {listed(alternative.elsewhere[:NAMES_MAX])}"
        if alternative.elsewhere
        else ""
    )
    return f"{listed(parts)}, with {left}{beside}"


def _who(alternative: Alternative, dataflow: Dataflow) -> str:
    match alternative.needs:
        case Needs.NOBODY:
            return "nobody has to do anything"
        case Needs.OWNER:
            text = f"the owner of {listed(alternative.who)} has to change it"
            sealed = sorted({c.stream for c in alternative.changes if isinstance(c, Sealing)})
            return f"{text}, and {_punctuate(sealed, dataflow)}" if sealed else text
    return _punctuate(alternative.who, dataflow)


def _punctuate(streams: Sequence[str], dataflow: Dataflow) -> str:
    if any(dataflow.streams[name].punctuation is None for name in streams):
        return f"the producers of {listed(streams)} have to send punctuations"
    return f"the producers of {listed(streams)} have to punctuate this key too"


def _costs(alternative: Alternative) -> Iterator[str]:
    cost = alternative.cost
    if cost.waits_for:
        yield f"waits for the slowest producer of {listed(cost.waits_for)}"
    if cost.held:
        held = [_held(alternative) for alternative in cost.held[:NAMES_MAX]]
        more = [f"{len(cost.held) - NAMES_MAX} more"] if len(cost.held) > NAMES_MAX else []
        yield f"holds, until it is over, {listed([*held, *more])}"
    elif not cost.waits_for:
        yield "waits for nobody, and holds nothing"
    if cost.registrations is not Places.NONE:
        yield (
            "ZooKeeper: a registration per producer and partition, and a look-up per partition "
            "(none if `producers` is `one` or a list)"
        )
    else:
        yield "ZooKeeper: nothing"
    if cost.held:
        yield f"latency: until {cost.latency}"


def _held(held: Held) -> str:
    text = f"each {tupled(held.key)} of {held.stream}"
    if held.columns is None:
        return f"{text} (columns not declared)"
    names = ", ".join(held.columns)
    columns = names if len(held.columns) <= COLUMNS_MAX else number(len(held.columns), "column")
    width = f"{held.bytes_per_record} bytes a record"
    if held.varying:
        width += f" and the text of {listed(held.varying[:NAMES_MAX])}"
        width = width.removeprefix("0 bytes a record and ")
    return f"{text} ({columns}: {width})"


def order_costs(cost: Cost) -> str:
    """The cost of the plan's order, for comparison."""
    places = "a place for each batch" if cost.order is not Places.NONE else "nothing"
    return (
        "It asks nothing of the producers and holds no partition; "
        f"ZooKeeper: {places}; latency: until {cost.latency}."
    )


def advice_object(advice: Advice) -> dict[str, Any]:
    """The advice for one component as JSON data."""
    return {
        "component": advice.component,
        "order": _cost_object(advice.order),
        "alternatives": [_alternative_object(alternative) for alternative in advice.alternatives],
        "counted_twice": list(advice.counted_twice),
    }


def _alternative_object(alternative: Alternative) -> dict[str, Any]:
    return {
        "changes": [_change_object(change) for change in alternative.changes],
        "needs": alternative.needs.name.lower(),
        "who": list(alternative.who),
        "must_hold": list(alternative.must_hold),
        "gives": {name: sorted(key) for name, key in alternative.gives.items()},
        "cost": _cost_object(alternative.cost),
        "verdict": str(alternative.verdict),
        "results": {
            name: {"before": str(before), "after": str(after)}
            for name, (before, after) in alternative.results.items()
        },
        "orders": alternative.orders,
        "elsewhere": list(alternative.elsewhere),
    }


def _change_object(change: Change) -> dict[str, Any]:
    match change:
        case Sealing(stream, key):
            return {"change": "seal", "stream": stream, "key": sorted(key)}
        case Depending(fd):
            return {
                "change": "fd",
                "determinant": sorted(fd.determinant),
                "dependent": sorted(fd.dependent),
            }
        case Rewriting(component, output, key, why):
            return {
                "change": "query",
                "component": component,
                "output": output,
                "key": sorted(key),
                "reason": str(why),
            }


def _cost_object(cost: Cost) -> dict[str, Any]:
    return {
        "waits_for": list(cost.waits_for),
        "holds": [
            {
                "stream": held.stream,
                "key": sorted(held.key),
                "columns": None if held.columns is None else list(held.columns),
                "bytes_per_record": held.bytes_per_record,
                "varying": list(held.varying),
            }
            for held in cost.held
        ],
        "zookeeper": {
            "registrations": cost.registrations.value,
            "look_ups": cost.look_ups.value,
            "places": cost.order.value,
        },
        "latency": cost.latency,
    }
