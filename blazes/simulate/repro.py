"""A witness in a file: what came in, every delivery, and what came of it; it can be run again."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from annotations.vocabulary import Label
from blazes.simulate.anomalies import Anomaly
from blazes.simulate.drive import Order, replayed
from blazes.simulate.hunt import Witness
from blazes.simulate.messages import Item, Kind, Message
from blazes.simulate.network import Network
from blazes.simulate.world import Bag, Step
from blazes.verify.records import Row

SCHEMA_VERSION: Final = 2


class NotAWitness(ValueError):  # noqa: N818
    """The file does not hold a witness of this version; the message says what is wrong."""


def to_json(witness: Witness) -> dict[str, Any]:
    """The witness as JSON data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "anomaly": str(witness.anomaly.kind),
        "stream": witness.anomaly.stream,
        "coordinated": witness.coordinated,
        "inputs": {name: _bag(bag) for name, bag in witness.given.items()},
        "runs": [[_step(step) for step in run.steps] for run in witness.runs],
        "order": None
        if witness.order is None
        else [
            {
                "component": component,
                "gate": _row(gate),
                "records": [{"input": name, "record": _row(row)} for name, row in places],
            }
            for (component, gate), places in witness.order.items()
        ],
    }


def from_json(data: Mapping[str, Any], networks: Mapping[bool, Network]) -> Witness:
    """The witness, run again.

    Args:
        data: of `to_json`.
        networks: without and with the plan.

    Raises:
        NotAWitness: the data are of another shape, or of another dataflow.
    """
    try:
        if data["schema_version"] != SCHEMA_VERSION:
            raise NotAWitness(f"schema_version {data['schema_version']} is not {SCHEMA_VERSION}")
        anomaly = Anomaly(Label.parse(data["anomaly"]), data["stream"])
        coordinated = bool(data["coordinated"])
        network = networks[coordinated]
        given = {name: _bag_of(bag) for name, bag in data["inputs"].items()}
        order: Order | None = None
        if data["order"] is not None:
            order = {
                (entry["component"], _row_of(entry["gate"])): [
                    (place["input"], _row_of(place["record"])) for place in entry["records"]
                ]
                for entry in data["order"]
            }
        names = {anomaly.stream, *given, *(s["stream"] for run in data["runs"] for s in run)}
        if strange := names - network.wires.keys() - network.intakes.keys():
            raise NotAWitness(f"the dataflow has no stream {', '.join(sorted(strange))}")
        first_order = None if len(data["runs"]) > 1 else order
        runs = tuple(
            replayed(
                network,
                given,
                map(_step_of, steps),
                order if number else first_order,
                oracle=not number and len(data["runs"]) > 1,
            )
            for number, steps in enumerate(data["runs"])
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise NotAWitness(f"not a witness of a simulation: {error!r}") from None
    return Witness(anomaly, given, runs, coordinated, order)


def save(witness: Witness, path: Path) -> None:
    """Write a witness."""
    text = json.dumps(to_json(witness), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def load(path: Path, networks: Mapping[bool, Network]) -> Witness:
    """Read a witness and run it again; NotAWitness or OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotAWitness(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise NotAWitness("not an object")
    return from_json(data, networks)


def _bag(bag: Bag) -> list[dict[str, Any]]:
    return [{**_item(item), "times": times} for item, times in bag.items()]


def _item(item: Item) -> dict[str, Any]:
    if isinstance(item, Message):
        return {"message": item.kind.value, "value": _row(item.value), "producer": item.producer}
    return {"record": _row(item)}


def _bag_of(data: Any) -> Bag:
    return {_item_of(entry): int(entry["times"]) for entry in data}


def _item_of(data: Any) -> Item:
    if "message" in data:
        return Message(Kind(data["message"]), _row_of(data["value"]), data["producer"])
    return _row_of(data["record"])


def _step(step: Step) -> dict[str, Any]:
    return {"stream": step.stream, "replica": step.replica, "rows": _bag(dict(step.rows))}


def _step_of(data: Any) -> Step:
    return Step(data["stream"], int(data["replica"]), tuple(_bag_of(data["rows"]).items()))


def _row(row: Row) -> list[Any]:
    return [_value(value) for value in row]


def _value(value: Any) -> Any:
    """JSON keeps null, booleans, numbers and texts; other types are tagged."""
    match value:
        case datetime.datetime():
            return {"timestamp": value.isoformat()}
        case datetime.date():
            return {"date": value.isoformat()}
        case decimal.Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"binary": value.hex()}
        case tuple():
            return {"row": _row(value)}
        case _:
            return value


def _row_of(data: Any) -> Row:
    return tuple(map(_value_of, data))


def _value_of(data: Any) -> Any:
    match data:
        case {"timestamp": text}:
            return datetime.datetime.fromisoformat(text)
        case {"date": text}:
            return datetime.date.fromisoformat(text)
        case {"decimal": text}:
            return decimal.Decimal(text)
        case {"binary": text}:
            return bytes.fromhex(text)
        case {"row": values}:
            return _row_of(values)
        case _:
            return data
