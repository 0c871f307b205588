"""One connection per pair of sites in a world without a clock: the real multiplexers at its ends.

What a node sends goes into its site's end of the connection; a *frame* carries it over, in a step
of its own. Ingress and egress share a site that never fails. Nodes of one site share a multiplexer
too, whose frames arrive at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flux_lab.checks import ViolationError
from flux_lab.papers.protocol.channels import Envelope, Frame, Multiplexer, takes_credit
from flux_lab.papers.protocol.messages import Message
from flux_runtime.protocol.vocabulary import Node

LEADER: Final = -1
"""The site of ingress and egress."""


class Connections:
    """The ends of all connections, and what has been written to those whose writer is dead.

    Args:
        credits: units under way per channel.

    Attributes:
        where: node -> its site, for good.
        ends: (site, other site) -> the multiplexer on the first one.
        written: (from, to) -> frames that a site had written when it died.
        closed: pairs of sites whose connection is broken.
    """

    def __init__(self, credits: int) -> None:
        self.credits = credits
        self.where: dict[Node, int] = {}
        self.ends: dict[tuple[int, int], Multiplexer] = {}
        self.written: dict[tuple[int, int], tuple[Frame, ...]] = {}
        self.dead: set[int] = set()
        self.closed: set[tuple[int, int]] = set()

    def site(self, node: Node) -> int:
        """Where a node stands or stood."""
        return self.where.get(node, LEADER)

    def end(self, here: int, there: int) -> Multiplexer:
        """A site's end of the connection to another."""
        result = self.ends.get((here, there))
        if result is None:
            result = self.ends[here, there] = Multiplexer(credits=self.credits)
        return result

    # ---- sending

    def room(self, src: Node, dst: Node) -> bool:
        """Whether the channel has a credit left."""
        return self.end(self.site(src), self.site(dst)).room(src, dst)

    def send(self, src: Node, dst: Node, message: Message) -> None:
        """Put a message into the connection; what goes to a dead site is lost."""
        here, there = self.site(src), self.site(dst)
        if here not in self.dead:
            self.end(here, there).send(src, dst, message)

    def frames(self) -> Iterator[tuple[int, int]]:
        """(reader, writer) of every connection that has a frame to be read."""
        for (here, there), mux in self.ends.items():
            if (mux.outbox or mux.owed) and here != there and self._open(here, there) and mux.due():
                yield there, here
        for (here, there), frames in self.written.items():
            if frames and self._open(there, there):
                yield there, here

    def _open(self, here: int, there: int) -> bool:
        return there not in self.dead and (here, there) not in self.closed

    # ---- receiving

    def carry(self, there: int, here: int) -> tuple[list[Envelope], list[Node]]:
        """Read the next frame of `here` at `there`.

        Returns:
            What has arrived, and the nodes that may go on.
        """
        held = self.written.get((here, there))
        if held:
            frame, self.written[here, there] = held[0], held[1:]
            return self._receive(there, here, frame)
        next_frame = self.end(here, there).next_frame()
        return self._receive(there, here, next_frame) if next_frame is not None else ([], [])

    def carry_locally(self, site: int) -> tuple[list[Envelope], list[Node]]:
        """Messages between nodes of one site arrive at once."""
        arrived: list[Envelope] = []
        touched: list[Node] = []
        mux = self.ends.get((site, site))
        while mux is not None and (frame := mux.next_frame()) is not None:
            envelopes, nodes = self._receive(site, site, frame)
            arrived += envelopes
            touched += nodes
        return arrived, touched

    def _receive(self, there: int, here: int, frame: Frame) -> tuple[list[Envelope], list[Node]]:
        mux = self.end(there, here)
        known = tuple((channel, n) for channel, n in frame.credits if channel in mux.spent)
        touched = mux.receive(Frame(frame.envelopes, known))
        arrived = [e for e in frame.envelopes if e.src not in mux.gone and e.dst not in mux.gone]
        return arrived, sorted(touched)

    def take(self, src: Node, dst: Node) -> Message:
        """Remove the head of a channel that has arrived."""
        return self.end(self.site(dst), self.site(src)).take(src, dst)

    # ---- faults

    def bury(self, site: int, node: Node) -> None:
        """The site learns that a node is dead, and forgets it."""
        for (here, _), mux in self.ends.items():
            if here == site:
                mux.forget(node)

    def crash(self, site: int) -> None:
        """A site is gone; what it had written may still be read."""
        for here, there in [link for link in self.ends if link[0] == site]:
            mux = self.ends.pop((here, there))
            while there != here and (frame := mux.next_frame()) is not None:
                if (here, there) not in self.closed:
                    self.written[here, there] = (*self.written.get((here, there), ()), frame)
        self.dead.add(site)

    def close(self, one: int, two: int) -> None:
        """A connection breaks with all that is under way."""
        self.closed |= {(one, two), (two, one)}
        self.written.pop((one, two), None)
        self.written.pop((two, one), None)

    # ---- the end

    def balanced(self) -> None:
        """Once nothing is under way: every credit is with the sender, owed, or unread.

        Raises:
            ViolationError: a credit is lost, or there is one too many.
        """
        for (here, there), mux in self.ends.items():
            lost = {here, there} & self.dead or (here, there) in self.closed
            if lost or (there, here) not in self.ends:
                continue
            far = self.ends[there, here]
            for channel, spent in mux.spent.items():
                if channel.src in far.gone or channel.dst in far.gone:
                    continue
                unread = far.inbox.get(channel.dst, {}).get(channel.src, ())
                far_credits = far.owed.get(channel, 0) + sum(map(takes_credit, unread))
                if far_credits != spent:
                    raise ViolationError(
                        f"{spent} credits spent on {channel}, {far_credits} with the receiver"
                    )
