"""The buffer of a data-forwarding node: units in flight, marks, cursors (thesis 3.2.1).

    entry            = sequence number, rows or none, marks: subset of {PROD, PRIM, SEC}
    PROD             <=> the rows are here
    PRIM / SEC       acknowledged by that destination (or sent, where no acknowledgement comes back)
    evict set `del`  marks that together let an entry go; kept by the operator, passed to each call

Entries without rows (*dangling*: acknowledged before this copy produced them) live outside the pool
(AMB-5) and have no place in production order until they are put. With cumulative acknowledgements
(BUF-C) there are none: `hi[d]` says up to where d has everything.

Time per operation is constant, amortised; `resync`, `swap` and `ack_all` are linear in the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import (
    LABELS,
    MARK_OF,
    MARK_PRIM,
    MARK_SEC,
    NOTHING,
    PROD,
    ProtocolError,
    marks_text,
    other,
)

BOTH = MARK_PRIM | MARK_SEC


class Entry(NamedTuple):
    """A unit that has been produced here; `place` counts productions."""

    place: int
    marks: int
    rows: Rows


class Buffer:
    """Units in flight to one consumer pair, in the order of their production.

    Args:
        cumulative: an acknowledgement stands for all units up to its number (BUF-C). Only for
            operators that preserve sequence, over links that preserve order.
    """

    __slots__ = ("cumulative", "cursor", "dangling", "entries", "hi", "last", "next_place", "order")

    def __init__(self, *, cumulative: bool = False) -> None:
        self.cumulative = cumulative
        self.entries: dict[int, Entry] = {}
        self.order: dict[int, int] = {}
        self.dangling: dict[int, int] = {}
        self.cursor = [0, 0]
        self.next_place = 0
        self.hi = [NOTHING, NOTHING]
        self.last = NOTHING

    def __len__(self) -> int:
        return len(self.entries)

    def clone(self) -> Buffer:
        """An independent copy that shares the rows."""
        new = Buffer(cumulative=self.cumulative)
        new.entries = self.entries.copy()
        new.order = self.order.copy()
        new.dangling = self.dangling.copy()
        new.cursor = self.cursor.copy()
        new.next_place = self.next_place
        new.hi = self.hi.copy()
        new.last = self.last
        return new

    def freeze(self, evict: int, sends: Sequence[bool]) -> tuple[object, ...]:
        """The state as one hashable value.

        Left out is what nothing depends on: marks outside `evict`, which the next fold-in sets
        anew, and the cursors of destinations that nothing is sent to, which are reset before it is.
        """
        return (
            tuple((sn, e.place, e.marks & evict, e.rows) for sn, e in self.entries.items()),
            tuple(sorted((sn, marks & evict) for sn, marks in self.dangling.items())),
            self._canonical_cursor(0) if sends[0] else 0,
            self._canonical_cursor(1) if sends[1] else 0,
            self.next_place,
            tuple(self.hi),
        )

    def _canonical_cursor(self, d: int) -> int:
        """Cursors that stand between the same two entries are the same."""
        at = self.cursor[d]
        while at < self.next_place and at not in self.order:
            at += 1
        return at

    # ---- delivery

    def peek(self, d: int) -> tuple[int, Rows] | None:
        """BUF-1: the first unit at or after the cursor that d has not got."""
        place, mark = self.cursor[d], MARK_OF[d]
        while place < self.next_place:
            sn = self.order.get(place)
            if sn is not None:
                entry = self.entries[sn]
                if not entry.marks & mark:
                    self.cursor[d] = place
                    return sn, entry.rows
            place += 1
        self.cursor[d] = place
        return None

    def advance(self, d: int) -> None:
        """BUF-2: move the cursor past the unit that `peek` gave."""
        self.cursor[d] += 1

    # ---- marks

    def needs_room(self, sn: int) -> bool:
        """Whether putting this unit needs a free place of the pool (section 3.4, rule a)."""
        return sn not in self.dangling and not self._implied(sn)

    def put(self, rows: Rows, sn: int, evict: int) -> None:
        """BUF-3: the unit has been produced here; it stays unless all of `evict` is there already.

        Raises:
            ProtocolError: the number has been put before (BI-5).
        """
        if sn in self.entries or (sn <= self.last and self.cumulative):
            raise ProtocolError(f"BUF-3: unit {sn} is produced twice")
        self.last = max(self.last, sn)
        marks = PROD | self.dangling.pop(sn, 0) | self._implied(sn)
        place = self.next_place
        self.next_place += 1
        if evict & ~marks:
            self.entries[sn] = Entry(place, marks, rows)
            self.order[place] = sn

    def _implied(self, sn: int) -> int:
        """Marks that cumulative acknowledgements give to a unit of this number."""
        if not self.cumulative:
            return 0
        return (MARK_PRIM if sn <= self.hi[0] else 0) | (MARK_SEC if sn <= self.hi[1] else 0)

    def ack(self, sn: int, d: int, evict: int) -> None:
        """BUF-4: d has the unit (and, if cumulative, all before it)."""
        if self.cumulative:
            for held in self._between(self.hi[d], sn):
                self._mark(held, MARK_OF[d], evict)
            self.hi[d] = max(self.hi[d], sn)
        elif sn in self.entries:
            self._mark(sn, MARK_OF[d], evict)
        else:
            self.dangling[sn] = self.dangling.get(sn, 0) | MARK_OF[d]

    def _between(self, after: int, to: int) -> list[int]:
        """Numbers of the entries above `after`, up to `to`; production order is their order."""
        numbers = []
        for held in self.entries:
            if held > to:
                break
            if held > after:
                numbers.append(held)
        return numbers

    def _mark(self, sn: int, mark: int, evict: int) -> None:
        entry = self.entries[sn]
        marks = entry.marks | mark
        if evict & ~marks:
            self.entries[sn] = Entry(entry.place, marks, entry.rows)
        else:
            self._remove(sn)

    def _remove(self, sn: int) -> None:
        del self.order[self.entries.pop(sn).place]

    def ack_all(self, d: int, evict: int) -> None:
        """BUF-5: d died. `evict` is the set from before; the caller then takes d out of it."""
        for sn in list(self.entries):
            self._mark(sn, MARK_OF[d], evict)
        self.dangling = {
            sn: marks | MARK_OF[d] for sn, marks in self.dangling.items() if marks & ~MARK_OF[d]
        }
        self.hi[d] = NOTHING

    # ---- take-over and fold-in

    def reset(self, d: int) -> None:
        """BUF-6, take-over: deliver from the first unit that d has not got. No mark changes."""
        first = next(iter(self.entries.values()), None)
        self.cursor[d] = self.next_place if first is None else first.place

    def resync(self, d: int) -> None:
        """BUF-7, fold-in: d has what the survivor has, no more and no less.

        After it every entry with rows is marked {PROD} alone (BI-6). Dangling entries of the
        survivor stay, with both marks: the new copy's state holds what they stand for.
        """
        mine, theirs = MARK_OF[d], MARK_OF[other(d)]
        for sn, entry in list(self.entries.items()):
            if entry.marks & theirs:
                self._remove(sn)
            else:
                self.entries[sn] = Entry(entry.place, entry.marks & ~mine, entry.rows)
        self.dangling = {sn: BOTH for sn, marks in self.dangling.items() if marks & theirs}
        self.hi[d] = self.hi[other(d)]
        self.reset(d)

    def swap(self) -> None:
        """BUF-8: the state arrives at the other copy, where PRIM and SEC change places (CU-17)."""

        def swapped(marks: int) -> int:
            return (marks & PROD) | (marks & MARK_PRIM) << 1 | (marks & MARK_SEC) >> 1

        self.entries = {sn: e._replace(marks=swapped(e.marks)) for sn, e in self.entries.items()}
        self.dangling = {sn: swapped(marks) for sn, marks in self.dangling.items()}
        self.cursor.reverse()
        self.hi.reverse()

    # ---- self-examination

    def validate(self, evict: int, *, sent_for_good: Sequence[int] = ()) -> None:
        """Invariants BI-1 to BI-4.

        Args:
            evict: marks that together let an entry go.
            sent_for_good: destinations that acknowledge nothing here: what has been sent is marked.

        Raises:
            ProtocolError: one of them does not hold.
        """
        for sn, entry in self.entries.items():
            if not entry.marks & PROD:
                raise ProtocolError(f"BI-1: unit {sn} has rows but not PROD")
            if not evict & ~entry.marks:
                raise ProtocolError(
                    f"BI-2: unit {sn} has {marks_text(entry.marks)} and should be gone"
                )
            for d in sent_for_good:
                if entry.place < self.cursor[d] and not entry.marks & MARK_OF[d]:
                    raise ProtocolError(f"BI-3: unit {sn} is passed over and not under way to {d}")
            if self.order.get(entry.place) != sn:
                raise ProtocolError(f"unit {sn} has lost its place")
            if missing := self._implied(sn) & ~entry.marks:
                raise ProtocolError(
                    f"BUF-C: unit {sn} is acknowledged and not marked {marks_text(missing)}"
                )
        if len(self.order) != len(self.entries):
            raise ProtocolError("a place without a unit")
        for sn, marks in self.dangling.items():
            if marks & PROD or sn in self.entries:
                raise ProtocolError(f"BI-4: unit {sn} dangles and is produced")
        if any(at > self.next_place for at in (self.cursor[d] for d in LABELS)):
            raise ProtocolError("a cursor beyond the last unit")
