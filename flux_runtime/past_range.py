"""A past range as it is asked for: its name, its sources and its sinks; without Spark.

The command `blazes backfill` and a job itself have their options from here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from re import ASCII, compile
from typing import Any, Final
from urllib.parse import urlsplit

FOLDER: Final = "backfills"
"""In the data folder of the job: one folder for each range."""
NAME: Final = compile(r"[A-Za-z0-9][\w.-]{0,99}", ASCII)
BETWEEN: Final = ".."
"""Between the two ends of a range of messages."""

Offsets = dict[str, dict[str, int]]
"""Topic -> partition, as text -> an offset."""
End = Offsets | datetime | None
"""An end of a range of messages; None: all there is before, or up to where the job began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The range that a backfill was asked for.

    Args:
        name: of the range.
        sources: stream -> where its range is: a folder or a pattern of files, or the two ends of
            a range of messages (`ends`).
        only: the sinks that get it; empty: all.
        replace: rows of a table with a key may replace those of the running job.
    """

    name: str
    sources: Mapping[str, str]
    only: tuple[str, ...] = ()
    replace: bool = False

    def folder(self, data: Path) -> Path:
        """The data folder of the range, below the job's."""
        return data / FOLDER / self.name


def add_options(parser: Any, *, required: bool) -> None:
    """Add what a range has besides its name to a parser or a group of one."""
    parser.add_argument(
        "--source",
        metavar="STREAM=RANGE",
        action="append",
        default=[],
        required=required,
        help="where the range of a stream is, once for each: a folder or a pattern of files; of "
        "topics FROM..TO, each a time (2023-01-31, 2023-01-31T12:00+01:00) or the offsets of all "
        'partitions ({"topic": {"0": 17}}); without FROM all there is, without TO up to where the '
        "running job began",
    )
    parser.add_argument(
        "--only", metavar="SINK", action="append", default=[], help="a sink that gets it (all)"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="rows of a table with a key may replace those of the running job",
    )


def parsed(name: str, arguments: argparse.Namespace) -> Backfill:
    """The range that arguments ask for; see `add_options`.

    >>> given = argparse.Namespace(source=["clicks=/old/*"], only=[], replace=False)
    >>> parsed("2023", given).sources
    {'clicks': '/old/*'}

    Raises:
        ValueError: the name or a source is malformed.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"a range has a name of letters, digits, `.`, `_` and `-`, not {name!r}")
    places: dict[str, str] = {}
    for text in arguments.source:
        stream, equals, where = text.partition("=")
        if not (stream and equals and where) or stream in places:
            raise ValueError(f"--source is STREAM=RANGE, once for each stream, not {text!r}")
        places[stream] = where
    only = tuple(arguments.only)
    return Backfill(name=name, sources=places, only=only, replace=arguments.replace)


def options_of(backfill: Backfill) -> list[str]:
    """The arguments that ask a job for a range."""
    named = [("source", f"{stream}={where}") for stream, where in backfill.sources.items()]
    named += [("only", sink) for sink in backfill.only]
    listed = [text for option, value in named for text in (f"--{option}", value)]
    return ["--backfill", backfill.name, *listed, *(["--replace"] if backfill.replace else [])]


def absolute(path: str) -> str:
    """A place of files; a relative path starts where the command was given."""
    return path if urlsplit(path).scheme else str(Path.cwd() / path)


def is_local(path: str) -> bool:
    """Whether a place of files is mounted here."""
    return urlsplit(path).scheme in ("", "file")


def ends(text: str) -> tuple[End, End]:
    """The two ends of a range of messages.

    >>> ends("2023-01-01..2023-02-01T12:00:00+01:00")[1].isoformat()
    '2023-02-01T11:00:00+00:00'
    >>> ends('{"t": {"0": 5}}..{"t": {"0": 9}}')
    ({'t': {'0': 5}}, {'t': {'0': 9}})
    >>> ends("..")
    (None, None)

    Raises:
        ValueError: it is no range.
    """
    begin, rest = _end(text)
    if not rest.startswith(BETWEEN):
        raise _malformed(text)
    end, rest = _end(rest.removeprefix(BETWEEN))
    if rest:
        raise _malformed(text)
    return begin, end


def _end(text: str) -> tuple[End, str]:
    """One end, and what is left of a text."""
    if text.startswith("{"):
        try:
            value, length = json.JSONDecoder().raw_decode(text)
        except ValueError:
            raise _malformed(text) from None
        if not _is_offsets(value):
            raise _malformed(text)
        return value, text[length:]
    given, between, rest = text.partition(BETWEEN)
    if not given:
        return None, between + rest
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise _malformed(text) from None
    return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC), between + rest


def _is_offsets(value: Any) -> bool:
    return all(
        isinstance(of, dict)
        and all(p.isdecimal() and type(n) is int and n >= 0 for p, n in of.items())
        for of in value.values()
    )


def _malformed(text: str) -> ValueError:
    return ValueError(
        "a range of messages is FROM..TO, each nothing, a time of ISO 8601 (in UTC, where it names "
        f'no zone), or offsets of all partitions like {{"topic": {{"0": 17}}}}, not {text!r}'
    )


def total(begin: Offsets, end: Offsets) -> int:
    """How many offsets are between two."""
    return sum(
        upto - begin[topic][partition]
        for topic, of_topic in end.items()
        for partition, upto in of_topic.items()
    )


def shared(one: Sequence[Offsets], other: Sequence[Offsets]) -> list[str]:
    """The partitions, as `topic/partition`, of which both ranges have some offset.

    >>> one = [{"t": {"0": 2, "1": 0}}, {"t": {"0": 5, "1": 3}}]
    >>> shared(one, [{"t": {"0": 4, "1": 3}}, {"t": {"0": 9, "1": 9}}])
    ['t/0']
    """
    (begin, end), (begins, ends) = one, other
    return [
        f"{topic}/{partition}"
        for topic, of_topic in end.items()
        for partition, upto in of_topic.items()
        if partition in ends.get(topic, {})
        and max(begin[topic][partition], begins[topic][partition])
        < min(upto, ends[topic][partition])
    ]
