"""The operating system of a simulated job: virtual time, processes, threads, and what blocks them.

Everything runs in one thread of this process, one simulated thread at a time (a greenlet), in an
order that follows from a seed. A simulated thread gives way where a real one would block: it
sleeps, waits for an event, a lock or a socket. Processes can be killed, stopped and continued.
`threading` and `clock` are what simulated code sees in place of the modules of these names.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final, Self

import greenlet

EPOCH_S: Final = 1_000.0
"""The start of `time.monotonic`; a clock that starts at zero hides what takes zero for never."""
EVENTS_MAX: Final = 2_000_000
"""A run that takes more events than this is taken for a livelock."""


class Killed(greenlet.GreenletExit):  # type: ignore[misc]
    """Ends the threads of a process that is killed; nothing that they do meanwhile has effects."""


class Timer:
    """Something that is to happen; it may be called off."""

    __slots__ = ("arguments", "cancelled", "function")

    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.cancelled = False


class Process:
    """A process: threads that share a fate.

    Args:
        kernel: runs it.
        name: for people.
        machine: where it runs; what the network knows it by.

    Attributes:
        stopped_until: it takes no step before then.
        slow: factor on the time that its steps take.
        status: how it ended; None while it lives.
        on_kill: what the kernel does for a process that dies: it closes its sockets.
        sent, arrived, received: how often it has sent something, or written to a disk, how much of
            that has come to where it goes, and how often something has come to it.
    """

    def __init__(self, kernel: Kernel, name: str, machine: str) -> None:
        self.kernel = kernel
        self.name = name
        self.machine = machine
        self.alive = True
        self.stopped_until = 0.0
        self.slow = 1.0
        self.threads: list[Thread] = []
        self.loops: list[Any] = []
        self.on_kill: list[Callable[[], None]] = []
        self.status: BaseException | str | None = None
        self.sent = self.arrived = self.received = 0

    def start(self, main: Callable[[], Any], *, ended: Callable[[Process], None]) -> Self:
        """Run `main`; the process ends with it. `ended` is told, also of a kill."""

        def run() -> None:
            try:
                main()
                status: BaseException | str = "returned"
            except greenlet.GreenletExit:
                raise
            except BaseException as error:
                status = error
            self.end(status)

        self._ended = ended
        Thread(target=run, name="main", process=self).start()
        return self

    def end(self, status: BaseException | str) -> None:
        """It is gone: with its threads, and, as the kernel sees to it, its sockets."""
        if not self.alive:
            return
        self.alive = False
        self.status = status
        for clean in self.on_kill:
            clean()
        self.on_kill.clear()
        self.kernel.at(self.kernel.now, self._reap)

    def _reap(self) -> None:
        for thread in self.threads:
            if thread.greenlet:
                self.kernel.unwind(thread)
        self.threads.clear()
        for loop in self.loops:
            loop.discard()
        self._ended(self)

    def kill(self) -> None:
        """SIGKILL."""
        self.end("killed")

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after some time."""
        self.stopped_until = max(self.stopped_until, self.kernel.now + seconds)

    def step_s(self) -> float:
        """How long the next step takes; at times the processor is elsewhere."""
        draw = self.kernel.rng.random()
        took = draw * 0.002 if draw < 0.97 else draw * 0.05
        return took * self.slow


class Thread:
    """A simulated thread, with the interface of `threading.Thread`."""

    def __init__(
        self,
        *,
        target: Callable[..., Any],
        name: str = "",
        args: Iterable[Any] = (),
        daemon: bool = False,
        process: Process | None = None,
    ) -> None:
        self.process = process or KERNEL().process
        self.kernel = self.process.kernel
        self.name = name
        self.ticket = 0
        self.woken = False
        self.finished: list[Thread] = []
        self.running_loop: Any = None
        self.greenlet = greenlet.greenlet(lambda: self._run(target, tuple(args)), self.kernel.hub)

    def _run(self, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            target(*arguments)
        except greenlet.GreenletExit:
            return
        except BaseException as error:
            self.kernel.fault(self.process, error)
        for waiting in self.finished:
            self.kernel.wake(waiting)

    def start(self) -> None:
        """Begin soon."""
        if self.process.alive:
            self.process.threads = [t for t in self.process.threads if not t.greenlet.dead]
            self.process.threads.append(self)
            self.kernel.at(self.kernel.now + self.process.step_s(), self.kernel.resume, self, 0)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self.greenlet.dead

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        current = self.kernel.thread
        if current is not None and not self.greenlet.dead and self.process.alive:
            self.finished.append(current)
            self.kernel.block(timeout)


class Kernel:
    """Virtual time, and whose turn it is.

    Args:
        seed: decides everything that is random.

    Attributes:
        now: seconds.
        thread: the one that runs; None: the world around all processes.
        faults: (process, error) that ended a thread or was left to an event loop.
        look: called before everything that happens.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = EPOCH_S
        self.thread: Thread | None = None
        self.faults: list[tuple[Process, BaseException]] = []
        self.events = 0
        self.look: Callable[[Timer], None] = lambda _: None
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self.hub: Any = greenlet.getcurrent()

    @property
    def process(self) -> Process:
        """The process whose thread runs."""
        assert self.thread is not None, "nobody runs"
        return self.thread.process

    def at(self, when: float, function: Callable[..., None], *arguments: Any) -> Timer:
        """Let something happen at a time."""
        timer = Timer(function, arguments)
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, timer))
        return timer

    def after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> Timer:
        """Let something happen after some time."""
        return self.at(self.now + seconds, function, *arguments)

    def run(self, until: float) -> None:
        """Let things happen until a time has come, or something has gone wrong."""
        heap = self._heap
        while heap and heap[0][0] <= until and not self.faults:
            when, _, timer = heapq.heappop(heap)
            if timer.cancelled:
                continue
            self.now = when
            self.events += 1
            self.look(timer)
            timer.function(*timer.arguments)
            if self.events > EVENTS_MAX:
                raise RuntimeError("livelock: too many events")
        if not self.faults:
            self.now = max(self.now, until)

    def fault(self, process: Process, error: BaseException) -> None:
        """Something went wrong that nobody has handled."""
        if process.alive:
            self.faults.append((process, error))

    # ---- threads

    def block(self, timeout: float | None = None) -> bool:
        """The thread that runs waits, at most so long; gives whether it was woken."""
        thread = self.thread
        if thread is None or not thread.process.alive:
            raise Killed
        thread.ticket += 1
        thread.woken = False
        timer = None
        if timeout is not None:
            timer = self.at(self.now + max(timeout, 0.0), self.resume, thread, thread.ticket)
        self.hub.switch()
        if timer is not None:
            timer.cancelled = True
        return thread.woken

    def wake(self, thread: Thread) -> None:
        """Let a thread that waits go on."""
        thread.woken = True
        self.at(self.now, self.resume, thread, thread.ticket)

    def resume(self, thread: Thread, ticket: int) -> None:
        """A thread goes on, unless it has gone on meanwhile, or its process is stopped."""
        process = thread.process
        if ticket != thread.ticket or not process.alive or thread.greenlet.dead:
            return
        if process.stopped_until > self.now:
            self.at(process.stopped_until, self.resume, thread, ticket)
            return
        thread.ticket += 1
        self.thread = thread
        asyncio._set_running_loop(thread.running_loop)
        try:
            thread.greenlet.switch()
        finally:
            thread.running_loop = asyncio._get_running_loop()
            asyncio._set_running_loop(None)
            self.thread = None

    def unwind(self, thread: Thread) -> None:
        """End a thread of a dead process; whatever its handlers do has no effect any more."""
        self.thread = thread
        asyncio._set_running_loop(thread.running_loop)
        with suppress(BaseException):
            thread.greenlet.throw(Killed)
        asyncio._set_running_loop(None)
        self.thread = None

    # ---- what simulated code sees of it

    def sleep(self, seconds: float) -> None:
        """`time.sleep`."""
        self.block(seconds)

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return self.now


_RUNNING: list[Kernel] = []


def KERNEL() -> Kernel:  # noqa: N802 - as a constant within a run
    """The kernel of the run that is under way."""
    return _RUNNING[-1]


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Thread] = []

    def set(self) -> None:
        """Let everybody go on who waits."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            KERNEL().wake(thread)

    def clear(self) -> None:
        """From now on one waits again."""
        self._set = False

    def is_set(self) -> bool:
        """Whether nobody waits."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so long."""
        kernel = KERNEL()
        until = None if timeout is None else kernel.now + timeout
        while not self._set:
            left = None if until is None else until - kernel.now
            if left is not None and left <= 0:
                break
            assert kernel.thread is not None
            self._waiting.append(kernel.thread)
            kernel.block(left)
        return self._set


class RLock:
    """As `threading.RLock`; the world around the processes never waits for one."""

    def __init__(self) -> None:
        self._owner: Thread | None = None
        self._depth = 0
        self._waiting: list[Thread] = []

    def acquire(self) -> bool:
        """Wait until nobody else has it."""
        kernel = KERNEL()
        me = kernel.thread
        while self._owner is not None and self._owner is not me and self._owner.is_alive():
            assert me is not None
            self._waiting.append(me)
            kernel.block()
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                KERNEL().wake(thread)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """As `threading.Condition`."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._waiting: list[Thread] = []

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def notify_all(self) -> None:
        """Let everybody look again who waits."""
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            KERNEL().wake(thread)

    def wait_for(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something holds, at most so long; gives whether it does."""
        kernel = KERNEL()
        until = None if timeout is None else kernel.now + timeout
        while not holds():
            left = None if until is None else until - kernel.now
            if left is not None and left <= 0:
                return holds()
            assert kernel.thread is not None
            self._waiting.append(kernel.thread)
            self._lock.release()
            try:
                kernel.block(left)
            finally:
                self._lock.acquire()
        return True


def _current_thread() -> Any:
    return KERNEL().thread


threading: Final = SimpleNamespace(
    Thread=Thread,
    Event=Event,
    RLock=RLock,
    Lock=RLock,
    Condition=Condition,
    current_thread=_current_thread,
)
"""The module that simulated code sees in place of the real one."""
