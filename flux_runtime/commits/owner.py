"""Whose results are: a folder of commits belongs to one state folder, and goes with all of it.

Beside each output stands a hidden file (`.NAME.owner.json`) with the id of the state that the
results belong to, the job, its newest driver, and the newest commit of each unit. The state keeps
the same for all outputs in `outputs.json`, its *inventory*. When a job starts, both and what there
is are compared: results of another state are refused, and so are results that have gone while the
state says that they were made. Neither file has to be flushed with a commit: what is there may be
ahead of both, never behind.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.fence import EPOCH, EpochFile, Fence, Place, Store
from flux_runtime.commits.record import check_commit, commit_name, number_of
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import NOT_IN_PATHS, Storage, local_path, storage_at

IDENTITY: Final = "identity.json"
"""In the state folder: its id, made once."""
INVENTORY: Final = "outputs.json"
"""In the state folder: the newest commit of every unit in every output."""
FLOORS: Final = "floors.json"
"""In the state folder, apart from the inventory, which is also written without being flushed: up to
which commit of a unit an output was emptied."""
VERSION: Final = 1


class NotOwnerError(Exception):
    """A place that a job would write to belongs to another job, or to another state.

    Args:
        place: what it is.
        problem: whose it is.
        remedy: what is safe, and how to go on.
    """

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place} {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """An output as the job declares it: a folder of commits."""

    name: str
    """Unique in the job, and the same for the life of its state."""
    path: str
    """A path or `file:` address."""
    units: tuple[str, ...]
    """Who commits to it."""
    outside: bool = True
    """Whether it is outside the state folder, so that it needs an owner of its own."""

    @property
    def key(self) -> str:
        """Its path, in one way of writing it."""
        return str(local_path(self.path).absolute())

    @property
    def parent(self) -> Storage:
        """The folder that it is in."""
        return storage_at(self.path.rstrip("/").rpartition("/")[0] or ".")

    @property
    def base(self) -> str:
        """Its name in that folder."""
        return self.path.rstrip("/").rpartition("/")[2]

    def newest(self, unit: str) -> int | None:
        """The number of a unit's newest commit that is there."""
        numbers = (number_of(name, unit) for name in self.parent.names(self.base))
        return max((number for number in numbers if number is not None), default=None)

    def newest_of_all(self) -> dict[str, int]:
        """Unit -> number of its newest commit, for those that have one."""
        newest = {unit: self.newest(unit) for unit in self.units}
        return {unit: number for unit, number in newest.items() if number is not None}


@dataclass(slots=True)
class OwnerFile:
    """The mark beside an output."""

    job: str
    state: str
    driver: Driver
    newest: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON."""
        driver = json.loads(self.driver.to_bytes())
        data = {"version": VERSION, "job": self.job, "state": self.state}
        return json.dumps({**data, "driver": driver, "newest": self.newest}, indent=1).encode()

    @staticmethod
    def from_bytes(data: bytes) -> OwnerFile:
        """The reverse of `to_bytes`.

        Raises:
            ValueError: it is something else.
        """
        try:
            read = json.loads(data)
            driver = Driver.from_json(read["driver"])
            newest = {str(unit): int(number) for unit, number in read["newest"].items()}
            return OwnerFile(str(read["job"]), str(read["state"]), driver, newest)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no owner: {error}") from None


def owner_file(base: str) -> str:
    """The name of the file beside an output.

    >>> owner_file("totals")
    '.totals.owner.json'
    """
    return f".{base}.owner.json"


def read_owner(location: Location) -> OwnerFile | None:
    """Whose an output is; None where nobody says so (or half a file does, after a power cut)."""
    data = location.parent.read(owner_file(location.base))
    with contextlib.suppress(ValueError):
        return None if data is None else OwnerFile.from_bytes(data)
    return None


class Inventory:
    """The outputs that a state knows of; for any thread.

    Args:
        state: the state folder.
        empty: what it knew is going to be deleted.
    """

    def __init__(self, state: Storage, *, empty: bool = False) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._outputs: dict[str, dict[str, Any]] = {} if empty else _read(state, INVENTORY)
        self._floors: dict[str, dict[str, int]] = {} if empty else _read(state, FLOORS)

    def outputs(self) -> Mapping[str, str]:
        """Name -> where it was, of every output."""
        return {name: entry["path"] for name, entry in self._outputs.items()}

    def newest(self, name: str) -> Mapping[str, int]:
        """Unit -> number of its newest commit in an output."""
        return dict(self._outputs.get(name, {}).get("newest", {}))

    def floor(self, name: str, unit: str) -> int:
        """Up to this number, the commits of a unit have been deleted because nobody needs them."""
        return int(self._floors.get(name, {}).get(unit, -1))

    def floors(self) -> Mapping[str, Mapping[str, int]]:
        """Output -> unit -> its floor, of those that have one."""
        return self._floors

    def note(self, name: str, path: str, newest: Mapping[str, int], *, flush: bool = False) -> None:
        """Write down the newest commits of units in an output, and where it is."""
        with self._lock:
            entry = self._outputs.setdefault(name, {})
            entry |= {"path": path, "newest": dict(newest)}
            self._state.write(INVENTORY, json.dumps(self._outputs, indent=1).encode(), flush=flush)

    def raise_floor(self, name: str, unit: str, number: int) -> None:
        """Write down, durably, that a unit's commits up to a number are going to be deleted."""
        with self._lock:
            self._floors.setdefault(name, {})[unit] = number
            self._state.write(FLOORS, json.dumps(self._floors, indent=1).encode())


_DAMAGED: Final = {
    INVENTORY: (
        "this list of outputs and their newest commits is damaged",
        "the results are safe. If they are all there, delete this file, and the next start "
        "makes it anew from them",
    ),
    FLOORS: (
        "this list of commits of channels that nobody needs any more is damaged",
        "nothing was changed. Restore it from a copy, or begin anew with --fresh",
    ),
}
"""File -> what is wrong where it cannot be read, and the remedy."""


def _read(state: Storage, name: str) -> dict[str, Any]:
    """The content of a file of the state; nothing where there is none, or an empty one."""
    data = state.read(name)
    with contextlib.suppress(ValueError):
        content = json.loads(data) if data else {}
        if isinstance(content, dict):
            return content
    raise DamagedError(state.uri(name), *_DAMAGED[name])


class Owner:
    """One output in the hands of one driver; made by `Ownership`."""

    def __init__(self, location: Location, ownership: Ownership) -> None:
        self.location = location
        self.driver = ownership.driver
        self.state_id = ownership.state_id
        self._fence = ownership.fence
        self._ledger = ownership.inventory
        self._lock = threading.Lock()
        self._file = OwnerFile(
            ownership.job, self.state_id, self.driver, dict(location.newest_of_all())
        )

    @property
    def staging(self) -> str:
        """Where this driver makes its commits: a folder beside the output."""
        return f"{staging_of(self.location.base)}/{self.driver.label}"

    def check(self) -> None:
        """Return while this driver may commit to the output.

        Raises:
            FencedError: a newer driver runs the job, or has taken the output over.
            SessionProblem: ZooKeeper does not answer; nothing may be decided.
        """
        self._fence.check()
        if self.location.outside:
            owner = read_owner(self.location)
            self._fence.notice(None if owner is None else owner.driver)
            self._fence.raise_noticed()

    def newest(self, unit: str) -> int | None:
        """The number of a unit's newest commit."""
        return self._file.newest.get(unit)

    def floor(self, unit: str) -> int:
        """See `Inventory.floor`."""
        return self._ledger.floor(self.location.name, unit)

    def raise_floor(self, unit: str, number: int) -> None:
        """See `Inventory.raise_floor`."""
        self._fence.check_state()
        self._ledger.raise_floor(self.location.name, unit, number)

    def committed(self, unit: str, number: int) -> None:
        """A commit is durably in its place: say so, in the inventory and beside the output."""
        with self._lock:
            if number > self._file.newest.get(unit, -1):
                self._file.newest[unit] = number
                self._write(flush=False)

    def take(self) -> None:
        """Take the output over from other drivers; how far it goes is looked at after that."""
        self._write(flush=True)
        self._sweep()
        self._file.newest = self.location.newest_of_all()
        self._write(flush=True)

    def _sweep(self) -> None:
        """Take away, in one step, what other drivers have staged; their commits fail from now."""
        parent, staging = self.location.parent, staging_of(self.location.base)
        swept = f".{self.location.base}.swept-{self.driver.label}"
        if parent.exists(staging):
            parent.move(staging, swept)
            parent.delete(swept)
        parent.delete(gone_of(self.location.base))

    def _write(self, *, flush: bool) -> None:
        location = self.location
        self._ledger.note(location.name, location.key, self._file.newest, flush=flush)
        if self.location.outside:
            name = owner_file(self.location.base)
            self.location.parent.write(name, self._file.to_bytes(), flush=flush)


class Ownership:
    """A driver's claim on a job's state and outputs: `check` it, then `claim` it.

    Args:
        job: its name.
        state: the state folder.
        outputs: all that it writes.
        fresh: state and results of this job are going to be deleted.
        store: where the state is kept, if elsewhere.
    """

    def __init__(
        self,
        job: str,
        state: Storage,
        outputs: Iterable[Location],
        *,
        fresh: bool = False,
        store: Store | None = None,
    ) -> None:
        self.job = job
        self.state = state
        self.outputs = _merged(outputs)
        self.fresh = fresh
        known = None if fresh else read_identity(state)
        self.state_id = known or uuid.uuid4().hex
        self.inventory = Inventory(state, empty=fresh)
        driver = Driver(epoch=1, state="") if store is None else store.driver
        self.driver = replace(driver, state=self.state_id)
        self.fence = Fence(self.driver)
        self._is_new = known is None
        self._epochs = EpochFile(state)
        self._store = store
        self._places: list[Place] = []
        self._owners: dict[str, Owner] = {}

    def check(self) -> None:
        """Return if state and results belong together; nothing is changed.

        Raises:
            NotOwnerError: results belong to another state, or to be deleted: to another job.
            DamagedError: results have gone, or are damaged.
            ValueError: a path that Spark cannot read.
        """
        self._check_paths()
        if not self.fresh:
            self._check_identity()
        for location in self.outputs:
            if self.fresh:
                self._check_deletable(location)
            else:
                self._check_owner(location)
                self._check_newest(location)

    def claim(self, place: Place | None = None, *, epoch: int = 0) -> None:
        """Become the newest driver: newer than all that left their epoch, and not below `epoch`.

        Args:
            place: another one to look at before every commit: ZooKeeper.
            epoch: what that place has given.
        """
        if place is not None:
            self._places.append(place)
        seen = [self._epochs.newest()]
        seen += [owner.driver for o in self._outside() if (owner := read_owner(o)) is not None]
        others = [d.epoch + 1 for d in seen if d is not None and d.run != self.driver.run]
        self.driver = replace(self.driver, epoch=max([self.driver.epoch, epoch, *others]))
        self._epochs.write(self.driver)
        if not self.fresh:
            self._write_identity()
        self._take_outputs()

    def clear(self) -> None:
        """Forget the state; call it after the results have been deleted, and `claim` before."""
        for name in self.state.names():
            if name != EPOCH:
                self.state.delete(name)
        self._write_identity()
        self._take_outputs()

    def owner(self, path: str) -> Owner:
        """Of an output, by its path."""
        return self._owners[str(local_path(path).absolute())]

    def _take_outputs(self) -> None:
        self.fence = Fence(self.driver, self._epochs, self._places, self._store)
        self._owners = {o.key: Owner(o, self) for o in self.outputs}
        for owner in self._owners.values():
            owner.take()

    def _write_identity(self) -> None:
        if self._is_new:
            identity = {"id": self.state_id, "job": self.job, "made": round(time.time(), 3)}
            self.state.write(IDENTITY, json.dumps(identity).encode())
            self._is_new = False

    def _outside(self) -> list[Location]:
        return [location for location in self.outputs if location.outside]

    # ---- what can be wrong

    def _check_paths(self) -> None:
        paths = {local_path(self.state.uri()).as_posix(), *(o.key for o in self.outputs)}
        for path in sorted(paths):
            if refused := sorted(set(path) & set(NOT_IN_PATHS)):
                raise ValueError(
                    f"{path}: Spark cannot use a folder with {' '.join(refused)} in its path, "
                    "which it reads as a pattern or a scheme; move the project to another folder, "
                    "or choose other ones for state (--state-dir) and results"
                )

    def _check_deletable(self, location: Location) -> None:
        owner = read_owner(location)
        if owner is not None and owner.job != self.job and location.newest_of_all():
            raise NotOwnerError(
                location.path,
                f"holds results of another job, {owner.job} ({owner.driver})",
                "nothing was deleted. Give this output another path, or delete those results",
            )

    def _check_identity(self) -> None:
        if not self._is_new:
            return
        if any(self.state.exists(name) for name in ("fingerprint.json", "units", INVENTORY)):
            raise DamagedError(
                self.state.uri(),
                f"this state has no {IDENTITY}: an older version of Blazes wrote it, or the file "
                "was deleted",
                "nothing was changed. Restore the file from a copy, or start afresh with --fresh, "
                "which deletes state and results",
            )

    def _check_owner(self, location: Location) -> None:
        owner = read_owner(location)
        present = location.newest_of_all()
        mine = owner is not None and owner.state == self.state_id
        if not present or not location.outside or mine:
            return
        if owner is not None:
            raise NotOwnerError(
                location.path,
                f"holds results of another state: {owner.state} of job {owner.job}, last written "
                f"by {owner.driver}",
                self._remedy(),
            )
        for unit, number in present.items():
            record = None
            with contextlib.suppress(DamagedError):
                record = check_commit(location.parent.at(location.base), commit_name(unit, number))
            if record is None or record.state != self.state_id:
                raise NotOwnerError(
                    location.path, "holds results, and nothing says that they are", self._remedy()
                )

    def _remedy(self) -> str:
        mine = "a new one" if self._is_new else f"another one ({self.state_id})"
        return (
            f"the state of this job, {local_path(self.state.uri())}, is {mine}. Nothing was "
            "changed. Go on with the state that the results belong to (--state-dir), write to "
            "another folder, or start afresh with --fresh, which deletes them"
        )

    def _check_newest(self, location: Location) -> None:
        """Compare what there is with the inventory."""
        known = self.inventory.newest(location.name)
        present = location.newest_of_all()
        folder = location.parent.at(location.base)
        for unit, number in present.items():
            if number >= known.get(unit, -1):
                record = check_commit(folder, commit_name(unit, number))
                if record.state != self.state_id:
                    raise NotOwnerError(
                        folder.uri(commit_name(unit, number)),
                        f"is a commit of another state, {record.state} (epoch {record.epoch})",
                        self._remedy(),
                    )
        lost = {u: n for u, n in known.items() if u in location.units and n > present.get(u, -1)}
        if not lost or (not present and self._moved(location, lost)):
            return
        unit, number = next(iter(lost.items()))
        newest = "none" if unit not in present else f"number {present[unit]} as the newest"
        raise DamagedError(
            location.path,
            f"results have gone: the state says that {unit} has made its commit {number}, and "
            f"there is {newest} of it",
            f"the state in {local_path(self.state.uri())} is whole, and nothing was changed. The "
            "lost results are not computed again from it: restore this folder from a copy, or "
            "start afresh with --fresh, which deletes state and results and reads the sources "
            "from their beginning",
        )

    def _moved(self, location: Location, lost: Mapping[str, int]) -> bool:
        """Whether an output has another path now, and its results are still at the old one."""
        before = self.inventory.outputs()[location.name]
        if before == location.key:
            return False
        old = Location(name=location.name, path=before, units=location.units)
        return all(old.newest(unit) == number for unit, number in lost.items())


def read_identity(state: Storage) -> str | None:
    """The id of a state folder; None where it has none.

    Raises:
        DamagedError: it is unreadable.
    """
    data = state.read(IDENTITY)
    if data is None:
        return None
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError):
        raise DamagedError(
            state.uri(IDENTITY),
            "the id of this state is unreadable",
            "nothing was changed. The id also stands in the owner file beside each output "
            "(state) and in every commit: write it back, or start afresh with --fresh",
        ) from None


def _merged(outputs: Iterable[Location]) -> tuple[Location, ...]:
    """Outputs with the same path as one."""
    by_path: dict[str, Location] = {}
    for output in outputs:
        known = by_path.get(output.key)
        units = output.units if known is None else (*known.units, *output.units)
        by_path[output.key] = replace(known or output, units=tuple(dict.fromkeys(units)))
    return tuple(by_path.values())


def gone_of(base: str) -> str:
    """The folder beside an output in which commits are deleted."""
    return f".{base}.gone"


def staging_of(base: str) -> str:
    """The folder beside an output in which commits are made."""
    return f".{base}.staging"
