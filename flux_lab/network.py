"""The links between the nodes of a world: a line per pair, over connections if there are.

Without connections a line is a FIFO of limited room. With them a line holds what has arrived of its
channel, and the multiplexers decide what may be sent and when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flux_lab.checks import ViolationError
from flux_lab.connections import Connections
from flux_lab.papers.protocol.channels import Envelope
from flux_lab.papers.protocol.messages import Data, Message, Progress
from flux_runtime.protocol.vocabulary import Node

Link = tuple[Node, Node]


class Network:
    """All lines.

    Args:
        capacity: rows and progress messages that a line holds, or credits per channel; control
            always fits.
        multiplexed: one connection per pair of sites.

    Attributes:
        lines: (from, to) -> messages to be read.
        closed: lines that are broken; nothing passes any more.
        connections: if multiplexed.
    """

    def __init__(self, capacity: int, *, multiplexed: bool) -> None:
        self.capacity = capacity
        self.lines: dict[Link, tuple[Message, ...]] = {}
        self.closed: set[Link] = set()
        self.connections = Connections(capacity) if multiplexed else None

    def room(self, src: Node, dst: Node) -> bool:
        """Whether one more unit may be sent."""
        if self.connections is not None:
            return self.connections.room(src, dst)
        held = self.lines.get((src, dst), ())
        return sum(1 for m in held if isinstance(m, Data | Progress)) < self.capacity

    def send(self, src: Node, dst: Node, message: Message) -> None:
        """Send a message on its way."""
        if self.connections is not None:
            self.connections.send(src, dst, message)
        elif (src, dst) not in self.closed:
            self.append(src, dst, message)

    def append(self, src: Node, dst: Node, message: Message) -> None:
        """A message has arrived."""
        self.lines[src, dst] = (*self.lines.get((src, dst), ()), message)

    def take(self, src: Node, dst: Node) -> Message:
        """Remove the head of a line.

        Raises:
            ViolationError: the channel's head is another message.
        """
        first, *rest = self.lines[src, dst]
        if rest:
            self.lines[src, dst] = tuple(rest)
        else:
            del self.lines[src, dst]
        if self.connections is not None and self.connections.take(src, dst) != first:
            raise ViolationError(f"the channel from {src} to {dst} is out of order")
        return first

    # ---- connections

    def frames(self) -> Iterator[tuple[int, int]]:
        """(reader, writer) of every connection that has a frame to be read."""
        return self.connections.frames() if self.connections is not None else iter(())

    def carry(self, there: int, here: int) -> tuple[list[Envelope], list[Node]]:
        """Read the next frame of site `here` at `there`; gives what arrived, and who may go on."""
        assert self.connections is not None
        return self.connections.carry(there, here)

    def carry_locally(self, node: Node) -> tuple[Sequence[Envelope], Sequence[Node]]:
        """Let what nodes of one site have for one another arrive at once."""
        if self.connections is None:
            return (), ()
        return self.connections.carry_locally(self.connections.site(node))

    # ---- faults

    def close(self, one: Node, two: Node) -> None:
        """A line breaks both ways with all that is on it."""
        for link in ((one, two), (two, one)):
            self.lines.pop(link, None)
            self.closed.add(link)

    def forget(self, site: int, dead: Node) -> None:
        """A site learns of a death and drops what it has to and from the dead."""
        if self.connections is None:
            return
        self.connections.bury(site, dead)
        for src, dst in [link for link in self.lines if link[0] == dead]:
            if self.connections.site(dst) == site:
                del self.lines[src, dst]

    def remove(self, node: Node, site: int) -> None:
        """A node is gone, with what was sent to it; what it sent to other sites may arrive."""
        self.forget(site, node)
        for link in [link for link in self.lines if link[1] == node]:
            del self.lines[link]
