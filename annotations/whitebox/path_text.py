"""A derived path as an author writes it in YAML: one home for what is made and what is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from annotations.dataflow import Path
from annotations.delivery import repeats_of, usual_repeats
from annotations.vocabulary import Rows, Within

_PLAIN: Final = re.compile(r"[A-Za-z_][\w-]*")
_NOT_SHOWN: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON takes as they are, and YAML does not, or as the end of a line."""
_WORDS: Final = frozenset({"on", "off", "yes", "no", "true", "false", "null", "y", "n"})


def scalar(text: str) -> str:
    """A text as YAML, in quotes where it needs them.

    >>> scalar("word"), scalar("on"), scalar("two words")
    ('word', '"on"', '"two words"')
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """A text as YAML in double quotes, on one line, whatever its characters are."""
    return _NOT_SHOWN.sub(lambda c: f"\\u{ord(c[0]):04x}", json.dumps(text, ensure_ascii=False))


def path_text(path: Path, lineage: Mapping[str, str] | None) -> str:
    """The path as a flow mapping; `lineage` is what the file has to say of it."""
    parts = [f"from: {scalar(path.source)}", f"to: {scalar(path.target)}"]
    parts.append(f"label: {path.annotation.kind.name}")
    gate = path.annotation.gate
    if gate is not None and gate.attributes is not None:
        parts.append(f"subscript: [{', '.join(map(scalar, sorted(gate.attributes)))}]")
    if path.state is not None:
        parts.append(f"state: {scalar(path.state)}")
    if path.within is Within.SEQUENCE:
        parts.append("within: sequence")
    if path.nondeterministic is not None:
        parts.append(f"nondeterministic: {quoted(path.nondeterministic)}")
    repeats = repeats_of(path)
    if repeats is not usual_repeats(path.annotation.kind):
        parts.append(f"repeats: {repeats.value}")
    if path.rows is Rows.ONE:
        parts.append("rows: one")
    if lineage is not None:
        copies = ", ".join(
            f"{scalar(attribute)}: {scalar(copied)}" for attribute, copied in lineage.items()
        )
        parts.append(f"lineage: {{{copies}}}")
    return f"{{{', '.join(parts)}}}"
