"""A search that has all the time to itself."""

from __future__ import annotations

import time

from blazes.verify.findings import Finding
from blazes.verify.search import Search
from blazes.verify.spark import OutOfTime


def searched(search: Search, *, seconds: float) -> Finding:
    """The verdict when the search is over, or the time is."""
    until = time.monotonic() + seconds
    try:
        while not search.over and time.monotonic() < until:
            search.step()
    except OutOfTime:
        pass
    return search.finding()
