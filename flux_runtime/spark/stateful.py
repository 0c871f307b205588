"""A unit whose records accumulate durably and are read again (`Job.stateful`)."""

from __future__ import annotations

from flux_runtime.spark.context import Context
from flux_runtime.spark.units import StatefulUnit


class Stateful:
    """A `StatefulUnit` that runs."""

    def __init__(self, unit: StatefulUnit, context: Context) -> None:
        raise NotImplementedError
