"""Look at the records that a job could not process, and take them out to be processed again.

    list    how many there are, by unit, stream and reason
    show    the records themselves
    export  the bare records as JSON lines, one file for each stream, ready for a source

Nothing is deleted: dead letters stay in the state folder until the job starts afresh.

exit status: 0; 2 where there is no such project, and for bad usage.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from blazes.cli import CommandError, one_of
from blazes.cli.projects import add_project, add_state_dir, project_of, state_at
from blazes.document.plain import printable

if TYPE_CHECKING:
    from flux_runtime.observe.dead_letters import DeadLetter

SHOWN: Final = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_project(parser)
    add_state_dir(parser)
    actions = ("list", "show", "export")
    parser.add_argument(
        "action", type=one_of(*actions), nargs="?", default="list", metavar="|".join(actions)
    )
    parser.add_argument("--unit", help="only of this unit, such as Count.counts")
    parser.add_argument("--stream", help="only of this stream")
    parser.add_argument("--reason", help="only with this reason, such as late")
    parser.add_argument(
        "--limit", type=int, default=SHOWN, metavar="N", help=f"show at most N (default: {SHOWN})"
    )
    parser.add_argument("-o", "--output", metavar="DIR", help="export: the folder to write to")
    parser.add_argument(
        "--format", type=one_of("text", "json"), default="text", metavar="text|json"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    actions = {"list": _list, "show": _show, "export": _export}
    with state_at(arguments.state_dir or project_of(arguments) / "state") as (state, _):
        return actions[arguments.action](arguments, state)


def _letters(arguments: argparse.Namespace, state: Path) -> Iterator[DeadLetter]:
    from flux_runtime.observe.dead_letters import read_dead_letters

    return read_dead_letters(
        state, unit=arguments.unit, stream=arguments.stream, reason=arguments.reason
    )


def _list(arguments: argparse.Namespace, state: Path) -> int:
    from flux_runtime.observe.dead_letters import REASONS, count

    counts = count(_letters(arguments, state))
    if arguments.format == "json":
        fields = ("unit", "stream", "reason", "number", "first", "last")
        objects = [{name: getattr(group, name) for name in fields} for group in counts]
        print(json.dumps({"schema_version": 1, "dead_letters": objects}, indent=2))
        return 0
    if not counts:
        print("No dead letters.")
    for group in counts:
        meaning = REASONS.get(group.reason, "")
        print(
            f"{group.number:>8}  {printable(group.unit)}  {printable(group.stream)}  "
            f"{printable(group.reason)}" + (f": {meaning}" if meaning else "")
        )
        print(f"{'':>8}  from {_moment(group.first)} to {_moment(group.last)}")
    return 0


def _show(arguments: argparse.Namespace, state: Path) -> int:
    letters = _letters(arguments, state)
    shown = list(itertools.islice(letters, max(arguments.limit, 0)))
    more = sum(1 for _ in letters)
    if arguments.format == "json":
        for letter in shown:
            fields = {name: getattr(letter, name) for name in letter.__slots__}
            print(json.dumps(fields, ensure_ascii=False))
        return 0
    for letter in shown:
        batch = "" if letter.batch is None else f", batch {letter.batch}"
        rule = f" ({letter.rule})" if letter.rule else ""
        print(
            f"{_moment(letter.time)}  {printable(letter.unit)}  {printable(letter.stream)}"
            f"{batch}  {printable(letter.reason)}{rule}"
        )
        if letter.why is not None:
            print(f"    {printable(letter.why)}")
        print(f"    {printable(_line(letter))}")
    if not shown:
        print("No dead letters.")
    if more:
        print(f"and {more} more (--limit)")
    return 0


def _export(arguments: argparse.Namespace, state: Path) -> int:
    if not arguments.output:
        raise CommandError(
            "export needs a folder to write to", remedy="-o DIR; a file for each stream is made"
        )
    by_stream: dict[str, list[str]] = {}
    for letter in _letters(arguments, state):
        by_stream.setdefault(letter.stream, []).append(_line(letter))
    folder = Path(arguments.output)
    files = {stream: folder / f"{quote(stream, safe='')}.jsonl" for stream in by_stream}
    present = [str(file) for file in files.values() if file.exists()]
    if present:
        raise CommandError(
            f"{', '.join(present)} exists", remedy="name an empty folder, or remove the file"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stream, lines in by_stream.items():
            files[stream].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as failed:
        raise CommandError(f"cannot write to {folder}: {failed.strerror}") from None
    for stream, lines in by_stream.items():
        print(f"{len(lines):>8}  {printable(str(files[stream]))}")
    if not by_stream:
        print("No dead letters.")
    return 0


def _line(letter: DeadLetter) -> str:
    if isinstance(letter.record, str):
        return letter.record
    return json.dumps(letter.record, ensure_ascii=False)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
