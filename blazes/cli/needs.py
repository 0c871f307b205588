"""Whether this machine has what a compiled job needs beside the runtime (`codegen.needs`)."""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from blazes.cli.checks import Check, Finding, Status, requirements, within
from codegen.needs import Need, artifact_of

PLAN: Final = "plan.json"


def needs_of(project: Path) -> tuple[Need, ...] | None:
    """The needs of a compiled job, as its plan lists them; None: the folder is no project."""
    try:
        plan: Mapping[str, Any] = json.loads((project / PLAN).read_bytes())
        listed = plan.get("needs", ())
        return tuple(Need(**{**need, "streams": tuple(need["streams"])}) for need in listed)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def need_checks(job_needs: Iterable[Need]) -> tuple[Check, ...]:
    """A check for each need."""
    return tuple(
        Check(need.extra or artifact_of(need.package or "::"), _why(need), _look(need))
        for need in job_needs
    )


def _why(need: Need) -> str:
    return f"{', '.join(need.streams)} ({need.what})"


def _look(need: Need) -> functools.partial[Finding]:
    return functools.partial(_python_package if need.extra else _spark_package, need)


def _python_package(need: Need, _: Path) -> Finding:
    """The distributions of an extra, within their bounds."""
    assert need.extra is not None
    packages = requirements(need.extra)
    if not packages:
        unknown = f"this installation of blazes knows no extra {need.extra}"
        return Finding(Status.WARN, unknown, f"Install it anew: {need.remedy}.")
    for name, bounds in packages.items():
        asked = ",".join(operator + version for operator, version in bounds)
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing = f"{name} is not installed; needed by {_why(need)}"
            return Finding(Status.FAIL, missing, f"Install it: {need.remedy}.")
        if not within(version, bounds):
            other = f"{name} {version} is installed, {asked} is needed"
            return Finding(Status.FAIL, other, f"pip install '{name}{asked}'")
    return Finding(Status.OK, f"installed; needed by {_why(need)}")


def _spark_package(need: Need, _: Path) -> Finding:
    """A jar among Spark's own; what spark-submit or its defaults give cannot be seen from here."""
    from flux_runtime.zookeeper.process import server_jars

    assert need.package is not None
    jars = sorted(server_jars().glob(f"{artifact_of(need.package)}[-_]*.jar"))
    if jars:
        return Finding(Status.OK, f"{jars[0].name}; needed by {_why(need)}")
    return Finding(
        Status.WARN,
        f"not among Spark's jars; needed by {_why(need)}",
        f"Give spark-submit {need.remedy}, or write spark.jars.packages under deployment: conf:.",
    )
