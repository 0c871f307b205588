"""The cases of `tests/cases/bloom.md`: modules beside what is derived of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from annotations.whitebox.bloom import read
from annotations.whitebox.components import Output

FILE = Path(__file__).parents[2] / "cases" / "bloom.md"

NOT_RUN = {
    "reduce",
    "a block that looks into a collection",
    "an unknown method of a value",
    "an unknown method of a collection",
    "lmap",
}
"""Cases of which nothing is known, and which the test's machine does not run either."""
NEVER_SEEN = {
    # The same facts come in the end; what is derived is more careful than need be.
    "a request meets itself a step later",
    "a value that moves, kept and tested",
    "upsert that is shown",
    "counting steps",
}
"""Order-sensitive by their label, of which no run shows a difference."""


class Case(NamedTuple):
    """A module under a title, and the lines that say what is derived."""

    title: str
    text: str
    expected: tuple[str, ...]


def cases() -> list[Case]:
    """Every case of the file."""
    text = FILE.read_text(encoding="utf-8")
    found = re.findall(r"^## ([^\n]*)\n\n```bloom\n(.*?)```\n```text\n(.*?)```", text, re.M | re.S)
    assert len(found) == len(re.findall(r"^## ", text, re.M))
    return [Case(title, body, tuple(lines.splitlines())) for title, body, lines in found]


def outputs_of(case: Case) -> tuple[Output, ...]:
    """What is derived of the module `Case`."""
    return read(case.text).outputs("Case")


def lines_of(case: Case) -> tuple[str, ...]:
    """The paths of a case, a line for each."""
    found = []
    for output in outputs_of(case):
        for path in output.paths():
            order = " within: sequence" if path.within.value == "sequence" else ""
            chance = " nondeterministic" if path.nondeterministic is not None else ""
            found.append(f"{path.source} -> {path.target}  {path.annotation}{order}{chance}")
    return tuple(found)
