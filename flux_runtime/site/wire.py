"""The wire format after the handshake: bundles of frames.

    bundle   length of the rest (4 bytes), frames
    frame    length of the body (4 bytes), kind (1), 3 bytes of nothing, body, padding to 8 bytes

All that one site has for another at the end of a turn goes into one bundle, so that the receiver
knows how much to read, reads it into one piece of memory, and Arrow uses the payloads where they
are (every body starts at a multiple of 8). All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

LENGTH: Final = struct.Struct("<I")
FRAME: Final = struct.Struct("<IBxxx")
ALIGNMENT: Final = 8
BUNDLE_MAX_BYTES: Final = 256 << 20
"""A longer bundle closes the connection; what is sent is cut into bundles well below."""
BUNDLE_FULL_BYTES: Final = 1 << 20
"""A bundle that has reached this is closed and the next one begun."""
ALLOCATED_BYTES: Final = BUNDLE_FULL_BYTES + (1 << 16)
"""Memory taken at once for a bundle; for a longer one more is taken as its bytes arrive."""


class Malformed(Exception):  # noqa: N818 - what happened
    """The bytes are not what a site of this version sends."""


class TooLarge(Exception):  # noqa: N818 - what happened
    """A message that does not fit into a bundle."""


class Kind(IntEnum):
    """The kind of a frame."""

    GREETING = 1
    """Who speaks (`control_messages`); the first frame of either end."""
    MESSAGE = 2
    """A protocol message with its two nodes; for rows, followed by Arrow IPC."""
    CREDITS = 3
    """Units that the receiver of each channel has taken."""
    SCHEMA = 4
    """An Arrow schema that MESSAGE frames refer to by number."""
    STATE = 5
    """A piece of a segment's state on its way to a standby."""
    CONTROL = 6
    """Messages between sites, controllers and clients (`control_messages`)."""
    OFFER = 7
    """A client's batch for the ingress."""
    RESULTS = 8
    """Output for a client."""
    ACKS = 9
    """Units that have been received, of several channels."""
    BASE = 10
    """A piece of what a segment's state refers to, which travels before it."""
    PART = 11
    """A piece of a part of an operator's state, which travels before the segment's."""
    UNITS = 12
    """A frame of the resume protocol (`units`)."""


Part = bytes | bytearray | memoryview | Any
"""A piece of a bundle; Arrow buffers are taken as they are."""


class Bundles:
    """Collects frames and gives them as bundles."""

    __slots__ = ("_bytes", "_parts", "_ready")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._bytes = 0
        self._ready: list[Part] = []

    def __bool__(self) -> bool:
        return bool(self._parts or self._ready)

    def add(self, kind: Kind, *body: Part) -> None:
        """Append a frame whose body is these pieces, one behind the other.

        Raises:
            TooLarge: the frame alone is longer than a bundle may be.
        """
        size = sum(map(len, body))
        padding = -size % ALIGNMENT
        if FRAME.size + size + padding > BUNDLE_MAX_BYTES:
            raise TooLarge(f"{size} bytes in one frame; at most {BUNDLE_MAX_BYTES}")
        if self._bytes + FRAME.size + size > BUNDLE_FULL_BYTES:
            self._close()
        self._parts += (FRAME.pack(size, kind), *body)
        if padding:
            self._parts.append(bytes(padding))
        self._bytes += FRAME.size + size + padding

    def _close(self) -> None:
        if self._parts:
            self._ready += (LENGTH.pack(self._bytes), *self._parts)
            self._parts, self._bytes = [], 0

    def take(self) -> list[Part]:
        """All that has been added, as pieces to be written in this order."""
        self._close()
        ready, self._ready = self._ready, []
        return ready


def bundle_length(header: bytes | bytearray | memoryview) -> int:
    """The length that a bundle's first four bytes announce.

    Raises:
        Malformed: it is impossible.
    """
    (length,) = LENGTH.unpack_from(header)
    if not 0 < length <= BUNDLE_MAX_BYTES or length % ALIGNMENT:
        raise Malformed(f"a bundle of {length} bytes")
    return int(length)


def frames(bundle: memoryview) -> Iterator[tuple[Kind, memoryview]]:
    """The frames of a bundle, without copying.

    Raises:
        Malformed: lengths or kinds that cannot be.
    """
    at = 0
    while at < len(bundle):
        if len(bundle) - at < FRAME.size:
            raise Malformed("a bundle ends inside a frame")
        size, kind = FRAME.unpack_from(bundle, at)
        at += FRAME.size
        end = at + size
        if end + (-size % ALIGNMENT) > len(bundle):
            raise Malformed("a frame is longer than its bundle")
        try:
            yield Kind(kind), bundle[at:end]
        except ValueError:
            raise Malformed(f"no frame of kind {kind}") from None
        at = end + (-size % ALIGNMENT)
