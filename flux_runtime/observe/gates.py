"""The partitions that the sealed units of a job wait for, read from their journals, running or not.

A unit says once what it waits for (`gate.json` beside its journal); its tracker's state is rebuilt
from the journal without touching it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flux_runtime.sealing.keys import key_values
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.partition import Partition
from flux_runtime.sealing.report import waits_for
from flux_runtime.sealing.tracker import (
    All,
    One,
    Registered,
    Rules,
    Set,
    Tracker,
    rules_from_json,
    rules_to_json,
)

DESCRIPTION: Final = "gate.json"
LEDGER: Final = "ledger"
BUFFER: Final = "buffer"
REQUESTS: Final = "requests"
CHECKPOINT: Final = "checkpoint"
"""What a unit's part of the state folder holds; the last three by input."""
UNITS: Final = "units"
_TRIES: Final = 10
_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """A partition that has not been released."""

    key: tuple[str, ...]
    status: str
    """`open`, `sealed`, `releasing` or `quarantined`."""
    opened: float
    """Seconds since the epoch."""
    waits_for: tuple[str, ...]
    """In words."""
    missing: Mapping[str, tuple[str, ...]]
    """Input -> producers whose punctuation has not come and who are not excused."""
    excused: Mapping[str, tuple[str, ...]]
    """Input -> producers who need not punctuate."""
    records: int
    """How many are buffered."""
    contradiction: str | None
    """Why it is quarantined (SE-6)."""


@dataclass(frozen=True, slots=True)
class GateView:
    """A sealed unit and its partitions that are not released, the oldest first."""

    unit: str
    key: tuple[str, ...]
    """The key's attributes."""
    inputs: Mapping[str, str]
    """Waiting input -> who contributes, in words."""
    seal_timeout_s: float
    released: int
    partitions: tuple[OpenPartition, ...]


def describe(unit: str, *, key: tuple[str, ...], rules: Rules, seal_timeout_s: float) -> bytes:
    """The content of a unit's `gate.json`."""
    return json.dumps(
        {
            "unit": unit,
            "key": key,
            "seal_timeout_s": seal_timeout_s,
            **rules_to_json(rules),
        },
        ensure_ascii=False,
    ).encode()


def read_gates(state: Path) -> tuple[GateView, ...]:
    """Every sealed unit of a state folder, sorted by name."""
    folders = (state / UNITS).glob(f"*/{DESCRIPTION}")
    return tuple(sorted((read_gate(file.parent) for file in folders), key=lambda gate: gate.unit))


def read_rules(folder: Path) -> Rules:
    """The open partitions of a sealed unit, from its part of the state folder."""
    return rules_from_json(json.loads((folder / DESCRIPTION).read_text(encoding="utf-8")))


def read_gate(folder: Path) -> GateView:
    """One sealed unit, from its part of the state folder."""
    data = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    rules = read_rules(folder)
    tracker = _tracker(folder / LEDGER, rules)
    return GateView(
        unit=data["unit"],
        key=tuple(data["key"]),
        inputs={name: _in_words(rule) for name, rule in rules.inputs.items()},
        seal_timeout_s=data["seal_timeout_s"],
        released=tracker.counters.released,
        partitions=tuple(_view(key, p) for key, p in tracker.partitions.items()),
    )


def _tracker(folder: Path, rules: Rules) -> Tracker:
    """The state as it is now; read again where the running job replaced a file meanwhile."""
    if not folder.exists():
        return Tracker(rules)
    for _ in range(_TRIES - 1):
        try:
            with Ledger(folder, rules, read_only=True) as ledger:
                return ledger.tracker
        except DamagedError:
            time.sleep(_AGAIN_S)
    with Ledger(folder, rules, read_only=True) as ledger:
        return ledger.tracker


def _view(key: str, partition: Partition) -> OpenPartition:
    shares = partition.shares.items()
    conflict = partition.quarantine
    return OpenPartition(
        key=key_values(key),
        status=partition.status.value,
        opened=partition.opened,
        waits_for=tuple(waits_for(partition)),
        missing={name: share.missing for name, share in shares if share.missing},
        excused={name: tuple(share.excused) for name, share in shares if share.excused},
        records=sum(sum(share.received.values()) for _, share in shares),
        contradiction=None
        if conflict is None
        else f"{conflict.input}: {conflict.producer}: {conflict.why}: {conflict.promised}, "
        f"then {conflict.found}",
    )


def _in_words(rule: Set) -> str:
    match rule:
        case One():
            return "one producer for each partition"
        case All(members):
            return f"all of {', '.join(members)}"
        case Registered():
            return "registered in ZooKeeper"
