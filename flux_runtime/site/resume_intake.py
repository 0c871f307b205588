"""The ingress of the resume protocol: it goes on behind what all copies have done.

As `intake`; but a new leader asks nobody how far copies have come. It feeds anew what is in the
journal, where all is that some copy has not done. Copies drop what they have (RS-3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from flux_runtime.operators.rows import number as number_rows
from flux_runtime.protocol.vocabulary import END, INGRESS, Node
from flux_runtime.site.intake import Intake
from flux_runtime.site.journal import END_KEY, Record
from flux_runtime.site.resume_host import ResumeHost


class ResumeIntake(Intake):
    """Feeds the ingress of a host.

    Attributes:
        again: batches of the journal that are to be fed before others.
        fed: batches that have been fed, or had been when the journal was begun.
    """

    host: ResumeHost  # type: ignore[assignment]

    def __init__(self, host: Any, *args: Any, **options: Any) -> None:
        super().__init__(host, *args, **options)
        self.again: deque[Record] = deque()
        self.fed = 0

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
        self._take_journal(epoch, self.fed + len(self.again))
        self.batches = self.fed + len(self.again)
        self.host.begin(self.fed)

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
