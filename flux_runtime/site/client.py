"""A client of a job: it follows the leader, over plain blocking sockets.

`Feeder` (`feeder`) hands batches to the dataflow, `Reader` (`reader`) takes its results; what all
clients can ask for is here.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flux_runtime.site.blocking import Broken, Channel
from flux_runtime.site.codec import from_json
from flux_runtime.site.config import Config
from flux_runtime.site.finding import finder
from flux_runtime.site.wire import Kind

AGAIN_S: Final = 0.02
SILENCE_S: Final = 0.5
"""After so much silence a client asks whether it still listens to the right process."""


class Unreachable(Exception):  # noqa: N818 - what happened
    """Nobody has answered for too long."""


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

    def greeting(self) -> dict[str, Any]:
        """What the greeting says besides the role."""
        return {}

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
                    channel = Channel(self.config.key, address, self.greeting())
                    if channel.greeting.get("ready"):
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

    def ask(self, question: dict[str, Any], answer: str) -> dict[str, Any]:
        """Ask the leader, again if it changes meanwhile."""
        while True:
            channel = self.leader()
            try:
                channel.control(question)
                while True:
                    kind, body = self.frame(channel)
                    message = from_json(body) if kind is Kind.CONTROL else {}
                    if message.get("c") == answer:
                        return message
                    self.heard(message)
            except Broken:
                self.dropped()

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the leader."""
        while True:
            channel = self.leader()
            try:
                channel.control(message)
                return
            except Broken:
                self.dropped()

    def heard(self, message: dict[str, Any]) -> None:
        """Something came that was not asked for.

        Raises:
            DataLost: that a partition is lost.
        """
        if message.get("c") == "data_loss":
            raise DataLost(message["stage"], message["part"], message["why"])

    def status(self) -> dict[str, Any]:
        """What the job looks like to its controller."""
        return self.ask({"c": "status"}, "status")

    def move(self, stage: int, part: int, copy: int, site: int) -> None:
        """Have a copy move, if that is possible now; returns when that has been decided."""
        move = {"c": "move", "stage": stage, "part": part, "copy": copy, "site": site}
        self.ask(move, "moved")

    def limit_memory(self, site: int, size: int | None) -> bool:
        """From now on a site may use so many bytes for operators' states, if it has a disk.

        Returns:
            True once the site knows; False if there is no such site, or no more.
        """
        return self._errand({"c": "memory", "site": site, "bytes": size})

    def keep(self, batch: int, folder: Path) -> str:
        """Have the operators' states after a batch written, while nothing is fed after it.

        What has been written is seen in the folder; ask again if that takes long.

        Returns:
            Why a site could not when it was asked the last time; empty: none has said so.
        """
        answer = self.ask({"c": "keep", "batch": batch, "folder": str(folder)}, "keeping")
        return str(answer["why"])

    def cut(self, site: int, other: int) -> bool:
        """Close the connection between two sites, for a drill: one of them will be removed.

        Returns:
            True once the first has; False if it is not there, or no more.
        """
        return self._errand({"c": "cut", "site": site, "other": other})

    def _errand(self, errand: dict[str, Any]) -> bool:
        """Have a site do something that does no harm if it is done again by the next leader."""
        return bool(self.ask(errand, "did")["done"])

    def stop(self) -> None:
        """End the job: all sites and all controllers; returns when that is certain.

        Raises:
            Unreachable: no controller has answered; perhaps the job has ended before.
        """
        while True:
            channel = self.leader()
            try:
                channel.control({"c": "stop"})
                while True:
                    kind, body = self.frame(channel)
                    if kind is Kind.CONTROL and from_json(body).get("c") == "stopped":
                        return
            except Broken:
                self.dropped()

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
