"""What a terminal shows while something goes on: a document redrawn in place, and a bar."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from blazes.document import blocks as b
from blazes.document.plain import printable, unicode_of
from blazes.document.terminal import Layout, parts


class Screen:
    """A document that is redrawn in place; of a high one the beginning is shown, at last all.

    Args:
        out: the terminal.
        colour: whether it is in colour.
        alone: on a screen of its own, which is gone afterwards; the last document stays below.
    """

    def __init__(self, out: TextIO, *, colour: bool = True, alone: bool = False) -> None:
        self._unicode = unicode_of(out)
        self._alone = alone
        self._console = Console(
            file=out, force_terminal=True, no_color=not colour, highlight=False, markup=False
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            screen=alone,
            vertical_overflow="crop",
        )
        self._shown = Group()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self._alone:
            self._console.print(self._shown)

    def show(self, document: b.Document) -> None:
        """Draw this in place of what was drawn before."""
        layout = Layout(self._console.width - 1, unicode=self._unicode, cut=True)
        self._shown = Group(*parts(document, layout))
        self._live.update(self._shown, refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the picture."""
        self._console.print(text, soft_wrap=True)


@contextlib.contextmanager
def bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr while something is tried, where that is a terminal.

    It is called with what is tried, how many are done, and of how many (0: not known).
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("", total=None)
        yield lambda tried, done, of: progress.update(
            task, description=printable(tried), completed=done, total=of or None
        )
