"""How the outside reads the results of the dataflow.

    reader = Reader(config)
    offset, batches, ended = reader.read(offset)
    reader.commit(offset)                    # what is below may be forgotten

When a copy of the results is gone, a reader goes on at its offset with the other one.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

from flux_runtime.site import control_messages as control
from flux_runtime.site.blocking import CONNECT_TIMEOUT_S, Broken, Channel
from flux_runtime.site.client import AGAIN_S, SILENCE_S, Client, Rejected
from flux_runtime.site.codec import ROWS
from flux_runtime.site.config import Config
from flux_runtime.site.wire import Kind

READ_BYTES: Final = 8 << 20


class Reader(Client):
    """Reads results by offset, from either copy of the collector."""

    def __init__(self, config: Config, *, patience_s: float = 60.0) -> None:
        super().__init__(config, patience_s=patience_s)
        self.site: Channel | None = None
        self._committed = -1

    def connected(self, channel: Channel) -> None:
        """Say again what is committed: the leader before may have died over it."""
        if self._committed >= 0:
            channel.tell(control.Commit(self._committed))

    def read(
        self, offset: int, *, timeout_s: float | None = None, max_bytes: int = READ_BYTES
    ) -> tuple[int, list[tuple[int, Any]], bool]:
        """Results of batches from `offset` on, in order.

        Args:
            offset: number of batches of input whose results have been read.
            timeout_s: how long to wait for more; None waits for ever.
            max_bytes: about how much to give at once.

        Returns:
            The next offset, (batch, rows) of every batch that has results, whether the input has
            ended and nothing comes after these.

        Raises:
            DataLost: the job cannot go on; only noticed when there is nothing to read.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                if self.site is None:
                    self.site = self._collector()
                if self.site is not None:
                    result = self._read(self.site, offset, max_bytes, end)
                    if result is not None:
                        return result
            except TimeoutError:
                if self.site is not None and self.site.address not in self._collectors():
                    self._leave()
            except Broken:
                self._leave()
            if end is not None and time.monotonic() >= end:
                return offset, [], False
            if self.site is None:
                time.sleep(AGAIN_S)

    def _collectors(self) -> list[tuple[str, int]]:
        return list(self.ask(control.Where(), control.Collectors).addresses)

    def _collector(self) -> Channel | None:
        for address in self._collectors():
            with suppress(*Broken):
                return Channel(self.config.key, address, control.ReaderGreeting())
        return None

    def _leave(self) -> None:
        if self.site is not None:
            self.site.close()
            self.site = None

    def _read(
        self, site: Channel, offset: int, max_bytes: int, end: float | None
    ) -> tuple[int, list[tuple[int, Any]], bool] | None:
        if site.asked not in (-1, offset):
            raise ConnectionResetError("an answer that nobody waits for any more is under way")
        if site.asked == -1:
            site.tell(control.Read(offset, max_bytes))
            site.asked = offset
        parts: list[tuple[int, Any]] = []
        while True:
            left = SILENCE_S if end is None else max(0.001, end - time.monotonic())
            try:
                kind, body = site.frame(min(left, SILENCE_S) if not parts else CONNECT_TIMEOUT_S)
            except TimeoutError:
                if parts:
                    raise ConnectionResetError("half of an answer") from None
                raise
            if kind is Kind.RESULTS:
                batch, schema = ROWS.unpack_from(body)
                parts.append((batch, site.decoder.rows(body[ROWS.size :], schema)))
                continue
            message = site.message(body)
            site.asked = -1
            if isinstance(message, control.Results):
                return message.offset, parts, message.ended
            if isinstance(message, control.Refusal):
                raise Rejected(message.why)
            self._leave()  # the collector is elsewhere by now
            return None

    def commit(self, offset: int) -> None:
        """The results of all batches below `offset` are not needed any more.

        Nobody answers: a new leader is told again, with the next read at the latest.
        """
        self._committed = max(self._committed, offset)
        self.tell(control.Commit(offset))

    def close(self) -> None:
        """Close both connections."""
        self._leave()
        super().close()
