"""The pair at the other end, as both an inlet and an outlet know it."""

from __future__ import annotations

from flux_runtime.protocol.vocabulary import PRIM, Node, Status, other, use_text


class Neighbour:
    """A neighbouring pair, as a node sees it; everything but `exp` per label.

    Attributes:
        peers: the pair's nodes.
        status: their modes.
        conn: what the links to them are used for.
        ver: the latest marker that was read of each.
        exp: latest attempt that the controller announced.
    """

    __slots__ = ("conn", "exp", "peers", "status", "ver")

    peers: list[Node | None]
    status: list[Status]
    conn: list[int]
    ver: list[int]
    exp: int

    def _ahead(self, new: int) -> bool:
        """Whether the new copy's marker has been read, and that of the copy it came from not."""
        peer = self.peers[new]
        return (
            peer is not None
            and self.status[new] is Status.ACTIVE
            and peer.life == self.ver[new] == self.exp != self.ver[other(new)]
        )

    def _links(self) -> str:
        """The links to the pair, for people."""
        return " ".join(
            f"{'PRIM' if d == PRIM else 'SEC'}={peer}:{self.status[d].name}{use_text(self.conn[d])}"
            f"v{self.ver[d]}"
            for d, peer in enumerate(self.peers)
            if peer
        )
