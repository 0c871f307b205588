"""The command line: `blazes COMMAND ...`.

A command is one module with two functions, `configure(parser)` and `run(arguments) -> int`. Only
the module of the command that runs is imported, so that a small command starts at once; what the
list of commands says about the others stands in `COMMANDS`.

Exit status: 0; 1 where a check was asked for and failed (`--strict`); 2 for bad input or bad
usage; 3 where something is left: claims that were not tested (`verify`), what `run --fail-on`
names; 130 after Ctrl-C.

Beside the commands:

- `options`, `execution`: arguments on dataflow files, and whether code of the user's may run to
  be read; `projects`: arguments on compiled projects.
- `candidates`: the files of a repository that `scan` reads.
- `interface`: the commands as functions, for programs.
- `fix`: `analyze --fix`; `spark_check`: `compile --check-with-spark`; `checks`, `needs`,
  `audit`: what `doctor` looks at; `reference`: writes the generated pages of docs/reference.
- `state_changes`: whether a job that has run goes on from its state.
- `job_process`, `preview`: a job as a process, and the first rows of its results, for `run`.
- `run_report`, `run_charts`: what `report` shows; `top_screen`, `dashboard`: what `top` shows.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol, cast

from annotations.diagnostics import BadInput, did_you_mean

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "analyze": ("blazes.cli.analyze", "label every stream and say where coordination is needed"),
    "plan": ("blazes.cli.plan", "print the coordination plan alone"),
    "explain": ("blazes.cli.explain", "derive the labels of one component, step by step"),
    "check": ("blazes.cli.check", "report the mistakes of dataflow files, without analyzing them"),
    "import": ("blazes.cli.importing", "write the dataflow file of an existing Spark project"),
    "scan": ("blazes.cli.scan", "find every streaming job of a repository, the worst first"),
    "rule": ("blazes.cli.rule", "explain a rule of the analysis or a BLZ code"),
    "schema": ("blazes.cli.schema", "print the JSON Schema of the file or of the JSON result"),
    "compile": ("blazes.cli.compile", "write the coordinated PySpark project"),
    "run": ("blazes.cli.run", "compile and run on Spark"),
    "backfill": (
        "blazes.cli.backfill",
        "bring a past range in beside a running job, each row once",
    ),
    "top": ("blazes.cli.top", "show a running job: units, sites, partitions, failures"),
    "report": ("blazes.cli.report", "show what a run did"),
    "seals": ("blazes.cli.seals", "inspect open partitions, register and excuse producers"),
    "dead-letters": ("blazes.cli.dead_letters", "inspect and re-drive records not processed"),
    "demo": ("blazes.cli.demo", "show what goes wrong without coordination"),
    "derive": ("blazes.cli.derive", "derive annotations from SQL, with the lines that decide"),
    "verify": ("blazes.cli.verify", "test the annotations: try to refute what they claim"),
    "simulate": ("blazes.cli.simulate", "run the dataflow under many schedules; show what differs"),
    "doctor": ("blazes.cli.doctor", "check that this machine can run compiled jobs"),
}
"""Command -> (its module, what it does in one line)."""

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


class CommandError(Exception):
    """A command cannot do what was asked; the message is for the user, without a traceback."""

    def __init__(self, message: str, *, remedy: str = "", status: int = 2) -> None:
        self.message = message
        self.remedy = remedy
        self.status = status
        super().__init__(message)


class Command(Protocol):
    """The functions that the module of a command offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""


class Parser(argparse.ArgumentParser):
    """argparse that raises `CommandError` and suggests the option that was meant."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        raise CommandError(message, remedy=f"{self.prog} --help shows the usage")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The parsed arguments; CommandError where one is unknown."""
        parsed, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            hint = did_you_mean(unknown[0].split("=")[0], options)
            self.error(f"unknown argument {unknown[0]}{hint}")
        return parsed


def one_of(*choices: str) -> Callable[[str], str]:
    """An argparse type that accepts these words and suggests the nearest for another.

    >>> one_of("text", "json")("jsn")
    Traceback (most recent call last):
    ...
    argparse.ArgumentTypeError: 'jsn' is not one of text, json; did you mean json?
    """

    def parse(text: str) -> str:
        if text not in choices:
            hint = did_you_mean(text, choices)
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}{hint}")
        return text

    return parse


def command(name: str) -> tuple[Parser, Command]:
    """The parser and the module of a command; KeyError where there is none."""
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(module_name)
    parser = Parser(
        prog=f"blazes {name}",
        description=module.__doc__ or summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    return parser, cast(Command, module)


def usage() -> str:
    """The text of `blazes --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: blazes COMMAND [arguments]",
            "",
            "Where a streaming dataflow can give different answers, why, and the least",
            "coordination that repairs it.",
            "",
            "commands:",
            *lines,
            "",
            "blazes COMMAND --help shows the arguments of a command.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit status of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except CommandError as refused:
        print(f"blazes: {refused.message}", file=sys.stderr)
        if refused.remedy:
            print(f"        {refused.remedy}", file=sys.stderr)
        return refused.status
    except KeyboardInterrupt:
        print("blazes: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE


def _run(arguments: list[str]) -> int:
    match arguments:
        case []:
            print(usage(), file=sys.stderr)
            return 2
        case ["-h" | "--help" | "help"]:
            print(usage())
            return 0
        case ["--version", *_]:
            from importlib.metadata import version

            print(f"blazes {version('blazes')}")
            return 0
        case ["help", name, *_]:
            arguments = [name, "--help"]
    name, *rest = arguments
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        raise CommandError(
            f"no {kind} {name!r}{did_you_mean(name, COMMANDS)}",
            remedy="blazes --help lists the commands",
        )
    parser, module = command(name)
    try:
        parsed = parser.parse(rest)
    except SystemExit as helped:  # --help has printed
        return int(helped.code or 0)
    try:
        return module.run(parsed)
    except BadInput as refused:
        from blazes.report.problems import print_problems

        print_problems(refused.diagnostics, format=getattr(parsed, "format", None))
        return 2


def _forget_stdout() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
