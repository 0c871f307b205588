"""An asyncio event loop in a simulated process: timers in virtual time, sockets of the network.

Between two rounds of the loop others have their turn, so everything that real processes do at the
same time comes in any order; within a process callbacks come in asyncio's order.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from flux_lab.shell.kernel import Kernel, Process, Thread
from flux_lab.shell.network import Endpoint, Network, Stream


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one process; it runs in the thread that calls `run`.

    Attributes:
        idle_s: seconds waited so far, as `IdleSelector` counts them.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.kernel: Kernel = network.kernel
        self.process: Process = network.kernel.process
        self.idle_s = 0.0
        self._ready: deque[events.Handle] = deque()
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._count = 0
        self._thread: Thread | None = None
        self._waits = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.process.loops.append(self)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """As `asyncio.run`, without what a process does that ends anyway."""
        events._set_running_loop(self)
        self._thread = self.kernel.thread
        try:
            task = self.create_task(main)
            while not task.done():
                self._round()
            return task.result()
        finally:
            events._set_running_loop(None)

    def discard(self) -> None:
        """End what is left, once the process is dead: nothing of it has effects any more."""
        events._set_running_loop(self)
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        self._ready.clear()
        self._timers.clear()
        events._set_running_loop(None)

    def _round(self) -> None:
        if self._ready:
            self.kernel.block(self.process.step_s())
        else:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            left = max(0.0, self._timers[0][0] - self.kernel.now) if self._timers else None
            began, self._waits = self.kernel.now, True
            self.kernel.block(left)
            self._waits = False
            self.idle_s += self.kernel.now - began
        now = self.kernel.now
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heapq.heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    # ---- callbacks

    def time(self) -> float:
        """Virtual."""
        return self.kernel.now

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether a thread is in `run`."""
        return self._thread is not None

    def is_closed(self) -> bool:
        """Whether its process is gone."""
        return not self.process.alive

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """In the next round."""
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """In the next round; also from other threads, and from the network."""
        handle = self.call_soon(callback, *args, context=context)
        if self._waits and self._thread is not None and self.process.alive:
            self._waits = False
            self.kernel.wake(self._thread)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """At a time."""
        handle = events.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        """After some time."""
        return self.call_at(self.kernel.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        """Of this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody has handled an error: it counts against the run."""
        error = context.get("exception") or RuntimeError(context["message"])
        self.kernel.fault(self.process, error)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """In another thread of the process."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(_fail, future, error)
            else:
                self.call_soon_threadsafe(_succeed, future, result)

        Thread(target=work, name="executor", process=self.process).start()
        return future

    # ---- the network

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, host: Any, port: Any, **_: Any
    ) -> Any:
        """Accept connections of the network."""

        def accept(endpoint: Endpoint) -> None:
            Transport(self, endpoint, protocol_factory()).begin()

        def arrived(endpoint: Endpoint) -> None:
            self.call_soon_threadsafe(accept, endpoint)

        return self.network.listen(self.process, host, port, arrived)

    async def create_connection(self, protocol_factory: Any, host: Any, port: Any) -> Any:  # type: ignore[override]
        """Dial.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        future = self.create_future()

        def dialed(endpoint: Endpoint | None) -> None:
            self.call_soon_threadsafe(_succeed, future, endpoint)

        self.network.dial(self.process, (host, port), dialed)
        endpoint = await future
        if endpoint is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        protocol = protocol_factory()
        Transport(self, endpoint, protocol).begin()
        return None, protocol


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
    elif isinstance(result, Endpoint):
        result.close(reset=True)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def run(network: Network, main: Callable[[SimulatedLoop], Coroutine[Any, Any, Any]]) -> Any:
    """`main` on a loop of the process that runs."""
    loop = SimulatedLoop(network)  # type: ignore[abstract]
    return loop.run(main(loop))


class Transport(asyncio.Transport):
    """One end of a connection, for a `BufferedProtocol`."""

    def __init__(self, loop: SimulatedLoop, endpoint: Endpoint, protocol: Any) -> None:
        super().__init__()
        self._loop = loop
        self._endpoint = endpoint
        self._protocol = protocol
        self._closing = False
        self._reading = True
        self._held: list[bytes | BaseException | None] = []
        self._high = 1 << 16
        self._paused = False

    def begin(self) -> None:
        """The connection is there."""
        stream = Stream(data=self._arrived, closed=self._ended, drained=self._drained)
        self._protocol.connection_made(self)
        self._endpoint.attach(stream)

    # ---- from the network

    def _arrived(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._take, data)

    def _ended(self, error: BaseException | None) -> None:
        self._loop.call_soon_threadsafe(self._take, error)

    def _take(self, item: bytes | BaseException | None) -> None:
        if self._closing:
            return
        if (not self._reading and isinstance(item, bytes)) or self._held:
            self._held.append(item)
        elif isinstance(item, bytes):
            self._feed(item)
        else:
            self._closing = True
            self._protocol.connection_lost(item)

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._closing:
            buffer = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            self._protocol.buffer_updated(size)

    def _drained(self) -> None:
        if self._paused and self._endpoint.under_way <= self._high // 4:
            self._paused = False
            self._loop.call_soon_threadsafe(self._resumed)

    def _resumed(self) -> None:
        if not self._closing:
            self._protocol.resume_writing()

    # ---- for the protocol

    def write(self, data: Any) -> None:
        """Send."""
        if not self._closing:
            self._endpoint.send(bytes(data))
            if not self._paused and self._endpoint.under_way > self._high:
                self._paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send."""
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The kernel's buffers are small here, so that they fill."""

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close once everything has been sent."""
        self._shut(reset=False)

    def abort(self) -> None:
        """Close at once."""
        self._shut(reset=True)

    def _shut(self, *, reset: bool) -> None:
        if not self._closing:
            self._closing = True
            self._endpoint.close(reset=reset)
            self._loop.call_soon(self._protocol.connection_lost, None)

    def is_reading(self) -> bool:
        """Whether what arrives is handed on."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Hold back what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand on what was held back."""
        self._reading = True
        held, self._held = self._held, []
        for item in held:
            self._loop.call_soon(self._take, item)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known."""
        return default
