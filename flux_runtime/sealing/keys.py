"""Key values as text: what the tracker, the journal and people see of a partition.

A value of each key attribute as Spark casts it to STRING, as one JSON array. The text is exact:
casting it back gives the value, for the types in `KEY_TYPES`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from flux_runtime.sealing.events import KeyText

KEY_TYPES: Final = (
    "string",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal",
)
"""Types whose values survive the cast to STRING and back; a float's do not."""


def key_text(values: Sequence[str]) -> KeyText:
    """The text of a key, from the texts of its values in the order of the key.

    >>> key_text(["17"]), key_text(["eu", "2024-01-01"])
    ('["17"]', '["eu","2024-01-01"]')
    """
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def key_values(text: KeyText) -> tuple[str, ...]:
    """The texts of the values of a key.

    >>> key_values('["eu","2024-01-01"]')
    ('eu', '2024-01-01')
    """
    return tuple(json.loads(text))
