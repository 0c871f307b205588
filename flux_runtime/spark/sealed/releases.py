"""The background threads of a sealed unit: one makes releases, the other keeps house.

Releases overlap the buffering of the next micro-batches and are group-committed: each takes all
partitions that are complete by then. While micro-batches follow each other, releases are made in a
small part of the time, since one large release costs hardly more than a small one; when the job has
caught up with its input, each is made at once. Neither thread waits for the other: what a person
has decided is taken up while releases follow each other, and a registry that does not answer holds
up no release. Nothing is remembered here; what to do is read off the tracker, so that a restart
goes on by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 1.0
"""How often look-ups that found nothing are repeated, and ages and excuses are looked at."""

RESTS: Final = 7
"""While micro-batches follow each other, a rest takes so many times as long as a release..."""
REST_MAX_S: Final = 10.0
"""... and at most so long."""
LOOK_S: Final = 0.05
"""How often the releaser looks, at rest, whether the job has caught up with its input."""


class Releaser:
    """Runs `work` in a thread until it has nothing left to do, again and again.

    Args:
        name: of the thread that works.
        work: does one piece of work and says whether there was any.
        housekeeping: called about every `PERIOD_S` seconds, in a thread of its own.
        busy: whether a micro-batch is being processed for which a release can wait.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], bool],
        housekeeping: Callable[[], None],
        busy: Callable[[], bool],
    ) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._busy = busy
        self._housekeeping = housekeeping
        self._changed = threading.Condition()
        self._due = False
        self._idle = True
        self._ending = False
        self._hurry = False
        self._threads = (
            self._thread(name, self._release),
            self._thread(f"{name}: housekeeping", self._keep_house),
        )

    def start(self) -> None:
        """Start the threads; what a crash left unfinished is done first."""
        self._due = True
        self._idle = False
        for thread in self._threads:
            thread.start()

    @property
    def started(self) -> bool:
        """Whether `start` has been called."""
        return self._threads[0].ident is not None

    def wake(self) -> None:
        """There may be something to do."""
        with self._changed:
            self._due = True
            self._idle = False
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until there is nothing to do, or a thread has failed."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._idle or self.error is not None)
            self._hurry = False

    def stop(self) -> None:
        """End the threads after the piece of work they are at."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def check(self) -> None:
        """Raise what ended a thread, if one failed."""
        if self.error is not None:
            raise self.error

    def _work_and_rest(self) -> bool:
        """Do one piece of work, then leave the machine to the micro-batches."""
        began = time.monotonic()
        worked = self._work()
        if worked:
            now = time.monotonic()
            end = now + min(RESTS * (now - began), REST_MAX_S)
            while time.monotonic() < end and self._busy():
                with self._changed:
                    if self._changed.wait_for(lambda: self._hurry or self._ending, LOOK_S):
                        break
        return worked

    def _release(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._ending)
                if self._ending:
                    return
                self._due = False
            while not self._ending and self._work_and_rest():
                pass
            with self._changed:
                self._idle = not self._due
                self._changed.notify_all()

    def _keep_house(self) -> None:
        while not self._ending:
            self._housekeeping()
            with self._changed:
                self._changed.wait_for(lambda: self._ending, PERIOD_S)

    def _thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                loop()
            except BaseException as error:
                with self._changed:
                    self.error = error
                    self._changed.notify_all()

        return threading.Thread(target=guarded, name=name, daemon=True)
