"""State variables and timers of a `StatefulProcessor` on a site, by grouping key.

What a variable of a key holds is data: a value is (values, expiry); a list is a list of these; a
map is identity of the user key -> (user key, values, expiry); timers are their expiry times, in
ascending order. Expiry is a time in ms, or None: never. A time to live counts from the recorded
time of the batch that wrote a value (`now`), never from a clock.

Every change is logged until the batch is over, so that a record or a timer whose processing raises
leaves no trace (`savepoint`, `rollback`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from flux_runtime.operators.processor_values import Plain, identity, size_of

TIMERS: Final = ""
"""Name of the timers among the variables of a key."""
KEY_BYTES: Final = 200
ENTRY_BYTES: Final = 64
PART_BYTES: Final = 128 << 10
"""Of the state in one part, about; a key is never divided."""

Key = tuple[Any, ...]
Entry = tuple[Any, ...]
"""Values last but one, expiry last."""
Variable = Any


class Misuse(TypeError):  # noqa: N818 - what it is
    """A processor uses its handle in a way that Spark does not allow either."""


class Savepoint(NamedTuple):
    """A point to return to: entries of the log by then, and bytes of the state."""

    log: int
    bytes: int


class KeyedState:
    """State variables and timers by grouping key.

    Attributes:
        keys: identity of a grouping key -> (the key, variable -> what it holds); no key is empty.
        now: recorded time of the batch, in ms.
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, tuple[Key, dict[str, Variable]]] = {}
        self.now = 0
        self.bytes = 0
        self._key: Key | None = None
        self._current = b""
        self._log: list[tuple[bytes, Key, str, Variable]] = []
        self._copied: set[tuple[bytes, str]] = set()
        """Variables that were logged since the last savepoint, and may be changed in place."""
        self._timers: list[tuple[int, bytes]] = []
        self._expiries: list[tuple[int, bytes, str, bytes]] = []
        self._scheduled: set[tuple[bytes, str, bytes]] = set()
        self._reading: _Reading | None = None
        self._parts = 0
        """How many of them were installed."""

    def enter(self, key: Key) -> None:
        """Make this the key that is processed."""
        self._key, self._current = key, identity(key)

    @property
    def current(self) -> Key | None:
        """The key that is processed; None: none is."""
        return self._key

    def leave(self) -> None:
        """No key is processed any more."""
        self._key = None

    # ---- variables of the key that is processed

    def read(self, name: str) -> Variable:
        """The value of the variable; None: none."""
        if self._key is None:
            raise Misuse("state and timers belong to a key; outside of one there are none")
        entry = self.keys.get(self._current)
        return None if entry is None else entry[1].get(name)

    def write(self, name: str, variable: Variable, size: int = 0) -> None:
        """Replace what the variable holds, None: by nothing, which takes so many bytes more."""
        held = self.read(name)
        assert self._key is not None
        if (self._current, name) not in self._copied:
            self._log.append((self._current, self._key, name, held))
            self._copied.add((self._current, name))
        self._set(self._current, self._key, name, variable)
        self.bytes += size

    def to_change(
        self, name: str, copied: Callable[[Variable], Variable], empty: Callable[[], Variable]
    ) -> Variable:
        """The value of the variable, to be changed in place."""
        held = self.read(name)
        if held is not None and (self._current, name) in self._copied:
            return held
        variable = empty() if held is None else copied(held)
        self.write(name, variable)
        return variable

    def _set(self, key_id: bytes, key: Key, name: str, variable: Variable) -> None:
        entry = self.keys.get(key_id)
        if variable is not None:
            if entry is None:
                entry = self.keys[key_id] = (key, {})
                self.bytes += KEY_BYTES
            entry[1][name] = variable
        elif entry is not None and name in entry[1]:
            del entry[1][name]
            if not entry[1]:
                del self.keys[key_id]
                self.bytes -= KEY_BYTES
        else:
            return
        if self._reading is not None:
            self._reading.note(key_id, gone=key_id not in self.keys)

    def forget(self, name: str) -> None:
        """Delete a variable of all keys."""
        for key_id, (key, variables) in list(self.keys.items()):
            if name in variables:
                self._log.append((key_id, key, name, variables[name]))
                self.bytes -= size_of_variable(variables[name])
                self._set(key_id, key, name, None)

    # ---- undoing

    def begin(self, now: int) -> None:
        """A batch begins: what was logged before is not undone any more."""
        self.now = max(self.now, now)
        self._log.clear()
        self._copied.clear()

    def savepoint(self) -> Savepoint:
        """A point to return to; earlier ones stay valid."""
        self._copied.clear()
        return Savepoint(len(self._log), self.bytes)

    def rollback(self, to: Savepoint) -> None:
        """Return to a savepoint."""
        for key_id, key, name, held in reversed(self._log[to.log :]):
            self._set(key_id, key, name, held)
            if name == TIMERS:
                self._queue(key_id, held or ())
        del self._log[to.log :]
        self._copied.clear()
        self.bytes = to.bytes

    # ---- timers

    def timers(self) -> tuple[int, ...]:
        """Expiry times of the current key's timers, in ascending order."""
        held: tuple[int, ...] = self.read(TIMERS) or ()
        return held

    def add_timer(self, expiry: int) -> None:
        """Register a timer of the current key; one that is there stays."""
        held = self.timers()
        if expiry not in held:
            self.write(TIMERS, tuple(sorted((*held, expiry))), ENTRY_BYTES)
            self._queue(self._current, (expiry,))

    def delete_timer(self, expiry: int) -> None:
        """Delete a timer of the current key, if there is one."""
        held = self.timers()
        if expiry in held:
            left = tuple(time for time in held if time != expiry)
            self.write(TIMERS, left or None, -ENTRY_BYTES)

    def due(self, until: int) -> list[tuple[int, Key]]:
        """(expiry, key) of the timers that expire by then, in order of time, then of key."""
        due: dict[tuple[int, bytes], Key] = {}
        while self._timers and self._timers[0][0] <= until:
            expiry, key_id = heapq.heappop(self._timers)
            entry = self.keys.get(key_id)
            if entry is not None and expiry in entry[1].get(TIMERS, ()):
                due[expiry, key_id] = entry[0]
        return [(expiry, key) for (expiry, _), key in due.items()]

    def _queue(self, key_id: bytes, expiries: tuple[int, ...]) -> None:
        for expiry in expiries:
            heapq.heappush(self._timers, (expiry, key_id))

    # ---- time to live

    def expires(self, name: str, expiry: int | None, of: bytes = b"") -> None:
        """Note when a value of the current key, or an entry of its map, expires."""
        if expiry is not None:
            self._schedule(expiry, self._current, name, of)

    def _schedule(self, expiry: int, key_id: bytes, name: str, of: bytes) -> None:
        if (key_id, name, of) not in self._scheduled:
            self._scheduled.add((key_id, name, of))
            heapq.heappush(self._expiries, (expiry, key_id, name, of))

    def evict(self) -> None:
        """Delete what has expired. The batch is over: this is not undone."""
        while self._expiries and self._expiries[0][0] <= self.now:
            _, key_id, name, of = heapq.heappop(self._expiries)
            self._scheduled.discard((key_id, name, of))
            entry = self.keys.get(key_id)
            variable = None if entry is None else entry[1].get(name)
            if entry is None or variable is None:
                continue
            left = self._alive(variable, of)
            self.bytes -= size_of_variable(variable) - size_of_variable(left)
            self._set(key_id, entry[0], name, left)
            for expiry, later in _expiries_of(left, of):
                self._schedule(expiry, key_id, name, later)

    def _alive(self, variable: Variable, of: bytes) -> Variable:
        """The rest of a variable, or of one entry of a map, now; None: nothing."""
        match variable:
            case dict():
                if of in variable and self.expired(variable[of]):
                    return {key: entry for key, entry in variable.items() if key != of} or None
                return variable
            case list():
                return [entry for entry in variable if not self.expired(entry)] or None
            case _:
                return None if self.expired(variable) else variable

    def expired(self, entry: Entry) -> bool:
        """Whether the time to live of an entry is over."""
        expiry = entry[-1]
        return expiry is not None and expiry <= self.now

    # ---- moving

    def get_state(self) -> dict[str, Any]:
        """A copy, as data."""
        return {"parts": 0, "gone": [], "keys": self._copies(self.keys), "now": self.now}

    def parts(self) -> Iterator[list[Any]]:
        """See `dataflow.InParts`; a reading before this one ends."""
        self._reading = _Reading()
        self._reading.iterator = self._read_parts(self._reading)
        return self._reading.iterator

    def _read_parts(self, reading: _Reading) -> Iterator[list[Any]]:
        """All keys, then those that have changed meanwhile, as long as these become fewer."""
        order, fewer = list(self.keys), True
        while order and fewer:
            at = 0
            while at < len(order):
                size = max(1, PART_BYTES * len(self.keys) // max(1, self.bytes))
                part = [key_id for key_id in order[at : at + size] if key_id not in reading.gone]
                at += size
                for key_id in part:
                    reading.changed.pop(key_id, None)
                reading.parts += 1
                yield self._copies(part)
            again = [key_id for key_id in reading.changed if key_id not in reading.gone]
            fewer, order = size < 2 * len(again) < len(order), again

    def rest(self) -> dict[str, Any]:
        """See `dataflow.InParts`: keys that have changed since they were read, and those gone."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        keys = self._copies(reading.changed)
        return {"parts": reading.parts, "gone": list(reading.gone), "keys": keys, "now": self.now}

    def reads(self, parts: Iterator[Any]) -> bool:
        """See `dataflow.InParts`."""
        return self._reading is not None and self._reading.iterator is parts

    def _copies(self, of: Iterable[bytes]) -> list[tuple[Key, dict[str, Variable]]]:
        entries = map(self.keys.__getitem__, of)
        return [(key, dict(variables)) for key, variables in entries]

    def install_part(self, part: Iterable[tuple[Key, dict[str, Variable]]]) -> None:
        """Add a part of a state."""
        self._parts += 1
        for key, variables in part:
            self._install(identity(key), key, variables)

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace everything by what `get_state` gave, or add what `rest` gave to the parts."""
        if not state["parts"]:
            self.__init__()  # type: ignore[misc]
        if state["parts"] != self._parts:
            raise ValueError(f"{self._parts} parts of a state are here, of {state['parts']}")
        self._parts = 0
        self.now = state["now"]
        for key_id in state["gone"]:
            if (held := self.keys.pop(key_id, None)) is not None:
                self.bytes -= _size_of_key(held[1])
        for key, variables in state["keys"]:
            self._install(identity(key), key, variables)

    def _install(self, key_id: bytes, key: Key, variables: dict[str, Variable]) -> None:
        held = self.keys.get(key_id)
        self.bytes += _size_of_key(variables) - (0 if held is None else _size_of_key(held[1]))
        self.keys[key_id] = (key, dict(variables))
        for name, variable in variables.items():
            if name == TIMERS:
                self._queue(key_id, variable)
                continue
            units = variable if isinstance(variable, dict) else (b"",)
            for of in units:
                for expiry, later in _expiries_of(variable, of):
                    self._schedule(expiry, key_id, name, later)


class _Reading:
    """A state that is read in parts while it changes.

    Attributes:
        changed: keys that have changed since their part was read, and those that are new.
        gone: keys that were deleted, perhaps to become new again.
        parts: how many have been read.
        iterator: gives them.
    """

    def __init__(self) -> None:
        self.changed: dict[bytes, None] = {}
        self.gone: dict[bytes, None] = {}
        self.parts = 0
        self.iterator: Iterator[Any] | None = None

    def note(self, key_id: bytes, *, gone: bool) -> None:
        """A key has changed, or is gone."""
        if gone:
            self.gone[key_id] = None
            self.changed.pop(key_id, None)
        else:
            self.changed[key_id] = None


def _expiries_of(variable: Variable, of: bytes) -> Iterator[tuple[int, bytes]]:
    """(expiry, `of`) of what expires first in a variable; of a map, of one entry."""
    match variable:
        case None:
            return
        case dict():
            entry = variable.get(of)
        case list():
            entry = variable[0]
        case _:
            entry = variable
    if entry is not None and entry[-1] is not None:
        yield entry[-1], of


def _size_of_key(variables: dict[str, Variable]) -> int:
    return KEY_BYTES + sum(map(size_of_variable, variables.values()))


def size_of_variable(variable: Variable) -> int:
    """Bytes of what a variable holds, about."""
    match variable:
        case None:
            return 0
        case dict():
            return sum(map(size_of_entry, variable.values()))
        case list():
            return sum(map(size_of_entry, variable))
        case tuple() if variable and isinstance(variable[0], tuple):
            return size_of_entry(variable)
        case _:
            return ENTRY_BYTES * len(variable)


def size_of_entry(entry: tuple[Plain, ...]) -> int:
    """Bytes of an entry, about."""
    return ENTRY_BYTES + sum(map(size_of, entry[:-1]))
