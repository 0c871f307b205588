"""Frames of the papers' protocol as bytes, and back.

Everything that is read is checked: what is not well-formed raises `Malformed`, never anything else.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from flux_lab.papers.protocol.channels import Channel, Envelope, Frame
from flux_lab.papers.protocol.messages import (
    Ack,
    Csync,
    Data,
    Message,
    Pause,
    PauseAck,
    Progress,
    Psync,
    Reverse,
)
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.wire import Bundles, Kind, Malformed

ENVELOPE: Final = struct.Struct("<hHBIhHBIBqIx")
"""Source node, destination node, kind of message, its number, number of the schema."""
CREDIT: Final = struct.Struct("<hHBIhHBIH")
ACKNOWLEDGED: Final = struct.Struct("<hHBIhHBIq")
NUMBERED: Final[tuple[type[Any], ...]] = (
    Data, Progress, Psync, PauseAck, Reverse, Pause, Csync,
)  # fmt: skip
CODE: Final = {kind: code for code, kind in enumerate(NUMBERED)}


def put_frame(frame: Frame, encoder: RowsEncoder, out: Bundles) -> None:
    """Append a multiplexer's frame."""
    if frame.credits:
        packed = [CREDIT.pack(*c.src, *c.dst, n) for c, n in frame.credits]
        out.add(Kind.CREDITS, b"".join(packed))
    acks: list[bytes] = []
    for src, dst, message in ((e.src, e.dst, e.message) for e in frame.envelopes):
        if isinstance(message, Ack):
            acks.append(ACKNOWLEDGED.pack(*src, *dst, message.batch))
            continue
        _put_acks(acks, out)
        code = CODE[type(message)]
        if isinstance(message, Data):
            number = encoder.schema_number(message.rows.schema, out)
            head = ENVELOPE.pack(*src, *dst, code, message.batch, number)
            out.add(Kind.MESSAGE, head, encoder.payload(message.rows, number))
        else:
            out.add(Kind.MESSAGE, ENVELOPE.pack(*src, *dst, code, _number(message), 0))
    _put_acks(acks, out)


def _put_acks(acks: list[bytes], out: Bundles) -> None:
    """One frame for acknowledgements with nothing between them; every channel keeps its order."""
    if acks:
        out.add(Kind.ACKS, b"".join(acks))
        acks.clear()


def _number(message: Message) -> int:
    match message:
        case Progress(number) | Psync(number) | PauseAck(number):
            return number
        case Pause(number) | Csync(number):
            return number
        case _:
            return 0


def take_message(body: memoryview, decoder: RowsDecoder) -> Envelope:
    """The envelope of a MESSAGE frame."""
    if len(body) < ENVELOPE.size:
        raise Malformed("a message without its head")
    s, p, c, life, s2, p2, c2, life2, code, number, schema = ENVELOPE.unpack_from(body)
    if code >= len(NUMBERED):
        raise Malformed(f"no message of kind {code}")
    message: Message
    kind = NUMBERED[code]
    if kind is Data:
        message = Data(number, decoder.rows(body[ENVELOPE.size :], schema))
    elif kind is Reverse:
        message = Reverse()
    else:
        message = kind(number)
    return Envelope(Node(s, p, c, life), Node(s2, p2, c2, life2), message)


def take_acks(body: memoryview) -> tuple[Envelope, ...]:
    """The contents of an ACKS frame."""
    if len(body) % ACKNOWLEDGED.size:
        raise Malformed("acknowledgements that are cut off")
    return tuple(
        Envelope(Node(s, p, c, life), Node(s2, p2, c2, life2), Ack(number))
        for s, p, c, life, s2, p2, c2, life2, number in ACKNOWLEDGED.iter_unpack(body)
    )


def take_credits(body: memoryview) -> tuple[tuple[Channel, int], ...]:
    """The contents of a CREDITS frame."""
    if len(body) % CREDIT.size:
        raise Malformed("credits that are cut off")
    frames = []
    for s, p, c, life, s2, p2, c2, life2, n in CREDIT.iter_unpack(body):
        frames.append((Channel(Node(s, p, c, life), Node(s2, p2, c2, life2)), n))
    return tuple(frames)
