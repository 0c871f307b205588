"""`blazes analyze --fix`: the advice put into the file, and what is left for somebody to do.

Of each ordered component one alternative is taken: the one chosen with --alternative, else the
first that a file can say and that claims nothing of the data. What was written is analysed again
before the file is replaced: its labels are those that were promised.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from annotations.diagnostics import did_you_mean
from annotations.file.insertions import CannotWrite
from annotations.phrases import listed, tupled
from annotations.vocabulary import FunctionalDependency, Key
from blazes.advice import (
    Advisor,
    Alternative,
    Change,
    Depending,
    Needs,
    Rewriting,
    Sealing,
    changed,
    replanned,
)
from blazes.advice_text import change_text
from blazes.cli import CommandError, options
from blazes.cli.execution import allowed
from blazes.coordination import Plan

if TYPE_CHECKING:
    from annotations.dataflow import Dataflow


def run(arguments: argparse.Namespace) -> int:
    """Write the advice into FILE."""
    if options.is_code(arguments.file):
        raise CommandError("--fix is for dataflow files", remedy="see `blazes import`")
    options.refuse_module(arguments.file, "--fix")
    decided, _ = options.plan_of(arguments)
    advisor = Advisor(decided)
    changes = _changes(advisor, _chosen(arguments, advisor))
    if not changes:
        return _nothing(decided, advisor)
    dataflow = decided.analysis.dataflow
    execute = allowed(arguments, arguments.file)
    from annotations.file.additions import with_additions

    variants = options.variants_of(arguments)
    try:
        text, written = with_additions(
            dataflow, seals=_seals(changes), fds=_fds(changes), variants=variants, execute=execute
        )
    except CannotWrite as cannot:
        raise CommandError(str(cannot), remedy=cannot.remedy) from None
    promised = replanned(changed(dataflow, changes), decided)
    after = replanned(written, decided)
    if after.analysis.labels != promised.analysis.labels:
        raise CommandError(f"{arguments.file} would not be analysed as it was promised")
    sys.stdout.writelines(_difference(arguments.file, text))
    if not arguments.dry_run:
        arguments.output = arguments.output or arguments.file
        options.write(arguments, text)
    verb = "would write" if arguments.dry_run else "wrote"
    file = arguments.file if arguments.dry_run else arguments.output
    print(f"{verb} {listed([change_text(change) for change in changes])} into {file}")
    print(f"verdict: {after.analysis.verdict}, it was {decided.analysis.verdict}")
    for line in _left(written, changes):
        print(f"left to do: {line}")
    return options.status(after, strict=arguments.strict)


def _chosen(arguments: argparse.Namespace, advisor: Advisor) -> Mapping[str, int]:
    """Component -> the number of the alternative that was asked for."""
    chosen: dict[str, int] = {}
    for text in arguments.alternative:
        component, _, number = text.rpartition("=")
        if not component or not number.isdigit():
            raise CommandError(
                f"--alternative {text}: expected COMPONENT=NUMBER",
                remedy="for instance --alternative Report=2; `blazes analyze` numbers them",
            )
        advice = advisor.of(component)
        if advice is None:
            near = did_you_mean(component, advisor.components)
            raise CommandError(f"--alternative {text}: {component} is not ordered{near}")
        if not 1 <= int(number) <= len(advice.alternatives):
            raise CommandError(
                f"--alternative {text}: {component} has {len(advice.alternatives)} alternatives"
            )
        chosen[component] = int(number) - 1
    return chosen


def _changes(advisor: Advisor, chosen: Mapping[str, int]) -> list[Change]:
    """The changes to write: those chosen, or for every component the first that can be written."""
    changes: list[Change] = []
    for component in chosen or advisor.components:
        advice = advisor.of(component)
        assert advice is not None
        if chosen:
            changes += advice.alternatives[chosen[component]].changes
        else:
            changes += next(
                (alternative.changes for alternative in advice.alternatives if _safe(alternative)),
                (),
            )
    return list(dict.fromkeys(changes))


def _safe(alternative: Alternative) -> bool:
    """Whether the file can say it, and a mistake in it stops the job in place of its answers."""
    return alternative.needs is Needs.PRODUCERS and all(
        isinstance(c, Sealing) for c in alternative.changes
    )


def _nothing(decided: Plan, advisor: Advisor) -> int:
    status = options.status(decided, strict=False)
    if not advisor.components:
        print("nothing is ordered: there is nothing to write")
        return status
    print(
        f"nothing was written: {listed(advisor.components[:10])} stays ordered, since no "
        "alternative is a seal that a file can say; --alternative C=N writes another one"
    )
    return status


def _seals(changes: list[Change]) -> list[tuple[str, Key]]:
    return [(change.stream, change.key) for change in changes if isinstance(change, Sealing)]


def _fds(changes: list[Change]) -> list[FunctionalDependency]:
    return [change.fd for change in changes if isinstance(change, Depending)]


def _difference(file: str, text: str) -> Iterator[str]:
    """The change as a unified diff."""
    before = Path(file).read_bytes().decode("utf-8")
    old, new = (version.splitlines(keepends=True) for version in (before, text))
    for line in difflib.unified_diff(old, new, file, file):
        yield line if line.endswith("\n") else line + "\n"


def _left(written: Dataflow, changes: list[Change]) -> Iterator[str]:
    """The remedies that no file can express."""
    for change in changes:
        match change:
            case Sealing(name, key):
                stream = written.streams[name]
                yield (
                    f"every producer of {name} sends a punctuation for each {tupled(key)}, when it "
                    "is over, with the count of its records"
                )
                lacking = [
                    option
                    for option, value in (
                        ("producer", stream.producer_column),
                        ("punctuation", stream.punctuation),
                        ("producers", stream.producers),
                    )
                    if value is None
                ]
                if lacking and stream.lateness is None:
                    options_ = listed([f"`{option}`" for option in lacking])
                    yield f"say with {options_} of {name} how that is recognised"
            case Depending(fd):
                one, other = tupled(fd.determinant), tupled(fd.dependent)
                yield f"make sure that each {one} has only one {other}; nothing checks it"
            case Rewriting():
                yield change_text(change)
