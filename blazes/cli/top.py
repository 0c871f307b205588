"""Show a running job, from another terminal: units, Flux sites and partitions, what failed.

FILE is a dataflow file, its compiled project's folder, or the folder of a run; without it the
newest run below the target folder is shown. Everything is read from the run folder.

exit status: 0; 2 where there is no such run, and for bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blazes.cli import CommandError
from blazes.cli.projects import add_target_dir
from blazes.cli.report import run_folder

if TYPE_CHECKING:
    from blazes.cli.top_screen import Top
    from flux_runtime.observe.reader import Run

EVERY_S: Final = 0.5
RATES_KEPT: Final = 60
ONCE_COLUMNS_MAX: Final = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="dataflow file, project folder, or run folder"
    )
    add_target_dir(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print one screen")
    how.add_argument("--json", action="store_true", help="print what is known as JSON")
    how.add_argument(
        "--prometheus", action="store_true", help="print the values in Prometheus' text format"
    )
    how.add_argument(
        "--grafana", action="store_true", help="print a dashboard of all metrics for Grafana"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the run."""
    if arguments.grafana:
        from blazes.cli.dashboard import dashboard

        print(json.dumps(dashboard(), indent=2, ensure_ascii=False))
        return 0
    folder = newest(Path(arguments.target_dir)) if arguments.file is None else run_folder(arguments)
    if arguments.prometheus:
        from flux_runtime.observe.exposition import Exposition

        sys.stdout.write(Exposition(folder).text())
        return 0
    watched = Watched(folder)
    if arguments.json:
        from blazes.cli.top_screen import to_json

        print(json.dumps(to_json(watched.look()), indent=2, ensure_ascii=False))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        show(watched, once=arguments.once or not sys.stdout.isatty())
    return 0


class Watched:
    """A run folder that is looked at again and again."""

    def __init__(self, folder: Path) -> None:
        from flux_runtime.observe.reader import Follower
        from flux_runtime.observe.stages import StagesFollower, stage_history

        self.folder = folder.resolve()
        self._run = Follower(self.folder)
        self._stages = StagesFollower(self.folder)
        self._rates: dict[str, deque[float]] = {}
        self._seen: dict[str, float] = {}
        for line in stage_history(self.folder):
            self._note(line.stage, line.t, float(line.fields.get("rows_per_s", 0.0)))

    def look(self) -> Top:
        """The present state."""
        from blazes.cli.top_screen import Top

        run = self._run.poll()
        stages = self._stages.poll(run)
        for stage in stages.values():
            self._note(stage.name, stage.t, stage.values.get("rows_per_s", 0.0))
        now = time.time()
        state = state_of(run)
        over = (run.summary or {}).get("finished", run.events[-1].t if run.events else now)
        end = now if state in ("running", "starting") else float(over)
        return Top(
            name=self.folder.parent.parent.name,
            run=self.folder.name,
            state=state,
            elapsed_s=max(0.0, end - (run.started or end)),
            now=now,
            units=tuple(run.units.values()),
            stages=tuple(stages.values()),
            rates={name: tuple(rates) for name, rates in self._rates.items()},
            events=run.events,
        )

    def _note(self, stage: str, t: float, rate: float) -> None:
        if t > self._seen.get(stage, 0.0):
            self._seen[stage] = t
            self._rates.setdefault(stage, deque(maxlen=RATES_KEPT)).append(rate)


def state_of(run: Run) -> str:
    """Whether the job runs, as far as its folder and its process tell."""
    if run.summary is not None:
        return str(run.summary.get("status", "finished"))
    pid = next((e.fields.get("pid") for e in run.events if e.kind == "job_started"), None)
    if not isinstance(pid, int):
        return "running" if run.units else "starting"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "ended without a word (killed?)"
    except PermissionError:
        pass
    return "running"


def newest(target: Path) -> Path:
    """The newest run of all projects.

    Raises:
        CommandError: nothing has run.
    """
    from flux_runtime.observe.reader import latest_run

    projects = list(target.iterdir()) if target.is_dir() else []
    runs = [run for project in projects if (run := latest_run(project)) is not None]
    if not runs:
        raise CommandError(
            f"nothing has run below {target}", remedy="name the run's folder, or --target-dir"
        )
    return max(runs, key=lambda run: (run.name, run.stat().st_mtime))


def show(watched: Watched, *, once: bool) -> None:
    """Draw the screen, again and again until the job ends."""
    from blazes.cli.top_screen import document
    from blazes.document.plain import colour_of, safe_write
    from blazes.document.terminal import Layout, text

    if once:
        layout = Layout.of(sys.stdout, most=ONCE_COLUMNS_MAX, cut=True)
        safe_write(sys.stdout, text(document(watched.look()), layout))
        return
    from blazes.document.screen import Screen

    with Screen(sys.stdout, colour=colour_of(sys.stdout), alone=True) as screen:
        while True:
            top = watched.look()
            screen.show(document(top))
            if top.state not in ("running", "starting"):
                break
            time.sleep(EVERY_S)
