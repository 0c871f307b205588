"""The job's key: what a process must know to be heard by the sites of this job."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

KEY_BYTES_MIN: Final = 16
PROOF_BYTES: Final = hashlib.sha256().digest_size


class JobKey:
    """A secret that all processes of a job share; it shows itself nowhere.

    Args:
        secret: at least 16 bytes from a good random source.

    Raises:
        ValueError: the secret is too short.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) < KEY_BYTES_MIN:
            raise ValueError(f"the job's key has {len(secret)} bytes; at least {KEY_BYTES_MIN}")
        self._secret = bytes(secret)

    @classmethod
    def fresh(cls) -> JobKey:
        """A new random key."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def from_hex(cls, text: str) -> JobKey:
        """The key that `to_hex` wrote."""
        return cls(bytes.fromhex(text))

    def to_hex(self) -> str:
        """The secret itself, to hand it to a process that is being started."""
        return self._secret.hex()

    def proof(self, *parts: bytes) -> bytes:
        """HMAC-SHA-256 over the parts and their lengths."""
        signed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, signed, "sha256")

    def proves(self, proof: bytes, *parts: bytes) -> bool:
        """Whether `proof` is the proof of these parts; takes the same time either way."""
        return hmac.compare_digest(proof, self.proof(*parts))

    def __repr__(self) -> str:
        return "JobKey(...)"

    def __reduce__(self) -> tuple[type[JobKey], tuple[bytes]]:
        return JobKey, (self._secret,)
