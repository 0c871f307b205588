"""Checks a state folder and its results while nothing runs: what is damaged, and how to go on.

Each check is a function of the state folder and of the folders of results; `CHECKS` is all of them,
in the order of what depends on what. They read only, need neither Spark nor ZooKeeper, and go on
after a finding, so that one look says everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.fence import EPOCH, EpochFile, FencedError
from flux_runtime.commits.owner import (
    IDENTITY,
    INVENTORY,
    Inventory,
    OwnerFile,
    owner_file,
    read_identity,
)
from flux_runtime.commits.record import CommitRecord, check_commit, commit_name, read_record
from flux_runtime.observe.seal_audit import damage_of_seals
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage

FRESH: Final = "start afresh with --fresh, which deletes state and results"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written."""

    place: str
    """A path."""
    problem: str
    safe: str
    """What can be relied on nevertheless."""
    remedy: str

    def to_json(self) -> dict[str, str]:
        """As JSON data."""
        return {
            "place": self.place,
            "problem": self.problem,
            "safe": self.safe,
            "remedy": self.remedy,
        }


Check: TypeAlias = Callable[[Path, Sequence[Path]], Iterable[Finding]]
"""A check: (state folder, folders of results) -> what is wrong."""


def audit(state: Path, results: Sequence[Path] | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong with a state folder and its results.

    Args:
        state: usually `target/NAME/state`.
        results: the folders of its outputs; None: those that the state has written to.
    """
    folders = tuple(outputs_of(state) if results is None else results)
    return tuple(finding for check in CHECKS for finding in check(state, folders))


def outputs_of(state: Path) -> list[Path]:
    """The folders of results that a state has written to; its own channels are not among them."""
    return [path for _, path in _outside(state)]


def is_state(folder: Path) -> bool:
    """Whether a folder is a job's state, or was one."""
    return any(
        (folder / name).exists() for name in (IDENTITY, EPOCH, INVENTORY, "fingerprint.json")
    )


# ---- checks


def check_identity(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """The state has an id, which stands in everything that belongs to it."""
    place = str(state / IDENTITY)
    try:
        known = read_identity(LocalStorage(state))
    except DamagedError as damage:
        problem = damage.problem
    else:
        if known is not None:
            return
        problem = "the id of this state is missing"
    owners = {owner.state for path in results if (owner := _owner(path)) is not None}
    names = f" ({', '.join(sorted(owners))})" if owners else ""
    yield Finding(
        place,
        problem,
        f"the results say which state they belong to{names}",
        f"restore this file from a copy, or {FRESH}",
    )


def check_epoch(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """The newest driver is known, and is newest everywhere."""
    newest: Driver | None = None
    place = state / EPOCH
    try:
        newest = EpochFile(LocalStorage(state)).newest()
    except FencedError:
        yield Finding(
            str(place),
            "which driver was the newest is unreadable",
            "state and results themselves are not concerned",
            "make sure that no driver runs this job, and delete this file: the next start finds "
            "the epoch beside the results",
        )
    else:
        if newest is None:
            yield Finding(
                str(place),
                "it is missing, so that a driver that still runs would not be stopped",
                "state and results themselves are not concerned",
                "make sure that no driver runs this job; the next start makes this file anew",
            )
    for path in results:
        owner = _owner(path)
        if owner is not None and newest is not None and owner.driver.epoch > newest.epoch:
            yield Finding(
                str(path),
                f"a newer driver ({owner.driver}) has written here than this state knows of "
                f"({newest}): it is an older copy of the state",
                "the results are whole",
                f"go on with the state of that driver, or {FRESH}",
            )


def check_owners(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """Results belong to this state."""
    known = _identity(state)
    for path in results:
        place = path.parent / owner_file(path.name)
        owner = _owner(path)
        if owner is not None and known is not None and owner.state != known:
            yield Finding(
                str(path),
                f"these results belong to another state: {owner.state} of job {owner.job}, last "
                f"written by {owner.driver}",
                "both are whole, as far as this goes",
                f"give this job another folder for its results, or {FRESH}",
            )
        if owner is None and place.exists():
            yield Finding(
                str(place),
                "whose results these are is unreadable",
                "every commit says it too",
                "delete this file: the next start makes it anew from the commits",
            )


def check_inventory(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """All results that the state has made are there."""
    try:
        inventory = Inventory(LocalStorage(state))
    except DamagedError as damage:
        yield _finding(damage, safe="the results are not concerned")
        return
    given = {path.name: path for path in results}
    for name, path in inventory.outputs().items():
        place = given.get(Path(path).name, Path(path))
        for unit, number in inventory.newest(name).items():
            if not (place / commit_name(unit, number)).is_dir():
                yield Finding(
                    str(place),
                    f"commit {number} of {unit} is missing, which the state has made last",
                    "the state is whole; it does not compute these results again",
                    f"restore this folder from a copy, or {FRESH}",
                )


def check_commits(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """Every commit holds what it says, is of this state, and follows on the one before it."""
    known = _identity(state)
    floors = _floors(state)
    for path in (*results, *_channels(state)):
        folder = LocalStorage(path)
        numbers: dict[str, set[int]] = {}
        records: list[CommitRecord] = []
        for name in folder.names():
            if not (path / name).is_dir():
                continue
            try:
                records.append(check_commit(folder, name))
            except DamagedError as damage:
                yield _finding(damage, safe="the other commits are checked one by one")
                with contextlib.suppress(DamagedError):
                    record = read_record(folder, name)
                    numbers.setdefault(record.unit, set()).add(record.number)
        for record in records:
            numbers.setdefault(record.unit, set()).add(record.number)
        for record in records:
            place = str(path / commit_name(record.unit, record.number))
            if known is not None and record.state not in (known, None):
                yield Finding(
                    place,
                    f"this commit belongs to another state, {record.state} (epoch {record.epoch})",
                    "what it holds is whole",
                    f"move it to where it belongs, or {FRESH}",
                )
            floor = floors.get((str(path), record.unit), -1)
            before = record.previous
            if before is not None and before > floor and before not in numbers[record.unit]:
                yield Finding(
                    place,
                    f"commit {before} of {record.unit}, which came before this one, is missing",
                    "the commits that are there are whole, and the job goes on after the newest",
                    "if somebody has taken it away on purpose, nothing is to be done; else "
                    f"restore it from a copy, or {FRESH}",
                )


def check_seals(state: Path, results: Sequence[Path]) -> Iterator[Finding]:
    """Ledgers, chunks and checkpoints of the sealed units are whole, and of one moment."""
    for damage in damage_of_seals(state):
        yield _finding(damage, safe="the results, and the other units of the job")


CHECKS: Final[tuple[Check, ...]] = (
    check_identity,
    check_epoch,
    check_owners,
    check_inventory,
    check_commits,
    check_seals,
)
"""All checks, in order."""


# ---- what they share


def _finding(damage: DamagedError, *, safe: str) -> Finding:
    """A refusal of the running job as a finding; its remedy says what is safe as well."""
    return Finding(damage.place.removeprefix("file://"), damage.problem, safe, damage.remedy)


def _identity(state: Path) -> str | None:
    with contextlib.suppress(DamagedError):
        return read_identity(LocalStorage(state))
    return None


def _owner(path: Path) -> OwnerFile | None:
    with contextlib.suppress(OSError, ValueError):
        return OwnerFile.from_bytes((path.parent / owner_file(path.name)).read_bytes())
    return None


def _inventory(state: Path) -> Mapping[str, Path]:
    """Name -> path of every output, as far as that can be read."""
    with contextlib.suppress(DamagedError):
        return {n: Path(path) for n, path in Inventory(LocalStorage(state)).outputs().items()}
    return {}


def _outside(state: Path) -> Iterator[tuple[str, Path]]:
    for name, path in _inventory(state).items():
        if not name.startswith("channel "):
            yield name, path


def _channels(state: Path) -> list[Path]:
    """Folders of channels; hidden ones beside them hold what was staged and not committed."""
    folder = state / "channels"
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in paths if not path.name.startswith("."))


def _floors(state: Path) -> Mapping[tuple[str, str], int]:
    """(channel, unit) -> up to which number its commits were deleted because all have read them."""
    try:
        inventory = Inventory(LocalStorage(state))
    except (DamagedError, OSError):
        return {}
    paths = inventory.outputs()
    floors: dict[tuple[str, str], int] = {}
    for name, by_unit in inventory.floors().items():
        folder = paths.get(name) or state / "channels" / name.removeprefix("channel ")
        floors |= {(str(folder), unit): floor for unit, floor in by_unit.items()}
    return floors
