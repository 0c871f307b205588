"""Write the dataflow file of an existing project: what was derived, and what remains to be said.

PATH is a Spark Declarative Pipelines project (its spark-pipeline.yml or its folder) or a streaming
script in Python. Its code is run to be read, in a process of its own, without Spark and Java.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from blazes.cli import CommandError, options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="spark-pipeline.yml, its folder, or a script")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, not to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Import PATH."""
    if not options.is_code(arguments.path):
        raise CommandError(
            f"{arguments.path} is neither a pipeline project nor a Python script",
            remedy="give a spark-pipeline.yml, the folder that holds one, or a script (.py)",
        )
    from annotations.whitebox import importing

    options.write(arguments, importing.imported(Path(arguments.path)))
    return 0
