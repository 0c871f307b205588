"""Events of a leader, and its instructions: two tables of values.

`LeaderState.handle` takes one of `EVENTS` and gives some of `INSTRUCTIONS`; `Leader` hands in the
first and carries out the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site.control_messages import (
    AnyEntry,
    AnyNotice,
    Message,
    Registration,
    Role,
)
from flux_runtime.site.journal import Key
from flux_runtime.site.ledger import Event as RecordedEvent
from flux_runtime.site.ledger import Layout, Ledger, Placing
from flux_runtime.site.steps import Link, Step

# ---- events


@dataclass(frozen=True, slots=True)
class Elected(Step):
    """The term begins."""

    leader: str


@dataclass(frozen=True, slots=True)
class Recorded(Step):
    """The oldest `count` events that were to be recorded are safe."""

    count: int


@dataclass(frozen=True, slots=True)
class Tick(Step):
    """Time has passed; `members` have a seat in ZooKeeper, None: nobody knows yet."""

    members: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class SiteRegistered(Step):
    """A site says who it is, on a new link."""

    link: Link
    said: Registration


@dataclass(frozen=True, slots=True)
class ClientGreeted(Step):
    """A client says what it feeds, on a new link; `taken` is the last offer of it that is safe."""

    link: Link
    source: str
    taken: Key | None


@dataclass(frozen=True, slots=True)
class FollowerGreeted(Step):
    """A controller watches this link."""

    link: Link


@dataclass(frozen=True, slots=True)
class SiteSaid(Step):
    """A control message of a site."""

    link: Link
    message: Message


@dataclass(frozen=True, slots=True)
class ClientSaid(Step):
    """A control message of a client."""

    link: Link
    message: Message


@dataclass(frozen=True, slots=True)
class LinkClosed(Step):
    """A connection is gone."""

    link: Link
    why: str


@dataclass(frozen=True, slots=True)
class MemberLeft(Step):
    """ZooKeeper says that this incarnation has no session any more."""

    identity: str


@dataclass(frozen=True, slots=True)
class EndsNoticed(Step):
    """Reports of ingress and egress."""

    notices: tuple[AnyNotice, ...]


@dataclass(frozen=True, slots=True)
class Fed(Step):
    """The ingress has been fed up to a batch."""

    batch: int


@dataclass(frozen=True, slots=True)
class OfferSafe(Step):
    """Every copy has what a source has offered up to a key."""

    source: str
    key: Key


@dataclass(frozen=True, slots=True)
class InputEnded(Step):
    """The end of the input, which has so many batches, is in the journal."""

    batches: int


# ---- instructions


@dataclass(frozen=True, slots=True)
class Record(Step):
    """Append to the record; `Recorded` follows, in this order."""

    event: RecordedEvent


@dataclass(frozen=True, slots=True)
class KeepState(Step):
    """Keep the state in place of the events that led to it."""

    state: bytes
    events: int


@dataclass(frozen=True, slots=True)
class Greet(Step):
    """Say who speaks."""

    link: Link
    hearer: Role
    greeting: Message


@dataclass(frozen=True, slots=True)
class Tell(Step):
    """Send a control message, unless the link is gone."""

    link: Link
    message: Message


@dataclass(frozen=True, slots=True)
class Close(Step):
    """Close a link."""

    link: Link
    why: str


@dataclass(frozen=True, slots=True)
class Attach(Step):
    """A link is that of a site from now on, with nothing under way."""

    link: Link
    site: int


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """A site is in the view."""

    site: int


@dataclass(frozen=True, slots=True)
class Disconnect(Step):
    """A site is not in the view any more."""

    site: int


@dataclass(frozen=True, slots=True)
class LayOut(Step):
    """Copies stand like this."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Extend(Step):
    """The next entry of the controller's log."""

    entry: AnyEntry


@dataclass(frozen=True, slots=True)
class TrimLog(Step):
    """Nobody needs the controller's log below a position."""

    below: int


@dataclass(frozen=True, slots=True)
class RebuildEnds(Step):
    """Rebuild ingress and egress: the copies of the first stage have received so much."""

    epoch: int
    controller: Placing
    received: Mapping[Node, int]
    position: int


@dataclass(frozen=True, slots=True)
class EndInput(Step):
    """No more input comes from anybody."""


@dataclass(frozen=True, slots=True)
class Committed(Step):
    """The results of all batches below an offset are where they belong."""

    offset: int


@dataclass(frozen=True, slots=True)
class AnswerStatus(Step):
    """Tell a client what the job looks like."""

    link: Link


@dataclass(frozen=True, slots=True)
class KeepReport(Step):
    """Write what a site has reported."""

    site: int
    identity: str
    message: Any


@dataclass(frozen=True, slots=True)
class Fence(Step):
    """Take an incarnation's seat in ZooKeeper away."""

    identity: str


@dataclass(frozen=True, slots=True)
class Note(Step):
    """Note an event in the run folder."""

    kind: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoteLoss(Step):
    """Note in the run folder that a pair has lost both copies."""

    pair: Pair
    why: str


@dataclass(frozen=True, slots=True)
class End(Step):
    """The job has ended: end, once everybody has been told."""


EVENTS: Final = (
    Elected, Recorded, Tick, SiteRegistered, ClientGreeted, FollowerGreeted, SiteSaid, ClientSaid,
    LinkClosed, MemberLeft, EndsNoticed, Fed, OfferSafe, InputEnded,
)  # fmt: skip
"""What happens to a leader."""

INSTRUCTIONS: Final = (
    Record, KeepState, Greet, Tell, Close, Attach, Connect, Disconnect, LayOut, Extend, TrimLog,
    RebuildEnds, EndInput, Committed, AnswerStatus, KeepReport, Fence, Note, NoteLoss,
    End,
)  # fmt: skip
"""What it has done about it."""


class Term(Protocol):
    """The whole of a leader's state, as its parts see it.

    Attributes:
        ledger: all events so far.
        now: seconds.
        began: ingress and egress have been rebuilt.
        committed: the offset below which results are where they belong.
    """

    ledger: Ledger
    now: float
    began: bool
    committed: int

    @property
    def collector(self) -> Pair:
        """The pair with the results."""
        ...

    @property
    def attached(self) -> Mapping[int, Link]:
        """Sites that are connected."""
        ...

    def emit(self, instruction: Step) -> None:
        """Have something done."""

    def tell(self, link: Link, message: Message) -> None:
        """Have a control message sent."""

    def broadcast(self, message: Message) -> None:
        """Have a control message sent to all sites."""

    def note(self, kind: str, **details: object) -> None:
        """Have an event noted in the run folder."""

    def detach(self, number: int) -> None:
        """A site has left the view."""

    def lost(self, pair: Pair, why: str) -> None:
        """Both copies of a pair are gone."""

    def move(self, pair: Pair, copy: int, site: int, *, by: str, then: Callable[[], None]) -> None:
        """Have a copy move, if that is possible once it has been recorded."""

    def stop(self, then: Callable[[], None]) -> None:
        """End the job."""
