"""Admission of frames from another site: nothing that this site has no business saying.

Whoever holds the job's key may be mistaken, or of an older view; what it says must not reach a
machine that does not expect it. Limits are those of the protocol, so that memory is bounded.
"""

from __future__ import annotations

from typing import Final, Protocol

from flux_lab.papers.protocol.channels import Channel, Frame, Multiplexer, takes_credit
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import INGRESS, Node
from flux_runtime.site.wire import Malformed

CHANNEL_MAX: Final = 1 << 16
"""Unread messages of one channel; the protocol's own rules keep far below."""


class Receiver(Protocol):
    """The receiver of a frame: a `Host`."""

    dataflow: Dataflow
    me: int
    where: dict[Node, int]
    credits: int


def admitted(host: Receiver, site: int, mux: Multiplexer, frame: Frame) -> Frame:
    """The frame, without credits of channels that are no more.

    Args:
        host: the receiver.
        site: the sender.
        mux: the connection between them.
        frame: what it sent.

    Raises:
        Malformed: that site has no business saying so, or ignores its credits.
    """
    for channel, n in frame.credits:
        if not 0 < n <= mux.spent.get(channel, n):
            raise Malformed(f"{n} credits that have not been spent")
    if frame.credits:
        known = tuple((c, n) for c, n in frame.credits if c in mux.spent)
        frame = Frame(frame.envelopes, known)
    for src, dst, message in ((e.src, e.dst, e.message) for e in frame.envelopes):
        _check(host, site, mux, Channel(src, dst), takes_credit(message))
    return frame


def _check(host: Receiver, site: int, mux: Multiplexer, channel: Channel, credit: bool) -> None:
    src, dst = channel
    exist = _exists(host.dataflow, dst) and _exists(host.dataflow, src)
    if host.where.get(src, site) != site or not exist:
        raise Malformed(f"a message from {src} to {dst} by site {site}")
    if host.where.get(dst, host.me) != host.me or abs(src.stage - dst.stage) != 1:
        raise Malformed(f"a message to {dst}, which is not here")
    held = mux.inbox.get(dst, {}).get(src)
    if held is None:
        return
    if len(held) >= CHANNEL_MAX:
        raise Malformed(f"{len(held)} unread messages from {src}")
    if credit:
        unread = sum(map(takes_credit, held))
        if unread + mux.owed.get(channel, 0) >= host.credits:
            raise Malformed(f"rows without credit from {src}")


def _exists(dataflow: Dataflow, node: Node) -> bool:
    shape = dataflow.shape
    if not INGRESS <= node.stage <= len(shape.widths):
        return False
    width = 1 if shape.outside(node.stage) else shape.widths[node.stage]
    return node.part < width and node.copy < 2
