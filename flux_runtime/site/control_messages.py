"""Control messages: what sites, leader, followers and clients tell each other, as one table.

A message is an immutable value of one kind. `RULES` has a row for each kind and each pair of roles
that it passes between: who says it to whom, whether as the greeting (the first frame of either
end), and who says it again and until when. Nothing else is ever encoded or decoded: `encode` and
`decode` take the two roles and know the kinds between them only. Fields have types and limits, so
what has been decoded needs no further look at its form; whether it makes sense now is for the
hearer to say. The version of all this is in the handshake (`handshake.VERSION`).

On the wire a message is JSON: an object whose field `c` names the kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import FloatType, IntType, Metadata, StrType, StructType, multi_type_info

from flux_runtime.protocol.vocabulary import END, Pair
from flux_runtime.resume import messages as resume
from flux_runtime.site.wire import Malformed

MESSAGE_MAX_BYTES: Final = 8 << 20
SITES_MAX: Final = 4096
COPIES_MAX: Final = 1 << 17
ENTRIES_MAX: Final = 4096
"""View changes in one message; a longer piece of the log takes several."""
NOTICES_MAX: Final = 4096
HOSTED_MAX: Final = 8
WHY_MAX: Final = 500
"""Characters of a reason; whoever gives one cuts it (`reason`)."""

SiteNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Stage = Annotated[int, Meta(ge=-1, le=2**15 - 1)]
Part = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Copy = Annotated[int, Meta(ge=0, le=1)]
Life = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Batch = Annotated[int, Meta(ge=-1, le=END)]
Value = Annotated[int, Meta(ge=-1, le=2**53)]
Port = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Rate = Annotated[float, Meta(ge=0.0, le=1e18)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
NAME_MAX: Final = 256
"""Characters of a name: of a source, a site, a machine."""
Name = Annotated[str, Meta(max_length=NAME_MAX)]
Why = Annotated[str, Meta(max_length=WHY_MAX)]
FolderName = Annotated[str, Meta(max_length=4096)]

NodeParts = tuple[Stage, Part, Copy, Life]
"""A node, as `Node(*parts)`."""
Address = tuple[Name, Port]
"""Host and port."""
OfferKey = tuple[Batch, Batch]
"""Batch and offset of a source."""


class Role(StrEnum):
    """Who speaks, and who hears."""

    LEADER = "leader"
    FOLLOWER = "follower"
    SITE = "site"
    CLIENT = "client"


def _tag(name: str) -> str:
    """The kind's name on the wire: `LinkLost` is `link-lost`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="c", tag=_tag):
    """Any control message."""


class Unspoken(Message, frozen=True):
    """No message; a decoder of this and one kind more asks for the kind's name, as of several."""


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of fields within a message."""


# ---- greetings


class Registration(Message, frozen=True):
    """A site that is new to this leader: who it is, and how far it has come.

    `resume` has the last batch that each copy of the first stage here has received.
    """

    id: Name
    address: Address
    host: Name
    executor: Name
    epoch: Count
    position: Count
    laid_out: bool
    resume: Annotated[tuple[tuple[NodeParts, Batch], ...], Meta(max_length=COPIES_MAX)]


class Admission(Message, frozen=True):
    """The site is in the view, under this number."""

    epoch: Count
    site: SiteNumber


class Expulsion(Message, frozen=True):
    """The site has been removed from the view and must end."""


class Introduction(Message, frozen=True):
    """Which site of the view this is."""

    id: Name
    site: SiteNumber
    position: Count


class ClientGreeting(Message, frozen=True):
    """A client, and the source that it feeds; empty if none."""

    source: Name


class ClientWelcome(Message, frozen=True):
    """Which leader this is, whether it takes input, and the last offer that is safe."""

    epoch: Count
    ready: bool
    taken: OfferKey | None


class ReaderGreeting(Message, frozen=True):
    """A client that wants results."""


class ReaderWelcome(Message, frozen=True):
    """Which site this is."""

    site: Annotated[int, Meta(ge=-2, le=2**31 - 1)]


class FollowerGreeting(Message, frozen=True):
    """A controller that watches this connection."""


class FollowerWelcome(Message, frozen=True):
    """The leader does lead."""


# ---- view changes and notices


class Announced(Struct, frozen=True, array_like=True, tag="announced", forbid_unknown_fields=True):
    """A copy is announced on a site, or the ingress at the leader; its donor."""

    stage: Stage
    part: Part
    number: Life
    site: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    donor: Life


class Gone(Struct, frozen=True, array_like=True, tag="gone", forbid_unknown_fields=True):
    """A copy is gone for good."""

    stage: Stage
    part: Part
    number: Life


class Hosted(Struct, frozen=True, array_like=True, tag="hosted", forbid_unknown_fields=True):
    """A view change or a notice of another protocol that sites are given (`Config.hosting`)."""

    stage: Stage
    part: Part
    values: Annotated[tuple[Value, ...], Meta(max_length=HOSTED_MAX)]


ViewChange = Announced | Gone | Hosted
"""An entry of the controller's log."""


class Works(Struct, frozen=True, array_like=True, tag="works", forbid_unknown_fields=True):
    """An announced copy works."""

    stage: Stage
    part: Part
    number: Life


class Unfit(Struct, frozen=True, array_like=True, tag="unfit", forbid_unknown_fields=True):
    """An announced copy will never work."""

    stage: Stage
    part: Part
    number: Life


Notice = Works | Unfit | Hosted
"""What a node reports to the controller."""


# ---- the leader to sites


class SiteAddress(Record, frozen=True, array_like=True):
    """A site of the view, and where it listens."""

    number: SiteNumber
    id: Name
    host: Name
    port: Port


class Sites(Message, frozen=True):
    """All sites of the view."""

    sites: Annotated[tuple[SiteAddress, ...], Meta(max_length=SITES_MAX)]


class PlacedCopy(Record, frozen=True, array_like=True):
    """Where a copy stands."""

    stage: Stage
    part: Part
    copy: Copy
    site: SiteNumber
    life: Life


class Layout(Message, frozen=True):
    """Where all copies stand at a position of the log at which they are whole.

    Attributes:
        copies: of all pairs; under the resume protocol their numbers are their lives.
        base: the position.
        ingress: number of the ingress under the resume protocol.
        done: batches that every copy has done under the resume protocol.
    """

    copies: Annotated[tuple[PlacedCopy, ...], Meta(max_length=COPIES_MAX)]
    base: Count
    ingress: Life
    done: Count


class Log(Message, frozen=True):
    """View changes from a position of the log on."""

    start: Count
    entries: Annotated[tuple[ViewChange, ...], Meta(max_length=ENTRIES_MAX)]


class Noted(Message, frozen=True):
    """The oldest `count` notices of the site are recorded."""

    count: Annotated[int, Meta(ge=1, le=NOTICES_MAX)]


class Trim(Message, frozen=True):
    """Nobody needs the log below a position."""

    below: Count


class Commit(Message, frozen=True):
    """The results of all batches below `offset` are where they belong."""

    offset: Batch


class ResetStatistics(Message, frozen=True):
    """A balancing round begins to count (UF-9)."""

    round: Count


class RequestStatistics(Message, frozen=True):
    """A balancing round asks what has been counted (UF-9)."""

    round: Count


class SetMemory(Message, frozen=True):
    """The site may use so many bytes for operators' states; none: as many as it likes."""

    bytes: Count | None
    errand: Count


class CutLink(Message, frozen=True):
    """For a drill: the site is to close its connection to another one."""

    site: SiteNumber
    errand: Count


class Keep(Message, frozen=True):
    """The states after a batch are to be written into a folder.

    Attributes:
        batch: None: one that is not known yet; what can be written before is to be.
        folder: new for each such batch.
    """

    batch: Batch | None
    folder: FolderName


class Watch(Message, frozen=True):
    """The site is to say when its collector has passed a batch."""

    batch: Batch


class Ended(Message, frozen=True):
    """Resume protocol: the input has so many batches, and no more."""

    batches: Count


class Stop(Message, frozen=True):
    """The job ends."""


# ---- sites to the leader


class Notices(Message, frozen=True):
    """Notices of the site's nodes."""

    notices: Annotated[tuple[Notice, ...], Meta(min_length=1, max_length=NOTICES_MAX)]


class LinkLost(Message, frozen=True):
    """Another site of the view is out of reach."""

    site: SiteNumber
    why: Why


class Done(Message, frozen=True):
    """The site has done an errand."""

    errand: Count


class NotKept(Message, frozen=True):
    """The site cannot write its states."""

    batch: Batch | None
    why: Why


class Reached(Message, frozen=True):
    """The collector has passed a batch that is watched."""

    batch: Batch


class SpillReport(Record, frozen=True):
    """The load of a site's disk: what it holds and has carried."""

    memory_limit_bytes: Count | None
    on_disk: Count
    disk_bytes: Count
    disk_limit_bytes: Count | None
    kept_in_memory_bytes: Count
    written_bytes: Count
    read_bytes: Count
    evictions: Count
    activations: Count
    refused: Count


class PartReport(Record, frozen=True):
    """The load and the state of one copy."""

    node: NodeParts
    cpu: Rate
    operator: Rate
    rows_per_s: Rate
    units_per_s: Rate
    state_bytes: Count
    waiting_bytes: Count
    queued_units: Count
    buffered_units: Count
    on_disk: bool


class Report(Message, frozen=True):
    """A site's work since its last report (docs/reference/flux-statistics.md)."""

    pid: Count
    rows_per_s: Rate
    units_per_s: Rate
    utilisation: Share
    waiting: Share
    busy: Rate
    cpu: Rate
    cpu_available: Share
    memory_bytes: Count
    buffered_units: Count
    state_bytes: Count
    copies: Count
    bytes_in: Count
    bytes_out: Count
    states_moved: Count
    state_bytes_moved: Count
    spill: SpillReport | None
    parts: Annotated[tuple[PartReport, ...], Meta(max_length=COPIES_MAX)]


class PartStatistics(Record, frozen=True, array_like=True):
    """The load of one copy in a balancing round."""

    stage: Stage
    part: Part
    copy: Copy
    rows: Rate
    state_bytes: Count
    waiting_bytes: Count
    on_disk: bool


class Statistics(Message, frozen=True):
    """The counts of a site in a balancing round."""

    round: Count
    utilisation: Share
    available: Share
    covered_s: Rate
    memory: Count | None
    parts: Annotated[tuple[PartStatistics, ...], Meta(max_length=COPIES_MAX)]


# ---- clients to the leader


class Where(Message, frozen=True):
    """Which sites have the results?"""


class Finish(Message, frozen=True):
    """No more input comes, from any source."""


class StatusRequest(Message, frozen=True):
    """A question for the state of the job."""


class Move(Message, frozen=True):
    """A copy is to move, if that is possible now."""

    stage: Stage
    part: Part
    copy: Copy
    site: SiteNumber


class LimitMemory(Message, frozen=True):
    """A site is to use so many bytes for operators' states."""

    site: SiteNumber
    bytes: Count | None


class Disconnect(Message, frozen=True):
    """For a drill: the connection between two sites is to be closed."""

    site: SiteNumber
    other: SiteNumber


# ---- the leader to clients


class Taken(Message, frozen=True):
    """All offers of the client's source up to this one are safe."""

    key: OfferKey


class Collectors(Message, frozen=True):
    """Where the sites with the results listen."""

    addresses: Annotated[tuple[Address, ...], Meta(max_length=2)]


class Keeping(Message, frozen=True):
    """The sites have been asked; why one of them could not the last time, empty if none."""

    why: Why


class Finished(Message, frozen=True):
    """The end of the input is safe."""


class Moved(Message, frozen=True):
    """Whether the copy moves has been decided."""


class Carried(Message, frozen=True):
    """The site has done what was asked for; or it is gone."""

    done: bool


class Stopped(Message, frozen=True):
    """The end of the job is recorded."""


class DataLoss(Message, frozen=True):
    """A pair has lost both copies."""

    stage: Stage
    part: Part
    why: Why


class Refusal(Message, frozen=True):
    """A refusal: the request makes no sense, and nothing was done."""

    why: Why


class SiteStatus(Record, frozen=True):
    """A site of the view."""

    number: SiteNumber
    id: Name
    host: Name
    executor: Name


class LatencyStatus(Record, frozen=True):
    """Batches from the ingress to the collector, as a histogram."""

    le_s: Annotated[tuple[Rate, ...], Meta(max_length=64)]
    counts: Annotated[tuple[Count, ...], Meta(max_length=64)]
    p50_s: Rate | None
    p99_s: Rate | None


class BalanceStatus(Record, frozen=True):
    """The balancer's phase and progress."""

    policy: Name
    mode: Name
    round: Count
    collection_s: Rate
    moves: Count
    utilisation: Annotated[dict[SiteNumber, Share], Meta(max_length=SITES_MAX)]


class Status(Message, frozen=True):
    """The state of the job as its leader sees it."""

    epoch: Count
    pid: Count
    began: bool
    whole: bool
    failures: Count
    sites: Annotated[tuple[SiteStatus, ...], Meta(max_length=SITES_MAX)]
    copies: Annotated[
        tuple[tuple[Stage, Part, Copy, Life, SiteNumber, Name], ...], Meta(max_length=COPIES_MAX)
    ]
    losses: Annotated[tuple[tuple[Stage, Part, Why], ...], Meta(max_length=COPIES_MAX)]
    rows: Count
    under_way: Count
    latency: LatencyStatus
    loads: Annotated[dict[SiteNumber, Report], Meta(max_length=SITES_MAX)]
    balance: BalanceStatus | None


# ---- readers


class Read(Message, frozen=True):
    """Results of batches from `offset` on are wanted, about so many bytes."""

    offset: Batch
    max_bytes: Count


class Results(Message, frozen=True):
    """How far the results reach that were sent before."""

    offset: Batch
    ended: bool


class Elsewhere(Message, frozen=True):
    """No whole copy of the results is here."""


# ---- the table

LEADER, FOLLOWER, SITE, CLIENT = Role.LEADER, Role.FOLLOWER, Role.SITE, Role.CLIENT


class Rule(NamedTuple):
    """Who says a kind of message to whom.

    Attributes:
        kind: of message.
        speaker: who says it.
        hearer: who is told.
        again: who says it again if it is lost, and until when; empty: nobody, it is not needed.
        greeting: it is the first frame of its speaker, and is nothing else.
    """

    kind: type[Message]
    speaker: Role
    hearer: Role
    again: str = ""
    greeting: bool = False


ON_CONNECT: Final = "on every new connection"
ASKED_AGAIN: Final = "the client asks again, until it has this answer"
UNTIL_DONE: Final = "the client, until the site has done it, or is gone"

RULES: tuple[Rule, ...] = (
    Rule(Registration, SITE, LEADER, ON_CONNECT, greeting=True),
    Rule(Admission, LEADER, SITE, ON_CONNECT, greeting=True),
    Rule(Expulsion, LEADER, SITE, ON_CONNECT, greeting=True),
    Rule(Introduction, SITE, SITE, ON_CONNECT, greeting=True),
    Rule(ClientGreeting, CLIENT, LEADER, ON_CONNECT, greeting=True),
    Rule(ClientWelcome, LEADER, CLIENT, ON_CONNECT, greeting=True),
    Rule(ReaderGreeting, CLIENT, SITE, ON_CONNECT, greeting=True),
    Rule(ReaderWelcome, SITE, CLIENT, ON_CONNECT, greeting=True),
    Rule(FollowerGreeting, FOLLOWER, LEADER, ON_CONNECT, greeting=True),
    Rule(FollowerWelcome, LEADER, FOLLOWER, ON_CONNECT, greeting=True),
    Rule(Sites, LEADER, SITE, ON_CONNECT),
    Rule(Layout, LEADER, SITE, ON_CONNECT),
    Rule(Log, LEADER, SITE, ON_CONNECT),
    Rule(Commit, LEADER, SITE, ON_CONNECT),
    Rule(Trim, LEADER, SITE, "the next one says it anew"),
    Rule(Noted, LEADER, SITE, "for the notice that the site says again"),
    Rule(ResetStatistics, LEADER, SITE, "the next round says it anew"),
    Rule(RequestStatistics, LEADER, SITE, "the next round says it anew"),
    Rule(SetMemory, LEADER, SITE, UNTIL_DONE),
    Rule(CutLink, LEADER, SITE, UNTIL_DONE),
    Rule(Keep, LEADER, SITE, "the feeder, until the states are there, or it gives up"),
    Rule(Watch, LEADER, SITE, "the next one says it anew"),
    Rule(Ended, LEADER, SITE, ON_CONNECT),
    Rule(Stop, LEADER, SITE, "every controller that reads that the job has ended ends"),
    Rule(Notices, SITE, LEADER, "the site, until the event is recorded"),
    Rule(LinkLost, SITE, LEADER, "the site, until the event is recorded"),
    Rule(Done, SITE, LEADER, "for the errand that the client asks for again"),
    Rule(NotKept, SITE, LEADER, "the feeder asks again, and the site answers again"),
    Rule(Report, SITE, LEADER, "the next one says it anew"),
    Rule(Statistics, SITE, LEADER, "the next round says it anew"),
    Rule(Reached, SITE, LEADER, "the next one says it anew"),
    Rule(Where, CLIENT, LEADER, "the reader, until it is answered"),
    Rule(Commit, CLIENT, LEADER, "the reader, to every new leader: else a collector stays full"),
    Rule(Keep, CLIENT, LEADER, "the feeder, until the states are there, or it gives up"),
    Rule(Finish, CLIENT, LEADER, "the client, until it is recorded"),
    Rule(StatusRequest, CLIENT, LEADER, "the client, until it is answered"),
    Rule(Move, CLIENT, LEADER, "the client, until it is recorded"),
    Rule(LimitMemory, CLIENT, LEADER, UNTIL_DONE),
    Rule(Disconnect, CLIENT, LEADER, UNTIL_DONE),
    Rule(Stop, CLIENT, LEADER, "the client, until it is recorded"),
    Rule(Taken, LEADER, CLIENT, "the feeder offers the batch again, until it has this answer"),
    Rule(Collectors, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Keeping, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Finished, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Status, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Moved, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Carried, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Stopped, LEADER, CLIENT, ASKED_AGAIN),
    Rule(DataLoss, LEADER, CLIENT, ON_CONNECT),
    Rule(Refusal, LEADER, CLIENT, ASKED_AGAIN),
    Rule(Read, CLIENT, SITE, "the reader, of either copy, until it is answered"),
    Rule(Results, SITE, CLIENT, ASKED_AGAIN),
    Rule(Elsewhere, SITE, CLIENT, ASKED_AGAIN),
    Rule(Refusal, SITE, CLIENT, ASKED_AGAIN),
)


def encode(message: Message, *, speaker: Role, hearer: Role, greeting: bool = False) -> bytes:
    """A message as it is sent.

    Raises:
        ValueError: no rule has this speaker tell this hearer such a thing.
    """
    if type(message) not in _kinds(speaker, hearer, greeting):
        raise ValueError(f"a {speaker} never tells a {hearer} {_tag(type(message).__name__)!r}")
    return msgspec.json.encode(message)


def decode(body: memoryview, *, speaker: Role, hearer: Role) -> Message:
    """The control message that this speaker tells this hearer.

    Raises:
        Malformed: it is none, or beyond a limit; the text says which field.
    """
    return _decoded(body, _decoder((speaker,), hearer, False))


def decode_greeting(
    body: memoryview, *, speakers: tuple[Role, ...], hearer: Role
) -> tuple[Role, Message]:
    """Who of these speaks, and the greeting.

    Raises:
        Malformed: it is no greeting of any of them.
    """
    message = _decoded(body, _decoder(speakers, hearer, True))
    (speaker,) = (
        rule.speaker
        for rule in RULES
        if rule.kind is type(message) and rule.hearer is hearer and rule.greeting
    )
    return speaker, message


def _decoded(body: memoryview, decoder: msgspec.json.Decoder[Any] | None) -> Message:
    if len(body) > MESSAGE_MAX_BYTES:
        raise Malformed(f"a message of {len(body)} bytes; at most {MESSAGE_MAX_BYTES}")
    if decoder is None:
        raise Malformed("nothing is to be said here")
    try:
        message: Message = decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(reason(f"a message that is none: {error}")) from None
    if isinstance(message, Unspoken):
        raise Malformed("a message that nobody says")
    return message


@cache
def _kinds(speaker: Role, hearer: Role, greeting: bool) -> frozenset[type[Message]]:
    return frozenset(
        rule.kind
        for rule in RULES
        if (rule.speaker, rule.hearer, rule.greeting) == (speaker, hearer, greeting)
    )


@cache
def _decoder(
    speakers: tuple[Role, ...], hearer: Role, greeting: bool
) -> msgspec.json.Decoder[Any] | None:
    kinds = sorted(
        {kind for speaker in speakers for kind in _kinds(speaker, hearer, greeting)},
        key=lambda kind: kind.__name__,
    )
    return msgspec.json.Decoder(reduce(or_, kinds, Unspoken)) if kinds else None


def reason(text: object) -> str:
    """A reason, no longer than one may be."""
    return str(text)[:WHY_MAX]


# ---- view changes and notices as the protocol has them


AnyEntry = resume.LogEntry | Hosted
AnyNotice = resume.Notice | Hosted


def view_change(entry: AnyEntry) -> ViewChange:
    """An entry of the controller's log."""
    match entry:
        case resume.Avail(named, at, donor):
            return Announced(*named, at, donor.number)
        case resume.Fail(named):
            return Gone(*named)
        case Hosted():
            return entry
        case _:
            raise ValueError(f"{entry} is never told to sites")


def log_entry(change: ViewChange) -> AnyEntry:
    """The argument of `view_change`."""
    match change:
        case Announced(stage, part, number, at, donor):
            pair = Pair(stage, part)
            return resume.Avail(resume.Copy(*pair, number), at, resume.Copy(*pair, donor))
        case Gone(stage, part, number):
            return resume.Fail(resume.Copy(stage, part, number))
        case Hosted():
            return change


def notice_of(notice: AnyNotice) -> Notice:
    """A node's notice."""
    match notice:
        case resume.Installed(named):
            return Works(*named)
        case resume.Void(named):
            return Unfit(*named)
        case Hosted():
            return notice


def node_notice(notice: Notice) -> AnyNotice:
    """The argument of `notice_of`."""
    match notice:
        case Works(stage, part, number):
            return resume.Installed(resume.Copy(stage, part, number))
        case Unfit(stage, part, number):
            return resume.Void(resume.Copy(stage, part, number))
        case Hosted():
            return notice


def entry_to_json(entry: AnyEntry) -> list[Any]:
    """A view change as it is recorded."""
    return list(msgspec.to_builtins(view_change(entry)))


def entry_from_json(value: Any) -> AnyEntry:
    """The entry that `entry_to_json` wrote.

    Raises:
        Malformed: it is no view change.
    """
    return log_entry(_converted(value, ViewChange))


def notice_to_json(notice: AnyNotice) -> list[Any]:
    """A notice as it is recorded."""
    return list(msgspec.to_builtins(notice_of(notice)))


def notice_from_json(value: Any) -> AnyNotice:
    """The notice that `notice_to_json` wrote.

    Raises:
        Malformed: it is no notice.
    """
    return node_notice(_converted(value, Notice))


def _converted(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Malformed(reason(error)) from None


# ---- the table for people


def table() -> Iterator[str]:
    """The rules as lines of Markdown: message, who to whom, fields with limits, said again."""
    yield "| message | from, to | fields | who says it again |"
    yield "|---|---|---|---|"
    structs = multi_type_info([rule.kind for rule in RULES])
    for rule, struct in zip(RULES, structs, strict=True):
        assert isinstance(struct, StructType)
        fields = ", ".join(f"{_field(f.name, f.type)}" for f in struct.fields)
        greeting = ", greeting" if rule.greeting else ""
        yield (
            f"| `{struct.tag}` | {rule.speaker} to {rule.hearer}{greeting} | {fields} | "
            f"{rule.again} |"
        )


def _field(name: str, info: Any) -> str:
    limits = _limits(info)
    return f"`{name}` {limits}" if limits else f"`{name}`"


def _limits(info: Any) -> str:
    """The values that a type allows, in a few words."""
    if isinstance(info, Metadata):
        return _limits(info.type)
    match info:
        case IntType() | FloatType():
            return f"{info.ge:g} to {_power(info.le)}"
        case StrType():
            return f"up to {info.max_length} characters"
        case msgspec.inspect.UnionType():
            return " ".join(filter(None, map(_limits, info.types)))
        case msgspec.inspect.NoneType():
            return "or none"
        case msgspec.inspect.VarTupleType() | msgspec.inspect.DictType():
            return f"up to {info.max_length}"
        case _:
            return ""


def _power(limit: float | None) -> str:
    """A limit; large powers of two as such."""
    if isinstance(limit, int):
        for offset in (0, 1):
            n = limit + offset
            if n > 1 << 10 and n & (n - 1) == 0:
                return f"2^{n.bit_length() - 1}" + (" - 1" if offset else "")
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def pieces(entries: Sequence[ViewChange], start: int) -> Iterator[Log]:
    """View changes from a position on, as messages; at least one."""
    for at in range(0, max(1, len(entries)), ENTRIES_MAX):
        yield Log(start + at, tuple(entries[at : at + ENTRIES_MAX]))
