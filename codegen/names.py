"""Python identifiers for what a dataflow names in any way it likes."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from typing import Final

LONGEST: Final = 48
"""Characters of a made identifier, so that a generated line stays within its width."""
USED: Final = frozenset(
    {
        "Avro",
        "DataFrame",
        "Job",
        "Path",
        "Producers",
        "Punctuation",
        "build",
        "deduplicated",
        "feed",
    }
    | {"job", "main", "replica", "sql"}
)
"""What the text of a job itself uses."""


def identifier(text: str) -> str:
    """The nearest ASCII identifier, in lower case with underscores.

    >>> identifier("AdServer.clicks by day"), identifier("class"), identifier("2nd")
    ('ad_server_clicks_by_day', 'class_', '_2nd')
    """
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    text = re.sub(r"\W+", "_", text).strip("_")[:LONGEST].rstrip("_") or "unnamed"
    text = text if text.isidentifier() else f"_{text}"
    return f"{text}_" if keyword.iskeyword(text) or keyword.issoftkeyword(text) else text


def is_plain(name: str) -> bool:
    """True where a name can be a parameter as it stands."""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def in_backticks(name: str) -> str:
    """A name as code in Markdown.

    >>> in_backticks("a b"), in_backticks("a`b")
    ('`a b`', '`` a`b ``')
    """
    return f"`` {name} ``" if "`" in name else f"`{name}`"


class Names:
    """Identifiers that are given out once each."""

    def __init__(self, *taken: str) -> None:
        self._taken = {*USED, *taken}

    def new(self, text: str) -> str:
        """An identifier near the text that nobody has yet.

        >>> names = Names()
        >>> names.new("a.b"), names.new("a b"), names.new("sql")
        ('a_b', 'a_b_2', 'sql_2')
        """
        base = identifier(text)
        name, number = base, 1
        while name in self._taken or hasattr(builtins, name):
            number += 1
            name = f"{base.rstrip('_')}_{number}"
        self._taken.add(name)
        return name
