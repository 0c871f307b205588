"""Both ends of a new connection prove that they know the job's key, before anything else is read.

    listener -> dialer   MAGIC, nonce L
    dialer -> listener   MAGIC, nonce D, proof("dialer", L, D)
    listener -> dialer   proof("listener", D, L)

The nonces are random, so nothing that was overheard can be played back; the roles are part of the
proofs, so a proof cannot be sent back to its maker. Every step has a fixed size: an end that does
not know the key gets to send 72 bytes. What follows is not encrypted; where the network is not
trusted, put the sites behind a tunnel.
"""

from __future__ import annotations

import secrets
from typing import Final

from flux_runtime.site.key import PROOF_BYTES, JobKey

VERSION: Final = 2
"""Of all that is said on a connection; both ends have to be of the same."""
MAGIC: Final = b"FLUX" + VERSION.to_bytes(4, "big")
NONCE_BYTES: Final = 32


class Refused(Exception):  # noqa: N818 - what happened
    """The other end is not of this job, or speaks another version."""


class Handshake:
    """One end, without I/O: hand in exactly `wants` bytes, send what comes back.

    Args:
        key: the job's key.
        dialing: whether this end opened the connection.
    """

    __slots__ = ("dialing", "done", "key", "nonce", "other", "wants")

    def __init__(self, key: JobKey, *, dialing: bool) -> None:
        self.key = key
        self.dialing = dialing
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.other = b""
        self.done = False
        self.wants = len(MAGIC) + NONCE_BYTES + (0 if dialing else PROOF_BYTES)

    def opening(self) -> bytes:
        """The bytes to send before anything has been received."""
        return b"" if self.dialing else MAGIC + self.nonce

    def receive(self, data: bytes) -> bytes:
        """Take the other end's next step; gives the answer.

        Raises:
            Refused: it is not what an end that knows the key would send.
        """
        if len(data) != self.wants:
            raise Refused(f"{len(data)} bytes where {self.wants} were asked for")
        if self.dialing and self.other:
            if not self.key.proves(data, b"listener", self.nonce, self.other):
                raise Refused("the listener does not know the job's key")
            self._finish()
            return b""
        if not data.startswith(MAGIC[:4]):
            raise Refused("not a Flux connection")
        if not data.startswith(MAGIC):
            theirs = int.from_bytes(data[4 : len(MAGIC)], "big")
            raise Refused(
                f"the other end speaks version {theirs}, this one {VERSION}: "
                "have all processes of the job use the same package"
            )
        self.other = data[len(MAGIC) : len(MAGIC) + NONCE_BYTES]
        if self.dialing:
            self.wants = PROOF_BYTES
            return MAGIC + self.nonce + self.key.proof(b"dialer", self.other, self.nonce)
        if not self.key.proves(data[-PROOF_BYTES:], b"dialer", self.nonce, self.other):
            raise Refused("the dialer does not know the job's key")
        self._finish()
        return self.key.proof(b"listener", self.other, self.nonce)

    def _finish(self) -> None:
        self.done, self.wants = True, 0
