"""Settings of Spark that a compiled job depends on, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from annotations.whitebox.settings import READ_WITH
from codegen.model import Flux, Stages

ON_SITES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
)
"""Setting -> its value where Spark computes what Flux sites do, which have no settings.

`benchmarks/settings_on_spark.py` searches all others for one with which Spark computes another
value.
"""


def other_than_sites(conf: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(setting, its value, the value that sites compute with) where these are not one.

    >>> list(other_than_sites({"spark.sql.session.timeZone": "CET"}))
    [('spark.sql.session.timeZone', 'CET', 'UTC')]
    """
    for name, value in ON_SITES.items():
        given = str(conf.get(name, value)).strip()
        if given.lower() != value.lower():
            yield name, given, value


def settings(stages: Stages) -> Mapping[str, str]:
    """The settings that a job needs: those that its dataflow was read with, and those of sites."""
    conf = stages.plan.analysis.dataflow.deployment.conf
    result = {name: str(conf.get(name, value)) for name, value in READ_WITH.items()}
    steps = (step for stage in stages if isinstance(stage, Flux) for step in stage.steps)
    if any(step.function.operator is None for step in steps):
        result |= ON_SITES
    return result
