"""Stages as the text of a job: one Python file to hand to `spark-submit`.

The same stages give the same bytes. The text is what `ruff format` would make of it at any line
length from 88 on, and nothing that a user wrote gets into it unquoted.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from codegen.build import Build
from codegen.explain import once, title
from codegen.literals import INDENT, WIDTH, Call, Code, escaped, value
from codegen.model import Function, Stages, Transform, Way
from codegen.names import Names, is_plain
from codegen.sql_text import sql_value

RUNTIME: Final = (
    "Avro",
    "Job",
    "Processor",
    "Producers",
    "Punctuation",
    "Step",
    "deduplicated",
    "main",
    "sql",
)
"""What a job takes from flux_runtime.spark, in the order of the import line."""


def emit(stages: Stages) -> str:
    """The text of job.py."""
    functions = stages.functions
    roots = [module.split(".")[0] for module in stages.modules]
    names = Names(*(function.name for function in functions), *roots)
    hidden = frozenset({"sql", *roots})
    blocks = [
        *definitions(stages, hidden),
        Build(stages, names).text(),
        entry(stages),
    ]
    body = "\n\n\n".join(blocks)
    at_once = imports(body, stages.imported_at_once)
    return f"{docstring(stages)}\n\n{at_once}\n\n\n{body}\n"


def docstring(stages: Stages) -> str:
    """The job's docstring: its name, the file that it was compiled from, and its stages."""
    dataflow = stages.plan.analysis.dataflow
    file = dataflow.file.name if dataflow.file else "a text"
    chosen = [
        f"{component.name}={component.variant}"
        for component in dataflow.components.values()
        if component.variant
    ]
    variants = f" with {', '.join(chosen)}" if chosen else ""
    lines = [
        *wrapped(f"The streaming job {dataflow.name}, compiled from {file}{variants}."),
        "",
        *wrapped("Compiling again writes this file anew: changes belong into the dataflow."),
        f"sha256 of the input: {dataflow.sha256}",
        "",
        "Stages, each after what it reads:",
        "",
    ]
    for stage in once(stages):
        lines.append(f"  {stage.kind} {title(stage, stages)}")
        lines += wrapped(stage.description, indent=6)
    return quoted_docstring(lines)


def imports(body: str, modules: Iterable[str]) -> str:
    """The import lines of what the body uses; modules of components are imported where they run."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    runtime = ", ".join(name for name in RUNTIME if name in used)
    lines = ["from pathlib import Path", "", f"from flux_runtime.spark import {runtime}"]
    if "DataFrame" in used:
        lines.append("from pyspark.sql import DataFrame")
    local = [f"import {module}" for module in modules]
    return "\n".join([*lines, "", *local] if local else lines)


def definitions(stages: Stages, hidden: frozenset[str]) -> Iterator[str]:
    """One definition for each implementation; `hidden` are names no parameter must hide."""
    fused = {
        stage.function.name
        for stage in stages
        if isinstance(stage, Transform) and stage.way is Way.RECORD_WISE and stage.function
    }
    for function in stages.functions:
        if function.on_sites is not None:
            continue
        yield definition(function, hidden, fused=function.name in fused)


def definition(function: Function, hidden: frozenset[str], *, fused: bool) -> str:
    """An implementation as a function of DataFrames.

    Inputs are parameters by their own names where these are identifiers. A fused function is
    called with one DataFrame, by place, so that its parameter can have any name. The user's module
    is imported within it: some need a session (`@pandas_udf("bigint")`), which is there by then.
    """
    plain = all(
        is_plain(parameter) and parameter not in hidden for parameter in function.parameters
    )
    lines: list[str] = []
    if plain:
        parameters, named = list(function.parameters), True
    elif fused:
        parameters, named = ["records"], False
        frames = value({function.parameters[0]: Code("records")}, depth=1, before=13, after=0)
        lines = [f"{INDENT}frames = {frames}"] if function.sql or function.python else []
    else:
        parameters, named = ["**frames"], False
    if function.sql is not None:
        body = call("sql", [sql_value(function.sql)], function.parameters if named else None)
    elif function.python is not None:
        body = call(function.python.replace(":", "."), [], function.parameters if named else None)
    elif function.drops is not None:
        body = f"{parameters[0]}.drop({value(function.drops)})"
    elif function.distinct:
        frame = parameters[0] if named or fused else "next(iter(frames.values()))"
        body = f"deduplicated({frame}, {value(list(function.distinct))})"
    elif named or fused:
        body = parameters[0]
    else:
        body = "next(iter(frames.values()))"
    head = [header(function.name, parameters), *function_docstring(function)]
    if function.module:
        head += [f"{INDENT}import {function.module}", ""]
    return "\n".join([*head, *lines, f"{INDENT}return {body}"])


def call(function: str, positional: list[Any], inputs: Sequence[str] | None) -> str:
    """The call that a function returns, with its inputs by name, or all that are in `frames`."""
    if inputs is None:
        call = Call(function, [*positional, Code("**frames")])
    else:
        call = Call(function, positional, [(name, Code(name)) for name in inputs])
    return value(call, depth=1, before=len("    return "), after=0)


def header(name: str, parameters: list[str]) -> str:
    """The line or lines up to the colon."""
    typed = [f"{parameter}: DataFrame" for parameter in parameters]
    line = f"def {name}({', '.join(typed)}) -> DataFrame:"
    if len(line) <= WIDTH or parameters[0].startswith("**"):
        return line
    inside = "".join(f"{INDENT}{parameter},\n" for parameter in typed)
    return f"def {name}(\n{inside}) -> DataFrame:"


def function_docstring(function: Function) -> list[str]:
    """The function's docstring: its result, with the annotation that was believed."""
    title = f"{function.title} <- "
    flat = f"{title}{', '.join(function.paths)}."
    if len(function.paths) == 1 or len(flat) <= WIDTH - len(INDENT) - 3:
        lines = [flat]
    else:
        lines = [f"{title}several inputs.", "", *function.paths]
    description = wrapped(function.description or "", width=WIDTH - len(INDENT))
    if description:
        lines += ["", *description]
    return textwrap.indent(quoted_docstring(lines), INDENT).split("\n")


def quoted_docstring(lines: Iterable[str]) -> str:
    """Lines as a docstring; a single one on one line."""
    safe = [escaped(line.rstrip()).replace('"""', '\\"\\"\\"') for line in lines]
    if len(safe) == 1 and not safe[0].endswith(('"', "\\")):
        return f'"""{safe[0]}"""'
    return '"""' + "\n".join(safe) + '\n"""'


def entry(stages: Stages) -> str:
    """The last lines of the file, with what the deployment section says."""
    deployment = stages.plan.analysis.dataflow.deployment
    named: list[tuple[str, Any]] = [
        ("name", stages.name),
        ("folder", Code("Path(__file__).parent")),
    ]
    given = (
        ("master", deployment.master),
        ("zookeeper", deployment.zookeeper if deployment.zookeeper != "embedded" else None),
        ("zookeeper_access", dict(deployment.zookeeper_access)),
        ("trigger", deployment.trigger),
        ("conf", deployment.conf),
    )
    named += [(name, setting) for name, setting in given if setting]
    main = value(Call("main", [Code("build")], named), depth=1, before=len(INDENT), after=0)
    return f'if __name__ == "__main__":\n{INDENT}{main}'


def wrapped(text: str, *, indent: int = 0, width: int = WIDTH) -> list[str]:
    """Text in lines of at most `width`; white space in it means nothing."""
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
