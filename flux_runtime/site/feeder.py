"""How the outside feeds the dataflow.

    feeder = Feeder(config, source="events")
    feeder.offer(batch_id, offset, rows)     # idempotent; waits where there is no room
    feeder.flush()                           # everything offered is safe

When the leader changes, a feeder offers again whatever has not been acknowledged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flux_runtime.site.blocking import Broken, Channel
from flux_runtime.site.client import Client
from flux_runtime.site.codec import ROWS, from_json
from flux_runtime.site.config import Config
from flux_runtime.site.journal import Key
from flux_runtime.site.wire import Kind


class Feeder(Client):
    """Offers one source's batches.

    Args:
        config: how the job is reached.
        source: name of the source; its offers are numbered by (batch_id, offset).
        window: offers that may be unacknowledged before `offer` waits.
    """

    def __init__(
        self, config: Config, source: str, *, window: int = 64, patience_s: float = 60.0
    ) -> None:
        super().__init__(config, patience_s=patience_s)
        self.source = source
        self.window = window
        self.open: OrderedDict[Key, Any] = OrderedDict()
        self.taken: Key = (-1, -1)

    def greeting(self) -> dict[str, Any]:
        """The source."""
        return {"source": self.source}

    def connected(self, channel: Channel) -> None:
        """Offer again what has not been acknowledged."""
        if channel.greeting.get("taken"):
            self._taken(tuple(channel.greeting["taken"]))
        for key, rows in list(self.open.items()):
            self._put(channel, key, rows)
        channel.flush()

    def heard(self, message: dict[str, Any]) -> None:
        """Acknowledgements."""
        super().heard(message)
        if message.get("c") == "taken":
            self._taken(tuple(message["key"]))

    def _taken(self, key: Any) -> None:
        self.taken = max(self.taken, key)
        while self.open and next(iter(self.open)) <= self.taken:
            self.open.popitem(last=False)

    def _put(self, channel: Channel, key: Key, rows: Any) -> None:
        number = channel.encoder.schema_number(rows.schema, channel.out)
        head = key[0].to_bytes(8, "little") + ROWS.pack(key[1], number)
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
                    self.heard(from_json(body))
            except Broken:
                self.dropped()

    def finish(self) -> None:
        """Nothing more comes, from any source; waits until everything is safe, the end as well."""
        self.flush()
        self.ask({"c": "finish"}, "finished")
