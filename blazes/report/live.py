"""Shows the progress of a job: redrawn in place on a terminal, as lines anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from blazes.document.plain import safe_write, unicode_of
from blazes.report.progress import Event, Progress, document, event_text, plain_line, recent

NARROWEST: Final = 60
"""Columns below which there are lines, not a table."""
PLAIN_EVERY_S: Final = 5.0


class View(Protocol):
    """Shows progress as it comes."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; the last state stays to be read."""

    def show(self, progress: Progress) -> None:
        """Show this now."""

    def say(self, text: str) -> None:
        """A message that stays."""


def unsaid(events: Sequence[Event], last: Event | None) -> Sequence[Event]:
    """The events after the last one that was said; what lies before it may have been thinned."""
    if last is None:
        return events
    for n in reversed(range(len(events))):
        if events[n] == last:
            return events[n + 1 :]
    return [event for event in events if event.t > last.t]


class PlainView:
    """A line per unit every `every_s` seconds where something changed, and every event once."""

    def __init__(self, out: TextIO, *, every_s: float = PLAIN_EVERY_S) -> None:
        self._out = out
        self._unicode = unicode_of(out)
        self._every_s = every_s
        self._next = 0.0
        self._said: dict[str, str] = {}
        self._state = ""
        self._event: Event | None = None
        self._last: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._last is not None:
            self._say_units(self._last)

    def show(self, progress: Progress) -> None:
        """Print what is new."""
        self._last = progress
        if progress.state != self._state:
            self._state = progress.state
            self.say(f"{progress.name}: {progress.state}")
        for event in recent(unsaid(progress.events, self._event), len(progress.events)):
            self.say(event_text(event))
        self._event = progress.events[-1] if progress.events else None
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            self._say_units(progress)

    def say(self, text: str) -> None:
        """Print a line."""
        with contextlib.suppress(BrokenPipeError):
            safe_write(self._out, (text if self._unicode else text.replace("…", "~")) + "\n")
            self._out.flush()

    def _say_units(self, progress: Progress) -> None:
        for sample in progress.units:
            line = plain_line(sample)
            if self._said.get(sample.unit) != line:
                self._said[sample.unit] = line
                self.say(line)


class LiveView:
    """Redraws the screen in place, on a terminal."""

    def __init__(self, out: TextIO, *, colour: bool = True) -> None:
        from blazes.document.screen import Screen

        self._screen = Screen(out, colour=colour)

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._screen.__exit__(kind, error, trace)

    def show(self, progress: Progress) -> None:
        """Draw this in place of what was drawn before."""
        self._screen.show(document(progress))

    def say(self, text: str) -> None:
        """Print a line above the picture."""
        self._screen.say(text)


def view_for(out: TextIO, *, progress: bool, colour: bool, width: int) -> View:
    """The live view on a wide terminal, else plain lines."""
    if progress and out.isatty() and width >= NARROWEST:
        return LiveView(out, colour=colour)
    return PlainView(out)
