"""Where the compiled project of a dataflow is, for the commands that look at what it did."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from blazes.cli import CommandError

PLAN: Final = "plan.json"
TARGET_DIR: Final = "target"


def add_project(parser: argparse.ArgumentParser) -> None:
    """FILE and --target-dir: which project."""
    parser.add_argument(
        "file", metavar="FILE", help="the dataflow file (YAML), or its compiled project's folder"
    )
    add_target_dir(parser)


def add_target_dir(parser: argparse.ArgumentParser) -> None:
    """--target-dir: where projects are written."""
    parser.add_argument(
        "--target-dir",
        metavar="DIR",
        default=TARGET_DIR,
        help=f"folder of the compiled projects (default: {TARGET_DIR})",
    )


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    """--state-dir: where the job keeps its state."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR|ADDRESS",
        help="the job's --state-dir, a folder or s3://BUCKET/FOLDER (default: the project's)",
    )


@contextlib.contextmanager
def state_at(place: Path | str) -> Iterator[tuple[Path, Path | str]]:
    """The folder in which a job's state can be read, and the place that it is kept in.

    They are the same, or the place is an address in an object store and the folder a copy.

    Raises:
        CommandError: the store has no state there, does not answer, or has damaged objects.
    """
    if "://" not in str(place):
        yield Path(place), Path(place)
        return
    from flux_runtime.observe.state_copy import UnreadableError, copied

    try:
        with copied(str(place)) as folder:
            yield folder, str(place)
    except UnreadableError as error:
        raise CommandError(str(error)) from None


def project_of(arguments: argparse.Namespace) -> Path:
    """The folder `target/NAME` of FILE.

    Raises:
        CommandError: it has not been compiled.
    """
    given = Path(arguments.file)
    if given.is_dir():
        if not (given / PLAN).exists():
            raise CommandError(
                f"{given} is not the folder of a compiled project: it has no {PLAN}",
                remedy="name the dataflow file, or target/NAME",
            )
        return given
    from blazes.cli.options import dataflow_of, is_code

    if is_code(arguments.file):
        raise CommandError(
            f"{given} is code, which is not run to learn what its project is called",
            remedy="name the folder of the project, target/NAME",
        )
    arguments.variant = getattr(arguments, "variant", [])
    dataflow, _ = dataflow_of(arguments, None)
    project = Path(arguments.target_dir) / dataflow.name
    if not (project / PLAN).exists():
        raise CommandError(
            f"{dataflow.name} has not been run: there is no {project}",
            remedy=f"blazes run {given}",
        )
    return project
