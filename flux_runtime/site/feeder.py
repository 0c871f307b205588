"""How the outside feeds the dataflow.

    feeder = Feeder(config, source="events")
    feeder.offer(batch_id, offset, rows)     # idempotent; waits where there is no room
    feeder.flush()                           # everything offered is safe

When the leader changes, a feeder offers again whatever has not been acknowledged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flux_runtime.site import control_messages as control
from flux_runtime.site.blocking import Broken, Channel
from flux_runtime.site.client import Client
from flux_runtime.site.codec import OFFER
from flux_runtime.site.config import Config
from flux_runtime.site.control_messages import Message
from flux_runtime.site.journal import Key
from flux_runtime.site.wire import Kind


class Feeder(Client):
    """Offers one source's batches.

    Args:
        config: how the job is reached.
        source: name of the source; its offers are numbered by (batch_id, offset).
        window: offers that may be unacknowledged before `offer` waits.

    Raises:
        ValueError: the name is too long.
    """

    def __init__(
        self, config: Config, source: str, *, window: int = 64, patience_s: float = 60.0
    ) -> None:
        if len(source) > control.NAME_MAX:
            raise ValueError(
                f"a source's name has {len(source)} characters, at most {control.NAME_MAX}"
            )
        super().__init__(config, patience_s=patience_s)
        self._source = source
        self.window = window
        self.open: OrderedDict[Key, Any] = OrderedDict()
        self.taken: Key = (-1, -1)

    @property
    def source(self) -> str:
        """Its name."""
        return self._source

    def connected(self, channel: Channel) -> None:
        """Offer again what has not been acknowledged."""
        assert isinstance(channel.welcome, control.ClientWelcome)
        if channel.welcome.taken is not None:
            self._taken(channel.welcome.taken)
        for key, rows in list(self.open.items()):
            self._put(channel, key, rows)
        channel.flush()

    def heard(self, message: Message) -> None:
        """Acknowledgements."""
        super().heard(message)
        if isinstance(message, control.Taken):
            self._taken(message.key)

    def _taken(self, key: Key) -> None:
        self.taken = max(self.taken, key)
        while self.open and next(iter(self.open)) <= self.taken:
            self.open.popitem(last=False)

    def _put(self, channel: Channel, key: Key, rows: Any) -> None:
        number = channel.encoder.schema_number(rows.schema, channel.out)
        head = OFFER.pack(*key, number)
        channel.out.add(Kind.OFFER, head, channel.encoder.payload(rows, number))
        channel.encoder.forget()

    def offer(self, batch_id: int, offset: int, rows: Any) -> None:
        """Offer a batch (a pyarrow.RecordBatch); offers must come in order of (batch_id, offset).

        What was offered before, by whomever, is recognised and dropped. Waits while more than
        `window` offers are not safe yet.

        Raises:
            Unreachable: no controller answers.
            DataLost: the job cannot go on.
        """
        key = (batch_id, offset)
        if key <= self.taken or key in self.open:
            return
        channel = self.leader()
        self.open[key] = rows
        try:
            self._put(channel, key, rows)
            channel.flush()
        except Broken:
            self.dropped()
            self.leader()
        self._wait(self.window)

    def flush(self) -> None:
        """Wait until everything that was offered is safe."""
        self._wait(0)

    def _wait(self, left: int) -> None:
        while len(self.open) > left:
            channel = self.leader()
            try:
                kind, body = self.frame(channel)
                if kind is Kind.CONTROL:
                    self.heard(channel.message(body))
            except Broken:
                self.dropped()

    def finish(self) -> None:
        """Nothing more comes, from any source; waits until everything is safe, the end as well."""
        self.flush()
        self.ask(control.Finish(), control.Finished)
