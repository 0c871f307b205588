"""A run folder with a Flux stage that lost a site, as the leader and the sites write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flux_runtime.observe.run_folder import SITES_FILE, STAGES_FILE, RunFolder

STAGE = "sessions"
STARTED = 1_700_000_000.0


def append(file: Path, record: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps(record) + "\n")


def said(number: int) -> dict[str, Any]:
    return {"number": number, "id": f"{number}.x", "host": "vm", "executor": str(number)}


def stage_line(second: float, *, copies: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    line = {
        "t": STARTED + second,
        "stage": STAGE,
        "epoch": 1,
        "whole": True,
        "failures": 0,
        "losses": [],
        "rows": 1000 * second,
        "rows_per_s": 1000.0,
        "batches": 10 * second,
        "under_way": 2,
        "waiting": 0,
        "committed": 9,
        "latency_ms": {"p50": 12.5, "p95": 20.0, "p99": 21.0, "max": 21.0},
        **fields,
    }
    if copies is not None:
        numbers = sorted({copy[4] for copy in copies})
        line |= {"copies": copies, "sites": [said(number) for number in numbers]}
    return line


def report(second: float, number: int, **fields: Any) -> dict[str, Any]:
    part = {"node": [0, 0, number % 2, 0], "cpu": 0.25, "rows_per_s": 500.0, "state_bytes": 2048,
            "queued_units": 3, "buffered_units": 1, "on_disk": False}  # fmt: skip
    return {
        "t": STARTED + second,
        "stage": STAGE,
        "number": number,
        "site": f"{number}.x",
        "pid": 4711 + number,
        "rows_per_s": 500.0,
        "utilisation": 0.5,
        "cpu": 0.4,
        "buffered_units": 7,
        "state_bytes": 2048,
        "parts": [part],
        **fields,
    }


def write_run(folder: Path, *, whole: bool = True) -> Path:
    """Second 0: copies on sites 0 and 1; second 2: site 1 fails, site 2 takes its copy."""
    run = RunFolder.at(folder)
    before = [[0, 0, 0, 0, 0, "ACTIVE"], [0, 0, 1, 0, 1, "ACTIVE"]]
    status = "ACTIVE" if whole else "STANDBY"
    after = [[0, 0, 0, 0, 0, "ACTIVE"], [0, 0, 1, 1, 2, status]]
    append(folder / STAGES_FILE, stage_line(0.5, copies=before))
    append(folder / STAGES_FILE, stage_line(2.5, copies=after, whole=whole))
    append(folder / STAGES_FILE, stage_line(3.0, whole=whole))
    for number in (0, 1, 2):
        append(folder / SITES_FILE, report(1.0, number))
    event = folder / "events.jsonl"
    append(event, {"t": STARTED, "kind": "job_started", "pid": 1})
    failed = {"kind": "site_failed", "unit": STAGE, "site": "1.x", "number": 1, "why": "closed"}
    append(event, {"t": STARTED + 2.0, **failed})
    append(event, {"t": STARTED + 2.1, "kind": "move", "unit": STAGE, "to": 2})
    if whole:
        recovered = {"kind": "recovered", "unit": STAGE, "seconds": 0.4, "sites": [1]}
        append(event, {"t": STARTED + 2.4, **recovered})
    run.close()
    return folder
