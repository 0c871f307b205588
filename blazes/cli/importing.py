"""Write the dataflow file of an existing project: what was derived, and what remains to be said.

PATH is a Spark Declarative Pipelines project (its spark-pipeline.yml or its folder) or a streaming
script in Python. Python is followed without being run, as far as that shows what it does. More is
learned by running it, in a process of its own, without Spark and Java; that needs --execute, or the
same in [tool.blazes] of pyproject.toml. With -o the
functions of the components are written beside the file, so that it compiles and runs; the command
shows what the job does otherwise than the script.

exit status: 0; with -o, 1 where the code of a component could not come with it, or a place of the
code was not read as it runs (a loop read once, a condition read both ways); 2 where PATH cannot be
read, and for bad usage.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from blazes.cli import CommandError, options
from blazes.cli.execution import add_execute, allowed
from blazes.document.plain import safe_write

if TYPE_CHECKING:
    from annotations.file.import_code import Module
    from annotations.file.importing import Imported


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="spark-pipeline.yml, its folder, or a script")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, not to stdout")
    add_execute(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import PATH."""
    if not options.is_code(arguments.path):
        raise CommandError(
            f"{arguments.path} is neither a pipeline project nor a Python script",
            remedy="give a spark-pipeline.yml, the folder that holds one, or a script (.py)",
        )
    from annotations.file import importing

    execute = allowed(arguments, arguments.path)
    target = Path(arguments.output) if arguments.output else None
    module = None if target is None else re.sub(r"\W", "_", f"{target.stem}_code")
    imported = importing.imported(Path(arguments.path), module=module, execute=execute)
    if target is not None and imported.module is not None:
        for name, text in _modules(imported.module):
            options.put(target.with_name(name), text)
    options.write(arguments, imported.text)
    if target is not None:
        safe_write(sys.stdout, "".join(f"{line}\n" for line in _summary(target, imported)))
    return 1 if target is not None and (imported.reasons or imported.guessed) else 0


def _modules(module: Module) -> Iterator[tuple[str, str]]:
    """The files with code: name and text."""
    yield f"{module.name}.py", module.text
    if module.sinks:
        yield f"{module.name}_sinks.py", module.sinks


def _summary(target: Path, imported: Imported) -> Iterator[str]:
    """The files that were written, and what is otherwise than before, as a diff."""
    yield f"{target}: the dataflow"
    if imported.module is not None:
        yield f"{target.with_name(imported.module.name)}.py: the functions of its components"
        if imported.module.sinks:
            yield f"{target.with_name(imported.module.name)}_sinks.py: what takes their rows"
    component = None
    for change in imported.changes:
        if change.component != component:
            component = change.component
            yield f"\n  {component}"
        yield f"  - {change.before}"
        yield f"  + {change.after}"
    for text in imported.unread:
        yield f"\n  not read, so that something may be missing: {text}"
    for name, reason in imported.reasons.items():
        yield f"\n  {name} has no code here, and cannot be compiled: {reason}"
