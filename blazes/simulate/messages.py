"""The messages that come to a gate beside records, and those that an adversary adds."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from blazes.verify.records import Row, shown, sort_key


class Kind(enum.StrEnum):
    """The kinds of message. The first two have to come; the others are the adversary's."""

    PUNCTUATION = "punctuation"
    """Its producer has sent all of a partition; how much that is, the run knows."""
    REGISTRATION = "registration"
    """The registry knows who contributes to a partition."""
    CRASH = "crash"
    """The gate loses what is not durable, and gets its last micro-batch again."""
    AGAIN = "again"
    """A partition that has been released comes once more (SE-5, SE-6)."""
    REPEAT = "repeat"
    """A record with an id comes once more (D6)."""
    STRANGER = "stranger"
    """A record of somebody outside the producer set (SE-7)."""

    @property
    def adverse(self) -> bool:
        """Whether nothing may come of it."""
        return self not in (Kind.PUNCTUATION, Kind.REGISTRATION)

    @property
    def of_record(self) -> bool:
        """Whether its value is a record's, not a key's."""
        return self in (Kind.REPEAT, Kind.STRANGER)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a gate."""

    kind: Kind
    value: Row = ()
    """Of the partition's key, or the record."""
    producer: str = ""

    def __str__(self) -> str:
        return SAID[self.kind].format(of=shown(self.value), by=self.producer)


SAID: Final = {
    Kind.PUNCTUATION: "that {by} has sent all of {of}",
    Kind.REGISTRATION: "that the producers of {of} are known",
    Kind.CRASH: "its last micro-batch again, after a crash",
    Kind.AGAIN: "partition {of} again, if it is complete",
    Kind.REPEAT: "{of} again",
    Kind.STRANGER: "{of} of a stranger",
}
"""What is received, in words."""

Item: TypeAlias = Row | Message
"""What can be on its way."""


def rank(item: Item) -> tuple[object, ...]:
    """A total order of items: records first."""
    if isinstance(item, Message):
        return 1, item.kind, item.producer, sort_key(item.value)
    return 0, sort_key(item)
