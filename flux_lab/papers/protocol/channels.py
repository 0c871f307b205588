"""One connection per pair of sites, whatever the number of partitions: channels with credits.

The thesis opens a connection per pair of operators, 4 n m of them between n and m partition pairs.
All the protocol needs is that messages from one node to another stay in order, so the channels of
all nodes of two sites share one connection. What that must not cost is independence: a partition
that is not read (paused, or waiting for its merge) may stop neither another partition's rows nor
any acknowledgement. Hence *credits*: per channel the sender may have as many units under way as the
receiver has promised room for. Rows and progress take one credit each; all other messages are few
by the protocol's own rules, need none, and keep their place in the order of their channel.

`Multiplexer` is one end of such a connection. It neither encodes nor sends: the host writes what
`next_frame` gives, hands in what it has read, and closes the connection for good if either end dies
(a link failure is the failure of an end, section 2.1), so nothing is ever sent again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from flux_lab.papers.protocol.messages import Data, Message, Progress
from flux_runtime.protocol.vocabulary import Node, ProtocolError

CREDITS: Final = 4
"""Units under way per channel; little, since the pool of the producer is where room is (6.1)."""
FRAME_MAX: Final = 1024
"""Messages in one frame, so that a frame's size is bounded."""


class Channel(NamedTuple):
    """One direction between two nodes."""

    src: Node
    dst: Node


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its two ends."""

    src: Node
    dst: Node
    message: Message


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: all that one site has for another in one turn.

    Attributes:
        envelopes: messages, in the order in which they were sent.
        credits: (channel, units) that the receiver of that channel has taken since.
    """

    envelopes: tuple[Envelope, ...]
    credits: tuple[tuple[Channel, int], ...]


def takes_credit(message: Message) -> bool:
    """Whether the message may have to wait for room at the receiver."""
    return isinstance(message, Data | Progress)


class Multiplexer:
    """One end of the connection between two sites.

    Args:
        credits: units that each channel may have under way; the same at both ends.
        frame_max: most messages of a frame.
    """

    __slots__ = ("credits", "frame_max", "gone", "inbox", "outbox", "owed", "spent")

    def __init__(self, *, credits: int = CREDITS, frame_max: int = FRAME_MAX) -> None:
        if credits < 1 or frame_max < 1:
            raise ValueError(f"credits {credits} and messages per frame {frame_max} are positive")
        self.credits = credits
        self.frame_max = frame_max
        self.outbox: deque[Envelope] = deque()
        self.spent: dict[Channel, int] = {}
        self.owed: dict[Channel, int] = {}
        self.inbox: dict[Node, dict[Node, deque[Message]]] = {}
        self.gone: set[Node] = set()

    # ---- sending

    def room(self, src: Node, dst: Node) -> bool:
        """Whether the channel has a credit left, so that rows may be taken out of a buffer."""
        return self.spent.get(Channel(src, dst), 0) < self.credits

    def send(self, src: Node, dst: Node, message: Message) -> None:
        """Queue a message behind all earlier ones of its channel.

        Raises:
            ProtocolError: it needs a credit and there is none (`room`).
        """
        if src in self.gone or dst in self.gone:
            return
        if takes_credit(message):
            channel = Channel(src, dst)
            spent = self.spent.get(channel, 0)
            if spent >= self.credits:
                raise ProtocolError(f"{message} from {src} to {dst} without a credit")
            self.spent[channel] = spent + 1
        self.outbox.append(Envelope(src, dst, message))

    def due(self) -> bool:
        """Whether a frame should be written now.

        Credits alone are worth one when a channel is owed half of what it may have under way; until
        then they travel with messages. No sender waits for them in vain: what it has used up is
        either owed or still unread.
        """
        return bool(self.outbox) or 2 * max(self.owed.values(), default=0) >= self.credits

    def next_frame(self) -> Frame | None:
        """Everything sent since the last frame, in one; None if nothing is due."""
        if not self.due():
            return None
        n = min(len(self.outbox), self.frame_max)
        envelopes = tuple(self.outbox.popleft() for _ in range(n))
        credits, self.owed = tuple(self.owed.items()), {}
        return Frame(envelopes, credits)

    # ---- receiving

    def receive(self, frame: Frame) -> set[Node]:
        """Take a frame; gives the local nodes that may now read or send something."""
        touched: set[Node] = set()
        for channel, n in frame.credits:
            if channel.src not in self.gone and channel.dst not in self.gone:
                self.spent[channel] -= n
                touched.add(channel.src)
        for envelope in frame.envelopes:
            src, dst = envelope.src, envelope.dst
            if src not in self.gone and dst not in self.gone:
                self.inbox.setdefault(dst, {}).setdefault(src, deque()).append(envelope.message)
                touched.add(dst)
        return touched

    def readable(self, dst: Node) -> list[Node]:
        """Nodes of the other site whose channel to `dst` has a message at hand."""
        return list(self.inbox.get(dst, ()))

    def head(self, src: Node, dst: Node) -> Message | None:
        """The message at the head of a channel; it stays there until `take`."""
        queue = self.inbox.get(dst, {}).get(src)
        return queue[0] if queue else None

    def take(self, src: Node, dst: Node) -> Message:
        """Remove the head of a channel; its room goes back to the sender."""
        held = self.inbox[dst]
        queue = held[src]
        message = queue.popleft()
        if not queue:
            del held[src]
        if takes_credit(message):
            channel = Channel(src, dst)
            self.owed[channel] = self.owed.get(channel, 0) + 1
        return message

    # ---- nodes that are gone

    def forget(self, node: Node) -> None:
        """The node, on either site, is dead: drop all its channels, now and for good."""
        self.gone.add(node)
        self.outbox = deque(e for e in self.outbox if node not in (e.src, e.dst))
        for table in (self.spent, self.owed):
            for channel in [c for c in table if node in c]:
                del table[channel]
        self.inbox.pop(node, None)
        for held in self.inbox.values():
            held.pop(node, None)
