"""Entries of the controller's log and notices, in the one kind of message that sites have for them.

The first value of a `Hosted` is its kind; the others are the fields behind the pair.
"""

from __future__ import annotations

from enum import IntEnum

from flux_lab.papers.protocol.messages import (
    Avail,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Fail,
    FoldInDone,
    LogEntry,
    Notice,
)
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site.control_messages import Hosted
from flux_runtime.site.wire import Malformed


class Kind(IntEnum):
    """The kinds of entries and notices."""

    FAIL = 0
    AVAIL = 1
    START = 2
    READY = 3
    DONE = 4
    FOLDED = 5


def entry_hosted(entry: LogEntry, site: int | None = None) -> Hosted:
    """An entry; `site` is where the standby of an Avail stands."""
    match entry:
        case Fail(pair, copy, number):
            return Hosted(*pair, (Kind.FAIL, copy, number))
        case Avail(pair, copy, attempt):
            assert site is not None
            return Hosted(*pair, (Kind.AVAIL, copy, attempt, site))
        case CatchUpStart(pair, attempt):
            return Hosted(*pair, (Kind.START, attempt))
        case _:
            raise ValueError(f"{entry} is of cluster pairs, which sites do not host")


def entry_of(hosted: Hosted, copies: int) -> tuple[LogEntry, int | None]:
    """The arguments of `entry_hosted`.

    Raises:
        Malformed: it is no entry, or names a copy beyond so many of a pair.
    """
    pair = Pair(hosted.stage, hosted.part)
    match hosted.values:
        case Kind.FAIL, copy, number if 0 <= copy < copies:
            return Fail(pair, copy, number), None
        case Kind.AVAIL, copy, attempt, site if 0 <= copy < copies:
            return Avail(pair, copy, attempt), site
        case Kind.START, attempt:
            return CatchUpStart(pair, attempt), None
        case _:
            raise Malformed(f"no view change of this protocol: {hosted}")


def notice_hosted(notice: Notice) -> Hosted:
    """A report of a node."""
    match notice:
        case CatchUpReady(pair, failures):
            return Hosted(*pair, (Kind.READY, failures))
        case CatchUpDone(pair, attempt):
            return Hosted(*pair, (Kind.DONE, attempt))
        case FoldInDone(pair, attempt, at):
            return Hosted(*pair, (Kind.FOLDED, attempt, *at))


def notice_of(hosted: Hosted) -> Notice:
    """The argument of `notice_hosted`.

    Raises:
        Malformed: it is no notice.
    """
    pair = Pair(hosted.stage, hosted.part)
    match hosted.values:
        case Kind.READY, failures:
            return CatchUpReady(pair, failures)
        case Kind.DONE, attempt:
            return CatchUpDone(pair, attempt)
        case Kind.FOLDED, attempt, stage, part, copy, life:
            return FoldInDone(pair, attempt, Node(stage, part, copy, life))
        case _:
            raise Malformed(f"no notice of this protocol: {hosted}")
