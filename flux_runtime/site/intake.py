"""The ingress: takes clients' batches in order, and goes on behind what all copies have done.

`offer` is idempotent: offers of one source are numbered by (batch, offset), and what is not above
the last one is a replay. A batch is acknowledged to its client when all copies that read it have
done it; until then it is in the journal. A new leader feeds anew what is there (RS-21): copies drop
what they have (RS-3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flux_runtime.operators.rows import number as number_rows
from flux_runtime.protocol.vocabulary import END, INGRESS, NOTHING, Node
from flux_runtime.site.journal import END_KEY, Journal, Key, Record
from flux_runtime.site.resume_host import ResumeHost

OnTaken = Callable[[str, Key], None]


class Intake:
    """Feeds the ingress of a host.

    Args:
        host: hosts the ingress.
        journal: of this job.
        window: batches that are fed and not yet acknowledged by all copies.
        on_taken: called with source and key once a batch is safe.
        first: number of the first batch.

    Attributes:
        again: batches of the journal that are to be fed before others.
        fed: batches that have been fed, or had been when the journal was begun.
        ended: the end of the input is in the journal.
        batches: of the input, once it has ended.
    """

    def __init__(
        self, host: Any, journal: Journal, *, window: int, on_taken: OnTaken, first: int = 0
    ) -> None:
        self.host: ResumeHost = host
        self.first = first
        self.journal = journal
        self.window = window
        self.on_taken = on_taken
        self.waiting: deque[tuple[str, Key, Any]] = deque()
        self.under_way: deque[tuple[int, str, Key]] = deque()
        self.seen: dict[str, Key] = {}
        self.taken: dict[str, Key] = {}
        self.on_fed: Callable[[int], None] = lambda _: None
        self.again: deque[Record] = deque()
        self.fed = 0
        self.ended = False
        self.batches = 0
        self.rows = 0

    @property
    def last(self) -> int:
        """The batch that was fed last; END: and no more come."""
        return END if self.ended and not self.again else self.fed - 1

    def begin(self, epoch: int, controller: Any, hi: Mapping[Node, int], *, position: int) -> None:
        """RS-21: go on with the journal's batches."""
        records = self.journal.read()
        self.again.extend(record for record in records if record.rows is not None)
        self.ended = any(record.key == END_KEY for record in records)
        self.fed = self.again[0].number if self.again else max(self.first, self.journal.first)
        self.under_way.extend((r.number, r.source, r.key) for r in self.again)
        self.batches = self.fed + len(self.again)
        self._take_journal(epoch, self.batches, list(self.again))
        self.host.begin(self.fed)

    def _take_journal(self, epoch: int, first: int, records: Sequence[Record]) -> None:
        """Write it from here on, as `Journal.begin` does; what has left it has been taken."""
        self.seen.update(self.journal.last)
        open_ = {source for _, source, _ in self.under_way}
        self.taken.update((s, key) for s, key in self.seen.items() if s not in open_)
        self.journal.begin(epoch, first, records)

    def takes(self, source: str, key: Key) -> bool:
        """Whether a batch has been taken, or may be."""
        return not self.ended or key <= self.seen.get(source, (NOTHING, NOTHING))

    def offer(self, source: str, key: Key, rows: Any) -> None:
        """Take a batch that `takes` allows, unless it has been taken."""
        if key > self.seen.get(source, (NOTHING, NOTHING)):
            self.seen[source] = key
            self.waiting.append((source, key, rows))

    def finish(self) -> None:
        """No more input comes from anybody."""
        self.waiting.append(("", END_KEY, None))

    def pump(self) -> None:
        """Feed what may be fed, and acknowledge what all copies have done."""
        host = self.host
        while host.wants_input and (self.again or self.waiting):
            if self.again:
                record = self.again.popleft()
                self._feed(record.number, record.rows)
                continue
            if len(self.under_way) >= self.window:
                break
            source, key, rows = self.waiting.popleft()
            self.journal.append(Record(self.fed, source, key, rows))
            if key == END_KEY:
                self.ended, self.batches = True, self.fed
                self.waiting.clear()
                break
            self.under_way.append((self.fed, source, key))
            self.rows += rows.num_rows
            self.on_fed(self.fed)
            self._feed(self.fed, rows)
        self._acknowledge(min(self.fed, host.site.low[INGRESS]))

    def _feed(self, number: int, rows: Any) -> None:
        self.host.feed(number_rows(rows, number))
        self.fed = number + 1

    def _acknowledge(self, low: int) -> None:
        """All that is below this batch is safe."""
        if self.under_way and self.under_way[0][0] < low:
            while self.under_way and self.under_way[0][0] < low:
                _, source, key = self.under_way.popleft()
                self.taken[source] = key
                self.on_taken(source, key)
            self.journal.trim(low)
