"""Key values as text: what the tracker, the ledger and people see of a partition.

The text of each key attribute, as one JSON array. `flux_runtime.spark.key_columns` says which text
a value has: as Spark casts it to STRING, save that a TIMESTAMP is in UTC whatever the session's
zone, a BINARY is in hexadecimal, and of floating-point numbers -0.0 is 0.0. Values that Spark takes
for equal have the same text, others another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from flux_runtime.sealing.events import KeyText

KEY_BYTES_MAX: Final = 32_768
"""Bytes of UTF-8 that the texts of one key, or the name of one producer, may have. A record with
more is a dead letter: every key is held in memory, stands in the ledger and in the commit."""


def key_text(values: Sequence[str]) -> KeyText:
    """The text of a key, from the texts of its values in the order of the key.

    >>> key_text(["17"]), key_text(["eu", "2024-01-01"])
    ('["17"]', '["eu","2024-01-01"]')
    """
    return f"[{','.join(map(encode_basestring, values))}]"


def key_values(text: KeyText) -> tuple[str, ...]:
    """The texts of the values of a key.

    >>> key_values('["eu","2024-01-01"]')
    ('eu', '2024-01-01')
    """
    return tuple(json.loads(text))
