"""Events of a site, and its instructions: two tables of values.

`SiteState.handle` takes one of `EVENTS` and gives some of `INSTRUCTIONS`; `Worker` hands in the
first and carries out the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flux_runtime.site.control_messages import (
    AnyNotice,
    Introduction,
    Layout,
    Message,
    ViewChange,
)
from flux_runtime.site.steps import Link, Step

# ---- events


@dataclass(frozen=True, slots=True)
class LeaderReached(Step):
    """Whoever leads is at the other end of a new link."""

    link: Link


@dataclass(frozen=True, slots=True)
class Admitted(Step):
    """The leader of an epoch has this site in its view, under this number."""

    link: Link
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Expelled(Step):
    """The leader has removed this site from its view."""


@dataclass(frozen=True, slots=True)
class LeaderSaid(Step):
    """A control message that only a leader says."""

    link: Link
    message: Message


@dataclass(frozen=True, slots=True)
class SiteReached(Step):
    """Another site that this one has dialed is at the other end of a new link."""

    link: Link
    number: int


@dataclass(frozen=True, slots=True)
class SiteIntroduced(Step):
    """Another site says who it is."""

    link: Link
    said: Introduction
    dialing: bool


@dataclass(frozen=True, slots=True)
class DialFailed(Step):
    """An attempt to reach a site that began at some time has failed."""

    number: int
    address: tuple[str, int]
    began: float
    why: str


@dataclass(frozen=True, slots=True)
class LinkClosed(Step):
    """A connection is gone."""

    link: Link
    why: str


@dataclass(frozen=True, slots=True)
class NodesNoticed(Step):
    """Reports of the nodes of this site."""

    notices: tuple[AnyNotice, ...]


# ---- instructions


@dataclass(frozen=True, slots=True)
class Register(Step):
    """Tell a leader who this is and how far it has come; nothing is under way to it any more."""

    link: Link


@dataclass(frozen=True, slots=True)
class LeaveLeader(Step):
    """Nothing is under way to the leader any more."""


@dataclass(frozen=True, slots=True)
class FollowLeader(Step):
    """A link is that of the leader from now on."""

    link: Link


@dataclass(frozen=True, slots=True)
class Become(Step):
    """This is the site with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Introduce(Step):
    """Say which site this is."""

    link: Link


@dataclass(frozen=True, slots=True)
class Seat(Step):
    """A link is that of a site from now on."""

    link: Link
    number: int


@dataclass(frozen=True, slots=True)
class Tell(Step):
    """Send a control message, unless the link is gone."""

    link: Link
    message: Message


@dataclass(frozen=True, slots=True)
class Close(Step):
    """Close a link."""

    link: Link
    why: str


@dataclass(frozen=True, slots=True)
class Dial(Step):
    """Try to reach a site, after so many seconds."""

    number: int
    address: tuple[str, int]
    after_s: float


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """A site is in the view."""

    number: int


@dataclass(frozen=True, slots=True)
class Disconnect(Step):
    """A site is not in the view any more."""

    number: int


@dataclass(frozen=True, slots=True)
class LayOut(Step):
    """Copies stand like this, at a position of the log."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Extend(Step):
    """The next entry of the controller's log."""

    change: ViewChange


@dataclass(frozen=True, slots=True)
class Obey(Step):
    """Do what the leader says; it concerns what is hosted here, and nobody else."""

    message: Message


@dataclass(frozen=True, slots=True)
class Fence(Step):
    """This incarnation must not go on."""

    why: str


EVENTS: Final = (
    LeaderReached, Admitted, Expelled, LeaderSaid, SiteReached, SiteIntroduced, DialFailed,
    LinkClosed, NodesNoticed,
)  # fmt: skip
"""What happens to a site."""

INSTRUCTIONS: Final = (
    Register, LeaveLeader, FollowLeader, Become, Introduce, Seat, Tell, Close, Dial, Connect,
    Disconnect, LayOut, Extend, Obey, Fence,
)  # fmt: skip
"""What it has done about it."""
