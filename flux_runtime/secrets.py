"""Secrets: options that say where their value is, and get it when the job runs.

`${env:NAME}` stands for a variable of the environment, `${file:PATH}` for the content of a file
(without the newline at its end; a relative path is relative to the job's root), anywhere in an
option. The dataflow file, `job.py` and `plan.json` hold the reference. What was put in its place is
kept out of what this process writes: its errors, events, summary and log (`redacted`). What Spark
itself logs is Spark's: `spark.redaction.regex` says which of its settings it hides.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")
LENGTH_MIN: Final = 4
"""Shorter values are not looked for in texts: they are in every other word."""
HIDDEN: Final = "*** (a secret)"

_values: set[str] = set()
"""What has been put in place of references."""


def resolved(options: Mapping[str, str], root: Path, *, of: str) -> dict[str, str]:
    """The options with a value in place of each reference.

    Args:
        options: name -> text.
        root: relative paths are relative to it.
        of: whose options, for messages.

    Raises:
        ValueError: variables or files that are not there; all at once.
    """
    missing: list[str] = []
    values = {}
    for name, text in options.items():

        def value(match: re.Match[str], name: str = name) -> str:
            try:
                secret = _value(match[1], match[2], root)
            except OSError as error:
                missing.append(f"{name} refers to the file {match[2]}: {error.strerror}")
            except KeyError:
                missing.append(f"{name} refers to the environment variable {match[2]}: not set")
            else:
                if len(secret) >= LENGTH_MIN:
                    _values.add(secret)
                return secret
            return ""

        values[name] = REFERENCE.sub(value, text)
    if missing:
        raise ValueError(f"{of}: {'; '.join(missing)}. Set them where the job is started")
    return values


def redacted(data: Any) -> Any:
    """JSON data, or a text, without the secrets that were put into options."""
    if isinstance(data, str):
        for secret in sorted(_values, key=len, reverse=True):
            data = data.replace(secret, HIDDEN)
        return data
    if isinstance(data, Mapping):
        return {name: redacted(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [redacted(value) for value in data]
    return data


class RedactingFormatter(logging.Formatter):
    """Writes lines of a log without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with its traceback."""
        return str(redacted(super().format(record)))


def _value(kind: str, name: str, root: Path) -> str:
    if kind == "env":
        return os.environ[name]
    return (root / name).read_text().removesuffix("\n")
