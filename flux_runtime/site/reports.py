"""Reports of the sites, as lines of the run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_runtime.observe.run_folder import SITES_FILE
from flux_runtime.observe.thinned import ThinnedLog
from flux_runtime.site.control_messages import Report

PARTS_S: Final = 5.0
"""How often what every copy does goes into the run folder; it is long."""


class Reports:
    """Writes the reports that a leader has got.

    Args:
        run_folder: where they are written; None: nowhere.
        stage: what they call the stage.
    """

    def __init__(self, run_folder: Path | None, stage: str) -> None:
        self._stage = stage
        self._parts_at: dict[int, float] = {}
        self._out: ThinnedLog | None = None
        if run_folder is not None:
            self._out = ThinnedLog(run_folder / SITES_FILE, of=_place)

    def add(self, site: int, identity: str, report: Report) -> None:
        """A site has reported."""
        if self._out is None:
            return
        now_s = round(time.time(), 3)
        line = {"t": now_s, "stage": self._stage, "number": site, "site": identity}
        line |= msgspec.to_builtins(report)
        del line["c"]
        if time.monotonic() - self._parts_at.get(site, 0.0) < PARTS_S:
            line.pop("parts", None)
        else:
            self._parts_at[site] = time.monotonic()
        self._out.append(line)


def _place(line: Mapping[str, Any]) -> tuple[str, str]:
    """The stage and the place of a site, whose incarnations follow one another."""
    return line["stage"], line["site"].partition(".")[0]
