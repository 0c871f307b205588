"""A Declarative Pipelines project that is run to be read, or followed without being run.

What is followed is the same: the files that the specification names, in PySpark's order, of which
Python is worked out by the `interpreter` and SQL is read in either way.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annotations.whitebox.connect.reading import Reading, place_text  # first: prepares the process

# isort: split
from annotations.whitebox.connect.databricks import DBUtils, extend_pipelines, harmless
from annotations.whitebox.connect.project import read_project
from annotations.whitebox.connect.scripts import noted
from annotations.whitebox.following import outside, permitted
from annotations.whitebox.following.interpreter import Interpreter
from annotations.whitebox.following.outside import Refused
from annotations.whitebox.following.places import caller
from annotations.whitebox.following.program import tree_of


def pipeline(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    """A Declarative Pipelines project: its datasets and flows."""
    specification = Path(request["path"])
    extend_pipelines(harmless(home.spark))
    with home.failures() as answer:
        if request.get("follow"):
            answer |= read_project(home, specification, _followed(home, specification))
        else:
            outside.stand_ins(ast.Module([], []), request["path"])
            answer |= read_project(home, specification)
    if request.get("follow"):
        if answer.get("error") and not answer["unparsed"]:
            answer["position"] = place_text(caller())
        answer["notes"] = noted(follow=True)
    answer["decided"] = not request.get("follow") and outside.left_to_the_place()
    return answer


def _followed(home: Reading, specification: Path) -> Any:
    """Registers the definitions of a project's files, as PySpark does, without running them."""

    def register(spec: Any, registry: Any) -> None:
        from pyspark.pipelines.graph_element_registry import graph_element_registration_context

        folder = specification.parent.resolve()
        permitted.wall(specification)
        interpreter = Interpreter(outside.MODULES, [str(specification)])
        interpreter.made = [home.answers.pipeline]
        with graph_element_registration_context(registry):
            for library in spec.libraries:
                for file in folder.glob(library.include):
                    if not file.is_file() or "__pycache__" in file.parts:
                        continue
                    if file.suffix == ".sql":
                        text = file.read_text(encoding="utf-8")
                        registry.register_sql(text, file.relative_to(folder))
                    elif file.suffix == ".py":
                        names = {"__name__": file.stem, "spark": home.spark, "dbutils": DBUtils()}
                        interpreter.run(tree_of(file), file, names)
                    else:
                        raise Refused(f"{file.name} is neither Python nor SQL")

    return register
