"""Whether a command may run the user's code to read it, and what the code may take.

A command that only reads runs nothing unless `--execute` or the project's configuration says so.
The configuration is the table `[tool.blazes]` of the nearest `pyproject.toml` that has one, from
the folder of the file upwards:

    [tool.blazes]
    execute = true
    execute-seconds = 60
    execute-memory-mb = 4096
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

SECONDS: Final = "execute-seconds"
MEMORY: Final = "execute-memory-mb"


def add_execute(parser: argparse.ArgumentParser) -> None:
    """--execute and --no-execute: whether the code of Python functions may be run."""
    parser.add_argument(
        "--execute",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run Python code to read it, in a process of its own (default: do not, and say what "
        "is not known; or as [tool.blazes] in pyproject.toml says)",
    )


def allowed(arguments: argparse.Namespace, file: str) -> Limits | None:
    """The limits of the code that FILE names; None: it may not be run.

    Raises:
        CommandError: the configuration is not valid.
    """
    table = _configured(Path(file))
    wanted = arguments.execute if arguments.execute is not None else table.get("execute", False)
    if not wanted:
        return None
    from annotations.whitebox.confinement import open_ways

    if ways := open_ways():
        print(f"blazes: code that is run to be read can {', '.join(ways)} here", file=sys.stderr)
    return _limits(table)


def limits_for(file: str) -> Limits:
    """The limits of the code, for a command that runs it by its purpose."""
    return _limits(_configured(Path(file)))


def _limits(table: Mapping[str, Any]) -> Limits:
    from annotations.whitebox.sandbox import Limits

    standard = Limits()
    seconds = float(table.get(SECONDS, standard.seconds))
    return Limits(seconds, table.get(MEMORY, standard.memory_mb))


def _configured(file: Path) -> Mapping[str, Any]:
    """The table, checked."""
    place, table = _table(file)
    for key, value in table.items():
        if key not in KEYS:
            raise CommandError(f"{place}: unknown key {key!r}{did_you_mean(key, KEYS)}")
        expected, fits = KEYS[key]
        if not fits(value):
            raise CommandError(f"{place}: {key} is {value!r}, which is not {expected}")
    return table


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6


KEYS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "execute": ("true or false", lambda value: isinstance(value, bool)),
    SECONDS: ("a number of seconds", _number),
    MEMORY: ("a whole number of MiB", lambda value: _number(value) and isinstance(value, int)),
}
"""Key -> what its value is, and whether a value is that."""


def _table(file: Path) -> tuple[str, Mapping[str, Any]]:
    """Where the configuration stands, and what it says; nothing where there is none."""
    start = file.absolute()
    for folder in (start, *start.parents):
        place = folder / "pyproject.toml"
        try:
            content = place.read_bytes()
        except OSError:
            continue
        if b"blazes" not in content:
            continue
        import tomllib

        try:
            tools = tomllib.loads(content.decode("utf-8")).get("tool", {})
        except ValueError as error:
            raise CommandError(f"{place}: {error}") from None
        if isinstance(tools, dict) and "blazes" in tools:
            table = tools["blazes"]
            if not isinstance(table, dict):
                raise CommandError(f"{place}: tool.blazes is not a table")
            return f"{place}, [tool.blazes]", table
    return "", {}
