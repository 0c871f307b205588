"""Messages: frames and snapshots between sites, notices to the controller, entries of its log.

All are immutable values. A *copy* is one instance of a pair, with a number that is never used
again; any number of copies of a pair may exist. A *position* is a number of entries of the log that
have been read; it stands on everything that one site sends another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import INGRESS, Pair

BEGINNING: Final = 1
"""The position behind the first `Start`."""


class Copy(NamedTuple):
    """One instance of a pair."""

    stage: int
    part: int
    number: int

    @property
    def pair(self) -> Pair:
        """The pair that it is a copy of."""
        return Pair(self.stage, self.part)

    def __str__(self) -> str:
        if self.stage == INGRESS:
            return f"ingress'{self.number}"
        return f"{chr(ord('A') + self.stage)}{self.part}'{self.number}"


# ---- the log


@dataclass(frozen=True, slots=True)
class Start:
    """The whole dataflow begins, first or after a loss, in the state after batch `at`."""

    copies: tuple[tuple[Copy, int], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Avail:
    """A copy is announced on a site; it gets its state from the donor, an end from outside."""

    copy: Copy
    site: int
    donor: Copy


@dataclass(frozen=True, slots=True)
class Fail:
    """A copy is gone for good, whether it knows or not."""

    copy: Copy


@dataclass(frozen=True, slots=True)
class Lost:
    """No copy of the pair is left; a `Start` follows."""

    pair: Pair


LogEntry = Start | Avail | Fail | Lost


# ---- between sites


class UnitRow(NamedTuple):
    """Units of one batch, from one producer pair to some partitions of one stage.

    Attributes:
        stage: of the consumers.
        slot: place of the producer pair among those that this stage reads.
        batch: number of the batch.
        parts: partitions of the stage.
        units: a unit for each of them.
    """

    stage: int
    slot: int
    batch: int
    parts: tuple[int, ...]
    units: Sequence[Rows | None]


class Ack(NamedTuple):
    """The copy has processed all batches up to this one, and holds what it made of them."""

    copy: Copy
    done: int


class Resume(NamedTuple):
    """The consumer wants from this producer what comes after batch `after`; nothing, if None."""

    consumer: Copy
    producer: Copy
    after: int | None


@dataclass(frozen=True, slots=True)
class Frame:
    """All that one site has for another at a time.

    Attributes:
        position: of the writer in the log.
        units: in the order of batches for every producer.
        acks: of all copies on the writer's site, if the reader does not have them yet.
        resumes: in the order in which the writer changed its mind.
    """

    position: int
    units: tuple[UnitRow, ...] = ()
    acks: tuple[Ack, ...] = ()
    resumes: tuple[Resume, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a donor between two batches, for the copy that is announced.

    Attributes:
        copy: whom it is for.
        position: of the donor's site in the log.
        done: last batch that is in the state.
        state: of the operator.
        rest: the state is what is left of one that has gone ahead in parts.
        held: outputs of the last batches up to `done` that some consumer may still want.
        acked: what the donor's site knows of its consumers.
    """

    copy: Copy
    position: int
    done: int
    state: Any
    held: tuple[Sequence[Rows | None], ...]
    acked: tuple[Ack, ...]
    rest: bool = False


# ---- instructions to whoever runs a site


@dataclass(frozen=True, slots=True)
class Owed:
    """A copy that is announced there waits for the state of one here: call `Site.take_state`.

    At once, or when most of the state has gone ahead of it (RS-24).
    """

    site: int
    copy: Copy
    donor: Copy


@dataclass(frozen=True, slots=True)
class Transfer:
    """Carry the snapshot to that site."""

    site: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Load:
    """Get the state of a copy from outside, then call `Site.load`.

    A segment's comes from the checkpoint of batch `at`, the egress's position from the destination,
    which must refuse all earlier copies from then on, the ingress's from the source.
    """

    copy: Copy
    at: int


@dataclass(frozen=True, slots=True)
class Installed:
    """To the controller: the announced copy works."""

    copy: Copy


@dataclass(frozen=True, slots=True)
class Void:
    """To the controller: the announced copy will never work."""

    copy: Copy


Notice = Installed | Void
Instruction = Owed | Transfer | Load | Installed | Void


class Work(NamedTuple):
    """One batch that the operator of a copy is to process: a unit for every slot."""

    copy: Copy
    batch: int
    units: Sequence[Rows | None]
