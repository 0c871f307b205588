"""The tracker's whole state as JSON, and back; the rules are not part of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flux_runtime.sealing.events import release_from_json
from flux_runtime.sealing.partition import Vote, partition_from_json, partition_to_json
from flux_runtime.sealing.tracker import Counters, Released, Rules, Tracker


def tracker_to_json(tracker: Tracker) -> dict[str, Any]:
    """An object that `json.dumps` takes and `tracker_from_json` reads back."""
    return {
        "partitions": {key: partition_to_json(p) for key, p in tracker.partitions.items()},
        "released": {
            key: [
                {
                    name: {p: [vote.count, vote.digest] for p, vote in votes.items()}
                    for name, votes in was.votes.items()
                },
                dict(was.batches),
                dict(was.outsiders),
            ]
            for key, was in tracker.released.items()
        },
        "ingested": tracker.ingested,
        "references": {
            name: [[batch, n] for batch, n in of_input.items()]
            for name, of_input in tracker.references.items()
        },
        "wanted": {
            name: {key: list(rows.items()) for key, rows in wanted.items()}
            for name, wanted in tracker.wanted.items()
        },
        "pending": tracker.pending and dataclasses.asdict(tracker.pending),
        "releases": tracker.releases,
        "counters": dataclasses.asdict(tracker.counters),
    }


def tracker_from_json(data: Mapping[str, Any], rules: Rules) -> Tracker:
    """The tracker that `tracker_to_json` wrote."""
    return Tracker(
        rules=rules,
        partitions={key: partition_from_json(p) for key, p in data["partitions"].items()},
        released={
            key: Released(
                {
                    name: {p: Vote(*vote) for p, vote in of_input.items()}
                    for name, of_input in votes.items()
                },
                {name: list(of_input) for name, of_input in batches.items()},
                {name: list(of_input) for name, of_input in outsiders.items()},
            )
            for key, (votes, batches, outsiders) in data["released"].items()
        },
        ingested=dict(data["ingested"]),
        references={
            name: dict(map(tuple, of_input)) for name, of_input in data["references"].items()
        },
        wanted={
            name: {key: dict(map(tuple, rows)) for key, rows in wanted.items()}
            for name, wanted in data["wanted"].items()
        },
        pending=data["pending"] and release_from_json(data["pending"]),
        releases=data["releases"],
        counters=Counters(**data["counters"]),
    )
