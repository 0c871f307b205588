"""Bring a past range in beside a running job: the same plan, each row once.

A range is files that the running job does not read (a folder, or a pattern of names), or messages
of its topics from before it began, between two times or two offsets, which are resolved once. It
has a name, a state and commits of its own, so it may be killed and started again, and the running
job is not touched. Where all of a range is in, the command does nothing.

Each sink gets the rows of the range once: tables of databases, Delta tables and topics beside those
of the running job; files into a folder of the range, since a folder of files belongs to one job.
What cannot be promised is refused, with the reason, before Spark starts: components whose answers
are of more than one record or one sealed partition, sinks that may repeat rows, files and messages
that the running job or another range brings in as well.

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
from flux_runtime.past_range import Backfill, add_options, options_of, parsed


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_file(parser)
    add_coordination(parser)
    add_target_dir(parser)
    parser.add_argument("--name", metavar="NAME", required=True, help="of the range, like 2023")
    add_options(parser, required=True)
    parser.add_argument("--data-dir", metavar="DIR", help="of the running job, where it has one")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: the file's)")
    parser.add_argument(
        "--zookeeper", metavar="HOSTS", help="embedded, or host:port,... (default: the file's)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile FILE and become the job that brings the range in."""
    from blazes.cli.run import compiled

    try:
        backfill = parsed(arguments.name, arguments)
    except ValueError as error:
        raise CommandError(str(error)) from None
    _, project = compiled(arguments)
    sys.stdout.flush()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.execv(sys.executable, command_of(arguments, backfill, project))


def command_of(arguments: argparse.Namespace, backfill: Backfill, project: Path) -> list[str]:
    """The job as a command line.

    >>> given = argparse.Namespace(data_dir=None, master="local[2]", zookeeper=None)
    >>> range = Backfill(name="2023", sources={"a": "old"}, replace=True)
    >>> command_of(given, range, Path("target/shop"))[1:5]
    ['target/shop/job.py', '--backfill', '2023', '--source']
    """
    command = [sys.executable, str(project / "job.py"), *options_of(backfill)]
    for option in ("data_dir", "master", "zookeeper"):
        if given := getattr(arguments, option):
            command += [f"--{option.replace('_', '-')}", given]
    return command
