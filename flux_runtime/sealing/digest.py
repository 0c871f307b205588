"""The order-independent digest of a producer's records, which a punctuation may carry.

Sum modulo 2^64 of the XXH64 hashes (seed 42) of the canonical records, as a decimal number. A
canonical record is the UTF-8 text of its data attributes in the order of the schema, without the
producer and the punctuation's columns, each as Spark casts it to STRING, null as U+0000, joined by
U+001F. Spark computes the same with `xxhash64`; this is for producers without Spark.

XXH64 is by Yann Collet (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NULL: Final = "\0"
SEPARATOR: Final = "\x1f"
SEED: Final = 42

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def digest(records: Iterable[Sequence[str | None]]) -> str:
    """The digest of records, each given as the texts of its data attributes.

    >>> digest([["1", "a"], ["2", None]]) == digest([["2", None], ["1", "a"]])
    True
    >>> digest([])
    '0'
    """
    return str(sum(xxh64(canonical(record)) for record in records) & _MASK)


def canonical(record: Sequence[str | None]) -> bytes:
    """The bytes of a record that are hashed."""
    return SEPARATOR.join(NULL if text is None else text for text in record).encode()


def xxh64(data: bytes, seed: int = SEED) -> int:
    """The XXH64 hash, as an unsigned number.

    >>> hex(xxh64(b"", 0)), hex(xxh64(b"abc", 0))
    ('0xef46db3751d8e999', '0x44bc2cf5ad770999')
    """
    length, at = len(data), 0
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at + 32 <= length:
            lanes = [_round(lane, _word(data, at + 8 * i, 8)) for i, lane in enumerate(lanes)]
            at += 32
        turns = (1, 7, 12, 18)
        value = sum(_rotated(lane, t) for lane, t in zip(lanes, turns, strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (seed + _P5) & _MASK
    value = (value + length) & _MASK
    while at + 8 <= length:
        value ^= _round(0, _word(data, at, 8))
        value = (_rotated(value, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= length:
        value ^= (_word(data, at, 4) * _P1) & _MASK
        value = (_rotated(value, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = (_rotated(value ^ (byte * _P5) & _MASK, 11) * _P1) & _MASK
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
