"""The folder that a run leaves behind: plan, metrics, events, log, summary.

`runs/YYYYMMDD-HHMMSS/` is made once, `runs/latest` points to the newest. Every line is appended
with one write, so that a crash can tear the last line only, and several processes may append. Files
of lines stay small (`thinned`): of metrics the last of every unit is kept, of events the first of
every kind, and how many there were. `flux_runtime.observe.reader` reads it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flux_runtime.observe.metrics import Value, check
from flux_runtime.observe.thinned import ThinnedLog

METRICS_FILE: Final = "metrics.jsonl"
EVENTS_FILE: Final = "events.jsonl"
SUMMARY_FILE: Final = "summary.json"
STAGES_FILE: Final = "stages.jsonl"
"""What the controllers of Flux stages write (`flux_runtime.site.stage_log`)."""
SITES_FILE: Final = "sites.jsonl"
"""What the sites of Flux stages report of themselves."""
PLAN_FILE: Final = "plan.json"
LOG_FILE: Final = "log.txt"
LATEST: Final = "latest"

METRICS_PERIOD_S: Final = 0.5
"""A unit's metrics are written at most this often, and the last values always."""


class RunFolder:
    """Writes one run's folder; safe to use from several threads.

    Use `create` for a new dated folder, `at` for a given one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Condition()
        self._values: dict[str, dict[str, Any]] = {}
        self._written: dict[str, float] = {}
        self._unwritten: set[str] = set()
        self._writer: threading.Thread | None = None
        self._finished = False
        self._started = time.time()
        for name in (METRICS_FILE, EVENTS_FILE):
            _end_torn_line(path / name)
        self._metrics = ThinnedLog(
            path / METRICS_FILE, of=lambda line: line["unit"], lasting=lambda _: True
        )
        self._events = ThinnedLog(
            path / EVENTS_FILE, of=lambda line: (line.get("unit"), line["kind"]), counted=True
        )

    @classmethod
    def create(
        cls,
        base: Path,
        plan_path: Path | None = None,
        *,
        links: Mapping[str, Path] | None = None,
        now: datetime | None = None,
    ) -> Self:
        """A new folder under `base`, named after the time, and `base`/latest pointing to it.

        Args:
            base: usually `target/NAME/runs`; made if it is missing.
            plan_path: a plan.json to copy into the folder.
            links: name in the folder -> folder elsewhere, such as `results`.
            now: local time for the name; None: the clock's.
        """
        base.mkdir(parents=True, exist_ok=True)
        name = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        number = 1
        while True:
            path = base / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        run = cls.at(path, plan_path, links=links)
        replace_link(base / LATEST, Path(path.name))
        return run

    @classmethod
    def at(
        cls,
        path: Path,
        plan_path: Path | None = None,
        *,
        links: Mapping[str, Path] | None = None,
    ) -> Self:
        """The folder `path`, made if it is missing; what stands in it already is added to."""
        path.mkdir(parents=True, exist_ok=True)
        if plan_path is not None and plan_path.resolve() != (path / PLAN_FILE).resolve():
            shutil.copyfile(plan_path, path / PLAN_FILE)
        for name, target in (links or {}).items():
            replace_link(path / name, Path(os.path.relpath(target.resolve(), path.resolve())))
        return cls(path)

    @property
    def log_path(self) -> Path:
        """Where the job's log goes."""
        return self.path / LOG_FILE

    def event(self, kind: str, unit: str | None = None, **fields: Any) -> None:
        """Append an event at once; `fields` are JSON values."""
        event = {"t": _now(), "kind": kind, **({} if unit is None else {"unit": unit}), **fields}
        self._events.append(event)

    def metrics(self, unit: str, *, stage: str | None = None, **values: Value) -> None:
        """Take note of a unit's newest values; those not given stay as they were.

        Raises:
            ValueError: a name that is not in the table of metrics.
        """
        check(values)
        with self._lock:
            merged = self._values.setdefault(unit, {})
            merged |= {} if stage is None else {"stage": stage}
            merged |= {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
            self._unwritten.add(unit)
            self._write_due(all_of_them=self._finished)
            if self._unwritten and self._writer is None:
                self._writer = threading.Thread(
                    target=self._write_what_is_left, name="run-folder", daemon=True
                )
                self._writer.start()

    def values(self) -> dict[str, dict[str, Any]]:
        """Unit -> its newest metrics."""
        with self._lock:
            return {unit: dict(values) for unit, values in self._values.items()}

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the last metrics, and `summary.json` with them and with `summary`."""
        with self._lock:
            self._finished = True
            self._write_due(all_of_them=True)
            self._lock.notify_all()
            finished = time.time()
            content = {
                "started": round(self._started, 3),
                "finished": round(finished, 3),
                "wall_s": round(finished - self._started, 3),
                "units": self._values,
                **summary,
            }
            _replace_file(self.path / SUMMARY_FILE, json.dumps(content, indent=2) + "\n")

    def close(self) -> None:
        """Write the last metrics; no summary: the run did not come to an end of its own."""
        with self._lock:
            self._finished = True
            self._write_due(all_of_them=True)
            self._lock.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # the disk may be full, which has ended the run
            self.close()

    def _write_due(self, *, all_of_them: bool = False) -> None:
        """Write the units whose last line is old enough; the caller holds the lock."""
        now = time.monotonic()
        for unit in sorted(self._unwritten):
            age_s = now - self._written.get(unit, -math.inf)
            if all_of_them or age_s >= METRICS_PERIOD_S:
                self._metrics.append({"t": _now(), "unit": unit} | self._values[unit])
                self._written[unit] = now
                self._unwritten.discard(unit)

    def _write_what_is_left(self) -> None:
        with self._lock:
            with contextlib.suppress(OSError):  # whose values come next meets it, too
                while self._unwritten and not self._finished:
                    self._lock.wait(METRICS_PERIOD_S / 4)
                    self._write_due()
            self._writer = None


def replace_link(link: Path, target: Path) -> None:
    """Point the symbolic link at `target` in one step: a reader sees the old one or the new one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)


def _replace_file(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def _end_torn_line(file: Path) -> None:
    """A crash may have left half a line: what is appended now must not become part of it."""
    with contextlib.suppress(FileNotFoundError), file.open("r+b") as content:
        if content.seek(0, os.SEEK_END):
            content.seek(-1, os.SEEK_END)
            if content.read(1) != b"\n":
                content.write(b"\n")


def _now() -> float:
    return round(time.time(), 3)
