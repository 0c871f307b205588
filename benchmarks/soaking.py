"""What the soaks of Flux share: what goes in and comes out, when a site may fail, the last line."""

from __future__ import annotations

import random
import statistics
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

DEADLINE_S = 300.0


class Ends:
    """The two ends of a job, checked in threads of their own.

    Attributes:
        fed: batches that went in.
        results: how often results came.
        records: how many came in all, each where it was due.
        gaps: when results came, and the time since the results before.
        error: what was wrong, if anything.
        enough: set when nothing more is to go in.
        done: set when all is over.
    """

    def __init__(self) -> None:
        self.fed = self.results = self.records = 0
        self.gaps: list[tuple[float, float]] = []
        self.error: BaseException | None = None
        self.enough = threading.Event()
        self.done = threading.Event()
        self._last: float | None = None

    def start(self, *work: Callable[[], None]) -> None:
        """Do this, each in a thread."""
        for each in work:
            threading.Thread(target=self._guard, args=(each,), daemon=True).start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = self.error or error
            traceback.print_exc()
            self.done.set()

    def came(self, results: int, records: int) -> None:
        """Results have come, and were right."""
        now = time.monotonic()
        if self._last is not None:
            self.gaps.append((now, now - self._last))
        self._last = now
        self.results += results
        self.records += records

    def waited_s(self) -> float:
        """Since the last results; nothing while there are none."""
        return 0.0 if self._last is None else time.monotonic() - self._last


class Soak(ABC):
    """Chooses faults, and waits for what follows from them.

    Args:
        faults: each kind, and how often it comes.
        seed: decides their order.
        ends: of the job.

    Attributes:
        counts: faults so far, by kind.
        unplanned: processes that ended by themselves.
    """

    def __init__(self, faults: Iterable[str], *, seed: int, ends: Ends) -> None:
        self.faults = tuple(faults)
        self.draw = random.Random(seed)
        self.ends = ends
        self.counts: Counter[str] = Counter()
        self.log: list[tuple[float, str]] = []
        self.unplanned = 0

    @abstractmethod
    def tend(self) -> None:
        """Repair what nobody else does; while something is waited for."""

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What the condition gives once it is true."""
        end = time.monotonic() + DEADLINE_S
        while True:
            if self.ends.error is not None:
                raise self.ends.error
            if found := condition():
                return found
            if time.monotonic() > end:
                raise AssertionError(f"not within {DEADLINE_S:g} s: {what}")
            self.tend()
            time.sleep(0.1)

    def note(self, what: str) -> None:
        """Keep and show what happens."""
        self.log.append((time.monotonic(), what))
        print(f"{time.strftime('%H:%M:%S')} {self.ends.results:6} results  {what}", flush=True)

    @property
    def kills(self) -> int:
        """Faults so far."""
        return sum(self.counts[kind] for kind in self.faults)

    def summary(self, middle: str) -> str:
        """One line: the faults, what followed from them, what came out meanwhile."""
        ends = self.ends
        each = ", ".join(f"{kind} {n}" for kind in self.faults if (n := self.counts[kind]))
        at, longest = max(ends.gaps, key=lambda gap: gap[1], default=(0.0, 0.0))
        before = [what for when, what in self.log if when < at]
        median = statistics.median([gap for _, gap in ends.gaps] or [0.0])
        return (
            f"{self.kills} faults ({each}), {middle}; {ends.fed} batches, {ends.results} results, "
            f"{ends.records} records, each exactly once; longest gap {longest:.2f} s (after "
            f"{before[-1] if before else 'the start'}), median {median * 1e3:.0f} ms"
        )


def may_fail(status: dict[str, Any], sites: set[int]) -> bool:
    """Whether every copy on these sites has another one elsewhere that is whole."""
    copies = status["copies"]
    whole = {(s, p, c): at for s, p, c, _, at, how in copies if how == "ACTIVE"}
    return all(
        whole.get((s, p, 1 - c), at) not in sites for s, p, c, _, at, _ in copies if at in sites
    )


def view(status: dict[str, Any]) -> dict[int, int]:
    """Place of each site that is in the view -> the number of its incarnation."""
    return {int(s["id"].partition(".")[0]): s["number"] for s in status["sites"]}
