"""The SQL of a dataflow's components, checked when the file is read.

`annotations.whitebox.checking` knows what Spark refuses of a query; here is what the query's inputs
have, and where a mistake stands in the file.
"""

from __future__ import annotations

from typing import Final

from annotations.dataflow import Component, Endpoint
from annotations.diagnostics import Findings
from annotations.whitebox.checking import findings
from annotations.whitebox.code import Code
from annotations.whitebox.settings import unread

OTHER_FUNCTIONS: Final = (
    "spark.sql.extensions",
    "spark.sql.catalog",
    "spark.jars",
    "spark.plugins",
)
"""Settings, by their beginnings, with which a job may have functions that Spark has not."""
OTHER_NAMES: Final = ("spark.sql.parser.", "spark.sql.extensions")
"""Settings with which names may mean something else."""


def check_code(code: Code, diagnostics: Findings) -> None:
    """Note what Spark would refuse of the components' SQL (BLZ053 to BLZ059)."""
    conf = code.dataflow.deployment.conf
    if unread(conf) or any(key.startswith(OTHER_NAMES) for key in conf):
        return
    components = code.dataflow.components.values()
    python = any(by.python for component in components for by in component.implementations.values())
    functions = not python and not any(key.startswith(OTHER_FUNCTIONS) for key in conf)
    for component in components:
        _check_component(component, code, diagnostics, functions=functions)


def _check_component(
    component: Component, code: Code, diagnostics: Findings, *, functions: bool
) -> None:
    inputs = dict.fromkeys(path.source for path in component.paths)
    for by in component.implementations.values():
        if by.sql is None:
            continue
        tables = {name: code.columns(Endpoint(component.name, name)) for name in inputs}
        place = code.place(by.sql, by.position)
        for mistake in findings(by.sql, tables=tables, functions=functions):
            message = f"{component.name}: {mistake.message}"
            diagnostics.add(mistake.code, message, place(mistake.start), mistake.remedy)
