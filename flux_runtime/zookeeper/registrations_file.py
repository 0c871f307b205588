"""Producer sets from a JSON file, to be registered when a job starts.

Two forms: an object `{"KEY": ["producer", ...], ...}` for a key of one attribute, and a list
`[{"key": KEY, "producers": [...]}, ...]` where KEY is a value, a list of values in alphabetical
order of their attributes, or an object from attribute to value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from flux_runtime.zookeeper.errors import RegistrationProblem
from flux_runtime.zookeeper.registry import show_key
from flux_runtime.zookeeper.znode_names import PartitionKey, partition_key

_REMEDY = (
    'Write {"KEY": ["producer", ...], ...}, or for keys of several attributes '
    '[{"key": {"attribute": value, ...}, "producers": ["producer", ...]}, ...].'
)


class BadRegistrations(RegistrationProblem):
    """A file of registrations cannot be read; the message names all of its mistakes."""


def load_registrations(file: Path) -> Mapping[PartitionKey, frozenset[str]]:
    """The producer sets of a file.

    Raises:
        BadRegistrations: with every mistake of the file.
    """
    mistakes: list[str] = []
    sets: dict[PartitionKey, frozenset[str]] = {}
    for where, key, producers in _entries(file):
        try:
            parsed = _key(key)
        except (TypeError, ValueError) as error:
            mistakes.append(f"{where}: {error}")
            continue
        if not _is_producers(producers):
            mistakes.append(f"{where}: producers must be a list of names, not {producers!r:.60}")
        elif parsed in sets:
            mistakes.append(f"{where}: {show_key(parsed)} occurs twice")
        elif sets and len(parsed) != len(next(iter(sets))):
            mistakes.append(f"{where}: {show_key(parsed)} has another number of attributes")
        else:
            sets[parsed] = frozenset(producers)
    if mistakes:
        _refuse(file, "\n    ".join(mistakes))
    return sets


def _entries(file: Path) -> list[tuple[str, Any, Any]]:
    """(where, key, producers) as the file has them."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=list)
    except OSError as failure:
        _refuse(file, failure.strerror or str(failure))
    except ValueError as error:
        _refuse(file, f"not JSON: {error}")
    if not isinstance(content, list):
        _refuse(file, f"neither an object nor a list: {content!r:.60}")
    if all(isinstance(entry, tuple) for entry in content):
        return [(f"key {key!r}", key, producers) for key, producers in content]
    entries = []
    for number, entry in enumerate(content, 1):
        pairs = isinstance(entry, list) and all(isinstance(pair, tuple) for pair in entry)
        fields = dict(entry) if pairs else {}
        if fields.keys() != {"key", "producers"}:
            _refuse(file, f"entry {number}: not an object of `key` and `producers`")
        entries.append((f"entry {number}", fields["key"], fields["producers"]))
    return entries


def _key(value: Any) -> PartitionKey:
    if isinstance(value, list):
        if not value:
            raise ValueError("a key has at least one value")
        if all(isinstance(item, tuple) for item in value):
            attributes = dict(value)
            if len(attributes) != len(value):
                raise ValueError("an attribute occurs twice in the key")
            value = [attributes[name] for name in sorted(attributes)]
    return partition_key(value)


def _is_producers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _refuse(file: Path, message: str) -> NoReturn:
    raise BadRegistrations(f"{file}: {message}", _REMEDY)
