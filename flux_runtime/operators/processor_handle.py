"""The handle that a site gives to a `StatefulProcessor`: Spark's interface to `KeyedState`.

Classes and methods have the names and the meaning of `pyspark.sql.streaming.stateful_processor`,
down to what Spark refuses: lists cannot be emptied by `put`, states are asked for in `init`, a time
to live needs processing time.
"""

# ruff: noqa: D102, N802, N803  (names and documentation are Spark's)

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import Row, StructType

from flux_runtime.operators.processor_state import Entry, KeyedState, Misuse, size_of_entry
from flux_runtime.operators.processor_values import check_schema, given_row, identity, plain_row


class TimeMode(enum.Enum):
    """Spark's time modes."""

    NONE = "none"
    PROCESSING = "processing"
    EVENT = "event"


class Handle(StatefulProcessorHandle):
    """The handle of one processor.

    Args:
        state: of all keys.
        time: whether there are timers, and of which time.
        schemas: schema as text -> schema. Spark's parser is not on a site, so the texts that `init`
            names are read where the job starts.
    """

    def __init__(
        self, state: KeyedState, time: TimeMode, schemas: Mapping[str, StructType]
    ) -> None:
        self.state = state
        self.time = time
        self.schemas = schemas
        self.watermark = 0
        self.initializing = True
        self._kinds: dict[str, type[_Variable]] = {}

    # ---- state

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ValueState:
        variable = _Value(self.state, stateName, self._schema(stateName, schema), ttlDurationMs)
        self._declare(variable)
        return variable

    def getListState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ListState:
        variable = _List(self.state, stateName, self._schema(stateName, schema), ttlDurationMs)
        self._declare(variable)
        return variable

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        schema = self._schema(stateName, valueSchema)
        variable = _Map(self.state, stateName, schema, ttlDurationMs)
        variable.key_schema = self._schema(f"a key of {stateName}", userKeySchema)
        self._declare(variable)
        return variable

    def deleteIfExists(self, stateName: str) -> None:
        self._kinds.pop(stateName, None)
        self.state.forget(stateName)

    def _declare(self, variable: _Variable) -> None:
        name = variable.name
        if not self.initializing:
            raise Misuse(f"the state {name} is asked for outside of init()")
        if not name:
            raise Misuse("a state has no name")
        if variable.ttl is not None and (self.time is not TimeMode.PROCESSING or variable.ttl <= 0):
            raise Misuse(
                f"the state {name} has a time to live of {variable.ttl} ms, which has to be above "
                "0 and needs time: processing"
            )
        if self._kinds.setdefault(name, type(variable)) is not type(variable):
            raise Misuse(f"two states of different kinds are called {name}")

    def _schema(self, name: str, schema: StructType | str) -> StructType:
        if isinstance(schema, str):
            try:
                schema = self.schemas[schema]
            except KeyError:
                text = f"the schema of {name}, {schema!r}, is not the one of the job's start"
                raise Misuse(text) from None
        check_schema(schema, name)
        return schema

    # ---- timers

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers()
        expiry = int(expiryTimestampMs)
        if self.time is TimeMode.EVENT and expiry <= self.watermark:
            raise ValueError(
                f"a timer at {expiry} ms is not later than the watermark, {self.watermark} ms"
            )
        self.state.add_timer(expiry)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._check_timers()
        self.state.delete_timer(int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        self._check_timers()
        return iter(self.state.timers())

    def _check_timers(self) -> None:
        if self.time is TimeMode.NONE:
            raise Misuse("timers need time: processing or time: event")


class _Variable:
    """A state variable of the key that is processed."""

    def __init__(self, state: KeyedState, name: str, schema: StructType, ttl: int | None) -> None:
        self.state = state
        self.name = name
        self.schema = schema
        self.ttl = ttl

    def clear(self) -> None:
        self.state.write(self.name, None, -self._size())

    def _size(self) -> int:
        raise NotImplementedError

    def _made(self, value: Any, *before: Any) -> Entry:
        values = plain_row(value, self.schema, self.name)
        expiry = None if self.ttl is None else self.state.now + self.ttl
        return (*before, values, expiry)

    def _given(self, entry: Entry) -> tuple[Any, ...]:
        return given_row(entry[-2], self.schema)


class _Value(_Variable, ValueState):
    def _held(self) -> Entry | None:
        entry: Entry | None = self.state.read(self.name)
        return None if entry is None or self.state.expired(entry) else entry

    def _size(self) -> int:
        entry = self.state.read(self.name)
        return 0 if entry is None else size_of_entry(entry)

    def exists(self) -> bool:
        return self._held() is not None

    def get(self) -> tuple[Any, ...] | None:
        entry = self._held()
        return None if entry is None else self._given(entry)

    def update(self, newValue: tuple[Any, ...]) -> None:
        entry = self._made(newValue)
        self.state.write(self.name, entry, size_of_entry(entry) - self._size())
        self.state.expires(self.name, entry[-1])


class _List(_Variable, ListState):
    def _held(self) -> list[Entry]:
        entries = self.state.read(self.name) or ()
        return [entry for entry in entries if not self.state.expired(entry)]

    def _size(self) -> int:
        return sum(map(size_of_entry, self.state.read(self.name) or ()))

    def exists(self) -> bool:
        return bool(self._held())

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._given(entry) for entry in self._held()])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        entries = self._new(newState)
        size = sum(map(size_of_entry, entries)) - self._size()
        self.state.write(self.name, entries, size)
        self.state.expires(self.name, entries[0][-1])

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self.appendList([newState])

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        entries = self._new(newState)
        held = self.state.to_change(self.name, list, list)
        held += entries
        self.state.bytes += sum(map(size_of_entry, entries))
        self.state.expires(self.name, entries[0][-1])

    def _new(self, values: list[tuple[Any, ...]]) -> list[Entry]:
        entries = [self._made(value) for value in values]
        if not entries:
            raise Misuse(f"the state {self.name} is given an empty list, which Spark does not take")
        return entries


class _Map(_Variable, MapState):
    key_schema: StructType

    def _held(self) -> dict[bytes, Entry]:
        entries: dict[bytes, Entry] = self.state.read(self.name) or {}
        return {key: entry for key, entry in entries.items() if not self.state.expired(entry)}

    def _size(self) -> int:
        return sum(map(size_of_entry, (self.state.read(self.name) or {}).values()))

    def _key(self, key: tuple[Any, ...]) -> tuple[bytes, tuple[Any, ...]]:
        plain = plain_row(key, self.key_schema, f"a key of {self.name}")
        return identity(plain), plain

    def _entry(self, key: tuple[Any, ...]) -> Entry | None:
        entries = self.state.read(self.name) or {}
        entry: Entry | None = entries.get(self._key(key)[0])
        return None if entry is None or self.state.expired(entry) else entry

    def exists(self) -> bool:
        return bool(self._held())

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        entry = self._entry(key)  # a Row, as Spark gives it here, and only here
        return None if entry is None else Row(*self.schema.names)(*self._given(entry))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return self._entry(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        key_id, plain = self._key(key)
        entry = self._made(value, plain)
        held = self.state.to_change(self.name, dict, dict)
        before = held.get(key_id)
        held[key_id] = entry
        self.state.bytes += size_of_entry(entry) - (size_of_entry(before) if before else 0)
        self.state.expires(self.name, entry[-1], key_id)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(
            [
                (given_row(entry[0], self.key_schema), self._given(entry))
                for entry in self._held().values()
            ]
        )

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter([key for key, _ in self.iterator()])

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter([value for _, value in self.iterator()])

    def removeKey(self, key: tuple[Any, ...]) -> None:
        key_id, _ = self._key(key)
        if key_id not in (self.state.read(self.name) or {}):
            return
        held = self.state.to_change(self.name, dict, dict)
        self.state.bytes -= size_of_entry(held.pop(key_id))
        if not held:
            self.state.write(self.name, None)
