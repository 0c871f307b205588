"""Bring a past range in beside a running job: the same plan, each row once.

A range is files that the running job does not read: a folder, or a pattern of names. It has a name,
a state and commits of its own, so it may be killed and started again, and the running job is not
touched. Where all of a range is in, the command does nothing.

Each sink gets the rows of the range once: tables of databases, Delta tables and topics beside those
of the running job; files into a folder of the range, since a folder of files belongs to one job.
What cannot be promised is refused, with the reason, before Spark starts: components whose answers
are of more than one record or one sealed partition, sinks that may repeat rows, files that the
running job or another range brings in as well.

A sealed partition that is whole in the range is put out; one that is not waits, and is not put out
by half. One that the running job has put out from other files is put out again.

exit status: 0; 1 where it failed or was refused; 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from blazes.cli import CommandError
from blazes.cli.options import add_coordination, add_file
from blazes.cli.projects import add_target_dir


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_file(parser)
    add_coordination(parser)
    add_target_dir(parser)
    parser.add_argument("--name", metavar="NAME", required=True, help="of the range, like 2023")
    parser.add_argument(
        "--source",
        metavar="STREAM=PATH",
        action="append",
        required=True,
        help="where the files of the range are: a folder, or a pattern; once for each stream",
    )
    parser.add_argument(
        "--only", metavar="SINK", action="append", default=[], help="a sink that gets it (all)"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="rows of a table with a key may replace those of the running job",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="of the running job, where it has one")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: the file's)")
    parser.add_argument(
        "--zookeeper", metavar="HOSTS", help="embedded, or host:port,... (default: the file's)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile FILE and become the job that brings the range in."""
    from blazes.cli.run import compiled
    from flux_runtime.spark.backfill import parsed

    try:
        parsed(arguments.name, arguments.source, arguments.only, replace=arguments.replace)
    except ValueError as error:
        raise CommandError(str(error)) from None
    _, project = compiled(arguments)
    sys.stdout.flush()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.execv(sys.executable, command_of(arguments, project))


def command_of(arguments: argparse.Namespace, project: Path) -> list[str]:
    """The job as a command line.

    >>> given = argparse.Namespace(
    ...     name="2023", source=["a=old"], only=[], replace=True, data_dir=None, master=None,
    ...     zookeeper=None)
    >>> command_of(given, Path("target/shop"))[1:]
    ['target/shop/job.py', '--backfill', '2023', '--source', 'a=old', '--replace']
    """
    command = [sys.executable, str(project / "job.py"), "--backfill", arguments.name]
    for option in ("source", "only"):
        for text in getattr(arguments, option):
            command += [f"--{option}", text]
    command += ["--replace"] if arguments.replace else []
    for option in ("data_dir", "master", "zookeeper"):
        if given := getattr(arguments, option):
            command += [f"--{option.replace('_', '-')}", given]
    return command
