"""A client of a job: it follows the leader, over plain blocking sockets.

`Feeder` (`feeder`) hands batches to the dataflow, `Reader` (`reader`) takes its results; what all
clients can ask for is here.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from flux_runtime.site import control_messages as control
from flux_runtime.site.blocking import Broken, Channel
from flux_runtime.site.config import Config
from flux_runtime.site.control_messages import Message
from flux_runtime.site.finding import finder
from flux_runtime.site.wire import Kind

AGAIN_S: Final = 0.02
SILENCE_S: Final = 0.5
"""After so much silence a client asks whether it still listens to the right process."""
CLOSED_MAX: Final = 10
"""How often in a row one leader may close the connection over the same question."""

Answer = TypeVar("Answer", bound=Message)


class Unreachable(Exception):  # noqa: N818 - what happened
    """Nobody has answered for too long."""


class Rejected(ValueError):  # noqa: N818 - what happened
    """The leader says that what it was asked for makes no sense; nothing was done."""


class DataLost(Exception):  # noqa: N818 - what happened
    """A partition has lost both copies, so the results cannot be completed.

    Attributes:
        stage: stage of the partition.
        part: its number.
        why: the last copy is gone.
    """

    def __init__(self, stage: int, part: int, why: str) -> None:
        self.stage = stage
        self.part = part
        self.why = why
        super().__init__(
            f"partition {part} of stage {stage} has lost both copies ({why}): its state, and what "
            "it had received and not passed on, are gone; start the job anew from its source"
        )


class Client:
    """A client that finds the leader again when it changes.

    Args:
        config: how the job is reached.
        patience_s: how long to try.
    """

    def __init__(self, config: Config, *, patience_s: float = 60.0) -> None:
        self.config = config
        self.patience_s = patience_s
        self.finder = finder(config)
        self.channel: Channel | None = None

    @property
    def source(self) -> str:
        """The source that this client feeds; empty: none."""
        return ""

    def leader(self) -> Channel:
        """A connection to whoever leads.

        Raises:
            Unreachable: there was none for `patience_s` seconds.
        """
        if self.channel is not None:
            return self.channel
        end = time.monotonic() + self.patience_s
        while time.monotonic() < end:
            address = self.finder.leader()
            if address is not None:
                with suppress(*Broken):
                    greeting = control.ClientGreeting(self.source)
                    channel = Channel(self.config.key, address, greeting)
                    assert isinstance(channel.welcome, control.ClientWelcome)
                    if channel.welcome.ready:
                        self.channel = channel
                        self.connected(channel)
                        return channel
                    channel.close()
            time.sleep(AGAIN_S)
        raise Unreachable(f"no controller has answered for {self.patience_s:g} s")

    def connected(self, channel: Channel) -> None:
        """A new connection to the leader is there."""

    def dropped(self) -> None:
        """The connection is of no use any more."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def frame(self, channel: Channel) -> tuple[Kind, memoryview]:
        """The next frame of the leader's, unless another one leads by now (it may be paused)."""
        end = time.monotonic() + self.patience_s
        while True:
            try:
                return channel.frame(SILENCE_S)
            except TimeoutError:
                if time.monotonic() > end or self.finder.leader() not in (None, channel.address):
                    raise ConnectionResetError("another controller leads") from None

    def ask(self, question: Message, kind: type[Answer]) -> Answer:
        """Ask the leader, again if it changes meanwhile.

        Raises:
            Rejected: the question makes no sense to it.
            Unreachable: there was no leader, or it closes every connection over this question.
        """
        closed: Counter[int] = Counter()
        while True:
            channel = self.leader()
            assert isinstance(channel.welcome, control.ClientWelcome)
            try:
                channel.tell(question)
                while True:
                    frame, body = self.frame(channel)
                    if frame is not Kind.CONTROL:
                        continue
                    answer = channel.message(body)
                    if isinstance(answer, kind):
                        return answer
                    self.heard(answer)
            except Broken as error:
                self.dropped()
                closed[channel.welcome.epoch] += 1
                if closed[channel.welcome.epoch] >= CLOSED_MAX:
                    raise Unreachable(
                        f"controller {channel.welcome.epoch} has closed {CLOSED_MAX} connections "
                        f"over {type(question).__name__}: {error}"
                    ) from error

    def tell(self, message: Message) -> None:
        """Tell the leader."""
        while True:
            channel = self.leader()
            try:
                channel.tell(message)
                return
            except Broken:
                self.dropped()

    def heard(self, message: Message) -> None:
        """Something came that was not asked for.

        Raises:
            DataLost: that a partition is lost.
            Rejected: that something said before makes no sense.
        """
        if isinstance(message, control.Refusal):
            raise Rejected(message.why)
        if isinstance(message, control.DataLoss):
            raise DataLost(message.stage, message.part, message.why)

    def status(self) -> dict[str, Any]:
        """The state of the job as its controller sees it (`control_messages.Status`), in JSON."""
        status = self.ask(control.StatusRequest(), control.Status)
        plain: dict[str, Any] = msgspec.to_builtins(status, str_keys=True)
        return plain

    def move(self, stage: int, part: int, copy: int, site: int) -> None:
        """Have a copy move, if that is possible now; returns when that has been decided.

        Raises:
            Rejected: there is no such partition.
        """
        self.ask(control.Move(stage, part, copy, site), control.Moved)

    def limit_memory(self, site: int, size: int | None) -> bool:
        """From now on a site may use so many bytes for operators' states, if it has a disk.

        Returns:
            True once the site knows; False if there is no such site, or no more.
        """
        return self._errand(control.LimitMemory(site, size))

    def keep(self, batch: int | None, folder: Path) -> str:
        """Have the operators' states after a batch written, while nothing is fed after it.

        What has been written is seen in the folder; ask again if that takes long. Without a batch
        what can be written beforehand is, while input goes on (`state_file.ready`).

        Returns:
            Why a site could not when it was asked the last time; empty: none has said so.
        """
        return self.ask(control.Keep(batch, str(folder)), control.Keeping).why

    def cut(self, site: int, other: int) -> bool:
        """Close the connection between two sites, for a drill: one of them will be removed.

        Returns:
            True once the first has; False if it is not there, or no more.
        """
        return self._errand(control.Disconnect(site, other))

    def _errand(self, errand: Message) -> bool:
        """Have a site do something that does no harm if it is done again by the next leader."""
        return self.ask(errand, control.Carried).done

    def stop(self) -> None:
        """End the job: all sites and all controllers; returns when that is certain.

        Raises:
            Unreachable: no controller has answered; perhaps the job has ended before.
        """
        while True:
            with suppress(DataLost):  # it came before the answer, and comes once
                self.ask(control.Stop(), control.Stopped)
                return

    def close(self) -> None:
        """Close the connection."""
        self.dropped()
        self.finder.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
