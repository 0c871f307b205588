"""Files of SQL that another engine runs, or that are made into SQL first: named, and not read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Language:
    """A language of files that end in `.sql`."""

    pattern: re.Pattern[str]
    """Words that only its files have."""
    reason: str
    """The kind of the file, and why it is not read."""
    remedy: str


LANGUAGES: Final = (
    Language(
        re.compile(r"\{\{-?\s*(config|ref|source)\s*\("),
        "it is a model of dbt, which Jinja makes into SQL, and is not read",
        "Take the query that `dbt compile` writes below target/compiled as `sql:` of a component.",
    ),
    Language(
        re.compile(r"'connector(\.type)?'\s*=", re.IGNORECASE),
        "it is SQL of Flink, which is not read: the SQL of Spark is",
        "Describe it in a dataflow file: each table with a connector as a stream, and the query of "
        "each INSERT INTO as `sql:` of a component.",
    ),
    Language(
        re.compile(r"\bEMIT\s+CHANGES\b|\bKAFKA_TOPIC\s*=", re.IGNORECASE),
        "it is SQL of ksqlDB, which is not read: the SQL of Spark is",
        "Describe it in a dataflow file: each stream with its topic, and the query of each CREATE "
        "... AS SELECT as `sql:` of a component.",
    ),
)


def language_of(text: str) -> Language | None:
    """The language of a file with this text; None where it may be Spark's SQL.

    >>> language_of("INSERT INTO sums SELECT 1"), language_of("SELECT * FROM {{ ref('a') }}").reason
    (None, 'it is a model of dbt, which Jinja makes into SQL, and is not read')
    """
    return next((known for known in LANGUAGES if known.pattern.search(text)), None)
