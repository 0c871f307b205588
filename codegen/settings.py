"""Settings of Spark that a compiled job depends on, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from annotations.whitebox.settings import READ_WITH, differing
from codegen.model import Flux, Stages

ON_SITES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **READ_WITH,
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
)
"""Setting -> its value where Spark computes what Flux sites do, which have no settings."""
OF_PYTHON: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
        "spark.sql.execution.pandas.convertToArrowArraySafely": "true",
        "spark.sql.execution.pyspark.binaryAsBytes": "true",
        "spark.sql.execution.pythonUDF.mapInBatch.legacy.acceptAnyIterable.enabled": "true",
        "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "false",
        "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "false",
        "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true",
        "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled": "false",
    }
)
"""The same of what Spark hands to Python and takes from it: what its Python workers are told."""
BREAKING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
        "spark.sql.retainGroupColumns": "false",
    }
)
"""Setting -> a value that the job's own files or queries do not stand."""


def other_than_sites(conf: Mapping[str, str], *, python: bool) -> Iterator[tuple[str, str, str]]:
    """(setting, its value, the value that sites compute with) where these are not one.

    >>> list(other_than_sites({"spark.sql.session.timeZone": "CET"}, python=False))
    [('spark.sql.session.timeZone', 'CET', 'UTC')]
    """
    return differing(conf, _on_sites(python=python))


def _on_sites(*, python: bool) -> Mapping[str, str]:
    return {**ON_SITES, **OF_PYTHON} if python else ON_SITES


def breaking(conf: Mapping[str, str]) -> Iterator[str]:
    """Settings that the job's own files or queries do not stand.

    >>> list(breaking({"spark.sql.parquet.outputTimestampType": "timestamp_millis"}))
    ['spark.sql.parquet.outputTimestampType']
    """
    for name, value in BREAKING.items():
        if str(conf.get(name, "")).strip().lower() == value.lower():
            yield name


def settings(stages: Stages) -> Mapping[str, Mapping[str, str]]:
    """The settings that a job needs: `equal` to these values, and `other` than those."""
    conf = stages.plan.analysis.dataflow.deployment.conf
    equal = {name: str(conf.get(name, value)) for name, value in READ_WITH.items()}
    for stage in stages:
        for step in stage.steps if isinstance(stage, Flux) else ():
            if step.function.operator is None:
                equal |= _on_sites(python=step.function.on_sites is not None)
    return {"equal": equal, "other": dict(BREAKING)}
