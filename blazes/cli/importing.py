"""Write the dataflow file of an existing project: what was derived, and what remains to be said.

PATH is a Spark Declarative Pipelines project (its spark-pipeline.yml or its folder) or a streaming
script in Python. What it is made of is learned by running it, in a process of its own, without
Spark and Java; that needs --execute, or the same in [tool.blazes] of pyproject.toml.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from blazes.cli import CommandError, options
from blazes.cli.execution import add_execute, allowed


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
    options.write(arguments, importing.imported(Path(arguments.path), execute=execute))
    return 0
