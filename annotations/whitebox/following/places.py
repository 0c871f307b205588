"""Where in the user's files a plan was written.

The client does not say it of relations, so the constructor of its plans is watched: the innermost
frame that belongs neither to PySpark nor to this package is the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Position

_OWN: Final = str(Path(__file__).parents[1])


class Places:
    """Plan id -> where it was made."""

    def __init__(self, anew: set[Position | None]) -> None:
        self._of: dict[int, Position] = {}
        self._anew = anew
        self.in_batch = False
        """Plans are made by a function of `foreachBatch`: their places go to `anew`."""

    def watch(self) -> None:
        """Take note of every plan that is made from now on."""
        from pyspark.sql.connect.plan import LogicalPlan

        build = LogicalPlan.__init__
        of, anew = self._of, self._anew

        def watched(plan: Any, *arguments: Any, **options: Any) -> None:
            build(plan, *arguments, **options)
            place = caller()
            if self.in_batch:
                anew.add(place)
            if place is not None:
                of[plan._root_plan_id] = place

        LogicalPlan.__init__ = watched  # type: ignore[assignment,method-assign]

    def of(self, plan_id: int) -> Position | None:
        """Where the plan of that id was made, if it is known."""
        return self._of.get(plan_id)


_FOLLOWED: list[Callable[[], Position | None]] = []
"""Gives the place that is being read of a script that is not run."""


def reading(place: Callable[[], Position | None]) -> None:
    """Places are those of a script that is followed without being run, from now on."""
    from pyspark.errors import utils

    def call_site(depth: int) -> str:
        at = place() or Position("", 1, 1)
        return f"{at.file}:{at.line}"

    _FOLLOWED[:] = [place]
    utils._capture_call_site = call_site


def definitions() -> None:
    """Places of datasets and flows are those of the code, whatever calls `pyspark.pipelines`."""
    from pyspark.pipelines import api
    from pyspark.pipelines.source_code_location import SourceCodeLocation

    def location(stacklevel: int) -> SourceCodeLocation:
        at = caller() or Position("", 1, 1)
        return SourceCodeLocation(at.file, at.line)

    api.get_caller_source_code_location = location  # type: ignore[attr-defined]


def caller() -> Position | None:
    """The innermost place outside of PySpark and of this package; in a script that is followed
    without being run, the place that is being read."""
    if _FOLLOWED:
        return _FOLLOWED[0]()
    import pyspark

    spark = str(Path(pyspark.__file__).parent)
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        inside = file.startswith((spark, _OWN, "<")) or "/lib/python3" in file
        if not inside:
            return Position(file, frame.f_lineno, 1)
        frame = frame.f_back  # type: ignore[assignment]
    return None
